"""Twins act on their hypothesis in runs of every kind of world."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope.agents import build_agent
from goalscope.goals.hypotheses import finite_world, parse, twin
from goalscope.runs import Store, Study, run


def ran(tmp_path: Path, worlds: list[dict[str, Any]], agents: list[dict[str, Any]], **changes: Any) -> list[Any]:
    study = Study.parse({"worlds": worlds, "agents": agents, "trajectories": 3, "horizon": {"factor": 1.5}, **changes})
    run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        return list(store.episodes())


def test_twins_on_grids_take_actions_that_their_hypothesis_allows(tmp_path: Path) -> None:
    texts = ["goal", "corner top-left", "flee goal", "key if not key held, else goal", "keep right"]
    episodes = ran(
        tmp_path, [{"kind": "key-door", "count": 2}], [twin(text, name=text) for text in texts], horizon={"steps": 25}
    )
    seen = set()
    for episode in episodes:
        finite = finite_world(episode.world, 25)
        number_of = finite.process.number
        assert number_of is not None
        text = episode.agent
        policy = parse(text).solved(finite).policy[0]
        for step in episode.steps:
            number = number_of(np.array([[*step.state.position, step.state.phase]]))[0]
            assert policy[number, step.action] > 0
        seen.add(text)
        if text == "goal":
            assert episode.outcome == "goal"
    assert seen == set(texts)


def test_the_lapse_rate_is_the_share_of_free_actions(tmp_path: Path) -> None:
    room = {"kind": "grid", "sizes": [9], "densities": [0.0], "count": 30, "minimum_distance": 4}
    episodes = ran(tmp_path, [room], [twin("keep right", lapse=0.4)])
    actions = np.array([step.action for episode in episodes for step in episode.steps])
    error = np.sqrt(0.7 * 0.3 / len(actions))
    assert abs((actions == 3).mean() - 0.7) < 4 * error


def test_where_it_means_nothing_a_twin_acts_at_random_and_says_why(tmp_path: Path) -> None:
    room = {"kind": "grid", "sizes": [7], "densities": [0.0], "count": 2}
    episodes = ran(tmp_path, [room], [twin("key", name="keys")])
    steps = [step for episode in episodes for step in episode.steps]
    assert {step.extra["undefined"] for step in steps} == {"this world has no key"}
    assert len({step.action for step in steps}) > 1


def test_a_twin_knows_where_the_goal_stood_in_another_phase_of_its_study(tmp_path: Path) -> None:
    grids = {"kind": "grid", "sizes": [7], "densities": [0.4], "count": 6, "minimum_distance": 3}
    phases = [{**grids, "goal": "top-right", "phase": "trained"}, {**grids, "goal": "left", "phase": "shifted"}]
    stood = "where the goal stood in phase trained"
    listed = [{"is": stood, "name": "place"}, {"is": f"near ({stood})", "name": "near"}]
    episodes = ran(tmp_path, phases, [], hypotheses=listed, horizon={"steps": 30})
    assert not any("undefined" in step.extra for one in episodes if one.agent == "near" for step in one.steps)
    ends = {(one.agent, one.world.tags["phase"], one.final.position) for one in episodes}
    assert {cell for *of, cell in ends if of == ["near", "shifted"]} == {(1, 5)}
    assert {cell for *of, cell in ends if of == ["place", "trained"]} == {(1, 5)}


def test_twins_act_in_task_maps(tmp_path: Path) -> None:
    maps = {"kind": "task-map", "presets": ["high-small"], "count": 2, "generator": {"alpha": 3.0}}
    study = Study.parse({"worlds": [maps], "agents": [twin("goal")], "trajectories": 2})
    run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        assert {episode.outcome for episode in store.episodes()} == {"goal"}


@pytest.mark.parametrize("source", ["small_worlds:Corridor", "small_worlds:Slippery"])
def test_twins_act_in_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.chdir(Path(__file__).parents[1] / "environments")
    worlds = [{"kind": source, "parameters": [{"length": 7}]}]
    episodes = ran(tmp_path, worlds, [twin("event pit", horizon=9)], horizon={"steps": 9})
    assert all(len(episode.steps) == 1 or source.endswith("Slippery") for episode in episodes)
    if source.endswith("Slippery"):
        agent: Any = build_agent("hypothesis", {"hypothesis": "event lever"})
        study = Study.parse({"worlds": worlds, "agents": [{"kind": "random"}], "horizon": {"steps": 9}})
        world = study.worlds()[0]
        with pytest.raises(ValueError, match="horizon"):
            from goalscope.agents import Observation

            view = world.begin(np.random.default_rng(0)).view
            agent.act([Observation(view=view, world=world)])


@pytest.mark.parametrize(
    ("parameters", "fact"),
    [
        ({"hypothesis": "goal", "lapse": 2}, "lapse"),
        ({"hypothesis": "goal", "horizon": 0}, "horizon"),
        ({}, "hypothesis"),
    ],
)
def test_wrong_twins_are_refused(parameters: dict[str, Any], fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        build_agent("hypothesis", parameters)


def test_a_name_that_no_world_gives_a_goal_is_refused_with_the_study() -> None:
    study = {"name": "s", "seed": 1, "worlds": [{"kind": "text", "grids": ["A_G"]}], "trajectories": 1}
    wrong = Study.parse({**study, "agents": [{"kind": "hypothesis", "hypothesis": "gaol"}]})
    with pytest.raises(ValueError, match=r"'gaol'.*'goal'"):
        wrong.agents()


def test_one_hypothesis_is_one_agent_however_it_is_written() -> None:
    pair = [build_agent("hypothesis", {"hypothesis": text}) for text in ("(goal)", " goal ")]
    assert pair[0].describe() == pair[1].describe() and pair[0].name == "hypothesis(goal)"
    assert "lapse 0.2" in build_agent("hypothesis", {"hypothesis": "goal", "lapse": 0.2}).name
