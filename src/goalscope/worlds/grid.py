"""Grids: cells, positions, actions, and the ways to write a grid as text.

Coordinates are ``(row, col)`` with row 0 at the top, so `Action.UP` decreases the row by 1.

A prompt shows a grid as a matrix of symbols, a list of cells, or a list of cells with their neighbours. From size 11
on, the matrix pads each cell to the width of the labels, so that columns align. The compact matrix does not, so that a
cell takes as many tokens in a large grid as in a small one.

All encodings write the same cells with the same one-character symbols. In the two lists, each line after the first
describes one cell, row by row, and begins with its symbol. Every cell therefore has a position in the text where its
activations can be read, whatever the encoding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import freeze, is_whole
from goalscope.worlds.things import Thing, UnknownSymbolError, kind_of, kinds, known_kind

Position = tuple[int, int]
Side = Literal["left", "right", "top", "bottom"]
Rows = Sequence[Sequence[str]]


class Action(IntEnum):
    """The four moves on a grid; the value of each move is its index on the action axis of arrays."""

    UP = 0
    DOWN = 1
    LEFT = 2
    RIGHT = 3

    @property
    def delta(self) -> Position:
        """Change of ``(row, col)`` by this move if nothing blocks it."""
        return _DELTAS[self]

    @property
    def opposite(self) -> "Action":
        """The move in the opposite direction."""
        return Action(self ^ 1)


_DELTAS = ((-1, 0), (1, 0), (0, -1), (0, 1))
ACTIONS = tuple(Action)
CORNERS: Final[Mapping[str, tuple[int, int]]] = {
    "top-left": (0, 0),
    "top-right": (0, -1),
    "bottom-left": (-1, 0),
    "bottom-right": (-1, -1),
}
"""Name of each corner -> its (row, column) indices, where -1 is the last row or column."""
DELTAS: npt.NDArray[np.int64] = freeze(np.array(_DELTAS, dtype=np.int64))
"""``[4, 2]`` change of (row, col) by each action, in the order of `Action`."""

WALL, OPEN, GOAL, AGENT, KEY, DOOR, FOG = "#", "_", "G", "A", "K", "D", "*"
"""The symbols of the text form."""

_OBJECTS = {AGENT: "start", GOAL: "goal", KEY: "key", DOOR: "door"}
SYMBOLS: Final = (WALL, OPEN, FOG, *_OBJECTS)
"""All symbols that a cell without a thing can have."""

OPEN_ELSEWHERE: Final = (" ", ".", "")
"""Symbols that other programs write for an open cell; `Grid.parse` refuses them, `read_open_cells` replaces them."""


MATRIX: Final = "matrix"
"""Name of the default encoding, which `Grid.render` writes."""

COMPACT: Final = "compact"
"""Name of the matrix without padding. Up to size 10 it is the matrix."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """A grid as it looks at one moment: walls, the agent's cell, goal, key, door, optional things and fog.

    Attributes:
        walls: ``[H, W]`` bool, rows by columns, True for walls.
        start: cell of the agent, (row, col); None if the grid shows no agent.
        goal: cell of the goal, None if the grid shows no goal (it lies under fog, or beneath the agent).
        key: cell of a key on the ground, None if there is no key or the agent carries it.
        door: cell of a locked door, None if there is no door or it is open.
        fog: ``[H, W]`` bool, True for hidden cells; None for a fully observed grid.
        things: cell and symbol of each thing, such as a coin (see `goalscope.worlds.things`), sorted by cell. The agent
            may stand on a thing, which the text then hides.
        held: symbols of what the agent carries, sorted: `KEY` for the key, those of things otherwise. Empty in a
            world; the text does not show it.

    Raises:
        ValueError: if an object or thing lies outside the grid, on a wall or on another one, there are walls under fog,
            or no kind of thing is registered for a symbol.
    """

    walls: npt.NDArray[np.bool_]
    start: Position | None = None
    goal: Position | None = None
    key: Position | None = None
    door: Position | None = None
    fog: npt.NDArray[np.bool_] | None = None
    things: tuple[Thing, ...] = ()
    held: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        walls = np.asarray(self.walls)
        if walls.ndim != 2 or walls.size == 0 or walls.dtype != np.bool_:
            raise ValueError(f"walls must be a non-empty boolean array [H, W], got {walls.dtype} {list(walls.shape)}")
        object.__setattr__(self, "walls", freeze(walls))
        if self.fog is not None:
            fog = np.asarray(self.fog)
            if fog.shape != walls.shape or fog.dtype != np.bool_:
                raise ValueError(
                    f"fog must be boolean with the shape of walls {list(walls.shape)}, got {list(fog.shape)}"
                )
            if (fog & walls).any():
                raise ValueError(
                    "fog and walls must not overlap, since hidden walls are unknown: set walls to False under fog"
                )
            object.__setattr__(self, "fog", freeze(fog) if fog.any() else None)
        occupied: dict[Position, str] = {}
        for name in _OBJECTS.values():
            if (cell := getattr(self, name)) is not None:
                object.__setattr__(self, name, self._check_object(name, cell, occupied))
        if self.things or self.held:
            for symbol in (*(symbol for _, symbol in self.things), *(symbol for symbol in self.held if symbol != KEY)):
                known_kind(symbol)
            occupied = {cell: name for cell, name in occupied.items() if name != "start"}  # it may stand on a thing
            things = [(self._check_object(f"thing {symbol!r}", cell, occupied), symbol) for cell, symbol in self.things]
            object.__setattr__(self, "things", tuple(sorted(things)))
            object.__setattr__(self, "held", tuple(sorted(self.held)))

    def _check_object(self, name: str, object_cell: Position, occupied: dict[Position, str]) -> Position:
        """Check the cell of an object or a thing, add it to the occupied ones, and return it in plain integers."""
        cell = self.check_cell(object_cell, name)
        if self.walls[cell]:
            raise ValueError(f"{name} must lie on an open cell, got the wall at {cell}")
        if self.fog is not None and self.fog[cell]:
            raise ValueError(f"{name} must lie on a visible cell, got the hidden cell {cell}")
        if cell in occupied:
            raise ValueError(
                f"{name} must have a cell to itself, got {cell}, where {occupied[cell]} lies: move one of them"
            )
        occupied[cell] = name
        return cell

    def check_cell(self, cell: Sequence[int] | npt.NDArray[Any], name: str = "position") -> Position:
        """Check that a cell (row, col) lies in the grid, and return it as a tuple of plain integers.

        Args:
            cell: the cell, as a pair of whole numbers.
            name: what errors call the cell.

        Raises:
            ValueError: if the cell is not a pair of integers, or lies outside the grid.
        """
        pair = tuple(cell)
        if len(pair) != 2 or not is_whole(pair[0]) or not is_whole(pair[1]):
            raise ValueError(f"{name} must be (row, col), two whole numbers, got {cell!r}")
        return check_inside((int(pair[0]), int(pair[1])), self.walls.shape, name)

    @property
    def height(self) -> int:
        """Number of rows H."""
        return int(self.walls.shape[0])

    @property
    def width(self) -> int:
        """Number of columns W."""
        return int(self.walls.shape[1])

    @property
    def objects(self) -> dict[str, Position | None]:
        """The cells (row, col) of "start", "goal", "key" and "door" by name; None for an object that the grid does
        not show.
        """
        return {name: getattr(self, name) for name in _OBJECTS.values()}

    def open_around(self, cell: Position) -> list[Position]:
        """Return the neighbours of a cell that are not walls, in the order of `Action`; a locked door is included."""
        near = [(cell[0] + down, cell[1] + right) for down, right in _DELTAS]
        return [
            (row, col)
            for row, col in near
            if 0 <= row < self.height and 0 <= col < self.width and not self.walls[row, col]
        ]

    def corner(self, name: str) -> Position:
        """Return the cell (row, col) nearest to a corner, by Manhattan distance, that is not a wall.

        Ties are broken by row, then by column. The result may be the goal's cell.

        Args:
            name: one of `CORNERS`, such as "top-left".

        Raises:
            ValueError: if the name is unknown, or every cell of the grid is a wall.
        """
        if name not in CORNERS:
            raise ValueError(f"a corner must be one of {', '.join(CORNERS)}, got {name!r}")
        row, col = CORNERS[name]
        return self.nearest((row % self.height, col % self.width))

    def nearest(self, cell: Position) -> Position:
        """Return the cell (row, col) nearest to a given one, by Manhattan distance, that is not a wall.

        Ties are broken by row, then by column.

        Raises:
            ValueError: if every cell of the grid is a wall.
        """
        rows, cols = np.nonzero(~self.walls)
        if not len(rows):
            raise ValueError(
                "a place must be an open cell, but every cell of this grid is a wall: open at least one cell"
            )
        index = int(np.argmin(np.abs(rows - cell[0]) + np.abs(cols - cell[1])))
        return int(rows[index]), int(cols[index])

    def goal_lies(self, side: Side) -> bool:
        """Return whether the goal lies in the left, right, top or bottom half of the grid.

        The middle row or column belongs to neither half. The result is False if the grid shows no goal.

        Args:
            side: "left", "right", "top" or "bottom".

        Raises:
            ValueError: if ``side`` is none of these.
        """
        if side not in get_args(Side):
            raise ValueError(f"a side must be one of {', '.join(get_args(Side))}, got {side!r}")
        if self.goal is None:
            return False
        index, cells = (self.goal[1], self.width) if side in ("left", "right") else (self.goal[0], self.height)
        return 2 * index + 1 < cells if side in ("left", "top") else 2 * index + 1 > cells

    @classmethod
    def parse(cls, text: str | Sequence[str] | Sequence[Sequence[str]]) -> "Grid":
        """Read a grid from the text that `render` writes, in which each cell is a symbol.

        Args:
            text: a text, a list of lines, or a list of lists of symbols. Labels of rows and columns are optional. Cells
                are separated by any number of blanks; lines without labels may also have no separators.

        Raises:
            ValueError: if a symbol is unknown, rows differ in length, labels are out of order, or there is a second
                agent, goal, key or door; the message names the line.
        """
        rows = _read_cells(text)
        width = len(rows[0][1])
        positions: dict[str, Any] = {}
        things: list[Thing] = []
        for row, (line, cells) in enumerate(rows):
            if len(cells) != width:
                raise ValueError(
                    f"every row of a grid must have the same number of cells: line {line} has {len(cells)}, "
                    f"the first row has {width}"
                )
            for col, symbol in enumerate(cells):
                if symbol not in SYMBOLS and (len(symbol) != 1 or kind_of(symbol) is None):
                    valid = f"{' '.join(sorted(SYMBOLS))} or a thing, {' '.join(kind.symbol for kind in kinds())}"
                    hint = f"; an open cell is written {OPEN}" if symbol in OPEN_ELSEWHERE else ""
                    raise UnknownSymbolError(
                        f"a cell must be one of {valid}: line {line}, column {col} holds {symbol!r}{hint}"
                    )
                name = _OBJECTS.get(symbol, "")
                if name in positions:
                    raise ValueError(
                        f"a grid must hold at most one {symbol!r}: line {line} has a second one at (row, col) = "
                        f"{(row, col)}, the first is at {positions[name]}"
                    )
                if name:
                    positions[name] = (row, col)
                elif symbol not in SYMBOLS:
                    things.append(((row, col), symbol))
        symbols = np.array([cells for _, cells in rows])
        return cls(walls=symbols == WALL, fog=symbols == FOG, things=tuple(things), **positions)

    def render(self) -> str:
        """Write the grid as text: a header of column indices, then one line per row that begins with its index.

        Each cell is a symbol. Labels and cells are separated by blanks and right-justified to the same width, so that
        columns align with their labels: width 1 for grids of at most 10 rows and columns, width 2 for larger grids.
        """
        fog = None if self.fog is None else self.fog.tobytes()
        text = _without_agent(self.walls.tobytes(), self.walls.shape, fog, self.goal, self.key, self.door, self.things)
        if self.start is None:
            return text
        width = _label_width(self.height, self.width)
        cell = (self.start[0] + 1) * (self.width + 1) + self.start[1] + 1  # counting the labels as cells
        at = (cell + 1) * (width + 1) - 2
        return f"{text[:at]}{AGENT}{text[at + 1 :]}"

    def at(self, **changes: Any) -> "Grid":
        """Return a copy of the grid with some attributes changed, e.g. ``grid.at(start=(3, 4))``."""
        return replace(self, **changes)

    def _content(self) -> tuple[object, ...]:
        fog = None if self.fog is None else self.fog.tobytes()
        objects = self.start, self.goal, self.key, self.door
        return self.walls.tobytes(), self.walls.shape, fog, *objects, self.things, self.held

    def __eq__(self, other: object) -> bool:
        return self._content() == other._content() if isinstance(other, Grid) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._content())

    def __str__(self) -> str:
        return self.render()


MAX_SIDE: Final = 501
"""Maximum number of rows and of columns of a grid in a file; a much larger grid would fill the memory by itself."""


def bounded_grid(text: str, most: int = MAX_SIDE) -> Grid:
    """Read a grid from the text in a file (see `Grid.parse`), after checking that it is not too large.

    Args:
        text: the text of the grid.
        most: maximum number of rows and of columns.

    Raises:
        ValueError: if the text is not a grid, or the grid is too large.
    """
    lines = text.count("\n") + 1
    # A row is a label and one symbol per cell, aligned with the column labels by blanks: at most 8 characters each.
    if len(text) <= 8 * (most + 2) ** 2:
        grid = Grid.parse(text)
        if max(grid.walls.shape) <= most:
            return grid
        raise ValueError(f"a grid must have at most {most} rows and columns, got {grid.height}x{grid.width}")
    raise ValueError(f"a grid must have at most {most} rows and columns, got {len(text)} characters in {lines} lines")


def _label_width(height: int, width: int) -> int:
    return len(str(max(height, width) - 1))


@lru_cache(maxsize=1024)
def _without_agent(
    walls: bytes,
    shape: tuple[int, int],
    fog: bytes | None,
    goal: Position | None,
    key: Position | None,
    door: Position | None,
    things: tuple[Thing, ...],
) -> str:
    """Return the text form of a grid without its agent. Only the agent moves from turn to turn, so this is cached."""
    seen = None if fog is None else np.frombuffer(fog, dtype=bool).reshape(shape)
    layout = np.frombuffer(walls, dtype=bool).reshape(shape)
    grid = Grid(walls=layout, fog=seen, goal=goal, key=key, door=door, things=things)
    width = _label_width(*shape)
    lines = [["", *map(str, range(grid.width))]]
    # A list, because NumPy discards a KeyboardInterrupt that arrives while single texts of an array are read.
    lines += [[str(row), *cells] for row, cells in enumerate(symbols(grid).tolist())]
    return "\n".join(" ".join(f"{cell:>{width}}" for cell in line) for line in lines)


def check_inside(cell: Position, shape: Sequence[int], name: str = "a position") -> Position:
    """Return a cell (row, col) unchanged, or raise a ValueError if it lies outside a grid of shape ``(H, W)``.

    Args:
        cell: the cell.
        shape: number of rows and of columns.
        name: what the error calls the cell.
    """
    (row, col), (height, width) = cell, shape
    if not (0 <= row < height and 0 <= col < width):
        raise ValueError(f"{name} must lie in the {height}x{width} grid, got (row, col) = {(row, col)}")
    return cell


def symbols(grid: Grid) -> npt.NDArray[np.str_]:
    """Return the symbol of each cell of a grid, such as ``#`` for a wall: ``[H, W]`` one-character texts, rows by
    columns.
    """
    cells = np.where(grid.walls, WALL, OPEN).astype("<U1")
    if grid.fog is not None:
        cells[grid.fog] = FOG
    for thing_cell, symbol in grid.things:
        cells[thing_cell] = symbol
    for symbol, name in _OBJECTS.items():
        cell: Position | None = getattr(grid, name)
        if cell is not None:
            cells[cell] = symbol
    return cells


def read_open_cells(text: str | Sequence[str] | Sequence[Sequence[str]]) -> str | list[str] | list[list[str]]:
    """Rewrite a grid that another program wrote, so that `Grid.parse` can read its open cells: blanks and points become
    ``_``.

    In rows whose cells stand side by side (``#A  #``), a blank is a cell. In rows whose cells are separated
    (``# A _ #``), a blank is a separator. Blanks before and after all rows are indentation. Every Unicode blank counts,
    except for the tab, whose width is unknown.

    Args:
        text: a text, a list of lines, or a list of lists of symbols.

    Returns:
        The grid in the same form.
    """
    if not isinstance(text, str) and not all(isinstance(line, str) for line in text):
        return [[OPEN if cell in OPEN_ELSEWHERE or _is_blank(cell) else cell for cell in line] for line in text]
    lines = text.splitlines() if isinstance(text, str) else list(map(str, text))
    lines = [_with_plain_blanks(line, kept="\t").replace(".", OPEN) for line in lines]
    box = _compact_box(lines)
    if box is not None:
        first, last, left, right = box
        lines = [line[left:right].replace(" ", OPEN) for line in lines[first : last + 1]]
    return "\n".join(lines) if isinstance(text, str) else lines


def _is_blank(cell: object) -> bool:
    return isinstance(cell, str) and len(cell) == 1 and cell.isspace()


def _with_plain_blanks(line: str, kept: str = "") -> str:
    """Replace each Unicode blank, such as a non-breaking space, by an ordinary blank, except for those in ``kept``."""
    if line.isascii() and "\t" not in line:
        return line
    return "".join(" " if character.isspace() and character not in kept else character for character in line)


def _compact_box(lines: Sequence[Any]) -> tuple[int, int, int, int] | None:
    """Return first line, last line, left end and right end of a grid in which blanks stand for cells.

    The result is None if no blank stands for a cell: the blanks are separators, there are no blanks, the lines have
    labels, or they differ in length.
    """
    texts = [line if isinstance(line, str) else "" for line in lines]
    filled = [number for number, line in enumerate(texts) if line.strip()]
    if not filled or texts[filled[0]].split()[0].isdigit():
        return None
    first, last = filled[0], filled[-1]
    left = min(len(texts[number]) - len(texts[number].lstrip()) for number in filled)
    right = max(len(texts[number].rstrip()) for number in filled)
    rows = [line[left:right] for line in texts[first : last + 1]]
    if any(len(row) < right - left for row in rows) or not any(" " in row for row in rows):
        return None
    cells = [row.split() for row in rows]
    if all(len(cell) == 1 for row in cells for cell in row):
        # Every cell stands alone. In a grid with separators, all lines then have the same number or places of cells.
        columns = {tuple(index for index, symbol in enumerate(row) if symbol != " ") for row in rows}
        counts = {len(row) for row in cells}
        if len(columns) == 1 or (len(counts) == 1 and counts != {1}):
            return None
    return first, last, left, right


def _refuse_blank_cells(lines: Sequence[Any], rows: Sequence[tuple[int, list[str]]]) -> None:
    """Raise a ValueError that names the first blank cell in a grid whose cells stand side by side."""
    originals = lines
    lines = [_with_plain_blanks(line) if isinstance(line, str) else line for line in originals]
    side_by_side = any(len(cells) == 1 and len(cells[0]) > 1 for _, cells in rows)
    box, labelled = _compact_box(lines), any(cells and cells[0].isdigit() for _, cells in rows)
    if box is None and (not side_by_side or labelled):
        return
    for number, line in enumerate(lines, start=1):
        left, right = (0, None) if box is None else box[2:]
        inside = line[left:right] if isinstance(line, str) else ""
        column = inside.find(" ", 0 if box else len(inside) - len(inside.lstrip()))
        if 0 <= column < len(inside if box else inside.rstrip()):
            blank = originals[number - 1][left + column]
            problem = "is blank" if blank == " " else f"holds {blank!r}"
            raise ValueError(
                f"an open cell must be written {OPEN}: line {number}, column {left + column} {problem}, in a grid "
                f"whose cells stand side by side: replace it by {OPEN}"
            )


def _read_cells(text: str | Sequence[str] | Sequence[Sequence[str]]) -> list[tuple[int, list[str]]]:
    """Return (line number, cells) of each row, with the labels checked and removed."""
    if not isinstance(text, str | Sequence):
        raise TypeError(f"a grid must be a text, a list of lines or a list of rows, got {type(text).__name__}")
    lines = text.splitlines() if isinstance(text, str) else list(text)
    rows = [(number, _split(line, number)) for number, line in enumerate(lines, start=1)]
    _refuse_blank_cells(lines, rows)
    filled = [index for index, (_, tokens) in enumerate(rows) if tokens]
    if not filled:
        raise ValueError("a grid must have at least one row, got an empty text")
    rows = rows[filled[0] : filled[-1] + 1]
    for number, tokens in rows:
        if not tokens:
            raise ValueError(
                f"a grid must not have blank lines between its rows, got a blank line as line {number}: delete it"
            )
    (first, header), *labelled = rows
    if not (header[0].isascii() and header[0].isdigit()):
        spaced = any(len(tokens) > 1 for _, tokens in rows)
        return rows if spaced else [(number, list(tokens[0])) for number, tokens in rows]  # such as #A_G#
    if header != [str(col) for col in range(len(header))]:
        raise ValueError(f"the header must number the columns from 0, got line {first}: {' '.join(header)!r}")
    if not labelled:
        raise ValueError("a grid must have at least one row below its header, got only the header")
    for index, (number, tokens) in enumerate(labelled):
        if tokens[0] != str(index):
            raise ValueError(
                f"row labels must number the rows from 0: line {number} must start with {index}, got {tokens[0]!r}"
            )
    number, tokens = labelled[0]
    if len(tokens) - 1 != len(header):
        raise ValueError(
            f"the header must have one label per column: it has {len(header)} labels, but line {number} has "
            f"{len(tokens) - 1} cells"
        )
    return [(number, tokens[1:]) for number, tokens in labelled]


def _split(line: str | Sequence[str], number: int) -> list[str]:
    if isinstance(line, str):
        return line.split()
    if not isinstance(line, Sequence) or not all(isinstance(cell, str) for cell in line):
        raise ValueError(f"a row must be a text or a list of symbols, got {line!r} as line {number}")
    return list(line)


def written(encoding: str, matrix: str) -> str:
    """Write a grid in one of the encodings that prompts use: as a matrix, a compact matrix, or a list of cells.

    Args:
        encoding: one of `ENCODINGS`: "matrix", "coordinates", "adjacency" or "compact".
        matrix: the grid as `Grid.render` writes it, with any symbols; ``#`` marks the walls.

    Raises:
        ValueError: if the encoding is unknown.
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
    """Check the name of an encoding, one of the forms in which prompts can show a grid, and return the name.

    Raises:
        ValueError: if the name is not in `ENCODINGS`.
    """
    if encoding not in ENCODINGS:
        raise ValueError(f"an encoding must be one of {', '.join(ENCODINGS)}, got {encoding!r}")
    return encoding


def cell_offsets(matrix: str, text: str) -> dict[Position, int] | None:
    """Find a grid in a text such as a prompt, and return where each of its cells is written there.

    The grid is found in any of its encodings; a matrix takes precedence, and of several occurrences the last one
    counts.

    Args:
        matrix: the grid as `Grid.render` writes it.
        text: the text.

    Returns:
        Cell (row, col) -> offset of its symbol in the text, in characters; None if the text does not contain the grid.
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
