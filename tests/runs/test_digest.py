"""The content hash against a literal version: one line of JSON for each thing that a store holds."""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope._ground.ids import canonical_json
from goalscope.measures import measure_episodes
from goalscope.runs import Store, Study, content_hash, run, stored_rows
from goalscope.runs.codec import EPISODE_COLUMNS, WORLD_COLUMNS, step_cells
from goalscope.runs.hashing import keep_content_hash, kept_content_hash, ordered_rows
from goalscope.stats.rows import Rows

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
        for cells in step_cells(store.steps_of([number])[number]):
            add("step", cells)
    rows = [
        (source, one.measure, one.unit, one.value, one.cluster, one.episode_id, one.step, canonical_json(one.tags))
        for source, part in store.row_groups()
        for one in part
    ]
    for *names, value, grid, episode, step, tags in sorted(rows, key=in_order):
        add("row", (*names, None if math.isnan(value) else value, grid, episode, step, tags))
    return digest.hexdigest()


def in_order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """What SQLite ordered rows by: values that are undefined come first."""
    return (*row[:3], not math.isnan(row[3]), 0.0 if math.isnan(row[3]) else row[3], *row[4:])


def two_agents(trajectories: int) -> Study:
    return Study.parse(
        {
            "seed": 1,
            "worlds": [{"kind": "grid", "sizes": [5, 7], "densities": [0.5], "count": 2}],
            "agents": [{"kind": "optimal"}, {"kind": "random"}],
            "trajectories": trajectories,
        }
    )


def test_the_hash_is_that_of_the_literal_lines(tmp_path: Path) -> None:
    run(two_agents(40), tmp_path)
    with Store(tmp_path, "w") as store:
        empty = content_hash(store)
        assert empty == literal(store)
        store.put_rows(measure_episodes(store.episodes()), source=CUT)
        assert len(store.rows()) > 1024  # more than one page
        assert content_hash(store) == literal(store) != empty
        whole = [line for page in ordered_rows(store) for line in page]
        assert [line for page in ordered_rows(store, most=50) for line in page] == whole


def test_rows_are_ordered_alike_whatever_number_is_sorted_at_a_time(tmp_path: Path) -> None:
    run(two_agents(1), tmp_path)
    rng = np.random.default_rng(0)
    values = np.array([math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.0, -np.finfo(np.float64).max, 0.1 + 0.2])
    sizes = [60, 1, 140, 4]  # parts of a source, and groups of many measures and few
    with Store(tmp_path, "w") as store:
        for source in ("probe 3", "behaviour"):
            rows = [
                Rows.from_columns(
                    measure=f"measure {number % 2}",
                    unit=list(rng.choice(["nats", "bits", "\u00e9"], size)),
                    value=rng.choice(values, size),
                    cluster=list(rng.choice(["", "grid b", "grid a"], size)),
                    episode_id=list(rng.choice(["", "episode 10", "episode 9"], size)),
                    step=rng.integers(-1, 3, size),
                    tags={"tag": rng.choice(np.array([None, 1, 1.0, True, "1", "\u00e9"], dtype=object), size)},
                )
                for number, size in enumerate(sizes)
            ]
            store.put_rows(Rows.concatenate(rows), source=source)
        whole = [repr(line) for page in ordered_rows(store, most=1 << 21) for line in page]
        assert len(whole) == 2 * sum(sizes)
        for most in (1, 8, 70):
            assert [repr(line) for page in ordered_rows(store, most=most) for line in page] == whole
        assert content_hash(store) == literal(store)


def test_many_rows_are_read_from_the_store_a_constant_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(two_agents(1), tmp_path)
    one, read = "measure", list[int]()
    rows = Rows.from_columns(measure=one, unit="nats", value=np.arange(40_000.0) % 7, cluster=["grid"] * 40_000)
    with Store(tmp_path, "w") as store:
        store.put_rows(rows, source="behaviour")
        monkeypatch.setattr(stored_rows, "_opened", counted(stored_rows._opened, read))
        assert sum(len(page) for page in ordered_rows(store, most=1000)) == len(rows)
        assert read.count(16_384) == 2 * 2  # both whole groups, twice


def counted(work: Callable[[bytes, int], Any], read: list[int]) -> Callable[[bytes, int], Any]:
    def inside(data: bytes, count: int) -> Any:
        read.append(count)
        return work(data, count)

    return inside


def test_the_kept_hash_is_believed_until_something_is_written(tmp_path: Path) -> None:
    run(two_agents(2), tmp_path)
    with Store(tmp_path, "w") as store:
        kept = keep_content_hash(store)
        assert kept == kept_content_hash(store) == content_hash(store)
        store.put_info("told", "what enters no hash")
        assert kept == kept_content_hash(store) == content_hash(store)
        store.put_rows(measure_episodes(store.episodes()), source="behaviour")
        assert kept != kept_content_hash(store) == content_hash(store)
        measured = keep_content_hash(store)
        store.put_agents([("agent:0", "another", {})])
        assert measured != kept_content_hash(store) == content_hash(store)


def test_an_open_store_is_hashed_once_until_something_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(two_agents(2), tmp_path)
    called = list[Store]()

    def counted(store: Store) -> str:
        called.append(store)
        return content_hash(store)

    monkeypatch.setattr("goalscope.runs.hashing.content_hash", counted)
    with Store(tmp_path, "w") as store:
        first = kept_content_hash(store)
        assert first == kept_content_hash(store) == content_hash(store) and len(called) == 1
        store.put_agents([("agent:0", "another", {})])
        assert first != kept_content_hash(store) == kept_content_hash(store) == content_hash(store)
        assert len(called) == 2
    with Store(tmp_path) as again:
        assert kept_content_hash(again) == content_hash(again) and len(called) == 3


def test_a_kept_hash_is_read_and_not_found_out_again(tmp_path: Path) -> None:
    run(two_agents(2), tmp_path)
    with Store(tmp_path, "w") as store:
        keep_content_hash(store)
        state = store.info()["content_hash"]["state"]
        store.put_info("content_hash", {"hash": "0" * 64, "state": state})
        assert kept_content_hash(store) == "0" * 64
        for wrong in ({"hash": "0" * 64, "state": ""}, {"hash": "<b>", "state": state}, "text", [1], None):
            store.put_info("content_hash", wrong)
            assert kept_content_hash(store) == content_hash(store)
