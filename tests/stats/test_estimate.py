"""Estimates: hand-computed cases, second oracles, laws, and edges: what record and text hold, what ratios refuse."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from families import examples
from goalscope.stats import UNBOUNDED, Estimate, estimate_mean, estimate_pooled, estimate_rows, exact_binomial
from goalscope.stats.estimate import factorize
from goalscope.stats.intervals import mean_interval
from goalscope.stats.rows import Rows

SHARE = (0.0, 1.0)
unit_values = st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0]), min_size=2, max_size=30)


def test_mean_is_taken_within_grids_first() -> None:
    found = estimate_mean([1, 1, 1, 0], ["a", "a", "a", "b"], unit="share", bounds=SHARE)
    assert found.value == 0.5  # not 3 / 4
    assert (found.n, found.clusters) == (4, 2)


def test_undefined_values_are_left_out_and_counted() -> None:
    found = estimate_mean([1, math.nan, 0.5, math.nan], ["a", "a", "b", "c"], unit="share", bounds=SHARE)
    assert (found.value, found.n, found.clusters, found.undefined) == (0.75, 2, 2, 2)


def test_ten_of_ten_has_the_exact_binomial_interval() -> None:
    found = estimate_mean(np.ones(100), np.repeat(np.arange(10), 10), unit="share", bounds=SHARE)
    assert found.low == pytest.approx(0.025 ** (1 / 10))
    assert found.low == pytest.approx(exact_binomial(10, 10)[0])
    assert round(found.low, 2) == 0.69
    assert found.high == 1.0
    assert found.method == "exact binomial"
    none = estimate_mean(np.zeros(10), range(10), unit="share", bounds=SHARE)
    assert [none.low, none.high] == pytest.approx([0.0, 1 - found.low])


def test_agreement_inside_the_bounds_is_the_worst_case_over_all_distributions() -> None:
    value, grids = 0.5, 10
    found = estimate_mean([value] * grids, range(grids), unit="share", bounds=SHARE)
    # Literal search: a share q shows the value, the rest sits at one bound, and ten draws agree with chance q**10.
    share = np.linspace(0, 1, 200_001)
    possible = share[share**grids >= 0.025]
    assert found.low == pytest.approx(float((possible * value).min()), abs=1e-5)
    assert found.high == pytest.approx(float((possible * value + 1 - possible).max()), abs=1e-5)
    assert "no variance" in found.note


def test_agreement_without_bounds_is_undefined_and_says_so() -> None:
    found = estimate_mean([3.0] * 10, range(10), unit="steps")
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert "undefined" in found.note
    assert "undefined" in str(found)


@pytest.mark.parametrize(("values", "clusters", "word"), [([], [], "no cluster"), ([1, 0], ["a", "a"], "one cluster")])
def test_fewer_than_two_grids_are_undefined(values: list[float], clusters: list[str], word: str) -> None:
    found = estimate_mean(values, clusters, unit="share", bounds=SHARE)
    assert not found.has_interval
    assert math.isnan(found.high)
    assert word in found.note


def test_symmetric_values_give_the_plain_t_interval() -> None:
    values = np.array([-1.0, 1.0] * 10)  # no skewness, kurtosis 1: all corrections vanish
    found = estimate_mean(values, range(20), unit="bits")
    oracle = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert [found.low, found.high] == pytest.approx([oracle.low, oracle.high])


def test_all_or_nothing_grids_give_the_wilson_interval_with_a_t_quantile_within_the_exact_one() -> None:
    values = np.array([1.0] * 8 + [0.0] * 2)
    found = estimate_mean(values, range(10), unit="share", bounds=SHARE)
    factor = float(scipy_stats.t.ppf(0.975, 9)) ** 2 / 9  # the unbiased variance over G is p (1 - p) / (G - 1)
    roots = np.roots([1 + factor, -(2 * 0.8 + factor), 0.8**2])
    exact = scipy_stats.binomtest(8, 10).proportion_ci(0.95)
    assert found.low == pytest.approx(max(min(roots), exact.low))
    assert found.high == pytest.approx(min(max(roots), exact.high))


@pytest.mark.parametrize("grids", [10, 20, 60, 300])
@pytest.mark.parametrize("part", [0.2, 1.0])
def test_one_grid_away_from_a_bound_stays_within_the_exact_binomial_end(grids: int, part: float) -> None:
    values = np.zeros(grids)
    values[0] = part
    found = estimate_mean(values, range(grids), unit="share", bounds=SHARE)
    assert found.high <= scipy_stats.binomtest(1, grids).proportion_ci(0.95).high + 1e-12
    mirrored = estimate_mean(1 - values, range(grids), unit="share", bounds=SHARE)
    assert [1 - mirrored.high, 1 - mirrored.low] == pytest.approx([found.low, found.high])


@pytest.mark.parametrize("bounds", [SHARE, (0.0, math.inf), UNBOUNDED])
def test_ends_solve_the_equations_that_the_text_states(bounds: tuple[float, float]) -> None:
    points = np.array([0.1, 0.4, 0.45, 0.7, 0.72, 0.8, 0.9, 1.0])
    count, mean = len(points), points.mean()
    skew = float(scipy_stats.skew(points)) / math.sqrt(count)
    if bounds == SHARE:
        skew *= 1 - float(points.var()) / (mean * (1 - mean))
    kurtosis = float(scipy_stats.kurtosis(points, fisher=False))
    quantile = float(scipy_stats.t.ppf(0.975, min(count - 1, 2 * count / (kurtosis - 1))))

    def variance(mu: float) -> float:
        return (mu - bounds[0] if math.isfinite(bounds[0]) else 1.0) * (bounds[1] - mu if bounds == SHARE else 1.0)

    found = mean_interval(points, bounds=bounds, confidence=0.95)
    for end, target in ((found.low, quantile), (found.high, -quantile)):
        studentised = (mean - end) / float(scipy_stats.sem(points)) * math.sqrt(variance(mean) / variance(end))
        hall = studentised + skew * studentised**2 / 3 + skew**2 * studentised**3 / 27 + skew / 6
        assert hall == pytest.approx(target, abs=1e-9)


def test_many_grids_agree_with_the_bootstrap_of_scipy() -> None:
    rng = np.random.default_rng(5)
    points = rng.beta(4, 2, 400)
    found = estimate_mean(points, range(400), unit="share", bounds=SHARE)
    oracle = scipy_stats.bootstrap((points,), np.mean, n_resamples=4000, method="BCa", rng=rng).confidence_interval
    assert found.low == pytest.approx(oracle.low, abs=0.003)
    assert found.high == pytest.approx(oracle.high, abs=0.003)


@settings(max_examples=examples(150), deadline=None)
@given(unit_values, st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_interval_lies_in_the_bounds_holds_the_value_and_has_a_width(values: list[float], confidence: float) -> None:
    found = estimate_mean(values, range(len(values)), unit="share", bounds=SHARE, confidence=confidence)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high > found.low


@settings(max_examples=examples(100), deadline=None)
@given(unit_values, st.integers(0, 2**32))
def test_order_and_names_do_not_change_a_byte(values: list[float], seed: int) -> None:
    clusters = [index % 7 for index in range(len(values))]
    order = np.random.default_rng(seed).permutation(len(values)).tolist()
    first = estimate_mean(values, clusters, unit="share", bounds=SHARE)
    second = estimate_mean(
        [values[index] for index in order], [f"grid {clusters[index]}" for index in order], unit="share", bounds=SHARE
    )
    assert repr(first) == repr(second)


@settings(max_examples=examples(100), deadline=None)
@given(unit_values)
def test_mirror_and_scale(values: list[float]) -> None:
    points = np.array(values)
    plain = mean_interval(points, bounds=SHARE, confidence=0.95)
    mirrored = mean_interval(1 - points, bounds=SHARE, confidence=0.95)
    assert [1 - mirrored.high, 1 - mirrored.low] == pytest.approx([plain.low, plain.high])
    scaled = mean_interval(3 * points - 1, bounds=(-1.0, 2.0), confidence=0.95)
    assert [scaled.low, scaled.high] == pytest.approx([3 * plain.low - 1, 3 * plain.high - 1])


def test_one_sided_bounds_mirror_each_other() -> None:
    points = np.array([0.1, 0.3, 0.2, 2.5, 0.0])
    above = mean_interval(points, bounds=(0.0, math.inf), confidence=0.95)
    below = mean_interval(-points, bounds=(-math.inf, 0.0), confidence=0.95)
    assert [-below.high, -below.low] == pytest.approx([above.low, above.high])
    assert above.low >= 0


@settings(max_examples=examples(60), deadline=None)
@given(unit_values)
def test_higher_confidence_is_wider(values: list[float]) -> None:
    inner, outer = (mean_interval(np.array(values), bounds=SHARE, confidence=level) for level in (0.8, 0.99))
    assert outer.low <= inner.low
    assert inner.high <= outer.high


def test_pooled_ratio_by_hand() -> None:
    above, below = np.array([3.0, 1.0, 8.0, 2.0]), np.array([4.0, 4.0, 8.0, 4.0])
    found = estimate_pooled(above, below, range(4), unit="share", bounds=SHARE)
    assert found.value == 14 / 20
    points = 0.7 + (above - 0.7 * below) / 5.0
    inner = mean_interval(points, bounds=SHARE, confidence=0.95)
    assert (found.low, found.high) == (inner.low, inner.high)
    assert "linearised" in found.method


def test_pooled_with_equal_denominators_is_the_mean() -> None:
    values = np.array([0.2, 0.9, 0.7, 0.6, 0.5])
    pooled = estimate_pooled(values * 10, np.full(5, 10.0), range(5), unit="share", bounds=SHARE)
    plain = estimate_mean(values, range(5), unit="share", bounds=SHARE)
    assert (pooled.value, pooled.low, pooled.high) == pytest.approx((plain.value, plain.low, plain.high))


def test_pooled_agreement_counts_grids_by_their_weight() -> None:
    found = estimate_pooled([9.0, 1.0], [9.0, 1.0], ["a", "b"], unit="share", bounds=SHARE)
    assert found.low == pytest.approx(0.025 ** (1 / (100 / 82)))
    assert found.high == 1.0


def test_pooled_leaves_out_empty_grids_and_undefined_pairs() -> None:
    found = estimate_pooled(
        [1.0, 0.0, math.nan, 2.0], [2.0, 0.0, 1.0, 2.0], ["a", "b", "c", "d"], unit="share", bounds=SHARE
    )
    assert (found.value, found.n, found.clusters, found.undefined) == (0.75, 2, 2, 1)
    empty = estimate_pooled([0.0], [0.0], ["a"], unit="share", bounds=SHARE)
    assert math.isnan(empty.value)
    assert empty.clusters == 0


@pytest.mark.parametrize(
    ("successes", "trials", "ends"), [(10, 10, (0.6915, 1.0)), (8, 10, (0.4439, 0.9748)), (0, 5, (0.0, 0.5218))]
)
def test_exact_binomial(successes: int, trials: int, ends: tuple[float, float]) -> None:
    assert exact_binomial(successes, trials) == pytest.approx(ends, abs=5e-5)
    oracle = scipy_stats.binomtest(successes, trials).proportion_ci(0.95, "exact")
    assert exact_binomial(successes, trials) == pytest.approx((oracle.low, oracle.high))


def test_text_of_an_estimate() -> None:
    shown = Estimate(value=0.871, low=0.832, high=0.901, n=300, clusters=30, method="t", unit="share", confidence=0.95)
    assert str(shown) == "0.87 [0.83, 0.90] (95 %, t over 30 clusters, n = 300)"
    assert str(replace(shown, note="few")) == "0.87 [0.83, 0.90] (95 %, t over 30 clusters, n = 300; few)"
    assert "over 30 of 150 clusters, n = 300" in str(replace(shown, without=120))
    narrow = replace(shown, value=0.9514, low=0.9502, high=0.9531)
    assert str(narrow).startswith("0.951 [0.950, 0.953]")


@pytest.mark.parametrize("ends", [(0.5, 0.5), (0.6, 0.7), (0.7, 0.2), (math.nan, 0.7)])
def test_an_estimate_refuses_width_zero_and_disorder(ends: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="width above 0"):
        Estimate(value=0.5, low=ends[0], high=ends[1], n=5, clusters=5, method="t", unit="share")


@pytest.mark.parametrize(
    ("values", "bounds", "confidence", "message"),
    [
        ([0.5, 1.5], SHARE, 0.95, r"lie in \[0, 1\], got .*1.5.* at index 1"),
        ([0.5, math.inf], UNBOUNDED, 0.95, "must be finite"),
        ([0.5, 0.6], (1.0, 0.0), 0.95, "least < greatest"),
        ([0.5, 0.6], SHARE, 95, "inside"),
        ([0.5], SHARE, 0.95, "clusters must be as long as values"),
        ([[0.5, 0.6]], SHARE, 0.95, r"shape \[N\]"),
    ],
)
def test_bad_input_is_named(
    values: npt.ArrayLike, bounds: tuple[float, float], confidence: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        estimate_mean(values, ["a", "b"], unit="share", bounds=bounds, confidence=confidence)


@pytest.mark.parametrize(
    ("values", "bounds", "words"),
    [
        ([0.2, 0.9, 0.5], SHARE, "fewer than 5 clusters"),
        ([1.0] * 9 + [0.5], SHARE, "mean near a bound"),
        ([0.0, 1.0] * 6, SHARE, "all or nothing"),
        ([0.4, 0.5, 0.7, 0.6], UNBOUNDED, "misses with chance 0.66 or more"),
        ([0.0] * 11 + [9.0], UNBOUNDED, "misses with chance 0.28 or more"),
        ([0.5, 0.6, 0.4, 0.9, 0.7] * 3, SHARE, ""),
        ([0.5, 0.6, 0.4, 0.9, 0.7] * 8, UNBOUNDED, ""),
    ],
)
def test_where_coverage_may_miss_the_note_says_so(values: list[float], bounds: tuple[float, float], words: str) -> None:
    note = estimate_mean(values, range(len(values)), unit="share", bounds=bounds).note
    assert (words in note) if words else note == ""


@pytest.mark.parametrize(
    "wrong", [{"clusters": 6}, {"n": -1, "clusters": -1}, {"undefined": -1}, {"without": -1}, {"clusters": -1}]
)
def test_counts_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    given: dict[str, Any] = {"n": 5, "clusters": 5, "undefined": 0, **wrong}
    with pytest.raises(ValueError, match="clusters"):
        Estimate(value=0.5, low=0.4, high=0.6, method="t", unit="share", **given)
    with pytest.raises(ValueError, match=r"inside \(0, 1\)"):
        Estimate(value=0.5, low=0.4, high=0.6, n=5, clusters=5, method="t", unit="share", confidence=1.0)


@pytest.mark.parametrize(
    ("width", "shown"),
    [(0.01, "0.50 [0.50, 0.51]"), (0.009, "0.500 [0.500, 0.509]"), (3.0, "0.50 [0.50, 3.50]")],
)
def test_narrow_intervals_get_the_decimals_that_tell_their_ends_apart(width: float, shown: str) -> None:
    one = Estimate(value=0.5, low=0.5, high=0.5 + width, n=3, clusters=2, method="t", unit="share", confidence=0.9)
    assert str(one) == f"{shown} (90 %, t over 2 clusters, n = 3)"


def test_values_beyond_a_bound_by_rounding_count_as_the_bound() -> None:
    above = estimate_mean([1 + 4e-10] * 3, "abc", unit="share", bounds=SHARE)
    assert (above.value, above.high) == (1.0, 1.0)
    below = estimate_mean([-4e-10] * 3, "abc", unit="share", bounds=SHARE)
    assert (below.value, below.low) == (0.0, 0.0)
    with pytest.raises(ValueError, match=r"lie in \[0, 1\]"):
        estimate_mean([1 + 4e-9] * 3, "abc", unit="share", bounds=SHARE)


def test_labels_of_arrays_are_plain_values_in_the_order_of_appearance() -> None:
    codes, labels = factorize(np.array([7, 3, 7, 5]))
    assert codes.tolist() == [0, 1, 0, 2] and labels == [7, 3, 5] and {type(label) for label in labels} == {int}
    assert factorize(["b", "a", "b"])[1] == ["b", "a"] and factorize([])[0].shape == (0,)


def test_the_text_without_an_interval() -> None:
    assert (
        str(estimate_mean([1.0, 0.5], ["a", "a"], unit="share"))
        == "0.75 (1 cluster, n = 2, one cluster: undefined interval)"
    )
    assert str(estimate_mean([], [], unit="share")) == "undefined (0 clusters, n = 0, no cluster: undefined interval)"


@pytest.mark.parametrize(
    ("above", "below", "bounds", "message"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0], SHARE, "got 3, 2 and 2"),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], SHARE, "got 3, 3 and 2"),
        ([1.0, 2.0], [1.0, 2.0, 3.0], SHARE, "got 2, 3 and 2"),
        ([1.0, math.inf], [1.0, 2.0], SHARE, "numerator must be finite"),
        ([1.0, 1.0], [1.0, -2.0], UNBOUNDED, r"denominator must be finite and lie in \[0, inf\], got .*-2"),
        ([1.0, 3.0], [1.0, 2.0], SHARE, r"the ratio of a cluster must be finite and lie in \[0, 1\]"),
        ([1.0, 0.5], [1.0, 0.0], SHARE, "denominators sum to 0"),
        ([1.0, 1.0], [1.0, 2.0], (1.0, 1.0), "least < greatest"),
        ([[1.0, 1.0]], [1.0, 2.0], SHARE, r"numerator must have shape \[N\]"),
    ],
)
def test_ratios_that_cannot_be_are_refused(above: Any, below: Any, bounds: tuple[float, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate_pooled(above, below, ["a", "b"], unit="share", bounds=bounds)
    with pytest.raises(ValueError, match=r"inside \(0, 1\)"):
        estimate_pooled([1.0, 1.0], [1.0, 2.0], ["a", "b"], unit="share", confidence=0.0)


def test_pairs_of_empty_grids_do_not_count_and_the_order_does_not_change_a_byte() -> None:
    above, below = [0.3, 0.1, 0.2, 0.0, 0.7], [0.5, 0.5, 1.0, 0.0, 0.9]
    grids = ["a", "b", "a", "empty", "c"]
    found = estimate_pooled(above, below, grids, unit="share", bounds=SHARE)
    assert (found.n, found.clusters) == (4, 3) and found.value == pytest.approx(1.3 / 2.9)
    for order in ([4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        again = estimate_pooled(
            [above[i] for i in order], [below[i] for i in order], [grids[i] for i in order], unit="share", bounds=SHARE
        )
        assert repr(again) == repr(found)


def test_one_trial_has_an_exact_interval() -> None:
    assert exact_binomial(1, 1) == pytest.approx((0.025, 1.0)) and exact_binomial(0, 1) == pytest.approx((0.0, 0.975))


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (-1, 5), (6, 5)])
def test_shares_that_cannot_be_have_no_exact_interval(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="successes"):
        exact_binomial(successes, trials)
    with pytest.raises(ValueError, match=r"inside \(0, 1\)"):
        exact_binomial(1, 2, 1.0)


def grouped(values: list[float], unit: str = "share", differences: int | None = None, **more: Any) -> Estimate:
    grids = [f"g{index}" for index in range(len(values))]
    tags = {"differences": differences}
    rows = Rows.from_columns(measure="m", unit=unit, value=np.array(values), cluster=grids, tags=tags)
    (found,) = estimate_rows(rows, by=("measure",), **more)
    return found.estimate


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ([0.0, 1.0, 0.5, 0.0], (0.0, 1.0)),
        ([-0.25, 1.0, 0.5, 0.0], (-1.0, 1.0)),
        ([-1.0, 1.0, 0.5, 0.0], (-1.0, 1.0)),
        ([-1.25, 1.0, 0.5, 0.0], UNBOUNDED),
        ([0.0, 1.25, 0.5, math.nan], UNBOUNDED),
    ],
)
def test_bounds_of_shares_are_read_off_the_values(values: list[float], bounds: tuple[float, float]) -> None:
    grids = [f"g{index}" for index in range(len(values))]
    assert grouped(values) == estimate_mean(values, grids, unit="share", bounds=bounds)
    assert grouped(values, "bits") == estimate_mean(values, grids, unit="bits")
    wide = estimate_mean(values, grids, unit="share", bounds=(-9.0, 9.0), confidence=0.8)
    assert grouped(values, bounds={"m": (-9.0, 9.0)}, confidence=0.8) == wide


def test_given_bounds_stand_before_those_of_a_difference() -> None:
    assert grouped([0.5] * 4, differences=1).low == pytest.approx(0.5 * 0.025**0.25 - (1 - 0.025**0.25))
    assert grouped([0.5] * 4, differences=1, bounds={"m": (0.0, 1.0)}).low == pytest.approx(0.5 * 0.025**0.25)
    assert math.isnan(grouped([0.5] * 4, "bits", differences=1).low)


def test_a_group_without_values_is_undefined_and_counted() -> None:
    found = grouped([math.nan, math.nan])
    assert math.isnan(found.value) and (found.n, found.clusters, found.undefined) == (0, 0, 2)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0), (0.0, math.inf), (-math.inf, 1.0)])
def test_values_that_rounding_takes_beyond_a_bound_have_an_interval(bounds: tuple[float, float]) -> None:
    bound = next(one for one in bounds if math.isfinite(one))
    outwards = -1.0 if bound == bounds[0] else 1.0
    values = bound + outwards * 1e-10 * np.array([[1.0, -1.0, 0.5, 3.0], [1.0, 2.0, 3.0, 4.0]])
    for row in values:
        found = estimate_mean(row, range(4), unit="share", bounds=bounds)
        assert bounds[0] <= found.value <= bounds[1]
        if found.has_interval:
            assert bounds[0] <= found.low <= found.high <= bounds[1]
        same = estimate_mean(np.clip(row, *bounds), range(4), unit="share", bounds=bounds)
        assert str(found) == str(same)
        pooled = estimate_pooled(row * 3, np.full(4, 3.0), range(4), unit="share", bounds=bounds)
        assert bounds[0] <= pooled.value <= bounds[1]
