"""What an optimal agent would show: closed forms against enumeration of every sequence of actions, and simulation."""

import itertools
from collections import Counter
from collections.abc import Callable
from statistics import fmean

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.agents import EpsilonGreedy
from goalscope.measures import StepTable, calibration_error, roll_out
from goalscope.measures.visits import (
    Visits,
    binomial,
    divergence,
    entropy,
    expected_divergence,
    expected_entropy,
)
from goalscope.worlds import GridWorld, generate_batch

SMALL = [(visits, options) for options in (1, 2, 3, 4) for visits in (1, 2, 3, 5, 6)]


def policies(visits: int, options: int) -> np.ndarray:
    """The empirical policy ``[k^n, 4]`` of each equally likely sequence of n optimal actions out of k."""
    found = [
        [Counter(sequence)[action] / visits for action in range(4)]
        for sequence in itertools.product(range(options), repeat=visits)
    ]
    return np.array(found)


@pytest.mark.parametrize(("visits", "options"), SMALL)
def test_expectations_equal_enumeration(visits: int, options: int) -> None:
    every = policies(visits, options)
    optimal = np.tile(np.arange(4) < options, (len(every), 1))
    one = np.array([visits]), np.array([options])
    assert expected_entropy(*one) == pytest.approx([entropy(every).mean()], abs=1e-12)
    assert expected_divergence(*one) == pytest.approx([divergence(every, optimal).mean()], abs=1e-12)


def test_known_values() -> None:
    number, options = np.array([1, 1, 2, 10**6]), np.array([2, 1, 2, 2])
    np.testing.assert_allclose(expected_divergence(number, options), [0.3112781, 0, 0.1556391, 0], atol=1e-6)
    np.testing.assert_allclose(expected_entropy(number, options), [0, 0, 0.5, 1], atol=1e-5)
    np.testing.assert_allclose(binomial(4, 2), np.array([1, 4, 6, 4, 1]) / 16)
    assert binomial(500, 3).sum() == pytest.approx(1)


@pytest.mark.parametrize("statistic", [expected_entropy, expected_divergence])
def test_expectations_of_many_visits_equal_simulation(statistic: Callable[..., np.ndarray]) -> None:
    rng = stream(0, "baseline", "simulation")
    for visits, options in ((7, 2), (12, 3), (40, 4)):
        drawn = np.zeros((20000, 4))
        drawn[:, :options] = rng.multinomial(visits, np.full(options, 1 / options), size=20000) / visits
        optimal = np.tile(np.arange(4) < options, (len(drawn), 1))
        shown = {
            expected_entropy: entropy(drawn),
            expected_divergence: divergence(drawn, optimal),
        }[statistic]
        error = shown.std() / np.sqrt(len(shown))
        assert abs(statistic(np.array([visits]), np.array([options]))[0] - shown.mean()) < 4 * error


def test_calibration_baseline_equals_simulation_with_the_same_visits() -> None:
    """Redraw every state's actions uniformly from its optimal set, as often as it was visited."""
    grid = generate_batch(7, 0.0, seed=6, count=1, minimum_distance=6)[0]
    episodes = roll_out(EpsilonGreedy(0.2), GridWorld(grid=grid), seed=1, trajectories=4)
    table = StepTable.from_episodes(episodes)
    visits = Visits.from_table(table)
    rng = stream(1, "calibration", "simulation")
    errors = []
    for _ in range(1500):
        counts = np.array(
            [rng.multinomial(n, row / row.sum()) for n, row in zip(visits.number, visits.optimal, strict=True)]
        )
        errors.append(reference_error(counts, visits.optimal))
    baseline = calibration_error(part="optimal baseline").rows(table).value
    assert len(baseline) == 1
    assert abs(baseline[0] - fmean(errors)) < 4 * np.std(errors) / np.sqrt(len(errors)) + 1e-12


def reference_error(counts: np.ndarray, optimal: np.ndarray) -> float:
    entries = []
    for taken, best in zip(counts, optimal, strict=True):
        entries += [(taken[a] / taken.sum(), float(best[a]), taken[a]) for a in np.flatnonzero(taken)]
    confidence, accuracy, weight = (np.array(column, dtype=float) for column in zip(*entries, strict=True))
    place = np.minimum(np.floor(confidence * 10 + 1e-9), 9).astype(int)
    gap = np.bincount(place, weights=weight * (accuracy - confidence), minlength=10)
    return float(np.abs(gap).sum() / weight.sum())
