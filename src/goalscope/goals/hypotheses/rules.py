"""Hypotheses that are no places: conditions on another one, utilities, events, habits, functions of one's own."""

from typing import Final

import numpy as np

from goalscope._ground.own import load_function
from goalscope.goals.hypotheses.definition import (
    FAR,
    Array,
    FiniteWorld,
    Hypothesis,
    Mask,
    hypothesis,
    of_views,
    spread,
)
from goalscope.goals.hypotheses.views import Undefined, action_names
from goalscope.worlds.grid import DELTAS, Action

SIDES: Final = {"up": (0, -1), "down": (0, 1), "left": (1, -1), "right": (1, 1)}
"""Where a place may lie, as seen from the agent: the axis and the sign of the difference along it."""


@hypothesis("it lies {sides}", kind="condition")
def lies(world: FiniteWorld, it: Hypothesis, sides: tuple[str, ...]) -> Mask:
    """Return the states from which a place lies on one of some sides of the agent."""
    if it.kind != "place":
        raise Undefined(f"{it.text} is no place, it lies on no side")
    ahead = world.further(it.cell(world))
    return np.asarray(np.any([ahead[:, axis] * sign > 0 for axis, sign in map(SIDES.__getitem__, sides)], axis=0))


@hypothesis("it is within {whole} steps", kind="condition")
def within(world: FiniteWorld, it: Hypothesis, steps: int) -> Mask:
    """Return the states from which a place or an event is at most some steps away."""
    return np.asarray(world.steps_to(it.where(world)) <= steps)


def holding(world: FiniteWorld, first: Hypothesis, condition: Hypothesis) -> Mask:
    """Return the states in which the condition of a hypothesis holds; an event and a place are conditions, too."""
    mask: Mask = condition.value(world, first) if condition.kind == "condition" else condition.where(world)
    return mask


@hypothesis("{hypothesis} if {condition}, else {hypothesis}", kind="table")
def conditional(world: FiniteWorld, first: Hypothesis, condition: Hypothesis, otherwise: Hypothesis) -> Array:
    """Return the policy of the first hypothesis where the condition holds, that of the other one elsewhere."""
    holds = holding(world, first, condition)
    return np.where(holds[:, None], first.solved(world).policy, otherwise.solved(world).policy)


@hypothesis("{hypothesis} if {condition}", kind="table")
def else_random(world: FiniteWorld, first: Hypothesis, condition: Hypothesis) -> Array:
    """Return the policy of the hypothesis where the condition holds, all offered actions elsewhere."""
    holds = holding(world, first, condition)
    return np.where(holds[:, None], first.solved(world).policy, world.even)


@hypothesis("{hypothesis} within {whole} steps", kind="table")
def close(world: FiniteWorld, first: Hypothesis, steps: int) -> Array:
    """Return the policy of the hypothesis where it is at most some steps away, all offered actions elsewhere."""
    return np.where(within(world, first, steps)[:, None], first.solved(world).policy, world.even)


@hypothesis("not {event}", kind="condition")
def absent(world: FiniteWorld, it: Hypothesis, event: Hypothesis) -> Mask:
    """Return the states in which an event does not hold, or the agent is not at a place."""
    return ~event.where(world)


@hypothesis("there is a {object}", kind="condition")
def present(world: FiniteWorld, it: Hypothesis, name: str) -> Mask:
    """Return all states of a grid with a key or a door, none of one without; a key that is carried counts, too."""
    return np.full(world.process.states, world.grid.objects[name] is not None)


@hypothesis("the grid has at most {whole} rows", kind="condition")
def small(world: FiniteWorld, it: Hypothesis, rows: int) -> Mask:
    """Return all states of a grid of at most so many rows, none of a larger one."""
    return np.full(world.process.states, world.grid.height <= rows)


@hypothesis("{terms}", kind="utility")
def weighted(world: FiniteWorld, terms: tuple[tuple[float, Hypothesis], ...]) -> Array:
    """Return the sum of what places and events pay for a decision that begins in a state, each times its weight."""
    return np.asarray(np.sum([weight * term.utility(world) for weight, term in terms], axis=0))


