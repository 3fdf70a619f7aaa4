"""What the command line writes: safe text, JSON, tables, one block for an error, progress with the time left."""

import json
import math
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from goalscope.report.blocks import Table

_QUIET_SECONDS = 5.0  # between two plain lines of progress where there is no terminal


def safe(text: object, *, lines: bool = False) -> str:
    """Return a text that a terminal shows and never obeys.

    Control characters (escape sequences among them), direction overrides and other invisible characters become
    visible escapes such as ``\\x1b``.
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


def show(plain: "Table", title: str = "") -> None:
    """Write a table of the report, and the notes below it, under its caption or another title."""
    table(plain.headings, plain.rows, title=title or plain.caption, numbers=plain.numbers)
    for line in plain.notes:
        say(line)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str, numbers: Sequence[int] = ()) -> None:
    """Write a table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=Text(safe(title), style="bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for index, heading in enumerate(columns):
        drawn.add_column(Text(safe(heading)), justify="right" if index in numbers else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(safe(cell)) for cell in row))
    console().print(drawn)


def json_text(value: Any, indent: int = 2) -> str:
    """Return plain values as JSON; what is not a finite number (undefined) is null."""

    def plain(one: Any) -> Any:
        if isinstance(one, Mapping):
            return {str(key): plain(each) for key, each in one.items()}
        if isinstance(one, list | tuple):
            return [plain(each) for each in one]
        return None if isinstance(one, float) and not math.isfinite(one) else one

    return json.dumps(plain(value), indent=indent, allow_nan=False)


class Pace:
    """Told how far a piece of work is, says so and how long it will still take, or took.

    ``write`` is given what is done, of what total, and the words on time; no sooner than ``quiet`` seconds after the
    last time.
    """

    def __init__(self, write: Callable[[int, int, str], None], quiet: float = 0.0) -> None:
        self._write, self._quiet = write, quiet
        self._began = self._last = time.monotonic()
        self._first: int | None = None

    def __call__(self, done: int, total: int, left: float | None = None) -> None:
        """Show ``done`` of ``total``, and ``left`` seconds where the caller knows better than the pace so far."""
        now = time.monotonic()
        if self._first is None:
            self._first = done
        if left is None and done > self._first:
            left = (now - self._began) * (total - done) / (done - self._first)
        words = f"time left {'unknown' if left is None else duration(left)}"
        if now - self._last >= self._quiet:
            self._last = now
            self._write(done, total, f"in {duration(now - self._began)}" if done >= total else words)


@contextmanager
def progress(label: str, *, quiet: float = 0.0) -> Iterator[Pace]:
    """Show how far a piece of work is and how long it will still take: a bar, or plain lines where is no terminal.

    Work that is done within ``quiet`` seconds is not spoken of.
    """
    if not sys.stderr.isatty():

        def line(done: int, total: int, words: str) -> None:
            say(f"{label}: {done} of {total} ({100 * done / total if total else 100:.0f} %), {words}", error=True)

        yield Pace(line, quiet or _QUIET_SECONDS)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    texts = [TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[time]}")]
    columns = (texts[0], BarColumn(), MofNCompleteColumn(), texts[1])
    bar = Progress(*columns, console=console(error=True), transient=False)
    task, began = bar.add_task(safe(label), total=None, time=""), time.monotonic()

    def update(done: int, total: int, words: str) -> None:
        if time.monotonic() - began >= quiet:
            bar.start()  # once: it does nothing again
        bar.update(task, completed=done, total=total, time=words)

    if not quiet:
        bar.start()
    try:
        yield Pace(update)
    finally:
        bar.stop()


def duration(seconds: float) -> str:
    """Write a duration as ``42 s``, ``3 min 05 s`` or ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
