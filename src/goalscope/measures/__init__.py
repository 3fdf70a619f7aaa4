"""Measures of behaviour: records in, rows out."""

from goalscope.measures.behaviour import BEHAVIOUR, measure_episodes, measure_store, measure_table
from goalscope.measures.check import check_measure
from goalscope.measures.measure import NO_ACTION, Measure, StepTable, episode_rows, group_rows, step_rows

__all__ = [
    "BEHAVIOUR",
    "NO_ACTION",
    "Measure",
    "StepTable",
    "check_measure",
    "episode_rows",
    "group_rows",
    "measure_episodes",
    "measure_store",
    "measure_table",
    "step_rows",
]
