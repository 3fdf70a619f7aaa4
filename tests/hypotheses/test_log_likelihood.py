"""Policies with errors: against sums over which move always errs, and against simulated agents."""

import numpy as np
import pytest

from goalscope.goals.hypotheses.errors import log_likelihood, with_errors, wrong_moves

EVEN = np.array([[0.25, 0.25, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3, 0.0]])
POLICY = np.array([[0.5, 0.5, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3, 0.0]])  # where all moves are equally good, none is wrong
RANDOM = np.array([0.3, 0.1])
FIXED = 0.2


def test_probabilities_of_a_first_visit_are_a_sum_over_which_move_always_errs() -> None:
    assert wrong_moves(POLICY, EVEN).tolist() == [[False, False, True, True], [False] * 4]
    errs = np.array([[0.0, 0.0, 0.5, 0.5], POLICY[1]])
    expected = RANDOM[:, None] * EVEN + (1 - RANDOM[:, None]) * ((1 - FIXED) * POLICY + FIXED * errs)
    assert with_errors(POLICY, EVEN, RANDOM, FIXED) == pytest.approx(expected)
    assert with_errors(POLICY, EVEN, np.zeros(2)) == pytest.approx(POLICY)
    batch = with_errors(np.stack([POLICY, EVEN]), EVEN, RANDOM, np.array([FIXED, 0.0])[:, None, None])
    assert batch == pytest.approx(np.stack([expected, EVEN]))


def test_the_likelihood_is_how_often_simulated_agents_give_the_answers() -> None:
    rng, agents = np.random.default_rng(0), 200_000
    errs = rng.random(agents) < FIXED
    usual = np.where(errs, rng.integers(2, 4, agents), -1)
    hits = np.ones(agents, dtype=bool)
    for action in (0, 2, 2):  # the answers in the first state, in this order
        follows = np.where(errs, usual, rng.integers(0, 2, agents))
        taken = np.where(rng.random(agents) < RANDOM[0], rng.integers(0, 4, agents), follows)
        hits &= taken == action
    counts = np.array([[1.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    logs = log_likelihood(POLICY, EVEN, counts, RANDOM, [0.0, FIXED])
    assert np.exp(logs[1]) == pytest.approx(hits.mean(), rel=0.05)
    assert logs[0] == pytest.approx(np.log(0.7 * 0.5 + 0.075) + 2 * np.log(0.075))
    assert logs[0] == log_likelihood(POLICY, EVEN, counts, RANDOM)[0]
    assert log_likelihood(POLICY, EVEN, np.eye(4)[[3, 3]], np.zeros(2))[0] < -600  # impossible answers stay finite
