"""What the user chooses reaches the agent, the plan, the ledger and the page; what does not fit is refused by name."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tiny_models import PLAIN_TEMPLATE, llama, tokenizer

from command_line import call
from goalscope.agents.prompts import template
from goalscope.runs import Store
from goalscope.runs.importers import import_into
from goalscope.verdict import Evaluation, judging, subject_of, subjects_of
from goalscope.verdict.arms import arms
from goalscope.verdict.plan import LEDGER, PAGE, PLAN, Choices
from goalscope.verdict.sentences import told
from goalscope.verdict.subject import described, planned_entry, told_apart

ARMS = {arm.name: arm for arm in arms()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was never trained, whose prompts fit."""
    place = tmp_path_factory.mktemp("models") / "tiny"
    llama(positions=4096).save_pretrained(place)
    tokenizer(PLAIN_TEMPLATE, added=()).save_pretrained(place)
    return place


def chosen(**lists: Any) -> Choices:
    return Choices.of(*(lists.get(name, ()) for name in ("arms", "sizes", "models", "settings")))


@pytest.mark.parametrize(
    ("setting", "place", "value"),
    [
        ("answer=likelihood", ("answer", "kind"), "likelihood"),
        ("temperature=0.0", ("sampling", "temperature"), 0.0),
        ("max_tokens=7", ("sampling", "max_tokens"), 7),
        ("dtype=bfloat16", ("model", "dtype"), "bfloat16"),
        ("template=schema", ("template",), hashlib.sha256(template("grid", "schema").encode()).hexdigest()),
    ],
)
def test_a_parameter_reaches_the_description_of_the_agent(
    folder: Path, setting: str, place: tuple[str, ...], value: Any
) -> None:
    [subject] = chosen(models=[setting]).subjects([subject_of(str(folder))])
    [agent] = ARMS["grids"].make([subject], 1, 1).agents()
    found: Any = agent.describe()
    for key in place:
        found = found[key]
    assert found == value and setting.replace("=", ": ") in described(planned_entry(subject))
    assert subject.name == agent.name and ("likelihood" in subject.name) is (setting == "answer=likelihood")


