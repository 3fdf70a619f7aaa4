"""Exact planning: shortest paths, all optimal actions, and tabular decision processes."""

from goalscope.worlds.planning.mdp import (
    TabularMDP,
    Values,
    expected_utility,
    occupancy,
    value_iteration,
)
from goalscope.worlds.planning.process import TaskProcess, at_cell, from_grid
from goalscope.worlds.planning.shortest import (
    ShortestPaths,
    distances,
    distances_batch,
    distances_to,
    optimal_actions,
    optimal_batch,
    shortest_length,
    solve,
)

__all__ = [
    "ShortestPaths",
    "TabularMDP",
    "TaskProcess",
    "Values",
    "at_cell",
    "distances",
    "distances_batch",
    "distances_to",
    "expected_utility",
    "from_grid",
    "occupancy",
    "optimal_actions",
    "optimal_batch",
    "shortest_length",
    "solve",
    "value_iteration",
]
