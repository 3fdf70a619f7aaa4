"""Play-back: what an environment says of itself is compared with what happens, before it is believed.

Two things can be wrong with a simulator: it is no function of state and action (a hidden memory, rules that change),
or it is not the environment that it stands for. Both show when policies act: agents that take optimal, random and mixed
actions play in a fresh copy of the real environment, and every state, end and goal must be what the table says.
With chance every next state must be possible, and its frequencies must fit the chances.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.environments.environment import Environment, Player, StatePlayer
from goalscope.environments.solution import SolvedTable
from goalscope.environments.table import StateTable
from goalscope.rng import stream

EPISODES: Final = 24
"""Episodes of a play-back: a third each by the optimal policy, at random, and by a mixture of both."""
ASKED: Final = 500
"""Transitions that are asked for once more, in a random order."""
LONGEST: Final = 200
"""Most steps of an episode of a play-back."""
LEVEL: Final = 1e-6
"""Level of the test of frequencies: a true simulator is refused once in a million."""

_ENOUGH = 25.0  # variance of a count from which on its normal approximation is taken
_EXPECTED = 5.0  # least expected count of a cell of the chi-squared test; rarer outcomes are pooled


class Mismatch(ValueError):  # noqa: N818 - it is what is found, and callers catch it by this name
    """An environment that does not do what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayBack:
    """What was compared.

    Attributes:
        asked: transitions that were asked for again.
        episodes, steps: that were played in fresh copies.
        arrived: episodes that ended at the goal.
        p_value: of the frequencies under chance, NaN without chance or with too few steps.
    """

    asked: int
    episodes: int
    steps: int
    arrived: int
    p_value: float


class Simulated(StatePlayer):
    """A player that asks an environment's own `step`, one action after the other, as an episode would."""

    def __init__(self, environment: Environment[Any], rng: np.random.Generator) -> None:
        self._rng = rng
        super().__init__(environment, self._draw(environment.initial()))

    def _draw(self, chances: Mapping[Any, float]) -> Any:
        states, weights = list(chances), np.array(list(chances.values()), dtype=np.float64)
        return states[int(self._rng.choice(len(states), p=weights / weights.sum()))] if len(states) > 1 else states[0]

    def act(self, action: int) -> None:
        """Take an action."""
        self.state = self._draw(self.environment.step(self.state, action))


def play_back(
    solved: SolvedTable, fresh: Callable[[], Environment[Any]], *, seed: int = 0, episodes: int = EPISODES
) -> PlayBack:
    """Compare an enumerated environment with a fresh copy of it, or with the real one behind an adapter.

    Args:
        solved: the enumerated and solved environment.
        fresh: makes the environment anew; its method ``play(seed)``, where it has one, gives the real environment.
        seed: root seed of the policies that act.
        episodes: number of episodes.

    Raises:
        Mismatch: what happened is not what the table says; says where, and what to look for.
    """
    table, rng = solved.table, stream(seed, "play-back")
    environment = fresh()
    if tuple(environment.actions) != table.actions:
        raise Mismatch(f"an environment must have the same actions when it is made anew, got {environment.actions!r}")
    asked = _ask_again(table, environment, rng)
    counts: dict[int, int] = {}
    steps = arrived = 0
    sets = _optimal_sets(solved)
    for number in range(episodes):
        kind = ("optimal", "random", "mixed")[number % 3]
        play = getattr(environment, "play", None)
        player: Player = Simulated(fresh(), rng) if play is None else play(seed=number)
        taken, ended = _episode(table, player, sets, kind, rng, counts)
        steps, arrived = steps + taken, arrived + ended
    if solved.distance is not None and solved.length >= 0 and episodes and not arrived:
        raise Mismatch(
            "the optimal policy must arrive in a fresh environment, but no episode of the play-back ended at the goal"
        )
    p_value = _frequencies(table, counts)
    if p_value < LEVEL:
        raise Mismatch(
            f"next states must come as often as step(state, action) says, but their frequencies in {steps} steps do "
            f"not fit (p = {p_value:.1g}): the chances are wrong, or depend on more than the state"
        )
    return PlayBack(asked=asked, episodes=episodes, steps=steps, arrived=arrived, p_value=p_value)


