"""The hypotheses that come with goalscope: conditions, utilities, events, habits, user functions, and places.

A place is defined by a rule that yields one cell of a grid, or raises `Undefined` with the reason. A corner is exactly
the corner cell of the smallest rectangle that contains all open cells. If that cell is a wall, the hypothesis is
undefined in the world; if it cannot be reached without passing the goal, it has no policy. ``near PLACE`` is the open
cell nearest to the place (rows plus columns) among those that can be reached without passing the goal; ties are broken
by row, then column. *Nearest* and *beside* choose the cell with the shortest path from the start. In worlds other than
grids, a name such as ``goal`` refers to the goal of that name in the world's process.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

import numpy as np

from goalscope._ground import registry
from goalscope._ground.own import load_function
from goalscope.goals.hypotheses.definition import (
    FAR,
    Array,
    FiniteWorld,
    Hypothesis,
    Mask,
    Numbers,
    Undefined,
    action_names,
    hypothesis,
    of_views,
    spread,
)
from goalscope.worlds.dynamics import configurations
from goalscope.worlds.grid import CORNERS, DELTAS, Action, Position
from goalscope.worlds.planning.shortest import distances_to
from goalscope.worlds.things import arrangement_of, kinds

SIDES: Final = {"up": (0, -1), "down": (0, 1), "left": (1, -1), "right": (1, 1)}
"""Direction of a place as seen from the agent -> axis and sign of the offset along it."""


_STOOD: Final = "the place of the goal in phase “{}”"


@hypothesis("it lies {sides}", kind="condition")
def lies(world: FiniteWorld, it: Hypothesis, sides: tuple[str, ...]) -> Mask:
    """Return the states from which a place lies in one of the given directions."""
    if it.kind != "place":
        raise Undefined(f"{it.text} is not a place, so it has no direction")
    ahead = world.further(it.cell(world))
    return np.asarray(np.any([ahead[:, axis] * sign > 0 for axis, sign in map(SIDES.__getitem__, sides)], axis=0))


@hypothesis("it is within {whole} steps", kind="condition")
def within(world: FiniteWorld, it: Hypothesis, steps: int) -> Mask:
    """Return the states from which a place or an event is at most this many steps away."""
    return np.asarray(world.steps_to(it.where(world)) <= steps)


def holding(world: FiniteWorld, first: Hypothesis, condition: Hypothesis) -> Mask:
    """Return the states in which a condition holds; events and places also serve as conditions.

    An event or a place that a world lacks holds in none of its states: without a key, no key is held.
    """
    if condition.kind == "condition":
        mask: Mask = condition.value(world, first)
        return mask
    try:
        return condition.where(world)
    except Undefined:
        return np.zeros(world.process.states, dtype=bool)


def branch(world: FiniteWorld, rule: Hypothesis, applies: Mask) -> Array:
    """Return the policy of one branch of a conditional hypothesis: uniform if no reachable state takes this branch.

    Raises:
        Undefined: a state that can be reached takes the branch, and the branch is undefined in this world.
    """
    if not (applies & world.live & world.reached).any():
        return world.even
    return rule.solved(world).policy


@hypothesis("{hypothesis} if {condition}, else {hypothesis}", kind="table")
def conditional(world: FiniteWorld, first: Hypothesis, condition: Hypothesis, otherwise: Hypothesis) -> Array:
    """Follow the first hypothesis where the condition holds, and the second elsewhere.

    The rule is undefined only where a branch that is taken is undefined.
    """
    holds = holding(world, first, condition)
    return np.where(holds[:, None], branch(world, first, holds), branch(world, otherwise, ~holds))


@hypothesis("{hypothesis} if {condition}", kind="table")
def else_random(world: FiniteWorld, first: Hypothesis, condition: Hypothesis) -> Array:
    """Follow the hypothesis where the condition holds, and act at random elsewhere."""
    holds = holding(world, first, condition)
    return np.where(holds[:, None], branch(world, first, holds), world.even)


@hypothesis("{hypothesis} within {whole} steps", kind="table")
def close(world: FiniteWorld, first: Hypothesis, steps: int) -> Array:
    """Follow the hypothesis where it is at most this many steps away, and act at random elsewhere."""
    return np.where(within(world, first, steps)[:, None], first.solved(world).policy, world.even)


@hypothesis("not {event}", kind="condition")
def absent(world: FiniteWorld, it: Hypothesis, event: Hypothesis) -> Mask:
    """Return the states in which an event does not hold, or in which the agent is not at a place."""
    return ~holding(world, it, event)


@hypothesis("there is a {object}", kind="condition")
def present(world: FiniteWorld, it: Hypothesis, name: str) -> Mask:
    """Return all states if the grid has the object (key or door), also when the key is carried; otherwise none."""
    return np.full(world.process.states, world.grid.objects[name] is not None)


@hypothesis("the grid has at most {whole} rows", kind="condition")
def small(world: FiniteWorld, it: Hypothesis, rows: int) -> Mask:
    """Return all states if the grid has at most this many rows, otherwise none."""
    return np.full(world.process.states, world.grid.height <= rows)


@hypothesis("{terms}", kind="utility")
def weighted(world: FiniteWorld, terms: tuple[tuple[float, Hypothesis], ...]) -> Array:
    """Return the weighted sum of the utilities of places and events, ``[S]``."""
    return np.asarray(np.sum([weight * term.utility(world) for weight, term in terms], axis=0))


@hypothesis("place {source}", kind="place")
@hypothesis("utility {source}", kind="utility")
@hypothesis("table {source}", kind="table")
@hypothesis("event {source}", kind="event")
def own(world: FiniteWorld, source: str) -> object:
    """Call a function from the working directory, written as ``module:function``."""
    return load_function(source, "a hypothesis")(world)


@hypothesis("policy {source}", kind="table")
def own_policy(world: FiniteWorld, source: str) -> Array:
    """Return the policy of a function from the working directory, which maps a view to probabilities ``[A]``."""
    return of_views(load_function(source, "a hypothesis"), world)


@hypothesis("{name}", kind="event", says="“{}”")
@hypothesis("event {name}", kind="event", says="“{}”")
def event(world: FiniteWorld, name: str) -> Mask:
    """Return the states in which a goal of the world is reached, such as one from an environment's ``goals()``."""
    if (named := world.process.goals.get(name)) is None:
        raise Undefined(f"this world has no goal {name!r}; its goals: {', '.join(world.process.goals) or 'none'}")
    return np.asarray(named > 0)


