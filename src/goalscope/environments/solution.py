"""Exact solutions of environments: distances or arrival probabilities, and optimal sets.

Without chance, ``d(s) = 1 + min over a of d(T(s, a))`` and an action is optimal where it attains the minimum. With
chance no distance exists. There, with k decisions left, the value is the expected number of them that begin at the
goal: ``V_k(s) = 1(s at the goal) + max over a of E[V_{k-1}(s')]``, ``V_0 = 0``. Without chance, and where the goal can
be reached within k decisions, both have the same optimal actions.

In an environment with too many states, states are sampled by random walks, and each is solved by a separate search:
breadth-first, every state carrying the first actions of the shortest paths to it. In the first layer d that holds a
goal, ``d(s) = d``, and the optimal actions are those that its goals carry. The rest of the environment is unknown, so
there is no MEG; measures cover the sampled states only.

Source: Bellman (1957), Dynamic Programming, chapter III; Bertsekas (2017), section 2.1, for shortest paths.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_whole, freeze
from goalscope.environments.environment import Environment, admissible_actions
from goalscope.environments.table import StateTable
from goalscope.planning import value_iteration
from goalscope.stats import Estimate, estimate_mean

Numbers = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]
Sets = npt.NDArray[np.bool_]

SEARCHED = 100_000
"""Maximum states of one search from a sampled state."""


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
        """Fewest steps from the beginning to the goal; -1 without a way, with chance, or where beginnings differ."""
        begin = np.flatnonzero(self.table.start)
        if self.distance is None or len(begin) > 1:
            return -1
        return int(self.distance[begin[0]])

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

    def chance_of_arrival(self, horizon: int) -> Array:
        """Return ``[n + 1, S]``: the greatest chance to be at the goal within the decisions left, row t after t of n.

        Raises:
            ValueError: a horizon below 1 or beyond the bound of the search.
        """
        check_whole("horizon", horizon, 1, "decisions")
        reached = np.asarray(self.table.goals[self.target], dtype=np.float64)
        mdp = self.table.mdp(np.zeros_like(reached), horizon)
        arrival = np.empty((horizon + 1, len(reached)))
        arrival[horizon] = reached
        for t in reversed(range(horizon)):
            arrival[t] = np.maximum(reached, mdp.expect(arrival[t + 1]).max(axis=1))
        return freeze(arrival)

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
        """``[S]`` whether the state has a known optimal set or is over; False where the bound leaves it open."""
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


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledStates:
    """States of an environment that was not enumerated, and their exact solution.

    Attributes:
        states: the N states, one of each walk; a state may stand there twice.
        distance: ``[N]`` fewest steps to the goal; -1 where none leads there, or where it is left open.
        optimal: ``[N, A]`` bool, the optimal set, empty where no way is known.
        open: ``[N]`` bool, whether the search ended at its limit and the state is left open.
        label: how the states were sampled and solved, for notes on results.
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
        solved = np.flatnonzero(self.distance > 0)
        if not len(solved):
            raise ValueError(f"accuracy needs states from which a way to the goal is known, got none of {self.label}")
        probabilities = [
            float(np.asarray(policy(self.states[index])) @ self.optimal[index]) for index in solved.tolist()
        ]
        estimate = estimate_mean(
            np.clip(probabilities, 0.0, 1.0), solved, unit="share", bounds=(0.0, 1.0), confidence=confidence
        )
        note = f"{estimate.note}; {self.label}" if estimate.note else self.label
        return replace(estimate, note=note)


def sample_states(
    environment: Environment[Any], walks: int, *, steps: int, rng: np.random.Generator, searched: int = SEARCHED
) -> SampledStates:
    """Sample states by random walks and solve each one by a search from it.

    A walk takes offered actions at random, a number of steps that is drawn from 0 to ``steps`` - 1; its last state
    from which the episode goes on is the sample.

    Args:
        environment: without chance in its steps.
        walks: number of walks, and of states.
        steps: bound on the steps of a walk, which determines the part of the environment that is sampled.
        rng: draws the walks.
        searched: maximum states of one search; a state whose search needs more is left open.

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
    distance, optimal_bits, left_open = zip(*(solved[state] for state in states), strict=True)
    actions = range(len(environment.actions))
    n_open = sum(left_open)
    return SampledStates(
        states=tuple(states),
        distance=freeze(np.array(distance, dtype=np.int64)),
        optimal=freeze(np.array([[bool(mask >> action & 1) for action in actions] for mask in optimal_bits])),
        open=freeze(np.array(left_open)),
        label=f"{walks} sampled states of random walks of fewer than {steps} steps, {n_open} of them left open by "
        f"searches of at most {searched:,} states",
    )


def _next(environment: Environment[Any], state: Any, action: int) -> Any:
    next_states = [next_state for next_state, chance in environment.step(state, action).items() if chance > 0]
    if len(next_states) != 1:
        raise ValueError(
            f"sampled states must be of an environment without chance, but action {environment.actions[action]!r} in "
            f"{state!r:.200} has {len(next_states)} outcomes"
        )
    return next_states[0]


def _walk(environment: Environment[Any], steps: int, rng: np.random.Generator) -> Any:
    initial = environment.initial()
    states, weights = list(initial), np.array(list(initial.values()), dtype=np.float64)
    state = states[int(rng.choice(len(states), p=weights / weights.sum()))]
    for _ in range(steps):
        offered = np.flatnonzero(admissible_actions(environment, state))
        next_state = _next(environment, state, int(offered[int(rng.integers(len(offered)))]))
        if environment.done(next_state) or environment.goal(next_state):
            break
        state = next_state
    return state


def _search(environment: Environment[Any], state: Any, max_states: int) -> tuple[int, int, bool]:
    """Return the distance (-1 for none), the optimal actions as bits, and whether the limit left both open."""
    if environment.goal(state):
        return 0, 0, False
    visited, layer, depth = {state}, {state: 0}, 0
    while layer:
        depth += 1
        next_layer: dict[Any, int] = {}
        for node, first_actions in layer.items():
            for action in np.flatnonzero(admissible_actions(environment, node)).tolist():
                next_state = _next(environment, node, action)
                if next_state not in visited:
                    next_layer[next_state] = next_layer.get(next_state, 0) | (first_actions or 1 << action)
        goal_actions = [first_actions for node, first_actions in next_layer.items() if environment.goal(node)]
        if goal_actions:
            return depth, int(np.bitwise_or.reduce(np.array(goal_actions, dtype=object))), False
        visited |= next_layer.keys()
        if len(visited) > max_states:
            return -1, 0, True
        layer = {node: first_actions for node, first_actions in next_layer.items() if not environment.done(node)}
    return -1, 0, False
