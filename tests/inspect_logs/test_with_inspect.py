"""Both ways with Inspect itself: the same actions, episodes and activations; logs of others, unfinished and bad ones.

These need inspect-ai (40 s to install, 150 MB) and are therefore left out where it is not installed.
"""

import asyncio
import gc
import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from goalscope.cli import app
from goalscope.integrations.inspect_ai import RecordedEpisode, tool_calls
from goalscope.measures import measure_store
from goalscope.runs import Store, Study, run
from goalscope.runs.importers import import_into, import_path

inspect_ai = pytest.importorskip("inspect_ai", reason="the extra inspect is not installed")

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("default")]

GRIDS = {"kind": "grid", "sizes": [7], "densities": [0.0, 0.6], "count": 1}
LAYOUT = {"kind": "key-door", "count": 1}


@pytest.fixture(autouse=True)
def _streams_are_collected_here() -> Iterator[None]:
    """Collect what Inspect leaves open, so that its warnings belong to these tests and to no later one."""
    yield
    gc.collect()


def evaluated(task: Any, folder: Path, model: Any, **settings: Any) -> Any:
    [log] = inspect_ai.eval(task, model=model, log_dir=str(folder), display="none", **settings)
    return log


def mock(answer: Callable[[int], str], reasoning: str = "") -> Any:
    """Return a mock model whose n-th answer is given."""
    from inspect_ai.model import ContentReasoning, ContentText, ModelOutput, ModelUsage, get_model

    count = iter(range(10**6))

    def output(*asked: Any) -> Any:
        parts = [ContentReasoning(reasoning=reasoning)] if reasoning else []
        found = ModelOutput.from_content("mockllm", [*parts, ContentText(text=answer(next(count)))])
        found.usage = ModelUsage(input_tokens=5, output_tokens=2, total_tokens=7)
        return found

    return get_model("mockllm/model", custom_outputs=output)


