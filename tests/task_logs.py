"""Read the text log of a task world back: what the words of an observation determine."""

import re
from collections.abc import Iterator

from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.knowledge import (
    _DONE,
    _NOTHING,
    _REJECTED,
    _SEEN,
    _STATUS,
    AgentKnowledge,
    NodeReport,
    Report,
)
from goalscope.worlds.tasks.taskmap import read_action

_AXES = "right adds 1 to x, up adds 1 to y"
_CELL = r"\[(-?\d+), (-?\d+)\]"
_NAME, _ONE = r'"([^"]+)"', r'"[^"]+"'
_REPORT = re.compile(
    rf"(?P<rejected>(?:No way leads there, so you stayed\. |You named no direction, so you stayed\. )?)"
    rf"You are at {_CELL}\. "
    r"(?P<here>There is nothing here\.|This is the state .+\.) "
    r"You can go (?P<available>nowhere|[a-z, ]+)\."
    r"(?: There are (?P<goals>\d+) goals: activate them all\.)?"
)
_NODE = re.compile(
    rf"This is the state {_NAME}\. It needs (?P<needs>nothing|{_ONE}(?: (?:and|or) {_ONE})*)\. "
    rf"It leads to (?P<leads>nothing further: it is (?:the|a) goal|{_ONE}(?:, {_ONE})*)\. "
    r"(?P<status>You have just activated it|It is active|It is not active yet)\."
)


def parse_report(text: str) -> Report:
    """Return the report of a text, the inverse of `report_text`.

    Raises:
        ValueError: any other text.
    """
    match = _REPORT.fullmatch(text)
    if match is None:
        raise ValueError(f"an observation must read as report_text writes it, got {text[:120]!r}")
    available = []
    for name in () if match["available"] == "nowhere" else match["available"].split(", "):
        action = read_action(name)
        if action is None:
            raise ValueError(f"an open direction must be one of up, down, left, right, got {name[:60]!r}")
        available.append(action)
    return Report(
        position=(int(match[2]), int(match[3])),
        available=tuple(available),
        node=None if match["here"] == _NOTHING else _parse_node(match["here"]),
        rejected=next(reason for reason, words in _REJECTED.items() if words == match["rejected"]),
        goals=int(match["goals"] or 1),
    )


def _parse_node(text: str) -> NodeReport:
    match = _NODE.fullmatch(text)
    if match is None:
        raise ValueError(f"a state must be described as report_text does, got {text[:120]!r}")
    achieved, fresh = next(key for key, words in _STATUS.items() if words == match["status"])
    options = [] if match["needs"] == "nothing" else re.split(r'(?<=") or (?=")', match["needs"])
    return NodeReport(
        name=match[1],
        options=tuple(tuple(re.findall(_NAME, option)) for option in options),
        children=tuple(re.findall(_NAME, match["leads"])),
        achieved=achieved,
        fresh=fresh,
    )


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


def memory_from_log(text: str) -> AgentKnowledge:
    """Return the knowledge of an agent that has read only a text log.

    Where the log has no rules that tell what a move does, that is learned from the moves.

    Raises:
        ValueError: see `read_log`.
    """
    knowledge = AgentKnowledge(axes_told=_AXES in text.partition("\n")[0])
    for action, report in read_log(text):
        knowledge.add(report, action)
    return knowledge
