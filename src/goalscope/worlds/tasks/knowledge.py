"""An agent's observation at each step and the knowledge that follows from it, as values and in words.

`AgentKnowledge` never reads a task map. It is built from the reports of an episode, and holds the content of the
prompts in the paper. Every sentence has one form, and names stand in double quotes, which no name may contain; so the
text alone determines an agent's knowledge. The wording is our own, the rules tell some more than the paper's: what a
move does to the coordinates, to take few steps, how to know the goal, to come back to a state that is not active yet.

Source: measuring exploration and exploitation errors, Appendices C.3 to E.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.coordinates import MOVES, Cell

Rejection = Literal["blocked", "unparsable"]
"""Why an action did nothing: no way in that direction, or no move was named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """The report on a node, given on its own cell.

    Attributes:
        name: its name.
        options: its alternative prerequisite sets.
        children: names of the nodes that need it, sorted; a node without any is a goal.
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
    """The observation of one step: the agent's own cell and the open directions.

    Attributes:
        position: cell of the agent, (x, y).
        available: moves that lead somewhere, in the order of `Action`.
        node: what stands on the cell, None for nothing.
        rejected: why the last action did nothing, None where it was a move or there was none.
        goals: the number of goals of the map.
    """

    position: Cell
    available: tuple[Action, ...]
    node: NodeReport | None = None
    rejected: Rejection | None = None
    goals: int = 1


class AgentKnowledge:
    """Knowledge from the reports of one episode so far. Changed by `add` only.

    Args:
        axes_told: whether the rules said what a move does to the coordinates (`RULES` do). Without it the meaning of a
            move, and of its opposite, is learned from the first one made, and cells beside an axis that was never
            walked along are in no set yet.

    Attributes:
        axes: move -> change of (x, y), as far as it is known.
        confirmed: the moves whose meaning was seen in the agent's own walk.
        position: cell of the agent; None before the first report.
        available: moves that lead somewhere now.
        visited: cells stood on, in the order of the first visit, with the moves that lead somewhere from each.
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
    def goals(self) -> tuple[str, ...]:
        """Names of the goals that were stood on: the nodes that lead to nothing."""
        return tuple(name for name, (_, node) in self.nodes.items() if not node.children)

    @property
    def pending_goals(self) -> Mapping[str, Cell]:
        """Name -> cell of the pending nodes that are goals."""
        return {name: cell for name, cell in self.pending.items() if name in self.goals}

    @property
    def pending(self) -> Mapping[str, Cell]:
        """Name -> cell of the discovered nodes that are not achieved and whose prerequisites are."""
        done = self.achieved.keys()
        return MappingProxyType(
            {
                name: cell
                for name, (cell, node) in self.nodes.items()
                if name not in done and any(done >= set(option) for option in node.options)
            }
        )

    def add(self, report: Report, action: int | None = None) -> None:
        """Take in the next report.

        Args:
            report: the report.
            action: the move that came before it, None for the first report or a turn that named no move.
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
        """Return whether a cell is known to be passable: visited or on the frontier."""
        return cell in self.visited or cell in self.frontier

    def recent(self, count: int) -> "AgentKnowledge":
        """Return the knowledge of an agent that remembers only its last reports, at least one."""
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
"""The rules of the world, first line of every log: no size, no place, no budget."""

_GOAL = "Activate the goal, the one state that leads to nothing further, in as few steps as you can."


def rules_of(goals: int) -> str:
    """Return the rules of a world with that number of goals, all of which are to be activated."""
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
    """Return what an agent reads at one step, one line."""
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
    """Return the text log of an episode: the rules, then observation and action in turns, one a line.

    Args:
        turns: (action that led to it, report) of each report, as `AgentKnowledge.turns` holds them.
    """
    lines = [rules_of(turns[0][1].goals if turns else 1)]
    for index, (action, report) in enumerate(turns):
        if index:
            lines.append(_DONE + (_NO_MOVE if action is None else action.name.lower()))
        lines.append(_SEEN + report_text(report))
    return "\n".join(lines) + "\n"


def memory_text(knowledge: AgentKnowledge) -> str:
    """Return the summary that can be put beside an observation; all of it follows from past observations.

    Raises:
        ValueError: no report yet.
    """
    if knowledge.position is None:
        raise ValueError("an agent must have at least one report for a summary, got none")
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
