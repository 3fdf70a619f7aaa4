"""All states of an environment and what every action does in each: breadth-first from where episodes begin."""

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
from goalscope.worlds.planning import TabularMDP

LIMIT = 200_000
"""Default maximum number of states of an enumeration."""

_REPORT_EVERY = 5000  # states whose actions were tried

Numbers = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class StateTable(Generic[S]):
    """An enumerated environment: S states, A actions, N possible transitions.

    States that are done have no transitions, nor have actions that are not offered, nor states at the bound of the
    search; in `mdp` all of them stay where they are.

    Attributes:
        actions: names of the actions.
        states: the S states, those of the beginning first, then by the number of steps to them.
        index: state -> its number.
        triples: ``[N, 3]`` int64: state, action and next state, by state and action.
        chance: ``[N]`` probability of each next state, > 0.
        reward: ``[N]`` reward of each transition, None where the environment has none.
        start: ``[S]`` probabilities of the first state.
        goals: name -> ``[S]`` bool, where each goal is fulfilled; "goal" is the environment's own.
        done: ``[S]`` bool, where an episode is over, solved or not.
        offered: ``[S, A]`` bool, the admissible actions.
        depth: ``[S]`` int64 fewest steps from the beginning.
        bound: steps from the beginning up to which states were searched, None where all there are were found.
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
        """``[S]`` whether the environment's own goal is reached in each state."""
        return self.goals["goal"]

    @property
    def uniform(self) -> npt.NDArray[np.float64]:
        """``[S, A]`` the policy that takes each offered action equally often."""
        return np.asarray(self.offered / self.offered.sum(axis=1, keepdims=True))

    @cached_property
    def rows(self) -> Numbers:
        """``[S * A + 1]`` index at which the transitions of each pair of state and action begin, among all N
        transitions.
        """
        pair = self.triples[:, 0] * len(self.actions) + self.triples[:, 1]
        return freeze(np.searchsorted(pair, np.arange(len(self.states) * len(self.actions) + 1)))

    @cached_property
    def deterministic(self) -> bool:
        """Whether every action has exactly one outcome."""
        return bool((np.diff(self.rows) <= 1).all())

    @cached_property
    def successor(self) -> Numbers:
        """``[S, A]`` int64 next state where nothing is left to chance; what has no transition stays.

        Raises:
            ValueError: an action has several outcomes.
        """
        if not self.deterministic:
            raise ValueError("successors must be asked of an environment without chance, got one with chance")
        successors = np.repeat(np.arange(len(self.states))[:, None], len(self.actions), axis=1)
        successors[self.triples[:, 0], self.triples[:, 1]] = self.triples[:, 2]
        return freeze(successors)

    def leading_to(self, targets: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return ``[S]`` whether some actions can lead from a state to one of the target states ``[S]``."""
        found = targets.copy()
        while True:
            before = found[self.triples[:, 2]] & ~found[self.triples[:, 0]]
            if not before.any():
                return found
            found[self.triples[before, 0]] = True

    def outcomes(self, state: int, action: int) -> slice:
        """Return the slice of the N transitions that belong to a state and action; it is empty if the action changes
        nothing.
        """
        row = state * len(self.actions) + action
        return slice(int(self.rows[row]), int(self.rows[row + 1]))

    def draw(self, state: int, action: int, rng: np.random.Generator) -> tuple[int, float | None]:
        """Draw the next state and its reward. No random number is used if there is only one outcome."""
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
        """Return the decision process for `goalscope.meg`.

        Args:
            utility: as in `TabularMDP`; None for 1 in every decision that begins at the goal.
            horizon: number of decisions, at most `bound` where there is one.
            terminal_utility: ``[S]`` or None.

        Raises:
            ValueError: a horizon beyond the bound of the search; whatever `TabularMDP` refuses.
        """
        self.check_horizon(horizon)
        utilities = np.asarray(self.goal if utility is None else utility, dtype=np.float64)
        settings: dict[str, Any] = {
            "utility": utilities,
            "horizon": horizon,
            "start": self.start,
            "terminal_utility": terminal_utility,
            "offered": self.offered,
        }
        if self.deterministic:
            return TabularMDP.deterministic(self.successor, **settings)
        state, action = np.divmod(np.flatnonzero(np.diff(self.rows) == 0), len(self.actions))
        staying = np.stack([state, action, state], axis=1)
        return TabularMDP.sparse(
            np.concatenate([self.triples, staying]),
            np.concatenate([self.chance, np.ones(len(staying))]),
            actions=len(self.actions),
            **settings,
        )

    def check_horizon(self, horizon: int) -> None:
        """Raise a ValueError if a horizon exceeds the depth of the search, beyond which the transitions are unknown."""
        if self.bound is not None and horizon > self.bound:
            raise ValueError(
                f"the horizon must be at most the depth to which the environment was searched, {self.bound}, got "
                f"{horizon}: raise depth, or lower the horizon"
            )


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
            raise ValueError(
                f"an environment must have at most {self.limit} states to be enumerated, but more were found within "
                f"{depth} steps of the beginning: bound the values that a state can contain, or write a study whose "
                f"entry of worlds has `limit:` (number of states) or `depth:` (number of steps, at most "
                f"{max(1, depth - 1)}), and give it with --worlds"
            )
        self.index[state] = len(self.states)
        self.states.append(state)
        self.depth.append(depth)
        return self.index[state]


def enumerate_states(
    environment: Environment[S],
    limit: int = LIMIT,
    *,
    depth: int | None = None,
    found: Callable[[int], None] | None = None,
) -> StateTable[S]:
    """Enumerate all states that episodes can come to, breadth-first.

    Args:
        environment: what is enumerated.
        limit: maximum number of states, >= 1.
        depth: steps from the beginning up to which is searched, None for all. What is computed for a horizon of at
            most this many decisions is exact; `solve_table` tells which optimal sets are.
        found: called with the number of states found, after every 5,000 states whose actions were tried.

    Raises:
        ValueError: more states than ``limit``; what the environment returns is no distribution, or no state can be
            hashed; says where.
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
    if not names or not all(isinstance(name, str) and name.strip() for name in names) or len(set(names)) < len(names):
        raise ValueError(f"the actions of an environment must be different names, one or more, got {actions!r}")
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
