"""The laws that every measure obeys, to be run on ours and on yours.

from goalscope.measures import check_measure
check_measure(my_measure)
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from goalscope.measures.definition import Measure, StepMeasure
from goalscope.measures.sample import sample_episodes, transformed
from goalscope.measures.table import StepTable
from goalscope.rng import stream
from goalscope.rows import WHOLE_EPISODE, Row, Rows
from goalscope.runs.record import Episode
from goalscope.worlds.transform import TRANSFORMS

_TURNS = ("reflect", "rotate", "transpose")
TOLERANCE = 1e-9
"""How far two values may lie apart, relative to the larger one or to 1, and still count as equal."""

_Key = tuple[str, str, str, str, int, tuple[tuple[str, str], ...]]


def check_measure(measure: Measure, episodes: Iterable[Episode] | None = None, *, invariant: bool = True) -> None:
    """Check that a measure obeys the common laws.

    1. It has a name, a unit and bounds, and its rows carry that name and that unit.
    2. Every value is NaN or a finite number within the bounds.
    3. Every row belongs to a grid, and where it names one to an episode and a step, of the table.
    4. It changes nothing in the table (whose arrays are read-only), and the same table gives the same rows.
    5. The order of the episodes does not matter.
    6. No episodes give no rows; turns without an action break nothing.
    7. The rows of several agents are the rows of each of them, put together.
    8. Turning and reflecting worlds, states and actions changes no value (where ``invariant``).
    9. One made by `measure` that does not say that it needs the oracle does not read its columns.

    Args:
        measure: the measure, a function decorated by `measure` or any object that `Measure` describes.
        episodes: the episodes to try it on, of at least two agents; `sample_episodes` by default.
        invariant: whether law 8 is claimed. A measure of directions ("share of moves to the left") is not invariant.

    Raises:
        AssertionError: names the law, the row that breaks it, and what to do.
    """
    cases = _sample_cases() if episodes is None else _Cases.of(tuple(episodes))
    _check_declaration(measure)
    rows = _run(measure, cases.table, "the episodes given")
    _demand(len(rows) > 0, measure, "must emit rows for the episodes given, got none: pass episodes that it speaks of")
    _check_rows(measure, cases.table, rows)
    again = _run(measure, cases.table, "the same table twice")
    _same(measure, rows, again, "must give the same rows for the same table", "draw nothing at random, keep no state")
    shuffled = _run(measure, cases.shuffled, "episodes in another order")
    advice = "use the index of an episode for nothing but looking it up"
    _same(measure, rows, shuffled, "must not depend on the order of the episodes", advice)
    nothing = _run(measure, cases.empty, "no episodes at all")
    _demand(len(nothing) == 0, measure, f"must give no rows for no episodes, got {len(nothing)}")
    for table in cases.silent:
        advice = "turns without an action (their action is NO_ACTION, -1, which is no index)"
        _check_rows(measure, table, _run(measure, table, advice))
    parts = Rows.concatenate(_run(measure, table, "the episodes of one agent") for table in cases.agents)
    advice = "pool within the groups of `StepTable.groups` only"
    _same(measure, rows, parts, "must give for several agents what it gives for each of them", advice)
    if invariant:
        for name, (table, names) in cases.transformed.items():
            found = _run(measure, table, f"episodes under the transform {name!r}")
            advice = "pass invariant=False if it speaks of directions or places"
            _same(measure, rows, _renamed(found, names), f"must not change under the transform {name!r}", advice)
    if isinstance(measure, StepMeasure) and "oracle" not in measure.needs:
        found = _run(measure, cases.blind, "a table without the exact optimal policy")
        _same(measure, rows, found, "must not read the oracle's columns", 'declare needs=("oracle",)')


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cases:
    """The tables that the laws compare.

    Attributes:
        table: the episodes as they are given.
        shuffled: in another order.
        empty: none of them.
        silent: half of them without any action, and all of them.
        agents: one table for each agent.
        transformed: name -> the episodes turned or reflected, and the original id of each new episode.
        blind: as they are given, with an oracle that knows of no way to the goal.
    """

    table: StepTable
    shuffled: StepTable
    empty: StepTable
    silent: tuple[StepTable, StepTable]
    agents: tuple[StepTable, ...]
    transformed: Mapping[str, tuple[StepTable, Mapping[str, str]]]
    blind: StepTable

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> "_Cases":
        order = stream(0, "check", "order").permutation(len(episodes))
        quiet = [_silenced(episode) for episode in episodes]
        half = len(quiet) // 2
        moved = {name: [transformed(episode, TRANSFORMS[name]) for episode in episodes] for name in _TURNS}
        table = StepTable.from_episodes(episodes)
        return cls(
            table=table,
            blind=replace(
                table,
                optimal=np.zeros_like(table.optimal),
                **{name: np.full_like(getattr(table, name), -1) for name in ("distance", "after", "optimal_length")},
            ),
            shuffled=StepTable.from_episodes(episodes[index] for index in order),
            empty=StepTable.from_episodes([]),
            silent=(StepTable.from_episodes([*quiet[:half], *episodes[half:]]), StepTable.from_episodes(quiet)),
            agents=tuple(
                StepTable.from_episodes(episode for episode in episodes if episode.agent == agent)
                for agent in dict.fromkeys(episode.agent for episode in episodes)
            ),
            transformed={
                name: (StepTable.from_episodes(new), {one.id: old.id for one, old in zip(new, episodes, strict=True)})
                for name, new in moved.items()
            },
        )


@cache
def _sample_cases() -> _Cases:
    return _Cases.of(sample_episodes())


def _run(measure: Measure, table: StepTable, what: str) -> Rows:
    try:
        return measure.rows(table)
    except (ArithmeticError, LookupError, ValueError, TypeError) as error:
        hint = ": copy an array before changing it, the table's own are read-only" if "read-only" in str(error) else ""
        raise AssertionError(f"measure {measure.name!r} must not fail on {what}, got {error!r}{hint}") from error


def _check_declaration(measure: Measure) -> None:
    _demand(isinstance(measure, Measure), measure, "must have name, unit, bounds and rows(table), as `Measure` says")
    for attribute in ("name", "unit"):
        value = getattr(measure, attribute)
        _demand(isinstance(value, str) and bool(value), measure, f"must have a {attribute}, got {value!r}")
    low, high = measure.bounds
    _demand(low < high, measure, f"must have bounds (least, greatest) with least < greatest, got {measure.bounds}")


def _check_rows(measure: Measure, table: StepTable, rows: Rows) -> None:
    grids = set(table.grid_id)
    of = {name: index for index, name in enumerate(table.episode_id)}
    low, high = measure.bounds
    for row in rows:
        _demand(row.measure == measure.name, measure, f"must name its rows {measure.name!r}, got {row.measure!r}")
        _demand(row.unit == measure.unit, measure, f"must give its rows the unit {measure.unit!r}, got {row.unit!r}")
        within = math.isnan(row.value) or (math.isfinite(row.value) and low <= row.value <= high)
        _demand(within, measure, f"must have values that are NaN or finite and within {low:g} to {high:g}, got {row}")
        _demand(row.grid_id in grids, measure, f"must use grid ids of the table, got {row.grid_id!r}")
        if row.episode_id:
            _demand(row.episode_id in of, measure, f"must use episode ids of the table, got {row.episode_id!r}")
            index = of[row.episode_id]
            own = table.grid_id[index]
            _demand(row.grid_id == own, measure, f"must give a row the grid of its episode {own!r}, got {row}")
            known = row.step == WHOLE_EPISODE or 0 <= row.step < table.length[index]
            _demand(known, measure, f"must use steps of the episode (0..{table.length[index] - 1}), got {row}")
        else:
            _demand(row.step == WHOLE_EPISODE, measure, f"must name the episode of a row that names a step, got {row}")


def _renamed(rows: Rows, names: Mapping[str, str]) -> Rows:
    return Rows.from_columns(
        measure=rows.measure.tolist(),
        unit=rows.unit.tolist(),
        value=rows.value,
        grid_id=rows.grid_id,
        episode_id=[names.get(episode, episode) for episode in rows.episode_id],
        step=rows.step,
        tags=rows.tags,
    )


def _same(measure: Measure, rows: Rows, others: Rows, law: str, advice: str) -> None:
    mine, theirs = _sorted(rows), _sorted(others)
    _demand(len(mine) == len(theirs), measure, f"{law}, got {len(mine)} rows and {len(theirs)}: {advice}")
    for (key, one), (other_key, other) in zip(mine, theirs, strict=True):
        equal = key == other_key and (
            math.isclose(one.value, other.value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
            or (math.isnan(one.value) and math.isnan(other.value))
        )
        _demand(equal, measure, f"{law}, got {one} and {other}: {advice}")


def _sorted(rows: Rows) -> list[tuple[_Key, Row]]:
    keyed = [(_row_key(row), row) for row in rows]
    return sorted(keyed, key=lambda pair: (pair[0], math.isnan(pair[1].value), pair[1].value))


def _row_key(row: Row) -> _Key:
    tags = tuple(sorted((name, repr(value)) for name, value in row.tags.items()))
    return row.measure, row.unit, row.grid_id, row.episode_id, row.step, tags


def _silenced(episode: Episode) -> Episode:
    steps = tuple(
        replace(turn, state=episode.steps[0].state, action=None, failure="no answer") for turn in episode.steps
    )
    final = episode.steps[0].state if steps else episode.final
    return replace(episode, steps=steps, final=final, outcome="horizon")


def _demand(holds: bool, measure: Any, law: str) -> None:
    if not holds:
        raise AssertionError(f"measure {getattr(measure, 'name', measure)!r} {law}")
