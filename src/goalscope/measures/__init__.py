"""Measures of behaviour: each takes episodes and returns rows of values."""

from typing import TYPE_CHECKING, Final

from goalscope._ground.later import names_later

if TYPE_CHECKING:
    from goalscope.measures.behaviour import behaviour_measures as behaviour_measures
    from goalscope.measures.behaviour import measure_bounds as measure_bounds
    from goalscope.measures.behaviour import measure_episodes as measure_episodes
    from goalscope.measures.behaviour import measure_store as measure_store
    from goalscope.measures.behaviour import measure_table as measure_table
    from goalscope.measures.comparison import Compared as Compared
    from goalscope.measures.comparison import SideRows as SideRows
    from goalscope.measures.comparison import compare as compare
    from goalscope.measures.comparison import compare_transforms as compare_transforms
    from goalscope.measures.definition import Entries as Entries
    from goalscope.measures.definition import Measure as Measure
    from goalscope.measures.definition import StepMeasure as StepMeasure
    from goalscope.measures.definition import measure as measure
    from goalscope.measures.key import key_attraction as key_attraction
    from goalscope.measures.key import key_pickup as key_pickup
    from goalscope.measures.performance import action_accuracy as action_accuracy
    from goalscope.measures.performance import action_optimality as action_optimality
    from goalscope.measures.performance import invalid_turns as invalid_turns
    from goalscope.measures.performance import path_efficiency as path_efficiency
    from goalscope.measures.performance import path_ratio as path_ratio
    from goalscope.measures.performance import steps_to_goal as steps_to_goal
    from goalscope.measures.performance import success as success
    from goalscope.measures.performance import valid_action_accuracy as valid_action_accuracy
    from goalscope.measures.performance import wall_bumps as wall_bumps
    from goalscope.measures.performance import withheld_turns as withheld_turns
    from goalscope.measures.table import NO_ACTION as NO_ACTION
    from goalscope.measures.table import StepTable as StepTable
    from goalscope.measures.testing import check_measure as check_measure
    from goalscope.measures.testing import play as play
    from goalscope.measures.testing import roll_out as roll_out
    from goalscope.measures.testing import sample_episodes as sample_episodes
    from goalscope.measures.uncertainty import calibration_error as calibration_error
    from goalscope.measures.uncertainty import policy_divergence as policy_divergence
    from goalscope.measures.uncertainty import policy_entropy as policy_entropy
    from goalscope.measures.uncertainty import rare_states as rare_states
    from goalscope.measures.uncertainty import undecided_states as undecided_states
    from goalscope.measures.uncertainty import visits_per_state as visits_per_state
    from goalscope.measures.visits import state_overlap as state_overlap

_NAMES: Final = {
    "behaviour": "behaviour_measures measure_bounds measure_episodes measure_store measure_table",
    "comparison": "Compared SideRows compare compare_transforms",
    "definition": "Entries Measure StepMeasure measure",
    "key": "key_attraction key_pickup",
    "performance": "action_accuracy action_optimality invalid_turns path_efficiency "
    "path_ratio steps_to_goal success valid_action_accuracy wall_bumps withheld_turns",
    "table": "NO_ACTION StepTable",
    "testing": "check_measure play roll_out sample_episodes",
    "uncertainty": "calibration_error policy_divergence policy_entropy rare_states undecided_states visits_per_state",
    "visits": "state_overlap",
}
"""Module -> the names that it defines. Modules are imported on first use, since few commands need all of them."""

_LATER: Final = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_LATER)


__getattr__ = names_later(__name__, _LATER)
