"""Convert between the numbered states of a world's process and the views that an agent sees."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from goalscope._ground.rng import stream
from goalscope.agents.agent import Observation
from goalscope.worlds.dynamics import configurations, seen_state, shown, state_number, state_with
from goalscope.worlds.environments.world import EnvironmentView
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.planning.tasks import process_of_map
from goalscope.worlds.tasks.coordinates import Cell
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import TaskView
from goalscope.worlds.world import View, World


class Undefined(ValueError):  # noqa: N818 - callers catch it by this name
    """Raised if a hypothesis is undefined in a world, or a method does not apply; the message is the reason."""


def view_of(world: World, state: int) -> View:
    """Return the view of an agent in a state.

    Raises:
        Undefined: in this kind of world, the view depends on more than the state.
    """
    if "seen state" not in world.offers:
        raise Undefined(f"in a world of kind {world.kind}, the view depends on more than the state")
    if "environment" in world.offers:
        believed = world.believed
        offered = believed.table.offered[state]
        return EnvironmentView(
            observed=believed.environment.observe(believed.table.states[state]),
            names=believed.table.actions,
            possible=None if offered.all() else tuple(np.flatnonzero(offered).tolist()),
            number=state,
        )
    if "grid" not in world.offers:
        raise Undefined(f"a world of kind {world.kind} cannot compute the view of a state")
    phase, cell = divmod(state, world.grid.walls.size)
    at = state_with(configurations(world.grid)[phase], divmod(cell, world.grid.width))
    return GridView(grid=shown(world.grid, at))


def action_names(world: World) -> tuple[str, ...]:
    """Return the names of the actions of a world, in the order of its process."""
    if "environment" in world.offers:
        names: tuple[str, ...] = world.believed.table.actions
        return names
    return GridView.actions if "cells" in world.offers else world.begin(stream(0, "names of actions")).view.actions


def number_of(observation: Observation) -> int:
    """Return the number of the state that an observation shows, in the process of its world.

    Views of worlds from other packages must provide the number as an attribute ``number``.

    Raises:
        ValueError: the view does not determine the state.
    """
    view, world = observation.view, observation.world
    if isinstance(view, GridView) and view.grid.start is not None and world is not None:
        return state_number(world.grid, seen_state(world.grid, view.grid))
    if isinstance(view, TaskView) and world is not None and view.memory.position is not None:
        names = world.task_map.board.names
        achieved = sum(1 << names.index(name) for name in view.memory.achieved)
        return _numbers(world.task_map)[view.memory.position, achieved]
    number = getattr(view, "number", None)
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    raise ValueError(
        f"this agent needs views that determine the state of the world's process, got a view of {view.shows}: choose "
        "another agent, or give such views an attribute `number`, the number of the state in World.process()"
    )


@lru_cache(maxsize=64)
def _numbers(task_map: TaskMap) -> Mapping[tuple[Cell, int], int]:
    """Map each pair (cell, achieved nodes as bits of an integer) to the number of this state of the task map."""
    states = process_of_map(task_map).states
    return {(task_map.board.cell(index), achieved): number for number, (index, achieved) in enumerate(states)}
