"""A second parser of answers, written from the grammar on top of the first one alone; they share no line.

It is plain rather than fast: the text becomes a list of tokens, tokens become trees, and each rule is a
function of these.
"""

import json
from dataclasses import dataclass
from typing import Any

from goalscope.agents.models.marks import left_over

SIGNS = "{}:,[]"
OTHER = object()
"""A value that is no action."""


@dataclass(frozen=True)
class Token:
    at: int
    sign: bool
    says: str


def verdict(text: str, names: tuple[str, ...], *, truncated: bool = False) -> str:
    """Return the name of the action in upper case, or that of the failure."""
    text = text.strip()
    if not text:
        return "truncated" if truncated else "empty"
    if left_over(text):
        return "markers"
    whole = one_object(text)
    if whole is not None:
        stated, mentioned = whole
    else:
        tokens, openings = tokens_of(text)
        if open_ended(text, tokens):
            return "truncated"
        if truncated and not begins_with_action(text, tokens):
            return "truncated"
        stated = statements(tokens, openings)
        last = max((token.at for token in tokens if token.sign and token.says == "}"), default=-1)
        mentioned = [value for at, value in mentions(tokens) if at <= last]
    if not stated:
        return "truncated" if truncated else "no JSON"
    values = {compared(value) for value in [*stated, *mentioned]}
    if len(values) > 1:
        return "two different actions"
    (value,) = values
    return value if value in {compared(name) for name in names} else "unknown action"


def compared(value: Any) -> Any:
    if not isinstance(value, str):
        return type(value).__name__, "is no text"
    return value.strip().upper() if value.strip().isascii() else value.strip()


def is_action(key: str) -> bool:
    return key.strip().lower() == "action"


# JSON


class Pairs(list[tuple[str, Any]]):
    """The members of an object, each in its place, keys that stand twice included."""


def one_object(text: str) -> tuple[list[Any], list[Any]] | None:
    try:
        found = json.loads(text, object_pairs_hook=Pairs)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, Pairs):
        return None
    mentioned: list[Any] = []
    waiting: list[Any] = [found]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Pairs):
            mentioned += [plain(inner) for key, inner in value if is_action(key)]
            waiting += [inner for _, inner in value]
        elif isinstance(value, list):
            waiting += value
    return [plain(value) for key, value in found if is_action(key)], mentioned


def plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Pairs) else value


# Pieces


def tokens_of(text: str) -> tuple[list[Token], list[tuple[int, str]]]:
    """Return the pieces inside of braces, and the brackets outside of them with their places."""
    tokens: list[Token] = []
    outside: list[tuple[int, str]] = []
    at = depth = 0
    while at < len(text):
        if depth == 0:
            sign = text[at]
            if sign in "[]" and not (at and text[at - 1] == "\\"):
                outside.append((at, sign))
            if sign != "{":
                at += 1
                continue
        end, token = piece(text, at)
        at = end
        if token is None:
            continue
        tokens.append(token)
        if token.sign:
            depth += (token.says == "{") - (token.says == "}")
    return tokens, outside


def piece(text: str, at: int) -> tuple[int, Token | None]:
    first = text[at]
    if first.isspace():
        return at + 1, None
    if first in SIGNS:
        return at + 1, Token(at, True, first)
    inside_word = at > 0 and (text[at - 1].isalnum() or text[at - 1] == "_")
    if first == '"' or (first == "'" and not inside_word):
        end = closing(text, at)
        if end is not None:
            return end + 1, Token(at, False, said(text[at : end + 1]))
    if first == "\\":
        return min(at + 2, len(text)), Token(at, False, text[at : at + 2])
    if first in "\"'":
        return at + 1, Token(at, False, first)
    end = at
    while end < len(text) and not text[end].isspace() and text[end] not in SIGNS + "\"'\\":
        end += 1
    return end, Token(at, False, text[at:end])


def closing(text: str, at: int) -> int | None:
    """Return where the quoted text ends that begins here."""
    place = at + 1
    while place < len(text):
        if text[place] == text[at]:
            return place
        place += 2 if text[place] == "\\" else 1
    return None


def said(quoted: str) -> str:
    if quoted[0] == '"' and "\\" in quoted:
        try:
            return str(json.loads(quoted, strict=False))
        except ValueError:
            return quoted[1:-1]
    return quoted[1:-1]


