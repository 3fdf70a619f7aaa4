"""What the command line writes: safe text, tables, one block for an error, progress with the time left."""

import sys
import time
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console


class ProgressCall(Protocol):
    """Told how far a piece of work is."""

    def __call__(self, done: int, total: int, left: float | None = None) -> None:
        """Show ``done`` of ``total``, and ``left`` seconds where the caller knows better than the pace so far."""


_QUIET_SECONDS = 5.0  # between two plain lines of progress where there is no terminal


def safe(text: object, *, lines: bool = False) -> str:
    """Return a text that a terminal shows and never obeys.

    Control characters (escape sequences among them), direction overrides and other invisible characters become
    visible escapes such as ``\\x1b``.

    Args:
        text: anything; its `str` is taken.
        lines: keep line breaks.
    """
    out = []
    for letter in str(text):
        kept = letter == "\n" and lines
        hidden = unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
        out.append(letter.encode("unicode_escape").decode("ascii") if hidden and not kept else letter)
    return "".join(out)


def console(*, error: bool = False) -> "Console":
    """Return a console that writes to the present standard output (or error), markup switched off."""
    from rich.console import Console

    wide = {} if (sys.stderr if error else sys.stdout).isatty() else {"width": 200}
    return Console(stderr=error, markup=False, highlight=False, emoji=False, soft_wrap=True, **wide)  # type: ignore[arg-type]


def say(text: str, *, error: bool = False) -> None:
    """Write a line (or several) with everything that a terminal could obey made visible."""
    console(error=error).print(safe(text, lines=True))


def fail(text: str, *, title: str = "Error") -> None:
    """Write one clear block to standard error."""
    body = "\n".join(f"  {line}" for line in safe(text, lines=True).strip().splitlines())
    console(error=True).print(f"{title}:\n{body}")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str, numbers: Sequence[int] = ()) -> None:
    """Write a table.

    Args:
        columns: headings.
        rows: ``[N][C]`` texts.
        title: a line above it.
        numbers: indices of the columns that are set flush right.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=Text(safe(title), style="bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for index, heading in enumerate(columns):
        drawn.add_column(Text(safe(heading)), justify="right" if index in numbers else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(safe(cell)) for cell in row))
    console().print(drawn)


@contextmanager
def progress(label: str) -> Iterator[ProgressCall]:
    """Show how far a piece of work is and how long it will still take.

    On a terminal a bar; elsewhere a plain line to standard error every few seconds.

    Yields:
        A function to call with (done, total).
    """
    if not sys.stderr.isatty():
        yield _Plain(label)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[time]}", markup=False),
    )
    clock = _Clock()
    with Progress(*columns, console=console(error=True), transient=False) as bar:
        task = bar.add_task(safe(label), total=None, time="")

        def show(done: int, total: int, left: float | None = None) -> None:
            bar.update(task, completed=done, total=total, time=clock.told(done, total, left))

        yield show


class _Clock:
    """Says how long a piece of work will still take, or took."""

    def __init__(self) -> None:
        self.began = self.now = time.monotonic()
        self.first: int | None = None

    def told(self, done: int, total: int, left: float | None) -> str:
        self.now = time.monotonic()
        if self.first is None:
            self.first = done
        if done >= total:
            return f"in {duration(self.now - self.began)}"
        fresh = done - self.first
        if left is None and fresh > 0:
            left = (self.now - self.began) * (total - done) / fresh
        return f"time left {'unknown' if left is None else duration(left)}"


class _Plain:
    """Progress as lines of text for logs and pipes."""

    def __init__(self, label: str) -> None:
        self.label, self.clock = label, _Clock()
        self.last = self.clock.began

    def __call__(self, done: int, total: int, left: float | None = None) -> None:
        told = self.clock.told(done, total, left)
        if self.clock.now - self.last < _QUIET_SECONDS:
            return
        self.last = self.clock.now
        share = 100 * done / total if total else 100.0
        say(f"{self.label}: {done} of {total} ({share:.0f} %), {told}", error=True)


def duration(seconds: float) -> str:
    """Write a duration as ``42 s``, ``3 min 05 s`` or ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
