"""Environments with too many states: states sampled by random walks, each solved by a search of its own.

From a state ``s`` a breadth-first search carries with every state the first actions of the shortest ways to it. In the
first layer d that holds a goal, ``d(s) = d``, and the optimal actions are those that its goals carry. Nothing else is
known of the environment, so there is no MEG; what is measured is of the states that were sampled.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_whole, freeze
from goalscope.environments.environment import Environment, admissible_actions
from goalscope.stats import Estimate, estimate_mean

Numbers = npt.NDArray[np.int64]
Sets = npt.NDArray[np.bool_]

SEARCHED = 100_000
"""Most states of one search."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledStates:
    """States of an environment that was not enumerated, and their exact solution.

    Attributes:
        states: the N states, one of each walk; a state may stand there twice.
        distance: ``[N]`` fewest steps to the goal; -1 where none leads there, or where it is left open.
        optimal: ``[N, A]`` bool, the optimal set, empty where no way is known.
        open: ``[N]`` bool, whether the search ended at its limit and the state is left open.
        label: how the states were sampled and solved, for whatever is said of them.
    """

    states: tuple[Any, ...]
    distance: Numbers
    optimal: Sets
    open: Sets
    label: str

    def accuracy(self, policy: Callable[[Any], npt.NDArray[np.floating]], *, confidence: float = 0.95) -> Estimate:
        """Return the chance that an agent acts optimally, mean over the sampled states from which a way is known.

        Args:
            policy: probabilities ``[A]`` of the actions in a state.
            confidence: nominal coverage of the interval, over walks.

        Raises:
            ValueError: a way is known from none of the states.
        """
        known = np.flatnonzero(self.distance > 0)
        if not len(known):
            raise ValueError(f"accuracy needs states from which a way to the goal is known, got none of {self.label}")
        chance = [float(np.asarray(policy(self.states[at])) @ self.optimal[at]) for at in known.tolist()]
        found = estimate_mean(np.clip(chance, 0.0, 1.0), known, unit="share", bounds=(0.0, 1.0), confidence=confidence)
        note = f"{found.note}; {self.label}" if found.note else self.label
        return replace(found, note=note)


def sample_states(
    environment: Environment[Any], walks: int, *, steps: int, rng: np.random.Generator, searched: int = SEARCHED
) -> SampledStates:
    """Sample states by random walks and solve each one by a search from it.

    A walk takes offered actions at random, a number of steps that is drawn from 0 to ``steps`` - 1; its last state
    from which the episode goes on is the sample.

    Args:
        environment: without chance in its steps.
        walks: number of walks, and of states.
        steps: most steps of a walk, and so the part of the environment that is spoken of.
        rng: draws the walks.
        searched: most states of one search; a state whose search needs more is left open.

    Raises:
        ValueError: an action has several outcomes, or a number below 1.
    """
    check_whole("walks", walks, 1, "walks")
    check_whole("steps", steps, 1, "steps")
    check_whole("searched", searched, 1, "states")
    states = [_walk(environment, int(rng.integers(steps)), rng) for _ in range(walks)]
    solved: dict[Hashable, tuple[int, int, bool]] = {}
    for state in states:
        if state not in solved:
            solved[state] = _search(environment, state, searched)
    distance, first, left_open = zip(*(solved[state] for state in states), strict=True)
    actions = np.arange(len(environment.actions))
    unknown = sum(left_open)
    return SampledStates(
        states=tuple(states),
        distance=freeze(np.array(distance, dtype=np.int64)),
        optimal=freeze(np.array([[bool(mask >> action & 1) for action in actions.tolist()] for mask in first])),
        open=freeze(np.array(left_open)),
        label=f"{walks} sampled states of random walks of fewer than {steps} steps, {unknown} of them left open by "
        f"searches of at most {searched:,} states",
    )


def _next(environment: Environment[Any], state: Any, action: int) -> Any:
    found = [to for to, chance in environment.step(state, action).items() if chance > 0]
    if len(found) != 1:
        raise ValueError(
            f"sampled states must be of an environment without chance, but action {environment.actions[action]!r} in "
            f"{state!r:.200} has {len(found)} outcomes"
        )
    return found[0]


def _walk(environment: Environment[Any], steps: int, rng: np.random.Generator) -> Any:
    begin = environment.initial()
    places, chances = list(begin), np.array(list(begin.values()), dtype=np.float64)
    state = places[int(rng.choice(len(places), p=chances / chances.sum()))]
    for _ in range(steps):
        offered = np.flatnonzero(admissible_actions(environment, state))
        after = _next(environment, state, int(offered[int(rng.integers(len(offered)))]))
        if environment.done(after):
            break
        state = after
    return state


def _search(environment: Environment[Any], state: Any, most: int) -> tuple[int, int, bool]:
    """Return the distance (-1 for none), the optimal actions as bits, and whether the limit left both open."""
    if environment.goal(state):
        return 0, 0, False
    seen, layer, depth = {state}, {state: 0}, 0
    while layer:
        depth += 1
        after: dict[Any, int] = {}
        for place, first in layer.items():
            for action in np.flatnonzero(admissible_actions(environment, place)).tolist():
                to = _next(environment, place, action)
                if to not in seen:
                    after[to] = after.get(to, 0) | (first or 1 << action)
        arrived = [first for place, first in after.items() if environment.goal(place)]
        if arrived:
            return depth, int(np.bitwise_or.reduce(np.array(arrived, dtype=object))), False
        seen |= after.keys()
        if len(seen) > most:
            return -1, 0, True
        layer = {place: first for place, first in after.items() if not environment.done(place)}
    return -1, 0, False
