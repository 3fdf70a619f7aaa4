"""Dependence: intervals cover, chance is never called dependence, planted agents are told apart."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dependence import planted
from scipy.stats import binom
from studies_of_dependence import AVOIDING, BLIND, SEEKERS, drawn, population, truth

from families import long_after
from goalscope._ground.rng import stream
from goalscope.goals.counterfactual.dependence import LEAST, Asked, WorldTurns, dependences, noun_of, p_above, sentence

CELLS = {
    "distance 0, no noise": (0.0, 0.0),
    "distance 0, noise .3": (0.3, 0.0),
    "distance 0, noise .6": (0.6, 0.0),
    "distance 0, random": (1.0, 0.0),
    "rare, noise .1": (0.1, 0.1),
    "half, no noise": (0.0, 0.5),
    "half, noise .3": (0.3, 0.5),
    "half, noise .6": (0.6, 0.5),
    "always, noise .3": (0.3, 1.0),
}
"""Share of random moves, and chance that a version has another optimal set."""


def coverage(cell: str, worlds: int, studies: int) -> tuple[float, float]:
    """Return how often the intervals of the change and of the share hold the truth."""
    rng = stream(11, "coverage", cell, worlds)
    policies = population(rng, *CELLS[cell])
    change, share = truth(policies)
    held = np.zeros(2)
    for _ in range(studies):
        [one] = dependences({"one": drawn(rng, policies, worlds)}, draws=1)
        held[0] += one.change.low <= change <= one.change.high
        # A share without an interval says nothing, and so nothing wrong.
        held[1] += not one.share.has_interval or one.share.low <= share <= one.share.high
    return held[0] / studies, held[1] / studies


@pytest.mark.full
@pytest.mark.parametrize("cell", ["distance 0, noise .3", "half, noise .3"])
def test_intervals_cover(cell: str) -> None:
    low, high = (float(binom.ppf(level, 80, at)) / 80 for level, at in ((0.001, 0.93), (0.999, 0.97)))
    assert all(low <= held <= high for held in coverage(cell, 40, 80))


@pytest.mark.full
@pytest.mark.parametrize("worlds", [40, 100])
@pytest.mark.parametrize("cell", CELLS)
def test_intervals_cover_in_a_thousand_studies(cell: str, worlds: int) -> None:
    change, share = coverage(cell, worlds, 1000)
    assert 0.93 <= change <= 0.97, change
    assert share >= 0.93, share  # an inverted interval may cover more, where little is predictable far more
    assert share <= 0.98 or CELLS[cell][0] >= 0.6, share


@pytest.mark.full
def test_planted_agents_are_told_apart(tmp_path: Path) -> None:
    found = planted((*SEEKERS, *BLIND, *AVOIDING, "random"), tmp_path / "run", count=10, seed=4)
    on_goal = {family: found[family, "goal"] for family in (*SEEKERS, *BLIND, *AVOIDING, "random")}
    assert {on_goal[family].answer for family in SEEKERS} == {"yes"}
    assert all(0.4 < on_goal[family].share.value < 1.6 for family in SEEKERS)
    assert "yes" not in {on_goal[family].answer for family in (*BLIND, *AVOIDING)}
    assert {found["random", thing].answer for thing in ("goal", "wall", "corner", "agent")} == {"untestable"}
    assert found["right", "agent"].answer != "yes" and found["seeker", "agent"].answer == "yes"
    assert found["seeker", "corner"].answer != "yes", "its optimal actions stay"


LATE_SHARES = {"random for 4": (0.7, 1.4), "random for 8": (0.5, 1.6), "right for 4": (0.3, 0.9)}
"""Agents that go to the goal from a turn on -> where the share of what changes with the goal lies.

