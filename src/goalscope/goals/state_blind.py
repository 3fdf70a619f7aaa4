"""The state-blind baseline of an agent: one that draws its moves as often as the agent made them, whatever it sees.

What an agent reaches by a habit ("mostly right") it reaches without looking. For a world w the frequencies are those of
the agent's moves in all other clusters of worlds, so that its moves in w do not count for both sides; with a single
cluster they are those in w. Where a step holds the exact policy that its action was drawn from, the policy counts.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from goalscope.goals.hypotheses.definition import FiniteWorld
from goalscope.goals.hypotheses.states import counted_moves, recorded_policies
from goalscope.goals.random_agents import Utility
from goalscope.measures.table import StepTable

Array = npt.NDArray[np.float64]


def moves_by_episode(table: StepTable) -> Array:
    """Return ``[E, A]`` how often each action was taken in each episode; turns without an action do not count."""
    return counted_moves(table.episode, table.action, table.once(recorded_policies), len(table.length))


def frequencies(moves: Array, clusters: Sequence[str]) -> dict[str, Array]:
    """Return cluster -> ``[A]`` the frequencies of the moves of all other clusters; equal ones without a move there.

    Args:
        moves: ``[E, A]`` of an agent's episodes, see `States.moves`.
        clusters: ``[E]`` the cluster of each.
    """
    names, code = np.unique(np.array(clusters, dtype=str), return_inverse=True)
    totals = np.zeros((len(names), moves.shape[1]))
    np.add.at(totals, code, moves)
    rest = totals.sum(axis=0) - totals if len(names) > 1 else totals
    sums = rest.sum(axis=1, keepdims=True)
    shares = np.where(sums > 0, rest / np.where(sums > 0, sums, 1.0), 1 / moves.shape[1])
    return dict(zip(names.tolist(), shares, strict=True))


def blind_policy(shares: Array, offered: npt.NDArray[np.bool_] | None, states: int, actions: int) -> Array:
    """Return ``[S, A]`` the policy with the same frequencies in every state, over what each state offers.

    Frequencies of actions that do not exist there do not count, of those that were never taken they are 0. Equal
    frequencies stand in states that offer none of the moves.
    """
    shares = np.concatenate([shares, np.zeros(max(0, actions - len(shares)))])[:actions]
    offered_weights = np.ones((states, actions)) if offered is None else offered.astype(np.float64)
    weights = offered_weights * shares
    sums = weights.sum(axis=1, keepdims=True)
    return np.where(
        sums > 0, weights / np.where(sums > 0, sums, 1.0), offered_weights / offered_weights.sum(axis=1, keepdims=True)
    )


def blind_visits(world: FiniteWorld, shares: Array, kind: Utility) -> Array:
    """Return ``[S]`` how often a state-blind agent decides in each state, or with "arrival" where it ends."""
    process = world.process
    policy = blind_policy(shares, process.offered, process.states, process.actions)
    mass, visits = process.start, np.zeros(process.states)
    for _ in range(world.horizon):
        visits += mass
        mass = process.base.flow(mass[:, None] * policy)
    return visits if kind == "steps" else mass
