"""Measures of behaviour: each takes episodes and returns rows of values."""

from goalscope.measures.behaviour import (
    behaviour_measures,
    measure_bounds,
    measure_episodes,
    measure_store,
    measure_table,
)
from goalscope.measures.comparison import Compared, SideRows, compare, compare_transforms
from goalscope.measures.definition import Entries, Measure, StepMeasure, measure
from goalscope.measures.key import key_attraction, key_pickup
from goalscope.measures.performance import (
    action_accuracy,
    action_optimality,
    invalid_turns,
    path_efficiency,
    path_ratio,
    steps_to_goal,
    success,
    valid_action_accuracy,
    wall_bumps,
    withheld_turns,
)
from goalscope.measures.table import NO_ACTION, StepTable
from goalscope.measures.testing import check_measure, play, roll_out, sample_episodes
from goalscope.measures.uncertainty import (
    calibration_error,
    policy_divergence,
    policy_entropy,
    rare_states,
    undecided_states,
    visits_per_state,
)
from goalscope.measures.visits import state_overlap

__all__ = [
    "NO_ACTION",
    "Compared",
    "Entries",
    "Measure",
    "SideRows",
    "StepMeasure",
    "StepTable",
    "action_accuracy",
    "action_optimality",
    "behaviour_measures",
    "calibration_error",
    "check_measure",
    "compare",
    "compare_transforms",
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
    "steps_to_goal",
    "success",
    "undecided_states",
    "valid_action_accuracy",
    "visits_per_state",
    "wall_bumps",
    "withheld_turns",
]
