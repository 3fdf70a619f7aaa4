"""Parts for goalscope: importing them registers them."""

from goalscope_compass import agent, head, intervention, measure, model, section, world

__all__ = ["agent", "head", "intervention", "measure", "model", "section", "world"]
