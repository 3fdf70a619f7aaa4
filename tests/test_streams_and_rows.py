"""Random numbers by their written rule, so that recorded runs can be drawn again; rows picked and joined by hand."""

import hashlib
import math

import numpy as np
import pytest

from goalscope._ground.rng import stream, uniform, words
from goalscope.stats.rows import WHOLE_EPISODE, Row, Rows


def literal_digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def test_numbers_follow_from_the_hash_of_seed_and_names() -> None:
    digest = literal_digest('[3,"agent","e-1",7]')
    assert uniform(3, "agent", "e-1", 7) == (int.from_bytes(digest[16:24], "little") >> 11) / 2**53
    wanted = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    assert stream(3, "agent", "e-1", 7).integers(0, 2**62, 5).tolist() == wanted.integers(0, 2**62, 5).tolist()


def test_words_are_the_blocks_of_one_counter() -> None:
    """Philox gives four words a block: an item of five words uses two blocks, redraws count in the third place."""
    key = int.from_bytes(literal_digest('[3,"series"]')[:16], "little")
    for attempt in (0, 2):
        counter = np.array([6, 0, attempt, 0], dtype=np.uint64)
        raw = np.random.Philox(key=key, counter=counter).random_raw(16).reshape(2, 8)
        assert (words(3, "series", first=3, count=2, each=5, attempt=attempt) == raw[:, :5]).all()
    edge = words(3, "series", first=2**64 - 1, count=2, each=4)
    assert (edge[1] == words(3, "series", first=2**64, count=1, each=4)[0]).all()
    assert (edge[1] != words(3, "series", first=0, count=1, each=4)[0]).any()
    assert words(3, "series", first=0, count=0, each=3).shape == (0, 3)
    for wrong in ({"count": -1}, {"each": 0}, {"attempt": -1}):
        with pytest.raises(ValueError, match="must be >= 0 and each >= 1"):
            words(3, "series", **{"first": 0, "count": 1, "each": 1, **wrong})


def listed() -> list[Row]:
    return [
        Row(measure="a", unit="share", value=1.0, cluster="g", episode_id="e", step=0, tags={"size": 7, "agent": "x"}),
        Row(measure="a", unit="share", value=math.nan, cluster="g", episode_id="e", step=1, tags={"size": 9}),
        Row(measure="b", unit="bits", value=0.5, cluster="h"),
    ]


def test_rows_are_picked_by_columns_tags_and_values() -> None:
    rows = Rows.from_rows(listed())
    assert rows.select(step=1).step.tolist() == [1] and rows.select(value=0.5).measure.tolist() == ["b"]
    assert rows.select(measure="a", step=0, agent="x").value.tolist() == [1.0]
    assert rows.select(size=7, measure="b").value.tolist() == [] and len(rows.select()) == 3
    assert rows.select(agent=None).step.tolist() == [1, WHOLE_EPISODE]
    assert rows.among("measure", ["b", "c"]).tolist() == [False, False, True]
    assert rows.among("size", [9, None]).tolist() == [False, True, True]
    assert rows.known("size").tolist() == [True, True, False] and rows.known("agent").tolist() == [True, False, False]
    assert rows.where(np.ones(3, dtype=bool)) is rows and len(rows.where(np.zeros(3, dtype=bool))) == 0
    assert rows.where(np.array([False, True, False]))["size"].tolist() == [9]


def test_rows_of_different_tags_are_joined_in_order() -> None:
    first, second = Rows.from_rows(listed()[:1]), Rows.from_rows(listed()[1:])
    joined = Rows.concatenate([second, first])
    assert joined.measure.tolist() == ["a", "b", "a"] and joined.step.tolist() == [1, WHOLE_EPISODE, 0]
    assert joined["agent"].tolist() == [None, None, "x"] and joined["size"].tolist() == [9, None, 7]
    assert list(joined)[1:] == [listed()[2], listed()[0]] and next(iter(joined)).tags == {"size": 9}
    empty = Rows.concatenate([])
    assert len(empty) == 0 and [column.dtype.kind for column in (empty.value, empty.step)] == ["f", "i"]


def test_one_text_number_or_tag_is_repeated() -> None:
    rows = Rows.from_columns(measure="m", unit=["u", "v"], value=[1, 2], cluster=["g", "h"], step=4, tags={"size": 7})
    assert (rows.measure.tolist(), rows.unit.tolist(), rows.episode_id.tolist()) == (["m", "m"], ["u", "v"], ["", ""])
    assert (rows.step.tolist(), rows["size"].tolist(), rows.value.tolist()) == ([4, 4], [7, 7], [1.0, 2.0])
    assert Rows.from_columns(measure="m", unit="u", value=1.0, cluster=["g"]).step.tolist() == [WHOLE_EPISODE]
