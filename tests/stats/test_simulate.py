"""Simulated power against the closed form, a literal loop, and the tests themselves."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goalscope.stats import (
    Paired,
    PairedDesign,
    equivalence,
    paired_difference,
    power,
    simulate_power,
)
from goalscope.stats.power import draw_differences

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
def test_impossible_designs_are_refused(wrong: dict[str, float]) -> None:
    given = {"grids": 10, "trajectories": 5, "mean": 0.8, "spread": 0.1, "between": 0.1, "within": 0.1, **wrong}
    with pytest.raises(ValueError, match=r"a design needs|between|mean"):
        Paired(**given)  # type: ignore[arg-type]
    for settings in ({"chance": 0.01}, {"chance": 1.0}, {"level": 0.0}, {"level": 0.5}, {"repeats": 0}):
        with pytest.raises(ValueError, match="needs 0 < level"):
            simulate_power(SUCCESS, seed=0, **settings)
