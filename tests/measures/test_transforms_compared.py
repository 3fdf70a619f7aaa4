"""Invariance under transforms: hand examples, planted biases, what is refused, error rates and coverage."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goalscope._ground.rng import stream
from goalscope.agents import EpsilonGreedy, Observation, Optimal, ScriptedAgent
from goalscope.measures import Compared, behaviour_measures, compare_transforms, measure_episodes
from goalscope.measures.comparison import bounds_of
from goalscope.runs import Store, Study, World, begin, run
from goalscope.stats import Family, Paired, Sensitivity, holm, paired_difference, simulate_power
from goalscope.stats.power import draw_differences
from goalscope.stats.rows import Rows
from goalscope.worlds import ACTIONS, TRANSFORMS, GridView, State, shown, step

MARGIN = {"success": 0.1, "action accuracy": 0.05}
EPSILON = 0.3


def make_rows(values: dict[str, list[list[float]]], measure: str = "success", agent: str = "one", **tags: Any) -> Rows:
    """Build rows from transform -> one list of values for each grid."""
    flat = [
        (way, f"grid{index}", value)
        for way, grids in values.items()
        for index, grid in enumerate(grids)
        for value in grid
    ]
    ways, grids, numbers = zip(*flat, strict=True)
    return Rows.from_columns(
        measure=measure,
        unit="share",
        value=np.array(numbers, dtype=np.float64),
        cluster=list(grids),
        tags={"agent": agent, "transform": list(ways), **tags},
    )


def study(**changes: Any) -> Study:
    plain: dict[str, Any] = {
        "seed": 7,
        "worlds": [
            {
                "kind": "grid",
                "sizes": [7],
                "densities": [0.4, 1.0],
                "count": 20,
                "goal_side": "right",
                "transforms": ["identity", "reflect"],
            }
        ],
        "agents": [
            {"kind": "optimal"},
            {"kind": "epsilon-greedy", "epsilon": EPSILON},
            {"kind": "side-biased", "epsilon": EPSILON, "side": "left"},
        ],
        "trajectories": 10,
        "analysis": {"invariance": {"margin": MARGIN}},
    }
    return Study.parse({**plain, **changes})


def measured(directory: Path, given: Study) -> Rows:
    run(given, directory)
    with Store(directory, "w") as store:
        wanted = [measure for measure in behaviour_measures() if measure.name in MARGIN]
        store.put_rows(measure_episodes(store.episodes(), wanted), source="behaviour")
        return store.rows()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


@pytest.fixture(scope="module")
def planted(directory: Path) -> tuple[Study, Rows]:
    given = study()
    return given, measured(directory, given)


def of(found: list[Compared], agent: str, measure: str = "success") -> Compared:
    return next(one for one in found if str(one.tags["agent"]).startswith(agent) and one.measure == measure)


def exchange_rejects(one: Compared) -> bool:
    assert one.exchange is not None
    return one.exchange.rejected


def success_chance(agent: ScriptedAgent, world: World, horizon: int) -> float:
    """Follow the exact distribution over states for as many steps as an episode has."""
    chance: dict[State, float] = {begin(world): 1.0}
    arrived = 0.0
    for _ in range(horizon):
        after: dict[State, float] = {}
        for state, weight in chance.items():
            policy = agent.probabilities(Observation(view=GridView(grid=shown(world.grid, state))))
            for action in ACTIONS:
                there = step(world.grid, state, action)
                if there.position == world.grid.goal:
                    arrived += weight * policy[action]
                else:
                    after[there] = after.get(there, 0.0) + weight * policy[action]
        chance = after
    return arrived


def test_a_biased_agent_is_flagged_by_the_known_amount_and_is_not_equivalent(planted: tuple[Study, Rows]) -> None:
    given, rows = planted
    biased = of(compare_transforms(rows, margin=MARGIN), "side-biased")
    changed = [world for world in given.worlds() if world.tags["transform"] == "reflect"]
    exact = [success_chance(EpsilonGreedy(EPSILON), world, given.horizon.of(world)) for world in changed]
    assert success_chance(Optimal(), changed[0], given.horizon.of(changed[0])) == pytest.approx(1)
    known = float(np.mean(exact)) - 1
    error = math.sqrt(sum(p * (1 - p) / 10 for p in exact)) / len(exact)
    assert abs(biased.paired.difference.value - known) < 3 * error
    assert known < -0.15
    assert biased.test.rejected and biased.paired.test.effect == -1
    assert biased.equivalence is not None and not biased.equivalence.equivalent
    assert biased.shown is not None and not biased.shown.rejected
    assert biased.verdict == "differs"
    assert exchange_rejects(biased)
    # On each grid alone the loss is known too, and so is its root mean square.
    root = math.sqrt(float(np.mean([(1 - p) ** 2 for p in exact])))
    assert biased.sensitivity is not None and biased.sensitivity.low < root < biased.sensitivity.high


def test_an_unbiased_agent_is_equivalent_within_the_margin_and_not_flagged(planted: tuple[Study, Rows]) -> None:
    found = compare_transforms(planted[1], margin={"success": 0.12, "action accuracy": 0.12})
    for agent in ("epsilon-greedy", "optimal"):
        for measure in MARGIN:
            one = of(found, agent, measure)
            assert not one.test.rejected and not exchange_rejects(one)
        assert of(found, agent, "action accuracy").verdict == "equivalent" or agent == "optimal"
    perfect = of(found, "optimal")
    # Forty grids that agree exactly show a margin of .1 (.9 ** 40 = .015), and nothing of it disappears.
    assert perfect.paired.difference.value == 0
    assert perfect.paired.difference.high > 0.05
    assert perfect.verdict == "equivalent"
    assert "no variance between clusters" in perfect.notes
    # A margin that is smaller than forty agreeing grids can show is not shown: .95 ** 40 = .13.
    narrow = compare_transforms(planted[1], margin={"action accuracy": 0.05})
    assert of(narrow, "optimal", "action accuracy").verdict == "undecided"


def test_without_a_side_differences_cancel_in_the_mean_and_single_grids_tell(tmp_path: Path) -> None:
    entry = {
        "kind": "grid",
        "sizes": [7],
        "densities": [0.6],
        "count": 60,
        "transforms": ["identity", "reflect"],
    }
    given = study(worlds=[entry], agents=[{"kind": "side-biased", "epsilon": 0.5}])
    one = of(compare_transforms(measured(tmp_path / "run", given), margin=MARGIN), "side-biased")
    assert not one.test.rejected
    assert exchange_rejects(one)
    assert one.sensitivity is not None and one.sensitivity.low > 0.2


@pytest.mark.full
def test_the_same_run_measured_twice_gives_the_same_bytes(planted: tuple[Study, Rows], directory: Path) -> None:
    from goalscope.report.comparison import as_json, comparison_records
    from goalscope.report.figures import as_csv

    given, rows = planted
    again = measured(directory, given)
    mixed = rows.where(rows.measure != "")  # a copy
    order = np.random.default_rng(0).permutation(len(mixed))
    mixed = Rows.from_columns(
        measure=mixed.measure[order].tolist(),
        unit=mixed.unit[order].tolist(),
        value=mixed.value[order],
        cluster=mixed.cluster[order],
        episode_id=mixed.episode_id[order],
        step=mixed.step[order],
        tags={name: column[order] for name, column in mixed.tags.items()},
    )
    records = [comparison_records(compare_transforms(found, margin=MARGIN)) for found in (rows, again, mixed)]
    assert as_json(records[0]) == as_json(records[1]) == as_json(records[2])
    assert as_csv(records[0]) == as_csv(records[1]) == as_csv(records[2])


def test_tests_and_families_are_those_of_a_literal_computation() -> None:
    rng = np.random.default_rng(3)
    base = rng.binomial(1, 0.6, (12, 5)).astype(float)
    values = {"identity": base.tolist()}
    for index, way in enumerate(("reflect", "rotate", "swap")):
        values[way] = rng.binomial(1, 0.6 + 0.12 * index, (12, 5)).astype(float).tolist()
    found = compare_transforms(make_rows(values), margin={"success": 0.3})
    assert [one.tags["transform"] for one in found] == ["reflect", "rotate", "swap"]
    literal = {}
    for one in found:
        differences = np.array(values[str(one.tags["transform"])]).mean(axis=1) - base.mean(axis=1)
        literal[str(one.tags["transform"])] = one.paired.p_value
        assert one.paired.difference.value == pytest.approx(differences.mean())
        assert one.paired.counts == (60, 60)
    corrected = holm(literal, Family(name="one", members=tuple(literal)))
    assert [one.test.adjusted for one in found] == pytest.approx([entry.adjusted for entry in corrected])
    # Holm by hand for the equivalence tests: the smallest times three, the next times two, never falling.
    p_values = sorted(one.equivalence.p_value for one in found if one.equivalence)
    reached = np.maximum.accumulate(np.minimum(1, np.array(p_values) * [3, 2, 1]))
    assert sorted(one.shown.adjusted for one in found if one.shown) == pytest.approx(reached)


def test_conditions_are_compared_with_themselves_alone() -> None:
    plain = make_rows({"identity": [[1.0, 1.0]] * 3, "reflect": [[0.0, 0.0]] * 3}, kind="grid")
    keyed = make_rows({"identity": [[0.0, 0.0]] * 3, "reflect": [[0.0, 0.0]] * 3}, kind="two-path")
    found = compare_transforms(Rows.concatenate([plain, keyed]), margin={"success": 0.5})
    assert {str(one.tags["kind"]): one.paired.difference.value for one in found} == {"grid": -1.0, "two-path": 0.0}


def test_nothing_disappears() -> None:
    rows = Rows.concatenate(
        [
            make_rows({"identity": [[1.0, 0.0]], "reflect": [[0.0, 0.0]]}, agent="one grid"),
            make_rows({"identity": [[1.0, 0.0]] * 3}, agent="originals only"),
            make_rows({"identity": [[math.nan] * 2] * 3, "reflect": [[1.0, 1.0]] * 3}, agent="undefined"),
            make_rows({"identity": [[0.0, 0.0]] * 9, "reflect": [[0.0, 0.0]] * 8 + [[1.0, 1.0]]}, agent="few"),
        ]
    )
    found = {str(one.tags["agent"]): one for one in compare_transforms(rows, margin={"success": 0.1})}
    assert list(found) == ["few", "one grid", "originals only", "undefined"]
    assert "one cluster: undefined interval" in found["one grid"].notes
    for name in ("one grid", "originals only", "undefined"):
        assert found[name].verdict == "undefined"
        assert math.isnan(found[name].test.p_value) and not found[name].test.rejected
        assert any("undefined test" in note for note in found[name].notes)
    assert any("6 undefined values left out" in note for note in found["undefined"].notes)
    assert any("3 grids without a partner" in note for note in found["originals only"].notes)
    assert any("9 clusters cannot show equality within 0.1: at least 29" in note for note in found["few"].notes)
    assert all(len(set(one.notes)) == len(one.notes) for one in found.values())
    assert all("; " not in note for one in found.values() for note in one.notes)


def test_wrong_use_is_refused() -> None:
    rows = make_rows({"identity": [[1.0, 0.0]] * 3, "reflect": [[0.0, 0.0]] * 3})
    with pytest.raises(ValueError, match="family"):
        compare_transforms(rows, margin={})
    with pytest.raises(ValueError, match="action accuracy"):
        compare_transforms(rows, margin={"action accuracy": 0.1}, measures=["success"])
    with pytest.raises(ValueError, match="got 0"):
        compare_transforms(rows, margin={"success": 0})
    with pytest.raises(ValueError, match="identity"):
        compare_transforms(rows.select(transform="identity"), margin={"success": 0.1})
    with pytest.raises(ValueError, match="reflect"):
        compare_transforms(rows.select(transform="reflect"), margin={"success": 0.1})


def test_measures_that_are_absent_stay_in_the_family() -> None:
    rows = make_rows({"identity": [[1.0, 0.0]] * 3, "reflect": [[0.0, 0.0]] * 3})
    found = compare_transforms(rows, margin={"success": 0.1, "path ratio": 0.2})
    assert [one.verdict for one in found] == ["undecided", "undefined"]
    assert found[0].test.adjusted == min(1.0, 2 * found[0].test.p_value)


def test_bounds_are_those_of_the_measure() -> None:
    assert bounds_of(make_rows({"identity": [[1.0]]})) == (0.0, 1.0)
    assert bounds_of(make_rows({"identity": [[1.0]]}, measure="mine")) == (0.0, 1.0)
    assert bounds_of(make_rows({"identity": [[-1.0]]}, measure="mine")) == (-math.inf, math.inf)
    assert set(TRANSFORMS) == {"identity", "reflect", "rotate", "transpose", "swap"}
    whole = paired_difference([1.0], ["a"], [0.0], ["a"], unit="share", bounds=(0, 1))
    assert whole.counts == (1, 1)


# Error rates and coverage of the comparison of transforms, inside binomial bands (full tests).


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


@pytest.mark.full
@pytest.mark.parametrize("grids", [10, 30])
@pytest.mark.parametrize("between", [0.0, 0.15])
def test_false_alarms_of_the_mean_and_coverage(grids: int, between: float) -> None:
    found = [simulated(index, grids=grids, shift=0.0, between=between)[0] for index in range(STUDIES)]
    alarms = np.mean([one.paired.p_value <= LEVEL for one in found])
    low, high = band(LEVEL)
    assert alarms <= high and (grids < 30 or alarms >= low)  # exact tests of few tied values fall short of their level
    covered = np.mean([one.paired.difference.low <= 0 <= one.paired.difference.high for one in found])
    assert band(0.95)[0] <= covered <= band(0.97)[1]


@pytest.mark.full
def test_coverage_of_a_true_difference() -> None:
    found = [simulated(index, grids=30, shift=-0.2, between=0.05)[0] for index in range(STUDIES)]
    covered = np.mean([one.paired.difference.low <= -0.2 <= one.paired.difference.high for one in found])
    assert band(0.95)[0] <= covered <= band(0.95)[1]
    # The root of mean square: sqrt(.2 ** 2 + .05 ** 2).
    root = math.hypot(0.2, 0.05)
    inside = np.mean([grids_of(one).low <= root <= grids_of(one).high for one in found])
    assert band(0.93)[0] <= inside <= band(0.97)[1]


@pytest.mark.full
def test_false_equivalence_at_the_margin() -> None:
    found = [simulated(index, grids=60, shift=0.1, between=0.0)[0] for index in range(STUDIES)]
    shown = np.mean([one.equivalence is not None and one.equivalence.equivalent for one in found])
    assert shown <= band(LEVEL)[1]


@pytest.mark.full
def test_false_alarms_of_the_exchange_test_and_its_power() -> None:
    null = [simulated(index, grids=20, shift=0.0, between=0.0)[0] for index in range(STUDIES)]
    low, high = band(LEVEL)
    assert low <= np.mean([grids_of(one).p_value <= LEVEL for one in null]) <= high
    cancelling = [simulated(index, grids=20, shift=0.0, between=0.25)[0] for index in range(100)]
    assert np.mean([grids_of(one).p_value <= LEVEL for one in cancelling]) > 0.9
    assert np.mean([one.paired.p_value <= LEVEL for one in cancelling]) <= band(LEVEL, 100)[1]


@pytest.mark.full
def test_any_false_alarm_in_a_family_of_four_transforms() -> None:
    found = [simulated(index, grids=30, shift=0.0, between=0.0, ways=4) for index in range(STUDIES)]
    assert np.mean([any(one.test.rejected for one in family) for family in found]) <= band(LEVEL)[1]
    assert (
        np.mean([any(one.exchange and one.exchange.rejected for one in family) for family in found]) <= band(LEVEL)[1]
    )


@pytest.mark.full
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
