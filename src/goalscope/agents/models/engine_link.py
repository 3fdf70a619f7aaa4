"""The process of vLLM's engine: start it, send it one order after another, and end it.

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
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
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
_MOST_SAID: Final = 600  # maximum characters of these messages in an error


class Ready(BaseModel):
    """The engine's first answer: vLLM's version, and ``length``, the number of token positions of its model."""

    model_config = ConfigDict(extra="forbid", strict=True)
    version: str
    length: int


class Indexed(BaseModel):
    """An answer to one call of an order."""

    model_config = ConfigDict(extra="forbid", strict=True)
    index: int


class Output(Indexed):
    """One output; ``logprobs`` is as in `goalscope.agents.models.decode.Decoded`."""

    tokens: list[int]
    finish: Finish
    logprobs: list[dict[str, Any]]


class LogProbabilities(Indexed):
    """The log-probability of each scored token of a text, in nats."""

    scores: list[float]


Answer = TypeVar("Answer", bound=Indexed)
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
    """A process with a loaded model, which carries out one order at a time.

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
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        self._end = weakref.finalize(self, _kill, self._process, self._log)
        ready: list[Ready] = []
        self._exchange(order, 1, Ready.model_validate, ready.append, lambda: None)
        [self.ready] = ready

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return not self._end.alive

    def ask(
        self, order: Mapping[str, Any], count: int, form: type[Answer], take: Callable[[list[Answer]], None]
    ) -> None:
        """Let the engine carry out an order.

        Args:
            order: the order.
            count: number of calls in the order.
            form: class of the answers.
            take: called once with each answer, and every half second with an empty list; an error that it raises ends
                the order and the engine.

        Raises:
            RuntimeError: the engine ended, failed, or answered something else.
        """
        seen: set[int] = set()

        def checked(told: Any) -> Answer:
            answer = form.model_validate(told)
            if answer.index in seen or not 0 <= answer.index < count:
                raise ValueError(f"it answers call {answer.index}, which was not made or is answered already")
            seen.add(answer.index)
            return answer

        self._exchange(order, count, checked, lambda answer: take([answer]), lambda: take([]))

    def _exchange(
        self,
        order: Mapping[str, Any],
        count: int,
        checked: Callable[[Any], Checked],
        take: Callable[[Checked], None],
        beat: Callable[[], None],
    ) -> None:
        done = False
        try:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):  # the error below quotes the last messages of an ended process
                self._process.stdin.write(json.dumps(order) + "\n")
                self._process.stdin.flush()
            answers = 0
            while True:
                try:
                    line = self._lines.get(timeout=_BEAT)
                except queue.Empty:
                    beat()
                    continue
                answer = self._understood(line, checked)
                if answer is None:
                    break
                take(answer)
                answers += 1
            if answers != count:
                raise RuntimeError(f"vLLM answered {answers} of {count} calls")
            done = True
        finally:
            if not done:
                self._end()  # the process may still be working on calls; the next order starts a new process

    def _understood(self, line: str, checked: Callable[[Any], Checked]) -> Checked | None:
        """Return the answer in a line, or None at the end of an order."""
        if not line:
            raise RuntimeError(f"vLLM ended before it answered; its last messages: {self._said()}")
        try:
            answer = json.loads(line)
            if not isinstance(answer, dict):
                raise ValueError("not a JSON object")
            if answer == {"end": True}:
                return None
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


def _read(stream: IO[str], lines: "queue.SimpleQueue[str]") -> None:
    """Put the lines of a process into a queue, followed by an empty text at the end."""
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
