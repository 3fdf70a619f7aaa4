"""What scoring an episode returns: one record a step, made when it is looked at, and a summary."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, overload

from goalscope.measures.exploration.view import EXPLOITATION_CASES, EXPLORATION_CASES, View
from goalscope.worlds.grid import ACTIONS, Action
from goalscope.worlds.tasks.coordinates import Cell
from goalscope.worlds.tasks.knowledge import Rejection

Outcome = Literal["goal", "budget", "stopped"]
"""How a scored episode ended: the goal achieved, the budget used up, or where its actions stop before either."""


class RawStep(NamedTuple):
    """A step as it is kept: numbers, and the view that it was judged on."""

    here: int
    there: int
    action: Action | None
    rejected: Rejection | None
    view: View
    new_cell: bool
    achieved: str | None
    error: bool
    loops: int
    edge_reuse: int
    cell_reuse: int
    rising: int  # bit a is set where move a would raise the stale score


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScore:
    """One action, judged on the state before it.

    Attributes:
        index: number of the step, 0-based.
        position, after: cell before and after the action, (x, y) for task maps.
        action: the move, None where none was named.
        rejected: "blocked" or "unparsable" for an action that did nothing, else None.
        case: 1 to 4 (Table 1); 0 where there is no target, which happens in mazes without a way to their goal only.
        targets: the cells T, sorted.
        gain: whether the move enters a target or leads nearer to at least one.
        progress: whether it entered an unobserved cell or achieved a pending node.
        new_cell: whether it entered an unobserved cell.
        achieved: the node that it achieved, None for none.
        loops, edge_reuse, cell_reuse: c, e and n after the action; 0 after progress, which begins a new stretch.
        stale: S = c + e + n after the action.
        error: whether the action is an error, Eq. (1).
        attribution: what the error counts as: "exploration", "exploitation", both or nothing.
        free_moves: the moves that would have been free of error here.
    """

    index: int
    position: Cell
    after: Cell
    action: Action | None
    rejected: Rejection | None
    case: int
    targets: tuple[Cell, ...]
    gain: bool
    progress: bool
    new_cell: bool
    achieved: str | None
    loops: int
    edge_reuse: int
    cell_reuse: int
    stale: int
    error: bool
    attribution: tuple[str, ...]
    free_moves: tuple[Action, ...]


class Steps(Sequence[StepScore]):
    """The steps of an episode; each record is made when it is asked for, so that scoring alone stays fast.

    Args:
        raw: the steps as the scorer kept them.
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: Sequence[RawStep]) -> None:
        self._raw = raw

    def __len__(self) -> int:
        return len(self._raw)

    @overload
    def __getitem__(self, index: int) -> StepScore: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[StepScore, ...]: ...

    def __getitem__(self, index: int | slice) -> StepScore | tuple[StepScore, ...]:
        if isinstance(index, slice):
            numbers = range(len(self._raw))[index]
            return tuple(_step(number, raw) for number, raw in zip(numbers, self._raw[index], strict=True))
        number = range(len(self._raw))[index]
        return _step(number, self._raw[number])

    def __iter__(self) -> Iterator[StepScore]:
        return (_step(number, raw) for number, raw in enumerate(self._raw))

    def column(self, name: Literal["case", "error", "stale", "new_cell"]) -> list[int]:
        """Return one number a step without the cost of whole records: for curves over time."""
        if name == "case":
            return [raw.view.case for raw in self._raw]
        if name == "error":
            return [int(raw.error) for raw in self._raw]
        if name == "new_cell":
            return [int(raw.new_cell) for raw in self._raw]
        return [raw.loops + raw.edge_reuse + raw.cell_reuse for raw in self._raw]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """An episode in numbers.

    Attributes:
        exploration_error: errors in cases 1 and 4 over steps in cases 1 and 4; None where there is no such step.
        exploitation_error: errors in cases 2, 3 and 4 over steps in cases 2, 3 and 4; None where there is none.
        exploration_errors, exploration_steps, exploitation_errors, exploitation_steps: what the ratios are made of.
        valid_exploration_error, valid_exploitation_error: the ratios over the actions that were moves only.
        valid_exploration_errors, valid_exploration_steps, valid_exploitation_errors, valid_exploitation_steps: theirs.
        steps: number of actions.
        budget: most actions allowed; None for an episode of a maze.
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
        return ratio(self.progress_steps, self.steps)

    @property
    def coverage(self) -> float:
        """Share of the cells that were observed."""
        return self.observed_cells / self.cells


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeScore:
    """A scored episode.

    Attributes:
        steps: one record an action.
        summary: the episode in numbers.
    """

    steps: Steps
    summary: Summary


def ratio(part: int, whole: int) -> float | None:
    """Return a share, None where there is nothing to share."""
    return part / whole if whole else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Steps of one episode counted; lists by case, 0 to 4.

    Attributes:
        steps, errors: all actions.
        valid_steps, valid_errors: actions that were moves.
        blocked, unparsable, progress, detours: steps of each kind.
    """

    steps: tuple[int, ...]
    errors: tuple[int, ...]
    valid_steps: tuple[int, ...]
    valid_errors: tuple[int, ...]
    blocked: int
    unparsable: int
    progress: int
    detours: int


