"""The process of vLLM's engine: started, asked one order after another, ended.

What it says is read as data: each answer is checked, and an engine that says something else is ended.
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
"""Environment variable with the Python interpreter of an environment that holds vLLM."""
_PROGRAM: Final = Path(__file__).with_name("engine_process.py")
_BEAT: Final = 0.5  # seconds between two looks whether the work is to end
_MOST_LINE: Final = 1 << 28  # characters of an answer
_MOST_TOLD: Final = 4000  # bytes of the last messages of an engine that ended
_MOST_SAID: Final = 600  # characters of them in an error


class Ready(BaseModel):
    """What an engine says of itself; ``length`` is the positions of its model."""

    model_config = ConfigDict(extra="forbid", strict=True)
    version: str
    length: int


class Indexed(BaseModel):
    """An answer to one of the calls of an order."""

    model_config = ConfigDict(extra="forbid", strict=True)
    index: int


class Output(Indexed):
    """One output; ``logprobs`` as in `goalscope.agents.models.decode.Decoded`."""

    tokens: list[int]
    finish: Finish
    logprobs: list[dict[str, Any]]


class Scores(Indexed):
    """The log-probability of each scored token of a text, nats."""

    scores: list[float]


Answer = TypeVar("Answer", bound=Indexed)
Checked = TypeVar("Checked")


def interpreter() -> str:
    """Return the Python interpreter that has vLLM.

    Raises:
        ValueError: none is known.
    """
    named = os.environ.get(INTERPRETER, "")
    if named:
        if not NamedFile(named).is_there():
            raise ValueError(f"{INTERPRETER} must name a Python interpreter, there is no file {shorten(named)}")
        return named
    if find_spec("vllm") is not None:
        return sys.executable
    raise ValueError(
        "the backend vllm needs vLLM in an environment of its own (python -m venv engine; engine/bin/pip install "
        f"vllm): set {INTERPRETER} to its interpreter, engine/bin/python, or use the backend local"
    )


class Engine:
    """A process with a loaded model, which does one order at a time.

    Raises:
        RuntimeError: it ended, or could not load the model; with its last messages.
    """

    def __init__(self, order: Mapping[str, Any], *, offline: bool) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
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
            start_new_session=True,  # an interrupt is for who asks
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
        """Whether the process is no longer there."""
        return not self._end.alive

    def ask(
        self, order: Mapping[str, Any], count: int, form: type[Answer], take: Callable[[list[Answer]], None]
    ) -> None:
        """Have an order done.

        Args:
            order: what is asked.
            count: how many calls it has.
            form: of an answer.
            take: handed each answer once, and nothing every half second; what it raises ends the order and the engine.

        Raises:
            RuntimeError: the engine ended, failed, or said something else.
        """
        seen: set[int] = set()

        def checked(told: Any) -> Answer:
            answer = form.model_validate(told)
            if answer.index in seen or not 0 <= answer.index < count:
                raise ValueError(f"an answer to call {answer.index}, which was not asked or has one")
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
            with suppress(BrokenPipeError):  # what it said before it ended is told below
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
                self._end()  # calls may be under way in it; the next order starts another one

    def _understood(self, line: str, checked: Callable[[Any], Checked]) -> Checked | None:
        """Return the answer of a line, None for the end of an order."""
        if not line:
            raise RuntimeError(f"vLLM ended before it had answered: {self._said()}")
        try:
            answer = json.loads(line)
            if not isinstance(answer, dict):
                raise ValueError("no JSON object")
            if answer == {"end": True}:
                return None
            if "error" not in answer:
                return checked(answer)
        except ValueError as error:  # of JSON and of fields, too
            raise RuntimeError(f"vLLM gave an answer of another form: {_line(error)}") from None
        raise RuntimeError(f"vLLM cannot do what is asked: {_line(answer['error'])}")

    def forget(self) -> None:
        """Leave the process alone from now on."""
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
    """Leave the engines to the process that this one was forked from."""
    for engine in list(ENGINES.values()):
        engine.forget()
    ENGINES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _line(answer: object) -> str:
    """Return what an engine said as one printable line."""
    return printable(" ".join(str(answer).split())[:_MOST_SAID])


def _read(stream: IO[str], lines: "queue.SimpleQueue[str]") -> None:
    """Put the lines of a process into a queue, and an empty text at their end."""
    with stream:
        while line := stream.readline(_MOST_LINE):
            lines.put(line)
    lines.put("")


def _kill(process: "subprocess.Popen[str]", log: IO[bytes]) -> None:
    """End a process and those that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with suppress(OSError):  # what was not written yet
        assert process.stdin is not None
        process.stdin.close()
    log.close()
