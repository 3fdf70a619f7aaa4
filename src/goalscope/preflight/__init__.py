"""Planning of a study before it is run: cost, power, and limits of its models."""

from goalscope.preflight.cost import Cost, beyond_reach, costs
from goalscope.preflight.pace import Pace, Speed, measure_speed, stored_pace
from goalscope.preflight.power import Assumptions, PowerPlan, layout, study_power
from goalscope.preflight.prompts import Measure, frame, most_prompts
from goalscope.preflight.training import TrainingPrompt, training_prompts

__all__ = [
    "Assumptions",
    "Cost",
    "Measure",
    "Pace",
    "PowerPlan",
    "Speed",
    "TrainingPrompt",
    "beyond_reach",
    "costs",
    "frame",
    "layout",
    "measure_speed",
    "most_prompts",
    "stored_pace",
    "study_power",
    "training_prompts",
]
