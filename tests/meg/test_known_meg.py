"""Known-utility MEG: worked values, the propositions of the paper, enumeration, both infinite limits."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meg_worlds import cliff, divergence, literal_score, random_policy, sequences, worlds
from scipy.optimize import minimize_scalar

from families import examples
from goalscope._ground.rng import stream
from goalscope.meg import RationalityCurve, meg_known
from goalscope.worlds.planning import TabularMDP, expected_utility, value_iteration


def mouse() -> TabularMDP:
    """The cheese lies to the left or to the right; +1 for going there, -1 for not."""
    utility = np.array([[1.0, -1.0], [-1.0, 1.0]])
    return TabularMDP.deterministic(np.array([[0, 0], [1, 1]]), utility=utility, horizon=1, start=np.array([0.5, 0.5]))


def best_policy(mdp: TabularMDP) -> Any:
    return np.eye(mdp.actions)[value_iteration(mdp).action_values.argmax(axis=-1)]


def test_the_mouse() -> None:
    found = meg_known(mouse(), np.array([[0.8, 0.2], [0.2, 0.8]]))
    assert found.value == pytest.approx(0.8 * math.log(1.6) + 0.2 * math.log(0.4), abs=1e-12)
    assert found.value == pytest.approx(0.192745, abs=1e-6)
    assert found.beta == pytest.approx(math.log(2), abs=1e-9)
    assert found.utility == pytest.approx(0.6) and found.uniform_utility == pytest.approx(0.0)
    best = meg_known(mouse(), np.eye(2))
    assert best.value == math.log(2) and best.beta == math.inf and best.share == 1.0
    worst = meg_known(mouse(), np.eye(2)[::-1])
    assert worst.value == math.log(2) and worst.beta == -math.inf and worst.signed == -math.log(2)


@pytest.mark.parametrize(("goal", "value"), [(1, 40.2025), (2, 21.3672), (3, 19.4146), (4, 18.8806)])
def test_the_cliff(goal: int, value: float) -> None:
    mdp = cliff(goal)
    found = meg_known(mdp, best_policy(mdp))
    assert found.value == pytest.approx(value, abs=5e-5)
    assert found.beta == math.inf and found.value == found.bound
    assert found.reachable_bound == pytest.approx(29 * math.log(4)) and found.naive_bound == pytest.approx(
        30 * math.log(4)
    )


def test_the_cliff_walked_at_random() -> None:
    mdp = cliff(1)
    curve, best = RationalityCurve(mdp), best_policy(mdp)
    for epsilon, value in ((0.1, 23.7886), (0.5, 2.0113), (0.9, 0.0888)):
        found = curve.meg_of(np.where(best > 0, 1 - epsilon, epsilon / 3))
        assert found.value == pytest.approx(value, abs=5e-5)
    assert found.beta < 0 and found.signed == -found.value


@settings(max_examples=20)
@given(worlds(), st.integers(0, 999))
def test_it_is_the_literal_definition(arguments: dict[str, Any], seed: int) -> None:
    arguments["horizon"] = min(arguments["horizon"], 3)
    mdp = TabularMDP(**arguments)
    policy = random_policy(mdp, seed)
    found = meg_known(mdp, policy)
    if found.beta != 0:
        assert found.value == pytest.approx(literal_score(mdp, policy, found.beta), abs=1e-8)
    span = found.highest_utility - found.lowest_utility
    span = span if span > 1e-6 else 1.0
    for beta in (-30 / span, -1.0, 0.3, 2.0, 30 / span, found.beta + 0.01 / span, found.beta - 0.01 / span):
        if beta != 0:
            assert literal_score(mdp, policy, beta) <= found.value + 1e-8


@settings(max_examples=examples(60))
@given(worlds(deterministic=True), st.floats(-4, 4), st.floats(0.001, 0.999))
def test_deterministic_worlds_are_their_action_sequences(arguments: dict[str, Any], beta: float, place: float) -> None:
    """W(beta) is the log of the mean of exp(beta U) over all A**n sequences, and the limit counts the best ones."""
    mdp = TabularMDP(**arguments)
    utilities, _ = sequences(mdp)
    curve = RationalityCurve(mdp)
    top = (beta * utilities).max()
    literal = float(top + np.log(np.exp(beta * utilities - top).mean()))
    assert curve.at(beta).log_normaliser == pytest.approx(literal, abs=1e-9)
    weights = np.exp(beta * utilities - top)
    mean = float(weights @ utilities / weights.sum())
    assert curve.at(beta).utility == pytest.approx(mean, abs=1e-9)
    assert curve.at(beta).curvature == pytest.approx(float(weights @ (utilities - mean) ** 2 / weights.sum()), abs=1e-8)
    assert (curve.lowest, curve.highest) == pytest.approx((utilities.min(), utilities.max()), abs=1e-9)
    assert curve.uniform == pytest.approx(utilities.mean(), abs=1e-9)
    for end, bound in ((utilities.max(), curve.bound), (utilities.min(), curve.bound_lowest)):
        share = (np.abs(utilities - end) < 1e-9).mean()
        assert bound == pytest.approx(-math.log(share), abs=1e-9)
    if curve.span > 1e-6:
        inside = curve.lowest + place * curve.span
        scale = curve.span

        def negative(b: float) -> float:
            peak = (b / scale * utilities).max()
            return float(peak + np.log(np.exp(b / scale * utilities - peak).mean()) - b / scale * inside)

        oracle = minimize_scalar(negative, bounds=(-80, 80), method="bounded", options={"xatol": 1e-10})
        found = curve.meg(inside)
        if abs(found.beta * scale) < 79:
            assert found.value == pytest.approx(-float(oracle.fun), abs=1e-7)


@given(worlds(), st.floats(-3, 3))
def test_slope_and_curvature_are_those_of_finite_differences(arguments: dict[str, Any], beta: float) -> None:
    curve = RationalityCurve(TabularMDP(**arguments))
    step = 1e-4
    below, here, above = (curve.at(beta + shift) for shift in (-step, 0.0, step))
    assert here.utility == pytest.approx((above.log_normaliser - below.log_normaliser) / (2 * step), abs=1e-5)
    assert here.curvature == pytest.approx((above.utility - below.utility) / (2 * step), abs=1e-5)
    assert here.curvature >= 0


@settings(max_examples=examples(50))
@given(worlds(), st.integers(0, 999), st.booleans())
def test_the_prediction_has_the_agents_utility_and_the_least_divergence(
    arguments: dict[str, Any], seed: int, by_time: bool
) -> None:
    """Definition 3.1: the value is the divergence of the maximum-entropy policy that attains the same utility."""
    mdp = TabularMDP(**arguments)
    policy = random_policy(mdp, seed, by_time=by_time)
    found = meg_known(mdp, policy)
    assert found.utility == pytest.approx(expected_utility(mdp, policy), abs=1e-9)
    predicted = found.policy()
    assert expected_utility(mdp, predicted) == pytest.approx(found.utility, abs=1e-6)
    assert divergence(mdp, predicted) == pytest.approx(found.value, abs=1e-6)
    assert divergence(mdp, policy) >= found.value - 1e-9
    for end, utility, bound in ((math.inf, "highest", "bound"), (-math.inf, "lowest", "bound_lowest")):
        limit = found.curve.policy(end)
        assert expected_utility(mdp, limit) == pytest.approx(getattr(found.curve, utility), abs=1e-7)
        assert divergence(mdp, limit) == pytest.approx(getattr(found.curve, bound), abs=1e-9)


def test_optimal_actions_weigh_by_what_stays_open_after_them() -> None:
    """Two ways to the goal: after the first both actions are as good, after the second one of two is needed.

    Uniform over optimal actions (appendix C of the paper) would claim more divergence than is necessary.
    """
    first, easy, hard, goal, lost = range(5)
    successor = np.array([[easy, hard], [goal, goal], [goal, lost], [goal, goal], [lost, lost]])
    mdp = TabularMDP.deterministic(
        successor,
        utility=np.zeros(5),
        horizon=2,
        start=np.eye(5)[first],
        terminal_utility=np.eye(5)[goal],
    )
    curve = RationalityCurve(mdp)
    assert curve.bound == pytest.approx(math.log(4 / 3), abs=1e-12)
    assert curve.policy(math.inf)[0, first] == pytest.approx([2 / 3, 1 / 3])
    plain = np.full((5, 2), 0.5)
    plain[hard] = [1.0, 0.0]
    assert divergence(mdp, plain) == pytest.approx(0.5 * math.log(2)) and divergence(mdp, plain) > curve.bound
    assert meg_known(mdp, plain).value == pytest.approx(curve.bound, abs=1e-12)
    near = curve.at(200.0)
    assert 200.0 * 1.0 - near.log_normaliser == pytest.approx(curve.bound, abs=1e-9)
    assert curve.policy(200.0)[0, first] == pytest.approx([2 / 3, 1 / 3], abs=1e-9)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_the_naive_plug_in_is_the_score_of_rationality_one_and_depends_on_the_scale(scale: float) -> None:
    utility = scale * np.array([[1.0, -1.0], [-1.0, 1.0]])
    mdp = TabularMDP.deterministic([[0, 0], [1, 1]], utility=utility, horizon=1, start=np.array([0.5, 0.5]))
    policy = np.array([[0.8, 0.2], [0.2, 0.8]])
    found = meg_known(mdp, policy)
    literal = 0.8 * -np.log1p(np.exp(-2 * scale)) + 0.2 * (-2 * scale - np.log1p(np.exp(-2 * scale))) + np.log(2)
    assert found.plug_in == pytest.approx(literal, abs=1e-12)
    assert found.plug_in <= found.value == pytest.approx(0.192745, abs=1e-6)


@given(worlds(), st.integers(0, 999), st.floats(-5, 5).filter(lambda a: abs(a) > 1e-2), st.floats(-50, 50))
def test_proposition_3_1_scale_and_shift(arguments: dict[str, Any], seed: int, factor: float, shift: float) -> None:
    mdp = TabularMDP(**arguments)
    policy = random_policy(mdp, seed)
    other = dict(arguments, utility=factor * arguments["utility"] + shift)
    if arguments["terminal_utility"] is not None:
        other["terminal_utility"] = factor * arguments["terminal_utility"] - shift
    one, two = meg_known(mdp, policy), meg_known(TabularMDP(**other), policy)
    assert two.value == pytest.approx(one.value, abs=1e-9)
    assert two.signed == pytest.approx(math.copysign(1, factor) * one.signed, abs=1e-9)
    assert two.beta * factor == pytest.approx(one.beta, rel=1e-5, abs=1e-6)


@given(worlds(), st.integers(0, 999))
def test_proposition_3_2_bounds(arguments: dict[str, Any], seed: int) -> None:
    mdp = TabularMDP(**arguments)
    found = meg_known(mdp, random_policy(mdp, seed))
    bound = found.bound if found.beta >= 0 else found.bound_lowest
    assert 0 <= found.value <= bound + 1e-12 <= found.reachable_bound + 2e-12 <= found.naive_bound + 3e-12
    assert abs(found.signed) == found.value
    uniform = meg_known(mdp, np.full((mdp.states, mdp.actions), 1 / mdp.actions))
    assert uniform.value == pytest.approx(0.0, abs=1e-12)
    best, worst = best_policy(mdp), np.eye(mdp.actions)[value_iteration(mdp, minimise=True).optimal.argmax(axis=-1)]
    assert meg_known(mdp, best).value == pytest.approx(found.bound, abs=1e-9)
    assert meg_known(mdp, worst).value == pytest.approx(found.bound_lowest, abs=1e-9)


@given(st.integers(0, 999), st.integers(2, 3), st.integers(1, 4))
def test_proposition_3_2_a_unique_optimal_policy_reaches_the_bound(seed: int, actions: int, horizon: int) -> None:
    rng = stream(seed, "unique")
    mdp = TabularMDP(
        transitions=rng.dirichlet(np.ones(3), size=(3, actions)),
        utility=rng.permutation(3 * actions).reshape(3, actions) + rng.random((3, actions)) / 8,
        horizon=horizon,
        start=np.ones(3) / 3,
    )
    assert meg_known(mdp, best_policy(mdp)).value == pytest.approx(horizon * math.log(actions), abs=1e-9)


@given(st.integers(0, 999), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_proposition_3_3_without_influence_there_is_nothing(
    seed: int, states: int, actions: int, by_action: bool
) -> None:
    """Transitions that no action changes; a utility of states, or dynamics that matter with a constant utility."""
    rng = stream(seed, "idle")
    row = rng.dirichlet(np.ones(states), size=states)
    chances = (
        rng.dirichlet(np.ones(states), size=(states, actions)) if by_action else np.repeat(row[:, None], actions, 1)
    )
    mdp = TabularMDP(
        transitions=chances,
        utility=np.full(states, rng.normal()) if by_action else rng.normal(size=states),
        horizon=5,
        start=rng.dirichlet(np.ones(states)),
    )
    found = meg_known(mdp, random_policy(mdp, seed))
    assert (found.value, found.beta, found.bound, found.share) == (0.0, 0.0, 0.0, 0.0)


@settings(max_examples=examples(40))
@given(worlds(), st.integers(0, 999))
def test_dense_sparse_and_deterministic_forms_agree(arguments: dict[str, Any], seed: int) -> None:
    rest = {name: value for name, value in arguments.items() if name != "transitions"}
    chances = arguments["transitions"]
    dense = TabularMDP(**arguments)
    policy = random_policy(dense, seed)
    where = np.argwhere(chances > 0)
    forms = [TabularMDP.sparse(where, chances[tuple(where.T)], actions=dense.actions, **rest)]
    if (chances.max(axis=2) == 1).all():
        forms.append(TabularMDP.deterministic(chances.argmax(axis=2), **rest))
    one = meg_known(dense, policy)
    for form in forms:
        other = meg_known(form, policy)
        assert other.value == pytest.approx(one.value, abs=1e-10)
        assert other.bound == pytest.approx(one.bound, abs=1e-10)
        assert np.allclose(other.policy(), one.policy(), atol=1e-9)


def test_large_sparse_worlds_agree_with_their_dense_form() -> None:
    rng = stream(3, "large")
    states = 90
    chances = np.zeros((states, 3, states))
    for state in range(states):
        for action in range(3):
            chances[state, action, rng.choice(states, 2, replace=False)] = [0.25, 0.75]
    rest: dict[str, Any] = {"utility": rng.normal(size=states), "horizon": 12, "start": np.eye(states)[4]}
    full = TabularMDP(transitions=chances, **rest)
    where = np.argwhere(chances > 0)
    few = TabularMDP.sparse(where, chances[tuple(where.T)], actions=3, **rest)
    for mdp in (full, few):
        curve = RationalityCurve(mdp)
        assert not isinstance(curve.soft.reached.table, np.ndarray)
    policy = random_policy(full, 1)
    assert meg_known(full, policy).value == pytest.approx(meg_known(few, policy).value, abs=1e-12)
    # Against a dense table that is not sparse at all: a little chance of everything.
    smooth = TabularMDP(transitions=chances * (1 - 1e-9) + 1e-9 / states, **rest)
    assert isinstance(RationalityCurve(smooth).soft.reached.table, np.ndarray)
    assert meg_known(smooth, policy).value == pytest.approx(meg_known(few, policy).value, abs=1e-6)
