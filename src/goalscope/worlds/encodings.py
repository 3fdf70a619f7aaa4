"""Ways to write a grid in a prompt: as a matrix of symbols, a list of cells, or a list of cells with their neighbours.

From size 11 on, the matrix pads each cell to the width of the labels, so that columns align. The compact matrix does
not, so that a cell takes as many tokens in a large grid as in a small one.

All encodings write the same cells with the same one-character symbols. In the two lists, each line after the first
describes one cell, row by row, and begins with its symbol. Every cell therefore has a position in the text where its
activations can be read, whatever the encoding.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from goalscope.worlds.grid import ACTIONS, WALL, Position

MATRIX: Final = "matrix"
"""Name of the default encoding, which `Grid.render` writes."""

COMPACT: Final = "compact"
"""Name of the matrix without padding. Up to size 10 it is the matrix."""

Rows = Sequence[Sequence[str]]


def written(encoding: str, matrix: str) -> str:
    """Write a grid in one of the encodings.

    Args:
        encoding: one of `ENCODINGS`.
        matrix: the grid as `Grid.render` writes it, with any symbols; `WALL` marks the walls.

    Raises:
        ValueError: the encoding is unknown.
    """
    if check_encoding(encoding) == COMPACT:
        first, *rest = (" ".join(line.split()) for line in matrix.split("\n"))
        return "\n".join(["  " + first, *rest])
    write = _LISTS.get(encoding)
    if write is None:
        return matrix
    rows = [line.split()[1:] for line in matrix.split("\n")[1:]]
    lines = [f"{symbol} ({row},{col})" for row, cells in enumerate(rows) for col, symbol in enumerate(cells)]
    ends = [write(rows, (row, col)) for row, cells in enumerate(rows) for col in range(len(cells))]
    return "\n".join([f"{len(rows)} rows, {len(rows[0])} columns", *map("".join, zip(lines, ends, strict=True))])


def check_encoding(encoding: str) -> str:
    """Return the name of an encoding after checking it; raise a ValueError if the name is unknown."""
    if encoding not in ENCODINGS:
        raise ValueError(f"an encoding must be one of {', '.join(ENCODINGS)}, got {encoding!r}")
    return encoding


def cell_offsets(matrix: str, text: str) -> dict[Position, int] | None:
    """Return the character offset at which each cell of a grid appears in a text, whatever the grid's encoding there.

    If the text contains the grid several times, the last occurrence counts. If it contains several encodings, `MATRIX`
    takes precedence. The result is None if the text does not contain the grid.
    """
    for encoding in ENCODINGS:
        encoded = written(encoding, matrix)
        begin = text.rfind(encoded)
        if begin >= 0:
            return _in_list(matrix, encoded, begin) if encoding in LISTS else _in_matrix(encoded, begin)
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
    """Return the open cells next to a cell as text, in the order of the moves; a wall lists no neighbours."""
    if rows[cell[0]][cell[1]] == WALL:
        return ":"
    neighbours = [(cell[0] + down, cell[1] + right) for down, right in (action.delta for action in ACTIONS)]
    inside = [(row, col) for row, col in neighbours if 0 <= row < len(rows) and 0 <= col < len(rows[0])]
    open_cells = [f"({row},{col})" for row, col in inside if rows[row][col] != WALL]
    return " ".join([":", *open_cells])


_LISTS: Final[Mapping[str, Callable[[Rows, Position], str]]] = MappingProxyType(
    {"coordinates": lambda rows, cell: "", "adjacency": _neighbours}
)
LISTS: Final = tuple(_LISTS)
"""Names of the encodings as lists: of coordinates, and of neighbours (adjacency list)."""
ENCODINGS: Final = (MATRIX, *LISTS, COMPACT)
"""Names of all encodings."""
