"""Output of the command line: safe text, JSON, tables, progress bars, and errors.

A user's error is one clear block; a traceback is shown only for a fault of goalscope itself.
"""

import errno
import json
import math
import os
import shutil
import sqlite3
import sys
import time
import unicodedata
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Final

import typer

from goalscope._ground.folder import Folder, NamedFile, anything_at
from goalscope._ground.progress import TALLY, Pace, beating, lines
from goalscope._ground.untrusted import AbsentPartError

if TYPE_CHECKING:
    from rich.console import Console

    from goalscope.report.blocks import Table

_LONGEST_CELL: Final = 1000
_LONGEST_LINE: Final = 4000


def safe(text: object, *, lines: bool = False) -> str:
    r"""Escape characters that could control a terminal.

    Control characters (including escape sequences), direction overrides and other invisible characters become visible
    escapes such as ``\x1b``. ``lines`` keeps line breaks.
    """
    out = []
    for letter in str(text):
        is_newline = letter == "\n" and lines
        invisible = unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
        out.append(letter.encode("unicode_escape").decode("ascii") if invisible and not is_newline else letter)
    return "".join(out)


def cut(text: str, most: int) -> str:
    """Truncate a text to at most ``most`` characters, and append the number of characters left out."""
    return text if len(text) <= most else f"{text[:most]} … and {len(text) - most:,} more characters"


def console(*, error: bool = False) -> "Console":
    """Return a console of the library rich that writes to standard output (or standard error), and interprets no
    markup.
    """
    from rich.console import Console

    TALLY.note_output()
    width = {} if (sys.stderr if error else sys.stdout).isatty() else {"width": 200}
    return Console(stderr=error, markup=False, highlight=False, emoji=False, soft_wrap=True, **width)  # type: ignore[arg-type]


def say(text: str, *, error: bool = False) -> None:
    """Print one or more lines to standard output (or standard error), with control characters made visible."""
    console(error=error).print(safe(text, lines=True))


def fail(text: str, *, title: str = "Error") -> None:
    """Print an error block to standard error, with lines of limited length."""
    body = "\n".join(f"  {cut(line, _LONGEST_LINE)}" for line in safe(text, lines=True).strip().splitlines())
    console(error=True).print(f"{title}:\n{body}")


def show(block: "Table", title: str = "") -> None:
    """Print a table of a report to standard output, with its notes, under its caption or the given title."""
    table(block.headings, block.rows, title=title or block.caption, numbers=block.numbers)
    for line in block.notes:
        say(line)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str, numbers: Sequence[int] = ()) -> None:
    """Print a table to standard output. Cells are truncated, because names in other people's files may be very long.

    Args:
        columns: headings.
        rows: for each row one text per column.
        title: title above the table.
        numbers: indices of the right-aligned columns.
    """
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
    """Return a value (nested mappings, lists, texts and numbers) as JSON; numbers that are not finite become null."""

    def plain(item: Any) -> Any:
        if isinstance(item, Mapping):
            return {str(key): plain(nested) for key, nested in item.items()}
        if isinstance(item, list | tuple):
            return [plain(nested) for nested in item]
        return None if isinstance(item, float) and not math.isfinite(item) else item

    return json.dumps(plain(value), indent=indent, allow_nan=False)


