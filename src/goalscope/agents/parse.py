r"""Parse a model's answer into the action that it states, or into the name of a failure.

The parser never returns an action that the answer did not state. This docstring is the complete grammar of answers;
`PARSER_VERSION` counts its versions. `turn` makes the turn of a whole reply, and a table at the end of this module says
what helps against each failure.

An answer is the answer part of a model's reply, without its reasoning and its tool calls. White space around the
answer is dropped. An empty answer is `empty`, or `truncated` if the reply was cut off at the token limit.

Marks
-----

An answer that still contains a mark of reasoning, of a channel or of the chat format is `markers`, since part of it
may be reasoning, and reasoning only mentions actions. `agents.models.marks.left_over` defines which texts are marks,
including families of marks that the model's settings do not name.

Answers that were cut off
-------------------------

A reply that was cut off at the token limit inside marked reasoning states no action: it is `truncated`, whatever
answer precedes the reasoning. If it was cut off elsewhere, the text may be reasoning without any mark. It then states
an action only in two cases: the whole text is one JSON object, or the text begins with an outermost object that
states an action. The opening of a code fence (three backticks, blanks or tabs, at most one word, white space) may
precede that object. In all other cases the reply is `truncated`.

JSON
----

If the whole text is one JSON object, the keys of this object count. A **key** is compared without white space around
it and in lower case. Every key `action` of the object **states** its value. Every key `action` of an object inside it
**mentions** its value.

Anything else
-------------

Other texts are read in pieces, and only inside braces.

* **Outside braces**, only `{`, `[` and `]` matter, and `[` and `]` do not matter after a backslash. Quotes are
  punctuation there.
* **A piece**, inside braces, is the longest of the following that begins at a position: a text in double quotes (a
  backslash escapes the next character); a text in single quotes, unless a letter, a digit or `_` precedes it; one of
  the signs `{ } : , [ ]`; a word, which is a run of other characters without white space, quotes and backslashes; a
  backslash and the character after it; a single quote or backslash that belongs to none of these. White space
  separates pieces and is not a piece. Outside quotes, nothing else is special.
* **What a piece says** is the piece itself or, for a quoted text, the text inside the quotes. JSON escapes are decoded
  if a double-quoted text is valid JSON.
* **An outermost object** extends from a `{` outside braces to the `}` that closes it; only braces are counted to find
  its end.
* The object **counts** if it has this form: any number of `{`; then members, separated by commas, with or without a
  comma after the last member; then as many `}` as there were `{`. A **member** consists of a **key** (one piece that
  is not a sign), the sign `:`, and a **value**. The value consists of any pieces up to the next `,` or `}` that lies
  outside every `{` and `[` opened by the value itself. A `}` or `]` in a value closes whatever is open. An object may
  have no members.
* Each member with the key `action` of an object that counts **states** its value: what the value's only piece says, or
  something that is not an action if the value has several pieces or its only piece is a sign. A member without a value
  states nothing.
* An object inside an array, which extends from a `[` outside braces to the `]` that closes it, states nothing. A `[`
  that is never closed does not begin an array.
* Three pieces in a row **mention** something if the first says `action`, the second says `:`, and the third says
  neither `}` nor `,`. They mention what the third piece says if the sign `}` or `,` follows directly, and otherwise
  something that is not an action. This holds everywhere inside braces, including inside values.

The verdict
-----------

1. The text is `truncated` if it begins an object that it never closes. There are two such cases. (a) Something is
   mentioned after the last `}`. (b) The last `{` comes after the last `}`, and the text from there on is shorter than
   12 characters or contains `action`, in any case, with no ASCII letter, digit, `_` or `-` before it, and after it an
   optional quote, optional ASCII white space, and a colon or the end of the text. (`{` and `}` in quoted texts do not
   count. A mention is found when the piece after it is read.)
2. If nothing is stated, the text is `no JSON`, or `truncated` if the reply was cut off. It is also `truncated` if the
   reply was cut off and does not begin with an object that states an action.
3. If the values that are stated, and those that are mentioned before the last `}`, are not all the same, the text is
   `two different actions`. Values are compared without white space around them, and in upper case if they are ASCII.
4. If the remaining value is the name of an action, it is that action; otherwise it is an `unknown action`.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Final, Literal, NamedTuple, get_args

from goalscope._ground.words import Catalogue
from goalscope.agents.agent import ANSWERED_BY, REDRAWS, WITHHELD, Turn
from goalscope.agents.models.base import Reply
from goalscope.agents.models.marks import end_token, left_over, tags_in
from goalscope.worlds.grid import ACTIONS

Failure = Literal["empty", "markers", "no JSON", "truncated", "unknown action", "two different actions"]

FAILURES: Final[tuple[Failure, ...]] = get_args(Failure)
"""The names of all failures, as stored steps record them."""

CALLED: Final = "call of a tool"
"""Name of the failure of a reply that ended in a tool call, which never counts as an action."""

LITTLE_MASS: Final = "little mass"
"""Name of the failure of a turn whose answers have less mass than the threshold."""

PARSER_VERSION: Final = 5
"""Version of the parser, increased whenever an answer would be parsed differently; stored with each parsed answer."""

DRAWN_UNDER: Final = 3
"""Version of the parser in the identity of agents. It never changes, because answers are drawn from the agent's
identity: the same agent draws the same answers whichever version parses them."""

MOVES: Final = tuple(action.name for action in ACTIONS)
"""The names of the four moves of grids."""

# The pieces inside braces: whole quoted texts (an apostrophe inside a word does not open one), bare words, signs.
# Possessive repetition, and escapes as separate pieces, keep the work linear in the length of the answer.
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
    """The result of parsing a model's answer: an action, or the name of a failure.

    Attributes:
        action: index of the action that the answer states; None if it states no action or several.
        failure: name of the failure if there is no action, else None.
    """

    action: Any = None
    failure: Failure | None = None


def parse_action(text: str, *, truncated: bool = False, names: tuple[str, ...] = MOVES) -> Parsed:
    """Parse the action of an answer that should have the form ``{"action": "UP"}``.

    The key must be in an object that is not part of another object or array, and whose members are all ``key: value``.
    The parser tolerates text around the object, additional braces around it, code fences, single quotes or no quotes, a
    trailing comma, any case, repetitions of the same action, and other keys. It does not tolerate an action outside a
    JSON object, a word that is not the name of an action, or objects or keys that state different actions. An action
    inside another value, or inside a quoted text of an object, does not count as stated. If an action inside another
    value differs from the stated action, the two contradict each other.

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
    """Return a mapping from the normalised name of each action to its index."""
    normal = [_normal(name) for name in names]
    if len(set(normal)) < len(normal):
        raise ValueError(
            f"the names of actions must differ by more than upper and lower case, got {', '.join(names)}: rename one"
        )
    return dict(zip(normal, ACTIONS if tuple(normal) == MOVES else range(len(names)), strict=True))


