"""Every figure and table of the papers as a declared item: its study, what is read from it, and what is printed."""

from goalscope.papers.items import PAPERS, Item, ItemReading, QuotedClaim, find, items, scaled
from goalscope.papers.readings import ReadAgents, read
from goalscope.papers.working import reproduce

__all__ = ["PAPERS", "Item", "ItemReading", "QuotedClaim", "ReadAgents", "find", "items", "read", "reproduce", "scaled"]
