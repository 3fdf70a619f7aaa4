"""Output of the command line: safe text, JSON, tables, one block for an error, progress with the time left."""

import json
import math
import os
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goalscope.progress import TALLY

if TYPE_CHECKING:
    from rich.console import Console

    from goalscope.report.blocks import Table

_QUIET_SECONDS = 5.0  # between two plain lines of progress where there is no terminal
_BEAT_SECONDS = 0.25  # between two looks at what models do


def safe(text: object, *, lines: bool = False) -> str:
    """Return a text without characters that control a terminal.

    Control characters (escape sequences among them), direction overrides and other invisible characters become
    visible escapes such as ``\\x1b``.
    """
    out = []
    for letter in str(text):
        is_newline = letter == "\n" and lines
        invisible = unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
        out.append(letter.encode("unicode_escape").decode("ascii") if invisible and not is_newline else letter)
    return "".join(out)


def console(*, error: bool = False) -> "Console":
    """Return a console that writes to the present standard output (or error), markup switched off."""
    from rich.console import Console

    width = {} if (sys.stderr if error else sys.stdout).isatty() else {"width": 200}
    return Console(stderr=error, markup=False, highlight=False, emoji=False, soft_wrap=True, **width)  # type: ignore[arg-type]


def say(text: str, *, error: bool = False) -> None:
    """Write a line (or several) with control characters made visible."""
    console(error=error).print(safe(text, lines=True))


def fail(text: str, *, title: str = "Error") -> None:
    """Write one clear block to standard error."""
    body = "\n".join(f"  {line}" for line in safe(text, lines=True).strip().splitlines())
    console(error=True).print(f"{title}:\n{body}")


