"""Why an answer states no action, and what helps: one table for server trials, first turns and whole runs."""

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from goalscope.agents.agent import WITHHELD, Turn
from goalscope.agents.chat import CALLED, ChatAgent
from goalscope.agents.choice import LITTLE_MASS
from goalscope.agents.models.base import TEMPLATE_FORMS
from goalscope.agents.models.marks import end_token, tags_in
from goalscope.agents.parse import parse_action

IN_REASONING: Final = "in the reasoning"
"""Cause: the answer is empty, and the action is in the text that the server returned as reasoning."""

END_TOKEN: Final = "end token"
"""Cause: the token that should have ended the answer is still part of its text."""

TAGS: Final = "tags"
"""Cause: the answer contains a pair of tags around reasoning, or only the opening tag."""

LIKELIHOOD: Final = "likelihood"
EXAMPLE: Final = "example"
"""Names of two remedies that an agent may already use, in which case they are not suggested again."""

_REMEDIES: Final[Mapping[str, str]] = {
    LIKELIHOOD: "--answer likelihood, which reads how likely the model finds each action (needs weights, or "
    "completions:NAME@URL)",
    EXAMPLE: "a filled-in answer in the prompt (--template example)",
    "max_tokens": "more room for an answer ([[max_tokens=N]]), or a longer context",
    "marks": "name the tags around its reasoning ([[reasoning={open: ..., close: ...}]])",
    "least_mass": "--answer likelihood [[least_mass=0]], which chooses among the actions however improbable they are "
    "together; or of a chat model worked examples in the prompt (--template completion)",
    "filter": "another provider of the model, or one without a content filter",
    "stronger": "a stronger model: the usual remedies are in use already",
    CALLED: "leave tools out (server.body, and the server's automatic choice of tools)",
    IN_REASONING: "start the server with the reasoning parser of this model (vLLM and SGLang: --reasoning-parser), or "
    "switch thinking off ([[thinking=false]], which sends chat_template_kwargs: {enable_thinking: false})",
    END_TOKEN: "let the server stop at its end token ([[server.body={stop: [MARK0]}]]), or serve the model with its "
    "own chat template",
    TAGS: "name the tags around its reasoning ([[reasoning={open: MARK0, close: MARK1}]]), or start the server with "
    "the reasoning parser of this model (vLLM and SGLang: --reasoning-parser)",
}
"""Name -> remedy; settings are in double brackets, and MARK0 and MARK1 stand for marks that an answer contained."""

_FAULTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    # Failure of a turn, or its cause -> (description of the answer, names of remedies).
    "no JSON": ("prose without an action", (LIKELIHOOD, EXAMPLE)),
    "truncated": ("cut off before an action", ("max_tokens",)),
    "empty": ("empty", (LIKELIHOOD, "max_tokens")),
    "unknown action": ("an action that is not offered", (LIKELIHOOD, EXAMPLE)),
    "two different actions": ("two different actions", (LIKELIHOOD,)),
    "markers": ("markers of its chat format in the answer", ("marks",)),
    LITTLE_MASS: ("unlikely to be an action", ("least_mass",)),
    CALLED: ("a call of a tool", (CALLED,)),
    WITHHELD: ("withheld by the server", ("filter",)),
    IN_REASONING: ("in the field for reasoning, the answer itself empty", (IN_REASONING,)),
    END_TOKEN: ("followed by a leftover end token", (END_TOKEN,)),
    TAGS: ("mixed with reasoning in tags", (TAGS,)),
}


class Cause(NamedTuple):
    """Why a turn has no action, and the marks in its answer that show it."""

    name: str
    marks: tuple[str, ...] = ()


def cause_of(turn: Turn, names: tuple[str, ...]) -> Cause | None:
    """Return why a turn has no action, or None if the name of its failure says enough.

    Args:
        turn: a turn.
        names: the names of the valid actions.
    """
    text = turn.text or ""
    if turn.failure == "empty" and turn.reasoning and parse_action(turn.reasoning, names=names).action is not None:
        return Cause(IN_REASONING)
    if turn.failure != "markers":
        return None
    token = end_token(text)
    if token is not None:
        return Cause(END_TOKEN, (token,))
    tags = tags_in(text)
    return None if tags is None else Cause(TAGS, tags)


def ways_in_use(agent: Any) -> tuple[str, ...]:
    """Return which of the remedies `LIKELIHOOD` and `EXAMPLE` an agent already uses."""
    if not isinstance(agent, ChatAgent):
        return ()
    form = agent.template or agent.card_form or TEMPLATE_FORMS[0]
    return (*((EXAMPLE,) if form == EXAMPLE else ()), *((LIKELIHOOD,) if agent.choice is not None else ()))


def fault_words(name: str) -> str:
    """Return a description of an answer with a given fault; the name of an unknown fault is returned unchanged."""
    return _FAULTS.get(name, (name, ()))[0]


def remedy(name: str, marks: Sequence[str] = (), *, option: bool = False) -> str:
    """Return what helps against one fault of an answer, as an instruction.

    Args:
        name: name of the remedy; a cause and its remedy have the same name.
        marks: the marks of reasoning that the answer contained.
        option: whether to write settings as options of `evaluate`; by default as lines of a study.
    """
    text = re.sub(r"\[\[(.*?)=(.*?)\]\]", lambda match: _setting(match[1], match[2], option), _REMEDIES[name])
    for number, mark in enumerate(marks):
        text = text.replace(f"MARK{number}", json.dumps(mark, ensure_ascii=False))
    return text


def what_helps(kinds: Mapping[str, int], *, marks: Sequence[str] = (), used: Collection[str] = ()) -> str:
    """Return remedies for the two most common failures of turns, with settings written as options of `evaluate`.

    Args:
        kinds: failure or cause -> number of turns.
        marks: marks that answers contained.
        used: names of remedies that the agent already uses, which are left out.
    """
    names = [name for kind, _ in Counter(kinds).most_common(2) for name in _FAULTS.get(kind, ("", (LIKELIHOOD,)))[1]]
    advised = [name for name in dict.fromkeys(names) if name not in used] or ["stronger"]
    return "; or ".join(remedy(name, marks, option=True) for name in advised)


def _setting(key: str, value: str, option: bool) -> str:
    """Return a setting written as an option of `evaluate` or as a line of a study."""
    if option:
        return f"--set {key}={value}" if value.isalnum() else f"--set '{key}={value}'"
    *outer, inner = key.split(".")
    text = f"{inner}: {value}"
    for name in reversed(outer):
        text = f"{name}: {{{text}}}"
    return text
