"""The convex conjugate of W: the rationality at which its slope meets a utility."""

import math
from collections.abc import Callable, Sequence

Point = Callable[[float, float], Sequence[float]]
"""W, W' and W'' at a rationality, W' with no greater error than the second argument says."""

_AT_END = 1e-12  # a utility this close to an end, as a share of the end's distance from the uniform policy, is there
_EPSILON = 4e-16  # relative rounding of a utility that was given in its own unit
_SLOPE = 1e-2  # greatest error of an interpolated slope, as a share of its distance from the nearer end
_NEAR = 1e-4  # difference of logits below which one more step is exact to 1e-7, and W to 1e-12
_STEPS = 200  # of the search; it needs about four
_REACH = 30.0  # longest step, as a multiple of one more than the rationality
_BENT = 4.0  # how much longer than a Newton step a step along the cubic may be


def best_rationality(point: Point, utility: float, low: float, high: float, size: float) -> tuple[float, float]:
    """Return the rationality of the supremum of ``b utility - W(b)``: the last one looked at, and the best one.

    Both are 0 where nothing can be changed, and infinite at the ends; between them W is the parabola of W' and W''.
    Utilities count from that of the uniform policy, ``low`` and ``high`` are the least and the greatest attainable, and
    ``size`` is that of the numbers that ``utility`` is a difference of.
    """
    if high - low <= 0 or utility == 0:
        return 0.0, 0.0
    for end, limit in ((high, math.inf), (low, -math.inf)):
        if at_end(utility, end, size):
            return limit, limit
    return _meet(point, utility, low, high)


def at_end(relative: float, end: float, size: float = 0.0) -> bool:
    """Return whether a utility is at an end of what is attainable, both counted from that of the uniform policy."""
    slack = min(_AT_END * abs(end) + _EPSILON * size, abs(end) / 2)
    return relative * end > 0 and abs(relative) >= abs(end) - slack


def _meet(knots: Point, target: float, low: float, high: float) -> tuple[float, float]:
    """Return the rationality at which the slope of W is ``target``, by a safeguarded Newton search from 0.

    The search runs on the logit of the slope between its two limits, which is nearly a straight line: exactly one
    for a single decision between two utilities, and in both tails always. From the second rationality on, a step goes
    along the cubic that meets place and slope of the last two.
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
    """Return the step to where the cubic of place over gap is at gap 0, from gap, place and its slope over the gap."""
    (gap, place, slope), (now, at, turn) = before, here
    width, rise = gap - now, place - at
    x = -now / width
    v0, v1 = turn * width, slope * width
    return x * (v0 + x * (3 * rise - 2 * v0 - v1 + x * (v0 + v1 - 2 * rise)))
