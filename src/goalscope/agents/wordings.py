"""Other wordings of the prompt for grids: five paraphrases, renamed symbols, labels in another order.

Each says what the usual prompt says and no more: the same facts, the same example of a grid, the same form of the
answer. So an agent that reads what it is told acts alike under all of them. A wording is a value of `WORDINGS`; the
texts of the paraphrases lie in ``prompts/wordings``, the others are the usual text with declared changes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Final

from goalscope.agents.prompts import SUFFIXES, bundled, template
from goalscope.worlds.grid import AGENT, GOAL, OPEN, WALL

_SECTION = re.compile(r"^\[([a-z]+)\]\n", re.MULTILINE)
_LEGEND = re.compile(rf"^([{WALL}{OPEN}{GOAL}{AGENT}]) (?=an? |the )", re.MULTILINE)
_ROW = re.compile(rf"^\d+(?: [{WALL}{OPEN}{GOAL}{AGENT}])+$", re.MULTILINE)
_TO_GOAL: Final = f"from {AGENT} to {GOAL}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """One wording.

    Attributes:
        paraphrase: name of the text in ``prompts/wordings``, "" for the usual one.
        symbols: symbol of a cell -> what stands in its place, in the grid and in the text.
        reversed: whether the symbols of the legend and the names of the moves stand in the opposite order.
    """

    paraphrase: str = ""
    symbols: Mapping[str, str] = field(default_factory=dict)
    reversed: bool = False


PARAPHRASES: Final = ("terse", "formal", "question", "list", "spoken")
"""The paraphrases, by the names of their files."""

WORDINGS: Final[Mapping[str, Wording]] = MappingProxyType(
    {
        **{name: Wording(paraphrase=name) for name in PARAPHRASES},
        "symbols": Wording(symbols=MappingProxyType({WALL: "X", OPEN: ".", GOAL: "T", AGENT: "P"})),
        "order": Wording(reversed=True),
    }
)
"""All wordings but the usual one, by name."""


def wording(name: str) -> Wording:
    """Return a wording by name; the usual one for "".

    Raises:
        ValueError: an unknown name.
    """
    if name and name not in WORDINGS:
        raise ValueError(f"a wording must be one of {', '.join(WORDINGS)}, got {name!r}")
    return WORDINGS[name] if name else Wording()


@cache
def worded(name: str, form: str) -> str:
    """Return the template of the task grid in a wording.

    Args:
        name: one of `WORDINGS`, "" for the usual one.
        form: one of the forms of bundled templates.

    Raises:
        ValueError: an unknown name or form.
    """
    found = wording(name)
    text = _paraphrase(found.paraphrase, form) if found.paraphrase else template("grid", form)
    if found.symbols:
        text = _renamed(text, found.symbols)
    return _reversed(text) if found.reversed else text


def symbols_of(name: str) -> Mapping[str, str]:
    """Return the symbols of cells that a wording replaces, and by what."""
    return wording(name).symbols


def drawn_in(name: str, grid: str) -> str:
    """Return the text of a grid in the symbols of a wording."""
    return grid.translate(_table(symbols_of(name)))


def naming(text: str) -> str:
    """Return the template of the task grid with ``{{aim}}`` for the place to go to.

    Raises:
        ValueError: the text does not say once where to go.
    """
    if text.count(_TO_GOAL) != 1:
        raise ValueError(f"a template must say {_TO_GOAL!r} once for a place to be named, got {text.count(_TO_GOAL)}")
    return text.replace(_TO_GOAL, f"from {AGENT} to {{{{aim}}}}")


def _paraphrase(name: str, form: str) -> str:
    """Return a paraphrase: its text for chats with the answer in that form, or its text for base models."""
    if form not in SUFFIXES:
        raise ValueError(f"the form of a bundled template must be one of {', '.join(SUFFIXES)}, got {form!r}")
    parts = _SECTION.split(bundled("wordings", f"{name}.txt"))
    sections = {title: text.strip("\n") for title, text in zip(parts[1::2], parts[2::2], strict=True)}
    return sections[form] if form == "completion" else f"{sections['chat']}\n\n{sections[form]}"


def _renamed(text: str, symbols: Mapping[str, str]) -> str:
    """Return a text with other symbols where it means cells: in legend, task and example, not in its words."""
    table = _table(symbols)
    text = _LEGEND.sub(lambda found: found.group().translate(table), text)
    text = _ROW.sub(lambda found: found.group().translate(table), text)
    return text.replace(_TO_GOAL, f"from {symbols[AGENT]} to {symbols[GOAL]}")


def _table(symbols: Mapping[str, str]) -> dict[int, str]:
    return {ord(symbol): other for symbol, other in symbols.items()}


def _reversed(text: str) -> str:
    """Return a text with the lines of its legend, and the names of the moves wherever they are listed, turned round."""
    text = _blocks_reversed(text, _LEGEND)
    text = _blocks_reversed(text, re.compile(r"^(?:UP|DOWN|LEFT|RIGHT) to ", re.MULTILINE))
    for given, turned in (
        ("UP|DOWN|LEFT|RIGHT", "RIGHT|LEFT|DOWN|UP"),
        ("UP, DOWN, LEFT or RIGHT", "RIGHT, LEFT, DOWN or UP"),
    ):
        text = text.replace(given, turned)
    return text


def _blocks_reversed(text: str, begins: re.Pattern[str]) -> str:
    """Return a text with the lines that begin so, which follow one another, in the opposite order."""
    lines = text.split("\n")
    places = [number for number, line in enumerate(lines) if begins.match(line)]
    for place, line in zip(places, [lines[number] for number in places[::-1]], strict=True):
        lines[place] = line
    return "\n".join(lines)