def _normal(value: Any) -> str:
    """Return a stated value as an upper-case word; values with letters beyond ASCII keep their case."""
    if not isinstance(value, str):
        return f"not a text: {type(value).__name__}"
    word = value.strip()
    return word.upper() if word.isascii() else word


@dataclass(slots=True, kw_only=True)
class _ActionValues:
    """The actions that an answer states or mentions."""

    stated: list[Any] = field(default_factory=list)  # values of the keys ``action`` of objects that count
    mentioned: list[Any] = field(default_factory=list)  # values of all keys ``action``, at any depth
    cut: bool = False  # whether an object begins that is never closed
    first: bool = True  # whether the text begins with an object that states an action


def _strict(text: str) -> _ActionValues | None:
    """Return the actions of an answer that is a single JSON object, or None if it is anything else."""
    actions = _ActionValues()

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # Inner objects are parsed first, so the last object to arrive is the outermost.
        actions.stated = [value for key, value in pairs if _key(key) == "action"]
        actions.mentioned += actions.stated
        return dict(pairs)

    try:
        document = json.loads(text, object_pairs_hook=collect)
    except (ValueError, RecursionError):  # not JSON, or nested deeper than any real answer
        return None
    return actions if isinstance(document, dict) else None


class _Members:
    """The members of an outermost object, read piece by piece: key, colon, value, comma, and so on."""

    __slots__ = ("_key", "_level", "_nested", "_pieces", "_state", "_value", "actions")

    def __init__(self) -> None:
        self.actions: list[Any] = []
        self._state = "start"  # the expected next piece: start, key, colon, value, end; "odd" if this is not an object
        self._key, self._pieces = "", 0
        self._value: Any = None
        self._level, self._nested = 1, 0

    @property
    def sound(self) -> bool:
        """Whether the object was closed and every member has a key and a value."""
        return self._state == "end" and self._level == 0

    def take(self, piece: str, word: str, sign: bool) -> None:
        """Read the next piece after the opening brace."""
        state = self._state
        if state == "value":
            self._take_value(piece, word, sign)
        elif piece == "}" and state in ("start", "key", "end"):
            self._state, self._level = "end", self._level - 1
        elif piece == "{" and state == "start":
            self._level += 1  # additional braces around the object
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
    """Return the actions inside braces in an answer that need not be valid JSON.

    Actions inside a quoted text of an object do not count. A value ends at a comma or a brace, so ``UP or DOWN`` is not
    an action.
    """
    stated: list[Any] = []
    mentioned: list[tuple[int, Any]] = []
    arrays: list[int] = []  # for each open array, the number of values that were stated before it
    members = _Members()
    depth, offset, last_open, last_close = 0, 0, -1, -1
    fence = _FENCE.match(text)
    begin, outermost, first = fence.end() if fence else 0, -1, False
    previous = ("", "", "")  # the three preceding pieces, without blanks
    while True:
        if depth == 0:  # outside braces, quotes are punctuation
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
    """Return a key in the form in which keys are compared."""
    return text.strip().lower()


