"""Servers of several kinds are tried before a run, and what falsifies the run is refused or recorded."""

from pathlib import Path
from typing import Any, get_args

import pytest
from http_studies import extras, study, template
from server import LLAMA_CPP, SGLANG, TRANSFORMERS, VLLM, Loopback, speaker
from server_modes import MODES, Asked, Sent
from tiny_models import request

from contents import hash_of
from goalscope.agents.models import HttpModel, LocalModel, Sampling
from goalscope.agents.models.abilities import (
    DRAWS,
    ServerNeeds,
    ServerReport,
    apply_report,
    check_server,
    most_trial_tokens,
)
from goalscope.agents.models.http_settings import Constraint
from goalscope.runs import Store, run
from goalscope.verdict.preflight.cost import costs
from tampered import tampered

DRAWN: dict[str, Any] = {"temperature": 0.7, "server": {"preflight": True}}
_SAID: dict[str, Any] = {}
FEW: dict[str, Any] = {"count": 1, "trajectories": 1, "steps": 2}


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return speaker()


def loopback(model: LocalModel, **kind: Any) -> Loopback:
    """A server that remembers what another one has computed."""
    server = Loopback(model, **kind)
    server._said = _SAID
    return server


def served(server: Loopback, **settings: Any) -> HttpModel:
    where = {"base_url": server.url, "timeout": 5.0, "backoff": 0.01, **settings}
    return HttpModel("speaker", server=where, reasoning="none" if "tokenizer" in settings else "auto")


def wanted(**changes: Any) -> ServerNeeds:
    sampling = Sampling(temperature=0.7, max_tokens=3, reasoning_effort=None)
    asked = request("#_")
    return ServerNeeds(sampling=sampling, messages=asked.messages, answers=('{"action": "UP"}',), **changes)


def states(report: ServerReport) -> dict[str, str]:
    return {one.name: one.state for one in report.abilities}


SEEN = {  # ability: what vLLM, SGLang, transformers serve and llama.cpp do
    "model": "yes yes yes yes",
    "token ids": "yes yes no no",
    "temperature": "yes yes no yes",
    "seed": "yes yes unknown yes",
    "log-probabilities": "yes yes no yes",
    "constrained: json_schema": "yes yes no yes",
    "constrained: guided_choice": "yes yes no no",
    "prompts as token ids": "yes yes no no",
    "context length": "yes yes unknown unknown",
}


KINDS = [VLLM, SGLANG, TRANSFORMERS, LLAMA_CPP]


@pytest.mark.parametrize("place", range(4), ids=["vllm", "sglang", "serve", "llama.cpp"])
def test_each_kind_of_server_is_seen_as_it_is(place: int, model: LocalModel) -> None:
    with loopback(model, **KINDS[place]) as server:
        report = check_server(served(server), wanted(everything=True))
    assert {name: report.of(name).state for name in SEEN} == {name: told.split()[place] for name, told in SEEN.items()}
    assert report.told.server.get("version", "") == ("0.32.0", "0.5.9", "", "")[place]
    assert ServerReport.model_validate(report.model_dump(mode="json")) == report


def test_a_run_tries_its_server_once_and_keeps_what_it_saw(model: LocalModel, tmp_path: Path) -> None:
    with loopback(model, **VLLM) as server:
        asked = study(server.url, template(tmp_path), **DRAWN, **FEW)
        first = run(asked, tmp_path / "run")
        tried = len(server.log) - first.calls
        (agent,) = asked.agents()
        requests, prompts, outputs = most_trial_tokens(wanted(), agent.model.server)  # type: ignore[attr-defined]
        assert tried == requests == DRAWS + 3
        longer = study(server.url, template(tmp_path), **DRAWN, **{**FEW, "trajectories": 2})
        run(longer, tmp_path / "longer")
        again = len(server.log)
        with Store(tmp_path / "longer") as store:
            (kept,) = store.info()["servers"]
            ((told, calls),) = store.query(
                "SELECT SUM(json_extract(usage, '$.prompt_tokens') + json_extract(usage, '$.output_tokens')), "
                "COUNT(*) FROM calls"
            )
        assert kept["accepted"] and kept["server"]["version"] == "0.32.0" and kept["usage"]["requests"] == tried
        assert 0 < kept["usage"]["prompt_tokens"] < prompts + outputs
        (cost,) = costs(longer)
        assert cost.calls >= calls + tried and (cost.tokens or 0) >= told + kept["usage"]["prompt_tokens"]
        with tampered(tmp_path / "longer" / "run.db") as database:
            database.execute("DELETE FROM episodes WHERE number = 1")
            database.execute("DELETE FROM calls")
        summary = run(longer, tmp_path / "longer")
        assert summary.calls == len(server.log) - again > 0, "nothing is tried again"
        without = study(server.url, template(tmp_path), **{**DRAWN, "server": {"preflight": False}}, **FEW)
        run(without, tmp_path / "without")
        assert hash_of(tmp_path / "without") == hash_of(tmp_path / "run"), "trials change no result"
        with Store(tmp_path / "without") as store:
            assert store.info()["servers"][0]["server"]["version"] == "0.32.0"


