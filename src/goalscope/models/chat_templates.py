"""Chat templates of unknown origin: rendered in a process of their own, with bounds.

A chat template is a program (Jinja). Its sandbox keeps it from files and from Python, not from loops without end and
texts without bound. The process compiles and renders with the function of transformers that `apply_chat_template`
calls. It starts with the first template that does not come with the package, and serves all that follow.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from goalscope.untrusted import decode_object

MOST_SOURCE: Final = 2**20
"""Most characters of a template."""

MOST_TEXT: Final = 4 * 2**20
"""Most characters of a rendered chat."""

MOST_SECONDS: Final = 5
"""Most seconds of processor time of one rendering, its compilation included; the system counts in whole seconds."""

MOST_WAIT: Final = 60
"""Most seconds by the clock of one rendering."""

MOST_MEMORY: Final = 512 * 2**20
"""Most bytes of memory that templates add to what the process has before the first (Linux)."""

_PROGRAM: Final = Path(__file__).with_name("template_process.py")
_MOST_START: Final = 300  # seconds: to import transformers from a slow disk
_MOST_ANSWER: Final = 12 * MOST_TEXT + 4096  # bytes: JSON takes 12 at most for a character
_PIECE: Final = 2**16


class ChatTemplateError(ValueError):
    """A chat template that fails, or passes a bound."""


def check_source(template: object) -> str:
    """Return the source of a template; a ChatTemplateError for what is no text, or a long one."""
    if not isinstance(template, str):
        raise ChatTemplateError(f"it must be a text, got {type(template).__name__}")
    if len(template) > MOST_SOURCE:
        raise ChatTemplateError(f"it must have at most {MOST_SOURCE} characters, got {len(template)}")
    return template


def render_bounded(
    template: str, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any], *, prompt: bool = True
) -> str:
    """Return the chat that a template of unknown origin writes.

    Args:
        template: source of the template.
        messages: role and content of each message.
        variables: further variables of the template, special tokens among them: values that JSON can hold.
        prompt: whether the text goes on to where the next answer begins.

    Raises:
        ChatTemplateError: the template fails, or passes a bound.
        ImportError: the process lacks transformers or jinja2.
        OSError: the process cannot be started.
    """
    request = {"template": template, "messages": list(messages), "variables": dict(variables), "prompt": prompt}
    reply = _RENDERER.ask(json.dumps(request).encode() + b"\n")
    if "text" in reply:
        return str(reply["text"])
    if reply["kind"] == "ImportError":
        raise ImportError(reply["failed"])
    if reply["kind"] == "MemoryError":
        raise ChatTemplateError(f"to render it must take at most {MOST_MEMORY >> 20} MiB of memory, it takes more")
    raise ChatTemplateError(f"{reply['kind']}: {reply['failed']}")


class _Renderer:
    """The process that renders for this one, a request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def ask(self, request: bytes) -> Mapping[str, Any]:
        """Return the reply to a request; after a bound or an interruption the next one has a new process."""
        with self._lock:
            try:
                alive = self._child is not None and self._child.poll() is None
                reply = self._send(request) if alive or "text" in (reply := self._start()) else reply
            except BaseException:
                self.end()  # what it still answers belongs to no later request
                raise
            if reply.get("kind") in ("ImportError", "MemoryError"):  # memory in pieces is not to fail the next template
                self.end()
            return reply

    def _start(self) -> Mapping[str, Any]:
        """Start the process and return its first line."""
        self.end()
        bounds = [str(bound) for bound in (MOST_SECONDS, MOST_MEMORY, MOST_TEXT)]
        self._child = subprocess.Popen(
            # -P: nothing is imported from the working directory. In a session of its own no Ctrl-C reaches it.
            [sys.executable, "-P", str(_PROGRAM), *bounds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
            # Threads of numerical libraries would take address space for each processor.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        return self._receive(_MOST_START)

    def _send(self, request: bytes) -> Mapping[str, Any]:
        """Send a request and return the reply."""
        assert self._child is not None and self._child.stdin is not None
        remaining = memoryview(request)
        try:
            while remaining:
                remaining = remaining[self._child.stdin.write(remaining) :]
        except BrokenPipeError:
            self._explain_end()
        return self._receive(MOST_WAIT)

    def _receive(self, seconds: float) -> Mapping[str, Any]:
        """Return the next line of the process."""
        assert self._child is not None and self._child.stdout is not None
        number, end = self._child.stdout.fileno(), time.monotonic() + seconds
        ready = select.poll()
        ready.register(number, select.POLLIN)
        octets = bytearray()
        while not octets.endswith(b"\n"):
            if not ready.poll(max(0.0, end - time.monotonic()) * 1000):
                raise ChatTemplateError(f"to render it must take at most {seconds:.0f} seconds, it takes more")
            piece = os.read(number, _PIECE)
            if not piece or len(octets) > _MOST_ANSWER:
                self._explain_end()
            octets += piece
        return decode_object(bytes(octets), strict=False)

    def _explain_end(self) -> NoReturn:
        """Raise the reason why the process ended without a reply."""
        assert self._child is not None
        self._child.kill()
        status = -self._child.wait()
        if status == signal.SIGXCPU:
            raise ChatTemplateError(f"to render it must take at most {MOST_SECONDS} s of processor time, it takes more")
        name = signal.Signals(status).name if status in set(signal.Signals) else f"status {-status}"
        raise ChatTemplateError(f"the process that renders it ended with {name}")

    def end(self) -> None:
        """End the process, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def forget(self) -> None:
        """Leave the process to the one that this process was forked from."""
        child, self._child, self._lock = self._child, None, threading.Lock()
        if child is not None:
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()
            child.returncode = 0  # it is not this process's to wait for


_RENDERER: Final = _Renderer()
atexit.register(_RENDERER.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RENDERER.forget)
