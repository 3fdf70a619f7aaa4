"""The tables of `run.db`, and SQLite's errors in words."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
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
_NO_TEXT = "{} must hold UTF-8 text, got other bytes: the file is damaged"
_FULL = "{} must have room to grow, but the disk is full: free some and run again"


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ones that say what must hold and what to do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise BlockingIOError(f"{path} must be free for a moment, but another process holds it: {text}") from error
        if "full" in text:
            raise OSError(_FULL.format(path)) from error
        if "decode" in text:
            raise ValueError(_NO_TEXT.format(path)) from error
        raise OSError(
            f"{path} must be readable (and writable for a run), but SQLite says: {text}; check the directory's "
            "permissions and its file system"
        ) from error
    except UnicodeDecodeError as error:  # of what SQLite says, which quotes the file
        raise ValueError(_NO_TEXT.format(path)) from error
    except sqlite3.DatabaseError as error:
        raise ValueError(
            f"{path} must be a sound SQLite file written by goalscope, but it is damaged or something else: {error}; "
            "nothing was changed, restore it from a copy or choose another directory"
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(_FULL.format(path)) from error


def check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Raise a ValueError unless the file is a run.db whose tables are exactly ours."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    found = {
        (name, kind) for name, kind in connection.execute("SELECT name, type FROM sqlite_master WHERE type != 'index'")
    }
    if without_tables(connection):
        raise FileNotFoundError(
            f"{path} must hold a run, but it is empty (a start was cut short): run the study, or import, into this "
            "directory once more"
        )
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


def without_tables(connection: sqlite3.Connection) -> bool:
    """Return whether a database holds nothing at all and was marked by nobody: a start of ours was cut short."""
    marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return marks == [0, 0] and tables == 0 and pages <= 1


def create_tables(connection: sqlite3.Connection) -> None:
    """Make all tables in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for table, columns in TABLES.items():
        tail = " WITHOUT ROWID" if table in _CLUSTERED else ""
        connection.execute(f"CREATE TABLE {table} ({', '.join(columns)}){tail}")
    connection.execute(_INDEX)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")
