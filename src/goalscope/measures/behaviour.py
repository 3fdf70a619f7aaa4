"""All measures of behaviour, run over episodes at once; the conditions that split what was measured."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from goalscope import registry
from goalscope.measures.definition import Measure
from goalscope.measures.table import CONDITIONS, PROVENANCE, StepTable
from goalscope.planning.oracle import oracle
from goalscope.rows import Rows, Tag
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.runs.walks import PART_EPISODES, walk_parts
from goalscope.worlds.world import TimedOracle, World

COMPARED = ("success", "action accuracy")
"""The measures that are compared where a study of grids names none."""

_MOST_MEASURES = 1 << 16


def behaviour_measures() -> tuple[Measure, ...]:
    """Return every registered measure of behaviour, ours first, in the order in which a report shows them.

    Raises:
        TypeError: something is registered as a measure that is none.
    """
    found = {name: registry.resolve("measure", name) for name in registry.names("measure")}
    for name, part in found.items():
        if not isinstance(part, Measure) or part.name != name:
            raise TypeError(f"a registered measure must have its name, unit, bounds and rows(table), {name!r} has not")
    return tuple(found.values())


def measure_bounds() -> Mapping[str, tuple[float, float]]:
    """Return the least and greatest value of each measure of `behaviour_measures`."""
    return {measure.name: measure.bounds for measure in behaviour_measures()}


def measure_table(table: StepTable, measures: Iterable[Measure] | None = None) -> Rows:
    """Return the rows of measures over one table, measure by measure; of `behaviour_measures` by default.

    A measure that needs what the worlds of the table lack is left out, see `left_out`. Task worlds have success and the
    measures that need tasks, no others.
    """
    return Rows.concatenate(measure.rows(table) for measure in _measured(table, measures))


def _measured(table: StepTable, measures: Iterable[Measure] | None = None) -> list[Measure]:
    """Return the measures that a table can be asked for."""
    asked = behaviour_measures() if measures is None else measures
    kept = [measure for measure in asked if not _lacking(measure, table.offers)]
    if "tasks" in table.offers:
        kept = [measure for measure in kept if measure.name == "success" or "tasks" in getattr(measure, "needs", ())]
    return kept


def left_out(worlds: Iterable[World]) -> str:
    """Return a sentence on the measures that some worlds lack something for, "" where they lack nothing."""
    listed = [world for world in worlds if not world.planar]
    offers = {"reward"}
    known = [oracle(world) for world in listed]
    offers |= {"oracle"} if None not in known else set()
    offers |= {"distance"} if not any(one is None or isinstance(one, TimedOracle) for one in known) else set()
    offers |= {"grid"} if all(hasattr(world, "grid") for world in listed) else set()
    offers |= {"environment"} if "grid" not in offers else set()
    parts = []
    words_of = {
        "oracle": "the exact optimal policy",
        "distance": "the fewest actions to the goal",
        "grid": "a map as a grid",
    }
    for need, words in words_of.items():
        lacking = [measure.name for measure in behaviour_measures() if need in _lacking(measure, offers)]
        if lacking:
            more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
            parts.append(f"{', '.join(lacking[:3])}{more} are left out: they need {words}, which these worlds lack")
    return "; ".join(parts)


def _lacking(measure: Measure, offers: Collection[str]) -> set[str]:
    return set(getattr(measure, "needs", ())) - set(offers)


def measure_episodes(episodes: Iterable[Episode], measures: Iterable[Measure] | None = None) -> Rows:
    """Return the rows of measures over episodes of grids, task worlds and other worlds, each in a table of their own.

    Args:
        episodes: all episodes that belong together: policies are estimated from the trajectories given here.
        measures: the measures to run, `behaviour_measures` by default.
    """
    return _rows(_tables(list(episodes)) or [StepTable.from_episodes([])], measures)


def measure_store(store: Store, progress: Callable[[int, int], None] | None = None) -> Rows:
    """Return the rows of all measures over the episodes of a store, as `measure_episodes` does, in less time and space.

    Args:
        store: the run.
        progress: called with the number of episodes read and of all.

    Raises:
        ValueError: a stored value that cannot be one of ours.
    """
    parts = sorted(measured_parts(store, progress), key=itemgetter(0))
    return Rows.concatenate(rows for _, rows in parts)


def measured_parts(
    store: Store, progress: Callable[[int, int], None] | None = None, *, most: int = PART_EPISODES
) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of `measure_store` a few at a time, each part with its place, as `Store.put_rows` takes them.

    Grids are measured by parts of whole clusters, so that memory does not grow with their number; episodes in other
    worlds are measured together.

    Args:
        store: the run.
        progress: called with the number of episodes read and of all.
        most: episodes on grids that are measured at a time.

    Raises:
        ValueError: a stored value that cannot be one of ours.
    """
    apart, none = list[str](), True
    for walks, others in walk_parts(store, progress, most=most):
        apart += others
        if len(walks.world):
            none = False
            yield from _placed(StepTable.from_walks(walks), 0)
    for table, own in enumerate(_tables(list(store.episodes(apart)) if apart else []), start=1):
        yield from _placed(own, table)
    if none and not apart:
        yield from _placed(StepTable.from_episodes([]), 0)


