"""Organisms: small agents trained to have a known goal, on which goal-finding methods can be judged.

`make` trains a set of organisms, and `Card` records the measured behaviour of each. Figures and limits:
docs/organisms.md.
"""

from typing import TYPE_CHECKING, Final

from goalscope._ground.later import names_later

if TYPE_CHECKING:
    from goalscope.organisms.cards import Card as Card
    from goalscope.organisms.cards import problems as problems
    from goalscope.organisms.cards import read_card as read_card
    from goalscope.organisms.families import FAMILIES as FAMILIES
    from goalscope.organisms.families import GoalFamily as GoalFamily
    from goalscope.organisms.learners import Spec as Spec
    from goalscope.organisms.making import folders as folders
    from goalscope.organisms.making import make as make
    from goalscope.organisms.making import planned as planned
    from goalscope.organisms.player import OrganismPlayer as OrganismPlayer

_LATER: Final = {
    "FAMILIES": "families",
    "Card": "cards",
    "GoalFamily": "families",
    "OrganismPlayer": "player",
    "Spec": "learners",
    "folders": "making",
    "make": "making",
    "planned": "making",
    "problems": "cards",
    "read_card": "cards",
}
"""Name -> its module. Imported when they are first asked for: every command names this package."""

__all__ = [
    "FAMILIES",
    "Card",
    "GoalFamily",
    "OrganismPlayer",
    "Spec",
    "folders",
    "make",
    "planned",
    "problems",
    "read_card",
]


__getattr__ = names_later(__name__, _LATER)
