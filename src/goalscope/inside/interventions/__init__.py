"""Interventions that test whether an agent uses the content of its activations: counterfactual pairs and patches."""

from goalscope.inside.interventions.edits import COMPONENTS, EMBEDDING, Edit, Editor
from goalscope.inside.interventions.experiment import ExperimentSubject, Headline, PairSettings, intervention
from goalscope.inside.interventions.forward import Batch, Generated, Scored, generate, score_answers
from goalscope.inside.interventions.pairs import MOVED, Original, Pair, Pairs, Side, counterfactuals, find_pairs
from goalscope.inside.interventions.reading import FOLLOWS, Passage, acted, added, pair_rows

__all__ = [
    "COMPONENTS",
    "EMBEDDING",
    "FOLLOWS",
    "MOVED",
    "Batch",
    "Edit",
    "Editor",
    "ExperimentSubject",
    "Generated",
    "Headline",
    "Original",
    "Pair",
    "PairSettings",
    "Pairs",
    "Passage",
    "Scored",
    "Side",
    "acted",
    "added",
    "counterfactuals",
    "find_pairs",
    "generate",
    "intervention",
    "pair_rows",
    "score_answers",
]
