"""Where everything stands in a training sequence: prompt, trace and answer, and side branches that share the prompt.

A sequence is one prompt, the completion that belongs to it, and a number of branches. A branch continues the trace
after ``from `` with another cell of the same grid and the first moves from there: it sees the prompt and itself, never
the completion or another branch. So one reading of a grid trains the plans from many of its cells.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from goalscope.agents.prompts import NOTHING, passages, template
from training.tokens import CHANNEL, END, MESSAGE, PAD, RETURN, START
from training.vocabulary import (
    ANSWER,
    CLOSE,
    COLON,
    FROM,
    TO,
    cell_width,
    encode,
    header_piece,
    prompt_parts,
    row_piece,
)

MOST_MOVES = 16
"""Longest plan that a trace writes down, in moves."""
HEAD = (CHANNEL, "analysis", MESSAGE, TO)
TAIL = (END, START, "assistant", CHANNEL, "final", MESSAGE, ANSWER)
_MAIN = len(HEAD) + 2 + 1 + 2 + 1 + MOST_MOVES + len(TAIL) + 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Places in the sequences of one grid size.

    Attributes:
        template: ``[S]`` token ids of a sequence, `PAD` where it varies.
        cells: ``[n * n]`` places of the cells, by row.
        prompt: length of the prompt P.
        fork: place of ``from ``, the last token that the branches see, P + 6.
        branches: ``[K, b]`` places of each branch: row, column, colon and all but the last of its moves.
        positions: ``[S]`` rotary positions.
        allowed: ``[S, S]`` bool, which column a row may look at.
        wanted: ``[R]`` places whose next token is trained: the prompt's last token and all after it.
    """

    template: npt.NDArray[np.int64]
    cells: npt.NDArray[np.int64]
    prompt: int
    fork: int
    branches: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    allowed: npt.NDArray[np.bool_]
    wanted: npt.NDArray[np.int64]


@lru_cache(maxsize=256)
def prompt_layout(
    size: int, name: str = "grid", extra: tuple[str, ...] = (), lead: tuple[str, ...] = ()
) -> tuple[list[int], list[int]]:
    """Return the prompt's token ids with `PAD` for the cells, and the places of the cells.

    Args:
        size: rows and columns n.
        name: name of the template.
        extra: pieces between the grid and the template's last passage.
        lead: pieces between the template's first passage and the grid, `PAD` where they vary.
    """
    before, after = prompt_parts(name)
    tokens = encode([*before, *lead, header_piece(size)])
    pad = encode([PAD])[0]
    places = []
    for row in range(size):
        tokens.append(encode([row_piece(row, cell_width(size))])[0])
        places += list(range(len(tokens), len(tokens) + size))
        tokens += [pad] * size
    return tokens + encode([*extra, *after]), places


@lru_cache(maxsize=256)
def layout(
    size: int,
    count: int,
    moves: int,
    name: str = "grid",
    extra: tuple[str, ...] = (),
    lead: tuple[str, ...] = (),
) -> Layout:
    """Return the layout of a grid size.

    Args:
        size: rows and columns n.
        count: number of branches K.
        moves: moves that each branch is asked for.
        name: name of the prompt template.
        extra: pieces between the grid and the template's last passage.
        lead: pieces between the template's first passage and the grid, `PAD` where they vary.
    """
    opening, places = prompt_layout(size, name, extra, lead)
    prompt = len(opening)
    each = 3 + moves - 1 if count else 0
    length = prompt + _MAIN + count * each
    template = np.full(length, encode([PAD])[0], dtype=np.int64)
    template[:prompt] = opening
    template[prompt : prompt + len(HEAD)] = encode(HEAD)
    fork = prompt + len(HEAD) + 2
    template[fork] = encode([FROM])[0]
    template[fork + 3] = encode([COLON])[0]
    branches = prompt + _MAIN + np.arange(count * each).reshape(count, each)
    positions = np.arange(length)
    allowed = np.tri(length, dtype=bool)
    if count:
        template[branches[:, 2]] = encode([COLON])[0]
        positions[branches] = fork + 1 + np.arange(each)
        allowed[branches.min() :, fork + 1 :] = False
        for places_of in branches:
            allowed[np.ix_(places_of, places_of)] = np.tri(each, dtype=bool)
    return Layout(
        template=template,
        cells=np.array(places),
        prompt=prompt,
        fork=fork,
        branches=branches,
        positions=positions,
        allowed=allowed,
        wanted=np.arange(prompt - 1, length),
    )


def history_lead(steps: int) -> tuple[str, ...]:
    """Return the pieces before a grid under fog: the passage, and before it row, column and move of each step as `PAD`.

    Args:
        steps: steps so far.
    """
    passage = passages(template("fog"))[1]
    if steps == 0:
        return (NOTHING, passage)
    return (*((PAD,) * 3 + ("\n",)) * (steps - 1), PAD, PAD, PAD, passage)


def closing() -> tuple[list[int], list[int]]:
    """Return the token ids of the tail before the action, and of what follows the action."""
    return encode(TAIL), encode([CLOSE, RETURN])
