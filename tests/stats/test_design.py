"""Families and power."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goalscope.stats import Family, PairedDesign, grids_needed, holm, minimum_detectable_effect, power

FAMILY = Family(name="transforms", members=("rotate", "reflect", "transpose", "swap"))


def test_holm_by_hand() -> None:
    found = holm({"rotate": 0.01, "reflect": 0.04, "transpose": 0.03, "swap": 0.005}, FAMILY)
    assert [test.name for test in found] == list(FAMILY.members)
    assert [test.adjusted for test in found] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [test.rejected for test in found] == [True, False, False, True]


def test_holm_lies_between_no_correction_and_bonferroni() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        p_values = dict(zip(FAMILY.members, rng.random(4).tolist(), strict=True))
        for test in holm(p_values, FAMILY):
            assert test.p_value <= test.adjusted <= min(1.0, 4 * test.p_value)


def test_an_undefined_test_stays_in_the_family() -> None:
    found = holm({"rotate": 0.02, "reflect": math.nan, "transpose": 0.5, "swap": 0.9}, FAMILY)
    assert found[0].adjusted == pytest.approx(0.08)  # corrected for four tests, not for three
    assert not found[1].rejected
    assert "undefined" in found[1].note


def test_what_is_not_declared_is_refused() -> None:
    with pytest.raises(TypeError, match="declared Family"):
        holm({"rotate": 0.01}, ("rotate",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"none for \['swap'\] and undeclared ones for \['shear'\]"):
        holm({"rotate": 0.01, "reflect": 0.04, "transpose": 0.03, "shear": 0.01}, FAMILY)
    with pytest.raises(ValueError, match="different members"):
        Family(name="x", members=("a", "a"))
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        holm({"a": 1.2}, Family(name="x", members=("a",)))


DESIGN = PairedDesign(grids=12, trajectories=10, between=0.1, within=0.4)


def test_power_agrees_with_simulated_t_tests() -> None:
    rng = np.random.default_rng(3)
    effect, repeats = 0.18, 4000
    true = effect + rng.normal(0, DESIGN.between, (repeats, DESIGN.grids, 1))
    first = true + rng.normal(0, DESIGN.within, (repeats, DESIGN.grids, DESIGN.trajectories))
    second = rng.normal(0, DESIGN.within, (repeats, DESIGN.grids, DESIGN.trajectories))
    rejected = scipy_stats.ttest_1samp(first.mean(axis=2) - second.mean(axis=2), 0, axis=1).pvalue <= 0.05
    spread = math.sqrt(0.25 / repeats)
    assert power(DESIGN, effect) == pytest.approx(float(np.mean(rejected)), abs=4 * spread)


def test_power_without_effect_is_the_level_and_grows_with_the_effect() -> None:
    assert power(DESIGN, 0.0, level=0.05) == pytest.approx(0.05)
    powers = [power(DESIGN, effect) for effect in (0.0, 0.05, 0.1, 0.2, 0.5, 5.0, 500.0)]
    assert powers == sorted(powers)
    assert powers[-1] == pytest.approx(1.0)
    assert power(DESIGN, -0.1) == power(DESIGN, 0.1)


def test_detectable_effect_and_grids_invert_power() -> None:
    effect = minimum_detectable_effect(DESIGN, chance=0.8)
    assert power(DESIGN, effect) == pytest.approx(0.8)
    assert grids_needed(DESIGN, effect * 1.0001, chance=0.8) == DESIGN.grids
    more = PairedDesign(grids=48, trajectories=10, between=0.1, within=0.4)
    assert minimum_detectable_effect(more) < effect / 2
    # Trajectories help against the noise within grids, never against the differences between them.
    endless = PairedDesign(grids=12, trajectories=10**9, between=0.1, within=0.4)
    assert endless.deviation == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("grids", "trajectories", "between", "within"), [(1, 1, 0.1, 0.1), (5, 0, 0.1, 0.1), (5, 1, -1, 0.1), (5, 1, 0, 0)]
)
def test_impossible_designs_are_refused(grids: int, trajectories: int, between: float, within: float) -> None:
    with pytest.raises(ValueError, match="a design needs"):
        PairedDesign(grids=grids, trajectories=trajectories, between=between, within=within)


def test_impossible_wishes_are_refused() -> None:
    with pytest.raises(ValueError, match="large enough"):
        grids_needed(DESIGN, 0.0)
    with pytest.raises(ValueError, match="between the level and 1"):
        minimum_detectable_effect(DESIGN, chance=0.01)
    with pytest.raises(ValueError, match="finite effect"):
        power(DESIGN, math.nan)
