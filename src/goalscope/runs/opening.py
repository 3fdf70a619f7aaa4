"""How a `run.db` is opened: our own for writing, made whole where there is none; anybody's read-only and checked."""

import errno
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from goalscope.runs.schema import DATABASE, check_tables, create_tables, explained, without_tables

_PROBE, _NEW = ".wal-probe-", ".run-new-"  # what the folders begin with that a start may leave behind when it is killed
_BESIDE = ("-wal", "-shm", "-journal")  # SQLite's own files of a database, by what is added to its name
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}

_NETWORK = {"nfs", "nfs4", "lustre", "cifs", "smb3", "smbfs", "gpfs", "beegfs", "ceph", "afs", "9p", "fuse.sshfs"}

Probe = Callable[[Path], str | None]
"""Says why a directory cannot hold a database with a write-ahead log, None where it can."""


def wal_problem(directory: Path) -> str | None:
    """Return why SQLite's write-ahead log does not work in a directory, None where it does.

    A database beside the target is really written and read back through a second connection. File systems that are
    shared between machines are told by their name: there the log works for one machine and fails for the next.
    """
    kind = _file_system(directory)
    if kind in _NETWORK:
        return f"the file system is shared over a network ({kind})"
    with tempfile.TemporaryDirectory(prefix=_PROBE, dir=directory) as folder:
        path = Path(folder) / "probe.db"
        try:
            with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(path)) as two:
                mode = one.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                if mode != "wal":
                    return f"SQLite keeps the journal mode {mode!r} there"
                with one:
                    one.execute("CREATE TABLE probe (value)")
                    one.execute("INSERT INTO probe VALUES (1)")
                if two.execute("SELECT value FROM probe").fetchall() != [(1,)]:
                    return "a second connection does not see what the first one wrote"
        except sqlite3.Error as error:
            return f"a write-ahead log failed there: {error}"
    return None


def open_for_writing(path: Path, *, probe: Probe) -> tuple[sqlite3.Connection, str | None]:
    """Open or make a run.db that this process alone writes to: it must hold the lock of the directory.

    Args:
        path: the file.
        probe: see `Probe`.

    Returns:
        The connection, in autocommit mode, and why it works without a write-ahead log (None where it has one).

    Raises:
        ValueError: the file is damaged, of a newer version, or no run.db.
        OSError: the disk is full, or the directory cannot be written.
    """
    with explained(path):
        _sweep(path.parent)
        new = unmade(path)
        problem = probe(path.parent)
        if new:
            _make(path, log=problem is None)
        connection = sqlite3.connect(
            _address(path, "rw"), uri=True, timeout=30, isolation_level=None, check_same_thread=False
        )
        try:
            check_tables(connection, path)
            # A log left by a killed process is folded in when the mode changes; nothing committed is lost.
            mode = connection.execute(f"PRAGMA journal_mode = {'DELETE' if problem else 'WAL'}").fetchone()[0]
            if problem is None and mode != "wal":
                problem = f"SQLite keeps the journal mode {mode!r} there"
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
        except BaseException:
            connection.close()
            raise
    return connection, problem


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open somebody's run.db read-only.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, of a newer version, or no run.db.
        OSError: it was left in the middle of a write on media that cannot be written.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"a run directory must hold {DATABASE}, found none at {path}: check the path (run and import write one)"
        )
    with explained(path):
        try:
            connection = _opened_checked(_address(path, "ro"), path)
        except sqlite3.OperationalError as error:
            if not _needs_writing(error):
                raise
            # Read-only media have no room for the shared memory of a log. Without a log to read, none is needed.
            for suffix in ("-wal", "-journal"):
                rest = path.with_name(path.name + suffix)
                if rest.exists() and rest.stat().st_size:
                    raise OSError(
                        f"{path} must be closed or lie where it can be recovered, but {rest.name} holds unfinished "
                        "writes and this place is read-only: copy the run directory to one that can be written"
                    ) from error
            connection = _opened_checked(_address(path, "ro&immutable=1"), path)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
    return connection


def unmade(path: Path) -> bool:
    """Return whether a run.db holds nothing yet: it is not there, has 0 bytes, or is a database without tables.

    A start that is cut short, or a full disk, can leave the last two; the next start takes them over.

    Raises:
        ValueError: it is damaged, of a newer version or no run.db, or a log lies beside it whose database is gone.
        OSError: it cannot be read.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise ValueError(
                f"{log} must lie beside the database whose last writes it holds, but {path.name} is missing or empty: "
                f"put that {path.name} back, or remove {log.name} to begin anew"
            )
        return True
    with explained(path):
        try:
            return _is_unmade(path, "ro")  # somebody else's file stays as it is
        except sqlite3.OperationalError as error:
            if not _needs_writing(error):
                raise
            return _is_unmade(path, "rw")  # a write that was cut short has to be rolled back first


def _opened_checked(address: str, path: Path) -> sqlite3.Connection:
    """Open an address, and close it again where it is no run.db of ours."""
    connection = sqlite3.connect(address, uri=True, timeout=30, isolation_level=None)
    try:
        check_tables(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_unmade(path: Path, mode: str) -> bool:
    with closing(sqlite3.connect(_address(path, mode), uri=True, timeout=30, isolation_level=None)) as connection:
        if without_tables(connection):
            return True
        check_tables(connection, path)
        return False


def _make(path: Path, *, log: bool) -> None:
    """Make a run.db with all its tables in a folder beside its place, sync it, and put it there at once.

    Args:
        path: its place, which holds no run yet; where another process has put one there meanwhile, that one stays.
        log: whether it is to have a write-ahead log.
    """
    # Gone or not, the place is either as it was or holds the whole file, whenever this process is killed.
    with tempfile.TemporaryDirectory(prefix=_NEW, dir=path.parent) as folder:
        new = Path(folder) / path.name
        with closing(sqlite3.connect(new, isolation_level=None)) as connection:
            create_tables(connection)
            if log:
                connection.execute("PRAGMA journal_mode = WAL")
        _sync(new)
        _put(new, path)
        _sync(path.parent)


def _put(new: Path, path: Path) -> None:
    """Put a database in its place without touching one that another process has put there."""
    empty = path.exists()  # the caller knows it to be unmade
    for end in _BESIDE:  # they belong to what was there before, and SQLite would take them for the new file's
        path.with_name(path.name + end).unlink(missing_ok=True)
    if empty:
        new.replace(path)
        return
    try:
        os.link(new, path)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        new.rename(path)  # a file system without links: the lock of the directory keeps others away


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _sweep(directory: Path) -> None:
    """Remove what earlier starts left when they were killed: whoever holds the lock is the only one who starts."""
    for begin in (_PROBE, _NEW):
        for folder in directory.glob(f"{begin}*"):
            shutil.rmtree(folder, ignore_errors=True)


def _address(path: Path, mode: str) -> str:
    return f"{path.resolve().as_uri()}?mode={mode}"


def _needs_writing(error: sqlite3.OperationalError) -> bool:
    """Whether a database cannot be read because something would have to be written first."""
    return any(word in str(error) for word in ("readonly", "unable to open"))


def _file_system(directory: Path) -> str:
    """Return the type of the file system that holds a directory, "" where the system does not tell."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return ""
    target = os.fsencode(directory.resolve()) + b"/"
    best, kind = -1, ""
    for line in mounts.read_bytes().splitlines():
        fields = line.split(b" ")
        point = fields[1].replace(b"\\040", b" ").rstrip(b"/") + b"/"
        if target.startswith(point) and len(point) >= best:
            best, kind = len(point), os.fsdecode(fields[2])
    return kind
