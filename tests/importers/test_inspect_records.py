"""What a log of Inspect holds of an episode of ours, and what a reader makes of others' samples: without Inspect."""

import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from goalscope._ground.own import consent, load_function
from goalscope._ground.untrusted import UntrustedError, check_nesting
from goalscope.agents import EpsilonGreedy, agent_id
from goalscope.agents.models import Reply
from goalscope.agents.parse import turn
from goalscope.cli import app
from goalscope.integrations.inspect_ai import RecordedEpisode, RecordedTurn, formats, tool_calls
from goalscope.integrations.inspect_ai.formats import inspect_episodes, is_inspect_log, log_version, replayed
from goalscope.integrations.inspect_ai.record import (
    KEY,
    TURN,
    UNKNOWN_ACTION,
    EpisodeRecord,
    ReplyRecord,
    SampleRecord,
    TurnRecord,
    foreign_reply,
    recorded_episode,
)
from goalscope.measures import measure_store
from goalscope.runs import Episode, Store, Study, run
from goalscope.runs.importers import import_path
from goalscope.runs.importers.problems import Context, ImportLog
from goalscope.runs.study_parts import RecordedWorlds
from goalscope.worlds.world import RecordedWorld

WORLDS = [
    {"kind": "grid", "sizes": [7], "densities": [0.6], "count": 2},
    {"kind": "key-door", "count": 1},
    {"kind": "grid", "sizes": [7], "densities": [0.3], "count": 1, "fog_radius": 1},
]


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> list[Episode]:
    folder = tmp_path_factory.mktemp("run")
    agents = [{"kind": "epsilon-greedy", "epsilon": 0.5}]
    run(Study.parse({"worlds": WORLDS, "agents": agents, "trajectories": 1}), folder)
    with Store(folder) as store:
        return list(store.episodes())


def message(identity: str, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"id": identity, "text": "", "content": "", "tool_calls": None, **more})


def called(said: SimpleNamespace, metadata: Any = None, **more: Any) -> SimpleNamespace:
    """Return a call of a model as a log has it."""
    output = SimpleNamespace(choices=[SimpleNamespace(message=said, stop_reason="stop")], metadata=metadata)
    plain: dict[str, Any] = {
        "event": "model",
        "span_id": "s",
        "pending": None,
        "error": None,
        "output": output,
        "tools": [],
    }
    return SimpleNamespace(**{**plain, **more})


def sample_of(episode: Episode) -> Any:
    """Return an episode as a sample of an exported log, every value once through JSON."""
    spec = episode.spec
    turns = [f"m{step.index}" for step in episode.steps]
    place = SampleRecord.of(episode.world, seed=spec.seed, horizon=spec.horizon)
    description = dict(EpsilonGreedy(epsilon=0.5).describe())
    record = EpisodeRecord.of(episode, description, turns)
    events = []
    for step, identity in zip(episode.steps, turns, strict=True):
        action = None if step.action is None else int(step.action)
        held = TurnRecord(action=action, failure=step.failure, extra=dict(step.extra)).plain()
        events.append(called(message(identity), {KEY: {TURN: held}}))
    plain = json.loads(json.dumps({"metadata": {KEY: place.plain()}, "store": {KEY: record.plain()}}))
    return SimpleNamespace(id=episode.world.id, epoch=spec.trajectory + 1, error=None, events=events, **plain)


def test_an_episode_comes_back_as_it_was(episodes: list[Episode]) -> None:
    context = Context(ImportLog())
    assert len({episode.world.id for episode in episodes}) == 4
    for episode in episodes:
        found, description = replayed(sample_of(episode), context)
        assert found == episode
        assert agent_id(EpsilonGreedy(epsilon=0.5)) == found.spec.agent_id
        assert description["kind"] == "epsilon-greedy"
    assert context.ledger.checked["steps"] == sum(len(episode.steps) for episode in episodes)


