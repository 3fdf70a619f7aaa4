"""What is said before a run when its largest world is too much for a local model."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from goalscope.cli import app
from goalscope.runs import Study
from goalscope.verdict.preflight.cost import beyond_reach


def study_of(size: int, agent: dict[str, Any], **more: Any) -> Study:
    worlds = [{"kind": "grid", "sizes": [7, size], "densities": [0.4], "count": 1}]
    return Study.parse({"worlds": worlds, "agents": [agent, {"kind": "optimal"}], "trajectories": 1, **more})


THESEUS = {"kind": "chat", "model": "theseus", "name": "Theseus", "max_tokens": 96}


def test_nothing_is_said_of_worlds_like_those_of_the_training() -> None:
    assert beyond_reach(study_of(15, THESEUS)) == []


def test_a_larger_grid_than_any_of_the_training_is_said() -> None:
    (line,) = beyond_reach(study_of(21, THESEUS))
    assert line.startswith("Theseus: it was trained on grids of up to 15x15 and this study has 21x21")


def test_a_prompt_longer_than_the_positions_is_said() -> None:
    first, second = beyond_reach(study_of(31, THESEUS))
    assert "1,024 positions" in first and "tokens" in first
    assert "31x31" in second


def test_a_history_that_outgrows_the_positions_is_said() -> None:
    (line,) = beyond_reach(study_of(15, THESEUS, history="conversation", horizon={"steps": 60}))
    assert "a shorter history" in line


def test_models_that_are_not_on_this_machine_are_passed_over() -> None:
    server = {"kind": "chat", "model": "theseus", "server": {"base_url": "http://127.0.0.1:9/v1"}}
    assert beyond_reach(study_of(31, server)) == []
    assert beyond_reach(study_of(31, {"kind": "chat", "model": "somebody/some-model"})) == []


@pytest.mark.parametrize(
    "written", ["[1]", "{", "[" * 100_000, '{"goalscope": {"training_data": "[]"}}', '{"goalscope": 1}']
)
def test_a_strange_configuration_is_left_to_whoever_reads_the_model(written: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(written)
    (tmp_path / "model.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")
    assert beyond_reach(study_of(31, {"kind": "chat", "model": str(tmp_path)})) == []


def test_plan_says_it(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps(study_of(21, THESEUS).dump()))
    result = CliRunner().invoke(app, ["estimate", str(path)])
    assert result.exit_code == 0
    assert "trained on grids of up to 15x15" in result.output
