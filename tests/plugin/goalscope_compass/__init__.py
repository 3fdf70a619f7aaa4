"""An agent, a probe head and a measure for goalscope: importing them registers them."""

from goalscope_compass import agent, head, measure

__all__ = ["agent", "head", "measure"]
