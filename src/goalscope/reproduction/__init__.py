"""Every figure and table of the papers as a declared item: its study, what is read from it, and what is printed."""

from goalscope.reproduction.items import PAPERS, Claim, Item, Reading, find, items
from goalscope.reproduction.readings import Subject, read
from goalscope.reproduction.scale import scaled

__all__ = ["PAPERS", "Claim", "Item", "Reading", "Subject", "find", "items", "read", "scaled"]
