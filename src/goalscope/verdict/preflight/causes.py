"""Why a turn holds no action, where its reply tells more than the name of its failure: then other advice helps."""

from typing import Any, Final, NamedTuple

from goalscope.agents.agent import Turn
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import TEMPLATE_FORMS
from goalscope.agents.models.marks import end_token, tags_in
from goalscope.agents.parse import parse_action

IN_REASONING: Final = "in the reasoning"
"""The answer is empty, and the action stands in what the server calls reasoning."""

END_TOKEN: Final = "end token"
"""The token that should have ended the answer is left in it."""

TAGS: Final = "tags"
"""The answer holds a pair of tags, or the first of them, around reasoning."""


LIKELIHOOD: Final = "likelihood"
EXAMPLE: Final = "example"
"""Names of two ways to get an action out of a model: what an agent uses already is not advised."""


def ways_in_use(agent: Any) -> tuple[str, ...]:
    """Return which of these ways an agent uses."""
    if not isinstance(agent, ChatAgent):
        return ()
    form = agent.template or agent.card_form or TEMPLATE_FORMS[0]
    return (*((EXAMPLE,) if form == EXAMPLE else ()), *((LIKELIHOOD,) if agent.choice is not None else ()))


class Cause(NamedTuple):
    """Why a turn holds no action, and the marks in its answer that show it."""

    name: str
    marks: tuple[str, ...] = ()


def cause_of(turn: Turn, names: tuple[str, ...]) -> Cause | None:
    """Return why a turn holds no action, None where the name of its failure says all.

    Args:
        turn: a turn.
        names: the names of the actions that were offered.
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
