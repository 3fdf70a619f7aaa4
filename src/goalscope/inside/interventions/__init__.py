"""Interventions that test whether an agent uses the content of its activations: counterfactual pairs and patches."""

from goalscope.inside.interventions.experiment import (
    MOVED,
    ExperimentSubject,
    Headline,
    Original,
    Pair,
    Pairs,
    PairSettings,
    Side,
    counterfactuals,
    find_pairs,
    intervention,
)
from goalscope.inside.interventions.forward import (
    COMPONENTS,
    EMBEDDING,
    Batch,
    BatchOutputs,
    Edit,
    Editor,
    generate,
    score_answers,
)
from goalscope.inside.interventions.reading import FOLLOWS, Passage, acted, added, effect, pair_rows

__all__ = [
    "COMPONENTS",
    "EMBEDDING",
    "FOLLOWS",
    "MOVED",
    "Batch",
    "BatchOutputs",
    "Edit",
    "Editor",
    "ExperimentSubject",
    "Headline",
    "Original",
    "Pair",
    "PairSettings",
    "Pairs",
    "Passage",
    "Side",
    "acted",
    "added",
    "counterfactuals",
    "effect",
    "find_pairs",
    "generate",
    "intervention",
    "pair_rows",
    "score_answers",
]
