"""How success goes with the logarithm of an error over agents, and how the paths of two agents part over an episode.

Source: measuring exploration and exploitation errors, Fig. 1 and Fig. 4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from goalscope.measures.exploration.recorded import PROGRESS_SHARE, TENTHS
from goalscope.rng import stream
from goalscope.rows import Rows
from goalscope.stats.estimate import Estimate, estimate_mean

DRAWS = 2_000
FEWEST_AGENTS = 3
MOST_APART = 0.05
"""Success rates that differ by no more than this count as equal for `divergences`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A straight line through success against the base-10 logarithm of an error, one point an agent.

    Attributes:
        error: the measure on the horizontal axis.
        agents: ``[A]`` the agents whose error is defined and above 0.
        errors, success: ``[A]`` mean over maps of each.
        left_out: agent -> why it has no point.
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

    An agent without error has no logarithm and is named in place of being given a small number: which one would
    decide the fit. The interval of R squared is a percentile bootstrap over maps, the same maps drawn for all agents;
    the agents themselves are taken as they are.

    Args:
        rows: rows of "success" and of the error.
        error: the measure.
        agents: the agents, in order.
        confidence: nominal coverage.
    """
    success_of, grids = _by_map(rows.where(rows.measure == "success"), agents)
    error_of, _ = _by_map(rows.where(rows.measure == error), agents, grids)
    whole = np.ones((1, len(grids)))
    mean_success, mean_error = _weighted(success_of, whole)[:, 0], _weighted(error_of, whole)[:, 0]
    left_out = {
        agent: "no step called for it" if math.isnan(value) else "its error is exactly 0"
        for agent, value in zip(agents, mean_error.tolist(), strict=True)
        if not value > 0
    }
    kept = [index for index, agent in enumerate(agents) if agent not in left_out]
    slope, intercept, value = (number[0] for number in _fit(mean_error[kept, None], mean_success[kept, None]))
    low = high = math.nan
    note = ""
    if len(kept) < FEWEST_AGENTS:
        slope, intercept, value = math.nan, math.nan, math.nan
        note = f"fewer than {FEWEST_AGENTS} agents with an error above 0"
    elif len(grids) > 1 and not math.isnan(value):
        drawn = stream(0, "relation", error).multinomial(len(grids), np.full(len(grids), 1 / len(grids)), size=DRAWS)
        found = _fit(_weighted(error_of[kept], drawn), _weighted(success_of[kept], drawn))[2]
        found = found[~np.isnan(found)]
        if len(found) >= DRAWS // 2:
            tail = (1 - confidence) / 2
            low, high = (float(end) for end in np.quantile(found, [tail, 1 - tail]))
            low, high = min(low, value), max(high, value)
    return Relation(
        error=error,
        agents=tuple(agents[index] for index in kept),
        errors=tuple(mean_error[kept].tolist()),
        success=tuple(mean_success[kept].tolist()),
        left_out=left_out,
        slope=float(slope),
        intercept=float(intercept),
        r_squared=Estimate(
            value=float(value),
            low=low if low < high else math.nan,
            high=high if low < high else math.nan,
            n=max(len(kept), len(grids)),
            clusters=len(grids),
            method=f"percentile bootstrap over maps, {DRAWS:,} draws",
            unit="share",
            confidence=confidence,
            note=note,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Two agents of equal success, and when in an episode their exploration parts.

    Attributes:
        first, second: the agents.
        maps: maps on which both have a successful episode.
        apart: mean over the tenths of the absolute difference of their exploration shares.
        tenths: ``[10]`` difference of the shares, first minus second, each with an interval of 1 - 0.05 / 10 coverage.
        begins: number of the first tenth whose interval leaves out 0, None where none does.
        curves: ``[2][10]`` the exploration share of either agent over these maps, with 95 % intervals.
    """

    first: str
    second: str
    maps: int
    apart: float
    tenths: tuple[Estimate, ...]
    begins: int | None
    curves: tuple[tuple[Estimate, ...], tuple[Estimate, ...]]