@hypothesis("state {whole}", kind="event", says="the state with number {} in the table of the environment")
def state(world: FiniteWorld, number: int) -> Mask:
    """Return the state of an environment with a number, as `goalscope table` counts them from 0."""
    if "environment" not in world.world.offers or number >= world.process.states:
        raise Undefined(f"this world is no environment with a state {number}")
    return np.asarray(np.arange(world.process.states) == number)


@hypothesis("key held", kind="event", says="holding the key")
def key_held(world: FiniteWorld) -> Mask:
    """Return the states in which the agent holds the key."""
    if world.grid.key is None:
        raise Undefined("this world has no key")
    return world.flags & 1 > 0


@hypothesis("door open", kind="event", says="the door being open")
def door_open(world: FiniteWorld) -> Mask:
    """Return the states in which the door is open."""
    if world.grid.door is None:
        raise Undefined("this world has no door")
    return world.flags & 2 > 0


@hypothesis("{happening}", kind="event", says="“{}”")
def happened(world: FiniteWorld, name: str) -> Mask:
    """Return the states in which an event of a kind of thing has happened to at least one such thing."""
    return np.asarray(_happened_to_each(world, name).any(axis=1))


@hypothesis("every {happening}", kind="event", says="“every {}”")
def happened_to_all(world: FiniteWorld, name: str) -> Mask:
    """Return the states in which an event of a kind of thing has happened to all such things."""
    return np.asarray(_happened_to_each(world, name).all(axis=1))


