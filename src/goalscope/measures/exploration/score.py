"""Exact exploration and exploitation scores of an episode, one record per step, from what the agent knew before it.

Steps that make progress need no search. Between two such steps, targets and graph are constant: each move is searched
once and cached (`MapView`), and the stale score needs only counters (`StaleCounter`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, overload

from goalscope.measures.exploration.view import CASES, DISTANCES, Distances, MapView, StaleCounter
from goalscope.runs.record import Episode
from goalscope.worlds.grid import ACTIONS, Action
from goalscope.worlds.tasks.knowledge import Rejection
from goalscope.worlds.tasks.taskmap import Board, Cell, TaskMap, read_action
from goalscope.worlds.tasks.world import INVALID, NEW_CELL, TaskState

Steps = TypeVar("Steps", covariant=True)

Outcome = Literal["goal", "budget", "stopped"]
"""How a scored episode ended: goal achieved, budget used up, or no more actions before either."""

MOST_KEPT_CELLS = 20_000
"""Number of cells up to which step scores are stored. For larger maps they are recomputed on access, because their size
grows with the square of the number of cells."""


class MapStep(NamedTuple):
    """One action, judged by the state before it. Expensive properties are computed on access.

    Attributes:
        index: number of the step, 0-based.
        here, there: indices of the cells before and after the action on the board of the view.
        action: the move, None if the turn named none.
        rejected: "blocked" or "unparsable" for an action without effect, otherwise None.
        view: the agent's knowledge by which the action is judged.
        new_cell: whether the action entered an unobserved cell.
        achieved: the node that it achieved, None if none.
        error: whether the action is an error by Eq. (1).
        loops, edge_reuse, cell_reuse: c, e and n after the action. Progress resets them to 0.
        rising: bit mask; bit a is set where move a would have raised the stale score.
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
        """Cell before the action; (x, y) on task maps."""
        return self.view.board.cell(self.here)

    @property
    def after(self) -> Cell:
        """Cell after the action."""
        return self.view.board.cell(self.there)

    @property
    def case(self) -> int:
        """Case 1 to 4 of Table 1; 0 without a target, which happens only in mazes with no way to the goal."""
        return self.view.case

    @property
    def targets(self) -> tuple[Cell, ...]:
        """The target cells T, sorted."""
        return self.view.board.listed(self.view.targets)

    @property
    def gain(self) -> bool:
        """Whether the move enters a target or gets closer to at least one."""
        return self.rejected is None and self.view.gain(self.here, self.there)

    @property
    def progress(self) -> bool:
        """Whether the action entered an unobserved cell or achieved a pending node."""
        return self.new_cell or self.achieved is not None

    @property
    def stale(self) -> int:
        """Stale score S = c + e + n of the walk after the action; see `StaleCounter`."""
        return self.loops + self.edge_reuse + self.cell_reuse

    @property
    def attribution(self) -> tuple[str, ...]:
        """The kinds that the error counts as: "exploration", "exploitation", both or neither."""
        return tuple(kind for kind, cases in CASES.items() if self.error and self.case in cases)

    @property
    def free_moves(self) -> tuple[Action, ...]:
        """Moves that would not have been errors here."""
        return tuple(action for action in ACTIONS if self._free(action))

    def _free(self, action: Action) -> bool:
        view, next_cell = self.view, self.here + self.view.board.offsets[action]
        if not view.board.open[next_cell] or not view.case:
            return False
        if view.progress(next_cell):
            return True
        return view.gain(self.here, next_cell) and (view.count == 1 or not self.rising >> action & 1)

    def plain(self) -> dict[str, Any]:
        """Return all published values of the step as plain values by name."""
        names = "index position after action rejected case targets gain progress new_cell achieved loops edge_reuse"
        names += " cell_reuse stale error attribution free_moves"
        return {name: getattr(self, name) for name in names.split()}


