"""All measures of behaviour, run over episodes at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from goalscope.measures.exploration.fogged import FOGGED
from goalscope.measures.exploration.recorded import task_rows
from goalscope.measures.exploration.rows import TASK_BOUNDS
from goalscope.measures.fog import FOG
from goalscope.measures.key import KEY
from goalscope.measures.measure import Measure, StepTable
from goalscope.measures.overlap import ControlOverlap, StateOverlap
from goalscope.measures.paths import PATHS
from goalscope.measures.performance import PERFORMANCE
from goalscope.measures.profiles import PROFILES
from goalscope.measures.uncertainty import UNCERTAINTY
from goalscope.rows import Rows
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.runs.taskworld import TaskWorld
from goalscope.runs.walks import read_walks

BEHAVIOUR: tuple[Measure, ...] = (
    *PERFORMANCE,
    *UNCERTAINTY,
    *PROFILES,
    StateOverlap(),
    *KEY,
    *PATHS,
    ControlOverlap(),
    *FOG,
    *FOGGED,
)
"""Every measure of behaviour, in the order in which a report shows them."""

BOUNDS: Mapping[str, tuple[float, float]] = {**{measure.name: measure.bounds for measure in BEHAVIOUR}, **TASK_BOUNDS}
"""Least and greatest value of each measure of `measure_episodes`, those of task worlds among them."""


def measure_table(table: StepTable, measures: Iterable[Measure] = BEHAVIOUR) -> Rows:
    """Return the rows of measures over one table, measure by measure."""
    return Rows.concatenate(measure.rows(table) for measure in measures)


def measure_episodes(episodes: Iterable[Episode], measures: Iterable[Measure] = BEHAVIOUR) -> Rows:
    """Return the rows of measures over episodes; those of task worlds have measures of their own, see `task_rows`.

    Args:
        episodes: all episodes that belong together: policies are estimated from the trajectories given here.
        measures: the measures to run on episodes of grids.
    """
    listed = list(episodes)
    tasks = [episode for episode in listed if isinstance(episode.world, TaskWorld)]
    grids = listed if not tasks else [episode for episode in listed if not isinstance(episode.world, TaskWorld)]
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
    return _joined(table, list(store.episodes(tasks)), BEHAVIOUR)


def _joined(table: StepTable | None, tasks: Sequence[Episode], measures: Iterable[Measure]) -> Rows:
    parts = [] if table is None else [measure_table(table, measures)]
    return Rows.concatenate([*parts, *([task_rows(tasks)] if tasks else [])])
