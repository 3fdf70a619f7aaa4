"""Comparisons of two conditions: mean differences, equivalence, differences on single clusters, and Holm's correction.

* `paired_difference` compares the means of two conditions on the clusters that they share, and adds the signed-rank
  test; `unpaired_difference` compares them if they share no cluster.
* `equivalence` is valid for any distribution of the differences. An interval from the sample's own variance ignores
  clusters that were not sampled. Suppose one of two agents fails on a tenth of all grids, and they agree elsewhere. In
  28 % of studies, a sample of 12 grids contains none of the grids where it fails, and the interval is as narrow as if
  no such grids existed. The test therefore adds the greatest possible difference to the sample as one more observation.
* `sensitivity` measures how large the differences on single clusters are, beyond the noise of a few trajectories. If
  the clusters of both conditions come from the same distribution (a reflected random grid is a random grid), then the
  mean difference is 0 for every agent, even for one that behaves differently on every pair.
* `holm` corrects a family of tests that was declared in advance.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import freeze
from goalscope.stats.estimate import (
    UNBOUNDED,
    Estimate,
    Labels,
    by_grid,
    check_bounds,
    estimate_mean,
    from_codes,
    vector,
)
from goalscope.stats.intervals import Bounds, Vector, mean_interval

_EXACT_UP_TO = 300  # pairs; above this number the normal approximation agrees to three digits
_SMALLEST_P = 1e-12  # smallest p value that is distinguished from 0
TIED = 1e-12  # largest difference of means that counts as rounding
NOT_PAIRED: Final = "other grids on either side: not paired, so that what else differs between them counts too"
"""Note of a difference between means on different clusters."""
FARTHEST = 10
"""Without bounds: the greatest difference of a cluster that is reckoned with, in margins."""
# Of the integral behind the test of equivalence: nodes, halvings towards its path, and factors multiplied at once.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_HALVINGS = 20
_TOGETHER = 16
DRAWS = 1999
"""Random exchanges of an exchange test: the smallest p is 1 / 2000."""


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
        note: the reason if no difference can be ranked, else "".
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
    """Comparison of condition a with condition b on the P clusters (e.g. grids) that have values in both.

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
        """ "higher" if the mean of condition a is above that of condition b, otherwise "lower"."""
        return "higher" if self.difference.value > 0 else "lower"

    @property
    def p_value(self) -> float:
        """Two-sided p value of the mean difference: the smallest significance level at which its interval excludes 0.

        It is never below `least_p`, the smallest p value that this number of clusters can give, and NaN where the
        interval is undefined. Correcting these p values for multiple tests is equivalent to correcting the confidence
        levels of the intervals.
        """
        return self._smallest_level(least=least_p(len(self.labels)))

    def _ends(self, confidence: float) -> Bounds:
        """Compute the interval of the mean difference at another confidence."""
        interval = mean_interval(self.differences, bounds=self.bounds, confidence=confidence, differences=True)
        return interval.low, interval.high

    def _smallest_level(self, *, least: float) -> float:
        """Return the smallest level, at least ``least``, at which the interval excludes 0, or 1 if none exists."""
        if not self.difference.has_interval:
            return math.nan

        def excludes_zero(log_level: float) -> bool:
            low, high = self._ends(1 - math.exp(log_level))
            return low > 0 or high < 0

        log_lowest, log_highest = math.log(_SMALLEST_P), math.log(1 - 1e-9)
        if not excludes_zero(log_highest):
            return 1.0
        if excludes_zero(log_lowest):
            return max(least, _SMALLEST_P)
        return max(least, math.exp(smallest(excludes_zero, log_lowest, log_highest, 36)))


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
    """Compare the means of two conditions, a and b, on the clusters (e.g. grids) that they share.

    The values are averaged within each cluster, and the difference of the averages is taken cluster by cluster.

    Args:
        values_a, values_b: ``[N]`` and ``[M]`` values, NaN where undefined.
        clusters_a, clusters_b: the cluster of each value.
        unit: the unit of the values.
        bounds: least and greatest possible value (not difference).
        confidence: nominal coverage of the interval.

    Returns:
        The comparison. It lists the clusters with values in only one condition. If no cluster has values in both, the
        difference is undefined.

    Raises:
        ValueError: vectors of different lengths, infinite values, or values outside of the bounds.
    """
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
    """Return the smallest p value that a paired comparison on this many clusters can give: ``2**(1 - clusters)``.

    This is the probability that, by chance alone, the differences of all clusters have the same sign.
    """
    return min(1.0, 2.0 ** (1 - clusters))


