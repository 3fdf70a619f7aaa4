"""Runs that somebody changed: without checksums, as the first schema wrote them, so that each value is looked at."""

import sqlite3


def unsealed(database: sqlite3.Connection) -> sqlite3.Connection:
    """Make an open run.db one of the first schema; inside of the caller's transaction, if there is one."""
    database.execute("DROP TABLE IF EXISTS checksums")
    database.execute("PRAGMA user_version = 1")
    return database
