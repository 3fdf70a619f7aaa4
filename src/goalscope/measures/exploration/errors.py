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
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.measures.definition import OURS, Entries, StepMeasure, add_measures, measure
from goalscope.measures.exploration.score import (
    AllSteps,
    EpisodeErrors,
    Outcome,
    Summary,
    counted,
    judge,
    score_episode,
)
from goalscope.measures.exploration.view import CASES, MapView
from goalscope.measures.table import NO_ACTION, StepTable
from goalscope.runs.record import Episode
from goalscope.stats.estimate import Estimate, estimate_mean, estimate_pooled
from goalscope.worlds.fog import Fog
from goalscope.worlds.grid import ACTIONS, Action, Grid, Position
from goalscope.worlds.tasks.knowledge import Rejection
from goalscope.worlds.tasks.taskmap import Board, Frame, bits
from goalscope.worlds.tasks.world import ACHIEVED, INVALID, NEW_CELL

_OUTCOMES: dict[str, Outcome] = {"goal": "goal", "horizon": "budget"}


def score_fogged_episode(episode: Episode) -> EpisodeErrors[AllSteps]:
    """Score the exploration and exploitation errors of a recorded episode of a maze under fog.

    Args:
        episode: an episode of a world with a fog radius and without a locked door.

    Returns:
        The score. Cells are (x, y) with y upwards and the bottom left corner of the grid at (0, 0). A turn without an
        action is "unparsable", a move into a wall "blocked". There are no nodes and there is no budget.

    Raises:
        ValueError: the world has no fog, or has a door.
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
    """Score an episode, given its T actions and T + 1 positions."""
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
    """Share of steps that entered an unobserved cell, per tenth of the episode."""
    return _by_tenth(table, 0)


@measure(ONLY_EXPLORATION, unit="share", needs=("tasks",), source=f"{_TASKS}, Fig. 4a")
def exploration_only_share(table: StepTable) -> Entries:
    """Share of steps with only exploration possible, as no node was pending (case 1), per tenth of an episode."""
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

_Values = npt.NDArray[np.float64]


def _index(scored: Mapping[int, Any]) -> npt.NDArray[np.int64]:
    return np.array(list(scored), dtype=np.int64)


def _scored(table: StepTable) -> dict[int, tuple[Summary, _Values]]:
    """Map episode indices to the summary and the `progress_shares` ``[2, 10]`` of new cells and case 1, cached per
    walk.
    """
    by_walk: dict[tuple[Any, ...], tuple[Summary, _Values]] = {}
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


def progress_shares(marked: Sequence[int]) -> _Values:
    """Return ``[10]`` shares of marked steps, one per tenth of an episode; NaN without steps.

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
    shares: _Values = np.clip(np.diff(ends) * TENTHS / length, 0.0, 1.0)
    return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEstimate:
    """Estimate of one of the two errors over many episodes.

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
    """Estimate both errors over many episodes.

    Args:
        summaries: ``[N]`` summaries of one agent's episodes.
        grids: ``[N]`` map of each episode; intervals treat maps as the units.
        confidence: nominal coverage of the intervals.

    Returns:
        The exploration error and the exploitation error.

    Raises:
        ValueError: the sequences differ in length, or the summaries used different graphs for distances.
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
