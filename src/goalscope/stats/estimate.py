"""Estimates of means and ratios, with intervals that count each cluster (e.g. each grid) once.

The values can be given as arrays or as rows of results; random controls with several seeds have estimates of their own.

Every interval treats clusters, never steps, as the independent units: all steps of a cluster share walls, start and
goal. Random controls with several seeds have a table of clusters by seeds. Each of its values is a control's score, or
a model's score minus it. Rows are estimated per measure and combination of tags.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from goalscope.stats.intervals import Bounds, Interval, Vector, check_confidence, mean_interval
from goalscope.stats.rows import Rows, Tag, column_of, numbered

Labels = Sequence[Any] | npt.NDArray[Any]

UNBOUNDED = (-math.inf, math.inf)
FEWEST: Final = 0.5
"""Minimum fraction of a group's clusters in an estimate; one with fewer clusters is shown with a warning."""
NO_WIDTH: Final = "no interval: its ends are equal"
"""Note of an estimate whose ends leave no width between them."""
_ENDS: Final = ("value", "low", "high")
_SLACK = 1e-9  # a value may exceed a bound by rounding, relative to the range
CONDITIONAL = "conditional on the one trained model"
ONE_SEED = "one seed of the control"
"""Notes beside an interval."""
PARTS: Final = ("distance", "distance_band", "progress")
"""Tags of parts of an episode. They select steps, not clusters: a group has the clusters of all of its parts."""
DRAW: Final = "draw"
"""Tag of rows of a random control: its seed."""
LESS: Final = " less "
"""Joins the names of two conditions in that of a measure that is their difference on the same cluster."""
DIFFERENCES: Final = "differences"
"""Tag of rows that are differences on the same cluster: 1, and 2 for differences of differences."""
_Factor = tuple[npt.NDArray[np.int64], list[Any]]  # index of each row's label, and the labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimated value with its confidence interval over clusters.

    Attributes:
        value: the estimate, NaN where no value is defined.
        low, high: ends of the interval, both NaN where it is undefined, and never equal.
        confidence: nominal coverage of the interval.
        n: number of values used.
        clusters: number of clusters (independent units, e.g. grids) used.
        method: name of the interval method, for citation.
        unit: the unit of value, low and high.
        note: a note to print with the interval, "" for none.
        undefined: number of NaN values left out.
        without: number of clusters in the same group without a defined value, which are not among ``clusters``.

    Raises:
        ValueError: ends in the wrong order, an interval of width 0, a value outside the interval, or only one NaN end.
    """

    value: float
    low: float
    high: float
    n: int
    clusters: int
    method: str
    unit: str
    confidence: float = 0.95
    note: str = ""
    undefined: int = 0
    without: int = 0

    def __post_init__(self) -> None:
        check_confidence(self.confidence)
        if min(self.n, self.clusters, self.undefined, self.without) < 0 or self.clusters > self.n:
            raise ValueError(
                f"an estimate needs 0 <= clusters <= n, undefined >= 0 and without >= 0, got n = {self.n}, "
                f"clusters = {self.clusters}, undefined = {self.undefined}, without = {self.without}"
            )
        if math.isnan(self.low) and math.isnan(self.high):
            return
        if not (self.low <= self.value <= self.high and self.low < self.high):
            raise ValueError(
                f"the interval [{self.low!r}, {self.high!r}] must contain the value {self.value!r} and have a "
                "width above 0: set both ends to NaN if the interval is unknown"
            )

    @classmethod
    def of_ends(
        cls, value: float, low: float, high: float, *, bounds: Bounds = UNBOUNDED, note: str = "", **others: Any
    ) -> Self:
        """Build a valid estimate from a value and interval ends that were computed by other means, such as resampling.

        The value and the ends are clipped to the bounds, and the interval is widened to contain the value. An interval
        of width 0 becomes undefined.

        Args:
            value, low, high: value and ends.
            bounds: least and greatest possible value.
            note: note of the estimate. If the interval becomes undefined, the reason is appended.
            others: the other attributes of `Estimate`.
        """
        value, low, high = (min(max(number, bounds[0]), bounds[1]) for number in (value, low, high))
        low, high = min(low, value), max(high, value)
        if not (low <= value <= high and low < high):  # also false for NaN
            has_ends = not (math.isnan(low) and math.isnan(high))
            low, high, note = math.nan, math.nan, "; ".join(filter(None, (note, has_ends * NO_WIDTH)))
        return cls(value=value, low=low, high=high, note=note, **others)

    def moved(self, *, by: float = 0.0, over: float = 1.0, bounds: Bounds = UNBOUNDED) -> Self:
        """Return the estimate of ``(value - by) / over``, with the interval shifted and scaled in the same way.

        Args:
            by: the number to subtract.
            over: the number to divide by, above 0.
            bounds: least and greatest possible value of the result, to which value and ends are clipped.
        """
        numbers = ((number - by) / over for number in (self.value, self.low, self.high))
        other_fields = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in _ENDS}
        return type(self).of_ends(*numbers, bounds=bounds, **other_fields)

    @property
    def has_interval(self) -> bool:
        """Whether the interval is defined, that is, its ends are not NaN."""
        return not math.isnan(self.low)

    @property
    def all_clusters(self) -> int:
        """Number of clusters in the group that was estimated, including those without a defined value."""
        return self.clusters + self.without

    @property
    def sparse(self) -> bool:
        """Whether some, but fewer than the fraction `FEWEST` of the group's clusters have a defined value."""
        return 0 < self.clusters < FEWEST * self.all_clusters

    def __str__(self) -> str:
        """Format the estimate, e.g. ``0.87 [0.83, 0.90] (95 %, t over 30 clusters, n = 300)``.

        If clusters lack a value, the number of clusters is shown as ``20 of 150 clusters``.
        """
        digits = self._digits()
        clusters = f"{self.clusters} of {self.all_clusters}" if self.without else str(self.clusters)
        counts = f"{clusters} cluster{'' if self.all_clusters == 1 else 's'}, n = {self.n}"
        value = "undefined" if math.isnan(self.value) else f"{self.value:.{digits}f}"
        if not self.has_interval:
            details = ", ".join(part for part in (counts, self.note) if part)
            return f"{value} ({details})"
        ends = f"[{self.low:.{digits}f}, {self.high:.{digits}f}]"
        note = f"; {self.note}" if self.note else ""
        return f"{value} {ends} ({100 * self.confidence:g} %, {self.method} over {counts}{note})"

    def _digits(self) -> int:
        """Number of decimals: two, or more if the ends of a narrow interval would otherwise look equal."""
        width = self.high - self.low
        if not (math.isfinite(width) and width > 0):
            return 2
        return min(12, max(2, -math.floor(math.log10(width))))


