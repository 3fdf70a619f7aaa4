"""Exact scores of an episode from its actions alone: one record a step, based on the agent's knowledge before it.

Steps that make progress need no search. In a stretch without progress the targets and the graph are constant, so each
move is searched once and cached (`MapView`), and the stale score needs only counters (`StaleScore`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol, overload

from goalscope.measures.exploration.view import CASES, DISTANCES, Distances, MapView, StaleScore
from goalscope.runs.record import Episode
from goalscope.worlds.grid import ACTIONS, Action
from goalscope.worlds.tasks._fast import Board
from goalscope.worlds.tasks.coordinates import Cell, read_action
from goalscope.worlds.tasks.knowledge import Rejection
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import INVALID, NEW_CELL, TaskState

Outcome = Literal["goal", "budget", "stopped"]
"""How a scored episode ended: the goal achieved, the budget used up, or where its actions stop before either."""

MOST_KEPT_CELLS = 20_000
"""Cells of the largest map whose step scores are stored. Those of larger maps are recomputed on access, since their
size grows with the square of the cells."""


class StepScore(NamedTuple):
    """One action, judged on the state before it. Expensive properties are computed on access.

    Attributes:
        index: number of the step, 0-based.
        here, there: indices of the cells before and after it on the board of the view.
        action: the move, None where none was named.
        rejected: "blocked" or "unparsable" for an action that did nothing, else None.
        view: the knowledge it was judged on.
        new_cell: whether it entered an unobserved cell.
        achieved: the node that it achieved, None for none.
        error: whether the action is an error, Eq. (1).
        loops, edge_reuse, cell_reuse: c, e and n after the action; 0 after progress, which begins a new stretch.
        rising: bit a is set where move a would have raised the stale score.
    """

    index: int  # type: ignore[assignment]
    here: int
    there: int
    action: Action | None
    rejected: Rejection | None
    view: MapView
    new_cell: bool
    achieved: str | None
    error: bool
    loops: int
    edge_reuse: int
    cell_reuse: int
    rising: int

    @property
    def position(self) -> Cell:
        """Cell before the action, (x, y) for task maps."""
        return self.view.board.cell(self.here)

    @property
    def after(self) -> Cell:
        """Cell after the action."""
        return self.view.board.cell(self.there)

    @property
    def case(self) -> int:
        """1 to 4 (Table 1); 0 where there is no target, which happens in mazes without a way to their goal only."""
        return self.view.case

    @property
    def targets(self) -> tuple[Cell, ...]:
        """The cells T, sorted."""
        return self.view.board.listed(self.view.targets)

    @property
    def gain(self) -> bool:
        """Whether the move enters a target or leads nearer to at least one."""
        return self.rejected is None and self.view.gain(self.here, self.there)

    @property
    def progress(self) -> bool:
        """Whether it entered an unobserved cell or achieved a pending node."""
        return self.new_cell or self.achieved is not None

    @property
    def stale(self) -> int:
        """S = c + e + n after the action."""
        return self.loops + self.edge_reuse + self.cell_reuse

    @property
    def attribution(self) -> tuple[str, ...]:
        """What the error counts as: "exploration", "exploitation", both or nothing."""
        return tuple(kind for kind, cases in CASES.items() if self.error and self.case in cases)

    @property
    def free_moves(self) -> tuple[Action, ...]:
        """The moves that would have been free of error here."""
        return tuple(action for action in ACTIONS if self._free(action))

    def _free(self, action: Action) -> bool:
        view, there = self.view, self.here + self.view.board.offsets[action]
        if not view.board.open[there] or not view.case:
            return False
        if view.progress(there):
            return True
        return view.gain(self.here, there) and (view.count == 1 or not self.rising >> action & 1)

    def plain(self) -> dict[str, Any]:
        """Return all published values of the step by name."""
        names = "index position after action rejected case targets gain progress new_cell achieved loops edge_reuse"
        names += " cell_reuse stale error attribution free_moves"
        return {name: getattr(self, name) for name in names.split()}


class AllSteps(Sequence[StepScore]):
    """The steps of an episode; those of a large map are not stored, but scored again by `again` on access."""

    def __init__(
        self, count: int, again: Callable[[], Iterator[StepScore]], kept: Sequence[StepScore] | None = None
    ) -> None:
        self._count, self._again, self._kept = count, again, kept

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[StepScore]:
        return self._again() if self._kept is None else iter(self._kept)

    @overload
    def __getitem__(self, index: int) -> StepScore: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[StepScore, ...]: ...

    def __getitem__(self, index: int | slice) -> StepScore | tuple[StepScore, ...]:
        selected = range(self._count)[index]
        if isinstance(selected, int):
            return next(islice(self, selected, None)) if self._kept is None else self._kept[selected]
        by_number = {number: step for number, step in enumerate(self) if number in selected}
        return tuple(by_number[number] for number in selected)

    def column(self, name: Literal["case", "error", "stale", "new_cell"]) -> list[int]:
        """Return one number a step: for curves over time."""
        return [int(getattr(step, name)) for step in self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """An episode in numbers.

    Attributes:
        exploration_error: errors in cases 1 and 4 over steps in cases 1 and 4; None where there is no such step.
        exploitation_error: errors in cases 2, 3 and 4 over steps in cases 2, 3 and 4; None where there is none.
        exploration_errors, exploration_steps, exploitation_errors, exploitation_steps: terms of the ratios.
        valid_exploration_error, valid_exploitation_error: the ratios over the actions that were moves only.
        valid_exploration_errors, valid_exploration_steps, valid_exploitation_errors, valid_exploitation_steps: theirs.
        steps: number of actions.
        budget: maximum number of actions; None for an episode of a maze.
        outcome: how it ended.
        success: whether the goal was achieved.
        blocked, unparsable: actions without a way, and turns that named no move.
        detours: steps that entered a new cell while the goal was pending: free of error by Eq. (1), counted here.
        case_steps: number of steps in cases 1, 2, 3, 4.
        progress_steps: steps that made progress.
        observed_cells, cells: |O| at the end, and |M|; revealed and all cells of a maze.
        achieved_nodes, nodes: achieved nodes at the end, and all nodes.
        distances: the graph on which distances were measured.
    """

    exploration_error: float | None
    exploitation_error: float | None
    exploration_errors: int
    exploration_steps: int
    exploitation_errors: int
    exploitation_steps: int
    valid_exploration_error: float | None
    valid_exploitation_error: float | None
    valid_exploration_errors: int
    valid_exploration_steps: int
    valid_exploitation_errors: int
    valid_exploitation_steps: int
    steps: int
    budget: int | None
    outcome: Outcome
    success: bool
    blocked: int
    unparsable: int
    detours: int
    case_steps: tuple[int, int, int, int]
    progress_steps: int
    observed_cells: int
    cells: int
    achieved_nodes: int
    nodes: int
    distances: str

    @property
    def invalid_actions(self) -> int:
        """Actions that did nothing."""
        return self.blocked + self.unparsable

    @property
    def progress_rate(self) -> float | None:
        """Share of the steps that made progress, None without steps."""
        return self.progress_steps / self.steps if self.steps else None

    @property
    def coverage(self) -> float:
        """Share of the cells that were observed."""
        return self.observed_cells / self.cells


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeScore:
    """A scored episode: one record an action, and the episode in numbers."""

    steps: AllSteps
    summary: Summary


def score_episode(
    task_map: TaskMap, actions: Iterable[Action | str | None], *, distances: Distances = "known"
) -> EpisodeScore:
    """Return the exploration and exploitation errors of an episode, step by step.

    Args:
        task_map: where the episode took place.
        actions: the actions in order: "up", "down", "left", "right" (any case) or `Action`. None and any other text
            count as a turn that named no move, an action that did nothing.
        distances: the graph whose shortest paths decide what leads nearer to a target: "known" (observed and unobserved
            cells before the move), "map" (all cells) or "observed" (observed cells, with a last move into a target).

    Returns:
        The record: steps and summary.

    Raises:
        ValueError: actions after the goal was achieved or the budget used up, or an action of another type.

    Source: measuring exploration and exploitation errors, Section 4, Eq. (1), Table 1, Appendix B.
    """
    if distances not in DISTANCES:
        raise ValueError(f"distances must be one of {', '.join(DISTANCES)}, got {str(distances)[:60]!r}")
    moves = [read_action(action) for action in actions]

    def scored(knowledge: TaskState) -> Iterator[StepScore]:
        return judge(knowledge, moves, lambda: MapView.of(knowledge, distances))

    knowledge = TaskState(task_map)
    steps = scored(knowledge)
    stored = list(steps) if len(task_map.cells) <= MOST_KEPT_CELLS else None
    summary = Summary(
        **counted(steps if stored is None else stored),
        budget=task_map.budget,
        outcome=knowledge.ending or "stopped",
        success=knowledge.ending == "goal",
        observed_cells=knowledge.observed.bit_count(),
        cells=len(task_map.cells),
        achieved_nodes=len(knowledge.achieved_names),
        nodes=len(task_map.nodes),
        distances=distances,
    )
    return EpisodeScore(steps=AllSteps(len(moves), lambda: scored(TaskState(task_map)), stored), summary=summary)


def score_recorded(episode: Episode) -> EpisodeScore:
    """Return the score of a recorded episode of a task world.

    Raises:
        ValueError: an episode of another world, or actions that its map does not allow.
    """
    task_map = getattr(episode.world, "task_map", None)
    if task_map is None:
        raise ValueError(f"an episode must be one of a task world to be scored, got {episode.id} in another one")
    try:
        return score_episode(task_map, [step.action for step in episode.steps])
    except ValueError as error:
        raise ValueError(f"episode {episode.id}: {error}") from error


class _Walk(Protocol):
    """An episode replayed action by action, like `TaskState`."""

    board: Board
    position: int

    @property
    def rejected(self) -> Rejection | None: ...

    @property
    def last_achieved(self) -> str | None: ...

    def move(self, action: Action | None) -> int: ...


def judge(walk: _Walk, actions: Iterable[Action | None], look: Callable[[], MapView]) -> Iterator[StepScore]:
    """Take the actions one by one and yield their scores; `look` returns the knowledge after progress."""
    board, view, stale = walk.board, look(), StaleScore(walk.position)
    for index, action in enumerate(actions):
        here, judged = walk.position, view
        rising = stale.rising(board, here)
        event = walk.move(action)
        there = walk.position
        if event > 0:
            error, stale, view = False, StaleScore(there), look()
        elif event == INVALID:
            error = judged.case > 0
        else:
            rose = stale.move(here, there)
            error = judged.case > 0 and (not judged.gain(here, there) or (judged.count > 1 and rose))
        new_cell, reuse = event > 0 and bool(event & NEW_CELL), (stale.loops, stale.edge_reuse, stale.cell_reuse)
        fields = (index, here, there, action, walk.rejected, judged, new_cell, walk.last_achieved, error)
        yield StepScore(*fields, *reuse, rising)


def counted(steps: Iterable[Any]) -> dict[str, Any]:
    """Count steps in one pass, without storing them, and return fields of `Summary`."""
    tally = Counter((step.case, step.rejected, step.error, step.new_cell, step.progress) for step in steps)
    counts: dict[str, Any] = {}
    for kind, cases in CASES.items():
        for prefix in ("", "valid_"):
            chosen = {key: n for key, n in tally.items() if key[0] in cases and not (prefix and key[1])}
            total, errors = sum(chosen.values()), sum(n for (_, _, error, *_), n in chosen.items() if error)
            counts[f"{prefix}{kind}_steps"], counts[f"{prefix}{kind}_errors"] = total, errors
            counts[f"{prefix}{kind}_error"] = errors / total if total else None
    for rejection in ("blocked", "unparsable"):
        counts[rejection] = sum(n for (_, rejected, *_), n in tally.items() if rejected == rejection)
    return {
        **counts,
        "steps": tally.total(),
        "detours": sum(n for (case, _, _, new_cell, _), n in tally.items() if new_cell and case == 2),
        "case_steps": tuple(sum(n for (case, *_), n in tally.items() if case == number) for number in (1, 2, 3, 4)),
        "progress_steps": sum(n for (*_, progress), n in tally.items() if progress),
    }