def _unquoted(piece: str, kind: str | None) -> str:
    """Return the content of a piece: for quoted text without its quotes and with JSON escapes decoded."""
    if kind == "double" and "\\" in piece:
        try:
            return str(json.loads(piece, strict=False))
        except ValueError:
            return piece[1:-1]  # not valid JSON, so used unchanged
    return piece[1:-1] if kind in ("double", "single") else piece


def turn(reply: Reply, names: tuple[str, ...] = MOVES) -> Turn:
    """Turn a model's reply into the agent's turn: its action, or the name of its failure.

    Only the answer part of the reply is parsed, not its reasoning.

    Args:
        reply: the reply of the model.
        names: names of the valid actions.

    Raises:
        ValueError: the reply failed, which is the server's fault and not a turn of the model.
    """
    action: Any = None
    failure: str | None
    if reply.finish == "failed":
        raise ValueError(f"a failed reply is not a turn of the model; the server reports: {reply.error}")
    if reply.finish == "withheld":
        failure = WITHHELD
    elif reply.finish == "called":
        failure = CALLED
    elif reply.parts and reply.parts[-1].kind == "reasoning" and (reply.finish == "length" or reply.answer):
        # The reply ends inside its reasoning, which may revoke the answer, however the server reports the end.
        failure = "truncated"
    else:
        parsed = parse_action(reply.answer, truncated=reply.finish == "length", names=names)
        action, failure = parsed.action, parsed.failure
    stored = {
        "finish": reply.finish,
        "parser": PARSER_VERSION,
        "logprobs": None if reply.logprobs is None else [dict(entry) for entry in reply.logprobs],
        "reconstructed": reply.reconstructed or None,
        "unsupported": list(reply.unsupported) or None,
        ANSWERED_BY: reply.answered_by or None,
        "raw": reply.raw if reply.output_tokens is None else None,
        REDRAWS: reply.redraws or None,
        "error": reply.error or None,
        "call": reply.call,
    }
    return Turn(
        action=action,
        failure=failure,
        text=reply.answer,
        reasoning=reply.reasoning,
        prompt_tokens=reply.prompt_tokens,
        output_tokens=reply.output_tokens,
        usage=reply.usage,
        extra={name: value for name, value in stored.items() if value is not None},
    )


