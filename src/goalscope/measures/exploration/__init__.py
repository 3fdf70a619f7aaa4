"""Exploration and exploitation errors, computed exactly from the actions of an episode."""

from goalscope.measures.exploration.errors import (
    FOGGED,
    ErrorEstimate,
    estimate_errors,
    score_fogged_episode,
)
from goalscope.measures.exploration.graphs import GraphStep, TaskGraph, score_graph
from goalscope.measures.exploration.score import (
    DISTANCES,
    Distances,
    EpisodeErrors,
    MapStep,
    StaleCounter,
    Summary,
    score_episode,
)
from goalscope.worlds.tasks.taskmap import TaskMap

__all__ = [
    "DISTANCES",
    "FOGGED",
    "Distances",
    "EpisodeErrors",
    "ErrorEstimate",
    "GraphStep",
    "MapStep",
    "StaleCounter",
    "Summary",
    "TaskGraph",
    "TaskMap",
    "estimate_errors",
    "score_episode",
    "score_fogged_episode",
    "score_graph",
]
