"""Measures of behaviour: records in, rows out."""

from typing import TYPE_CHECKING, Any

from goalscope.measures import behaviour
from goalscope.measures.behaviour import (
    behaviour_measures,
    measure_bounds,
    measure_episodes,
    measure_store,
    measure_table,
)
from goalscope.measures.check import check_measure
from goalscope.measures.definition import Entries, Measure, StepMeasure, episode_rows, group_rows, measure, step_rows
from goalscope.measures.table import NO_ACTION, StepTable

if TYPE_CHECKING:
    from goalscope.measures.behaviour import BEHAVIOUR

__all__ = [
    "BEHAVIOUR",
    "NO_ACTION",
    "Entries",
    "Measure",
    "StepMeasure",
    "StepTable",
    "behaviour_measures",
    "check_measure",
    "episode_rows",
    "group_rows",
    "measure",
    "measure_bounds",
    "measure_episodes",
    "measure_store",
    "measure_table",
    "step_rows",
]


def __getattr__(name: str) -> Any:
    if name == "BEHAVIOUR":
        return behaviour.behaviour_measures()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
