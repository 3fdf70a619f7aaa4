"""The convex conjugate of W: where its slope meets a utility, and its values kept for the next question."""

import bisect
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Evaluate = Callable[[float], Array]
"""From a rationality to ``[3, G]``: W, W' and W'' of each of G worlds."""

AT_END = 1e-12  # a utility this close to an end, as a share of the end's distance from the uniform policy, is there
_EPSILON = 4e-16  # relative rounding of a utility that was given in its own unit
_SLOPE = 1e-2  # greatest error of an interpolated slope, as a share of its distance from the nearer end
_NEAR = 1e-4  # difference of logits below which one more step is exact to 1e-7, and W to 1e-12
_STEPS = 200  # of the search; it needs about four
_REACH = 30.0  # longest step, as a multiple of one more than the rationality
_BENT = 4.0  # how much longer than a Newton step a step along the cubic may be
_NOISE = 1e-15  # of computed values, relative
_SAFETY = 16.0  # the error of an interpolation is estimated from a neighbour: by this factor too large


class Knots:
    """W, W' and W'' of some worlds at every rationality asked for, interpolated where that is as good as computed.

    Between two computed rationalities stands the polynomial of degree five that meets W, W' and W'' at both. Its
    error is a constant times ``(b - left)**3 (right - b)**3``; the constant is measured whenever a point between is
    computed. So a first question costs some backups, and later ones near it cost none.

    Args:
        evaluate: computes ``[3, G]`` at a rationality.
        tolerance: greatest error of an interpolated W, in nats.
    """

    def __init__(self, evaluate: Evaluate, tolerance: float) -> None:
        self._evaluate = evaluate
        self._tolerance = tolerance
        self._places: list[float] = []
        self._values: list[Array] = []
        self._constants: list[float] = []  # of the interval to the right of each place
        self.computed = 0

    def __call__(self, rationality: float, slope_within: float = math.inf) -> Array:
        """Return ``[3, G]`` at a finite rationality.

        Args:
            rationality: where.
            slope_within: greatest error of an interpolated slope.
        """
        index = bisect.bisect_left(self._places, rationality)
        if index < len(self._places) and self._places[index] == rationality:
            return self._values[index]
        if 0 < index < len(self._places):
            left, right = self._places[index - 1], self._places[index]
            reach = (rationality - left) ** 3 * (right - rationality) ** 3
            guess = _between(rationality, left, right, self._values[index - 1], self._values[index])
            constant = self._constants[index - 1] * _SAFETY
            bend = 3 * (right - left) * ((rationality - left) * (right - rationality)) ** 2  # at least reach's slope
            if constant * reach <= self._tolerance and constant * bend <= slope_within:
                return guess
            found = self._compute(rationality)
            error, noise = float(np.abs(guess[0] - found[0]).max()), _NOISE * (1 + float(np.abs(found[0]).max()))
            constant = max(error, noise) / reach if reach > 0 else math.inf
            if error <= noise:  # says nothing but that the old constant was not too small
                constant = min(constant, self._constants[index - 1])
            self._constants[index - 1] = constant
            self._constants.insert(index, constant)
        else:
            found = self._compute(rationality)
            if self._places:
                self._constants.insert(max(index - 1, 0), math.inf)
        self._places.insert(index, rationality)
        self._values.insert(index, found)
        return found

    def _compute(self, rationality: float) -> Array:
        self.computed += 1
        return self._evaluate(rationality)


def at_end(relative: float, end: float, size: float = 0.0) -> bool:
    """Return whether a utility, measured from that of the uniform policy, is at an end of what is attainable.

    Args:
        relative, end: the utility and the end, which lie on one side of 0.
        size: size of the numbers that ``relative`` is a difference of.
    """
    slack = min(AT_END * abs(end) + _EPSILON * size, abs(end) / 2)
    return relative * end > 0 and abs(relative) >= abs(end) - slack


