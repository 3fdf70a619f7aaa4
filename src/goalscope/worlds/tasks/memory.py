"""What an agent can know: the sum of its reports and its own moves, and nothing else.

`Memory` never sees a task map. It is fed with the reports of an episode, from the world or read back from its text log,
and holds what the harness of the paper writes into a prompt.

Source: measuring exploration and exploitation errors, Appendix D.
"""

from collections.abc import Mapping
from types import MappingProxyType

from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.coordinates import MOVES, Cell
from goalscope.worlds.tasks.knowledge import NodeReport, Report

_OPPOSITE = {Action.UP: Action.DOWN, Action.DOWN: Action.UP, Action.LEFT: Action.RIGHT, Action.RIGHT: Action.LEFT}


class Memory:
    """What was learned from the reports of one episode so far. Changed by `add` only.

    Args:
        axes_told: whether the rules said what a move does to the coordinates (`RULES` do). Without it the meaning of a
            move, and of its opposite, is learned from the first one made, and cells beside an axis that was never
            walked along are in no set yet.

    Attributes:
        axes: move -> change of (x, y), as far as it is known.
        confirmed: the moves whose meaning was seen in the agent's own walk.
        position: cell of the agent; None before the first report.
        available: moves that lead somewhere now.
        visited: cells stood on, in the order of the first visit.
        entered_from: visited cell -> the cell from which it was first entered; the first cell has none.
        frontier: cells that can be entered and were not visited, in the order in which they were first seen.
        impassable: cells beside visited ones that cannot be entered.
        nodes: name -> (cell, `NodeReport` of the last visit) in the order of discovery.
        achieved: names of the achieved nodes, in order.
        turns: (action that led to it, report) of each report so far.
    """

    def __init__(self, *, axes_told: bool = True) -> None:
        self.axes: dict[Action, Cell] = dict(MOVES) if axes_told else {}
        self.confirmed: dict[Action, Cell] = {}
        self.position: Cell | None = None
        self.available: tuple[Action, ...] = ()
        self.visited: dict[Cell, tuple[Action, ...]] = {}
        self.entered_from: dict[Cell, Cell] = {}
        self.frontier: dict[Cell, None] = {}
        self.impassable: dict[Cell, None] = {}
        self.nodes: dict[str, tuple[Cell, NodeReport]] = {}
        self.achieved: dict[str, None] = {}
        self.turns: list[tuple[Action | None, Report]] = []

    @property
    def goal(self) -> str | None:
        """Name of the goal, once it was stood on: the node that leads to nothing."""
        return next((name for name, (_, node) in self.nodes.items() if not node.children), None)

    @property
    def pending(self) -> Mapping[str, Cell]:
        """Name -> cell of the discovered nodes that are not achieved and whose prerequisites are."""
        return MappingProxyType(
            {
                name: cell
                for name, (cell, node) in self.nodes.items()
                if name not in self.achieved and any(self.achieved.keys() >= set(option) for option in node.options)
            }
        )

    def add(self, report: Report, action: int | None = None) -> None:
        """Take in the next report.

        Args:
            report: what the world told.
            action: the move that came before it, None for the first report or a turn that named no move.
        """
        before = self.position
        taken = None if action is None else Action(action)
        self.turns.append((taken, report))
        self.position, self.available = report.position, report.available
        if before is not None and taken is not None and report.rejected is None:
            self._learn(taken, before, report.position)
        if report.position not in self.visited:
            self.visited[report.position] = report.available
            if before is not None:
                self.entered_from[report.position] = before
            self.frontier.pop(report.position, None)
            self._place(report.position)
        if report.node is not None:
            self.nodes[report.node.name] = (report.position, report.node)
            if report.node.achieved:
                self.achieved.setdefault(report.node.name)

    def known(self, cell: Cell) -> bool:
        """Return whether a cell is known to be passable: visited or on the frontier."""
        return cell in self.visited or cell in self.frontier

    def recent(self, count: int) -> "Memory":
        """Return the memory of an agent that has only its last reports.

        Args:
            count: reports that it remembers, at least 1.
        """
        short = Memory(axes_told=len(self.axes) == len(MOVES))
        for index, (action, report) in enumerate(self.turns[-count:]):
            short.add(report, action if index else None)
        return short

    def _learn(self, action: Action, before: Cell, after: Cell) -> None:
        change = (after[0] - before[0], after[1] - before[1])
        self.confirmed.setdefault(action, change)
        if action not in self.axes:
            self.axes[action] = change
            self.axes[_OPPOSITE[action]] = (-change[0], -change[1])
            for cell in self.visited:
                self._place(cell)

    def _place(self, cell: Cell) -> None:
        for action, (right, up) in self.axes.items():
            near = (cell[0] + right, cell[1] + up)
            if action not in self.visited[cell]:
                self.impassable.setdefault(near)
            elif near not in self.visited:
                self.frontier.setdefault(near)
