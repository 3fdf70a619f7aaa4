"""Planning of a study before it is run: cost, power, and limits of its models."""

from goalscope.preflight.cost import Cost, beyond_reach, costs
from goalscope.preflight.first_turns import FirstTurns, Limits, ask_first_turns
from goalscope.preflight.forecast import Forecast, forecast
from goalscope.preflight.pace import StoredPace, stored_pace
from goalscope.preflight.power import Assumptions, PowerPlan, layout, study_power
from goalscope.preflight.prompts import PromptMeasure, frame, most_prompts

__all__ = [
    "Assumptions",
    "Cost",
    "FirstTurns",
    "Forecast",
    "Limits",
    "PowerPlan",
    "PromptMeasure",
    "StoredPace",
    "ask_first_turns",
    "beyond_reach",
    "costs",
    "forecast",
    "frame",
    "layout",
    "most_prompts",
    "stored_pace",
    "study_power",
]
