"""Coordinates of task maps, their nodes and actions; cells as bits of one whole number.

Task maps use ``(x, y)`` with y upwards, as their paper does: up is y + 1, right is x + 1. Grids use ``(row, col)`` with
row 0 at the top. `Frame` converts; the names and meanings of the four moves agree on both sides.

In a `Board` every cell of the rectangle around a map is one bit. A set of cells is then one Python integer, which costs
nothing to keep as it was at some step. It grows by one move in all directions with four shifts. Rows are padded by a
column, so that no shift carries a cell into another row. The tests hold it equal to sets of cells.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from goalscope.checks import is_whole
from goalscope.worlds.grid import ACTIONS, Action, Position

Cell = tuple[int, int]
"""A cell of a task map: (x, y), y upwards."""

MOVES = MappingProxyType({action: (action.delta[1], -action.delta[0]) for action in Action})
"""Change of (x, y) that each move makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNode:
    """One task.

    Attributes:
        cell: where it stands, (x, y).
        options: alternative prerequisite sets, each a tuple of node names; one achieved set is enough. Empty for a
            primitive, which needs nothing.
    """

    cell: Cell
    options: tuple[tuple[str, ...], ...] = ()

    @property
    def parents(self) -> set[str]:
        """Names of all nodes in its sets."""
        return {parent for option in self.options for parent in option}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The smallest rectangle around some cells.

    Attributes:
        left, top: x of its first column, y of its first row.
        width, height: number of columns W and of rows H.
    """

    left: int
    top: int
    width: int
    height: int

    @classmethod
    def around(cls, cells: Iterable[Cell]) -> "Frame":
        """Return the frame of at least one cell."""
        xs, ys = zip(*cells, strict=True)
        return cls(left=min(xs), top=max(ys), width=max(xs) - min(xs) + 1, height=max(ys) - min(ys) + 1)

    def row_col(self, cell: Cell) -> Position:
        """Return (row, col) of a cell (x, y)."""
        return self.top - cell[1], cell[0] - self.left

    def cell(self, position: Position) -> Cell:
        """Return the cell (x, y) at (row, col)."""
        return position[1] + self.left, self.top - position[0]


def check_cell(value: Any, name: str) -> Cell:
    """Return a cell as two plain integers, or raise a ValueError that names it."""
    pair = tuple(value) if isinstance(value, list | tuple | np.ndarray) else ()
    if len(pair) != 2 or not all(is_whole(item) and abs(int(item)) < 10**9 for item in pair):
        raise ValueError(f"{name} must be [x, y], two whole numbers below 10**9, got {value!r:.60}")
    return int(pair[0]), int(pair[1])


def read_action(value: Action | str | None) -> Action | None:
    """Return the move that a recorded action names, None where it names none.

    Args:
        value: a move, its name in any case ("up", "DOWN"), other text, or None.

    Raises:
        ValueError: neither a move nor text nor None.
    """
    if value is None or isinstance(value, Action):
        return value
    if not isinstance(value, str):
        names = ", ".join(action.name.lower() for action in Action)
        raise ValueError(f"an action must be one of {names}, other text or None (a turn without a move), got {value!r}")
    return Action.__members__.get(value.strip().upper())


class Board:
    """The numbering of a map's cells and nodes; shared by all that look at one map, never changed.

    Attributes:
        width: bits of a row, one of them padding.
        size: bits in all, two padded rows among them.
        offsets: ``[4]`` change of a cell's index that each move makes, in the order of `Action`.
        open: ``[size]`` 1 where a cell can be walked on.
        cells: the bits of all cells.
        start: index of the start cell.
        names: names of the nodes, in order.
        node_at: index of a cell -> number of its node.
        places: index of each node's cell.
        options: for each node its alternative prerequisite sets as bits of node numbers.
        goal: number of the goal, -1 for a board without nodes.
    """

    def __init__(
        self,
        frame: Frame,
        cells: Iterable[Cell],
        start: Cell,
        nodes: Mapping[str, TaskNode] | None = None,
        goal: str = "",
    ) -> None:
        self.width = frame.width + 1
        self.size = self.width * (frame.height + 2)
        self._left, self._bottom = frame.left, frame.top - frame.height + 1
        self.offsets = tuple(MOVES[action][0] + MOVES[action][1] * self.width for action in ACTIONS)
        self.open = bytearray(self.size)
        for cell in cells:
            self.open[self.index(cell)] = 1
        self.cells = bits(self.open)
        self.start = self.index(start)
        nodes = nodes or {}
        self.names = tuple(nodes)
        number = {name: index for index, name in enumerate(self.names)}
        self.places = tuple(self.index(node.cell) for node in nodes.values())
        self.options = tuple(
            tuple(sum(1 << number[parent] for parent in option) for option in node.options) for node in nodes.values()
        )
        self.goal = number[goal] if goal else -1
        self.node_at = {place: index for index, place in enumerate(self.places)}

    def index(self, cell: Cell) -> int:
        """Return the index of a cell (x, y) of the rectangle."""
        return (cell[1] - self._bottom + 1) * self.width + cell[0] - self._left

    def cell(self, index: int) -> Cell:
        """Return the cell (x, y) at an index."""
        row, column = divmod(index, self.width)
        return column + self._left, row + self._bottom - 1

    def listed(self, board: int) -> tuple[Cell, ...]:
        """Return the cells of a set, sorted by y, then x."""
        return tuple(self.cell(index) for index in indices(board))

    def grow(self, board: int) -> int:
        """Return the cells next to a set, within the padded rectangle; the set's own cells are in it by chance."""
        return board << 1 | board >> 1 | board << self.width | board >> self.width

    def field(self, passable: bytes | bytearray, source: int) -> list[int]:
        """Return the number of moves from one cell to every other over passable cells, -1 where there is no way."""
        field = [-1] * self.size
        field[source] = 0
        wave, steps = [source], 0
        while wave:
            steps += 1
            following = []
            for here in wave:
                for offset in self.offsets:
                    near = here + offset
                    if passable[near] and field[near] < 0:
                        field[near] = steps
                        following.append(near)
            wave = following
        return field


def bits(flags: bytearray) -> int:
    """Return a set of cells from one flag (0 or 1) a cell."""
    return int(flags.translate(bytes.maketrans(b"\x00\x01", b"01"))[::-1], 2)


def flags(board: int, size: int) -> bytes:
    """Return one flag (0 or 1) a cell, the inverse of `bits`."""
    return format(board, f"0{size}b").encode()[::-1].translate(bytes.maketrans(b"01", b"\x00\x01"))


def indices(board: int) -> Iterator[int]:
    """Yield the indices of a set, the least first."""
    if board.bit_count() * 64 < board.bit_length():
        while board:
            least = board & -board
            yield least.bit_length() - 1
            board ^= least
        return
    text = format(board, "b")[::-1]
    found = text.find("1")
    while found >= 0:
        yield found
        found = text.find("1", found + 1)
