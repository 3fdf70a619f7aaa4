"""Play-back: check an enumerated environment against episodes played in the real one.

A simulator can be wrong in two ways: it is no function of state and action (hidden memory, changing rules), or it is
not the environment that it stands for. Both are detected by play: optimal, random and mixed policies act in a fresh
copy of the real environment, and every state, end and goal must agree with the table. In stochastic environments every
next state must be possible, and the frequencies must fit the transition probabilities.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.distributions import to_chances, to_shares
from goalscope._ground.rng import stream
from goalscope.worlds.environments.environment import Environment, Player, StatePlayer
from goalscope.worlds.environments.solution import LIMIT, SolvedTable, StateTable, VisitedStates

EPISODES: Final = 24
"""Episodes of a play-back: a third each by the optimal policy, at random, and by a mixture of both."""
ASKED: Final = 500
"""Number of transitions that are evaluated again, in a random order."""
LONGEST: Final = 200
"""Maximum steps of an episode of a play-back; an optimal one may take as many more as its shortest path has."""
LEVEL: Final = 1e-6
"""Significance level of the frequency test: a correct simulator is refused once in a million."""

_LONGEST_SEARCHED: Final = 100  # the same for an environment whose states are searched when they are visited
_ENOUGH = 25.0  # minimum variance of a count for its normal approximation
_EXPECTED = 5.0  # minimum expected count of a cell of the chi-squared test; rarer outcomes are pooled


class Mismatch(ValueError):  # noqa: N818 - callers catch it by this name
    """Error for an environment that behaves differently from the rules that it declares, or from its enumerated
    table.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayBack:
    """Result of a play-back, which compares the rules that an environment declares with episodes played in it.

    It is returned only if the two agree; otherwise `play_back` raises `Mismatch`.

    Attributes:
        asked: number of transitions that were computed again in a fresh copy, in another order.
        episodes, steps: numbers of episodes and steps that were played in fresh copies, or in the real environment.
        arrived: number of episodes that ended at the goal.
        p_value: p value of the test that the outcomes have the stated probabilities; NaN without chance or with too few
            steps.
    """

    asked: int
    episodes: int
    steps: int
    arrived: int
    p_value: float


def play_back(solved: SolvedTable, fresh: Callable[[], Environment[Any]], *, episodes: int = EPISODES) -> PlayBack:
    """Check an enumerated environment by playing episodes in a fresh copy, or in the real one behind an adapter.

    Optimal, random and mixed policies act; every state, end and goal must agree with the table, and next states must
    come as often as their probabilities say.

    Args:
        solved: the enumerated and solved environment, from `solve_table`.
        fresh: function that makes the environment anew. If the environment has a method ``play(seed)``, the episodes
            are played in the real environment which that method returns.
        episodes: number of episodes.

    Returns:
        The numbers of episodes and steps played, and the p value of the test of frequencies.

    Raises:
        Mismatch: if play disagrees with the table; the message says where, and possible causes.
    """
    table, rng = solved.table, stream(0, "play-back")
    environment = fresh()
    if tuple(environment.actions) != table.actions:
        raise Mismatch(f"an environment must have the same actions when it is made anew, got {environment.actions!r}")
    n_evaluated = _ask_again(table, environment, rng)
    counts: dict[int, int] = {}
    steps = n_arrived = 0
    sets = _optimal_sets(solved)
    for policy_kind, player in _players(environment, fresh, episodes, rng):
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


def believe_visited(
    make: Callable[[], Environment[Any]], *, limit: int = LIMIT, seed: int = 0, episodes: int = EPISODES
) -> VisitedStates:
    """Check an environment that has too many states for a table by playing it back, and return a solver for single
    states.

    The environment must have no chance. The returned object computes distances and optimal actions by search, for any
    state that an agent visits. For smaller environments, `goalscope.environments.believe` makes a table.

    Args:
        make: function that makes the environment.
        limit: maximum number of states that one search may expand.
        seed: seed of the episodes that are played back.
        episodes: number of these episodes.

    Raises:
        Mismatch: if the environment does something else than its transitions say.
        ValueError: if a search exceeds the limit, or the environment has chance.
    """
    environment = make()
    visited = VisitedStates(environment, limit)
    (start,) = environment.initial()
    length, arrived, rng = visited.distance(start), 0, stream(seed, "play-back")
    for policy_kind, player in _players(make(), make, episodes, rng):
        arrived += _played(visited, player, start, policy_kind, rng)
    if length >= 0 and episodes and not arrived:
        raise Mismatch("the optimal policy must arrive in a fresh environment, but no episode of the play-back did")
    return visited


def _players(
    environment: Environment[Any], fresh: Callable[[], Environment[Any]], episodes: int, rng: np.random.Generator
) -> Iterator[tuple[str, Player]]:
    """Yield for each episode the kind of policy that acts, and the real environment or a fresh copy of this one."""
    real_player = getattr(environment, "play", None)
    for number in range(episodes):
        player = _simulated(fresh(), rng) if real_player is None else real_player(seed=number)
        yield ("optimal", "random", "mixed")[number % 3], player


def _simulated(environment: Environment[Any], rng: np.random.Generator) -> StatePlayer:
    """Return a player that applies an environment's own `step`, one action after the other."""

    def draw(probabilities: Mapping[Any, float]) -> Any:
        states, weights = list(probabilities), [float(chance) for chance in probabilities.values()]
        if len(states) == 1:
            return states[0]
        return states[int(rng.choice(len(states), p=to_shares("the chances of next states", weights)))]

    first = draw(environment.initial())
    player = StatePlayer(environment, first, lambda action: draw(environment.step(player.state, action)))
    return player


def _chosen(
    policy_kind: str,
    optimal: Callable[[], npt.NDArray[np.bool_]],
    offered: npt.NDArray[np.bool_],
    rng: np.random.Generator,
) -> int:
    """Draw an action: an optimal one, if the policy seeks it now and there is one, or else any that is offered.

    Optimal actions are passed as a function, since a search for them can take long.
    """
    if policy_kind == "optimal" or (policy_kind == "mixed" and rng.random() < 0.5):
        best = optimal()
        offered = best & offered if best.any() else offered
    options = np.flatnonzero(offered)
    return int(options[rng.integers(len(options))])


def _at(sets: npt.NDArray[np.bool_], place: int | tuple[int, int]) -> npt.NDArray[np.bool_]:
    chosen: npt.NDArray[np.bool_] = sets[place]
    return chosen


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
        here = (min(step, len(sets) - 1), state) if sets.ndim == 3 else state
        action = _chosen(policy_kind, partial(_at, sets, here), table.offered[state], rng)
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


def _played(visited: VisitedStates, player: Player, state: Any, policy_kind: str, rng: np.random.Generator) -> bool:
    """Play one episode, compare each step, and return whether it ended at the goal."""
    check = StatePlayer(visited.environment, state, lambda action: visited.following(check.state)[action])
    every_action = np.ones(len(visited.actions), dtype=bool)
    for step in range(_LONGEST_SEARCHED):
        if (player.state, player.done, player.goal) != (check.state, check.done, check.goal):
            raise Mismatch(
                f"after {step} steps the state must be {check.state!r:.200}, but in the environment itself it is "
                f"{player.state!r:.200}: the state lacks something that decides what happens"
            )
        if check.done:
            return check.goal
        action = _chosen(policy_kind, lambda: visited.optimal(check.state), every_action, rng)
        player.act(action)
        check.act(action)
    return False
