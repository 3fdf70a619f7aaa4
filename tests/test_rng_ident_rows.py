"""Floor 0: named random streams, content ids, checks of arrays, rows."""

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalscope._ground.checks import (
    check_distributions,
    check_finite,
    check_probability,
    check_shape,
    check_whole,
    freeze,
)
from goalscope._ground.ids import canonical_json, content_id
from goalscope._ground.rng import stream, uniform, words
from goalscope.stats.rows import WHOLE_EPISODE, Row, Rows

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_equal_names_give_equal_streams_and_other_names_give_others() -> None:
    series: list[tuple[Any, ...]] = [(0, "a"), (1, "a"), (0, "b"), (0, "a", 0), (0, "a", "0"), (-1, "a"), (2**70, "a")]
    draws = {names: stream(names[0], *names[1:]).integers(0, 2**62, 8).tolist() for names in series}
    assert draws[(0, "a")] == stream(0, "a").integers(0, 2**62, 8).tolist()
    assert len({tuple(drawn) for drawn in draws.values()}) == len(draws)


def test_single_uniform_numbers_are_uniform_and_belong_to_their_names() -> None:
    drawn = np.array([uniform(0, "u", index) for index in range(5000)])
    assert uniform(0, "u", 7) == drawn[7]
    assert len(set(drawn)) == 5000
    assert ((drawn >= 0) & (drawn < 1)).all()
    counts = np.histogram(drawn, bins=20, range=(0, 1))[0]
    assert ((counts - 250) ** 2 / 250).sum() < 43.8  # the 0.999 quantile of chi-square with 19 degrees of freedom
    others = np.array([stream(0, "u", index).random() for index in range(500)])
    assert abs(np.corrcoef(drawn[:500], others)[0, 1]) < 0.15
    with pytest.raises(ValueError, match="one name"):
        uniform(0)


@given(
    first=st.integers(0, 2**40),
    count=st.integers(1, 9),
    each=st.integers(1, 11),
    skip=st.integers(0, 8),
    attempt=st.integers(0, 3),
)
def test_words_of_an_item_do_not_depend_on_the_block_it_is_drawn_in(
    first: int, count: int, each: int, skip: int, attempt: int
) -> None:
    block = words(7, "series", first=first, count=count, each=each, attempt=attempt)
    item = skip % count
    alone = words(7, "series", first=first + item, count=1, each=each, attempt=attempt)
    assert block.shape == (count, each)
    assert (block[item] == alone[0]).all()


def test_words_of_other_attempts_and_items_differ() -> None:
    drawn = [words(0, "s", first=0, count=50, each=5, attempt=attempt) for attempt in range(3)]
    assert len(np.unique(np.concatenate(drawn))) == 3 * 50 * 5


@pytest.mark.parametrize("seed", [True, 1.0, "1", None])
def test_a_root_seed_is_a_whole_number(seed: object) -> None:
    with pytest.raises(TypeError, match="root seed"):
        stream(seed, "name")  # type: ignore[arg-type]


def test_a_stream_has_a_name_and_blocks_are_not_negative() -> None:
    with pytest.raises(ValueError, match="one name"):
        stream(0)
    with pytest.raises(ValueError, match=r"first.*count.*attempt.*>= 0"):
        words(0, "a", first=-1, count=1, each=1)


@given(PLAIN)
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: object) -> None:
    assert canonical_json({"a": value, "b": 1}) == canonical_json({"b": 1, "a": value})
    assert content_id("x", value) != content_id("y", value)


