"""`--model NAME` in the place of a study's own, and `goalscope doctor --model NAME`."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import HARMONY_TEMPLATE, PLAIN_TEMPLATE, llama, tokenizer

from command_line import call
from goalscope.cli.overrides import Overrides, load_study
from goalscope.runs import Store
from goalscope.verdict.subject import MAX_TOKENS, find_out

SMALL = ("--sizes", "7", "--densities", "0.4", "--count", "1", "--trajectories", "1", "--set", "horizon={steps: 1}")


def saved(folder: Path, template: str | None, *added: str) -> Path:
    model: Any = llama(positions=4096)
    model.save_pretrained(folder)
    tokenizer(template, added=added).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("models") / "tiny", PLAIN_TEMPLATE)


def test_any_model_takes_the_place_of_the_studys_own(tiny: Path, tmp_path: Path) -> None:
    study = ("baseline", "--model", tiny, "--agents", "Theseus,random", *SMALL, "--set", "agents.0.max_tokens=3")
    planned, ran = call("estimate", *study), call("run", *study, "--out", tmp_path / "run")
    for said in (planned, ran):
        assert said.count("(reasoning: none)") == 1 and "Notice" not in said
    with Store(tmp_path / "run") as store:
        told = dict(store.agents().values())
        stored = store.study()
        assert store.info()["arguments"]["passed"]["model"] == "tiny"
    assert stored is not None and [agent.name for agent in stored.agents()] == ["tiny", "random"]
    assert told["tiny"]["model"]["reasoning"] == "none" and told["tiny"]["sampling"]["reasoning_effort"] is None
    assert told["tiny"]["sampling"]["temperature"] == 0.7 and "example" in told["tiny"]
    assert "measured" not in ran and "next: " in ran


def test_what_is_found_out_follows_from_the_tokenizer(tmp_path: Path) -> None:
    markers = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>", "<|constrain|>")
    harmony = find_out(str(saved(tmp_path / "harmony", HARMONY_TEMPLATE, *markers)), network=False)
    thinking = saved(tmp_path / "think", "{{ messages[0].content }}<think>", "<think>", "</think>")
    think, base = find_out(str(thinking), network=False), find_out(str(saved(tmp_path / "base", None)), network=False)
    assert harmony.style == "harmony" and {"max_tokens", "reasoning_effort"}.isdisjoint(harmony.parameters)
    assert think.style == "tags" and think.parameters["reasoning_effort"] is None
    assert base.style == "none" and base.parameters["max_tokens"] == MAX_TOKENS and "base model" in base.line
    unread = find_out("someone/model", network=False)
    assert unread.style is None and unread.name == "model" and "hub" in unread.line


def test_what_concerns_the_question_stays_and_names_follow(tiny: Path) -> None:
    found = find_out(str(tiny), network=False)
    pairs = load_study("harness", Overrides(model=found))
    chat = {agent.name: entry for agent, entry in zip(pairs.agents(), pairs.agents_, strict=True)}
    assert {"tiny", "tiny memory"} < set(chat) and chat["tiny memory"].parameters["memory"] is True
    assert chat["tiny"].parameters["temperature"] == 0.0 and chat["tiny"].parameters["max_tokens"] == MAX_TOKENS
    assert pairs.analysis is not None and ("tiny", "tiny memory") in pairs.analysis.pairs
    inside = load_study("cognitive-map", Overrides(model=found))
    assert inside.analysis is not None and inside.analysis.inside is not None
    assert inside.analysis.inside.agent == "tiny"
    fogged = load_study("fog", Overrides(model=found))
    assert fogged.agents_[0].parameters["task"] == "fog" and fogged.agents_[0].parameters["history"] == "actions"


def test_a_study_without_a_language_model_names_those_with_one(tiny: Path) -> None:
    refused = call("estimate", "scripted", "--model", tiny, status=2)
    assert "--model" in refused and "scripted" in refused and "baseline" in refused
    missing = call("run", "baseline", "--model", "./nowhere", "--out", "x", status=2)
    assert "there is none at ./nowhere" in missing and not Path("x").exists()
    assert call("estimate", "baseline", "--model", "thesus", status=2).count("theseus") == 1


def test_a_tokenizer_that_cannot_be_read_stops_plan_and_run_alike(tiny: Path, tmp_path: Path) -> None:
    folder = saved(tmp_path / "broken", "{% for")
    for command in (("estimate",), ("run", "--out", tmp_path / "run")):
        refused = call(command[0], "baseline", "--model", folder, *SMALL, *command[1:], status=2)
        assert "chat template" in refused


def test_the_doctor_tries_a_model(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goalscope.cli.doctor_model.SAMPLE_TOKENS", 3)
    told = json.loads("{" + call("doctor", "--model", tiny, "--json").partition("{")[2])
    assert (told["source"], told["reasoning"], told["chat_template"]) == ("folder", "none", True)
    assert told["cells"] == {symbol: [" ", symbol] for symbol in "#_AG"} and told["cell_problems"] == []
    assert list(told["prompt_tokens"]) == ["7", "9", "15"] and len(told["samples"]) == 3
    assert all(0 <= sample["mass"] <= 1 for sample in told["samples"]) and told["read_rate"] > 0
    assert "--model" in call("doctor", "--json", status=2)
