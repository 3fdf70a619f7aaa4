"""Chat agents of task worlds behind a server: the same episodes as here, killed runs go on, and plans count them."""

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from http_studies import tokens, trajectories
from server import MANY, Loopback, speaker
from test_http_runs import kill_and_resume

from contents import hash_of
from goalscope.agents import TaskChatAgent
from goalscope.agents.models import LocalModel
from goalscope.cli.front.measuring import measured_rows
from goalscope.runs import Store, Study, run
from goalscope.verdict.preflight.cost import costs
from goalscope.worlds.tasks import TaskWorld

# A prompt of one's own: what is told, without the bundled words around it, so that a tiny model reads little.
TEMPLATE = "{{rules}}\n{{summary}}\n{{strategy}}\nGo."


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return speaker(positions=16_384)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model: LocalModel) -> Path:
    path = tmp_path_factory.mktemp("task-http")
    (path / "template.txt").write_text(TEMPLATE, encoding="utf-8")
    model.tokenizer.save_pretrained(path / "tokenizer")
    return path


def study(url: str, folder: Path, mode: str, *, count: int = 2, alpha: float = 2, **changes: Any) -> Study:
    """Maps of at most nine cells with three nodes; the agent's parameters can be changed."""
    served: dict[str, Any] = {
        "base_url": url,
        "timeout": 20,
        "backoff": 0.02,
        "retries": 20,
        "patience": 60,
        "preflight": False,
    }
    if mode == "completions":
        served |= {"mode": "completions", "tokenizer": str(folder / "tokenizer")}
        changes["reasoning"] = "none"
    agent = {
        "kind": "task-chat",
        "model": "speaker",
        "template": str(folder / "template.txt"),
        "temperature": 0.0,
        "max_tokens": 3,
        "server": served,
        **changes,
    }
    entry: dict[str, Any] = {
        "kind": "task-map",
        "presets": ["high-small"],
        "count": count,
        "generator": {"nodes": 3, "size": [3, 3], "alpha": alpha},
    }
    return Study.parse({"worlds": [entry], "agents": [agent], "trajectories": 1})


def local_agent(model: LocalModel, like: Study) -> TaskChatAgent:
    (served,) = like.agents()
    assert isinstance(served, TaskChatAgent)
    return replace(served, model=model, name="")


@pytest.mark.full
@pytest.mark.parametrize(
    "changes",
    [
        {"history": "actions", "strategy": "exploitation"},
        pytest.param({"history": "conversation", "strategy": "balance", "memory": True}, marks=pytest.mark.full),
    ],
    ids=lambda changes: str(changes["history"]),
)
def test_the_same_task_study_over_http_and_local_gives_the_same_episodes(
    changes: dict[str, Any], model: LocalModel, folder: Path, tmp_path: Path
) -> None:
    with Loopback(model) as server:
        chat = study(server.url, folder, "chat", alpha=1, **changes)
        assert run(chat, tmp_path / "chat", workers=2).calls == len(server.log) > 8
        run(study(server.url, folder, "completions", alpha=1, **changes), tmp_path / "completions", workers=2)
        assert {entry.path for entry in server.log} == {"/v1/chat/completions", "/v1/completions"}
    run(chat, tmp_path / "local", agents=[local_agent(model, chat)])
    expected = trajectories(tmp_path / "local")
    assert trajectories(tmp_path / "chat") == trajectories(tmp_path / "completions") == expected
    assert len({step[1] for steps in expected.values() for step in steps}) > 1, "the model should do different things"
    assert tokens(tmp_path / "completions") == tokens(tmp_path / "local")
    rows = [measured_rows(tmp_path / name) for name in ("chat", "local")]
    for name in ("exploration error", "exploitation error", "success"):
        values = [sorted(found.select(measure=name).value.tolist(), key=str) for found in rows]
        assert str(values[0]) == str(values[1]) and len(values[0]) == 2


@pytest.mark.full
@pytest.mark.parametrize("mode", ["chat", "completions"])
def test_a_killed_task_run_asks_no_answer_twice_and_ends_the_same(
    mode: str, model: LocalModel, folder: Path, tmp_path: Path
) -> None:
    with Loopback(model, delay=0.02, faults=replace(MANY, hang=0)) as server:
        asked = study(server.url, folder, mode, count=3, history="conversation")
        kill_and_resume(server, asked, tmp_path, [12])


def test_a_plan_counts_the_calls_and_tokens_of_a_task_study(
    model: LocalModel, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for history, memory in (("none", True), ("conversation", False)):
        with Loopback(model) as server:
            asked = study(server.url, folder, "completions", history=history, memory=memory, alpha=1)
            budgets = [world.task_map.budget for world in asked.worlds() if isinstance(world, TaskWorld)]
            with monkeypatch.context() as offline:
                offline.setattr(socket.socket, "connect", lambda *_: pytest.fail("a plan must not connect"))
                (cost,) = costs(asked)
            assert not server.log and cost.calls == sum(budgets) and cost.episodes == len(budgets) == 2
            assert "by the model's own tokenizer" in cost.how and cost.output == 3 and cost.prompt is not None
            run(asked, tmp_path / history, workers=2)
        with Store(tmp_path / history) as store:
            steps = [step for episode in store.episodes() for step in episode.steps]
        read = [len(step.prompt_tokens or ()) for step in steps]
        said = [len(step.output_tokens or ()) for step in steps]
        assert len(steps) <= cost.calls and cost.tokens is not None and sum(read) + sum(said) <= cost.tokens
        # A random walk stands in for the model: near what was read where no episode ended before its budget.
        assert len(steps) == cost.calls and sum(read) == pytest.approx(cost.prompt * cost.calls, rel=0.25)
    assert hash_of(tmp_path / "none") != hash_of(tmp_path / "conversation")
