"""What can be said of a study before anything is spent: cost, power, and what its models have no room for."""

from goalscope.preflight.cost import Cost, beyond_reach, costs
from goalscope.preflight.power import Assumptions, PowerPlan, layout, study_power
from goalscope.preflight.prompts import frame, most_prompts

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
