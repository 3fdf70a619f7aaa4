"""MEG with utilities over features: a closed form, known utilities, and the unknown utility as its limit."""

import math
from typing import Any

import numpy as np
import pytest
from meg_worlds import random_policy

from goalscope._ground.rng import stream
from goalscope.goals.meg.unknown import OccupancyDual, climb
from goalscope.meg import RationalityCurve, SharedCurve, join_worlds, meg_features, meg_unknown
from goalscope.worlds.planning import TabularMDP


def walk(seed: int, *, states: int = 5, horizon: int = 5, utility: Any = None) -> TabularMDP:
    """Return a random deterministic world with three actions that begins in state 0."""
    after = stream(seed, "walk").integers(0, states, size=(states, 3))
    paid = np.zeros(states) if utility is None else utility
    return TabularMDP(transitions=after, utility=paid, horizon=horizon, start=np.eye(states)[0], terminal_utility=None)


def mouse() -> TabularMDP:
    """The paper's mouse: from state 0 to the cheese (1) or away from it (2)."""
    return TabularMDP(
        transitions=np.array([[1, 2], [1, 1], [2, 2]]),
        utility=np.zeros(3),
        horizon=2,
        start=np.array([1.0, 0, 0]),
        terminal_utility=None,
    )


def test_the_mouse_has_the_papers_value_and_its_rationality() -> None:
    mdp, worlds = join_worlds([mouse()] * 2)
    policy = np.tile([[0.8, 0.2], [0.5, 0.5], [0.5, 0.5]], (2, 1))
    feature = np.tile([[0.0], [1.0], [-1.0]], (2, 1))
    found = meg_features(mdp, policy, feature, worlds, folds=2, penalties=(0.0,))
    assert found.terms == pytest.approx([0.192745] * 2, abs=1e-5)
    assert found.value == pytest.approx(math.log(2) + 0.8 * math.log(0.8) + 0.2 * math.log(0.2), abs=1e-6)
    assert found.utility[1] - found.utility[2] == pytest.approx(2 * math.log(2), abs=1e-4)


def test_one_known_feature_gives_the_shared_rationality_of_several_worlds() -> None:
    utilities = [stream(seed, "utility").normal(size=5) for seed in range(4)]
    single = [walk(seed, utility=utility) for seed, utility in enumerate(utilities)]
    mdp, worlds = join_worlds(single)
    policy = random_policy(mdp, 3, by_time=False)
    curves = [RationalityCurve(world) for world in single]
    returns = [curve.utility_of(policy[worlds == number]) for number, curve in enumerate(curves)]
    shared = SharedCurve(curves).meg(returns)
    dual = OccupancyDual(mdp, policy, terminal=False)
    feature = np.concatenate(utilities)[dual.reached.kept, None]
    weights = climb(dual, feature, 0.0, np.zeros(1))
    assert weights[0] == pytest.approx(shared.beta, rel=1e-3)
    assert dual.value(feature @ weights)[0] == pytest.approx(shared.value, abs=1e-7)


def test_a_feature_for_each_state_gives_the_unknown_utility() -> None:
    world = walk(7)
    policy = random_policy(world, 1, by_time=False)
    mdp, worlds = join_worlds([world] * 2)
    found = meg_features(mdp, np.tile(policy, (2, 1)), np.tile(np.eye(5), (2, 1)), worlds, folds=2, penalties=(0.0,))
    assert found.terms == pytest.approx([meg_unknown(world, policy).value] * 2, abs=1e-4)


def test_noise_scores_below_a_feature_that_is_the_goal_and_strong_penalties_give_nothing() -> None:
    goals = [1 + seed % 4 for seed in range(20)]
    mdp, worlds = join_worlds([walk(seed, horizon=6) for seed in range(20)])
    pays = np.concatenate([np.eye(5)[goal] for goal in goals])
    values = pays[np.asarray(mdp.transitions)]
    policy = 0.05 + 0.85 * values / np.maximum(values.sum(axis=1, keepdims=True), 1)
    policy /= policy.sum(axis=1, keepdims=True)
    noise = stream(0, "noise").normal(size=(mdp.states, 8))
    known = meg_features(mdp, policy, np.column_stack([pays, noise[:, 1:]]), worlds)
    unrelated = meg_features(mdp, policy, noise, worlds)
    assert known.value > 0.3 > 0.1 > unrelated.value
    assert abs(meg_features(mdp, policy, noise, worlds, penalties=(1e9,)).value) < 1e-6
    transferred = meg_features(mdp, policy, pays[:, None], worlds, fitted=np.arange(20) < 10)
    assert np.isnan(transferred.terms[:10]).all() and transferred.value > 0.3


def test_wrong_input_is_refused_with_its_reason() -> None:
    mdp, worlds = join_worlds([walk(0), walk(1)])
    policy, features = random_policy(mdp, 0, by_time=False), np.ones((10, 2))
    with pytest.raises(ValueError, match="features"):
        meg_features(mdp, policy, np.where(features > 0, np.nan, 0), worlds)
    with pytest.raises(ValueError, match="features"):
        meg_features(mdp, policy, features[:4], worlds)
    with pytest.raises(ValueError, match="1 worlds"):
        meg_features(walk(0), random_policy(walk(0), 0, by_time=False), features[:5], np.zeros(5, dtype=np.int64))
    with pytest.raises(ValueError, match="horizon"):
        join_worlds([walk(0), walk(1, horizon=6)])
    with pytest.raises(ValueError, match="0 worlds"):
        join_worlds([])
