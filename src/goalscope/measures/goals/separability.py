"""Which worlds tell two goal hypotheses apart: where agents that are after the one and the other act differently.

For hypotheses h and k, ``pi_h`` mixes the optimal actions towards h (``1 - eps``, equal parts) with all offered ones
(``eps``, equal parts), ``eps`` the same on both sides. What an episode of h tells against k, in nats:

    sum over t, s of P_h(s_t = s) KL(pi_h(. | t, s) || pi_k(. | t, s))

The smaller of both directions counts. A world tells them apart from `ENOUGH` nats on. A hypothesis that nobody can come
to within the horizon tells nothing there.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.returns import Unit
from goalscope.measures.goals.settings import Invalid, Mask, Utility, process
from goalscope.planning.mdp import TabularMDP, occupancy, value_iteration

LAPSE: Final = 0.1
"""Share of random actions of the agents that are compared."""

ENOUGH: Final = 0.1
"""Nats an episode from which on a world tells two hypotheses apart."""

FEWEST: Final = 6
"""Number of worlds (clusters) that must tell two hypotheses apart before one of them is named, unless all do."""

_LARGEST = 20_000_000  # decisions x states x actions up to which the optimal actions of each decision are computed
Array = npt.NDArray[np.float64]


def told_apart(unit: Unit, first: str, second: str, *, utility: Utility, invalid: Invalid) -> bool:
    """Return whether a world tells two hypotheses apart that are both defined in it.

    In a process too large for optimal actions by decision: whether their utilities differ.
    """
    if np.array_equal(unit.masks[first], unit.masks[second]):
        return False
    if unit.process.states * unit.process.actions * unit.horizon > _LARGEST:
        return True
    sides = [_policy(_Side(unit, unit.masks[name], utility, invalid)) for name in (first, second)]
    if any(side is None for side in sides):
        return False
    (left, left_mass), (right, right_mass) = (side for side in sides if side is not None)
    return min(_nats(left, right, left_mass), _nats(right, left, right_mass)) >= ENOUGH


class DividedWorlds:
    """The worlds that tell pairs of hypotheses apart, each computed once.

    Args:
        utility, invalid: as in `GoalSettings`.
    """

    def __init__(self, utility: Utility, invalid: Invalid) -> None:
        self._options: dict[str, Any] = {"utility": utility, "invalid": invalid}
        self._known: dict[tuple[str, str, int], bool] = {}

    def divided(
        self, units: Sequence[Unit], first: str, second: str, numbers: Iterable[int]
    ) -> tuple[list[int], list[int]]:
        """Return which of some worlds tell two hypotheses apart, and in which they are the same states."""
        apart, same = [], []
        for number in numbers:
            key, unit = (first, second, number), units[number]
            if key not in self._known:
                self._known[key] = told_apart(unit, first, second, **self._options)
            if self._known[key]:
                apart.append(number)
            elif np.array_equal(unit.masks[first], unit.masks[second]):
                same.append(number)
        return apart, same


class _Side:
    """A hypothesis in a world: what the policies are cached by."""

    def __init__(self, unit: Unit, mask: Mask, utility: Utility, invalid: Invalid) -> None:
        self.unit, self.mask, self.utility, self.invalid = unit, mask, utility, invalid
        self._key = (unit.world_id, unit.horizon, hash(mask.tobytes()), utility, invalid)

    def mdp(self) -> TabularMDP:
        """Return the decision process of an episode."""
        return process(self.unit.grid, self.mask, self.unit.horizon, utility=self.utility, invalid=self.invalid)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Side) and self._key == other._key and np.array_equal(self.mask, other.mask)


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
