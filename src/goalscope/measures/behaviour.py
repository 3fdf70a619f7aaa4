"""Run all measures of behaviour over a set of episodes, and find the conditions that split their rows."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from goalscope._ground import registry
from goalscope._ground.checks import refuse_where
from goalscope._ground.own import attempt
from goalscope._ground.words import listed
from goalscope.measures.definition import Measure
from goalscope.measures.table import CONDITIONS, PROVENANCE, StepTable, offers_of
from goalscope.measures.things import add_measures_of_kinds
from goalscope.runs.codec import HAS_REWARD
from goalscope.runs.episode_columns import PART_EPISODES, episode_column_parts
from goalscope.runs.provenance import note_packages
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.stats.rows import Rows, Tag
from goalscope.worlds.planning.shortest import oracle
from goalscope.worlds.world import World

Result = TypeVar("Result")

BEHAVIOUR = "behaviour"
"""Name of the source under which a store keeps the rows of all measures."""

COMPARED = ("success", "action accuracy")
"""Measures compared by default in a study of grids."""

_MOST_MEASURES = 1 << 16

_checked: dict[str, Measure] = {}  # measures whose protocol was checked: the check costs more than most uses


def behaviour_measures() -> tuple[Measure, ...]:
    """Return all registered measures of behaviour, the package's own first, in the order in which reports list them.

    An object that another package registered but that is not a valid measure is skipped with a `PartWarning`.
    """
    add_measures_of_kinds()
    for name in registry.names("measure"):
        item = registry.resolve("measure", name)
        if _checked.get(name) is not item and attempt("measure", name, partial(_is_measure, item, name), _nothing):
            _checked[name] = item
    return tuple(_checked[name] for name in registry.names("measure") if name in _checked)


def _is_measure(item: Any, name: str) -> bool:
    if not isinstance(item, Measure) or item.name != name or not item.bounds[0] < item.bounds[1]:
        raise TypeError(f"a registered measure needs name, unit, bounds and rows(table); {name!r} lacks at least one")
    return True


def _nothing(sentence: str) -> None:
    """Ignore the failure of a measure; nothing replaces its rows."""


def measure_bounds() -> Mapping[str, tuple[float, float]]:
    """Return the bounds of each measure in `behaviour_measures`: name -> smallest and largest value of its
    definition.
    """
    return {measure.name: measure.bounds for measure in behaviour_measures()}


def measure_table(table: StepTable, measures: Iterable[Measure] | None = None) -> Rows:
    """Apply measures to one table of episodes, and return their rows: one value of one measure each.

    Measures that need something that the worlds lack are skipped (see `left_out`). On task maps, only "success" and the
    measures that need tasks apply.

    Args:
        table: the episodes and their steps.
        measures: the measures to apply, `behaviour_measures` by default.
    """
    if measures is not None:
        return Rows.concatenate(measure.rows(table) for measure in _measured(table, measures))
    return Rows.concatenate(rows for _, rows in _numbered_rows(table, 0, set(), set()))


def _measured(table: StepTable, measures: Iterable[Measure] | None = None) -> list[Measure]:
    """Return the measures that apply to the worlds of a table."""
    candidates = behaviour_measures() if measures is None else measures
    applicable = [measure for measure in candidates if not _lacking(measure, table.offers)]
    if "tasks" in table.offers:
        applicable = [
            measure for measure in applicable if measure.name == "success" or "tasks" in getattr(measure, "needs", ())
        ]
    return applicable


def left_out(worlds: Iterable[World], names: Collection[str] | None = None) -> str:
    """Explain in one sentence which measures do not apply to these worlds and why; "" if all apply.

    Args:
        worlds: the worlds of a run.
        names: names of the measures to report on; None for all.
    """
    offers = offers_of((world, oracle(world)) for world in worlds if "cells" not in world.offers)
    parts = []
    descriptions = {
        "oracle": "the exact optimal policy",
        "distance": "the fewest actions to the goal",
        "grid": "a map as a grid",
    }
    for need, description in descriptions.items():
        candidates = [measure for measure in behaviour_measures() if names is None or measure.name in names]
        lacking = list(dict.fromkeys(measure.name for measure in candidates if need in _lacking(measure, offers)))
        if lacking:
            quoted = [f"“{name}”" for name in lacking]
            more = [f"{len(lacking) - 3} more"] if len(lacking) > 3 else []
            verbs = "is left out: it needs" if len(lacking) == 1 else "are left out: they need"
            parts.append(f"{listed([*quoted[:3], *more])} {verbs} {description}, which these worlds lack")
    return "; ".join(parts)


def why_left_out(name: str, worlds: Iterable[World]) -> str:
    """Explain in one sentence why a measure has no rows in a run; "" if there is no such measure, or it applies.

    Args:
        name: name of the measure.
        worlds: the worlds of the run.
    """
    measures = [measure for measure in behaviour_measures() if measure.name == name]
    offers = offers_of((world, oracle(world)) for world in worlds)
    if not measures or any(not _lacking(measure, offers) for measure in measures):
        return ""
    needs = listed([f"{need!r}" for need in sorted(_lacking(measures[0], offers))])
    offered = listed([f"{offer!r}" for offer in sorted(offers)])
    return f"the measure {name!r} was left out: it needs {needs}, but these worlds have {offered}"


def _lacking(measure: Measure, offers: Collection[str]) -> set[str]:
    return set(getattr(measure, "needs", ())) - set(offers)


def measure_episodes(episodes: Iterable[Episode], measures: Iterable[Measure] | None = None) -> Rows:
    """Apply measures to episodes, and return their rows: one value of one measure each.

    Grids, task maps and other worlds are each measured in a table of their own.

    Args:
        episodes: the episodes; they must include all episodes of an agent on a world, because policies are estimated
            from them.
        measures: the measures to apply, `behaviour_measures` by default.
    """
    tables = [table for _, table in _tables(episodes)]
    return _rows(tables or [StepTable.from_episodes([])], measures)


def measure_store(store: Store, progress: Callable[[int, int], None] | None = None) -> Rows:
    """Apply all measures to the episodes of a run's store, and return their rows: one value of one measure each.

    This is faster than `measure_episodes`, and takes less memory.

    Args:
        store: the store of the run to measure.
        progress: called with the number of episodes read so far and the number of all episodes.

    Raises:
        ValueError: if a stored value is invalid.
    """
    return _without_failed(
        lambda failed: Rows.concatenate(
            rows for _, rows in sorted(measured_parts(store, progress, failed=failed), key=itemgetter(0))
        )
    )


def put_measured(store: Store, progress: Callable[[int, int], None] | None = None) -> None:
    """Apply all measures to the episodes of a run's store, and save the rows in the store, replacing earlier ones.

    Args:
        store: the store of the run, open for writing. The rows get the source `BEHAVIOUR`.
        progress: called with the number of episodes read so far and the number of all episodes.

    Raises:
        ValueError: if a stored value is invalid.
    """
    _without_failed(lambda failed: store.put_rows(measured_parts(store, progress, failed=failed), source=BEHAVIOUR))
    note_packages(store, [("measure", name) for name in store.row_counts(BEHAVIOUR)], anew="measure")


class _PartlyMeasuredError(Exception):
    """Raised when a measure of another package fails after it has already returned rows for earlier episodes."""


def _without_failed(work: Callable[[set[str]], Result]) -> Result:
    """Run ``work`` until every measure has either all of its rows or none.

    ``work`` receives the names of the measures that have failed so far. Whenever another one fails halfway, it starts
    again.
    """
    failed = set[str]()
    while True:
        with suppress(_PartlyMeasuredError):
            return work(failed)


def measured_parts(
    store: Store,
    progress: Callable[[int, int], None] | None = None,
    *,
    most: int = PART_EPISODES,
    failed: set[str] | None = None,
) -> Iterator[tuple[int, Rows]]:
    """Measure the store of a run in parts that fit in memory, and yield the rows of each measure and part.

    Each part holds whole clusters (all versions of a world), so memory does not grow with the number of episodes.
    Which measures apply is decided once, for all worlds of a table together.

    Args:
        store: the store of the run to measure.
        progress: called with the number of episodes read so far and the number of all episodes.
        most: maximum number of episodes per part.
        failed: names of measures to skip. A measure of another package that raises is added to it, with a
            `PartWarning`. With None, every exception propagates.

    Yields:
        A number by which `Store.put_rows` sorts the rows, and the rows.

    Raises:
        ValueError: if a stored value is invalid.
    """
    empty, offers, begun = True, dict[int, frozenset[str]](), set[str]()
    for columns, task_episodes in episode_column_parts(store, progress, most=most):
        if len(columns.world):
            empty = False
            table = StepTable.from_columns(columns)
            del columns
            yield from _numbered_rows(table, 0, failed, begun)
            del table
        for number, table in _tables(store.episodes(task_episodes)) if task_episodes else ():
            empty = False
            if number not in offers:
                offers[number] = _offers(store, number)
            yield from _numbered_rows(replace(table, offers=offers[number]), number, failed, begun)
    if empty:
        yield from _numbered_rows(StepTable.from_episodes([]), 0, failed, begun)


def _numbered_rows(
    table: StepTable, number: int, failed: set[str] | None, begun: set[str]
) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of each measure of a table together with their position (table number, then measure)."""
    for position, measure in enumerate(_measured(table)):
        work = partial(_checked_rows, measure, table)
        if failed is None:
            rows: Rows | None = work()
        elif measure.name in failed:
            continue
        else:
            rows = attempt("measure", measure.name, work, _nothing)
        if rows is not None:
            begun.add(measure.name)
            yield number * _MOST_MEASURES + position, rows
        elif failed is not None:
            failed.add(measure.name)
            if measure.name in begun:
                raise _PartlyMeasuredError(measure.name)


