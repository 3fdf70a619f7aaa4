"""Every figure and table of the papers as a declared item: its study, what is read from it, and what is printed."""

from goalscope.reproduction.items import PAPERS, Claim, Item, Reading, find, items, scaled
from goalscope.reproduction.readings import Subject, read

__all__ = ["PAPERS", "Claim", "Item", "Reading", "Subject", "find", "items", "read", "scaled"]
