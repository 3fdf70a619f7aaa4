"""Walks of a policy in finite worlds, every step answered twice."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from goalscope._ground.rng import stream
from goalscope.goals.hypotheses import FiniteWorld
from goalscope.goals.hypotheses.states import States, walked


def play(given: Sequence[FiniteWorld], policy: Callable[[FiniteWorld], Any], most: int = 12) -> list[States]:
    """Return an episode of a policy ``[S, A]`` in each world, each step answered twice."""
    found = []
    for world in given:
        chances, rng = policy(world), stream(1, world.world.id, most)
        state, states, taken = int(world.process.start.argmax()), list[int](), list[Any]()
        while len(states) < most and world.live[state]:
            states.append(state)
            taken.append(rng.choice(4, size=2, p=chances[state]))
            state = int(world.process.transitions[state, taken[-1][0]])
        both = np.array(taken, dtype=np.int64).reshape(-1, 2)
        numbers = np.array(states, dtype=np.int64)
        found.append(walked("planted", world, numbers, last=state, first=both[:, 0], second=both[:, 1]))
    return found
