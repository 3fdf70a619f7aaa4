"""Coordinates of task maps, their nodes and actions.

Task maps use ``(x, y)`` with y upwards, as their paper does: up is y + 1, right is x + 1. Grids use ``(row, col)`` with
row 0 at the top. `Frame` converts between the two; the names and meanings of the four moves are the same in both.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from goalscope._ground.checks import is_whole
from goalscope.worlds.grid import Action, Position

Cell = tuple[int, int]
"""A cell of a task map: (x, y), y upwards."""

MOVES = MappingProxyType({action: (action.delta[1], -action.delta[0]) for action in Action})
"""Change of (x, y) by each move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNode:
    """One task of a map.

    Attributes:
        cell: cell of the node, (x, y).
        options: alternative prerequisite sets, each a tuple of node names; one achieved set is enough. Empty for a
            primitive node, which has no prerequisites.
    """

    cell: Cell
    options: tuple[tuple[str, ...], ...] = ()

    @property
    def parents(self) -> set[str]:
        """Names of all nodes that appear in the prerequisite sets of this node."""
        return {parent for option in self.options for parent in option}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The smallest rectangle around a set of cells.

    Attributes:
        left: x of its first column.
        top: y of its first row.
        width: number of columns W.
        height: number of rows H.
    """

    left: int
    top: int
    width: int
    height: int

    @classmethod
    def around(cls, cells: Iterable[Cell]) -> "Frame":
        """Return the frame around some cells, of which there must be at least one."""
        xs, ys = zip(*cells, strict=True)
        return cls(left=min(xs), top=max(ys), width=max(xs) - min(xs) + 1, height=max(ys) - min(ys) + 1)

    def row_col(self, cell: Cell) -> Position:
        """Return (row, col) of a cell (x, y)."""
        return self.top - cell[1], cell[0] - self.left

    def cell(self, position: Position) -> Cell:
        """Return the cell (x, y) at (row, col)."""
        return position[1] + self.left, self.top - position[0]


def check_cell(value: Any, name: str) -> Cell:
    """Check a cell, and return it as two plain integers; raise a ValueError that names the value if it is invalid."""
    pair = tuple(value) if isinstance(value, list | tuple | np.ndarray) else ()
    if len(pair) != 2 or not all(is_whole(item) and abs(int(item)) < 10**9 for item in pair):
        raise ValueError(f"{name} must be [x, y], two whole numbers below 10**9, got {value!r:.60}")
    return int(pair[0]), int(pair[1])


def read_action(value: Action | str | None) -> Action | None:
    """Return the move that a recorded action names, or None if it names no move.

    Args:
        value: a move, the name of a move in any case ("up", "DOWN"), other text, or None.

    Raises:
        ValueError: the value is neither a move nor text nor None.
    """
    if value is None or isinstance(value, Action):
        return value
    if not isinstance(value, str):
        names = ", ".join(action.name.lower() for action in Action)
        raise ValueError(f"an action must be one of {names}, other text or None (a turn without a move), got {value!r}")
    return Action.__members__.get(value.strip().upper())
