"""One clear block for what the user can mend; a traceback only for what is our fault."""

import functools
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

import typer

from goalscope.cli.console import fail

WRONG_INPUT, PROBLEMS, INTERRUPTED = 2, 1, 130

Command = TypeVar("Command", bound=Callable[..., Any])


def guarded(command: Command) -> Command:
    """Turn the errors that a user can cause into one block on standard error and an exit status.

    2 for wrong input or what a file, a store or a missing extra brings with it; 130 for Ctrl-C. Everything else is a
    fault of goalscope and keeps its traceback.
    """

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except KeyboardInterrupt as stop:
            text = str(stop) or "stopped; what was stored before is kept, run the same command again to go on"
            fail(text, title="Stopped")
            raise typer.Exit(INTERRUPTED) from None
        except (ValueError, OSError, ImportError, sqlite3.Error) as error:
            fail(_words(error))
            raise typer.Exit(WRONG_INPUT) from None

    return run  # type: ignore[return-value]


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.strerror}: {error.filename}"
    return str(error) or type(error).__name__
