"""Open a `run.db`: for writing (it is created complete if there is none), or read-only and validated.

Only one process writes to a run directory at a time: it holds an operating-system lock that ends with the process.
"""

import errno
import os
import sqlite3
import weakref
from contextlib import closing, suppress
from io import FileIO
from pathlib import Path
from shlex import quote

from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.untrusted import StrangeFileError
from goalscope.runs.tables import DATABASE, check_tables, create_tables, explained

_LOCK = "run.lock"
_MOST_RUNS_NAMED = 3
_PAGE = "report.html"  # the page of an evaluation
# prefix of temporary folders that an interrupted start may leave behind
_PROBE_PREFIX, _NEW_PREFIX = ".wal-probe-", ".run-new-"
_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # the first bytes of SQLite's rollback journal
_SQLITE_SUFFIXES = ("-wal", "-shm", "-journal")  # suffixes of SQLite's own files beside a database
_NO_LINK_ERRORS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}

_NETWORK_FILE_SYSTEMS = frozenset(
    ["nfs", "nfs4", "lustre", "cifs", "smb3", "smbfs", "gpfs", "beegfs", "ceph", "afs", "9p", "fuse.sshfs"]
)


def wal_problem(directory: Path) -> str | None:
    """Return why SQLite's write-ahead log (its fast journal) does not work in a directory; None if it does.

    It is tried with a temporary database in this directory, which is written and read back through a second connection.
    File systems shared between machines are recognised by name: the log works there for one machine and fails for the
    next.
    """
    kind = _file_system(directory)
    if kind in _NETWORK_FILE_SYSTEMS:
        return f"the file system is shared over a network ({kind})"
    with Folder(directory).temporary(_PROBE_PREFIX) as folder:
        path = folder.file("probe.db")
        try:
            with closing(sqlite3.connect(path)) as writer, closing(sqlite3.connect(path)) as reader:
                writer.execute("PRAGMA synchronous = OFF")  # a trial database need not survive a power failure
                mode = writer.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                if mode != "wal":
                    return f"SQLite keeps the journal mode {mode!r} there"
                with writer:
                    writer.execute("CREATE TABLE probe (value)")
                    writer.execute("INSERT INTO probe VALUES (1)")
                if reader.execute("SELECT value FROM probe").fetchall() != [(1,)]:
                    return "a second connection does not see what the first one wrote"
        except sqlite3.Error as error:
            return f"a write-ahead log failed there: {error}"
    return None


