"""Parts for goalscope: importing them registers them."""

from goalscope_compass import agent, measure, model, section

__all__ = ["agent", "measure", "model", "section"]
