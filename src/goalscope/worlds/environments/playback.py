"""Play-back: check an enumerated environment against episodes played in the real one.

A simulator can be wrong in two ways: it is no function of state and action (hidden memory, changing rules), or it is
not the environment that it stands for. Both are detected by play: optimal, random and mixed policies act in a fresh
copy of the real environment, and every state, end and goal must agree with the table. In stochastic environments every
next state must be possible, and the frequencies must fit the transition probabilities.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.distributions import to_chances, to_shares
from goalscope._ground.rng import stream
from goalscope.worlds.environments.environment import Environment, Player, StatePlayer
from goalscope.worlds.environments.solution import SolvedTable
from goalscope.worlds.environments.table import StateTable

EPISODES: Final = 24
"""Episodes of a play-back: a third each by the optimal policy, at random, and by a mixture of both."""
ASKED: Final = 500
"""Number of transitions that are evaluated again, in a random order."""
LONGEST: Final = 200
"""Maximum steps of an episode of a play-back; an optimal one may take as many more as its shortest path has."""
LEVEL: Final = 1e-6
"""Significance level of the frequency test: a correct simulator is refused once in a million."""

_ENOUGH = 25.0  # minimum variance of a count for its normal approximation
_EXPECTED = 5.0  # minimum expected count of a cell of the chi-squared test; rarer outcomes are pooled


class Mismatch(ValueError):  # noqa: N818 - callers catch it by this name
    """An environment does something else than its description says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayBack:
    """Result of a play-back.

    Attributes:
        asked: number of transitions that were evaluated a second time.
        episodes, steps: numbers of episodes and steps that were played in fresh copies.
        arrived: number of episodes that ended at the goal.
        p_value: p value of the test that the outcomes have the stated probabilities; NaN without chance or with too few
            steps.
    """

    asked: int
    episodes: int
    steps: int
    arrived: int
    p_value: float


class Simulated(StatePlayer):
    """A player that applies an environment's own `step`, one action after the other."""

    def __init__(self, environment: Environment[Any], rng: np.random.Generator) -> None:
        self._rng = rng
        super().__init__(environment, self._draw(environment.initial()))

    def _draw(self, probabilities: Mapping[Any, float]) -> Any:
        states, weights = list(probabilities), [float(chance) for chance in probabilities.values()]
        if len(states) == 1:
            return states[0]
        return states[int(self._rng.choice(len(states), p=to_shares("the chances of next states", weights)))]

    def act(self, action: int) -> None:
        """Take an action."""
        self.state = self._draw(self.environment.step(self.state, action))


def play_back(solved: SolvedTable, fresh: Callable[[], Environment[Any]], *, episodes: int = EPISODES) -> PlayBack:
    """Compare an enumerated environment with a fresh copy of it, or with the real one behind an adapter.

    Args:
        solved: the enumerated and solved environment.
        fresh: makes the environment anew; its method ``play(seed)``, where it has one, gives the real environment.
        episodes: number of episodes.

    Raises:
        Mismatch: play disagrees with the table; says where, and possible causes.
    """
    table, rng = solved.table, stream(0, "play-back")
    environment = fresh()
    if tuple(environment.actions) != table.actions:
        raise Mismatch(f"an environment must have the same actions when it is made anew, got {environment.actions!r}")
    n_evaluated = _ask_again(table, environment, rng)
    counts: dict[int, int] = {}
    steps = n_arrived = 0
    sets = _optimal_sets(solved)
    for number in range(episodes):
        policy_kind = ("optimal", "random", "mixed")[number % 3]
        real_player = getattr(environment, "play", None)
        player: Player = Simulated(fresh(), rng) if real_player is None else real_player(seed=number)
        longest = max(LONGEST, solved.length) if policy_kind == "optimal" else LONGEST
        n_steps, ended = _episode(table, player, sets, policy_kind, rng, counts, min(longest, table.bound or longest))
        steps, n_arrived = steps + n_steps, n_arrived + ended
    if solved.distance is not None and solved.length >= 0 and episodes and not n_arrived:
        raise Mismatch(
            "the optimal policy must arrive in a fresh environment, but no episode of the play-back ended at the goal"
        )
    p_value = _frequencies(table, counts)
    if p_value < LEVEL:
        raise Mismatch(
            f"next states must come as often as step(state, action) says, but their frequencies in {steps} steps do "
            f"not fit (p = {p_value:.1g}): the chances are wrong, or depend on more than the state"
        )
    return PlayBack(asked=n_evaluated, episodes=episodes, steps=steps, arrived=n_arrived, p_value=p_value)


def _ask_again(table: StateTable[Any], environment: Environment[Any], rng: np.random.Generator) -> int:
    """Evaluate some transitions again in a fresh copy, in another order."""
    pairs = np.flatnonzero(np.diff(table.rows) > 0)
    chosen = rng.permutation(pairs)[:ASKED]
    for pair in chosen.tolist():
        state, action = divmod(pair, len(table.actions))
        outcomes = table.outcomes(state, action)
        expected = {
            table.states[index]: chance
            for index, chance in zip(table.triples[outcomes, 2], table.chance[outcomes], strict=True)
        }
        # The table holds normalised chances, so what is asked again must be normalised in the same way.
        actual, _ = to_chances(
            f"step({table.states[state]!r:.200}, {table.actions[action]!r})",
            environment.step(table.states[state], action),
        )
        if expected.keys() != actual.keys() or any(
            abs(expected[next_state] - actual[next_state]) > 1e-9 for next_state in expected
        ):
            raise Mismatch(
                f"step(state, action) must give the same answer whenever it is asked, but {table.actions[action]!r} in "
                f"{table.states[state]!r:.200} led to {_short(expected)} and now to {_short(actual)}: the state lacks "
                "something that decides what happens, or the rules change"
            )
    return len(chosen)


