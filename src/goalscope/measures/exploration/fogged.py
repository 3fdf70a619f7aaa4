"""The same metric on mazes under fog: a variant with words of its own, never pooled with that of task maps.

Observed is what was revealed; unobserved are the revealed open cells next to a cell that was not; the goal is pending
once it is revealed; progress is a newly revealed cell or the goal reached. There are cases 1 and 2 only. A move is
judged on the revealed open cells before it. Worlds with a locked door are refused: a door has no case.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from goalscope.measures.exploration.records import EpisodeScore, Outcome, RawStep, Steps, count_steps, summarise
from goalscope.measures.exploration.score import rising_moves
from goalscope.measures.exploration.stale import StaleScore
from goalscope.measures.exploration.view import View
from goalscope.measures.measure import StepTable, episode_rows
from goalscope.rows import Rows
from goalscope.runs.record import Episode
from goalscope.worlds.fog import Fog
from goalscope.worlds.grid import Grid, Position
from goalscope.worlds.tasks.board import Board, bits
from goalscope.worlds.tasks.coordinates import Frame
from goalscope.worlds.tasks.knowledge import Rejection

_OUTCOMES: dict[str, Outcome] = {"goal": "goal", "horizon": "budget"}


class FoggedView(View):
    """The view of a maze under fog between two events of progress.

    Args:
        board: the numbering of the open cells; (x, y) with y upwards, the bottom left corner at (0, 0).
        frame: converts to rows and columns.
        fog: what was revealed.
        goal: cell of the goal, (row, col).
    """

    __slots__ = ("_fog", "_frame", "_goal")

    def __init__(self, board: Board, frame: Frame, fog: Fog, goal: Position) -> None:
        self._fog, self._frame, self._goal = fog, frame, goal
        seen, unseen = _bits(fog.seen), _bits(~fog.seen)
        known = board.cells & seen
        place = board.index(frame.cell(goal)) if fog.seen[goal] else -1
        super().__init__(board, known & board.grow(unseen), 1 << place if place >= 0 else 0, place, known, known)

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
    grid, radius = world.grid, world.fog_radius
    if radius is None or grid.door is not None or grid.start is None or grid.goal is None:
        given = "one without fog" if radius is None else "one with a locked door"
        raise ValueError(f"this variant must be given an episode of a maze under fog without a door, got {given}")
    board, frame = fogged_board(grid)
    fog = Fog.start(grid, radius)
    view = FoggedView(board, frame, fog, grid.goal)
    stale = StaleScore(board.start)
    raw: list[RawStep] = []
    positions = [step.state.position for step in episode.steps] + [episode.final.position]
    cells = [board.index(frame.cell(position)) for position in positions]
    for step, here, there, after in zip(episode.steps, cells, cells[1:], positions[1:], strict=False):
        rising = rising_moves(board.open, board.offsets, stale, here)
        judged, revealed, reached = view, False, False
        rejected: Rejection | None = None
        if here == there:
            error = view.case > 0
            rejected = "unparsable" if step.action is None else "blocked"
        else:
            looked = fog.look(after)
            revealed, reached = bool((looked.seen & ~fog.seen).any()), after == grid.goal
            if revealed or reached:
                error = False
                fog, stale = looked, StaleScore(there)
                view = FoggedView(board, frame, fog, grid.goal)
            else:
                rose = stale.move(here, there)
                error = view.case > 0 and (not view.gain(here, there) or (view.count > 1 and rose))
        raw.append(
            RawStep(
                here,
                there,
                step.action,
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
    outcome = _OUTCOMES.get(episode.outcome, "stopped")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FoggedError:
    """Exploration or exploitation error of each episode of a maze under fog; other worlds give no rows.

    Attributes:
        kind: "exploration" (steps before the goal is revealed) or "exploitation" (steps after).
    """

    kind: Literal["exploration", "exploitation"]
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    @property
    def name(self) -> str:
        """The measure of its rows."""
        return f"{self.kind} error under fog"

    def rows(self, table: StepTable) -> Rows:
        """Return one row an episode, NaN where no step called for the kind."""
        fits = np.array([scorable(episode) for episode in table.episodes], dtype=bool)
        values = np.full(len(fits), np.nan)
        for index in np.flatnonzero(fits):
            value = getattr(score_fogged_episode(table.episodes[index]).summary, f"{self.kind}_error")
            values[index] = np.nan if value is None else value
        return episode_rows(table, self.name, self.unit, values).where(fits)


FOGGED = (FoggedError(kind="exploration"), FoggedError(kind="exploitation"))
"""The two measures of this variant."""


def scorable(episode: Episode) -> bool:
    """Return whether an episode has fog and no locked door."""
    return episode.world.fog_radius is not None and episode.world.grid.door is None


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


def _bits(cells: npt.NDArray[np.bool_]) -> int:
    """Return a set of cells from an array ``[H, W]`` in rows and columns, whose last row is the lowest."""
    height, width = cells.shape
    padded = np.zeros((height + 2, width + 1), dtype=np.uint8)
    padded[1:-1, :-1] = cells[::-1]
    return bits(bytearray(padded.tobytes()))
