"""All measures of behaviour, run over episodes at once."""

from collections.abc import Iterable

from goalscope.measures.key import KEY
from goalscope.measures.measure import Measure, StepTable
from goalscope.measures.overlap import StateOverlap
from goalscope.measures.performance import PERFORMANCE
from goalscope.measures.profiles import PROFILES
from goalscope.measures.uncertainty import UNCERTAINTY
from goalscope.rows import Rows
from goalscope.runs.record import Episode

BEHAVIOUR: tuple[Measure, ...] = (*PERFORMANCE, *UNCERTAINTY, *PROFILES, StateOverlap(), *KEY)
"""Every measure of behaviour, in the order in which a report shows them."""


def measure_table(table: StepTable, measures: Iterable[Measure] = BEHAVIOUR) -> Rows:
    """Return the rows of measures over one table, measure by measure."""
    return Rows.concatenate(measure.rows(table) for measure in measures)


def measure_episodes(episodes: Iterable[Episode], measures: Iterable[Measure] = BEHAVIOUR) -> Rows:
    """Return the rows of measures over episodes.

    Args:
        episodes: all episodes that belong together: policies are estimated from the trajectories given here.
        measures: the measures to run.
    """
    return measure_table(StepTable.from_episodes(episodes), measures)
