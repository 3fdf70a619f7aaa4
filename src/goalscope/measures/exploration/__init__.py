"""Exploration and exploitation errors: from actions alone, exact, offline."""

from goalscope.measures.exploration.errors import (
    FOGGED,
    ErrorEstimate,
    episode_score_rows,
    estimate_errors,
    score_fogged_episode,
)
from goalscope.measures.exploration.score import EpisodeScore, StepScore, Summary, score_episode
from goalscope.measures.exploration.view import DISTANCES, Distances, StaleScore
from goalscope.worlds.tasks.taskmap import TaskMap

__all__ = [
    "DISTANCES",
    "FOGGED",
    "Distances",
    "EpisodeScore",
    "ErrorEstimate",
    "StaleScore",
    "StepScore",
    "Summary",
    "TaskMap",
    "episode_score_rows",
    "estimate_errors",
    "score_episode",
    "score_fogged_episode",
]
