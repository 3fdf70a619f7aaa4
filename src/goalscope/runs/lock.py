"""One writer for a run directory: an operating-system lock that dies with its process."""

import os
import weakref
from io import FileIO
from pathlib import Path

_FILE = "run.lock"
_held: "weakref.WeakSet[DirectoryLock]" = weakref.WeakSet()


class DirectoryLock:
    """The right to write to a run directory, held until `release` or the end of the process, however it ends.

    Args:
        directory: an existing directory.

    Raises:
        BlockingIOError: another process holds it; the message names its number.
        OSError: the file system offers no locks.
    """

    def __init__(self, directory: Path) -> None:
        try:
            import fcntl
        except ImportError as error:
            raise OSError("a run directory must be locked, which needs Linux, macOS or WSL") from error
        path = directory / _FILE
        self._file: FileIO | None = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._file.read(64).decode("ascii", "replace").strip()
            self._file.close()
            who = "this very process" if holder == str(os.getpid()) else f"process {holder or 'of unknown number'}"
            raise BlockingIOError(
                f"a run directory must have one writer at a time, but {who} is writing to {directory}: wait for it to "
                "end or choose another directory"
            ) from None
        except OSError as error:
            self._file.close()
            raise OSError(
                f"a run directory must lie on a file system with locks, but locking {path} failed ({error}): "
                "choose a directory on a local disk"
            ) from error
        try:
            self._file.truncate(0)
            self._file.write(str(os.getpid()).encode())
        except OSError as error:
            self._file.close()
            raise OSError(
                f"a run directory must be writable, but {path} is not ({error.strerror}): free some room on its disk, "
                "or choose another directory"
            ) from error
        _held.add(self)

    def release(self) -> None:
        """Give the lock back; the file stays, so that no second process can lock a file of the same name."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _forget_in_child() -> None:
    # A forked child shares the lock with its parent and would keep it alive after the parent's death.
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
