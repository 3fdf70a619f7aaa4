"""Task worlds in words: what an agent reads, the log of an episode, and both read back exactly.

Every sentence has one form, and names stand in double quotes, which no name may hold; so `parse_report` is the exact
inverse of `report_text`, and `read_log` rebuilds an agent's whole memory from a text alone. The wording is our own.
The facts are those of the paper's Appendix C.3 to E and some more: the rules also tell what a move does to the
coordinates, to take few steps, how to know the goal, and to come back to a state that is not active yet.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.coordinates import Cell, read_action
from goalscope.worlds.tasks.knowledge import NodeReport, Rejection, Report
from goalscope.worlds.tasks.memory import Memory

RULES = (
    "You walk through a map of which you see only the cell that you stand on and the directions that are open from it. "
    "Positions are written [x, y]: right adds 1 to x, up adds 1 to y. "
    "On some cells there are states. A state is activated by standing on its cell once its prerequisites are active; "
    "where they are not active yet, come back later. What a state needs and what it leads to is told on its own cell. "
    "Activate the goal, the one state that leads to nothing further, in as few steps as you can."
)
"""The rules of the world, first line of every log: no size, no place, no budget."""

_AXES = "right adds 1 to x, up adds 1 to y"
_SEEN, _DONE = "OBSERVATION: ", "ACTION: "
_NO_MOVE = "none"

_CELL = r"\[(-?\d+), (-?\d+)\]"
_NAME, _ONE = r'"([^"]+)"', r'"[^"]+"'
_REPORT = re.compile(
    rf"(?P<rejected>(?:No way leads there, so you stayed\. |You named no direction, so you stayed\. )?)"
    rf"You are at {_CELL}\. "
    r"(?P<here>There is nothing here\.|This is the state .+\.) "
    r"You can go (?P<available>nowhere|[a-z, ]+)\."
)
_NODE = re.compile(
    rf"This is the state {_NAME}\. It needs (?P<needs>nothing|{_ONE}(?: (?:and|or) {_ONE})*)\. "
    rf"It leads to (?P<leads>nothing further: it is the goal|{_ONE}(?:, {_ONE})*)\. "
    r"(?P<status>You have just activated it|It is active|It is not active yet)\."
)
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
    x, y = report.position
    return (
        f"{_REJECTED[report.rejected]}You are at [{x}, {y}]. {_here(report.node)} "
        f"You can go {', '.join(a.name.lower() for a in report.available) or 'nowhere'}."
    )


def parse_report(text: str) -> Report:
    """Return the report that a text was made of, the inverse of `report_text`.

    Raises:
        ValueError: any other text.
    """
    found = _REPORT.fullmatch(text)
    if found is None:
        raise ValueError(f"an observation must read as report_text writes it, got {text[:120]!r}")
    rejected = next(reason for reason, words in _REJECTED.items() if words == found["rejected"])
    listed = [] if found["available"] == "nowhere" else found["available"].split(", ")
    available = tuple(_move(name) for name in listed)
    return Report(
        position=(int(found[2]), int(found[3])), available=available, node=_node(found["here"]), rejected=rejected
    )


def write_log(turns: Sequence[tuple[Action | None, Report]]) -> str:
    """Return the text log of an episode: the rules, then observation and action in turns, one a line.

    Args:
        turns: (action that led to it, report) of each report, as `Memory.turns` holds them.
    """
    lines = [RULES]
    for index, (action, report) in enumerate(turns):
        if index:
            lines.append(_DONE + (_NO_MOVE if action is None else action.name.lower()))
        lines.append(_SEEN + report_text(report))
    return "\n".join(lines) + "\n"


def read_log(text: str) -> Iterator[tuple[Action | None, Report]]:
    """Yield (action that led to it, report) of each observation of a text log, with or without its rules.

    Raises:
        ValueError: a line that is neither rules nor observation nor action.
    """
    action: Action | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(_SEEN):
            yield action, parse_report(line.removeprefix(_SEEN))
            action = None
        elif line.startswith(_DONE):
            action = read_action(line.removeprefix(_DONE))
        elif number > 1:
            raise ValueError(f"line {number} must begin with {_SEEN!r} or {_DONE!r}, got {line[:80]!r}")


def memory_from_log(text: str) -> Memory:
    """Return the memory of an agent that has read a text log and nothing else.

    Where the log has no rules that tell what a move does, that is learned from the moves.

    Raises:
        ValueError: see `read_log`.
    """
    memory = Memory(axes_told=_AXES in text.partition("\n")[0])
    for action, report in read_log(text):
        memory.add(report, action)
    return memory


def memory_text(memory: Memory) -> str:
    """Return the summary of a memory that can be put beside an observation; all of it follows from past observations.

    Raises:
        ValueError: an empty memory.
    """
    if memory.position is None:
        raise ValueError("a memory must hold at least one report to be written down, got an empty one")
    axes = [f"{action.name.lower()} = {_change(change)}" for action, change in memory.confirmed.items()]
    lines = [
        f"Moves seen so far: {', '.join(axes) or 'none yet'}.",
        f"Goal: {'not found yet' if memory.goal is None else _quoted([memory.goal])}.",
        f"Visited: {_cells(memory.visited)}.",
        f"Open and not visited: {_cells(memory.frontier)}.",
        f"Impassable: {_cells(memory.impassable)}.",
    ]
    for name, (cell, node) in memory.nodes.items():
        state = "active" if name in memory.achieved else "not active yet"
        lines.append(f"State {_quoted([name])} at {_cells([cell])}: {state}. {_needs(node)}. {_leads(node)}.")
    lines.append(f"Active: {_quoted(memory.achieved) or 'none'}.")
    lines.append(f"Can be activated now: {_quoted(memory.pending) or 'none'}.")
    return "\n".join(lines)


def _here(node: NodeReport | None) -> str:
    if node is None:
        return "There is nothing here."
    status = _STATUS[node.achieved, node.fresh]
    return f"This is the state {_quoted([node.name])}. {_needs(node)}. {_leads(node)}. {status}."


def _needs(node: NodeReport) -> str:
    return f"It needs {' or '.join(' and '.join(_quoted([n]) for n in option) for option in node.options) or 'nothing'}"


def _leads(node: NodeReport) -> str:
    return f"It leads to {_quoted(node.children) or 'nothing further: it is the goal'}"


def _node(text: str) -> NodeReport | None:
    if text == "There is nothing here.":
        return None
    found = _NODE.fullmatch(text)
    if found is None:
        raise ValueError(f"a state must be described as report_text does, got {text[:120]!r}")
    achieved, fresh = next(key for key, words in _STATUS.items() if words == found["status"])
    options = [] if found["needs"] == "nothing" else re.split(r'(?<=") or (?=")', found["needs"])
    return NodeReport(
        name=found[1],
        options=tuple(tuple(re.findall(_NAME, option)) for option in options),
        children=tuple(re.findall(_NAME, found["leads"])),
        achieved=achieved,
        fresh=fresh,
    )


def _move(name: str) -> Action:
    action = read_action(name)
    if action is None:
        raise ValueError(f"an open direction must be one of up, down, left, right, got {name[:60]!r}")
    return action


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _cells(cells: Iterable[Cell]) -> str:
    return " ".join(f"[{x}, {y}]" for x, y in cells) or "none"


def _change(change: Cell) -> str:
    axis, amount = ("x", change[0]) if change[0] else ("y", change[1])
    return f"{axis} {'+' if amount > 0 else '-'} {abs(amount)}"
