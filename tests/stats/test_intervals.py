"""Intervals: method and notes beside the ends, and coverage: a quick look in every run, all of it in the full run."""

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goalscope._ground.rng import stream
from goalscope.stats import UNBOUNDED, Family, holm, signed_rank
from goalscope.stats.intervals import mean_interval

SHARE = (0.0, 1.0)
SPAN = (-1.0, 1.0)


def rare(count: int) -> str:
    return f"few clusters: misses with chance {0.9**count:.2g} or more where a tenth of all lie far from the others"


def even(count: int) -> list[float]:
    """Different values at equal steps: no skewness."""
    return [float(value) for value in range(count)]


def note(values: list[float], bounds: tuple[float, float] = UNBOUNDED, *, differences: bool = False) -> str:
    return mean_interval(np.array(values), bounds=bounds, confidence=0.95, differences=differences).note


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (even(9), rare(9)),
        (even(10), ""),
        ([*even(11), 14.0], ""),  # hardly skewed
        ([*[0.0, 0.1] * 9, 9.0], rare(19)),
        ([*[0.0, -0.1] * 9, -9.0], rare(19)),
        ([*[0.0, 0.1] * 9, 9.0, 0.0], ""),  # 20 grids are enough
        ([0.0] * 6 + [-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], rare(12)),  # half are equal
        ([0.0] * 5 + [-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], ""),
    ],
)
def test_notes_where_no_bound_shapes_the_spread(values: list[float], said: str) -> None:
    assert note(values) == said
    assert note(values, (-1e6, 1e6)) == said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.1, 0.4, 0.6, 0.9], "fewer than 5 clusters: covers more than nominal"),
        ([0.1, 0.4, 0.5, 0.6, 0.9], ""),
        ([0.5, 0.25] + [0.0] * 18, "few clusters, mean near a bound: covers 0.90-0.99"),
        ([0.5, 0.625] + [0.0] * 18, "few clusters, nearly all or nothing: may cover more than nominal"),
        ([0.25] * 3 + [0.0] * 36, "few clusters, mean near a bound: covers 0.90-0.99"),
        ([0.25] * 3 + [0.0] * 37, ""),
        ([0.0, 1.0] * 19 + [0.5], "few clusters, nearly all or nothing: may cover more than nominal"),
        ([0.0, 1.0] * 20, ""),
        ([0.0, 0.75] * 10, "few clusters, nearly all or nothing: may cover more than nominal"),
        ([0.1, 0.9] * 10, "few clusters, nearly all or nothing: may cover more than nominal"),
        ([0.2, 0.8] * 10, ""),  # .36 of the greatest variance
    ],
)
def test_notes_of_shares(values: list[float], said: str) -> None:
    assert note(values, SHARE) == said
    assert note([1 - value for value in values], SHARE) == said


def test_a_mean_is_near_a_bound_up_to_a_distance_of_one_grid() -> None:
    assert note([0.5, 0.5] + [0.0] * 18, SHARE) == "few clusters, mean near a bound: covers 0.90-0.99"


@pytest.mark.parametrize(
    ("grids", "said"),
    [
        (9, rare(9)),
        (10, rare(10)),
        (29, rare(29)),
        (30, ""),
    ],
)
def test_notes_of_differences(grids: int, said: str) -> None:
    assert note(even(grids), differences=True) == said


@pytest.mark.parametrize("bounds", [(0.0, math.inf), (-math.inf, 9.0), UNBOUNDED])
def test_agreement_needs_both_bounds(bounds: tuple[float, float]) -> None:
    found = mean_interval(np.full(10, 3.0), bounds=bounds, confidence=0.95)
    assert math.isnan(found.low) and math.isnan(found.high) and found.method == "none"
    assert found.note == "all clusters have one value and the measure no finite bounds: undefined interval"


def test_agreement_at_and_inside_a_bound_are_named_apart() -> None:
    methods = [mean_interval(np.full(5, v), bounds=SHARE, confidence=0.95).method for v in (0.0, 0.4, 1.0)]
    assert methods == ["exact binomial", "exact bound of agreement", "exact binomial"]


def test_the_method_names_the_exact_end_where_it_decides() -> None:
    single = np.array([0.25] + [0.0] * 19)
    found = mean_interval(single, bounds=SHARE, confidence=0.95)
    assert found.method == "skewness-corrected score t within exact binomial"
    assert found.high == pytest.approx(scipy_stats.binomtest(1, 20).proportion_ci(0.95).high)
    mirrored = mean_interval(1 - single, bounds=SHARE, confidence=0.95)
    assert mirrored.method == found.method and mirrored.low == pytest.approx(1 - found.high)
    wide = mean_interval(np.array([0.1, 0.4, 0.5, 0.6, 0.9]), bounds=SHARE, confidence=0.95)
    assert wide.method == "skewness-corrected score t"


