"""Exploration and exploitation errors as measures, for task worlds and (under other names) for mazes under fog.

Under fog the terms have other definitions, so the two are never pooled. Observed cells are the revealed ones;
unobserved cells are the revealed open cells next to an unrevealed cell; the goal is pending once revealed; progress is
a newly revealed cell or reaching the goal. Only cases 1 and 2 occur. A move is judged by the open cells revealed before
it. Worlds with a locked door are refused because no case covers doors.

Sight passes between two walls that meet at a corner, so a cell can be revealed before any path to it. Such a cell
becomes a target only once a path is known: until then no move leads nearer to it, and an agent that searches for the
path would err at every step. This cannot happen in task worlds, where every observed cell was visited.

Source: measuring exploration and exploitation errors, Section 4 and Fig. 4.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.measures.definition import OURS, Entries, StepMeasure, Values, add_measures, measure
from goalscope.measures.exploration.score import (
    CASES,
    AllSteps,
    EpisodeErrors,
    MapView,
    Outcome,
    Summary,
    counted,
    judge,
    score_episode,
)
from goalscope.measures.table import NO_ACTION, StepTable
from goalscope.runs.record import Episode
from goalscope.stats.estimate import Estimate, estimate_mean, estimate_pooled
from goalscope.stats.rows import Rows
from goalscope.worlds.fog import Fog
from goalscope.worlds.grid import ACTIONS, Action, Grid, Position
from goalscope.worlds.tasks.knowledge import Rejection
from goalscope.worlds.tasks.taskmap import Board, Frame, bits
from goalscope.worlds.tasks.world import ACHIEVED, INVALID, NEW_CELL

_OUTCOMES: dict[str, Outcome] = {"goal": "goal", "horizon": "budget"}


def score_fogged_episode(episode: Episode) -> EpisodeErrors[AllSteps]:
    """Score the exploration and exploitation errors of a recorded episode of a maze under fog.

    An error is a step that brings the agent no nearer to anything that it should explore or reach, or that goes in
    circles.

    Args:
        episode: an episode of a world with a fog radius and without a locked door.

    Returns:
        The steps and their summary. Cells are (x, y) with y upwards and the bottom left corner of the grid at (0, 0). A
        turn without an action is "unparsable", a move into a wall "blocked". There are no nodes (tasks) and there is no
        budget of actions.

    Raises:
        ValueError: if the world has no fog, or has a door.
    """
    world = episode.world
    if world.fog_radius is None or world.grid.door is not None:
        problem = "a world without fog" if world.fog_radius is None else "a world with a locked door"
        raise ValueError(f"score_fogged_episode scores mazes under fog without a door, got {problem}")
    positions = [*(step.state.position for step in episode.steps), episode.final.position]
    return score_walk(world.grid, world.fog_radius, positions, [step.action for step in episode.steps], episode.outcome)


def score_walk(
    grid: Grid, radius: int, positions: Sequence[Position], actions: Sequence[Action | None], outcome: str
) -> EpisodeErrors[AllSteps]:
    """Score the exploration and exploitation errors of an episode of a maze under fog, given its actions and positions.

    An error is a step that brings the agent no nearer to anything that it should explore or reach, or that goes in
    circles.

    Args:
        grid: the whole maze.
        radius: radius of sight in steps.
        positions: the T + 1 cells (row, col) at which the agent was, including the first and the last one.
        actions: the T actions, None for a turn without an action.
        outcome: how the episode ended, such as "goal".

    Returns:
        The steps and their summary.

    Raises:
        ValueError: if the maze shows no agent or no goal.
    """
    walk = _FoggedWalk(grid, radius, positions)
    steps = list(judge(walk, actions, walk.view))
    summary = Summary(
        **counted(steps),
        budget=None,
        outcome=_OUTCOMES.get(outcome, "stopped"),
        success=outcome == "goal",
        observed_cells=int(walk.fog.seen.sum()),
        cells=int(walk.fog.seen.size),
        achieved_nodes=0,
        nodes=0,
        distances="revealed",
    )
    return EpisodeErrors(steps=AllSteps(len(steps), lambda: iter(steps), steps), summary=summary)


class _FoggedWalk:
    """A recorded walk and the cells that it has revealed."""

    def __init__(self, grid: Grid, radius: int, positions: Sequence[Position]) -> None:
        if grid.start is None or grid.goal is None:
            lacking = "agent (A)" if grid.start is None else "goal (G)"
            raise ValueError(f"the maze has no {lacking}: its grid must show one")
        self.frame = Frame(left=0, top=grid.height - 1, width=grid.width, height=grid.height)
        open_cells = [self.frame.cell((int(row), int(col))) for row, col in np.argwhere(~grid.walls)]
        self.board = Board(self.frame, open_cells, self.frame.cell(grid.start))
        self.goal, self.fog = grid.goal, Fog.start(grid, radius)
        self.position = self.board.start
        self.rejected: Rejection | None = None
        self.last_achieved: str | None = None
        self._following = iter(positions[1:])

    def move(self, action: Action | None) -> int:
        position = next(self._following)
        target = self.board.index(self.frame.cell(position))
        self.rejected = self.last_achieved = None
        if target == self.position:
            self.rejected = "unparsable" if action is None else "blocked"
            return INVALID
        self.position = target
        fog = self.fog.look(position)
        event = NEW_CELL * bool((fog.seen & ~self.fog.seen).any())
        if position == self.goal:
            self.last_achieved = "goal"
            event += ACHIEVED
        if event:
            self.fog = fog
        return event

    def view(self) -> MapView:
        board, fog = self.board, self.fog
        revealed = board.cells & _bits(fog.seen)
        reachable = 1 << self.position  # reachable cells among the revealed ones
        while (larger := reachable | board.grow(reachable) & revealed) != reachable:
            reachable = larger
        goal_index = board.index(self.frame.cell(self.goal))
        pending = reachable & 1 << goal_index

        def progress(target: int) -> bool:
            position = self.frame.row_col(board.cell(target))
            return position == self.goal or bool((fog.look(position).seen & ~fog.seen).any())

        border = reachable & board.grow(_bits(~fog.seen))
        return MapView(board, border, pending, pending, reachable, reachable, progress)


def _bits(cells: npt.NDArray[np.bool_]) -> int:
    """Return a set of cells from an array ``[H, W]`` in rows and columns, whose last row is the lowest."""
    height, width = cells.shape
    padded = np.zeros((height + 2, width + 1), dtype=np.uint8)
    padded[1:-1, :-1] = cells[::-1]
    return bits(bytearray(padded.tobytes()))


KINDS = tuple(CASES)

PROGRESS_SHARE = "exploration share by progress"
"""Share of steps into an unobserved cell, per tenth of an episode; the tag "progress" is the end of the tenth."""

ONLY_EXPLORATION = "exploration-only share by progress"
"""Share of steps that call for exploration only (case 1), per tenth of an episode: Fig. 4a of the paper."""

TENTHS = 10

UNDER_FOG = " under fog"
"""Suffix for measures of mazes, so that no table pools them with those of task worlds."""

_TASKS = "Park et al. (2026), section 4 and appendix B"
_SHARE = (0.0, 1.0)

_Number = Callable[[Summary], float | None]


def _errors(fog: bool) -> dict[str, tuple[str, str, _Number]]:
    """Map names to (unit, definition, function) for both errors and their counts, over all turns and over moves."""
    definitions: dict[str, tuple[str, str, _Number]] = {}
    for kind, valid in ((kind, valid) for kind in KINDS for valid in (False, True)):
        if fog:
            turns = "valid moves" if valid else "turns"
            calls = f"{'before' if kind == 'exploration' else 'after'} a path to the goal was revealed"
            error = f"share of an episode's {turns} {calls} that approach no target or go in circles. "
            texts = (
                f"{error}Undefined without such {turns}",
                f"number of {turns} {calls} that approach no target or go in circles",
                f"number of {turns} {calls}",
            )
        else:
            cases = f"that call for {kind} ({'cases 1 and 4' if kind == 'exploration' else 'cases 2, 3 and 4'})"
            ratio = f"share of errors among an episode's steps {cases}"
            texts = (
                f"the {kind} error over valid moves only" if valid else ratio,
                f"number of {kind} errors{' among valid moves' if valid else ''}",
                f"number of {'valid moves' if valid else 'steps'} {cases}",
            )
        for quantity, unit, text in zip(("error", "errors", "steps"), ("share", "steps", "steps"), texts, strict=True):
            name = f"{kind} {quantity}{' of valid moves' if valid else ''}{UNDER_FOG if fog else ''}"
            definitions[name] = unit, text, attrgetter(f"{'valid_' if valid else ''}{kind}_{quantity}")
    return definitions


_EPISODE: dict[str, tuple[str, str, _Number]] = {
    **_errors(fog=False),
    "success": ("share", "share of episodes that achieve the goal within the budget", attrgetter("success")),
    "steps": ("steps", "number of actions of an episode", attrgetter("steps")),
    "steps of successful episodes": (
        "steps",
        "number of actions of an episode that achieved the goal. Undefined for other episodes",
        lambda summary: summary.steps if summary.success else None,
    ),
    "invalid actions": (
        "steps",
        "number of actions without effect, because the move was impossible or the answer named no direction",
        attrgetter("invalid_actions"),
    ),
    "detours with the goal pending": (
        "steps",
        "number of steps into a new cell while the goal was pending, which are not errors by definition",
        attrgetter("detours"),
    ),
    "progress rate": (
        "share",
        "share of steps that entered an unobserved cell or achieved a pending node",
        attrgetter("progress_rate"),
    ),
    "coverage": ("share", "share of the map's cells that were observed", attrgetter("coverage")),
    "achieved nodes": (
        "share",
        "share of the nodes that were achieved",
        lambda summary: summary.achieved_nodes / summary.nodes if summary.nodes else None,
    ),
}
"""Name -> (unit, definition, function) of the measures of an episode of a task world."""


def _of_summary(name: str, unit: str, text: str, number: _Number, *, fog: bool) -> StepMeasure:
    def numbers(table: StepTable) -> Entries:
        scored = table.once(_scored)
        return Entries(np.array([number(summary) for summary, _ in scored.values()], dtype=np.float64), _index(scored))

    return StepMeasure(
        name=name,
        unit=unit,
        bounds=_SHARE if unit == "share" else (0.0, math.inf),
        text=text,
        source=f"{OURS}: the errors of task worlds in other words (docs/exploration.md)" if fog else _TASKS,
        needs=("grid",) if fog else ("tasks",),
        function=numbers,
    )


FOGGED = tuple(_of_summary(name, *definition, fog=True) for name, definition in _errors(fog=True).items())
"""Measures for mazes under fog without a locked door: both errors and their counts, over turns and over moves."""

# Success is already defined for every world.
add_measures(
    *FOGGED, *(_of_summary(name, *definition, fog=False) for name, definition in _EPISODE.items() if name != "success")
)


@measure(PROGRESS_SHARE, unit="share", needs=("tasks",), source=_TASKS)
def progress_share(table: StepTable) -> Entries:
    """Share of steps that entered an unobserved cell, per tenth of the episode.

    A cell is unobserved until the agent has stood on it. Returns ten values per episode of the table, with the tag
    "progress" (0.1, 0.2, ..., 1.0: the end of the tenth).
    """
    return _by_tenth(table, 0)


@measure(ONLY_EXPLORATION, unit="share", needs=("tasks",), source=f"{_TASKS}, Fig. 4a")
def exploration_only_share(table: StepTable) -> Entries:
    """Share of steps with only exploration possible, as no node was pending (case 1), per tenth of an episode.

    A node (a task on one cell) is pending if the agent has found it and could achieve it now. Returns ten values per
    episode of the table, with the tag "progress" (0.1, 0.2, ..., 1.0: the end of the tenth).
    """
    return _by_tenth(table, 1)


def _by_tenth(table: StepTable, which: int) -> Entries:
    scored = table.once(_scored)
    shares = np.array([shares[which] for _, shares in scored.values()]).reshape(-1)
    ends = np.array([tenth / TENTHS for tenth in range(1, TENTHS + 1)] * len(scored), dtype=object)
    return Entries(shares, np.repeat(_index(scored), TENTHS), {"progress": ends})


TASK_DEFINITIONS: Mapping[str, str] = {
    **{name: text for name, (_, text, _) in _EPISODE.items()},
    progress_share.name: progress_share.text,
    exploration_only_share.name: exploration_only_share.text,
}
"""Definitions of the measures of task worlds, as the report shows them."""


def _index(scored: Mapping[int, Any]) -> npt.NDArray[np.int64]:
    return np.array(list(scored), dtype=np.int64)


def _scored(table: StepTable) -> dict[int, tuple[Summary, Values]]:
    """Map episode indices to the summary and the `progress_shares` ``[2, 10]`` of new cells and case 1, cached per
    walk.
    """
    by_walk: dict[tuple[Any, ...], tuple[Summary, Values]] = {}
    by_episode = {}
    for index, number in enumerate(table.world.tolist()):
        world: Any = table.worlds[number]
        if "tasks" not in table.offers and (world.fog_radius is None or world.grid.door is not None):
            continue
        steps = slice(table.begin[index], table.begin[index] + table.length[index])
        path, outcome = np.vstack([table.state[steps], table.final[index]])[:, :2], table.outcome[index]
        walk = (number, outcome, path.tobytes(), table.action[steps].tobytes())
        if walk not in by_walk:
            actions = [None if code == NO_ACTION else ACTIONS[code] for code in table.action[steps].tolist()]
            try:
                if world.fog_radius is None:
                    score = score_episode(world.task_map, actions)
                else:
                    cells = [(row, col) for row, col in path.tolist()]
                    score = score_walk(world.grid, world.fog_radius, cells, actions, outcome)
            except ValueError as error:
                raise ValueError(f"episode {table.episode_id[index]}: {error}") from error
            only = [int(case == 1) for case in score.steps.column("case")]
            shares = [progress_shares(definition) for definition in (score.steps.column("new_cell"), only)]
            by_walk[walk] = score.summary, np.array(shares)
        by_episode[index] = by_walk[walk]
    return by_episode


def progress_shares(marked: Sequence[int]) -> Values:
    """Return, for each tenth of an episode, the share of its steps that are marked, ``[10]``; NaN if there are no
    steps.

    A step that spans two tenths counts proportionally in both, so episodes of any length have ten values.

    Args:
        marked: 1 for a marked step, 0 for another.
    """
    length = len(marked)
    if not length:
        return np.full(TENTHS, np.nan)
    entered = np.concatenate([[0.0], np.cumsum(marked, dtype=np.float64)])
    ends = np.interp(np.linspace(0, length, TENTHS + 1), np.arange(length + 1), entered)
    # Rounding must not push a share beyond its bounds.
    shares: Values = np.clip(np.diff(ends) * TENTHS / length, 0.0, 1.0)
    return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEstimate:
    """The exploration error or the exploitation error, estimated over many episodes of one agent.

    Each is the share of errors among the steps that call for exploration, or for exploitation (see `score_episode`).

    Attributes:
        kind: "exploration" or "exploitation".
        mean: mean within each map, then over maps, over the episodes with at least one step of this kind; the others
            are counted in ``mean.undefined``.
        pooled: number of errors over number of steps of this kind, over all episodes.
        valid: the same ratio over moves only.
        errors, steps: numerator and denominator of ``pooled``.
    """

    kind: str
    mean: Estimate
    pooled: Estimate
    valid: Estimate
    errors: int
    steps: int


def estimate_errors(
    summaries: Sequence[Summary], grids: Sequence[Any], *, confidence: float = 0.95
) -> tuple[ErrorEstimate, ErrorEstimate]:
    """Estimate the exploration and the exploitation error of an agent over many episodes.

    Each is the share of errors among the steps that call for exploration, or for exploitation (see `score_episode`).

    Args:
        summaries: ``[N]`` summaries of one agent's episodes.
        grids: ``[N]`` map of each episode; intervals treat maps as the independent units.
        confidence: nominal coverage of the intervals.

    Returns:
        The exploration error and the exploitation error.

    Raises:
        ValueError: if the sequences differ in length, or the summaries measured distances on different graphs.
    """
    graphs = {summary.distances for summary in summaries}
    if len(graphs) > 1:
        raise ValueError(f"pooled errors must use the same distances, got {', '.join(sorted(graphs))}: score all alike")

    def of(kind: str) -> ErrorEstimate:
        def column(name: str) -> list[Any]:
            return [getattr(summary, name) for summary in summaries]

        options: dict[str, Any] = {"unit": "share", "bounds": _SHARE, "confidence": confidence}
        errors, steps = column(f"{kind}_errors"), column(f"{kind}_steps")
        valid = column(f"valid_{kind}_errors"), column(f"valid_{kind}_steps")
        ratios = np.array(column(f"{kind}_error"), dtype=np.float64)
        return ErrorEstimate(
            kind=kind,
            mean=estimate_mean(ratios, grids, **options),
            pooled=estimate_pooled(errors, steps, grids, **options),
            valid=estimate_pooled(*valid, grids, **options),
            errors=sum(errors),
            steps=sum(steps),
        )

    return of("exploration"), of("exploitation")


# How the errors are related to success over agents, and where two agents diverge within an episode (Fig. 1 and 4).

DRAWS = 2_000
FEWEST_AGENTS = 3
MOST_APART = 0.05
"""Largest difference of success rates that counts as equal for `divergences`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A straight line fitted over agents, of success against the base-10 logarithm of an error, with one point per
    agent.

    Attributes:
        error: name of the error measure on the horizontal axis.
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
    """Fit a straight line of success against the base-10 logarithm of an error, over agents.

    Agents without errors have no logarithm and are left out: replacing 0 by a small number would determine the fit.
    The interval of R squared is a percentile bootstrap over maps (the same for all agents); the agents are fixed.

    Args:
        rows: rows of "success" and of the error, one value each.
        error: name of the error measure.
        agents: names of the agents, in order.
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
        first, second: names of the agents.
        maps: number of maps on which both have a successful episode.
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
    """Compare the exploration over time of pairs of agents that succeed equally often.

    Only successful episodes are used, paired by map. Pairs of agents whose success rates differ by more than
    `MOST_APART`, that succeed in less than half of their episodes, or that share fewer than two maps are left out.

    Args:
        rows: rows of "success" and of ``measure``, one value each.
        agents: names of the agents, in order.
        measure: name of a measure that is a share per tenth of an episode.
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
