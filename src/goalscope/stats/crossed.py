"""Intervals for random controls with several seeds, over clusters and over seeds.

The values form a table of clusters by seeds. Each value is a control's score or a model's score minus it.
"""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from goalscope.stats.estimate import UNBOUNDED, Estimate, Labels, check_bounds, factorize, from_codes, vector
from goalscope.stats.intervals import Bounds, Vector, check_confidence, mean_interval

CONDITIONAL = "conditional on the one trained model"
ONE_SEED = "one seed of the control"
"""Notes beside an interval."""


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
    """Estimate the mean difference between a model and a random control, over clusters and seeds of the control.

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
        confidence: nominal coverage.

    Returns:
        The estimate over the clusters with values from the model and from every seed. ``n`` is the number of these
        clusters times the number of seeds; ``without`` is the number of other clusters. The ends are NaN with one
        cluster, with one seed, or if all clusters agree and there are no bounds.

    Raises:
        ValueError: vectors of different lengths, infinite values, or values outside of the bounds.

    Source: the two-way random model with one value per cell (Searle, Casella and McCulloch, Variance Components, 1992,
    4.5); margins in quadrature: Zou and Donner, Statistics in Medicine 27 (2008).
    """
    check_confidence(confidence)
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
        outside = numbers[~np.isnan(numbers) & ~((numbers >= low) & (numbers <= high))]
        if len(outside):
            raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {outside[0]!r}")
    model = _cell_means(model_values, codes[: len(model_values)], len(labels))
    table = _cell_means(control_values, codes[len(model_values) :] * len(names) + kinds, len(labels) * len(names))
    undefined = int(np.isnan(model_values).sum() + np.isnan(control_values).sum())
    return estimate_table(
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
    """Estimate the mean score of random controls over clusters and seeds; see `estimate_table`.

    Args:
        values: ``[N]`` values, NaN where undefined.
        clusters, seeds: ``[N]`` cluster and seed of each value, numbered from 0.
        unit, bounds, confidence: unit and bounds of the values, and nominal coverage.
        all_clusters: number of clusters in the group, including those without a value; by default the clusters that
            occur.
        groups: effective number of clusters with unequal weights.
        differences: whether the values are differences between a model and the controls.

    Returns:
        With one seed, the estimate over clusters with the note "one seed". With several, the estimate over the
        clusters that have a value for every seed.
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
    estimate = estimate_table(
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


def estimate_table(
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
    ends, method, note = (math.nan, math.nan), "none", f"clusters: {clusters}, seeds of the control: {seeds}"
    if clusters > 1 and seeds > 1:
        grid_means = complete.mean(axis=1)
        over_grids = mean_interval(
            grid_means, bounds=bounds, confidence=confidence, groups=groups, differences=differences
        )
        margin = _seed_margin(complete, confidence)
        note = "; ".join(filter(None, (over_grids.note, CONDITIONAL if differences else "")))
        if not math.isnan(over_grids.low):
            value = min(max(value, bounds[0]), bounds[1])
            ends = (
                max(bounds[0], value - math.hypot(max(0.0, value - over_grids.low), margin)),
                min(bounds[1], value + math.hypot(max(0.0, over_grids.high - value), margin)),
            )
            method = f"{over_grids.method}, and t over {seeds} seeds,"
    else:
        note += ": undefined interval"
    return Estimate(
        value=value,
        low=ends[0],
        high=ends[1],
        confidence=confidence,
        n=complete.size,
        clusters=clusters,
        method=method,
        unit=unit,
        note=note,
        undefined=undefined,
        without=len(table) - clusters,
    )


def _seed_margin(differences: npt.NDArray[np.float64], confidence: float) -> float:
    """Compute the half-width of the interval over seeds alone."""
    from scipy.special import stdtrit

    clusters, seeds = differences.shape
    seed_means = differences.mean(axis=0)
    residuals = differences - seed_means - differences.mean(axis=1, keepdims=True) + differences.mean()
    noise = float((residuals**2).sum()) / ((clusters - 1) * (seeds - 1))
    variance = max(0.0, float(seed_means.var(ddof=1)) - noise / clusters)
    return float(stdtrit(seeds - 1, (1 + confidence) / 2)) * math.sqrt(variance / seeds)
