"""The mixture over episodes: its likelihood against sums over all errors, its draws against the exact posterior."""

from itertools import product

import numpy as np
import pytest

from goalscope.goals.prediction.mixture import (
    CONCENTRATION,
    FIXED,
    RANDOM,
    SETTINGS,
    SLOPES,
    STAND_INS,
    Mixture,
    errors_of,
    log_likelihoods,
    random_at,
    setting_prior,
)

ACTIONS = 3


@pytest.fixture
def episode():
    """Return policies of two rules in three states, their distances, the uniform policy, and counts of answers."""
    rng = np.random.default_rng(1)
    policies = np.eye(ACTIONS)[rng.integers(ACTIONS, size=(2, STAND_INS, 3))]
    policies[1, :, 2] = 1 / ACTIONS  # a state in which all actions are equally good
    even = np.full((3, ACTIONS), 1 / ACTIONS)
    return policies, rng.uniform(1, 9, size=(2, 3)), even, np.array([[2.0, 0, 1], [0, 3, 0], [1, 1, 0]])


def chance_of(counts, policy, rate):
    """Return the probability of the answers in a state in some order, given a policy and a random share."""
    return float(np.prod([((1 - rate) * p + rate / ACTIONS) ** n for p, n in zip(policy, counts, strict=True)]))


def test_the_likelihood_is_the_sum_over_which_states_err_and_how(episode) -> None:
    policies, distances, even, counts = episode
    logs = log_likelihoods(policies, distances, even, counts)
    for rule, setting in product(range(2), range(0, STAND_INS * SETTINGS, 7)):
        stand_in, slope, random, fixed = (value[0] for value in errors_of(np.array([setting])))
        expected = 1.0
        for state in range(3):
            policy = policies[rule, stand_in, state]
            rate = float(random_at(random, slope, distances[rule, state]))
            follows = chance_of(counts[state], policy, rate)
            wrong = [a for a in range(ACTIONS) if policy[a] < 1 / ACTIONS - 1e-9]
            errs = np.mean([chance_of(counts[state], np.eye(ACTIONS)[a], rate) for a in wrong]) if wrong else follows
            expected *= (1 - fixed) * follows + fixed * errs
        assert logs[rule, setting] == pytest.approx(np.log(expected))


def test_without_fixed_errors_and_slope_it_is_the_likelihood_of_a_lapse_rate(episode) -> None:
    policies, distances, even, counts = episode
    logs = log_likelihoods(policies, distances, even, counts)
    for rate in RANDOM:
        settings = [
            number
            for number in range(SETTINGS)
            if [float(value[0]) for value in errors_of(np.array([number]))] == [0, SLOPES[0], rate, FIXED[0]]
        ]
        expected = (counts * np.log((1 - rate) * policies[:, 0] + rate * even)).sum(axis=(1, 2))
        assert logs[:, settings[0]] == pytest.approx(expected)


def test_draws_have_the_exact_posterior_of_a_small_mixture() -> None:
    rng = np.random.default_rng(2)
    # Two rules whose errors are irrelevant, and three episodes: the weights and the memberships can be summed out.
    alone = rng.normal(size=(3, 2))
    logs = np.repeat(alone[:, :, None], STAND_INS * SETTINGS, axis=2)
    prior = np.log([0.5, 0.5])
    draws = Mixture(logs, prior).draw(np.arange(3), chains=2_000, sweeps=40, rng=rng)
    alpha, weights, first = CONCENTRATION * np.exp(prior), [], []
    for members in product((0, 1), repeat=3):
        counts = np.bincount(members, minlength=2)
        rising = [np.prod(alpha[h] + np.arange(counts[h])) for h in range(2)]
        weights.append(np.prod(rising) * np.exp(sum(alone[e, h] for e, h in enumerate(members))))
        first.append((alpha[0] + counts[0]) / (alpha.sum() + 3))
    exact = np.average(first, weights=weights)
    assert draws.weights[:, 0].mean() == pytest.approx(exact, abs=0.04)


def test_rules_that_no_episode_tells_apart_share_the_draws() -> None:
    logs = np.zeros((12, 2, STAND_INS * SETTINGS))
    rng = np.random.default_rng(3)
    draws = Mixture(logs, np.log([0.5, 0.5])).draw(np.arange(12), chains=200, sweeps=60, rng=rng)
    mean = draws.weights.mean(axis=0)
    assert mean == pytest.approx([0.5, 0.5], abs=0.1)
    assert draws.weights.std(axis=0).min() > 0.2


def test_errors_have_probabilities() -> None:
    assert np.exp(setting_prior()).sum() == pytest.approx(1)
    assert random_at(RANDOM, np.zeros(len(RANDOM)), np.full(len(RANDOM), 9.0)) == pytest.approx(RANDOM)
