"""What an interval says beside its ends: its method, and its notes on either side of the counts where they change."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goalscope.stats import UNBOUNDED
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
