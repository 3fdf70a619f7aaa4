"""A server that cuts long prompts without a word is found out before and during a run; others raise no alarm."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from http_studies import study, template
from server import Loopback
from server_modes import VALID, Asked, Mode, Sent

from goalscope.agents.models import HttpModel, Message, Sampling
from goalscope.agents.models.abilities import ServerNeeds, apply_report, check_server
from goalscope.runs import Store, run

RULES = "You are in a grid and must reach the goal. Answer with one JSON object. " * 20
"""The beginning of the prompts of studies here: about 360 tokens, as of real prompts."""


def reader(
    limit: int | None,
    count: Callable[[int, Asked], Any] = lambda tokens, asked: tokens,
    *,
    repeats: bool = False,
    refuses: bool = False,
) -> Mode:
    """A server that reads the last ``limit`` tokens of a prompt, four bytes each, and counts tokens in some way.

    Args:
        limit: its context; None for a large one.
        count: returns the count that it reports, from the tokens that it read and the request.
        repeats: whether the model can repeat a word that it was told to remember.
        refuses: whether a longer prompt is refused in place of being cut.
    """

    def mode(asked: Asked) -> Sent:
        text = "\n".join(message["content"] for message in asked.body["messages"])
        tokens = len(text) // 4 + 20
        if refuses and limit is not None and tokens > limit:
            return Sent(
                kind="refused", status=400, body={"error": {"message": f"maximum context {limit}", "code": 400}}
            )
        kept = text if limit is None else text[-4 * limit :]
        secret = re.search(r"secret word is (\w+)", kept)
        said = secret[1] if repeats and secret else json.dumps({"action": "UP"})
        if "random letters" in text:
            said = f"letters {asked.number if asked.body['temperature'] else 0}"
        read = tokens if limit is None else min(tokens, limit)
        return asked.reply(said, usage={"prompt_tokens": count(read, asked), "completion_tokens": 8})

    return mode


def needs(max_tokens: int = 3000) -> ServerNeeds:
    sampling = Sampling(temperature=0.7, max_tokens=max_tokens, reasoning_effort=None)
    return ServerNeeds(sampling=sampling, messages=(Message(role="user", content=RULES),), answers=())


def uncached(tokens: int, asked: Asked) -> int:
    """The tokens that were not in a cache: the server had the head of all prompts of the study."""
    text = asked.body["messages"][0]["content"]
    return tokens - len(RULES) // 4 if text.startswith(RULES) else tokens


SERVERS: dict[str, tuple[Mode, str]] = {
    "large": (reader(None), "yes"),
    "large, repeats": (reader(None, repeats=True), "yes"),
    "cuts at 2048": (reader(2048), "no"),
    "cuts at 2048, repeats": (reader(2048, repeats=True), "no"),
    "cuts at 700": (reader(700), "no"),
    "refuses by name": (reader(2048, refuses=True), "unknown"),
    "counts nothing": (reader(None, lambda tokens, asked: None), "unknown"),
    "counts 0": (reader(None, lambda tokens, asked: 0), "unknown"),
    "counts a text": (reader(None, lambda tokens, asked: "12"), "unknown"),
    "counts 7 for everything": (reader(None, lambda tokens, asked: 7), "unknown"),
    "counts 7 for everything, repeats": (reader(2048, lambda tokens, asked: 7, repeats=True), "unknown"),
    "counts what was not cached": (reader(None, uncached), "unknown"),
    "counts what was not cached, repeats": (reader(None, lambda tokens, asked: 5, repeats=True), "yes"),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_long_prompt_shows_before_a_run_whether_prompts_are_cut(name: str) -> None:
    mode, state = SERVERS[name]
    with Loopback(None, mode=mode) as server:
        model = HttpModel("m", server={"base_url": server.url, "retries": 0, "timeout": 10.0})
        report = check_server(model, needs())
        assert report.of("whole prompts").state == state, report.of("whole prompts").detail
        if state == "no":
            with pytest.raises(ValueError, match=r"(?s)num_ctx.*-c.*--max-model-len"):
                apply_report(model, needs(), report)
        else:
            apply_report(model, needs(), report)


def test_a_study_whose_prompts_and_answers_fit_the_context_is_not_refused() -> None:
    with Loopback(None, mode=reader(2048)) as server:
        model = HttpModel("m", server={"base_url": server.url, "retries": 0, "timeout": 10.0})
        assert check_server(model, needs(max_tokens=200)).of("whole prompts").state == "yes"


def conversation(url: str, folder: Path, *, steps: int = 8, **changes: Any) -> Any:
    """A study whose prompts grow with each step, from about 400 tokens by as many."""
    path = template(folder)
    path.write_text(RULES + path.read_text(encoding="utf-8"), encoding="utf-8")
    size = {"count": 1, "trajectories": 1, "steps": steps}
    return study(url, path, history="conversation", **size, **changes)


@pytest.mark.parametrize("preflight", [True, False])
def test_prompts_that_grow_past_the_context_stop_the_run(preflight: bool, tmp_path: Path) -> None:
    with Loopback(None, mode=reader(1300)) as server:
        asked = conversation(server.url, tmp_path, server={"preflight": preflight})
        with pytest.raises(ValueError, match=r"(?s)num_ctx.*same directory"):
            run(asked, tmp_path / "run")
        with Store(tmp_path / "run") as store:
            ((done, lost),) = store.query("SELECT sum(state = 'done'), sum(lost) FROM calls")
        assert 3 <= done <= 4 and lost == 1, "the answer to the prompt that was cut is paid for and not used"
        server.behaviour.mode = reader(None)
        assert run(asked, tmp_path / "run").calls == 8 - done, "with a longer context it goes on"


@pytest.mark.parametrize(
    "mode",
    [
        reader(None),
        reader(None, uncached),
        reader(None, lambda tokens, asked: 380, repeats=True),  # the new part of each conversation
        reader(None, lambda tokens, asked: None),
        reader(None, lambda tokens, asked: 7),
        reader(None, lambda tokens, asked: 10**30),
    ],
    ids=["all", "uncached", "new part", "none", "7", "1e30"],
)
def test_a_server_that_reads_everything_raises_no_alarm(mode: Mode, tmp_path: Path) -> None:
    with Loopback(None, mode=mode) as server:
        summary = run(conversation(server.url, tmp_path), tmp_path / "run")
        assert summary.calls == 8
        assert len(server.log) <= 8 + 5, "a suspicion costs few trials"
        assert {entry.outcome for entry in server.settled()} == {VALID}
