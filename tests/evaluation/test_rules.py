"""Answers follow from one interval and one threshold; what is true of agents whose goals are known comes out."""

import importlib
import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalscope._ground import registry
from goalscope._ground.rng import stream
from goalscope.stats import Estimate
from goalscope.stats.rows import Rows
from goalscope.verdict import judging, subject_of
from goalscope.verdict.aims import lapses
from goalscope.verdict.arms import CHANGED, GIVEN
from goalscope.verdict.evidence import ArmData, ArmRun, Evidence, outcomes
from goalscope.verdict.plan import prepare
from goalscope.verdict.playing import play
from goalscope.verdict.rules import ALPHA, answer_of, level
from goalscope.worlds import ACTIONS, Grid, initial_state, step
from goalscope.worlds.gridworld import GridWorld

planted: Any = importlib.import_module("benchmarks.verdicts")


def estimate(low: float, high: float) -> Estimate:
    return Estimate(value=(low + high) / 2, low=low, high=high, n=9, clusters=9, method="given", unit="share")


@given(st.floats(-1, 0.9), st.floats(0.01, 0.5), st.floats(-1, 1))
def test_an_answer_is_the_side_of_the_threshold_on_which_the_interval_lies(
    low: float, width: float, threshold: float
) -> None:
    answer = answer_of(Evidence(estimate=estimate(low, low + width)), threshold)
    assert (answer == "yes") == (low > threshold)
    assert (answer == "no") == (low + width < threshold)
    assert answer in ("yes", "no", "undecided")


def test_without_an_interval_nothing_can_be_told() -> None:
    assert answer_of(Evidence(why="nothing was asked"), 0.0) == "untestable"
    assert answer_of(Evidence(estimate=estimate(0.2, 0.4), why="it made no errors"), 0.0) == "untestable"


def test_all_looks_together_are_wrong_no_more_often_than_declared() -> None:
    levels = [level(look) for look in range(1, 40)]
    assert all(later < earlier for earlier, later in itertools.pairwise(levels))
    assert math.fsum(levels) == pytest.approx(ALPHA)


def test_the_chance_of_a_random_agent_is_that_of_simulated_ones() -> None:
    grid = Grid.parse("#####\n#A__#\n#_#_#\n#__G#\n#####")
    rng, reached, count = stream(5, "random agents"), 0, 4000
    for _ in range(count):
        state = initial_state(grid)
        for _ in range(8):
            state = step(grid, state, ACTIONS[int(rng.integers(4))])
            if state.position == grid.goal:
                reached += 1
                break
    share = reached / count
    assert abs(share - outcomes(GridWorld(grid=grid), 8)[0]) < 4 * math.sqrt(share * (1 - share) / count)


def test_every_claim_names_an_arm_and_says_what_both_answers_mean() -> None:
    arms = [*registry.names("arm"), GIVEN, CHANGED]
    for name in registry.names("claim"):
        rule = registry.resolve("claim", name)
        assert rule.arm in arms and rule.question.endswith("?")
        assert all(text.endswith(".") and text != rule.question for text in (rule.yes, rule.no))
        assert rule.compared and rule.quantity and rule.validity
    declared = {claim for group in planted.GROUPS.values() for claim in group.true}
    asked = {
        one for one in registry.names("arm") if registry.resolve("arm", one).looks is None
    }  # of no model is known what it holds
    assert declared == {name for name in registry.names("claim") if registry.resolve("claim", name).arm in asked}


@pytest.mark.full
def test_errors_in_lapses_are_told_from_slips(tmp_path: Path) -> None:
    found = {}
    for text in ("epsilon-greedy:epsilon=0.25", "forgetful:probability=0.3,span=8"):
        run = prepare(tmp_path / text[:3], [subject_of(text)], {"grids": 5}, seed=4)
        play(run, planted.quiet)
        with judging.opened(run) as data:
            [(key, arm)] = data.items()
            found[text[:3]] = lapses(ArmData.of(arm, key[1])).estimate
    slips, bursts = found["eps"], found["for"]
    assert slips is not None and bursts is not None
    assert slips.high < 0.2 < bursts.value
    assert slips.low >= -1 and bursts.high <= 1, "no correlation lies beyond"
    assert slips.value == pytest.approx(0.0, abs=0.2)


def test_success_above_chance_moves_the_interval_of_success(tmp_path: Path) -> None:
    run = prepare(tmp_path / "one", [subject_of("optimal")], {"grids": 1}, seed=4)
    play(run, planted.quiet)
    with judging.opened(run) as data:
        [(key, arm)] = data.items()
        mine = ArmData.of(arm, key[1])
        found = mine.above_chance().estimate
        chances = [outcomes(world, horizon)[0] for world, horizon in _played(arm)]
    assert found is not None
    assert found.value == pytest.approx(1 - np.mean(chances))
    assert found.n == 9 and found.high == pytest.approx(found.value)


def _played(arm: ArmRun) -> list[tuple[Any, int]]:
    table = arm.table
    return [(table.worlds[world], int(horizon)) for world, horizon in zip(table.world, table.horizon, strict=True)]


@pytest.mark.full
@pytest.mark.parametrize("group", planted.GROUPS)
@pytest.mark.parametrize(("size", "seeds"), [("quick", 100), ("full", 40)])
def test_planted_agents_over_many_seeds(group: str, size: str, seeds: int) -> None:
    counts = planted.tally([planted.answers(seed, size=size, group=group) for seed in range(seeds)], group)
    assert planted.too_often(counts, group) == []
    if size == "full":
        assert planted.too_seldom(counts, group) == []


def test_chance_weighs_grids_as_success_does() -> None:
    grids = [Grid.parse(text) for text in ("#####\n#A_G#\n#####", "#####\n#A__#\n#_#_#\n#__G#\n#####")]
    worlds = np.array([0, 0, 0, 0, 1])  # four episodes on the first grid, one on the second
    success = np.array([1.0, 1.0, 0.0, 1.0, 1.0])
    ids = [f"episode {number}" for number in range(5)]
    table = SimpleNamespace(
        episode_id=np.array(ids),
        world=worlds,
        horizon=np.full(5, 6),
        worlds=[GridWorld(grid=grid) for grid in grids],
        cluster=np.array([f"grid {at}" for at in worlds]),
        once=lambda _: np.ones((5, 4)),  # it takes its moves equally often: both chances are the same
    )
    rows = Rows.from_columns(
        measure="success", unit="share", value=success, cluster=[f"grid {at}" for at in worlds], episode_id=ids
    )
    run: Any = SimpleNamespace(confidence=0.95, table=table)
    found = ArmData(run=run, agent="one", rows=rows).above_chance().estimate
    chances = [outcomes(GridWorld(grid=grid), 6)[0] for grid in grids]
    assert found is not None and abs(chances[0] - chances[1]) > 0.2
    assert found.value == pytest.approx(np.mean([0.75 - chances[0], 1.0 - chances[1]]))
