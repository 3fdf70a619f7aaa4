"""How work reports its progress: callbacks, stages, answers as they arrive, and counts of what models do meanwhile."""

import inspect
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeVar

from goalscope._ground.folder import NamedFile

Answer = TypeVar("Answer")

LOG: Final = logging.getLogger("goalscope")
"""Receives each progress message (`Tally.tell`) for which there is no listener, at the level INFO."""

QUIET_SECONDS: Final = 5.0
"""Minimum seconds between two lines about the progress of a task."""
SILENT_SECONDS: Final = 7.0
"""Seconds without any message after which `watched` says that the work goes on."""
LONGER: Final = 1.5
"""Growth of the time left, as a factor, from which a progress line gives the reason."""
_BEAT_SECONDS: Final = 0.25  # seconds between two updates about models

Progress = Callable[[int, int], None]
"""Called with (done, total), in any unit."""
Stage = Callable[[str], AbstractContextManager[Progress]]
"""Starts a named stage of work; the context value is called with (done, total)."""

Display = Callable[[str], AbstractContextManager[Callable[..., None]]]
"""The same, but the context value also accepts the seconds left, if the work knows them."""

Arrived = Callable[[Sequence[tuple[int, Answer]]], None]
"""Called during a batch of questions with what was answered since the last call, each with its index; from any thread.

It is also called without answers, often enough to end the work: what it raises does.
"""


class StoppedError(Exception):
    """Error that a callback for arriving answers raises to stop a batch of questions to a model.

    Answers that arrived before are kept, and no further question is asked.
    """


def takes_arrived(method: Callable[..., Any]) -> bool:
    """Return whether a method can report answers while it works: whether it has a parameter ``arrived`` (see
    `Arrived`).
    """
    return "arrived" in inspect.signature(method).parameters


def handing_out(
    method: Callable[..., Sequence[Answer]],
    arrived: Arrived[Answer],
    questions: Sequence[Any],
    *arguments: Any,
    **options: Any,
) -> None:
    """Call a method that answers questions, and pass its answers to the callback ``arrived``.

    The answers are passed on as they arrive if the method can do so, otherwise all at the end.

    Args:
        method: function that takes the questions and returns one answer per question.
        arrived: callback that receives pairs of a question's index and its answer.
        questions: the questions.
        arguments, options: further arguments of the method.
    """
    if takes_arrived(method):
        method(questions, *arguments, **options, arrived=arrived)
    else:
        answers = method(questions, *arguments, **options)
        arrived(list(zip(range(len(questions)), answers, strict=True)))


class Tally:
    """Counts of what the models in this process have done, and the place to which progress messages are sent.

    Threads add to the counts, and progress displays read them. The counts are ``begun`` (loads of weights, and calls),
    ``under_way`` (calls in progress), ``answers``, ``invalid`` (answers without a valid move), ``computed_prompt`` and
    ``computed_output`` (tokens that models in this process computed), ``told_prompt`` and ``told_output`` (tokens of
    prompts and answers that models report with an answer).
    """

    def __init__(self) -> None:
        self._lock, self._counts = threading.Lock(), Counter[str]()
        self._listeners: list[Callable[[str], None]] = []
        self._silent: dict[str, float] = {}  # address of a server -> monotonic time of its last output
        self._outputs, self._watched = 0, False

    def add(self, **counts: int) -> None:
        """Add to the counts with these names, as in ``add(begun=1, answers=3)``."""
        with self._lock:
            self._counts.update(counts)

    def read(self) -> Counter[str]:
        """Return all counts as they are now."""
        with self._lock:
            return self._counts.copy()

    def show_silence(self, address: str, since: float | None) -> None:
        """Set or clear the time since which a server has sent nothing, which progress lines then show.

        Args:
            address: address of the server.
            since: time of the server's last output on the monotonic clock, in seconds; None if it is no longer silent.
        """
        with self._lock:
            if since is None:
                self._silent.pop(address, None)
            else:
                self._silent[address] = since

    @property
    def silent(self) -> Mapping[str, float]:
        """The servers that keep requests waiting: address -> time of the server's last output (monotonic clock, in
        seconds).
        """
        with self._lock:
            return dict(self._silent)

    def tell(self, line: str) -> None:
        """Send a progress message to the function that listens (the latest, if there are several), or to the log if
        none does.
        """
        self.note_output()
        (self._listeners or [LOG.info])[-1](line)

    def note_output(self) -> None:
        """Record that something was shown to the user, so that `watched` does not report silence."""
        self._outputs += 1

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While this context lasts, send "still working" whenever nothing was shown to the user for
        `SILENT_SECONDS`.
        """
        if self._watched:
            yield
            return
        began = since = time.monotonic()
        outputs = self._outputs
        self._watched = True

        def watch() -> None:
            nonlocal outputs, since
            now = time.monotonic()
            if self._outputs != outputs:
                outputs, since = self._outputs, now
            elif now - since >= SILENT_SECONDS:
                self.tell("; ".join([f"still working, for {duration(now - began)} so far", *memory_words()]))

        try:
            with _repeating(watch, 1.0):
                yield
        finally:
            self._watched = False

    @property
    def heard(self) -> bool:
        """Whether some function listens to progress messages."""
        return bool(self._listeners)

    @contextmanager
    def heard_by(self, listener: Callable[[str], None]) -> Iterator[None]:
        """While this context lasts, send each progress message to this function instead of to earlier listeners."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def labelled(self, label: str) -> AbstractContextManager[None]:
        """While this context lasts, put a label and a colon before each progress message."""
        hear = (self._listeners or [LOG.info])[-1]
        return self.heard_by(lambda line: hear(f"{label}: {line}"))


