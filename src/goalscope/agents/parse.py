"""From a model's answer to an action, or to the name of what is wrong with it; never to an action it did not state."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from goalscope.worlds.grid import Action

Failure = Literal["empty", "no JSON", "truncated", "unknown action", "two different actions"]

FAILURES: Final[tuple[Failure, ...]] = ("empty", "no JSON", "truncated", "unknown action", "two different actions")
"""The names of all failures, as they stand in stored steps."""

PARSER_VERSION: Final = 1
"""Raised whenever the same answer comes to be read as something else; it enters an agent's identity."""

_ACTIONS = {action.name: action for action in Action}

# A key `action` (quoted or not) and its value: a quoted text or a bare word. Every part is bounded or unambiguous, so
# that matching is linear in the length of the answer.
_STATEMENT = re.compile(
    r"""(?<![\w-])["']?action["']?\s*:\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s,{}"']+))""",
    re.IGNORECASE | re.ASCII,
)
_OPENED = re.compile(r"""(?<![\w-])["']?action["']?\s*(?::|$)""", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What an answer says.

    Attributes:
        action: the action that the answer states, None where it states none or more than one.
        failure: what is wrong with the answer, None where there is an action.
    """

    action: Action | None = None
    failure: Failure | None = None


def parse_action(text: str, *, truncated: bool = False) -> Parsed:
    """Read the action out of an answer that should be ``{"action": "UP"}``.

    Tolerated: text around the object, code fences, single quotes, a trailing comma, any case, the same action stated
    more than once, further keys. Not tolerated: an action outside of a JSON object, a word that is not one of the
    four, two objects or keys that name different actions.

    Args:
        text: the final answer, of any length and content.
        truncated: whether the model was cut off at its token limit.

    Returns:
        The action, or the name of the failure.
    """
    stripped = text.strip()
    if not stripped:
        return Parsed(failure="truncated" if truncated else "empty")
    stated = _strict(stripped)
    if stated is None:
        stated, cut = _tolerant(stripped)
        if cut:
            return Parsed(failure="truncated")
    if not stated:
        return Parsed(failure="truncated" if truncated else "no JSON")
    values = {_normal(value) for value in stated}
    if len(values) > 1:
        return Parsed(failure="two different actions")
    action = _ACTIONS.get(values.pop())
    return Parsed(action=action) if action is not None else Parsed(failure="unknown action")


def _normal(value: Any) -> str:
    """Return a stated value as an upper-case word; other letters than ASCII stay what they are."""
    if not isinstance(value, str):
        return f"not a text: {type(value).__name__}"
    word = value.strip()
    return word.upper() if word.isascii() else word


def _strict(text: str) -> list[Any] | None:
    """Return the values of all keys ``action`` where the whole answer is one JSON object, None where it is not."""
    found: list[Any] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found.extend(value for key, value in pairs if key.strip().lower() == "action")
        return dict(pairs)

    try:
        whole = json.loads(text, object_pairs_hook=collect)
    except (ValueError, RecursionError):  # not JSON, or nested deeper than any answer is
        return None
    return found if isinstance(whole, dict) else None


def _tolerant(text: str) -> tuple[list[str], bool]:
    """Return the actions stated inside braces, and whether an object begins that is never closed."""
    braces = [(match.start(), 1 if match.group() == "{" else -1) for match in re.finditer(r"[{}]", text)]
    depth, index = 0, 0
    last_close = max((at for at, kind in braces if kind < 0), default=-1)
    stated: list[str] = []
    cut = False
    for match in _STATEMENT.finditer(text):
        while index < len(braces) and braces[index][0] < match.start():
            depth = max(0, depth + braces[index][1])
            index += 1
        if depth == 0:
            continue
        if last_close < match.end():
            cut = True
            continue
        stated.append(next(value for value in match.groups() if value is not None))
    opened = text.rfind("{")
    cut = cut or (opened > last_close and (_OPENED.search(text, opened) is not None or len(text) - opened < 12))
    return stated, cut
