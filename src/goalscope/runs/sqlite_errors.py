"""Explanations of SQLite errors, which name the condition that a run.db violates and what to do."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from goalscope._ground.folder import Folder
from goalscope._ground.untrusted import DamagedError

_FULL = "{} must have room to grow, but the disk is full: what was stored is kept, free some room and run again"


def damaged(file: Path, must: str, why: object = "") -> DamagedError:
    """Build the error for a damaged run.db, with the violated condition and what to do."""
    reason = f" ({why})" if why else ""
    return DamagedError(
        f"{file} must {must}, but it is damaged{reason}: goalscope doctor {file.parent} says what can be rebuilt, or "
        "restore the file from a copy"
    )


def reached_limit(path: Path | None, error: BaseException) -> str:
    """Return the message for an error caused by a file-size limit or a quota, "" for other errors.

    SQLite reports both as "disk I/O error". A file-size limit of this process is recognised by the size of the file,
    and a quota by writing a byte to a file beside it.

    Args:
        path: the file that was written, None if it is unknown.
        error: an error of the operating system, or of SQLite.
    """
    import resource

    number = error.errno if isinstance(error, OSError) else None
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    named = "the file" if path is None else str(path)
    if number is None and isinstance(error, sqlite3.Error) and "disk I/O" in str(error) and path is not None:
        number = _of_a_write(path, limit)
    if number == errno.EFBIG:
        words = (
            f"{limit:,} bytes (ulimit -f, or LimitFSIZE of a service)" if limit >= 0 else "what its file system allows"
        )
        return (
            f"{named} must be able to grow, but the limit on the size of a file is reached, {words}: what was stored "
            "is kept, raise the limit and run the same command again"
        )
    if number == errno.EDQUOT:
        return (
            f"{named} must be able to grow, but the quota of this user or project on its disk is used up (quota -s): "
            "what was stored is kept, free some room and run the same command again"
        )
    return ""


def _of_a_write(path: Path, limit: int) -> int | None:
    """Write a trial file beside a file of SQLite, and return the number of the error, or None if there is none."""
    sizes = [status.st_size for name, status in Folder(path.parent).entries() if name.startswith(path.name)]
    if limit >= 0 and any(size + 2**16 > limit for size in sizes):
        return errno.EFBIG
    try:
        with TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(2**16))
            probe.flush()
    except OSError as error:
        return error.errno
    return None


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into errors that name the violated condition and what to do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise BlockingIOError(
                f"{path} is in use by another process, or its file system has no locks: {text}; try again later"
            ) from error
        if "full" in text:
            raise OSError(_FULL.format(path)) from error
        if limit := reached_limit(path, error):
            raise OSError(limit) from error
        if "decode" in text:
            raise damaged(path, "hold UTF-8 text") from error
        raise OSError(
            f"SQLite cannot read {path} (or write it, for a run): {text}; check the directory's "
            "permissions and its file system"
        ) from error
    except UnicodeDecodeError as error:  # of SQLite's message, which quotes the file
        raise damaged(path, "hold UTF-8 text") from error
    except sqlite3.DatabaseError as error:
        if "malformed" in str(error):
            raise DamagedError(
                f"{path} is damaged: {error}. Nothing was changed. goalscope doctor {path.parent} --repair "
                "keeps the intact parts; if it cannot, restore the file from a copy"
            ) from error
        raise DamagedError(
            f"{path} is damaged, or not a SQLite file written by goalscope: {error}. Nothing was changed. "
            "Restore it from a copy or choose another directory"
        ) from error
    except OSError as error:
        if limit := reached_limit(path, error):
            raise OSError(limit) from error
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(_FULL.format(path)) from error
