"""Task maps: cells to walk on, and a graph of tasks that stand on some of them.

Source: measuring exploration and exploitation errors, Section 3 and Appendix B. A node has alternative prerequisite
sets (an OR of ANDs), which covers the paper's AND node (one set with all parents) and OR node (one set a parent).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.ids import canonical_json, content_id
from goalscope.worlds.grid import Action, Grid
from goalscope.worlds.tasks.board import Board
from goalscope.worlds.tasks.coordinates import MOVES, Cell, Frame, TaskNode, check_cell
from goalscope.worlds.tasks.graph import check_graph, options_from

MOST_CELLS = 250_000
MOST_AREA = 4_000_000
"""Most cells of the rectangle around a map: one bit is kept for each."""


@dataclass(frozen=True, kw_only=True)
class TaskMap:
    """A map and its tasks, complete and checked.

    Attributes:
        cells: the traversable cells M, (x, y) with y upwards; any order is taken, kept sorted by y, then x.
        start: cell where an episode begins; it holds no node.
        goal: name of the one node that nothing depends on.
        nodes: name -> `TaskNode`, or a mapping with its ``cell`` and ``options`` (or ``type`` "and"/"or" and
            ``parents``); kept sorted by name.
        alpha: the budget is ``floor(alpha * |M|)`` actions.

    Raises:
        ValueError: names what does not hold: cells that are not connected, a node outside the map, on the start or on
            another node, an unknown prerequisite, a cycle, a second sink, a budget below one action.
    """

    cells: Sequence[Cell]
    start: Cell
    goal: str
    nodes: Mapping[str, Any] = field(default_factory=dict)
    alpha: float = 3

    def __post_init__(self) -> None:
        cells = _cells(self.cells)
        object.__setattr__(self, "cells", tuple(sorted(cells, key=lambda cell: (cell[1], cell[0]))))
        object.__setattr__(self, "start", check_cell(self.start, "start"))
        if self.start not in cells:
            raise ValueError(f"start must be a cell of the map, got {list(self.start)}, which lies outside")
        object.__setattr__(self, "nodes", MappingProxyType(_nodes(self.nodes, cells, self.start)))
        check_graph({name: node.options for name, node in self.nodes.items()}, self.goal)
        _check_connected(cells, self.start)
        frame = self.frame
        if frame.width * frame.height > MOST_AREA:
            raise ValueError(
                f"the rectangle around the cells must hold at most {MOST_AREA} cells, "
                f"got {frame.width} x {frame.height}: split the map"
            )
        object.__setattr__(self, "alpha", _alpha(self.alpha))
        if self.budget < 1:
            raise ValueError(f"the budget must allow at least one action, got floor({self.alpha} * {len(cells)})")

    @cached_property
    def frame(self) -> Frame:
        """The rectangle around the cells, which converts to rows and columns."""
        return Frame.around(self.cells)

    @cached_property
    def budget(self) -> int:
        """Most actions of an episode, ``floor(alpha * |M|)`` with alpha taken as the decimal number that it prints as.

        Source: Appendix C.1, Eq. (7). An agent is not told.
        """
        return math.floor(Fraction(str(self.alpha)) * len(self.cells))

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """Name -> names of the nodes that have it in one of their sets, sorted."""
        found: dict[str, set[str]] = {name: set() for name in self.nodes}
        for name, node in self.nodes.items():
            for parent in {parent for option in node.options for parent in option}:
                found[parent].add(name)
        return MappingProxyType({name: tuple(sorted(names)) for name, names in found.items()})

    @cached_property
    def id(self) -> str:
        """Content id of the map and its tasks."""
        return content_id("taskmap", self.to_plain())

    @cached_property
    def walls(self) -> npt.NDArray[np.bool_]:
        """``[H, W]`` bool in rows and columns of `frame`, True where nothing can be walked on; read-only."""
        walls = np.ones((self.frame.height, self.frame.width), dtype=bool)
        rows, cols = zip(*(self.frame.row_col(cell) for cell in self.cells), strict=True)
        walls[list(rows), list(cols)] = False
        walls.flags.writeable = False
        return walls

    @cached_property
    def board(self) -> Board:
        """The map as bits, which episodes and scorers share."""
        return Board(self.frame, self.cells, self.start, self.nodes, self.goal)

    def __hash__(self) -> int:
        return hash(self.id)

    def grid(self) -> Grid:
        """Return the map as a grid with the agent at the start and the goal's cell as goal, tasks left out."""
        row_col = self.frame.row_col
        return Grid(walls=self.walls, start=row_col(self.start), goal=row_col(self.nodes[self.goal].cell))

    def available(self, cell: Cell) -> tuple[Action, ...]:
        """Return the moves that lead from a cell to another one, in the order of `Action`."""
        return tuple(a for a, (right, up) in MOVES.items() if (cell[0] + right, cell[1] + up) in self._members)

    def renamed(self, names: Mapping[str, str]) -> "TaskMap":
        """Return the same map and graph with other names.

        Args:
            names: old name -> new name for every node.
        """
        nodes = {
            names[name]: TaskNode(
                cell=node.cell, options=tuple(tuple(names[parent] for parent in option) for option in node.options)
            )
            for name, node in self.nodes.items()
        }
        return replace(self, nodes=nodes, goal=names[self.goal])

    def to_plain(self) -> dict[str, Any]:
        """Return the map as plain values, as JSON holds them."""
        return {
            "cells": [list(cell) for cell in self.cells],
            "start": list(self.start),
            "goal": self.goal,
            "nodes": {
                name: {"cell": list(node.cell), "options": [list(option) for option in node.options]}
                for name, node in self.nodes.items()
            },
            "alpha": self.alpha,
        }

    def to_json(self) -> str:
        """Return the one JSON text of this map; equal maps have equal bytes."""
        return canonical_json(self.to_plain())

    @classmethod
    def from_plain(cls, value: Any) -> "TaskMap":
        """Return a map from plain values, the inverse of `to_plain`.

        Raises:
            ValueError: missing or unknown keys, or what `TaskMap` refuses.
        """
        known = ("cells", "start", "goal", "nodes", "alpha")
        if not isinstance(value, Mapping):
            raise ValueError(f"a map must be an object with {', '.join(known[:4])}, got {type(value).__name__}")
        lacking = [key for key in known[:4] if key not in value]
        unknown = [str(key) for key in value if key not in known]
        if lacking or unknown:
            given = f"one without {', '.join(lacking)}" if lacking else f"the unknown key {unknown[0][:60]!r}"
            raise ValueError(f"a map must be an object with {', '.join(known[:4])} and perhaps alpha, got {given}")
        return cls(**value)

    @cached_property
    def _members(self) -> frozenset[Cell]:
        return frozenset(self.cells)


