"""Error rates and coverage of the comparison of transforms, inside binomial bands (full tests)."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goalscope._ground.rng import stream
from goalscope.measures import Compared, compare_transforms
from goalscope.stats import Paired, Sensitivity, simulate_power
from goalscope.stats.power import draw_differences
from goalscope.stats.rows import Rows

pytestmark = pytest.mark.full
STUDIES, LEVEL = 1000, 0.05


def band(chance: float, studies: int = STUDIES) -> tuple[float, float]:
    """Return the shares between which a count of this chance lies with probability .9998."""
    low, high = (float(scipy_stats.binom.ppf(tail, studies, chance)) / studies for tail in (1e-4, 1 - 1e-4))
    return low, high


def simulated(number: int, *, grids: int, shift: float, between: float, ways: int = 1) -> list[Compared]:
    """Compare one study of successes, ten trajectories a grid; between: deviation of the true differences."""
    rng = stream(11, "rates", number, grids, shift, between)
    # Grids from .3 to .7 leave room for every difference: none is cut off at a bound.
    chance = rng.uniform(0.3, 0.7, grids)
    sides = {"identity": chance}
    for way in ("reflect", "rotate", "transpose", "swap")[:ways]:
        sides[way] = chance + shift + between * rng.choice([-1, 1], grids)
    value = np.concatenate([rng.binomial(1, p[:, None], (grids, 10)).ravel() for p in sides.values()])
    return compare_transforms(
        Rows.from_columns(
            measure="success",
            unit="share",
            value=value.astype(np.float64),
            cluster=[f"g{index}" for _ in sides for index in range(grids) for _ in range(10)],
            tags={"agent": "a", "transform": [way for way in sides for _ in range(10 * grids)]},
        ),
        margin={"success": 0.1},
    )


def grids_of(one: Compared) -> Sensitivity:
    assert one.sensitivity is not None
    return one.sensitivity


@pytest.mark.parametrize("grids", [10, 30])
@pytest.mark.parametrize("between", [0.0, 0.15])
def test_false_alarms_of_the_mean_and_coverage(grids: int, between: float) -> None:
    found = [simulated(index, grids=grids, shift=0.0, between=between)[0] for index in range(STUDIES)]
    alarms = np.mean([one.paired.p_value <= LEVEL for one in found])
    low, high = band(LEVEL)
    assert alarms <= high and (grids < 30 or alarms >= low)  # exact tests of few tied values fall short of their level
    covered = np.mean([one.paired.difference.low <= 0 <= one.paired.difference.high for one in found])
    assert band(0.95)[0] <= covered <= band(0.97)[1]


def test_coverage_of_a_true_difference() -> None:
    found = [simulated(index, grids=30, shift=-0.2, between=0.05)[0] for index in range(STUDIES)]
    covered = np.mean([one.paired.difference.low <= -0.2 <= one.paired.difference.high for one in found])
    assert band(0.95)[0] <= covered <= band(0.95)[1]
    # The root of mean square: sqrt(.2 ** 2 + .05 ** 2).
    root = math.hypot(0.2, 0.05)
    inside = np.mean([grids_of(one).low <= root <= grids_of(one).high for one in found])
    assert band(0.93)[0] <= inside <= band(0.97)[1]


def test_false_equivalence_at_the_margin() -> None:
    found = [simulated(index, grids=60, shift=0.1, between=0.0)[0] for index in range(STUDIES)]
    shown = np.mean([one.equivalence is not None and one.equivalence.equivalent for one in found])
    assert shown <= band(LEVEL)[1]


def test_false_alarms_of_the_exchange_test_and_its_power() -> None:
    null = [simulated(index, grids=20, shift=0.0, between=0.0)[0] for index in range(STUDIES)]
    low, high = band(LEVEL)
    assert low <= np.mean([grids_of(one).p_value <= LEVEL for one in null]) <= high
    cancelling = [simulated(index, grids=20, shift=0.0, between=0.25)[0] for index in range(100)]
    assert np.mean([grids_of(one).p_value <= LEVEL for one in cancelling]) > 0.9
    assert np.mean([one.paired.p_value <= LEVEL for one in cancelling]) <= band(LEVEL, 100)[1]


def test_any_false_alarm_in_a_family_of_four_transforms() -> None:
    found = [simulated(index, grids=30, shift=0.0, between=0.0, ways=4) for index in range(STUDIES)]
    assert np.mean([any(one.test.rejected for one in family) for family in found]) <= band(LEVEL)[1]
    assert (
        np.mean([any(one.exchange and one.exchange.rejected for one in family) for family in found]) <= band(LEVEL)[1]
    )


def test_an_unbiased_agent_passes_equivalence_at_the_planned_power() -> None:
    # The chances of `simulated`: uniform between .3 and .7.
    spread = 0.4 / math.sqrt(12)
    design = Paired(grids=60, trajectories=10, mean=0.5, spread=spread, between=0.0, within=math.sqrt(0.25 - spread**2))
    planned = simulate_power(design, seed=0, margin=0.1, repeats=1000).at_margin
    found = [simulated(index, grids=60, shift=0.0, between=0.0)[0] for index in range(STUDIES)]
    shown = np.mean([one.equivalence is not None and one.equivalence.equivalent for one in found])
    error = math.sqrt(planned * (1 - planned) * (1 / STUDIES + 1 / 1000))
    assert abs(shown - planned) < 4 * error
    assert 0.5 < planned < 1
    assert len(draw_differences(design, 0.0, seed=0, repeats=3)[0]) == 3
