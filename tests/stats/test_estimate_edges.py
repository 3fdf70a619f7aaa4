"""Estimates at their edges: what record and text hold, what ratios refuse, where groups have no bounds."""

import math
from typing import Any

import numpy as np
import pytest

from goalscope.stats import UNBOUNDED, Estimate, estimate_mean, estimate_pooled, estimate_rows, exact_binomial
from goalscope.stats.estimate import factorize
from goalscope.stats.rows import Rows

SHARE = (0.0, 1.0)


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