def _optimal_sets(solved: SolvedTable) -> npt.NDArray[np.bool_]:
    """Return the optimal sets for the play-back, ``[S, A]`` or, for stochastic environments, ``[n, S, A]``."""
    if solved.optimal is not None:
        return solved.optimal
    return solved.optimal_by_time(min(LONGEST, solved.table.bound or LONGEST))


def _episode(
    table: StateTable[Any],
    player: Player,
    sets: npt.NDArray[np.bool_],
    policy_kind: str,
    rng: np.random.Generator,
    counts: dict[int, int],
    longest: int,
) -> tuple[int, bool]:
    """Play an episode of at most `longest` steps; return its steps and whether it ended at the goal, and count its
    transitions.
    """
    state = table.index.get(player.state)
    if state is None or table.start[state] == 0:
        raise Mismatch(f"an episode must begin where initial() says, but it began in {player.state!r:.200}")
    for step in range(longest):
        _compare(table, player, state, step)
        if table.done[state]:
            return step, bool(table.goal[state])
        optimal_here = sets[min(step, len(sets) - 1), state] if sets.ndim == 3 else sets[state]
        acts_optimally = policy_kind == "optimal" or (policy_kind == "mixed" and rng.random() < 0.5)
        options = np.flatnonzero(
            optimal_here & table.offered[state] if acts_optimally and optimal_here.any() else table.offered[state]
        )
        action = int(options[rng.integers(len(options))])
        player.act(action)
        state = _next(table, player, state, action, counts)
    _compare(table, player, state, longest)
    return longest, bool(table.goal[state])


def _next(table: StateTable[Any], player: Player, state: int, action: int, counts: dict[int, int]) -> int:
    """Return the number of the state after an action, which must be a possible one."""
    outcomes = table.outcomes(state, action)
    possible = {
        table.states[target]: number
        for number, target in enumerate(table.triples[outcomes, 2].tolist(), outcomes.start)
    }
    now = player.state
    if now not in possible:
        raise Mismatch(
            f"{table.actions[action]!r} in {table.states[state]!r:.200} must lead to {_short(possible)}, but in the "
            f"environment itself it led to {now!r:.200}: the state lacks something that decides what happens, or the "
            "simulator is not the environment"
        )
    counts[possible[now]] = counts.get(possible[now], 0) + 1
    return table.index[now]


def _compare(table: StateTable[Any], player: Player, state: int, step: int) -> None:
    expected = bool(table.done[state]), bool(table.goal[state])
    actual = bool(player.done), bool(player.goal)
    if expected != actual:
        raise Mismatch(
            f"after {step} steps, in {table.states[state]!r:.200}, the episode must be {_words(*expected)}, but in the "
            f"environment itself it is {_words(*actual)}: ends or goals depend on more than the state"
        )


def _frequencies(table: StateTable[Any], counts: Mapping[int, int]) -> float:
    """Return the p value of the test that next states come as often as the table says, NaN with too few of them.

    Two tests with Bonferroni's correction: chi-squared over frequent outcomes, and the total count of the most probable
    next states over all states and actions.
    """
    by_pair: dict[int, dict[int, int]] = {}
    for index, n_observed in counts.items():
        state, action, _ = table.triples[index].tolist()
        by_pair.setdefault(state * len(table.actions) + action, {})[index] = n_observed
    total, freedom, excess, variance = 0.0, 0, 0.0, 0.0
    for pair, observed_counts in by_pair.items():
        outcomes = table.outcomes(*divmod(pair, len(table.actions)))
        n = sum(observed_counts.values())
        expected = table.chance[outcomes] * n
        most_likely = int(np.argmax(expected))
        excess += observed_counts.get(outcomes.start + most_likely, 0) - expected[most_likely]
        variance += expected[most_likely] * (1 - expected[most_likely] / n)
        observed = np.array(
            [observed_counts.get(index, 0) for index in range(outcomes.start, outcomes.stop)], dtype=np.float64
        )
        rare = expected < _EXPECTED
        cells = [*zip(observed[~rare], expected[~rare], strict=True), (observed[rare].sum(), expected[rare].sum())]
        cells_used = [(count, expected_count) for count, expected_count in cells if expected_count >= _EXPECTED]
        if len(cells_used) < 2:
            continue
        total += sum((count - expected_count) ** 2 / expected_count for count, expected_count in cells_used)
        freedom += len(cells_used) - 1
    from scipy.special import chdtrc

    p_values = [float(chdtrc(freedom, total))] if freedom else []
    p_values += [math.erfc(abs(excess) / math.sqrt(2 * variance))] if variance >= _ENOUGH else []
    return min(1.0, len(p_values) * min(p_values)) if p_values else math.nan


def _words(done: bool, goal: bool) -> str:
    return "over, at the goal" if goal else "over, not at the goal" if done else "going on"


def _short(states: Mapping[Any, Any]) -> str:
    return " or ".join(f"{state!r:.120}" for state in list(states)[:3]) + (" or others" if len(states) > 3 else "")
