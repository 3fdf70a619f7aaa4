"""Intermediate steps: events that every agent must reach on the way to a goal, such as the key before a door.

An event k is a step of h in a world if h is reachable, but becomes unreachable when the states of k that are not states
of h are removed; one reachability search decides this. A step is not an ordinary rival of its goal, because an agent
that pursues h also does everything that an agent pursuing k does. As a rival of h, k therefore means "k, then
anything", and the behaviour after reaching k decides.
"""

from collections.abc import Mapping

import numpy as np

from goalscope.goals.hypotheses.definition import FiniteWorld, Mask, Numbers


def steps_in(world: FiniteWorld, masks: Mapping[int, Mask], events: Mapping[int, Mask]) -> set[tuple[int, int]]:
    """Find the intermediate steps among hypotheses in a world: pairs (h, k) such that k is a step of h.

    Args:
        world: the world.
        masks: index of a hypothesis -> ``[S]`` states in which its place or event holds.
        events: the subset that can be steps, because they make no prediction once they hold.
    """
    pairs = set[tuple[int, int]]()
    for k, states in events.items():
        if (states & (world.process.start > 0)).any():
            continue  # it holds from the beginning, so no agent has to reach it
        for h, goal in masks.items():
            blocked = states & ~goal
            if h != k and blocked.any() and (goal & world.reached).any() and not (goal & around(world, blocked)).any():
                pairs.add((h, k))
    return pairs


def around(world: FiniteWorld, blocked: Mask) -> Mask:
    """Return the states that can be reached without entering blocked states, ``[S]``."""
    process, seen = world.process, np.zeros(world.process.states, dtype=bool)
    after = (process.start > 0) & ~blocked
    while not (after == seen).all():
        seen = after
        after = (seen | (process.base.flow(np.where(seen[:, None], world.even, 0.0)) > 0)) & ~blocked
    return seen


def reached_before(episode: Numbers, inside: Mask) -> Mask:
    """Return whether each step, or an earlier step of its episode, lies in a set of states, ``[N]``.

    Args:
        episode: ``[N]`` episode number of each step; the steps of an episode are consecutive.
        inside: ``[N]`` whether each step lies in the set.
    """
    if not len(episode):
        return inside
    total = np.cumsum(inside)
    begins = np.flatnonzero(np.concatenate([[True], episode[1:] != episode[:-1]]))
    before: Numbers = np.repeat(total[begins] - inside[begins], np.diff([*begins, len(episode)]))
    return np.asarray(total > before)
