"""Remove API keys from texts that are stored or printed, in all forms in which a server may echo them.

A key is hidden if it appears plain, reversed, percent-encoded, escaped for JSON or HTML, in hexadecimal digits, or
inside base64 of any alignment (``user:key``, ``Bearer key``). In messages, the visible rest of a masked key is hidden
as well: ``sk-...wxyz``, ``abcd****``, or its last characters alone. A key that is a short or ordinary word ("test",
"EMPTY") is not a secret, and hiding it would destroy ordinary text, so it is left unchanged.
"""

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import Any, Final
from urllib.parse import quote

HIDDEN: Final = "***"
LEAST: Final = 8
"""Minimum number of characters of a key that is hidden."""

_LONGEST_WORD: Final = 20  # a key of up to so many letters, all of one case, counts as a word
_LEAST_TAIL: Final = 4  # minimum characters from the end of a key that are hidden if they stand alone
_LEAST_MASKED: Final = 2  # minimum characters from the end of a key that are hidden next to a mask
_BASE64: Final = "[A-Za-z0-9+/_-]{0,2}"  # base64 characters that mix bits of the key and of its neighbours
_MASK: Final = r"(?:[*•…]+|\.{2,}|x{3,}|X{3,}|#{2,}|[\[(<](?i:redacted|hidden|masked)[\])>])"


def is_secret(key: str) -> bool:
    """Return whether a key can be recognised in a text: it is long enough, and not an ordinary word."""
    word = key.isalpha() and (key[1:].islower() or key.isupper()) and len(key) <= _LONGEST_WORD
    return len(key) >= LEAST and not word


def hide(text: str, key: str) -> str:
    """Remove a key in all its forms from a text."""
    if not is_secret(key):
        return text
    literals, pattern = _forms(key)
    lower = text.lower()
    return pattern.sub(HIDDEN, text) if any(literal in lower for literal in literals) else text


def hide_in(document: Any, key: str) -> None:
    """Remove a key from all values of a JSON document, in place."""
    waiting = [document] if is_secret(key) and isinstance(document, dict | list) else []
    while waiting:
        item = waiting.pop()
        for place, value in item.items() if isinstance(item, dict) else enumerate(item):
            if isinstance(value, str):
                item[place] = hide(value, key)
            elif isinstance(value, dict | list):
                waiting.append(value)


def hide_in_message(text: str, key: str) -> str:
    """Remove a key in all its forms from a server's message, including the visible rest of a masked key."""
    return _remains(key).sub(HIDDEN, hide(text, key)) if is_secret(key) else text


@lru_cache(maxsize=64)
def _forms(key: str) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Return lower-case texts and the pattern of all forms of a key; every match contains one of the texts."""
    octets = key.encode("utf-8", "surrogatepass")
    plain = {key, key[::-1], json.dumps(key)[1:-1], json.dumps(json.dumps(key))[3:-3], escape(key), repr(key)[1:-1]}
    either_case = {quote(octets, safe=""), quote(octets), octets.hex(), octets[::-1].hex()} - plain
    cores = set[str]()
    for encode in (b64encode, urlsafe_b64encode):
        for offset in range(3):
            # Only characters whose bits all belong to the key, since the bytes before and after it are unknown.
            begin, end = -(-8 * offset // 6), 8 * (offset + len(octets)) // 6
            cores.add(encode(bytes(offset) + octets + bytes(2))[begin:end].decode())
    alternatives = [re.escape(form) for form in sorted(plain, key=len, reverse=True)]
    alternatives += [f"(?i:{re.escape(form)})" for form in sorted(either_case)]
    alternatives += [f"{_BASE64}{re.escape(core)}{_BASE64}=*" for core in sorted(cores)]
    literals = tuple(sorted({form.lower() for form in (*plain, *either_case, *cores)}))
    return literals, re.compile("|".join(alternatives))


@lru_cache(maxsize=64)
def _remains(key: str) -> re.Pattern[str]:
    """Return the pattern of a key's ends next to a mask, of its beginning next to a mask, and of its end alone."""
    ends = [key[-size:] for size in range(len(key) - 1, _LEAST_MASKED - 1, -1)]
    heads, tails = (_any_of(texts) for texts in ([key[: len(end)] for end in ends], ends))
    alternatives = [
        rf"(?:{heads})?{_MASK}\s?(?:{tails})(?!\w)",
        rf"(?<!\w)(?:{heads}){_MASK}[\w-]*",
        rf"(?i:\bend(?:s|ing)? (?:in|with)\W{{1,3}})(?:{tails})(?!\w)",
    ]
    if len(key) > 2 * LEAST:
        alternatives.append(rf"{re.escape(key[:LEAST])}[\w-]*")
    if telling := [end for end in ends if len(end) >= _LEAST_TAIL and _is_telling(end)]:
        alternatives.append(rf"(?<!\w)(?:{_any_of(telling)})(?!\w)")
    return re.compile("|".join(alternatives))


def _is_telling(end: str) -> bool:
    """Return whether the end of a key is neither a word nor a number, so that it can be recognised."""
    letters = "".join(filter(str.isalpha, end))
    mixed = not (letters[1:].islower() or letters.isupper() or len(letters) < 2)
    return mixed or (bool(letters) and any(map(str.isdigit, end)))


def _any_of(texts: Sequence[str]) -> str:
    return "|".join(map(re.escape, dict.fromkeys(texts)))