def test_ids_are_stable_across_versions() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": "é"}) == '{"a":"\\u00e9","b":[1,2.5,null]}'
    assert content_id("world", {"b": 1, "a": [True, 0.5]}) == "world-12abdbde32ee61e7aa0483af"
    assert len(content_id("world", 1)) == len("world-") + 24


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ({"a": [1, math.nan]}, ValueError, r"\$\.a\[1\]"),
        ({"a": math.inf}, ValueError, "finite"),
        ({1: 2}, TypeError, "text keys"),
        ({"a": {3}}, TypeError, "cannot hold set"),
        (np.zeros(2), TypeError, "cannot hold ndarray"),
        (b"x", TypeError, "cannot hold bytes"),
    ],
)
def test_what_canonical_json_refuses(value: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        canonical_json(value)


def test_freeze_leaves_the_argument_writable() -> None:
    array = np.zeros(3)
    frozen = freeze(array)
    array[0] = 1
    assert frozen.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        frozen[0] = 1
    assert freeze(frozen) is frozen


def test_checks_name_what_must_hold_and_what_was_given() -> None:
    assert check_shape("t", np.zeros((2, 3, 2)), "S A S") == {"S": 2, "A": 3}
    with pytest.raises(ValueError, match=r"t .*\[S, A, S\], got \[2, 3, 4\]"):
        check_shape("t", np.zeros((2, 3, 4)), "S A S")
    with pytest.raises(ValueError, match=r"u .*\[S\] with S = 2, got \[3\]"):
        check_shape("u", np.zeros(3), "S", {"S": 2})
    with pytest.raises(ValueError, match=r"p .*\[N, 4\], got \[2, 3\]"):
        check_shape("p", np.zeros((2, 3)), "N 4")
    with pytest.raises(ValueError, match=r"nan.*\(1,\)"):
        check_finite("u", np.array([0.0, math.nan]))
    with pytest.raises(ValueError, match=r"-0\.5 at index \(0, 1\)"):
        check_distributions("p", np.array([[1.5, -0.5]]))
    with pytest.raises(ValueError, match=r"0\.9 at index \(1,\)"):
        check_distributions("p", np.array([[1.0, 0.0], [0.4, 0.5]]))
    check_distributions("p", np.full((3, 3), 1 / 3))


def test_numbers_are_checked_and_become_plain_ones() -> None:
    whole, share = check_whole("n", np.int32(3), 1), check_probability("p", np.float32(0.5))
    assert (type(whole), whole, type(share), share) == (int, 3, float, 0.5)
    for wrong in (True, 0, 2.0, "2", None):
        with pytest.raises(ValueError, match=r"n .*>= 1"):
            check_whole("n", wrong, 1, "steps")
    for wrong in (True, -0.1, 1.1, math.nan, "0.5", None):
        with pytest.raises(ValueError, match=r"p .*\[0, 1\]"):
            check_probability("p", wrong)


def test_rows_keep_what_they_are_built_from() -> None:
    listed = [
        Row(measure="success", unit="share", value=1.0, cluster="g1", episode_id="e1", tags={"size": 7}),
        Row(measure="success", unit="share", value=0.0, cluster="g2", episode_id="e2", tags={"agent": "x"}),
        Row(measure="length", unit="steps", value=4.0, cluster="g1", step=2),
    ]
    rows = Rows.from_rows(listed)
    assert list(rows) == listed
    assert [row.cluster for row in rows.select(measure="success", size=7)] == ["g1"]
    assert rows.where(rows["value"] > 0.5)["value"].tolist() == [1.0, 4.0]
    assert [rows.known(tag).tolist() for tag in ("size", "none")] == [[True, False, False], [False] * 3]
    joined = Rows.concatenate([rows.select(measure="length"), rows.select(measure="success")])
    assert sorted(map(str, joined)) == sorted(map(str, rows))
    assert rows.to_frame()["unit"].tolist() == ["share", "share", "steps"]
    with pytest.raises(KeyError, match="'colour'"):
        rows["colour"]


def test_rows_refuse_uneven_columns_and_clashing_tags() -> None:
    with pytest.raises(ValueError, match="a column"):
        Rows.from_columns(measure="m", unit="u", value=[1.0], cluster=["g"], tags={"value": 3})
    whole = Rows.from_columns(measure="m", unit="u", value=[1.0, 2.0], cluster=["g", "h"])
    short = {name: column for name, column in whole.columns().items() if name != "unit"}
    with pytest.raises(ValueError, match="value"):
        Rows(**short, unit=whole.unit[:1], tags={})


# Random numbers by their written rule, so that recorded runs can be drawn again; rows picked and joined by hand.


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
