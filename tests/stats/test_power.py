"""Families and power: the closed form, simulated power against it, a literal loop, and the tests themselves."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goalscope.stats import (
    Family,
    Paired,
    PairedDesign,
    equivalence,
    grids_needed,
    holm,
    paired_difference,
    power,
    simulate_power,
)
from goalscope.stats.power import draw_differences

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


NORMAL = Paired(grids=40, trajectories=5, mean=3.0, spread=1.0, between=0.3, within=1.0, share=False)
SUCCESS = Paired(grids=60, trajectories=10, mean=0.7, spread=0.2, between=0.05, within=math.sqrt(0.17))


@pytest.mark.full
def test_simulation_and_closed_form_agree_where_differences_are_normal() -> None:
    normal = PairedDesign(grids=40, trajectories=5, between=0.3, within=1.0)
    found = simulate_power(NORMAL, seed=1, effect=0.3, repeats=800)
    # A chance of .8 is known to .028 here.
    assert power(normal, found.effect) == pytest.approx(0.8, abs=0.06)
    assert found.at_effect == pytest.approx(power(normal, 0.3), abs=0.06)


@pytest.mark.full
@pytest.mark.parametrize(("mean", "effect"), [(0.8, 0.2), pytest.param(0.9, 0.2, marks=pytest.mark.full)])
def test_power_of_a_success_with_one_trajectory_is_counted(mean: float, effect: float) -> None:
    """Differences of one success each are -1, 0 or 1: counted by the decision itself, and below the closed form."""
    spread, within = (math.sqrt(part * mean * (1 - mean)) for part in (0.2, 0.8))
    design = Paired(grids=10, trajectories=1, mean=mean, spread=spread, between=0.05, within=within)
    differences, true_mean = draw_differences(design, effect, seed=0, repeats=400)
    seen = [
        paired_difference(np.maximum(d, 0), range(10), np.maximum(-d, 0), range(10), unit="share", bounds=(0, 1))
        for d in differences
    ]
    found = simulate_power(design, seed=0, effect=effect, repeats=400)
    assert found.at_effect == pytest.approx(np.mean([one.p_value <= 0.05 for one in seen]))
    normal = PairedDesign(grids=10, trajectories=1, between=0.05, within=design.within)
    assert found.at_effect < power(normal, true_mean) - 0.03


def test_simulated_margin_is_what_equivalence_itself_shows() -> None:
    found = simulate_power(SUCCESS, seed=3, margin=0.08, repeats=60)
    studies, _ = draw_differences(SUCCESS, 0.0, seed=3, repeats=60)
    shown = []
    for study in studies:
        compared = paired_difference(
            np.clip(study, 0, 1), range(60), np.clip(-study, 0, 1), range(60), unit="share", bounds=(0, 1)
        )
        shown.append(equivalence(compared, 0.08).equivalent)
    assert found.at_margin == pytest.approx(np.mean(shown))


@pytest.mark.full
def test_a_literal_simulation_sees_the_effect_and_shows_the_margin() -> None:
    level = 0.05 / 8  # Holm's hardest step in a family of eight
    found = simulate_power(SUCCESS, seed=2, level=level, repeats=400)
    rng = np.random.default_rng(11)
    weight = SUCCESS.mean * (1 - SUCCESS.mean) / SUCCESS.spread**2 - 1
    seen, shown, studies = 0, 0, 300
    for _ in range(studies):
        for effect in (found.effect, 0.0):
            base = rng.beta(SUCCESS.mean * weight, (1 - SUCCESS.mean) * weight, 60)
            true = rng.normal(effect, SUCCESS.between, 60)
            chances = np.clip([base + true / 2, base - true / 2], 0, 1)
            first, second = (rng.random((2, 60, 10)) < chances[:, :, None]).mean(axis=2)  # single episodes
            if effect:
                seen += bool(scipy_stats.ttest_1samp(first - second, 0).pvalue <= level)
            else:  # uniform weights of the grids and of one more at the bound, drawn
                weights = rng.dirichlet(np.ones(61), 4000)
                means = [weights @ np.append(sign * (first - second), 1.0) for sign in (1, -1)]
                shown += bool(max(np.mean(mean >= found.margin) for mean in means) <= level)
    # Chances of .8, each known to .023 here and to .02 there.
    assert seen / studies == pytest.approx(0.8, abs=0.09)
    assert shown / studies == pytest.approx(0.8, abs=0.09)


@pytest.mark.parametrize(
    ("mean", "spread", "within", "decisions"),
    [
        (0.7, 0.2, math.sqrt(0.17), 1),  # a success: .21 - .04 of variance in each
        (0.7, 0.2, 0.2, 4),  # .17 / .04 = 4.25
        (0.5, 0.0, 0.05, 100),
        (0.5, 0.0, 0.9, 1),
        (0.5, 0.5, 0.1, 1),  # all or nothing: no variance is left within grids
        (0.7, 0.2, 0.0, 1),
    ],
)
def test_decisions_by_hand(mean: float, spread: float, within: float, decisions: int) -> None:
    design = Paired(grids=10, trajectories=5, mean=mean, spread=spread, between=0.1, within=within)
    assert design.decisions == decisions


def test_drawn_numbers_without_bounds_have_the_assumed_moments() -> None:
    differences, true = draw_differences(NORMAL, 0.5, seed=5, repeats=2000)
    assert true == 0.5 and differences.shape == (2000, 40)
    assert differences.mean() == pytest.approx(0.5, abs=4 * 0.7 / math.sqrt(80_000))
    assert differences.std() == pytest.approx(math.sqrt(0.3**2 + 2 * 1.0**2 / 5), rel=0.01)


def test_grids_that_are_all_or_nothing_differ_where_a_difference_is_assumed() -> None:
    """Chances of 0 and 1: half of the difference is cut off at the bounds on every grid."""
    design = Paired(grids=50, trajectories=4, mean=0.6, spread=math.sqrt(0.24), between=0.0, within=0.3)
    null, nothing = draw_differences(design, 0.0, seed=2, repeats=20)
    assert nothing == 0 and not null.any()
    differences, true = draw_differences(design, 0.2, seed=2, repeats=400)
    assert true == pytest.approx(0.1) and differences.mean() == pytest.approx(0.1, abs=0.01)
    # Where all grids have one chance, the mean is that chance.
    level = Paired(grids=50, trajectories=4, mean=0.6, spread=0.0, between=0.0, within=math.sqrt(0.24))
    assert draw_differences(level, 0.2, seed=2, repeats=20)[1] == pytest.approx(0.2)


def test_without_a_margin_nothing_is_said_of_one() -> None:
    assert math.isnan(simulate_power(SUCCESS, seed=1, repeats=30).at_margin)
    certain = simulate_power(SUCCESS, seed=1, repeats=30, margin=0.9)
    assert certain.at_margin == 1.0 and certain.repeats == 30 and certain.note == ""
    unbounded = Paired(grids=10, trajectories=5, mean=3.0, spread=0.0, between=0.0, within=0.0, share=False)
    none = simulate_power(unbounded, seed=1, repeats=30, margin=0.9)
    assert math.isnan(none.margin) and none.at_margin == 0.0
    assert "equivalence cannot be shown with this chance" in none.note


def test_drawn_shares_have_the_assumed_moments() -> None:
    design = Paired(grids=400, trajectories=8, mean=0.75, spread=0.15, between=0.0, within=0.2)
    differences, true = draw_differences(design, 0.1, seed=5, repeats=300)
    assert true == pytest.approx(0.1, abs=0.005)
    assert differences.mean() == pytest.approx(true, abs=0.002)
    # Noise of two means of eight trajectories, whose deviation the independent decisions were chosen for.
    null, _ = draw_differences(design, 0.0, seed=5, repeats=300)
    assert null.std() == pytest.approx(math.sqrt(2 * 0.2**2 / 8), rel=0.05)


def test_the_same_seed_gives_the_same_numbers() -> None:
    assert simulate_power(SUCCESS, seed=1, repeats=50) == simulate_power(SUCCESS, seed=1, repeats=50)
    assert simulate_power(SUCCESS, seed=1, repeats=50) != simulate_power(SUCCESS, seed=2, repeats=50)


def test_no_variance_and_no_power_are_said() -> None:
    perfect = Paired(grids=10, trajectories=10, mean=1.0, spread=0.0, between=0.0, within=0.0)
    found = simulate_power(perfect, seed=0, repeats=50)
    assert found.margin == pytest.approx(1 - 0.05 ** (1 / 10), abs=0.01)  # ten grids agree: the exact bound
    hopeless = Paired(grids=4, trajectories=1, mean=0.5, spread=0.5, between=0.0, within=0.0)
    assert "no difference between shares is seen" in simulate_power(hopeless, seed=0, repeats=50).note


@pytest.mark.parametrize(
    "wrong", [{"grids": 1}, {"trajectories": 0}, {"mean": 1.2}, {"spread": 0.6}, {"between": -1}, {"within": math.nan}]
)
def test_designs_that_cannot_be_simulated_are_refused(wrong: dict[str, float]) -> None:
    given = {"grids": 10, "trajectories": 5, "mean": 0.8, "spread": 0.1, "between": 0.1, "within": 0.1, **wrong}
    with pytest.raises(ValueError, match=r"a design needs|between|mean"):
        Paired(**given)  # type: ignore[arg-type]
    for settings in ({"chance": 0.01}, {"chance": 1.0}, {"level": 0.0}, {"level": 0.5}, {"repeats": 0}):
        with pytest.raises(ValueError, match="needs 0 < level"):
            simulate_power(SUCCESS, seed=0, **settings)
