"""The second bundled model acts in task worlds: it loads by its name and answers in the format."""

from pathlib import Path

import pytest

from goalscope.agents.models import LocalModel
from goalscope.measures import measure_episodes
from goalscope.runs import Store, Study
from goalscope.runs import run as run_study
from training.task_vocabulary import vocabulary


def test_the_shipped_files_are_those_of_the_vocabulary(tmp_path: Path) -> None:
    shipped = LocalModel("ariadne")
    vocabulary().save(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / name).read_bytes() == (folder() / name).read_bytes()
    assert shipped.tags["planted_goal"] == "task goal"
    assert sum(file.stat().st_size for file in folder().iterdir()) <= 4 * 2**20


def folder() -> Path:
    from goalscope.agents.models.folders import model_folder

    found = model_folder("ariadne")
    assert found is not None
    return found


@pytest.mark.full
def test_a_small_study_runs_on_the_bundled_model_in_every_kind_of_prompt(tmp_path: Path) -> None:
    arms = [
        ("base", False, False),
        ("exploration", True, False),
        ("exploitation", False, True),
        ("balance", True, True),
    ]
    agents = [
        {
            "kind": "task-chat",
            "model": "ariadne",
            "name": strategy,
            "strategy": strategy,
            "reasoned": reasoned,
            "memory": memory,
            "temperature": 0.0,
            "max_tokens": 64,
        }
        for strategy, reasoned, memory in arms
    ]
    worlds = {"kind": "task-map", "presets": ["high-small"], "count": 1}
    run_study(Study.parse({"worlds": [worlds], "agents": agents, "trajectories": 1}), tmp_path)
    with Store(tmp_path) as store:
        episodes = list(store.episodes())
    turns = [step for episode in episodes for step in episode.steps]
    assert len(episodes) == 4 and len(turns) > 20
    assert sum(turn.failure is None for turn in turns) >= 0.99 * len(turns)
    assert all(turn.reasoning and turn.reasoning.startswith("at [") for turn in turns)
    # Reasoned answers say where they go before the JSON object.
    spoken = [step.text for episode in episodes if episode.agent == "balance" for step in episode.steps]
    assert all(text and text.startswith("I go to [") for text in spoken)
    assert {"exploration error", "success"} <= set(measure_episodes(episodes).measure.tolist())


def test_a_model_of_nearly_this_name_is_told_it() -> None:
    with pytest.raises(ValueError, match="ariadne"):
        LocalModel("Ariadn")
