"""Output of the command line: safe text, JSON, tables, error blocks and progress bars."""

import json
import math
import sys
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from goalscope._ground.progress import TALLY, Pace, beating, lines

if TYPE_CHECKING:
    from rich.console import Console

    from goalscope.report.blocks import Table


_LONGEST_CELL: Final = 1000
_LONGEST_LINE: Final = 4000


def safe(text: object, *, lines: bool = False) -> str:
    r"""Escape characters that could control a terminal.

    Control characters (including escape sequences), direction overrides and other invisible characters become visible
    escapes such as ``\x1b``.
    """
    out = []
    for letter in str(text):
        is_newline = letter == "\n" and lines
        invisible = unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
        out.append(letter.encode("unicode_escape").decode("ascii") if invisible and not is_newline else letter)
    return "".join(out)


def cut(text: str, most: int) -> str:
    """Truncate a long text, and append the number of characters left out."""
    return text if len(text) <= most else f"{text[:most]} … and {len(text) - most:,} more characters"


def console(*, error: bool = False) -> "Console":
    """Return a console that writes to the current standard output (or error), without markup."""
    from rich.console import Console

    TALLY.note_output()
    width = {} if (sys.stderr if error else sys.stdout).isatty() else {"width": 200}
    return Console(stderr=error, markup=False, highlight=False, emoji=False, soft_wrap=True, **width)  # type: ignore[arg-type]


def say(text: str, *, error: bool = False) -> None:
    """Print one or more lines, with control characters made visible."""
    console(error=error).print(safe(text, lines=True))


def fail(text: str, *, title: str = "Error") -> None:
    """Print an error block to standard error, with lines of limited length."""
    body = "\n".join(f"  {cut(line, _LONGEST_LINE)}" for line in safe(text, lines=True).strip().splitlines())
    console(error=True).print(f"{title}:\n{body}")


def show(block: "Table", title: str = "") -> None:
    """Print a table of the report with its notes, under its caption or another title."""
    table(block.headings, block.rows, title=title or block.caption, numbers=block.numbers)
    for line in block.notes:
        say(line)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str, numbers: Sequence[int] = ()) -> None:
    """Print a table. Cells are truncated, because names in other people's files may be very long."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    drawn_table = Table(title=Text(safe(title), style="bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for index, heading in enumerate(columns):
        name = Text(cut(safe(heading), _LONGEST_CELL))
        drawn_table.add_column(name, justify="right" if index in numbers else "left", overflow="fold")
    for row in rows:
        drawn_table.add_row(*(Text(cut(safe(cell), _LONGEST_CELL)) for cell in row))
    console().print(drawn_table)


def json_text(value: Any, indent: int = 2) -> str:
    """Return plain values as JSON; numbers that are not finite (undefined) become null."""

    def plain(item: Any) -> Any:
        if isinstance(item, Mapping):
            return {str(key): plain(nested) for key, nested in item.items()}
        if isinstance(item, list | tuple):
            return [plain(nested) for nested in item]
        return None if isinstance(item, float) and not math.isfinite(item) else item

    return json.dumps(plain(value), indent=indent, allow_nan=False)


@contextmanager
def progress(label: str, *, quiet: float = 0.0) -> Iterator[Pace]:
    """Show the progress of a task and the time left: as a bar, or as plain lines if there is no terminal.

    Nothing is shown for a task that ends within ``quiet`` seconds. While models are working, a thread shows their
    progress.
    """
    if not sys.stderr.isatty():
        with TALLY.heard_by(lambda message: say(message, error=True)), lines(label, quiet=quiet) as pace:
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
        with beating(pace), TALLY.heard_by(lambda message: bar.console.print(safe(message, lines=True))):
            yield pace
    finally:
        bar.stop()
