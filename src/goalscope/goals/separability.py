"""Which worlds tell two goal hypotheses apart: where agents that are after the one and the other act differently.

For hypotheses h and k, ``pi_h`` mixes the optimal actions towards h (``1 - eps``, equal parts) with all offered ones
(``eps``, equal parts), ``eps`` the same on both sides. What an episode of h tells against k, in nats:

    sum over t, s of P_h(s_t = s) KL(pi_h(. | t, s) || pi_k(. | t, s))

The smaller of both directions counts. A world tells them apart from `ENOUGH` nats on. A hypothesis that nobody can come
to within the horizon tells nothing there.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from goalscope.goals.curves import digest_of, process_of_episode
from goalscope.goals.random_agents import Invalid, Utility
from goalscope.hypotheses.definition import FiniteWorld
from goalscope.hypotheses.separability import ENOUGH, LAPSE
from goalscope.planning.mdp import TabularMDP, occupancy, value_iteration

_LARGEST = 20_000_000  # decisions x states x actions up to which the optimal actions of each decision are computed
Array = npt.NDArray[np.float64]


class DividedWorlds:
    """Whether worlds tell pairs of utilities apart, each computed once.

    Args:
        kind, invalid: as in `goalscope.goals.random_agents`.
    """

    def __init__(self, kind: Utility, invalid: Invalid) -> None:
        self._kind: Utility = kind
        self._invalid: Invalid = invalid
        self._known: dict[tuple[int, bytes, bytes], bool] = {}

    def told_apart(self, world: FiniteWorld, first: Array, second: Array) -> bool:
        """Return whether a world tells two different utilities apart.

        In a process too large for optimal actions by decision: always.
        """
        key = id(world), digest_of(first), digest_of(second)
        if key not in self._known:
            self._known[key] = self._told_apart(world, first, second)
        return self._known[key]

    def _told_apart(self, world: FiniteWorld, first: Array, second: Array) -> bool:
        if world.process.states * world.process.actions * world.horizon > _LARGEST:
            return True
        sides = [_policy(_Side(world, utility, self._kind, self._invalid)) for utility in (first, second)]
        if any(side is None for side in sides):
            return False
        (left, left_mass), (right, right_mass) = (side for side in sides if side is not None)
        return min(_nats(left, right, left_mass), _nats(right, left, right_mass)) >= ENOUGH


class _Side:
    """A utility in a world: what the policies are cached by."""

    def __init__(self, world: FiniteWorld, utility: Array, kind: Utility, invalid: Invalid) -> None:
        self.world, self.utility, self.kind, self.invalid = world, utility, kind, invalid
        self._key = (id(world), digest_of(utility), kind, invalid)

    def mdp(self) -> TabularMDP:
        """Return the decision process of an episode."""
        return process_of_episode(self.world, self.utility, kind=self.kind, invalid=self.invalid)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Side) and self._key == other._key


@lru_cache(maxsize=16)  # the sides of one world: pairs of hypotheses are asked world by world
def _policy(side: _Side) -> tuple[Array, Array] | None:
    """Return ``[n, S, A]`` the policy and ``[n, S]`` where it comes to, None where it cannot gain anything."""
    mdp = side.mdp()
    values = value_iteration(mdp)
    if not float(mdp.start @ values.values[0]) > 0:
        return None
    offered = np.ones((mdp.states, mdp.actions)) if mdp.offered is None else mdp.offered.astype(np.float64)
    best = values.optimal / values.optimal.sum(axis=2, keepdims=True)
    policy = (1 - LAPSE) * best + LAPSE * (offered / offered.sum(axis=1, keepdims=True))
    return policy, occupancy(mdp, policy)[:-1]


def _nats(policy: Array, other: Array, mass: Array) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(policy > 0, policy * np.log(policy / other), 0.0)
    return float((mass * terms.sum(axis=2)).sum())