@contextmanager
def progress(label: str, *, quiet: float = 0.0) -> Iterator[Pace]:
    """Return a context manager that shows the progress of a task and the time left.

    It yields the function to call with (done, total). Progress is a bar, or plain lines if there is no terminal.
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


WRONG_INPUT, PROBLEMS, INTERRUPTED = 2, 1, 130


@contextmanager
def guarded(arguments: Collection[object]) -> Iterator[None]:
    """Return a context manager that turns errors that a user can cause into a message and an exit status.

    The status is 2 for wrong input and for errors from files, stores, missing extras and other packages' code. It is 1
    if a part of another package was left out and everything else was done (`PartWarning`), and 130 for Ctrl-C. All
    other errors are faults of goalscope and keep their traceback. If an error was not raised by one of goalscope's
    checks, it may be either: then the message says how to see the traceback.

    Args:
        arguments: the values of the command's arguments; files and directories among them are named if that helps.
    """
    from goalscope._ground.own import TRACEBACK, PartWarning, blamed, raised_by_a_check
    from goalscope._ground.progress import TALLY

    hint = f"\nto see where it happened, set {TRACEBACK}=1 and run the command again"
    left_out = list[str]()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", PartWarning)
            warnings.showwarning = _notices(left_out)
            with TALLY.heard_by(lambda line: say(line, error=True)), TALLY.watched():
                yield
    except KeyboardInterrupt as stop:
        text = str(stop) or "stopped; everything stored so far is kept. Run the same command again to resume"
        fail(text, title="Stopped")
        raise typer.Exit(INTERRUPTED) from None
    except (ValueError, OSError, ImportError, sqlite3.Error) as error:
        if full := _full_disk(error, [argument for argument in arguments if isinstance(argument, Path)]):
            fail(full)
            raise typer.Exit(WRONG_INPUT) from None
        missing = error.name or "" if isinstance(error, ImportError) else ""
        if os.environ.get(TRACEBACK) == "1" or missing.split(".")[0] == "goalscope":
            raise
        theirs = blamed(error)
        clear = raised_by_a_check(error) or bool(isinstance(error, OSError) and error.filename)
        absent = _absent_packages(error, arguments)
        fail((theirs or _message(error)) + absent + ("" if clear and not theirs else hint))
        raise typer.Exit(WRONG_INPUT) from None
    except (Exception, SystemExit) as error:
        theirs = blamed(error)
        if not theirs or os.environ.get(TRACEBACK) == "1":
            raise
        fail(theirs + hint)
        raise typer.Exit(WRONG_INPUT) from None
    if left_out:
        raise typer.Exit(PROBLEMS)


def _notices(left_out: list[str]) -> Callable[..., None]:
    """Return a function that prints each warning once, on one line and without its position in the code.

    Warnings about parts of other packages are also appended to ``left_out``.
    """
    from goalscope._ground.own import PartWarning

    printed = set[str]()

    def notice(message: Warning | str, category: type[Warning], *position: object, **options: object) -> None:
        text = str(message)
        if text not in printed:
            printed.add(text)
            if issubclass(category, PartWarning):
                left_out.append(text)
            say(f"Notice: {cut(text, 4000)}", error=True)

    return notice


def check_outputs(*paths: Path | None) -> None:
    """Check the files that a command will write: none may be the database of a run or anything else than an ordinary
    file.

    Raises:
        ValueError: if one is.
    """
    for path in paths:
        if path is not None and path.name.split("-")[0] in ("run.db", "run.lock"):
            raise ValueError(f"{path} is one of the files of a run and must not be overwritten: choose another name")
        if path is not None and not path.is_relative_to("/dev"):
            Folder(path.parent).file(path.name, content=False)


def _absent_packages(error: Exception, arguments: Collection[object]) -> str:
    """Return one line per run in the arguments that uses packages which are not installed here."""
    from goalscope.runs import Store
    from goalscope.runs.opening import unmade
    from goalscope.runs.provenance import missing_packages
    from goalscope.runs.tables import DATABASE

    lines = []
    for argument in arguments if type(error) in (ValueError, AbsentPartError) else ():
        for path in argument if isinstance(argument, list | tuple) else (argument,):
            # For a run that cannot be opened, the packages are unknown; another error reports that.
            with suppress(ValueError, OSError, sqlite3.Error):
                if isinstance(path, str | Path) and not unmade(Path(path) / DATABASE):
                    with Store(path) as store:
                        lines += [f"\n{path}: {line}" for line in (missing_packages(store),) if line]
    return "".join(dict.fromkeys(lines))


_DENIED: Final = (
    "you have no permission to read or write it: change the permissions of the file or its folder, give another path, "
    "or work on a copy"
)
_ADVICE: Final[tuple[tuple[type[OSError], str], ...]] = (
    (FileNotFoundError, "check the path; if the file is still to be written, create its folder first"),
    (FileExistsError, "there is already a file with the name of the folder to write: give another name"),
    (NotADirectoryError, "a folder is needed here, and this path is a file: give the path of a folder"),
    (IsADirectoryError, "a file is needed here, and this path is a folder: give the path of a file"),
    (PermissionError, _DENIED),
)


def _full_disk(error: Exception, paths: Collection[Path]) -> str:
    """Return the message for a full disk or an exhausted file limit, "" for other errors.

    Args:
        error: the error.
        paths: the paths among the arguments of the command.
    """
    from goalscope.runs.tables import reached_limit

    file = getattr(error, "filename2", None) or getattr(error, "filename", None)
    if limit := reached_limit(None if file is None else Path(str(file)), error):
        return limit
    if not (isinstance(error, OSError) and error.errno == errno.ENOSPC) and str(error) != "database or disk is full":
        return ""
    named = [Path(str(name)) for name in (getattr(error, "filename2", None), getattr(error, "filename", None)) if name]
    # An error in the middle of a file names no path: assume the disk with the least free space.
    room, path = min((_room(path), path) for path in named[:1] or [*(paths or [Path.cwd()]), Path(gettempdir())])
    return (
        f"the disk of {path} is full ({room:,} bytes free): everything finished so far is kept; free some space and "
        "run the same command again"
    )


def _room(path: Path) -> int:
    """Return the number of free bytes on the disk of a path, which need not exist yet."""
    return shutil.disk_usage(
        next(parent for parent in (path.absolute(), *path.absolute().parents) if anything_at(parent))
    ).free


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        advice = next((f"; {text}" for kind, text in _ADVICE if isinstance(error, kind)), "")
        # If one file was to replace another, the user named the second.
        path = error.filename2 or error.filename
        if isinstance(error, NotADirectoryError):  # the file that should be a folder is one of the parents
            path = next((parent for parent in Path(str(path)).parents if NamedFile(parent).is_there()), path)
        return f"{error.strerror}: {path}{advice}"
    return str(error) or type(error).__name__
