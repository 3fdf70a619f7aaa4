"""Hypotheses about an agent's goal: objects with exact policies, their written forms, and scripted twins.

`goals.hypotheses.separability` computes which hypotheses given worlds can separate, and `goals.hypotheses.design`
chooses worlds that separate them.
"""

from goalscope.goals.hypotheses.definition import (
    FiniteWorld,
    Hypothesis,
    Solved,
    Undefined,
    finite_world,
    hypothesis,
    meg_of,
)
from goalscope.goals.hypotheses.separability import Separability, separability
from goalscope.goals.hypotheses.twins import HypothesisTwin, twin
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