TALLY: Final = Tally()


@contextmanager
def silent(label: str) -> Iterator[Progress]:
    """Return a context for a stage of work that shows no progress.

    The value of the context is a callback for (done, total) that does nothing.
    """
    yield lambda done, total: None


class Pace:
    """Measures the pace of a task, and writes lines with the time left and with what models do meanwhile.

    ``write`` is called with the amount done, the total (None before it is known) and a text on time and models, at most
    once per ``quiet`` seconds: when the task reports progress, and at `beat` while models are working. At the end of
    the task, the text has its duration instead of the time left.
    """

    def __init__(self, write: Callable[[int, int | None, str], None], quiet: float = 0.0) -> None:
        self._write, self._quiet, self._lock = write, quiet, threading.Lock()
        self._start = self._last_shown = time.monotonic()
        self._first_done: int | None = None
        self._told: tuple[float, int, int | None, float | None, int] = self._start, 0, None, None, 0
        self._shown: tuple[float, int, float] | None = None  # when, amount done and time left of the last line
        self._models = ModelsAtWork(self._start)

    def __call__(self, done: int, total: int, left: float | None = None) -> None:
        """Show ``done`` of ``total``; ``left`` seconds replace the estimate from the pace so far."""
        now = time.monotonic()
        if self._first_done is None:
            self._first_done = done
        if left is None and done > self._first_done:
            left = (now - self._start) * (total - done) / (done - self._first_done)
        self._told = now, done, total, left, self._models.tokens
        self._show(now)

    def beat(self) -> None:
        """Write the progress again with current numbers of the models' work, if a model was used.

        A separate thread calls this regularly, since the task itself can be silent for minutes.
        """
        if self._models.begun:
            self._show(time.monotonic())

    def _show(self, now: float) -> None:
        with self._lock:
            if now - self._last_shown < self._quiet:
                return
            self._last_shown = now
            TALLY.note_output()
            told_at, done, total, left, tokens = self._told
            if left is not None and now > told_at > self._start:
                left = self._since(now, told_at, left, tokens)
            words = [f"time left {'unknown' if left is None else duration(left)}", *self._models.words(now)]
            words += self._why_longer(now, done, left)
            if total is not None and done >= total:
                words[0] = f"in {duration(now - self._start)}"
            self._write(done, total, "; ".join(words))
            self._shown = None if left is None else (now, done, left)

    def _since(self, now: float, told_at: float, left: float, tokens: int) -> float:
        """Return the time left, some time after the last report: by the tokens computed since, if models compute here.

        Otherwise nothing is known to have been done since, so the pace is lower.
        """
        before, elapsed = told_at - self._start, now - self._start
        if not tokens or self._models.tokens <= tokens:
            return left * elapsed / before
        return max(0.0, elapsed * ((1 + left / before) * tokens / self._models.tokens - 1))

    def _why_longer(self, now: float, done: int, left: float | None) -> list[str]:
        """Return why the time left is longer than in the last line by half or more; [] if it is not."""
        if self._shown is None or left is None or left < max(LONGER * self._shown[2], self._shown[2] + QUIET_SECONDS):
            return []
        seconds, finished = now - self._shown[0], done - self._shown[1]
        if finished <= 0:
            return [f"longer than before because nothing has finished for {duration(now - self._told[0])}"]
        return [f"longer than before because the last {finished} took {seconds / finished:.3g} s each"]


