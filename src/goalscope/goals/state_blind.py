"""The state-blind baseline of an agent: it draws moves with the agent's move frequencies, whatever it sees.

An agent with a habit ("mostly right") may reach a place without looking for it; this baseline reaches it equally often.
For a world w we use the frequencies of the agent's moves in all other clusters of worlds, so that moves in w do not
count on both sides. With a single cluster we use the moves in w. If a step stores the exact policy that its action was
drawn from, the policy replaces the action.
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
    """Count the actions of each episode, ``[E, A]``; turns without an action do not count."""
    return counted_moves(table.episode, table.action, table.once(recorded_policies), len(table.length))


def frequencies(moves: Array, clusters: Sequence[str]) -> dict[str, Array]:
    """Return cluster -> ``[A]`` move frequencies in all other clusters; uniform if there are no moves.

    Args:
        moves: ``[E, A]`` of an agent's episodes, see `States.moves`.
        clusters: ``[E]`` cluster of each episode.
    """
    names, code = np.unique(np.array(clusters, dtype=str), return_inverse=True)
    totals = np.zeros((len(names), moves.shape[1]))
    np.add.at(totals, code, moves)
    rest = totals.sum(axis=0) - totals if len(names) > 1 else totals
    sums = rest.sum(axis=1, keepdims=True)
    shares = np.where(sums > 0, rest / np.where(sums > 0, sums, 1.0), 1 / moves.shape[1])
    return dict(zip(names.tolist(), shares, strict=True))


def blind_policy(shares: Array, offered: npt.NDArray[np.bool_] | None, states: int, actions: int) -> Array:
    """Return the policy with the same move frequencies in every state, restricted to the offered actions, ``[S, A]``.

    Frequencies of actions that the world lacks are dropped. A state that offers none of the agent's moves gets a
    uniform policy.
    """
    shares = np.concatenate([shares, np.zeros(max(0, actions - len(shares)))])[:actions]
    offered_weights = np.ones((states, actions)) if offered is None else offered.astype(np.float64)
    weights = offered_weights * shares
    sums = weights.sum(axis=1, keepdims=True)
    return np.where(
        sums > 0, weights / np.where(sums > 0, sums, 1.0), offered_weights / offered_weights.sum(axis=1, keepdims=True)
    )


def blind_visits(world: FiniteWorld, shares: Array, kind: Utility) -> Array:
    """Return how often a state-blind agent is expected to decide in each state, ``[S]``.

    Args:
        world: the world.
        shares: ``[A]`` frequency of each action.
        kind: "arrival" for the distribution of the final state instead.
    """
    process = world.process
    policy = blind_policy(shares, process.offered, process.states, process.actions)
    mass, visits = process.start, np.zeros(process.states)
    for _ in range(world.horizon):
        visits += mass
        mass = process.base.flow(mass[:, None] * policy)
    return visits if kind == "steps" else mass
