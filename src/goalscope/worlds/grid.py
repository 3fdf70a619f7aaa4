"""Grid worlds: cells, positions, actions and the rules that move an agent.

Coordinates are ``(row, col)`` with row 0 at the top, so `Action.UP` is row - 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope.checks import freeze

Position = tuple[int, int]
Side = Literal["left", "right", "top", "bottom"]


class Action(IntEnum):
    """The four moves; the value is the index of the action in every array with an action axis."""

    UP = 0
    DOWN = 1
    LEFT = 2
    RIGHT = 3

    @property
    def delta(self) -> Position:
        """Change of ``(row, col)`` that the move makes where nothing is in the way."""
        return _DELTAS[self]


_DELTAS = ((-1, 0), (1, 0), (0, -1), (0, 1))
ACTIONS = tuple(Action)
DELTAS: npt.NDArray[np.int64] = freeze(np.array(_DELTAS, dtype=np.int64))
"""``[4, 2]`` change of (row, col) of each action, in the order of `Action`."""

WALL, OPEN, GOAL, AGENT, KEY, DOOR, FOG = "#", "_", "G", "A", "K", "D", "*"
"""The symbols of the text form."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """One grid as it can be seen at one moment: walls, the agent's cell, goal, key, door and fog.

    Attributes:
        walls: ``[H, W]`` bool, True where a wall stands.
        start: cell of the agent, None where the grid shows none.
        goal: cell of the goal, None where the grid shows none (under fog, or beneath the agent).
        key: cell of a key that lies on the ground, None without one or once it is carried.
        door: cell of a locked door, None without one or once it is open.
        fog: ``[H, W]`` bool, True where the cell is hidden, None for a fully observed grid.

    Raises:
        ValueError: an object outside the grid, on a wall or on another object; walls under fog.
    """

    walls: npt.NDArray[np.bool_]
    start: Position | None = None
    goal: Position | None = None
    key: Position | None = None
    door: Position | None = None
    fog: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        walls = np.asarray(self.walls)
        if walls.ndim != 2 or walls.size == 0 or walls.dtype != np.bool_:
            raise ValueError(
                f"walls must be a boolean array [H, W] with cells in it, got {walls.dtype} {list(walls.shape)}"
            )
        object.__setattr__(self, "walls", freeze(walls))
        if self.fog is not None:
            fog = np.asarray(self.fog)
            if fog.shape != walls.shape or fog.dtype != np.bool_:
                raise ValueError(
                    f"fog must be boolean with the shape of walls {list(walls.shape)}, got {list(fog.shape)}"
                )
            if (fog & walls).any():
                raise ValueError("a hidden cell must not be marked as a wall: the grid holds what can be seen")
            object.__setattr__(self, "fog", freeze(fog) if fog.any() else None)
        taken: dict[Position, str] = {}
        for name in ("start", "goal", "key", "door"):
            given = getattr(self, name)
            if given is None:
                continue
            cell = self.check_cell(given, name)
            if walls[cell]:
                raise ValueError(f"{name} must lie on an open cell, got the wall at {cell}")
            if self.fog is not None and self.fog[cell]:
                raise ValueError(f"{name} must lie on a visible cell, got the hidden cell {cell}")
            if cell in taken:
                raise ValueError(f"{name} must have a cell of its own, got {cell}, where {taken[cell]} lies")
            taken[cell] = name
            object.__setattr__(self, name, cell)

    def check_cell(self, cell: Sequence[int] | npt.NDArray[Any], name: str = "position") -> Position:
        """Return ``cell`` as a tuple of plain integers.

        Raises:
            ValueError: not two integers, or outside of the grid.
        """
        pair = tuple(cell)
        whole = all(isinstance(item, int | np.integer) and not isinstance(item, bool) for item in pair)
        if len(pair) != 2 or not whole:
            raise ValueError(f"{name} must be (row, col), two whole numbers, got {cell!r}")
        row, col = int(pair[0]), int(pair[1])
        height, width = self.walls.shape
        if not (0 <= row < height and 0 <= col < width):
            raise ValueError(f"{name} must lie in the {height}x{width} grid, got (row, col) = {(row, col)}")
        return row, col

    @property
    def height(self) -> int:
        """Number of rows H."""
        return int(self.walls.shape[0])

    @property
    def width(self) -> int:
        """Number of columns W."""
        return int(self.walls.shape[1])

    def goal_lies(self, side: Side) -> bool:
        """Return whether the goal lies in this half of the grid; the middle row or column belongs to no half.

        False where the grid shows no goal.

        Raises:
            ValueError: another side than left, right, top or bottom.
        """
        if side not in get_args(Side):
            raise ValueError(f"a side must be one of {', '.join(get_args(Side))}, got {side!r}")
        if self.goal is None:
            return False
        place, cells = (self.goal[1], self.width) if side in ("left", "right") else (self.goal[0], self.height)
        return 2 * place + 1 < cells if side in ("left", "top") else 2 * place + 1 > cells

    @classmethod
    def parse(cls, text: str | Sequence[str] | Sequence[Sequence[str]]) -> "Grid":
        """Read a grid from its text form, the inverse of `render`.

        Args:
            text: a text, a list of lines, or a list of lists of symbols. Column and row labels may be there or not;
                cells are separated by blanks of any number (unlabelled lines may also have none at all).

        Raises:
            ValueError: names the line and what is wrong with it: an unknown symbol, a line of another length, a label
                out of order, a second agent, goal, key or door.
        """
        from goalscope.worlds.text import parse

        return parse(text)

    def render(self) -> str:
        """Return the text form: a header of column indices, then one line a row with its index, blanks between."""
        from goalscope.worlds.text import render

        return render(self)

    def at(self, **changes: Any) -> "Grid":
        """Return the same grid with some attributes changed, e.g. ``grid.at(start=(3, 4))``."""
        return replace(self, **changes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grid):
            return NotImplemented
        objects = (self.start, self.goal, self.key, self.door) == (other.start, other.goal, other.key, other.door)
        hidden = (self.fog is None) == (other.fog is None) and (
            self.fog is None or other.fog is None or np.array_equal(self.fog, other.fog)
        )
        return objects and hidden and np.array_equal(self.walls, other.walls)

    def __hash__(self) -> int:
        return hash((self.walls.tobytes(), self.walls.shape, self.start, self.goal, self.key, self.door))

    def __str__(self) -> str:
        return self.render()