def _placed(table: StepTable, number: int) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of each measure of a table with their place: by table, then by measure."""
    for place, measure in enumerate(_measured(table)):
        yield number * _MOST_MEASURES + place, measure.rows(table)


def _tables(episodes: Sequence[Episode]) -> list[StepTable]:
    """Return a table of the episodes of grids, one of those in other worlds and one of those in task worlds."""
    tasks = [episode for episode in episodes if episode.world.own_measures]
    others = [episode for episode in episodes if not episode.world.own_measures]
    parts = [[episode for episode in others if episode.world.planar is planar] for planar in (True, False)]
    found = [StepTable.from_episodes(part) for part in parts if part]
    return [*found, StepTable.from_episodes(tasks, tasks=True)] if tasks else found


def _rows(tables: Iterable[StepTable], measures: Iterable[Measure] | None = None) -> Rows:
    asked = None if measures is None else list(measures)
    return Rows.concatenate(measure_table(table, asked) for table in tables)


_REPEATS = PROVENANCE | {"start", "index", "agent"}
"""Tags under which an agent meets a grid again in the same condition: they tell repeated episodes apart."""


def conditions_of(rows: Rows) -> tuple[str, ...]:
    """Return the tags that split a measured run into conditions.

    These are the tags of `CONDITIONS` that vary, and every other tag of which one agent meets the same grid with two
    values or more, such as a prompt or a temperature of imported episodes. A tag with another value for each episode
    of an agent numbers episodes and is no condition.

    Args:
        rows: from `measure_store`; what is measured of whole episodes tells the conditions.

    Returns:
        Those of `CONDITIONS` first, in its order, then others in the order of the tags.
    """
    episodes = _episodes(rows)
    found = [name for name in CONDITIONS if len(set(_column(episodes, (name,)))) > 1]
    for name in rows.tags:
        if name in (*CONDITIONS, *_REPEATS):
            continue
        values = set(_column(episodes, ("agent", "grid_id", name)))
        shared = len(set(_column(episodes, ("agent", name)))) < len(episodes)
        if shared and len(values) > len(set(_column(episodes, ("agent", "grid_id")))):
            found.append(name)
    return tuple(found)


def mixed(rows: Rows, conditions: Sequence[str], by: Sequence[str]) -> Mapping[str, list[Tag]]:
    """Return the conditions that an average by some tags mixes, each with its values in order of appearance."""
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
    """Return the values of some columns of each row, None where a tag is missing."""
    columns, missing = rows.columns(), [None] * len(rows)
    return list(zip(*(columns[name].tolist() if name in columns else missing for name in names), strict=True))
