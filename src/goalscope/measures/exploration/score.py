"""Exact exploration and exploitation scores of an episode, one record per step, from what the agent knew before it.

Steps that make progress need no search. Between two such steps, targets and graph are constant: each move is searched
once and cached (`MapView`), and the stale score needs only counters (`StaleCounter`).

Source: measuring exploration and exploitation errors, Section 4, Table 1, Eq. (1) and (6).
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, overload

from goalscope.runs.record import Episode
from goalscope.worlds.grid import ACTIONS, Action
from goalscope.worlds.tasks.knowledge import Rejection
from goalscope.worlds.tasks.taskmap import Board, Cell, TaskMap, flags, indices, read_action
from goalscope.worlds.tasks.world import INVALID, NEW_CELL, TaskState

# The agent's knowledge between two events of progress: case, targets, moves closer to a target, and stale score.

Distances = Literal["known", "map", "observed"]
"""Cells that shortest paths may use: observed and unobserved ones (default), the whole map, or observed ones with a
last move into a target."""

DISTANCES: tuple[Distances, ...] = ("known", "map", "observed")

CASES = {"exploration": frozenset({1, 4}), "exploitation": frozenset({2, 3, 4})}
"""For exploration and for exploitation, the cases of a map (see `MapView`) in which a step calls for it. Case 4 calls
for both."""


class MapView:
    """What an agent knows of a task map at one moment, and which cells it should approach (immutable).

    A task map has tasks on some of its cells, some of which are goals; a task that can be achieved now is *pending*. A
    move is *progress* if it enters an unobserved cell or one with a pending task. What the agent knows changes only
    then. Sets of cells are integers with one bit per cell.

    Attributes:
        case: what there is to do: 1 explore; 2 reach the pending goal; 3 achieve a pending task; 4 explore or achieve a
            task; 0 nothing, which no task map allows.
        targets: cells to approach in this case.
        known: cells that shortest paths may use; those outside ``through`` can only be the end of a path.
        through: cells that shortest paths may pass through.

    Args:
        board: the numbering of the map's cells.
        unobserved: cells that the agent knows of and has not entered.
        pending: cells of pending tasks, including goals.
        goals: cells of pending goals.
        known_cells, through: see ``known`` and ``through`` above.
        progress: function from a cell to whether entering it is progress; None for the definition above.
    """

    def __init__(
        self,
        board: Board,
        unobserved: int,
        pending: int,
        goals: int,
        known_cells: int,
        through: int,
        progress: Callable[[int], bool] | None = None,
    ) -> None:
        self.board, self.known, self.through = board, known_cells, through
        self.progressing, self._progress = unobserved | pending, progress
        if goals:
            self.case, self.targets = 2, goals
        elif not pending:
            self.case, self.targets = (1 if unobserved else 0), unobserved
        else:
            self.case, self.targets = (4 if unobserved else 3), self.progressing
        self.count = self.targets.bit_count()
        self._nearer: dict[tuple[int, int], bool] = {}
        self._levels = 0
        self._fields: list[list[int]] | None = None

    @classmethod
    def of(cls, knowledge: TaskState, distances: Distances) -> "MapView":
        """Build the view from the state of an episode on a task map.

        Args:
            knowledge: the state of the episode.
            distances: graph on which distances are measured, as in `score_episode`.
        """
        board = knowledge.board
        goals = knowledge.pending_goals
        observed, unobserved, pending = knowledge.observed, knowledge.unobserved, knowledge.pending
        known_cells = through = board.cells if distances == "map" else observed | unobserved
        if distances == "observed":
            through = observed
            known_cells = observed | (goals or unobserved | pending)
        return cls(board, unobserved, pending, goals, known_cells, through)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapView) and all(
            getattr(self, name) == getattr(other, name)
            for name in ("case", "targets", "progressing", "known", "through")
        )

    __hash__ = None  # type: ignore[assignment]

    def gain(self, cell: int, next_cell: int) -> bool:
        """Return whether a move enters a target or gets closer to at least one target.

        Args:
            cell, next_cell: indices of the adjacent cells before and after the move.
        """
        if self.targets >> next_cell & 1:
            return True
        key = (cell, next_cell)
        nearer = self._nearer.get(key)
        if nearer is None:
            nearer = self._nearer[key] = self._search(cell, next_cell)
        return nearer

    def progress(self, next_cell: int) -> bool:
        """Return whether entering a cell, given by its index, is progress: by default, if the cell is unobserved or
        pending.
        """
        return bool(self.progressing >> next_cell & 1) if self._progress is None else self._progress(next_cell)

    def _search(self, cell: int, next_cell: int) -> bool:
        """Grow a ball around each of the two cells until it is decided for every target which cell is closer.

        Balls grow by shifting whole sets. Once the searches of this view have cost more than computing the distance
        field of every target, the fields are computed instead.
        """
        board, known_cells, through = self.board, self.known, self.through
        if through >> next_cell & 1:
            if self._fields is None and self._levels > self.count * board.cells.bit_count() // 4:
                targets = indices(self.targets)
                self._fields = [board.field(flags(through | 1 << target, board.size), target) for target in targets]
            if self._fields is not None:
                return any(field[next_cell] >= 0 and not 0 <= field[cell] <= field[next_cell] for field in self._fields)
        near, away = 1 << next_cell, 1 << cell  # cells at most `radius` moves from either end
        remaining_targets, passable, within, width = (
            self.targets,
            through | near | away,
            through != known_cells,
            board.width,
        )
        while True:
            remaining_targets &= ~away
            if remaining_targets & near:
                return True
            if not remaining_targets:
                return False
            self._levels += 1
            near_sources, away_sources = (near & passable, away & passable) if within else (near, away)
            near_next = (
                near
                | (near_sources << 1 | near_sources >> 1 | near_sources << width | near_sources >> width) & known_cells
            )
            away_next = (
                away
                | (away_sources << 1 | away_sources >> 1 | away_sources << width | away_sources >> width) & known_cells
            )
            if near_next == near and away_next == away:
                return False
            near, away = near_next, away_next


_Place = TypeVar("_Place", int, str)


class StaleCounter:
    """Counter of going in circles: loops (c), reused edges (e) and reused cells (n) since the last progress.

    c_t = |E| - |V| + 1 is the cyclomatic number, e_t = sum over edges of max(m(e) - 2, 0), n_t = sum over cells of
    max(m(v) - 2, 0), and the stale score is S_t = c_t + e_t + n_t, where m counts uses. Edges are undirected; the cell
    where the stretch begins counts as visited once.
    """

    __slots__ = ("_edges", "_visits", "cell_reuse", "edge_reuse", "loops")

    def __init__(self, start: Hashable) -> None:
        self._visits: dict[Hashable, int] = {start: 1}
        self._edges: dict[Hashable, int] = {}
        self.loops = self.edge_reuse = self.cell_reuse = 0

    @property
    def total(self) -> int:
        """The stale score S: loops plus reused edges plus reused cells."""
        return self.loops + self.edge_reuse + self.cell_reuse

    def rising(self, board: Board, cell: int) -> int:
        """Return which moves from a cell would raise the stale score, as an integer in which bit a stands for move a.

        Args:
            board: the numbering of the map's cells.
            cell: index of the cell.
        """
        rising = 0
        for action, offset in enumerate(board.offsets):
            next_cell = cell + offset
            if board.open[next_cell]:
                visits = self._visits.get(next_cell, 0)
                edge = self._edges.get((cell, next_cell) if cell < next_cell else (next_cell, cell), 0)
                if visits >= 2 or edge >= 2 or (visits and not edge):
                    rising |= 1 << action
        return rising

    def move(self, place: _Place, next_place: _Place) -> bool:
        """Count a move from one place to the next, and return whether the stale score rose."""
        edge = (place, next_place) if place < next_place else (next_place, place)
        traversals, visits = self._edges.get(edge, 0), self._visits.get(next_place, 0)
        self._edges[edge], self._visits[next_place] = traversals + 1, visits + 1
        closed, crossed, entered = visits > 0 and not traversals, traversals >= 2, visits >= 2
        self.loops += closed
        self.edge_reuse += crossed
        self.cell_reuse += entered
        return closed or crossed or entered


# The scores.

Steps = TypeVar("Steps", covariant=True)

Outcome = Literal["goal", "budget", "stopped"]
"""How a scored episode ended: goal achieved, budget used up, or no more actions before either."""

MOST_KEPT_CELLS = 20_000
"""Number of cells up to which step scores are stored. For larger maps they are recomputed on access, because their size
grows with the square of the number of cells."""


class MapStep(NamedTuple):
    """One action of an episode, judged by what the agent knew before it. Expensive properties are computed on access.

    Attributes:
        index: number of the step, 0-based.
        here, there: indices of the cells before and after the action on the board of the view.
        action: the move, None if the turn named none.
        rejected: "blocked" or "unparsable" for an action without effect, otherwise None.
        view: the agent's knowledge by which the action is judged.
        new_cell: whether the action entered an unobserved cell.
        achieved: name of the node (task) that the action achieved, None if none.
        error: whether the action is an error by Eq. (1) of the paper.
        loops, edge_reuse, cell_reuse: c, e and n of `StaleCounter` after the action. Progress resets them to 0.
        rising: integer in which bit a is set where move a would have raised the stale score.
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
        """Cell (x, y) of the agent before the action."""
        return self.view.board.cell(self.here)

    @property
    def after(self) -> Cell:
        """Cell (x, y) of the agent after the action."""
        return self.view.board.cell(self.there)

    @property
    def case(self) -> int:
        """What the situation calls for: 1 exploration, 2 the goal, 3 a task, 4 a task or exploration (see `MapView`).

        It is 0 without a target, which happens only in mazes with no way to the goal.
        """
        return self.view.case

    @property
    def targets(self) -> tuple[Cell, ...]:
        """The cells (x, y) that the agent should approach, sorted by y, then x."""
        return self.view.board.listed(self.view.targets)

    @property
    def gain(self) -> bool:
        """Whether the move enters a target or gets closer to at least one target."""
        return self.rejected is None and self.view.gain(self.here, self.there)

    @property
    def progress(self) -> bool:
        """Whether the action entered an unobserved cell or achieved a pending node (task)."""
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
        """The moves that would not have been errors in this situation."""
        return tuple(action for action in ACTIONS if self._free(action))

    def _free(self, action: Action) -> bool:
        view, next_cell = self.view, self.here + self.view.board.offsets[action]
        if not view.board.open[next_cell] or not view.case:
            return False
        if view.progress(next_cell):
            return True
        return view.gain(self.here, next_cell) and (view.count == 1 or not self.rising >> action & 1)

    def plain(self) -> dict[str, Any]:
        """Return the published values of the step by name, such as "position", "case" and "error", for writing them
        to a file.
        """
        names = "index position after action rejected case targets gain progress new_cell achieved loops edge_reuse"
        names += " cell_reuse stale error attribution free_moves"
        return {name: getattr(self, name) for name in names.split()}


