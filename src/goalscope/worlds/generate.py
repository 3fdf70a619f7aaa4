"""Random grids: of a given size and wall density, and layouts with keys and doors.

A generated grid has the same bytes alone and in a batch. Randomised depth-first search carves a perfect maze on the
cells with odd coordinates. Of the interior walls that remain, a fraction 1 - density is removed at random. Density 0
gives an empty room, density 1 a maze without cycles.

The layouts have a key that is needed, a key without use, or two equally short paths, one of them with a key. Room
worlds consist of 2x2 rooms of 3x3 cells in a 9x9 grid. A random spanning tree joins the rooms: three of the four walls
between neighbouring rooms have one doorway each.

Source: behavioural and representational evaluation, sections 3-4 and Fig. 5; numbers of walls as in the authors'
generator.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_number, check_whole, freeze, is_whole
from goalscope._ground.rng import stream, words
from goalscope.worlds.grid import DELTAS, Grid, Position
from goalscope.worlds.planning.shortest import distances_batch

_MOST_ATTEMPTS = 1000
_CHUNK = 1024  # number of worlds carved together, so that their state fits into the processor's caches


LAYOUTS = ("key-door", "key-no-door", "two-path")
"""Names of the layouts that `layout` generates."""

TWO_PATH_SIZES = (7, 9, 11)
"""Sizes that `two_path` draws from."""

_LONGEST = 30
_ROOM_SIZE = 9
_ROOMS = ((0, 0), (0, 1), (1, 1), (1, 0))  # in order around the ring that the rooms form
_RING_WALLS = (
    ((1, 4), (2, 4), (3, 4)),
    ((4, 5), (4, 6), (4, 7)),
    ((5, 4), (6, 4), (7, 4)),
    ((4, 1), (4, 2), (4, 3)),
)  # the wall between room i and room i + 1 of the ring


@dataclass(frozen=True, slots=True, kw_only=True)
class GridBatch:
    """B generated grids of one size n, stored as arrays. An index returns one of them as a `Grid`.

    Attributes:
        walls: ``[B, n, n]`` bool, grids by rows by columns, true where a cell is a wall.
        start: ``[B, 2]`` int64, cell (row, col) where the agent starts.
        goal: ``[B, 2]`` int64, cell (row, col) of the goal.
    """

    walls: npt.NDArray[np.bool_]
    start: npt.NDArray[np.int64]
    goal: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.walls)

    def __getitem__(self, index: int) -> Grid:
        start, goal = (tuple(cells[index].tolist()) for cells in (self.start, self.goal))
        return Grid(walls=self.walls[index], start=start, goal=goal)

    def __iter__(self) -> Iterator[Grid]:
        return (self[index] for index in range(len(self)))


def check_size(size: int) -> int:
    """Check that grids of this size (number of rows and of columns) can be generated, and return it as an ``int``.

    Raises:
        ValueError: if the size is not an odd whole number >= 5.
    """
    if not is_whole(size) or size < 5 or size % 2 == 0:
        hint = f": use {int(size) - 1} or {int(size) + 1}" if is_whole(size) and size > 5 else ""
        raise ValueError(f"size must be an odd whole number >= 5, got {size!r}{hint}")
    return int(size)


def check_density(density: float) -> float:
    """Check a wall density, and return it: a number from 0 (empty room) to 1 (maze without cycles).

    Raises:
        ValueError: if the density is not a number from 0 to 1.
    """
    # -0.0 becomes 0.0, so that equal densities name the same series.
    return check_number("density", density, 0, 1, "number (0: empty room, 1: maze)") + 0.0


def interior_walls(size: int, density: float) -> int:
    """Return the number of walls inside the border, which is the same for all generated grids of this size and density.

    A perfect maze with ``k = (size - 1) / 2`` lattice cells per side has ``W = (size - 2)^2 - (2 k^2 - 1)`` interior
    walls. Of these, ``int((1 - density) W)`` are removed, truncated in floating point.
    """
    maze = _maze_walls(check_size(size))
    return maze - int((1 - check_density(density)) * maze)


def _maze_walls(size: int) -> int:
    lattice = (size - 1) // 2
    return (size - 2) ** 2 - (2 * lattice**2 - 1)


def generate(size: int = 11, density: float = 0.6, *, rng: np.random.Generator, minimum_distance: int = 1) -> Grid:
    """Generate one random grid whose goal can be reached from its start.

    A perfect maze is carved first, and then a share of its interior walls is removed.

    Args:
        size: number n of rows and of columns, odd and >= 5, including the border of walls.
        density: share of the perfect maze's interior walls to keep, in [0, 1].
        rng: source of the random numbers.
        minimum_distance: minimum number of steps from start to goal.

    Raises:
        TypeError: if ``rng`` is not a generator.
        ValueError: if size, density or minimum_distance is out of range, or no grid with a long enough path was found.
    """
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy Generator, e.g. numpy.random.default_rng(0), got {type(rng).__name__}")
    settings = _checked(size, density, minimum_distance)
    count, attempts = 1, 0
    while attempts < _MOST_ATTEMPTS:
        drawn = rng.integers(0, 2**64, size=(count, _words_needed(size)), dtype=np.uint64)
        batch, accepted = _build(*settings, drawn)
        if accepted.any():
            return batch[int(accepted.argmax())]
        attempts += count
        count = 32  # if the first grid's path is too short, draw the next grids in one batch
    raise _too_far(*settings)


def generate_batch(
    size: int, density: float, *, seed: int, count: int, first: int = 0, minimum_distance: int = 1, name: str = "grid"
) -> GridBatch:
    """Generate a batch of random grids: those with the numbers ``first .. first + count - 1`` of a series.

    A series is given by seed, name, size and density. Grid i has the same bytes whatever ``first`` and ``count`` are,
    whether it is generated alone or in a batch, and on any number of workers.

    Args:
        size: number n of rows and of columns, odd and >= 5.
        density: share of the perfect maze's interior walls to keep, in [0, 1].
        seed: root seed.
        count: number of grids B.
        first: number of the first grid, from 0.
        minimum_distance: minimum number of steps from start to goal; grids with a shorter path are drawn again.
        name: name of the series.

    Raises:
        ValueError: if size, density or minimum_distance is out of range, or no grid with a long enough path was found.
    """
    settings = _checked(size, density, minimum_distance)
    check_whole("count", count, 0)
    check_whole("first", first, 0)
    draw = partial(words, seed, name, *settings, each=_words_needed(size))
    ends = np.zeros((2, count, 2), dtype=np.int64)
    worlds = GridBatch(walls=np.zeros((count, size, size), dtype=bool), start=ends[0], goal=ends[1])
    for begin in range(0, count, _CHUNK):
        missing = np.arange(begin, min(begin + _CHUNK, count))
        drawn = draw(first=first + begin, count=len(missing))
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            batch, accepted = _build(*settings, drawn)
            done = missing[accepted]
            worlds.walls[done], worlds.start[done] = batch.walls[accepted], batch.start[accepted]
            worlds.goal[done] = batch.goal[accepted]
            missing = missing[~accepted]
            if not len(missing):
                break
            # Each world whose path is too short is replaced by the next attempt of the same world.
            drawn = np.concatenate([draw(first=first + i, count=1, attempt=attempt) for i in missing.tolist()])
        else:
            raise _too_far(*settings)
    return worlds


def key_door(*, rng: np.random.Generator) -> Grid:
    """Generate a grid of rooms whose goal lies behind a locked door, with the key on the start's side of the door.

    The doorways join the rooms in a tree, so the door, which is in one of them, divides the rooms into two parts. The
    start is drawn uniformly from all cells inside rooms, the key from the other cells in the start's part, and the goal
    from the cells in the other part. A grid whose shortest path is longer than the paper's horizon of 30 steps is drawn
    again.

    Args:
        rng: source of the random numbers.
    """
    while True:
        grid, length = _rooms(rng)
        if length <= _LONGEST:
            return grid


def key_no_door(*, rng: np.random.Generator) -> Grid:
    """Generate a grid of rooms with a key that has no use, as a control for `key_door`.

    It is the grid that `key_door` makes from the same random numbers, without its door.

    Args:
        rng: source of the random numbers.
    """
    return key_door(rng=rng).at(door=None)


def two_path(*, rng: np.random.Generator) -> Grid:
    """Generate a grid with exactly two shortest paths, which share only start and goal, and a key on one of them.

    A perfect maze has one path between any two cells. Opening one of its walls creates exactly one ring. Start and goal
    are opposite cells of the ring, so its two halves are the two shortest paths, and all other cells lie in dead ends.
    The size, the opened wall, the start, and the key's half and cell are drawn uniformly.

    Args:
        rng: source of the random numbers.
    """
    size = TWO_PATH_SIZES[int(rng.integers(len(TWO_PATH_SIZES)))]
    walls = generate(size=size, density=1.0, rng=rng).walls.copy()
    between = [
        (row, col)
        for row in range(1, size - 1)
        for col in range(1, size - 1)
        if walls[row, col] and (row + col) % 2 == 1  # a wall between two cells of the maze's lattice, not a pillar
    ]
    opened = between[int(rng.integers(len(between)))]
    walls[opened] = False
    ring = _ring(walls, opened)
    turn = int(rng.integers(len(ring)))
    ring = ring[turn:] + ring[:turn]
    half = len(ring) // 2
    arc = ring[1:half] if rng.integers(2) else ring[half + 1 :]
    return Grid(walls=walls, start=ring[0], goal=ring[half], key=arc[int(rng.integers(len(arc)))])


def control(grid: Grid) -> Grid:
    """Return the control of a grid with a key: the same grid without the key and without the door that the key
    opens.
    """
    return grid.at(key=None, door=None)


def layout(kind: str, *, seed: int, index: int) -> Grid:
    """Return grid number ``index`` of a series of random grids with a key, and possibly a door.

    The grid is the same alone or in a series, and on any number of workers. Grid i of "key-no-door" is grid i of
    "key-door" without its door.

    Args:
        kind: "key-door", "key-no-door" or "two-path"; see `key_door`, `key_no_door` and `two_path`.
        seed: root seed.
        index: number of the grid, >= 0.

    Raises:
        ValueError: if the kind is unknown or the index is negative.
    """
    if kind not in LAYOUTS:
        raise ValueError(f"a layout must be one of {', '.join(LAYOUTS)}, got {kind!r}")
    number = check_whole("a layout's index", index, 0)
    draw = {"key-door": key_door, "key-no-door": key_no_door, "two-path": two_path}[kind]
    return draw(rng=stream(seed, "layout", "two-path" if kind == "two-path" else "rooms", number))


def layout_series(kind: str, *, seed: int, count: int, first: int = 0) -> Iterator[Grid]:
    """Generate the grids with the numbers ``first .. first + count - 1`` of a series of random grids with a key.

    Args:
        kind: "key-door", "key-no-door" or "two-path"; see `layout`.
        seed: root seed.
        count: number of grids.
        first: number of the first grid.
    """
    return (layout(kind, seed=seed, index=index) for index in range(first, first + count))


def _checked(size: int, density: float, minimum_distance: int) -> tuple[int, float, int]:
    size, density = check_size(size), check_density(density)
    longest = (size - 2) ** 2 - 1
    return size, density, check_whole(f"minimum_distance for size {size}", minimum_distance, 1, "steps", most=longest)


def _too_far(size: int, density: float, minimum_distance: int) -> ValueError:
    return ValueError(
        f"{_MOST_ATTEMPTS} draws gave no {size}x{size} grid of density {density} whose start and goal are at least "
        f"minimum_distance = {minimum_distance} steps apart: lower minimum_distance or raise size"
    )


def _words_needed(size: int) -> int:
    """Return the number of random words per world: half a word per search step and per cell, and one for the ends."""
    return -(-_steps(size) // 2) + -(-size * size // 2) + 1


def _steps(size: int) -> int:
    """Return the number of search steps: the search enters and leaves every lattice cell but the first once."""
    lattice = (size - 1) // 2
    return 2 * (lattice * lattice - 1)


def _build(
    size: int, density: float, minimum_distance: int, drawn: npt.NDArray[np.uint64]
) -> tuple[GridBatch, npt.NDArray[np.bool_]]:
    """Turn random words ``[B, words]`` into grids, and say for each whether its path is long enough, ``[B]``."""
    halves = drawn.view(np.uint32)
    steps = _steps(size)
    padded = steps + steps % 2
    open_cells = _carve(size, halves[:, :steps])
    _open_walls(size, density, open_cells, halves[:, padded : padded + size * size])
    start, goal = _draw_ends(size, open_cells, drawn[:, -1])
    batch = GridBatch(
        walls=~open_cells.reshape(-1, size, size),
        start=np.stack(np.divmod(start, size), axis=1),
        goal=np.stack(np.divmod(goal, size), axis=1),
    )
    if minimum_distance == 1:
        return batch, np.ones(len(batch), dtype=bool)
    return batch, path_lengths(batch) >= minimum_distance


def _carve(size: int, halves: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Carve B perfect mazes by random depth-first search from half words ``[B, steps]``; return their open cells."""
    lattice = (size - 1) // 2
    count = len(halves)
    cells = lattice * lattice
    neighbours, doorway, lattice_cell = _lattice_tables(size)
    choose = _choice_table()
    # One extra column stands for all cells outside the lattice, and counts as visited.
    visited = np.zeros((count, cells + 1), dtype=bool)
    visited[:, cells] = True
    open_cells = np.zeros((count, size * size), dtype=bool)
    open_cells[:, lattice_cell] = True
    stack = np.zeros((cells + 1, count), dtype=np.int64)
    base, open_base = np.arange(count) * (cells + 1), np.arange(count) * (size * size)
    flat_visited, flat_open = visited.reshape(-1), open_cells.reshape(-1)
    numbers = np.arange(count)
    # The first half word also places the root. A roll of 12 = lcm(1, 2, 3, 4) makes choices among 1 to 4 cells exactly
    # fair.
    half = np.uint64(32)
    placed = halves[:, 0].astype(np.uint64) * np.uint64(cells)
    current = (placed >> half).astype(np.int64)
    rolls = np.ascontiguousarray((halves.astype(np.uint64) * np.uint64(12) >> half).astype(np.int64).T)
    rolls[0] = (placed & np.uint64(0xFFFFFFFF)) * np.uint64(12) >> half
    depth = np.zeros(count, dtype=np.int64)
    flat_visited[base + current] = True
    stack[0] = current
    bits = np.array([1, 2, 4, 8], dtype=np.int64)
    for roll in rolls:
        free = ~flat_visited[base[:, None] + neighbours[current]]
        direction = choose[free @ bits, roll]
        forward = direction >= 0
        depth += np.where(forward, 1, -1)
        target = np.where(forward, neighbours[current, direction], stack[depth, numbers])
        flat_open[open_base + np.where(forward, doorway[current, direction], lattice_cell[target])] = True
        stack[depth, numbers] = target
        flat_visited[base + target] = True
        current = target
    return open_cells


