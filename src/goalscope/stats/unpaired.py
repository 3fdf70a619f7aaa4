"""Comparison of the means of two conditions on different clusters."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import freeze
from goalscope.stats.compare import PairedComparison, SignedRank, smallest_level
from goalscope.stats.estimate import UNBOUNDED, Estimate, Labels, by_grid, check_bounds
from goalscope.stats.intervals import Bounds, Vector, check_confidence, mean_interval

NOT_PAIRED: Final = "other grids on either side: not paired, so that what else differs between them counts too"
"""Note of a difference between means on different clusters."""
_NO_PAIRS: Final = SignedRank(
    positive=0.0, negative=0.0, nonzero=0, p_value=math.nan, effect=math.nan, method="none, not paired"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpairedComparison(PairedComparison):
    """Comparison of condition a with condition b on different clusters.

    It can be used wherever a `PairedComparison` can: `labels` are the clusters of both conditions, `differences` is
    empty, and the signed-rank test is undefined.

    Attributes:
        means_a, means_b: ``[A]`` and ``[B]`` the mean of each cluster.
        value_bounds: least and greatest possible value.
    """

    means_a: Vector
    means_b: Vector
    value_bounds: Bounds

    @property
    def p_value(self) -> float:
        """Smallest level at which the interval excludes 0, but at least ``2 / (A + B choose A)``.

        That is the probability that, by chance, all A clusters of one condition lie on the same side of all B clusters
        of the other. NaN where the interval is undefined.
        """
        if not self.difference.has_interval:
            return math.nan

        def leaves_out_zero(level: float) -> bool:
            low, high = difference_ends(self.means_a, self.means_b, self.value_bounds, 1 - level)
            return low > 0 or high < 0

        sizes = len(self.means_a), len(self.means_b)
        return smallest_level(leaves_out_zero, least=min(1.0, 2 / math.comb(sum(sizes), sizes[0])))


def unpaired_difference(
    values_a: npt.ArrayLike,
    clusters_a: Labels,
    values_b: npt.ArrayLike,
    clusters_b: Labels,
    *,
    unit: str,
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
) -> UnpairedComparison:
    """Compare the means over clusters of two conditions that share no cluster.

    With the intervals (l, u) and (l', u') of the means m and m' at the same confidence the ends of the difference are
    ``m - m' - sqrt((m - l)**2 + (u' - m')**2)`` and ``m - m' + sqrt((u - m)**2 + (m' - l')**2)``: so the difference
    inherits the corrections for skewness and bounds. For two t intervals over many clusters, this is Welch's interval.

    Args:
        values_a, values_b: ``[N]`` and ``[M]`` values, NaN where undefined.
        clusters_a, clusters_b: the cluster of each value.
        unit: the unit of the values.
        bounds: least and greatest possible value (not difference).
        confidence: nominal coverage.

    Returns:
        The comparison. Its interval is undefined if a condition has fewer than two clusters.

    Raises:
        ValueError: a cluster in both conditions, vectors of different lengths, infinite values, or values outside of
            the bounds.

    Source: Zou and Donner (2008), Construction of confidence limits about effect measures: a general approach.
    """
    check_confidence(confidence)
    low, high = check_bounds(bounds)
    first, lost_a = by_grid("a", values_a, clusters_a, (low, high))
    second, lost_b = by_grid("b", values_b, clusters_b, (low, high))
    if common := sorted(map(str, first.keys() & second.keys())):
        raise ValueError(
            f"the two conditions must not share clusters, got {', '.join(common[:5])} in both: call "
            "paired_difference instead"
        )
    # Sums are sequential, as in all other estimates, so that the last bits agree.
    means_a, means_b = (
        np.array([np.cumsum(values)[-1] / len(values) for values in side.values()]) for side in (first, second)
    )
    widest = low - high, high - low
    value = float(means_a.mean() - means_b.mean()) if len(means_a) and len(means_b) else math.nan
    ends = difference_ends(means_a, means_b, (low, high), confidence)
    has_ends = not math.isnan(ends[0])
    counts = (sum(map(len, first.values())), sum(map(len, second.values())))
    return UnpairedComparison(
        labels=(*first, *second),
        differences=freeze(np.zeros(0)),
        difference=Estimate.of_ends(
            value,
            *ends,
            bounds=widest,
            note=NOT_PAIRED if has_ends else f"{NOT_PAIRED}; fewer than two of them on a side: undefined interval",
            unit=unit,
            n=sum(counts),
            clusters=len(first) + len(second),
            method="intervals of both means, combined" if has_ends else "none",
            confidence=confidence,
        ),
        test=_NO_PAIRS,
        bounds=widest,
        unpaired_a=(),
        unpaired_b=(),
        undefined=lost_a + lost_b,
        counts=counts,
        means_a=freeze(means_a),
        means_b=freeze(means_b),
        value_bounds=(low, high),
    )


def difference_ends(means_a: Vector, means_b: Vector, bounds: Bounds, confidence: float) -> Bounds:
    """Compute the interval of the difference of two means over ``[A]`` and ``[B]`` clusters, or NaN ends."""
    if min(len(means_a), len(means_b)) < 2:
        return math.nan, math.nan
    first, second = (mean_interval(means, bounds=bounds, confidence=confidence) for means in (means_a, means_b))
    a, b = float(means_a.mean()), float(means_b.mean())
    return (
        a - b - math.hypot(a - first.low, second.high - b),
        a - b + math.hypot(first.high - a, b - second.low),
    )