def open_for_writing(path: Path) -> tuple[sqlite3.Connection, str | None]:
    """Open a run's database for writing, or create it.

    The process must hold the lock of the directory, so that no other process writes.

    Returns:
        The connection, and why the database has no write-ahead log; None if it has one.
    """
    with explained(path):
        directory = Folder(path.parent)
        for name in directory.names():
            # remove the remains of interrupted starts; only this process has the lock
            if name.startswith((_PROBE_PREFIX, _NEW_PREFIX)):
                directory.remove_folder(name)
        new = unmade(path)
        problem = wal_problem(path.parent)
        if new:
            _make(path, log=problem is None)
        connection = _connect(path, "rw")
        try:
            # A log left by a killed process is merged when the mode changes; nothing committed is lost.
            mode = connection.execute(f"PRAGMA journal_mode = {'DELETE' if problem else 'WAL'}").fetchone()[0]
        except BaseException:
            connection.close()
            raise
    if problem is None and mode != "wal":
        problem = f"SQLite keeps the journal mode {mode!r} there"
    return connection, problem


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a run's database read-only, after checking that its tables are those of a run.

    Args:
        path: the file ``run.db``.

    Raises:
        FileNotFoundError: there is no run; the message names runs below the directory.
        ValueError: the file is not the database of a run, of another version or damaged.
        OSError: the file cannot be read.
    """
    check_files(path)
    directory = Folder(path.parent)
    if not directory.has_file(path.name):
        raise FileNotFoundError(
            f"there is no run at {path}: {_runs_below(directory)}give the directory that goalscope run or goalscope "
            "import wrote (--out)"
        )
    with explained(path):
        try:
            connection = _connect(path, "ro")
        except sqlite3.OperationalError as error:
            if not _needs_writing(error):
                raise
            # Read-only media have no room for the shared memory of a log. Without a log to read, none is needed.
            for suffix in ("-wal", "-journal"):
                log = directory.status(path.name + suffix)
                if log is not None and log.st_size:
                    raise OSError(_unfinished(path, suffix)) from error
            connection = _connect(path, "ro&immutable=1")
        connection.execute("PRAGMA query_only = ON")
    return connection


def _runs_below(directory: Folder) -> str:
    """Name the runs in folders below a directory, such as the parts of an evaluation, "" if there are none."""
    runs = list[Path]()
    with suppress(OSError, ValueError):  # links and other strange files, which nobody gave
        runs = [
            folder.path
            for parent in (directory, *directory.folders())
            for folder in parent.folders()
            if folder.has_file(DATABASE)
        ]
    if not runs:
        return ""
    more = f" and {len(runs) - _MOST_RUNS_NAMED} more" if len(runs) > _MOST_RUNS_NAMED else ""
    page = f" (the page of them all is {directory.path / _PAGE})" if directory.has_file(_PAGE) else ""
    return f"it contains the runs {', '.join(map(str, runs[:_MOST_RUNS_NAMED]))}{more}{page}; give one of them, or "


def _unfinished(path: Path, suffix: str) -> str:
    """Return why a database with a log beside it cannot be read."""
    log, directory = path.name + suffix, Folder(path.parent)
    if suffix == "-journal":
        with directory.open_file(log) as stream:
            if stream.read(len(_JOURNAL)) != _JOURNAL:
                return (
                    f"{path.with_name(log)} must be a journal of SQLite, but it does not begin like one, so goalscope "
                    f"did not write it: move it elsewhere; {path.name} was not changed"
                )
        return (
            f"{path} must be closed, but {log} holds writes that were cut short: run the same study on {path.parent} "
            "again, which takes them back; where that place is read-only, copy the run directory first"
        )
    return (
        f"{path} must be closed or lie where it can be recovered, but {log} holds unfinished writes and this place is "
        "read-only: copy the run directory to one that can be written"
    )


def unmade(path: Path) -> bool:
    """Return whether a run's database has no content yet: it is missing, has 0 bytes, or has no tables.

    An interrupted start or a full disk can leave the last two; the next start completes them.

    Raises:
        ValueError: the file is damaged, of a newer version or not a run.db, or has a log but no database.
        OSError: it cannot be read.
    """
    check_files(path)
    directory = Folder(path.parent)
    status = directory.status(path.name)
    if status is None or not status.st_size:
        log = path.with_name(f"{path.name}-wal")
        if (log_status := directory.status(log.name)) is not None and log_status.st_size:
            raise ValueError(
                f"{path.name} is missing or empty, but {log} contains its last writes: restore {path.name}, "
                f"or remove {log.name} to start over"
            )
        return True
    with explained(path):
        try:
            try:
                _connect(path, "ro").close()  # files of other programs are not changed
            except sqlite3.OperationalError as error:
                if not _needs_writing(error):
                    raise
                _connect(path, "rw").close()  # an interrupted write must be rolled back first
        except FileNotFoundError:
            return True
    return False


def check_new_run(directory: Path) -> None:
    """Check that a run can be started or continued in a directory.

    Raises:
        ValueError: the directory has no run yet, but has other files, such as those of an evaluation.
    """
    if unmade(directory / DATABASE):
        check_no_other_files(directory, (DATABASE, _LOCK, _PROBE_PREFIX, _NEW_PREFIX), "a run")


def check_no_other_files(directory: Path, own_prefixes: tuple[str, ...], what: str) -> None:
    """Check that a directory contains nothing but files with certain names, before something is written there.

    Args:
        directory: the directory, which need not exist.
        own_prefixes: how the names of files begin that may be there, such as those of an interrupted start.
        what: what will be written, for the message.

    Raises:
        ValueError: there are other files.
    """
    folder = Folder(directory)
    other = next((name for name in folder.names() if not name.startswith(own_prefixes)), None)
    if other is not None:
        raise ValueError(
            f"{directory} already contains other files, such as {_first_in(folder, other)}, and {what} needs a "
            f"directory of its own: give another one, e.g. --out {quote(f'{directory}-2')}"
        )


def _first_in(folder: Folder, name: str, depth: int = 3) -> str:
    """Return the path of a file relative to a folder, given the name of an entry that is or contains this file."""
    if depth and folder.has_folder(name) and (names := folder.below(name).names()):
        return f"{name}/{_first_in(folder.below(name), names[0], depth - 1)}"
    return name


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open a run.db in autocommit mode; close it again if it is not a run.db."""
    check_files(path, one_name=mode == "rw")
    address = f"{(path.parent.resolve() / path.name).as_uri()}?mode={mode}"
    shared = mode == "rw"  # the threads that make requests also count them
    connection = sqlite3.connect(address, uri=True, timeout=30, isolation_level=None, check_same_thread=not shared)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        check_tables(connection, path)
        connection.execute("PRAGMA cell_size_check = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def check_files(path: Path, *, one_name: bool = False) -> None:
    """Check that run.db, and SQLite's own files beside it, are regular files that do not lead to other files.

    A run.db that is only read may have several names (hard links), as in copies of folders that share files. SQLite's
    own files are changed even by readers.

    Args:
        path: the file run.db.
        one_name: whether run.db, too, must have only one name.

    Raises:
        OSError, ValueError: a file is a link, a pipe or the like, or names a file elsewhere.
    """
    # By path, because opening and closing run.db here would lose this process's locks on it.
    directory = Folder(path.parent)
    directory.file(path.name, one_name=one_name)
    for suffix in _SQLITE_SUFFIXES:
        directory.file(path.name + suffix, one_name=True)
    _check_journal(path)


def _check_journal(path: Path) -> None:
    """Refuse a rollback journal that names another file anywhere on the disk, which SQLite would read and remove.

    SQLite ends the journal of a transaction over several databases with the path of a file that lists their journals.
    When it has rolled back such a transaction, it removes that file. goalscope changes one database at a time.
    """
    directory, name = Folder(path.parent), f"{path.name}-journal"
    status = directory.status(name)
    if status is None or status.st_size < len(_JOURNAL):
        return
    with directory.open_file(name) as stream:
        stream.seek(-len(_JOURNAL), os.SEEK_END)
        if stream.read() == _JOURNAL:
            raise StrangeFileError(
                f"{path.with_name(name)} must be the journal of one database",
                "a journal that names another file, which SQLite would remove. goalscope did not write it: move it "
                f"elsewhere; {path.name} was not changed",
            )


def _make(path: Path, *, log: bool) -> None:
    """Create a run.db with all tables in a temporary folder, sync it, and move it to its path."""
    # If this process is killed at any point, the path is either unchanged or has the complete file.
    directory = Folder(path.parent)
    with directory.temporary(_NEW_PREFIX) as folder:
        with closing(sqlite3.connect(folder.file(path.name), isolation_level=None)) as connection:
            # the file is synced as a whole before it is moved to its path
            connection.execute("PRAGMA synchronous = OFF")
            create_tables(connection)
            if log:
                connection.execute("PRAGMA journal_mode = WAL")
        folder.sync(path.name)
        _put(directory, f"{folder.path.name}/{path.name}", path.name)
        directory.sync()


def _put(directory: Folder, new: str, name: str) -> None:
    """Move a database to its path without replacing one of another process."""
    empty = directory.has_file(name)  # the caller has checked that it has no content
    for suffix in _SQLITE_SUFFIXES:  # SQLite would use these files of an earlier database for the new one
        directory.remove_file(name + suffix)
    if empty:
        directory.move(new, name)
        return
    try:
        directory.link(new, name)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_LINK_ERRORS:
            raise
        directory.move(new, name)  # a file system without links; the lock of the directory excludes other processes


def _needs_writing(error: sqlite3.OperationalError) -> bool:
    """Return whether a database cannot be read because something would have to be written first."""
    return any(word in str(error) for word in ("readonly", "unable to open"))


def _file_system(directory: Path) -> str:
    """Return the type of the file system that contains a directory, "" if it is unknown."""
    mounts = NamedFile("/proc/self/mounts")
    if not mounts.is_there():
        return ""
    target = os.fsencode(directory.resolve()) + b"/"
    longest, kind = -1, ""
    for line in mounts.load_bytes().splitlines():
        fields = line.split(b" ")
        point = fields[1].replace(b"\\040", b" ").rstrip(b"/") + b"/"
        if target.startswith(point) and len(point) >= longest:
            longest, kind = len(point), os.fsdecode(fields[2])
    return kind


_held_locks: "weakref.WeakSet[DirectoryLock]" = weakref.WeakSet()


class DirectoryLock:
    """The exclusive right of this process to write to a run directory, until `release` or the end of the process.

    Creating the object raises a BlockingIOError if another process has the lock.
    """

    def __init__(self, directory: Path) -> None:
        try:
            import fcntl
        except ImportError as error:
            raise OSError("locking a run directory needs Linux, macOS or WSL") from error
        path = directory / _LOCK
        self._file: FileIO | None = FileIO(Folder(directory).open_to_change(_LOCK), "r+")
        try:
            must = f"lie on a file system with locks, but locking {path} failed"
            advice = "choose a directory on a local disk"
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            must, advice = f"be writable, but {path} is not", "free some room on its disk, or choose another directory"
            self._file.truncate(0)
            self._file.write(str(os.getpid()).encode())
        except BlockingIOError:
            holder = self._file.read(64).decode("ascii", "replace").strip()
            self.release()
            who = "this very process" if holder == str(os.getpid()) else f"process {holder or 'of unknown number'}"
            raise BlockingIOError(
                f"{who} is already writing to {directory}: wait for it to end, or choose another directory"
            ) from None
        except OSError as error:
            self.release()
            raise OSError(f"a run directory must {must} ({error.strerror}): {advice}") from error
        _held_locks.add(self)

    def directory(self, former: Path) -> Path:
        """Return the current path of the locked directory, which may have been renamed.

        Args:
            former: its previous path.

        Raises:
            FileNotFoundError: it was removed, or was renamed and the system does not report its new path.
        """
        candidates = [former]
        if self._file is not None:
            with suppress(OSError):
                candidates.append(Path(f"/proc/self/fd/{self._file.fileno()}").readlink().parent)
        for candidate in candidates:
            if self._file is not None and _same(self._file.fileno(), candidate):
                return candidate
        raise FileNotFoundError(
            f"{former} was renamed or removed while it was being written to: continue in the renamed "
            "directory, or run the same study again if it was removed"
        )

    def release(self) -> None:
        """Give up the right to write to the directory.

        The lock file stays, so that no second process can lock a new file of the same name.
        """
        if self._file is not None:
            self._file.close()
            self._file = None


def _same(number: int, directory: Path) -> bool:
    """Return whether an open file is the lock file of a directory."""
    try:
        status = Folder(directory).status(_LOCK)
        return status is not None and os.path.samestat(os.fstat(number), status)
    except (OSError, StrangeFileError):
        return False


def _forget_in_child() -> None:
    # A forked child shares the lock with its parent, and would hold it after the parent's death.
    for lock in list(_held_locks):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
