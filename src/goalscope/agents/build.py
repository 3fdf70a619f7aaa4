"""Agents from the kind and parameters that a study names."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from goalscope.agents.agent import Agent
from goalscope.agents.chat import chat_agent, decisive
from goalscope.agents.scripted import SCRIPTED


def build_agent(kind: str, parameters: Mapping[str, Any]) -> Agent:
    """Build an agent.

    Args:
        kind: a key of `SCRIPTED` ("optimal", "epsilon-greedy", ...), or "chat": see `goalscope.agents.chat.chat_agent`.
        parameters: the parameters of that kind; `name` overrides the name that tables show.

    Raises:
        ValueError: an unknown kind, an unknown or missing parameter, or a value out of its range.
    """
    if kind == "chat":
        return chat_agent(parameters)
    if kind not in SCRIPTED:
        raise ValueError(f"the kind of an agent must be one of {', '.join(sorted([*SCRIPTED, 'chat']))}, got {kind!r}")
    agent = SCRIPTED[kind]
    known = {entry.name: entry for entry in fields(agent)}
    takes = ", ".join(name for name in known if name != "name") or "no parameters"
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise ValueError(f"agent kind {kind!r} takes {takes} (and an optional name), got {', '.join(unknown)}")
    missing = [
        name
        for name, entry in known.items()
        if entry.default is MISSING and entry.default_factory is MISSING and name not in parameters
    ]
    if missing:
        raise ValueError(f"agent kind {kind!r} must be given {takes}, missing: {', '.join(missing)}")
    name = parameters.get("name", "")
    if not isinstance(name, str):
        raise ValueError(f"the name of an agent must be a text, got {name!r}")
    return agent(**parameters)


def decisive_parameters(kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an agent that can change a result; only they enter the id of a study."""
    return decisive(parameters) if kind == "chat" else dict(parameters)