def changes() -> dict[str, tuple[str, Any]]:
    """Return what may be wrong with a sample: a word of the refusal, and what makes it wrong."""

    def store(name: str, value: Any) -> Any:
        return lambda sample: sample.store[KEY].__setitem__(name, value)

    return {
        "another outcome": ("outcome", store("outcome", "failure")),
        "an outcome that is none": ("must be", store("outcome", "won")),
        "another version": ("version", store("version", 9)),
        "an unknown key": ("unknown key", store("more", 1)),
        "no rules": ("rules", store("rules", "{")),
        "an unknown history": ("rules", store("rules", '{"history": "all"}')),
        "steps that are missing": ("steps", lambda sample: sample.store[KEY]["steps"].pop()),
        "another action": ("a step must be", lambda sample: sample.store[KEY]["steps"][0].__setitem__(1, 0)),
        "calls that are missing": ("calls of models", lambda sample: sample.events.pop()),
        "a further turn": ("must end where it is over", _further),
        "another world": ("hold a world", lambda sample: sample.metadata[KEY]["world"].update(id="world-1")),
        "no world": ("hold a world", lambda sample: sample.metadata[KEY]["world"].update(stored="{}")),
        "a horizon of 0": ("greater than or equal", lambda sample: sample.metadata[KEY].update(horizon=0)),
        "no object": ("object", lambda sample: sample.metadata.update({KEY: 3})),
        "an action beyond the last": ("fit its world", lambda sample: _turn(sample, {"action": 4})),
        "an action and a failure": ("either an action", lambda sample: _turn(sample, {"action": 1, "failure": "x"})),
        "a token id that is none": ("must be", lambda sample: _turn(sample, {"action": 1, "output_tokens": [-1]})),
    }


def _turn(sample: Any, value: dict[str, Any]) -> None:
    sample.events[0].output.metadata[KEY][TURN] = value


def _further(sample: Any) -> None:
    held = {KEY: {TURN: {"action": 0}}}
    sample.events += [called(message("more"), held)]
    sample.store[KEY]["turns"].append("more")


@pytest.mark.parametrize("name", changes())
def test_what_does_not_follow_is_refused_in_one_sentence(name: str, episodes: list[Episode]) -> None:
    word, change = changes()[name]
    sample = sample_of(next(one for one in episodes if one.steps[0].action != 0))
    change(sample)
    with pytest.raises(UntrustedError, match=word) as refused:
        replayed(sample, Context(ImportLog()))
    assert "\n" not in str(refused.value)


def test_an_episode_that_stands_there_twice_is_refused(episodes: list[Episode]) -> None:
    context = Context(ImportLog())
    replayed(sample_of(episodes[0]), context)
    with pytest.raises(UntrustedError, match="its world"):
        replayed(sample_of(episodes[0]), context)


def test_a_reply_comes_back_as_it_was() -> None:
    made = Reply.of(
        '{"action": "UP"}',
        reasoning="up",
        prompt_tokens=(1, 2),
        output_tokens=(3,),
        finish="length",
        usage={"seconds": 0.25},
        logprobs=({"token": 3, "logprob": -0.1, "top": [[3, -0.1]]},),
        unsupported=("reasoning_effort",),
    )
    record = ReplyRecord.of(made)
    assert ReplyRecord.read(json.loads(json.dumps(record.plain())), "").reply() == made


def foreign_sample(**more: Any) -> Any:
    call = {"parse_error": None, "arguments": {"where": "here"}}
    offered = [SimpleNamespace(name=name) for name in ("look", "take", "submit")]
    thought = [SimpleNamespace(type="reasoning", reasoning="hm"), SimpleNamespace(type="text", text="well")]
    events = [
        SimpleNamespace(event="span_begin", type="solver", id="s", parent_id=None),
        SimpleNamespace(event="span_begin", type="scorers", id="g", parent_id=None),
        SimpleNamespace(event="span_begin", type=None, id="h", parent_id="g"),
        called(
            message(
                "a",
                text="well",
                content=thought,
                tool_calls=[SimpleNamespace(function="look", **call), SimpleNamespace(function="jump", **call)],
            ),
            tools=offered,
        ),
        called(message("b", tool_calls=[SimpleNamespace(function="look", **call)]), error="refused"),
        called(message("c", tool_calls=[SimpleNamespace(function="look", **call)]), span_id="h"),
        called(message("d", tool_calls=[SimpleNamespace(function="take", **{**call, "parse_error": "no JSON"})])),
        called(message("e", text="done")),
    ]
    return SimpleNamespace(**{"id": "attic", "epoch": 2, "metadata": {}, "events": events, **more})


