"""Scripted agents on plain grids are played many at a time, and are what they are when they are played alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from families import long_after
from goalscope._ground.rng import heads, uniform, uniforms
from goalscope.agents import Optimal, Uniform
from goalscope.agents.agent import Observation, Turn
from goalscope.runs import Store, Study, content_hash, episode, run

AGENTS: list[dict[str, Any]] = [
    {"kind": "optimal"},
    {"kind": "epsilon-greedy", "epsilon": 0.3},
    {"kind": "random"},
    {"kind": "key-lured"},
    {"kind": "wrong-goal", "target": "top-left"},
    {"kind": "wrong-goal", "target": [2, 3], "name": "cell"},
    {"kind": "side-biased", "epsilon": 0.5, "side": "top"},
    {"kind": "forgetful", "probability": 0.5, "span": 3},
]
WORLDS: list[dict[str, Any]] = [
    {"kind": "grid", "sizes": [5, 9], "densities": [0.0, 0.6], "count": 2},
    {"kind": "grid", "sizes": [7], "densities": [0.4], "count": 1, "fog_radius": 1, "transforms": ["identity", "swap"]},
    {"kind": "key-door", "count": 2, "control": True},
    {"kind": "key-no-door", "count": 1},
    {"kind": "two-path", "count": 1},
    {
        "kind": "grid",
        "sizes": [7],
        "densities": [0.2],
        "count": 3,
        "key": "anywhere",
        "things": ["red key", "red door", "lava", "coin", "chest", "teleporter", "teleporter"],
    },
    {"kind": "named-place", "sizes": [9], "densities": [0.2], "count": 1},
]


def study(**changes: Any) -> Study:
    whole = {"seed": 4, "worlds": WORLDS[:-1], "agents": AGENTS, "trajectories": 3, "horizon": {"steps": 30}}
    return Study.parse({**whole, **changes})


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode, "plays_together", lambda agent: False)


@pytest.mark.parametrize("most", long_after(1, [60_000, 100]), ids=["at once", "in parts"])
def test_together_is_as_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    asked = study()
    with monkeypatch.context() as patch:
        alone(patch)
        run(asked, tmp_path / "alone")
    monkeypatch.setattr(episode, "_MOST_STEPS", most)
    played, whole = list[int](), episode.play

    def counted(agent: Any, part: Any) -> Any:
        played.append(len(part))
        return whole(agent, part)

    monkeypatch.setattr(episode, "play", counted)
    summary = run(asked, tmp_path / "together")
    plain = sum(episode.played_world(world) for world in asked.worlds())
    assert sum(played) == plain * 3 * (len(AGENTS) - 1) < summary.episodes, "all but the forgetful one, and no fog"
    with Store(tmp_path / "alone") as one, Store(tmp_path / "together") as other:
        assert content_hash(one) == content_hash(other)
        assert summary.steps == sum(len(episode.steps) for episode in other.episodes())


def test_grids_in_other_words_and_second_answers_are_played_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode, "play", lambda agent, part: pytest.fail("played together"))
    run(study(worlds=WORLDS[-1:], agents=AGENTS[:3]), tmp_path / "named")
    run(study(worlds=WORLDS[:1], agents=AGENTS[:3], answers=2), tmp_path / "twice")


@dataclass(frozen=True)
class Left(Uniform):
    """It says of itself where it goes, and has the table of another."""

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        return [Turn(action=2) for _ in observations]


@dataclass(frozen=True)
class Pair(Optimal):
    def probabilities(self, observation: Observation) -> np.ndarray:
        return np.array([0.5, 0.5, 0, 0])


def test_a_class_that_acts_otherwise_is_not_taken_for_the_one_that_it_derives_from(tmp_path: Path) -> None:
    for agent in (Left(name="left"), Pair(name="pair")):
        assert not episode.plays_together(agent)
        run(study(worlds=WORLDS[:1]), tmp_path / agent.name, agents=[agent])
        with Store(tmp_path / agent.name) as store:
            taken = {int(step.action) for episode in store.episodes() for step in episode.steps}
        assert taken <= ({2} if agent.name == "left" else {0, 1})


def test_many_numbers_are_those_of_single_turns() -> None:
    for seed in (0, -3, 2**70):
        names = ["é", 'a"b\\', "\ud800", ""]
        found = uniforms(heads(seed, "turn", 1.5, each=names), 5, 0)
        assert found.tolist() == [uniform(seed, "turn", 1.5, name, 5, 0) for name in names]
