"""What agents are after: MEG from runs, towards several goals at once."""

from goalscope.measures.goals.asked import GoalSettings, Meant
from goalscope.measures.goals.beliefs import DRAWS, Belief, joined, measure_beliefs
from goalscope.measures.goals.heldout import held_out_goals
from goalscope.measures.goals.hypotheses import HYPOTHESES
from goalscope.measures.goals.records import GoalContrast, GoalEstimate, GoalFindings, HeldOut
from goalscope.measures.goals.study import measure_goals

__all__ = [
    "DRAWS",
    "HYPOTHESES",
    "Belief",
    "GoalContrast",
    "GoalEstimate",
    "GoalFindings",
    "GoalSettings",
    "HeldOut",
    "Meant",
    "held_out_goals",
    "joined",
    "measure_beliefs",
    "measure_goals",
]
