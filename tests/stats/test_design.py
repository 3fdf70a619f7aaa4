"""Families and power."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goalscope.stats import (
    Family,
    Paired,
    PairedDesign,
    grids_needed,
    holm,
    power,
)

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


def test_holm_is_the_closed_test_of_bonferroni() -> None:
    """A member's adjusted p is the greatest Bonferroni p of all sets of hypotheses that hold it."""
    rng = np.random.default_rng(1)
    for _ in range(25):
        p_values = dict(zip(FAMILY.members, np.round(rng.random(4) ** 3, 2).tolist(), strict=True))
        p_values[FAMILY.members[rng.integers(4)]] = math.nan
        used = {name: 1.0 if math.isnan(p) else p for name, p in p_values.items()}
        for test in holm(p_values, FAMILY):
            sets = [part for size in range(1, 5) for part in itertools.combinations(used, size) if test.name in part]
            closed = max(min(1.0, len(part) * min(used[name] for name in part)) for part in sets)
            assert test.adjusted == pytest.approx(closed)
            assert ("undefined" in test.note) == math.isnan(p_values[test.name])


def test_a_p_at_the_level_is_rejected_and_p_may_be_0_or_1() -> None:
    pair = Family(name="pair", members=("a", "b"))
    assert [test.rejected for test in holm({"a": 0.025, "b": 0.05}, pair)] == [True, True]
    assert [(test.adjusted, test.rejected) for test in holm({"a": 1, "b": 0}, pair)] == [(1.0, False), (0.0, True)]
    assert [test.rejected for test in holm({"a": 0.03, "b": 0.2}, pair, level=0.06)] == [True, False]


def test_an_undefined_test_stays_in_the_family() -> None:
    found = holm({"rotate": 0.02, "reflect": math.nan, "transpose": 0.5, "swap": 0.9}, FAMILY)
    assert found[0].adjusted == pytest.approx(0.08)  # corrected for four tests, not for three
    assert not found[1].rejected
    assert "undefined" in found[1].note


def test_what_is_not_declared_is_refused() -> None:
    with pytest.raises(TypeError, match="declared Family"):
        holm({"rotate": 0.01}, ("rotate",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\['swap'\].*\['shear'\]"):
        holm({"rotate": 0.01, "reflect": 0.04, "transpose": 0.03, "shear": 0.01}, FAMILY)
    with pytest.raises(ValueError, match=r"members .*\['a', 'a'\]"):
        Family(name="x", members=("a", "a"))
    with pytest.raises(ValueError, match=r"\['swap'\].*\[\]"):
        holm({"rotate": 0.01, "reflect": 0.04, "transpose": 0.03}, FAMILY)
    single = Family(name="x", members=("a",))
    with pytest.raises(ValueError, match=r"\[\].*\['b'\]"):
        holm({"a": 0.01, "b": 0.04}, single)
    for name, members in (("", ("a",)), ("x", ())):
        with pytest.raises(ValueError, match="members"):
            Family(name=name, members=members)
    for p_value, level in ((1.2, 0.05), (-0.1, 0.05), (0.5, 0.0), (0.5, 1.0), (0.5, 1.5)):
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            holm({"a": p_value}, single, level=level)


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


def test_grids_invert_power() -> None:
    assert grids_needed(DESIGN, 0.1, chance=power(DESIGN, 0.1) - 1e-6) == DESIGN.grids
    more = PairedDesign(grids=48, trajectories=10, between=0.1, within=0.4)
    assert power(more, 0.05) > power(DESIGN, 0.1)
    # Trajectories help against the noise within grids, never against the differences between them.
    endless = PairedDesign(grids=12, trajectories=10**9, between=0.1, within=0.4)
    assert endless.deviation == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("effect", "chance", "level"), [(0.3, 0.8, 0.05), (0.1, 0.9, 0.01), (0.05, 0.5, 0.1), (9, 0.8, 0.05)]
)
def test_the_number_of_grids_is_the_smallest(effect: float, chance: float, level: float) -> None:
    found = grids_needed(DESIGN, -effect, chance=chance, level=level)

    def reached(grids: int) -> float:
        """Power by the noncentral t distribution of scipy.stats, for another oracle than the special functions."""
        shift = effect * math.sqrt(grids) / math.sqrt(0.1**2 + 2 * 0.4**2 / 10)
        edge = scipy_stats.t.ppf(1 - level / 2, grids - 1)
        return float(scipy_stats.nct.sf(edge, grids - 1, shift) + scipy_stats.nct.cdf(-edge, grids - 1, shift))

    assert found >= 2 and reached(found) >= chance
    assert found == 2 or reached(found - 1) < chance


def test_power_is_that_of_the_level_in_any_unit() -> None:
    assert power(DESIGN, 0.0, level=0.01) == pytest.approx(0.01)
    # The same numbers in another unit.
    other = PairedDesign(grids=12, trajectories=10, between=10, within=40)
    assert power(other, 100 * 0.2, level=0.01) == pytest.approx(power(DESIGN, 0.2, level=0.01))


@pytest.mark.parametrize(
    ("grids", "trajectories", "between", "within"),
    [(5, 1, math.inf, 0.1), (5, 1, 0.1, math.nan), (1, 1, 0.1, 0.1), (5, 0, 0.1, 0.1), (5, 1, -1, 0.1), (5, 1, 0, 0)],
)
def test_impossible_designs_are_refused(grids: int, trajectories: int, between: float, within: float) -> None:
    with pytest.raises(ValueError, match=r"a design needs|between and within"):
        PairedDesign(grids=grids, trajectories=trajectories, between=between, within=within)


def test_impossible_wishes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"effect .* 0\.0"):
        grids_needed(DESIGN, 0.0)
    with pytest.raises(ValueError, match="level"):
        grids_needed(DESIGN, 0.1, chance=0.01)
    with pytest.raises(ValueError, match="1000000"):
        grids_needed(DESIGN, 1e-6)
    for chance, level in ((0.05, 0.05), (1.0, 0.05), (0.8, 0.0)):
        with pytest.raises(ValueError, match="level"):
            grids_needed(DESIGN, 0.1, chance=chance, level=level)
    for effect, level in ((math.nan, 0.05), (math.inf, 0.05), (0.1, 0.0), (0.1, 1.0)):
        with pytest.raises(ValueError, match="finite effect"):
            power(DESIGN, effect, level=level)
    shares = Paired(grids=20, trajectories=1, between=0.05, within=0.36, mean=0.8, spread=0.18)
    with pytest.raises(ValueError, match="design"):
        power(shares, 0.2)


def test_a_family_says_whose_clusters_are_too_few_for_its_level() -> None:
    """Six clusters give no p below 1/32: enough alone or as the last of Holm's steps, not as the first of four."""
    least = dict.fromkeys(FAMILY.members, 1 / 32)
    alone = Family(name="alone", members=("swap",))
    assert holm({"swap": 0.2}, alone, least=least)[0].note == ""
    found = holm({"rotate": 0.1, "reflect": 0.2, "transpose": 0.3, "swap": 1 / 32}, FAMILY, least=least)
    assert not any(test.rejected for test in found)
    assert all("too few clusters" in test.note and "0.031" in test.note for test in found)
    last = holm({"rotate": 1e-4, "reflect": 1e-4, "transpose": 1e-4, "swap": 0.2}, FAMILY, least=least)
    assert [test.note for test in last] == [""] * 4