def count_steps(raw: Iterable[RawStep]) -> Counts:
    """Count steps in one pass, without keeping them."""
    steps, errors, valid_steps, valid_errors = [0] * 5, [0] * 5, [0] * 5, [0] * 5
    blocked = unparsable = detours = progress = 0
    for step in raw:
        case = step.view.case
        steps[case] += 1
        errors[case] += step.error
        if step.rejected is None:
            valid_steps[case] += 1
            valid_errors[case] += step.error
        elif step.rejected == "blocked":
            blocked += 1
        else:
            unparsable += 1
        progress += step.new_cell or step.achieved is not None
        detours += step.new_cell and case == 2
    return Counts(
        steps=tuple(steps),
        errors=tuple(errors),
        valid_steps=tuple(valid_steps),
        valid_errors=tuple(valid_errors),
        blocked=blocked,
        unparsable=unparsable,
        progress=progress,
        detours=detours,
    )


def summarise(
    counts: Counts,
    *,
    budget: int | None,
    outcome: Outcome,
    observed_cells: int,
    cells: int,
    achieved_nodes: int,
    nodes: int,
    distances: str,
) -> Summary:
    """Return the summary of one episode; the arguments are those of `Summary`."""

    def parts(cases: frozenset[int]) -> tuple[int, int, int, int]:
        kinds = (counts.errors, counts.steps, counts.valid_errors, counts.valid_steps)
        return tuple(sum(kind[case] for case in cases) for kind in kinds)  # type: ignore[return-value]

    explored, exploited = parts(EXPLORATION_CASES), parts(EXPLOITATION_CASES)
    return Summary(
        exploration_error=ratio(explored[0], explored[1]),
        exploitation_error=ratio(exploited[0], exploited[1]),
        exploration_errors=explored[0],
        exploration_steps=explored[1],
        exploitation_errors=exploited[0],
        exploitation_steps=exploited[1],
        valid_exploration_error=ratio(explored[2], explored[3]),
        valid_exploitation_error=ratio(exploited[2], exploited[3]),
        valid_exploration_errors=explored[2],
        valid_exploration_steps=explored[3],
        valid_exploitation_errors=exploited[2],
        valid_exploitation_steps=exploited[3],
        steps=sum(counts.steps),
        budget=budget,
        outcome=outcome,
        success=outcome == "goal",
        blocked=counts.blocked,
        unparsable=counts.unparsable,
        detours=counts.detours,
        case_steps=(counts.steps[1], counts.steps[2], counts.steps[3], counts.steps[4]),
        progress_steps=counts.progress,
        observed_cells=observed_cells,
        cells=cells,
        achieved_nodes=achieved_nodes,
        nodes=nodes,
        distances=distances,
    )


def _step(index: int, raw: RawStep) -> StepScore:
    view = raw.view
    board = view.board
    attribution = []
    if raw.error and view.case in EXPLORATION_CASES:
        attribution.append("exploration")
    if raw.error and view.case in EXPLOITATION_CASES:
        attribution.append("exploitation")
    return StepScore(
        index=index,
        position=board.cell(raw.here),
        after=board.cell(raw.there),
        action=raw.action,
        rejected=raw.rejected,
        case=view.case,
        targets=board.listed(view.targets),
        gain=raw.rejected is None and view.gain(raw.here, raw.there),
        progress=raw.new_cell or raw.achieved is not None,
        new_cell=raw.new_cell,
        achieved=raw.achieved,
        loops=raw.loops,
        edge_reuse=raw.edge_reuse,
        cell_reuse=raw.cell_reuse,
        stale=raw.loops + raw.edge_reuse + raw.cell_reuse,
        error=raw.error,
        attribution=tuple(attribution),
        free_moves=tuple(action for action in ACTIONS if _free(raw, action)),
    )


def _free(raw: RawStep, action: Action) -> bool:
    view = raw.view
    there = raw.here + view.board.offsets[action]
    if not view.board.open[there] or not view.case:
        return False
    if view.progress(there):
        return True
    return view.gain(raw.here, there) and (view.count == 1 or not raw.rising >> action & 1)