def estimate_mean(
    values: npt.ArrayLike, clusters: Labels, *, unit: str, bounds: Bounds = UNBOUNDED, confidence: float = 0.95
) -> Estimate:
    """Estimate a mean by averaging within each cluster (e.g. grid) first and then over clusters.

    Args:
        values: ``[N]`` values. NaN marks undefined values, which are counted but not used.
        clusters: ``[N]`` the cluster of each value.
        unit: the unit of the values.
        bounds: least and greatest possible value. Bounds improve the interval, so pass them if they exist.
        confidence: nominal coverage.

    Returns:
        The estimate. Its ends are NaN if fewer than two clusters have a value.

    Raises:
        ValueError: vectors of different lengths, infinite values, or values outside of the bounds.
    """
    bounds = check_bounds(bounds)
    numbers = vector("values", values)
    codes, labels = factorize(clusters)
    if codes.shape != numbers.shape:
        raise ValueError(
            f"clusters must be as long as values ({len(numbers)}), got {len(codes)}: give one cluster per value"
        )
    defined = ~np.isnan(numbers)
    return from_codes(
        numbers[defined],
        codes[defined],
        unit=unit,
        bounds=bounds,
        confidence=confidence,
        undefined=int((~defined).sum()),
        all_clusters=len(labels),
    )


