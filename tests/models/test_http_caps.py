"""Caps on calls over all sessions of a run: every request counts, and nothing counts where none was sent."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from http_studies import MOST_TOKENS, extras, study, template
from server import ACTIONS_SAID, Faults, Loopback, speaker
from tiny_models import request

from contents import hash_of
from families import long_after
from goalscope.agents import ChatAgent
from goalscope.agents.models import LocalModel
from goalscope.agents.models.abilities import other_names
from goalscope.agents.models.http_settings import BELIEVED
from goalscope.measures import measure_episodes
from goalscope.report import write_report
from goalscope.runs import Store, run
from goalscope.runs.provenance import noted_of_answers

KINDS = ("prompt_tokens", "output_tokens", "tokens_at_most")
OOPS = (500, {"error": {"message": "oops"}})


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return speaker()


def sessions(count: int, asked: Any, directory: Path, workers: int = 1) -> list[str]:
    """Run a study so many times; return what each session stopped with, "" where it went to the end."""
    found = []
    for _ in range(count):
        try:
            run(asked, directory, workers=workers)
            found.append("")
        except (ValueError, OSError) as error:
            found.append(str(error))
    return found


def lost(directory: Path) -> int:
    with Store(directory) as store:
        return int(store.query("SELECT coalesce(sum(lost), 0) FROM calls")[0][0])


@pytest.mark.parametrize("workers", [1, 3])
def test_requests_that_fail_and_retries_count_over_all_sessions(
    workers: int, model: LocalModel, tmp_path: Path
) -> None:
    with Loopback(model, refusal=OOPS) as server:
        asked = study(server.url, template(tmp_path), caps={"calls": 10}, server={"retries": 4, "timeout": 5})
        said = sessions(4, asked, tmp_path / "run", workers)
        assert len(server.log) == 10 == lost(tmp_path / "run")
        assert "caps.calls must leave room" in said[-1] and "10 of 10 requests" in said[-1]


def test_what_failed_before_an_answer_counts_once(model: LocalModel, tmp_path: Path) -> None:
    with Loopback(model, refusal=OOPS) as server:
        asked = study(
            server.url, template(tmp_path), count=1, trajectories=1, steps=2, server={"retries": 1, "timeout": 5}
        )
        sessions(1, asked, tmp_path / "run")
        server.behaviour.refusal = None
        server.behaviour.rejects = ("max_tokens",)  # one request of the next call brings no answer
        assert sessions(1, asked, tmp_path / "run") == [""]
        with Store(tmp_path / "run") as store:
            made = [row[0] for row in store.query("SELECT json_extract(usage, '$.requests') FROM calls ORDER BY step")]
        assert made == [2, 1] and lost(tmp_path / "run") == 2
        assert len(server.log) == 5


@pytest.mark.parametrize(
    ("behaviour", "requests"),
    [
        ({"key": "secret"}, 1),
        ({"models": ("another",)}, 1),
        ({"override": {"choices": [{"message": {"content": "x"}}]}, "ignores_logprobs": True}, 1),
    ],
    ids=["key not accepted", "no such model", "answer of no use"],
)
def test_a_request_counts_whatever_it_ends_with(
    behaviour: dict[str, Any], requests: int, model: LocalModel, tmp_path: Path
) -> None:
    with Loopback(model, **behaviour) as server:
        asked = study(server.url, template(tmp_path), caps={"calls": 2}, top_logprobs=1, server={"timeout": 5})
        said = sessions(3, asked, tmp_path / "run")
        assert len(server.log) == 2 * requests == lost(tmp_path / "run")
        assert "caps.calls" not in said[1] and "caps.calls must leave room" in said[2]


def test_nothing_counts_where_nothing_was_sent(
    model: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with Loopback(model) as server:
        asked = study(
            server.url, template(tmp_path), caps={"calls": 20}, server={"key_env": "NO_SUCH_KEY", "timeout": 5}
        )
        for workers in (1, 3):
            (said,) = sessions(1, asked, tmp_path / "run", workers)
            assert "NO_SUCH_KEY, which is empty" in said and lost(tmp_path / "run") == 0
        server.stop()
        (said,) = sessions(1, study(server.url, template(tmp_path), server={"retries": 2}), tmp_path / "run")
        assert "3 requests failed" in said and lost(tmp_path / "run") == 0, "nobody was there to take a request"
        server.start()
        monkeypatch.setenv("NO_SUCH_KEY", "key")
        summary = run(asked, tmp_path / "run")
        assert summary.calls == len(server.log) == 20 and summary.lost == 0


@pytest.mark.parametrize(
    "fault", ["cut", *(pytest.param(name, marks=pytest.mark.full) for name in ("garbage", "hang"))]
)
def test_tokens_and_usd_of_answers_that_were_lost_count_at_their_most(
    fault: str, model: LocalModel, tmp_path: Path
) -> None:
    """A server may charge for what never arrived: over sessions and retries, the worst case stays below the caps."""
    prices = {"input": 1e4, "output": 2e4, "date": "2025-08-05"}
    only: dict[str, Any] = {fault: 1.0}
    for cap, most in (("tokens", 3000), ("usd", 30.0)):
        directory = tmp_path / cap
        with Loopback(model, faults=Faults(hang_seconds=0.3, **only)) as server:
            limits = {"retries": 2, "timeout": 0.2 if fault == "hang" else 5, "backoff": 0.001}
            asked = study(server.url, template(tmp_path), caps={cap: most}, prices=prices, server=limits)
            said = sessions(3, asked, directory)
            with Store(directory) as store:
                held = [json.loads(usage) for (usage,) in store.query("SELECT usage FROM calls") if usage]
            (spent,) = held  # of the one call that never comes to an answer
            made, name = lost(directory), "tokens_at_most" if cap == "tokens" else "usd"
            assert made == len(server.log) >= 2, "each request may have been charged"
            assert spent[name] <= most < spent[name] + spent[name] / made, "one more would not have fitted"
            assert f"caps.{cap} must leave room" in said[-1]


def test_what_a_lost_answer_may_have_cost_stays_in_the_usage_of_the_next_one(model: LocalModel, tmp_path: Path) -> None:
    with Loopback(model, faults=Faults(cut=1.0)) as server:
        asked = study(server.url, template(tmp_path), count=1, trajectories=1, steps=1, server={"retries": 1})
        sessions(1, asked, tmp_path / "run")
        with Store(tmp_path / "run") as store:
            ((before,),) = store.query("SELECT usage FROM calls")
        server.behaviour.faults = Faults()
        run(asked, tmp_path / "run")
        with Store(tmp_path / "run") as store:
            ((usage,),) = store.query("SELECT usage FROM calls")
            known = dict(store.query("SELECT name, value FROM usage"))
    found = json.loads(usage)
    assert found["tokens_at_most"] == json.loads(before)["tokens_at_most"] > 0 and found["requests"] == 1
    assert known == found and lost(tmp_path / "run") == 2


def test_a_model_that_was_run_can_be_asked_outside_of_a_run(model: LocalModel, tmp_path: Path) -> None:
    with Loopback(model) as server:
        asked = study(
            server.url, template(tmp_path), count=1, trajectories=1, steps=1, server={"retries": 0, "timeout": 5}
        )
        (agent,) = asked.agents()
        assert isinstance(agent, ChatAgent)
        run(asked, tmp_path / "run", agents=[agent])
        server.behaviour.refusal = OOPS
        with pytest.raises(ConnectionError, match="1 requests failed"):
            agent.model.complete([request("#_")], agent.sampling)


def said(name: object, usage: object) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ACTIONS_SAID[0]}}
    return {"id": "x", "model": name, "usage": usage, "choices": [choice]}


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": 0, "completion_tokens": 2},
        {"prompt_tokens": -9, "completion_tokens": -1},
        {"prompt_tokens": 9.5, "completion_tokens": "2"},
        {},
        None,
    ],
)
@pytest.mark.parametrize("cap", long_after(1, ["tokens", "usd"]))
def test_answers_without_a_usage_fill_the_caps(cap: str, usage: object, model: LocalModel, tmp_path: Path) -> None:
    prices = {"input": 1e4, "output": 1e4, "date": "2025-08-05"}
    most = {"tokens": 3000, "usd": 30.0}[cap]
    with Loopback(model, override=said("speaker", usage)) as server:
        asked = study(server.url, template(tmp_path), caps={cap: most}, prices=prices, server={"timeout": 5})
        (stopped, again) = sessions(2, asked, tmp_path / "run")
        assert f"caps.{cap} must leave room" in stopped and "caps" in again
        assert 2 <= len(server.log) < 20
        with Store(tmp_path / "run") as store:
            spent = [json.loads(cost) for (cost,) in store.query("SELECT usage FROM calls WHERE state = 'done'")]
    assert len(spent) == len(server.log), "each answer is kept"
    assert sum(cost["usd" if cap == "usd" else "tokens_at_most"] for cost in spent) <= most


def test_a_usage_of_0_counts_the_tokens_that_are_sent_and_returned(model: LocalModel, tmp_path: Path) -> None:
    model.tokenizer.save_pretrained(tmp_path / "tokenizer")
    found = {}
    for name in ("reported", "zero"):
        with Loopback(model) as server:
            say = server.say

            def zero(path: str, body: Any, say: Callable[..., dict[str, Any]] = say) -> dict[str, Any]:
                return say(path, body) | {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}

            if name == "zero":
                server.say = zero  # type: ignore[method-assign]
            where = {"mode": "completions", "tokenizer": str(tmp_path / "tokenizer"), "timeout": 30}
            asked = study(server.url, template(tmp_path), server=where, reasoning="none")
            run(asked, tmp_path / name)
        with Store(tmp_path / name) as store:
            costs = [json.loads(cost) for (cost,) in store.query("SELECT usage FROM calls ORDER BY id")]
        found[name] = [sum(cost.get(kind, 0) for kind in KINDS) for cost in costs]
    assert found["zero"] == found["reported"]
    assert hash_of(tmp_path / "zero") == hash_of(tmp_path / "reported")


def test_a_usage_beyond_the_request_keeps_the_answer_and_counts_up_to_a_bound(
    model: LocalModel, tmp_path: Path
) -> None:
    counted = {}
    for name, usage in {
        "a prompt of its own": {"prompt_tokens": 2000, "completion_tokens": 2},
        "a text of no tokens": {"prompt_tokens": 9, "completion_tokens": 0},
        "past the limit": {"prompt_tokens": 9, "completion_tokens": 40},
        "beyond belief": {"prompt_tokens": 10**12, "completion_tokens": 10**15},
    }.items():
        with Loopback(model, override=said("speaker", usage)) as server:
            asked = study(server.url, template(tmp_path), count=1, trajectories=1, steps=3, server={"timeout": 5})
            assert run(asked, tmp_path / name).calls == 3 == len(server.log)
        with Store(tmp_path / name) as store:
            costs = [json.loads(cost) for (cost,) in store.query("SELECT usage FROM calls")]
            assert any("3 of 3 answers report" in line for line in noted_of_answers(store))
        assert all(cost["usage_doubted"] == 1 for cost in costs)
        counted[name] = sum(costs[0].get(kind, 0) for kind in KINDS)
    assert counted["a text of no tokens"] == 9 + MOST_TOKENS
    assert counted["a prompt of its own"] == 2002 and counted["past the limit"] == 49, "a server may charge for that"
    assert counted["beyond belief"] <= BELIEVED * 1000


def test_the_names_that_a_server_answers_with_are_stored_and_said(model: LocalModel, tmp_path: Path) -> None:
    """Names are text of a stranger: bounded, printable; the content hash does not hold them."""
    hostile = "x\x1b[31m\n\u202e<b>[red]" + "y" * 10_000
    names = ["speaker", "speaker-2025-01-01", hostile, None, 7]
    with Loopback(model) as server:
        asked = study(server.url, template(tmp_path), count=1, trajectories=2, steps=5, server={"timeout": 30})
        run(asked, tmp_path / "plain")
        say, made = server.say, iter(names * 2)
        server.say = lambda path, body: say(path, body) | {"model": next(made)}  # type: ignore[method-assign]
        run(asked, tmp_path / "run")
    assert hash_of(tmp_path / "run") == hash_of(tmp_path / "plain")
    assert {extra["answered_by"] for extra in extras(tmp_path / "plain")} == {"speaker"}
    with Store(tmp_path / "plain") as store:
        assert noted_of_answers(store) == []
    with Store(tmp_path / "run", "w") as store:
        (line,) = noted_of_answers(store)
        store.put_rows(measure_episodes(store.episodes()), source="behaviour")
        page = write_report(store, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "4 of 10" in line and "'speaker-2025-01-01' (2)" in line and "(2)" in line.partition("speaker-2025")[2]
    assert line.isprintable() and len(line) < 1000
    assert "speaker-2025-01-01" in page and "<b>[red]" not in page


def test_many_names_are_counted_and_a_few_are_said() -> None:
    line = other_names("speaker", {"": 4, "speaker": 3} | {f"other {number:03}": 1 for number in range(200)})
    assert "200 of 207" in line and "195 more" in line and len(line) < 400
    assert other_names("speaker", {"": 4, "speaker": 3}) == ""
