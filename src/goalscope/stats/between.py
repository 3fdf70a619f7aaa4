"""Standard deviation between conditions that share the same clusters, with an interval.

With ``y[g, c]`` the value of cluster g under condition c, the model is ``y = m + a_g + t_c + e[g, c]``. The conditions
are fixed, not a sample: their standard deviation is ``sqrt(sum t_c**2 / (C - 1))``, and the noise of the clusters
biases its plug-in estimate upwards. The mean square between conditions over that of the residuals has a noncentral F
distribution with C - 1 and (C - 1) (G - 1) degrees of freedom and noncentrality ``G sum t_c**2 / var(e)``; the values
of it that are compatible with the observed ratio form the interval.

Source: Steiger, Psychological Methods 9 (2004), fixed effects; expected mean squares: Searle, Casella and McCulloch,
Variance Components (1992), 4.5.
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from goalscope.stats.estimate import Estimate, Labels, check_bounds, factorize, vector
from goalscope.stats.intervals import Bounds, check_confidence

_SAME: Final = 1e-12  # residuals, relative to the range, below which the differences are the same on all clusters
_DOUBLINGS: Final = 60
_HALVINGS: Final = 80


def spread_between(
    values: npt.ArrayLike,
    clusters: Labels,
    conditions: Labels,
    *,
    unit: str,
    bounds: Bounds,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the standard deviation between conditions, corrected for the noise of the clusters.

    Args:
        values: ``[N]`` values, NaN where undefined.
        clusters, conditions: ``[N]`` the cluster and the condition of each.
        unit: the unit of the values.
        bounds: least and greatest possible value; finite.
        confidence: nominal coverage.

    Returns:
        The estimate over the clusters that have a value under every condition; ``n`` counts these clusters times
        conditions, ``without`` the other clusters. NaN ends with one cluster or one condition.

    Raises:
        ValueError: vectors of different lengths, or values outside of the bounds.
    """
    check_confidence(confidence)
    low, high = check_bounds(bounds)
    numbers = vector("values", values)
    codes, labels = factorize(clusters)
    kinds, names = factorize(conditions)
    if not len(numbers) == len(codes) == len(kinds):
        raise ValueError(
            f"values, clusters and conditions must be equally long, got {len(numbers)}, {len(codes)} and {len(kinds)}"
        )
    defined = ~np.isnan(numbers)
    if not (math.isfinite(low) and math.isfinite(high)) or ((numbers[defined] < low) | (numbers[defined] > high)).any():
        raise ValueError(f"values must lie in finite bounds, got some outside of [{low:g}, {high:g}]")
    table = _table(numbers[defined], codes[defined], kinds[defined], (len(labels), len(names)))
    complete = table[~np.isnan(table).any(axis=1)]
    value, ends, method, note = (
        math.nan,
        (math.nan, math.nan),
        "none",
        f"clusters {len(complete)}, conditions {len(names)}",
    )
    if len(complete) > 1 and len(names) > 1:
        value, ends, method = _estimated(complete, high - low, confidence)
        note = ""
    return Estimate(
        value=value,
        low=ends[0],
        high=ends[1],
        confidence=confidence,
        n=complete.size,
        clusters=len(complete),
        method=method,
        unit=unit,
        note=note if not note else f"{note}: undefined interval",
        undefined=int((~defined).sum()),
        without=len(labels) - len(complete),
    )


def _table(
    values: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    shape: tuple[int, int],
) -> npt.NDArray[np.float64]:
    """Return the mean of the values of each cluster and condition, NaN without one."""
    codes, size = rows * shape[1] + columns, shape[0] * shape[1]
    counts, sums = np.bincount(codes, minlength=size), np.bincount(codes, weights=values, minlength=size)
    return np.where(counts > 0, sums / np.maximum(counts, 1), math.nan).reshape(shape)


def _estimated(
    table: npt.NDArray[np.float64], span: float, confidence: float
) -> tuple[float, tuple[float, float], str]:
    """Return value, ends and method for a complete table ``[G, C]``."""
    count, conditions = table.shape
    means = table.mean(axis=0)
    residuals = table - means - table.mean(axis=1, keepdims=True) + table.mean()
    between = count * float(means.var(ddof=1))
    noise = float((residuals**2).sum()) / ((count - 1) * (conditions - 1))
    maximum = span / 2 * math.sqrt(conditions / (conditions - 1))
    if noise <= (_SAME * span) ** 2:
        # All clusters have the same differences. If a fraction q of all clusters has, the others may differ in any way.
        agreeing = ((1 - confidence) / 2) ** (1 / count)
        value = math.sqrt(between / count)
        ends = max(0.0, agreeing * value - (1 - agreeing) * maximum), agreeing * value + (1 - agreeing) * maximum
        return value, (min(ends[0], value), max(ends[1], value)), "exact bound of agreement"
    value = math.sqrt(max(0.0, between - noise) / count)
    ratio, tail = between / noise, (1 - confidence) / 2
    low = _noncentrality(ratio, count, conditions, 1 - tail)
    # A ratio below 1, its mean without differences, is treated like 1.
    high = _noncentrality(max(ratio, 1.0), count, conditions, tail)
    scale = math.sqrt(noise / (count * (conditions - 1)))
    ends = min(value, scale * math.sqrt(low)), min(max(value, scale * math.sqrt(high)), maximum)
    return value, ends, "noncentral F, crossed with the conditions,"


def _noncentrality(ratio: float, count: int, conditions: int, probability: float) -> float:
    """Return the noncentrality at which a ratio of mean squares is exceeded with 1 - probability; 0 if none."""
    from scipy.special import ncfdtr

    degrees = conditions - 1, (conditions - 1) * (count - 1)

    def below(noncentrality: float) -> float:
        return float(ncfdtr(*degrees, noncentrality, ratio))

    if below(0.0) <= probability:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(_DOUBLINGS):
        if below(high) <= probability:
            break
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) > probability else (low, middle)
    return (low + high) / 2