def from_codes(
    values: Vector,
    codes: npt.NDArray[np.int64],
    *,
    unit: str,
    bounds: Bounds,
    confidence: float,
    all_clusters: int,
    undefined: int = 0,
    differences: bool = False,
) -> Estimate:
    """Estimate a mean over clusters from defined values whose clusters are given as numbers.

    Args:
        values: ``[N]`` values, none of them NaN.
        codes: ``[N]`` number of each value's cluster, from 0; some numbers may be unused.
        unit: the unit of the values.
        bounds: least and greatest possible value.
        confidence: nominal coverage of the interval.
        all_clusters: number of clusters in the group, including those without a value.
        undefined: number of undefined values that were left out, to be reported with the estimate.
        differences: whether the values are differences of two conditions, one per cluster.
    """
    _check_range("values", values, bounds)
    values = np.clip(values, *bounds)  # only rounding can push them beyond a bound
    # Sorted, so that the last bits of the sums do not depend on the order of the values.
    order = np.lexsort((values, codes))
    values, codes = values[order], codes[order]
    counts = np.bincount(codes)
    has_values = counts > 0
    points = np.bincount(codes, weights=values)[has_values] / counts[has_values]
    value = float(np.sort(points).mean()) if len(points) else math.nan
    interval = mean_interval(points, bounds=bounds, confidence=confidence, differences=differences)
    count = len(values)
    return _estimate(
        value, interval, bounds, confidence, len(points), all_clusters, n=count, unit=unit, undefined=undefined
    )


