"""Explained errors of SQLite: the violated condition of a run.db, and advice."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from goalscope.untrusted import DamagedError

_FULL = "{} must have room to grow, but the disk is full: what was stored is kept, free some room and run again"


def damaged(file: Path, must: str, why: object = "") -> DamagedError:
    """Return the error of a damaged run.db: the violated condition, and advice."""
    reason = f" ({why})" if why else ""
    return DamagedError(
        f"{file} must {must}, but it is damaged{reason}: goalscope doctor {file.parent} says what can be rebuilt, or "
        "restore the file from a copy"
    )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ones with the violated condition and advice."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise BlockingIOError(
                f"{path} must be free for a moment, but another process holds it, or its file system has no locks: "
                f"{text}"
            ) from error
        if "full" in text:
            raise OSError(_FULL.format(path)) from error
        if "decode" in text:
            raise damaged(path, "hold UTF-8 text") from error
        raise OSError(
            f"{path} must be readable (and writable for a run), but SQLite says: {text}; check the directory's "
            "permissions and its file system"
        ) from error
    except UnicodeDecodeError as error:  # of SQLite's message, which quotes the file
        raise damaged(path, "hold UTF-8 text") from error
    except sqlite3.DatabaseError as error:
        if "malformed" in str(error):
            raise DamagedError(
                f"{path} must be a sound SQLite file, but it is damaged: {error}; nothing was changed: goalscope "
                f"doctor {path.parent} --repair keeps what is sound, and where it cannot, restore the file from a copy"
            ) from error
        raise DamagedError(
            f"{path} must be a sound SQLite file written by goalscope, but it is damaged or something else: {error}; "
            "nothing was changed, restore it from a copy or choose another directory"
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(_FULL.format(path)) from error
