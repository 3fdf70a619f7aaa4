"""Optimal sets along visited states: informed search from each, in place of the enumeration of all.

Levels with many things that can be moved have more states than can be enumerated, yet an agent sees few of them. With a
lower bound of the distance that is never too high, A* finds the distance d of a state exactly; an action is optimal
where its next state has the distance d - 1, which a search that leaves out all longer ways decides. What is learnt of
any state (its distance, or a higher lower bound) is kept.

Source: Hart, Nilsson and Raphael (1968); Pearl (1984), section 3.1.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Hashable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.worlds.environments.environment import Environment, Player, StatePlayer
from goalscope.worlds.environments.playback import EPISODES, Mismatch, Simulated

Bound = Callable[[Any], float]
MOST: Final = 200_000
"""States that one search may expand."""
LONGEST: Final = 100
"""Steps of an episode of a play-back at most."""


class VisitedStates:
    """Distances and optimal actions in an environment without chance, computed for any state on request.

    Args:
        environment: the environment. If it has a method ``lower_bound(state)``, the result must never exceed the number
            of steps to the goal; without one, the search is breadth-first.
        limit: maximum number of states that one search may expand; a longer search is refused.
    """

    def __init__(self, environment: Environment[Any], limit: int = MOST) -> None:
        self.environment, self.limit, self.actions = environment, limit, tuple(environment.actions)
        self._bound: Bound = getattr(environment, "lower_bound", lambda state: 1.0)
        self._exact: dict[Hashable, float] = {}
        self._least: dict[Hashable, float] = {}
        self._next: dict[Hashable, tuple[Any, ...]] = {}

    def distance(self, state: Any) -> int:
        """Return the fewest steps from a state to the goal, -1 where it cannot be reached.

        Raises:
            ValueError: more states than the limit, or an environment with chance.
        """
        if state not in self._exact:
            self._search(state, math.inf)
        return -1 if math.isinf(self._exact[state]) else int(self._exact[state])

    def optimal(self, state: Any) -> npt.NDArray[np.bool_]:
        """Return ``[A]`` bool, which actions lead one step nearer to the goal; all False if the goal cannot
        be reached.
        """
        is_best, distance = np.zeros(len(self.actions), dtype=bool), self.distance(state)
        if distance <= 0:
            return is_best
        for action, following in enumerate(self.following(state)):
            if following != state and following not in self._exact and self._lower(following) <= distance - 1:
                self._search(following, distance - 1)
            is_best[action] = self._exact.get(following, math.inf) == distance - 1
        return is_best

    def following(self, state: Any) -> tuple[Any, ...]:
        """Return the next state for each action."""
        if state not in self._next:
            outcomes = [self.environment.step(state, action) for action in range(len(self.actions))]
            if any(len(outcome) != 1 for outcome in outcomes):
                raise ValueError("a search along visited states needs an environment without chance, got one with it")
            self._next[state] = tuple(next(iter(outcome)) for outcome in outcomes)
        return self._next[state]

    def _lower(self, state: Any) -> float:
        """Return the best lower bound that is known."""
        if state in self._exact:
            return self._exact[state]
        if state not in self._least:
            over = self.environment.done(state) or self.environment.goal(state)
            if over:
                self._exact[state] = 0.0 if self.environment.goal(state) else math.inf
                return self._exact[state]
            self._least[state] = max(1.0, self._bound(state))
        return self._least[state]

    def _search(self, start: Any, most: float) -> None:
        """Learn the distance of a state, or that it is above ``most``."""
        steps, parent, count = {start: 0.0}, {start: start}, itertools.count()
        ahead = [(self._lower(start), 0.0, next(count), start)]
        closed: dict[Any, float] = {}
        while ahead and ahead[0][0] <= most and not math.isinf(ahead[0][0]):
            total, step_count, _, state = heapq.heappop(ahead)
            step_count = -step_count
            if step_count > steps[state]:
                continue
            if state in self._exact:
                self._learn(closed, total)
                self._keep(parent, start, state, total)
                return
            closed[state] = step_count
            if len(closed) > self.limit:
                raise ValueError(
                    f"a search for the goal must expand at most {self.limit} states, got more from {start!r:.200}: "
                    "raise limit, or give the environment a better lower_bound(state)"
                )
            for following in self.following(state):
                if step_count + 1 < steps.get(following, math.inf):
                    estimate = step_count + 1 + self._lower(following)
                    if estimate <= most and not math.isinf(estimate):
                        steps[following], parent[following] = step_count + 1, state
                        # Among equally good ones the farthest first.
                        heapq.heappush(ahead, (estimate, -(step_count + 1), next(count), following))
        if math.isinf(most):  # all that can be reached was seen: from none of it the goal can be
            self._exact.update(dict.fromkeys(closed, math.inf))
            self._exact[start] = math.inf
        else:
            self._learn(closed, most + 1)
            self._least[start] = max(self._lower(start), most + 1)

    def _learn(self, closed: dict[Any, float], total: float) -> None:
        """Raise the bounds of expanded states: no way from the start through them is shorter than the total."""
        for state, steps in closed.items():
            if state not in self._exact:
                self._least[state] = max(self._lower(state), total - steps)

    def _keep(self, parent: dict[Any, Any], start: Any, state: Any, total: float) -> None:
        """Keep the distances along a shortest way."""
        left = self._exact[state]
        while state != start:
            state, left = parent[state], left + 1
            self._exact[state] = left
        assert left == total


def believe_visited(
    make: Callable[[], Environment[Any]], *, limit: int = MOST, seed: int = 0, episodes: int = EPISODES
) -> VisitedStates:
    """Search an environment from its beginning, and play it back in a fresh copy or in the real one behind an adapter.

    This does what `goalscope.environments.believe` does, for environments without chance that have too many states for
    a table.

    Args:
        make: function that makes the environment.
        limit: maximum number of states that one search may expand.
        seed: seed of the episodes that are played back.
        episodes: number of these episodes.

    Raises:
        Mismatch: the environment does something else than its transitions say.
        ValueError: a search exceeds the limit, or the environment has chance.
    """
    environment = make()
    visited = VisitedStates(environment, limit)
    (start,) = environment.initial()
    length, arrived, rng = visited.distance(start), 0, stream(seed, "play-back")
    fresh = make()
    for number in range(episodes):
        real = getattr(fresh, "play", None)
        player: Player = Simulated(make(), rng) if real is None else real(seed=number)
        arrived += _played(visited, player, start, ("optimal", "random", "mixed")[number % 3], rng)
    if length >= 0 and episodes and not arrived:
        raise Mismatch("the optimal policy must arrive in a fresh environment, but no episode of the play-back did")
    return visited


def _played(visited: VisitedStates, player: Player, state: Any, policy: str, rng: np.random.Generator) -> bool:
    """Play one episode, compare each step, and return whether it ended at the goal."""
    check = StatePlayer(visited.environment, state)
    for step in range(LONGEST):
        if (player.state, player.done, player.goal) != (check.state, check.done, check.goal):
            raise Mismatch(
                f"after {step} steps the state must be {check.state!r:.200}, but in the environment itself it is "
                f"{player.state!r:.200}: the state lacks something that decides what happens"
            )
        if check.done:
            return check.goal
        seeks = policy == "optimal" or (policy == "mixed" and bool(rng.random() < 0.5))
        options = np.flatnonzero(visited.optimal(check.state)) if seeks else np.arange(0)
        options = options if len(options) else np.arange(len(visited.actions))
        action = int(rng.choice(options))
        player.act(action)
        check.state = visited.following(check.state)[action]
    return False