def test_all_choices_end_in_plan_run_ledger_and_page(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words: list[object] = ["evaluate", folder, "--quick", "--out", out]
    options = ["--arms", "grids", "--sizes", 7, "--answer", "likelihood", "--template", "schema", "--temperature", 0]
    options += ["--dtype", "float32", "--device", "cpu", "--batch", 4, "--set", "least_mass=0.0"]
    options += ["--set", "worlds.0.densities=[1.0]", "--set", "horizon={steps: 2}"]
    said = call(*words, *options)
    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    sentence = (
        f"weights sha256 {weights[:12]}, dtype float32; actions drawn in proportion to the likelihoods "
        "of all complete answers after the prompt; template schema; temperature 0"
    )
    assert sentence in said and "tiny (likelihood)" in said
    assert sentence in (out / PAGE).read_text() and sentence in call("card", out)
    [ledger] = Evaluation.read(out / LEDGER).models
    assert ledger.model == "tiny (likelihood)" and ledger.agent["answer"]["least_mass"] == 0.0
    assert ledger.agent["model"]["files"]["model.safetensors"] == weights
    assert all(text in ledger.described for text in ("slots: 4", "device: cpu", "answer: likelihood")), ledger.described
    assert {arm.why for arm in ledger.arms if not arm.asked} == {"left out by --arms"}
    with Store(out / "arms" / "grids") as store:
        study: Any = store.study()
        assert study.worlds_[0].sizes == (7,) and study.horizon.steps == 2 and len(study.agents_) == 1
        assert next(iter(store.agents().values()))[1] == ledger.agent
    plan = (out / PLAN).read_bytes()
    call(*words, *options)
    assert (out / PLAN).read_bytes() == plan
    other = " ".join(call(*words, *options[2:], "--arms", "keys", status=2).split())
    assert "--arms grids stored, not given" in other and "--arms keys given, not stored" in other
    fewer = " ".join(call(*words, *options[:-2], status=2).split())
    assert "horizon={steps: 2} stored, not given" in fewer and "--sizes" not in fewer
    evaluation, _ = judging.reopen(out)
    assert evaluation.plan.choices.sizes == (7,) and evaluation.arms[0].full == 3 * ARMS["grids"].full


@pytest.mark.full
def test_a_study_that_was_run_keeps_its_agent_and_imported_logs_stay_logs(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        f"worlds: [{{kind: grid, sizes: [7], densities: [0.6], count: 3}}]\nhorizon: {{steps: 2}}\ntrajectories: 1\n"
        f"agents: [{{kind: chat, model: {folder}, answer: likelihood, least_mass: 0.0, reasoning: none}},"
        " {kind: random}]\n"
    )
    call("run", tmp_path / "study.yaml", "--out", tmp_path / "run")
    said = call("evaluate", tmp_path / "run", "--out", tmp_path / "out")
    first, second = Evaluation.read(tmp_path / "out" / LEDGER).models
    assert "kind: chat" in first.described and "run: run" in first.described and first.access == ("logs",)
    assert told(first.agent) in said and "likelihoods" in told(first.agent) and "template example" in told(first.agent)
    assert told(first.agent) in (tmp_path / "out" / PAGE).read_text()
    assert "kind: random" in second.described and "kind random" in told(second.agent)
    refused = call("evaluate", tmp_path / "run", "--temperature", 0, "--out", tmp_path / "no", status=2)
    assert "a recorded run" in " ".join(refused.split())


def test_imported_logs_stay_logs(tmp_path: Path) -> None:
    line = {"episode": "a", "grid": "#####\n#A__#\n#___#\n#__G#\n#####", "step": 0, "position": [1, 1], "action": "UP"}
    (tmp_path / "log.jsonl").write_text(json.dumps(line) + "\n")
    assert import_into(tmp_path / "log.jsonl", tmp_path / "run").exit_status == 0
    [subject] = subjects_of(str(tmp_path / "run"))
    assert (subject.kind, subject.parameters) == ("logs", {}) and described(planned_entry(subject)).startswith(
        "{agent: recorded, kind: logs"
    )
    with pytest.raises(ValueError, match="judged as they are"):
        chosen(sizes=[7]).subjects([subject])


def test_a_model_in_words_and_in_a_file_are_the_same(tmp_path: Path) -> None:
    entry = "kind: chat\nmodel: q/gpt\nserver: {base_url: 'http://127.0.0.1:1/v1', timeout: 60}\ntemperature: 0.5\n"
    (tmp_path / "model.yaml").write_text(entry)
    words = "chat:model=q/gpt,server.base_url=http://127.0.0.1:1/v1,server.timeout=60,temperature=0.5"
    first, second = subject_of(str(tmp_path / "model.yaml")), subject_of(words)
    assert first == second and first.name == "gpt" and first.parameters["server"]["timeout"] == 60
    assert first.access == subject_of("openai:q/gpt@http://127.0.0.1:1/v1").access
    assert subject_of("task-chat:model=ariadne,strategy=balance").access == {"tasks"}
    assert subject_of("chat:model=theseus") == subject_of("theseus")
    retrying = subject_of("chat:model=theseus,failure.policy=retry,failure.retries=2")
    [agent] = ARMS["grids"].make([retrying], 1, 1).agents_
    assert agent.failure is not None and agent.failure.retries == 2
    assert subject_of("chat:model=theseus,untrained=3").name == "Theseus-untrained-3"
    (tmp_path / "greedy.yml").write_text("{kind: epsilon-greedy, epsilon: 0.25}")
    assert subjects_of(str(tmp_path / "greedy.yml")) == subjects_of("epsilon-greedy:epsilon=0.25")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("chat:model=theseus,answr=likelihood", "did you mean answer"),
        ("chat:answer=likelihood", "must name its model"),
        ("chat:model=theseus,answer=guessed", "generated, likelihood"),
        ("chat:model=theseus,template=exmple", "example, schema, completion"),
        ("chat:model=q/gpt,server.base_url=http://127.0.0.1:1/v1,answer=likelihood", "mode completions"),
        ("chat:model=q/gpt,server=x,server.base_url=http://127.0.0.1:1/v1", "beside"),
        ("chta:model=theseus", "did you mean chat"),
    ],
)
def test_a_wrong_word_of_a_model_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        subject_of(text)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file nothere\.yaml"):
        subject_of("nothere.yaml")