def stored(folder: Path) -> tuple[list[Any], list[Any], list[Any]]:
    with Store(folder) as store:
        return list(store.episodes()), sorted(store.entries("agent")), sorted(store.entries("world"))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run of a study, the log of the same study in Inspect, and the import of that log."""
    from goalscope.integrations.inspect_ai.tasks import study

    folder = tmp_path_factory.mktemp("both")
    plain = {
        "name": "both",
        "seed": 3,
        "worlds": [GRIDS],
        "agents": [{"kind": "chat", "model": "theseus", "temperature": 0}],
        "trajectories": 1,
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(plain))
    run(Study.parse(plain), folder / "run")
    log = evaluated(study(str(folder / "study.yaml")), folder / "logs", "goalscope/theseus", temperature=0)
    assert log.status == "success"
    result = import_into(folder / "logs", folder / "imported")
    assert not result.problems
    return folder


def test_the_same_model_acts_alike_and_the_import_is_the_run(both: Path) -> None:
    ours, theirs = stored(both / "run"), stored(both / "imported")
    assert [[step.action for step in one.steps] for one in ours[0]] == [
        [step.action for step in one.steps] for one in theirs[0]
    ]
    assert ours == theirs
    assert all(step.output_tokens for one in theirs[0] for step in one.steps)


def test_activations_of_the_import_are_those_of_the_run(both: Path) -> None:
    from goalscope.agents.models import LocalModel
    from goalscope.inside.activations import capture, load_activations

    found = []
    for name, model in (("run", None), ("imported", LocalModel("theseus"))):
        made = capture(both / name, model, sites=["pre", "post"], layers=[0, 7])
        vectors = [
            load_activations(both / name, site=site, layer=layer, capture=made.id).vectors
            for site in ("pre", "post")
            for layer in (0, 7)
        ]
        found.append((made.id, vectors))
    assert found[0][0] == found[1][0]
    assert len(found[0][1][0]) > 0
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert np.array_equal(one, other)


def test_the_command_of_the_page_asks_a_bundled_model_in_the_form_that_it_was_trained_on(tmp_path: Path) -> None:
    from goalscope.integrations.inspect_ai.tasks import grids

    log = evaluated(grids(sizes="7", densities="0.6", count=2), tmp_path, "goalscope/theseus", temperature=0)
    scores = [sample.scores["episode_measures"].value for sample in log.samples]
    assert [(score["success"], score["invalid turns"]) for score in scores] == [(1.0, 0.0)] * 2


def test_the_scores_are_our_measures_with_standard_errors_over_clusters(both: Path) -> None:
    from inspect_ai.log import read_eval_log

    log = read_eval_log(next((both / "logs").glob("*.eval")))
    rows = measure_episodes_of(both / "run")
    for score in log.results.scores:
        mine = rows.value[rows.measure == score.name]
        assert score.metrics["mean"].value == pytest.approx(mine.mean())
        assert score.metrics["stderr"].params == {"cluster": "cluster"}


def measure_episodes_of(folder: Path) -> Any:
    with Store(folder) as store:
        return measure_store(store)


def test_an_exported_run_is_read_back_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inspect_ai.log import read_eval_log

    from goalscope.integrations.inspect_ai import export

    plain = {
        "worlds": [GRIDS, LAYOUT, {**GRIDS, "fog_radius": 2}],
        "agents": [{"kind": "epsilon-greedy", "epsilon": 0.5}, {"kind": "random"}],
        "trajectories": 2,
    }
    run(Study.parse(plain), tmp_path / "run")
    maps = {"worlds": [{"kind": "cooking", "starts": 1}], "agents": [{"kind": "task-random-walk"}], "trajectories": 1}
    run(Study.parse(maps), tmp_path / "maps")
    for name, agents in (("run", 2), ("maps", 1)):
        with Store(tmp_path / name) as store:
            written = export.export_logs(store, tmp_path / f"{name} logs")
        assert len(written) == agents
        result = import_into(tmp_path / f"{name} logs", tmp_path / f"{name} back")
        assert not result.problems
        assert stored(tmp_path / name) == stored(tmp_path / f"{name} back")
        rows = measure_episodes_of(tmp_path / name)
        log = read_eval_log(written[0])
        agent = log.samples[0].store["goalscope"]["agent"]
        [success] = [score for score in log.results.scores if score.name == "success"]
        mine = rows.where((rows.measure == "success") & (rows.columns()["agent"] == agent))
        assert success.metrics["mean"].value == pytest.approx(mine.value.mean())
    monkeypatch.setattr(export, "MOST_STEPS", 40)
    with Store(tmp_path / "run") as store:
        assert len(export.export_logs(store, tmp_path / "parts")) > 2
    assert not import_into(tmp_path / "parts", tmp_path / "whole").problems
    assert stored(tmp_path / "run") == stored(tmp_path / "whole")


def test_what_a_limit_or_an_error_ended_is_told_apart(tmp_path: Path) -> None:
    from goalscope.integrations.inspect_ai.tasks import grids

    def failing(number: int) -> str:
        if number == 2:
            raise ConnectionError("the model is gone")
        return "nothing"

    room = {"sizes": 9, "densities": 0.6, "count": 2, "horizon_factor": 20}
    log = evaluated(grids(**room), tmp_path / "limit", mock(lambda n: "nothing"), token_limit=15)
    assert log.status == "success"
    result = import_into(tmp_path / "limit", tmp_path / "limited")
    assert not result.problems
    assert [one.outcome for one in stored(tmp_path / "limited")[0]] == ["stopped", "stopped"]
    settings = {"max_samples": 1, "fail_on_error": False, "token_limit": 40, "max_retries": 0}
    evaluated(grids(**room), tmp_path / "error", mock(failing), **settings)
    result = import_into(tmp_path / "error", tmp_path / "erred")
    assert not result.problems
    assert result.counts["samples that an error or an interruption ended"] == 1
    assert len(stored(tmp_path / "erred")[0]) == 1


def test_answers_of_any_provider_are_read_and_tried_again_as_in_a_run(tmp_path: Path) -> None:
    from goalscope.integrations.inspect_ai.tasks import study_task

    plain = {
        "worlds": [{**GRIDS, "densities": [0.0]}],
        "agents": [{"kind": "random"}],
        "trajectories": 2,
        "history": "conversation",
        "failure": {"policy": "retry", "retries": 1},
    }
    task = study_task("mock", Study.parse(plain), "chat", {"task": "grid"})
    answers = ["no action here", '{"action": "UP"}', '{"action": "LEFT"}']
    evaluated(task, tmp_path / "logs", mock(lambda n: answers[n % 3], "hm"), max_samples=1)
    result = import_into(tmp_path / "logs", tmp_path / "run")
    assert not result.problems
    episodes, agents, _ = stored(tmp_path / "run")
    assert [one.spec.trajectory for one in episodes] == [0, 1]
    first = episodes[0].steps[0]
    assert first.extra["attempts"] == [{"failure": "no JSON", "text": "no action here", "reasoning": "hm"}]
    assert [(int(step.action), step.reasoning) for step in episodes[0].steps[:2]] == [(0, "hm"), (2, "hm")]
    assert '"mockllm/model"' in str(agents[0])


@pytest.mark.parametrize("name", ["task_maps", "textworld", "grids"])
def test_every_registered_task_is_played_and_imported(name: str, tmp_path: Path) -> None:
    from goalscope.integrations.inspect_ai import registry

    if name == "textworld":
        pytest.importorskip("textworld", reason="the extra textworld is not installed")
    settings: dict[str, dict[str, Any]] = {
        "task_maps": {"count": 1, "reasoned": True, "memory": True},
        "textworld": {"seeds": "3,4", "horizon_factor": 3},
        "grids": {"sizes": "7", "densities": "0,0.6", "count": 1, "fog_radius": 2, "history": "conversation"},
    }
    task = getattr(registry, name)(**settings[name], trajectories=2)
    assert task.config.temperature == 0.7
    answers = ['{"action": "RIGHT"}', '{"action": "DOWN"}', '{"action": "go east"}', "nothing"]
    log = evaluated(task, tmp_path / "logs", mock(lambda n: answers[n % 4]))
    assert log.status == "success"
    assert {score.name for score in log.results.scores} > {"success"}
    result = import_into(tmp_path / "logs", tmp_path / "run")
    assert not result.problems
    episodes, _, worlds = stored(tmp_path / "run")
    assert len(episodes) == 2 * len(worlds) == 2 * log.eval.dataset.samples
    assert all(step.text for episode in episodes for step in episode.steps)


def test_a_temperature_draws_as_in_a_run(tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log
    from inspect_ai.model import get_model

    from goalscope.integrations.inspect_ai.tasks import study_task

    worlds = [{"kind": "grid", "sizes": [7], "densities": [0.0], "count": 1, "minimum_distance": 5}]
    plain = {"seed": 5, "worlds": worlds, "agents": [{"kind": "chat", "model": "ariadne"}], "trajectories": 3}
    study = Study.parse(plain)
    run(study, tmp_path / "run")
    evaluated(study_task("t", study, "chat", {}), tmp_path / "logs", get_model("goalscope/ariadne"), max_samples=2)
    assert not import_into(tmp_path / "logs", tmp_path / "imported").problems
    assert stored(tmp_path / "run") == stored(tmp_path / "imported")
    [log] = (tmp_path / "logs").glob("*.eval")
    assert read_eval_log(log, header_only=True).plan.config.temperature == 0.7


def test_a_model_behind_a_server_is_asked_as_in_a_run(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the extra api is not installed")
    from http_studies import study, template
    from inspect_ai.model import get_model
    from server import Loopback, speaker

    from goalscope.integrations.inspect_ai.tasks import study_task

    with Loopback(speaker(), chat_ids="choice") as server:
        like = study(server.url, template(tmp_path), count=1, trajectories=2, steps=3, server={"timeout": 60.0})
        run(like, tmp_path / "run")
        [entry] = like.agents_
        settings = {name: value for name, value in entry.parameters["server"].items() if name != "base_url"}
        model = get_model("goalscope/speaker", base_url=server.url, server=settings)
        log = evaluated(study_task("server", like, entry.kind, entry.parameters), tmp_path / "logs", model)
    assert log.status == "success"
    assert not import_into(tmp_path / "logs", tmp_path / "imported").problems
    ours, theirs = stored(tmp_path / "run"), stored(tmp_path / "imported")
    assert ours == theirs
    assert any(step.output_tokens for episode in theirs[0] for step in episode.steps)


def test_the_provider_refuses_what_our_models_do_not_have() -> None:
    from inspect_ai.model import GenerateConfig, get_model

    def ask(config: Any, **more: Any) -> Any:
        return asyncio.run(model.generate("hello", config=config, **more))

    model = get_model("goalscope/theseus", device="cpu", memoize=False)
    with pytest.raises(ValueError, match="stop_seqs"):
        ask(GenerateConfig(stop_seqs=["x"]))
    with pytest.raises(ValueError, match="without tools"):
        ask(GenerateConfig(), tools=[looking()])
    with pytest.raises(ValueError, match="'devise'"):
        get_model("goalscope/theseus", devise="cpu", memoize=False)
    with pytest.raises(ValueError, match="environment variable"):
        get_model("goalscope/theseus", api_key="secret", memoize=False)


def test_other_peoples_tools_read_the_logs(both: Path, tmp_path: Path) -> None:
    from inspect_ai.analysis import messages_df, samples_df

    from goalscope.integrations.inspect_ai.export import export_logs

    with Store(both / "run") as store:
        written = export_logs(store, tmp_path)
    for logs in (str(tmp_path), str(both / "logs")):
        samples, messages = samples_df(logs, quiet=True), messages_df(logs, quiet=True)
        assert len(samples) == 2
        assert set(messages["role"]) == {"user", "assistant"}
        assert sum(messages["role"] == "assistant") == sum(len(one.steps) for one in stored(both / "run")[0])
    assert len(written) == 1


def test_settings_that_would_belie_the_agents_id_are_refused(tmp_path: Path) -> None:
    from goalscope.integrations.inspect_ai.tasks import grids

    log = evaluated(grids(sizes=7, densities=0, count=1), tmp_path, mock(lambda n: "?"), temperature=0)
    assert log.status == "error"
    assert "--temperature" in log.error.message


def looking() -> Any:
    """Return a tool."""
    from inspect_ai.tool import Tool, tool

    @tool  # type: ignore[untyped-decorator, unused-ignore]
    def look() -> Tool:
        async def execute(where: str) -> str:
            """Look somewhere.

            Args:
                where: the place.
            """
            return f"nothing {where}"

        return execute

    return look()


def tool_task() -> Any:
    """Return a task that is not ours: an agent with a tool, and a tool by which it submits."""
    from inspect_ai import Task, task
    from inspect_ai.agent import react
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import includes

    @task  # type: ignore[untyped-decorator, unused-ignore]
    def treasure() -> Any:
        return Task(
            dataset=[Sample(id="attic", input="Go.", target="gold"), Sample(id="cellar", input="Go.", target="tin")],
            solver=react(tools=[looking()]),
            scorer=includes(),
        )

    return treasure()


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a task of somebody else: two calls of a tool, then the answer "gold", in each sample."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    folder = tmp_path_factory.mktemp("foreign")
    count = iter(range(100))

    def output(*asked: Any) -> Any:
        number = next(count) % 3
        name, arguments = (("look", {"where": f"{number}"}), ("submit", {"answer": "gold"}))[number == 2]
        found = ModelOutput.for_tool_call("mockllm", name, arguments)
        found.usage = ModelUsage(input_tokens=5, output_tokens=2, total_tokens=7)
        return found

    log = evaluated(tool_task(), folder, get_model("mockllm/model", custom_outputs=output), max_samples=1)
    assert log.status == "success"
    return folder


def test_a_log_of_somebody_elses_task_is_refused_and_names_the_reader(foreign: Path, tmp_path: Path) -> None:
    result = import_into(foreign, tmp_path / "run")
    [problem] = result.problems
    assert "--reader" in problem.must
    assert "treasure" in problem.given
    assert not (tmp_path / "run").exists()


def test_a_reader_of_ten_lines_imports_it(foreign: Path, tmp_path: Path) -> None:
    def episode(sample: Any, log: Any) -> RecordedEpisode:
        return RecordedEpisode(turns=tool_calls(sample), success=sample.scores["includes"].value == "C")

    result = import_into(foreign, tmp_path / "run", reader=episode)
    assert not result.problems
    episodes, _, _ = stored(tmp_path / "run")
    assert sorted((one.world.sample, one.outcome) for one in episodes) == [("attic", "goal"), ("cellar", "ended")]
    for one in episodes:
        assert [one.world.names[step.action] for step in one.steps] == ["look", "look", "submit"]
        assert one.agent == "mockllm/model"
    rows = measure_episodes_of(tmp_path / "run")
    assert sorted(rows.value[rows.measure == "success"]) == [0.0, 1.0]
    result = import_path(foreign, check=True, reader=lambda sample, log: sample.scores["none"])
    assert all("KeyError" in problem.given for problem in result.problems)


def test_the_page_runs_as_it_stands_there(foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    [asked] = [line for line in lines if line.startswith("inspect eval ")]
    [of_a_set] = [line for line in lines if line.startswith("inspect eval-set ")]
    scripts = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [reader] = [script for script in scripts if "reading.py" in script]
    assert len(reader.strip().splitlines()) <= 11
    monkeypatch.chdir(tmp_path)
    Path("reading.py").write_text(reader)
    [log] = foreign.glob("*.eval")
    Path("treasure.eval").write_bytes(log.read_bytes())
    program = Path(sys.executable).with_name("inspect")
    done = subprocess.run([program, *shlex.split(asked)[1:], "--limit", "2", "--display", "none"], check=False)
    assert done.returncode == 0
    done = subprocess.run([program, *shlex.split(of_a_set)[1:], "--limit", "1", "--display", "none"], check=False)
    assert done.returncode == 0
    for line in lines:
        if line.startswith("goalscope") and "maze" not in line and not line.startswith("goalscope run"):
            told = CliRunner().invoke(app, shlex.split(line.replace("runs/baseline", "runs/inspect"))[1:])
            assert told.exit_code == 0, told.output
    refused = CliRunner().invoke(app, ["import", "treasure.eval", "--check"])
    assert refused.exit_code == 1
    assert "--reader" in refused.output


def changed_log(log: Path, target: Path, change: Callable[[str, Any], Any]) -> Path:
    """Write a log with other members, deflated; ``change`` gets a name and a value, None leaves it out."""

    with zipfile.ZipFile(log) as before, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as after:
        for name in before.namelist():
            value = change(name, json.loads(before.read(name)))
            if value is not None:
                after.writestr(name, json.dumps(value))
    return target


def test_a_log_that_was_never_finished_gives_its_samples(both: Path, tmp_path: Path) -> None:
    [log] = (both / "logs").glob("*.eval")
    gone = {"header.json", "summaries.json", "reductions.json"}
    cut = changed_log(log, tmp_path / "cut.eval", lambda name, value: None if name in gone else value)
    result = import_into(cut, tmp_path / "run")
    assert not result.problems
    assert result.counts["logs that are not complete (started)"] == 1
    assert stored(tmp_path / "run") == stored(both / "run")


def test_a_log_without_a_finished_sample_is_a_problem(both: Path, tmp_path: Path) -> None:
    [log] = (both / "logs").glob("*.eval")

    def without_episode(name: str, value: Any) -> Any:
        return {**value, "store": {}} if name.startswith("samples/") else value

    broken = changed_log(log, tmp_path / "broken.eval", without_episode)
    result = import_into(broken, tmp_path / "run")
    assert result.exit_status == 1 and not (tmp_path / "run").exists()
    assert f"ended: {result.counts['samples that an error or an interruption ended']}" in result.problems[0].given


def test_a_log_in_json_is_read_too(both: Path, tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log, write_eval_log

    [log] = (both / "logs").glob("*.eval")
    write_eval_log(read_eval_log(log, resolve_attachments="full"), tmp_path / "log.json")
    result = import_into(tmp_path / "log.json", tmp_path / "run")
    assert not result.problems
    assert stored(tmp_path / "run") == stored(both / "run")


def test_what_does_not_follow_from_the_answers_is_refused(both: Path, tmp_path: Path) -> None:
    [log] = (both / "logs").glob("*.eval")

    def other_action(name: str, value: Any) -> Any:
        if name.startswith("samples/"):
            value["store"]["goalscope"]["steps"][0][1] = (value["store"]["goalscope"]["steps"][0][1] + 1) % 4
        return value

    def other_world(name: str, value: Any) -> Any:
        if name.startswith("samples/"):
            value["metadata"]["goalscope"]["world"]["id"] = "world-0"
        return value

    def newer(name: str, value: Any) -> Any:
        if name.startswith("samples/"):
            value["store"]["goalscope"]["version"] = 2
        return value

    def no_calls(name: str, value: Any) -> Any:
        if name.startswith("samples/"):
            value["events"] = [event for event in value["events"] if event["event"] != "model"]
        return value

    for change, words in ((other_action, "step"), (other_world, "world"), (newer, "version"), (no_calls, "calls")):
        result = import_path(changed_log(log, tmp_path / "changed.eval", change), check=True)
        assert result.problem_count == 2, change
        assert all(words in problem.must for problem in result.problems)
        assert result.counts.get("trajectories", 0) == 0


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "flipped", "no header", "other json", "deep"])
def test_a_hostile_log_is_one_sentence(kind: str, both: Path, tmp_path: Path) -> None:
    [log] = (both / "logs").glob("*.eval")
    octets, bad = log.read_bytes(), tmp_path / "bad.eval"
    if kind in ("no header", "other json", "deep"):
        with zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as archive:
            if kind != "no header":
                archive.writestr("header.json", "[" * 100_000 if kind == "deep" else "[1]")
            archive.writestr("samples/a_epoch_1.json", "{}")
    else:
        damaged = bytearray(octets)
        damaged[len(octets) // 3] ^= 255
        bad.write_bytes({"empty": b"", "text": b"hello", "cut": octets[:-9], "flipped": bytes(damaged)}[kind])
    result = import_path(bad, check=True)
    [problem] = result.problems
    assert "\n" not in str(problem)
    assert len(str(problem)) < 600


def test_one_strange_sample_is_a_problem_and_the_others_are_imported(both: Path, tmp_path: Path) -> None:
    """Numbers that no run stores, a name that leads upwards, samples that are listed and not there."""
    [log] = (both / "logs").glob("*.eval")
    whole = len(stored(both / "run")[0])

    def described(value: Any) -> Callable[[str, Any], Any]:
        first: list[str] = []

        def change(name: str, sample: Any) -> Any:
            if name.startswith("samples/") and name in (first or [name]):
                first.append(name)
                sample["store"]["goalscope"]["description"]["note"] = value
            return sample

        return change

    def listed(name: str, value: Any) -> Any:
        return (
            [*value, *({**value[0], "epoch": epoch} for epoch in range(2, 1000))] if name == "summaries.json" else value
        )

    def upwards(name: str, value: Any) -> Any:
        return {**value, "id": "../../../planted"} if name.startswith("samples/") else value

    for change, words, lost in (
        (described(float("inf")), "finite numbers", 1),
        (described(float("nan")), "finite numbers", 1),
        (listed, "in a row that cannot be read", 998),
        (upwards, "", 0),
    ):
        result = import_into(changed_log(log, tmp_path / "changed.eval", change), tmp_path / "run")
        text = "\n".join(result.lines())
        assert words in text and all(len(line) < 600 for line in text.splitlines())
        assert result.counts.get("trajectories not imported", 0) == lost
        assert result.counts["episodes stored"] == whole - (lost if lost == 1 else 0)
        assert not list(tmp_path.parent.rglob("planted*"))
        shutil.rmtree(tmp_path / "run")


def json_log(metadata: list[str]) -> str:
    """Return a log in JSON of a task of somebody else, with a sample for each text of metadata."""
    spec = {
        "task": "t",
        "run_id": "r",
        "eval_id": "e",
        "created": "2024-05-05T07:59:35+00:00",
        "model": "m/m",
        "dataset": {"name": "d"},
        "config": {},
        "task_id": "x",
    }
    times = {"started_at": spec["created"], "completed_at": spec["created"]}
    plan = {"name": "plan", "steps": [], "config": {}}
    head = json.dumps({"version": 2, "status": "success", "eval": spec, "plan": plan, "stats": times})[:-1]
    samples = (
        f'{{"id": {number}, "epoch": 1, "input": "x", "target": "y", "messages": '
        f'[{{"role": "user", "content": "x"}}], "metadata": {{"a": {text}}}}}'
        for number, text in enumerate(metadata)
    )
    return f'{head}, "samples": [{", ".join(samples)}]}}'


def test_the_bounded_process_gives_what_inspect_itself_reads(foreign: Path, tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log

    from goalscope.integrations.inspect_ai.formats import _Log
    from goalscope.runs.importers.problems import Context, ImportLog

    plain = tmp_path / "log.json"
    plain.write_text(json_log(["1", "NaN", '"\\u00e9"', "[" * 150 + "]" * 150]), encoding="utf-8")
    for path in (plain, next(foreign.glob("*.eval"))):
        log = _Log(path, path.name, Context(ImportLog()))
        wanted = read_eval_log(str(path), resolve_attachments="full")
        found = list(log._samples())
        order = {(one.id, one.epoch): one for one in wanted.samples or ()}
        assert len(found) == len(order) > 1
        for one in found:
            assert one.model_dump_json() == order[one.id, one.epoch].model_dump_json()
        header = read_eval_log(str(path), header_only=True)
        assert log.header.eval == header.eval and log.header.status == header.status
        messages = [message.id for one in found for message in one.messages]
        again = [message.id for one in log._samples() for message in one.messages]
        assert messages == again, "no ids are made up"


def test_samples_come_one_by_one_and_a_bound_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from goalscope._ground.bounded import BoundedWorker, Bounds
    from goalscope._ground.untrusted import UntrustedError
    from goalscope.integrations.inspect_ai import formats as reading
    from goalscope.runs.importers.problems import Context, ImportLog

    path = tmp_path / "log.json"
    path.write_text(json_log(["1", "2", json.dumps("x" * 3_000_000)]), encoding="utf-8")
    bounds = Bounds(seconds=60, wait=300, memory=2 * 2**30, answer=2_000_000)
    worker = BoundedWorker(Path(reading.__file__).with_name("log_process.py"), bounds, "to read it")
    monkeypatch.setattr(reading, "_READER", worker)
    samples = reading._Log(path, "log.json", Context(ImportLog()))._samples()
    assert [next(samples).id, next(samples).id] == [0, 1]
    with pytest.raises(UntrustedError, match="2000000"):
        next(samples)
    worker.end()