HEADER = SimpleNamespace(eval=SimpleNamespace(task="treasure", model="mockllm/model"))


def test_calls_of_tools_are_the_turns_of_a_recorded_episode() -> None:
    sample = foreign_sample()
    turns = tool_calls(sample)
    assert [(turn.action, turn.failure, turn.text, turn.reasoning) for turn in turns] == [
        ("look", None, "well", "hm"),
        ("jump", None, None, None),
        (None, "unreadable arguments", None, None),
    ]
    found = RecordedEpisode(turns=turns, success=False, horizon=9, tags={"level": 3})
    episode, agent = recorded_episode(found, sample, HEADER)
    assert isinstance(episode.world, RecordedWorld)
    assert episode.world.names == ("look", "submit", "take")
    assert [(step.action, step.failure) for step in episode.steps] == [
        (0, None),
        (None, UNKNOWN_ACTION),  # a tool that was not offered
        (None, "unreadable arguments"),
    ]
    assert (episode.outcome, episode.spec.trajectory, episode.spec.horizon, agent) == ("ended", 1, 9, "mockllm/model")
    assert episode.world.tags == {"kind": "treasure", "level": 3}


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"turns": []}, r"RecordedEpisode\.actions"),
        ({"turns": [RecordedTurn(action=None)], "actions": ["look"]}, "either an action"),
        ({"actions": ["a", "a"]}, "at least one action"),
        ({"actions": ["\ud800"]}, "Unicode"),
        ({"agent": "\ud800"}, "surrogates"),
        ({"horizon": 1}, "not be longer than its horizon"),
    ],
)
def test_a_record_that_is_no_episode_is_refused(more: dict[str, Any], word: str) -> None:
    turns = [RecordedTurn(action="look"), RecordedTurn(action="take")]
    found = RecordedEpisode(**{"turns": turns, "success": True, **more})
    with pytest.raises(UntrustedError, match=word):
        recorded_episode(found, foreign_sample(events=[]), HEADER)


def test_recorded_episodes_are_stored_measured_and_shown(tmp_path: Path) -> None:
    found = RecordedEpisode(turns=tool_calls(foreign_sample()), success=True, cluster="house")
    ended = RecordedEpisode(turns=[RecordedTurn(action="take")], success=False, cluster="house")
    unsure = RecordedEpisode(turns=[], success=None, actions=["take"])
    made = [
        recorded_episode(one, foreign_sample(id=name), HEADER)[0]
        for name, one in (("attic", found), ("cellar", ended), ("roof", unsure))
    ]
    with Store(tmp_path / "run", "w") as store:
        store.put_episodes(made)
    with Store(tmp_path / "run") as store:
        assert sorted(store.episodes(), key=lambda one: one.id) == sorted(made, key=lambda one: one.id)
        rows = measure_store(store)
    assert sorted(rows.value[rows.measure == "success"]) == [0.0, 0.0, 1.0]
    assert len(set(rows.cluster.tolist())) == 2
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "run"), made[0].id])
    assert shown.exit_code == 0
    assert "look" in shown.output


def test_a_study_cannot_run_in_recorded_worlds() -> None:
    with pytest.raises(ValueError, match="goalscope import"):
        RecordedWorlds(kind="recorded").expand(0, "worlds[0]", ())


def test_json_logs_are_told_from_trajectories(tmp_path: Path) -> None:
    log = {"version": 2, "status": "success", "eval": {"eval_id": "a", "run_id": "b", "task": "t"}}
    (tmp_path / "log.json").write_text(json.dumps(log))
    (tmp_path / "trajectory.json").write_text(json.dumps({"grid_params": {}, "model_params": {}, "steps": []}))
    assert is_inspect_log(tmp_path / "log.json")
    assert not is_inspect_log(tmp_path / "trajectory.json")
    assert not is_inspect_log(tmp_path / "none.json")


