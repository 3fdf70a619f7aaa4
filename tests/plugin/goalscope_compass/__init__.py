"""An agent, a measure and a section of the report for goalscope: importing them registers them."""

from goalscope_compass import agent, measure, section

__all__ = ["agent", "measure", "section"]
