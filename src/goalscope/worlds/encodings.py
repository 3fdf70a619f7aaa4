"""Encodings of a grid in a prompt: the matrix of its symbols, a list of its cells, and a list of their neighbours.

All three hold the same cells with the same symbols, one symbol a cell. In a list each line after the first is one
cell, row by row, and begins with its symbol: a cell has its place in the text, and activations can be read there,
whatever the encoding.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from goalscope.worlds.grid import ACTIONS, WALL, Position

MATRIX: Final = "matrix"
"""Name of the usual encoding, which `Grid.render` writes."""

Rows = Sequence[Sequence[str]]


def written(encoding: str, matrix: str) -> str:
    """Return a grid in an encoding.

    Args:
        encoding: one of `ENCODINGS`.
        matrix: the grid as `Grid.render` writes it, with any symbols; walls are those of `WALL`.

    Raises:
        ValueError: an unknown encoding.
    """
    check_encoding(encoding)
    write = _LISTS.get(encoding)
    if write is None:
        return matrix
    rows = [line.split()[1:] for line in matrix.split("\n")[1:]]
    lines = [f"{symbol} ({row},{col})" for row, cells in enumerate(rows) for col, symbol in enumerate(cells)]
    ends = [write(rows, (row, col)) for row, cells in enumerate(rows) for col in range(len(cells))]
    return "\n".join([f"{len(rows)} rows, {len(rows[0])} columns", *map("".join, zip(lines, ends, strict=True))])


def check_encoding(encoding: str) -> str:
    """Return the name of an encoding; a ValueError where there is none of that name."""
    if encoding not in ENCODINGS:
        raise ValueError(f"an encoding must be one of {', '.join(ENCODINGS)}, got {encoding!r}")
    return encoding


def cell_offsets(matrix: str, text: str) -> dict[Position, int] | None:
    """Return the character of a text that each cell of a grid stands at, in whatever encoding the text holds it.

    The last occurrence counts; of several encodings the usual one. None where the text holds none of them.
    """
    for encoding in ENCODINGS:
        encoded = written(encoding, matrix)
        begin = text.rfind(encoded)
        if begin >= 0:
            return _in_matrix(encoded, begin) if encoding == MATRIX else _in_list(matrix, encoded, begin)
    return None


def _in_matrix(matrix: str, begin: int) -> dict[Position, int]:
    offsets: dict[Position, int] = {}
    for number, line in enumerate(matrix.split("\n")):
        columns = [index for index, char in enumerate(line) if char != " " and (index == 0 or line[index - 1] == " ")]
        if number:  # the first line labels the columns; every further one begins with the label of its row
            for col, column in enumerate(columns[1:]):
                offsets[number - 1, col] = begin + column
        begin += len(line) + 1
    return offsets


def _in_list(matrix: str, encoded: str, begin: int) -> dict[Position, int]:
    width = len(matrix.split("\n", 1)[0].split())
    first, *lines = encoded.split("\n")
    begin += len(first) + 1
    offsets: dict[Position, int] = {}
    for number, line in enumerate(lines):
        offsets[divmod(number, width)] = begin
        begin += len(line) + 1
    return offsets


def _neighbours(rows: Rows, cell: Position) -> str:
    """Return the cells beside one that are no walls, in the order of the moves; none of a wall."""
    if rows[cell[0]][cell[1]] == WALL:
        return ":"
    neighbours = [(cell[0] + down, cell[1] + right) for down, right in (action.delta for action in ACTIONS)]
    inside = [(row, col) for row, col in neighbours if 0 <= row < len(rows) and 0 <= col < len(rows[0])]
    open_cells = [f"({row},{col})" for row, col in inside if rows[row][col] != WALL]
    return " ".join([":", *open_cells])


_LISTS: Final[Mapping[str, Callable[[Rows, Position], str]]] = MappingProxyType(
    {"coordinates": lambda rows, cell: "", "adjacency": _neighbours}
)
ENCODINGS: Final = (MATRIX, *_LISTS)
"""The matrix, the list of coordinates, and the list of neighbours (adjacency list)."""
