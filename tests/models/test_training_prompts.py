"""Prompts for training: those that a run shows, with every optimal answer."""

import json
from typing import Any

import numpy as np
import pytest

from goalscope.agents import ChatAgent
from goalscope.measures import StepTable, sample_episodes
from goalscope.planning import optimal_actions
from goalscope.preflight import training_prompts
from goalscope.runs import Store, Study, run
from goalscope.worlds.dynamics import initial_state

STUDY: dict[str, Any] = {
    "seed": 3,
    "worlds": [{"kind": "grid", "sizes": [5], "densities": [0.3], "count": 4}],
    "agents": [{"kind": "chat", "model": "theseus", "max_tokens": 64}, {"kind": "optimal"}],
    "trajectories": 1,
    "horizon": {"steps": 1},
}


def test_the_texts_are_those_of_a_run_and_the_answers_all_optimal_ones(tmp_path: Any) -> None:
    study = Study.parse(STUDY)
    run(study, tmp_path / "run")
    turns = list(training_prompts(study, rng=np.random.default_rng(0)))
    agent = next(one for one in study.agents() if isinstance(one, ChatAgent))
    with Store(tmp_path / "run") as store:
        episodes = {one.world.id: one for one in store.episodes() if one.steps[0].prompt_tokens}
    assert len(turns) == len(episodes) == 4
    for turn in turns:
        episode = episodes[turn.world_id]
        assert agent.model.encode(turn.prompt) == list(episode.steps[0].prompt_tokens or ())  # type: ignore[attr-defined]
        grid = episode.world.grid
        best = optimal_actions(grid, initial_state(grid).position, False)
        assert {json.loads(answer)["action"] for answer in turn.answers} == {action.name for action in best}


@pytest.mark.parametrize("history", ["none", "conversation"])
def test_episodes_arrive_and_wandering_ones_see_more(history: str) -> None:
    study = Study.parse({**STUDY, "history": history, "horizon": {"factor": 3}})
    straight = list(training_prompts(study, rng=np.random.default_rng(0)))
    wandering = list(training_prompts(study, rng=np.random.default_rng(0), wander=0.5))
    assert len(straight) < len(wandering) and {turn.cluster for turn in straight} == {t.cluster for t in wandering}
    last = max(straight, key=lambda turn: turn.step)
    assert len(last.messages) - len(straight[0].messages) == (2 * last.step if history == "conversation" else 0)
    with pytest.raises(ValueError, match="wander"):
        next(training_prompts(study, rng=np.random.default_rng(0), wander=2))
    with pytest.raises(ValueError, match="theseus"):
        next(training_prompts(study, rng=np.random.default_rng(0), agent="another"))


def test_states_of_an_author_are_those_of_environments_alone() -> None:
    with pytest.raises(ValueError, match="environments"):
        StepTable.from_episodes(sample_episodes()[:1]).environment_path(0)
