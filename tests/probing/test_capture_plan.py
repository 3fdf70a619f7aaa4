"""How steps are cut into batches and files: which sequences stand together, and what is computed once."""

from typing import Any

import numpy as np
import pytest
from architectures import tiny

from goalscope.inside.activations import CaptureSettings
from goalscope.inside.activations.capture import ReplayItem, ShardPlan, shards
from goalscope.inside.activations.hooks import DecoderBlocks


def item(ids: list[int], wanted: list[int], step: int = 0, shape: tuple[int, int] = (3, 3)) -> ReplayItem:
    return ReplayItem(
        episode=("episode", "world", "grid"),
        step=step,
        shape=shape,
        reconstructed=False,
        ids=np.array(ids, dtype=np.int64),
        positions={"pre": np.array(wanted, dtype=np.int64)},
    )


def cut(
    window: list[ReplayItem], first: int = 0, by_shape: bool = False, shares: bool = True, **sizes: Any
) -> list[ShardPlan]:
    settings = CaptureSettings(**sizes).on("cpu")
    return list(
        shards(
            window,
            first,
            settings=settings,
            item_bytes=10,
            shares_prefix=shares,
            by_shape=by_shape,
        )
    )


def steps(plans: list[ShardPlan]) -> list[list[list[int]]]:
    """The steps of each batch of each file."""
    return [[[one.step for group in batch for one in group] for batch in plan.batches] for plan in plans]


def prefix(window: list[ReplayItem], **options: Any) -> list[int]:
    (plan,) = cut(window, **options)
    return [int(one) for one in plan.prefix]


def test_batches_hold_sequences_of_one_length_and_no_more_tokens_than_they_may() -> None:
    window = [item([step] * length, [length - 1], step) for step, length in enumerate((5, 3, 5, 5, 3, 5))]
    assert steps(cut(window, batch_tokens=15)) == [[[1, 4], [0, 2, 3], [5]]]
    assert steps(cut(window, batch_tokens=14)) == [[[1, 4], [0, 2], [3, 5]]]
    assert steps(cut(window, batch_tokens=1)) == [[[1], [4], [0], [2], [3], [5]]]
    for plan in cut(window, batch_tokens=15):
        for batch in plan.batches:
            assert len({len(one.ids) for group in batch for one in group}) == 1
            assert all(np.array_equal(one.ids, group[0].ids) for group in batch for one in group)


def test_equal_sequences_stand_once_in_a_batch() -> None:
    window = [item([kind] * 4, [3], step) for step, kind in enumerate((7, 8, 7, 9, 8, 7))]
    (plan,) = cut(window, batch_tokens=8)
    assert steps([plan]) == [[[0, 2, 5, 1, 4], [3]]]
    assert [list(map(len, batch)) for batch in plan.batches] == [[3, 2], [1]]
    assert [group[0].ids.tolist() for group in plan.batches[0]] == [[7] * 4, [8] * 4]


def test_a_file_is_full_at_its_size_and_numbers_go_on() -> None:
    # Each step has two vectors of 10 bytes.
    window = [item([step] * 4, [2, 3], step) for step in range(5)]
    plans = cut(window, first=7, batch_tokens=4, shard_bytes=40)
    assert steps(plans) == [[[0], [1]], [[2], [3]], [[4]]]
    assert [plan.number for plan in plans] == [7, 8, 9]
    assert steps(cut(window, batch_tokens=4, shard_bytes=41)) == [[[0], [1], [2]], [[3], [4]]]
    assert steps(cut(window, batch_tokens=4, shard_bytes=100)) == [[[0], [1], [2], [3], [4]]]
    # One large batch is cut where the file is full, equal sequences too: they are then computed once more.
    same = [item([1] * 4, [2, 3], step) for step in range(5)]
    plans = cut(same, batch_tokens=100, shard_bytes=40)
    assert steps(plans) == [[[0, 1]], [[2, 3]], [[4]]]
    assert [len(batch) for plan in plans for batch in plan.batches] == [1, 1, 1]


def test_grids_of_different_shapes_go_into_different_files_where_it_is_asked() -> None:
    window = [item([step] * 4, [3], step, shape) for step, shape in enumerate(((5, 5), (3, 3), (5, 5)))]
    plans = cut(window, by_shape=True)
    assert steps(plans) == [[[1]], [[0, 2]]] and [plan.number for plan in plans] == [0, 1]
    assert steps(cut(window)) == [[[0, 1, 2]]]


def test_a_shared_beginning_ends_before_what_is_wanted_and_before_what_differs() -> None:
    common = list(range(70))
    window = [item([*common, step, 90], [71], step) for step in range(3)]
    assert prefix(window) == common
    # A wanted position is never a part of it, and one token of every sequence is left.
    assert prefix([item([*common, step, 90], [66, 71], step) for step in range(3)]) == common[:66]
    assert prefix([item(common, [69], 0), item(common, [69], 1)]) == common[:69]
    assert prefix([*window, item(common[:67], [66], 3)]) == common[:66]
    assert prefix([*window, item([*common[:65], 1, 2, 3], [67], 3)]) == common[:65]
    # With a beginning of 70 of 72 tokens, eight of the others fit where 16 tokens may.
    many = [item([*common, step, 90], [71], step) for step in range(10)]
    assert steps(cut(many, batch_tokens=16)) == [[list(range(8)), [8, 9]]]
    assert steps(cut(many, batch_tokens=16, share_prefix=False)) == [[[step] for step in range(10)]]


def test_a_beginning_that_is_not_worth_it_is_not_shared() -> None:
    common = list(range(64))
    window = [item([*common, 70 + step], [64], step) for step in range(2)]
    assert prefix(window) == common
    for lone in ({"share_prefix": False}, {"shares": False}):
        assert prefix(window, **lone) == []
    assert prefix(window[:1]) == []
    assert prefix([item([*common[1:], 70 + step], [63], step) for step in range(2)]) == []  # 63 tokens
    # A quarter of the mean length at least: 64 of 256 are, of 257 not.
    for length, wanted in ((256, common), (257, [])):
        long = [item([*common, 70 + step, *[5] * (length - 65)], [length - 1], step) for step in range(2)]
        assert prefix(long) == wanted


def test_a_model_reads_as_many_tokens_as_it_has_positions_and_those_of_its_embeddings() -> None:
    blocks = DecoderBlocks(tiny("gpt2"))
    blocks.check_ids(np.zeros(512, dtype=np.int64))
    blocks.check_ids(np.array([0, 127]))
    blocks.check_ids(np.zeros(0, dtype=np.int64))
    for ids, says in (
        (np.zeros(513, dtype=np.int64), "513 tokens.*512 positions"),
        (np.array([3, 128, 5]), r"0\.\.127, .*got 128"),
        (np.array([3, -1]), r"0\.\.127, .*got -1"),
    ):
        with pytest.raises(ValueError, match=says):
            blocks.check_ids(ids)
