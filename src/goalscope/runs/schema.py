"""The tables of `run.db`, and how the file is opened: our own for writing, anybody's read-only and checked."""

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

DATABASE = "run.db"
APPLICATION = 0x676F616C  # "goal", in the header of every run.db
VERSION = 1

TABLES: dict[str, tuple[str, ...]] = {
    "info": ("name TEXT PRIMARY KEY", "value TEXT NOT NULL"),
    "sessions": ("number INTEGER PRIMARY KEY", "document TEXT NOT NULL"),
    "study": ("id TEXT PRIMARY KEY", "name TEXT NOT NULL", "document TEXT NOT NULL"),
    "agents": ("id TEXT PRIMARY KEY", "name TEXT NOT NULL", "description TEXT NOT NULL"),
    "worlds": (
        "id TEXT PRIMARY KEY",
        "grid TEXT NOT NULL",
        "fog_radius INTEGER",
        "cluster TEXT NOT NULL",
        "tags TEXT NOT NULL",
    ),
    "calls": (
        "id TEXT PRIMARY KEY",
        "agent_id TEXT NOT NULL",
        "prompt TEXT NOT NULL",
        "episode_id TEXT NOT NULL",
        "step INTEGER NOT NULL",
        "attempt INTEGER NOT NULL",
        "state TEXT NOT NULL",
        "lost INTEGER NOT NULL DEFAULT 0",
        "sent REAL NOT NULL",
        "done REAL",
        "action INTEGER",
        "failure TEXT",
        "text TEXT",
        "reasoning TEXT",
        "prompt_tokens BLOB",
        "output_tokens BLOB",
        "usage TEXT",
        "extra TEXT",
    ),
    "episodes": (
        "number INTEGER PRIMARY KEY",
        "id TEXT NOT NULL UNIQUE",
        "world_id TEXT NOT NULL",
        "agent_id TEXT NOT NULL",
        "trajectory INTEGER NOT NULL",
        "seed INTEGER NOT NULL",
        "horizon INTEGER NOT NULL",
        "rules TEXT NOT NULL",
        "agent TEXT NOT NULL",
        "outcome TEXT NOT NULL",
        "row INTEGER NOT NULL",
        "col INTEGER NOT NULL",
        "flags INTEGER NOT NULL",
        "length INTEGER NOT NULL",
        "tags TEXT NOT NULL",
    ),
    "steps": (
        "episode INTEGER NOT NULL",
        "step INTEGER NOT NULL",
        "row INTEGER NOT NULL",
        "col INTEGER NOT NULL",
        "flags INTEGER NOT NULL",
        "action INTEGER",
        "failure TEXT",
        "text TEXT",
        "reasoning TEXT",
        "prompt_tokens BLOB",
        "output_tokens BLOB",
        "reward REAL",
        "extra TEXT",
        "PRIMARY KEY (episode, step)",
    ),
    "usage": (
        "episode_id TEXT NOT NULL",
        "step INTEGER NOT NULL",
        "attempt INTEGER NOT NULL",
        "name TEXT NOT NULL",
        "value REAL NOT NULL",
        "PRIMARY KEY (episode_id, step, attempt, name)",
    ),
    "rows": (
        "source TEXT NOT NULL",
        "number INTEGER NOT NULL",
        "measure TEXT NOT NULL",
        "unit TEXT NOT NULL",
        "value REAL",
        "grid_id TEXT NOT NULL",
        "episode_id TEXT NOT NULL",
        "step INTEGER NOT NULL",
        "tags TEXT NOT NULL",
        "PRIMARY KEY (source, number)",
    ),
    "artifacts": (
        "id TEXT PRIMARY KEY",
        "kind TEXT NOT NULL",
        "path TEXT NOT NULL",
        "size INTEGER NOT NULL",
        "tags TEXT NOT NULL",
    ),
}
"""Columns of every table. A step refers to `episodes.number`; everything else is joined by content ids."""

