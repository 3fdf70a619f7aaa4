"""Agents of task worlds from the kind and parameters that a study names."""

from collections.abc import Mapping
from typing import Any, Final

from goalscope.agents.chat import decisive
from goalscope.agents.construct import construct
from goalscope.agents.task_agent import TaskAgent
from goalscope.agents.task_chat import task_chat_agent
from goalscope.agents.task_scripted import TASK_SCRIPTED

TASK_PREFIX: Final = "task-"
"""With what the kinds of the agents of task worlds begin: task-greedy, task-oracle, ..., task-chat."""

TASK_CHAT: Final = f"{TASK_PREFIX}chat"


def build_task_agent(kind: str, parameters: Mapping[str, Any]) -> TaskAgent:
    """Build an agent of task worlds.

    Args:
        kind: `TASK_PREFIX` and a key of `TASK_SCRIPTED`, or `TASK_CHAT`: see `task_chat_agent`.
        parameters: the parameters of that kind; `name` overrides the name that tables show.

    Raises:
        ValueError: an unknown kind, an unknown or missing parameter, or a value out of its range.
    """
    if kind == TASK_CHAT:
        return task_chat_agent(parameters)
    known = {f"{TASK_PREFIX}{name}": agent for name, agent in TASK_SCRIPTED.items()}
    if kind not in known:
        kinds = ", ".join(sorted([*known, TASK_CHAT]))
        raise ValueError(f"the kind of an agent of task worlds must be one of {kinds}, got {kind!r}")
    return construct(kind, known[kind], parameters, hidden=("task_map",))


def task_decisive(kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an agent of task worlds that can change a result."""
    return decisive(parameters) if kind == TASK_CHAT else dict(parameters)
