"""Directedness of episodes that are given as one, towards hypotheses by their written forms."""

from collections.abc import Iterable, Mapping
from typing import Any

from goalscope.goals import HeldOut, RunDirectedness, directedness, held_out_goals, measure_restricted
from goalscope.goals.asked import default_hypotheses
from goalscope.hypotheses import FiniteWorld, Hypothesis, Undefined, parse
from goalscope.hypotheses.states import States, states_of
from goalscope.measures import StepTable
from goalscope.meg.restricted import Unseen
from goalscope.planning.process import process_of
from goalscope.runs import GridWorld
from goalscope.runs.record import Episode
from goalscope.worlds import Grid, Position

Episodes = Iterable[Episode] | StepTable


def table_of(episodes: Episodes) -> StepTable:
    """Return the table of episodes."""
    return episodes if isinstance(episodes, StepTable) else StepTable.from_episodes(episodes)


def directed(episodes: Episodes, *written: str | Hypothesis, **options: Any) -> RunDirectedness:
    """Return the directedness of episodes towards written forms, the usual ones of their worlds if there are none."""
    table = table_of(episodes)
    bank = {one if isinstance(one, str) else one.text: parse(one) if isinstance(one, str) else one for one in written}
    states = states_of(table, by=options.get("by", ()))
    return directedness(states, bank or default_hypotheses(table.worlds), **options)


def at_cells(cells: Mapping[str, Position], name: str) -> Hypothesis:
    """Return the hypothesis that an agent is after a cell of its own in each world, by the world's id."""

    def place(world: FiniteWorld) -> Position:
        if world.world.id not in cells:
            raise Undefined("no cell is given for this world")
        return cells[world.world.id]

    return Hypothesis.of("place", place, name)


def finite(grid: Grid, horizon: int, key: Position | None = None) -> FiniteWorld:
    """Return a grid as a world with its process; ``key`` is the cell of the key of its twin."""
    world = GridWorld(grid=grid)
    process = process_of(world)
    assert process is not None
    return FiniteWorld(world=world, process=process, horizon=horizon, twin_key=key)


def all_states(episodes: Episodes, by: tuple[str, ...] = ()) -> list[States]:
    """Return the states of episodes."""
    return states_of(table_of(episodes), by=by)


def held_out(episodes: Episodes, ridge: float = 1.0) -> tuple[HeldOut, ...]:
    """Return `held_out_goals` of all episodes together."""
    return held_out_goals(all_states(episodes), ridge=ridge)


def restricted(table: StepTable, unseen: Unseen) -> RunDirectedness:
    """Return `measure_restricted` of one table."""
    return measure_restricted(states_of(table), unseen=unseen)
