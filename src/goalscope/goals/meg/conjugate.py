"""The convex conjugate of W: the rationality at which its slope meets a utility."""

import math
from collections.abc import Callable, Sequence

Point = Callable[[float, float], Sequence[float]]
"""W, W' and W'' at a rationality; the second argument is the maximum error of W'."""

_AT_END = 1e-12  # relative distance from an end, in units of end to uniform policy, that counts as at the end
_EPSILON = 4e-16  # relative rounding error of a utility in its own unit
_SLOPE = 1e-2  # maximum error of an interpolated slope, as a fraction of its distance from the nearer end
_NEAR = 1e-4  # difference of logits below which one more step is exact to 1e-7, and W to 1e-12
_STEPS = 200  # of the search; it needs about four
_REACH = 30.0  # longest step, as a multiple of one more than the rationality
_BENT = 4.0  # how much longer than a Newton step a step along the cubic may be


def best_rationality(point: Point, utility: float, low: float, high: float, size: float) -> tuple[float, float]:
    """Return the rationality of the supremum of ``b utility - W(b)``: the last one evaluated, and the best one.

    Both are 0 where no policy changes the utility, and infinite at the ends. Between the two, W is the parabola of W'
    and W''. Utilities are relative to the uniform policy's, ``low`` and ``high`` are the least and the greatest
    attainable, and ``size`` is the magnitude of the numbers that ``utility`` is a difference of.
    """
    if high - low <= 0 or utility == 0:
        return 0.0, 0.0
    for end, limit in ((high, math.inf), (low, -math.inf)):
        if at_end(utility, end, size):
            return limit, limit
    return _match_slope(point, utility, low, high)


def at_end(relative: float, end: float, size: float = 0.0) -> bool:
    """Return whether a utility lies at an end of the attainable range; both are given relative to the utility of the
    uniform policy.
    """
    slack = min(_AT_END * abs(end) + _EPSILON * size, abs(end) / 2)
    return relative * end > 0 and abs(relative) >= abs(end) - slack


def _match_slope(knots: Point, target: float, low: float, high: float) -> tuple[float, float]:
    """Return the rationality at which the slope of W is ``target``, by a safeguarded Newton search from 0.

    The search runs on the logit of the slope between its two limits, which is nearly a straight line: exactly one
    for a single decision between two utilities, and in both tails always. From the second rationality on, a step goes
    along the cubic with the values and slopes of the last two.
    """
    target_logit = math.log((target - low) / (high - target))
    left, right, rationality = -math.inf, math.inf, 0.0
    before: tuple[float, float, float] | None = None
    for _ in range(_STEPS):
        _, slope, curvature = knots(rationality, math.inf)
        _, slope, curvature = knots(rationality, max(0.0, _SLOPE * min(slope - low, high - slope)))
        above, below = slope - low, high - slope
        if above <= 0 or below <= 0:  # the slope equals its limit in floating point
            gap, step = (1.0 if below <= 0 else -1.0), math.inf
        else:
            gap = math.log(above / below) - target_logit
            rate = curvature * (high - low) / (above * below)
            step = -gap / rate if rate > 0 else math.inf
            if math.isfinite(step):
                latest = gap, rationality, 1 / rate
                cubic_step = _cubic(before, latest) if before is not None and before[0] != gap else step
                before = latest
                step = cubic_step if cubic_step * step > 0 and abs(cubic_step) <= _BENT * abs(step) else step
        if abs(gap) <= _NEAR and math.isfinite(step):
            return rationality, rationality + step
        left, right = (rationality, right) if gap < 0 else (left, rationality)
        longest = _REACH * (abs(rationality) + 1)
        if not abs(step) <= longest:
            step = math.copysign(longest, -gap)
        after = rationality + step
        if not left < after < right:  # then the side stepped to is bounded by an earlier rationality
            after = (left + right) / 2
            if not left < after < right:
                break
        rationality = after
    return rationality, rationality


def _cubic(before: tuple[float, float, float], latest: tuple[float, float, float]) -> float:
    """Return by how much to change the rationality so that the gap becomes 0.

    The step follows from the cubic of rationality as a function of gap through two points (gap, rationality, slope).
    """
    (gap, rationality, slope), (latest_gap, latest_rationality, latest_slope) = before, latest
    width, rise = gap - latest_gap, rationality - latest_rationality
    x = -latest_gap / width
    v0, v1 = latest_slope * width, slope * width
    return x * (v0 + x * (3 * rise - 2 * v0 - v1 + x * (v0 + v1 - 2 * rise)))
