"""How many worlds a name needs: sums against all episodes, the law of an end, planted agents at the declared need."""

import importlib
import math
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import nct, t
from worlds_of_any_shape import room

from families import long_after
from goalscope.goals.hypotheses import finite_world, load_hypotheses
from goalscope.goals.hypotheses.design import LAPSES, Need, _Law, needed
from goalscope.goals.hypotheses.score import (
    APART,
    HALF,
    LEVEL,
    MARGIN,
    STRONG,
    HypothesisBank,
    evidence,
    predictions_in,
)
from goalscope.goals.hypotheses.states import Answers
from goalscope.runs import Study
from goalscope.verdict.preflight.study_files import load
from goalscope.worlds import Grid, GridWorld

planted: Any = importlib.import_module("benchmarks.needs")
TRAINED = {"kind": "grid", "sizes": [7], "densities": [0.6], "count": 12, "goal": "top-right", "minimum_distance": 3}


def of(entry: dict[str, Any], text: str, **more: Any) -> dict[str, list[Need]]:
    study = Study.parse({"worlds": [entry], "agents": [{"kind": "random"}], "seed": 3})
    found = needed(load_hypotheses(text), study.worlds(), horizon=study.horizon.of, **more)
    return {name: [one for one in found if one.name == name] for name in dict.fromkeys(one.name for one in found)}


def episodes(world: Any, policy: np.ndarray) -> list[tuple[float, Answers]]:
    """Return every episode of two answers a step, with its probability."""
    live, found = world.live, []
    steps: list[tuple[float, int, list[tuple[int, int, int]]]] = [(1.0, int(world.process.start.argmax()), [])]
    for _ in range(world.horizon):
        longer = [step for step in steps if not live[step[1]]]
        for chance, state, past in steps:
            for a, b in product(*[np.flatnonzero(policy[state]).tolist()] * 2) if live[state] else ():
                taken, after = policy[state, a] * policy[state, b], int(world.process.transitions[state, a])
                longer.append((chance * taken, after, [*past, (state, a, b)]))
        steps = longer
    for chance, last, past in steps:
        state, first, second = np.array(past).T
        one = Answers(
            world=world,
            state=state,
            time=np.arange(len(past)),
            episode=np.zeros(len(past), dtype=np.int64),
            last=np.array([last]),
            first=np.eye(4)[first],
            second=np.eye(4)[second],
        )
        found.append((chance, one))
    return found


ROOM = room(np.random.default_rng(8), 3, 3), "goal;goal within 1 steps;follow the wall;beside goal"
ON_THE_WAY = GridWorld(grid=Grid.parse("#ArG#")), "goal;red key held;follow the wall;keep right"


@pytest.mark.parametrize(
    ("world_and_bank", "h", "lapse"),
    long_after(
        3,
        [
            (ON_THE_WAY, 0, 0.3),
            (ON_THE_WAY, 1, 0.2),
            (ROOM, 0, 0.3),
            (ROOM, 1, 0.0),
            (ROOM, 2, 0.5),
            (ROOM, 3, 0.2),
        ],
        names=3,
    ),
)
def test_means_and_variances_are_those_of_all_episodes(world_and_bank: tuple[Any, str], h: int, lapse: float) -> None:
    bank = load_hypotheses(world_and_bank[1])
    world = finite_world(world_and_bank[0], 2)
    told = predictions_in(world, bank, len(bank))
    law = _Law([[told], [told]], HypothesisBank(bank), h, lapse, LEVEL, 1)
    all_of = episodes(world, (1 - lapse) * told.policies[h][0] + lapse * world.even)
    chance = np.array([weight for weight, _ in all_of])
    assert chance.sum() == pytest.approx(1.0)
    found = [evidence([one], bank, len(bank), {}) for _, one in all_of]  # move frequencies mean nothing in one world
    size, gain, repeated = (np.array([getattr(one, name)[0] for one in found]) for name in ("size", "gain", "repeated"))
    own = np.array([one.common_size[0] - one.product[0] for one in found])
    ahead, behind = own[:, h], own[:, :, h]
    contrast = np.array([one.common_gain[0][h] - one.common_gain[0][:, h] for one in found])
    common, strength = np.array([one.common_size[0][h] for one in found]), 1 - lapse
    mean_size, mean_repeated = chance @ size, chance @ repeated
    root = np.sqrt(np.maximum(HALF * mean_size * mean_repeated, 1e-12))
    excess = gain - HALF * (mean_repeated * size + mean_size * repeated) / (2 * root)
    bar = (1 + MARGIN) * ahead - (1 - MARGIN) * behind
    held = (chance @ bar) / (2 * mean_size[h])
    beyond = contrast - strength / 2 * bar - held * (gain - strength * size)[:, [h]]
    apart = ahead + behind - 2 * APART * common
    for number, expected in enumerate((excess, beyond, apart)):
        rows = slice(number * 5, number * 5 + 4)  # without move frequencies, the fifth
        mean = chance @ expected[:, :4]
        assert law.mean[rows] == pytest.approx(mean, abs=1e-9)
        assert law.variance[rows] == pytest.approx(chance @ (expected[:, :4] - mean) ** 2, abs=1e-9)
    assert law.mean[-1] == pytest.approx(chance @ (gain - STRONG * size)[:, h], abs=1e-9)
    assert law.differs[:4] == pytest.approx(chance @ (ahead + behind > 1e-9)[:, :4], abs=1e-9)


