"""Size of the differences between two conditions on single clusters, which may cancel in the mean.

A paired test of the mean asks whether one condition is better over all clusters. If the clusters of both conditions
come from the same distribution (a reflected random grid is a random grid), then the mean difference is 0 for every
agent, even for one that behaves differently on every pair. The measure here is how large the differences on single
clusters are, beyond the noise of a few trajectories.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.stats.compare import TIED
from goalscope.stats.estimate import UNBOUNDED, Estimate, Labels, by_grid, check_bounds, estimate_mean
from goalscope.stats.intervals import Bounds, Vector

DRAWS = 1999
"""Random exchanges of an exchange test: the smallest p is 1 / 2000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """The root mean square over clusters of the true difference of two conditions.

    Attributes:
        value: the estimate, in the unit of the measure; 0 if the differences are no greater than noise; NaN if no
            cluster has two values in both conditions.
        low, high: ends of its interval, both NaN where it is undefined.
        square: the mean squared true difference, whose root is ``value``; unbiased, so possibly negative.
        p_value: p value of the exchange test, whose null hypothesis is that the trajectories of a cluster are
            exchangeable between conditions; NaN where undefined.
        counts: numbers of values of a and of b used.
        method: method of the test.
        note: a warning to print with it, "" for none.
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
    """Estimate how far two conditions differ on single clusters, and test whether they differ on any cluster.

    For each cluster with at least two values in both conditions, ``d**2 - s_a**2 / T_a - s_b**2 / T_b`` is an unbiased
    estimate of the squared true difference; the mean over clusters has the interval of `estimate_mean`. The test
    exchanges values at random between the conditions within each cluster and compares the sum of squared differences.

    Args:
        values_a, values_b: ``[N]`` and ``[M]`` values of single trajectories, NaN where undefined.
        clusters_a, clusters_b: the cluster of each value.
        unit: the unit of the values.
        rng: generator of the random exchanges.
        bounds: least and greatest possible value of a trajectory; the ends of the interval respect them.
        confidence: nominal coverage.
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
    if not pairs:
        return Sensitivity(
            value=math.nan,
            low=math.nan,
            high=math.nan,
            square=square,
            p_value=math.nan,
            counts=(0, 0),
            method="none",
            note="no cluster has two values in both conditions: undefined",
        )
    single = len(shared) - len(pairs)
    varied = [pair for pair in pairs.values() if np.ptp(np.concatenate(pair)) > TIED]
    notes = (
        f"{single} of {len(shared)} clusters without two values in both conditions left out" if single else "",
        "" if varied else "no cluster has two different values: nothing to exchange",
        square.note if math.isnan(square.low) else "",
    )
    squares = np.array([square.value, square.low, square.high])
    value, lower, upper = np.minimum(maximum, np.sqrt(np.maximum(0.0, squares))).tolist()
    return Sensitivity(
        value=value,
        low=lower,
        high=upper,
        square=square,
        p_value=_exchange(varied, rng, draws) if varied else 1.0,
        counts=(
            sum(len(first_values) for first_values, _ in pairs.values()),
            sum(len(second_values) for _, second_values in pairs.values()),
        ),
        method=f"{draws} random exchanges within {len(pairs)} clusters" if varied else "nothing to exchange",
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