def estimate_pooled(
    numerator: npt.ArrayLike,
    denominator: npt.ArrayLike,
    clusters: Labels,
    *,
    unit: str,
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate a ratio of sums, e.g. correct steps over all steps, with an interval over clusters.

    The ratio R is linearised: cluster g contributes ``R + (x_g - R y_g) / mean(y)``, where x_g and y_g are the sums of
    numerators and denominators in the cluster.

    Args:
        numerator: ``[N]`` terms of the numerator. NaN marks undefined pairs, which are counted but not used.
        denominator: ``[N]`` terms of the denominator, >= 0.
        clusters: ``[N]`` the cluster of each pair of terms.
        unit: the unit of the ratio.
        bounds: least and greatest possible ratio.
        confidence: nominal coverage.

    Returns:
        The estimate; ``n`` is the number of pairs. A cluster whose denominators sum to 0 has no ratio and is counted
        in ``without``.

    Raises:
        ValueError: vectors of different lengths, infinite values, negative denominators, or a cluster's ratio outside
            of the bounds.

    Source: Cochran, Sampling Techniques (1977), 6.3 (ratio estimator, linearised variance).
    """
    bounds = check_bounds(bounds)
    numerators, denominators = vector("numerator", numerator), vector("denominator", denominator)
    codes, labels = factorize(clusters)
    if numerators.shape != denominators.shape or numerators.shape != codes.shape:
        raise ValueError(
            f"numerator, denominator and clusters must have the same length, got {len(numerators)}, "
            f"{len(denominators)} and {len(codes)}"
        )
    defined = ~(np.isnan(numerators) | np.isnan(denominators))
    order = np.lexsort((denominators, numerators, codes))
    order = order[defined[order]]
    numerators, denominators, codes = numerators[order], denominators[order], codes[order]
    _check_range("numerator", numerators, UNBOUNDED)
    _check_range("denominator", denominators, (0.0, math.inf))
    numerator_sums, denominator_sums = (
        np.bincount(codes, numerators, len(labels)),
        np.bincount(codes, denominators, len(labels)),
    )
    has_values = denominator_sums > 0
    if (numerator_sums[~has_values] != 0).any():
        raise ValueError(
            "in a cluster whose denominators sum to 0 the numerators must sum to 0 too, but one does "
            "not: check numerator and denominator"
        )
    order = np.lexsort((denominator_sums[has_values], numerator_sums[has_values]))
    count = int(has_values[codes].sum())
    numerator_sums, denominator_sums = numerator_sums[has_values][order], denominator_sums[has_values][order]
    ratios = numerator_sums / denominator_sums
    _check_range("the ratio of a cluster", ratios, bounds)
    clipped = np.clip(ratios, *bounds)  # only rounding can push it beyond a bound
    numerator_sums = np.where(clipped == ratios, numerator_sums, clipped * denominator_sums)
    value, points, effective_grids = math.nan, np.zeros(0), 0.0
    if len(numerator_sums):
        value = float(numerator_sums.sum() / denominator_sums.sum())
        points = value + (numerator_sums - value * denominator_sums) / denominator_sums.mean()
        effective_grids = float(denominator_sums.sum() ** 2 / (denominator_sums**2).sum())
    interval = mean_interval(points, bounds=bounds, confidence=confidence, groups=effective_grids)
    if interval.method != "none":
        interval = replace(interval, method=f"{interval.method} of a linearised ratio")
    undefined = int((~defined).sum())
    return _estimate(
        value, interval, bounds, confidence, len(points), len(labels), n=count, unit=unit, undefined=undefined
    )


def factorize(labels: Labels) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Give each distinct label a number, in order of appearance.

    Args:
        labels: ``[N]`` hashable labels; equal labels share a number.

    Returns:
        ``[N]`` int64 number of each label, from 0 to K - 1; and the K distinct labels.
    """
    return numbered(labels if isinstance(labels, np.ndarray) else column_of(list(labels)))


def by_grid(
    name: str, values: npt.ArrayLike, clusters: Labels, bounds: Bounds = UNBOUNDED
) -> tuple[dict[Any, Vector], int]:
    """Group values by cluster (e.g. grid), and count the undefined values.

    Args:
        name: name of the condition, for errors.
        values: ``[N]`` values, NaN where undefined.
        clusters: ``[N]`` the cluster of each value.
        bounds: least and greatest possible value.

    Returns:
        Each cluster with its defined values in ascending order, clusters without a defined value left out; and the
        number of undefined values.

    Raises:
        ValueError: vectors of different lengths, infinite values, or values outside of the bounds.
    """
    numbers = vector(f"values_{name}", values)
    codes, labels = factorize(clusters)
    if codes.shape != numbers.shape:
        raise ValueError(
            f"clusters_{name} must be as long as values_{name} ({len(numbers)}), got {len(codes)}: give "
            "one cluster per value"
        )
    undefined = np.isnan(numbers)
    _check_range(f"values_{name}", np.where(undefined, max(bounds[0], min(bounds[1], 0.0)), numbers), bounds)
    order = np.lexsort((numbers, codes))
    order = order[~undefined[order]]
    edges = np.searchsorted(codes[order], np.arange(len(labels) + 1))
    by_label = {label: numbers[order[edges[index] : edges[index + 1]]] for index, label in enumerate(labels)}
    return {label: defined for label, defined in by_label.items() if len(defined)}, int(undefined.sum())


def _estimate(
    value: float, interval: Interval, bounds: Bounds, confidence: float, clusters: int, all_clusters: int, **counts: Any
) -> Estimate:
    counts |= {"clusters": clusters, "without": all_clusters - clusters, "confidence": confidence}
    method, note = interval.method, interval.note
    return Estimate.of_ends(value, interval.low, interval.high, bounds=bounds, method=method, note=note, **counts)


def vector(name: str, values: npt.ArrayLike) -> Vector:
    """Convert values to a vector ``[N]`` of float64.

    Raises:
        ValueError: if the values have no axis or several; the message contains ``name``.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape [N], got {list(array.shape)}")
    return array


def check_bounds(bounds: Bounds) -> Bounds:
    """Return bounds (least and greatest possible value) as floats, or raise a ValueError unless the first is the
    smaller one.
    """
    low, high = float(bounds[0]), float(bounds[1])
    if not low < high:
        raise ValueError(f"bounds must be (least, greatest) with least < greatest, got ({low!r}, {high!r})")
    return low, high


def _check_range(name: str, array: Vector, bounds: Bounds) -> None:
    low, high = bounds
    slack = _SLACK * (high - low if math.isfinite(high - low) else 1.0)
    bad = ~np.isfinite(array) | (array < low - slack) | (array > high + slack)
    if bad.any():
        position, inside = (
            int(np.flatnonzero(bad)[0]),
            "" if bounds == UNBOUNDED else f" and lie in [{low:g}, {high:g}]",
        )
        raise ValueError(f"{name} must be finite{inside}, got {array[position]!r} at index {position}")


def crossed_difference(
    values: npt.ArrayLike,
    clusters: Labels,
    control: npt.ArrayLike,
    control_clusters: Labels,
    seeds: Labels,
    *,
    unit: str,
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the mean difference of a model from a random control (e.g. networks with random weights).

    The interval accounts for the sample of clusters, e.g. grids, and for the sample of the control's seeds.

    Let ``d[g, s]`` be the difference between the model and seed s of the control on cluster g. Its mean varies with
    the sample of clusters and with the sample of seeds. The margin over clusters is that of the mean over seeds
    (`paired_difference`); the margin over seeds is that of a t interval with S - 1 degrees of freedom. Its variance is
    the variance between the means of the seeds minus the part ``s_e**2 / G`` that is due to noise within clusters. The
    two margins add in quadrature.

    The interval holds for this one model; it does not generalise over models.

    Args:
        values, clusters: ``[N]`` values of the model, NaN where undefined, and their clusters.
        control, control_clusters, seeds: ``[M]`` values of the control, their clusters and their seeds.
        unit: the unit of the values.
        bounds: least and greatest possible value (not difference).
        confidence: nominal coverage of the interval.

    Returns:
        The estimate over the clusters with values from the model and from every seed. ``n`` is the number of these
        clusters times the number of seeds; ``without`` is the number of other clusters. The ends are NaN with one
        cluster, with one seed, or if all clusters agree and there are no bounds.

    Raises:
        ValueError: vectors of different lengths, infinite values, or values outside of the bounds.

    Source: the two-way random model with one value per cell (Searle, Casella and McCulloch, Variance Components, 1992,
    4.5); margins in quadrature: Zou and Donner, Statistics in Medicine 27 (2008).
    """
    low, high = check_bounds(bounds)
    all_clusters = [*clusters, *control_clusters]
    codes, labels = factorize(all_clusters)
    kinds, names = factorize(seeds)
    model_values, control_values = vector("values", values), vector("control", control)
    if (len(model_values), len(control_values), len(control_values)) != (
        len(clusters),
        len(control_clusters),
        len(kinds),
    ):
        raise ValueError(
            f"values and clusters must have the same length, got {len(model_values)} and {len(clusters)}; "
            f"so must control, control_clusters and seeds, got {len(control_values)}, "
            f"{len(control_clusters)} and {len(kinds)}"
        )
    for name, numbers in (("values", model_values), ("control", control_values)):
        _check_range(name, numbers[~np.isnan(numbers)], (low, high))
    model = _cell_means(model_values, codes[: len(model_values)], len(labels))
    table = _cell_means(control_values, codes[len(model_values) :] * len(names) + kinds, len(labels) * len(names))
    undefined = int(np.isnan(model_values).sum() + np.isnan(control_values).sum())
    return _estimate_table(
        model[:, None] - table.reshape(len(labels), len(names)),
        unit=unit,
        bounds=(low - high, high - low),
        confidence=confidence,
        undefined=undefined,
        differences=True,
    )


def estimate_crossed(
    values: npt.ArrayLike,
    clusters: npt.NDArray[np.int64],
    seeds: npt.NDArray[np.int64],
    *,
    unit: str,
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
    all_clusters: int | None = None,
    groups: float | None = None,
    differences: bool = False,
) -> Estimate:
    """Estimate the mean score of a random control (e.g. networks with random weights) over clusters and over seeds.

    The interval accounts for the sample of clusters and for the sample of seeds, as in `crossed_difference`.

    Args:
        values: ``[N]`` values, NaN where undefined.
        clusters, seeds: ``[N]`` cluster and seed of each value, numbered from 0.
        unit, bounds, confidence: unit and bounds of the values, and nominal coverage of the interval.
        all_clusters: number of clusters in the group, including those without a value; by default the clusters that
            occur.
        groups: effective number of clusters, if they have unequal weights.
        differences: whether the values are differences between a model and the control.

    Returns:
        With one seed, the estimate over clusters, with a note that there was one seed. With several, the estimate over
        the clusters that have a value for every seed.
    """
    numbers = vector("values", values)
    size, count = int(clusters.max(initial=-1)) + 1, int(seeds.max(initial=-1)) + 1
    undefined = int(np.isnan(numbers).sum())
    if count < 2:
        defined = ~np.isnan(numbers)
        estimate = from_codes(
            numbers[defined],
            clusters[defined],
            unit=unit,
            bounds=bounds,
            confidence=confidence,
            undefined=undefined,
            all_clusters=size if all_clusters is None else all_clusters,
            differences=differences,
        )
        return replace(estimate, note="; ".join(filter(None, (estimate.note, ONE_SEED))))
    table = _cell_means(numbers, clusters * count + seeds, size * count).reshape(size, count)
    estimate = _estimate_table(
        table,
        unit=unit,
        bounds=bounds,
        confidence=confidence,
        undefined=undefined,
        differences=differences,
        groups=groups,
    )
    return estimate if all_clusters is None else replace(estimate, without=all_clusters - estimate.clusters)


def _cell_means(values: Vector, codes: npt.NDArray[np.int64], size: int) -> Vector:
    """Average the defined values of each code; NaN for a code without any."""
    defined = ~np.isnan(values)
    counts = np.bincount(codes[defined], minlength=size)
    sums = np.bincount(codes[defined], weights=values[defined], minlength=size)
    return np.where(counts > 0, sums / np.maximum(counts, 1), math.nan)


def _estimate_table(
    table: npt.NDArray[np.float64],
    *,
    unit: str,
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
    undefined: int = 0,
    differences: bool = False,
    groups: float | None = None,
) -> Estimate:
    """Estimate the mean of a table ``[G, S]`` of clusters by seeds, using the clusters with a value for every seed.

    Args:
        table: values, NaN where there is none.
        unit, bounds, confidence: unit and bounds of the values, and nominal coverage.
        undefined: number of values that were undefined.
        differences: whether the values are differences between a model and the controls.
        groups: effective number of clusters with unequal weights.

    Returns:
        The estimate. The ends are NaN with one cluster, with one seed, or if all clusters agree and there are no
        bounds.

    Source: see `crossed_difference`.
    """
    complete = table[~np.isnan(table).any(axis=1)]
    clusters, seeds = complete.shape
    value = float(complete.mean()) if complete.size else math.nan
    interval = Interval(note=f"clusters: {clusters}, seeds of the control: {seeds}: undefined interval")
    if clusters > 1 and seeds > 1:
        grid_means = complete.mean(axis=1)
        interval = mean_interval(
            grid_means, bounds=bounds, confidence=confidence, groups=groups, differences=differences
        )
        interval = replace(interval, note="; ".join(filter(None, (interval.note, CONDITIONAL if differences else ""))))
        if not math.isnan(interval.low):
            value, margin = min(max(value, bounds[0]), bounds[1]), _seed_margin(complete, confidence)
            interval = replace(
                interval,
                low=value - math.hypot(max(0.0, value - interval.low), margin),
                high=value + math.hypot(max(0.0, interval.high - value), margin),
                method=f"{interval.method}, and t over {seeds} seeds,",
            )
    count = complete.size
    return _estimate(value, interval, bounds, confidence, clusters, len(table), n=count, unit=unit, undefined=undefined)


def _seed_margin(differences: npt.NDArray[np.float64], confidence: float) -> float:
    """Compute the half-width of the interval over seeds alone."""
    from scipy.special import stdtrit

    clusters, seeds = differences.shape
    seed_means = differences.mean(axis=0)
    residuals = differences - seed_means - differences.mean(axis=1, keepdims=True) + differences.mean()
    noise = float((residuals**2).sum()) / ((clusters - 1) * (seeds - 1))
    variance = max(0.0, float(seed_means.var(ddof=1)) - noise / clusters)
    return float(stdtrit(seeds - 1, (1 + confidence) / 2)) * math.sqrt(variance / seeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """The estimate of one measure in one group of rows, e.g. the rows of one agent in grids of one size.

    Attributes:
        key: what identifies the group: the values of "measure" and of the names grouped by, in the requested order.
        estimate: the estimate over the group's clusters.
    """

    key: Mapping[str, Tag]
    estimate: Estimate


def estimate_rows(
    rows: Rows,
    by: Sequence[str] = ("agent", "size"),
    *,
    whole: Rows | Mapping[tuple[Tag, ...], int] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    confidence: float = 0.95,
    counts: npt.NDArray[np.int64] | None = None,
    order: Mapping[str, int] | None = None,
) -> list[Grouped]:
    """Estimate the mean of every measure in every group of rows, by averaging within clusters (grids) and then over
    them.

    Each row holds one value of one measure, with its cluster and with tags (named facts such as the agent and the size
    of the grid). Rows with the tag "differences" are paired differences and get the interval of `paired_difference`.
    Rows with the tag "draw" belong to random controls with several seeds and get an interval over clusters and seeds
    (`goalscope.stats.estimate_crossed`).

    Args:
        rows: the rows. NaN values are not used, but counted in ``estimate.undefined``.
        by: names of tags or columns to group by, in the order of sorting. A tag that no row has is None in every
            group.
        whole: rows that contain all clusters of each group, if ``rows`` contains only some of the measures, or the
            number of clusters of each group from `clusters_of`; by default ``rows``. Clusters without a value are
            counted in ``estimate.without``. The tags in `PARTS` do not split clusters.
        bounds: measure -> least and greatest possible value. Measures not listed here have bounds only if their unit
            is "share": [-k, k] for rows whose tag "differences" is k, otherwise [0, 1], or [-1, 1] if some values are
            negative.
        confidence: nominal coverage of the intervals.
        counts: ``[N]`` the number of equal rows that each row represents; 1 by default.
        order: cluster -> position in the whole run, if ``rows`` are a part of it; by default the order of appearance.
            The order of clusters affects the last bits of an interval.

    Returns:
        One estimate per measure and group: measures and agents in order of appearance, other tags sorted (None, then
        numbers by size, then texts).

    Raises:
        ValueError: a name twice in ``by``, a group with different units, a group that mixes rows of random controls
            with other rows, or values outside the given bounds.
    """
    names = [name for name in by if name != "measure"]
    if len(set(names)) != len(names):
        raise ValueError(f"by must not repeat a tag, got {list(by)}: list each tag once")
    if not len(rows):
        return []
    measures, *_ = factors = [_ordered(name, rows) for name in ("measure", *names)]
    kinds, group = np.unique(_combined(factors, np.zeros(len(rows), dtype=np.int64)), return_inverse=True)
    cluster, labels = rows.numbered("cluster")
    if order is not None:
        cluster = np.array([order[label] for label in labels], dtype=np.int64)[cluster]
    is_control = rows.known(DRAW)
    draw = rows.numbered(DRAW)[0] if is_control.any() else None
    unit_codes, unit_labels = rows.numbered("unit")
    totals = whole if isinstance(whole, Mapping) else clusters_of(rows if whole is None else whole, names)
    differences = _differences(rows)
    ranges = _bounds_of(rows, measures, unit_codes, unit_labels, bounds or {}, differences)
    by_group = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[by_group], np.arange(len(kinds) + 1))
    result = []
    for index in range(len(kinds)):
        own_rows = by_group[edges[index] : edges[index + 1]]
        key = {
            name: labels[codes[own_rows[0]]] for name, (codes, labels) in zip(("measure", *names), factors, strict=True)
        }
        units = np.unique(unit_codes[own_rows])
        if len(units) > 1:
            raise ValueError(
                f"all rows of a group must have the same unit, got {[unit_labels[code] for code in units]} at "
                f"{key}: add to by a tag that separates them"
            )
        if counts is not None:
            own_rows = np.repeat(own_rows, counts[own_rows])
        values = rows.value[own_rows]
        defined = ~np.isnan(values)
        options: dict[str, Any] = {
            "unit": str(unit_labels[units[0]]),
            "bounds": ranges[key["measure"]],
            "confidence": confidence,
            "all_clusters": totals.get(tuple(key[name] for name in names if name not in PARTS), 0),
            "differences": bool(differences[own_rows].any()),
        }
        if draw is not None and is_control[own_rows].any():
            if not is_control[own_rows].all():
                raise ValueError(f"the group {key} mixes rows of random controls with other rows: add 'control' to by")
            local_clusters, seeds = (np.unique(codes[own_rows], return_inverse=True)[1] for codes in (cluster, draw))
            estimate = estimate_crossed(values, local_clusters, seeds, **options)
        else:
            # Clusters are renumbered within the group, so that the cost of a group depends only on its own rows.
            local_clusters = np.unique(cluster[own_rows][defined], return_inverse=True)[1].astype(np.int64)
            estimate = from_codes(values[defined], local_clusters, undefined=int((~defined).sum()), **options)
        result.append(Grouped(key=key, estimate=estimate))
    return result


def clusters_of(rows: Rows, by: Sequence[str]) -> dict[tuple[Tag, ...], int]:
    """Count the clusters (e.g. grids) of each group of rows, over all measures.

    Args:
        rows: the rows, each with one value of one measure.
        by: names of tags or columns to group by; those in `PARTS` (parts of an episode) are ignored.

    Returns:
        A mapping from the values of the remaining tags, in order, to the number of clusters.
    """
    factors = [rows.numbered(name) for name in by if name not in PARTS]
    cluster, clusters = rows.numbered("cluster")
    codes = _combined(factors, np.zeros(len(rows), dtype=np.int64))
    kinds, first, group = np.unique(codes, return_index=True, return_inverse=True)
    pairs = np.unique(group * len(clusters) + cluster)
    counts = np.bincount(pairs // len(clusters), minlength=len(kinds))
    keys = [tuple(labels[codes[index]] for codes, labels in factors) for index in first]
    return dict(zip(keys, counts.tolist(), strict=True))


def distinct(rows: Rows, names: Sequence[str]) -> Rows:
    """Select the first row of each combination of values of the named columns and tags.

    Names in `PARTS` (tags of parts of an episode, such as the distance to the goal) are ignored.
    """
    mask = np.zeros(len(rows), dtype=bool)
    codes = numbers_of(rows, [name for name in names if name not in PARTS])
    mask[np.unique(codes, return_index=True)[1]] = True
    return rows.where(mask)


def numbers_of(rows: Rows, names: Sequence[str], codes: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
    """Number the rows so that rows with equal values in the named columns and tags get the same number.

    Args:
        rows: N rows.
        names: names of columns and tags.
        codes: ``[N]`` further numbers, in which rows must also agree to get the same number.

    Returns:
        ``[N]`` numbers; they need not be consecutive.
    """
    return _combined(map(rows.numbered, names), np.zeros(len(rows), dtype=np.int64) if codes is None else codes)


def _combined(factors: Iterable[_Factor], codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number rows ``[N]`` by their codes and their labels, in lexical order."""
    count = int(codes.max(initial=0)) + 1
    for column_codes, labels in factors:
        if count * max(len(labels), 1) >= 2**62:  # renumbered to avoid an overflow
            codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
            count = int(codes.max(initial=0)) + 1
        codes, count = codes * max(len(labels), 1) + column_codes, count * max(len(labels), 1)
    return codes


def _ordered(name: str, rows: Rows) -> _Factor:
    """Number a column's labels in the order in which the output lists them."""
    codes, labels = rows.numbered(name)
    if name in ("measure", "agent"):
        return codes, labels
    order = sorted(range(len(labels)), key=lambda index: natural_order(labels[index]))
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels))
    return rank[codes], [labels[index] for index in order]


def natural_order(label: Tag) -> tuple[int, float, str]:
    """Return a sort key for the values of a tag, which puts None first, then numbers by size, then strings."""
    if label is None:
        return 0, 0.0, ""
    if isinstance(label, bool | int | float | np.number | np.bool_):
        return 1, float(label), ""
    return 2, 0.0, str(label)


def _differences(rows: Rows) -> npt.NDArray[np.int64]:
    """Return ``[N]`` the tag "differences" of each row, 0 where the tag is absent."""
    codes, labels = rows.numbered(DIFFERENCES)
    return np.array([int(label or 0) for label in labels], dtype=np.int64)[codes]


def _bounds_of(
    rows: Rows,
    measures: _Factor,
    unit_codes: npt.NDArray[np.int64],
    units: list[Any],
    declared: Mapping[str, tuple[float, float]],
    differences: npt.NDArray[np.int64],
) -> dict[Any, tuple[float, float]]:
    codes, labels = measures
    result = {}
    for index, label in enumerate(labels):
        own = codes == index
        lowest = np.fmin.reduce(rows.value[own], initial=np.inf)
        highest = np.fmax.reduce(rows.value[own], initial=-np.inf)
        default, count = UNBOUNDED, float(differences[own].max())
        if units[unit_codes[own][-1]] == "share" and count:
            default = -count, count
        elif units[unit_codes[own][-1]] == "share" and lowest >= -1 and highest <= 1:
            default = (0.0, 1.0) if lowest >= 0 else (-1.0, 1.0)
        result[label] = declared.get(label, default)
    return result