@pytest.mark.parametrize("grids", [12, 30])
def test_differences_stay_within_the_exact_binomial_ends_and_say_so(grids: int) -> None:
    """All grids but one lie at the least difference, so the mean is at most -1 + 2 P(another one)."""
    values = np.full(grids, -1.0)
    values[0] = 0.9
    found = mean_interval(values, bounds=SPAN, confidence=0.95, differences=True)
    plain = scipy_stats.t.interval(0.95, grids - 1, values.mean(), scipy_stats.sem(values))
    ends = [end for count in (1, grids - 1) for end in [scipy_stats.binomtest(count, grids).proportion_ci(0.95)]]
    assert found.method == "wider of t and skewness-corrected score t, within exact binomial"
    assert found.low == -1.0 and plain[1] < found.high == pytest.approx(-1 + 2 * ends[0].high)
    mirrored = mean_interval(-values, bounds=SPAN, confidence=0.95, differences=True)
    assert mirrored.low == pytest.approx(-1 + 2 * ends[1].low)
    assert mirrored.high == 1.0 and mirrored.method == found.method
    inside = mean_interval(values / 2, bounds=SPAN, confidence=0.95, differences=True)
    assert inside.method == "wider of t and skewness-corrected score t"


_BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "coverage.py"


@pytest.fixture(scope="module")
def simulate() -> dict[str, Any]:
    """Return the names of the script that prints the table, so that test and table cannot differ."""
    return runpy.run_path(str(_BENCHMARK))


def _slack(repeats: int, share: float = 0.95) -> float:
    """Four standard errors: a sound cell fails by chance less than once in 10,000."""
    return 4 * float(np.sqrt(share * (1 - share) / repeats))


@pytest.mark.parametrize("grids", [10, 30, 300])
@pytest.mark.parametrize("mean", [0.5, 0.8, 0.95])
def test_shares_of_moderate_spread_cover(simulate: dict[str, Any], mean: float, grids: int) -> None:
    repeats = 300
    found = simulate["share_coverage"](mean, 0.2, grids, repeats)
    assert 0.93 - _slack(repeats, 0.93) <= found <= 0.97 + _slack(repeats, 0.97)


def test_percentile_bootstrap_over_ten_grids_does_not_cover(simulate: dict[str, Any]) -> None:
    repeats = 1000
    assert simulate["percentile_coverage"](0.5, 0.2, 10, repeats) < 0.93
    assert simulate["percentile_coverage"](0.8, 0.2, 10, repeats) < 0.93


def test_the_script_counts_an_interval_that_misses(simulate: dict[str, Any]) -> None:
    assert not simulate["covers"](0.2, 0.4, 0.5)
    assert simulate["covers"](0.2, 0.4, 0.4)
    never = simulate["coverage"](lambda rng, count: rng.normal(5, 1, count), 0.0, (-np.inf, np.inf), 10, 50, "never")
    assert never == 0.0


@pytest.mark.parametrize("grids", [30, 100])
@pytest.mark.parametrize("name", ["both succeed in .95", "one fails on a twentieth of all grids, else both succeed"])
def test_differences_on_few_grids_are_covered(simulate: dict[str, Any], name: str, grids: int) -> None:
    """One trajectory a grid: the interval of a single mean covers .90 of the first, plain t .89 of the second."""
    assert simulate["paired_coverage"](name, 1, grids, 500)[0] >= 0.93 - _slack(500, 0.93) / 2


_CONSERVATIVE = {"U-shaped .5", "U-shaped .8", "0 or 1"}


@pytest.mark.full
@pytest.mark.parametrize("grids", [10, 30, 100, 300])
@pytest.mark.parametrize("mean", [0.5, 0.8, 0.95])
def test_coverage_table(simulate: dict[str, Any], mean: float, grids: int) -> None:
    """Every cell reaches .93; it exceeds .97 only where the documentation says so."""
    repeats = 2000
    for name, spread in simulate["SPREADS"].items():
        found = simulate["share_coverage"](mean, spread, grids, repeats)
        assert found >= 0.93 - _slack(repeats, 0.93), name
        if name not in _CONSERVATIVE:
            assert found <= 0.97 + _slack(repeats, 0.97), name


@pytest.mark.full
@pytest.mark.parametrize("grids", [10, 30, 300])
@pytest.mark.parametrize("mean", [0.5, 0.8, 0.95])
def test_pooled_ratios_cover(simulate: dict[str, Any], mean: float, grids: int) -> None:
    repeats = 2000
    found = simulate["pooled_coverage"](mean, grids, repeats)
    assert 0.93 - _slack(repeats, 0.93) <= found <= 0.97 + _slack(repeats, 0.97)


@pytest.mark.full
@pytest.mark.parametrize("grids", [30, 100, 300])
@pytest.mark.parametrize("trajectories", [1, 10])
def test_paired_differences_cover(simulate: dict[str, Any], trajectories: int, grids: int) -> None:
    repeats = 1000
    for name in simulate["PAIRED"]:
        assert simulate["paired_coverage"](name, trajectories, grids, repeats)[0] >= 0.93 - _slack(repeats, 0.93), name


@pytest.mark.full
def test_holm_holds_the_family_wise_level() -> None:
    repeats, members, rng = 2000, ("a", "b", "c", "d"), stream(0, "family-wise")
    family = Family(name="nulls", members=members)
    wrong = 0
    for _ in range(repeats):
        p_values = {name: signed_rank(rng.normal(size=15)).p_value for name in members}
        wrong += any(test.rejected for test in holm(p_values, family))
    assert wrong / repeats <= 0.05 + _slack(repeats)