Random moves are not predictable, so of the first agents all that is predictable changes with the goal. A fixed move is
predictable and never changes: of ten turns, six count.
"""


@pytest.mark.parametrize("seed", long_after(1, range(8)))
def test_agents_that_seek_the_goal_late_are_not_said_to_ignore_it(seed: int, tmp_path: Path) -> None:
    found = planted((*LATE_SHARES, "a corner for 4"), tmp_path / "run", count=10, seed=seed)
    on_goal = {family: found[family, "goal"] for family in (*LATE_SHARES, "a corner for 4")}
    assert "no" not in {dependence.answer for dependence in on_goal.values()}, on_goal
    assert on_goal["random for 4"].answer == "yes"
    for family, (low, high) in LATE_SHARES.items():
        assert low < on_goal[family].share.value < high, family


@pytest.mark.full
def test_random_agents_are_never_called_dependent(tmp_path: Path) -> None:
    calls = Counter(
        one.answer
        for seed in range(40)
        for one in planted(("random", "wander"), tmp_path / str(seed), count=10, seed=seed).values()
        if one.agent == "random"
    )
    assert not calls["yes"] and calls["untestable"] >= 0.9 * sum(calls.values()), calls


@pytest.mark.full
def test_agents_that_do_not_look_at_the_goal_are_rarely_called_dependent(tmp_path: Path) -> None:
    """Of 40 studies at the level .05: none expected of agents at 0, few of those that go round the goal."""
    calls = Counter(
        one.agent
        for seed in range(40)
        for one in planted((*BLIND, *AVOIDING), tmp_path / str(seed), count=10, seed=seed).values()
        if one.moved == "goal" and one.answer == "yes"
    )
    assert all(calls[family] <= binom.ppf(0.999, 40, 0.05) for family in (*BLIND, *AVOIDING)), calls


def test_noise_alone_is_not_called_dependence() -> None:
    rng = stream(3, "noise")
    random = population(rng, 1.0, 0.0, worlds=10)
    verdicts = Counter(dependences({"one": drawn(rng, random, 40)})[0].answer for _ in range(40))
    assert not verdicts["yes"] and verdicts["untestable"] >= 36


def asked(first: list[int], second: list[int], worlds: int) -> list[Asked]:
    sides = (np.array(first, dtype=float), np.array(second, dtype=float))
    return [
        Asked(
            cluster=str(number),
            tags={},
            side=WorldTurns(counts=sides[0]),
            changed={"goal": [WorldTurns(counts=sides[1])]},
        )
        for number in range(worlds)
    ]


def test_what_never_varies_has_an_interval_too() -> None:
    [same] = dependences({"one": asked([2, 0, 0, 0], [2, 0, 0, 0], 40)})
    [other] = dependences({"one": asked([2, 0, 0, 0], [0, 2, 0, 0], 40)})
    assert (same.answer, other.answer) == ("no", "yes")
    assert same.share.value == 0 and same.share.high < LEAST and other.share.value == pytest.approx(4 / 3)
    [few] = dependences({"one": asked([2, 0, 0, 0], [0, 2, 0, 0], 2)})
    assert few.answer != "yes", "two worlds are too few"
    [single] = dependences({"one": asked([2, 0, 0, 0], [0, 2, 0, 0], 1)})
    assert single.answer == "untestable" and not single.share.has_interval and single.p == 1
    assert single.predictable.value == 1 and "too few worlds" in sentence([single]) != sentence([same])
    assert "in common" not in sentence([single]), "both answers agree"


def test_what_cannot_be_compared_is_not_judged() -> None:
    [one] = dependences({"one": asked([1, 0, 0, 0], [2, 0, 0, 0], 5)})
    assert (one.worlds, one.versions, one.answer) == (0, 0, "untestable") and math.isnan(one.share.value)
    [even] = dependences({"one": asked([1, 1, 0, 0], [1, 1, 0, 0], 30)})
    assert even.answer == "untestable" and math.isnan(even.share.value)
    assert "too little" in sentence([even]) and p_above(np.zeros(1)) == 1


def test_a_change_of_a_thing_is_named_in_words() -> None:
    assert noun_of("goal") == "the goal's place"
    assert noun_of("coin") != "coin" != noun_of("removed coin") and "removed" not in noun_of("removed coin")
    assert noun_of("removed crate of an environment") == "removed crate of an environment"


def test_holm_is_over_the_things_of_an_agent() -> None:
    rng = stream(8, "holm")
    alone = drawn(rng, population(rng, 0.3, 0.6, worlds=50), 20)
    twice = [replace(one, changed={**one.changed, "wall": one.changed["goal"]}) for one in alone]
    [single], both = dependences({"one": alone}), dependences({"one": twice})
    assert [one.moved for one in both] == ["goal", "wall"] and both[0].p == pytest.approx(single.p)
    assert both[0].adjusted >= min(1, 1.5 * single.p) and single.adjusted == single.p
