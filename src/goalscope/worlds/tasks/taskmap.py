"""Task maps: cells to walk on, a graph of tasks that stand on some of them, and exact plans for both.

A node has alternative prerequisite sets (an OR of ANDs), which covers the paper's AND node (one set with all parents)
and OR node (one set a parent).

A shortest walk is a sequence of nodes, each achieved on arrival, with shortest paths in between: nodes on the way
are achieved in passing, which is never worse, since an achieved set never shrinks. So a search over (last node,
set of achieved nodes) is exact.

Source: measuring exploration and exploitation errors, Section 3 and Appendix B.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_number
from goalscope._ground.ids import canonical_json, content_id
from goalscope.worlds.grid import ACTIONS, Action, Grid
from goalscope.worlds.tasks._fast import Board
from goalscope.worlds.tasks.coordinates import Cell, Frame, TaskNode, check_cell

_MOST_CELLS = 250_000
_MOST_AREA = 4_000_000  # cells of the rectangle around a map: one bit is kept for each
_MOST_NODES = 1000
_MOST_PLANNED = 20  # nodes of a map with an exact plan: the number of achieved sets doubles with each
_LONGEST_NAME = 64


@dataclass(frozen=True, kw_only=True)
class TaskMap:
    """A map and its tasks, complete and checked.

    Attributes:
        cells: the traversable cells M, (x, y) with y upwards; in any order, stored sorted by y, then x.
        start: cell where an episode begins; it holds no node.
        goal: name of the one node that nothing depends on, or a list of names where there are several: the nodes that
            nothing depends on, all of which are to be achieved.
        nodes: name -> `TaskNode`, or a mapping with its ``cell`` and ``options`` (or ``type`` "and"/"or" and
            ``parents``); kept sorted by name.
        alpha: the budget is ``floor(alpha * |M|)`` actions.

    Raises:
        ValueError: names what does not hold: cells that are not connected, a node outside the map, on the start or on
            another node, an unknown prerequisite, a cycle, a second sink, a budget below one action.
    """

    cells: Sequence[Cell]
    start: Cell
    goal: str | Sequence[str]
    nodes: Mapping[str, Any] = field(default_factory=dict)
    alpha: float = 3

    def __post_init__(self) -> None:
        cells = _cells(self.cells)
        object.__setattr__(self, "cells", tuple(sorted(cells, key=lambda cell: (cell[1], cell[0]))))
        object.__setattr__(self, "start", check_cell(self.start, "start"))
        if self.start not in cells:
            raise ValueError(f"start must be a cell of the map, got {list(self.start)}, which lies outside")
        object.__setattr__(self, "nodes", MappingProxyType(_nodes(self.nodes, cells, self.start)))
        object.__setattr__(self, "goal", _check_graph(self.nodes, self.goal))
        frame = self.frame
        if frame.width * frame.height > _MOST_AREA:
            raise ValueError(
                f"the rectangle around the cells must hold at most {_MOST_AREA} cells, "
                f"got {frame.width} x {frame.height}: split the map"
            )
        moves = self.board.field(self.board.open, self.board.start)
        unreachable = [cell for cell in self.cells if moves[self.board.index(cell)] < 0]
        if unreachable:
            raise ValueError(
                f"all cells must be connected by moves to the start {list(self.start)}, "
                f"got {list(min(unreachable))} apart "
                f"from it ({len(unreachable)} cells in all)"
            )
        alpha = check_number("alpha", self.alpha, 0, 1e6, "number above 0")
        object.__setattr__(self, "alpha", int(alpha) if alpha.is_integer() else alpha)
        if self.budget < 1:
            budget = f"floor({self.alpha} * {len(cells)})"
            raise ValueError(f"alpha must be a number above 0 that allows at least one action, got {budget}")

    @property
    def goals(self) -> tuple[str, ...]:
        """Names of the goals, sorted: those of all nodes that nothing depends on."""
        return (self.goal,) if isinstance(self.goal, str) else tuple(self.goal)

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
        by_parent: dict[str, list[str]] = {name: [] for name in self.nodes}
        for name, node in self.nodes.items():
            for parent in node.parents:
                by_parent[parent].append(name)
        return MappingProxyType({name: tuple(names) for name, names in by_parent.items()})

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
        return Board(self.frame, self.cells, self.start, self.nodes, self.goals)

    def __hash__(self) -> int:
        return hash(self.id)

    def grid(self) -> Grid:
        """Return the map as a grid with the agent at the start and the first goal's cell as goal, tasks left out."""
        row_col = self.frame.row_col
        return Grid(walls=self.walls, start=row_col(self.start), goal=row_col(self.nodes[self.goals[0]].cell))

    def available(self, cell: Cell) -> tuple[Action, ...]:
        """Return the moves that lead from a cell of the map to another one, in the order of `Action`."""
        index, board = self.board.index(cell), self.board
        return tuple(action for action in Action if board.open[index + board.offsets[action]])

    def renamed(self, names: Mapping[str, str]) -> "TaskMap":
        """Return the same map and graph with other names.

        Args:
            names: old name -> new name for every node.
        """
        nodes = {
            names[name]: TaskNode(
                cell=node.cell, options=tuple(tuple(names[n] for n in option) for option in node.options)
            )
            for name, node in self.nodes.items()
        }
        return replace(self, nodes=nodes, goal=[names[goal] for goal in self.goals])

    def to_plain(self) -> dict[str, Any]:
        """Return the map as plain values, as JSON holds them."""
        return {
            "cells": [list(cell) for cell in self.cells],
            "start": list(self.start),
            "goal": self.goal if isinstance(self.goal, str) else list(self.goal),
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
        *needed, optional = ("cells", "start", "goal", "nodes", "alpha")
        must = f"a map must be an object with {', '.join(needed)} and perhaps {optional}"
        if not isinstance(value, Mapping):
            raise ValueError(f"{must}, got {type(value).__name__}")
        lacking = [key for key in needed if key not in value]
        unknown = [str(key) for key in value if key not in (*needed, optional)]
        if lacking or unknown:
            description = f"one without {', '.join(lacking)}" if lacking else f"the unknown key {unknown[0]!r:.60}"
            raise ValueError(f"{must}, got {description}")
        return cls(**value)


def _cells(value: Any) -> set[Cell]:
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise ValueError(f"cells must be a list of [x, y], got {type(value).__name__}")
    items = list(value)
    if not 2 <= len(items) <= _MOST_CELLS:
        raise ValueError(f"a map must have 2 to {_MOST_CELLS} cells, got {len(items)}")
    cells: set[Cell] = set()
    for item in items:
        cell = check_cell(item, "a cell")
        if cell in cells:
            raise ValueError(f"cells must be different, got {list(cell)} twice")
        cells.add(cell)
    return cells


def _nodes(value: Any, cells: set[Cell], start: Cell) -> dict[str, TaskNode]:
    if not isinstance(value, Mapping):
        raise ValueError(f"nodes must be an object of name -> node, got {type(value).__name__}")
    nodes: dict[str, TaskNode] = {}
    occupied: dict[Cell, str] = {}
    for name, node in sorted(value.items(), key=lambda item: str(item[0])):
        if isinstance(node, TaskNode):
            node = {"cell": node.cell, "options": node.options}
        label = f"node {str(name)!r:.60}"
        if not isinstance(node, Mapping) or "cell" not in node:
            raise ValueError(f"{label} must be an object with cell and options, got {node!r:.60}")
        cell = check_cell(node["cell"], f"the cell of {label}")
        if cell not in cells:
            raise ValueError(f"{label} must stand on a cell of the map, got {list(cell)} outside of it")
        if cell == start:
            raise ValueError(f"the start {list(start)} must hold no node, got {label} there")
        if cell in occupied:
            raise ValueError(
                f"every node must have a cell of its own, got {occupied[cell]!r} and {name!r} at {list(cell)}"
            )
        occupied[cell] = name
        nodes[name] = TaskNode(cell=cell, options=_options(label, node))
    return nodes


def _options(label: str, node: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Return the prerequisite sets that ``options`` lists, or that ``type`` and ``parents`` stand for."""
    keys = set(node) - {"cell"}
    if keys == {"type", "parents"}:
        kind, parents = str(node["type"]).lower(), _names(node["parents"], f"the parents of {label}")
        if kind not in ("and", "or"):
            raise ValueError(f"the type of {label} must be 'and' or 'or', got {node['type']!r:.60}")
        return tuple((parent,) for parent in parents) if kind == "or" else (parents,) if parents else ()
    if not keys <= {"options"}:
        raise ValueError(f"{label} must have cell and options (or type and parents), got {', '.join(map(str, node))}")
    listed = node.get("options", ())
    if not isinstance(listed, list | tuple):
        raise ValueError(f"the options of {label} must be a list of lists of names, got {listed!r:.60}")
    options = tuple(_names(item, f"an option of {label}") for item in listed)
    if not all(options):
        raise ValueError(f"an option of {label} must name a node, got an empty one: give a primitive none")
    return options


def _names(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{what} must be a list of names, got {value!r:.60}")
    if len(set(value)) < len(value):
        raise ValueError(f"{what} must name each node once, got {list(value)!r:.80}")
    return tuple(value)


def _check_graph(nodes: Mapping[str, TaskNode], goal: Any) -> str | tuple[str, ...]:
    """Return the goal, or several, sorted; refuse names, cycles, and goals that are not the sinks.

    Without them every node leads to a goal and can be achieved.
    """
    if not 1 <= len(nodes) <= _MOST_NODES:
        raise ValueError(f"a map must have 1 to {_MOST_NODES} nodes, got {len(nodes)}")
    for name in nodes:
        _check_name(name)
    goals = [goal] if isinstance(goal, str) else goal
    if not isinstance(goals, list | tuple) or not goals or any(one not in nodes for one in map(str, goals)):
        raise ValueError(f"goal must be the name of one node of the map, or a list of names, got {goal!r:.60}")
    parents = {name: node.parents for name, node in nodes.items()}
    for name in nodes:
        for parent in sorted(parents[name] - nodes.keys()):
            raise ValueError(f"the prerequisites of node {name!r} must be nodes, got the unknown {parent!r:.60}")
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        circle = " -> ".join(repr(name) for name in error.args[1])
        raise ValueError(f"the prerequisites must hold no cycle, got {circle}") from None
    parents_used = set().union(*parents.values())
    sinks = [name for name in nodes if name not in parents_used]
    if sinks != sorted(goals):
        listed = ", ".join(map(repr, sinks[:5]))
        raise ValueError(
            f"the goal {goal!r} must be the only node that nothing depends on, got {listed}: a map has one goal, or "
            "a list of all of them"
        )
    return sinks[0] if len(sinks) == 1 else tuple(sinks)


def _check_name(name: Any) -> None:
    # The texts that agents read put names in double quotes, so that every name can be read back.
    good = isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable() and name == name.strip()
    if not good or '"' in name:
        raise ValueError(
            f"a node's name must be 1 to {_LONGEST_NAME} printable characters without double quotes and without blanks "
            f"at its ends, got {name!r:.80}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """A shortest successful walk.

    Attributes:
        length: number of its moves.
        order: the nodes in the order in which it goes to them; further ones may be achieved in passing.
        actions: the moves, the first of the ties in the order of `Action`.
        within_budget: whether the map's budget allows it.
    """

    length: int
    order: tuple[str, ...]
    actions: tuple[Action, ...]
    within_budget: bool


@lru_cache(maxsize=1024)
def plan_task(task_map: TaskMap) -> TaskPlan:
    """Return a shortest walk from the start that achieves the goal or all goals, over (cell, set of achieved nodes).

    Args:
        task_map: the map. Its budget plays no part in the plan: `TaskPlan.within_budget` says whether it suffices.

    Raises:
        ValueError: a map of more than 20 nodes.
    """
    board = task_map.board
    if len(board.names) > _MOST_PLANNED:
        raise ValueError(f"an exact plan must have at most {_MOST_PLANNED} nodes, got {len(board.names)}")
    fields = [board.field(board.open, cell) for cell in board.places]  # symmetric: moves can be undone
    order = _shortest_order(task_map, fields)
    position, actions = board.start, list[Action]()
    for moves in (fields[number] for number in order):
        while moves[position] > 0:
            action = next(a for a in ACTIONS if moves[position + board.offsets[a]] == moves[position] - 1)
            position += board.offsets[action]
            actions.append(action)
    return TaskPlan(
        length=len(actions),
        order=tuple(board.names[number] for number in order),
        actions=tuple(actions),
        within_budget=len(actions) <= task_map.budget,
    )


def _shortest_order(task_map: TaskMap, fields: list[list[int]]) -> list[int]:
    """Return an order of node numbers that a shortest walk takes, from the moves to each node from every cell."""
    board = task_map.board
    begin = (-1, 0)  # number of the last node (-1 stands for the start), achieved set
    best = {begin: 0}
    before: dict[tuple[int, int], tuple[int, int]] = {}
    waiting = [(0, begin)]
    while waiting:
        length, state = heappop(waiting)
        last, achieved = state
        if length > best[state]:
            continue
        if achieved & board.goals == board.goals:
            order = []
            while state != begin:
                order.append(state[0])
                state = before[state]
            return order[::-1]
        cell = board.start if state == begin else board.places[last]
        for number, options in enumerate(board.options):
            if achieved >> number & 1 or (options and all(option & ~achieved for option in options)):
                continue
            following = (number, achieved | 1 << number)
            further = length + fields[number][cell]
            if further < best.get(following, further + 1):
                best[following] = further
                before[following] = state
                heappush(waiting, (further, following))
    raise AssertionError("every node of a checked task map can be achieved")
