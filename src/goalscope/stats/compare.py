"""Paired comparison of two conditions: the mean difference over clusters and the signed-rank test."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import freeze
from goalscope.stats.estimate import UNBOUNDED, Estimate, Labels, by_grid, check_bounds, from_codes, vector
from goalscope.stats.intervals import Bounds, Vector, check_confidence, mean_interval

_EXACT_UP_TO = 300  # pairs; above this number the normal approximation agrees to three digits
_SMALLEST_P = 1e-12  # smallest p value that is distinguished from 0
TIED = 1e-12  # largest difference of means that counts as rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRank:
    """Result of a Wilcoxon signed-rank test. Pairs with a difference of 0 are counted but not ranked.

    Attributes:
        positive, negative: sums of the ranks of positive and of negative differences.
        nonzero: number of non-zero (ranked) differences.
        p_value: two-sided p value; 1 if all differences are 0.
        effect: signed matched-pairs rank-biserial correlation, (positive - negative) / (positive + negative), from -1
            (all below) to 1 (all above); NaN if all differences are 0.
        method: "exact" (all sign patterns, ties included) or "normal approximation".
        note: a warning if there are too few non-zero differences to reach a small p value, else "".
    """

    positive: float
    negative: float
    nonzero: int
    p_value: float
    effect: float
    method: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """Comparison of condition a with condition b on the P clusters that have values in both.

    Attributes:
        labels: the P clusters that have both conditions, in the order of a.
        differences: ``[P]`` mean of a minus mean of b in each cluster.
        difference: the mean difference with its interval over clusters.
        test: the signed-rank test of symmetry about 0. Skewed differences can fail it although their mean is 0, so no
            conclusion about the mean uses it.
        bounds: least and greatest possible difference.
        unpaired_a, unpaired_b: clusters with values in a only and in b only.
        undefined: number of NaN values left out.
        counts: numbers of values of a and of b on the P clusters.
    """

    labels: tuple[Any, ...]
    differences: Vector
    difference: Estimate
    test: SignedRank
    bounds: Bounds
    unpaired_a: tuple[Any, ...]
    unpaired_b: tuple[Any, ...]
    undefined: int
    counts: tuple[int, int]

    @property
    def direction(self) -> str:
        """Whether the mean of a is "higher" or "lower" than that of b."""
        return "higher" if self.difference.value > 0 else "lower"

    @property
    def p_value(self) -> float:
        """Smallest level at which the interval of the mean difference excludes 0, but at least ``least_p(P)``.

        NaN where the interval is undefined. Correcting these p values for multiple tests is equivalent to correcting
        the levels of the intervals.
        """
        if not self.difference.has_interval:
            return math.nan

        def leaves_out_zero(level: float) -> bool:
            estimate = mean_interval(self.differences, bounds=self.bounds, confidence=1 - level, differences=True)
            return estimate.low > 0 or estimate.high < 0

        return smallest_level(leaves_out_zero, least=least_p(len(self.labels)))

    def __str__(self) -> str:
        """Summarise the difference, the test and the unpaired clusters in one line."""
        effect = "undefined" if math.isnan(self.test.effect) else f"{self.test.effect:+.2f}"
        parts = [
            f"difference {self.difference}",
            f"signed-rank p = {self.test.p_value:.3g} ({self.test.method}, effect {effect}, "
            f"{self.test.nonzero} of {len(self.labels)} differences non-zero)",
        ]
        parts += [self.test.note] if self.test.note else []
        parts += [
            f"without partner in {name}: {', '.join(map(str, unpaired))}"
            for name, unpaired in (("b", self.unpaired_a), ("a", self.unpaired_b))
            if unpaired
        ]
        return "; ".join(parts)


def paired_difference(
    values_a: npt.ArrayLike,
    clusters_a: Labels,
    values_b: npt.ArrayLike,
    clusters_b: Labels,
    *,
    unit: str,
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
) -> PairedComparison:
    """Compare two conditions on the clusters that they share.

    The values are averaged within each cluster, and the difference of the averages is taken cluster by cluster.

    Args:
        values_a, values_b: ``[N]`` and ``[M]`` values, NaN where undefined.
        clusters_a, clusters_b: the cluster of each value.
        unit: the unit of the values.
        bounds: least and greatest possible value (not difference).
        confidence: nominal coverage.

    Returns:
        The comparison. It lists the clusters with values in only one condition. If no cluster has values in both, the
        difference is undefined.

    Raises:
        ValueError: vectors of different lengths, infinite values, or values outside of the bounds.
    """
    check_confidence(confidence)
    low, high = check_bounds(bounds)
    first, lost_a = by_grid("a", values_a, clusters_a, (low, high))
    second, lost_b = by_grid("b", values_b, clusters_b, (low, high))
    labels = tuple(label for label in first if label in second)
    # Sums are sequential, as in all other estimates, so that the last bits agree.
    means = [np.array([np.cumsum(side[label])[-1] / len(side[label]) for label in labels]) for side in (first, second)]
    raw = means[0] - means[1]
    differences = np.where(np.abs(raw) <= TIED, 0.0, raw)
    difference_bounds = (low - high, high - low)
    difference = from_codes(
        differences,
        np.arange(len(labels)),
        unit=unit,
        bounds=difference_bounds,
        confidence=confidence,
        all_clusters=len(labels),
        differences=True,
    )
    return PairedComparison(
        labels=labels,
        differences=freeze(differences),
        difference=difference,
        test=signed_rank(differences),
        bounds=difference_bounds,
        unpaired_a=tuple(label for label in first if label not in second),
        unpaired_b=tuple(label for label in second if label not in first),
        undefined=lost_a + lost_b,
        counts=(sum(len(first[label]) for label in labels), sum(len(second[label]) for label in labels)),
    )


def least_p(clusters: int) -> float:
    """Return the smallest p value that this many clusters can give.

    By chance alone, all differences have the same sign with probability ``2**(1 - clusters)``.
    """
    return min(1.0, 2.0 ** (1 - clusters))


def signed_rank(differences: npt.ArrayLike, *, level: float = 0.05) -> SignedRank:
    """Test whether independent paired differences are symmetric about 0 (two-sided Wilcoxon signed-rank test).

    Zeros are counted but not ranked (Wilcoxon's own rule), and ties get their mean rank. Up to 300 non-zero
    differences, the p value is exact: it enumerates all sign patterns of the observed ranks.

    Args:
        differences: ``[P]`` finite differences.
        level: the result carries a note if there are too few differences for a p value below this level.

    Raises:
        ValueError: a difference that is not finite.

    Source: Wilcoxon, Biometrics 1 (1945); Kerby, Comprehensive Psychology 3 (2014) for the effect size.
    """
    numbers = vector("differences", differences)
    if not np.isfinite(numbers).all():
        raise ValueError("differences must be finite, got NaN or infinity: drop the pairs without a value first")
    nonzero = numbers[numbers != 0]
    count = len(nonzero)
    if count == 0:
        return SignedRank(
            positive=0.0,
            negative=0.0,
            nonzero=0,
            p_value=1.0,
            effect=math.nan,
            method="exact",
            note="no non-zero difference: nothing to rank",
        )
    ranks = _mean_ranks(np.abs(nonzero))
    positive, total = float(ranks[nonzero > 0].sum()), float(ranks.sum())
    smallest = 2.0 ** (1 - count)
    too_few = f"only {count} non-zero difference{'s' if count > 1 else ''}: the smallest possible p is {smallest:.3g}"
    exact = count <= _EXACT_UP_TO
    return SignedRank(
        positive=positive,
        negative=total - positive,
        nonzero=count,
        p_value=_exact_p(ranks, positive) if exact else float(normal_p(ranks, positive)),
        effect=(2 * positive - total) / total,
        method="exact" if exact else "normal approximation",
        note=too_few if smallest > level else "",
    )


def smallest_level(leaves_out_zero: Callable[[float], bool], *, least: float) -> float:
    """Return the smallest level, at least ``least``, at which an interval excludes 0, or 1 if none exists."""

    def at(log_level: float) -> bool:
        return leaves_out_zero(math.exp(log_level))

    log_lowest, log_highest = math.log(_SMALLEST_P), math.log(1 - 1e-9)
    if not at(log_highest):
        return 1.0
    if at(log_lowest):
        return max(least, _SMALLEST_P)
    return max(least, math.exp(smallest(at, log_lowest, log_highest, 36)))


def smallest(reached: Callable[[float], bool], low: float, high: float, halvings: int) -> float:
    """Find by bisection the smallest number in (low, high] that meets a condition which ``high`` meets."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _mean_ranks(sizes: Vector) -> Vector:
    """Rank sizes from 1. Sizes that are equal up to rounding get the mean of their ranks."""
    order = np.argsort(sizes, kind="stable")
    ordered = sizes[order]
    new = np.concatenate([[True], np.diff(ordered) > TIED * np.maximum(1.0, ordered[1:])])
    block = np.cumsum(new) - 1
    counts = np.bincount(block)
    ends = np.cumsum(counts)
    ranks = np.empty(len(sizes), dtype=np.float64)
    ranks[order] = (ends - (counts - 1) / 2)[block]
    return ranks


def _exact_p(ranks: Vector, positive: float) -> float:
    """Compute the exact two-sided p value of a sum of positive ranks, with all sign patterns equally likely."""
    doubled = np.rint(2 * ranks).astype(np.int64)  # mean ranks are halves
    probability = np.zeros(int(doubled.sum()) + 1, dtype=np.float64)
    probability[0] = 1.0
    largest_sum = 0
    for rank in doubled:
        probability[rank : largest_sum + rank + 1] += probability[: largest_sum + 1].copy()
        probability[: largest_sum + rank + 1] /= 2
        largest_sum += int(rank)
    observed = round(2 * positive)
    tail = min(probability[: observed + 1].sum(), probability[observed:].sum())
    return float(min(1.0, 2 * tail))


def normal_p(ranks: Vector, positive: npt.ArrayLike) -> Vector:
    """Approximate two-sided p values of sums of positive ranks by the normal distribution.

    The ranks have shape ``[..., G]``, the result ``[...]``. Without any non-zero rank the p value is 1.
    """
    from scipy.special import ndtr

    # Given the ranks, each is positive with probability 1/2, whether or not there are ties.
    deviation = np.sqrt((ranks**2).sum(axis=-1) / 4)
    distance = np.abs(positive - ranks.sum(axis=-1) / 2)
    score = np.divide(np.maximum(0.0, distance - 0.5), deviation, out=np.zeros_like(deviation), where=deviation > 0)
    p_values: Vector = np.minimum(2 * ndtr(-score), 1.0)
    return p_values
