"""Parts for goalscope: importing them registers them."""

from goalscope_compass import (
    agent,
    analysis,
    arm,
    attribution,
    claim,
    environment,
    further,
    head,
    hypothesis,
    intervention,
    measure,
    model,
    section,
    thing,
    world,
)

__all__ = [
    "agent",
    "analysis",
    "arm",
    "attribution",
    "claim",
    "environment",
    "further",
    "head",
    "hypothesis",
    "intervention",
    "measure",
    "model",
    "section",
    "thing",
    "world",
]