class ModelsAtWork:
    """Describes in words what the models of this process have done since a given time."""

    def __init__(self, now: float) -> None:
        self._first = TALLY.read()
        self._samples = [(now, self._first)]

    @property
    def tokens(self) -> int:
        """Number of tokens that models in this process have computed since the given time: of prompts, and of
        answers under way.
        """
        counts = TALLY.read()
        return sum(counts[name] - self._first[name] for name in ("computed_prompt", "computed_output"))

    @property
    def begun(self) -> bool:
        """Whether, since the given time, the weights of a model were read or a model was asked."""
        return TALLY.read()["begun"] > self._first["begun"]

    def words(self, now: float) -> list[str]:
        """Return parts of a progress line: numbers of answers and of invalid ones, recent tokens per second, silent
        servers, memory.

        Args:
            now: present time on the monotonic clock, in seconds.

        Returns:
            The parts; an empty list if no model was used.
        """
        if not self.begun:
            return []
        counts = TALLY.read()
        # Answers of models elsewhere report their tokens on arrival.
        computes_prompts = counts["computed_prompt"] > self._first["computed_prompt"]
        read, written = ("computed_prompt", "computed_output") if computes_prompts else ("told_prompt", "told_output")
        # A sample is kept whenever tokens have come in, so that a speed covers whole passes, however long one takes.
        latest = self._samples[-1][1]
        if counts[read] + counts[written] > latest[read] + latest[written]:
            self._samples.append((now, counts))
        while len(self._samples) > 2 and self._samples[1][0] <= now - QUIET_SECONDS:
            self._samples.pop(0)
        since, earlier = self._samples[0]
        seconds = max(now - since, 1e-3)
        answers, invalid = (counts[name] - self._first[name] for name in ("answers", "invalid"))
        if not answers and not counts["under_way"]:  # weights are read, or prompts written
            return memory_words()
        speeds = [(counts[name] - earlier[name]) / seconds for name in (read, written)]
        return [
            f"{answers} answers ({counts['under_way']} in progress)"
            + (f", {100 * invalid / answers:.0f} % invalid" if answers else ""),
            f"{sum(speeds):.0f} tokens/s ({speeds[1]:.0f} generated)" if sum(speeds) else "no tokens yet",
            *(f"nothing from {address} for {duration(now - since)}" for address, since in TALLY.silent.items()),
            *memory_words(),
        ]


def memory_words() -> list[str]:
    """Describe the memory in use, for progress lines, as a list of at most one text.

    The text has the resident memory of this process, if the system reports it (Linux), and the memory of the GPUs in
    use. The list is empty if neither is known.
    """
    sizes, torch, parts = NamedFile("/proc/self/statm"), sys.modules.get("torch"), list[str]()
    cuda: Any = getattr(torch, "cuda", None)  # None while another thread still imports torch
    if sizes.is_there():
        octets = int(sizes.load_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        parts.append(f"{octets / 1e9:.1f} GB of memory")
    if hasattr(cuda, "is_initialized") and cuda.is_initialized():
        reserved = sum(cuda.memory_reserved(number) for number in range(cuda.device_count()))
        parts.append(f"{reserved / 1e9:.1f} GB of GPU memory")
    return [", ".join(parts)] if parts else []


@contextmanager
def lines(label: str, *, quiet: float = 0.0) -> Iterator[Pace]:
    """Return a context that reports the progress of a task in lines of text, at least `QUIET_SECONDS` apart.

    The value of the context is called with the amount done and the total. While models are working, a thread reports
    their progress, too.

    Args:
        label: name of the task, at the beginning of each line.
        quiet: seconds between two lines instead of `QUIET_SECONDS`; a task that ends earlier is not reported.
    """

    def line(done: int, total: int | None, words: str) -> None:
        share = 100 * done / total if total else 100
        amount = "" if total is None else f"{done} of {total} ({share:.0f} %), "
        TALLY.tell(f"{amount}{words}")

    pace = Pace(line, quiet or QUIET_SECONDS)
    with beating(pace), TALLY.labelled(label):
        yield pace


@contextmanager
def aloud() -> Iterator[None]:
    """While this context lasts, write progress messages to standard error.

    Nothing changes if a function listens to the messages already, or if the caller configured the logger "goalscope"
    for INFO.
    """
    if TALLY.heard or (LOG.hasHandlers() and LOG.isEnabledFor(logging.INFO)):
        yield
        return

    def write(line: str) -> None:
        from goalscope._ground.untrusted import printable  # it is not light

        sys.stderr.write(f"{printable(line)}\n")

    with TALLY.heard_by(write), TALLY.watched():
        yield


def paced(label: str) -> Callable[[str], None]:
    """Return a function that reports what work without a known end is doing, at most once per `QUIET_SECONDS`."""
    last_shown = time.monotonic()

    def tell(line: str) -> None:
        nonlocal last_shown
        if time.monotonic() - last_shown >= QUIET_SECONDS:
            TALLY.tell(f"{label}: {line}")
            last_shown = time.monotonic()

    return tell


def beating(pace: Pace) -> AbstractContextManager[None]:
    """While this context lasts, run a thread that calls `Pace.beat`, to refresh the displayed numbers about the
    models.
    """
    return _repeating(pace.beat, _BEAT_SECONDS)


@contextmanager
def _repeating(act: Callable[[], None], seconds: float) -> Iterator[None]:
    """While this context lasts, call a function from a thread, again and again after some seconds."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            act()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def duration(seconds: float) -> str:
    """Write a duration in seconds as ``42 s``, ``3 min 05 s`` or ``2 h 10 min``."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"
