"""MEG with a discount against brute force: histories, sequences, and the same process with its time in the state."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

from goalscope._ground.rng import stream
from goalscope.meg import RationalityCurve, meg_known, meg_unknown
from goalscope.worlds.planning import TabularMDP, expected_utility, value_iteration
from goalscope.worlds.planning.mdp import return_range, utility_range


def drawn(
    seed: int, discount: float, *, ndim: int = 3, states: int = 3, horizon: int = 3
) -> tuple[TabularMDP, np.ndarray]:
    """Return a random process with chance and a policy that depends on time."""
    rng = stream(seed, "discount")
    mdp = TabularMDP(
        transitions=rng.dirichlet(np.ones(states), (states, 2)),
        utility=rng.normal(size=(states, 2, states)[:ndim]),
        horizon=horizon,
        start=rng.dirichlet(np.ones(states)),
        terminal_utility=rng.normal(size=states) if seed % 2 else None,
        discount=discount,
    )
    return mdp, rng.dirichlet(np.ones(2), (horizon, states))


def unrolled(mdp: TabularMDP, policy: np.ndarray) -> tuple[TabularMDP, np.ndarray]:
    """Return the process without a discount whose states are (time, state), and the policy there."""
    n, count = mdp.horizon, mdp.states
    table, utility = np.zeros(((n + 1) * count, 2, (n + 1) * count)), np.zeros(((n + 1) * count, 2))
    final, start = np.zeros((n + 1) * count), np.zeros((n + 1) * count)
    start[:count], final[n * count :] = mdp.start, mdp.discount**n * mdp.final
    by_state = np.full(((n + 1) * count, 2), 0.5)
    for t in range(n + 1):
        here, after = slice(t * count, (t + 1) * count), slice(min(t + 1, n) * count, (min(t + 1, n) + 1) * count)
        table[here, :, after] = np.asarray(mdp.transitions)
        if t < n:
            utility[here], by_state[here] = mdp.discount**t * mdp.reward, policy[t]
    made = TabularMDP(transitions=table, utility=utility, horizon=n, start=start, terminal_utility=final)
    return made, by_state


def literal(mdp: TabularMDP, policy: np.ndarray, beta: float, utility: np.ndarray) -> float:
    """E[sum of log pi_beta] + n log A by recursion over all histories, for a utility ``[S, A]``."""

    def value(t: int, state: int) -> float:  # W
        if t == mdp.horizon:
            return float(beta * mdp.discount**t * mdp.final[state])
        return float(np.log(np.mean(np.exp([q(t, state, action) for action in (0, 1)]))))

    def q(t: int, state: int, action: int) -> float:
        to_come = sum(chance * value(t + 1, after) for after, chance in enumerate(mdp.transitions[state, action]))
        return float(beta * mdp.discount**t * utility[state, action] + to_come)

    def score(t: int, state: int) -> float:
        if t == mdp.horizon:
            return 0.0
        total: float = sum(
            policy[t, state, action]
            * (
                q(t, state, action)
                - value(t, state)
                + sum(chance * score(t + 1, after) for after, chance in enumerate(mdp.transitions[state, action]))
            )
            for action in (0, 1)
        )
        return total

    return float(sum(chance * score(0, state) for state, chance in enumerate(mdp.start)))


@pytest.mark.parametrize(("seed", "discount"), [(0, 0.5), (1, 0.9), (2, 0.99), (3, 0.1)])
def test_it_is_the_greatest_score_over_all_histories(seed: int, discount: float) -> None:
    mdp, policy = drawn(seed, discount, states=2)
    found = meg_known(mdp, policy)
    best = minimize_scalar(lambda beta: -literal(mdp, policy, beta, mdp.reward), bounds=(-30, 30), method="bounded")
    assert found.value == pytest.approx(-best.fun, abs=1e-6)
    assert literal(mdp, policy, found.beta, mdp.reward) == pytest.approx(found.value, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_process_whose_states_hold_the_time(seed: int) -> None:
    mdp, policy = drawn(seed, (0.4, 0.9)[seed % 2], ndim=1 + seed % 3)
    other, by_state = unrolled(mdp, policy)
    found, wanted = meg_known(mdp, policy), meg_known(other, by_state)
    for name in ("value", "signed", "beta", "bound", "bound_lowest", "utility", "uniform_utility", "highest_utility"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), abs=1e-9), name
    assert expected_utility(mdp, policy) == pytest.approx(expected_utility(other, by_state))
    assert utility_range(mdp) == pytest.approx(utility_range(other))
    at = np.arange(mdp.states)
    for t in range(mdp.horizon):
        np.testing.assert_allclose(
            value_iteration(mdp).values[t], value_iteration(other).values[t][at + t * mdp.states], atol=1e-12
        )
    low, high = return_range(mdp)
    assert low <= utility_range(mdp)[0] and high >= utility_range(mdp)[1]


@pytest.mark.parametrize("discount", [0.2, 0.7])
def test_an_optimal_agent_is_counted_among_all_sequences(discount: float) -> None:
    """Even decisions that weigh a millionth are decisions: the bound is -log of the share of the best sequences."""
    n = 11
    successor, utility = np.array([[0, 1], [1, 0]]), np.array([[0.0, 1.0], [1.0, 3.0]])
    mdp = TabularMDP.deterministic(successor, utility=utility, horizon=n, start=np.array([1.0, 0.0]), discount=discount)
    returns = []
    for actions in itertools.product((0, 1), repeat=n):
        state, total = 0, 0.0
        for t, action in enumerate(actions):
            total, state = total + discount**t * utility[state, action], successor[state, action]
        returns.append(total)
    curve = RationalityCurve(mdp)
    assert curve.highest == pytest.approx(max(returns)) and curve.lowest == pytest.approx(min(returns))
    ties = sum(abs(one - max(returns)) < 1e-13 for one in returns)
    assert curve.bound == pytest.approx(math.log(len(returns) / ties))
    best = value_iteration(mdp).optimal
    assert meg_known(mdp, best / best.sum(axis=2, keepdims=True)).value == pytest.approx(curve.bound)


def test_the_best_utility_over_states_is_discounted_too() -> None:
    mdp, policy = drawn(12, 0.6, ndim=1, states=2)
    found = meg_unknown(mdp, policy)

    def negative(weights: np.ndarray) -> float:
        return -literal(mdp, policy, 1.0, np.repeat(weights[:, None], 2, axis=1))

    best = minimize(negative, np.zeros(2), method="BFGS")
    assert found.value == pytest.approx(-best.fun, abs=1e-5) and found.value > 0.1
    assert found.upper == pytest.approx(found.value, abs=1e-5)


@pytest.mark.parametrize("discount", [0.0, -0.5, 1.5, float("nan"), True])
def test_a_discount_is_a_factor(discount: float) -> None:
    with pytest.raises(ValueError, match="discount"):
        drawn(0, discount)


def test_a_discount_under_which_the_last_decisions_vanish_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 26"):
        drawn(0, 0.5, horizon=27)
    assert drawn(0, 0.5, horizon=26)[0].horizon == 26
