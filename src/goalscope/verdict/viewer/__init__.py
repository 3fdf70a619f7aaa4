"""A page that shows every episode of a run or an evaluation step by step; it needs no server and loads nothing."""

from goalscope.verdict.viewer.page import MOST_OF_FILE, Written, serving, view, write_view

__all__ = ["MOST_OF_FILE", "Written", "serving", "view", "write_view"]
