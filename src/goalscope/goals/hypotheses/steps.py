"""Steps: what every agent that is after a goal must reach first, such as the key before a door.

An event k is a step of h in a world if h can be reached there, and can no longer be reached once the states of k that
are no states of h are taken away: one search for what can be reached. A step is no rival of what lies behind it, since
whoever is after h does all that an agent after k does. Against h, k therefore stands for "k, then anything", and what
an agent does after it has reached k decides.
"""

from collections.abc import Mapping

import numpy as np

from goalscope.goals.hypotheses.definition import FiniteWorld, Mask, Numbers


def steps_in(world: FiniteWorld, masks: Mapping[int, Mask], events: Mapping[int, Mask]) -> set[tuple[int, int]]:
    """Return which hypotheses are steps of others in a world: pairs (h, k) in which k is a step of h.

    Args:
        world: the world.
        masks: number of a hypothesis -> ``[S]`` the states in which its place or event holds.
        events: those of them that can be steps: once they hold, the hypothesis has nothing more to say.
    """
    pairs = set[tuple[int, int]]()
    for k, states in events.items():
        if (states & (world.process.start > 0)).any():
            continue  # it holds from the beginning: nobody has to reach it
        for h, goal in masks.items():
            blocked = states & ~goal
            if h != k and blocked.any() and (goal & world.reached).any() and not (goal & around(world, blocked)).any():
                pairs.add((h, k))
    return pairs


def around(world: FiniteWorld, blocked: Mask) -> Mask:
    """Return ``[S]`` the states that can be reached without entering some states."""
    process, seen = world.process, np.zeros(world.process.states, dtype=bool)
    after = (process.start > 0) & ~blocked
    while not (after == seen).all():
        seen = after
        after = (seen | (process.base.flow(np.where(seen[:, None], world.even, 0.0)) > 0)) & ~blocked
    return seen


def reached_before(episode: Numbers, inside: Mask) -> Mask:
    """Return ``[N]`` whether each step lies in some states, or an earlier step of its episode did.

    Args:
        episode: ``[N]`` number of the episode of each step; the steps of one follow one another.
        inside: ``[N]`` whether each step lies there.
    """
    if not len(episode):
        return inside
    total = np.cumsum(inside)
    begins = np.flatnonzero(np.concatenate([[True], episode[1:] != episode[:-1]]))
    before: Numbers = np.repeat(total[begins] - inside[begins], np.diff([*begins, len(episode)]))
    return np.asarray(total > before)
