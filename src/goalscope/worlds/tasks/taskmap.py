"""Task maps: cells to walk on, a graph of tasks on some of the cells, and shortest plans that achieve the tasks.

Task maps use ``(x, y)`` with y upwards, as their paper does: up is y + 1, right is x + 1. Grids use ``(row, col)`` with
row 0 at the top. `Frame` converts between the two; the names and meanings of the four moves are the same in both.

A node has alternative prerequisite sets (an OR of ANDs). This covers the paper's AND nodes (one set of all parents)
and OR nodes (one set per parent).

A shortest walk visits a sequence of nodes, achieves each on arrival, and takes shortest paths in between. It may also
achieve other nodes in passing, which never hurts, since achieved nodes stay achieved. A search over (last node, set of
achieved nodes) is therefore exact.

Source: measuring exploration and exploitation errors, Section 3 and Appendix B.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_number, is_whole
from goalscope._ground.ids import canonical_json, content_id
from goalscope.worlds.grid import ACTIONS, Action, Grid, Position

Cell = tuple[int, int]
"""A cell of a task map: (x, y), y upwards."""

MOVES = MappingProxyType({action: (action.delta[1], -action.delta[0]) for action in Action})
"""Change of (x, y) by each move."""


_MOST_CELLS = 250_000
_MOST_AREA = 4_000_000  # cells of the rectangle around a map, each stored as one bit
_MOST_NODES = 1000
_MOST_PLANNED = 20  # nodes of a map with an exact plan; each node doubles the number of sets of achieved nodes
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNode:
    """One task of a task map, which an agent achieves by standing on its cell once its prerequisites are achieved.

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
    """The smallest rectangle around a set of cells, which converts between (x, y) and (row, col).

    Attributes:
        left: x of the first column.
        top: y of the first row.
        width: number of columns W.
        height: number of rows H.
    """

    left: int
    top: int
    width: int
    height: int

    @classmethod
    def around(cls, cells: Iterable[Cell]) -> "Frame":
        """Return the smallest rectangle that contains all given cells (x, y); there must be at least one."""
        xs, ys = zip(*cells, strict=True)
        return cls(left=min(xs), top=max(ys), width=max(xs) - min(xs) + 1, height=max(ys) - min(ys) + 1)

    def row_col(self, cell: Cell) -> Position:
        """Return the row and column, counted from the top left of the rectangle, of a cell (x, y)."""
        return self.top - cell[1], cell[0] - self.left

    def cell(self, position: Position) -> Cell:
        """Return the cell (x, y) at a row and column, counted from the top left of the rectangle."""
        return position[1] + self.left, self.top - position[0]


def check_cell(value: Any, name: str) -> Cell:
    """Check that a value is a cell (x, y), two whole numbers, and return it as plain integers.

    Args:
        value: a list, tuple or array of two whole numbers.
        name: what the error calls the cell.

    Raises:
        ValueError: if the value is not a cell.
    """
    pair = tuple(value) if isinstance(value, list | tuple | np.ndarray) else ()
    if len(pair) != 2 or not all(is_whole(item) and abs(int(item)) < 10**9 for item in pair):
        raise ValueError(f"{name} must be [x, y], two whole numbers below 10**9, got {value!r:.60}")
    return int(pair[0]), int(pair[1])


def read_action(value: Action | str | None) -> Action | None:
    """Return the move that a recorded action names, or None if the action names no move.

    Args:
        value: a move, the name of a move in any case ("up", "DOWN"), other text, or None.

    Raises:
        ValueError: if the value is neither a move nor text nor None.
    """
    if value is None or isinstance(value, Action):
        return value
    if not isinstance(value, str):
        names = ", ".join(action.name.lower() for action in Action)
        raise ValueError(f"an action must be one of {names}, other text or None (a turn without a move), got {value!r}")
    return Action.__members__.get(value.strip().upper())


