"""A small model that nobody here trained, with and without constrained choice; benchmarks/README.md has a table."""

from pathlib import Path

import pytest
from real_models import smollm2

from goalscope.runs import Store, Study, run

pytestmark = pytest.mark.full


def test_constrained_choice_takes_the_format_out_of_the_turns(tmp_path: Path) -> None:
    common = {"kind": "chat", "model": str(smollm2(tmp_path)), "max_tokens": 32, "reasoning": "none"}
    common["reasoning_effort"] = None
    study = Study.parse(
        {
            "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.4], "count": 10}],
            "agents": [
                {**common, "name": "generated", "template": "schema"},
                {**common, "name": "choice", "answer": "likelihood", "template": "example"},
                {**common, "name": "choice, schema", "answer": "likelihood", "template": "schema"},
            ],
            "trajectories": 1,
            "horizon": {"steps": 1},
        }
    )
    run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        steps = [(episode.agent, step) for episode in store.episodes() for step in episode.steps]
    invalid = {name: sum(step.action is None for agent, step in steps if agent == name) for name in study_names(study)}
    assert invalid["generated"] >= 9, "it copies the schema, or writes something else"
    assert invalid["choice"] == 0
    assert invalid["choice, schema"] == 10, "beside the schema the actions have next to no mass"
    masses = [step.extra["likelihood"]["mass"] for agent, step in steps if agent == "choice"]
    assert all(0.5 < mass < 1 for mass in masses)


def study_names(study: Study) -> list[str]:
    return [agent.name for agent in study.agents()]