def test_the_manifests_of_an_eval_set_are_left_alone(tmp_path: Path) -> None:
    header = {"version": 2, "status": "success", "eval": {"eval_id": "a", "run_id": "b"}}
    (tmp_path / "eval-set.json").write_text(json.dumps({"eval_set_id": "s", "tasks": []}, indent=2))
    (tmp_path / "logs.json").write_text(json.dumps({"2026_grids.eval": header}, indent=2))
    context = Context(ledger=ImportLog())
    for path in tmp_path.iterdir():
        assert is_inspect_log(path)
        assert not list(inspect_episodes(path, path.name, context))
    assert context.ledger.counts == {"other files left alone": 2}
    assert not context.ledger.problems
    (tmp_path / "mine.json").write_text(json.dumps({"eval_set_id": "s"}))
    assert not is_inspect_log(tmp_path / "mine.json")


def test_a_damaged_archive_is_a_problem_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "log.eval").write_bytes(b"PK\x03\x04 and no more")
    [problem] = import_path(tmp_path, check=True).problems
    assert problem.source == "log.eval"
    assert "zip archive" in problem.must


def test_a_reader_is_a_function_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reading_here.py").write_text("NUMBER = 1\n\ndef episode(sample, log):\n    return None\n")
    consent(["reading_here:episode", "reading_here:NUMBER"])
    assert load_function("reading_here:episode", "a reader")(1, 2) is None
    for source, word in (
        ("reading_here", "module:function"),
        ("gone:episode", "no"),
        ("reading_here:NUMBER", "define"),
    ):
        with pytest.raises(ValueError, match=word):
            load_function(source, "a reader")


def a_log(number: int, **more: Any) -> dict[str, Any]:
    """Return the beginning of a log of Inspect with a version."""
    spec = {"task": "wikipedia", "run_id": "r", "created": "2024-05-05T07:59:35", "model": "openai/gpt-4"}
    return {"version": number, "status": "success", "eval": spec, **more}


@pytest.mark.parametrize("form", ["json", "cut", "header", "start"])
def test_a_log_of_a_newer_version_is_named_with_it(tmp_path: Path, form: str) -> None:
    text = json.dumps(a_log(3, future=[{"shape": "unknown"}]), indent=4)
    path = tmp_path / ("log.eval" if form in ("header", "start") else "log.json")
    if form in ("header", "start"):
        member = {"header": "header.json", "start": "_journal/start.json"}[form]
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr(member, text)
    else:
        path.write_text(text if form == "json" else text[:-5], encoding="utf-8")
    result = import_path(path)
    assert list(result.episodes) == []
    [problem] = result.problems
    assert "log version 3" in str(problem)


def test_versions_are_read_from_the_head_alone(tmp_path: Path) -> None:
    for number, text in (
        (2, '{"version": 2, "status"'),
        (0, '{"status": "success", "version": 9}'),
        (0, "[]"),
        (3, '{"version": "3"}'),
        (12, '\n {\n "version" : 12\n}'),
    ):
        (tmp_path / "log.json").write_text(text)
        assert log_version(tmp_path / "log.json") == number
    (tmp_path / "log.eval").write_bytes(b"no archive")
    assert log_version(tmp_path / "log.eval") == log_version(tmp_path / "missing.json") == 0


@pytest.mark.parametrize("actions", [None, [], ()])
def test_a_sample_without_any_name_of_an_action_says_what_to_give(actions: Any) -> None:
    unreadable = RecordedTurn(action=None, failure="unreadable arguments")
    sample = SimpleNamespace(id="one", epoch=1, events=[])
    header = SimpleNamespace(eval=SimpleNamespace(model="model", task="task"))
    with pytest.raises(UntrustedError, match=r"RecordedEpisode\.actions"):
        recorded_episode(RecordedEpisode(turns=[unreadable], actions=actions), sample, header)
    episode, _ = recorded_episode(RecordedEpisode(turns=[unreadable], actions=["go"]), sample, header)
    assert [step.failure for step in episode.steps] == ["unreadable arguments"]


