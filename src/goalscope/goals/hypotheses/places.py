"""Places by rule: each yields one cell of a grid, or is undefined there with the reason; never another cell instead.

A corner is the corner of the smallest rectangle that holds all open cells, that very cell: where it is a wall, the
hypothesis is undefined in that world, and where no way leads to it without the goal, no policy follows from it. ``near
PLACE`` is the open cell nearest to it in rows plus columns, of those that can be come to without the goal; ties by row,
then by column. *Nearest* and *beside* are one cell a world, the one with the shortest way from the start. In worlds
that are no grids a name (``goal``) is the goal that the world's process names so.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

import numpy as np

from goalscope.goals.hypotheses.definition import FAR, FiniteWorld, Hypothesis, Numbers, hypothesis
from goalscope.goals.hypotheses.views import Undefined
from goalscope.worlds.grid import CORNERS, Position
from goalscope.worlds.planning.shortest import distances_to

_STOOD: Final = "the place of the goal in phase “{}”"


@hypothesis("centre", kind="place", says="the centre")
def centre(world: FiniteWorld) -> Position:
    """Return the middle cell; of an even number of rows or columns the one before the middle."""
    return (world.grid.height - 1) // 2, (world.grid.width - 1) // 2


@hypothesis("top row", kind="place", says="the nearest cell of the top row")
def top_row(world: FiniteWorld) -> Position:
    """Return the cell of the highest row with open cells that has the shortest way from the start."""
    rows, cols = np.nonzero(~world.grid.walls)
    return _first(world, [(int(rows[0]), int(col)) for col in cols[rows == rows[0]]], "no cell of the top row")


@hypothesis("cell {whole} {whole}", kind="place", says="the cell in row {}, column {}")
def cell(world: FiniteWorld, row: int, col: int) -> Position:
    """Return a cell by row and column, 0-based."""
    return row, col


@hypothesis("corner {corner}", kind="place", says="the {} corner")
def corner(world: FiniteWorld, name: str) -> Position:
    """Return the corner of the smallest rectangle that holds all open cells, that very cell."""
    if name not in CORNERS:
        raise ValueError(f"a corner must be one of {', '.join(CORNERS)}, got {name!r}")
    open_cells = np.nonzero(~world.grid.walls)
    row, col = (int(np.sort(places)[end]) for places, end in zip(open_cells, CORNERS[name], strict=True))
    return row, col


@hypothesis("where the goal stood in phase {name} [{cells}]", kind="place", says=_STOOD)
def stood(world: FiniteWorld, phase: str, cells: tuple[tuple[int, int, int, int], ...]) -> Position:
    """Return where the goal stood in the worlds of a phase: (height, width, row, col) for each size of grid."""
    for height, width, row, col in cells:
        if world.grid.walls.shape == (height, width):
            return row, col
    raise Undefined(f"grids of this size have no one cell at which the goal stood in phase {phase}")


@hypothesis("where the goal stood in phase {name}", kind="place", says=_STOOD)
def stood_somewhere(world: FiniteWorld, phase: str) -> Position:
    """Raise `Undefined`: the worlds of the phase must be looked at first, see `goalscope.goals.hypotheses.bind`."""
    raise Undefined(f"where the goal stood in phase {phase} is not known: none of the worlds has this phase")


@hypothesis("nearest of {places}", kind="place", says="the nearest of {}")
def nearest(world: FiniteWorld, places: tuple[Hypothesis, ...]) -> Position:
    """Return the place with the shortest way from the start, of those that are defined; ties go to the first."""
    cells, reasons = [], []
    for place in places:
        try:
            cells.append(place.cell(world))
        except Undefined as error:
            reasons.append(str(error))
    return _first(world, cells, "; ".join(reasons) or "none of the places")


@hypothesis("beside {place}", kind="place", says="the cell beside {}")
def beside(world: FiniteWorld, place: Hypothesis) -> Position:
    """Return the open cell next to a place with the shortest way from the start; ties: up, down, left, right."""
    return _first(world, world.grid.open_around(place.cell(world)), f"no cell beside {place.text}")


@hypothesis("near {place}", kind="place", says="the open cell nearest to {}")
def near(world: FiniteWorld, place: Hypothesis) -> Position:
    """Return the cell nearest to a place, of those that can be come to without the goal; ties by row, then column."""
    row, col = place.value(world)
    rows, cols = np.nonzero(_ways(world) < FAR)
    index = int(np.argmin(np.abs(rows - row) + np.abs(cols - col)))
    return int(rows[index]), int(cols[index])


@hypothesis("mirror of {place}", kind="place", says="the mirror image of {}")
def mirror(world: FiniteWorld, place: Hypothesis) -> Position:
    """Return the image of a place, left for right."""
    row, col = place.value(world)
    return row, world.grid.width - 1 - col


@hypothesis("point mirror of {place}", kind="place", says="the image of {} through the centre")
def point_mirror(world: FiniteWorld, place: Hypothesis) -> Position:
    """Return the image of a place through the centre of the grid."""
    row, col = place.value(world)
    return world.grid.height - 1 - row, world.grid.width - 1 - col


@hypothesis("{place} {offset}", kind="place", says="the cell {1} {0}")
def moved(world: FiniteWorld, place: Hypothesis, offset: tuple[int, int]) -> Position:
    """Return the cell some rows and columns off a place."""
    row, col = place.value(world)
    return row + offset[0], col + offset[1]


def _shown(name: str, world: FiniteWorld) -> Position:
    """Return the cell of the goal, the key or the door at first, or where the agent begins."""
    position = world.grid.objects[name]
    if position is None and name == "key":  # in a control world without a key, the key's cell is that of its twin
        position = world.twin_key
    if position is None:
        raise Undefined(f"this world has no {name}")
    return position


def _ways(world: FiniteWorld) -> Numbers:
    """Return ``[H, W]`` the steps from the start around the goal, `FAR` without a way; doors count as open."""
    solid = world.grid.walls.copy()
    solid[_shown("goal", world)] = True
    steps = distances_to(solid, [_shown("start", world)])
    return np.where(steps < 0, FAR, steps)


def _first(world: FiniteWorld, cells: Iterable[Position], otherwise: str) -> Position:
    """Return the first of the cells with the shortest way from the start; the way into the goal counts, too."""
    ways, end = _ways(world), _shown("goal", world)
    ways[end] = 1 + min((int(ways[position]) for position in world.grid.open_around(end)), default=FAR)
    reached = [position for position in cells if ways[position] < FAR]
    if not reached:
        raise Undefined(f"{otherwise} can be come to from the start without the goal")
    return min(reached, key=lambda position: int(ways[position]))


for _name in ("goal", "key", "door", "start"):
    hypothesis(_name, kind="place", says=f"the {_name}")(partial(_shown, _name))
