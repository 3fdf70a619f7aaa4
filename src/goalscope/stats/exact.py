"""Exact bounds: the binomial interval of Clopper and Pearson, and the bound that is left when all grids agree."""

import math


def exact_binomial(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact two-sided interval of a binomial share.

    Args:
        successes: number of successes, 0 to ``trials``.
        trials: number of independent trials, >= 1.
        confidence: nominal coverage, in (0, 1).

    Returns:
        The lower and the upper end; the true coverage is at least ``confidence`` for every share.

    Raises:
        ValueError: no trial, or successes outside of 0 .. trials, or a confidence outside of (0, 1).

    Source: Clopper and Pearson, Biometrika 26 (1934).
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(
            f"an exact interval needs trials >= 1 and 0 <= successes <= trials, got {successes} of {trials}"
        )
    check_confidence(confidence)
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    failures = trials - successes
    low = float(betaincinv(successes, failures + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, failures, 1 - tail)) if failures else 1.0
    return low, high


def agreement_bounds(
    value: float, groups: float, bounds: tuple[float, float], confidence: float
) -> tuple[float, float]:
    """Return the interval of a bounded mean of which all independent groups show the same value.

    If a share q of all groups shows this value, the rest may lie anywhere between the bounds, so the mean lies in
    ``q value + (1 - q) [a, b]``. All of n drawn groups agree with chance q**n, so q >= (tail)**(1 / n) at the chosen
    confidence. No distribution is assumed. At a bound this is the exact binomial interval of n successes in n trials.

    Args:
        value: what every group shows.
        groups: number of groups n (or their effective number, where they weigh differently).
        bounds: least and greatest possible value a, b; finite.
        confidence: nominal coverage.

    Returns:
        The lower and the upper end.
    """
    agreeing = ((1 - confidence) / 2) ** (1 / groups)
    low, high = bounds
    ends = (agreeing * value + (1 - agreeing) * low, agreeing * value + (1 - agreeing) * high)
    return max(low, ends[0]), min(high, ends[1])


def check_confidence(confidence: float) -> None:
    """Raise a ValueError unless the confidence lies inside (0, 1)."""
    if not (math.isfinite(confidence) and 0 < confidence < 1):
        raise ValueError(f"confidence must lie inside (0, 1), got {confidence!r}: write 0.95 for 95 %")
