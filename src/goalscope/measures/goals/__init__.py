"""What agents are after: MEG from runs, towards several goals at once."""

from goalscope.measures.goals.beliefs import DRAWS, Belief, joined, measure_beliefs, measure_decoded_beliefs
from goalscope.measures.goals.estimate import measure_goals, measure_goals_by_parts
from goalscope.measures.goals.heldout import held_out_goals
from goalscope.measures.goals.restricted import measure_restricted
from goalscope.measures.goals.results import GoalContrast, GoalEstimate, GoalFindings, HeldOut
from goalscope.measures.goals.settings import (
    HYPOTHESES,
    TOWARDS,
    GoalSettings,
    HypothesisDraw,
    goal_measure,
    goal_settings,
)

__all__ = [
    "DRAWS",
    "HYPOTHESES",
    "TOWARDS",
    "Belief",
    "GoalContrast",
    "GoalEstimate",
    "GoalFindings",
    "GoalSettings",
    "HeldOut",
    "HypothesisDraw",
    "goal_measure",
    "goal_settings",
    "held_out_goals",
    "joined",
    "measure_beliefs",
    "measure_decoded_beliefs",
    "measure_goals",
    "measure_goals_by_parts",
    "measure_restricted",
]
