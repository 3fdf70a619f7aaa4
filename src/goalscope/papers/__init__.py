"""Reproduction of the papers' figures and tables, declared as items with a study, readings and printed values."""

from goalscope.papers.items import PAPERS, Item, ItemReading, QuotedClaim, find, items, scaled
from goalscope.papers.readings import ReadAgents, read
from goalscope.papers.working import reproduce

__all__ = ["PAPERS", "Item", "ItemReading", "QuotedClaim", "ReadAgents", "find", "items", "read", "reproduce", "scaled"]
