"""Answers that a server is asked to keep to: the parameter of a request, and whether an answer kept to it."""

import json
from collections.abc import Sequence
from typing import Any, Final

_NAMED: Final = {"json_schema": "response_format"}  # others are called in a request what a study calls them
CONSTRAINTS: Final = ("response_format", "structured_outputs", "guided_choice")
"""The parameters that constrain an answer."""


def constraint_name(how: str | None) -> str:
    """Return the parameter of a way to constrain, "" for none."""
    return _NAMED.get(how or "", how or "")


def constraint(how: str | None, answers: Sequence[str]) -> dict[str, Any]:
    """Return the parameter that lets a server write the JSON object of one action and nothing else.

    Args:
        how: as in `goalscope.models.Server.constrained`; None for no parameter.
        answers: the complete answers, JSON objects with the key ``action``; none for no parameter.
    """
    if how is None or not answers:
        return {}
    if how == "guided_choice":
        return {"guided_choice": list(answers)}
    if how == "structured_outputs":
        return {"structured_outputs": {"choice": list(answers)}}
    schema = {
        "type": "object",
        "properties": {"action": {"type": "string", "enum": [json.loads(answer)["action"] for answer in answers]}},
        "required": ["action"],
        "additionalProperties": False,
    }
    wanted = {"name": "action", "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": wanted}}


def kept_to(text: str, answers: Sequence[str]) -> bool:
    """Return whether a text is one of some JSON objects, whatever its blanks."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return any(said == json.loads(answer) for answer in answers)
