"""The content hash against a literal version: one line of JSON for each thing that a store holds."""

import hashlib
import json
from pathlib import Path
from typing import Any

from goalscope.measures import measure_episodes
from goalscope.runs import Store, Study, content_hash, run
from goalscope.runs.codec import EPISODE_COLUMNS, STEP_COLUMNS, WORLD_COLUMNS

CUT = 'a],["b\\"],["row'
"""A name that holds the mark between two lists of JSON, as far as a text can."""


def literal(store: Store) -> str:
    digest = hashlib.sha256()

    def add(kind: str, cells: tuple[Any, ...]) -> None:
        plain = [cell.hex() if isinstance(cell, bytes) else cell for cell in cells]
        digest.update(json.dumps([kind, *plain], separators=(",", ":")).encode() + b"\n")

    for kind, sql in (
        ("study", "SELECT id FROM study ORDER BY id"),
        ("agent", "SELECT id, name FROM agents ORDER BY id"),
        ("world", f"SELECT {WORLD_COLUMNS} FROM worlds ORDER BY id"),
        ("artifact", "SELECT id, kind, tags FROM artifacts ORDER BY id"),
    ):
        for cells in store.query(sql):
            add(kind, cells)
    for number, *header in store.query(f"SELECT number, {EPISODE_COLUMNS} FROM episodes ORDER BY id"):
        add("episode", tuple(header))
        for cells in store.query(f"SELECT {STEP_COLUMNS} FROM steps WHERE episode = ? ORDER BY step", (number,)):
            add("step", cells)
    columns = "source, measure, unit, value, grid_id, episode_id, step, tags"
    for cells in store.query(f"SELECT {columns} FROM rows ORDER BY {columns}"):
        add("row", cells)
    return digest.hexdigest()


def test_the_hash_is_that_of_the_literal_lines(tmp_path: Path) -> None:
    study = Study.parse(
        {
            "seed": 1,
            "worlds": [{"kind": "grid", "sizes": [5, 7], "densities": [0.5], "count": 2}],
            "agents": [{"kind": "optimal"}, {"kind": "random"}],
            "trajectories": 40,
        }
    )
    run(study, tmp_path)
    with Store(tmp_path, "w") as store:
        empty = content_hash(store)
        assert empty == literal(store)
        store.put_rows(measure_episodes(store.episodes()), source=CUT)
        assert len(store.rows()) > 1024  # more than one page
        assert content_hash(store) == literal(store) != empty
