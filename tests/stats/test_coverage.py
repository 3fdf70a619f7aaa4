"""Do the intervals cover? A quick look in every run; the whole table and the tests' error rates in the full run."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.stats import Family, holm, signed_rank

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
