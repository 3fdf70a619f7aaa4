"""Enumeration and exact solution of environments: distances or arrival probabilities, and optimal sets.

`enumerate_states` makes a table of all states, breadth-first from where episodes begin, and `solve_table` solves it.
Where there are too many states for a table, `VisitedStates` searches from the states that an agent visits.

Without chance, ``d(s) = 1 + min over a of d(T(s, a))`` and an action is optimal where it attains the minimum. With
chance no distance exists. There, with k decisions left, the value is the expected number of them that begin at the
goal: ``V_k(s) = 1(s at the goal) + max over a of E[V_{k-1}(s')]``, ``V_0 = 0``. Without chance, and where the goal can
be reached within k decisions, both have the same optimal actions.

Source: Bellman (1957), Dynamic Programming, chapter III; Bertsekas (2017), section 2.1, for shortest paths.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_whole, freeze
from goalscope._ground.distributions import note_rounding, to_chances
from goalscope.worlds.environments.environment import Environment, S, admissible_actions, goals_of
from goalscope.worlds.planning import TabularMDP, value_iteration
from goalscope.worlds.planning.mdp import transition_matrix
from goalscope.worlds.planning.process import Process
from goalscope.worlds.planning.shortest import fewest_steps

LIMIT = 200_000
"""Default maximum number of states of an enumeration, and of states that one search expands."""

_REPORT_EVERY = 200  # states whose actions were tried
_MOST_DECISIONS = 20_000  # after which the search for the expected steps stops
_SETTLED = 1e-6  # the expected steps are known once a further decision changes them by less than this

Numbers = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]
Sets = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class StateTable(Generic[S]):
    """An enumerated environment as arrays: S states, A actions, N possible transitions.

    There are no transitions from states in which the episode is over or at which the search was cut off, and none for
    actions that are not offered; in `mdp`, all of these lead back to the same state.

    Attributes:
        actions: names of the actions.
        states: the S states, in order of the fewest steps to them; those in which an episode may begin come first.
        index: state -> its number.
        triples: ``[N, 3]`` int64: state, action and next state of each transition, sorted by state and action.
        chance: ``[N]`` probability of each next state, > 0.
        reward: ``[N]`` reward of each transition, None where the environment has none.
        start: ``[S]`` probabilities of the first state.
        goals: name -> ``[S]`` bool, where each goal is fulfilled; "goal" is the environment's own.
        done: ``[S]`` bool, where an episode is over, solved or not.
        offered: ``[S, A]`` bool, the actions that each state offers.
        depth: ``[S]`` int64 fewest steps from a first state.
        bound: number of steps from the first states at which the search for states was cut off; None if all states were
            found.
    """

    actions: tuple[str, ...]
    states: tuple[S, ...]
    index: Mapping[S, int]
    triples: Numbers
    chance: Array
    reward: Array | None
    start: Array
    goals: Mapping[str, npt.NDArray[np.bool_]]
    done: npt.NDArray[np.bool_]
    offered: npt.NDArray[np.bool_]
    depth: Numbers
    bound: int | None = None

    @property
    def goal(self) -> npt.NDArray[np.bool_]:
        """``[S]`` bool: whether the environment's own goal is reached in each state."""
        return self.goals["goal"]

    @property
    def uniform(self) -> npt.NDArray[np.float64]:
        """``[S, A]`` action probabilities (states by actions) of the policy that takes all offered actions equally
        often.
        """
        return np.asarray(self.offered / self.offered.sum(axis=1, keepdims=True))

    @cached_property
    def rows(self) -> Numbers:
        """``[S * A + 1]`` start, among the N transitions, of the transitions of each pair of state and action.

        The transitions of state s and action a are those from index ``s * A + a`` of this array to the next index.
        """
        pair = self.triples[:, 0] * len(self.actions) + self.triples[:, 1]
        return freeze(np.searchsorted(pair, np.arange(len(self.states) * len(self.actions) + 1)))

    @cached_property
    def deterministic(self) -> bool:
        """Whether no action, in any state, has more than one possible outcome."""
        return bool((np.diff(self.rows) <= 1).all())

    @cached_property
    def successor(self) -> Numbers:
        """``[S, A]`` int64 number of the next state by state and action, for an environment without chance.

        A pair of state and action without transition leads to the same state.

        Raises:
            ValueError: if an action has several possible outcomes.
        """
        if not self.deterministic:
            raise ValueError("successors must be asked of an environment without chance, got one with chance")
        successors = np.repeat(np.arange(len(self.states))[:, None], len(self.actions), axis=1)
        successors[self.triples[:, 0], self.triples[:, 1]] = self.triples[:, 2]
        return freeze(successors)

    def leading_to(self, targets: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return ``[S]`` bool: from which states some sequence of actions can lead to one of the target states
        ``[S]`` (bool).
        """
        return fewest_steps(targets, self.triples[:, 0], self.triples[:, 2]) >= 0

    def outcomes(self, state: int, action: int) -> slice:
        """Return the slice of the N transitions that belong to a state and an action, both given as numbers.

        It is empty if the action changes nothing.
        """
        row = state * len(self.actions) + action
        return slice(int(self.rows[row]), int(self.rows[row + 1]))

    def draw(self, state: int, action: int, rng: np.random.Generator) -> tuple[int, float | None]:
        """Draw the next state (its number) after an action in a state, and return it with the reward of this
        transition.

        The reward is None if the environment has no rewards. No random number is used if there is only one outcome.
        """
        outcomes = self.outcomes(state, action)
        count = outcomes.stop - outcomes.start
        if count == 0:
            return state, None if self.reward is None else 0.0
        offset = 0
        if count > 1:
            cumulative = np.cumsum(self.chance[outcomes])
            offset = min(int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")), count - 1)
        row = outcomes.start + offset
        return int(self.triples[row, 2]), None if self.reward is None else float(self.reward[row])

    def mdp(
        self,
        utility: npt.ArrayLike | None = None,
        horizon: int = 1,
        *,
        terminal_utility: npt.NDArray[Any] | None = None,
    ) -> TabularMDP:
        """Return the environment as a Markov decision process with a utility and a horizon, as the functions of MEG
        take it.

        Args:
            utility: utility as in `TabularMDP`, for example ``[S]`` per state; by default 1 in every decision that
                begins at the goal.
            horizon: number of decisions, at most `bound` if the search for states had a bound.
            terminal_utility: ``[S]`` utility of the state after the last decision, or None.

        Raises:
            ValueError: if the horizon is beyond the bound of the search, or `TabularMDP` refuses an argument.
        """
        utilities = np.asarray(self.goal if utility is None else utility, dtype=np.float64)
        return self.process.mdp(utilities, horizon, terminal=terminal_utility)

    @cached_property
    def process(self) -> Process:
        """The transitions and first states of the environment as a `Process`, together with its goals by name."""
        transitions: Any
        if self.deterministic:
            transitions = self.successor
        else:
            possible, chance = self.complete
            transitions = transition_matrix(possible, chance, states=len(self.states), actions=len(self.actions))
        return Process(
            transitions=transitions,
            start=self.start,
            number=self.numbers,
            goals={name: np.asarray(values, dtype=np.float64) for name, values in self.goals.items()},
            most=self.bound,
            offered=None if self.offered.all() else self.offered,
        )

    @property
    def complete(self) -> tuple[Numbers, Array]:
        """All transitions ``[M, 3]`` (state, action, next state) and their probabilities ``[M]``, including those that
        change nothing.

        First come the N transitions of the table, then one for each pair of state and action that has none in the
        table, which leads to the same state.
        """
        state, action = np.divmod(np.flatnonzero(np.diff(self.rows) == 0), len(self.actions))
        staying = np.stack([state, action, state], axis=1)
        return np.concatenate([self.triples, staying]), np.concatenate([self.chance, np.ones(len(staying))])

    def numbers(self, states: Numbers) -> Numbers:
        """Return the numbers of states ``[N]`` from the states that a run recorded.

        Args:
            states: ``[N, K]`` recorded states; the number is in the first column, and the others are padding.

        Raises:
            ValueError: if a number is not that of a state, because the run was made in another version of the
                environment.
        """
        numbers = states[:, 0]
        if ((numbers < 0) | (numbers >= len(self.states))).any():
            raise ValueError(
                f"a state of an environment must be a number from 0 to {len(self.states) - 1}, got {numbers.min()} to "
                f"{numbers.max()}: the run was made in another version of it"
            )
        return numbers


def enumerate_states(
    environment: Environment[S],
    limit: int = LIMIT,
    *,
    depth: int | None = None,
    found: Callable[[int], None] | None = None,
) -> StateTable[S]:
    """Enumerate all states that episodes of an environment can reach, breadth-first, with their transitions.

    Args:
        environment: the environment.
        limit: maximum number of states, >= 1.
        depth: number of steps from the first states at which the search ends, None for no end. What is computed for a
            horizon of at most this many decisions is exact; `SolvedTable.decided` tells for which states the optimal
            actions are known.
        found: called again and again with the number of states found so far.

    Returns:
        The states, transitions, goals and offered actions as arrays.

    Raises:
        ValueError: if there are more states than ``limit``, or the environment returns something that is not a
            distribution over hashable states; the message says where.
    """
    check_whole("limit", limit, 1, "states")
    if depth is not None:
        check_whole("depth", depth, 1, "steps")
    actions = _check_actions(environment)
    search = _Search(environment, limit)
    beginning = [
        (search.number(state, 0), chance)
        for state, chance in _distribution(search, environment.initial(), "initial()").items()
    ]
    done, offered, bounded, index = list[bool](), list[npt.NDArray[np.bool_]](), False, 0
    while index < len(search.states):
        state = search.states[index]
        ended = bool(environment.done(state)) or bool(environment.goal(state))
        done.append(ended)
        offered.append(np.ones(len(actions), dtype=bool) if ended else admissible_actions(environment, state))
        if not ended and search.depth[index] == depth:
            bounded = True
        elif not ended:
            for action in np.flatnonzero(offered[-1]).tolist():
                _expand(search, index, action, actions)
        index += 1
        if found is not None and index % _REPORT_EVERY == 0:
            found(len(search.states))
    note_rounding("the chances that initial() and step() return", search.rounded)
    start = np.zeros(len(search.states))
    for number, chance in beginning:
        start[number] += chance
    triples = np.array(search.triples, dtype=np.int64).reshape(-1, 3)
    return StateTable(
        actions=actions,
        states=tuple(search.states),
        index=MappingProxyType(search.index),
        triples=freeze(triples),
        chance=freeze(np.array(search.chance, dtype=np.float64)),
        reward=_rewards(environment, search.states, triples),
        start=freeze(start),
        goals=MappingProxyType({name: _where(test, search.states) for name, test in goals_of(environment).items()}),
        done=freeze(np.array(done, dtype=bool)),
        offered=freeze(np.stack(offered)),
        depth=freeze(np.array(search.depth, dtype=np.int64)),
        bound=depth if bounded else None,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class SolvedTable:
    """An enumerated environment with its exact solution for one of its goals.

    Attributes:
        table: the environment, with S states and A actions.
        target: name of the goal that is solved for.
        distance: ``[S]`` int64 fewest steps to the goal, -1 where it cannot be reached, or where the bound of the
            search leaves open what the fewest are; None if the environment has chance.
        optimal: ``[S, A]`` bool, the optimal actions of each state, none where no action leads nearer to the goal; None
            if the environment has chance.
    """

    table: StateTable[Any]
    target: str
    distance: Numbers | None
    optimal: Sets | None

    @property
    def length(self) -> int:
        """Fewest steps from the beginning to the goal.

        It is -1 if the goal cannot be reached, the environment has chance, or episodes begin in several states.
        """
        begin = np.flatnonzero(self.table.start)
        if self.distance is None or len(begin) > 1:
            return -1
        return int(self.distance[begin[0]])

    @cached_property
    def expected_steps(self) -> float:
        """Mean number of steps to the goal of an agent that arrives as often as possible, and then as early as
        possible.

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
        transitions = self.table.process.transitions
        value, growth, offered = np.zeros(len(start)), np.inf, self.table.offered
        for decisions in range(1, _MOST_DECISIONS + 1):
            after = np.where(offered, (transitions @ value).reshape(offered.shape), -np.inf).max(axis=1)
            last, value = value, goal + after
            before, growth = growth, float(start @ (value - last))
            if growth > 0 and abs(growth - before) * decisions < _SETTLED:
                break
        return float(decisions - 1 - (start @ last) / growth)

    def optimal_by_time(self, horizon: int) -> Sets:
        """Return the optimal actions for each decision of a horizon of n, ``[n, S, A]`` bool: decisions by states by
        actions.

        No action is marked where none changes what can still be attained: at the goal, after the end of an episode, and
        in the last decision, after which no decision begins at the goal.

        Raises:
            ValueError: if the horizon is below 1 or beyond the bound of the search.
        """
        mdp = self.table.mdp(self.table.goals[self.target], horizon)
        solution = value_iteration(mdp)
        matters = np.ptp(solution.action_values, axis=2) > 1e-12 * max(1, horizon)
        return freeze(solution.optimal & (matters & ~self.table.done)[:, :, None])

    def policy(self, horizon: int, epsilon: float = 0.0) -> Array:
        """Return the probabilities of the policy that takes an optimal action, or with probability epsilon any offered
        one.

        Both are drawn uniformly. Where no action is optimal, the policy is uniform over the offered actions.

        Args:
            horizon: number n of decisions; it matters only in environments with chance.
            epsilon: probability of a random action.

        Returns:
            ``[S, A]`` states by actions; with chance ``[n, S, A]``, decisions by states by actions.
        """
        sets = self.optimal_by_time(horizon) if self.optimal is None else self.optimal
        supported = np.where(sets.any(axis=-1, keepdims=True), sets, self.table.offered)
        best = supported / supported.sum(axis=-1, keepdims=True)
        return np.asarray((1 - epsilon) * best + epsilon * self.table.uniform)

    @cached_property
    def decided(self) -> npt.NDArray[np.bool_]:
        """``[S]`` bool: whether the optimal actions of each state are known, or the episode is over there.

        It is False where the bound of the search for states leaves the optimal actions open.
        """
        if self.distance is None:
            return np.ones(len(self.table.states), dtype=bool)
        return freeze((self.distance >= 0) | self.table.done | (self.table.bound is None))


def solve_table(table: StateTable[Any], target: str = "goal") -> SolvedTable:
    """Solve an enumerated environment exactly for one of its goals.

    Args:
        table: the environment.
        target: name of the goal; episodes end where the environment says, whichever goal is solved for.

    Returns:
        The distance of each state to the goal, and its optimal actions.

    Raises:
        ValueError: if there is no goal of this name.
    """
    if target not in table.goals:
        raise ValueError(f"target must be one of the goals {', '.join(table.goals)}, got {target!r}")
    if not table.deterministic:
        return SolvedTable(table=table, target=target, distance=None, optimal=None)
    distance = fewest_steps(table.goals[target], table.triples[:, 0], table.triples[:, 2])
    if table.bound is not None:
        # A path of d steps from a state at depth t stays within depth t + d: what lies beyond cannot be shorter.
        distance = np.where(distance <= table.bound - table.depth, distance, -1)
    distance_before = distance[:, None]
    distance_after = distance[table.successor]
    optimal = (distance_before > 0) & (distance_after >= 0) & (distance_after == distance_before - 1)
    return SolvedTable(table=table, target=target, distance=freeze(distance), optimal=freeze(optimal))


class VisitedStates:
    """Distances and optimal actions in an environment without chance, computed by search for one state at a time.

    It serves environments with too many states for a table, such as levels with many movable things, of which an agent
    visits few. A* finds the distance d of a state exactly, with a lower bound of the distance as its heuristic. An
    action is optimal if its next state has the distance d - 1; this is decided by a search that leaves out all longer
    paths. Everything that a search finds out about a state (its distance, or a higher lower bound) is stored for later
    searches.

    Source: Hart, Nilsson and Raphael (1968); Pearl (1984), section 3.1.

    Args:
        environment: the environment. If it has a method ``lower_bound(state)``, the result must never exceed the number
            of steps to the goal; without one, the search is breadth-first.
        limit: maximum number of states that one search may expand; a longer search is refused.
    """

    def __init__(self, environment: Environment[Any], limit: int = LIMIT) -> None:
        self.environment, self.limit, self.actions = environment, limit, tuple(environment.actions)
        self._bound: Callable[[Any], float] = getattr(environment, "lower_bound", lambda state: 1.0)
        self._exact: dict[Hashable, float] = {}
        self._least: dict[Hashable, float] = {}
        self._next: dict[Hashable, tuple[Any, ...]] = {}

    def distance(self, state: Any) -> int:
        """Return the fewest steps from a state to the goal, -1 if the goal cannot be reached from there.

        Raises:
            ValueError: if the search expands more states than the limit, or the environment has chance.
        """
        if state not in self._exact:
            self._search(state, math.inf)
        return -1 if math.isinf(self._exact[state]) else int(self._exact[state])

    def optimal(self, state: Any) -> npt.NDArray[np.bool_]:
        """Return which actions lead one step nearer to the goal, as a mask ``[A]``; all False if no path leads to the
        goal.

        Raises:
            ValueError: if a search expands more states than the limit, or the environment has chance.
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
        """Return the states to which each action leads from a state, in the order of the actions.

        Raises:
            ValueError: if an action has several possible outcomes.
        """
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


@dataclass(eq=False)
class _Search(Generic[S]):
    """The state of an enumeration."""

    environment: Environment[S]
    limit: int
    states: list[S] = field(default_factory=list)
    index: dict[S, int] = field(default_factory=dict)
    depth: list[int] = field(default_factory=list)
    triples: list[tuple[int, int, int]] = field(default_factory=list)
    chance: list[float] = field(default_factory=list)
    rounded: float = 0.0

    def number(self, state: S, depth: int) -> int:
        """Return the number of a state, a new one where it was not seen yet."""
        number = self.index.get(state)
        if number is not None:
            return number
        if len(self.states) >= self.limit:
            advice: Callable[[], str] | None = getattr(self.environment, "advice_on_size", None)
            advised = "bound the values that a state can contain" if advice is None else advice()
            raise ValueError(
                f"an environment must have at most {self.limit} states to be enumerated, but more were found within "
                f"{depth} steps of the beginning: {advised}, or write a study whose "
                f"entry of worlds has `limit:` (number of states) or `depth:` (number of steps, at most "
                f"{max(1, depth - 1)}), and give it with --worlds"
            )
        self.index[state] = len(self.states)
        self.states.append(state)
        self.depth.append(depth)
        return self.index[state]


def _expand(search: _Search[S], index: int, action: int, actions: tuple[str, ...]) -> None:
    """Add the transitions of one action in one state; next states are in the order in which they were found."""
    state = search.states[index]
    place = f"step({state!r:.200}, {actions[action]!r})"
    outcomes = _distribution(search, search.environment.step(state, action), place)
    numbered = {search.number(next_state, search.depth[index] + 1): chance for next_state, chance in outcomes.items()}
    for number in sorted(numbered):
        search.triples.append((index, action, number))
        search.chance.append(numbered[number])


def _check_actions(environment: Environment[Any]) -> tuple[str, ...]:
    actions = environment.actions
    names = tuple(actions) if not isinstance(actions, str) else ()
    plain = all(isinstance(name, str) and name.strip() and name.isprintable() for name in names)
    if not names or not plain or len(set(names)) < len(names):
        raise ValueError(
            f"the actions of an environment must be different names of one line each, one or more, got {actions!r:.300}"
        )
    return names


def _distribution(search: _Search[Any], outcomes: Any, place: str) -> dict[Any, float]:
    """Return a distribution without zero probabilities; the search keeps how far its sum was from 1."""
    if not isinstance(outcomes, Mapping):
        raise ValueError(f"{place} must return chances by state, e.g. {{state: 1.0}}, got {type(outcomes).__name__}")
    foreign = next((state for state in outcomes if not isinstance(state, Hashable)), None)
    if foreign is not None:  # a mapping of another kind than dict
        raise ValueError(f"{place} must return states that can be hashed, such as tuples, got {type(foreign).__name__}")
    probabilities, distance = to_chances(place, outcomes)
    search.rounded = max(search.rounded, distance)
    return probabilities


def _where(test: Any, states: list[Any]) -> npt.NDArray[np.bool_]:
    return freeze(np.array([bool(test(state)) for state in states], dtype=bool))


def _rewards(environment: Environment[Any], states: list[Any], triples: Numbers) -> Array | None:
    """Return ``[N]`` rewards, None where the environment has none."""
    utility = getattr(environment, "utility", None)
    if utility is None:
        return None
    values = [utility(states[source], action, states[target]) for source, action, target in triples.tolist()]
    rewards = np.array([_number(value) for value in values], dtype=np.float64)
    if not np.isfinite(rewards).all():
        index = int(np.argmin(np.isfinite(rewards)))
        state = states[triples[index][0]]
        raise ValueError(
            f"utility(state, action, next) must return finite numbers, got {values[index]!r:.100} in {state!r:.200}"
        )
    return freeze(rewards)


def _number(value: Any) -> float:
    """Return a value as a number, NaN if it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan
