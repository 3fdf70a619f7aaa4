"""Organisms: small agents trained to have a known goal, on which goal-finding methods can be judged.

`make` trains a set of organisms, and `Card` records the measured behaviour of each. Figures and limits:
docs/organisms.md.
"""

from typing import TYPE_CHECKING, Final

from goalscope._ground.later import names_later

if TYPE_CHECKING:
    from goalscope.organisms.agent import OrganismPlayer as OrganismPlayer
    from goalscope.organisms.cards import Card as Card
    from goalscope.organisms.cards import folders as folders
    from goalscope.organisms.cards import make as make
    from goalscope.organisms.cards import planned as planned
    from goalscope.organisms.cards import problems as problems
    from goalscope.organisms.cards import read_card as read_card
    from goalscope.organisms.families import FAMILIES as FAMILIES
    from goalscope.organisms.families import GoalFamily as GoalFamily
    from goalscope.organisms.learners import Spec as Spec

_LATER: Final = {
    "FAMILIES": "families",
    "Card": "cards",
    "GoalFamily": "families",
    "OrganismPlayer": "agent",
    "Spec": "learners",
    "folders": "cards",
    "make": "cards",
    "planned": "cards",
    "problems": "cards",
    "read_card": "cards",
}
"""Name -> its module. Imported when they are first asked for: every command names this package."""

__all__ = [*_LATER]


__getattr__ = names_later(__name__, _LATER)