@hypothesis("place {source}", kind="place")
@hypothesis("utility {source}", kind="utility")
@hypothesis("table {source}", kind="table")
@hypothesis("event {source}", kind="event")
def own(world: FiniteWorld, source: str) -> object:
    """Return what a function of the working directory gives, ``module:function``."""
    return load_function(source, "a hypothesis")(world)


@hypothesis("policy {source}", kind="table")
def own_policy(world: FiniteWorld, source: str) -> Array:
    """Return the policy of a function of the working directory, which is given a view and returns ``[A]``."""
    return of_views(load_function(source, "a hypothesis"), world)


@hypothesis("{name}", kind="event", says="“{}”")
@hypothesis("event {name}", kind="event", says="“{}”")
def event(world: FiniteWorld, name: str) -> Mask:
    """Return where a goal is reached that the world itself names, such as those of an environment's ``goals()``."""
    if (named := world.process.goals.get(name)) is None:
        raise Undefined(f"this world names the goals {', '.join(world.process.goals) or 'none'}, not {name}")
    return np.asarray(named > 0)


@hypothesis("key held", kind="event", says="holding the key")
def key_held(world: FiniteWorld) -> Mask:
    """Return the states after the key was picked up."""
    if world.grid.key is None:
        raise Undefined("this world has no key")
    return np.arange(world.process.states) >= world.grid.walls.size


@hypothesis("door open", kind="event", says="the door being open")
def door_open(world: FiniteWorld) -> Mask:
    """Return the states after the door was opened."""
    if world.grid.door is None:
        raise Undefined("this world has no door")
    return np.arange(world.process.states) >= 2 * world.grid.walls.size


@hypothesis("random", kind="table")
def random(world: FiniteWorld) -> Array:
    """Return all offered actions, equally likely."""
    return world.even


@hypothesis("open moves", kind="table")
def open_moves(world: FiniteWorld) -> Array:
    """Return the actions that change the state, equally likely."""
    return spread(world, _changing(world))


@hypothesis("follow the wall", kind="table")
def follow_the_wall(world: FiniteWorld) -> Array:
    """Return the open moves with a wall at their right hand, else all open moves."""
    if "cells" not in world.world.offers:
        raise Undefined("a wall is followed by the four moves of a grid")
    changing = _changing(world)
    along = changing & ~changing[:, [Action.RIGHT, Action.LEFT, Action.UP, Action.DOWN]]  # at the right of each move
    return spread(world, np.where(along.any(axis=1, keepdims=True), along, changing))


@hypothesis("keep {name}", kind="table")
def keep(world: FiniteWorld, name: str) -> Array:
    """Return one action wherever it is offered, whatever is seen."""
    names = [label.lower() for label in action_names(world.world)]
    if name.lower() not in names:
        raise Undefined(f"the actions here are {', '.join(names)}, not {name}")
    return spread(world, np.arange(len(names))[None] == np.full((world.process.states, 1), names.index(name.lower())))


@hypothesis("flee {place}", kind="table")
def flee(world: FiniteWorld, place: Hypothesis) -> Array:
    """Return the moves after which the way to a place is longest, those into walls included."""
    steps = world.steps_to(place.where(world))
    after = np.where(steps < FAR, steps, -1)[world.process.transitions]
    return spread(world, after == after.max(axis=1, keepdims=True))


@hypothesis("straight to {place}", kind="table")
def straight(world: FiniteWorld, place: Hypothesis) -> Array:
    """Return the moves that would lower the distance to a place in rows plus columns, walls or not."""
    return spread(world, world.further(place.cell(world)) @ DELTAS.T > 0)


def _changing(world: FiniteWorld) -> Mask:
    """Return ``[S, A]`` the actions that change the state."""
    if world.process.chance:
        raise Undefined("which actions change nothing depends on chance here")
    return np.asarray(world.process.transitions != np.arange(world.process.states)[:, None])
