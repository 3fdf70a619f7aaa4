"""Equivalence and the word on a mean: exact oracles, and how often each is wrong where the truth is known."""

import math
import runpy
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats as scipy_stats

from goalscope._ground.rng import stream
from goalscope.stats import PairedComparison, equivalence, paired_difference
from goalscope.stats.compare import clusters_needed, least_p

FREE = (-math.inf, math.inf)


def paired(differences: npt.ArrayLike, bounds: tuple[float, float] = (0.0, 1.0)) -> PairedComparison:
    values = np.asarray(differences, dtype=np.float64)
    first, second = np.maximum(values, 0), np.maximum(-values, 0)
    return paired_difference(first, range(len(values)), second, range(len(values)), unit="share", bounds=bounds)


@pytest.mark.parametrize(("failing", "grids", "margin"), [(0, 30, 0.1), (1, 30, 0.1), (3, 60, 0.1), (10, 100, 0.2)])
def test_where_grids_agree_or_fail_wholly_it_is_the_exact_binomial_test(
    failing: int, grids: int, margin: float
) -> None:
    for side in (1.0, -1.0):
        found = equivalence(paired([side] * failing + [0.0] * (grids - failing)), margin)
        assert found.p_value == pytest.approx(scipy_stats.binom.cdf(failing, grids, margin), rel=1e-6)
        assert found.equivalent is (found.p_value <= 0.05)


@pytest.mark.parametrize("grids", [3, 12, 60])
def test_p_is_the_chance_of_random_weights_with_the_greatest_difference_as_one_more_grid(grids: int) -> None:
    rng = stream(grids, "random weights")
    differences, draws = rng.normal(0.02, 0.2, grids).clip(-1, 1), 40_000
    weights = rng.dirichlet(np.ones(grids + 1), draws)
    sides = [float(np.mean(weights @ np.append(side * differences, 1.0) >= 0.1)) for side in (1, -1)]
    error = 4 * math.sqrt(max(sides) * (1 - max(sides)) / draws)
    assert equivalence(paired(differences), 0.1).p_value == pytest.approx(max(sides), abs=error)


def test_no_data_of_so_few_grids_show_equality_and_their_number_is_said() -> None:
    assert [clusters_needed(margin, 1.0, 0.05) for margin in (0.05, 0.1, 0.2)] == [59, 29, 14]
    for noise in (0.0, 1e-9, 0.01):
        differences = stream(0, "noise").normal(0, noise, 28) if noise else np.zeros(28)
        found = equivalence(paired(differences), 0.1)
        assert not found.equivalent and "28 clusters cannot show equality within 0.1: at least 29" in found.note
        assert found.p_value >= 0.9**28 * (1 - 1e-6)
    assert equivalence(paired(np.zeros(29)), 0.1).equivalent and equivalence(paired(np.zeros(29)), 0.1).note == ""
    assert not equivalence(paired(np.zeros(29)), 0.1, level=0.01).equivalent


def test_without_bounds_the_greatest_difference_is_assumed_and_said() -> None:
    found = equivalence(paired(np.zeros(30), FREE), 0.5)
    assert found.equivalent and found.p_value == pytest.approx(0.9**30, rel=1e-6)
    assert "no cluster differs by more than 5" in found.note
    outlier = equivalence(paired([0.0] * 199 + [8.0], FREE), 0.5)
    assert "no cluster differs by more than 8" in outlier.note
    assert outlier.p_value == pytest.approx(scipy_stats.binom.cdf(1, 200, 1 / 16), rel=1e-4)


def test_differences_beyond_the_margin_and_many_grids() -> None:
    assert equivalence(paired([0.3, 0.4, 0.5, 0.6] * 3), 0.1).p_value > 0.99
    assert math.isnan(equivalence(paired([0.5]), 0.4).p_value) and "one cluster" in equivalence(paired([0.5]), 0.4).note
    certain = equivalence(paired([-1e-6, 1e-6] * 600), 0.5)
    assert certain.equivalent and certain.p_value < 1e-12 and certain.note == ""


def test_a_mean_is_decided_by_its_interval_at_every_level() -> None:
    found = paired(stream(3, "differences").normal(0.1, 0.2, 25).clip(-1, 1))
    for factor, leaves_out in ((0.99, False), (1.01, True)):
        level = found.p_value * factor
        again = paired_difference(
            np.maximum(found.differences, 0),
            range(25),
            np.maximum(-found.differences, 0),
            range(25),
            unit="share",
            bounds=(0, 1),
            confidence=1 - level,
        ).difference
        assert (again.low > 0 or again.high < 0) is leaves_out
    assert paired(np.zeros(30)).p_value == 1.0 and math.isnan(paired([0.5]).p_value)
    assert paired([0.50, 0.51, 0.49, 0.50, 0.505]).p_value == least_p(5) == 1 / 16
    assert paired(np.ones(12)).p_value == pytest.approx(2.0**-11, rel=1e-6)  # the exact bound of agreement says so too


_SIMULATE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "decisions.py"))
AT_MARGIN, NO_DIFFERENCE = _SIMULATE["AT_MARGIN"], _SIMULATE["NO_DIFFERENCE"]
false_equivalence, false_words = _SIMULATE["false_equivalence"], _SIMULATE["false_words"]


def most(studies: int, level: float) -> float:
    """The 99.9 % point of the share of false answers at the level."""
    return float(scipy_stats.binom.ppf(0.999, studies, level)) / studies


@pytest.mark.parametrize("shape", AT_MARGIN)
def test_equality_is_rarely_shown_at_the_margin(shape: str) -> None:
    for grids in (8, 30):
        assert false_equivalence(shape, grids, 0.1, 0.05, 300) <= most(300, 0.05)


@pytest.mark.full
@pytest.mark.parametrize("shape", AT_MARGIN)
@pytest.mark.parametrize("margin", [0.05, 0.1, 0.2])
def test_equality_is_shown_at_the_margin_at_most_at_the_level(shape: str, margin: float) -> None:
    for level in (0.05, 0.00625):
        needed = clusters_needed(margin, 1.0, level)
        for grids in sorted({8, 12, 16, 20, 30, 40, 60, 100, needed, needed + 10, 2 * needed}):
            rate = false_equivalence(shape, grids, margin, level, 2000)
            assert rate <= most(2000, level), (grids, level)
            assert grids >= needed or rate == 0


def test_skew_misleads_the_signed_rank_test_and_not_the_mean() -> None:
    mean, ranks = false_words("a tenth lower by 1, the others higher by a ninth", 60, 0.05, 150)
    assert mean <= most(150, 0.05) and ranks > 0.9


@pytest.mark.full
@pytest.mark.parametrize("shape", NO_DIFFERENCE)
def test_words_on_a_mean_hold_their_level_from_thirty_grids_on(shape: str) -> None:
    for grids in (30, 60, 100):
        mean, ranks = false_words(shape, grids, 0.05, 1000)
        assert mean <= most(1000, 0.06), grids
        assert ranks > 0.2 or not shape.startswith(("a tenth", "beta")), grids
    # With fewer the note says how often a tenth of all grids is not among them.
    few = paired(NO_DIFFERENCE[shape](stream(1, shape), 8))
    assert "misses with chance 0.43 or more" in few.difference.note
