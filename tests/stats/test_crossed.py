"""Differences to a random control with several seeds: intervals over grids and seeds."""

import math

import numpy as np
import pytest
from scipy import stats as reference

from goalscope.inside.probing import paired_rows
from goalscope.inside.probing.plans import r_squared
from goalscope.stats import (
    Estimate,
    crossed_difference,
    estimate_mean,
    estimate_rows,
    exact_binomial,
    paired_difference,
)
from goalscope.stats.estimate import CONDITIONAL, ONE_SEED
from goalscope.stats.rows import Rows


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
    with pytest.raises(ValueError, match="control_clusters and seeds, got 1, 1 and 2"):
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


def drawn(values: np.ndarray, measure: str = "recall", **tags: object) -> Rows:
    """Rows of a random control: a table ``[G, S]`` of grids and seeds."""
    grids, seeds = values.shape
    return Rows.from_columns(
        measure=measure,
        unit="share",
        value=values.ravel(),
        cluster=[f"g{grid}" for grid in range(grids) for _ in range(seeds)],
        tags={"control": "permuted", "draw": list(range(seeds)) * grids, **tags},
    )


def test_rows_of_random_controls_are_estimated_over_grids_and_seeds() -> None:
    rng = np.random.default_rng(5)
    model, table = rng.random(30), np.clip(0.3 + 0.2 * rng.random(4) + 0.1 * rng.random((30, 4)), 0, 1)
    rows = drawn(table)
    (one,) = estimate_rows(rows, by=("control",), bounds={"recall": (0, 1)})
    assert one.estimate.value == pytest.approx(table.mean())
    assert (one.estimate.clusters, one.estimate.n) == (30, 120)
    over_grids = estimate_mean(table.mean(axis=1), range(30), unit="share", bounds=(0, 1))
    seeds = reference.t.ppf(0.975, 3) * table.mean(axis=0).std(ddof=1) / 2
    noise = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    less = (noise**2).sum() / (29 * 3) / 30 / table.mean(axis=0).var(ddof=1)
    margin = seeds * math.sqrt(1 - less)
    assert one.estimate.high == pytest.approx(table.mean() + math.hypot(over_grids.high - table.mean(), margin))
    assert "t over 4 seeds" in str(one.estimate)
    # Differences that are made row by row are those of `crossed_difference`.
    own = Rows.from_columns(
        measure="recall",
        unit="share",
        value=model,
        cluster=[f"g{grid}" for grid in range(30)],
        tags={"control": "none"},
    )
    (two,) = estimate_rows(paired_rows(own, rows, name="permuted", by=()), by=())
    wanted = estimated(model, table, bounds=(0, 1))
    assert two.estimate.value == pytest.approx(wanted.value)
    assert (two.estimate.low, two.estimate.high) == pytest.approx((wanted.low, wanted.high))
    assert CONDITIONAL in two.estimate.note and two.key["measure"] == "recall less permuted"


def test_pairs_of_two_random_controls_are_of_one_seed() -> None:
    rng = np.random.default_rng(6)
    pre, post = rng.random((5, 3)), rng.random((5, 3))
    order = rng.permutation(15)
    rows = drawn(post)
    mixed = Rows.concatenate([rows.where(np.arange(15) == at) for at in order])
    found = paired_rows(drawn(pre), mixed, name="post", by=())
    assert found.value == pytest.approx((pre - post).ravel())
    assert found["draw"].tolist() == [0, 1, 2] * 5


def test_one_seed_is_said_and_a_group_that_mixes_is_refused() -> None:
    table = np.random.default_rng(7).random((9, 1))
    (one,) = estimate_rows(drawn(table), by=(), bounds={"recall": (0, 1)})
    plain = estimate_mean(table[:, 0], range(9), unit="share", bounds=(0, 1))
    assert (one.estimate.value, one.estimate.low, one.estimate.high) == (plain.value, plain.low, plain.high)
    assert ONE_SEED in one.estimate.note
    own = drawn(table, draw=None)
    with pytest.raises(ValueError, match="control"):
        estimate_rows(Rows.concatenate([own, drawn(table)]), by=())


@pytest.mark.parametrize("between", [0.0, 0.05])
def test_intervals_of_a_controls_own_score_cover_it(between: float) -> None:
    rng = np.random.default_rng(8)
    trials, missed = 300, 0
    for _ in range(trials):
        levels = 0.5 + between * rng.normal(size=(1, 5)) + 0.1 * rng.normal(size=(40, 1))
        table = np.clip(levels + 0.1 * rng.normal(size=(40, 5)), 0, 1)
        (one,) = estimate_rows(drawn(table), by=(), bounds={"recall": (0, 1)})
        missed += not one.estimate.low <= 0.5 <= one.estimate.high
    assert exact_binomial(missed, trials, 0.998)[0] <= 0.05


def test_the_share_of_variance_of_random_networks_is_over_grids_and_seeds() -> None:
    rng = np.random.default_rng(9)
    error, deviation = 1 + rng.random((20, 3)) + np.array([0.0, 0.2, 0.5]), 3 + rng.random(20)
    grids, seeds = np.repeat(np.arange(20), 3), np.tile(np.arange(3), 20).astype(object)
    found = r_squared(error.ravel(), np.repeat(deviation, 3), grids, seeds)
    alone = [r_squared(error[:, seed], deviation, range(20)) for seed in range(3)]
    assert found.value == pytest.approx(np.mean([one.value for one in alone]))
    # The errors differ by seed: the interval is wider than any over grids alone.
    assert found.high - found.low > max(one.high - one.low for one in alone)
    same = r_squared(np.repeat(error[:, 0], 3), np.repeat(deviation, 3), grids, seeds)
    assert (same.low, same.high) == pytest.approx((alone[0].low, alone[0].high))
    assert ONE_SEED in r_squared(error[:, 0], deviation, range(20), np.full(20, 4, dtype=object)).note