def signed_rank(differences: npt.ArrayLike) -> SignedRank:
    """Test whether independent paired differences are symmetric about 0 (two-sided Wilcoxon signed-rank test).

    Zeros are counted but not ranked (Wilcoxon's own rule), and ties get their mean rank. Up to 300 non-zero
    differences, the p value is exact: it enumerates all sign patterns of the observed ranks.

    Args:
        differences: ``[P]`` finite differences.

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
        note = "no non-zero difference: nothing to rank"
        return SignedRank(
            positive=0.0, negative=0.0, nonzero=0, p_value=1.0, effect=math.nan, method="exact", note=note
        )
    ranks = _mean_ranks(np.abs(nonzero))
    positive, total = float(ranks[nonzero > 0].sum()), float(ranks.sum())
    exact = count <= _EXACT_UP_TO
    return SignedRank(
        positive=positive,
        negative=total - positive,
        nonzero=count,
        p_value=_exact_p(ranks, positive) if exact else _normal_p(ranks, positive),
        effect=(2 * positive - total) / total,
        method="exact" if exact else "normal approximation",
    )


def smallest(reached: Callable[[float], bool], low: float, high: float, halvings: int) -> float:
    """Find by bisection the smallest number in (low, high] that meets a condition.

    Args:
        reached: the condition; it must hold for ``high``, and for every number above one for which it holds.
        low, high: ends of the interval to search.
        halvings: number of bisection steps; the result is exact to ``(high - low) / 2**halvings``.
    """
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


def _normal_p(ranks: Vector, positive: float) -> float:
    """Approximate the two-sided p value of a sum of positive ranks by the normal distribution."""
    from scipy.special import ndtr

    # Given the ranks, each is positive with probability 1/2, whether or not there are ties.
    deviation = math.sqrt(float((ranks**2).sum()) / 4)
    distance = abs(positive - float(ranks.sum()) / 2)
    return min(1.0, 2 * float(ndtr(-max(0.0, distance - 0.5) / deviation)))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpairedComparison(PairedComparison):
    """Comparison of the means of two conditions, a and b, on different clusters (e.g. grids).

    It can be used wherever a `PairedComparison` can: `labels` are the clusters of both conditions, `differences` is
    empty, and the signed-rank test is undefined.

    Attributes:
        means_a, means_b: ``[A]`` and ``[B]`` mean of each cluster of a and of b.
        value_bounds: least and greatest possible value.
    """

    means_a: Vector
    means_b: Vector
    value_bounds: Bounds

    @property
    def p_value(self) -> float:
        """Two-sided p value of the difference: the smallest significance level at which its interval excludes 0.

        It is never below ``2 / (A + B choose A)``, the probability that, by chance, all A clusters of one condition lie
        on the same side of all B clusters of the other. It is NaN where the interval is undefined.
        """
        sizes = len(self.means_a), len(self.means_b)
        return self._smallest_level(least=min(1.0, 2 / math.comb(sum(sizes), sizes[0])))

    def _ends(self, confidence: float) -> Bounds:
        return difference_ends(self.means_a, self.means_b, self.value_bounds, confidence)


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
    """Compare the means of two conditions, a and b, that share no clusters (e.g. grids).

    With the intervals (l, u) and (l', u') of the means m and m' at the same confidence, the ends of the difference are
    ``m - m' - sqrt((m - l)**2 + (u' - m')**2)`` and ``m - m' + sqrt((u - m)**2 + (m' - l')**2)``: so the difference
    inherits the corrections for skewness and bounds. For two t intervals over many clusters, this is Welch's interval.

    Args:
        values_a, values_b: ``[N]`` and ``[M]`` values, NaN where undefined.
        clusters_a, clusters_b: the cluster of each value.
        unit: the unit of the values.
        bounds: least and greatest possible value (not difference).
        confidence: nominal coverage of the interval.

    Returns:
        The comparison. Its interval is undefined if a condition has fewer than two clusters.

    Raises:
        ValueError: a cluster in both conditions, vectors of different lengths, infinite values, or values outside of
            the bounds.

    Source: Zou and Donner (2008), Construction of confidence limits about effect measures: a general approach.
    """
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
        test=SignedRank(
            positive=0.0, negative=0.0, nonzero=0, p_value=math.nan, effect=math.nan, method="none, not paired"
        ),
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
    """Compute the ends of the interval of a difference of two means over different clusters; see `unpaired_difference`.

    Args:
        means_a, means_b: ``[A]`` and ``[B]`` mean of each cluster of the two conditions.
        bounds: least and greatest possible mean.
        confidence: nominal coverage of the interval.

    Returns:
        The lower and the upper end; both are NaN if a condition has fewer than two clusters.
    """
    if min(len(means_a), len(means_b)) < 2:
        return math.nan, math.nan
    first, second = (mean_interval(means, bounds=bounds, confidence=confidence) for means in (means_a, means_b))
    a, b = float(means_a.mean()), float(means_b.mean())
    return (
        a - b - math.hypot(a - first.low, second.high - b),
        a - b + math.hypot(first.high - a, b - second.low),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """Result of an equivalence test: whether a mean difference is shown to be smaller than a margin.

    It combines two one-sided tests, against the margin and against its negative.

    Attributes:
        margin: the largest difference regarded as negligible, > 0, in the unit of the measure.
        p_value: the smallest significance level at which both one-sided tests reject; NaN with fewer than two clusters.
        equivalent: whether ``p_value <= level``.
        level: the significance level of each one-sided test.
        note: a warning to print with the result, "" for none.
    """

    margin: float
    p_value: float
    equivalent: bool
    level: float
    note: str = ""


def equivalence(comparison: PairedComparison, margin: float, *, level: float = 0.05) -> Equivalence:
    """Test whether the mean difference lies inside (-margin, margin): two one-sided tests by `chance_beyond`.

    Let ``maximum`` be the greatest possible difference in one cluster (e.g. a grid). If none of G clusters shows a
    difference, p is ``(1 - margin / maximum)**G``, the smallest value that G clusters can give: the probability of
    sampling none of the clusters that would make the mean differ by the margin. Where the measure has no bounds,
    ``maximum`` is taken to be ten margins or the greatest observed difference, whichever is larger, and a note says so.

    Args:
        comparison: from `paired_difference`.
        margin: the largest difference regarded as negligible, > 0, in the measure's unit; choose it before seeing the
            data.
        level: the significance level of each one-sided test, in (0, 0.5).

    Raises:
        ValueError: a margin that is not a finite number above 0 and below the greatest possible difference, or a level
            outside of (0, 0.5).

    Source: Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987), for two one-sided tests.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise ValueError(
            f"margin must be a finite number above 0, got {margin!r}: no number of clusters can show that "
            "a difference is exactly 0. Set margin to the largest difference that does not matter to you"
        )
    maximum = comparison.bounds[1]
    if margin >= maximum:
        raise ValueError(
            f"margin must be below the greatest possible difference ({maximum:g}), got {margin!r}: any "
            "two conditions differ by less than that. Set margin to the largest difference that does not "
            "matter to you"
        )
    if not 0 < level < 0.5:
        raise ValueError(f"level must lie inside (0, 0.5), got {level!r}: set e.g. level=0.05")
    differences, count = comparison.differences, len(comparison.differences)
    if count < 2:
        note = f"{'one' if count else 'no'} cluster: undefined"
        return Equivalence(margin=margin, p_value=math.nan, equivalent=False, level=level, note=note)
    notes = []
    if not math.isfinite(maximum):
        maximum = float(_reckoned(differences, margin, maximum)[..., 0])
        notes.append(f"no bounds: equality assumes that no cluster differs by more than {maximum:g}")
    needed = clusters_needed(margin, maximum, level)
    if count < needed:
        notes.append(f"{count} clusters cannot show equality within {margin:g}: at least {needed}")
    p_value = float(chance_beyond(differences, margin, maximum))
    return Equivalence(margin=margin, p_value=p_value, equivalent=p_value <= level, level=level, note="; ".join(notes))


