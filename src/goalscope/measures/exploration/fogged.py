"""The same metric on mazes under fog: a variant with words of its own, never pooled with that of task maps.

Observed is what was revealed; unobserved are the revealed open cells next to a cell that was not; the goal is pending
once it is revealed; progress is a newly revealed cell or the goal reached. There are cases 1 and 2 only. A move is
judged on the revealed open cells before it. Worlds with a locked door are refused: a door has no case.

Sight reaches between two walls that meet at a corner, so that a cell can be revealed before any way to it is. Such a
cell is no target until there is one: no move could lead nearer to it, and an agent that goes round to look for the way
would be called wrong at every step. In task worlds the question does not arise: whatever was seen there was walked to.
"""

import math
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope.measures.definition import OURS, Entries, StepMeasure, add_measures
from goalscope.measures.exploration.records import (
    EpisodeScore,
    Outcome,
    RawStep,
    Steps,
    Summary,
    count_steps,
    summarise,
)
from goalscope.measures.exploration.score import rising_moves
from goalscope.measures.exploration.stale import StaleScore
from goalscope.measures.exploration.view import View
from goalscope.measures.table import NO_ACTION, StepTable
from goalscope.runs.record import Episode
from goalscope.worlds.fog import Fog
from goalscope.worlds.grid import ACTIONS, Action, Grid, Position
from goalscope.worlds.tasks.board import Board, bits
from goalscope.worlds.tasks.coordinates import Frame
from goalscope.worlds.tasks.knowledge import Rejection

_OUTCOMES: dict[str, Outcome] = {"goal": "goal", "horizon": "budget"}
Kind = Literal["exploration", "exploitation"]
Quantity = Literal["error", "errors", "steps"]


class FoggedView(View):
    """The view of a maze under fog between two events of progress.

    Args:
        board: the numbering of the open cells; (x, y) with y upwards, the bottom left corner at (0, 0).
        frame: converts to rows and columns.
        fog: what was revealed.
        goal: cell of the goal, (row, col).
        here: index of the agent's cell.
    """

    __slots__ = ("_fog", "_frame", "_goal")

    def __init__(self, board: Board, frame: Frame, fog: Fog, goal: Position, here: int) -> None:
        self._fog, self._frame, self._goal = fog, frame, goal
        known = _within(board, board.cells & _bits(fog.seen), here)
        border = known & board.grow(_bits(~fog.seen))
        place = board.index(frame.cell(goal))
        pending = known & 1 << place
        super().__init__(board, border, pending, place if pending else -1, known, known)

    def progress(self, there: int) -> bool:
        """Return whether going to a cell reveals another one, or reaches the goal."""
        position = self._frame.row_col(self.board.cell(there))
        return position == self._goal or bool((self._fog.look(position).seen & ~self._fog.seen).any())


def score_fogged_episode(episode: Episode) -> EpisodeScore:
    """Return the exploration and exploitation errors of a recorded episode of a maze under fog.

    Args:
        episode: an episode of a world with a fog radius and without a locked door.

    Returns:
        The record; cells are (x, y) with y upwards, the bottom left corner of the grid at (0, 0). A turn without an
        action is "unparsable", a move into a wall "blocked". There are no nodes and no budget.

    Raises:
        ValueError: a world without fog or with a door.
    """
    world = episode.world
    if world.fog_radius is None or world.grid.door is not None:
        given = "one without fog" if world.fog_radius is None else "one with a locked door"
        raise ValueError(f"this variant must be given an episode of a maze under fog without a door, got {given}")
    positions = (*(step.state.position for step in episode.steps), episode.final.position)
    actions = tuple(step.action for step in episode.steps)
    return _score(world.grid, world.fog_radius, positions, actions, _OUTCOMES.get(episode.outcome, "stopped"))


def _score(
    grid: Grid,
    radius: int,
    positions: tuple[Position, ...],
    actions: tuple[Action | None, ...],
    outcome: Outcome,
) -> EpisodeScore:
    board, frame = fogged_board(grid)
    goal = grid.goal
    if goal is None:
        raise ValueError("a maze must show its goal (G), got a grid without one")
    fog = Fog.start(grid, radius)
    view = FoggedView(board, frame, fog, goal, board.start)
    stale = StaleScore(board.start)
    raw: list[RawStep] = []
    cells = [board.index(frame.cell(position)) for position in positions]
    for action, after, (here, there) in zip(actions, positions[1:], pairwise(cells), strict=True):
        rising = rising_moves(board.open, board.offsets, stale, here)
        judged, revealed, reached = view, False, False
        rejected: Rejection | None = None
        if here == there:
            error = view.case > 0
            rejected = "unparsable" if action is None else "blocked"
        else:
            looked = fog.look(after)
            revealed, reached = bool((looked.seen & ~fog.seen).any()), after == goal
            if revealed or reached:
                error = False
                fog, stale = looked, StaleScore(there)
                view = FoggedView(board, frame, fog, goal, there)
            else:
                rose = stale.move(here, there)
                error = view.case > 0 and (not view.gain(here, there) or (view.count > 1 and rose))
        raw.append(
            RawStep(
                here,
                there,
                action,
                rejected,
                judged,
                revealed,
                "goal" if reached else None,
                error,
                stale.loops,
                stale.edge_reuse,
                stale.cell_reuse,
                rising,
            )
        )
    summary = summarise(
        count_steps(raw),
        budget=None,
        outcome=outcome,
        observed_cells=int(fog.seen.sum()),
        cells=int(fog.seen.size),
        achieved_nodes=0,
        nodes=0,
        distances="revealed",
    )
    return EpisodeScore(steps=Steps(raw), summary=summary)