def test_an_end_fails_as_that_of_normal_sums_does() -> None:
    world = finite_world(room(np.random.default_rng(2), 3, 3), 3)
    every = load_hypotheses("goal;keep up")
    told = predictions_in(world, every, 0)
    law = _Law([[told], [told]], HypothesisBank(every), 0, 0.2, LEVEL, 1)
    law.variance = np.full(7, 4.0)
    for clusters, mean in ((6, 1.0), (20, 0.5), (80, 0.7)):
        expected = nct.cdf(t.ppf(1 - LEVEL, clusters - 1), clusters - 1, math.sqrt(clusters) * mean / 2)
        assert law._ends(np.full(7, mean), clusters) == pytest.approx(np.full(7, expected), abs=1e-6)


def test_noise_needs_more_worlds_and_more_episodes_fewer() -> None:
    entry = {**TRAINED, "goal": "anywhere"}
    found = of(entry, "goal;corner top-right")["goal"]
    assert [one.lapse for one in found] == list(LAPSES)
    assert 6 <= found[0].worlds < found[1].worlds < found[2].worlds < 200
    (often,) = of(entry, "goal;corner top-right", of=["goal"], lapses=[0.6], episodes=4)["goal"]
    assert often.worlds < found[2].worlds


def test_what_coincides_is_never_named_and_what_it_coincides_with_is_said() -> None:
    found = of(TRAINED, "goal;corner top-right;key", lapses=[0.3])
    assert found["goal"][0].worlds == math.inf
    assert found["goal"][0].hardest == "corner top-right"
    assert "goal" in found["goal"][0].sentence
    assert found["key"][0].hardest == "steps"
    assert found["key"][0].to_plain()["worlds"] is None


def test_a_step_that_every_way_to_the_goal_takes_does_not_make_it_impossible_to_confirm_the_goal() -> None:
    grids = [
        f"#########\n#{'_' * before}A{'_' * (5 - before)}r#\n#R#######\n#{'_' * 6}G#\n#########" for before in range(5)
    ]
    grids += ["\n".join(line[::-1] for line in grid.split("\n")) for grid in grids]
    found = of({"kind": "text", "grids": grids}, "goal;red key held", lapses=[0.0])
    assert found["goal"][0].worlds < math.inf and found["red key held"][0].worlds < math.inf


def test_worlds_with_different_actions_stand_beside_each_other() -> None:
    study = load("toy-text")
    worlds, bank = study.worlds(), load_hypotheses("goal;keep up")
    assert len({len(world.believed.table.actions) for world in worlds}) > 1
    both = needed(bank, worlds, horizon=study.horizon.of, lapses=[0.3])
    assert [one.name for one in both] == ["goal", "keep up"] and all(one.worlds >= 6 for one in both)


def test_a_single_world_is_refused() -> None:
    with pytest.raises(ValueError, match="clusters"):
        of({**TRAINED, "count": 1}, "goal;corner top-right")


def right(density: str, seeds: range, **more: Any) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for seed in seeds:
        for cell, said in planted.answers(seed, density, (1.0,), **more).items():
            counts.setdefault(cell, Counter())[said] += 1
    return counts


@pytest.mark.full
def test_planted_agents_are_named_at_the_declared_need() -> None:
    counts = right("mixed", range(800, 802), names=("corner bottom-left", "flee goal"))
    said = sum(counts.values(), Counter())
    assert len(counts) == 6 and not said["false"]
    assert said["right"] >= 0.8 * said.total()


@pytest.mark.full
@pytest.mark.parametrize("density", ["mixed", "0"])
def test_planted_agents_of_every_kind_are_named_at_the_declared_need(density: str) -> None:
    counts = right(density, range(810, 830))
    said = sum(counts.values(), Counter())
    assert said["right"] >= 0.8 * said.total() and said["false"] <= LEVEL * said.total()
    assert min(found["right"] for found in counts.values()) >= 11  # the .1 % point of 20 with probability .8
    assert max(found["false"] for found in counts.values()) <= 4