def show(block: "Table", title: str = "") -> None:
    """Write a table of the report, and the notes below it, under its caption or another title."""
    table(block.headings, block.rows, title=title or block.caption, numbers=block.numbers)
    for line in block.notes:
        say(line)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str, numbers: Sequence[int] = ()) -> None:
    """Write a table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    drawn_table = Table(title=Text(safe(title), style="bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for index, heading in enumerate(columns):
        drawn_table.add_column(Text(safe(heading)), justify="right" if index in numbers else "left", overflow="fold")
    for row in rows:
        drawn_table.add_row(*(Text(safe(cell)) for cell in row))
    console().print(drawn_table)


def json_text(value: Any, indent: int = 2) -> str:
    """Return plain values as JSON; numbers that are not finite (undefined) are null."""

    def plain(item: Any) -> Any:
        if isinstance(item, Mapping):
            return {str(key): plain(nested) for key, nested in item.items()}
        if isinstance(item, list | tuple):
            return [plain(nested) for nested in item]
        return None if isinstance(item, float) and not math.isfinite(item) else item

    return json.dumps(plain(value), indent=indent, allow_nan=False)


class Pace:
    """Progress of a piece of work: the time left, or taken at its end, and what models do meanwhile.

    ``write`` is called with the amount done, the total (None before either is told) and the text on time and models, at
    most once in ``quiet`` seconds: when the work tells its progress, and at `beat` while models are at work.
    """

    def __init__(self, write: Callable[[int, int | None, str], None], quiet: float = 0.0) -> None:
        self._write, self._quiet, self._lock = write, quiet, threading.Lock()
        self._start = self._last_shown = time.monotonic()
        self._first_done: int | None = None
        self._told: tuple[float, int, int | None, float | None] = self._start, 0, None, None
        self._models = ModelsAtWork(self._start)

    def __call__(self, done: int, total: int, left: float | None = None) -> None:
        """Show ``done`` of ``total``; ``left`` seconds replace the estimate from the pace so far."""
        now = time.monotonic()
        if self._first_done is None:
            self._first_done = done
        if left is None and done > self._first_done:
            left = (now - self._start) * (total - done) / (done - self._first_done)
        self._told = now, done, total, left
        self._show(now)

    def beat(self) -> None:
        """Show what models do, if they do; from a thread of its own, since the work may tell nothing for minutes."""
        if self._models.begun:
            self._show(time.monotonic())

    def _show(self, now: float) -> None:
        with self._lock:
            if now - self._last_shown < self._quiet:
                return
            self._last_shown = now
            told_at, done, total, left = self._told
            if left is not None and now > told_at > self._start:  # nothing was done since: the pace is lower
                left *= (now - self._start) / (told_at - self._start)
            words = f"time left {'unknown' if left is None else duration(left)}"
            if total is not None and done >= total:
                words = f"in {duration(now - self._start)}"
            self._write(done, total, "; ".join([words, *self._models.words(now)]))


class ModelsAtWork:
    """What the models of this process do from some time on, in words."""

    def __init__(self, now: float) -> None:
        self._first = TALLY.read()
        self._samples = [(now, self._first)]

    @property
    def begun(self) -> bool:
        """Whether weights were read or a model was asked."""
        return TALLY.read()["begun"] > self._first["begun"]

    def words(self, now: float) -> list[str]:
        """Return answers, invalid ones, tokens a second over the last seconds, and memory; nothing without models."""
        if not self.begun:
            return []
        counts = TALLY.read()
        self._samples.append((now, counts))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _QUIET_SECONDS:
            self._samples.pop(0)
        since, earlier = self._samples[0]
        seconds = max(now - since, 1e-3)
        answers, invalid = (counts[name] - self._first[name] for name in ("answers", "invalid"))
        if not answers and not counts["under_way"]:  # weights are read, or prompts written
            return memory_words()
        # The answers of models elsewhere tell their tokens when they arrive.
        here = counts["computed_prompt"] > self._first["computed_prompt"]
        read, written = (
            (counts[name] - earlier[name]) / seconds
            for name in (("computed_prompt", "computed_output") if here else ("told_prompt", "told_output"))
        )
        return [
            f"{answers} answers ({counts['under_way']} under way)"
            + (f", {100 * invalid / answers:.0f} % invalid" if answers else ""),
            f"{read + written:.0f} tokens/s ({written:.0f} written)",
            *memory_words(),
        ]


def memory_words() -> list[str]:
    """Return the resident memory of this process, where the system tells it (Linux), and of GPUs where one is used."""
    sizes, torch, found = Path("/proc/self/statm"), sys.modules.get("torch"), list[str]()
    if sizes.exists():
        octets = int(sizes.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        found.append(f"{octets / 1e9:.1f} GB of memory")
    if torch is not None and torch.cuda.is_initialized():
        reserved = sum(torch.cuda.memory_reserved(number) for number in range(torch.cuda.device_count()))
        found.append(f"{reserved / 1e9:.1f} GB of GPU memory")
    return [", ".join(found)] if found else []


@contextmanager
def progress(label: str, *, quiet: float = 0.0) -> Iterator[Pace]:
    """Show the progress of a piece of work and its time left: a bar, or plain lines without a terminal.

    Work that ends within ``quiet`` seconds is not shown. While models are at work, a thread shows what they do.
    """
    if not sys.stderr.isatty():

        def line(done: int, total: int | None, words: str) -> None:
            share = 100 * done / total if total else 100
            amount = "" if total is None else f"{done} of {total} ({share:.0f} %), "
            say(f"{label}: {amount}{words}", error=True)

        pace = Pace(line, quiet or _QUIET_SECONDS)
        with _beating(pace), TALLY.heard_by(lambda told: say(f"{label}: {told}", error=True)):
            yield pace
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    texts = [TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[time]}")]
    columns = (texts[0], BarColumn(), MofNCompleteColumn(), texts[1])
    bar = Progress(*columns, console=console(error=True), transient=False)
    task, start = bar.add_task(safe(label), total=None, time=""), time.monotonic()

    def update(done: int, total: int | None, words: str) -> None:
        if time.monotonic() - start >= quiet:
            bar.start()  # once: it does nothing again
        bar.update(task, completed=done, total=total, time=words)

    if not quiet:
        bar.start()
    pace = Pace(update)
    try:
        with _beating(pace), TALLY.heard_by(lambda told: bar.console.print(safe(told, lines=True))):
            yield pace
    finally:
        bar.stop()


@contextmanager
def _beating(pace: Pace) -> Iterator[None]:
    """Have a thread look after what models do."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(_BEAT_SECONDS):
            pace.beat()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def duration(seconds: float) -> str:
    """Write a duration as ``42 s``, ``3 min 05 s`` or ``2 h 10 min``."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"
