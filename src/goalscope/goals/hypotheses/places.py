"""Places defined by a rule: each rule yields one cell of a grid, or raises `Undefined` with the reason.

A corner is exactly the corner cell of the smallest rectangle that contains all open cells. If that cell is a wall, the
hypothesis is undefined in the world; if it cannot be reached without passing the goal, it has no policy. ``near PLACE``
is the open cell nearest to the place (rows plus columns) among those that can be reached without passing the goal; ties
are broken by row, then column. *Nearest* and *beside* choose the cell with the shortest path from the start. In worlds
other than grids, a name such as ``goal`` refers to the goal of that name in the world's process.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

import numpy as np

from goalscope._ground import registry
from goalscope.goals.hypotheses.definition import FAR, FiniteWorld, Hypothesis, Numbers, hypothesis
from goalscope.goals.hypotheses.views import Undefined
from goalscope.worlds.grid import CORNERS, Position
from goalscope.worlds.planning.shortest import distances_to

_STOOD: Final = "the place of the goal in phase “{}”"


@hypothesis("centre", kind="place", says="the centre")
def centre(world: FiniteWorld) -> Position:
    """Return the middle cell; with an even number of rows or columns, the one before the middle."""
    return (world.grid.height - 1) // 2, (world.grid.width - 1) // 2


@hypothesis("top row", kind="place", says="the nearest cell of the top row")
def top_row(world: FiniteWorld) -> Position:
    """Return the cell of the top open row with the shortest path from the start."""
    rows, cols = np.nonzero(~world.grid.walls)
    return _first(world, [(int(rows[0]), int(col)) for col in cols[rows == rows[0]]], "no cell of the top row")


@hypothesis("cell {whole} {whole}", kind="place", says="the cell in row {}, column {}")
def cell(world: FiniteWorld, row: int, col: int) -> Position:
    """Return the cell in a row and column, both counted from 0."""
    return row, col


@hypothesis("corner {corner}", kind="place", says="the {} corner")
def corner(world: FiniteWorld, name: str) -> Position:
    """Return the corner cell of the smallest rectangle that contains all open cells."""
    if name not in CORNERS:
        raise ValueError(f"a corner must be one of {', '.join(CORNERS)}, got {name!r}")
    open_cells = np.nonzero(~world.grid.walls)
    row, col = (int(np.sort(places)[end]) for places, end in zip(open_cells, CORNERS[name], strict=True))
    return row, col


@hypothesis("where the goal stood in phase {name} [{cells}]", kind="place", says=_STOOD)
def stood(world: FiniteWorld, phase: str, cells: tuple[tuple[int, int, int, int], ...]) -> Position:
    """Return the cell of the goal in the worlds of a phase, from (height, width, row, col) for each grid size."""
    for height, width, row, col in cells:
        if world.grid.walls.shape == (height, width):
            return row, col
    raise Undefined(f"in phase {phase}, grids of this size have no single cell at which the goal always stood")


@hypothesis("where the goal stood in phase {name}", kind="place", says=_STOOD)
def stood_somewhere(world: FiniteWorld, phase: str) -> Position:
    """Raise `Undefined`, because the hypothesis was not bound to worlds, see `goalscope.goals.hypotheses.bind`."""
    raise Undefined(f"the cell of the goal in phase {phase} is not known: none of the worlds belongs to this phase")


@hypothesis("nearest of {places}", kind="place", says="the nearest of {}")
def nearest(world: FiniteWorld, places: tuple[Hypothesis, ...]) -> Position:
    """Return the defined place with the shortest path from the start; ties go to the first."""
    cells, reasons = [], []
    for place in places:
        try:
            cells.append(place.cell(world))
        except Undefined as error:
            reasons.append(str(error))
    return _first(world, cells, "; ".join(reasons) or "none of the places")


@hypothesis("beside {place}", kind="place", says="the cell beside {}")
def beside(world: FiniteWorld, place: Hypothesis) -> Position:
    """Return the open neighbour of a place with the shortest path from the start; ties: up, down, left, right."""
    return _first(world, world.grid.open_around(place.cell(world)), f"no cell beside {place.text}")


@hypothesis("near {place}", kind="place", says="the open cell nearest to {}")
def near(world: FiniteWorld, place: Hypothesis) -> Position:
    """Return the cell nearest to a place among those reachable without passing the goal; ties by row, then column."""
    row, col = place.value(world)
    rows, cols = np.nonzero(_ways(world) < FAR)
    index = int(np.argmin(np.abs(rows - row) + np.abs(cols - col)))
    return int(rows[index]), int(cols[index])


@hypothesis("at {thing}", kind="place", says="the nearest {}")
def at_thing(world: FiniteWorld, name: str) -> Position:
    """Return the cell of the thing with this name that has the shortest path from the start.

    If the agent cannot stand on any of them because each moves it on, it is the first one that can be entered.
    """
    symbol = registry.resolve("thing", name).symbol
    cells = [cell for cell, other in world.grid.things if other == symbol]
    if not cells:
        raise Undefined(f"this world has no {name}")
    try:
        return _first(world, cells, f"no {name}")
    except Undefined:
        entered = [cell for cell in cells if world.entered[cell]]
        if not entered:
            raise
        return entered[0]


@hypothesis("mirror of {place}", kind="place", says="the mirror image of {}")
def mirror(world: FiniteWorld, place: Hypothesis) -> Position:
    """Return the mirror image of a place, with left and right exchanged."""
    row, col = place.value(world)
    return row, world.grid.width - 1 - col


@hypothesis("point mirror of {place}", kind="place", says="the image of {} through the centre")
def point_mirror(world: FiniteWorld, place: Hypothesis) -> Position:
    """Return the point reflection of a place in the centre of the grid."""
    row, col = place.value(world)
    return world.grid.height - 1 - row, world.grid.width - 1 - col


@hypothesis("{place} {offset}", kind="place", says="the cell {1} {0}")
def moved(world: FiniteWorld, place: Hypothesis, offset: tuple[int, int]) -> Position:
    """Return the cell at an offset (rows, columns) from a place."""
    row, col = place.value(world)
    return row + offset[0], col + offset[1]


def _shown(name: str, world: FiniteWorld) -> Position:
    """Return the cell in which an object of a grid (goal, key, door or agent) is at the beginning."""
    position = world.grid.objects[name]
    if position is None and name == "key":  # in a control world without a key, the key's cell is that of its twin
        position = world.twin_key
    if position is None:
        raise Undefined(f"this world has no {name}")
    return position


def _ways(world: FiniteWorld) -> Numbers:
    """Return the steps from the start without passing the goal, ``[H, W]``; `FAR` if unreachable.

    The door D counts as open. Among things, the steps are those of the shortest episode, which may take keys along.
    """
    if world.grid.things:
        steps = world.cell_steps.copy()
        steps[_shown("goal", world)] = FAR
        return steps
    solid = world.grid.walls.copy()
    solid[_shown("goal", world)] = True
    steps = distances_to(solid, [_shown("start", world)])
    return np.where(steps < 0, FAR, steps)


def _first(world: FiniteWorld, cells: Iterable[Position], otherwise: str) -> Position:
    """Return the cell that is the fewest steps from the start (the first of equally near ones).

    This may be the goal.
    """
    ways, end = _ways(world), _shown("goal", world)
    ways[end] = 1 + min((int(ways[position]) for position in world.grid.open_around(end)), default=FAR)
    reached = [position for position in cells if ways[position] < FAR]
    if not reached:
        raise Undefined(f"{otherwise} can be reached from the start without passing the goal")
    return min(reached, key=lambda position: int(ways[position]))


for _name in ("goal", "key", "door", "start"):
    hypothesis(_name, kind="place", says=f"the {_name}")(partial(_shown, _name))