def clusters_needed(margin: float, maximum: float, level: float) -> int:
    """Return how many clusters an equivalence test needs at least: the number that suffices if no cluster shows a
    difference.

    Args:
        margin: the largest difference regarded as negligible.
        maximum: the greatest possible difference on one cluster, above ``margin``.
        level: significance level of each of the two one-sided tests.
    """
    return math.ceil(math.log(level) / math.log1p(-margin / maximum) - 1e-9)


def chance_beyond(differences: Vector, margin: float, maximum: float) -> Vector:
    """Compute the p value of an equivalence test, or of many at once, without assumptions on the distribution.

    An equivalence test consists of two one-sided tests: the mean is at least the margin, and the mean is at most minus
    the margin. The p value of the first is the probability that ``sum_g w_g d_g + w_0 maximum`` is at least the margin,
    with ``(w_0, ..., w_G)`` uniform on the simplex. If every difference is 0 or the maximum, this is the exact binomial
    test. The second is computed from ``-d``.

    Args:
        differences: ``[..., G]`` differences d on G clusters, in [-maximum, maximum]; the axes before are separate
            tests.
        margin: the largest difference regarded as negligible.
        maximum: the greatest possible difference; if it is infinite, ten margins or the greatest observed difference,
            whichever is larger.

    Returns:
        ``[...]`` the larger of the two p values of each test.

    Source: Gaffke, Mathematical Methods of Statistics 14 (2005); Learned-Miller and Thomas, A new confidence interval
        for the mean of a bounded random variable (2019), whose simulations keep the level for any distribution.
    """
    sides = np.stack([differences, -differences])
    unseen = np.broadcast_to(_reckoned(differences, margin, maximum) - margin, (*sides.shape[:-1], 1))
    over = np.concatenate([sides - margin, unseen], axis=-1)
    return np.asarray(_chance_above_zero(over).max(axis=0))


