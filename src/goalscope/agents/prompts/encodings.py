"""Bundled templates that show grids in another encoding: one sentence and the example differ from the usual ones."""

import re
from typing import Final

from goalscope.worlds.encodings import MATRIX, check_encoding, written

_MATRIX: Final = (
    "ymbols are separated by blanks. The first line numbers the columns, and every further line begins with the number "
    "of its row"
)
_LIST: Final = (
    "is a list of its cells, row by row. The first line says how many rows and columns there are, and every further "
    "line is one cell: its symbol, and then its position (row,col)"
)
_READING: Final = {
    "coordinates": _LIST,
    "adjacency": f"{_LIST}, and after the colon the positions of the cells next to it that are no walls, where the "
    "cell itself is none",
}
_EXAMPLE: Final = re.compile(r"^ +0 1.*(?:\n\d.*)+", re.MULTILINE)


def encoded_template(text: str, encoding: str) -> str:
    """Return a bundled template for grids, rewritten for an encoding.

    Raises:
        ValueError: the encoding is unknown, or the text does not explain how to read the matrix.
    """
    if check_encoding(encoding) == MATRIX:
        return text
    for begin, subject in (("s", "it"), ("S", "Each grid")):
        if begin + _MATRIX in text:
            text = text.replace(begin + _MATRIX, f"{subject} {_READING[encoding]}")
            return _EXAMPLE.sub(lambda match: written(encoding, match.group()), text)
    raise ValueError(
        f"encoding works only with prompts that show a grid as a matrix (tasks grid, key-door, fog, named), got "
        f"{encoding!r} for another text: leave encoding out"
    )
