"""Run other people's code on input of unknown origin in a separate process with limits.

Chat templates are programs, tokenizers are regular expressions, and log readers are parsers of other projects. None of
them limits the time and memory that a file can make it use. A `BoundedWorker` runs such work in a process that imports
nothing from the working directory and exchanges JSON with this process. It is ended when it exceeds a limit, or when
Ctrl-C interrupts the wait for it.
"""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from goalscope._ground.untrusted import decode_object

_PROGRAM: Final = Path(__file__).with_name("bounded_process.py")
_MOST_START: Final = 300  # seconds: to import a library from a slow disk
_PIECE: Final = 2**16


class BoundedError(ValueError):
    """Error for work in the child process of a `BoundedWorker` that failed or exceeded a limit.

    Attributes:
        kind: name of the type of error that the work raised, such as "KeyError"; "" if the work exceeded a limit.
    """

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of time, memory and size for the work of a `BoundedWorker`.

    Attributes:
        seconds: whole seconds of processor time per answer; the system may allow one more.
        wait: wall-clock seconds per answer.
        memory: bytes of memory beyond what the child process uses before the first request (enforced on Linux only).
        answer: maximum size of one answer, in bytes of its JSON text.
    """

    seconds: int
    wait: float
    memory: int
    answer: int


class BoundedWorker:
    """A child process that runs code of others on input of unknown origin, with limits of time and memory.

    The process starts with the first request and answers one request at a time. After it exceeds a limit or is
    interrupted, the next request starts a new process.

    Args:
        file: a Python file with a function ``prepare()`` that imports the needed libraries and returns the work: a
            function that receives a request (a JSON value) and yields answers (JSON values). The file must not import
            goalscope.
        bounds: limits of time, memory and size.
        task: the work in words, for error messages, such as "rendering it".
    """

    def __init__(self, file: Path, bounds: Bounds, task: str) -> None:
        self.bounds = bounds
        self._file, self._task = file, task
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._left = b""  # output of the process after the line that was read last
        _WORKERS.add(self)

    def ask(self, request: Any) -> Any:
        """Send a request (a JSON value) to the child process and return its single answer (a JSON value).

        Raises:
            BoundedError: if there is not exactly one answer, the work failed, or it exceeded a limit.
            ImportError: if a library that the work needs is missing.
            OSError: if the process cannot be started.
        """
        values = list(self.answers(request))
        if len(values) != 1:
            raise BoundedError(f"{self._task} must give one value, it gave {len(values)}")
        return values[0]

    def answers(self, request: Any) -> Iterator[Any]:
        """Send a request (a JSON value) to the child process and yield each of its answers (JSON values) as it arrives.

        Other threads that send a request wait until all answers to this one have been consumed.

        Raises:
            BoundedError: if the work failed or exceeded a limit.
            ImportError: if a library that the work needs is missing.
            OSError: if the process cannot be started.
        """
        octets = json.dumps(request).encode() + b"\n"
        with self._lock:
            complete = False
            try:
                if self._child is None or self._child.poll() is not None:
                    self._start()
                self._send(octets)
                while "value" in (answer := self._receive(self.bounds.wait)):
                    yield answer["value"]
                self._check(answer)
                complete = True
            except BoundedError as error:
                # Memory that is left in pieces is not to fail the next request; other errors leave the process sound.
                complete = bool(error.kind) and error.kind != "MemoryError"
                raise
            finally:
                if not complete:  # its further answers must not be mistaken for those of a later request
                    self.end()

    def _check(self, answer: Mapping[str, Any]) -> None:
        """Raise the error that the process reports."""
        kind = str(answer.get("kind", ""))
        if kind == "ImportError":
            self.end()
            raise ImportError(answer.get("failed"))
        if kind == "MemoryError":
            megabytes = self.bounds.memory >> 20
            raise BoundedError(f"{self._task} may take at most {megabytes} MiB of memory, but takes more", kind)
        if kind:
            raise BoundedError(f"{kind}: {answer.get('failed')}", kind)

    def _start(self) -> None:
        """Start the process, and wait until it is ready."""
        self.end()
        bounds = [str(self.bounds.seconds), str(self.bounds.memory)]
        self._child = subprocess.Popen(
            # -P: nothing is imported from the working directory. In a session of its own no Ctrl-C reaches it.
            [sys.executable, "-P", str(_PROGRAM), str(self._file), *bounds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
            # Threads of numerical libraries would take address space for each processor.
            env={
                **os.environ,
                "OPENBLAS_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                "RAYON_NUM_THREADS": "1",
                "TOKENIZERS_PARALLELISM": "false",
            },
        )
        self._check(self._receive(_MOST_START))

    def _send(self, request: bytes) -> None:
        assert self._child is not None and self._child.stdin is not None
        remaining = memoryview(request)
        try:
            while remaining:
                remaining = remaining[self._child.stdin.write(remaining) :]
        except BrokenPipeError:
            self._explain_end()

    def _receive(self, seconds: float) -> Mapping[str, Any]:
        """Return the next line of the process."""
        assert self._child is not None and self._child.stdout is not None
        number, end = self._child.stdout.fileno(), time.monotonic() + seconds
        ready = select.poll()
        ready.register(number, select.POLLIN)
        octets = bytearray()
        while not octets.endswith(b"\n"):
            if not self._left and not ready.poll(max(0.0, end - time.monotonic()) * 1000):
                raise BoundedError(f"{self._task} may take at most {seconds:.0f} seconds, but takes more")
            piece = self._read_line_part(number)
            if len(octets) > self.bounds.answer:
                raise BoundedError(f"{self._task} may give at most {self.bounds.answer} bytes at once, but gives more")
            if not piece:
                self._explain_end()
            octets += piece
        return decode_object(bytes(octets), strict=False)

    def _read_line_part(self, number: int) -> bytes:
        """Return the next bytes of the process, at most to the end of a line; what follows is kept."""
        piece = self._left or os.read(number, _PIECE)
        line, newline, self._left = piece.partition(b"\n")
        return line + newline

    def _explain_end(self) -> NoReturn:
        """Raise the reason why the process ended without an answer."""
        assert self._child is not None
        self._child.kill()
        status = -self._child.wait()
        if status == signal.SIGXCPU:
            raise BoundedError(
                f"{self._task} may take at most {self.bounds.seconds} s of processor time, but takes more"
            )
        if status == signal.SIGABRT:  # how compiled code ends that gets no more memory
            raise BoundedError(
                f"{self._task} may take at most {self.bounds.memory >> 20} MiB of memory, and its process was aborted, "
                "as compiled code is that needs more"
            )
        name = signal.Signals(status).name if status in set(signal.Signals) else f"status {-status}"
        raise BoundedError(f"the process for {self._task} ended with {name}")

    def end(self) -> None:
        """End the child process if it is running."""
        child, self._child, self._left = self._child, None, b""
        if child is not None:
            child.kill()
            child.communicate()

    def forget(self) -> None:
        """Drop the child process without ending it.

        This is called in a fork of this process, since the child process still belongs to the original process.
        """
        child, self._child, self._lock, self._left = self._child, None, threading.Lock(), b""
        if child is not None:
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()
            child.returncode = 0  # it is not this process's to wait for


_WORKERS: Final = weakref.WeakSet[BoundedWorker]()


def _end_all() -> None:
    for worker in list(_WORKERS):
        worker.end()


def _forget_all() -> None:
    for worker in list(_WORKERS):
        worker.forget()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