class AllSteps(Sequence[MapStep]):
    """The steps of an episode. Those of a large map are not stored, but scored again on access."""

    def __init__(
        self, count: int, again: Callable[[], Iterator[MapStep]], stored: Sequence[MapStep] | None = None
    ) -> None:
        self._count, self._again, self._kept = count, again, stored

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[MapStep]:
        return self._again() if self._kept is None else iter(self._kept)

    @overload
    def __getitem__(self, index: int) -> MapStep: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[MapStep, ...]: ...

    def __getitem__(self, index: int | slice) -> MapStep | tuple[MapStep, ...]:
        selected = range(self._count)[index]
        if isinstance(selected, int):
            return next(islice(self, selected, None)) if self._kept is None else self._kept[selected]
        by_number = {number: step for number, step in enumerate(self) if number in selected}
        return tuple(by_number[number] for number in selected)

    def column(self, name: Literal["case", "error", "stale", "new_cell"]) -> list[int]:
        """Return one number per step, for curves over time."""
        return [int(getattr(step, name)) for step in self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of an episode.

    Attributes:
        exploration_error: errors in cases 1 and 4 divided by steps in these cases; None without such steps.
        exploitation_error: errors in cases 2, 3 and 4 divided by steps in these cases; None without such steps.
        exploration_errors, exploration_steps, exploitation_errors, exploitation_steps: numerators and denominators.
        valid_exploration_error, valid_exploitation_error: the same ratios over moves only.
        valid_exploration_errors, valid_exploration_steps, valid_exploitation_errors, valid_exploitation_steps: their
            numerators and denominators.
        steps: number of actions.
        budget: maximum number of actions; None in a maze.
        outcome: how the episode ended.
        success: whether the goal was achieved.
        blocked, unparsable: moves that were impossible, and turns that named no move.
        detours: steps into a new cell while the goal was pending. They are not errors by Eq. (1) and are counted here.
        case_steps: number of steps in cases 1, 2, 3 and 4.
        progress_steps: steps that made progress.
        observed_cells, cells: |O| at the end, and |M|; in a maze, revealed cells and all cells.
        achieved_nodes, nodes: number of nodes achieved at the end, and of all nodes.
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
        """Number of actions without effect."""
        return self.blocked + self.unparsable

    @property
    def progress_rate(self) -> float | None:
        """Share of steps that made progress, None without steps."""
        return self.progress_steps / self.steps if self.steps else None

    @property
    def coverage(self) -> float:
        """Share of cells that were observed."""
        return self.observed_cells / self.cells


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeErrors(Generic[Steps]):
    """Exploration and exploitation errors of an episode: one record per action or visit, and the summary."""

    steps: Steps
    summary: Summary


def score_episode(
    task_map: TaskMap, actions: Iterable[Action | str | None], *, distances: Distances = "known"
) -> EpisodeErrors[AllSteps]:
    """Score the exploration and exploitation errors of an episode, step by step.

    Args:
        task_map: the map on which the episode took place.
        actions: actions in order: "up", "down", "left", "right" (any case) or `Action`. None or any other text is a
            turn that named no move: an action without effect.
        distances: graph on which distances to targets are measured: "known" (cells observed or unobserved before the
            move), "map" (all cells) or "observed" (observed cells, except for a last move into a target).

    Returns:
        The steps and their summary.

    Raises:
        ValueError: an action after the goal was achieved or the budget was used up, or of an unsupported type.

    Source: measuring exploration and exploitation errors, Section 4, Eq. (1), Table 1, Appendix B.
    """
    if distances not in DISTANCES:
        raise ValueError(f"distances must be one of {', '.join(DISTANCES)}, got {str(distances)[:60]!r}")
    moves = [read_action(action) for action in actions]

    def scored(knowledge: TaskState) -> Iterator[MapStep]:
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
    return EpisodeErrors(steps=AllSteps(len(moves), lambda: scored(TaskState(task_map)), stored), summary=summary)


def score_recorded(episode: Episode) -> EpisodeErrors[AllSteps]:
    """Score a recorded episode of a task world.

    Raises:
        ValueError: the episode took place in another kind of world, or its actions are impossible on the map.
    """
    task_map = getattr(episode.world, "task_map", None)
    if task_map is None:
        raise ValueError(f"episode {episode.id} is not from a task world: only these have exploration errors")
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


def judge(walk: _Walk, actions: Iterable[Action | None], look: Callable[[], MapView]) -> Iterator[MapStep]:
    """Replay the actions and yield their scores; `look` returns the knowledge after each progress."""
    board, view, stale = walk.board, look(), StaleCounter(walk.position)
    for index, action in enumerate(actions):
        cell, judged = walk.position, view
        rising = stale.rising(board, cell)
        event = walk.move(action)
        next_cell = walk.position
        if event > 0:
            error, stale, view = False, StaleCounter(next_cell), look()
        elif event == INVALID:
            error = judged.case > 0
        else:
            rose = stale.move(cell, next_cell)
            error = judged.case > 0 and (not judged.gain(cell, next_cell) or (judged.count > 1 and rose))
        new_cell, reuse = event > 0 and bool(event & NEW_CELL), (stale.loops, stale.edge_reuse, stale.cell_reuse)
        fields = (index, cell, next_cell, action, walk.rejected, judged, new_cell, walk.last_achieved, error)
        yield MapStep(*fields, *reuse, rising)


def counted(steps: Iterable[Any]) -> dict[str, Any]:
    """Count steps in one pass, without storing them; return the fields of `Summary`."""
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