def _checked_rows(measure: Measure, table: StepTable) -> Rows:
    """Return the rows of a measure; check those from another package for name and finite, bounded values."""
    rows = measure.rows(table)
    if registry.built_in("measure", measure.name):
        return rows
    if not isinstance(rows, Rows) or not set(rows.numbered("measure")[1]) <= {measure.name}:
        raise TypeError("rows(table) must return Rows of this measure only")
    low, high = measure.bounds
    outside = ~np.isnan(rows.value) & ~((rows.value >= low) & (rows.value <= high) & np.isfinite(rows.value))
    refuse_where(outside, rows.value, f"values must be finite and lie in [{low:g}, {high:g}]")
    return rows


def _tables(episodes: Iterable[Episode]) -> Iterator[tuple[int, StepTable]]:
    """Yield one table per kind of world, with its number from `_number`."""
    kinds: dict[int, list[Episode]] = {}
    for episode in episodes:
        kinds.setdefault(_number(episode.world), []).append(episode)
    for number, members in sorted(kinds.items()):
        yield number, StepTable.from_episodes(members, tasks=number == _TASKS)


_TASKS = 3


def _number(world: World) -> int:
    """Return the number of the table to which a world belongs: 1 for grids, 2 for others, 3 for task worlds."""
    return _TASKS if "tasks" in world.offers else 1 if "cells" in world.offers else 2


