"""Parse the text of options: lists, numbers, mappings, layers."""

import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

from goalscope._ground.untrusted import shorten

Number = TypeVar("Number", int, float)


def entries_of(option: str, text: str, kind: Any, separator: str) -> Any:
    """Parse the text of an option into the list or mapping that its type declares."""
    if get_origin(kind) is Mapping:
        return (margins_of if get_args(kind)[1] is float else tags_of)(option, text)
    (entry,) = get_args(kind)
    if entry in (int, float):
        return numbers(option, text, entry)
    return split_names(text) if separator == ";," else split(text, separator)


def split(text: str, separator: str = ",") -> list[str]:
    """Split a list that is written as one text; surrounding blanks and empty parts are dropped."""
    return [part.strip() for part in text.split(separator) if part.strip()]


def split_names(text: str) -> list[str]:
    """Split names at semicolons or, if the text has none, at commas outside of parentheses."""
    parts = text.split(";") if ";" in text else re.split(r",(?![^(]*\))", text)
    return [part.strip() for part in parts if part.strip()]


def numbers(option: str, text: str, kind: type[Number]) -> list[Number]:
    """Parse the numbers of an option, separated by commas."""
    try:
        values = [kind(part) for part in split(text)]
        finite = all(map(math.isfinite, values))
    except ValueError:
        finite = False
    if not finite:
        expected = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"{option} must be {expected} separated by commas, got {shorten(text)}: e.g. {option} 7,9")
    return values


def margins_of(option: str, text: str) -> dict[str, float]:
    """Parse numbers by name, e.g. ``success=0.1;action accuracy=0.05``."""
    margins = dict[str, float]()
    for part in split(text, ";"):
        name, _, number = (side.strip() for side in part.rpartition("="))
        try:
            margin = float(number)
        except ValueError:
            margin = math.nan
        if not name or name in margins or math.isnan(margin):
            raise ValueError(
                f"{option} must be MEASURE=NUMBER, separated by ';', with each measure only once, got {part!r}: "
                f"e.g. {option} 'success=0.1;action accuracy=0.05'"
            )
        margins[name] = margin
    return margins


def tags_of(option: str, text: str) -> dict[str, list[str]]:
    """Parse tags and their values, e.g. ``head=linear;head=mlp;control=none``."""
    chosen = dict[str, list[str]]()
    for part in split(text, ";"):
        tag, separator, value = (side.strip() for side in part.partition("="))
        if not (tag and separator and value):
            raise ValueError(
                f"{option} must be TAG=VALUE, separated by ';' (repeat a tag for further values), got {part!r}: e.g. "
                f"{option} 'head=linear;control=none'"
            )
        chosen.setdefault(tag, []).append(value)
    return chosen


def layers_of(text: str, *, first: int = 0) -> str | tuple[int, ...]:
    """Parse layers: "thirds", "all", or the numbers of decoder blocks, counted from ``first``."""
    if text in ("thirds", "all"):
        return text
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(re.fullmatch("-?[0-9]{1,9}", part) and int(part) >= first for part in parts):
        raise ValueError(
            f"--layers must be thirds, all, or block numbers >= {first} such as 7,15,23; got {shorten(text)}"
        )
    return tuple(map(int, parts))
