"""What an agent observes at each step, and what it can know from its observations, as values and as text.

`AgentKnowledge` never reads a task map. It is built from the reports of an episode, and contains what the paper's
prompts contain. Every kind of sentence has a fixed form, and names are put in double quotes, which no name may contain.
The text alone therefore determines an agent's knowledge. The wording is our own. Our rules say more than the paper's
rules: how each move changes the coordinates, how to recognise the goal, to take few steps, and to return to a state
that is not active yet.

Source: measuring exploration and exploitation errors, Appendices C.3 to E.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.taskmap import MOVES, Cell

Rejection = Literal["blocked", "unparsable"]
"""Why an action did nothing: the direction is blocked, or the agent named no move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What an agent is told about a node (a task on one cell of a task map) while it stands on that cell.

    Attributes:
        name: name of the node.
        options: alternative sets of nodes that must be achieved before this one; one of the sets suffices.
        children: names of the nodes that depend on this one, sorted; a node without children is a goal.
        achieved: whether the node is achieved now.
        fresh: whether the node was achieved in this step.
    """

    name: str
    options: tuple[tuple[str, ...], ...]
    children: tuple[str, ...]
    achieved: bool
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an agent observes at one step on a task map: its cell, the task on this cell, and the open directions.

    Attributes:
        position: cell of the agent, (x, y).
        available: moves in open directions, in the order of `Action`.
        node: what the agent is told about the node (task) on this cell, or None if there is none.
        rejected: why the last action did nothing; None if it was a move, or if there was no action yet.
        goals: number of goals on the map.
    """

    position: Cell
    available: tuple[Action, ...]
    node: NodeReport | None = None
    rejected: Rejection | None = None
    goals: int = 1


class AgentKnowledge:
    """What an agent can know of a task map from the observations (reports) of one episode. Only `add` changes it.

    A node is a task on one cell of the map; some nodes are goals.

    Args:
        axes_told: whether the rules said how each move changes the coordinates (`RULES` does). If not, the first move
            along an axis reveals the meaning of the move and of its opposite. Until then, the neighbouring cells along
            this axis are neither in ``frontier`` nor in ``impassable``.

    Attributes:
        axes: move -> change of (x, y), for the moves whose meaning is known.
        confirmed: move -> change of (x, y), for the moves that the agent has made itself.
        position: cell of the agent; None before the first report.
        available: moves in directions that are open now.
        visited: cells that the agent stood on -> open directions there, in the order of the first visit.
        entered_from: visited cell -> the cell from which it was first entered; the first cell has no entry.
        frontier: cells that can be entered but were not visited, in the order in which they were first seen.
        impassable: cells next to visited cells that cannot be entered.
        nodes: name of each node found -> (its cell, `NodeReport` of the last visit), in the order of discovery.
        achieved: names of the nodes that reports showed as achieved, in that order.
        turns: (action that led to the report, report) for each report so far.
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
    def goals(self) -> tuple[str, ...]:
        """Names of the goals that the agent has found: the discovered nodes on which no other node depends."""
        return tuple(name for name, (_, node) in self.nodes.items() if not node.children)

    @property
    def pending_goals(self) -> Mapping[str, Cell]:
        """The goals that the agent has found and could achieve now: name -> cell (x, y)."""
        return {name: cell for name, cell in self.pending.items() if name in self.goals}

    @property
    def pending(self) -> Mapping[str, Cell]:
        """The nodes (tasks) that the agent has found and could achieve now: name -> cell (x, y).

        They are not achieved, but all nodes of one of their prerequisite sets are.
        """
        done = self.achieved.keys()
        return MappingProxyType(
            {
                name: cell
                for name, (cell, node) in self.nodes.items()
                if name not in done and any(done >= set(option) for option in node.options)
            }
        )

    def add(self, report: Report, action: int | None = None) -> None:
        """Add the next observation of the episode, and update all attributes.

        Args:
            report: the observation.
            action: the move that led to it; None for the first report, or for a turn without a move.
        """
        before, after = self.position, report.position
        move = None if action is None else Action(action)
        self.turns.append((move, report))
        self.position, self.available = after, report.available
        if before is not None and move is not None and report.rejected is None:
            self._learn(move, (after[0] - before[0], after[1] - before[1]))
        if after not in self.visited:
            self.visited[after] = report.available
            if before is not None:
                self.entered_from[after] = before
            self.frontier.pop(after, None)
            self._look_around(after)
        if report.node is not None:
            self.nodes[report.node.name] = (after, report.node)
            if report.node.achieved:
                self.achieved.setdefault(report.node.name)

    def known(self, cell: Cell) -> bool:
        """Return whether the agent knows that a cell (x, y) can be entered: it was visited, or is on the frontier."""
        return cell in self.visited or cell in self.frontier

    def recent(self, count: int) -> "AgentKnowledge":
        """Return the knowledge of an agent that remembers only its last ``count`` observations (at least one)."""
        short = AgentKnowledge(axes_told=len(self.axes) == len(MOVES))
        for index, (action, report) in enumerate(self.turns[-count:]):
            short.add(report, action if index else None)
        return short

    def _learn(self, action: Action, change: Cell) -> None:
        self.confirmed.setdefault(action, change)
        if action not in self.axes:
            self.axes[action] = change
            self.axes[action.opposite] = (-change[0], -change[1])
            for cell in self.visited:
                self._look_around(cell)

    def _look_around(self, cell: Cell) -> None:
        for action, (right, up) in self.axes.items():
            near = (cell[0] + right, cell[1] + up)
            if action not in self.visited[cell]:
                self.impassable.setdefault(near)
            elif near not in self.visited:
                self.frontier.setdefault(near)


RULES = (
    "You walk through a map of which you see only the cell that you stand on and the directions that are open from it. "
    "Positions are written [x, y]: right adds 1 to x, up adds 1 to y. "
    "On some cells there are states. A state is activated by standing on its cell once its prerequisites are active; "
    "where they are not active yet, come back later. What a state needs and what it leads to is told on its own cell. "
    "Activate the goal, the one state that leads to nothing further, in as few steps as you can."
)
"""The rules of the world, the first line of every log. They do not mention the map's size, any cell or the budget."""

