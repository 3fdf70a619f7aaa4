"""What agents are after: directedness of runs towards hypotheses, in nats."""

from goalscope.goals.beliefs import DRAWS, Belief, joined, measure_beliefs, measure_decoded_beliefs
from goalscope.goals.directedness import TOWARDS, directedness, goal_measure
from goalscope.goals.heldout import held_out_goals
from goalscope.goals.results import GoalContrast, GoalEstimate, HeldOut, RunDirectedness

__all__ = [
    "DRAWS",
    "TOWARDS",
    "Belief",
    "GoalContrast",
    "GoalEstimate",
    "HeldOut",
    "RunDirectedness",
    "directedness",
    "goal_measure",
    "held_out_goals",
    "joined",
    "measure_beliefs",
    "measure_decoded_beliefs",
]
