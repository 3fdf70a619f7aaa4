"""Exact planning: shortest paths, optimal sets, tabular decision processes, policies."""

from goalscope.planning.mdp import (
    TabularMDP,
    Values,
    at_cell,
    expected_utility,
    from_grid,
    occupancy,
    value_iteration,
)
from goalscope.planning.policy import (
    Outlook,
    episode_outlook,
    epsilon_greedy,
    expected_accuracy,
    uniform,
    uniform_optimal,
)
from goalscope.planning.shortest import (
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
    "Outlook",
    "ShortestPaths",
    "TabularMDP",
    "Values",
    "at_cell",
    "distances",
    "distances_batch",
    "distances_to",
    "episode_outlook",
    "epsilon_greedy",
    "expected_accuracy",
    "expected_utility",
    "from_grid",
    "occupancy",
    "optimal_actions",
    "optimal_batch",
    "shortest_length",
    "solve",
    "uniform",
    "uniform_optimal",
    "value_iteration",
]