def _happened_to_each(world: FiniteWorld, name: str) -> Mask:
    """Return whether an event has happened to each of the N things of its kind, ``[S, N]``."""
    events = {kind.event(word): (kind, least) for kind in kinds() for word, least in kind.events.items()}
    kind, least = events[name]
    own = [index for index, (_, symbol) in enumerate(world.grid.things) if symbol == kind.symbol]
    if not own:
        raise Undefined(f"this world has no {kind.name}")
    arrangement = arrangement_of(world.grid.things, world.grid.held)
    digits = np.array([arrangement.unpack(flags >> 2) for flags in configurations(world.grid)])
    return np.repeat(digits[:, own] >= least, world.grid.walls.size, axis=0)


@hypothesis("row of {place}", kind="event", says="the row of {}")
def row_of(world: FiniteWorld, place: Hypothesis) -> Mask:
    """Return the states in which the agent is in the row of a place."""
    return np.asarray(world.further(place.cell(world))[:, 0] == 0)


@hypothesis("column of {place}", kind="event", says="the column of {}")
def column_of(world: FiniteWorld, place: Hypothesis) -> Mask:
    """Return the states in which the agent is in the column of a place."""
    return np.asarray(world.further(place.cell(world))[:, 1] == 0)


@hypothesis("random", kind="table")
def random(world: FiniteWorld) -> Array:
    """Act uniformly at random over the offered actions."""
    return world.even


@hypothesis("open moves", kind="table")
def open_moves(world: FiniteWorld) -> Array:
    """Act uniformly at random over the actions that change the state."""
    return spread(world, world.changing)


@hypothesis("follow the wall", kind="table")
def follow_the_wall(world: FiniteWorld) -> Array:
    """Move along open moves that have a wall on their right; if there is none, along any open move."""
    if "cells" not in world.world.offers:
        raise Undefined("following the wall needs a grid with four moves")
    changing = world.changing
    along = changing & ~changing[:, [Action.RIGHT, Action.LEFT, Action.UP, Action.DOWN]]  # at the right of each move
    return spread(world, np.where(along.any(axis=1, keepdims=True), along, changing))


@hypothesis("keep {name} until blocked, else {name}", kind="table")
def keep_until_blocked(world: FiniteWorld, name: str, other: str) -> Array:
    """Take a fixed action where it changes the state, else a second fixed one; where neither does, any that does."""
    kept, second, changing = keep(world, name) > 0, keep(world, other) > 0, world.changing
    first_goes, second_goes = ((some & changing).any(axis=1, keepdims=True) for some in (kept, second))
    return spread(world, np.where(first_goes, kept, np.where(second_goes, second, changing)))


@hypothesis("keep {name}", kind="table")
def keep(world: FiniteWorld, name: str) -> Array:
    """Take one fixed action wherever it is offered."""
    names = [label.lower() for label in action_names(world.world)]
    if name.lower() not in names:
        raise Undefined(f"this world has no action {name!r}; its actions: {', '.join(names)}")
    return spread(world, np.arange(len(names))[None] == np.full((world.process.states, 1), names.index(name.lower())))


@hypothesis("flee {place}", kind="table")
def flee(world: FiniteWorld, place: Hypothesis) -> Array:
    """Take the moves that maximise the path length to a place; moves into walls count."""
    steps = world.steps_to(place.where(world))
    after = np.where(steps < FAR, steps, -1)[world.process.transitions]
    return spread(world, after == after.max(axis=1, keepdims=True))


@hypothesis("straight to {place}", kind="table")
def straight(world: FiniteWorld, place: Hypothesis) -> Array:
    """Take the moves that reduce the distance to a place in rows plus columns, ignoring walls."""
    return spread(world, world.further(place.cell(world)) @ DELTAS.T > 0)


@hypothesis("towards {place} by open moves", kind="table")
def towards(world: FiniteWorld, place: Hypothesis) -> Array:
    """Take the moves of `straight` that change the state; where all of them are blocked, any move that changes it."""
    changing = world.changing
    ahead = changing & (world.further(place.cell(world)) @ DELTAS.T > 0)
    return spread(world, np.where(ahead.any(axis=1, keepdims=True), ahead, changing))


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
    """Return the cell of the goal in the worlds of a phase (a group of worlds of a study).

    ``cells`` lists (height, width, row, col): the cell for each grid size.
    """
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

    If there are several and each moves the agent on at once, so that it cannot stand on any of them, the result is the
    first one that can be entered.
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
