"""Runs and files that somebody changed who gives them fitting checksums, so that each value is looked at."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from goalscope._ground.ids import content_id
from goalscope.agents.policies import digest_of
from goalscope.runs import tables
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
    tables.clear(database)
    for kind, (table, name) in tables.ENTRIES.items():
        keys = [key for (key,) in database.execute(f"SELECT {name} FROM {table}")]
        tables.seal(database, kind, keys)
    tables.seal_episodes(database, [number for (number,) in database.execute("SELECT number FROM episodes")])
    stored = StoredRows(database, tables.Comparison(database, Path()))
    for source in [source for (source,) in database.execute("SELECT DISTINCT source FROM row_groups")]:
        select = "SELECT number, count, measures, data FROM row_groups WHERE source = ? ORDER BY number"
        groups = database.execute(select, (source,)).fetchall()
        for number, *cells in groups:
            stored.seal_group(source, number, tuple(cells))
        stored.seal_index(source, [group[:3] for group in groups])


def resealed(values: dict[str, Any]) -> str:
    """Return the text of a sealed file with changed values and the digest that fits them."""
    rest = {name: value for name, value in values.items() if name != "digest"}
    return json.dumps({**rest, "digest": content_id("sealed", rest)}, indent=1, sort_keys=True) + "\n"


def resealed_policy(path: Path, out: Path, form: dict[str, Any], arrays: dict[str, Any]) -> Path:
    """Write a file of `save_policy` again with other entries of its form and other arrays (None takes one away)."""
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    with safe_open(str(path), framework="numpy") as file:
        [(key, text)] = file.metadata().items()
    kept = {name: array for name, array in {**load_file(path), **arrays}.items() if array is not None}
    save_file(kept, out, metadata={key: resealed({**json.loads(text), **form, "arrays": digest_of(kept)})})
    return out
