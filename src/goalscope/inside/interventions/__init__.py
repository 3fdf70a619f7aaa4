"""Does an agent use what its activations hold? Pairs, patches, and what they change."""

from goalscope.inside.interventions.edits import COMPONENTS, EMBEDDING, Edit, Editor
from goalscope.inside.interventions.forward import Batch, Generated, Scored, generate, score_answers
from goalscope.inside.interventions.pairs import MOVED, Original, Pair, Pairs, Side, counterfactuals, find_pairs

__all__ = [
    "COMPONENTS",
    "EMBEDDING",
    "MOVED",
    "Batch",
    "Edit",
    "Editor",
    "Generated",
    "Original",
    "Pair",
    "Pairs",
    "Scored",
    "Side",
    "counterfactuals",
    "find_pairs",
    "generate",
    "score_answers",
]
