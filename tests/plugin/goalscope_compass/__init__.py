"""An agent, a measure and a world kind for goalscope: importing them registers them."""

from goalscope_compass import agent, measure, world

__all__ = ["agent", "measure", "world"]