def _offers(store: Store, number: int) -> frozenset[str]:
    """Return which needs of measures all worlds of one table of `_tables` meet, over all episodes of a run."""
    worlds = (store.world(identity) for (identity,) in store.query("SELECT DISTINCT world_id FROM episodes"))
    offers = offers_of((world, oracle(world)) for world in worlds if _number(world) == number)
    select = f"SELECT DISTINCT world_id FROM episodes JOIN steps ON episode = number WHERE {HAS_REWARD}"
    rewarded = (store.world(identity) for (identity,) in store.query(select))
    return offers | ({"reward"} if any(_number(world) == number != 1 for world in rewarded) else set())


def _rows(tables: Iterable[StepTable], measures: Iterable[Measure] | None = None) -> Rows:
    listed = None if measures is None else list(measures)
    return Rows.concatenate(measure_table(table, listed) for table in tables)


_REPEATS = PROVENANCE | {"start", "index", "agent"}
"""Tags that may differ between repeated episodes of one agent on one grid in the same condition."""


def conditions_of(rows: Rows) -> tuple[str, ...]:
    """Find the tags that split a measured run into conditions, such as transformed and original grids.

    Tags are named facts about episodes and their worlds. A tag of `CONDITIONS` counts if it varies. Any other tag
    counts if one agent meets the same grid with two or more of its values, as with the prompt or temperature of
    imported episodes. A tag that differs for every episode of an agent merely numbers the episodes and is not a
    condition.

    Args:
        rows: rows from `measure_store`; only measures of whole episodes are used.

    Returns:
        Names of the tags of `CONDITIONS` in its order, then of the others in the order of the tags.
    """
    episodes = _episodes(rows)
    conditions = [name for name in CONDITIONS if len(set(_column(episodes, (name,)))) > 1]
    for name in rows.tags:
        if name in (*CONDITIONS, *_REPEATS):
            continue
        values = set(_column(episodes, ("agent", "cluster", name)))
        shared = len(set(_column(episodes, ("agent", name)))) < len(episodes)
        if shared and len(values) > len(set(_column(episodes, ("agent", "cluster")))):
            conditions.append(name)
    return tuple(conditions)


def mixed(rows: Rows, conditions: Sequence[str], by: Sequence[str]) -> Mapping[str, list[Tag]]:
    """Find the conditions that an estimate would mix, by averaging over them, if rows are grouped by certain tags only.

    Args:
        rows: rows from `measure_store`.
        conditions: names of the tags that split the run into conditions, from `conditions_of`.
        by: names of the tags to group by.

    Returns:
        Name of each mixed condition -> its values.
    """
    episodes = _episodes(rows)
    groups = len(set(_column(episodes, by)))
    return {
        name: list(dict.fromkeys(values[0] for values in _column(episodes, (name,))))
        for name in conditions
        if len(set(_column(episodes, (*by, name)))) > groups
    }


def _episodes(rows: Rows) -> Rows:
    return rows.where(rows.measure == "success")


def _column(rows: Rows, names: Sequence[str]) -> list[tuple[Tag, ...]]:
    """Return the values of the named columns for each row, None where a tag is missing."""
    columns, missing = rows.columns(), [None] * len(rows)
    return list(zip(*(columns[name].tolist() if name in columns else missing for name in names), strict=True))
