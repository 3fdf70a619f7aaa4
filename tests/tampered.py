"""Runs that somebody changed: without checksums, as the first schema wrote them, so that each value is looked at."""

import math
import sqlite3
from pathlib import Path

from goalscope.rows import Row
from goalscope.runs.checksums import Comparison
from goalscope.runs.codec import encode_tags
from goalscope.runs.stored_rows import read_groups, sources_of


def unsealed(database: sqlite3.Connection) -> sqlite3.Connection:
    """Make an open run.db one of the first schema; inside of the caller's transaction, if there is one."""
    _unpack(database)
    database.execute("DROP TABLE IF EXISTS checksums")
    database.execute("PRAGMA user_version = 1")
    return database


def _unpack(database: sqlite3.Connection) -> None:
    """Store packed rows one by one, as earlier versions did."""
    comparison = Comparison(database, Path("run.db"))
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'row_groups'").fetchone():
        return

    def value(row: Row) -> float | None:
        return None if math.isnan(row.value) else row.value

    def tags(row: Row) -> str:
        return encode_tags(row.tags)

    for source in sources_of(database, comparison):
        listed = [row for rows in read_groups(database, comparison, source) for row in rows]
        cells = [
            (source, number, row.measure, row.unit, value(row), row.cluster, row.episode_id, row.step, tags(row))
            for number, row in enumerate(listed)
        ]
        database.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", cells)
    database.execute("DROP TABLE row_groups")
