"""The backend vllm: letter for letter what the local backend says, by a stand-in of the package, and by vLLM itself."""

import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_models import PLAIN_TEMPLATE, llama, request, tokenizer

from goalscope._ground.progress import StoppedError
from goalscope.agents.models import LocalModel, Request, Sampling
from goalscope.agents.models.base import build_model
from goalscope.agents.models.engine import INTERPRETER, EngineModel, interpreter

GREEDY = Sampling(temperature=0, max_tokens=12, reasoning_effort=None)
DRAWN = Sampling(temperature=0.8, top_p=1.0, max_tokens=12, reasoning_effort=None)
PROMPT = "# 0 1 2 3 4\n0 # # # # #\n1 # A _ G #\n2 # _ _ _ #\n3 # _ _ _ #\n4 # # # # #"
ANSWERS = tuple(f'{{"action": "{action}"}}' for action in ("UP", "DOWN", "LEFT", "RIGHT"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "tiny"
    llama(seed=3).save_pretrained(place)
    tokenizer(PLAIN_TEMPLATE, added=()).save_pretrained(place)
    return place


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The package vllm on the import path of the engine's process."""
    package = tmp_path / "path" / "vllm"
    package.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("stand_in_vllm.py"), package / "__init__.py")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv(INTERPRETER, sys.executable)
    return monkeypatch


def requests(count: int = 3) -> list[Request]:
    return [request("#_" * (index + 1), episode=f"e{index}") for index in range(count)]


@pytest.mark.full
def test_what_it_says_at_temperature_0_is_what_the_local_backend_says(
    folder: Path, stand_in: pytest.MonkeyPatch
) -> None:
    stand_in.setenv("STAND_IN", "answers")
    engine, local = EngineModel(str(folder), reasoning="none"), LocalModel(folder, reasoning="none")
    arrived: list[int] = []
    asked = requests()
    found = engine.complete(asked, GREEDY, lambda new: arrived.extend(index for index, _ in new))
    assert sorted(arrived) == [0, 1, 2]
    for one, other in zip(found, local.complete(asked, GREEDY), strict=True):
        assert (one.answer, one.output_tokens, one.prompt_tokens) == (
            other.answer,
            other.output_tokens,
            other.prompt_tokens,
        )
        assert (one.finish, one.raw) == (other.finish, other.raw)
    scored = [Request(messages=each.messages, key=each.key, answers=ANSWERS) for each in asked]
    for near, far in zip(
        engine.likelihoods(scored, GREEDY, reasoned=False),
        local.likelihoods(scored, GREEDY, reasoned=False),
        strict=True,
    ):
        assert near.logprobs == pytest.approx(far.logprobs, abs=1e-4) and near.outputs == far.outputs
        assert near.beginning == pytest.approx(far.beginning, abs=1e-4)


def test_draws_are_named_by_the_request_and_not_by_its_neighbours(folder: Path, stand_in: pytest.MonkeyPatch) -> None:
    engine = EngineModel(str(folder), reasoning="none")
    asked = requests()
    together = [one.output_tokens for one in engine.complete(asked, DRAWN)]
    assert [engine.complete([each], DRAWN)[0].output_tokens for each in reversed(asked)] == together[::-1]
    assert len(set(together)) == 3


def test_the_backend_is_part_of_the_identity_and_the_weights_are_those_of_the_local_model(folder: Path) -> None:
    engine, local = EngineModel(str(folder), reasoning="none"), LocalModel(folder, reasoning="none")
    assert engine.describe()["kind"] == "vllm" and engine.describe()["files"] == local.describe()["files"]
    assert engine.here().describe() == local.describe()
    assert engine.here(4, "permuted").describe()["untrained"] == 4


@pytest.mark.parametrize(
    ("fault", "said"),
    [("refuses", "no such architecture"), ("dies", "out of everything"), ("nonsense", "unexpected answer")],
)
def test_an_engine_that_fails_is_named_with_its_reason(
    folder: Path, stand_in: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    stand_in.setenv("STAND_IN", fault)
    engine = EngineModel(str(folder), reasoning="none")
    with pytest.raises(RuntimeError, match=said):
        engine.complete(requests(), GREEDY)
    stand_in.setenv("STAND_IN", "")
    assert len(engine.complete(requests(), GREEDY)) == 3, "the next order has a new process"


def test_work_that_is_ended_keeps_what_arrived_and_nothing_of_it_enters_the_next(
    folder: Path, stand_in: pytest.MonkeyPatch
) -> None:
    engine = EngineModel(str(folder), reasoning="none")
    kept: list[int] = []

    def take(new: Sequence[tuple[int, Any]]) -> None:
        kept.extend(index for index, _ in new)
        if kept:
            raise StoppedError

    with pytest.raises(StoppedError):
        engine.complete(requests(), GREEDY, take)
    assert len(kept) == 1
    assert len(engine.complete(requests(2), GREEDY)) == 2


def test_requests_enter_between_two_steps_of_what_is_under_way(
    folder: Path, tmp_path: Path, stand_in: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "rows"
    stand_in.setenv("STAND_IN_LOG", str(log))
    stand_in.setenv("STAND_IN_PACE", "0.02")
    engine, ended = EngineModel(str(folder), reasoning="none"), list[str]()
    first, second = requests(2)

    def ask(name: str, request: Request, tokens: int) -> None:
        engine.complete([request], Sampling(temperature=0.8, max_tokens=tokens, reasoning_effort=None))
        ended.append(name)

    earlier = threading.Thread(target=ask, args=("earlier", first, 300))
    earlier.start()
    while not log.exists():
        time.sleep(0.01)
    ask("later", second, 3)
    earlier.join()
    assert ended == ["later", "earlier"]
    rows = [int(line) for line in log.read_text().split()]
    assert rows[0] == 1 and rows.count(2) == 3 and len(rows) <= 300


def test_what_it_cannot_do_is_refused(tmp_path: Path, folder: Path, stand_in: pytest.MonkeyPatch) -> None:
    engine = EngineModel(str(folder), reasoning="none")
    with pytest.raises(ValueError, match="512 positions"):
        engine.complete([request("#" * 600)], GREEDY)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    wrong: dict[str, Any]
    for wrong, said in (
        ({"model": str(tmp_path / "model.gguf")}, "local"),
        ({"dtype": "int3"}, "int3"),
        ({"memory": 2.0}, "memory"),
        ({"gpus": 0}, "gpus"),
        ({"length": 0}, "length"),
    ):
        with pytest.raises(ValueError, match=said):
            build_model(str(wrong.pop("model", folder)), wrong, backend="vllm")
    stand_in.setenv(INTERPRETER, str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=INTERPRETER):
        interpreter()
    stand_in.delenv(INTERPRETER)
    with pytest.raises(ValueError, match=INTERPRETER):
        interpreter()


@pytest.mark.full
@pytest.mark.skipif(not os.environ.get(INTERPRETER), reason=f"vLLM itself: set {INTERPRETER} to its interpreter")
@pytest.mark.parametrize("kind", ["llama", "theseus"])
def test_vllm_itself(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    source, reasoning, asked = "theseus", "auto", [request(PROMPT, episode=f"e{index}") for index in range(6)]
    if kind == "llama":
        source, reasoning, asked = str(tmp_path / kind), "none", requests(6)
        llama(seed=3, head=32).save_pretrained(source)  # vLLM computes no narrower heads
        tokenizer(PLAIN_TEMPLATE, added=()).save_pretrained(source)
    engine, local = EngineModel(source, reasoning=reasoning), LocalModel(source, reasoning=reasoning)
    for one, other in zip(engine.complete(asked, GREEDY), local.complete(asked, GREEDY), strict=True):
        assert one.output_tokens == other.output_tokens and one.answer == other.answer
    together = [one.output_tokens for one in engine.complete(asked, DRAWN)]
    assert len(set(together)) > 1
    assert [engine.complete([each], DRAWN)[0].output_tokens for each in asked] == together
    scored = [Request(messages=each.messages, key=each.key, answers=ANSWERS) for each in asked]
    for near, far in zip(
        engine.likelihoods(scored, GREEDY, reasoned=False),
        local.likelihoods(scored, GREEDY, reasoned=False),
        strict=True,
    ):
        assert near.logprobs == pytest.approx(far.logprobs, abs=1e-3)