# What is stated and mentioned


def statements(tokens: list[Token], outside: list[tuple[int, str]]) -> list[Any]:
    found: list[tuple[int, Any]] = []
    start = depth = 0
    for index, token in enumerate(tokens):
        if token.sign and token.says == "{":
            start, depth = (index, 1) if depth == 0 else (start, depth + 1)
        elif token.sign and token.says == "}":
            depth -= 1
            if depth == 0:
                found += [(tokens[start].at, value) for value in values_of(tokens[start : index + 1])]
    return [value for at, value in found if not in_array(at, outside)]


def begins_with_action(text: str, tokens: list[Token]) -> bool:
    """Whether the first object of a text states something, with nothing but the opening of a code fence before it."""
    before, _, _ = text.partition("{")
    fence = before.removeprefix("```")
    word = fence.strip()
    if before and (fence == before or not all(letter.isalnum() or letter == "_" for letter in word)):
        return False
    if fence[: len(fence) - len(fence.lstrip())].strip(" \t") and word:
        return False  # the word stands in another line than the fence
    depth = 0
    for index, token in enumerate(tokens):
        depth += is_sign(token, "{") - is_sign(token, "}")
        if depth == 0:
            return bool(values_of(tokens[: index + 1]))
    return False


def in_array(at: int, outside: list[tuple[int, str]]) -> bool:
    opened: list[int] = []
    for place, sign in outside:
        if sign == "[":
            opened.append(place)
        elif opened and opened.pop() < at < place:
            return True
    return False


def values_of(tokens: list[Token]) -> list[Any]:
    """Return the values that an outermost object states; none where it does not count."""
    braces = next((index for index, token in enumerate(tokens) if not is_sign(token, "{")), len(tokens))
    rest, stated = tokens[braces:], list[Any]()
    while rest and not is_sign(rest[0], "}"):
        if len(rest) < 2 or rest[0].sign or not is_sign(rest[1], ":"):
            return []
        key, value = rest[0].says, value_of(rest[2:])
        if value and is_action(key):
            stated.append(value[0].says if len(value) == 1 and not value[0].sign else OTHER)
        rest = rest[2 + len(value) :]
        if rest and is_sign(rest[0], ","):
            rest = rest[1:]
    return stated if len(rest) == braces and all(is_sign(token, "}") for token in rest) else []


def value_of(rest: list[Token]) -> list[Token]:
    """Return the pieces of a value, which ends before a comma or a brace that is inside of nothing."""
    opened = 0
    for index, token in enumerate(rest):
        if opened == 0 and token.sign and token.says in ",}":
            return rest[:index]
        if token.sign:
            opened = max(0, opened + (token.says in "{[") - (token.says in "}]"))
    return rest


def is_sign(token: Token, sign: str) -> bool:
    return token.sign and token.says == sign


def mentions(tokens: list[Token]) -> list[tuple[int, Any]]:
    """Return where each mention was complete, and its value."""
    found = []
    for key, colon, value, after in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        if is_action(key.says) and colon.says == ":" and value.says not in ("}", ","):
            found.append((after.at, value.says if after.sign and after.says in "}," else OTHER))
    return found


def open_ended(text: str, tokens: list[Token]) -> bool:
    last = {sign: max((token.at for token in tokens if is_sign(token, sign)), default=-1) for sign in "{}"}
    if any(at > last["}"] for at, _ in mentions(tokens)):
        return True
    if last["{"] <= last["}"]:
        return False
    inside = text[last["{"] :]
    return len(inside) < 12 or opened_key(inside)


def opened_key(inside: str) -> bool:
    """Whether ``action`` stands in a text as a key may stand, before a colon or at its end."""
    for at in range(len(inside) - 5):
        word, before = inside[at : at + 6], inside[at - 1 : at]
        if not word.isascii() or word.lower() != "action":
            continue
        if before and before.isascii() and (before.isalnum() or before in "_-"):
            continue
        rest = inside[at + 6 :]
        rest = rest[1:] if rest[:1] in ("'", '"') else rest
        rest = rest.lstrip(" \t\n\r\f\v")
        if not rest or rest.startswith(":"):
            return True
    return False