_GOAL = "Activate the goal, the one state that leads to nothing further, in as few steps as you can."


def rules_of(goals: int) -> str:
    """Return the rules of a task map as text for the agent.

    Args:
        goals: number of goals on the map; the agent has to achieve all of them.
    """
    several = f"Activate all {goals} goals, the states that lead to nothing further, in as few steps as you can."
    return RULES if goals == 1 else RULES.replace(_GOAL, several)


_SEEN, _DONE = "OBSERVATION: ", "ACTION: "
_NO_MOVE, _NOTHING = "none", "There is nothing here."

_STATUS = {
    (True, True): "You have just activated it",
    (True, False): "It is active",
    (False, False): "It is not active yet",
}
_REJECTED: dict[Rejection | None, str] = {
    None: "",
    "blocked": "No way leads there, so you stayed. ",
    "unparsable": "You named no direction, so you stayed. ",
}


def report_text(report: Report) -> str:
    """Write an observation on a task map as one line of text, as the agent reads it."""
    sentence = _NOTHING
    if (node := report.node) is not None:
        status = _STATUS[node.achieved, node.fresh]
        sentence = f"This is the state {_quoted([node.name])}. {_needs(node)}. {_leads(node, report)}. {status}."
    several = f" There are {report.goals} goals: activate them all." if report.goals > 1 else ""
    x, y = report.position
    return (
        f"{_REJECTED[report.rejected]}You are at [{x}, {y}]. {sentence} "
        f"You can go {', '.join(a.name.lower() for a in report.available) or 'nowhere'}.{several}"
    )


def write_log(turns: Sequence[tuple[Action | None, Report]]) -> str:
    """Write an episode on a task map as text: the rules, then observations and actions in turn, one per line.

    Args:
        turns: for each observation, the action that led to it (None for no move) and the observation, as in
            `AgentKnowledge.turns`.
    """
    lines = [rules_of(turns[0][1].goals if turns else 1)]
    for index, (action, report) in enumerate(turns):
        if index:
            lines.append(_DONE + (_NO_MOVE if action is None else action.name.lower()))
        lines.append(_SEEN + report_text(report))
    return "\n".join(lines) + "\n"


def memory_text(knowledge: AgentKnowledge) -> str:
    """Write what an agent knows of a task map as text, which can be shown next to its current observation.

    Raises:
        ValueError: if there is no observation yet.
    """
    if knowledge.position is None:
        raise ValueError("a summary of an agent's knowledge needs at least one report, got none: call add first")
    last = knowledge.turns[-1][1]
    title = "Goal" if last.goals == 1 else f"Goals ({last.goals} in all)"
    axes = [f"{action.name.lower()} = {_change(change)}" for action, change in knowledge.confirmed.items()]
    lines = [
        f"Moves seen so far: {', '.join(axes) or 'none yet'}.",
        f"{title}: {_quoted(knowledge.goals) or 'not found yet'}.",
        f"Visited: {_cells(knowledge.visited)}.",
        f"Open and not visited: {_cells(knowledge.frontier)}.",
        f"Impassable: {_cells(knowledge.impassable)}.",
    ]
    for name, (cell, node) in knowledge.nodes.items():
        state = "active" if name in knowledge.achieved else "not active yet"
        lines.append(f"State {_quoted([name])} at {_cells([cell])}: {state}. {_needs(node)}. {_leads(node, last)}.")
    lines.append(f"Active: {_quoted(knowledge.achieved) or 'none'}.")
    lines.append(f"Can be activated now: {_quoted(knowledge.pending) or 'none'}.")
    return "\n".join(lines)


def _needs(node: NodeReport) -> str:
    return f"It needs {' or '.join(' and '.join(_quoted([n]) for n in option) for option in node.options) or 'nothing'}"


def _leads(node: NodeReport, report: Report) -> str:
    nothing = f"nothing further: it is {'the' if report.goals == 1 else 'a'} goal"
    return f"It leads to {_quoted(node.children) or nothing}"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _cells(cells: Iterable[Cell]) -> str:
    return " ".join(f"[{x}, {y}]" for x, y in cells) or "none"


def _change(change: Cell) -> str:
    axis, amount = ("x", change[0]) if change[0] else ("y", change[1])
    return f"{axis} {'+' if amount > 0 else '-'} {abs(amount)}"
