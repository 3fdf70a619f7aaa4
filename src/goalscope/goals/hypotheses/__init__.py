"""Hypotheses about what an agent is after: values with exact policies, their written forms, scripted twins.

What worlds can tell of them is in `goals.hypotheses.separability`, better worlds in `goals.hypotheses.design`.
"""

from goalscope.goals.hypotheses.definition import (
    FiniteWorld,
    Hypothesis,
    Solved,
    finite_world,
    hypothesis,
    meg_of,
)
from goalscope.goals.hypotheses.separability import Separability, separability
from goalscope.goals.hypotheses.twins import HypothesisTwin, twin
from goalscope.goals.hypotheses.views import Undefined
from goalscope.goals.hypotheses.written import (
    banks,
    bind,
    load_hypotheses,
    parse,
    read_hypotheses,
    write_hypotheses,
)

__all__ = [
    "FiniteWorld",
    "Hypothesis",
    "HypothesisTwin",
    "Separability",
    "Solved",
    "Undefined",
    "banks",
    "bind",
    "finite_world",
    "hypothesis",
    "load_hypotheses",
    "meg_of",
    "parse",
    "read_hypotheses",
    "separability",
    "twin",
    "write_hypotheses",
]
