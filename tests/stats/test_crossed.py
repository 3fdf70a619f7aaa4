"""Differences to a random control with several seeds: intervals over grids and seeds."""

import math

import numpy as np
import pytest
from scipy import stats as reference

from goalscope.stats import crossed_difference, exact_binomial, paired_difference
from goalscope.stats.estimate import Estimate


def estimated(model: np.ndarray, control: np.ndarray, **given: object) -> Estimate:
    """Estimate from the model's values ``[G]`` and the control's ``[G, S]``."""
    grids, seeds = control.shape
    labels = [f"g{number}" for number in range(grids)]
    return crossed_difference(
        model,
        labels,
        control.ravel(),
        np.repeat(labels, seeds),
        np.tile(np.arange(seeds), grids),
        unit="fraction",
        **given,  # type: ignore[arg-type]
    )


def test_seeds_that_agree_leave_the_paired_interval_over_grids() -> None:
    rng = np.random.default_rng(0)
    model, control = rng.normal(size=40), rng.normal(size=40)
    one = estimated(model, np.repeat(control[:, None], 4, axis=1))
    grids = [f"g{number}" for number in range(40)]
    paired = paired_difference(model, grids, control, grids, unit="fraction").difference
    assert (one.value, one.low, one.high) == pytest.approx((paired.value, paired.low, paired.high), rel=1e-12)
    assert (one.n, one.clusters) == (160, 40)


def test_grids_that_agree_leave_student_over_the_means_of_the_seeds() -> None:
    levels = np.array([0.1, 0.4, 0.2, 0.6, 0.3])
    control = np.repeat(levels[None, :], 30, axis=0)
    # The rows differ a little: equal ones would have no interval over grids without bounds.
    noise = 1e-9 * np.random.default_rng(1).normal(size=30)
    found = estimated(1 + noise, control)
    low, high = reference.t.interval(0.95, 4, loc=(1 - levels).mean(), scale=reference.sem(1 - levels))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-7)


def test_the_margins_are_those_of_the_analysis_of_variance_by_hand() -> None:
    control = np.array([[0.0, 1.0], [2.0, 5.0], [1.0, 0.0]])
    found = estimated(np.array([4.0, 7.0, 5.0]), control)
    # Differences 4 3, 5 2, 4 5: seed means 13/3 and 10/3, residual sum of squares 4, on 2 degrees of freedom 2.
    between = ((13 / 3 - 10 / 3) ** 2) / 2
    seeds = max(0.0, between - 2 / 3)
    assert seeds == 0.0
    rows = paired_difference([3.5, 3.5, 4.5], list("abc"), [0.0, 0.0, 0.0], list("abc"), unit="fraction").difference
    assert (found.low, found.high) == pytest.approx((rows.low, rows.high))
    assert found.value == pytest.approx(23 / 6)


def test_order_does_not_count_and_a_grid_without_a_seed_is_left_out_and_counted() -> None:
    rng = np.random.default_rng(2)
    model, control = rng.random(12), rng.random((12, 3))
    labels = np.array([f"g{number}" for number in range(12)])
    clusters, seeds, values = np.repeat(labels, 3), np.tile([0, 1, 2], 12), control.ravel()
    values = values.copy()
    values[4] = math.nan
    given = crossed_difference(model, labels, values, clusters, seeds, unit="fraction", bounds=(0, 1))
    order = rng.permutation(36)
    mixed = crossed_difference(
        model[::-1], labels[::-1], values[order], clusters[order], seeds[order], unit="fraction", bounds=(0, 1)
    )
    assert (given.value, given.low, given.high) == pytest.approx((mixed.value, mixed.low, mixed.high), rel=1e-12)
    assert (given.clusters, given.without, given.undefined, given.n) == (11, 1, 1, 33)
    assert -1 <= given.low < given.value < given.high <= 1


def test_one_seed_or_one_grid_has_no_interval() -> None:
    assert not estimated(np.zeros(9), np.ones((9, 1))).has_interval
    assert not estimated(np.zeros(1), np.ones((1, 5))).has_interval
    assert math.isnan(estimated(np.array([math.nan]), np.ones((1, 5))).value)


def test_grids_that_all_agree_have_an_interval_only_with_bounds() -> None:
    control = np.repeat([[0.1, 0.4, 0.2]], 30, axis=0)
    assert not estimated(np.ones(30), control).has_interval
    bounded = estimated(np.ones(30), control, bounds=(0.0, 1.0))
    assert -1 <= bounded.low < bounded.value < bounded.high <= 1


@pytest.mark.parametrize(
    ("model", "control", "fact"),
    [(np.array([2.0, 0.0]), np.zeros((2, 2)), "2.0"), (np.zeros(2), np.array([[0, 0], [0, -np.inf]]), "inf")],
)
def test_values_outside_of_the_bounds_are_refused(model: np.ndarray, control: np.ndarray, fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        estimated(model, control, bounds=(0.0, 1.0))


def test_vectors_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="equally long"):
        crossed_difference([1.0], ["a"], [1.0], ["a"], [0, 1], unit="fraction")


@pytest.mark.parametrize(("seeds", "between"), [(5, 0.0), (5, 0.3), (3, 1.0)])
def test_intervals_cover_what_is_true_over_grids_and_seeds(seeds: int, between: float) -> None:
    rng = np.random.default_rng(3)
    trials, missed = 300, 0
    for _ in range(trials):
        control = between * rng.normal(size=(1, seeds)) + rng.normal(size=(40, seeds))
        found = estimated(rng.normal(size=40), control)
        missed += not found.low <= 0 <= found.high
    # Not more misses than one nominal 5 % would give but once in a thousand times.
    assert exact_binomial(missed, trials, 0.998)[0] <= 0.05


def test_an_interval_over_grids_alone_misses_where_seeds_differ() -> None:
    rng = np.random.default_rng(4)
    missed = 0
    for _ in range(200):
        control = rng.normal(size=(1, 5)) + 0.1 * rng.normal(size=(60, 5))
        names = [str(number) for number in range(60)]
        paired = paired_difference(np.zeros(60), names, control.mean(axis=1), names, unit="fraction").difference
        missed += not paired.low <= 0 <= paired.high
    assert exact_binomial(missed, 200)[0] > 0.5
