"""Regress success on the logarithm of an error over agents, and find where two agents diverge within an episode.

Source: measuring exploration and exploitation errors, Fig. 1 and Fig. 4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.measures.exploration.errors import PROGRESS_SHARE, TENTHS
from goalscope.stats.estimate import Estimate, estimate_mean
from goalscope.stats.rows import Rows

Values = npt.NDArray[np.float64]

DRAWS = 2_000
FEWEST_AGENTS = 3
MOST_APART = 0.05
"""Largest difference of success rates that counts as equal for `divergences`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Straight line through success against the base-10 logarithm of an error, with one point per agent.

    Attributes:
        error: measure on the horizontal axis.
        agents: ``[A]`` agents whose error is defined and above 0.
        errors, success: ``[A]`` mean over maps of each agent.
        left_out: agent -> why it has no point.
        slope: change in success when the error grows tenfold; NaN with too few agents.
        intercept: success at an error of 1.
        r_squared: share of the variance of success that the line explains, with an interval over maps.
    """

    error: str
    agents: tuple[str, ...]
    errors: tuple[float, ...]
    success: tuple[float, ...]
    left_out: Mapping[str, str]
    slope: float
    intercept: float
    r_squared: Estimate


def log_relation(rows: Rows, error: str, agents: Sequence[str], *, confidence: float = 0.95) -> Relation:
    """Fit success against the logarithm of an error.

    Agents without errors have no logarithm and are left out: replacing 0 by a small number would determine the fit.
    The interval of R squared is a percentile bootstrap over maps (the same for all agents); the agents are fixed.

    Args:
        rows: rows of "success" and of the error.
        error: name of the error measure.
        agents: the agents, in order.
        confidence: nominal coverage of the interval.
    """
    success_of, grids = _by_map(rows.where(rows.measure == "success"), agents)
    error_of, _ = _by_map(rows.where(rows.measure == error), agents, grids)
    once = np.ones((1, len(grids)))
    mean_success, mean_error = _weighted(success_of, once), _weighted(error_of, once)
    left_out = {
        agent: "no step called for it" if math.isnan(value) else "its error is exactly 0"
        for agent, value in zip(agents, mean_error[:, 0].tolist(), strict=True)
        if not value > 0
    }
    fitted = [index for index, agent in enumerate(agents) if agent not in left_out]
    slope, intercept, value = (float(number[0]) for number in _fit(mean_error[fitted], mean_success[fitted]))
    low = high = math.nan
    few = len(fitted) < FEWEST_AGENTS
    if few:
        slope = intercept = value = math.nan
    elif len(grids) > 1 and not math.isnan(value):
        drawn = stream(0, "relation", error).multinomial(len(grids), np.full(len(grids), 1 / len(grids)), size=DRAWS)
        r_squared_draws = _fit(_weighted(error_of[fitted], drawn), _weighted(success_of[fitted], drawn))[2]
        r_squared_draws = r_squared_draws[~np.isnan(r_squared_draws)]
        if len(r_squared_draws) >= DRAWS // 2:
            tail = (1 - confidence) / 2
            ends = [*np.quantile(r_squared_draws, [tail, 1 - tail]).tolist(), value]
            low, high = (min(ends), max(ends)) if min(ends) < max(ends) else (math.nan, math.nan)
    return Relation(
        error=error,
        agents=tuple(agents[index] for index in fitted),
        errors=tuple(mean_error[fitted, 0].tolist()),
        success=tuple(mean_success[fitted, 0].tolist()),
        left_out=left_out,
        slope=slope,
        intercept=intercept,
        r_squared=Estimate(
            value=value,
            low=low,
            high=high,
            n=max(len(fitted), len(grids)),
            clusters=len(grids),
            method=f"percentile bootstrap over maps, {DRAWS:,} draws",
            unit="share",
            confidence=confidence,
            note=f"fewer than {FEWEST_AGENTS} agents with an error above 0" if few else "",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Two agents with equal success, and where in an episode their exploration diverges.

    Attributes:
        first, second: the agents.
        maps: maps on which both have a successful episode.
        apart: mean over the tenths of the absolute difference of their shares.
        tenths: ``[10]`` difference of the shares, first minus second, each with an interval at 1 - 0.05 / 10 coverage
            (with several pairs, 1 - 0.05 / 10 / pairs, so that all hold jointly).
        begins: number of the first tenth whose interval excludes 0; None if there is none.
        curves: ``[2][10]`` share of each agent over these maps, with 95 % intervals.
    """

    first: str
    second: str
    maps: int
    apart: float
    tenths: tuple[Estimate, ...]
    begins: int | None
    curves: tuple[tuple[Estimate, ...], tuple[Estimate, ...]]


