r"""Parse a model's answer into an action or the name of a failure; never into an action that it did not state.

This is the whole grammar of an answer; `PARSER_VERSION` counts its versions.

An answer is the answer part of a model's reply: reasoning and calls of tools are not part of it. White space around it
is dropped. An empty one is `empty`, or `truncated` where the reply was cut off at the token limit.

Marks
-----

An answer that still holds a mark of reasoning, of a channel or of the chat format is `markers`: part of it may be
reasoning, and reasoning only mentions actions. Which texts are marks is said in `agents.models.marks.left_over`; it
covers families of marks that the model's settings do not name.

Answers that were cut off
-------------------------

A reply that was cut off at the token limit inside of marked reasoning states no action: it is `truncated`, whatever
answer stands before. Where it was cut off elsewhere, the text may be reasoning without any mark. It then states an
action only in two cases: the whole text is one JSON object, or the text begins with an outermost object that states an
action. The opening of a code fence (three backticks, blanks or tabs, one word or none, white space) may stand before
that object. Else it is `truncated`.

JSON
----

Where the whole text is one JSON object, its own keys count. A **key** is compared without white space around it and in
lower case; every key `action` of the object **states** its value. Every key `action` of an object inside of it
**mentions** its value.

Anything else
-------------

Other texts are read in pieces, and only inside of braces.

* **Outside of braces** only `{`, `[` and `]` matter; `[` and `]` do not after a backslash. Quotes are punctuation
  there.
* **A piece**, inside of braces, is the longest of these that begins at a place: a text in double quotes (a backslash
  takes the next character with it); a text in single quotes, unless a letter, a digit or `_` stands before it; one of
  the signs `{ } : , [ ]`; a word, that is a run of other characters without white space, quotes and backslashes; a
  backslash and the character after it; a single quote or backslash that belongs to none of these. White space parts
  pieces and is none. Outside of quotes nothing else is special.
* **What a piece says** is the piece itself; of a quoted text what stands inside of the quotes, JSON escapes undone if
  the double-quoted text is JSON.
* **An outermost object** reaches from a `{` outside of braces to the `}` that closes it; only braces are counted for
  that.
* It **counts** if it reads: any number of `{`; then members, separated by commas, with or without a comma after the
  last one; then as many `}` as there were `{`. A **member** is one piece that is no sign, the **key**; the sign `:`;
  and a **value** of any pieces up to the next `,` or `}` that is inside of no `{` or `[` that the value itself opens. A
  `}` or `]` in a value closes whatever is open. There may be no members.
* Each member of a counting object whose key is `action` **states** its value: what its only piece says; or something
  that is no action, where the value has several pieces or its only one is a sign. A member without a value states
  nothing.
* An object that stands in an array, from a `[` outside of braces to the `]` that closes it, states nothing. An array
  that is never closed is none.
* A piece that says `action`, directly followed by one that says `:`, and by one that says neither `}` nor `,`,
  **mentions**: what the third one says, if the sign `}` or `,` comes directly after it, else something that is no
  action. This holds anywhere inside of braces, in values too.

The verdict
-----------

1. The text is `truncated` if an object begins that is never closed: if something is mentioned after the last `}`; or if
   the last `{` stands after the last `}` and what begins there is shorter than 12 characters, or holds `action` in any
   case, no ASCII letter, digit, `_` or `-` before it, and after it a quote or none, ASCII white space or none, and a
   colon or the end. (`{` and `}` of quoted texts do not count. Mentions are found when the piece after them is read.)
2. If nothing is stated, it is `no JSON`, or `truncated` where the reply was cut off. It is `truncated`, too, where the
   reply was cut off and does not begin with an object that states an action.
3. If what is stated and what is mentioned before the last `}` is not all the same, it is `two different actions`.
   Values are compared without white space around them, in upper case where they are ASCII.
4. The one value is an action if it is the name of one; else it is an `unknown action`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, get_args

from goalscope.agents.models.marks import left_over
from goalscope.worlds.grid import ACTIONS

Failure = Literal["empty", "markers", "no JSON", "truncated", "unknown action", "two different actions"]

FAILURES: Final[tuple[Failure, ...]] = get_args(Failure)
"""The names of all failures, as they stand in stored steps."""

PARSER_VERSION: Final = 5
"""Increased whenever the same answer would be parsed differently; stored with each parsed answer."""

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
_FENCE = re.compile(r"```[ \t]*\w*\s*")
_OUTSIDE = re.compile(r"\{|(?<!\\)[\[\]]")
_OPENED = re.compile(r"""(?<![\w-])["']?action["']?\s*(?::|$)""", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A parsed answer.

    Attributes:
        action: index of the action that the answer states, None where it states none or more than one.
        failure: why the answer has no action, None where there is one.
    """

    action: Any = None
    failure: Failure | None = None


def parse_action(text: str, *, truncated: bool = False, names: tuple[str, ...] = MOVES) -> Parsed:
    """Parse the action of an answer that should be ``{"action": "UP"}``.

    The key must stand in an object that is part of no other object or array, and whose members are all ``key: value``.
    Tolerated: text around the object, further braces around it alone, code fences, single or no quotes, a trailing
    comma, any case, the same action stated more than once, further keys. Not tolerated: an action outside of a JSON
    object, a word that is not one of the names, two objects or keys that name different actions. An action inside of
    another value states nothing, and neither does a text that is quoted inside of an object; an action inside of
    another value that differs from the one that is stated contradicts it.

    Args:
        text: the answer part of the reply, of any length and content.
        truncated: whether the reply was cut off at the token limit.
        names: the names of the actions, in any case.

    Returns:
        The index of the action, or the name of the failure.
    """
    stripped = text.strip()
    if not stripped:
        return Parsed(failure="truncated" if truncated else "empty")
    if left_over(stripped):
        return Parsed(failure="markers")
    actions = _strict(stripped)
    if actions is None:
        actions = _tolerant(stripped)
    if actions.cut or (truncated and not actions.first):
        return Parsed(failure="truncated")
    if not actions.stated:
        return Parsed(failure="truncated" if truncated else "no JSON")
    values = {_normal(value) for value in (*actions.stated, *actions.mentioned)}
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
class _ActionValues:
    """Actions in an answer."""

    stated: list[Any] = field(default_factory=list)  # values of the keys ``action`` that count
    mentioned: list[Any] = field(default_factory=list)  # values of all keys ``action``, at any depth
    cut: bool = False  # whether an object begins that is never closed
    first: bool = True  # whether the text begins with an object that states an action


def _strict(text: str) -> _ActionValues | None:
    """Return the actions of an answer that is one JSON object, None where it is not."""
    actions = _ActionValues()

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # Inner objects come first: what is left in the end is the outermost one.
        actions.stated = [value for key, value in pairs if _key(key) == "action"]
        actions.mentioned += actions.stated
        return dict(pairs)

    try:
        document = json.loads(text, object_pairs_hook=collect)
    except (ValueError, RecursionError):  # not JSON, or nested deeper than any answer is
        return None
    return actions if isinstance(document, dict) else None


class _Members:
    """The members of an outermost object, read piece by piece: key, colon, value, and so on after a comma."""

    __slots__ = ("_key", "_level", "_nested", "_pieces", "_state", "_value", "actions")

    def __init__(self) -> None:
        self.actions: list[Any] = []
        self._state = "start"  # what comes next: start, key, colon, value, end; "odd" where it is no object
        self._key, self._pieces = "", 0
        self._value: Any = None
        self._level, self._nested = 1, 0

    @property
    def sound(self) -> bool:
        """Whether the object was closed, and every member is a key and a value."""
        return self._state == "end" and self._level == 0

    def take(self, piece: str, word: str, sign: bool) -> None:
        """Read the next piece after the opening brace."""
        state = self._state
        if state == "value":
            self._take_value(piece, word, sign)
        elif piece == "}" and state in ("start", "key", "end"):
            self._state, self._level = "end", self._level - 1
        elif piece == "{" and state == "start":
            self._level += 1  # braces around the object alone
        elif state in ("start", "key") and not sign:
            self._key, self._state = _key(word), "colon"
        elif state == "colon" and piece == ":":
            self._state, self._pieces, self._value = "value", 0, None
        else:
            self._state = "odd"

    def _take_value(self, piece: str, word: str, sign: bool) -> None:
        ends = self._nested == 0 and piece in ("}", ",")
        if not ends:
            self._nested = max(0, self._nested + (piece in ("{", "[")) - (piece in ("}", "]")))
            self._pieces += 1
            self._value = None if sign else word
            return
        if self._key == "action" and self._pieces:
            self.actions.append(self._value if self._pieces == 1 else None)
        self._state = "key" if piece == "," else "end"
        self._level -= piece == "}"


def _tolerant(text: str) -> _ActionValues:
    """Return the actions inside braces in an answer.

    A text that is quoted inside an object is a text: actions in it do not count. A value ends at a
    comma or a brace; ``UP or DOWN`` is no action.
    """
    stated: list[Any] = []
    mentioned: list[tuple[int, Any]] = []
    arrays: list[int] = []  # of each array around objects, how much was stated before it
    members = _Members()
    depth, offset, last_open, last_close = 0, 0, -1, -1
    fence = _FENCE.match(text)
    begin, outermost, first = fence.end() if fence else 0, -1, False
    previous = ("", "", "")  # the three pieces before, blanks left out
    while True:
        if depth == 0:  # outside of braces quotes are punctuation
            opened = _OUTSIDE.search(text, offset)
            if opened is None:
                break
            offset = opened.start()
            if opened.group() == "[":
                arrays.append(len(stated))
            elif opened.group() == "]" and arrays:
                del stated[arrays.pop() :]
            if opened.group() != "{":
                offset += 1
                continue
        piece = _PIECE.match(text, offset)
        if piece is None:
            break
        offset = piece.end()
        content, kind = piece.group(), piece.lastgroup
        if content.isspace():
            continue
        if previous[:2] == ("action", ":") and previous[2] not in ("}", ","):
            mentioned.append((piece.start(), previous[2] if content in ("}", ",") else None))
        word = content if kind == "sign" else _unquoted(content, kind)
        if depth == 0:
            members, outermost = _Members(), piece.start()
        else:
            members.take(content, word, kind == "sign")
        if content == "{":
            depth, last_open = depth + 1, piece.start()
        elif content == "}":
            depth, last_close = depth - 1, piece.start()
            if depth == 0 and members.sound:
                stated += members.actions
                first = first or (bool(members.actions) and outermost == begin)
        previous = (_key(previous[1]), previous[2], word)
    tail = text[last_open:] if last_open > last_close else ""
    cut = any(end > last_close for end, _ in mentioned)
    cut = cut or (tail != "" and (_OPENED.search(tail) is not None or len(tail) < 12))
    mentions = [value for end, value in mentioned if end <= last_close]
    return _ActionValues(stated=stated, mentioned=mentions, cut=cut, first=first)


def _key(text: str) -> str:
    """Return a key in the one form in which keys are compared."""
    return text.strip().lower()


def _unquoted(piece: str, kind: str | None) -> str:
    """Return the content of a piece: a quoted text without its quotes, with JSON escapes decoded."""
    if kind == "double" and "\\" in piece:
        try:
            return str(json.loads(piece, strict=False))
        except ValueError:
            return piece[1:-1]  # no JSON: used unchanged
    return piece[1:-1] if kind in ("double", "single") else piece
