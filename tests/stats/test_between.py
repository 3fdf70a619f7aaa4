"""The spread between conditions: noise taken out, intervals beside simulation, edges in words."""

import math

import numpy as np
import pytest
from scipy.stats import f as central
from scipy.stats import ncf

from goalscope.rng import stream
from goalscope.stats import Estimate, spread_between
from goalscope.stats.between import _noncentrality


def crossed(table: np.ndarray, confidence: float = 0.95) -> Estimate:
    grids, kinds = table.shape
    return spread_between(
        table.reshape(-1),
        np.repeat(np.arange(grids), kinds),
        np.tile(np.arange(kinds), grids),
        unit="share",
        bounds=(0.0, 1.0),
        confidence=confidence,
    )


@pytest.mark.parametrize("spread", [0.0, 0.06, 0.15])
def test_the_spread_is_found_without_the_noise_of_the_grids(spread: float) -> None:
    rng, shift = stream(1, "between", str(spread)), np.array([-1, 1, -1, 1, -1, 1, -1, 1])
    shift = shift * spread / np.std(shift, ddof=1)
    table = 0.5 + shift + rng.normal(0, 0.05, (4000, 1)) + rng.uniform(-0.12, 0.12, (4000, 8))
    found = crossed(np.clip(table, 0, 1))
    assert found.low <= spread <= found.high and found.high - found.low < 0.01
    assert found.value == pytest.approx(spread, abs=0.004)
    assert (found.clusters, found.n) == (4000, 32000)


def test_intervals_cover_the_spread_of_shares_of_few_turns() -> None:
    """Accuracies of eight wordings over 16 grids: shares of 4 to 12 turns, as those of episodes are."""
    rng, count = stream(2, "coverage"), 200
    for chances in (np.full(8, 0.8), np.tile([0.9, 0.6], 4), np.full(8, 0.97)):
        truth, missed, above = float(np.std(chances, ddof=1)), 0, 0
        for _ in range(count):
            turns = rng.integers(4, 13, (16, 1))
            found = crossed(rng.binomial(turns, np.broadcast_to(chances, (16, 8))) / turns)
            missed += not found.low <= truth <= found.high
            above += found.low > truth
        assert missed <= 0.05 * count + 4 * math.sqrt(0.05 * 0.95 * count)
        assert above <= 0.025 * count + 4 * math.sqrt(0.025 * 0.975 * count)


@pytest.mark.parametrize("ratio", [2.5, 5.0, 30.0])
def test_the_noncentrality_is_where_the_distribution_function_takes_the_chance(ratio: float) -> None:
    for chance in (0.975, 0.025):
        found = _noncentrality(ratio, 12, 8, chance)
        if found == 0.0:
            assert central.cdf(ratio, 7, 77) <= chance
        else:
            assert ncf.cdf(ratio, 7, 77, found) == pytest.approx(chance, abs=1e-6)


def test_a_noncentral_ratio_of_simulated_squares_lies_below_as_often_as_said() -> None:
    rng, ratio, count = stream(4, "squares"), 4.0, 40000
    at = _noncentrality(ratio, 12, 8, 0.3)
    simulated = (rng.noncentral_chisquare(7, at, count) / 7) / (rng.chisquare(77, count) / 77)
    assert np.mean(simulated <= ratio) == pytest.approx(0.3, abs=0.01)


def test_grids_that_all_agree_leave_what_the_others_may_do() -> None:
    found = crossed(np.full((20, 8), 1.0), 0.96)
    agreeing = 0.02 ** (1 / 20)
    assert found.low == found.value == 0.0
    assert found.high == pytest.approx((1 - agreeing) * 0.5 * math.sqrt(8 / 7))
    shifted = crossed(np.tile([0.2, 0.6], (20, 2)))
    assert shifted.low < np.std([0.2, 0.6, 0.2, 0.6], ddof=1) == pytest.approx(shifted.value) and (
        shifted.value < shifted.high
    )


def test_the_order_of_values_changes_nothing_and_grids_that_lack_a_condition_are_left_out() -> None:
    rng = stream(5, "order")
    table = rng.uniform(0, 1, (9, 4))
    table[3, 2] = np.nan
    whole, values = crossed(table), table.reshape(-1)
    assert (whole.clusters, whole.without, whole.undefined) == (8, 1, 1)
    order = rng.permutation(len(values))
    again = spread_between(
        values[order],
        np.repeat(np.arange(9), 4)[order],
        np.tile(np.arange(4), 9)[order],
        unit="share",
        bounds=(0.0, 1.0),
    )
    assert again.value == pytest.approx(whole.value) and again.high == pytest.approx(whole.high)


def test_one_grid_or_one_condition_has_no_interval_and_wrong_values_are_refused() -> None:
    assert not crossed(np.array([[0.2, 0.4]])).has_interval
    assert not crossed(np.array([[0.2], [0.4]])).has_interval
    with pytest.raises(ValueError, match="bounds"):
        crossed(np.array([[0.2, 1.4], [0.1, 0.2]]))
    with pytest.raises(ValueError, match="equally long"):
        spread_between([0.1], [1, 2], [1], unit="share", bounds=(0.0, 1.0))