class Chopped(io.BytesIO):
    """Bytes that are read in pieces of a few."""

    def read(self, size: int | None = -1) -> bytes:
        """Return the next seven bytes."""
        return super().read(7)


@pytest.mark.parametrize("stream", [io.BytesIO, Chopped])
def test_nesting_is_measured_outside_of_texts(stream: type[io.BytesIO]) -> None:
    texts = ["[" * 300, '"[' * 200, "\\" * 9 + '"' + "{" * 300, "\n[\t"]
    plain = json.dumps([{"a": [texts, dict.fromkeys(texts, 1)]}, [[]], {}]).encode()
    check_nesting(stream(plain), 4)
    with pytest.raises(UntrustedError, match="at most 3 deep"):
        check_nesting(stream(plain), 3)
    check_nesting(stream(b"[]" * 10_000), 1)
    check_nesting(stream(b""), 0)


def test_a_log_nested_too_deep_is_refused_before_any_parser_in_little_memory(tmp_path: Path) -> None:
    deep = "[" * 30_000 + "]" * 30_000
    text = json.dumps(a_log(2))[:-1] + f', "samples": [{{"id": 1, "metadata": {deep}}}]}}'
    (tmp_path / "log.json").write_text(text, encoding="utf-8")
    tracemalloc.start()
    result = import_path(tmp_path / "log.json")
    assert list(result.episodes) == []
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    [problem] = result.problems
    assert "nested at most 200 deep" in str(problem) and most < 64 * 2**20


@pytest.mark.parametrize(
    ("stop_reason", "calls", "text", "finish", "failure"),
    [
        ("stop", [], '{"action": "UP"}', "stop", None),
        ("max_tokens", [], 'Not {"action": "UP"}.', "length", "truncated"),
        ("model_length", [], 'Not {"action": "UP"}.', "length", "truncated"),
        ("content_filter", [], "", "withheld", "withheld by the server"),
        ("tool_calls", [SimpleNamespace(function="move", arguments={"action": "UP"})], "", "called", "call of a tool"),
    ],
)
def test_what_inspect_says_of_a_foreign_model_is_kept_in_its_reply(
    stop_reason: str, calls: list[Any], text: str, finish: str, failure: str | None
) -> None:
    reply = foreign_reply(SimpleNamespace(text=text, tool_calls=calls), stop_reason, "hm")
    assert (reply.reasoning, reply.answer, reply.finish, turn(reply).failure) == ("hm", text, finish, failure)


@pytest.mark.parametrize(("present", "tried"), [((), 112), ((60,), 160), ((112,), 224), ((250,), 112)])
def test_after_a_hundred_lost_samples_in_a_row_the_rest_of_a_log_is_given_up(
    present: tuple[int, ...], tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples are read 16 at a time, and one by one where that fails."""
    asked = set[int]()

    def answers(log: Any, part: str, keys: list[tuple[int, int]] | None = None) -> Any:
        if keys is None:
            return iter([[[number, 1] for number in range(1, 251)]])
        asked.update(number for number, _ in keys)
        if lost := [number for number, _ in keys if number not in present]:
            raise UntrustedError("a sample must be there", str(lost))
        return iter([str(number) for number, _ in keys])

    log: Any = object.__new__(formats._Log)
    log.together, log.source, log.ledger = 16, "log.eval", ImportLog()
    monkeypatch.setattr(formats._Log, "_answers", answers)
    monkeypatch.setattr(formats._Log, "_count_missing", lambda *_: None)
    monkeypatch.setattr(formats._Log, "_sample", lambda _, text: int(text))
    samples, read = log._samples(), list[int]()
    with pytest.raises(UntrustedError, match=f"in a row that cannot be read; {250 - tried} more are not tried"):
        while True:
            read.append(next(samples))
    assert len(asked) == tried and read == [number for number in present if number <= tried]
