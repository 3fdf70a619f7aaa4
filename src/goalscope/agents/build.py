"""Agents from the kind and parameters that a study names."""

from collections.abc import Mapping
from typing import Any

from goalscope.agents.agent import Agent
from goalscope.agents.chat import chat_agent, decisive
from goalscope.agents.construct import construct
from goalscope.agents.scripted import SCRIPTED
from goalscope.agents.task_build import TASK_PREFIX, build_task_agent, task_decisive


def build_agent(kind: str, parameters: Mapping[str, Any]) -> Agent:
    """Build an agent.

    Args:
        kind: a key of `SCRIPTED` ("optimal", "epsilon-greedy", ...), or "chat": see `goalscope.agents.chat.chat_agent`.
            A kind that begins with `TASK_PREFIX` acts in task worlds, see `goalscope.agents.task_build`.
        parameters: the parameters of that kind; `name` overrides the name that tables show.

    Raises:
        ValueError: an unknown kind, an unknown or missing parameter, or a value out of its range.
    """
    if kind == "chat":
        return chat_agent(parameters)
    if kind.startswith(TASK_PREFIX):
        built: Any = build_task_agent(kind, parameters)  # acts on task observations: a study pairs it with task worlds
        agent: Agent = built
        return agent
    if kind not in SCRIPTED:
        raise ValueError(f"the kind of an agent must be one of {', '.join(sorted([*SCRIPTED, 'chat']))}, got {kind!r}")
    return construct(kind, SCRIPTED[kind], parameters)


def decisive_parameters(kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an agent that can change a result; only they enter the id of a study."""
    if kind.startswith(TASK_PREFIX):
        return task_decisive(kind, parameters)
    return decisive(parameters) if kind == "chat" else dict(parameters)
