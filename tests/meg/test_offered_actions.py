"""Processes whose states offer some of their actions: the uniform policy that MEG measures from is over these."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from goalscope._ground.rng import stream
from goalscope.environments import Observed, enumerate_states, solve_table
from goalscope.goals.baselines import _expected_of_offered, _offered_walks
from goalscope.meg import meg_known, meg_unknown
from goalscope.worlds.planning import TabularMDP, expected_utility, value_iteration
from goalscope.worlds.planning.process import Process

EVERY = 12  # what 1, 2, 3 and 4 actions divide


def drawn(seed: int, *, chance: bool, states: int = 5, actions: int = 4) -> TabularMDP:
    """A random process, each state of which offers one to four actions."""
    rng = stream(seed, "offered actions", int(chance))
    offered = rng.random((states, actions)) < 0.5
    offered[np.arange(states), rng.integers(actions, size=states)] = True
    table: Any = rng.integers(states, size=(states, actions))
    if chance:
        table = rng.dirichlet(np.full(states, 0.5), size=(states, actions))
    return TabularMDP(
        transitions=table,
        utility=rng.normal(size=(states, actions)),
        horizon=4,
        start=rng.dirichlet(np.ones(states)),
        terminal_utility=rng.normal(size=states),
        offered=offered,
    )


def doubled(mdp: TabularMDP) -> TabularMDP:
    """The same process with as many actions in every state: copies of the offered ones, each equally often."""
    assert mdp.offered is not None and isinstance(mdp.transitions, np.ndarray)
    copies = np.stack([np.resize(np.flatnonzero(row), EVERY) for row in mdp.offered])
    at = np.arange(mdp.states)[:, None], copies
    return replace(mdp, transitions=mdp.transitions[at], utility=mdp.utility[at], offered=None)


def log_normaliser(mdp: TabularMDP, beta: float) -> float:
    """W of a rationality, by plain loops over what is offered."""
    assert mdp.offered is not None
    table = np.asarray(mdp.transitions)
    to_come = [beta * float(one) for one in mdp.final]
    for _ in range(mdp.horizon):
        found = []
        for state in range(mdp.states):
            terms = []
            for action in np.flatnonzero(mdp.offered[state]).tolist():
                row = table[state, action]
                after = to_come[int(row)] if table.ndim == 2 else sum(map(float.__mul__, row.tolist(), to_come))
                terms.append(beta * float(mdp.reward[state, action]) + after)
            peak = max(terms)
            found.append(peak + math.log(sum(math.exp(one - peak) for one in terms) / len(terms)))
        to_come = found
    return float(np.dot(mdp.start, to_come))


def policy_of(mdp: TabularMDP, seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    assert mdp.offered is not None
    weights = np.where(mdp.offered, stream(seed, "policy").random(mdp.offered.shape) ** 3, 0.0)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("chance", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_meg_is_that_of_copies_of_the_offered_actions_and_that_of_plain_loops(seed: int, chance: bool) -> None:
    mdp = drawn(seed, chance=chance)
    assert mdp.offered is not None and not mdp.offered.all()
    policy = policy_of(mdp, seed)
    found = meg_known(mdp, policy)
    same = meg_known(doubled(mdp), mean_return=found.utility)
    for name in ("value", "signed", "uniform_utility", "lowest_utility", "highest_utility", "bound", "bound_lowest"):
        assert getattr(found, name) == pytest.approx(getattr(same, name), abs=1e-8), name
    best = minimize_scalar(lambda beta: log_normaliser(mdp, beta) - beta * found.utility, bracket=(-0.5, 0.5))
    assert found.value == pytest.approx(-best.fun, abs=1e-7)
    soft = found.curve.policy(0.7)
    assert not soft[:, ~mdp.offered].any() and np.allclose(soft.sum(axis=2), 1)
    limit = found.curve.policy(math.inf)
    assert not limit[:, ~mdp.offered].any()
    assert meg_known(mdp, limit).value == pytest.approx(found.bound, abs=1e-8)


def test_the_uniform_policy_over_what_is_offered_is_at_0_and_over_other_actions_it_is_none() -> None:
    mdp = drawn(1, chance=False)
    assert mdp.offered is not None
    even = mdp.offered / mdp.offered.sum(axis=1, keepdims=True)
    assert meg_known(mdp, even).value == pytest.approx(0, abs=1e-12)
    assert meg_known(replace(mdp, offered=None), even).value > 0.01
    never = replace(mdp, utility=np.where(mdp.offered, mdp.utility, 50.0))
    with pytest.raises(ValueError, match="offered"):
        meg_known(never, (~mdp.offered + 1e-12) / (~mdp.offered + 1e-12).sum(axis=1, keepdims=True))
    with pytest.raises(ValueError, match="every state"):
        replace(mdp, offered=np.zeros_like(mdp.offered))
    assert replace(mdp, offered=np.ones_like(mdp.offered)).offered is None


class Doors:
    """A walk of three doors: each state offers waiting and one door, of many doors that there are."""

    actions = ("wait", *(f"door {number}" for number in range(9)))

    def initial(self) -> dict[int, float]:
        return {0: 1.0}

    def step(self, state: int, action: int) -> dict[int, float]:
        return {state + (action == state + 1): 1.0}

    def admissible(self, state: int) -> list[int]:
        return [0, state + 1]

    def done(self, state: int) -> bool:
        return state == 3

    goal = done

    def observe(self, state: int) -> Observed:
        return Observed(text=f"door {state}")

    def describe(self) -> dict[str, Any]:
        return {"name": "doors"}


def test_an_environment_measures_from_the_commands_that_it_offers() -> None:
    table = enumerate_states(Doors())
    mdp = table.mdp(horizon=6)
    found = meg_known(mdp, table.uniform)
    assert found.value == pytest.approx(0, abs=1e-12)
    # With a coin for each decision: the goal is reached after three heads.
    ways = [[int(digit) for digit in f"{number:06b}"] for number in range(64)]
    reached = [sum(sum(way[:at]) >= 3 for at in range(6)) for way in ways]
    assert found.uniform_utility == pytest.approx(np.mean(reached))
    best = minimize_scalar(lambda beta: np.log(np.mean(np.exp(beta * np.array(reached)))) - beta * 2.0)
    assert meg_known(mdp, mean_return=2.0).value == pytest.approx(-best.fun, abs=1e-7)
    assert meg_known(mdp, mean_return=3.0).value == pytest.approx(3 * math.log(2)), "three doors, a coin each"


def test_the_mean_over_offered_actions_may_hold_one_that_stays() -> None:
    offered = np.array([[True, False, True], [False, True, False]])
    after, here = np.array([[1.0, 9.0, 3.0], [9.0, 5.0, 9.0]]), np.array([7.0, 1.0])
    assert _expected_of_offered(after, here, offered, idle=False).tolist() == [2.0, 5.0]
    assert _expected_of_offered(after, here, offered, idle=True).tolist() == [11 / 3, 3.0]
    columns = np.stack([after, -after], axis=2)
    assert _expected_of_offered(columns, np.stack([here, -here], axis=1), offered, idle=True).tolist() == [
        [11 / 3, -11 / 3],
        [3.0, -3.0],
    ]


@pytest.mark.parametrize(("idle", "heads"), [(False, 1 / 2), (True, 1 / 3)])
def test_simulated_random_agents_take_what_is_offered(idle: bool, heads: float) -> None:
    table = enumerate_states(Doors())
    process = Process(transitions=table.successor, start=table.start, number=None, offered=table.offered)
    unit: Any = SimpleNamespace(process=process, horizon=6)
    *_, last = _offered_walks(unit, 4000, stream(3, "walks"), idle=idle)
    exact = sum(math.comb(6, k) * heads**k * (1 - heads) ** (6 - k) for k in range(3, 7))
    assert abs(float((last == 3).mean()) - exact) < 4 * math.sqrt(exact * (1 - exact) / 4000)


def every_plan(mdp: TabularMDP) -> tuple[float, float]:
    """Greatest and least expected utility of all policies by time over what is offered, by plain recursion."""
    assert mdp.offered is not None
    table, offered = np.asarray(mdp.transitions), mdp.offered

    def value(state: int, left: int, pick: Any) -> float:
        if not left:
            return float(mdp.final[state])
        return float(
            pick(
                mdp.reward[state, action]
                + (
                    value(int(table[state, action]), left - 1, pick)
                    if table.ndim == 2
                    else sum(
                        chance * value(to, left - 1, pick) for to, chance in enumerate(table[state, action].tolist())
                    )
                )
                for action in np.flatnonzero(offered[state]).tolist()
            )
        )

    ends = [[value(state, mdp.horizon, pick) for state in range(mdp.states)] for pick in (max, min)]
    return float(mdp.start @ ends[0]), float(mdp.start @ ends[1])


@pytest.mark.parametrize("chance", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_process_is_solved_over_what_is_offered(seed: int, chance: bool) -> None:
    mdp = drawn(seed, chance=chance)
    assert mdp.offered is not None
    for end, wanted in zip((False, True), every_plan(mdp), strict=True):
        found = value_iteration(mdp, minimise=end)
        assert float(mdp.start @ found.values[0]) == pytest.approx(wanted)
        assert not found.optimal[:, ~mdp.offered].any() and found.optimal.any(axis=2).all()
        policy = found.optimal / found.optimal.sum(axis=2, keepdims=True)
        assert expected_utility(mdp, policy) == pytest.approx(wanted)


class Slope:
    """The top can be kept by an action that is not offered there; chance decides how far down the others lead."""

    actions = ("up", "down", "wait")

    def initial(self) -> dict[int, float]:
        return {1: 1.0}

    def step(self, state: int, action: int) -> dict[int, float]:
        if action == 0:
            return {min(state + 1, 2): 0.8, state: 0.2}
        return {state - 1: 0.5, state: 0.5} if action == 1 and state else {state: 1.0}

    def admissible(self, state: int) -> list[int]:
        return [0, 1, 2] if state < 2 else [1]

    def done(self, state: int) -> bool:
        return False

    def goal(self, state: int) -> bool:
        return False

    def goals(self) -> dict[str, Any]:
        return {"top": lambda state: state == 2}

    def observe(self, state: int) -> Observed:
        return Observed(text=f"height {state}")

    def describe(self) -> dict[str, Any]:
        return {"name": "slope"}


def test_with_chance_what_is_not_offered_is_never_optimal() -> None:
    solved = solve_table(enumerate_states(Slope()), "top")
    table, horizon = solved.table, 4
    sets, top = solved.optimal_by_time(horizon), table.index[2]
    assert not sets[:, ~table.offered].any()
    assert sets[:-1, top, 1].all(), "the only action that is offered, where staying would be better"
    mdp = table.mdp(table.goals["top"], horizon)
    found = meg_known(mdp, solved.policy(horizon))
    assert found.utility == pytest.approx(found.highest_utility)
    assert found.value == pytest.approx(found.bound)


@pytest.mark.parametrize("chance", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_unknown_utilities_measure_from_what_is_offered_too(seed: int, chance: bool) -> None:
    mdp = replace(drawn(seed, chance=chance), utility=stream(seed, "utility").normal(size=5), terminal_utility=None)
    assert mdp.offered is not None
    even = mdp.offered / mdp.offered.sum(axis=1, keepdims=True)
    assert meg_unknown(mdp, even).value == pytest.approx(0, abs=1e-9)
    policy = policy_of(mdp, seed)
    found = meg_unknown(mdp, policy)
    assert found.value >= meg_known(mdp, policy).value - 1e-6, "the class holds the known utility"
    copies = doubled(replace(mdp, utility=np.repeat(mdp.utility[:, None], 4, axis=1)))
    assert mdp.offered is not None
    each = np.stack([np.resize(np.flatnonzero(row), EVERY) for row in mdp.offered])
    same = np.take_along_axis(policy, each, axis=1) * mdp.offered.sum(axis=1, keepdims=True) / EVERY
    assert found.value == pytest.approx(meg_unknown(copies, same).value, abs=1e-6)
    with pytest.raises(ValueError, match="offered"):
        meg_unknown(mdp, np.full_like(even, 1 / 4))