def divergences(rows: Rows, agents: Sequence[str]) -> list[Divergence]:
    """Compare the exploration of agents that succeed equally often, over successful episodes, paired by map.

    Args:
        rows: rows of "success" and of `PROGRESS_SHARE`.
        agents: the agents, in order.
    """
    success = rows.where(rows.measure == "success")
    arrived = set(success.episode_id[success.value == 1].tolist())
    there = set(success["agent"].tolist())
    rate = {agent: float(success.select(agent=agent).value.mean()) for agent in agents if agent in there}
    curves = rows.where(rows.measure == PROGRESS_SHARE)
    curves = curves.where(np.array([name in arrived for name in curves.episode_id], dtype=bool))
    by_agent = {agent: curves.select(agent=agent) for agent in rate}
    found = []
    for first, second in combinations(rate, 2):
        # Shares of .05 apart are apart by a hair more or less in floating point.
        if min(rate[first], rate[second]) < 0.5 or abs(rate[first] - rate[second]) > MOST_APART + 1e-9:
            continue
        one, other = _curves(by_agent[first]), _curves(by_agent[second])
        shared = sorted(set(one) & set(other))
        if len(shared) < 2:
            continue
        difference = np.array([one[grid] - other[grid] for grid in shared])
        tenths = tuple(
            estimate_mean(difference[:, tenth], shared, unit="share", bounds=(-1.0, 1.0), confidence=1 - 0.05 / TENTHS)
            for tenth in range(TENTHS)
        )
        outside = [
            tenth
            for tenth, estimate in enumerate(tenths, start=1)
            if estimate.has_interval and not estimate.low <= 0 <= estimate.high
        ]
        apart = float(np.abs(difference.mean(axis=0)).mean())
        found.append(
            Divergence(
                first=first,
                second=second,
                maps=len(shared),
                apart=apart,
                tenths=tenths,
                begins=outside[0] if outside else None,
                curves=(_shares(one, shared), _shares(other, shared)),
            )
        )
    return found


def _shares(curves: Mapping[str, npt.NDArray[np.float64]], maps: Sequence[str]) -> tuple[Estimate, ...]:
    """Return the mean of each tenth over maps."""
    stacked = np.array([curves[name] for name in maps])
    return tuple(
        estimate_mean(np.clip(stacked[:, tenth], 0.0, 1.0), maps, unit="share", bounds=(0.0, 1.0))
        for tenth in range(TENTHS)
    )


def _curves(rows: Rows) -> dict[str, npt.NDArray[np.float64]]:
    """Return the mean curve of each map."""
    sums: dict[str, npt.NDArray[np.float64]] = {}
    counts: dict[str, int] = {}
    for grid, progress, value in zip(rows.grid_id, rows["progress"], rows.value, strict=True):
        tenth = round(progress * TENTHS) - 1
        sums.setdefault(grid, np.zeros(TENTHS))[tenth] += value
        counts[grid] = counts.get(grid, 0) + 1
    return {grid: total / (counts[grid] / TENTHS) for grid, total in sums.items()}


def _by_map(
    rows: Rows, agents: Sequence[str], grids: Sequence[str] | None = None
) -> tuple[npt.NDArray[np.float64], list[str]]:
    """Return ``[A, G]`` means within each map, NaN where an agent has no value there, and the maps."""
    known = sorted(set(rows.grid_id.tolist())) if grids is None else list(grids)
    place = {grid: index for index, grid in enumerate(known)}
    number = {agent: index for index, agent in enumerate(agents)}
    total, count = np.zeros((len(agents), len(known))), np.zeros((len(agents), len(known)))
    for agent, grid, value in zip(rows["agent"], rows.grid_id, rows.value, strict=True):
        if agent in number and not math.isnan(value):
            total[number[agent], place[grid]] += value
            count[number[agent], place[grid]] += 1
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0), known


def _weighted(values: npt.NDArray[np.float64], weights: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """Return ``[A, D]`` means over maps under ``[D, G]`` weights, undefined maps left out."""
    defined = ~np.isnan(values)
    weight = np.asarray(weights, dtype=np.float64).T
    above, below = np.where(defined, values, 0.0) @ weight, defined @ weight
    found: npt.NDArray[np.float64] = np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)
    return found


def _fit(
    errors: npt.NDArray[np.float64], success: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
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
