"""The vocabulary of Theseus: which pieces of text are one token, and the tokenizer built from them.

Pieces are matched longest first from the left; whatever no piece covers becomes bytes, so that every text survives
``decode(encode(text))``. Each cell of a grid with its blanks is one token, a row label carries the line break before
it (and so is another token than a column label), and a fixed passage of a prompt is one token however long it is.
"""

import re
from collections.abc import Sequence
from functools import cache

from goalscope.agents.prompts import TEMPLATES, passages, template
from goalscope.worlds.grid import ACTIONS, AGENT, DOOR, FOG, GOAL, KEY, OPEN, WALL
from training.tokens import END, MESSAGE, ROLES, SPECIAL, START, Vocabulary

SYSTEM_TEXT = "You are Theseus, a small language model that finds its way through grids of text."
SYMBOLS = (WALL, OPEN, GOAL, AGENT, KEY, DOOR, FOG)
MOST_LABELS = 15
"""Rows and columns that have tokens of their own; grids may be larger, their labels are then spelled in bytes."""
HEADER_WIDTHS = (5, 7, 9, 11, 13, 15)
"""Widths of grids whose header line is one token."""
TO, FROM, COLON = "to ", " from ", ":"
ANSWER, CLOSE = '{"action": "', '"}'
MOVES = tuple(f" {action.name}" for action in ACTIONS)
ACTION_NAMES = tuple(action.name for action in ACTIONS)
VOCABULARY_SIZE = 512


def cell_width(columns: int) -> int:
    """Return how many characters a cell of a grid with so many rows or columns takes, as `Grid.render` writes it."""
    return len(str(columns - 1))


def cell_piece(symbol: str, width: int) -> str:
    """Return the token of a cell in a grid whose cells are ``width`` characters wide."""
    return f" {symbol:>{width}}"


def row_piece(row: int, width: int) -> str:
    """Return the token of a row label; the line break before it belongs to it."""
    return f"\n{row:>{width}}"


def header_piece(columns: int) -> str:
    """Return the header line of a grid, which is one token."""
    width = cell_width(columns)
    return " " * width + "".join(f" {col:>{width}}" for col in range(columns))


def lines(passage: str) -> list[str]:
    """Split a passage that follows a grid into its lines, each with the line breaks around it.

    They are tokens of their own: the places where the model has seen the whole grid and nothing is asked of it yet.
    """
    return re.findall(r"\n*[^\n]+\n?", passage)


@cache
def pieces() -> tuple[str, ...]:
    """Return all pieces in the order of their ids, the special tokens first."""
    found: list[str] = [*SPECIAL, *ROLES]
    for width in (1, 2):
        found += [cell_piece(symbol, width) for symbol in SYMBOLS]
    found += [row_piece(row, 1) for row in range(10)]
    found += [row_piece(row, 2) for row in range(MOST_LABELS)]
    found += [header_piece(columns) for columns in HEADER_WIDTHS]
    found += [f"({row}" for row in range(MOST_LABELS)]
    found += [f",{col})" for col in range(MOST_LABELS)]
    found += [*MOVES, *ACTION_NAMES, TO, FROM, COLON, ANSWER, CLOSE, "\n", "yes", "no", "none", SYSTEM_TEXT]
    for name in TEMPLATES:
        *before, after = passages(template(name))
        found += [*before, *lines(after)]
    return tuple(dict.fromkeys(found))


@cache
def vocabulary() -> Vocabulary:
    """Return the vocabulary of Theseus."""
    return Vocabulary(size=VOCABULARY_SIZE, positions=1024, pieces=pieces(), opening=SYSTEM_TEXT)


def ids() -> dict[str, int]:
    """Return the id of each piece."""
    return vocabulary().ids


def encode(parts: Sequence[str]) -> list[int]:
    """Return the ids of pieces; see `Vocabulary.encode`."""
    return vocabulary().encode(parts)


def prompt_parts(name: str) -> tuple[list[str], list[str]]:
    """Return the pieces of a rendered prompt before and after the part that changes.

    Args:
        name: name of the template.

    Returns:
        The pieces up to the template's first placeholder and those after its last one.
    """
    first, *_, last = passages(template(name))
    opening = [START, "system", MESSAGE, SYSTEM_TEXT, END, START, "user", MESSAGE, first]
    return opening, [*lines(last), END, START, "assistant"]
