"""Packed rows: they come back as they were put, and what is none of ours is refused."""

import functools
import json
import math
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope.runs import Store, content_hash
from goalscope.runs.stored_rows import GROUP_ROWS, cut, pack, unpack
from goalscope.stats.rows import Coded, Row, Rows, encoded, joined, numbered

TAGS: tuple[Any, ...] = (1, True, 1.0, "1", None, "two words", 0.25, -7, "é")


def drawn(count: int, seed: int) -> list[Row]:
    """Rows of a few measures, grids and episodes, with tags of all kinds; undefined and infinite values among them."""
    draw = random.Random(seed)
    values = (0.0, 1.0, math.nan, math.inf, -math.inf, 0.1, 1e-300)
    found = []
    for number in range(count):
        tags = {name: draw.choice(TAGS) for name in ("a", "b", "size") if draw.random() < 0.7}
        found.append(
            Row(
                measure=draw.choice(("success", "steps", "m\x00")),
                unit=draw.choice(("share", "steps")),
                value=draw.choice(values) if draw.random() < 0.9 else draw.random(),
                cluster=f"grid-{draw.randrange(5)}",
                episode_id=draw.choice(("", f"episode-{number}")),
                step=draw.choice((-1, 0, 7, 300, 2**40)),
                tags={name: tag for name, tag in tags.items() if tag is not None},
            )
        )
    return found


def told(rows: Rows) -> list[str]:
    return [repr((row.measure, row.unit, row.value, row.cluster, row.episode_id, row.step, row.tags)) for row in rows]


@pytest.mark.parametrize("count", [0, 1, 2, 300, 1000])
def test_packed_rows_come_back_as_they_were(count: int) -> None:
    rows = Rows.from_rows(drawn(count, seed=count))
    packed = pack(rows)
    back = unpack(packed.data, packed.count)
    ordered = [repr(replaced(row)) for row in rows]
    assert [repr(replaced(row)) for row in back] == ordered
    assert json.loads(packed.measures) == list(dict.fromkeys(rows.measure.tolist()))


def replaced(row: Row) -> tuple[Any, ...]:
    tags = sorted((name, type(tag).__name__, tag) for name, tag in row.tags.items())
    return row.measure, row.unit, row.value, row.cluster, row.episode_id, row.step, tags


def test_columns_by_codes_do_what_arrays_of_objects_do() -> None:
    plain = Rows.from_rows(drawn(400, seed=5))
    packed = pack(plain)
    coded = unpack(packed.data, packed.count)
    mask = np.arange(400) % 3 == 0
    for one, other in ((plain, coded), (plain.where(mask), coded.where(mask))):
        for name in ("measure", "cluster", "episode_id", "a", "size", "absent"):
            codes, labels = other.numbered(name)
            wanted = one.columns().get(name, np.full(len(one), None, dtype=object)).tolist()
            listed = list(dict.fromkeys(wanted))
            assert labels == listed and [labels[code] for code in codes] == wanted
            assert other.known(name).tolist() == [name in one.tags and tag is not None for tag in wanted]
        assert told(other.select(measure="steps", size=1)) == told(one.select(measure="steps", size=1))
        assert other.among("a", [1, "1"]).tolist() == one.among("a", [1, "1"]).tolist()
    both = Rows.concatenate([coded.where(mask), plain.where(~mask)])
    assert sorted(told(both)) == sorted(told(plain))
    kinds = encoded(np.array([1, True, 1.0, 1], dtype=object))
    assert [type(label) for label in kinds.labels] == [int, bool, float] and kinds.codes.tolist() == [0, 1, 2, 0]
    assert numbered(kinds)[0].tolist() == numbered(kinds.decoded())[0].tolist() == [0] * 4
    column = joined([kinds, np.array(["x", 1], dtype=object)])
    assert isinstance(column, Coded) and column.decoded().tolist() == [1, True, 1.0, 1, "x", 1]


def test_long_runs_of_a_measure_are_groups_of_their_own() -> None:
    names = ["a"] * 5 + ["b"] * (GROUP_ROWS + 2000) + ["c", "d"] * 10
    rows = Rows.from_columns(measure=names, unit="u", value=np.arange(len(names)), cluster="g")
    parts = list(cut(rows))
    assert [sorted(set(part.measure.tolist())) for part in parts] == [["a"], ["b"], ["b"], ["c", "d"]]
    assert np.concatenate([part.value for part in parts]).tolist() == list(range(len(names)))


@functools.cache  # one of them unpacks to 128 MiB
def hostile() -> dict[str, tuple[Any, int]]:
    packed = pack(Rows.from_rows(drawn(20, seed=1)))
    head, _, numbers = zlib.decompress(packed.data).partition(b"\n")

    def changed(**about: Any) -> bytes:
        return zlib.compress(json.dumps({**json.loads(head), **about}).encode() + b"\n" + numbers)

    columns = json.loads(head)["columns"]
    few = [[name, width, labels[:-1] if name == "measure" else labels] for name, width, labels in columns]
    return {
        "another number of rows": (packed.data, 19),
        "no bytes": ("text", 20),
        "not compressed": (b"\x00" * 40, 20),
        "cut short": (packed.data[:-9], 20),
        "something behind": (packed.data + b"x", 20),
        "no JSON": (zlib.compress(b"[\n"), 20),
        "numbers that lack": (zlib.compress(head + b"\n" + numbers[:-4]), 20),
        "numbers that are left": (zlib.compress(head + b"\n" + numbers + b"\x00"), 20),
        "codes without labels": (changed(columns=few), 20),
        "no values": (changed(columns=columns[:-1]), 20),
        "a column twice": (changed(columns=[*columns[:4], columns[4], *columns[4:]]), 20),
        "a tag of another kind": (changed(columns=[*columns[:4], ["tag.x", "", [["a"]]], *columns[4:]]), 20),
        "too large": (zlib.compress(head + b"\n" + bytes(1 << 27)), 20),
    }


@pytest.mark.parametrize("name", hostile())
def test_what_is_no_group_is_refused(name: str) -> None:
    data, count = hostile()[name]
    with pytest.raises(ValueError, match=r"must|got"):
        unpack(data, count)


def test_parts_are_read_in_the_order_of_their_places(tmp_path: Path) -> None:
    listed = drawn(60, seed=2)
    parts = [Rows.from_rows(listed[begin : begin + 10]) for begin in range(0, 60, 10)]
    with Store(tmp_path, "w") as store:
        store.put_rows(iter([(place % 3, part) for place, part in enumerate(parts)]), source="s")
        wanted = [row for place in range(3) for part in parts[place::3] for row in part]
        assert [repr(replaced(row)) for row in store.rows()] == [repr(replaced(row)) for row in wanted]
        before = content_hash(store)
        with pytest.raises(RuntimeError, match="stop"):
            store.put_rows(stopping(parts[0]), source="s")
        assert content_hash(store) == before, "rows are replaced whole or not at all"


def stopping(rows: Rows) -> Any:
    yield 0, rows
    raise RuntimeError("stop")
