"""Parts for goalscope: importing them registers them."""

from goalscope_compass import agent, environment, head, hypothesis, intervention, measure, model, section, world

__all__ = ["agent", "environment", "head", "hypothesis", "intervention", "measure", "model", "section", "world"]
