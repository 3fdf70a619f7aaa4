"""Entry point that registers the Gymnasium, MiniGrid, BabyAI and TextWorld environments."""

from goalscope.integrations.gymnasium import minigrid as minigrid
from goalscope.integrations.gymnasium import stepped as stepped
from goalscope.integrations.gymnasium import textworld as textworld
from goalscope.integrations.gymnasium import toy_text as toy_text
