"""Agents that follow a rule, from the parameters that a study names."""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

Built = TypeVar("Built")


def construct(kind: str, agent: type[Built], parameters: Mapping[str, Any], *, hidden: Collection[str] = ()) -> Built:
    """Build an agent from its parameters.

    Args:
        kind: its kind, as messages name it.
        agent: its class, a dataclass.
        parameters: the values of its fields.
        hidden: fields that a study cannot give.

    Raises:
        ValueError: an unknown or missing parameter, or a value that the class refuses.
    """
    known = {entry.name: entry for entry in fields(agent) if entry.name not in hidden}  # type: ignore[arg-type]
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
