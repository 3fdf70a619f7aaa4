"""Intervals and p values of MEG from resamples and from random agents: by hand and by the formulas of their source."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goalscope._ground.folder import Spill
from goalscope._ground.rng import stream
from goalscope.goals.curves import (
    HALVES,
    RESAMPLES,
    interval,
    not_below_random,
    p_value,
    random_p,
    weigh,
    with_random,
)

NULL = np.array([-0.4, -0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(("value", "p"), [(0.5, 0.1), (-0.5, 0.1), (0.4, 0.3), (-0.35, 0.3), (0.0, 1.0)])
def test_random_agents_are_counted_by_size_and_the_agent_is_one_of_them(value: float, p: float) -> None:
    assert random_p(value, NULL) == pytest.approx(p)


def test_an_agent_that_random_ones_match_has_their_spread_in_its_interval() -> None:
    # p is .3 with nine random agents: not rejected at .95, rejected at .6.
    assert with_random((0.3, 0.5), 0.4, NULL, 0.95) == pytest.approx((float(np.quantile(NULL, 0.025)), 0.5))
    assert with_random((-0.5, -0.3), -0.4, NULL, 0.95) == pytest.approx((-0.5, float(np.quantile(NULL, 0.975))))
    assert with_random((0.3, 0.5), 0.4, NULL, 0.6) == (0.3, 0.5)
    assert with_random((0.3, 0.35), 0.4, NULL, 0.7) == (0.3, 0.35)  # p of 1 - confidence is rejected
    # 0 belongs to it even where the random agents lie on one side.
    above = np.linspace(0.1, 0.5, 21)
    assert with_random((0.3, 0.35), 0.2, above, 0.9) == pytest.approx((0.0, 0.48))
    assert with_random((-0.3, -0.25), -0.2, -above, 0.9) == pytest.approx((-0.48, 0.0))


def test_a_p_value_is_no_smaller_than_what_random_agents_show() -> None:
    assert not_below_random(0.001, 0.4, NULL) == pytest.approx(0.3)
    assert not_below_random(0.6, 0.4, NULL) == 0.6
    assert not_below_random(0.001, 0.5, NULL) == 0.001  # none of them: the simulation knows no smaller p


@pytest.mark.parametrize(("grids", "confidence"), [(2, 0.95), (8, 0.9), (30, 0.5)])
def test_ends_are_the_expanded_percentiles_of_the_source(grids: int, confidence: float) -> None:
    resampled = stream(1, "resamples").normal(0.2, 1.0, 999)
    t = scipy_stats.t.ppf((1 + confidence) / 2, grids - 1)
    tail = scipy_stats.norm.cdf(-math.sqrt(grids / (grids - 1)) * t)
    assert interval(resampled, grids, confidence) == pytest.approx(tuple(np.quantile(resampled, [tail, 1 - tail])))


@pytest.mark.parametrize("grids", [2, 3, 12])
@pytest.mark.parametrize("shift", [0.3, -0.3, 1.1])
def test_p_is_the_level_at_which_the_interval_begins_to_hold_zero(grids: int, shift: float) -> None:
    resampled = stream(2, "resamples").normal(shift, 0.5, 4000)
    p = p_value(resampled, shift, grids)
    wider, narrower = (interval(resampled, grids, 1 - level) for level in (p * 0.97, min(1.0, p * 1.03)))
    assert wider[0] <= 0 <= wider[1] and not narrower[0] <= 0 <= narrower[1]
    assert p_value(-resampled, -shift, grids) == pytest.approx(p)


def test_p_beyond_all_resamples_is_that_of_student_and_counts_where_ten_lie_beyond() -> None:
    resampled = stream(3, "resamples").normal(5.0, 1.0, 2000)
    assert resampled.min() > 0
    spread = resampled.std() * math.sqrt(20 / 19)
    assert p_value(resampled, 5.0, 20) == pytest.approx(2 * scipy_stats.t.sf(5.0 / spread, 19))
    for beyond, counted in ((9, False), (10, True)):
        some = np.concatenate([np.full(beyond, -1e-9), np.full(1990, 6.0)])
        wanted = 2 * scipy_stats.t.cdf(scipy_stats.norm.ppf((beyond + 1) / (len(some) + 1)) / math.sqrt(20 / 19), 19)
        assert (p_value(some, 6.0, 20) == pytest.approx(wanted)) == counted
        assert p_value(some, 6.0, 20) <= wanted * (1 + 1e-9)
    equal = np.full(1999, 0.5)  # no spread: what can be counted is all there is
    assert p_value(equal, 0.5, 20) == pytest.approx(
        2 * scipy_stats.t.cdf(scipy_stats.norm.ppf(1 / 2000) / math.sqrt(20 / 19), 19)
    )


def test_a_split_puts_every_grid_on_one_side_and_all_its_worlds_with_it() -> None:
    grids = ["b", "a", "c", "a", "d", "e"]
    weights = weigh(grids, seed=4, spill=Spill())
    assert weights.whole.tolist() == [[0.2, 0.1, 0.2, 0.1, 0.2, 0.2]] and weights.grids == 5
    resampled = weights.resampled @ np.eye(6)
    halves = [side @ np.eye(6) for side in (weights.first, weights.second)]
    assert resampled.shape == (RESAMPLES, 6) and halves[0].shape == halves[1].shape == (HALVES, 6)
    for first, second in zip(*halves, strict=True):
        assert np.allclose((2 * first[[0, 2, 4, 5]]) % 1, 0) and np.allclose((3 * second[[0, 2, 4, 5]]) % 1, 0)
        assert ((first > 0) != (second > 0)).all()
        sides = [
            len({grid for grid, weight in zip(grids, side, strict=True) if weight > 0}) for side in (first, second)
        ]
        assert sides == [2, 3] and first.sum() == pytest.approx(1) and second.sum() == pytest.approx(1)
    # Drawn grids: the weight of a world is its share of how often its grid was drawn, out of five.
    drawn = resampled * 5
    assert np.allclose(drawn[:, [0, 2, 4, 5]] % 1, 0) and np.allclose(drawn[:, 1], drawn[:, 3])
    assert np.allclose((2 * drawn[:, 1]) % 1, 0) and np.allclose(drawn.sum(axis=1), 5)
    assert resampled.mean(axis=0) == pytest.approx(weights.whole[0], abs=0.01)
    assert (weigh(grids, seed=5, spill=Spill()).resampled @ np.eye(6) != resampled).any()