_CLUSTERED = ("info", "steps", "usage", "rows")  # kept in the order of their primary key, without a second index
_INDEX = "CREATE INDEX episodes_in_order ON episodes (world_id, agent_id, trajectory, id)"

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
    with tempfile.TemporaryDirectory(prefix=".wal-probe-", dir=directory) as folder:
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
    """Open or create a run.db that this process alone writes to.

    Args:
        path: the file.
        probe: see `Probe`.

    Returns:
        The connection, in autocommit mode, and why it works without a write-ahead log (None where it has one).

    Raises:
        ValueError: the file is damaged, of a newer version, or no run.db.
    """
    with explained(path):
        connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        try:
            if not (empty := _is_empty(connection)):
                _check(connection, path)
            # A log left by a killed process is folded in when the mode changes; nothing committed is lost.
            problem = probe(path.parent)
            mode = connection.execute(f"PRAGMA journal_mode = {'DELETE' if problem else 'WAL'}").fetchone()[0]
            if problem is None and mode != "wal":
                problem = f"SQLite keeps the journal mode {mode!r} there"
            connection.execute("PRAGMA trusted_schema = OFF")
            if empty:
                _create(connection)
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
    address = path.resolve().as_uri()
    with explained(path):
        try:
            connection = _opened_checked(f"{address}?mode=ro", path)
        except sqlite3.OperationalError as error:
            if not any(word in str(error) for word in ("readonly", "unable to open")):
                raise
            # Read-only media have no room for the shared memory of a log. Without a log to read, none is needed.
            for suffix in ("-wal", "-journal"):
                rest = path.with_name(path.name + suffix)
                if rest.exists() and rest.stat().st_size:
                    raise OSError(
                        f"{path} must be closed or lie where it can be recovered, but {rest.name} holds unfinished "
                        "writes and this place is read-only: copy the run directory to one that can be written"
                    ) from error
            connection = _opened_checked(f"{address}?mode=ro&immutable=1", path)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _opened_checked(address: str, path: Path) -> sqlite3.Connection:
    """Open an address, and close it again where it is no run.db of ours."""
    connection = sqlite3.connect(address, uri=True, timeout=30, isolation_level=None)
    try:
        _check(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ones that say what must hold and what to do."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise BlockingIOError(f"{path} must be free for a moment, but another process holds it: {text}") from error
        if "full" in text:
            raise OSError(f"{path} must have room to grow, but the disk is full: free some and run again") from error
        if "decode" in text:
            raise ValueError(f"{path} must hold UTF-8 text, got other bytes: the file is damaged") from error
        raise OSError(
            f"{path} must be readable (and writable for a run), but SQLite says: {text}; check the directory's "
            "permissions and its file system"
        ) from error
    except sqlite3.DatabaseError as error:
        raise ValueError(
            f"{path} must be a sound SQLite file written by goalscope, but it is damaged or something else: {error}; "
            "nothing was changed, restore it from a copy or choose another directory"
        ) from error


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise a ValueError unless the file is a run.db whose tables are exactly ours."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    found = {
        (name, kind) for name, kind in connection.execute("SELECT name, type FROM sqlite_master WHERE type != 'index'")
    }
    if application != APPLICATION:
        raise ValueError(
            f"{path} must be a run.db written by goalscope, got another SQLite database "
            f"(tables: {', '.join(sorted(name for name, _ in found)) or 'none'}): choose another directory"
        )
    if version != VERSION:
        advice = "update goalscope" if version > VERSION else "read it with the version that wrote it"
        raise ValueError(f"{path} must have schema version {VERSION}, got {version}: {advice}")
    if found != {(name, "table") for name in TABLES}:
        odd = sorted({name for name, _ in found} ^ set(TABLES)) or sorted(name for name, kind in found)
        raise ValueError(f"{path} must hold exactly the tables of a run.db, got a difference at: {', '.join(odd)}")
    for table, columns in TABLES.items():
        wanted = [column.split()[0] for column in columns if not column.startswith("PRIMARY")]
        given = [row[1] for row in connection.execute(f"PRAGMA table_xinfo({table})")]
        if given != wanted:
            raise ValueError(f"table {table} of {path} must have the columns {wanted}, got {given}")


def _is_empty(connection: sqlite3.Connection) -> bool:
    """Return whether a file is new, or was left by a process killed before it made the tables."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return bool(application == 0 and tables == 0)


def _create(connection: sqlite3.Connection) -> None:
    """Make all tables in one transaction; a file killed in between stays empty."""
    connection.execute("BEGIN IMMEDIATE")
    for table, columns in TABLES.items():
        tail = " WITHOUT ROWID" if table in _CLUSTERED else ""
        connection.execute(f"CREATE TABLE {table} ({', '.join(columns)}){tail}")
    connection.execute(_INDEX)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


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
