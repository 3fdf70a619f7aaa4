"""Scoring an episode of a task map from its actions alone, exactly.

Nothing is searched on a step that makes progress. In a stretch without progress the targets and the graph stand still,
so each move is looked up or searched once (`View`), and the stale score is a matter of counters (`StaleScore`).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import overload

from goalscope.measures.exploration.records import EpisodeScore, RawStep, Steps, count_steps, summarise
from goalscope.measures.exploration.stale import StaleScore
from goalscope.measures.exploration.view import DISTANCES, Distances, View
from goalscope.worlds.grid import ACTIONS, Action
from goalscope.worlds.tasks.coordinates import read_action
from goalscope.worlds.tasks.knowledge import ACHIEVED, INVALID, NEW_CELL, Knowledge
from goalscope.worlds.tasks.taskmap import TaskMap

MOST_KEPT_CELLS = 20_000
"""Cells of the largest map whose steps keep what they were judged on; those of a larger one are scored anew when looked
at, since what is kept grows with the square of the cells."""


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
    knowledge = Knowledge(task_map)
    steps: Sequence[RawStep]
    if len(task_map.cells) <= MOST_KEPT_CELLS:
        steps = list(_raw_steps(knowledge, actions, distances))
        counted = count_steps(steps)
    else:
        listed = [read_action(action) for action in actions]
        counted = count_steps(_raw_steps(knowledge, listed, distances))
        steps = _Replayed(task_map, listed, distances)
    summary = summarise(
        counted,
        budget=task_map.budget,
        outcome=knowledge.ending or "stopped",
        observed_cells=knowledge.observed.bit_count(),
        cells=len(task_map.cells),
        achieved_nodes=len(knowledge.achieved_names),
        nodes=len(task_map.nodes),
        distances=distances,
    )
    return EpisodeScore(steps=Steps(steps), summary=summary)


class _Replayed(Sequence[RawStep]):
    """The steps of an episode on a large map, scored again whenever they are looked at."""

    def __init__(self, task_map: TaskMap, actions: Sequence[Action | None], distances: Distances) -> None:
        self._map, self._actions, self._distances = task_map, actions, distances

    def __len__(self) -> int:
        return len(self._actions)

    def __iter__(self) -> Iterator[RawStep]:
        return _raw_steps(Knowledge(self._map), self._actions, self._distances)

    @overload
    def __getitem__(self, index: int) -> RawStep: ...

    @overload
    def __getitem__(self, index: slice) -> list[RawStep]: ...

    def __getitem__(self, index: int | slice) -> RawStep | list[RawStep]:
        wanted = range(len(self))[index]
        if isinstance(wanted, int):
            return next(islice(self, wanted, None))
        found = {number: step for number, step in enumerate(self) if number in wanted}
        return [found[number] for number in wanted]


def _raw_steps(knowledge: Knowledge, actions: Iterable[Action | str | None], distances: Distances) -> Iterator[RawStep]:
    """Take the actions one by one and yield what each was."""
    board = knowledge.board
    view = _view(knowledge, distances)
    stale = StaleScore(knowledge.position)
    for given in actions:
        action = read_action(given)
        here = knowledge.position
        rising = rising_moves(board.open, board.offsets, stale, here)
        event = knowledge.move(action)
        there = knowledge.position
        judged, rejected, achieved = view, None, None
        if event == INVALID:
            error = True
            rejected = knowledge.rejected
        elif event:
            error = False
            achieved = knowledge.last_achieved if event & ACHIEVED else None
            stale = StaleScore(there)
            view = _view(knowledge, distances)
        else:
            rose = stale.move(here, there)
            error = not judged.gain(here, there) or (judged.count > 1 and rose)
        yield RawStep(
            here,
            there,
            action,
            rejected,
            judged,
            event > 0 and bool(event & NEW_CELL),
            achieved,
            error,
            stale.loops,
            stale.edge_reuse,
            stale.cell_reuse,
            rising,
        )


def rising_moves(open_cells: bytearray, offsets: tuple[int, ...], stale: StaleScore, here: int) -> int:
    """Return the moves that would raise the stale score, one bit each.

    Args:
        open_cells: 1 where a cell can be walked on, by its index.
        offsets: change of an index that each move makes.
        stale: the score so far.
        here: index of the agent's cell.
    """
    rising = 0
    for action in ACTIONS:
        there = here + offsets[action]
        if open_cells[there] and stale.would_rise(here, there):
            rising |= 1 << action
    return rising


def _view(knowledge: Knowledge, distances: Distances) -> View:
    board = knowledge.board
    goal = board.places[board.goal] if knowledge.goal_pending else -1
    observed, unobserved, pending = knowledge.observed, knowledge.unobserved, knowledge.pending
    if distances == "map":
        known = through = board.cells
    elif distances == "known":
        known = through = observed | unobserved
    else:
        through = observed
        known = observed | ((1 << goal) if goal >= 0 else unobserved | pending)
    return View(board, unobserved, pending, goal, known, through)