@cache
def _lattice_tables(size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the lattice's neighbours ``[K, 4]`` (K: outside), the cells in between ``[K, 4]``, its cells ``[K]``."""
    lattice = (size - 1) // 2
    places = np.indices((lattice, lattice)).reshape(2, -1)  # [2, K] row and column
    near = places[:, :, None] + DELTAS.T[:, None, :]  # [2, K, 4]
    inside = ((near >= 0) & (near < lattice)).all(axis=0)
    cell = (2 * places[0] + 1) * size + 2 * places[1] + 1
    doorway = cell[:, None] + DELTAS @ (size, 1)
    return freeze(np.where(inside, near[0] * lattice + near[1], lattice**2)), freeze(doorway), freeze(cell)


@cache
def _choice_table() -> npt.NDArray[np.int64]:
    """Return ``[16, 12]``: the direction that roll r picks, with equal chances, from the bits of a mask (-1: none)."""
    table = np.full((16, 12), -1, dtype=np.int64)
    for mask in range(1, 16):
        directions = [bit for bit in range(4) if mask >> bit & 1]
        table[mask] = [directions[roll % len(directions)] for roll in range(12)]
    return freeze(table)


def _open_walls(size: int, density: float, open_cells: npt.NDArray[np.bool_], halves: npt.NDArray[np.uint32]) -> None:
    """Open ``int((1 - density) W)`` interior walls of each grid, chosen uniformly, in place."""
    maze = _maze_walls(size)
    delete = maze - interior_walls(size, density)
    if delete == 0:
        return
    inside = np.zeros((size, size), dtype=bool)
    inside[1:-1, 1:-1] = True
    walls = ~open_cells & inside.reshape(-1)
    if delete == maze:
        open_cells |= walls
        return
    # Random keys order the walls. The cell's index in the low bits breaks ties, so that a grid has the same order alone
    # and in a batch.
    cells = np.nonzero(walls)[1].reshape(len(open_cells), maze)
    keys = np.take_along_axis(halves, cells, axis=1).astype(np.uint64) << np.uint64(32) | cells.astype(np.uint64)
    chosen = np.partition(keys, delete - 1, axis=1)[:, :delete] & np.uint64(0xFFFFFFFF)
    np.put_along_axis(open_cells, chosen.astype(np.int64), True, axis=1)


def _draw_ends(
    size: int, open_cells: npt.NDArray[np.bool_], drawn: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Draw a start and a different goal uniformly among the open cells that are connected.

    The lattice and its carved passages are connected, and so is every opened wall that touches the lattice. Only a
    pillar (a cell in an even row and column) whose four neighbours are still walls can be cut off. Leaving such pillars
    out is therefore the same as drawing again until start and goal are connected.
    """
    around = np.zeros_like(open_cells)
    around[:, size:-size] = (
        open_cells[:, 2 * size :]
        | open_cells[:, : -2 * size]
        | open_cells[:, size - 1 : -size - 1]
        | open_cells[:, size + 1 : 1 - size]
    )
    usable = open_cells & around
    total = usable.sum(axis=1)
    rank = usable.cumsum(axis=1, dtype=np.int32)
    low, high = drawn & np.uint64(0xFFFFFFFF), drawn >> np.uint64(32)
    first = (low * total.astype(np.uint64) >> np.uint64(32)).astype(np.int64)
    second = (high * (total - 1).astype(np.uint64) >> np.uint64(32)).astype(np.int64)
    second += second >= first
    return (rank > first[:, None]).argmax(axis=1), (rank > second[:, None]).argmax(axis=1)


def path_lengths(batch: GridBatch) -> npt.NDArray[np.int64]:
    """Return the number of steps on a shortest path from start to goal in each of B grids, ``[B]``.

    Start and goal must be connected.
    """
    distance = distances_batch(batch.walls, batch.goal)
    return distance[np.arange(len(batch)), batch.start[:, 0], batch.start[:, 1]].astype(np.int64)


def _rooms(rng: np.random.Generator) -> tuple[Grid, int]:
    """Draw a grid of rooms with a door, and return it with the length of its shortest path."""
    closed = int(rng.integers(4))
    chain = [(closed + 1 + step) % 4 for step in range(4)]  # the rooms in order, starting next to the closed wall
    doorways = [_RING_WALLS[wall][int(rng.integers(3))] for wall in chain[:3]]
    door_number = int(rng.integers(3))
    sides = [_room_cells(chain[: door_number + 1]), _room_cells(chain[door_number + 1 :])]
    cells = [*sides[0], *sides[1]]
    start = cells[int(rng.integers(len(cells)))]
    near, far = sides if start in sides[0] else sides[::-1]
    near = [cell for cell in near if cell != start]
    walls = np.ones((_ROOM_SIZE, _ROOM_SIZE), dtype=bool)
    for cell in (*cells, *doorways):
        walls[cell] = False
    goal, key, door = far[int(rng.integers(len(far)))], near[int(rng.integers(len(near)))], doorways[door_number]
    locked = walls.copy()
    locked[door] = True
    # From the start to the key with the door locked, then to the goal with the door open.
    legs = GridBatch(walls=np.stack([locked, walls]), start=np.array([start, key]), goal=np.array([key, goal]))
    return Grid(walls=walls, start=start, goal=goal, key=key, door=door), int(path_lengths(legs).sum())


def _room_cells(rooms: list[int]) -> list[Position]:
    corners = [(4 * row + 1, 4 * col + 1) for row, col in (_ROOMS[room] for room in rooms)]
    return [(top + row, left + col) for top, left in corners for row in range(3) for col in range(3)]


def _ring(walls: npt.NDArray[np.bool_], cell: Position) -> list[Position]:
    """Return the cells of a maze's only ring in order, starting from a cell on it."""
    grid = Grid(walls=walls)
    neighbours = {
        position: grid.open_around(position) for position in ((int(row), int(col)) for row, col in np.argwhere(~walls))
    }
    # Removing dead ends one after another leaves only the ring.
    ends = [position for position, open_cells in neighbours.items() if len(open_cells) == 1]
    while ends:
        end = ends.pop()
        for other in neighbours.pop(end):
            neighbours[other].remove(end)
            if len(neighbours[other]) == 1:
                ends.append(other)
    ring, position = [cell], neighbours[cell][0]
    while position != cell:
        ring.append(position)
        position = next(other for other in neighbours[position] if other != ring[-2])
    return ring