def _reckoned(differences: Vector, margin: float, maximum: float) -> Vector:
    """Return ``[..., 1]`` the greatest difference that the test allows for."""
    greatest = np.abs(differences).max(axis=-1, keepdims=True)
    return np.full_like(greatest, maximum) if math.isfinite(maximum) else np.maximum(FARTHEST * margin, greatest)


def _chance_above_zero(terms: Vector) -> Vector:
    """Compute the probability ``[...]`` that ``sum_i E_i a_i > 0`` for terms a ``[..., N]`` and exponential variables
    E.

    Exponential variables divided by their sum are uniform on the simplex. With ``K(s) = -sum_i log(1 - s a_i)`` the
    chance is ``1/pi int_0^inf Re exp(K(t + i y)) / (t + i y) dy`` for any t in (0, 1 / max a). At the minimum of K the
    integrand does not oscillate, so that small probabilities remain accurate.
    """
    terms = terms / np.abs(terms).max(axis=-1, keepdims=True)
    greatest = terms.max(axis=-1)
    low, high = np.zeros(terms.shape[:-1]), 1 / greatest
    for _ in range(_HALVINGS):  # towards the root of K', which rises on (0, 1 / max a)
        middle = (low + high) / 2
        ratio = middle[..., None] * terms
        np.subtract(1, ratio, out=ratio)
        np.divide(terms, ratio, out=ratio)
        rises = ratio.sum(axis=-1) > 0
        low, high = np.where(rises, low, middle), np.where(rises, middle, high)
    shift = np.maximum(low, 0.02 / np.sqrt((terms**2).sum(axis=-1)))[..., None]
    width = 4 / np.sqrt(((terms / (1 - shift * terms)) ** 2).sum(axis=-1))[..., None]
    unit = (1 + _NODES) / 2
    points = shift + 1j * width * unit / (1 - unit)
    exponent = np.zeros(points.shape, dtype=np.complex128)
    for first in range(0, terms.shape[-1], _TOGETHER):  # few enough factors that their product does not overflow
        factors, factor = np.ones(points.shape, dtype=np.complex128), np.empty(points.shape, dtype=np.complex128)
        for index in range(first, min(first + _TOGETHER, terms.shape[-1])):
            np.multiply(points, terms[..., index, None], out=factor)
            np.subtract(1, factor, out=factor)
            factors *= factor
        exponent -= np.log(factors)
    integrand = (np.exp(exponent) / points).real * width * _WEIGHTS / 2 / (1 - unit) ** 2
    return np.asarray(np.clip(integrand.sum(axis=-1) / math.pi, 0.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """How much two conditions differ on single clusters (e.g. grids), even where the differences cancel in the mean.

    Attributes:
        value: root mean square over clusters of the true difference, in the unit of the measure; 0 if the differences
            are no greater than noise; NaN if no cluster has two values in both conditions.
        low, high: ends of the interval of ``value``, both NaN where it is undefined.
        square: the mean squared true difference, whose root is ``value``; unbiased, so possibly negative.
        p_value: p value of the exchange test, whose null hypothesis is that the trajectories of a cluster are
            exchangeable between conditions; NaN where undefined.
        counts: numbers of values of conditions a and b used.
        method: method of the test.
        note: a warning to print with the result, "" for none.
    """

    value: float
    low: float
    high: float
    square: Estimate
    p_value: float
    counts: tuple[int, int]
    method: str
    note: str = ""


def sensitivity(
    values_a: npt.ArrayLike,
    clusters_a: Labels,
    values_b: npt.ArrayLike,
    clusters_b: Labels,
    *,
    unit: str,
    rng: np.random.Generator,
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
    draws: int = DRAWS,
) -> Sensitivity:
    """Estimate how far two conditions differ on single clusters (e.g. grids), and test whether they differ on any
    cluster.

    For each cluster with at least two values in both conditions, ``d**2 - s_a**2 / T_a - s_b**2 / T_b`` is an unbiased
    estimate of the squared true difference, where d is the observed difference, ``s**2`` the variance of a condition's
    values and T their number; the mean over clusters has the interval of `estimate_mean`. The test exchanges values at
    random between the conditions within each cluster and compares the sum of squared differences.

    Args:
        values_a, values_b: ``[N]`` and ``[M]`` values of single trajectories, NaN where undefined.
        clusters_a, clusters_b: the cluster of each value.
        unit: the unit of the values.
        rng: generator of the random exchanges.
        bounds: least and greatest possible value of a trajectory; the ends of the interval respect them.
        confidence: nominal coverage of the interval.
        draws: number of random exchanges.

    Raises:
        ValueError: vectors of different lengths, infinite values, or no draws.

    Source: Fisher, The Design of Experiments (1935), 21 (randomisation test); Phipson and Smyth, Statistical
        Applications in Genetics and Molecular Biology 9 (2010) (p of random exchanges is never 0).
    """
    if draws < 1:
        raise ValueError(f"draws must be at least 1 for an exchange test, got {draws!r}")
    low, high = check_bounds(bounds)
    (first, _), (second, _) = by_grid("a", values_a, clusters_a), by_grid("b", values_b, clusters_b)
    shared = sorted((label for label in first if label in second), key=str)
    pairs = {label: (first[label], second[label]) for label in shared if min(len(first[label]), len(second[label])) > 1}
    noise = [_squared_difference(first_values, second_values) for first_values, second_values in pairs.values()]
    maximum = high - low  # of a difference
    square = estimate_mean(
        noise, list(pairs), unit=f"{unit}²", bounds=(-(maximum**2), maximum**2), confidence=confidence
    )
    single = len(shared) - len(pairs)
    varied = [pair for pair in pairs.values() if np.ptp(np.concatenate(pair)) > TIED]
    if not pairs:
        p_value, method = math.nan, "none"
        notes = ["no cluster has two values in both conditions: undefined"]
    else:
        p_value = _exchange(varied, rng, draws) if varied else 1.0
        method = f"{draws} random exchanges within {len(pairs)} clusters" if varied else "nothing to exchange"
        notes = [
            f"{single} of {len(shared)} clusters without two values in both conditions left out" if single else "",
            "" if varied else "no cluster has two different values: nothing to exchange",
            square.note if math.isnan(square.low) else "",
        ]
    squares = np.array([square.value, square.low, square.high])
    value, lower, upper = np.minimum(maximum, np.sqrt(np.maximum(0.0, squares))).tolist()
    return Sensitivity(
        value=value,
        low=lower,
        high=upper,
        square=square,
        p_value=p_value,
        counts=(
            sum(len(first_values) for first_values, _ in pairs.values()),
            sum(len(second_values) for _, second_values in pairs.values()),
        ),
        method=method,
        note="; ".join(filter(None, notes)),
    )


def _squared_difference(first: Vector, second: Vector) -> float:
    """Compute the squared difference of means minus the contribution of noise; unbiased, so possibly negative."""
    noise = first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second)
    return float((first.mean() - second.mean()) ** 2 - noise)


def _exchange(pairs: Sequence[tuple[Vector, Vector]], rng: np.random.Generator, draws: int) -> float:
    """Return the share of exchanges, including the observed assignment, whose statistic reaches the observed one."""
    observed, drawn = 0.0, np.zeros(draws)
    for first, second in pairs:
        pooled = np.concatenate([first, second])
        low, high = float(pooled.min()), float(pooled.max())
        count, total = len(first), float(pooled.sum())
        observed += (first.mean() - second.mean()) ** 2
        # if values take only two levels, the number of high values drawn is a sufficient statistic
        if ((pooled == low) | (pooled == high)).all():
            high_count = int((pooled == high).sum())
            sums = low * count + (high - low) * rng.hypergeometric(
                high_count, len(pooled) - high_count, count, size=draws
            )
        else:
            keys = rng.random((draws, len(pooled)))
            sums = pooled[np.argpartition(keys, count - 1, axis=1)[:, :count]].sum(axis=1)
        drawn += (sums / count - (total - sums) / len(second)) ** 2
    reached = int((drawn >= observed * (1 - 1e-9) - TIED).sum())
    return (1 + reached) / (1 + draws)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of tests that are corrected together for multiple testing, declared before they are run.

    Attributes:
        name: subject of the family, shown in tables.
        members: the name of every test, including tests that may turn out undefined.

    Raises:
        ValueError: no name, no member, or a member twice.
    """

    name: str
    members: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.name or not self.members or len(set(self.members)) != len(self.members):
            raise ValueError(
                f"a family needs a name and members that all differ, got name {self.name!r} and members "
                f"{list(self.members)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """One test of a family after Holm's correction for multiple testing.

    Attributes:
        name: name of the test in the family.
        p_value: the uncorrected p value; NaN where the test is undefined.
        adjusted: the smallest family-wise level at which the test is rejected; 1 where it is undefined.
        rejected: whether ``adjusted <= level``.
        note: a warning if the test is undefined or has too few clusters to reach the family's level, else "".
    """

    name: str
    p_value: float
    adjusted: float
    rejected: bool
    note: str = ""


def holm(
    p_values: Mapping[str, float], family: Family, *, level: float = 0.05, least: Mapping[str, float] | None = None
) -> list[Corrected]:
    """Correct the p values of a declared family of tests so that the chance of any false rejection is at most
    ``level``.

    Args:
        p_values: name of a test -> its p value in [0, 1]. Give NaN for an undefined test, which counts as a member of
            the family but never rejects.
        family: the declared family; ``p_values`` must have exactly its members.
        level: family-wise significance level, in (0, 1).
        least: name of a test -> the smallest p value that its number of clusters can give. If even that would not
            reject, given the other p values, the note says so.

    Returns:
        One result per test, in the order of the declaration.

    Raises:
        TypeError: the family is not a `Family`.
        ValueError: members missing or not declared, p values outside of [0, 1], or a level outside of (0, 1).

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    if not isinstance(family, Family):
        raise TypeError(
            f"holm needs a declared Family, got {family!r}: list all tests that are judged together, e.g. "
            "Family(name='transforms', members=('rotate', 'reflect'))"
        )
    missing = [name for name in family.members if name not in p_values]
    foreign = [name for name in p_values if name not in family.members]
    if missing or foreign:
        raise ValueError(
            f"p_values must have exactly the members of family {family.name!r}: {missing} are missing and "
            f"{foreign} are not declared. Give NaN for an undefined test, and declare every test in "
            "advance"
        )
    bad = {name: p for name, p in p_values.items() if not (math.isnan(p) or 0 <= p <= 1)}
    if bad or not 0 < level < 1:
        raise ValueError(f"p values must lie in [0, 1] and level in (0, 1), got p values {bad} and level {level!r}")
    tested = {name: 1.0 if math.isnan(p_values[name]) else p_values[name] for name in family.members}
    names = sorted(tested, key=lambda name: tested[name])
    ordered = [tested[name] for name in names]
    reached = [0.0, *accumulate((min(1.0, (len(tested) - rank) * p) for rank, p in enumerate(ordered)), max)]
    adjusted = dict(zip(names, reached[1:], strict=True))

    def note(name: str) -> str:
        if math.isnan(p_values[name]):
            return "undefined test: counted in the family, never rejected"
        # The members with smaller p values keep their ranks when this p value falls to its minimum.
        lowest = min(tested[name], (least or {}).get(name, 0.0))
        rank = bisect_left(ordered, lowest)
        if adjusted[name] <= level or max(reached[rank], (len(tested) - rank) * lowest) <= level:
            return ""
        return f"too few clusters: no p below {lowest:.2g}, which cannot reach the level of this family"

    return [
        Corrected(
            name=name,
            p_value=p_values[name],
            adjusted=adjusted[name],
            rejected=adjusted[name] <= level,
            note=note(name),
        )
        for name in family.members
    ]


def corrected(
    p_values: Mapping[str, float], name: str, *, level: float = 0.05, least: Mapping[str, float] | None = None
) -> dict[str, Corrected]:
    """Correct p values for multiple testing with `holm`, for the family of exactly these tests.

    Args:
        p_values: name of a test -> its p value, NaN for an undefined test.
        name: subject of the family, for error messages.
        level: family-wise significance level, in (0, 1).
        least: name of a test -> the smallest p value that its number of clusters can give; see `holm`.

    Returns:
        Name of a test -> its result; empty if there are no tests.

    Raises:
        ValueError: p values outside of [0, 1], or a level outside of (0, 1).
    """
    family = Family(name=name, members=tuple(p_values)) if p_values else None
    return {test.name: test for test in holm(p_values, family, level=level, least=least)} if family else {}
