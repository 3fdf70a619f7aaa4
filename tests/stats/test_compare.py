"""Paired comparisons: hand-computed cases, scipy as second oracle, laws."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from families import examples
from goalscope.stats import PairedComparison, equivalence, estimate_mean, paired_difference, signed_rank

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


def test_too_few_non_zero_differences_are_said() -> None:
    few = signed_rank([0.0] * 20 + [0.5] * 5)
    assert few.p_value == pytest.approx(2 / 32)
    assert "only 5 non-zero differences" in few.note
    assert signed_rank([0.5] * 6).note == ""
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
    assert "without partner in b: only a" in str(found)
    assert "without partner in a: z" in str(found)
    with pytest.raises(ValueError, match="read-only"):
        found.differences[0] = 1


def test_no_common_grid_is_undefined_not_missing() -> None:
    found = paired_difference([1.0], ["a"], [1.0], ["b"], unit="share", bounds=SHARE)
    assert math.isnan(found.difference.value)
    assert not equivalence(found, 0.1).equivalent
    assert "no cluster" in str(found)


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
