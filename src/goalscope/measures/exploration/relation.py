"""Regression of success on the logarithm of an error over agents, and divergence of two agents over an episode.

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
"""Maximum difference of success rates that count as equal for `divergences`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A straight line through success against the base-10 logarithm of an error, one point an agent.

    Attributes:
        error: the measure on the horizontal axis.
        agents: ``[A]`` the agents whose error is defined and above 0.
        errors, success: ``[A]`` mean over maps of each.
        left_out: agent -> reason for its missing point.
        slope: change of success for a tenfold error; NaN where there are too few agents.
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

    An agent without errors has no logarithm and is left out: any small number in place of 0 would determine the fit.
    The interval of R squared is a percentile bootstrap over maps, the same maps for all agents; the agents are fixed.

    Args:
        rows: rows of "success" and of the error.
        error: the measure.
        agents: the agents, in order.
        confidence: nominal coverage.
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
    """Two agents of equal success, and the point in an episode where their exploration diverges.

    Attributes:
        first, second: the agents.
        maps: maps on which both have a successful episode.
        apart: mean over the tenths of the absolute difference of their shares.
        tenths: ``[10]`` difference of the shares, first minus second, each with an interval of 1 - 0.05 / 10 coverage
            (of several pairs, that they hold together: 1 - 0.05 / 10 / pairs).
        begins: number of the first tenth whose interval leaves out 0, None where none does.
        curves: ``[2][10]`` the share of either agent over these maps, with 95 % intervals.
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
    """Compare the exploration of agents that succeed equally often, over successful episodes, paired by map.

    Args:
        rows: rows of "success" and of the measure.
        agents: the agents, in order.
        measure: a share by tenth of an episode.
        families: number of pairs over which the intervals hold together, as they do over the tenths.
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
        # Differences of .05 are slightly more or less in floating point.
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
    """Return the mean of each tenth over maps, of ``[maps, 10]`` values."""
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
    """Return ``[A, G]`` means within each map, NaN where an agent has no value there, and the maps."""
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
    """Return ``[A, D]`` means over maps under ``[D, G]`` weights, undefined maps left out."""
    defined = ~np.isnan(values)
    weight = np.asarray(weights, dtype=np.float64).T
    above, below = np.where(defined, values, 0.0) @ weight, defined @ weight
    means: Values = np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)
    return means


def _fit(errors: Values, success: Values) -> tuple[Values, Values, Values]:
    """Return ``[D]`` slope, intercept and R squared of least squares over the A points of each of D draws."""
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
