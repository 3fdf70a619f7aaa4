"""All measures of behaviour, run over episodes at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from goalscope import registry
from goalscope.measures.definition import Measure
from goalscope.measures.exploration.recorded import task_rows
from goalscope.measures.exploration.rows import TASK_BOUNDS
from goalscope.measures.table import StepTable
from goalscope.rows import Rows
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.runs.walks import read_walks

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
    """Return the rows of measures over one table, measure by measure; of `behaviour_measures` by default."""
    return Rows.concatenate(measure.rows(table) for measure in (behaviour_measures() if measures is None else measures))


def measure_episodes(episodes: Iterable[Episode], measures: Iterable[Measure] | None = None) -> Rows:
    """Return the rows of measures over episodes; those of task worlds have measures of their own, see `task_rows`.

    Args:
        episodes: all episodes that belong together: policies are estimated from the trajectories given here.
        measures: the measures to run on episodes of grids, `behaviour_measures` by default.
    """
    listed = list(episodes)
    tasks = [episode for episode in listed if episode.world.own_measures]
    grids = listed if not tasks else [episode for episode in listed if not episode.world.own_measures]
    table = StepTable.from_episodes(grids) if grids or not tasks else None
    return _joined(table, tasks, measures)


def measure_store(store: Store, progress: Callable[[int, int], None] | None = None) -> Rows:
    """Return the rows of all measures over the episodes of a store, as `measure_episodes` does, in less time and space.

    Args:
        store: the run.
        progress: called with the number of episodes read and of all.

    Raises:
        ValueError: a stored value that cannot be one of ours.
    """
    walks, tasks = read_walks(store, progress)
    table = StepTable.from_walks(walks) if len(walks.world) or not tasks else None
    return _joined(table, list(store.episodes(tasks)))


def _joined(table: StepTable | None, tasks: Sequence[Episode], measures: Iterable[Measure] | None = None) -> Rows:
    parts = [] if table is None else [measure_table(table, measures)]
    return Rows.concatenate([*parts, *([task_rows(tasks)] if tasks else [])])
