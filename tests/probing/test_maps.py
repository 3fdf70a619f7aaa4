"""Decoded maps and what is optimal on them, against literal versions and known answers."""

import itertools
from typing import Any

import numpy as np
import pytest
from believed import FRAME, certain, literal_optimal, random_posterior, rooms
from hypothesis import given, settings
from hypothesis import strategies as st

from families import examples
from goalscope._ground.rng import stream
from goalscope.inside.probing import (
    AGENT,
    CLASSES,
    GOAL,
    OPEN,
    PADDING,
    WALL,
    DecodedMaps,
    decode_maps,
    likeliest,
    place_weights,
)
from goalscope.inside.probing.beliefs import expected_optimality, optimal_sets
from goalscope.worlds.planning import distances_batch, optimal_batch


def test_the_map_of_the_truth_is_the_truth() -> None:
    labels = rooms(20)
    maps = decode_maps(certain(labels))
    assert np.array_equal(maps.layout.reshape(20, -1), labels)
    for index, grid in enumerate(labels.reshape(-1, FRAME, FRAME)):
        assert tuple(maps.agent[index]) == tuple(np.argwhere(grid == AGENT)[0])
        assert tuple(maps.goal[index]) == tuple(np.argwhere(grid == GOAL)[0])
        assert np.array_equal(maps.closed[index], (grid == WALL) | (grid == PADDING))


def test_decoding_agrees_with_a_literal_version() -> None:
    posterior = random_posterior(30)
    maps = decode_maps(posterior)
    for index, grid in enumerate(posterior):
        best: dict[int, tuple[float, tuple[int, int]]] = {}
        for row, col in itertools.product(range(5), range(6)):
            cell = grid[row, col].tolist()
            assert maps.layout[index, row, col] == cell.index(max(cell))
            for label in (AGENT, GOAL):
                if label not in best or cell[label] > best[label][0]:
                    best[label] = (cell[label], (row, col))
        assert tuple(maps.agent[index]) == best[AGENT][1]
        assert tuple(maps.goal[index]) == best[GOAL][1]


def test_equal_chances_are_read_by_row_and_in_order_of_classes() -> None:
    maps = decode_maps(np.full((1, 3, 4, len(CLASSES)), 1 / len(CLASSES)))
    assert maps.agent.tolist() == maps.goal.tolist() == [[0, 0]]
    assert not maps.layout.any()
    posterior = random_posterior(4)
    ranked = likeliest(posterior, GOAL, 99)
    chance = posterior[..., GOAL].reshape(4, -1)
    assert ranked.shape == chance.shape
    assert (np.diff(np.take_along_axis(chance, ranked, axis=1)) <= 0).all()
    assert np.allclose(place_weights(posterior, GOAL), chance / chance.sum(axis=1, keepdims=True))


def test_a_map_as_text() -> None:
    layout = np.array([[[WALL, OPEN, AGENT], [GOAL, OPEN, PADDING]]], dtype=np.int8)
    maps = DecodedMaps(layout=layout, agent=np.array([[0, 1]]), goal=np.array([[1, 0]]))
    assert maps.text(0) == ("#Aa", "G_ ")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p[..., :3], "posterior must have shape"),
        (lambda p: p * 2, "must sum to 1"),
        (lambda p: np.where(p > 0.9, np.nan, p), "must be finite"),
        (lambda p: p.reshape(-1, *p.shape[2:]), "posterior must have shape"),
    ],
)
def test_what_is_no_posterior_is_refused(change: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode_maps(change(random_posterior(20)))


def test_a_state_without_any_chance_of_a_goal_is_refused() -> None:
    posterior = certain(rooms(3)).copy()
    posterior[1][posterior[1, ..., GOAL] == 1] = np.eye(len(CLASSES))[OPEN]
    with pytest.raises(ValueError, match=r"class goal .* state 1\b"):
        decode_maps(posterior)


@settings(max_examples=examples(40), deadline=None)
@given(
    height=st.integers(1, 7),
    width=st.sampled_from([1, 3, 7, 8, 9, 15, 16, 17, 33, 63]),
    share=st.floats(0, 1),
    seed=st.integers(0, 999),
)
def test_optimal_sets_agree_with_the_planner_of_whole_grids(height: int, width: int, share: float, seed: int) -> None:
    rng = stream(seed, "ways")
    closed = rng.random((3, height, width)) < share
    agent, goal = rng.integers(0, height * width, (2, 3, 2))
    found = optimal_sets(closed, agent, goal)
    for index, one, other in itertools.product(range(3), range(2), range(2)):
        cells = [divmod(int(cell), width) for cell in (agent[index, one], goal[index, other])]
        assert set(np.flatnonzero(found[index, one, other]).tolist()) == literal_optimal(closed[index], *cells)


def test_expected_optimality_is_the_sum_over_all_pairs() -> None:
    posterior = random_posterior(6, 4, 5, seed=2)
    closed = decode_maps(posterior).closed
    agent, goal = place_weights(posterior, AGENT), place_weights(posterior, GOAL)
    found = expected_optimality(closed, agent, goal)
    for index in range(6):
        literal = np.zeros(4)
        for one, other in itertools.product(range(20), range(20)):
            for action in literal_optimal(closed[index], divmod(one, 5), divmod(other, 5)):
                literal[action] += agent[index, one] * goal[index, other]
        assert np.allclose(found[index], literal, atol=1e-12)


def test_optimal_sets_agree_with_the_batched_distances_at_full_size() -> None:
    rng = stream(3, "ways at 15")
    closed = rng.random((200, 15, 15)) < 0.3
    goal = rng.integers(0, 225, 200)
    cells = np.stack(np.divmod(goal, 15), axis=1)
    closed[np.arange(200), cells[:, 0], cells[:, 1]] = False
    other = optimal_batch(distances_batch(closed, cells)).reshape(200, 225, 4)
    found = optimal_sets(closed, np.broadcast_to(np.arange(225), (200, 225)), goal[:, None])[:, :, 0]
    walked = ~closed.reshape(200, 225)
    assert walked.sum() > 20000
    assert np.array_equal(found[walked], other[walked])


def test_maps_that_are_too_wide_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 63 columns"):
        optimal_sets(np.zeros((1, 2, 64), dtype=bool), np.zeros((1, 1), dtype=int), np.zeros((1, 1), dtype=int))
