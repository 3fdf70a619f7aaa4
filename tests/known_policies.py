"""Policies as arrays over the states of a world, and their exact outcomes within a horizon.

A policy is ``[P, H, W, 4]``: action probabilities by phase, cell and action. States without an optimal action (the
goal, cells from which it cannot be reached, walls) hold the uniform distribution.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_distributions, check_probability, check_shape, check_whole, freeze
from goalscope.worlds.dynamics import initial_state, phases, state_number, transitions
from goalscope.worlds.grid import ACTIONS, Grid
from goalscope.worlds.planning.shortest import solve

Array = npt.NDArray[np.float64]


def uniform(grid: Grid) -> Array:
    """Return the policy that takes each action equally often, ``[P, H, W, 4]``."""
    return np.full((phases(grid), grid.height, grid.width, len(ACTIONS)), 1 / len(ACTIONS))


def uniform_optimal(grid: Grid) -> Array:
    """Return the policy that is uniform over the optimal actions of each state, ``[P, H, W, 4]``.

    Raises:
        ValueError: the grid shows no goal.
    """
    optimal = solve(grid).optimal
    count = optimal.sum(axis=-1, keepdims=True)
    return np.where(count > 0, optimal / np.maximum(count, 1), 1 / len(ACTIONS))


def epsilon_greedy(grid: Grid, epsilon: float) -> Array:
    """Return the policy that acts uniformly with probability epsilon, else uniformly over the optimal actions.

    The resulting fraction of non-optimal actions is smaller than epsilon: in a state with m optimal actions of 4 the
    accuracy is ``1 - epsilon (1 - m / 4)``.

    Args:
        grid: a grid that shows its goal.
        epsilon: probability of a uniformly random action, in [0, 1].

    Raises:
        ValueError: epsilon out of range, or the grid shows no goal.
    """
    epsilon = check_probability("epsilon", epsilon)
    return (1 - epsilon) * uniform_optimal(grid) + epsilon * uniform(grid)


def expected_accuracy(grid: Grid, policy: npt.NDArray[np.floating]) -> Array:
    """Return the probability of an optimal action in each state, ``[P, H, W]``; NaN where no action is optimal.

    Args:
        grid: a grid that shows its goal.
        policy: ``[P, H, W, 4]``, or ``[H, W, 4]`` for all phases alike.

    Raises:
        ValueError: the policy has another shape or is no distribution.
    """
    optimal = solve(grid).optimal
    chance = (_check(grid, policy) * optimal).sum(axis=-1)
    return np.where(optimal.any(axis=-1), chance, np.nan)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outlook:
    """Exact outcome of a policy from a world's start within a horizon of T actions.

    Attributes:
        success: probability of reaching the goal.
        steps: expected number of actions.
        optimal_steps: expected number of optimal actions.
        accuracy: expected fraction of optimal actions in an episode.
        arrival: ``[T + 1]`` probability of reaching the goal with exactly that many actions.
        visits: ``[P, H, W]`` expected number of actions taken in each state.
    """

    success: float
    steps: float
    optimal_steps: float
    accuracy: float
    arrival: Array
    visits: Array


def episode_outlook(grid: Grid, policy: npt.NDArray[np.floating], horizon: int) -> Outlook:
    """Return the exact expectations of an episode, by propagating the joint distribution of state and accuracy.

    An episode ends at the goal or after ``horizon`` actions. The cost is of order P * H * W * horizon^2.

    Args:
        grid: a world that shows its agent and its goal.
        policy: ``[P, H, W, 4]``, or ``[H, W, 4]`` for all phases alike.
        horizon: maximum number T of actions of an episode, >= 1.

    Raises:
        ValueError: the policy has another shape or is no distribution, the horizon is below 1, or the grid lacks its
            agent or goal.
    """
    horizon = check_whole("horizon", horizon, 1, "actions")
    paths = solve(grid)
    table = transitions(grid)
    probabilities = _check(grid, policy).reshape(len(table), -1)
    optimal = paths.optimal.reshape(len(table), -1)
    goal = paths.distance.reshape(-1) == 0
    mass = np.zeros((len(table), horizon + 1))  # [S, number of optimal actions so far]
    mass[state_number(grid, initial_state(grid)), 0] = 1.0
    arrival, visits = np.zeros(horizon + 1), np.zeros(len(table))
    accuracy = optimal_steps = 0.0
    hits = np.arange(horizon + 1)
    for step in range(1, horizon + 1):
        live = np.flatnonzero(mass.any(axis=1))
        visits[live] += mass[live].sum(axis=1)
        after = np.zeros_like(mass)
        for action in range(len(ACTIONS)):
            moved = mass[live] * probabilities[live, action, None]
            good = optimal[live, action]
            np.add.at(after, table[live[~good], action], moved[~good])
            np.add.at(after[:, 1:], table[live[good], action], moved[good, :-1])
        ended = after[goal].sum(axis=0)
        arrival[step] = ended.sum()
        accuracy += float(ended @ hits) / step
        optimal_steps += float(ended @ hits)
        after[goal] = 0.0
        mass = after
    remaining = mass.sum(axis=0)
    return Outlook(
        success=float(arrival.sum()),
        steps=float(visits.sum()),
        optimal_steps=optimal_steps + float(remaining @ hits),
        accuracy=accuracy + float(remaining @ hits) / horizon,
        arrival=freeze(arrival),
        visits=freeze(visits.reshape(paths.distance.shape)),
    )


def _check(grid: Grid, policy: npt.NDArray[np.floating]) -> Array:
    """Return a checked policy ``[P, H, W, 4]``."""
    probabilities = np.asarray(policy, dtype=np.float64)
    sizes = {"P": phases(grid), "H": grid.height, "W": grid.width}
    check_shape("policy", probabilities, "H W 4" if probabilities.ndim == 3 else "P H W 4", sizes)
    check_distributions("policy", probabilities)
    return np.broadcast_to(probabilities, (sizes["P"], *probabilities.shape[-3:]))
