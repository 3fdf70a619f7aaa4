"""From a model's answer to an action, or to the name of what is wrong with it; never to an action it did not state."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from goalscope.worlds.grid import Action

Failure = Literal["empty", "no JSON", "truncated", "unknown action", "two different actions"]

FAILURES: Final[tuple[Failure, ...]] = get_args(Failure)
"""The names of all failures, as they stand in stored steps."""

PARSER_VERSION: Final = 2
"""Raised whenever the same answer comes to be read as something else; it enters an agent's identity."""

_ACTIONS = {action.name: action for action in Action}

# What stands inside braces: quoted texts as a whole (an apostrophe inside of a word opens none), bare words, signs.
# Possessive repetition and escapes as pieces of their own keep the work linear in the length of the answer.
_PIECE = re.compile(
    r"""(?P<double>"[^"\\]*+(?:\\.[^"\\]*+)*+")|(?P<single>(?<!\w)'[^'\\]*+(?:\\.[^'\\]*+)*+')"""
    r"""|(?P<sign>[{}:,\[\]])|(?P<bare>[^\s{}:,\[\]"'\\]++)|\\.|["'\\]|\s++""",
    re.DOTALL,
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
    four, two objects or keys that name different actions; a text that is quoted inside of an object states nothing.

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
        found.extend(value for key, value in pairs if _key(key) == "action")
        return dict(pairs)

    try:
        whole = json.loads(text, object_pairs_hook=collect)
    except (ValueError, RecursionError):  # not JSON, or nested deeper than any answer is
        return None
    return found if isinstance(whole, dict) else None


def _tolerant(text: str) -> tuple[list[Any], bool]:
    """Return the actions stated inside braces, and whether an object begins that is never closed.

    A text that is quoted inside of an object is a text: what it says about actions states none. A value ends at a
    comma or a brace; ``UP or DOWN`` is no action.
    """
    stated: list[tuple[int, Any]] = []
    depth, at, last_open, last_close = 0, 0, -1, -1
    before = ("", "", "")  # the three pieces before, blanks left out
    while depth > 0 or (at := text.find("{", at)) >= 0:  # outside of braces quotes are punctuation
        piece = _PIECE.match(text, at)
        if piece is None:
            break
        at = piece.end()
        said, kind = piece.group(), piece.lastgroup
        if said.isspace():
            continue
        if before[:2] == ("action", ":") and before[2] not in ("}", ","):
            stated.append((piece.start(), before[2] if said in ("}", ",") else None))
        if said == "{":
            depth, last_open = depth + 1, piece.start()
        elif said == "}":
            depth, last_close = depth - 1, piece.start()
        word = said if kind == "sign" else _unquoted(said, kind)
        before = (_key(before[1]), before[2], word)
    inside = text[last_open:] if last_open > last_close else ""
    cut = any(end > last_close for end, _ in stated)
    cut = cut or (inside != "" and (_OPENED.search(inside) is not None or len(inside) < 12))
    return [value for end, value in stated if end <= last_close], cut


def _key(text: str) -> str:
    """Return a key in the one form in which keys are compared."""
    return text.strip().lower()


def _unquoted(said: str, kind: str | None) -> str:
    """Return what a piece says: a quoted text without its quotes, its JSON escapes undone where it has any."""
    if kind == "double" and "\\" in said:
        try:
            return str(json.loads(said, strict=False))
        except ValueError:
            return said[1:-1]  # no JSON: taken as it stands
    return said[1:-1] if kind in ("double", "single") else said
