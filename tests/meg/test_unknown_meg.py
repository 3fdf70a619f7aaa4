"""Unknown-utility MEG: the tabular optimum with its certificate, and the neural class below it."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meg_worlds import cliff, divergence, random_policy, sequences, worlds
from scipy.optimize import minimize

from families import examples
from goalscope._ground.rng import stream
from goalscope.goals.meg.unknown import OccupancyDual
from goalscope.meg import meg_known, meg_unknown
from goalscope.worlds.planning import TabularMDP, occupancy, value_iteration


def best_policy(mdp: TabularMDP) -> Any:
    return np.eye(mdp.actions)[value_iteration(mdp).action_values.argmax(axis=-1)]


@pytest.mark.parametrize(("goal", "value"), [(1, 40.2025), (2, 37.8046), (3, 40.2025), (4, 40.2025)])
def test_the_cliff(goal: int, value: float) -> None:
    mdp = cliff(goal)
    found = meg_unknown(mdp, best_policy(mdp))
    assert found.value == pytest.approx(value, abs=5e-5)
    assert not found.attained and 0 <= found.gap < 1e-6 and found.residual < 1e-6
    assert found.bound == pytest.approx(29 * math.log(4)) and found.value <= found.bound + 1e-9


@settings(max_examples=examples(30))
@given(worlds(actions=2), st.integers(0, 999), st.booleans())
def test_unknown_is_at_least_known_and_at_most_the_policys_divergence(
    arguments: dict[str, Any], seed: int, optimal: bool
) -> None:
    arguments["utility"] = stream(seed, "utility").normal(size=len(arguments["start"]))
    terminal = arguments["terminal_utility"] is not None
    mdp = TabularMDP(**arguments)
    policy = best_policy(mdp) if optimal else random_policy(mdp, seed)
    found = meg_unknown(mdp, policy, terminal=terminal)
    assert found.value >= meg_known(mdp, policy).value - 1e-6
    assert found.value <= found.upper <= min(divergence(mdp, policy), found.bound) + 1e-6
    assert math.isfinite(found.value) and np.isfinite(found.utility).all()


@settings(max_examples=20)
@given(worlds(actions=2), st.integers(0, 999), st.booleans())
def test_the_gradient_is_that_of_finite_differences(arguments: dict[str, Any], seed: int, terminal: bool) -> None:
    mdp = TabularMDP(**arguments)
    dual = OccupancyDual(mdp, random_policy(mdp, seed), terminal=terminal)
    weights = stream(seed, "weights").normal(size=len(dual.occupancy))
    _, gradient = dual.value(weights)
    for index in range(len(weights)):
        step = 1e-5 * np.eye(len(weights))[index]
        slope = (dual.value(weights + step)[0] - dual.value(weights - step)[0]) / 2e-5
        assert gradient[index] == pytest.approx(slope, abs=1e-6)


def test_an_occupancy_has_a_row_for_each_decision_and_none_more() -> None:
    mdp = cliff(1, horizon=5)
    policy = random_policy(mdp, 3)
    dual = OccupancyDual(mdp, policy, terminal=False)
    assert dual.occupancy.sum() == pytest.approx(5)
    whole = np.zeros(mdp.states)
    whole[dual.reached.kept] = dual.occupancy
    assert whole == pytest.approx(occupancy(mdp, policy)[:-1].sum(axis=0))
    assert dual.divergence == pytest.approx(divergence(mdp, policy))


@settings(max_examples=20)
@given(worlds(deterministic=True, actions=2), st.integers(0, 999))
def test_it_is_the_optimum_over_enumerated_sequences(arguments: dict[str, Any], seed: int) -> None:
    """An oracle that knows no backups: <w, occupancy> - log mean exp <w, counts of each sequence>."""
    mdp = TabularMDP(**arguments)
    policy = random_policy(mdp, seed)
    _, counts = sequences(mdp)
    occupied = occupancy(mdp, policy)[:-1].sum(axis=0)

    def negative(w: Any) -> float:
        scores = counts @ w
        return float(scores.max() + np.log(np.exp(scores - scores.max()).mean()) - w @ occupied)

    oracle = minimize(negative, np.zeros(mdp.states), method="BFGS", options={"gtol": 1e-9})
    found = meg_unknown(mdp, policy)
    assert found.value == pytest.approx(-float(oracle.fun), abs=1e-6)
    assert -negative(found.utility) == pytest.approx(found.value, abs=1e-6)


def test_a_limit_is_found_exactly() -> None:
    """Go at once: as good as forbidding to stay; no finite utility forbids it."""
    mdp = TabularMDP.deterministic(
        np.array([[0, 1], [1, 1]]), utility=np.zeros(2), horizon=5, start=np.array([1.0, 0.0])
    )
    found = meg_unknown(mdp, np.array([[0.0, 1.0], [0.5, 0.5]]))
    assert found.value == pytest.approx(math.log(2), abs=1e-12) and not found.attained and found.gap < 1e-10
    inside = meg_unknown(mdp, np.array([[0.2, 0.8], [0.5, 0.5]]))
    assert inside.attained and inside.gap < 1e-6
    nothing = meg_unknown(mdp, np.full((2, 2), 0.5))
    assert nothing.value == pytest.approx(0.0, abs=1e-12) and nothing.attained


def test_states_do_not_tell_what_actions_do() -> None:
    """Where no action moves anything there is nothing to explain by states, however rigid the policy."""
    mdp = TabularMDP.deterministic(np.array([[0, 0]]), utility=np.zeros(1), horizon=4, start=np.ones(1))
    assert meg_unknown(mdp, np.array([[1.0, 0.0]])).value == 0.0


def test_the_neural_class_stays_below_the_tabular_optimum() -> None:
    mdp = cliff(1, horizon=8)
    policy = 0.5 * best_policy(mdp) + 0.125
    found = meg_unknown(mdp, policy, utilities="neural", seeds=(0, 1), hidden=16, steps=60)
    assert 0 < found.value <= found.tabular + 1e-9 and found.value == found.seed_values.max()
    assert found.value > 0.9 * found.tabular and len(found.seed_values) == 2 and found.spread >= 0
    score, _ = OccupancyDual(mdp, policy, terminal=False).value(found.utility[_kept(mdp, policy)])
    assert score == pytest.approx(found.value, abs=1e-9)
    again = meg_unknown(mdp, policy, utilities="neural", seeds=(1,), hidden=16, steps=60)
    assert again.value == pytest.approx(found.seed_values[1], abs=1e-9) and math.isnan(again.spread)


def _kept(mdp: TabularMDP, policy: Any) -> Any:
    return OccupancyDual(mdp, policy, terminal=False).reached.kept


def test_errors_say_what_must_hold() -> None:
    mdp = cliff(1, horizon=3)
    policy = np.full((40, 4), 0.25)
    with pytest.raises(ValueError, match="'tabular' or 'neural'"):
        meg_unknown(mdp, policy, utilities="linear")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sum to 1"):
        meg_unknown(mdp, policy * 0.9)
    with pytest.raises(ValueError, match="seed"):
        meg_unknown(mdp, policy, utilities="neural", seeds=())
    with pytest.raises(ValueError, match="terminal"):
        meg_unknown(mdp, policy, utilities="neural", terminal=True)
