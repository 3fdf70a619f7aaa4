"""Directedness of episodes towards hypotheses that are written as a user writes them."""

from collections.abc import Iterable
from typing import Any

from goalscope.goals import HeldOut, RunDirectedness, directedness, held_out_goals
from goalscope.goals.curves import Array
from goalscope.goals.hypotheses import FiniteWorld, Undefined, parse
from goalscope.goals.hypotheses.states import States, states_of
from goalscope.goals.reading import asked_hypotheses
from goalscope.measures import StepTable
from goalscope.runs import GridWorld
from goalscope.runs.record import Episode
from goalscope.worlds import Grid, Position
from goalscope.worlds.planning.process import process_of


def table_of(episodes: Iterable[Episode] | StepTable) -> StepTable:
    """Return the table of some episodes."""
    return episodes if isinstance(episodes, StepTable) else StepTable.from_episodes(episodes)


def directed(
    episodes: Iterable[Episode] | StepTable, *written: str, by: tuple[str, ...] = (), **options: Any
) -> RunDirectedness:
    """Return `directedness` towards some written hypotheses, those of the worlds where none is named."""
    table = table_of(episodes)
    return directedness(states_of(table, by=by), asked_hypotheses(written, table.worlds), by=by, **options)


def held_out(episodes: Iterable[Episode] | StepTable, **options: Any) -> tuple[HeldOut, ...]:
    """Return `held_out_goals` of all episodes together."""
    return held_out_goals(states_of(table_of(episodes)), **options)


def finite(grid: Grid, horizon: int = 1, key: Position | None = None) -> FiniteWorld:
    """Return a grid with its process; ``key`` is the key's cell in its twin where the grid is a control without one."""
    world = GridWorld(grid=grid)
    process = process_of(world)
    assert process is not None
    return FiniteWorld(world=world, process=process, horizon=horizon, twin_key=key)


def utility_in(world: FiniteWorld, written: str) -> Array | None:
    """Return ``[S]`` the utility of a written hypothesis in a world, None where it means nothing there."""
    try:
        return parse(written).utility(world)
    except Undefined:
        return None


def utilities_of(states: list[States], written: str, *, arrival: bool = False) -> dict[str, float]:
    """Return the utility of each complete episode under a written hypothesis, by the id of the episode.

    Episodes in worlds in which the hypothesis means nothing are left out.
    """
    found = dict[str, float]()
    for entry in states:
        if (utility := utility_in(entry.world, written)) is not None:
            complete = entry.chosen(entry.complete)
            found |= zip(complete.ids, complete.utilities(utility, arrival=arrival).tolist(), strict=True)
    return found
