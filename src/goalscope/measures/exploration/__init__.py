"""Exploration and exploitation errors: from actions alone, exact, offline."""

from goalscope.measures.exploration.fogged import FOGGED, fogged_error, score_fogged_episode
from goalscope.measures.exploration.records import EpisodeScore, StepScore, Summary
from goalscope.measures.exploration.rows import ErrorEstimate, episode_score_rows, estimate_errors
from goalscope.measures.exploration.score import score_episode
from goalscope.measures.exploration.stale import StaleScore
from goalscope.measures.exploration.view import DISTANCES, Distances
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
    "fogged_error",
    "score_episode",
    "score_fogged_episode",
]
