"""A page that shows every episode of a run or an evaluation step by step; it needs no server and loads nothing."""

from goalscope.verdict.viewer.notebook import view
from goalscope.verdict.viewer.page import MOST_OF_FILE, Written, write_view
from goalscope.verdict.viewer.serving import serving

__all__ = ["MOST_OF_FILE", "Written", "serving", "view", "write_view"]
