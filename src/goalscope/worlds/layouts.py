"""Grids with keys and doors: a key that is needed, a key without use, and two equally short paths, one with a key.

Room worlds consist of 2x2 rooms of 3x3 cells in a 9x9 grid. A random spanning tree joins the rooms: three of the four
walls between neighbouring rooms have one doorway each.

Source: behavioural and representational evaluation, section 4.3 and Fig. 5.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_whole
from goalscope._ground.rng import stream
from goalscope.worlds.generate import GridBatch, generate, path_lengths
from goalscope.worlds.grid import Grid, Position

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


def key_door(*, rng: np.random.Generator) -> Grid:
    """Generate a grid of rooms whose goal lies behind a locked door, with the key on the start's side of the door.

    One doorway of the tree has the door. The start is drawn uniformly from all cells inside rooms, the key from the
    other such cells on the start's side of the door, and the goal from the cells on the far side. A grid whose shortest
    path is longer than the paper's horizon of 30 steps is drawn again.

    Args:
        rng: source of the random numbers.
    """
    while True:
        grid, length = _rooms(rng)
        if length <= _LONGEST:
            return grid


def key_no_door(*, rng: np.random.Generator) -> Grid:
    """Generate the grid that `key_door` makes from the same random numbers, without its door: the key has no use."""
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
    """Return the matched control of a layout: the same grid without the key and without the door that the key opens."""
    return grid.at(key=None, door=None)


def layout(kind: str, *, seed: int, index: int) -> Grid:
    """Return world ``index`` of a named series. It is the same alone or in a series, and on any number of workers.

    World i of "key-no-door" is world i of "key-door" without its door.

    Args:
        kind: "key-door", "key-no-door" or "two-path".
        seed: root seed.
        index: index of the world, >= 0.

    Raises:
        ValueError: the kind is unknown or the index is negative.
    """
    if kind not in LAYOUTS:
        raise ValueError(f"a layout must be one of {', '.join(LAYOUTS)}, got {kind!r}")
    number = check_whole("a layout's index", index, 0)
    draw = {"key-door": key_door, "key-no-door": key_no_door, "two-path": two_path}[kind]
    return draw(rng=stream(seed, "layout", "two-path" if kind == "two-path" else "rooms", number))


def layout_series(kind: str, *, seed: int, count: int, first: int = 0) -> Iterator[Grid]:
    """Generate the worlds ``first .. first + count - 1`` of a named series, see `layout`."""
    return (layout(kind, seed=seed, index=index) for index in range(first, first + count))


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