def _cells(given: Any) -> set[Cell]:
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise ValueError(f"cells must be a list of [x, y], got {type(given).__name__}")
    listed = list(given)
    if not 2 <= len(listed) <= MOST_CELLS:
        raise ValueError(f"a map must have 2 to {MOST_CELLS} cells, got {len(listed)}")
    cells: set[Cell] = set()
    for item in listed:
        cell = check_cell(item, "a cell")
        if cell in cells:
            raise ValueError(f"cells must be different, got {list(cell)} twice")
        cells.add(cell)
    return cells


def _nodes(given: Any, cells: set[Cell], start: Cell) -> dict[str, TaskNode]:
    if not isinstance(given, Mapping):
        raise ValueError(f"nodes must be an object of name -> node, got {type(given).__name__}")
    nodes: dict[str, TaskNode] = {}
    taken: dict[Cell, str] = {}
    for name, node in sorted(given.items(), key=lambda item: str(item[0])):
        if isinstance(node, TaskNode):
            node = {"cell": node.cell, "options": node.options}
        if not isinstance(node, Mapping) or "cell" not in node:
            raise ValueError(f"node {str(name)[:60]!r} must be an object with cell and options, got {str(node)[:60]!r}")
        cell = check_cell(node["cell"], f"the cell of node {str(name)[:60]!r}")
        if cell not in cells:
            raise ValueError(f"node {str(name)[:60]!r} must stand on a cell of the map, got {list(cell)} outside of it")
        if cell == start:
            raise ValueError(f"the start {list(start)} must hold no node, got node {str(name)[:60]!r} there")
        if cell in taken:
            raise ValueError(
                f"every node must have a cell of its own, got {taken[cell]!r} and {name!r} at {list(cell)}"
            )
        taken[cell] = name
        nodes[name] = TaskNode(cell=cell, options=options_from(str(name), node))
    return nodes


def _check_connected(cells: set[Cell], start: Cell) -> None:
    reached, waiting = {start}, [start]
    while waiting:
        x, y = waiting.pop()
        for right, up in MOVES.values():
            near = (x + right, y + up)
            if near in cells and near not in reached:
                reached.add(near)
                waiting.append(near)
    if len(reached) < len(cells):
        apart = min(cells - reached)
        raise ValueError(
            f"all cells must be connected by moves to the start {list(start)}, got {list(apart)} apart from it "
            f"({len(cells) - len(reached)} cells in all)"
        )


def _alpha(given: Any) -> float:
    number = isinstance(given, int | float | np.integer | np.floating) and not isinstance(given, bool)
    if not number or not 0 < given <= 1e6:
        raise ValueError(f"alpha must be a number above 0 and at most 10**6, got {str(given)[:60]!r}")
    return int(given) if float(given).is_integer() else float(given)
