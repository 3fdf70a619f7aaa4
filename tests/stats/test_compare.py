"""Comparisons: hand-computed cases, second oracles, laws, edges (rounding, ties, refusals), unpaired conditions."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy import stats as scipy_stats

from families import examples
from goalscope._ground.rng import stream
from goalscope.stats import (
    PairedComparison,
    Sensitivity,
    equivalence,
    estimate_mean,
    paired_difference,
    sensitivity,
    signed_rank,
    unpaired_difference,
)
from goalscope.stats.compare import difference_ends
from goalscope.stats.intervals import mean_interval

SHARE = (0.0, 1.0)
small_differences = st.lists(st.sampled_from([-0.5, -0.25, 0.0, 0.25, 0.5, 0.75]), min_size=1, max_size=10)


def _paired(differences: list[float], bounds: tuple[float, float] = (-1.0, 1.0)) -> PairedComparison:
    grids = range(len(differences))
    return paired_difference(differences, grids, [0.0] * len(differences), grids, unit="bits", bounds=bounds)


def _literal_p(differences: list[float]) -> float:
    """Go through all sign patterns of the ranks."""
    kept = np.array([value for value in differences if value != 0])
    ranks = scipy_stats.rankdata(np.abs(kept))
    seen = abs(ranks[kept > 0].sum() - ranks.sum() / 2)
    sums = [np.dot(signs, ranks) for signs in itertools.product([0, 1], repeat=len(kept))]
    return float(np.mean(np.abs(np.array(sums) - ranks.sum() / 2) >= seen - 1e-9))


@settings(max_examples=examples(60), deadline=None)
@given(small_differences)
def test_exact_p_with_ties_and_zeros_is_the_count_of_all_sign_patterns(differences: list[float]) -> None:
    found = signed_rank(differences)
    assert found.p_value == pytest.approx(_literal_p(differences) if any(differences) else 1.0)
    assert found.nonzero == sum(value != 0 for value in differences)


@pytest.mark.parametrize("count", [6, 20, 45])
def test_agrees_with_scipy_without_ties(count: int) -> None:
    differences = np.random.default_rng(count).normal(0.3, 1, count)
    found = signed_rank(differences)
    oracle = scipy_stats.wilcoxon(differences, method="exact")
    assert found.p_value == pytest.approx(oracle.pvalue)
    assert min(found.positive, found.negative) == oracle.statistic
    assert found.method == "exact"


def test_many_pairs_use_the_normal_approximation_and_meet_the_exact_p() -> None:
    differences = np.random.default_rng(1).normal(0.12, 1, 301)
    many = signed_rank(differences)
    assert many.method == "normal approximation"
    exact = scipy_stats.wilcoxon(differences, method="exact").pvalue
    assert many.p_value == pytest.approx(exact, rel=0.02)
    tied = np.round(differences, 1)
    tied = tied[tied != 0]
    oracle = scipy_stats.wilcoxon(np.concatenate([tied, [0.1] * 20]), method="approx", correction=True)
    assert signed_rank(np.concatenate([tied, [0.1] * 20])).p_value == pytest.approx(oracle.pvalue, rel=1e-6)


def test_effect_has_a_sign_and_is_matched_pairs_rank_biserial() -> None:
    # Ranks 1, 2, 3, 4 of which 2 is negative: (8 - 2) / 10.
    assert signed_rank([1, -2, 3, 4]).effect == pytest.approx(0.6)
    assert signed_rank([-1, 2, -3, -4]).effect == pytest.approx(-0.6)
    assert signed_rank([0.1, 0.2]).effect == 1.0


@settings(max_examples=examples(60), deadline=None)
@given(small_differences)
def test_exchanging_the_conditions_turns_the_signs(differences: list[float]) -> None:
    forth, back = signed_rank(differences), signed_rank([-value for value in differences])
    assert forth.p_value == back.p_value
    assert (forth.positive, forth.negative) == (back.negative, back.positive)
    assert forth.effect == -back.effect or (math.isnan(forth.effect) and math.isnan(back.effect))


def test_differences_of_zero_are_not_ranked() -> None:
    few = signed_rank([0.0] * 20 + [0.5] * 5)
    assert few.p_value == pytest.approx(2 / 32) and few.note == ""
    none = signed_rank([0.0] * 20)
    assert (none.p_value, none.nonzero) == (1.0, 0)
    assert math.isnan(none.effect)
    assert "no non-zero difference" in none.note


def test_grids_without_partner_are_named_and_means_are_taken_within_grids() -> None:
    found = paired_difference(
        [1, 0, 1, 1, math.nan], ["x", "x", "y", "only a", "z"], [0, 0.5, 1], ["x", "y", "z"], unit="share", bounds=SHARE
    )
    assert found.labels == ("x", "y")
    assert found.differences.tolist() == [0.5, 0.5]
    assert (found.unpaired_a, found.unpaired_b, found.undefined) == (("only a",), ("z",), 1)
    assert found.difference.value == 0.5
    with pytest.raises(ValueError, match="read-only"):
        found.differences[0] = 1


def test_no_common_grid_is_undefined_not_missing() -> None:
    found = paired_difference([1.0], ["a"], [1.0], ["b"], unit="share", bounds=SHARE)
    assert math.isnan(found.difference.value)
    assert not equivalence(found, 0.1).equivalent
    assert "no cluster" in found.difference.note


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from([-0.2, -0.1, 0.0, 0.1, 0.3, 0.4]), min_size=6, max_size=30))
def test_each_end_is_the_wider_of_t_and_of_the_interval_of_a_mean(values: list[float]) -> None:
    if len(set(values)) == 1 or abs(scipy_stats.skew(values)) > math.sqrt(len(values)) / 6:
        return  # there the cubic turns: the next test
    grids = range(len(values))
    halves = [0.5] * len(values)
    found = paired_difference(np.array(values) + 0.5, grids, halves, grids, unit="share", bounds=SHARE).difference
    score = estimate_mean(values, grids, unit="share", bounds=(-1, 1))
    plain = scipy_stats.t.interval(0.95, len(values) - 1, np.mean(values), scipy_stats.sem(values))
    assert found.low == pytest.approx(max(-1.0, min(score.low, plain[0])))
    assert found.high == pytest.approx(min(1.0, max(score.high, plain[1])))
    assert found.method.startswith("wider of t and skewness-corrected score t")


def test_one_outlying_grid_does_not_blow_up_the_interval() -> None:
    values = [-0.5] * 5 + [-0.25] * 5 + [0.0, 0.5]
    found = _paired(values).difference
    plain = scipy_stats.t.interval(0.95, 11, np.mean(values), scipy_stats.sem(values))
    # Hall's cubic solved beyond its turn would end at .495, ten standard errors away.
    assert estimate_mean(values, range(12), unit="bits", bounds=(-1, 1)).high > 0.49
    assert plain[1] < found.high < 0.3
    mirrored = _paired([-value for value in values]).difference
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low))


@pytest.mark.parametrize("margin", [0.0, -0.1, math.nan, math.inf])
def test_a_margin_that_means_nothing_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match=r"margin.*finite"):
        equivalence(_paired([0.1, 0.2, 0.0]), margin)


@pytest.mark.parametrize("margin", [1.0, 5])
def test_a_margin_that_no_difference_can_exceed_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match=r"margin must be below .*\(1\)"):
        equivalence(_paired([1.0, 0.9, 1.0], SHARE), margin)
    assert equivalence(_paired([1.0, 0.9, 1.0], (-math.inf, math.inf)), margin).margin == margin


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"values_b .*\[0, 1\]"):
        paired_difference([0.5], ["a"], [1.5], ["a"], unit="share", bounds=SHARE)
    with pytest.raises(ValueError, match="clusters_a"):
        paired_difference([0.5], ["a", "b"], [1.0], ["a"], unit="share")
    with pytest.raises(ValueError, match="differences"):
        signed_rank([0.1, math.nan])
    with pytest.raises(ValueError, match=r"inside \(0, 0.5\)"):
        equivalence(_paired([0.1, 0.2]), 0.1, level=0.5)


def test_the_direction_is_that_of_the_mean_and_ranks_decide_nothing_on_it() -> None:
    grids = [f"grid {number}" for number in range(30)]
    base = np.full(30, 0.95)
    few_fail = base + 0.02
    few_fail[0] = 0.0  # better on 29 grids, worse in the mean
    found = {
        name: paired_difference(values, grids, base, grids, unit="share", bounds=(0, 1))
        for name, values in {"more": base + 0.02, "less": base - 0.02, "split": few_fail}.items()
    }
    assert (found["more"].direction, found["less"].direction) == ("higher", "lower")
    split = found["split"]
    assert split.test.p_value < 1e-4 and split.test.effect > 0 > split.difference.value
    assert split.direction == "lower" and split.p_value > 0.05


def paired(differences: list[float], bounds: tuple[float, float] = (-1.0, 1.0)) -> PairedComparison:
    grids = range(len(differences))
    return paired_difference(differences, grids, [0.0] * len(differences), grids, unit="bits", bounds=bounds)


def test_means_that_differ_by_rounding_alone_are_equal() -> None:
    assert (0.1 + 0.2) / 2 != 0.15
    found = paired_difference([0.1, 0.2, 0.5], ["x", "x", "y"], [0.15, 0.15, 0.25], ["x", "x", "y"], unit="share")
    assert found.differences.tolist() == [0.0, 0.25] and found.test.nonzero == 1


def test_exact_p_of_ranks_with_a_tie_by_hand() -> None:
    """Ranks 1, 2, 3.5, 3.5: a positive sum of 3 or less has 4 of 16 sign patterns, one of 3.5 or less has 6."""
    assert signed_rank([1.0, 2.0, -3.0, -3.0]).p_value == 0.5
    assert signed_rank([-1.0, -2.0, 3.0, 3.0]).p_value == 0.5
    assert signed_rank([-1.0, -2.0, -3.0, 3.0]).p_value == 0.75


@pytest.mark.parametrize(("values", "bounds"), [([-0.5, 0.5], SHARE), ([0.5, 1.5], SHARE), ([0.5, math.inf], SHARE)])
def test_values_on_either_side_of_the_bounds_are_refused(values: list[float], bounds: tuple[float, float]) -> None:
    for sides, name in (((values, [0.5, 0.5]), "a"), (([0.5, 0.5], values), "b")):
        with pytest.raises(ValueError, match=rf"values_{name} .*\[0, 1\]"):
            paired_difference(sides[0], ["x", "y"], sides[1], ["x", "y"], unit="share", bounds=bounds)


def test_infinite_values_are_refused_where_nothing_bounds_them_and_undefined_ones_are_left_out() -> None:
    with pytest.raises(ValueError, match="values_b"):
        paired_difference([0.5, 0.5], ["x", "y"], [0.5, math.inf], ["x", "y"], unit="bits")
    nothing = paired_difference([math.nan], ["x"], [0.5], ["x"], unit="share", bounds=SHARE)
    assert nothing.labels == () and nothing.unpaired_b == ("x",) and nothing.undefined == 1
    assert math.isnan(nothing.difference.value) and nothing.counts == (0, 0)


@pytest.mark.parametrize("scale", [1.0, 1e7])
def test_sizes_that_differ_by_rounding_alone_share_a_rank(scale: float) -> None:
    found = signed_rank([scale * (0.1 + 0.2), -scale * 0.3, 2 * scale])
    assert (found.positive, found.negative) == (4.5, 1.5) and found.effect == pytest.approx(0.5)
    apart = signed_rank([scale * 0.3001, -scale * 0.3, 2 * scale])
    assert (apart.positive, apart.negative) == (5.0, 1.0)


def test_three_hundred_differences_are_counted_out_and_one_more_is_approximated() -> None:
    differences = np.random.default_rng(8).normal(0.1, 1, 301)
    exact, approximate = signed_rank(differences[:300]), signed_rank(differences)
    assert (exact.method, approximate.method) == ("exact", "normal approximation")
    assert exact.p_value == pytest.approx(scipy_stats.wilcoxon(differences[:300], method="exact").pvalue)
    balanced = signed_rank([sign * size for size in range(1, 152) for sign in (1, -1)])
    assert (balanced.p_value, balanced.effect, balanced.method) == (1.0, 0.0, "normal approximation")


def test_values_of_grids_without_partner_are_not_counted() -> None:
    found = paired_difference(
        [1, 0, 1, 1, math.nan], ["x", "x", "y", "only a", "y"], [0, 0.5, 1], ["x", "y", "z"], unit="share", bounds=SHARE
    )
    assert found.counts == (3, 2) and found.undefined == 1
    assert found.bounds == (-1.0, 1.0)
    assert paired([0.1, 0.2], (-1.0, 3.0)).bounds == (-4.0, 4.0)


def found(a: list[list[float]], b: list[list[float]], **more: object) -> Sensitivity:
    sides = [([v for grid in side for v in grid], [g for g, grid in enumerate(side) for _ in grid]) for side in (a, b)]
    settings: dict[str, object] = {"unit": "share", "bounds": SHARE, "rng": stream(0, "test"), **more}
    return sensitivity(sides[0][0], sides[0][1], sides[1][0], sides[1][1], **settings)  # type: ignore[arg-type]


def test_exchanges_of_two_values_that_are_not_zero_and_one() -> None:
    """By hand: 2 + 3 values, two of the five high; dealt two and three, 1 of 10 deals puts both on the first side."""
    one = found([[0.75, 0.75]], [[0.25, 0.25, 0.25]], draws=20_000)
    assert one.p_value == pytest.approx(0.1, abs=4 * math.sqrt(0.09 / 20_000))
    same = found([[1.0, 1.0]], [[0.0, 0.0, 0.0]], draws=20_000)
    assert same.p_value == one.p_value


def test_sensitivity_is_the_root_of_its_square_at_both_ends() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.random((12, 4)) * width + shift for width, shift in ((0.3, 0.6), (0.3, 0.0)))
    seen = found(a.tolist(), b.tolist(), confidence=0.8)
    literal = [(x.mean() - y.mean()) ** 2 - (x.var(ddof=1) + y.var(ddof=1)) / 4 for x, y in zip(a, b, strict=True)]
    assert seen.square.value == pytest.approx(np.mean(literal)) and seen.square.unit == "share²"
    assert (seen.low, seen.value, seen.high) == pytest.approx(
        tuple(math.sqrt(end) for end in (seen.square.low, seen.square.value, seen.square.high))
    )
    assert seen.square.confidence == 0.8 and seen.method == "1999 random exchanges within 12 clusters"
    assert seen.p_value == 1 / 2000 and seen.note == ""


def test_the_greatest_sensitivity_is_the_width_of_the_bounds() -> None:
    most = found([[1.0, 1.0]] * 6, [[0.0, 0.0]] * 6)
    assert most.value == most.high == 1.0 and 0 < most.low < 1
    wide = found([[3.0, 3.0]] * 6, [[-1.0, -1.0]] * 6, bounds=(-1.0, 3.0))
    assert wide.value == wide.high == 4.0 and wide.low == pytest.approx(4 * most.low)
    assert math.isnan(found([[1.0, 1.0]] * 6, [[0.0, 0.0]] * 6, bounds=(0.0, math.inf)).low)


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
