"""Planning of a study before it is run: cost, power, and limits of its models."""

from goalscope.verdict.preflight.cost import Cost, beyond_reach, costs
from goalscope.verdict.preflight.first_turns import FirstTurns, Limits, ask_first_turns
from goalscope.verdict.preflight.forecast import Forecast, StoredPace, forecast, stored_pace
from goalscope.verdict.preflight.power import Assumptions, PowerPlan, layout, study_power

__all__ = [
    "Assumptions",
    "Cost",
    "FirstTurns",
    "Forecast",
    "Limits",
    "PowerPlan",
    "StoredPace",
    "ask_first_turns",
    "beyond_reach",
    "costs",
    "forecast",
    "layout",
    "stored_pace",
    "study_power",
]
