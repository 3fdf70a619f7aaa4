"""Sets of cells of a task map, stored as the bits of one whole number.

Every cell of the rectangle around a map is one bit, so a set of cells is one Python integer. Keeping the set of an
earlier step costs nothing, since integers are immutable. Four shifts grow a set by one move in all directions. Each row
has one padding column, so that no shift carries a cell into another row. Tests check that results equal those of plain
sets of cells.
"""

from collections.abc import Iterable, Iterator, Mapping

from goalscope.worlds.grid import ACTIONS
from goalscope.worlds.tasks.coordinates import MOVES, Cell, Frame, TaskNode


class Board:
    """The numbering of a map's cells and nodes; immutable, and shared by all users of one map.

    Attributes:
        width: number of bits per row, including one padding bit.
        size: total number of bits, including two padding rows.
        offsets: ``[4]`` change of a cell's index by each move, in the order of `Action`.
        open: ``[size]`` 1 for cells that can be walked on.
        cells: the bits of all cells that can be walked on.
        start: index of the start cell.
        names: names of the nodes, in order.
        node_at: cell index -> node number.
        places: cell index of each node.
        options: for each node, its alternative prerequisite sets, each as bits of node numbers.
        goals: the goals as bits of node numbers; 0 on a board without nodes.
    """

    def __init__(
        self,
        frame: Frame,
        cells: Iterable[Cell],
        start: Cell,
        nodes: Mapping[str, TaskNode] | None = None,
        goals: Iterable[str] = (),
    ) -> None:
        self.width = frame.width + 1
        self.size = self.width * (frame.height + 2)
        self._left, self._bottom = frame.left, frame.top - frame.height + 1
        self.offsets = tuple(MOVES[action][0] + MOVES[action][1] * self.width for action in ACTIONS)
        self.open = bytearray(self.size)
        for cell in cells:
            self.open[self.index(cell)] = 1
        self.cells = bits(self.open)
        self.start = self.index(start)
        nodes = nodes or {}
        self.names = tuple(nodes)
        number = {name: index for index, name in enumerate(self.names)}
        self.places = tuple(self.index(node.cell) for node in nodes.values())
        self.options = tuple(
            tuple(sum(1 << number[parent] for parent in option) for option in node.options) for node in nodes.values()
        )
        self.goals = sum(1 << number[goal] for goal in goals)
        self.node_at = {cell_index: index for index, cell_index in enumerate(self.places)}

    def index(self, cell: Cell) -> int:
        """Return the index of a cell (x, y) of the rectangle."""
        return (cell[1] - self._bottom + 1) * self.width + cell[0] - self._left

    def cell(self, index: int) -> Cell:
        """Return the cell (x, y) at an index."""
        row, column = divmod(index, self.width)
        return column + self._left, row + self._bottom - 1

    def listed(self, board: int) -> tuple[Cell, ...]:
        """Return the cells whose bits are set in a number, sorted by y, then x."""
        return tuple(self.cell(index) for index in indices(board))

    def grow(self, board: int) -> int:
        """Return the cells next to the cells of a set, within the padded rectangle; the result may include cells of the
        set.
        """
        return board << 1 | board >> 1 | board << self.width | board >> self.width

    def field(self, passable: bytes | bytearray, source: int) -> list[int]:
        """Return the number of moves from one cell to every other over passable cells, -1 if there is no path."""
        field = [-1] * self.size
        field[source] = 0
        wave, steps = [source], 0
        while wave:
            steps += 1
            following = []
            for cell in wave:
                for offset in self.offsets:
                    neighbour = cell + offset
                    if passable[neighbour] and field[neighbour] < 0:
                        field[neighbour] = steps
                        following.append(neighbour)
            wave = following
        return field


def bits(flags: bytearray) -> int:
    """Return a set of cells from one flag (0 or 1) per cell."""
    return int(flags.translate(bytes.maketrans(b"\x00\x01", b"01"))[::-1], 2)


def flags(board: int, size: int) -> bytes:
    """Return one flag (0 or 1) per cell, the inverse of `bits`."""
    return format(board, f"0{size}b").encode()[::-1].translate(bytes.maketrans(b"01", b"\x00\x01"))


def indices(board: int) -> Iterator[int]:
    """Yield the indices of the cells in a set, in increasing order."""
    if board.bit_count() * 64 < board.bit_length():
        while board:
            lowest = board & -board
            yield lowest.bit_length() - 1
            board ^= lowest
        return
    text = format(board, "b")[::-1]
    index = text.find("1")
    while index >= 0:
        yield index
        index = text.find("1", index + 1)