def divergences(
    rows: Rows, agents: Sequence[str], *, measure: str = PROGRESS_SHARE, families: int = 1
) -> list[Divergence]:
    """Compare the exploration of agents that succeed equally often, in successful episodes paired by map.

    Args:
        rows: rows of "success" and of the measure.
        agents: the agents, in order.
        measure: a share per tenth of an episode.
        families: number of pairs over which the intervals should hold jointly, in addition to the tenths.
    """
    success = rows.where(rows.measure == "success")
    arrived = set(success.episode_id[success.value == 1].tolist())
    measured = set(success["agent"].tolist())
    rate = {agent: float(success.select(agent=agent).value.mean()) for agent in agents if agent in measured}
    shares = rows.where(rows.measure == measure)
    shares = shares.where(shares.among("episode_id", arrived))
    by_agent = {agent: _curves(shares.select(agent=agent)) for agent in rate}
    result = []
    for first, second in combinations(rate, 2):
        shared = sorted(set(by_agent[first]) & set(by_agent[second]))
        # Floating-point differences of .05 may come out slightly larger or smaller.
        unequal = abs(rate[first] - rate[second]) > MOST_APART + 1e-9
        if min(rate[first], rate[second]) < 0.5 or unequal or len(shared) < 2:
            continue
        first_curves, second_curves = (
            np.array([by_agent[agent][grid] for grid in shared]) for agent in (first, second)
        )
        difference = first_curves - second_curves
        tenths = _tenths(difference, shared, (-1.0, 1.0), 1 - 0.05 / TENTHS / families)
        outside = (number for number, tenth in enumerate(tenths, start=1) if tenth.low > 0 or tenth.high < 0)
        result.append(
            Divergence(
                first=first,
                second=second,
                maps=len(shared),
                apart=float(np.abs(difference.mean(axis=0)).mean()),
                tenths=tenths,
                begins=next(outside, None),
                curves=(
                    _tenths(first_curves.clip(0, 1), shared, (0.0, 1.0)),
                    _tenths(second_curves.clip(0, 1), shared, (0.0, 1.0)),
                ),
            )
        )
    return result


def _tenths(
    values: Values, maps: Sequence[str], bounds: tuple[float, float], confidence: float = 0.95
) -> tuple[Estimate, ...]:
    """Estimate the mean of each tenth over maps from ``[maps, 10]`` values."""
    return tuple(estimate_mean(column, maps, unit="share", bounds=bounds, confidence=confidence) for column in values.T)


def _curves(rows: Rows) -> dict[str, Values]:
    """Return the mean curve of each map."""
    sums: dict[str, Values] = {}
    counts: dict[str, int] = {}
    for grid, progress, value in zip(rows.cluster, rows["progress"], rows.value, strict=True):
        sums.setdefault(grid, np.zeros(TENTHS))[round(progress * TENTHS) - 1] += value
        counts[grid] = counts.get(grid, 0) + 1
    return {grid: total / (counts[grid] / TENTHS) for grid, total in sums.items()}


def _by_map(rows: Rows, agents: Sequence[str], grids: Sequence[str] | None = None) -> tuple[Values, list[str]]:
    """Return ``[A, G]`` means per agent and map, NaN where an agent has no value, and the maps."""
    maps = sorted(set(rows.cluster.tolist())) if grids is None else list(grids)
    column = {grid: index for index, grid in enumerate(maps)}
    number = {agent: index for index, agent in enumerate(agents)}
    total, count = np.zeros((len(agents), len(maps))), np.zeros((len(agents), len(maps)))
    for agent, grid, value in zip(rows["agent"], rows.cluster, rows.value, strict=True):
        if agent in number and not math.isnan(value):
            total[number[agent], column[grid]] += value
            count[number[agent], column[grid]] += 1
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0), maps


def _weighted(values: Values, weights: npt.NDArray[np.generic]) -> Values:
    """Return ``[A, D]`` means over maps for ``[D, G]`` weights; undefined maps are ignored."""
    defined = ~np.isnan(values)
    weight = np.asarray(weights, dtype=np.float64).T
    above, below = np.where(defined, values, 0.0) @ weight, defined @ weight
    means: Values = np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)
    return means


def _fit(errors: Values, success: Values) -> tuple[Values, Values, Values]:
    """Fit a least-squares line over A points for each of D draws; return ``[D]`` slopes, intercepts and R squared."""
    usable = (errors > 0) & ~np.isnan(success)
    x = np.log10(np.where(usable, errors, 1.0))
    y = np.where(usable, success, 0.0)
    count = usable.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_x, mean_y = (x * usable).sum(axis=0) / count, (y * usable).sum(axis=0) / count
        dx, dy = (x - mean_x) * usable, (y - mean_y) * usable
        xx, xy, yy = (dx * dx).sum(axis=0), (dx * dy).sum(axis=0), (dy * dy).sum(axis=0)
        slope = xy / xx
        r_squared = xy**2 / (xx * yy)
    enough = (count >= FEWEST_AGENTS) & (xx > 0) & (yy > 0)
    slope = np.where(enough, slope, np.nan)
    return slope, mean_y - slope * mean_x, np.where(enough, np.clip(r_squared, 0.0, 1.0), np.nan)