class Board:
    """A task map in numbers, for fast computation: cells and nodes (tasks) are indices, and sets of them are integers.

    Every cell of the rectangle around a map is one bit, so a set of cells is one Python integer. Keeping the set of an
    earlier step costs nothing, since integers are immutable. Four shifts grow a set by one move in all directions. Each
    row has one padding column, so that no shift carries a cell into another row. Tests check that results equal those
    of plain sets of cells. A board never changes, so all who use a map share one board.

    Attributes:
        width: number of bits per row, including one padding bit.
        size: total number of bits, including two padding rows.
        offsets: ``[4]`` change of a cell's index by each move, in the order of `Action`.
        open: ``[size]`` 1 for cells that can be walked on.
        cells: the bits of all cells that can be walked on.
        start: index of the start cell.
        names: names of the nodes, in order.
        node_at: cell index -> node number.
        places: cell index of each node.
        options: for each node, its alternative prerequisite sets, each as bits of node numbers.
        goals: the goals as bits of node numbers; 0 on a board without nodes.
    """

    def __init__(
        self,
        frame: Frame,
        cells: Iterable[Cell],
        start: Cell,
        nodes: Mapping[str, TaskNode] | None = None,
        goals: Iterable[str] = (),
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
        self.goals = sum(1 << number[goal] for goal in goals)
        self.node_at = {cell_index: index for index, cell_index in enumerate(self.places)}

    def index(self, cell: Cell) -> int:
        """Return the index (bit number) of a cell (x, y) in the rectangle around the map."""
        return (cell[1] - self._bottom + 1) * self.width + cell[0] - self._left

    def cell(self, index: int) -> Cell:
        """Return the cell (x, y) with an index (bit number)."""
        row, column = divmod(index, self.width)
        return column + self._left, row + self._bottom - 1

    def listed(self, board: int) -> tuple[Cell, ...]:
        """Return the cells (x, y) of a set, sorted by y, then x. The set is an integer with one bit per cell."""
        return tuple(self.cell(index) for index in indices(board))

    def met(self, number: int, achieved: int) -> bool:
        """Return whether the prerequisites of a node (a task) are achieved.

        Args:
            number: number of the node.
            achieved: the nodes achieved so far, as an integer with one bit per node.
        """
        options = self.options[number]
        return not options or any(option & achieved == option for option in options)

    def grow(self, board: int) -> int:
        """Return the cells next to the cells of a set; both sets are integers with one bit per cell.

        The result may include cells of the set itself, and cells that cannot be walked on.
        """
        return board << 1 | board >> 1 | board << self.width | board >> self.width

    def field(self, passable: bytes | bytearray, source: int) -> list[int]:
        """Return the number of moves from one cell to every other cell, -1 if there is no path.

        Args:
            passable: one byte per cell index, not 0 for cells that can be entered.
            source: index of the first cell.

        Returns:
            One number per cell index.
        """
        field = [-1] * self.size
        field[source] = 0
        wave, steps = [source], 0
        while wave:
            steps += 1
            following = []
            for cell in wave:
                for offset in self.offsets:
                    neighbour = cell + offset
                    if passable[neighbour] and field[neighbour] < 0:
                        field[neighbour] = steps
                        following.append(neighbour)
            wave = following
        return field


def bits(flags: bytearray) -> int:
    """Return a set of cells as an integer with one bit per cell, given one flag (0 or 1) per cell; see `flags`."""
    return int(flags.translate(bytes.maketrans(b"\x00\x01", b"01"))[::-1], 2)


def flags(board: int, size: int) -> bytes:
    """Return one flag (0 or 1) for each of ``size`` cells, given a set of cells as an integer with one bit per cell.

    This is the inverse of `bits`.
    """
    return format(board, f"0{size}b").encode()[::-1].translate(bytes.maketrans(b"01", b"\x00\x01"))


def indices(board: int) -> Iterator[int]:
    """Yield the indices of the cells in a set, in increasing order. The set is an integer with one bit per cell."""
    if board.bit_count() * 64 < board.bit_length():
        while board:
            lowest = board & -board
            yield lowest.bit_length() - 1
            board ^= lowest
        return
    text = format(board, "b")[::-1]
    index = text.find("1")
    while index >= 0:
        yield index
        index = text.find("1", index + 1)


@dataclass(frozen=True, kw_only=True)
class TaskMap:
    """A map of cells, some of which hold tasks that an agent has to find and to achieve in an order that their graph
    allows.

    A node is a task on one cell. An agent achieves it by standing on the cell while all nodes of one of its
    prerequisite sets are achieved. Maps are checked when they are made.

    Attributes:
        cells: the traversable cells M, (x, y) with y upwards; in any order, stored sorted by y, then x.
        start: cell where an episode begins; no node may lie on it.
        goal: name of the only node that no other node depends on; if there are several such nodes, a list of all their
            names. All goals must be achieved.
        nodes: name -> `TaskNode`, or a mapping with its ``cell`` and ``options`` (or ``type`` "and"/"or" and
            ``parents``); stored sorted by name.
        alpha: the number of actions per episode (the budget) is ``floor(alpha * |M|)``.

    Raises:
        ValueError: if cells are not connected; a node lies outside the map, on the start or on another node; a
            prerequisite is unknown; the graph has a cycle or a sink that is not a goal; or the budget is below one
            action. The message names the value.
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
            raise ValueError(
                f"start must be one of the map's cells, got {list(self.start)}, which is not in cells: add it there"
            )
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
                f"got {len(unreachable)} cells without a path to it, such as {list(min(unreachable))}: connect them"
            )
        alpha = check_number("alpha", self.alpha, 0, 1e6, "number above 0")
        object.__setattr__(self, "alpha", int(alpha) if alpha.is_integer() else alpha)
        if self.budget < 1:
            budget = f"floor({self.alpha} * {len(cells)})"
            raise ValueError(f"alpha must be a number above 0 that allows at least one action, got {budget}")

    @property
    def goals(self) -> tuple[str, ...]:
        """Names of the goals, sorted: all nodes that no other node depends on."""
        return (self.goal,) if isinstance(self.goal, str) else tuple(self.goal)

    @cached_property
    def frame(self) -> Frame:
        """The smallest rectangle around all cells, which converts between (x, y) and (row, col)."""
        return Frame.around(self.cells)

    @cached_property
    def budget(self) -> int:
        """Maximum number of actions per episode, ``floor(alpha * |M|)`` for |M| cells; the agent does not learn this
        number.

        It is computed exactly from the decimal digits of alpha.

        Source: measuring exploration and exploitation errors, Appendix C.1, Eq. (7).
        """
        return math.floor(Fraction(str(self.alpha)) * len(self.cells))

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """Name of each node -> sorted names of the nodes that have it in one of their prerequisite sets."""
        by_parent: dict[str, list[str]] = {name: [] for name in self.nodes}
        for name, node in self.nodes.items():
            for parent in node.parents:
                by_parent[parent].append(name)
        return MappingProxyType({name: tuple(names) for name, names in by_parent.items()})

    @cached_property
    def id(self) -> str:
        """Content id of the map: a hash of its cells and tasks, so that equal maps have equal ids."""
        return content_id("taskmap", self.to_plain())

    @cached_property
    def walls(self) -> npt.NDArray[np.bool_]:
        """``[H, W]`` bool, rows by columns of the rectangle `frame`, True for cells that cannot be entered;
        read-only.
        """
        walls = np.ones((self.frame.height, self.frame.width), dtype=bool)
        rows, cols = zip(*(self.frame.row_col(cell) for cell in self.cells), strict=True)
        walls[list(rows), list(cols)] = False
        walls.flags.writeable = False
        return walls

    @cached_property
    def board(self) -> Board:
        """The map as numbers and bits, for fast computation; made once and shared by all episodes on this map."""
        return Board(self.frame, self.cells, self.start, self.nodes, self.goals)

    def __hash__(self) -> int:
        return hash(self.id)

    def grid(self) -> Grid:
        """Return the map as a `Grid` without tasks, with the agent at the start and the goal at the cell of the
        first goal.
        """
        row_col = self.frame.row_col
        return Grid(walls=self.walls, start=row_col(self.start), goal=row_col(self.nodes[self.goals[0]].cell))

    def available(self, cell: Cell) -> tuple[Action, ...]:
        """Return the moves that lead from a cell (x, y) to another cell of the map, in the order of `Action`."""
        index, board = self.board.index(cell), self.board
        return tuple(action for action in Action if board.open[index + board.offsets[action]])

    def renamed(self, names: Mapping[str, str]) -> "TaskMap":
        """Return a copy of the map whose nodes have other names.

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
        """Return the map as nested mappings, lists, texts and numbers, which JSON can hold."""
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
        """Return the map as canonical JSON text (sorted keys, no blanks), so that equal maps have equal texts."""
        return canonical_json(self.to_plain())

    @classmethod
    def from_plain(cls, value: Any) -> "TaskMap":
        """Make a map from the values that `to_plain` returns, for example read from JSON.

        Raises:
            ValueError: if keys are missing or unknown, or `TaskMap` refuses a value.
        """
        *needed, optional = ("cells", "start", "goal", "nodes", "alpha")
        must = f"a map must be an object with the keys {', '.join(needed)} and optionally {optional}"
        if not isinstance(value, Mapping):
            raise ValueError(f"{must}, got {type(value).__name__}")
        lacking = [key for key in needed if key not in value]
        unknown = [str(key) for key in value if key not in (*needed, optional)]
        if lacking or unknown:
            description = f"one without {', '.join(lacking)}" if lacking else f"the unknown key {unknown[0]!r:.60}"
            raise ValueError(f"{must}, got {description}")
        return cls(**value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """A shortest walk from the start of a task map that achieves all its goals.

    Attributes:
        length: number of moves.
        order: names of the nodes (tasks) in the order in which the walk heads for them; other nodes may be achieved in
            passing.
        actions: the moves; ties are broken in the order of `Action`.
        within_budget: whether the map allows this many actions.
    """

    length: int
    order: tuple[str, ...]
    actions: tuple[Action, ...]
    within_budget: bool


@lru_cache(maxsize=1024)
def plan_task(task_map: TaskMap) -> TaskPlan:
    """Find a shortest walk from the start of a task map that achieves all its goals.

    The search runs over pairs of the last node and the set of achieved nodes, and is exact; results are cached.

    Args:
        task_map: the map. The plan ignores how many actions it allows; `TaskPlan.within_budget` says whether they
            suffice.

    Raises:
        ValueError: if the map has more than 20 nodes.
    """
    board = task_map.board
    if len(board.names) > _MOST_PLANNED:
        raise ValueError(
            f"exact plans need a map of at most {_MOST_PLANNED} nodes, got {len(board.names)}: use a smaller map"
        )
    fields = [board.field(board.open, cell) for cell in board.places]  # distances are symmetric: moves can be undone
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
            raise ValueError(f"cells must be different, got {list(cell)} twice: delete one of the two")
        cells.add(cell)
    return cells


def _nodes(value: Any, cells: set[Cell], start: Cell) -> dict[str, TaskNode]:
    if not isinstance(value, Mapping):
        raise ValueError(f"nodes must be an object that maps each name to a node, got {type(value).__name__}")
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
            raise ValueError(f"{label} must lie on one of the map's cells, got {list(cell)}, which is not in cells")
        if cell == start:
            raise ValueError(f"{label} must not lie on the start {list(start)}: move the node or the start")
        if cell in occupied:
            raise ValueError(
                f"every node must have a cell to itself, got {occupied[cell]!r} and {name!r} both at {list(cell)}"
            )
        occupied[cell] = name
        nodes[name] = TaskNode(cell=cell, options=_options(label, node))
    return nodes


def _options(label: str, node: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Return the prerequisite sets, given either by ``options`` or by ``type`` and ``parents``."""
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
        raise ValueError(
            f"an option of {label} must name at least one node, got an empty list: leave options empty for a node "
            "without prerequisites"
        )
    return options


def _names(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{what} must be a list of names, got {value!r:.60}")
    if len(set(value)) < len(value):
        raise ValueError(f"{what} must name each node once, got {list(value)!r:.80}")
    return tuple(value)


def _check_graph(nodes: Mapping[str, TaskNode], goal: Any) -> str | tuple[str, ...]:
    """Return the goal, or several goals sorted; refuse invalid names, cycles, and goals that are not the sinks.

    A graph that passes these checks leads from every node to a goal, and every node can be achieved.
    """
    if not 1 <= len(nodes) <= _MOST_NODES:
        raise ValueError(f"a map must have 1 to {_MOST_NODES} nodes, got {len(nodes)}")
    for name in nodes:
        _check_name(name)
    goals = [goal] if isinstance(goal, str) else goal
    if not isinstance(goals, list | tuple) or not goals or any(one not in nodes for one in map(str, goals)):
        raise ValueError(f"goal must be the name of a node of the map, or a list of such names, got {goal!r:.60}")
    parents = {name: node.parents for name, node in nodes.items()}
    for name in nodes:
        for parent in sorted(parents[name] - nodes.keys()):
            raise ValueError(f"the prerequisites of node {name!r} must be nodes of the map, got {parent!r:.60}")
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        circle = " -> ".join(repr(name) for name in error.args[1])
        raise ValueError(f"the prerequisites must not form a cycle, got {circle}: remove one of them") from None
    parents_used = set().union(*parents.values())
    sinks = [name for name in nodes if name not in parents_used]
    if sinks != sorted(goals):
        listed = ", ".join(map(repr, sinks[:5]))
        raise ValueError(
            f"the goals must be exactly the nodes that no other node depends on, got goal {goal!r} but nodes {listed}: "
            "list all of these nodes as goal, or let another node depend on them"
        )
    return sinks[0] if len(sinks) == 1 else tuple(sinks)


def _check_name(name: Any) -> None:
    # Names appear in double quotes in the texts that agents read, and must be recoverable from there.
    good = isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable() and name == name.strip()
    if not good or '"' in name:
        raise ValueError(
            f"a node's name must have 1 to {_LONGEST_NAME} printable characters, without double quotes and without "
            f"blanks at its ends, got {name!r:.80}"
        )


def _shortest_order(task_map: TaskMap, fields: list[list[int]]) -> list[int]:
    """Return the order of node numbers in a shortest walk, given the number of moves to each node from every cell."""
    board = task_map.board
    begin = (-1, 0)  # (number of the last node or -1 at the start, bits of the achieved nodes)
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
        for number in range(len(board.names)):
            if achieved >> number & 1 or not board.met(number, achieved):
                continue
            following = (number, achieved | 1 << number)
            further = length + fields[number][cell]
            if further < best.get(following, further + 1):
                best[following] = further
                before[following] = state
                heappush(waiting, (further, following))
    raise AssertionError("every node of a checked task map can be achieved")