def meet(
    knots: Callable[[float, float], tuple[float, float, float]], target: float, low: float, high: float
) -> tuple[float, float]:
    """Return the rationality at which the slope of W is ``target``, by a safeguarded Newton search from 0.

    The search runs on the logit of the slope between its two limits, which is nearly a straight line: exactly one
    for a single decision between two utilities, and in both tails always. From the second rationality on, a step goes
    along the cubic that meets place and slope of the last two.

    Args:
        knots: W, W' and W'' at a rationality, W' with no greater error than the second argument says.
        target: the wanted slope, inside of (low, high).
        low, high: limits of the slope at rationality minus and plus infinity.

    Returns:
        Two rationalities: the last one that was looked at, and the one that was sought, so close to it that W between
        them is the parabola of W' and W''.
    """
    wanted = math.log((target - low) / (high - target))
    left, right, place = -math.inf, math.inf, 0.0
    before: tuple[float, float, float] | None = None
    for _ in range(_STEPS):
        _, slope, curvature = knots(place, math.inf)
        _, slope, curvature = knots(place, max(0.0, _SLOPE * min(slope - low, high - slope)))
        above, below = slope - low, high - slope
        if above <= 0 or below <= 0:  # so far out that the slope has reached its limit in all digits
            gap, step = (1.0 if below <= 0 else -1.0), math.inf
        else:
            gap = math.log(above / below) - wanted
            rate = curvature * (high - low) / (above * below)
            step = -gap / rate if rate > 0 else math.inf
            if math.isfinite(step):
                here = gap, place, 1 / rate
                bent = _cubic(before, here) if before is not None and before[0] != gap else step
                before = here
                step = bent if bent * step > 0 and abs(bent) <= _BENT * abs(step) else step
        if abs(gap) <= _NEAR and math.isfinite(step):
            return place, place + step
        left, right = (place, right) if gap < 0 else (left, place)
        reach = _REACH * (abs(place) + 1)
        if not abs(step) <= reach:
            step = math.copysign(reach, -gap)
        after = place + step
        if not left < after < right:  # then the side stepped to is bounded: by a place that was too far
            after = (left + right) / 2
            if not left < after < right:
                break
        place = after
    return place, place


def _cubic(before: tuple[float, float, float], here: tuple[float, float, float]) -> float:
    """Return the step from ``here`` to where the cubic of place over gap is at gap 0.

    Args:
        before, here: gap, place, and slope of place over gap.
    """
    (gap, place, slope), (now, at, turn) = before, here
    width, rise = gap - now, place - at
    x = -now / width
    v0, v1 = turn * width, slope * width
    return x * (v0 + x * (3 * rise - 2 * v0 - v1 + x * (v0 + v1 - 2 * rise)))


def quintic(first: Array, second: Array) -> Array:
    """Return the polynomial of degree five on [0, 1] that meets value, slope and curvature at both ends.

    Args:
        first, second: ``[3, ...]`` value, slope and curvature at 0 and at 1.

    Returns:
        ``[6, ...]`` coefficients of x**0 .. x**5.
    """
    (p0, v0, a0), (p1, v1, a1) = first, second
    # The last three by the differences that the first three leave at the right end.
    rise, pace, turn = p1 - p0 - v0 - a0 / 2, v1 - v0 - a0, a1 - a0
    return np.stack(
        [
            p0,
            v0,
            a0 / 2,
            10 * rise - 4 * pace + turn / 2,
            -15 * rise + 7 * pace - turn,
            6 * rise - 3 * pace + turn / 2,
        ]
    )


def _between(at: float, left: float, right: float, first: Array, second: Array) -> Array:
    """Return value, slope and curvature of the polynomial of degree five through both ends, ``[3, G]``."""
    width = right - left
    x = (at - left) / width
    scale = np.array([1.0, width, width * width])[:, None]
    c0, c1, c2, c3, c4, c5 = quintic(first * scale, second * scale)
    value = c0 + x * (c1 + x * (c2 + x * (c3 + x * (c4 + x * c5))))
    slope = c1 + x * (2 * c2 + x * (3 * c3 + x * (4 * c4 + x * 5 * c5)))
    bend = 2 * c2 + x * (6 * c3 + x * (12 * c4 + x * 20 * c5))
    found: Array = np.stack([value, slope, bend]) / scale
    return found
