"""Steps of a stored run as a table, so that tests change them by SQL: one row a step, as `step_cells` names them."""

import sqlite3
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from goalscope.runs.codec import STEP_COLUMNS, PackedSteps, pack_said, pack_walk, step_cells
from goalscope.runs.record import NO_ACTION


@contextmanager
def steps_as_table(database: sqlite3.Connection) -> Iterator[None]:
    """Let the name ``steps`` mean a table with one row a step; what it holds in the end is packed and stored."""
    database.execute(f"CREATE TEMP TABLE steps (episode, {STEP_COLUMNS})")
    for number, walk, said in database.execute("SELECT * FROM main.steps").fetchall():
        put(database, number, step_cells(PackedSteps(walk, said)))
    yield
    for (number,) in database.execute("SELECT episode FROM main.steps").fetchall():
        select = f"SELECT {STEP_COLUMNS} FROM temp.steps WHERE episode = ? ORDER BY step"
        packed = pack_cells(database.execute(select, (number,)).fetchall())
        database.execute("UPDATE main.steps SET walk = ?, said = ? WHERE episode = ?", (*packed, number))
    database.execute("DROP TABLE temp.steps")


def put(database: sqlite3.Connection, number: int, steps: list[tuple[Any, ...]]) -> None:
    """Add the steps of an episode to the table."""
    marks = ", ".join("?" * (1 + len(STEP_COLUMNS.split(", "))))
    database.executemany(f"INSERT INTO temp.steps VALUES ({marks})", [(number, *step) for step in steps])


def pack_cells(steps: list[tuple[Any, ...]]) -> PackedSteps:
    """Pack `STEP_COLUMNS` of steps, whatever they hold."""
    walk = [(*step[1:4], NO_ACTION if step[4] is None else step[4]) for step in steps]
    said: list[list[Any]] = [[_text(step[at]) for step in steps] for at in (5, 6, 7)]
    said += [[_tokens(step[at]) for step in steps] for at in (8, 9)]
    said += [[step[at] for step in steps] for at in (10, 11)]
    return PackedSteps(pack_walk(walk), pack_said(said))


def _text(cell: Any) -> Any:
    return cell.decode("utf-8", "surrogatepass") if isinstance(cell, bytes) else cell


def _tokens(cell: Any) -> Any:
    return array("I", cell).tolist() if isinstance(cell, bytes) else cell
