"""An agent and a measure for goalscope: importing them registers them."""

from goalscope_compass import agent, measure

__all__ = ["agent", "measure"]
