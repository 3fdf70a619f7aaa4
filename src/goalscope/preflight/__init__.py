"""What can be said of a study before anything is spent: cost, power, and what its models have no room for."""

from goalscope.preflight.cost import Cost, costs
from goalscope.preflight.limits import beyond_reach
from goalscope.preflight.longest_prompts import frame, most_prompts
from goalscope.preflight.power import Assumptions, PowerPlan, layout, study_power

__all__ = [
    "Assumptions",
    "Cost",
    "PowerPlan",
    "beyond_reach",
    "costs",
    "frame",
    "layout",
    "most_prompts",
    "study_power",
]
