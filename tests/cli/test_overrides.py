"""StudyOptions to a study on the command line, `--model` among them, and `goalscope doctor --model NAME`."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import HARMONY_TEMPLATE, PLAIN_TEMPLATE, llama, tokenizer

from command_line import call
from goalscope.cli.generator import layers_of, split_names
from goalscope.cli.overrides import StudyOptions, load_study
from goalscope.runs import Store
from goalscope.verdict.preflight import study_files as studies
from goalscope.verdict.subject import MAX_TOKENS, find_out

SHIPPED = ("baseline", "key-door", "two-path", "fog")


def test_a_changed_study_is_another_one_and_says_what_is_changed() -> None:
    study = load_study("baseline")
    changed = load_study("baseline", StudyOptions(sizes=(7, 9), count=3, trajectories=2, agents="random,optimal"))
    assert (changed.worlds_[0].sizes, changed.worlds_[0].count, changed.trajectories) == ((7, 9), 3, 2)
    assert [agent.name for agent in changed.agents()] == ["random", "optimal"]
    assert changed.id != study.id and changed.horizon == study.horizon and not changed.further_agents_
    assert changed.name == "Baseline (sizes 7,9; count 3; trajectories 2; agents random,optimal)"
    assert load_study("baseline", StudyOptions()) == study
    single = load_study(
        "fog", StudyOptions(settings=("worlds.0.fog_radius=2", "worlds[0].densities=[0.5]", "name=mine"))
    )
    assert (single.worlds_[0].fog_radius, single.worlds_[0].densities, single.name) == (2, (0.5,), "mine")
    assert load_study("fog", StudyOptions(settings=("horizon={steps: 9}",))).horizon.steps == 9


def test_what_the_same_change_gives_is_the_same_study() -> None:
    one = load_study("key-door", StudyOptions(count=4))
    other = load_study("key-door", StudyOptions(settings=("worlds.0.count=4", "worlds.1.count=4")))
    assert one.id == other.id and one.name != other.name


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (StudyOptions(sizes=(8,)), "worlds[0].sizes[0]: size must be an odd whole number"),
        (StudyOptions(count=0), "worlds[0].count: must be greater than or equal to 1"),
        (StudyOptions(agents="Thesus"), "'Thesus'; did you mean Theseus?"),
        (StudyOptions(agents=","), "--agents"),
        (StudyOptions(agents=""), "--agents"),
        (StudyOptions(sizes=(1000001,)), "worlds[0].sizes[0]: size must be at most 501, got 1000001"),
        (StudyOptions(settings=("worlds.0.cuont=3",)), "worlds[0].cuont: unknown key; did you mean count?"),
        (StudyOptions(settings=("worlds.4.count=3",)), "worlds has 1 value, numbered from 0, so there is no value '4'"),
        (StudyOptions(settings=("horizn.factor=3",)), "the study has no key horizn; did you mean horizon?"),
        (StudyOptions(settings=("seed.first=3",)), "seed has no keys below it"),
        (StudyOptions(settings=("seed",)), "KEY=VALUE"),
        (StudyOptions(settings=("=3",)), "KEY=VALUE"),
        (StudyOptions(settings=("seed=[",)), "--set seed is not valid YAML"),
        (StudyOptions(settings=("trajectories=0",)), "trajectories: must be greater than or equal to 1"),
    ],
)
def test_a_wrong_change_is_refused_with_its_key(changes: StudyOptions, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        load_study("baseline", changes)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sizes", ""), "--sizes"),
        (("--sizes", "7,x"), "--sizes must be whole numbers separated by commas, got '7,x'"),
        (("--sizes", "7.5"), "--sizes must be whole numbers"),
        (("--densities", "0,much"), "--densities must be numbers"),
        (("--densities", "nan"), "densities"),
        (("--count", "many"), "--count"),
        (("--trajectories", ""), "--trajectories"),
        (("--agents", ""), "--agents"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_option(options: tuple[str, str], words: str) -> None:
    assert words in call("estimate", "scripted", *options, status=2)


def test_sizes_of_worlds_that_have_none_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two-path.*sizes"):
        load_study("two-path", StudyOptions(sizes=(7,)))


def test_names_may_hold_commas_in_brackets() -> None:
    assert split_names("forgetful(0.3, 6),optimal") == ["forgetful(0.3, 6)", "optimal"]
    assert split_names("a, b; c,") == ["a, b", "c,"]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_studies_have_the_papers_settings_and_their_further_agents_can_be_named(name: str) -> None:
    study = load_study(name)
    assert name in studies.names() and study.agents()[0].name == "Theseus"
    for entry in study.further_agents_:
        chosen = load_study(name, StudyOptions(agents=str(entry.name)))
        assert [agent.name for agent in chosen.agents()] == [entry.name]
    size = study.size()
    wanted = {"baseline": (300, 10), "key-door": (300, 1), "two-path": (200, 1), "fog": (90, 3)}
    assert (size.worlds, study.trajectories) == wanted[name]
    if name in ("key-door", "two-path"):
        assert study.horizon.steps == 30


def test_further_agents_change_no_id_and_are_not_run() -> None:
    study = load_study("fog")
    plain = study.dump()
    assert len(plain["further_agents"]) == 5
    assert {entry["history"] for entry in plain["further_agents"]} == {"actions", "conversation", "reasoning"}
    del plain["further_agents"]
    assert type(study).parse(plain).id == study.id
    assert "GPT-OSS-20B" not in [agent.name for agent in study.agents()]


def test_a_changed_run_is_kept_with_what_was_passed(tmp_path: Path) -> None:
    words = ("--count", "1", "--agents", "optimal", "--sizes", "7", "--densities", "0.5", "--trajectories", "1")
    call("run", "baseline", "--out", tmp_path / "run", *words, "--set", "horizon.factor=2.0")
    with Store(tmp_path / "run") as store:
        assert len(store.episode_ids()) == 1
        study = store.study()
        passed = store.info()["arguments"]["passed"]
    assert study is not None and study.horizon.factor == 2.0
    assert passed["count"] == "1" and passed["set"] == ["horizon.factor=2.0"]
    refused = call("run", "baseline", "--out", tmp_path / "run", "--count", "2", "--agents", "optimal", status=2)
    assert "another study" in refused or "count" in refused


def test_the_embedding_is_a_layer_where_it_can_be_one() -> None:
    assert layers_of("-1, 0,3", first=-1) == (-1, 0, 3) and layers_of("7,15") == (7, 15)
    for text, first in (("-1,0", 0), ("-2", -1), ("1;2", 0), ("", 0), ("١", 0), ("9" * 5000, 0)):
        with pytest.raises(ValueError, match=rf">= {first}"):
            layers_of(text, first=first)


# `--model NAME` in the place of a study's own, and `goalscope doctor --model NAME`.


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
    pairs = load_study("harness", StudyOptions(model=found))
    chat = {agent.name: entry for agent, entry in zip(pairs.agents(), pairs.agents_, strict=True)}
    assert {"tiny", "tiny memory"} < set(chat) and chat["tiny memory"].parameters["memory"] is True
    assert chat["tiny"].parameters["temperature"] == 0.0 and chat["tiny"].parameters["max_tokens"] == MAX_TOKENS
    assert pairs.analysis is not None and ("tiny", "tiny memory") in pairs.analysis.pairs
    inside = load_study("cognitive-map", StudyOptions(model=found))
    assert inside.analysis is not None and inside.analysis.inside is not None
    assert inside.analysis.inside.agent == "tiny"
    fogged = load_study("fog", StudyOptions(model=found))
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
    monkeypatch.setattr("goalscope.cli.examining.SAMPLE_TOKENS", 3)
    told = json.loads("{" + call("doctor", "--model", tiny, "--json").partition("{")[2])
    assert (told["source"], told["reasoning"], told["chat_template"]) == ("folder", "none", True)
    assert told["cells"] == {symbol: [" ", symbol] for symbol in "#_AG"} and told["cell_problems"] == []
    assert list(told["prompt_tokens"]) == ["7", "9", "15"] and len(told["samples"]) == 3
    assert all(0 <= sample["mass"] <= 1 for sample in told["samples"]) and told["read_rate"] > 0
    assert "--model" in call("doctor", "--json", status=2)