class AllSteps(Sequence[MapStep]):
    """The scored steps of an episode, as a sequence. Steps of a large map are not stored, but scored again on access.

    Args:
        count: number of steps.
        again: function that scores the steps again.
        stored: the steps, or None if they are not stored.
    """

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
        """Return one property of each step as a list of whole numbers, for curves over time.

        Args:
            name: name of the property of `MapStep`.
        """
        return [int(getattr(step, name)) for step in self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Exploration and exploitation errors of one episode, with counts. `MapView` explains the cases 1 to 4.

    Attributes:
        exploration_error: errors in cases 1 and 4 divided by steps in these cases; None without such steps.
        exploitation_error: errors in cases 2, 3 and 4 divided by steps in these cases; None without such steps.
        exploration_errors, exploration_steps, exploitation_errors, exploitation_steps: numerators and denominators.
        valid_exploration_error, valid_exploitation_error: the same ratios over moves only.
        valid_exploration_errors, valid_exploration_steps, valid_exploitation_errors, valid_exploitation_steps: their
            numerators and denominators.
        steps: number of actions.
        budget: maximum number of actions; None in a maze.
        outcome: how the episode ended: "goal", "budget" or "stopped".
        success: whether the goal was achieved.
        blocked, unparsable: moves that were impossible, and turns that named no move.
        detours: steps into a new cell while the goal was pending. They are not errors by Eq. (1) and are counted here.
        case_steps: number of steps in cases 1, 2, 3 and 4.
        progress_steps: steps that made progress.
        observed_cells, cells: |O| at the end, and |M|; in a maze, revealed cells and all cells.
        achieved_nodes, nodes: number of nodes (tasks) achieved at the end, and of all nodes.
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
        """Number of actions without effect: impossible moves, and turns that named no move."""
        return self.blocked + self.unparsable

    @property
    def progress_rate(self) -> float | None:
        """Share of steps that made progress (entered a new cell or achieved a task); None without steps."""
        return self.progress_steps / self.steps if self.steps else None

    @property
    def coverage(self) -> float:
        """Share of the map's cells that were observed."""
        return self.observed_cells / self.cells


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeErrors(Generic[Steps]):
    """Exploration and exploitation errors of an episode: steps that bring the agent no nearer to anything it should
    seek.

    Attributes:
        steps: the judgement of each action or visit.
        summary: the errors and counts over the whole episode.
    """

    steps: Steps
    summary: Summary


def score_episode(
    task_map: TaskMap, actions: Iterable[Action | str | None], *, distances: Distances = "known"
) -> EpisodeErrors[AllSteps]:
    """Score the exploration and exploitation errors of an episode on a task map, step by step.

    An error is a step that brings the agent no nearer to any cell that it should explore or whose task it could
    achieve, or that goes in circles. It counts as an error of exploration, of exploitation or of both, by what the
    situation calls for.

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
    """Score the exploration and exploitation errors of a recorded episode on a task map; see `score_episode`.

    Returns:
        The steps and their summary.

    Raises:
        ValueError: if the episode took place in another kind of world, or its actions are impossible on the map.
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
    """Replay the actions of an episode, and yield the judgement of each.

    Args:
        walk: the episode, which makes each move.
        actions: the actions, None for a turn without a move.
        look: function that returns what the agent knows; called at the beginning and after each progress.
    """
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
    """Count errors and other events over judged steps in one pass, without storing the steps.

    Returns:
        The fields of `Summary` that are counts or ratios of counts, by name.
    """
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