def test_a_temperature_that_does_not_act_is_refused_or_recorded(model: LocalModel, tmp_path: Path) -> None:
    with loopback(model, **TRANSFORMERS) as server:
        with pytest.raises(ValueError, match=r"(?s)temperature: 0\.7.*8 times.*unsupported: record") as caught:
            run(study(server.url, template(tmp_path), **DRAWN, **FEW), tmp_path / "refused")
        assert "--set server.unsupported=record" in str(caught.value), "the option of evaluate"
        for name in ("reasoning_effort", "top_logprobs", "body", "token"):
            assert name not in str(caught.value).replace("max_tokens", ""), "nobody set it"
        with Store(tmp_path / "refused") as store:
            assert not store.query("SELECT 1 FROM calls") and not store.info()["servers"][0]["accepted"]
        recorded = {"preflight": True, "unsupported": "record"}
        run(study(server.url, template(tmp_path), **{**DRAWN, "server": recorded}, **FEW), tmp_path / "recorded")
        assert {tuple(extra["unsupported"]) for extra in extras(tmp_path / "recorded")} == {("temperature",)}
        cold = study(server.url, template(tmp_path), server={"preflight": True}, **FEW)
        run(cold, tmp_path / "cold")
        assert not any("unsupported" in extra for extra in extras(tmp_path / "cold")), "at 0 there is nothing to heed"


def test_trials_count_in_the_caps(model: LocalModel, tmp_path: Path) -> None:
    with loopback(model, **VLLM) as server:
        capped = study(server.url, template(tmp_path), caps={"calls": DRAWS + 4}, **DRAWN, **FEW)
        with pytest.raises(ValueError, match=r"caps\.calls"):
            run(capped, tmp_path / "run")
        assert len(server.log) == DRAWS + 4
        with pytest.raises(ValueError, match=r"caps\.calls"):
            run(capped, tmp_path / "run")
        assert len(server.log) == DRAWS + 4, "those of an earlier session, too"


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ('The analysisassistantfinal{"action": "UP"}', "no"),
        ('analysisto (2,5) from here.assistantfinal{"action": "UP"}', "yes"),
        ('{"action": "UP"}', "unknown"),
    ],
)
def test_merged_reasoning_is_split_by_markers_or_refused(said: str, state: str, model: LocalModel) -> None:
    body = {"choices": [{"finish_reason": "stop", "message": {"content": said}}]}
    with loopback(model, override=body) as server:
        tried, asked = served(server), wanted()
        report = check_server(tried, asked)
        assert report.of("reasoning").state == state
        with pytest.raises(ValueError, match="temperature") as caught:
            apply_report(tried, asked, report)
        assert ("--reasoning-parser" in str(caught.value)) == (state == "no")


def test_other_abilities_that_a_study_needs_are_refused_by_name(model: LocalModel, tmp_path: Path) -> None:
    model.tokenizer.save_pretrained(tmp_path)
    ids = {"mode": "completions", "tokenizer": str(tmp_path)}
    with loopback(model, **TRANSFORMERS) as server:
        tried = served(server, **ids)
        with pytest.raises(ValueError, match=r"(?s)token ids.*mode: chat"):
            apply_report(tried, wanted(), check_server(tried, wanted()))
    with loopback(model, **{**VLLM, "scores": ""}) as server:
        tried, read = served(server, **ids), wanted(scored=True, written=False)
        with pytest.raises(ValueError, match="answer: likelihood"):
            apply_report(tried, read, check_server(tried, read))
        pages = {"/v1/models": {"data": [{"id": "speaker", "max_model_len": 3}]}}
    with loopback(model, pages=pages) as server:
        tried = served(server)
        with pytest.raises(ValueError, match=r"max_tokens \(3\).*3 tokens"):
            apply_report(tried, wanted(), check_server(tried, wanted()))
        with pytest.raises(ValueError, match="speaker"):
            check_server(HttpModel("another", server={"base_url": server.url}), wanted())


@pytest.mark.parametrize(("heeds", "state"), [(True, "yes"), (False, "no")])
def test_a_stop_string_of_the_study_is_refused_only_where_it_does_not_act(heeds: bool, state: str) -> None:
    def mode(asked: Asked) -> Sent:
        text = asked.body["messages"][0]["content"]
        said = f"letters {asked.number}" if "random letters" in text else "The sea is wide and blue."
        for stop in asked.body.get("stop", ()) if heeds else ():
            said = said.partition(stop)[0]
        return asked.reply(said, usage={"prompt_tokens": len(text) // 4, "completion_tokens": 8})

    with Loopback(None, mode=mode, models=("speaker",)) as server:
        tried = served(server, body={"stop": ["<|im_end|>"]})
        report = check_server(tried, wanted())
        assert report.of("stop strings").state == state
        if heeds:
            apply_report(tried, wanted(), report)
        else:
            with pytest.raises(ValueError, match=r"server\.body"):
                apply_report(tried, wanted(), report)


def test_a_rejected_temperature_does_not_hide_other_abilities() -> None:
    with Loopback(None, mode=MODES["reject_temp"], models=("speaker",)) as server:
        report = check_server(served(server), wanted(everything=True))
    assert set(report.rejected) == {"temperature"} and report.of("temperature").state == "no"
    for name in ("stop strings", *(f"constrained: {how}" for how in get_args(Constraint))):
        assert "temperature" not in report.of(name).detail


def test_a_trial_that_the_server_fails_quotes_the_server_and_gives_no_advice_for_runs() -> None:
    def mode(asked: Asked) -> Sent:
        failure = Sent(kind="failed", status=500, body={"error": "no room for ids"})
        return failure if "prompt" in asked.body else asked.reply()

    with Loopback(None, mode=mode, models=("speaker",)) as server:
        ability = check_server(served(server, retries=1), wanted(everything=True)).of("prompts as token ids")
    assert ability.state == "no" and ability.detail == "failed: status 500: no room for ids"
