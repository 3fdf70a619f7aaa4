"""Parts for goalscope: importing them registers them."""

from goalscope_compass import agent, head, measure, model, section, world

__all__ = ["agent", "head", "measure", "model", "section", "world"]
