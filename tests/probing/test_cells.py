"""Labels, splits and controls at their edges, against values worked out by hand."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from planted import cells_of, noise

from goalscope.inside.probing import (
    AGENT,
    GOAL,
    OPEN,
    PADDING,
    WALL,
    Cells,
    Source,
    Split,
    known_walls,
    label_cells,
    split_by_grid,
)
from goalscope.inside.probing.inputs import input_features, shuffled_rows, text_features
from goalscope.runs import Episode, EpisodeSpec, GridWorld, Step
from goalscope.worlds import Action, Grid, State


def drawn(cells: Cells) -> list[list[str]]:
    square = cells.labels.reshape(len(cells), cells.frame, cells.frame)
    return [["".join("AG#_."[label] for label in row) for row in grid] for grid in square.tolist()]


def cells_with(grids: list[str], **changes: Any) -> Cells:
    """Cells of 3 x 3 whose labels say nothing, one step for each name of a grid."""
    count = len(grids)
    numbered: Counter[str] = Counter()
    steps = []
    for grid in grids:
        steps.append(numbered[grid])
        numbered[grid] += 1
    given: dict[str, Any] = {
        "frame": 3,
        "labels": np.full((count, 9), OPEN, dtype=np.int8),
        "shape": np.full((count, 2), 3),
        "density": np.full(count, 0.5),
        "episode_id": np.array([f"episode {grid}" for grid in grids], dtype=object),
        "step": np.array(steps),
        "cluster": np.array(grids, dtype=object),
        "reasoning": np.full(count, "", dtype=object),
    }
    return Cells(**(given | changes))


def part(cells: Cells, tested: set[str]) -> Split:
    mask = np.isin(cells.cluster, sorted(tested))
    return Split(train=~mask, test=mask, cluster=cells.cluster)


def test_grids_in_a_frame_of_another_size_keep_their_cells() -> None:
    labels = np.array([[WALL, AGENT, PADDING], [GOAL, OPEN, PADDING], [PADDING] * 3]).reshape(1, 9)
    cells = cells_of(labels, 1, 3, np.array([[2, 2]]))
    assert drawn(cells.framed(2)) == [["#A", "G_"]]
    assert drawn(cells.framed(3)) == drawn(cells) == [["#A.", "G_.", "..."]]
    assert drawn(cells.framed(4)) == [["#A..", "G_..", "....", "...."]]
    wide = cells.framed(4)
    assert wide.inside()[0].nonzero()[0].tolist() == [0, 1, 4, 5] and not wide.inside(1).any()
    with pytest.raises(ValueError, match=r"1 x 1, .*2 to 2"):
        cells.framed(1)
    assert len(cells.where(np.array([False])).framed(1)) == 0


def test_grids_that_are_no_part_of_their_frame_are_refused() -> None:
    for shape, says in (((4, 3), "got sides from 3 to 4"), ((0, 3), "got sides from 0 to 3")):
        with pytest.raises(ValueError, match=f"3 x 3, {says}"):
            cells_with(["a"], shape=np.array([shape]))
    assert cells_with(["a"], shape=np.array([(1, 3)])).inside().sum() == 3


def test_steps_that_an_episode_does_not_have_are_refused() -> None:
    world = GridWorld(grid=Grid.parse("#####\n#A_G#\n#####"))
    spec = EpisodeSpec(world_id=world.id, agent_id="agent", trajectory=0, seed=0, horizon=3)
    steps = (Step(index=0, state=State((1, 1)), action=Action.RIGHT),)
    episode = Episode(spec=spec, world=world, agent="a", steps=steps, final=State((1, 2)), outcome="horizon")
    one = noise(
        cells_of(np.zeros((1, 9)), 1, 3),
        episode_id=np.array([episode.id], dtype=object),
        shape=np.array([[3, 5]]),
    )
    found = label_cells(one, [episode], frame=5)
    assert np.isnan(found.density).all() and found.reasoning.tolist() == [""]  # neither was given
    for number in (1, -1):
        other = noise(
            cells_of(np.zeros((1, 9)), 1, 3),
            episode_id=one.episode_id,
            shape=one.shape,
            step=np.array([number]),
        )
        with pytest.raises(ValueError, match=f"{episode.id} has no step {number}\\b"):
            label_cells(other, [episode], frame=5)


def test_activations_of_another_number_of_steps_are_refused() -> None:
    cells = cells_of(np.zeros((4, 9)), 2, 3)
    cells.check_aligned(noise(cells))
    with pytest.raises(ValueError, match=r"4 steps.*got 3"):
        cells.check_aligned(noise(cells.where(np.arange(3))))
    turned = np.array([0, 1, 3, 2])
    with pytest.raises(ValueError, match=r"episode-001 step 1 .* episode-001 step 0"):
        cells.check_aligned(noise(cells.where(turned)))


def test_every_shape_and_density_is_tested_with_the_same_share_of_its_grids() -> None:
    kinds = {(3, 0.0): 8, (3, 0.5): 3, (2, 0.5): 14, (2, 1.0): 1, (3, np.nan): 2}
    names, shapes, density = [], [], []
    for number, ((size, dense), count) in enumerate(kinds.items()):
        for at in range(count):
            for _ in range(1 + at % 3):  # grids of one to three steps: grids are drawn, not steps
                names.append(f"{number}-{at:02d}")
                shapes.append((size, size))
                density.append(dense)
    cells = cells_with(names, shape=np.array(shapes), density=np.array(density))
    for test, wanted in ((0.25, [2, 1, 4, 0, 1]), (0.01, [1, 1, 1, 0, 1]), (0.99, [7, 2, 13, 0, 1])):
        split = split_by_grid(cells, test=test)
        assert np.array_equal(split.train, ~split.test)
        found = Counter(grid.partition("-")[0] for grid in set(cells.cluster[split.test].tolist()))
        assert [found[str(number)] for number in range(len(kinds))] == wanted
    tested = {seed: tuple(cells.cluster[split_by_grid(cells, seed=seed).test].tolist()) for seed in range(5)}
    assert len(set(tested.values())) > 1
    with pytest.raises(ValueError, match="test part"):
        split_by_grid(cells_with(["alone", "alone"]))


def test_turned_versions_of_one_grid_stay_on_one_side() -> None:
    names = [f"{at:02d}" for at in range(20) for _ in range(2)]
    shapes = np.array([(2, 3), (3, 2)] * 20)
    split = split_by_grid(cells_with(names, shape=shapes))
    assert (split.test[::2] == split.test[1::2]).all() and split.test.sum() == 10
    # Where steps of one grid are told to be of several kinds, their order decides nothing.
    mixed = cells_with(names, density=np.array([0.25, 0.5] * 20))
    there = split_by_grid(mixed).test
    assert there.sum() == 10 and np.array_equal(split_by_grid(mixed.where(np.arange(40)[::-1])).test[::-1], there)


def test_the_arrays_of_a_split_belong_to_the_same_steps() -> None:
    good = {"train": np.array([True, False]), "test": np.array([False, True]), "cluster": np.array(["a", "b"])}
    assert len(Split(**good).cluster) == 2
    for name in good:
        with pytest.raises(ValueError, match="shape"):
            Split(**(good | {name: np.append(good[name], good[name][:1])}))


def test_walls_that_stand_in_the_training_split_too_are_counted_by_grid() -> None:
    names = ["a", "b", "c", "c", "c", "d", "e"]
    walls = {"a": [0, 1], "b": [4], "c": [4], "d": [1, 4], "e": []}
    labels = np.full((len(names), 9), OPEN, dtype=np.int8)
    for row, name in enumerate(names):
        labels[row, walls[name]] = WALL
        labels[row, 8] = AGENT if row % 2 else GOAL  # what stands on the floor is no wall
    cells = cells_with(names, labels=labels)
    assert known_walls(cells, part(cells, {"c", "d", "e"})) == pytest.approx(1 / 3)
    assert known_walls(cells, part(cells, {"d", "e"})) == 0


def test_steps_of_a_grid_get_those_of_one_other_grid_in_order_and_from_its_start_again() -> None:
    cells = cells_with(["a", "b", "b", "b", "a", "left", "left", "x", "y"])
    split = Split(train=np.arange(9) < 5, test=np.arange(9) > 6, cluster=cells.cluster)
    # a holds the rows 0 and 4, b the rows 1 to 3; steps in no part keep their own.
    assert shuffled_rows(cells, split).tolist() == [1, 0, 4, 0, 2, 5, 6, 8, 7]
    many = cells_with([f"{at:02d}" for at in range(24)])
    both = part(many, {f"{at:02d}" for at in range(12)})
    assert len({tuple(shuffled_rows(many, both, seed=seed).tolist()) for seed in range(3)}) == 3


def test_the_text_control_reads_the_first_four_pairs_and_the_commonest_words() -> None:
    said = [
        "(0,1) (1,2) (2,0) (1,1) (0,0) z z z a",
        "z a c",
        "(12345,1) Up, up!",
        "z",
    ]
    cells = cells_with(["a", "b", "c", "d"], reasoning=np.array(said, dtype=object))
    train = np.array([True, True, True, False])
    found = text_features(cells, train)
    vectors = found.vectors
    assert found.source == Source(site="text", layer=-1, model="", width=32)
    assert input_features(cells).source == Source(site="bag", layer=-1, model="", width=7)
    pairs = vectors[0, :28].reshape(4, 7)
    assert pairs.tolist() == [
        [1, 1, 0, 0, 0, 1, 0],
        [1, 0, 1, 0, 0, 0, 1],
        [1, 0, 0, 1, 1, 0, 0],
        [1, 0, 1, 0, 0, 1, 0],
    ]
    assert not vectors[1:, :28].any()  # 12345 is no coordinate
    # Words by the number of training texts that hold them, then by the word: a, z (two each), c, up.
    assert vectors[:, 28:].tolist() == [[1, 3, 0, 0], [1, 1, 1, 0], [0, 0, 0, 2], [0, 1, 0, 0]]


def test_no_more_than_128_words_are_counted() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [one + other for one in letters for other in letters][:130]
    said = [" ".join(words), " ".join(words[1:])]
    cells = cells_with(["a", "b"], reasoning=np.array(said, dtype=object))
    vectors = text_features(cells, np.array([True, False])).vectors
    assert vectors.shape == (2, 28 + 128)
    assert vectors[0, 28:].tolist() == [1] * 128 and vectors[1, 28:].tolist() == [0] + [1] * 127
