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
    """W, W' and W'' (see `CurvePoint`) of G worlds at any rationality, interpolated where this is accurate enough.

    Between two computed rationalities we use the polynomial of degree five that matches W, W' and W'' at both. Its
    error is a constant times ``(b - left)**3 (right - b)**3``; the constant is measured whenever a point between is
    computed. So a first call needs some backups, and later calls near it need none. ``evaluate`` computes ``[3, G]``
    at a rationality, ``tolerance`` is the greatest error of an interpolated W in nats.
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
    """Return the coefficients of the polynomial of degree five on [0, 1] that matches both ends, ``[6, ...]``.

    Each end is ``[3, ...]``: value, slope and curvature.
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
    """Evaluate polynomials with coefficients ``[6, ...]`` at x."""
    return np.asarray(c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * (c[4] + x * c[5])))))


def quintic_slope(c: Array, x: Array | float) -> Array:
    """Evaluate the slopes of polynomials with coefficients ``[6, ...]`` at x."""
    return np.asarray(c[1] + x * (2 * c[2] + x * (3 * c[3] + x * (4 * c[4] + x * 5 * c[5]))))


def rising_root(c: Array, width: Array, level: Array, halvings: int) -> Array:
    """Find where the slopes of polynomials on [0, 1], per unit of ``width``, rise above a level, by bisection, ``[N]``.

    Args:
        c: ``[6, N]`` coefficients, see `quintic`; the slopes rise.
        width: ``[N]`` length that [0, 1] stands for.
        level: ``[N]`` the level.
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
