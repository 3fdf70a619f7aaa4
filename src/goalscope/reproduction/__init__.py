"""Every figure and table of the papers as a declared item: its study, what is read from it, and what is printed."""

from goalscope.reproduction.items import PAPERS, Item, ItemReading, QuotedClaim, find, items, scaled
from goalscope.reproduction.readings import ReadAgents, read
from goalscope.reproduction.working import reproduce

__all__ = ["PAPERS", "Item", "ItemReading", "QuotedClaim", "ReadAgents", "find", "items", "read", "reproduce", "scaled"]
