"""Measure how strongly agents are directed at hypothesised goals, in nats."""

from goalscope.goals.directedness import TOWARDS, directedness, goal_measure
from goalscope.goals.heldout import held_out_goals
from goalscope.goals.results import GoalContrast, GoalEstimate, HeldOut, RunDirectedness

__all__ = [
    "TOWARDS",
    "GoalContrast",
    "GoalEstimate",
    "HeldOut",
    "RunDirectedness",
    "directedness",
    "goal_measure",
    "held_out_goals",
]
