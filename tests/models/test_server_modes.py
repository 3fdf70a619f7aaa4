"""A run against each kind of odd replies ends with the true counts of what its server has sent."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from http_studies import study, template
from server import Loopback
from server_modes import CALL, FAILED, FINAL, INVALID, LATE, LIMITED, MODES, REJECTED, VALID, WITHHELD

from goalscope.agents.agent import REDRAWS
from goalscope.agents.agent import WITHHELD as WITHHELD_FAILURE
from goalscope.agents.models import HttpModel, Message, Request, Sampling
from goalscope.agents.parse import CALLED
from goalscope.runs import Store, run
from goalscope.runs.provenance import noted_of_answers

STEPS = 15
WAITING: dict[str, Any] = {"timeout": 20.0, "retries": 3, "backoff": 0.001, "patience": 60}
LASTING = {  # modes whose failures do not pass, and the sentence of the server or of goalscope that the error quotes
    "lmstudio200": r"There is no such endpoint here \(POST /chat/completions\)",
    "error200 lasts": "The upstream cluster is being drained",
    "content_dict": "the content of a message is not a text",
    "latin1": "not JSON",
    "sse": "gave no usable answer.*streams its answer",
}
STOPPING = {  # modes that end the run at once, and the server's sentence
    "error200_400": "No endpoint was found that can serve this request",
    "error200 no credit": "Your account has no credit left for this model",
    "error200 no key": "The key was revoked for this provider",
    "choice error final": "The input was flagged",
    "ctx": "The maximum context length is 4096 tokens",
}

IN_REASONING = ("reasoning_only", "reasoning_only_late", "harmony_lost")  # modes of empty answers beside reasoning


def modes_of_the_cases() -> set[str] | None:
    """The modes of the loopback server beside the cases from the field, None where it is not there."""
    path = Path(__file__).parents[2] / "shared" / "cases" / "mock.py"
    path = path if path.exists() else path.parents[3] / "shared" / "cases" / "mock.py"
    return set(re.findall(r'm == "(\w+)"', path.read_text(encoding="utf-8"))) if path.exists() else None


def test_every_mode_of_the_cases_from_the_field_has_a_counterpart() -> None:
    names = modes_of_the_cases()
    if names is None:
        pytest.skip("the cases from the field are not beside this repository")
    assert len(names) >= 40 and names <= set(MODES)


def kind_of(step: Any) -> str:
    """What a stored step says that the reply was."""
    if step.action is not None:
        return VALID
    return {WITHHELD_FAILURE: WITHHELD, CALLED: CALL}.get(step.failure, INVALID)


def asked_with(mode: str, url: str, folder: Path) -> Any:
    changes: dict[str, Any] = {"server": WAITING, "max_tokens": 5000 if mode == "ctx" else 300}
    if mode == "reject_effort":
        changes |= {"reasoning_effort": "low", "server": {**WAITING, "unsupported": "record"}}
    if mode == "reject_temp":
        changes |= {"server": {**WAITING, "unsupported": "record"}}
    return study(url, template(folder), count=1, trajectories=1, steps=STEPS, **changes)


COUNTED = [name for name in MODES if name not in (*STOPPING, "roles")]


@pytest.mark.parametrize("mode", COUNTED)
def test_the_counts_of_a_run_are_those_of_its_server(mode: str, tmp_path: Path) -> None:
    with Loopback(None, mode=MODES[mode], models=("speaker",)) as server:
        asked = asked_with(mode, server.url, tmp_path)
        if mode in LASTING:
            with pytest.raises(ConnectionError, match=f"(?s){LASTING[mode]}.*same directory"):
                run(asked, tmp_path / "run")
        else:
            run(asked, tmp_path / "run")
        log = server.settled()
    sent: dict[str, list[str]] = {}
    for entry in log:
        sent.setdefault(entry.tag, []).append(entry.outcome)
    with Store(tmp_path / "run") as store:
        (episode,) = store.episodes() if mode not in LASTING else (None,)
        calls = store.query(
            "SELECT episode_id || '-' || step || '-' || attempt, state, lost, json_extract(usage, '$.requests') "
            "FROM calls"
        )
        notes = " ".join(noted_of_answers(store))
    assert sum(lost + (requests or 0) for _, _, lost, requests in calls) == len(log), "every request is counted"
    for tag, state, _, requests in calls:
        failures = [kind for kind in sent[tag] if kind in (FAILED, LIMITED)]
        assert (state == "done") == (sent[tag][-1] not in (FAILED, LIMITED))
        if state == "done":
            assert requests == len(sent[tag]) and set(sent[tag][:-1]) <= {FAILED, LIMITED, REJECTED}
        else:
            assert len(failures) == len(sent[tag]) == 1 + WAITING["retries"]
    if episode is None:
        return
    last = Counter(kinds[-1] for kinds in sent.values())
    assert Counter(map(kind_of, episode.steps)) == last, "invalid, withheld and called turns are those that were sent"
    redrawn = {step.index: step.extra[REDRAWS] for step in episode.steps if REDRAWS in step.extra}
    expected = {
        step.index: kinds.count(FAILED)
        for step in episode.steps
        if (kinds := sent[f"{episode.spec.id}-{step.index}-0"]).count(FAILED)
    }
    assert redrawn == expected, "redrawn turns are those whose earlier replies had failed"
    counts = re.search(r"(\d+) of 15 answers were drawn again \((\d+) ", notes)
    assert (counts is not None) == bool(expected)
    if counts is not None:
        assert [int(number) for number in counts.groups()] == [len(expected), sum(expected.values())]
    assert (f"{last[WITHHELD]} of 15 answers were withheld" in notes) == bool(last[WITHHELD])
    assert (f"{last[CALL]} of 15 answers were calls of a tool" in notes) == bool(last[CALL])
    reasoned = last[INVALID] if mode in IN_REASONING else 0
    assert (f"{reasoned} of 15 answers were empty, although" in notes) == bool(reasoned)


@pytest.mark.parametrize("mode", STOPPING)
def test_an_error_that_does_not_pass_ends_with_the_servers_sentence_and_is_not_tried_again(
    mode: str, tmp_path: Path
) -> None:
    with Loopback(None, mode=MODES[mode]) as server:
        with pytest.raises((ValueError, PermissionError), match=STOPPING[mode]):
            run(asked_with(mode, server.url, tmp_path), tmp_path / "run")
        # Where an error names no parameter, the request is made once more without the ids of tokens.
        assert server.outcomes()[FINAL] == (2 if mode == "ctx" else 1)


def test_a_chat_that_a_template_does_not_take_ends_with_the_servers_sentence() -> None:
    chat = (Message(role="system", content="Move."), Message(role="user", content="#_"))
    with Loopback(None, mode=MODES["roles"]) as server:
        model = HttpModel("speaker", server={"base_url": server.url, **WAITING})
        with pytest.raises(ValueError, match="Roles must alternate"):
            model.complete([Request(messages=chat, key=(0, "a", 0, 0))], Sampling(temperature=0.0, max_tokens=9))
        (reply,) = model.complete([Request(messages=chat[1:], key=(0, "a", 0, 0))], Sampling(temperature=0.0))
        assert reply.finish == "stop" and reply.redraws == 0


@pytest.mark.parametrize("mode", ["content_filter", "content filter as status 400", "refusal"])
def test_a_withheld_answer_breaks_no_constraint_and_lacks_nothing_that_was_asked_for(mode: str) -> None:
    server_settings = {**WAITING, "constrained": "json_schema"}
    sampling = Sampling(temperature=0.0, max_tokens=9, top_logprobs=2, reasoning_effort=None)
    chat = (Message(role="user", content="#_"),)
    with Loopback(None, mode=lambda asked: MODES[mode](replace(asked, number=LATE))) as server:
        model = HttpModel("speaker", server={"base_url": server.url, **server_settings})
        request = Request(messages=chat, key=(0, "a", 0, 0), answers=('{"action": "UP"}',))
        (reply,) = model.complete([request], sampling)
        assert reply.finish == "withheld" and reply.error and not reply.answer and reply.unsupported == ()
