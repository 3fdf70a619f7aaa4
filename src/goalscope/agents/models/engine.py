"""The backend ``vllm``: a model in vLLM's engine, which runs in a separate process and Python environment.

vLLM pins other versions of PyTorch and transformers than goalscope uses. The environment variable ``GOALSCOPE_VLLM``
names its Python interpreter. The engine receives and returns only token ids. Chat formats and likelihoods are computed
in goalscope's process, and activations are captured by passing the same ids through the same weights there.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import IO, Any, Final, TypeVar, Unpack
from weakref import WeakValueDictionary

from pydantic import BaseModel, ConfigDict

from goalscope._ground.checks import check_choice
from goalscope._ground.folder import NamedFile
from goalscope._ground.progress import TALLY, Arrived
from goalscope._ground.untrusted import printable, shorten
from goalscope.agents.models.base import MOST_NUMBER, ChatFormat, Finish, Request, Sampling, model_backend
from goalscope.agents.models.decode import Decoded
from goalscope.agents.models.folders import check_folder, folder_identity, read_json
from goalscope.agents.models.local import DTYPES, Answering, LocalModel
from goalscope.agents.models.reading import Prompts

# The process of vLLM's engine: start it, send it orders at any time, and end it.
#
# Everything that the process writes is treated as data: each answer is checked, and a process that writes anything
# else is ended.

INTERPRETER: Final = "GOALSCOPE_VLLM"
"""Environment variable that names the Python interpreter of an environment with vLLM."""
_PROGRAM: Final = Path(__file__).with_name("engine_process.py")
_BEAT: Final = 0.5  # seconds between two checks whether to stop
_MOST_LINE: Final = 1 << 28  # maximum characters of an answer
_MOST_TOLD: Final = 4000  # bytes that are read from the end of an ended engine's messages
_MOST_SAID: Final = 600  # maximum characters of these messages in an error


class Numbered(BaseModel):
    """A message from the process that runs vLLM, with the number of the call that it answers."""

    model_config = ConfigDict(extra="forbid", strict=True)
    number: int


class Ready(Numbered):
    """The first message from the process that runs vLLM, once the model is loaded.

    The fields are vLLM's ``version`` and ``length``, the number of token positions of the model.
    """

    version: str
    length: int


class Output(Numbered):
    """The completion of one prompt by vLLM.

    The fields are the token ids, how the output ended, and ``logprobs``: one mapping per token with ``token``,
    ``logprob`` and ``top``, empty if they were not requested.
    """

    tokens: list[int]
    finish: Finish
    logprobs: list[dict[str, Any]]


class LogProbabilities(Numbered):
    """The log-probability of each scored token of a text, in nats, as vLLM computed it."""

    scores: list[float]


Answer = TypeVar("Answer", bound=Numbered)


def interpreter() -> str:
    """Return the path of the Python interpreter of the environment in which vLLM is installed.

    It is the interpreter that the environment variable ``GOALSCOPE_VLLM`` names, or this one if it has vLLM.

    Raises:
        ValueError: no such interpreter is configured.
    """
    named = os.environ.get(INTERPRETER, "")
    if named:
        if not NamedFile(named).is_there():
            raise ValueError(f"{INTERPRETER} must name a Python interpreter, but there is no file {shorten(named)}")
        return named
    if find_spec("vllm") is not None:
        return sys.executable
    raise ValueError(
        "the backend vllm needs vLLM in an environment of its own (python -m venv engine; engine/bin/pip install "
        f"vllm): set {INTERPRETER} to its interpreter, engine/bin/python, or use the backend local"
    )


class Engine:
    """A process that runs vLLM with a loaded model and carries out the orders of several threads at the same time.

    An order is a message to the process, such as a list of prompts to complete; each prompt in it is a call.

    Raises:
        RuntimeError: the process ended or could not load the model; the message quotes its last messages.
    """

    def __init__(self, order: Mapping[str, Any], *, offline: bool) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - kept open as long as the process runs
        environment = os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
        if offline:
            environment |= {"HF_HUB_OFFLINE": "1"}
        self._process = subprocess.Popen(
            [interpreter(), "-P", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            encoding="utf-8",
            start_new_session=True,  # so that an interrupt reaches only goalscope
        )
        assert self._process.stdout is not None
        self._lines, self._numbers = _Lines(), count()
        self._sending, self._ending, self._problem = threading.Lock(), threading.Lock(), ""
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        self._end = weakref.finalize(self, _kill, self._process, self._log)
        answers: list[Ready] = []
        self.ask(order, [{}], Ready, lambda new: answers.extend(answer for _, answer in new))
        [self.ready] = answers

    @property
    def ended(self) -> bool:
        """Whether the process that runs vLLM has ended."""
        return not self._end.alive

    def ask(
        self,
        order: Mapping[str, Any],
        calls: Sequence[Mapping[str, Any]],
        form: type[Answer],
        take: Callable[[list[tuple[int, Answer]]], None],
    ) -> None:
        """Send an order to vLLM's process, and wait until all its calls are answered; other threads may do so at the
        same time.

        Args:
            order: what to do, such as completing prompts, without the calls.
            calls: the calls of the order, one per prompt.
            form: class of the answers.
            take: called with the index of each call and its answer as soon as it arrives, and every half second with an
                empty list; an error that it raises ends the order.

        Raises:
            RuntimeError: the engine ended, failed, or answered something else.
        """
        left = {number: index for index, number in zip(range(len(calls)), self._numbers, strict=False)}
        answers = self._lines.expect(left)
        try:
            self._send(
                {**order, "calls": [{**call, "number": number} for number, call in zip(left, calls, strict=True)]}
            )
            while left:
                answer = self._next(answers, lambda: take([]), form)
                take([(left.pop(answer.number), answer)])
        finally:
            self._lines.forget(left)
            if left and not self.ended:
                self._send({"do": "stop", "numbers": [*left]})

    def _send(self, order: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        # What an ended process says last is quoted when its end is noticed.
        with self._sending, suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def _next(self, answers: "queue.SimpleQueue[str]", beat: Callable[[], None], form: type[Answer]) -> Answer:
        """Return the next answer; a process that ended, failed or writes anything else is ended."""
        while True:
            try:
                line = answers.get(timeout=_BEAT)
                break
            except queue.Empty:
                beat()
        with self._ending:
            try:
                if self._problem:
                    raise RuntimeError(self._problem)
                if not line:
                    raise RuntimeError(f"vLLM ended before it answered; its last messages: {self._said()}")
                answer = json.loads(line)
                if isinstance(answer, dict) and "error" in answer:
                    raise RuntimeError(f"vLLM could not carry out the request: {_line(answer['error'])}")
                return form.model_validate(answer)
            except (RuntimeError, ValueError) as error:  # a ValueError for malformed JSON and for wrong fields
                wrong = f"vLLM gave an unexpected answer: {_line(error)}"
                self._problem = str(error) if isinstance(error, RuntimeError) else wrong
                self._end()  # the next order starts a new process
                raise RuntimeError(self._problem) from None

    def forget(self) -> None:
        """Give up ownership of the engine's worker process; called in the child after a fork.

        The parent still owns the process. The child's copy of this object then neither ends the process nor waits for
        it.
        """
        self._end.detach()

    def _said(self) -> str:
        """Return the last messages of the process."""
        self._process.wait(timeout=30)
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _MOST_TOLD))
        lines = [line for line in self._log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return _line(" | ".join(lines[-3:])) or f"exit status {self._process.returncode}, without a message"


ENGINES: WeakValueDictionary[str, Engine] = WeakValueDictionary()


def _forget() -> None:
    """Leave the engines to the parent process after a fork."""
    for engine in list(ENGINES.values()):
        engine.forget()
    ENGINES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _line(answer: object) -> str:
    """Return what an engine wrote as one printable line."""
    return printable(" ".join(str(answer).split())[:_MOST_SAID])


class _Lines:
    """What a process writes, for the threads that await it: each gets the answers to its calls, and any other line."""

    def __init__(self) -> None:
        self._lock, self._waiting = threading.Lock(), dict[int, queue.SimpleQueue[str]]()
        self._given_up = set[int]()  # numbers of calls whose answers nobody awaits any more
        self._last: str | None = None  # what ended the process

    def expect(self, numbers: Iterable[int]) -> "queue.SimpleQueue[str]":
        """Return a queue with the lines that answer calls with certain numbers."""
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        with self._lock:
            self._waiting |= dict.fromkeys(numbers, lines)
            if self._last is not None:
                lines.put(self._last)
        return lines

    def forget(self, numbers: Iterable[int]) -> None:
        """Drop the answers to some calls."""
        with self._lock:
            for number in numbers:
                if self._waiting.pop(number, None) is not None:
                    self._given_up.add(number)

    def put(self, line: str) -> None:
        """Hand a line to whom it concerns."""
        try:
            answer = json.loads(line)
            number = None if "error" in answer else answer.get("number")
        except (ValueError, AttributeError, TypeError):
            number = None
        with self._lock:
            if isinstance(number, int) and number in self._waiting:
                self._waiting.pop(number).put(line)
            elif number not in self._given_up:  # the end, an error, or no answer at all
                self._last = line if self._last is None else self._last
                for lines in {id(lines): lines for lines in self._waiting.values()}.values():
                    lines.put(line)


def _read(stream: IO[str], lines: _Lines) -> None:
    """Hand on the lines of a process, followed by an empty text at the end."""
    with stream:
        while line := stream.readline(_MOST_LINE):
            lines.put(line)
    lines.put("")


def _kill(process: "subprocess.Popen[str]", log: IO[bytes]) -> None:
    """End a process and the processes that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with suppress(OSError):  # unwritten data may fail to flush
        assert process.stdin is not None
        process.stdin.close()
    log.close()


