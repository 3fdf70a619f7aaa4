"""The hypotheses that come with goalscope: conditions, utilities, events, habits, user functions, and places.

A place is defined by a rule that yields one cell of a grid, or raises `Undefined` with the reason. A corner is exactly
the corner cell of the smallest rectangle that contains all open cells. If that cell is a wall, the hypothesis is
undefined in the world; if it cannot be reached without passing the goal, it has no policy. ``near PLACE`` is the open
cell nearest to the place (rows plus columns) among those that can be reached without passing the goal; ties are broken
by row, then column. *Nearest* and *beside* choose the cell with the shortest path from the start. In worlds other than
grids, a name such as ``goal`` refers to the goal of that name in the world's process.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

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
    """Condition: in which states does the place of a hypothesis lie in one of the given directions from the agent?

    Args:
        world: the world.
        it: the hypothesis, which must be a place.
        sides: directions, such as ("up", "right").

    Returns:
        ``[S]`` bool.

    Raises:
        Undefined: the hypothesis is not a place.
    """
    if it.kind != "place":
        raise Undefined(f"{it.text} is not a place, so it has no direction")
    ahead = world.further(it.cell(world))
    return np.asarray(np.any([ahead[:, axis] * sign > 0 for axis, sign in map(SIDES.__getitem__, sides)], axis=0))


@hypothesis("it is within {whole} steps", kind="condition")
def within(world: FiniteWorld, it: Hypothesis, steps: int) -> Mask:
    """Condition: in which states is the place or event of a hypothesis at most this many steps away? ``[S]`` bool.

    Args:
        world: the world.
        it: the hypothesis, a place or an event.
        steps: the greatest number of steps on a shortest path.
    """
    return np.asarray(world.steps_to(world.targets(it)) <= steps)


def holding(world: FiniteWorld, first: Hypothesis, condition: Hypothesis) -> Mask:
    """Return the states in which a condition holds, ``[S]`` bool.

    Args:
        world: the world.
        first: the hypothesis that the condition qualifies, such as "goal" in "goal if key held".
        condition: a condition, an event or a place. An event or place that the world lacks holds in no state: without a
            key, no key is held.
    """
    if condition.kind == "condition":
        mask: Mask = condition.value(world, first)
        return mask
    try:
        return condition.where(world)
    except Undefined:
        return np.zeros(world.process.states, dtype=bool)


def branch(world: FiniteWorld, rule: Hypothesis, applies: Mask) -> Array:
    """Return the policy of one branch of a conditional hypothesis, such as "goal" in "goal if key held, else centre".

    Args:
        world: the world.
        rule: the hypothesis of the branch.
        applies: ``[S]`` bool, the states that take the branch. If none of them can be reached, the policy is uniform.

    Raises:
        Undefined: a state that can be reached takes the branch, and `rule` is undefined in this world.
    """
    if not (applies & world.live & world.reached).any():
        return world.even
    return rule.solved(world).policy


@hypothesis("{hypothesis} if {condition}, else {hypothesis}", kind="table")
def conditional(world: FiniteWorld, first: Hypothesis, condition: Hypothesis, otherwise: Hypothesis) -> Array:
    """Policy: follow the first hypothesis where the condition holds, and the second one elsewhere.

    It is undefined only if a hypothesis is undefined in this world that some reachable state would follow.
    """
    holds = holding(world, first, condition)
    return np.where(holds[:, None], branch(world, first, holds), branch(world, otherwise, ~holds))


@hypothesis("{hypothesis} if {condition}", kind="table")
def else_random(world: FiniteWorld, first: Hypothesis, condition: Hypothesis) -> Array:
    """Policy: follow the hypothesis in states in which the condition holds, and act uniformly at random elsewhere."""
    holds = holding(world, first, condition)
    return np.where(holds[:, None], branch(world, first, holds), world.even)


@hypothesis("{hypothesis} within {whole} steps", kind="table")
def close(world: FiniteWorld, first: Hypothesis, steps: int) -> Array:
    """Policy: follow the hypothesis where its place or event is at most this many steps away, else act at random."""
    return np.where(within(world, first, steps)[:, None], first.solved(world).policy, world.even)


@hypothesis("not {event}", kind="condition")
def absent(world: FiniteWorld, it: Hypothesis, event: Hypothesis) -> Mask:
    """Condition "not ...": the states of a world in which another condition does not hold, ``[S]`` bool over its S
    states.

    Args:
        world: the world.
        it: the hypothesis that the condition qualifies, such as "goal" in "goal if not key held".
        event: what must not hold: an event such as "key held", or a place, at which the agent must not be.
    """
    return ~holding(world, it, event)


@hypothesis("there is a {object}", kind="condition")
def present(world: FiniteWorld, it: Hypothesis, name: str) -> Mask:
    """Condition: all states if the grid has an object (also while it is carried), otherwise no state, ``[S]`` bool.

    Args:
        world: the world.
        it: the hypothesis that the condition qualifies; not used.
        name: the object, "key" or "door".
    """
    return np.full(world.process.states, world.grid.objects[name] is not None)


@hypothesis("the grid has at most {whole} rows", kind="condition")
def small(world: FiniteWorld, it: Hypothesis, rows: int) -> Mask:
    """Condition: all states if the grid has at most this many rows, otherwise no state, ``[S]`` bool."""
    return np.full(world.process.states, world.grid.height <= rows)


@hypothesis("{terms}", kind="utility")
def weighted(world: FiniteWorld, terms: tuple[tuple[float, Hypothesis], ...]) -> Array:
    """Utility: the weighted sum of the utilities of several places and events, ``[S]`` or ``[S, A]``.

    Args:
        world: the world.
        terms: pairs of a weight and a place or event.
    """
    return np.asarray(sum((weight * term.utility(world)).T for weight, term in terms)).T


@hypothesis("place {source}", kind="place")
@hypothesis("utility {source}", kind="utility")
@hypothesis("table {source}", kind="table")
@hypothesis("event {source}", kind="event")
def own(world: FiniteWorld, source: str) -> object:
    """Hypothesis defined by a function of the user, which takes the `FiniteWorld`; return the result of the function.

    Args:
        world: the world.
        source: the function, as ``module:function`` of a file in the working directory.
    """
    return load_function(source, "a hypothesis")(world)


@hypothesis("policy {source}", kind="table")
def own_policy(world: FiniteWorld, source: str) -> Array:
    """Policy ``[S, A]`` from a function of the user, which maps what the agent sees to action probabilities ``[A]``.

    Args:
        world: the world.
        source: the function, as ``module:function`` of a file in the working directory.
    """
    return of_views(load_function(source, "a hypothesis"), world)


@hypothesis("{name}", kind="event", says="“{}”")
@hypothesis("event {name}", kind="event", says="“{}”")
def event(world: FiniteWorld, name: str) -> Mask:
    """Event: the states in which a goal that the world itself names is reached, ``[S]`` bool.

    Such goals come, for example, from the method ``goals()`` of an environment.

    Raises:
        Undefined: the world has no goal of this name.
    """
    if (named := world.process.goals.get(name)) is None:
        raise Undefined(f"this world has no goal {name!r}; its goals: {', '.join(world.process.goals) or 'none'}")
    return np.asarray(named > 0)


@hypothesis("state {whole}", kind="event", says="the state with number {} in the table of the environment")
def state(world: FiniteWorld, number: int) -> Mask:
    """Event: the state of an environment with a given number, ``[S]`` bool with one True entry.

    The command `goalscope table` lists the states with their numbers, from 0.

    Raises:
        Undefined: the world is not an environment, or has fewer states.
    """
    if "environment" not in world.world.offers or number >= world.process.states:
        raise Undefined(f"this world is no environment with a state {number}")
    return np.asarray(np.arange(world.process.states) == number)


@hypothesis("key held", kind="event", says="holding the key")
def key_held(world: FiniteWorld) -> Mask:
    """Event: the states in which the agent holds the key, ``[S]`` bool.

    Raises:
        Undefined: the grid has no key.
    """
    if world.grid.key is None:
        raise Undefined("this world has no key")
    return world.flags & 1 > 0


@hypothesis("door open", kind="event", says="the door being open")
def door_open(world: FiniteWorld) -> Mask:
    """Event: the states in which the door is open, ``[S]`` bool.

    Raises:
        Undefined: the grid has no door.
    """
    if world.grid.door is None:
        raise Undefined("this world has no door")
    return world.flags & 2 > 0


def _happened(to: Callable[..., Any], world: FiniteWorld, name: str) -> Mask:
    """Event: the states, ``[S]`` bool, in which something has happened to objects of a kind, such as "red key held".

    Args:
        to: `numpy.any` or `numpy.all`: whether it must have happened to one of these objects or to each of them.
        world: the world.
        name: an event that a registered kind of objects declares.

    Raises:
        Undefined: the grid has no object of this kind.
    """
    events = {kind.event(word): (kind, least) for kind in kinds() for word, least in kind.events.items()}
    kind, least = events[name]
    own = [index for index, (_, symbol) in enumerate(world.grid.things) if symbol == kind.symbol]
    if not own:
        raise Undefined(f"this world has no {kind.name}")
    arrangement = arrangement_of(world.grid.things, world.grid.held)
    digits = np.array([arrangement.unpack(flags >> 2) for flags in configurations(world.grid)])
    return np.repeat(to(digits[:, own] >= least, axis=1), world.grid.walls.size)


hypothesis("{happening}", kind="event", says="“{}”")(partial(_happened, np.any))
hypothesis("every {happening}", kind="event", says="“every {}”")(partial(_happened, np.all))


@hypothesis("row of {place}", kind="event", says="the row of {}")
def row_of(world: FiniteWorld, place: Hypothesis) -> Mask:
    """Event: the states in which the agent is in the same row of the grid as a place, ``[S]`` bool."""
    return np.asarray(world.further(place.cell(world))[:, 0] == 0)


@hypothesis("column of {place}", kind="event", says="the column of {}")
def column_of(world: FiniteWorld, place: Hypothesis) -> Mask:
    """Event: the states in which the agent is in the same column of the grid as a place, ``[S]`` bool."""
    return np.asarray(world.further(place.cell(world))[:, 1] == 0)


@hypothesis("random", kind="table")
def random(world: FiniteWorld) -> Array:
    """Policy: take each offered action with equal probability, ``[S, A]``."""
    return world.even


@hypothesis("open moves", kind="table")
def open_moves(world: FiniteWorld) -> Array:
    """Policy: take with equal probability each action that changes the state (in a grid: each move not blocked)."""
    return spread(world, world.changing)


@hypothesis("follow the wall", kind="table")
def follow_the_wall(world: FiniteWorld) -> Array:
    """Policy: take moves that are not blocked and have a wall on their right; where there is none, any unblocked move.

    Raises:
        Undefined: the world is not a grid with four moves.
    """
    if "cells" not in world.world.offers:
        raise Undefined("following the wall needs a grid with four moves")
    changing = world.changing
    along = changing & ~changing[:, [Action.RIGHT, Action.LEFT, Action.UP, Action.DOWN]]  # at the right of each move
    return spread(world, np.where(along.any(axis=1, keepdims=True), along, changing))


@hypothesis("keep {name} until blocked, else {name}", kind="table")
def keep_until_blocked(world: FiniteWorld, name: str, other: str) -> Array:
    """Policy: take one action wherever it changes the state, else a second action; if neither does, any that does.

    Args:
        world: the world, with S states and A actions.
        name: name of the first action, such as "right".
        other: name of the second action.

    Returns:
        ``[S, A]`` probabilities of the actions. Where neither action changes the state, those that change it are
        equally likely.
    """
    kept, second, changing = keep(world, name) > 0, keep(world, other) > 0, world.changing
    first_goes, second_goes = ((some & changing).any(axis=1, keepdims=True) for some in (kept, second))
    return spread(world, np.where(first_goes, kept, np.where(second_goes, second, changing)))


@hypothesis("keep {name}", kind="table")
def keep(world: FiniteWorld, name: str) -> Array:
    """Policy: always take one action; in states that do not offer it, act uniformly at random.

    Args:
        world: the world.
        name: name of the action, such as "right".

    Raises:
        Undefined: the world has no action of this name.
    """
    names = [label.lower() for label in action_names(world.world)]
    if name.lower() not in names:
        raise Undefined(f"this world has no action {name!r}; its actions: {', '.join(names)}")
    return spread(world, np.arange(len(names))[None] == np.full((world.process.states, 1), names.index(name.lower())))


@hypothesis("flee {place}", kind="table")
def flee(world: FiniteWorld, place: Hypothesis) -> Array:
    """Policy: take the moves after which the shortest path to a place is longest; bumping into a wall is a move."""
    steps = world.steps_to(world.targets(place))
    after = np.where(steps < FAR, steps, -1)[world.process.transitions]
    return spread(world, after == after.max(axis=1, keepdims=True))


@hypothesis("straight to {place}", kind="table")
def straight(world: FiniteWorld, place: Hypothesis) -> Array:
    """Policy: take the moves that bring the agent closer to a place in rows or columns, as if there were no walls."""
    return spread(world, world.further(place.cell(world)) @ DELTAS.T > 0)


@hypothesis("towards {place} by open moves", kind="table")
def towards(world: FiniteWorld, place: Hypothesis) -> Array:
    """Policy: take unblocked moves that bring the agent closer to a place in rows or columns.

    Where all of these moves are blocked, any unblocked move is equally likely.
    """
    changing = world.changing
    ahead = changing & (world.further(place.cell(world)) @ DELTAS.T > 0)
    return spread(world, np.where(ahead.any(axis=1, keepdims=True), ahead, changing))


@hypothesis("centre", kind="place", says="the centre")
def centre(world: FiniteWorld) -> Position:
    """Place: the middle cell of the grid; with an even number of rows or columns, the one before the middle."""
    return (world.grid.height - 1) // 2, (world.grid.width - 1) // 2


@hypothesis("top row", kind="place", says="the nearest cell of the top row")
def top_row(world: FiniteWorld) -> Position:
    """Place: of the open cells in the topmost row that has any, the one with the shortest path from the start."""
    rows, cols = np.nonzero(~world.grid.walls)
    return _first(world, [(int(rows[0]), int(col)) for col in cols[rows == rows[0]]], "no cell of the top row")


@hypothesis("cell {whole} {whole}", kind="place", says="the cell in row {}, column {}")
def cell(world: FiniteWorld, row: int, col: int) -> Position:
    """Place: the cell in a given row and column of the grid, both counted from 0."""
    return row, col


@hypothesis("corner {corner}", kind="place", says="the {} corner")
def corner(world: FiniteWorld, name: str) -> Position:
    """Place: a corner cell, such as "top-right", of the smallest rectangle that contains all open cells of the grid."""
    if name not in CORNERS:
        raise ValueError(f"a corner must be one of {', '.join(CORNERS)}, got {name!r}")
    open_cells = np.nonzero(~world.grid.walls)
    row, col = (int(np.sort(places)[end]) for places, end in zip(open_cells, CORNERS[name], strict=True))
    return row, col


@hypothesis("where the goal stood in phase {name} [{cells}]", kind="place", says=_STOOD)
def stood(world: FiniteWorld, phase: str, cells: tuple[tuple[int, int, int, int], ...]) -> Position:
    """Place: the cell where the goal stood in the worlds of a phase, which is a named group of worlds in a study.

    Args:
        world: the world.
        phase: name of the phase.
        cells: (height, width, row, column) for each grid size: the cell of the goal in grids of this size.

    Raises:
        Undefined: no cell is given for the size of this grid.
    """
    for height, width, row, col in cells:
        if world.grid.walls.shape == (height, width):
            return row, col
    raise Undefined(f"in phase {phase}, grids of this size have no single cell at which the goal always stood")


@hypothesis("where the goal stood in phase {name}", kind="place", says=_STOOD)
def stood_somewhere(world: FiniteWorld, phase: str) -> Position:
    """Stand-in for "where the goal stood in phase P" (a group of worlds) until `goalscope.goals.hypotheses.bind` has
    looked up the cells.

    Raises:
        Undefined: always, because the cells are not known yet.
    """
    raise Undefined(f"the cell of the goal in phase {phase} is not known: none of the worlds belongs to this phase")


@hypothesis("nearest of {places}", kind="place", says="the nearest of {}")
def nearest(world: FiniteWorld, places: tuple[Hypothesis, ...]) -> Position:
    """Place "nearest of ...": of several places, the one with the shortest path from the start; ties go to the first.

    Places that are undefined in the grid are ignored.

    Args:
        world: the world.
        places: hypotheses that name a place each, such as "corner top-left".

    Raises:
        Undefined: all places are undefined, or none can be reached without passing the goal.
    """
    cells, reasons = [], []
    for place in places:
        try:
            cells.append(place.cell(world))
        except Undefined as error:
            reasons.append(str(error))
    return _first(world, cells, "; ".join(reasons) or "none of the places")


@hypothesis("beside {place}", kind="place", says="the cell beside {}")
def beside(world: FiniteWorld, place: Hypothesis) -> Position:
    """Place: the open neighbour cell of a place with the shortest path from the start; ties: up, down, left, right."""
    return _first(world, world.grid.open_around(place.cell(world)), f"no cell beside {place.text}")


@hypothesis("near {place}", kind="place", says="the open cell nearest to {}")
def near(world: FiniteWorld, place: Hypothesis) -> Position:
    """Place: the open cell nearest to a place, in rows plus columns, among those reachable without passing the goal.

    Ties are broken by row, then by column.
    """
    row, col = place.value(world)
    rows, cols = np.nonzero(_ways(world) < FAR)
    index = int(np.argmin(np.abs(rows - row) + np.abs(cols - col)))
    return int(rows[index]), int(cols[index])


@hypothesis("at {thing}", kind="place", says="the nearest {}")
def at_thing(world: FiniteWorld, name: str) -> Position:
    """Place: the cell of an object of a given kind, such as "red key"; of several, the one with the shortest path.

    If the agent cannot stand on any of them, because each moves it on at once, the result is the one that it can enter
    in the fewest steps. To be at it then means to enter it (`FiniteWorld.targets`).
    """
    symbol = registry.resolve("thing", name).symbol
    cells = [cell for cell, other in world.grid.things if other == symbol]
    if not cells:
        raise Undefined(f"this world has no {name}")
    try:
        return _first(world, cells, f"no {name}")
    except Undefined:
        ways = {cell: world.steps_to(world.entering(cell))[world.process.start > 0].min() for cell in cells}
        nearest_cell = min(cells, key=ways.__getitem__)
        if ways[nearest_cell] >= FAR:
            raise
        return nearest_cell


@hypothesis("mirror of {place}", kind="place", says="the mirror image of {}")
def mirror(world: FiniteWorld, place: Hypothesis) -> Position:
    """Place: the mirror image of another place in the grid, with left and right exchanged."""
    row, col = place.value(world)
    return row, world.grid.width - 1 - col


@hypothesis("point mirror of {place}", kind="place", says="the image of {} through the centre")
def point_mirror(world: FiniteWorld, place: Hypothesis) -> Position:
    """Place: the image of another place when the grid is turned by 180 degrees."""
    row, col = place.value(world)
    return world.grid.height - 1 - row, world.grid.width - 1 - col


@hypothesis("{place} {offset}", kind="place", says="the cell {1} {0}")
def moved(world: FiniteWorld, place: Hypothesis, offset: tuple[int, int]) -> Position:
    """Place: the cell a given number of rows (downwards) and columns (to the right) away from another place."""
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