# Why an answer states no action, and what helps: one table for server trials, first turns and whole runs.

IN_REASONING: Final = "in the reasoning"
"""Cause: the answer is empty, and the action is in the text that the server returned as reasoning."""

END_TOKEN: Final = "end token"
"""Cause: the token that should have ended the answer is still part of its text."""

TAGS: Final = "tags"
"""Cause: the answer contains a pair of tags around reasoning, or only the opening tag."""

LIKELIHOOD: Final = "likelihood"
EXAMPLE: Final = "example"
"""Names of two remedies that an agent may already use, in which case they are not suggested again."""


@cache
def _texts() -> Catalogue:
    return Catalogue.of_package("goalscope.agents")


def advice_text(key: str, otherwise: str = "") -> str:
    """Return the sentence with this key in the catalogue of advice on faulty answers, or ``otherwise`` if there is
    none.
    """
    return _texts().text(key) if _texts().has(key) else otherwise


class Cause(NamedTuple):
    """Why a turn has no action, with the marks of reasoning (tags, special tokens) in its answer that show it.

    The name is one of `IN_REASONING`, `END_TOKEN` and `TAGS`.
    """

    name: str
    marks: tuple[str, ...] = ()


def cause_of(turn: Turn, names: tuple[str, ...]) -> Cause | None:
    """Find out why a turn has no action; None if the turn has one, or if the name of its failure says enough.

    Args:
        turn: a turn.
        names: the names of the valid actions.
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


def fault_words(name: str) -> str:
    """Describe in words an answer with the named fault; an unknown name is returned unchanged."""
    return advice_text(f"faults/{name}/answer", name)


def remedy(name: str, marks: Sequence[str] = (), *, option: bool = False) -> str:
    """Return an instruction that says what helps against one fault of a model's answers.

    Args:
        name: name of the remedy; a cause and its remedy have the same name.
        marks: the marks of reasoning that the answer contained, which the instruction quotes.
        option: whether to write settings as options of the command `evaluate`; by default as lines of a study file.
    """
    text = advice_text(f"remedies/{name}")
    text = re.sub(r"\[\[(.*?)=(.*?)\]\]", lambda match: _setting(match[1], match[2], option), text)
    for number, mark in enumerate(marks):
        text = text.replace(f"MARK{number}", json.dumps(mark, ensure_ascii=False))
    return text


def what_helps(kinds: Mapping[str, int], *, marks: Sequence[str] = (), used: Collection[str] = ()) -> str:
    """Return instructions against the two most common failures of a run's turns, joined by "; or".

    Settings are written as options of the command `evaluate`.

    Args:
        kinds: name of a failure or cause -> number of turns with it.
        marks: marks of reasoning that answers contained.
        used: names of remedies that the agent already uses, which are left out.
    """
    common = [advice_text(f"faults/{kind}/remedies", LIKELIHOOD) for kind, _ in Counter(kinds).most_common(2)]
    names = [name for remedies in common for name in remedies.split(", ")]
    advised = [name for name in dict.fromkeys(names) if name not in used] or ["stronger"]
    return "; or ".join(remedy(name, marks, option=True) for name in advised)


def _setting(key: str, value: str, option: bool) -> str:
    """Return a setting written as an option of `evaluate` or as a line of a study."""
    if option:
        return f"--set {key}={value}" if value.isalnum() else f"--set '{key}={value}'"
    *outer, inner = key.split(".")
    text = f"{inner}: {value}"
    for name in reversed(outer):
        text = f"{name}: {{{text}}}"
    return text
