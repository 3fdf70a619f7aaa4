"""Runs that were stored once: read and measured as they were then.

The files in tests/data/runs are the tables of two small runs as SQL text, without rows, sessions and checksums.
"""

import hashlib
import sqlite3
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest

from goalscope.measures import measure_store
from goalscope.runs import GridWorld, Store, TaskWorld, content_hash
from goalscope.runs.codec import STEP_COLUMNS
from goalscope.runs.tables import APPLICATION, VERSION
from stored_steps import pack_cells
from tampered import reseal

DATA = Path(__file__).parents[1] / "data" / "runs"
# What was said when they were written: content hash, study, number of rows, hash of the rows.
WRITTEN = {
    "grids": (
        "0ec2235a85eb4352bce785ddc276db3391282c3903262b10c78d98af7e35781c",
        "study-b04b5703c66f52b9b8dd8d42",
        249,
        "3bd05f0396edf0370226c303c7b841d7a4124835f4208583173cf3fb3d9b59ef",
    ),
    "tasks": (
        "c22bdf151a2fd17e5c67e8b3309554e222d3ecf85c0205ce8b33d0b7a5eb2d8e",
        "study-305062f78486be4c92ff5efc",
        30,
        "a2b1f4cb794b2e685a4640f4564ee2a0df2bb915e8571a7d34f7c126bc6a4cfd",
    ),
}


LATER = (
    *("JSD from optimal, by distance", "exploration-only share by progress"),
    *("withheld turns", "action accuracy of valid turns"),
)
"""Measures that were added since."""


def stored(folder: Path, name: str) -> Path:
    with closing(sqlite3.connect(folder / "run.db")) as database:
        database.executescript((DATA / f"{name}.sql").read_text(encoding="utf-8"))
        # They were written with a row for each step.
        rows = database.execute(f"SELECT episode, {STEP_COLUMNS} FROM steps ORDER BY episode, step").fetchall()
        steps = {number: [row[1:] for row in group] for number, group in groupby(rows, key=itemgetter(0))}
        database.execute("DROP TABLE steps")
        database.execute("CREATE TABLE steps (episode INTEGER PRIMARY KEY, walk BLOB NOT NULL, said BLOB NOT NULL)")
        for (number,) in database.execute("SELECT number FROM episodes").fetchall():
            database.execute("INSERT INTO steps VALUES (?, ?, ?)", (number, *pack_cells(steps.get(number, []))))
        reseal(database)
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.commit()
    return folder


@pytest.mark.parametrize("name", WRITTEN)
def test_a_run_that_was_stored_once_is_read_and_measured_as_it_was(tmp_path: Path, name: str) -> None:
    with Store(stored(tmp_path, name)) as store:
        study = store.study()
        rows = measure_store(store)
        kept = ~np.isin(rows.measure.astype(str), LATER)
        columns = (rows.measure, rows.value, rows.cluster, rows.episode_id, rows.step)
        lines = sorted(map(repr, zip(*(column[kept].tolist() for column in columns), strict=True)))
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        assert study is not None
        assert (content_hash(store), study.id, len(lines), digest) == WRITTEN[name]
        kinds = {type(world) for world in store.worlds()}
        assert kinds == {GridWorld if name == "grids" else TaskWorld}
        assert {world.id for world in study.worlds()} == {world.id for world in store.worlds()}
        specs = {spec.id for spec, _, _ in study.specs()}
        assert specs == store.episode_ids(), "its study goes on where it stopped"