def _ask_again(table: StateTable[Any], environment: Environment[Any], rng: np.random.Generator) -> int:
    """Ask a fresh copy for some transitions once more, in another order."""
    pairs = np.flatnonzero(np.diff(table.rows) > 0)
    chosen = rng.permutation(pairs)[:ASKED]
    for pair in chosen.tolist():
        state, action = divmod(pair, len(table.actions))
        found = table.outcomes(state, action)
        said = {
            table.states[at]: chance for at, chance in zip(table.triples[found, 2], table.chance[found], strict=True)
        }
        now = {one: chance for one, chance in environment.step(table.states[state], action).items() if chance > 0}
        if said.keys() != now.keys() or any(abs(said[one] - now[one]) > 1e-9 for one in said):
            raise Mismatch(
                f"step(state, action) must give the same answer whenever it is asked, but {table.actions[action]!r} in "
                f"{table.states[state]!r:.200} led to {_short(said)} and now to {_short(now)}: the state lacks "
                "something that decides what happens, or the rules change"
            )
    return len(chosen)


def _optimal_sets(solved: SolvedTable) -> npt.NDArray[np.bool_]:
    """Return ``[S, A]`` or, with chance, ``[n, S, A]`` the optimal sets that the play-back acts by."""
    if solved.optimal is not None:
        return solved.optimal
    return solved.optimal_by_time(min(LONGEST, solved.table.bound or LONGEST))


def _episode(
    table: StateTable[Any],
    player: Player,
    sets: npt.NDArray[np.bool_],
    kind: str,
    rng: np.random.Generator,
    counts: dict[int, int],
) -> tuple[int, bool]:
    """Play one episode; return its steps and whether it ended at the goal, count which transitions were taken."""
    state = table.index.get(player.state)
    if state is None or table.start[state] == 0:
        raise Mismatch(f"an episode must begin where initial() says, but it began in {player.state!r:.200}")
    for step in range(min(LONGEST, table.bound or LONGEST)):
        _compare(table, player, state, step)
        if table.done[state]:
            return step, bool(table.goal[state])
        here = sets[min(step, len(sets) - 1), state] if sets.ndim == 3 else sets[state]
        follow = kind == "optimal" or (kind == "mixed" and rng.random() < 0.5)
        options = np.flatnonzero(here & table.offered[state] if follow and here.any() else table.offered[state])
        action = int(options[rng.integers(len(options))])
        player.act(action)
        state = _next(table, player, state, action, counts)
    _compare(table, player, state, LONGEST)
    return LONGEST, bool(table.goal[state])


def _next(table: StateTable[Any], player: Player, state: int, action: int, counts: dict[int, int]) -> int:
    """Return the number of the state after an action, which must be a possible one."""
    found = table.outcomes(state, action)
    possible = {table.states[at]: number for number, at in enumerate(table.triples[found, 2].tolist(), found.start)}
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
    said = bool(table.done[state]), bool(table.goal[state])
    found = bool(player.done), bool(player.goal)
    if said != found:
        raise Mismatch(
            f"after {step} steps, in {table.states[state]!r:.200}, the episode must be {_words(*said)}, but in the "
            f"environment itself it is {_words(*found)}: ends or goals depend on more than the state"
        )


def _frequencies(table: StateTable[Any], counts: Mapping[int, int]) -> float:
    """Return the p value of the test that next states come as often as the table says, NaN with too few of them.

    Two tests, Bonferroni's correction: chi-squared over what came often, and how often the most probable of the next
    states came over all states and actions together.
    """
    by_pair: dict[int, dict[int, int]] = {}
    for at, number in counts.items():
        state, action, _ = table.triples[at].tolist()
        by_pair.setdefault(state * len(table.actions) + action, {})[at] = number
    total, freedom, off, variance = 0.0, 0, 0.0, 0.0
    for pair, seen in by_pair.items():
        found = table.outcomes(*divmod(pair, len(table.actions)))
        n = sum(seen.values())
        expected = table.chance[found] * n
        top = int(np.argmax(expected))
        off += seen.get(found.start + top, 0) - expected[top]
        variance += expected[top] * (1 - expected[top] / n)
        observed = np.array([seen.get(at, 0) for at in range(found.start, found.stop)], dtype=np.float64)
        rare = expected < _EXPECTED
        cells = [*zip(observed[~rare], expected[~rare], strict=True), (observed[rare].sum(), expected[rare].sum())]
        kept = [(one, other) for one, other in cells if other >= _EXPECTED]
        if len(kept) < 2:
            continue
        total += sum((one - other) ** 2 / other for one, other in kept)
        freedom += len(kept) - 1
    from scipy.special import chdtrc

    found_p = [float(chdtrc(freedom, total))] if freedom else []
    found_p += [math.erfc(abs(off) / math.sqrt(2 * variance))] if variance >= _ENOUGH else []
    return min(1.0, len(found_p) * min(found_p)) if found_p else math.nan


def _words(done: bool, goal: bool) -> str:
    return "over, at the goal" if goal else "over, not at the goal" if done else "going on"


def _short(states: Mapping[Any, Any]) -> str:
    return " or ".join(f"{state!r:.120}" for state in list(states)[:3]) + (" or others" if len(states) > 3 else "")
