"""Comparisons at their edges: rounding, ties, the two sizes of test, what the text says, what is refused."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goalscope._ground.rng import stream
from goalscope.stats import PairedComparison, Sensitivity, paired_difference, sensitivity, signed_rank

SHARE = (0.0, 1.0)


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


def test_too_few_depends_on_the_level() -> None:
    assert signed_rank([0.5] * 5).note == "only 5 non-zero differences: the smallest possible p is 0.0625"
    assert signed_rank([0.5] * 5, level=0.0625).note == "" and "only 7" in signed_rank([0.5] * 7, level=0.01).note
    assert signed_rank([-0.5]).note.startswith("only 1 non-zero difference:")


def test_values_of_grids_without_partner_are_not_counted() -> None:
    found = paired_difference(
        [1, 0, 1, 1, math.nan], ["x", "x", "y", "only a", "y"], [0, 0.5, 1], ["x", "y", "z"], unit="share", bounds=SHARE
    )
    assert found.counts == (3, 2) and found.undefined == 1
    assert found.bounds == (-1.0, 1.0)
    assert paired([0.1, 0.2], (-1.0, 3.0)).bounds == (-4.0, 4.0)


def test_the_line_of_a_comparison_says_test_effect_and_notes() -> None:
    line = str(paired([0.5, -0.25, 0.0, 0.75]))
    # Ranks of .25, .5, .75: 1, 2, 3; positive 5, negative 1; three differences cannot be fewer than p = .25.
    assert "signed-rank p = 0.5 (exact, effect +0.67, 3 of 4 differences non-zero)" in line
    assert "only 3 non-zero differences: the smallest possible p is 0.25" in line
    assert "effect undefined, 0 of 2 differences non-zero" in str(paired([0.0, 0.0]))
    assert "effect -1.00" in str(paired([-0.5, -0.25]))


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
