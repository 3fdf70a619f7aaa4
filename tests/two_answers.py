"""Walks of a policy in finite worlds, every step answered twice."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from goalscope.hypotheses import FiniteWorld
from goalscope.hypotheses.answers import Answers
from goalscope.rng import stream


def play(given: Sequence[FiniteWorld], policy: Callable[[FiniteWorld], Any], most: int = 12) -> list[Answers]:
    """Return two answers to each step of an episode of a policy ``[S, A]``."""
    found, one_hot = [], np.eye(4)
    for world in given:
        chances, rng = policy(world), stream(1, world.world.id, most)
        state, states, taken = int(world.process.start.argmax()), list[int](), list[Any]()
        while len(states) < most and world.live[state]:
            states.append(state)
            taken.append(rng.choice(4, size=2, p=chances[state]))
            state = int(world.process.transitions[state, taken[-1][0]])
        both = np.array(taken)
        found.append(
            Answers(
                world=world,
                state=np.array(states),
                time=np.arange(len(states)),
                episode=np.zeros(len(states), dtype=np.int64),
                last=np.array([state]),
                left=np.array([world.horizon - len(states)]),
                first=one_hot[both[:, 0]],
                second=one_hot[both[:, 1]],
            )
        )
    return found
