"""Error handling of commands: one clear block for a user's error, a traceback only for a fault of goalscope itself."""

import errno
import os
import shutil
import sqlite3
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Final

import typer

from goalscope._ground.folder import Folder, NamedFile, anything_at
from goalscope._ground.untrusted import AbsentPartError
from goalscope.cli.console import cut, fail, say

WRONG_INPUT, PROBLEMS, INTERRUPTED = 2, 1, 130


@contextmanager
def guarded(arguments: Collection[object]) -> Iterator[None]:
    """Turn the errors that a user can cause into one block on standard error and an exit status.

    The status is 2 for wrong input and for errors from files, stores, missing extras and other packages' code. It is 1
    if a part of another package was left out and everything else was done (`PartWarning`), and 130 for Ctrl-C. All
    other errors are faults of goalscope and keep their traceback. If an error was not raised by one of goalscope's
    checks, it may be either: then the block says how to see the traceback.

    Args:
        arguments: the values of the command's arguments; files and directories among them are named if that helps.
    """
    from goalscope._ground.parts import TRACEBACK, PartWarning, blamed, raised_by_a_check
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
    from goalscope._ground.parts import PartWarning

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
    """Raise a ValueError if an output would overwrite the store of a run, or a file that is not an ordinary one."""
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
    from goalscope.runs.sqlite_errors import reached_limit

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
