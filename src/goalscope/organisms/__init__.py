"""Organisms: small agents that were trained so that their goal is known, to judge what claims to find one.

`make` trains a set of them, `Card` says what each does, as measured. Figures and limits: docs/organisms.md.
"""

from goalscope.organisms.cards import Card, problems, read_card
from goalscope.organisms.families import FAMILIES, GoalFamily
from goalscope.organisms.learners import Spec
from goalscope.organisms.making import folders, make, planned
from goalscope.organisms.player import OrganismPlayer

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
