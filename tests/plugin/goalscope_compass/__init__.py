"""Parts for goalscope: importing them registers them."""

from goalscope_compass import (
    agent,
    analysis,
    attribution,
    environment,
    head,
    hypothesis,
    intervention,
    measure,
    model,
    section,
    world,
)

__all__ = [
    "agent",
    "analysis",
    "attribution",
    "environment",
    "head",
    "hypothesis",
    "intervention",
    "measure",
    "model",
    "section",
    "world",
]
