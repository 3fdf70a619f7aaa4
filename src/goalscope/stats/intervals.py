"""Exact binomial intervals, and the interval of a mean over independent clusters.

The method for means was chosen by simulation (docs/statistics.md).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Bounds = tuple[float, float]

_ROUNDING = 1e-12  # rounding: means of equal values may differ in their last bits
_NO_SKEW = 1e-6  # below this skewness the cubic correction changes nothing in float64
_BOUNDS_SAY_LITTLE = 0.02  # fraction of the maximum variance below which bounds do not affect the distribution
_ALL_OR_NOTHING = 0.4  # fraction of the maximum variance above which most clusters lie at the bounds
# with fewer clusters, a sample misses a subgroup of one tenth of all clusters in more than 5 % of studies
_FEW_DIFFERENCES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The ends of a confidence interval (NaN where undefined), the name of its method, and a note to print with it."""

    low: float = math.nan
    high: float = math.nan
    method: str = "none"
    note: str = ""


def check_confidence(confidence: float) -> None:
    """Raise a ValueError unless a confidence (the nominal coverage of an interval, such as 0.95) lies inside (0, 1)."""
    if not (math.isfinite(confidence) and 0 < confidence < 1):
        raise ValueError(f"confidence must lie inside (0, 1), got {confidence!r}: write 0.95 for 95 %")


