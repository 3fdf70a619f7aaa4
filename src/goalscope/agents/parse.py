"""From a model's answer to an action, or to the name of what is wrong with it; never to an action it did not state."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, get_args

from goalscope.worlds.grid import ACTIONS

Failure = Literal["empty", "no JSON", "truncated", "unknown action", "two different actions"]

FAILURES: Final[tuple[Failure, ...]] = get_args(Failure)
"""The names of all failures, as they stand in stored steps."""

PARSER_VERSION: Final = 4
"""Raised whenever the same answer comes to be read as something else; it is told with each answer that was read."""

DRAWN_UNDER: Final = 3
"""The version in the identity of agents that read answers. Answers are drawn from it, so it stays: the same agent draws
the same answers whichever version reads them."""

MOVES: Final = tuple(action.name for action in ACTIONS)
"""The names of the four moves of grids."""

# What stands inside braces: quoted texts as a whole (an apostrophe inside of a word opens none), bare words, signs.
# Possessive repetition and escapes as pieces of their own keep the work linear in the length of the answer.
_PIECE = re.compile(
    r"""(?P<double>"[^"\\]*+(?:\\.[^"\\]*+)*+")|(?P<single>(?<!\w)'[^'\\]*+(?:\\.[^'\\]*+)*+')"""
    r"""|(?P<sign>[{}:,\[\]])|(?P<bare>[^\s{}:,\[\]"'\\]++)|\\.|["'\\]|\s++""",
    re.DOTALL,
)
_OUTSIDE = re.compile(r"\{|(?<!\\)[\[\]]")
_OPENED = re.compile(r"""(?<![\w-])["']?action["']?\s*(?::|$)""", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What an answer says.

    Attributes:
        action: index of the action that the answer states, None where it states none or more than one.
        failure: what is wrong with the answer, None where there is an action.
    """

    action: Any = None
    failure: Failure | None = None


def parse_action(text: str, *, truncated: bool = False, names: tuple[str, ...] = MOVES) -> Parsed:
    """Read the action out of an answer that should be ``{"action": "UP"}``.

    The key must stand in an object that is part of no other object or array, and whose members are all ``key: value``.
    Tolerated: text around the object, further braces around it alone, code fences, single or no quotes, a trailing
    comma, any case, the same action stated more than once, further keys. Not tolerated: an action outside of a JSON
    object, a word that is not one of the names, two objects or keys that name different actions. An action inside of
    another value states nothing, and neither does a text that is quoted inside of an object; an action inside of
    another value that differs from the one that is stated contradicts it.

    Args:
        text: the final answer, of any length and content.
        truncated: whether the model was cut off at its token limit.
        names: the names of the actions, in any case.

    Returns:
        The index of the action, or the name of the failure.
    """
    stripped = text.strip()
    if not stripped:
        return Parsed(failure="truncated" if truncated else "empty")
    found = _strict(stripped)
    if found is None:
        found = _tolerant(stripped)
    if found.cut:
        return Parsed(failure="truncated")
    if not found.stated:
        return Parsed(failure="truncated" if truncated else "no JSON")
    values = {_normal(value) for value in (*found.stated, *found.mentioned)}
    if len(values) > 1:
        return Parsed(failure="two different actions")
    action = _table(names).get(values.pop())
    return Parsed(action=action) if action is not None else Parsed(failure="unknown action")


@lru_cache(maxsize=256)
def _table(names: tuple[str, ...]) -> Mapping[str, int]:
    """Return the actions by name; the four moves are those of grids."""
    normal = [_normal(name) for name in names]
    if len(set(normal)) < len(normal):
        raise ValueError(f"the names of actions must differ in more than their case, got {', '.join(names)}")
    return dict(zip(normal, ACTIONS if tuple(normal) == MOVES else range(len(names)), strict=True))


def _normal(value: Any) -> str:
    """Return a stated value as an upper-case word; other letters than ASCII stay what they are."""
    if not isinstance(value, str):
        return f"not a text: {type(value).__name__}"
    word = value.strip()
    return word.upper() if word.isascii() else word


@dataclass(slots=True, kw_only=True)
class _Found:
    """What an answer holds."""

    stated: list[Any] = field(default_factory=list)  # values of the keys ``action`` that count
    mentioned: list[Any] = field(default_factory=list)  # values of all keys ``action``, wherever they stand
    cut: bool = False  # whether an object begins that is never closed


def _strict(text: str) -> _Found | None:
    """Return what an answer holds that is one JSON object as a whole, None where it is not."""
    found = _Found()

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # Inner objects come first: what is left in the end is the outermost one.
        found.stated = [value for key, value in pairs if _key(key) == "action"]
        found.mentioned += found.stated
        return dict(pairs)

    try:
        whole = json.loads(text, object_pairs_hook=collect)
    except (ValueError, RecursionError):  # not JSON, or nested deeper than any answer is
        return None
    return found if isinstance(whole, dict) else None


class _Members:
    """The members of an outermost object, read piece by piece: key, colon, value, and so on after a comma."""

    __slots__ = ("_key", "_level", "_nested", "_pieces", "_state", "_value", "found")

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._state = "start"  # what comes next: start, key, colon, value, end; "odd" where it is no object
        self._key, self._pieces = "", 0
        self._value: Any = None
        self._level, self._nested = 1, 0

    @property
    def sound(self) -> bool:
        """Whether the object was closed, and every member is a key and a value."""
        return self._state == "end" and self._level == 0

    def take(self, said: str, word: str, sign: bool) -> None:
        """Read the next piece after the opening brace."""
        state = self._state
        if state == "value":
            self._take_value(said, word, sign)
        elif said == "}" and state in ("start", "key", "end"):
            self._state, self._level = "end", self._level - 1
        elif said == "{" and state == "start":
            self._level += 1  # braces around the object alone
        elif state in ("start", "key") and not sign:
            self._key, self._state = _key(word), "colon"
        elif state == "colon" and said == ":":
            self._state, self._pieces, self._value = "value", 0, None
        else:
            self._state = "odd"

    def _take_value(self, said: str, word: str, sign: bool) -> None:
        ends = self._nested == 0 and said in ("}", ",")
        if not ends:
            self._nested = max(0, self._nested + (said in ("{", "[")) - (said in ("}", "]")))
            self._pieces += 1
            self._value = None if sign else word
            return
        if self._key == "action" and self._pieces:
            self.found.append(self._value if self._pieces == 1 else None)
        self._state = "key" if said == "," else "end"
        self._level -= said == "}"


def _tolerant(text: str) -> _Found:
    """Return what an answer holds inside of braces.

    A text that is quoted inside of an object is a text: what it says about actions states none. A value ends at a
    comma or a brace; ``UP or DOWN`` is no action.
    """
    stated: list[Any] = []
    mentioned: list[tuple[int, Any]] = []
    arrays: list[int] = []  # of each array around objects, how much was stated before it
    members = _Members()
    depth, at, last_open, last_close = 0, 0, -1, -1
    before = ("", "", "")  # the three pieces before, blanks left out
    while True:
        if depth == 0:  # outside of braces quotes are punctuation
            opened = _OUTSIDE.search(text, at)
            if opened is None:
                break
            at = opened.start()
            if opened.group() == "[":
                arrays.append(len(stated))
            elif opened.group() == "]" and arrays:
                del stated[arrays.pop() :]
            if opened.group() != "{":
                at += 1
                continue
        piece = _PIECE.match(text, at)
        if piece is None:
            break
        at = piece.end()
        said, kind = piece.group(), piece.lastgroup
        if said.isspace():
            continue
        if before[:2] == ("action", ":") and before[2] not in ("}", ","):
            mentioned.append((piece.start(), before[2] if said in ("}", ",") else None))
        word = said if kind == "sign" else _unquoted(said, kind)
        if depth == 0:
            members = _Members()
        else:
            members.take(said, word, kind == "sign")
        if said == "{":
            depth, last_open = depth + 1, piece.start()
        elif said == "}":
            depth, last_close = depth - 1, piece.start()
            if depth == 0 and members.sound:
                stated += members.found
        before = (_key(before[1]), before[2], word)
    inside = text[last_open:] if last_open > last_close else ""
    cut = any(end > last_close for end, _ in mentioned)
    cut = cut or (inside != "" and (_OPENED.search(inside) is not None or len(inside) < 12))
    return _Found(stated=stated, mentioned=[value for end, value in mentioned if end <= last_close], cut=cut)


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
