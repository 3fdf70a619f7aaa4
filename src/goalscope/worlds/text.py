"""The text form of a grid and its inverse."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from goalscope.worlds.grid import AGENT, DOOR, FOG, GOAL, KEY, OPEN, WALL, Grid, Position

_OBJECTS = {AGENT: "start", GOAL: "goal", KEY: "key", DOOR: "door"}
_SYMBOLS = {WALL, OPEN, FOG, *_OBJECTS}


def symbols(grid: Grid) -> npt.NDArray[np.str_]:
    """Return the symbol of each cell, ``[H, W]`` one-character text."""
    cells = np.where(grid.walls, WALL, OPEN).astype("<U1")
    if grid.fog is not None:
        cells[grid.fog] = FOG
    for symbol, name in _OBJECTS.items():
        cell: Position | None = getattr(grid, name)
        if cell is not None:
            cells[cell] = symbol
    return cells


def render(grid: Grid) -> str:
    """Return the text form of a grid: labels and cells right-justified to one width, separated by one blank.

    Grids of at most 10 rows and columns have cells of width 1; larger ones of width 2, so that columns stay aligned
    under their labels.
    """
    width = len(str(max(grid.height, grid.width) - 1))
    lines = [" ".join([" " * width, *(f"{col:>{width}}" for col in range(grid.width))])]
    for row, cells in enumerate(symbols(grid)):
        lines.append(" ".join([f"{row:>{width}}", *(f"{cell:>{width}}" for cell in cells)]))
    return "\n".join(lines)


def parse(text: str | Sequence[str] | Sequence[Sequence[str]]) -> Grid:
    """Read a grid; see `Grid.parse`."""
    rows = _cells(text)
    width = len(rows[0][1])
    found: dict[str, Position] = {}
    walls = np.zeros((len(rows), width), dtype=bool)
    fog = np.zeros_like(walls)
    for row, (line, cells) in enumerate(rows):
        if len(cells) != width:
            raise ValueError(
                f"every row of a grid must have the same number of cells: line {line} has {len(cells)}, "
                f"the first row has {width}"
            )
        for col, symbol in enumerate(cells):
            if symbol not in _SYMBOLS:
                known = " ".join(sorted(_SYMBOLS))
                raise ValueError(f"a cell must be one of {known}: line {line}, column {col} holds {symbol!r}")
            if symbol in _OBJECTS:
                name = _OBJECTS[symbol]
                if name in found:
                    raise ValueError(
                        f"a grid must hold at most one {symbol!r}: line {line} has a second one at (row, col) = "
                        f"{(row, col)}, the first is at {found[name]}"
                    )
                found[name] = (row, col)
            walls[row, col] = symbol == WALL
            fog[row, col] = symbol == FOG
    return Grid(walls=walls, fog=fog if fog.any() else None, **found)


def _cells(text: str | Sequence[str] | Sequence[Sequence[str]]) -> list[tuple[int, list[str]]]:
    """Return (line number, cells) of each row with the labels checked and taken off."""
    if not isinstance(text, str | Sequence):
        raise TypeError(f"a grid must be a text, a list of lines or a list of rows, got {type(text).__name__}")
    lines = text.splitlines() if isinstance(text, str) else list(text)
    split = [(number, _split(line, number)) for number, line in enumerate(lines, start=1)]
    filled = [index for index, (_, tokens) in enumerate(split) if tokens]
    if not filled:
        raise ValueError("a grid must have at least one row, got an empty text")
    split = split[filled[0] : filled[-1] + 1]
    for number, tokens in split:
        if not tokens:
            raise ValueError(f"the rows of a grid must follow one another, got a blank line as line {number}")
    if not _is_label(split[0][1][0]):
        return _unspaced(split)
    header = split[0][1]
    if header != [str(col) for col in range(len(header))]:
        raise ValueError(f"the header must count the columns from 0, got line {split[0][0]}: {' '.join(header)!r}")
    rows = split[1:]
    if not rows:
        raise ValueError("a grid must have at least one row below its header, got the header alone")
    for index, (number, tokens) in enumerate(rows):
        if tokens[0] != str(index):
            raise ValueError(f"row labels must count from 0: line {number} must start with {index}, got {tokens[0]!r}")
    if len(rows[0][1]) - 1 != len(header):
        raise ValueError(
            f"the header must have a label for each column: {len(header)} labels, "
            f"{len(rows[0][1]) - 1} cells in line {rows[0][0]}"
        )
    return [(number, tokens[1:]) for number, tokens in rows]


def _split(line: str | Sequence[str], number: int) -> list[str]:
    if isinstance(line, str):
        return line.split()
    if not isinstance(line, Sequence) or not all(isinstance(cell, str) for cell in line):
        raise ValueError(f"a row must be a text or a list of symbols, got {line!r} as line {number}")
    return list(line)


def _is_label(token: str) -> bool:
    return token.isascii() and token.isdigit()


def _unspaced(split: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Take lines such as ``#A_G#`` apart where no line has a blank in it."""
    if all(len(tokens) == 1 for _, tokens in split):
        return [(number, list(tokens[0])) for number, tokens in split]
    return split
