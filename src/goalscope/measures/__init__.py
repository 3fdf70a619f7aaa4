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

from goalscope.measures.key import key_attraction, key_pickup
from goalscope.measures.overlap import state_overlap
from goalscope.measures.performance import (
    action_accuracy,
    action_optimality,
    invalid_turns,
    path_efficiency,
    path_ratio,
    steps_to_goal,
    success,
    wall_bumps,
)
from goalscope.measures.sample import play, roll_out, sample_episodes
from goalscope.measures.uncertainty import (
    calibration_error,
    distance_profile,
    policy_divergence,
    policy_entropy,
    rare_states,
    undecided_states,
    visits_per_state,
)

__all__ = [
    "BEHAVIOUR",
    "NO_ACTION",
    "Entries",
    "Measure",
    "StepMeasure",
    "StepTable",
    "action_accuracy",
    "action_optimality",
    "behaviour_measures",
    "calibration_error",
    "check_measure",
    "distance_profile",
    "episode_rows",
    "group_rows",
    "invalid_turns",
    "key_attraction",
    "key_pickup",
    "measure",
    "measure_bounds",
    "measure_episodes",
    "measure_store",
    "measure_table",
    "path_efficiency",
    "path_ratio",
    "play",
    "policy_divergence",
    "policy_entropy",
    "rare_states",
    "roll_out",
    "sample_episodes",
    "state_overlap",
    "step_rows",
    "steps_to_goal",
    "success",
    "undecided_states",
    "visits_per_state",
    "wall_bumps",
]


def __getattr__(name: str) -> Any:
    if name == "BEHAVIOUR":
        return behaviour.behaviour_measures()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
