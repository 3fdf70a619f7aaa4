"""Runs that somebody changed who gives them fitting checksums, so that each value is looked at."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from goalscope.runs import checksums
from goalscope.runs.stored_rows import StoredRows
from stored_steps import steps_as_table


@contextmanager
def tampered(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a run.db to change it; its checksums are made anew at the end."""
    with closing(sqlite3.connect(path)) as database:
        with steps_as_table(database):
            yield database
        reseal(database)
        database.commit()


def reseal(database: sqlite3.Connection) -> None:
    """Make all checksums of an open run.db anew."""
    checksums.clear(database)
    for kind, (table, name) in checksums.ENTRIES.items():
        keys = [key for (key,) in database.execute(f"SELECT {name} FROM {table}")]
        checksums.seal(database, kind, keys)
    checksums.seal_episodes(database, [number for (number,) in database.execute("SELECT number FROM episodes")])
    stored = StoredRows(database, checksums.Comparison(database, Path()))
    for source in [source for (source,) in database.execute("SELECT DISTINCT source FROM row_groups")]:
        select = "SELECT number, count, measures, data FROM row_groups WHERE source = ? ORDER BY number"
        groups = database.execute(select, (source,)).fetchall()
        for number, *cells in groups:
            stored.seal_group(source, number, tuple(cells))
        stored.seal_index(source, [group[:3] for group in groups])
