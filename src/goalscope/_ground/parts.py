"""Run parts of other packages: errors name the part and its package, and do not stop other parts.

A part is recognised by its code: a frame of a traceback belongs to the package whose entry point imported its module,
or to a module of the working directory (`goalscope.own`).
"""

import errno
import os
import sqlite3
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final, TypeVar

from goalscope._ground import own, registry
from goalscope._ground.untrusted import DamagedError, StrangeFileError, printable, shorten

TRACEBACK: Final = "GOALSCOPE_TRACEBACK"
"""Environment variable: if it is 1, every error keeps its traceback."""

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Numbers of the errors of a disk that is full or read-only."""

_PACKAGE: Final = Path(__file__).parents[1]
_BLAMED: Final = "goalscope_blamed"

Result = TypeVar("Result")


class PartWarning(RuntimeWarning):
    """A part of another package raised an error and was left out. A command that meets one ends with exit status 1."""


def attempt(kind: str, name: str, work: Callable[[], Result], otherwise: Callable[[str], Result]) -> Result:
    """Return the result of the work of a registered part, such as a measure.

    If a part of another package raises, warn and return another result instead.

    Errors of goalscope's own parts are raised unchanged. So are all errors if the environment variable `TRACEBACK` is
    1, or if the run is at fault: damaged, refused, or on a full disk.

    Args:
        kind, name: the part, as registered.
        work: the work.
        otherwise: returns the other result, given a sentence that names package, part and error.
    """
    try:
        return work()
    except (Exception, SystemExit) as error:
        if _of_the_run(error) or registry.built_in(kind, name) or os.environ.get(TRACEBACK) == "1":
            raise
        sentence = f"{_named(kind, name)} is left out: {_told(error)}; {TRACEBACK}=1 shows the traceback"
        warnings.warn(sentence, PartWarning, stacklevel=2)
        return otherwise(sentence)


def _of_the_run(error: BaseException) -> bool:
    """Return whether the run is damaged, busy or refused, or its disk is full, whichever part reads it."""
    return isinstance(error, DamagedError | StrangeFileError) or any(
        isinstance(raised, sqlite3.Error) or (isinstance(raised, OSError) and raised.errno in NO_ROOM)
        for raised in (error, error.__cause__)
    )


def sign(error: BaseException) -> None:
    """Attach to an error the sentence of `blamed`, which says whose code failed.

    This is done before the error is sent to another process, where its traceback is lost.
    """
    if sentence := blamed(error):
        vars(error)[_BLAMED] = sentence


def blamed(error: BaseException) -> str:
    """Return a sentence on an error in the code of another package's part, "" if no such code is involved."""
    if _BLAMED in vars(error):
        return "; ".join((str(vars(error)[_BLAMED]), *getattr(error, "__notes__", ())))
    frame = _frame(error)
    if frame is None or isinstance(error, DamagedError | StrangeFileError):
        return ""
    module = str(frame.f_globals.get("__name__", ""))
    part = registry.part_at(module, frame.f_code.co_qualname)
    culprit = _named(*part) if part else registry.package_of(module) or f"the module {module} of the working directory"
    return f"{culprit} failed: {_told(error)}"


def raised_by_a_check(error: BaseException) -> bool:
    """Return whether a check of goalscope raised an error, whose message then names the problem of the input."""
    frames = traceback.extract_tb(error.__traceback__)
    return (
        not blamed(error)
        and bool(frames)
        and (frames[-1].line or "").startswith("raise ")
        and _PACKAGE in Path(frames[-1].filename).parents
    )


def _named(kind: str, name: str) -> str:
    return f"the {kind} {shorten(name)} of {registry.package_with(kind, name)}"


def _told(error: BaseException) -> str:
    """Describe the type, message and place of an error."""
    frame = _frame(error)
    place = f" ({Path(frame.f_code.co_filename).name}, {frame.f_code.co_name})" if frame is not None else ""
    message = f": {printable(str(error))}" if str(error) else ""
    return "; ".join((f"{type(error).__name__}{message}{place}", *getattr(error, "__notes__", ())))


def _frame(error: BaseException) -> FrameType | None:
    """Return the last frame of an error that runs code of another package or of the working directory."""
    theirs = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        theirs = frame if registry.package_of(module) or module in own.imported() else theirs
    return theirs
