"""Measure what an agent does after it has reached an intermediate step of a goal, such as the key before a door.

An agent that pursues h reaches its intermediate step k first, so MEG towards k is also evidence for h. As a rival of h,
k therefore means "k, then anything", and only the decisions after the first visit to k separate the two. Their value is

    sum over these decisions of log(A pi_beta(a | t, s))    nats, beta the rationality that fits h over all decisions

where A is the number of offered actions and ``pi_beta`` the soft-optimal policy for h. Its mean is at most 0 for an
agent that acts at random after k; for an agent that pursues h with rationality beta, `expected_after` computes it
exactly. In deterministic worlds the same sum over all decisions is the MEG towards h.

Source: goalscope; the sum over all decisions is definition 3.2 of MacDermott et al. (2024) for one episode.
"""

import numpy as np

from goalscope.goals.curves import TOP
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Mask
from goalscope.goals.hypotheses.states import States
from goalscope.goals.hypotheses.steps import reached_before
from goalscope.goals.meg import RationalityCurve
from goalscope.worlds.planning import TabularMDP


def soft_gains(world: FiniteWorld, process: TabularMDP, beta: float) -> tuple[Array, Array]:
    """Return the soft-optimal policy, and the gain in nats of each action over a random one, both ``[n, S, A]``.

    Args:
        world: the world.
        process: its decision process with the utility of the goal.
        beta: rationality in nats per unit of utility, clipped to [-`TOP`, `TOP`].
    """
    policy = RationalityCurve(process).policy(float(np.clip(beta, -TOP, TOP)))
    even = world.even
    gains = np.log(np.maximum(policy, 1e-300) / np.where(even > 0, even, 1.0))
    return policy, np.where(even > 0, gains, 0.0)


def shown_after(states: States, step: Mask, gains: Array) -> Array:
    """Return the gain in nats of each episode after it first reached the intermediate step, ``[E]``; 0 if it never did.

    Args:
        states: the episodes. If a step stores the policy that its action was drawn from, the expected gain is used.
        step: ``[S]`` mask of the states in which the intermediate step is reached.
        gains: ``[n, S, A]`` of `soft_gains`.
    """
    after = reached_before(states.episode, step[states.state]) & (states.action >= 0)
    value = gains[states.time, states.state, np.maximum(states.action, 0)]
    if states.policy is not None:
        exact = ~np.isnan(states.policy[:, 0])
        value[exact] = np.einsum("na,na->n", states.policy[exact], gains[states.time[exact], states.state[exact]])
    return np.asarray(
        np.bincount(states.episode, weights=np.where(after, value, 0.0), minlength=len(states)), dtype=float
    )


def expected_after(world: FiniteWorld, step: Mask, policy: Array, gains: Array) -> float:
    """Compute the expected gain, in nats, that the soft-optimal agent makes after it has passed the intermediate step.
    The value is exact.
    """
    before = np.where(step, 0.0, world.process.start)
    after, total = world.process.start - before, 0.0
    for time in range(world.horizon):
        total += float(((after[:, None] * policy[time]) * gains[time]).sum())
        came = world.process.base.flow(before[:, None] * policy[time])
        after = world.process.base.flow(after[:, None] * policy[time]) + np.where(step, came, 0.0)
        before = np.where(step, 0.0, came)
    return total
