"""What happens in a task world: where the agent stands, what it has observed, which nodes are achieved.

Source: measuring exploration and exploitation errors, Section 3 and Appendix B, Eq. (2) to (5).
"""

from dataclasses import dataclass
from typing import Literal

from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.board import Board
from goalscope.worlds.tasks.coordinates import Cell
from goalscope.worlds.tasks.taskmap import TaskMap

Status = Literal["undiscovered", "discovered", "achieved"]
Ending = Literal["goal", "budget"]
Rejection = Literal["blocked", "unparsable"]
"""Why an action did nothing: no way in that direction, or no move was named."""

INVALID, MOVED, NEW_CELL, ACHIEVED = -1, 0, 1, 2
"""What a move did: nothing at all, or a sum of entering an unobserved cell and achieving a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What a node's own cell tells about it.

    Attributes:
        name: its name.
        options: its alternative prerequisite sets.
        children: names of the nodes that need it, sorted; a node without any is the goal.
        achieved: whether it is achieved now.
        fresh: whether it was achieved on this very step.
    """

    name: str
    options: tuple[tuple[str, ...], ...]
    children: tuple[str, ...]
    achieved: bool
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that the world tells an agent at one step: nothing about other cells but where it can go next.

    Attributes:
        position: cell of the agent, (x, y).
        available: moves that lead somewhere, in the order of `Action`.
        node: what stands on the cell, None for nothing.
        rejected: why the last action did nothing, None where it was a move or there was none.
    """

    position: Cell
    available: tuple[Action, ...]
    node: NodeReport | None = None
    rejected: Rejection | None = None


class Knowledge:
    """The state of one episode, kept up to date move by move.

    Sets of cells are bits of a `Board`, which lists them; `status` and `pending_names` tell of nodes in words. The
    agent sees none of this, only each step's `report`.

    Attributes:
        map: the task map.
        position: index of the agent's cell.
        observed, unobserved: sets O and U.
        pending: cells of the discovered nodes whose prerequisites are met and that are not achieved, P.
        goal_pending: whether the goal is among them.
        steps: actions taken, those that did nothing included.
    """

    __slots__ = (
        "_achieved",
        "_discovered",
        "_last",
        "_last_node",
        "_seen",
        "board",
        "goal_pending",
        "map",
        "observed",
        "pending",
        "position",
        "steps",
        "unobserved",
    )

    def __init__(self, task_map: TaskMap) -> None:
        self.map = task_map
        self.board: Board = task_map.board
        self._seen = bytearray(self.board.size)  # 0 unknown, 1 unobserved, 2 observed
        self.observed = self.unobserved = self.pending = 0
        self.goal_pending = False
        self._achieved = self._discovered = 0  # bits of node numbers
        self._last: Rejection | None = None
        self._last_node = -1  # node achieved by the last action
        self.steps = 0
        self.position = self.board.start
        self._observe(self.position)

    @property
    def ending(self) -> Ending | None:
        """How the episode ended, None while it goes on."""
        if self._achieved >> self.board.goal & 1:
            return "goal"
        return "budget" if self.steps >= self.map.budget else None

    @property
    def achieved_names(self) -> tuple[str, ...]:
        """Names of the achieved nodes, sorted."""
        return self._named(self._achieved)

    @property
    def discovered_names(self) -> tuple[str, ...]:
        """Names of the nodes whose cell was stood on, the achieved ones included, sorted."""
        return self._named(self._discovered)

    @property
    def pending_names(self) -> tuple[str, ...]:
        """Names of the pending nodes, sorted."""
        return self._named(self._pending_nodes())

    @property
    def rejected(self) -> Rejection | None:
        """Why the last action did nothing, None where it was a move or there was none."""
        return self._last

    @property
    def last_achieved(self) -> str | None:
        """Name of the node that the last action achieved."""
        return None if self._last_node < 0 else self.board.names[self._last_node]

    def status(self, name: str) -> Status:
        """Return the status of a node."""
        number = self.board.names.index(name)
        if self._achieved >> number & 1:
            return "achieved"
        return "discovered" if self._discovered >> number & 1 else "undiscovered"

    def move(self, action: int | None) -> int:
        """Take one action.

        Args:
            action: a move, None for a turn that named none.

        Returns:
            `INVALID`, `MOVED`, or a sum of `NEW_CELL` and `ACHIEVED`.

        Raises:
            ValueError: the episode is over.
        """
        if self.steps >= self.map.budget or self._achieved >> self.board.goal & 1:
            how = "achieved the goal" if self.ending == "goal" else "used up the budget"
            raise ValueError(
                f"no action may follow the end of an episode, got a further one after action {self.steps} {how}"
            )
        self.steps += 1
        self._last_node = -1
        if action is None:
            self._last = "unparsable"
            return INVALID
        target = self.position + self.board.offsets[action]
        if not self.board.open[target]:
            self._last = "blocked"
            return INVALID
        self._last = None
        self.position = target
        if self._seen[target] == 1:
            return NEW_CELL + self._observe(target)
        if self.pending >> target & 1:
            self._achieve(self.board.node_at[target])
            return ACHIEVED
        return MOVED

    def report(self) -> Report:
        """Return what the world tells the agent now."""
        cell = self.board.cell(self.position)
        number = self.board.node_at.get(self.position, -1)
        node = None
        if number >= 0:
            name = self.board.names[number]
            node = NodeReport(
                name=name,
                options=self.map.nodes[name].options,
                children=self.map.children[name],
                achieved=bool(self._achieved >> number & 1),
                fresh=number == self._last_node,
            )
        return Report(position=cell, available=self.map.available(cell), node=node, rejected=self._last)

    def _observe(self, place: int) -> int:
        board, seen = self.board, self._seen
        if seen[place] == 1:
            self.unobserved ^= 1 << place
        seen[place] = 2
        self.observed |= 1 << place
        for offset in board.offsets:
            near = place + offset
            if board.open[near] and not seen[near]:
                seen[near] = 1
                self.unobserved |= 1 << near
        number = board.node_at.get(place, -1)
        if number < 0:
            return 0
        self._discovered |= 1 << number
        if not self._met(number):
            return 0
        self._achieve(number)
        return ACHIEVED

    def _met(self, number: int) -> bool:
        options = self.board.options[number]
        return not options or any(option & self._achieved == option for option in options)

    def _achieve(self, number: int) -> None:
        self._achieved |= 1 << number
        self._last_node = number
        waiting = self._pending_nodes()
        self.goal_pending = bool(waiting >> self.board.goal & 1)
        self.pending = sum(1 << place for index, place in enumerate(self.board.places) if waiting >> index & 1)

    def _pending_nodes(self) -> int:
        open_nodes = self._discovered & ~self._achieved
        return sum(1 << n for n in range(len(self.board.names)) if open_nodes >> n & 1 and self._met(n))

    def _named(self, nodes: int) -> tuple[str, ...]:
        return tuple(name for number, name in enumerate(self.board.names) if nodes >> number & 1)
