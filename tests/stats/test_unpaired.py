"""Differences of conditions that share no cluster: Welch's interval, a hand computation, simulated studies."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from goalscope.stats import unpaired_difference
from goalscope.stats.intervals import mean_interval
from goalscope.stats.unpaired import difference_ends


def test_of_many_symmetric_clusters_the_interval_is_that_of_welch() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.normal(2.0, 1.0, 800), rng.normal(1.5, 3.0, 1200)
    found = unpaired_difference(first, np.arange(800), second, np.arange(800, 2000), unit="bits")
    welch = stats.ttest_ind(first, second, equal_var=False)
    low, high = welch.confidence_interval(0.95)
    assert found.difference.value == pytest.approx(first.mean() - second.mean(), abs=1e-12)
    assert (found.difference.low, found.difference.high) == pytest.approx((low, high), abs=0.003)
    assert found.p_value == pytest.approx(welch.pvalue, rel=0.1)
    assert (found.difference.n, found.difference.clusters, len(found.labels)) == (2000, 2000, 2000)
    assert not found.difference.note.endswith("undefined interval") and math.isnan(found.test.p_value)


def test_ends_are_those_of_both_intervals_and_of_clusters_not_of_values() -> None:
    first, second = np.array([1.0, 0.5, 0.0, 1.0]), np.array([0.0, 0.25, 0.5])
    repeated = np.repeat(first, 2) + np.tile([0.0, np.nan], 4)  # each cluster with a value and an undefined one
    found = unpaired_difference(
        [*repeated, 0.0], [*"aabbccddc"], second, [*"xyz"], unit="share", bounds=(0.0, 1.0), confidence=0.9
    )
    ends = [mean_interval(side, bounds=(0.0, 1.0), confidence=0.9) for side in (first, second)]
    difference = 0.625 - 0.25
    low = difference - math.sqrt((0.625 - ends[0].low) ** 2 + (ends[1].high - 0.25) ** 2)
    high = difference + math.sqrt((ends[0].high - 0.625) ** 2 + (0.25 - ends[1].low) ** 2)
    assert (found.difference.low, found.difference.high) == pytest.approx((max(low, -1), min(high, 1)))
    assert found.undefined == 4 and found.counts == (5, 3)


def test_at_its_p_value_the_interval_ends_at_0() -> None:
    rng = np.random.default_rng(4)
    first, second = rng.random(12), rng.random(15) * 0.6
    found = unpaired_difference(first, range(12), second, range(20, 35), unit="share", bounds=(0.0, 1.0))
    low, high = difference_ends(first, second, (0.0, 1.0), 1 - found.p_value)
    assert 0.001 < found.p_value < 0.5 and min(abs(low), abs(high)) < 1e-6


def test_few_clusters_have_no_small_p_value() -> None:
    found = unpaired_difference([0.0, 0.01, 0.0], [*"abc"], [1.0, 0.99, 1.0], [*"xyz"], unit="share", bounds=(0, 1))
    assert found.difference.high < 0 and found.p_value >= 2 / math.comb(6, 3)


@pytest.mark.parametrize(("first", "second"), [([1.0], [0.0, 0.5]), ([], [0.0, 0.5]), ([math.nan], [])])
def test_of_fewer_than_two_clusters_on_a_side_there_is_no_interval(first: list[float], second: list[float]) -> None:
    found = unpaired_difference(first, range(len(first)), second, range(10, 10 + len(second)), unit="share")
    assert not found.difference.has_interval and math.isnan(found.p_value)


def test_a_cluster_in_both_conditions_is_refused() -> None:
    with pytest.raises(ValueError, match="b, c"):
        unpaired_difference([1.0] * 3, [*"abc"], [0.0] * 3, [*"bcd"], unit="share")


@pytest.mark.full
@pytest.mark.parametrize(("few", "many"), [(15, 40), (40, 40), (30, 100)])
@pytest.mark.parametrize("shape", ["normal", "shares", "skewed"])
def test_intervals_cover_the_difference(few: int, many: int, shape: str) -> None:
    rng, covered, studies = np.random.default_rng(few + many), 0, 1000
    shapes: dict[str, Callable[[int, float], Any]] = {
        "normal": lambda size, mean: rng.normal(mean, 1 + mean, size),
        "shares": lambda size, mean: rng.beta(4 * mean, 4 * (1 - mean), size),
        "skewed": lambda size, mean: rng.exponential(mean, size),
    }
    draws = shapes[shape]
    bounds = (0.0, 1.0) if shape == "shares" else (-math.inf, math.inf)
    for _ in range(studies):
        low, high = difference_ends(draws(few, 0.6), draws(many, 0.3), bounds, 0.95)
        covered += low <= 0.3 <= high
    assert 0.93 <= covered / studies <= 0.985, covered