@pytest.mark.parametrize("text", ["[1, 2]", "model: theseus", "kind: 3", "kind: chat\nmodel: [x]"])
def test_a_file_that_holds_no_agent_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"model\.yaml"):
        subject_of(str(tmp_path / "model.yaml"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--arms", "grid"], "did you mean grids"),
        (["--arms", "inside"], "--arms grids,inside"),
        (["--set", "seed=3"], "--seed"),
        (["--set", "worlds.0.count=3"], "--budget"),
        (["--set", "max_tokens=3", "--set", "max_tokens=4"], "max_tokens must be given once"),
        (["--answer", "likelihood", "--set", "answer=generated"], "answer must be given once"),
        (["--set", "horizn.factor=2"], "no key horizn"),
        (["--set", "horizon.factor=-2"], "must be greater than 0"),
        (["--set", "max_tokns=3"], "did you mean max_tokens"),
        (["--sizes", "8"], "odd"),
        (["--temperature", "-1"], "temperature must be a finite number >= 0"),
        (["--dtype", "int8"], "dtype must be one of auto"),
        (["--device", "gpu"], "gpu"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_asked(options: list[str], words: str, tmp_path: Path) -> None:
    said = call("evaluate", "theseus", *options, "--quick", "--out", tmp_path / "out", status=2)
    assert words in " ".join(said.split()) and not (tmp_path / "out").exists()


def test_options_of_language_models_are_refused_for_other_agents(tmp_path: Path) -> None:
    said = call("evaluate", "theseus", "random", "--temperature", 0, "--quick", "--out", tmp_path / "out", status=2)
    assert "random is an agent of kind random" in said and "chat:model=NAME,temperature=0.0" in " ".join(said.split())


def test_what_an_arm_does_not_take_is_said_once(folder: Path) -> None:
    agent, model = subject_of("optimal"), subject_of(str(folder)).changed(["template=completion"])
    some = [ARMS[name] for name in ("grids", "keys", "transforms")]
    choices = chosen(sizes=[7], settings=["horizon.steps=9"])
    [horizon, sizes] = choices.not_taken(some, [agent], 1)
    assert "Keys, doors and two paths: worlds of kind key-no-door" in sizes and "horizon.steps=9" in horizon
    assert "Grids, Mirrored" in horizon and "exactly one" in horizon
    made = [choices.changed(arm).make([agent], 1, 1) for arm in some]
    assert [study.worlds_[0].sizes for study in made if study.name != some[1].title] == [(7,), (7,)]
    assert made[1].horizon.steps == 9 and made[0].horizon.factor == 1.5
    assert choices.changed(some[0]).full == 3 * some[0].full
    with pytest.raises(ValueError, match="no sizes"):
        choices.not_taken([ARMS["keys"]], [agent], 1)
    far = ARMS["fog"]
    [line] = chosen(sizes=[5]).not_taken([ARMS["grids"], far], [agent], 1)
    assert "--sizes 5 is not applied to Fog" in line and "minimum_distance" in line
    assert chosen(sizes=[5]).changed(far).full == far.full
    assert chosen(sizes=[5]).changed(far).make([agent], 1, 1).id == far.make([agent], 1, 1).id
    own = chosen(models=["template=completion"])
    [line] = own.not_taken([ARMS["grids"], ARMS["tasks"]], [model], 1)
    assert "template=completion is not applied to Task worlds" in line
    assert ARMS["tasks"].make([model], 1, 1).agents_[0].parameters.get("template") is None


def test_equal_names_are_told_apart_by_what_differs() -> None:
    texts = ["chat:model=theseus", "chat:model=theseus,answer=likelihood", "chat:model=theseus,temperature=0"]
    names = [one.name for one in told_apart([subject_of(text) for text in texts])]
    assert names == ["Theseus (temperature 0.7)", "Theseus (likelihood)", "Theseus (temperature 0)"]
    assert told_apart([subject_of("chat:model=theseus,name=A"), subject_of("theseus")])[1].name == "Theseus"
    for same in (
        ["theseus", "theseus"],
        ["random", "random"],
        ["chat:model=theseus,name=Theseus", "random:name=Theseus"],
    ):
        with pytest.raises(ValueError, match="different names"):
            told_apart([subject_of(text) for text in same])


def test_the_help_names_every_arm() -> None:
    text = " ".join(call("evaluate", "--help").split())
    described = re.sub(r"[│ ]+", " ", text).partition("--arms")[2].partition("--sizes")[0]
    assert [name for name in re.findall(r"\w+", described) if name in ARMS] == list(ARMS)


def test_a_description_that_is_none_of_ours_is_told_as_such() -> None:
    assert told({}) == told({"source": "elsewhere"}) == ""
    assert "in an unknown form" in told({"kind": "chat", "model": 3})
    model = {"kind": "http", "model": "gpt", "mode": "chat"}
    served = {"kind": "chat", "model": model, "template": "0" * 64, "sampling": {"temperature": 1, "top_p": 1}}
    assert "gpt behind a server (mode chat)" in told(served) and "a custom template, sha256 000000000000" in told(
        served
    )
    assert "(telos G.2)" in told({**served, "printed": "telos G.2"})
    assert "a custom template" in told({**served, "printed": "<b>mine</b>"}) and "mine" not in told(
        {**served, "printed": []}
    )