@model_backend("vllm")
class EngineModel(Answering):
    """A causal language model in vLLM's engine on this machine.

    Outputs depend on the request's random stream through a seed, but vLLM draws them. They therefore differ from those
    of the backend ``local``, except at temperature 0, and may in rare ties depend on other requests that are computed
    at the same time. The backend is part of the model's identity.

    Args:
        model: a folder as ``save_pretrained`` writes it, or a name on the Hugging Face hub.
        dtype: "auto" (float32 on a CPU, the checkpoint's own type on a GPU), "float32", "bfloat16" or "float16".
        revision: commit, tag or branch on the hub.
        length: number of token positions for which the engine reserves memory; None for those of the model.
        memory: share of a GPU's memory that the engine reserves, in (0, 1]; None for vLLM's default.
        gpus: number of GPUs that share the model.
        name: short name for tables.
        chat: see `goalscope.agents.models.base.ChatFormat`.

    Raises:
        FileNotFoundError: a path does not exist.
        ValueError: an argument is out of range, the model is a GGUF file, or a bundled model has parts that vLLM does
            not support.
    """

    def __init__(
        self,
        model: str,
        *,
        dtype: str = "auto",
        revision: str | None = None,
        length: int | None = None,
        memory: float | None = None,
        gpus: int = 1,
        name: str | None = None,
        **chat: Unpack[ChatFormat],
    ) -> None:
        check_choice("dtype", dtype, DTYPES)
        if length is not None and not 1 <= length <= MOST_NUMBER:
            raise ValueError(f"length must be at least 1, got {length}")
        if memory is not None and not 0 < memory <= 1:
            raise ValueError(f"memory must be a share in (0, 1], got {memory}")
        if gpus < 1:
            raise ValueError(f"gpus must be at least 1, got {gpus}")
        super().__init__(model, revision=revision, **chat)
        self._chat = chat
        if self._folder is not None and NamedFile(self._folder).is_there():
            raise ValueError(
                f"the backend vllm needs a folder, but {self._folder.name} is a file: use the backend local"
            )
        self._name = name or f"{self.name}-vllm"
        self._dtype, self._length, self._memory, self._gpus = dtype, length, memory, gpus
        self._identity: Mapping[str, Any] | None = None
        self._engine: Engine | None = None

    def describe(self) -> Mapping[str, Any]:
        """Return what determines the model's outputs: digests of its files, dtype, and settings for chats.

        No engine is started. The description is part of an agent's description, whose hash is the agent's id.
        """
        if self._identity is None:
            self._identity = self._on_hub() if self._folder is None else folder_identity(self._folder)
        return {"kind": "vllm", "files": dict(self._identity), "dtype": self._dtype, **self._settings()}

    def here(self, untrained: int | None = None, random_weights: str = "default-init") -> LocalModel:
        """Return the same model for this process, without vLLM, to capture its activations or as a control with random
        weights.

        Args:
            untrained: seed of random weights; None for the trained weights.
            random_weights: how random weights are drawn, one of `RANDOM_WEIGHTS`.
        """
        return LocalModel(
            self._source,
            dtype=self._dtype,
            revision=self._revision,
            untrained=untrained,
            random_weights=random_weights,
            **self._chat,
        )

    def prepare(self) -> None:
        """Start vLLM's process and load the model now if it is not running, so that no answer has to wait for it."""
        loaded = self._load()
        with loaded.lock:
            self._running()

    def _decoded(
        self, requests: Sequence[Request], texts: Sequence[str], sampling: Sampling, arrived: Arrived[Decoded]
    ) -> None:
        prompts = self._prompts(requests, texts)
        settings = sampling.describe() | {"stop": sorted(self.stop)}
        calls = [
            {"ids": ids, "seed": int(request.rng().integers(2**63))}
            for ids, request in zip(prompts, requests, strict=True)
        ]

        def take(outputs: Sequence[tuple[int, Output]]) -> None:
            TALLY.add(computed_output=sum(len(output.tokens) for _, output in outputs))
            arrived([(index, Decoded(**output.model_dump(exclude={"number"}))) for index, output in outputs])

        self._ask({"do": "complete", "sampling": settings}, calls, Output, take)

    def _scored(
        self, contexts: Sequence[Sequence[int]], answers: Sequence[Prompts], arrived: Arrived[list[list[float]]]
    ) -> None:
        places = [(index, row) for index, rows in enumerate(answers) for row in range(len(rows))]
        texts = [[*contexts[index], *answers[index][row]] for index, row in places]
        likelihoods: dict[int, dict[int, list[float]]] = {}

        def take(all_scores: Sequence[tuple[int, LogProbabilities]]) -> None:
            new = []
            for number, scores in all_scores:
                index, row = places[number]
                rows = likelihoods.setdefault(index, {})
                rows[row] = scores.scores
                if len(rows) == len(answers[index]):
                    new.append((index, [rows[place] for place in range(len(rows))]))
            arrived(new)

        calls = [{"ids": ids, "given": len(contexts[index])} for ids, (index, _) in zip(texts, places, strict=True)]
        self._ask({"do": "score"}, calls, LogProbabilities, take)

    def _ask(
        self,
        order: Mapping[str, Any],
        calls: Sequence[Mapping[str, Any]],
        form: type[Answer],
        take: Callable[[list[tuple[int, Answer]]], None],
    ) -> None:
        """Let the engine carry out an order; the engine is started if it is not running."""
        if not calls:
            return
        loaded = self._load()
        with loaded.lock:
            engine = self._running()
        for index, call in enumerate(calls):
            if not 0 < len(call["ids"]) < engine.ready.length:
                raise ValueError(
                    f"a prompt must have at least one token and leave room for an output in the engine's "
                    f"{engine.ready.length} positions, but prompt {index} has {len(call['ids'])} tokens: use smaller "
                    "worlds, a shorter history or another model, or raise length"
                )
        TALLY.add(computed_prompt=sum(len(call["ids"]) for call in calls))
        engine.ask(order, calls, form, take)

    def _running(self) -> Engine:
        """Return an engine with the weights, started if necessary; agents with the same weights share it."""
        key = self._key()
        engine = self._engine or ENGINES.get(key)
        if engine is None or engine.ended:
            engine = ENGINES[key] = self._started()
        self._engine = engine
        return engine

    def _started(self) -> Engine:
        if self._folder is not None:
            check_folder(self._folder)
        settings = {
            "dtype": self._dtype,
            "revision": self._revision,
            "max_model_len": self._length,
            "gpu_memory_utilization": self._memory,
            "tensor_parallel_size": self._gpus,
            "hf_overrides": self._overrides(),
        }
        source = self._source if self._folder is None else str(self._folder.resolve())
        TALLY.add(begun=1)
        TALLY.tell(f"vLLM loads the weights of {self.name}")
        engine = Engine({"do": "open", "model": source, "settings": settings}, offline=self._folder is not None)
        TALLY.tell(f"vLLM {engine.ready.version} has loaded the weights of {self.name}")
        return engine

    def _overrides(self) -> dict[str, Any] | None:
        """Return settings that vLLM needs in place of the model's configuration, or None.

        vLLM builds the rotary positions of GPT-OSS with YaRN's parameters, and refuses a configuration without them. A
        factor of 1 leaves frequencies and attention unchanged.
        """
        config = read_json(self._folder / "config.json") if self._folder is not None else {}
        rope = config.get("rope_parameters")
        if config.get("model_type") != "gpt_oss" or not isinstance(rope, dict) or "factor" in rope:
            return None
        length = config.get("max_position_embeddings")
        yarn = {"rope_type": "yarn", "factor": 1.0, "original_max_position_embeddings": length}
        return {"rope_parameters": rope | yarn | {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}}

    def _key(self, *more: Any) -> str:
        return super()._key("vllm", self._dtype, self._length, self._memory, self._gpus)
