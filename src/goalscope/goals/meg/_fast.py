"""Interpolate W between computed rationalities to a given tolerance, so that most calls need no backup.

The reference is the backup itself, `goalscope.worlds.planning.soft.SoftProcess.backup`; tests compare the two.
"""

import bisect
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_NOISE = 1e-15  # of computed values, relative
_SAFETY = 16.0  # factor on the interpolation error, which is estimated from a neighbour


class Knots:
    """Evaluates the rationality curves W of G worlds at any rationality, by interpolation where this is accurate
    enough.

    Calling the object returns W, W' and W'' (see `CurvePoint`). Between two computed rationalities we use the
    polynomial of degree five that matches all three at both. Its error is a constant times ``(b - left)**3 (right -
    b)**3``; the constant is measured whenever a point between is computed. So a first call needs some computations, and
    later calls near it need none.

    Args:
        evaluate: computes ``[3, G]`` (W, W' and W'' of each world) at a rationality.
        tolerance: greatest error of an interpolated W in nats.
    """

    def __init__(self, evaluate: Callable[[float], Array], tolerance: float) -> None:
        self._evaluate = evaluate
        self._tolerance = tolerance
        self._rationalities: list[float] = []
        self._values: list[Array] = []
        self._constants: list[float] = []  # of the interval to the right of each rationality

    def __call__(self, rationality: float, slope_within: float = math.inf) -> Array:
        """Return W, W' and W'', ``[3, G]``, at a finite rationality; slopes err by at most ``slope_within``."""
        index = bisect.bisect_left(self._rationalities, rationality)
        if index < len(self._rationalities) and self._rationalities[index] == rationality:
            return self._values[index]
        if 0 < index < len(self._rationalities):
            left, right = self._rationalities[index - 1], self._rationalities[index]
            profile = (rationality - left) ** 3 * (right - rationality) ** 3
            guess = _between(rationality, left, right, self._values[index - 1], self._values[index])
            constant = self._constants[index - 1] * _SAFETY
            bend = (
                3 * (right - left) * ((rationality - left) * (right - rationality)) ** 2
            )  # at least the profile's slope
            if constant * profile <= self._tolerance and constant * bend <= slope_within:
                return guess
            computed = self._evaluate(rationality)
            error, noise = float(np.abs(guess[0] - computed[0]).max()), _NOISE * (1 + float(np.abs(computed[0]).max()))
            constant = max(error, noise) / profile if profile > 0 else math.inf
            if error <= noise:  # only shows that the old constant was not too small
                constant = min(constant, self._constants[index - 1])
            self._constants[index - 1] = constant
            self._constants.insert(index, constant)
        else:
            computed = self._evaluate(rationality)
            if self._rationalities:
                self._constants.insert(max(index - 1, 0), math.inf)
        self._rationalities.insert(index, rationality)
        self._values.insert(index, computed)
        return computed


def quintic(first: Array, second: Array) -> Array:
    """Return the polynomial of degree five on [0, 1] that has given values, slopes and curvatures at both ends.

    Args:
        first, second: ``[3, ...]`` value, slope and curvature at 0 and at 1.

    Returns:
        ``[6, ...]`` coefficients, from the constant to the fifth power.
    """
    (p0, v0, a0), (p1, v1, a1) = first, second
    # The last three coefficients match the remaining differences at the right end.
    value_gap, slope_gap, curvature_gap = p1 - p0 - v0 - a0 / 2, v1 - v0 - a0, a1 - a0
    upper = (
        10 * value_gap - 4 * slope_gap + curvature_gap / 2,
        -15 * value_gap + 7 * slope_gap - curvature_gap,
        6 * value_gap - 3 * slope_gap + curvature_gap / 2,
    )
    return np.stack([p0, v0, a0 / 2, *upper])


def quintic_value(c: Array, x: Array | float) -> Array:
    """Evaluate polynomials of degree five at x.

    Args:
        c: ``[6, ...]`` coefficients, see `quintic`.
        x: a number, or an array with one position per polynomial.
    """
    return np.asarray(c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * (c[4] + x * c[5])))))


def quintic_slope(c: Array, x: Array | float) -> Array:
    """Evaluate the derivatives of polynomials of degree five at x.

    Args:
        c: ``[6, ...]`` coefficients, see `quintic`.
        x: a number, or an array with one position per polynomial.
    """
    return np.asarray(c[1] + x * (2 * c[2] + x * (3 * c[3] + x * (4 * c[4] + x * 5 * c[5]))))


def rising_root(c: Array, width: Array, level: Array, halvings: int) -> Array:
    """Find by bisection where the slope of each of N polynomials reaches a given level, as a position in [0, 1],
    ``[N]``.

    Args:
        c: ``[6, N]`` coefficients, see `quintic`; the slopes must rise.
        width: ``[N]`` length of the interval that [0, 1] stands for; slopes are taken per unit of this length.
        level: ``[N]`` the slope to be reached.
        halvings: number of times that the interval is halved, at most 50, so that its ends are exact.
    """
    # The slope is that of `quintic_slope`, computed in place in the same order.
    first, second, third, fourth, fifth = c[1], 2 * c[2], 3 * c[3], 4 * c[4], c[5]
    left, middle, slope, half = np.zeros(len(level)), np.empty(len(level)), np.empty(len(level)), 0.5
    for _ in range(halvings):
        np.add(left, half, out=middle)
        np.multiply(middle, 5, out=slope)
        slope *= fifth
        for coefficient in (fourth, third, second):
            slope += coefficient
            slope *= middle
        slope += first
        slope /= width
        np.multiply(slope < level, half, out=middle)
        left += middle
        half /= 2
    return left + half


def _between(rationality: float, left: float, right: float, first: Array, second: Array) -> Array:
    """Return value, slope and curvature in G worlds, ``[3, G]``, of the quintic through both ends."""
    width = right - left
    x = (rationality - left) / width
    scale = np.array([1.0, width, width * width])[:, None]
    c = quintic(first * scale, second * scale)
    bend = 2 * c[2] + x * (6 * c[3] + x * (12 * c[4] + x * 20 * c[5]))
    result: Array = np.stack([quintic_value(c, x), quintic_slope(c, x), bend]) / scale
    return result
