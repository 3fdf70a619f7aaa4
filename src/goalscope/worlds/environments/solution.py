"""Exact solutions of environments: distances or arrival probabilities, and optimal sets.

Without chance, ``d(s) = 1 + min over a of d(T(s, a))`` and an action is optimal where it attains the minimum. With
chance no distance exists. There, with k decisions left, the value is the expected number of them that begin at the
goal: ``V_k(s) = 1(s at the goal) + max over a of E[V_{k-1}(s')]``, ``V_0 = 0``. Without chance, and where the goal can
be reached within k decisions, both have the same optimal actions.

Source: Bellman (1957), Dynamic Programming, chapter III; Bertsekas (2017), section 2.1, for shortest paths.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_whole, freeze
from goalscope.worlds.environments.table import StateTable
from goalscope.worlds.planning import value_iteration

Numbers = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]
Sets = npt.NDArray[np.bool_]


_MOST_DECISIONS = 20_000
"""Number of decisions after which the search for the expected steps stops."""

_SETTLED = 1e-6
"""The expected steps are found once a further decision changes them by less than this."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SolvedTable:
    """An enumerated environment with its exact solution towards one of its goals.

    Attributes:
        table: the environment.
        target: name of the goal that is solved for.
        distance: ``[S]`` int64 fewest steps to the goal, -1 where it cannot be reached, or where the bound of the
            search leaves open what the fewest are; None with chance.
        optimal: ``[S, A]`` bool, the optimal set, empty where no action leads nearer to the goal; None with chance.
    """

    table: StateTable[Any]
    target: str
    distance: Numbers | None
    optimal: Sets | None

    @property
    def length(self) -> int:
        """Fewest steps from the beginning to the goal; -1 if there is no path, with chance, or if episodes begin in
        several states.
        """
        begin = np.flatnonzero(self.table.start)
        if self.distance is None or len(begin) > 1:
            return -1
        return int(self.distance[begin[0]])

    @cached_property
    def expected_steps(self) -> float:
        """Mean steps to the goal of an agent that arrives as often as possible, and then as early as possible.

        The mean is over the episodes in which this agent arrives, without any limit of time; infinite if it never
        arrives. With k decisions, the value of a state grows by ``V_k - V_{k-1}``, which tends to the chance p of
        arriving, and ``k p - V_k`` tends to p times the mean number of steps.
        """
        start, goal = self.table.start, self.table.goals[self.target].astype(np.float64)
        if self.distance is not None:
            arriving = np.where(self.distance >= 0, start, 0.0)
            return float(arriving @ self.distance / arriving.sum()) if arriving.sum() > 0 else np.inf
        if not (self.table.leading_to(self.table.goals[self.target]) & (start > 0)).any():
            return np.inf
        transitions = self.table.mdp(goal, 1).transitions
        value, growth, offered = np.zeros(len(start)), np.inf, self.table.offered
        for decisions in range(1, _MOST_DECISIONS + 1):
            after = np.where(offered, (transitions @ value).reshape(offered.shape), -np.inf).max(axis=1)
            last, value = value, goal + after
            before, growth = growth, float(start @ (value - last))
            if growth > 0 and abs(growth - before) * decisions < _SETTLED:
                break
        return float(decisions - 1 - (start @ last) / growth)

    def optimal_by_time(self, horizon: int) -> Sets:
        """Return ``[n, S, A]`` bool, the optimal set of each decision of a horizon of n.

        Empty where no action changes what can still be attained: at the goal, after the end, and in the last decision,
        whose outcome no further decision begins with.

        Raises:
            ValueError: a horizon below 1 or beyond the bound of the search.
        """
        check_whole("horizon", horizon, 1, "decisions")
        self.table.check_horizon(horizon)
        mdp = self.table.mdp(self.table.goals[self.target], horizon)
        solution = value_iteration(mdp)
        matters = np.ptp(solution.action_values, axis=2) > 1e-12 * max(1, horizon)
        return freeze(solution.optimal & (matters & ~self.table.done)[:, :, None])

    def policy(self, horizon: int, epsilon: float = 0.0) -> Array:
        """Return ``[S, A]`` (with chance ``[n, S, A]``): uniform over optimal actions, with chance epsilon over all.

        All are those that are offered; over these it is uniform where no action is optimal.
        """
        sets = self.optimal_by_time(horizon) if self.optimal is None else self.optimal
        supported = np.where(sets.any(axis=-1, keepdims=True), sets, self.table.offered)
        best = supported / supported.sum(axis=-1, keepdims=True)
        return np.asarray((1 - epsilon) * best + epsilon * self.table.uniform)

    @cached_property
    def decided(self) -> npt.NDArray[np.bool_]:
        """``[S]`` whether the optimal actions of a state are known, or the episode is over there; False where the bound
        of the search leaves them open.
        """
        if self.distance is None:
            return np.ones(len(self.table.states), dtype=bool)
        return freeze((self.distance >= 0) | self.table.done | (self.table.bound is None))


def solve_table(table: StateTable[Any], target: str = "goal") -> SolvedTable:
    """Solve an enumerated environment exactly.

    Args:
        table: the environment.
        target: one of its goals; episodes end where the environment says, whatever the target.

    Raises:
        ValueError: an unknown target.
    """
    if target not in table.goals:
        raise ValueError(f"target must be one of the goals {', '.join(table.goals)}, got {target!r}")
    if not table.deterministic:
        return SolvedTable(table=table, target=target, distance=None, optimal=None)
    distance = _distances(table, table.goals[target])
    if table.bound is not None:
        # A path of d steps from a state at depth t stays within depth t + d: what lies beyond cannot be shorter.
        distance = np.where(distance <= table.bound - table.depth, distance, -1)
    distance_before = distance[:, None]
    distance_after = distance[table.successor]
    optimal = (distance_before > 0) & (distance_after >= 0) & (distance_after == distance_before - 1)
    return SolvedTable(table=table, target=target, distance=freeze(distance), optimal=freeze(optimal))


def _distances(table: StateTable[Any], goal: npt.NDArray[np.bool_]) -> Numbers:
    """Return ``[S]`` fewest steps to a set of states, by breadth-first search against the direction of the actions."""
    source, target = table.triples[:, 0], table.triples[:, 2]
    order = np.argsort(target, kind="stable")
    source, edges = source[order], np.searchsorted(target[order], np.arange(len(table.states) + 1))
    distance = np.where(goal, 0, -1).astype(np.int64)
    frontier, steps = np.flatnonzero(goal), 0
    while len(frontier):
        steps += 1
        parts = [source[edges[state] : edges[state + 1]] for state in frontier.tolist()]
        predecessors = np.unique(np.concatenate(parts))
        frontier = predecessors[distance[predecessors] < 0]
        distance[frontier] = steps
    return distance
