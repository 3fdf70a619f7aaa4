"""Difference to a random control with several seeds: an interval over grids and over seeds of the control."""

import math

import numpy as np
import numpy.typing as npt

from goalscope.stats.estimate import UNBOUNDED, Estimate, Labels, check_bounds, factorize, vector
from goalscope.stats.intervals import Bounds, Vector, check_confidence, mean_interval


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
    """Estimate what a model's values exceed those of a random control by, over grids and over seeds of the control.

    With ``d[g, s]`` the difference of grid g to seed s, the mean over both varies because other grids could have been
    drawn and because other seeds could have been. The margin over grids is that of the mean over seeds
    (`paired_difference`); the margin over seeds is Student's, with S - 1 degrees of freedom, of the variance between
    the seeds' means less the part ``s_e**2 / G`` that the grids' noise puts there. Both margins add in quadrature.

    The interval is conditional on the one model whose values are compared.

    Args:
        values, clusters: ``[N]`` values of the model, NaN where undefined, and the grid of each.
        control, control_clusters, seeds: ``[M]`` values of the control, the grid and the seed of each.
        unit: the unit of the values.
        bounds: least and greatest possible value (of a value, not of a difference).
        confidence: nominal coverage.

    Returns:
        The estimate over the grids that have a value of the model and of every seed; ``n`` counts these grids times
        seeds, ``without`` the other grids. NaN ends with one grid, one seed, or equal grids without
        bounds.

    Raises:
        ValueError: vectors of different lengths, infinite values, or values outside of the bounds.

    Source: the two-way random model with one value a cell (Searle, Casella and McCulloch, Variance Components, 1992,
    4.5); margins in quadrature: Zou and Donner, Statistics in Medicine 27 (2008).
    """
    check_confidence(confidence)
    low, high = check_bounds(bounds)
    every = [*clusters, *control_clusters]
    codes, labels = factorize(every)
    kinds, names = factorize(seeds)
    own, random = vector("values", values), vector("control", control)
    if (len(own), len(random), len(random)) != (len(clusters), len(control_clusters), len(kinds)):
        raise ValueError(
            f"values and clusters must be equally long, and control, control_clusters and seeds, got {len(own)}, "
            f"{len(clusters)} and {len(random)}, {len(control_clusters)}, {len(kinds)}"
        )
    for name, given in (("values", own), ("control", random)):
        outside = given[~np.isnan(given) & ~((given >= low) & (given <= high))]
        if len(outside):
            raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {outside[0]!r}")
    model = _cell_means(own, codes[: len(own)], len(labels))
    table = _cell_means(random, codes[len(own) :] * len(names) + kinds, len(labels) * len(names))
    differences = model[:, None] - table.reshape(len(labels), len(names))
    whole = ~np.isnan(differences).any(axis=1)
    found = differences[whole]
    undefined = int(np.isnan(own).sum() + np.isnan(random).sum())
    return _estimate(found, (low - high, high - low), unit, confidence, undefined, len(labels) - len(found))


def _cell_means(values: Vector, codes: npt.NDArray[np.int64], size: int) -> Vector:
    """Return the mean of the defined values of each code, NaN without one."""
    defined = ~np.isnan(values)
    counts = np.bincount(codes[defined], minlength=size)
    sums = np.bincount(codes[defined], weights=values[defined], minlength=size)
    return np.where(counts > 0, sums / np.maximum(counts, 1), math.nan)


def _estimate(
    differences: npt.NDArray[np.float64], bounds: Bounds, unit: str, confidence: float, undefined: int, without: int
) -> Estimate:
    """Return the estimate from a table ``[G, S]`` of differences without gaps."""
    grids, seeds = differences.shape
    value = float(differences.mean()) if differences.size else math.nan
    ends, method, note = (math.nan, math.nan), "none", f"grids: {grids}, seeds of the control: {seeds}"
    if grids > 1 and seeds > 1:
        rows = differences.mean(axis=1)
        over_grids = mean_interval(rows, bounds=bounds, confidence=confidence, differences=True)
        margin = _seed_margin(differences, confidence)
        note = "; ".join(filter(None, (over_grids.note, "conditional on the one trained model")))
        if not math.isnan(over_grids.low):
            ends = (
                max(bounds[0], value - math.hypot(value - over_grids.low, margin)),
                min(bounds[1], value + math.hypot(over_grids.high - value, margin)),
            )
            method = f"{over_grids.method}, and t over {seeds} seeds,"
    else:
        note += ": undefined interval"
    return Estimate(
        value=value,
        low=ends[0],
        high=ends[1],
        confidence=confidence,
        n=differences.size,
        clusters=grids,
        method=method,
        unit=unit,
        note=note,
        undefined=undefined,
        without=without,
    )


def _seed_margin(differences: npt.NDArray[np.float64], confidence: float) -> float:
    """Return the half width of the interval that other seeds alone would give."""
    from scipy.special import stdtrit

    grids, seeds = differences.shape
    columns = differences.mean(axis=0)
    rest = differences - columns - differences.mean(axis=1, keepdims=True) + differences.mean()
    noise = float((rest**2).sum()) / ((grids - 1) * (seeds - 1))
    variance = max(0.0, float(columns.var(ddof=1)) - noise / grids)
    return float(stdtrit(seeds - 1, (1 + confidence) / 2)) * math.sqrt(variance / seeds)
