"""Reproduction of the papers' figures and tables, declared as items with a study, readings and printed values."""

from typing import TYPE_CHECKING, Final

from goalscope._ground.later import names_later

if TYPE_CHECKING:
    from goalscope.papers.item import PAPERS as PAPERS
    from goalscope.papers.item import Item as Item
    from goalscope.papers.item import ItemReading as ItemReading
    from goalscope.papers.item import QuotedClaim as QuotedClaim
    from goalscope.papers.item import find as find
    from goalscope.papers.item import items as items
    from goalscope.papers.item import scaled as scaled
    from goalscope.papers.readings import ReadAgents as ReadAgents
    from goalscope.papers.readings import read as read
    from goalscope.papers.working import reproduce as reproduce

_LATER: Final = {
    "PAPERS": "item",
    "Item": "item",
    "ItemReading": "item",
    "QuotedClaim": "item",
    "ReadAgents": "readings",
    "find": "item",
    "items": "item",
    "read": "readings",
    "reproduce": "working",
    "scaled": "item",
}
"""Name -> its module. Imported when they are first asked for: every command names this package."""

__all__ = ["PAPERS", "Item", "ItemReading", "QuotedClaim", "ReadAgents", "find", "items", "read", "reproduce", "scaled"]


__getattr__ = names_later(__name__, _LATER)
