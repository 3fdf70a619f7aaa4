"""Environments of Gymnasium, MiniGrid, BabyAI and TextWorld register here; the entry point of this package."""

from goalscope.integrations.gymnasium import minigrid as minigrid
from goalscope.integrations.gymnasium import textworld as textworld
from goalscope.integrations.gymnasium import toy_text as toy_text
