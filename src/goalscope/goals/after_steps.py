"""What an agent does once a step on the way to a goal has been reached, such as the key before a door.

Whoever is after h reaches its step k first, so that MEG towards k speaks for h as well. Against h, k therefore stands
for "k, then anything", and the decisions after an episode first reaches k tell the two apart. They are worth

    sum over these decisions of log(A pi_beta(a | t, s))    nats, beta the rationality that fits h over all decisions

with A offered actions and ``pi_beta`` the soft-optimal policy for h. It is 0 in the mean at most for an agent that acts
at random there, and for an agent that is after h with that rationality it is what `expected_after` propagates forward,
exactly. Where actions have one outcome, the same sum over all decisions is the MEG towards h.

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
    """Return ``[n, S, A]`` the soft-optimal policy of each decision, and the nats of each action against a random one.

    Args:
        world: the world.
        process: its decision process with the utility of the goal.
        beta: rationality, nats per unit of utility; beyond `TOP` the policy is that of `TOP`.
    """
    policy = RationalityCurve(process).policy(float(np.clip(beta, -TOP, TOP)))
    even = world.even
    gains = np.log(np.maximum(policy, 1e-300) / np.where(even > 0, even, 1.0))
    return policy, np.where(even > 0, gains, 0.0)


def shown_after(states: States, step: Mask, gains: Array) -> Array:
    """Return ``[E]`` nats of the decisions of each episode after it first reached a step, 0 where it never did.

    Args:
        states: the episodes. Where steps hold the policy that their action was drawn from, its expectation counts.
        step: ``[S]`` where the step holds.
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
    """Return the nats that an agent with the soft-optimal policy is expected to show after the step, exactly."""
    before = np.where(step, 0.0, world.process.start)
    after, total = world.process.start - before, 0.0
    for time in range(world.horizon):
        total += float(((after[:, None] * policy[time]) * gains[time]).sum())
        came = world.process.base.flow(before[:, None] * policy[time])
        after = world.process.base.flow(after[:, None] * policy[time]) + np.where(step, came, 0.0)
        before = np.where(step, 0.0, came)
    return total
