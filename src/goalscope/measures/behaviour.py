"""All measures of behaviour, run over episodes at once."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from goalscope import registry
from goalscope.measures.definition import Measure
from goalscope.measures.exploration.recorded import task_rows
from goalscope.measures.exploration.rows import TASK_BOUNDS
from goalscope.measures.table import StepTable
from goalscope.planning.oracle import oracle
from goalscope.rows import Rows
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.runs.walks import read_walks
from goalscope.worlds.world import World

COMPARED = ("success", "action accuracy")
"""The measures that are compared where a study of grids names none."""

if TYPE_CHECKING:
    BEHAVIOUR: tuple[Measure, ...]
    """What `behaviour_measures` returns."""
    BOUNDS: Mapping[str, tuple[float, float]]
    """What `measure_bounds` returns."""


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
    """Return the least and greatest value of each measure of `measure_episodes`, those of task worlds among them."""
    return {**{measure.name: measure.bounds for measure in behaviour_measures()}, **TASK_BOUNDS}


def __getattr__(name: str) -> Any:
    # Packages of others are imported when they are needed, not when this module is: they may import it themselves.
    if name == "BEHAVIOUR":
        return behaviour_measures()
    if name == "BOUNDS":
        return measure_bounds()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def measure_table(table: StepTable, measures: Iterable[Measure] | None = None) -> Rows:
    """Return the rows of measures over one table, measure by measure; of `behaviour_measures` by default.

    A measure that needs what the worlds of the table lack is left out, see `left_out`.
    """
    asked = behaviour_measures() if measures is None else measures
    return Rows.concatenate(measure.rows(table) for measure in asked if not _lacking(measure, table.offers))


def left_out(worlds: Iterable[World]) -> str:
    """Return a sentence on the measures that some worlds lack something for, "" where they lack nothing."""
    listed = [world for world in worlds if not world.planar]
    offers = {"reward"}
    offers |= {"oracle"} if all(oracle(world) is not None for world in listed) else set()
    offers |= {"grid"} if all(hasattr(world, "grid") for world in listed) else set()
    parts = []
    for need, words in (("oracle", "the exact optimal policy"), ("grid", "a map as a grid")):
        lacking = [measure.name for measure in behaviour_measures() if need in _lacking(measure, offers)]
        if lacking:
            more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
            parts.append(f"{', '.join(lacking[:3])}{more} are left out: they need {words}, which these worlds lack")
    return "; ".join(parts)


def _lacking(measure: Measure, offers: Collection[str]) -> set[str]:
    return set(getattr(measure, "needs", ())) - set(offers)


def measure_episodes(episodes: Iterable[Episode], measures: Iterable[Measure] | None = None) -> Rows:
    """Return the rows of measures over episodes; those of task worlds have measures of their own, see `task_rows`.

    Args:
        episodes: all episodes that belong together: policies are estimated from the trajectories given here.
        measures: the measures to run on episodes of grids, `behaviour_measures` by default.
    """
    listed = list(episodes)
    apart = [episode for episode in listed if episode.world.own_measures or not episode.world.planar]
    grids = [episode for episode in listed if episode.world.planar and not episode.world.own_measures]
    table = StepTable.from_episodes(grids) if grids or not apart else None
    return _joined(table, apart, measures)


def measure_store(store: Store, progress: Callable[[int, int], None] | None = None) -> Rows:
    """Return the rows of all measures over the episodes of a store, as `measure_episodes` does, in less time and space.

    Args:
        store: the run.
        progress: called with the number of episodes read and of all.

    Raises:
        ValueError: a stored value that cannot be one of ours.
    """
    walks, apart = read_walks(store, progress)
    table = StepTable.from_walks(walks) if len(walks.world) or not apart else None
    return _joined(table, store.episodes(apart) if apart else ())


def _joined(table: StepTable | None, episodes: Iterable[Episode], measures: Iterable[Measure] | None = None) -> Rows:
    """Return the rows of a table of grids, and of episodes in other worlds."""
    parts = [] if table is None else [measure_table(table, measures)]
    tasks: list[Episode] = []
    others: list[Episode] = []
    for episode in episodes:
        (tasks if episode.world.own_measures else others).append(episode)
    if others:
        parts.append(measure_table(StepTable.from_episodes(others), measures))
    return Rows.concatenate([*parts, *([task_rows(tasks)] if tasks else [])])
