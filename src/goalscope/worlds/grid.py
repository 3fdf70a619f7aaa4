"""Grids: cells, positions, actions, and their text form.

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
        return _parse(text)

    def render(self) -> str:
        """Return the text form: a header of column indices, then one line a row with its index, blanks between."""
        return _render(self)

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


_OBJECTS = {AGENT: "start", GOAL: "goal", KEY: "key", DOOR: "door"}
_SYMBOLS = {WALL, OPEN, FOG, *_OBJECTS}


def symbols(grid: Grid) -> npt.NDArray[np.str_]:
    """Return the symbol of each cell, ``[H, W]`` one-character text."""
    cells = np.where(grid.walls, WALL, OPEN).astype("<U1")
    if grid.fog is not None:
        cells[grid.fog] = FOG
    for symbol, name in _OBJECTS.items():
        cell: Position | None = getattr(grid, name)
        if cell is not None:
            cells[cell] = symbol
    return cells


def _render(grid: Grid) -> str:
    """Return labels and cells right-justified to one width, separated by one blank.

    Grids of at most 10 rows and columns have cells of width 1; larger ones of width 2, so that columns stay aligned
    under their labels.
    """
    width = len(str(max(grid.height, grid.width) - 1))
    lines = [" ".join([" " * width, *(f"{col:>{width}}" for col in range(grid.width))])]
    for row, cells in enumerate(symbols(grid)):
        lines.append(" ".join([f"{row:>{width}}", *(f"{cell:>{width}}" for cell in cells)]))
    return "\n".join(lines)


def _parse(text: str | Sequence[str] | Sequence[Sequence[str]]) -> Grid:
    """Read a grid; see `Grid.parse`."""
    rows = _cells(text)
    width = len(rows[0][1])
    found: dict[str, Position] = {}
    walls = np.zeros((len(rows), width), dtype=bool)
    fog = np.zeros_like(walls)
    for row, (line, cells) in enumerate(rows):
        if len(cells) != width:
            raise ValueError(
                f"every row of a grid must have the same number of cells: line {line} has {len(cells)}, "
                f"the first row has {width}"
            )
        for col, symbol in enumerate(cells):
            if symbol not in _SYMBOLS:
                known = " ".join(sorted(_SYMBOLS))
                raise ValueError(f"a cell must be one of {known}: line {line}, column {col} holds {symbol!r}")
            if symbol in _OBJECTS:
                name = _OBJECTS[symbol]
                if name in found:
                    raise ValueError(
                        f"a grid must hold at most one {symbol!r}: line {line} has a second one at (row, col) = "
                        f"{(row, col)}, the first is at {found[name]}"
                    )
                found[name] = (row, col)
            walls[row, col] = symbol == WALL
            fog[row, col] = symbol == FOG
    return Grid(walls=walls, fog=fog if fog.any() else None, **found)


def _cells(text: str | Sequence[str] | Sequence[Sequence[str]]) -> list[tuple[int, list[str]]]:
    """Return (line number, cells) of each row with the labels checked and taken off."""
    if not isinstance(text, str | Sequence):
        raise TypeError(f"a grid must be a text, a list of lines or a list of rows, got {type(text).__name__}")
    lines = text.splitlines() if isinstance(text, str) else list(text)
    split = [(number, _split(line, number)) for number, line in enumerate(lines, start=1)]
    filled = [index for index, (_, tokens) in enumerate(split) if tokens]
    if not filled:
        raise ValueError("a grid must have at least one row, got an empty text")
    split = split[filled[0] : filled[-1] + 1]
    for number, tokens in split:
        if not tokens:
            raise ValueError(f"the rows of a grid must follow one another, got a blank line as line {number}")
    if not _is_label(split[0][1][0]):
        return _unspaced(split)
    header = split[0][1]
    if header != [str(col) for col in range(len(header))]:
        raise ValueError(f"the header must count the columns from 0, got line {split[0][0]}: {' '.join(header)!r}")
    rows = split[1:]
    if not rows:
        raise ValueError("a grid must have at least one row below its header, got the header alone")
    for index, (number, tokens) in enumerate(rows):
        if tokens[0] != str(index):
            raise ValueError(f"row labels must count from 0: line {number} must start with {index}, got {tokens[0]!r}")
    if len(rows[0][1]) - 1 != len(header):
        raise ValueError(
            f"the header must have a label for each column: {len(header)} labels, "
            f"{len(rows[0][1]) - 1} cells in line {rows[0][0]}"
        )
    return [(number, tokens[1:]) for number, tokens in rows]


def _split(line: str | Sequence[str], number: int) -> list[str]:
    if isinstance(line, str):
        return line.split()
    if not isinstance(line, Sequence) or not all(isinstance(cell, str) for cell in line):
        raise ValueError(f"a row must be a text or a list of symbols, got {line!r} as line {number}")
    return list(line)


def _is_label(token: str) -> bool:
    return token.isascii() and token.isdigit()


def _unspaced(split: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Take lines such as ``#A_G#`` apart where no line has a blank in it."""
    if all(len(tokens) == 1 for _, tokens in split):
        return [(number, list(tokens[0])) for number, tokens in split]
    return split
