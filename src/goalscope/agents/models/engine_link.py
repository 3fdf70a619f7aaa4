"""The process of vLLM's engine: start it, send it orders at any time, and end it.

Everything that the process writes is treated as data: each answer is checked, and a process that writes anything else
is ended.
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
from typing import IO, Any, Final, TypeVar
from weakref import WeakValueDictionary

from pydantic import BaseModel, ConfigDict

from goalscope._ground.folder import NamedFile
from goalscope._ground.untrusted import printable, shorten
from goalscope.agents.models.base import Finish

INTERPRETER: Final = "GOALSCOPE_VLLM"
"""Environment variable that names the Python interpreter of an environment with vLLM."""
_PROGRAM: Final = Path(__file__).with_name("engine_process.py")
_BEAT: Final = 0.5  # seconds between two checks whether to stop
_MOST_LINE: Final = 1 << 28  # maximum characters of an answer
_MOST_TOLD: Final = 4000  # bytes that are read from the end of an ended engine's messages
_OPENED: Final = -1  # number of the answer to the first order
_MOST_SAID: Final = 600  # maximum characters of these messages in an error


class Ready(BaseModel):
    """The engine's first answer: vLLM's version, and ``length``, the number of token positions of its model."""

    model_config = ConfigDict(extra="forbid", strict=True)
    version: str
    length: int


class Numbered(BaseModel):
    """An answer to the call with a certain number."""

    model_config = ConfigDict(extra="forbid", strict=True)
    number: int


class Output(Numbered):
    """One output; ``logprobs`` is as in `goalscope.agents.models.decode.Decoded`."""

    tokens: list[int]
    finish: Finish
    logprobs: list[dict[str, Any]]


class LogProbabilities(Numbered):
    """The log-probability of each scored token of a text, in nats."""

    scores: list[float]


Answer = TypeVar("Answer", bound=Numbered)
Checked = TypeVar("Checked")


def interpreter() -> str:
    """Return the Python interpreter of the environment with vLLM.

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
    """A process with a loaded model, which carries out the orders of several threads at the same time.

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
        opened = self._lines.expect([_OPENED])
        self._send(order)
        self.ready = self._next(opened, lambda: None, Ready.model_validate)

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return not self._end.alive

    def ask(
        self,
        order: Mapping[str, Any],
        calls: Sequence[Mapping[str, Any]],
        form: type[Answer],
        take: Callable[[list[tuple[int, Answer]]], None],
    ) -> None:
        """Let the engine carry out an order, beside those of other threads.

        Args:
            order: the order without its calls.
            calls: the calls.
            form: class of the answers.
            take: called once with the index of each call and its answer, and every half second with an empty list; an
                error that it raises ends the order.

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
                answer = self._next(answers, lambda: take([]), form.model_validate)
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

    def _next(
        self, answers: "queue.SimpleQueue[str]", beat: Callable[[], None], checked: Callable[[Any], Checked]
    ) -> Checked:
        """Return the next answer; a process that ended, failed or writes anything else is ended."""
        while True:
            try:
                line = answers.get(timeout=_BEAT)
                break
            except queue.Empty:
                beat()
        with self._ending:
            if self._problem:
                raise RuntimeError(self._problem)
            try:
                return self._understood(line, checked)
            except RuntimeError as error:
                self._problem = str(error)
                self._end()  # the next order starts a new process
                raise

    def _understood(self, line: str, checked: Callable[[Any], Checked]) -> Checked:
        if not line:
            raise RuntimeError(f"vLLM ended before it answered; its last messages: {self._said()}")
        try:
            answer = json.loads(line)
            if not isinstance(answer, dict):
                raise ValueError("not a JSON object")
            if "error" not in answer:
                return checked(answer)
        except ValueError as error:  # raised for malformed JSON and for wrong fields
            raise RuntimeError(f"vLLM gave an unexpected answer: {_line(error)}") from None
        raise RuntimeError(f"vLLM could not carry out the request: {_line(answer['error'])}")

    def forget(self) -> None:
        """Stop using the process, because after a fork it belongs to the parent."""
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
            number = None if "error" in answer else answer.get("number", _OPENED)
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
