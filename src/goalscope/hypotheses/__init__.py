"""Hypotheses about what an agent is after: values with exact policies, scripted twins, and what worlds tell of them."""

from goalscope.hypotheses.definition import (
    FiniteWorld,
    Hypothesis,
    Solved,
    finite_world,
    hypothesis,
    log_likelihood,
    meg_of,
)
from goalscope.hypotheses.design import Design, design
from goalscope.hypotheses.separability import Separability, separability
from goalscope.hypotheses.twins import HypothesisTwin, twin
from goalscope.hypotheses.views import Undefined
from goalscope.hypotheses.written import (
    banks,
    bind,
    load_hypotheses,
    parse,
    read_hypotheses,
    write_hypotheses,
)

__all__ = [
    "Design",
    "FiniteWorld",
    "Hypothesis",
    "HypothesisTwin",
    "Separability",
    "Solved",
    "Undefined",
    "banks",
    "bind",
    "design",
    "finite_world",
    "hypothesis",
    "load_hypotheses",
    "log_likelihood",
    "meg_of",
    "parse",
    "read_hypotheses",
    "separability",
    "twin",
    "write_hypotheses",
]
