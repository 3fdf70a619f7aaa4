"""Exact planning: shortest paths, optimal sets, tabular decision processes, policies."""

from goalscope.planning.shortest import (
    ShortestPaths,
    distances,
    distances_batch,
    optimal_actions,
    optimal_batch,
    shortest_length,
    solve,
)

__all__ = [
    "ShortestPaths",
    "distances",
    "distances_batch",
    "optimal_actions",
    "optimal_batch",
    "shortest_length",
    "solve",
]
