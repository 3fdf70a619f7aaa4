"""The arms of a small local model are played at once: the same answers as one by one, and an interrupt ends all."""

import importlib
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from goalscope.agents.chat import ChatAgent
from goalscope.runs import Store, content_hash
from goalscope.verdict import playing, subject_of
from goalscope.verdict.plan import Choices, prepare
from goalscope.verdict.playing import play

quiet: Any = importlib.import_module("benchmarks.verdicts").quiet

ARMS = ("fog", "hypotheses")
SIZES = dict.fromkeys(ARMS, 1)


def played(directory: Path) -> dict[str, str]:
    """Play two arms of Theseus; return the content hash of each."""
    theseus, small = (
        subject_of("chat:model=theseus,max_tokens=48"),
        Choices(sizes=(7,), studies=("horizon={steps: 4}",)),
    )
    run = prepare(directory, [theseus], SIZES, seed=7, choices=small)
    play(run, quiet)
    assert not run.failures.failed
    hashes = dict[str, str]()
    for arm in ARMS:
        with Store(directory / "arms" / arm) as store:
            hashes[arm] = content_hash(store)
            assert len(store.rows().select(measure="success"))
    return hashes


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The content hashes of arms that were played at once and that nobody stopped."""
    return played(tmp_path_factory.mktemp("together") / "whole")


def test_arms_together_have_the_answers_of_each_alone(
    together: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "play_together", lambda *arguments: [])
    assert played(tmp_path / "alone") == together


@pytest.mark.full
def test_an_interrupt_stops_all_arms_and_keeps_what_is_there(
    together: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    act, asked = ChatAgent.act, list[int]()

    def interrupted(self: ChatAgent, observations: Sequence[Any], arrived: Any) -> Any:
        asked.append(len(observations))
        if len(asked) == 4:  # each arm was answered once
            os.kill(os.getpid(), signal.SIGINT)
        return act(self, observations, arrived=arrived)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    try:
        with monkeypatch.context() as patched:
            patched.setattr(ChatAgent, "act", interrupted)
            with pytest.raises(KeyboardInterrupt, match="run the same command to go on"):
                played(tmp_path / "stopped")
    finally:
        signal.signal(signal.SIGINT, before)
    assert threading.active_count() < 10
    assert played(tmp_path / "stopped") == together