def _summaries(table: StepTable) -> list[Summary]:
    """Return the summaries of the episodes of mazes under fog, in order; the same walk is scored once."""
    known: dict[tuple[Any, ...], Summary] = {}
    found = []
    for index in np.flatnonzero(_scorable(table)).tolist():
        world = table.worlds[table.world[index]]
        positions = tuple(state.position for state in table.path(index))
        taken = table.action[table.begin[index] : table.begin[index] + table.length[index]].tolist()
        outcome = _OUTCOMES.get(table.outcome[index], "stopped")
        walk = (int(table.world[index]), positions, tuple(taken), outcome)
        if walk not in known:
            actions = tuple(ACTIONS[action] if action != NO_ACTION else None for action in taken)
            known[walk] = _score(world.grid, world.fog_radius or 0, positions, actions, outcome).summary
        found.append(known[walk])
    return found


def _scorable(table: StepTable) -> npt.NDArray[np.bool_]:
    """Return ``[E]`` whether an episode's world has fog and no locked door."""
    fits: npt.NDArray[np.bool_] = np.array(
        [world.fog_radius is not None and world.grid.door is None for world in table.worlds], dtype=bool
    )[table.world]
    return fits


UNDER_FOG = " under fog"
"""With what the names of these measures end, so that no table pools them with those of task worlds."""


def fogged_error(*, kind: Kind, quantity: Quantity = "error", valid: bool = False) -> StepMeasure:
    """Return one number of the score of each episode of a maze under fog; other worlds give no rows.

    Args:
        kind: "exploration" (steps before a way to the goal is revealed) or "exploitation" (steps after).
        quantity: "error" (errors / steps), "errors" or "steps" (what it is made of).
        valid: whether only the actions that were moves count.
    """

    def score(table: StepTable) -> Entries:
        numbers = [getattr(summary, attribute) for summary in table.once(_summaries)]
        return Entries(np.array(numbers, dtype=np.float64), np.flatnonzero(_scorable(table)))  # None becomes NaN

    attribute = f"{'valid_' if valid else ''}{kind}_{quantity}"
    turns = "moves (blocked ones and turns without an action left out)" if valid else "turns"
    calls = "before a way to the goal is revealed" if kind == "exploration" else "once it is"
    texts: dict[Quantity, str] = {
        "error": f"share of an episode's {turns} {calls} that lead nearer to no target or go in circles; undefined "
        "without such a turn, never 0",
        "errors": f"number of those errors among the {turns}",
        "steps": f"number of {turns} {calls}",
    }
    return StepMeasure(
        name=f"{kind} {quantity}{' of valid moves' if valid else ''}{UNDER_FOG}",
        unit="share" if quantity == "error" else "steps",
        bounds=(0.0, 1.0 if quantity == "error" else math.inf),
        text=texts[quantity],
        source=f"{OURS}: the errors of task worlds in other words (docs/exploration.md)",
        needs=("grid",),
        function=score,
    )


FOGGED = tuple(
    fogged_error(kind=kind, quantity=quantity, valid=valid)
    for kind in get_args(Kind)
    for valid in (False, True)
    for quantity in get_args(Quantity)
)
"""The measures of this variant: both errors, what they are made of, and the same of valid moves alone."""

add_measures(*FOGGED)


def fogged_board(grid: Grid) -> tuple[Board, Frame]:
    """Return the open cells of a grid as a board, and the frame that converts its cells.

    Raises:
        ValueError: the grid shows no agent.
    """
    if grid.start is None:
        raise ValueError("a maze must show its agent (A), got a grid without one")
    frame = Frame(left=0, top=grid.height - 1, width=grid.width, height=grid.height)
    open_cells = [frame.cell((int(row), int(col))) for row, col in np.argwhere(~grid.walls)]
    return Board(frame, open_cells, frame.cell(grid.start)), frame


def _within(board: Board, cells: int, here: int) -> int:
    """Return the cells of a set that can be walked to from one of them."""
    found = 1 << here
    while (more := found | board.grow(found) & cells) != found:
        found = more
    return found


def _bits(cells: npt.NDArray[np.bool_]) -> int:
    """Return a set of cells from an array ``[H, W]`` in rows and columns, whose last row is the lowest."""
    height, width = cells.shape
    padded = np.zeros((height + 2, width + 1), dtype=np.uint8)
    padded[1:-1, :-1] = cells[::-1]
    return bits(bytearray(padded.tobytes()))