def exact_binomial(successes: int, trials: int, confidence: float = 0.95) -> Bounds:
    """Compute the exact two-sided confidence interval of a binomial proportion (Clopper-Pearson).

    Args:
        successes: number of successes, 0 to ``trials``.
        trials: number of independent trials, >= 1.
        confidence: nominal coverage, in (0, 1).

    Returns:
        The lower and the upper end; the true coverage is at least ``confidence`` for every proportion.

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


def agreement_bounds(value: float, groups: float, bounds: Bounds, confidence: float) -> Bounds:
    """Compute the confidence interval of a bounded mean in the case that all sampled clusters have the same value.

    If a fraction q of all clusters has this value, the others may lie anywhere between the bounds, so the mean lies in
    ``q value + (1 - q) [a, b]``. A sample of n clusters agrees with probability ``q**n``, so ``q >= tail**(1 / n)`` at
    the chosen confidence. No distribution is assumed. For a value at a bound, this is the exact binomial interval of n
    successes in n trials.

    Args:
        value: the value of every cluster.
        groups: number of clusters n (or their effective number with unequal weights).
        bounds: least and greatest possible value a, b; finite.
        confidence: nominal coverage.

    Returns:
        The lower and the upper end.
    """
    agreeing = ((1 - confidence) / 2) ** (1 / groups)
    low, high = bounds
    ends = (agreeing * value + (1 - agreeing) * low, agreeing * value + (1 - agreeing) * high)
    return max(low, ends[0]), min(high, ends[1])


def mean_interval(
    points: Vector, *, bounds: Bounds, confidence: float, groups: float | None = None, differences: bool = False
) -> Interval:
    """Compute the confidence interval of a population mean from a sample of G independent clusters.

    This is a score interval, studentised over clusters, that corrects for the skewness and kurtosis of the sample.

    1. Satterthwaite: the variance of G values of kurtosis k has min(G - 1, 2 G / (k - 1)) degrees of freedom, which
       gives the quantile t. The number is small if a few clusters cause all the variance.
    2. Hall: the studentised mean T of values with skewness g becomes symmetric as
       ``T + a T**2 / 3 + a**2 T**3 / 27 + a / 6``, ``a = g / sqrt(G)``; this is solved for T at -t and at t. The
       skewness is multiplied by ``1 - s``, where s is the variance divided by its maximum, because step 3 accounts for
       the rest. For all-or-nothing clusters (s = 1) the mean determines the variance, and step 1 uses G - 1 degrees of
       freedom.
    3. Wilson: the variance of a bounded mean shrinks towards its bounds as ``V(mu) = (mu - low) (high - mu)``, so
       ``(mean - mu)**2 = T**2 se**2 V(mu) / V(mean)`` is solved for mu; V is linear with one bound, 1 without bounds.

    For differences, each end is the wider of this interval and of an uncorrected t interval. Differences of two
    conditions usually lie on both sides of 0, and many are 0. With few non-zero differences the skewness of the sample
    is often due to chance, and correcting for it gives coverage that is too low (.90 instead of .95 with 30 to 100
    clusters). If the skewness is real, because a condition fails on a few clusters, then the uncorrected t interval
    has too low coverage and the score interval is right. Hall's cubic has a turning point at ``T = -3 / a``, beyond
    which T would grow without bound with the skewness, so T is clipped there.

    Args:
        points: ``[G]`` one value per cluster, or linearised values whose mean is the estimate.
        bounds: least and greatest possible mean; infinite if there is no bound.
        confidence: nominal coverage.
        groups: effective number of clusters with unequal weights, G by default.
        differences: whether the points are differences of two conditions on the same cluster.

    Returns:
        The interval. It is undefined (NaN ends, with a note) with fewer than two clusters, or if all clusters have the
        same value and the bounds are not finite.
    """
    count = len(points)
    if count < 2:
        return Interval(note=f"{'one' if count else 'no'} cluster: undefined interval")
    points = np.sort(points)  # sorted, so that the last bits of the sums do not depend on the order of the clusters
    mean = float(points.mean())
    if float(np.ptp(points)) <= _ROUNDING * max(1.0, abs(mean)):
        return _of_equal_points(mean, count if groups is None else groups, bounds, confidence)
    from scipy.special import stdtrit

    error = float(points.std(ddof=1)) / math.sqrt(count)
    centred = (points - mean) / float(points.std())
    skewness, kurtosis = float((centred**3).mean()), float((centred**4).mean())
    variance_ratio, degrees = _variance_ratio(points, bounds), count - 1.0
    if variance_ratio < 1 - _ROUNDING and kurtosis > 1:
        degrees = min(degrees, 2 * count / (kurtosis - 1))
    quantile, skew = float(stdtrit(degrees, (1 + confidence) / 2)), skewness * (1 - variance_ratio) / math.sqrt(count)
    quantiles = _unskewed(quantile, skew), _unskewed(-quantile, skew)
    method, note = "skewness-corrected score t", _coverage_note(points, bounds, variance_ratio, skewness)
    if differences:
        turn = 3 / abs(skew) if abs(skew) >= _NO_SKEW else math.inf
        quantiles = min(quantiles[0], turn), max(quantiles[1], -turn)
        method, note = (
            "wider of t and skewness-corrected score t",
            _rare_note(count) if count < _FEW_DIFFERENCES else "",
        )
    low, high = (_solve_score(mean, error * corrected_quantile, bounds) for corrected_quantile in quantiles)
    if differences:
        half_width_t = error * float(stdtrit(count - 1, (1 + confidence) / 2))
        low, high = max(min(low, mean - half_width_t), bounds[0]), min(max(high, mean + half_width_t), bounds[1])
    lower_limit, upper_limit = _binomial_ends(points, bounds, confidence)
    if lower_limit > low or upper_limit < high:
        method += f"{',' if differences else ''} within exact binomial"
    return Interval(low=max(low, lower_limit), high=min(high, upper_limit), method=method, note=note)


def _of_equal_points(value: float, groups: float, bounds: Bounds, confidence: float) -> Interval:
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high)):
        return Interval(note="all clusters have one value and the measure no finite bounds: undefined interval")
    ends = agreement_bounds(value, groups, bounds, confidence)
    at_bound = min(value - low, high - value) <= _ROUNDING * (high - low)
    method = "exact binomial" if at_bound else "exact bound of agreement"
    return Interval(low=ends[0], high=ends[1], method=method, note="no variance between clusters")


def _binomial_ends(points: Vector, bounds: Bounds, confidence: float) -> Bounds:
    """Compute ends that are valid for every distribution, from the numbers of clusters at the bounds.

    A mean between a and b is at most ``a + (b - a) P(not at a)`` and at least ``a + (b - a) P(at b)``, and these
    probabilities have exact binomial intervals. The ends matter if almost all clusters lie at one bound, where the
    variance is estimated too poorly for a studentised interval.
    """
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high)):
        return low, high
    slack = _ROUNDING * (high - low)
    off_low, at_high = int((points > low + slack).sum()), int((points >= high - slack).sum())
    lower_fraction = exact_binomial(at_high, len(points), confidence)[0]
    upper_fraction = exact_binomial(off_low, len(points), confidence)[1]
    return low + (high - low) * lower_fraction, low + (high - low) * upper_fraction


def _unskewed(quantile: float, skew: float) -> float:
    """Solve ``T + a T**2 / 3 + a**2 T**3 / 27 + a / 6 = quantile`` for T."""
    if abs(skew) < _NO_SKEW:
        return quantile
    return 3 / skew * (float(np.cbrt(1 + skew * (quantile - skew / 6))) - 1)


def _solve_score(mean: float, margin: float, bounds: Bounds) -> float:
    """Solve ``mean - mu = margin sqrt(V(mu) / V(mean))`` for mu."""
    low, high = bounds
    side = -1 if margin > 0 else 1
    if math.isinf(low) and math.isinf(high):
        return mean - margin
    if math.isinf(low) or math.isinf(high):
        # Distances from the only bound: (d - x)**2 = 2 half x.
        finite_bound, outwards = (low, side) if math.isfinite(low) else (high, -side)
        distance = abs(mean - finite_bound)
        half = margin**2 / distance / 2
        # The smaller root is the product divided by the larger root; a difference would lose digits near the bound.
        larger = distance + half + math.sqrt(half * (2 * distance + half))
        root = larger if outwards > 0 else distance**2 / larger
        return finite_bound + root if math.isfinite(low) else finite_bound - root
    # Scaled to [0, 1]: (1 + k) x**2 - (2 fraction + k) x + fraction**2 = 0; above the mean the same equation for 1 - x.
    position = (mean - low) / (high - low)
    fraction = position if side < 0 else 1 - position
    k = (margin / (high - low)) ** 2 / (position * (1 - position))
    larger = (2 * fraction + k + math.sqrt(k * (4 * fraction * (1 - fraction) + k))) / 2
    root = (high - low) * fraction**2 / larger
    return low + root if side < 0 else high - root


def _variance_ratio(points: Vector, bounds: Bounds) -> float:
    """Return the variance as a fraction of the maximum within the bounds; 0 unless both are finite."""
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high)):
        return 0.0
    mean = float(points.mean())
    return min(1.0, float(points.var()) / ((mean - low) * (high - mean)))


def _coverage_note(points: Vector, bounds: Bounds, variance_ratio: float, skewness: float) -> str:
    """Return a warning if the simulations in docs/statistics.md show too low coverage for such data, else ""."""
    count, (low, high), mean = len(points), bounds, float(points.mean())
    if variance_ratio < _BOUNDS_SAY_LITTLE:
        if count < 10:
            return _rare_note(count)
        most_common = int(np.unique(points, return_counts=True)[1].max())
        if count < 20 and (abs(skewness) > 1 or 2 * most_common >= count):
            return _rare_note(count)
        return ""
    if count < 5:
        return "fewer than 5 clusters: covers more than nominal"
    if count < 40 and count * min(mean - low, high - mean) <= high - low:
        return "few clusters, mean near a bound: covers 0.90-0.99"
    if count < 40 and variance_ratio > _ALL_OR_NOTHING:
        return "few clusters, nearly all or nothing: may cover more than nominal"
    return ""


def _rare_note(count: int) -> str:
    """Return the warning that the sample may contain none of a rare kind of cluster."""
    return f"few clusters: misses with chance {0.9**count:.2g} or more where a tenth of all lie far from the others"
