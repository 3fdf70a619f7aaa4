"""Maps for baselines that are fitted on them: what is decoded in training is as good as what is decoded in the test."""

from dataclasses import replace

import numpy as np
import pytest
from planted import activations, cells_of, rooms
from planted_plans import worlds

from goalscope._ground.rng import stream
from goalscope.inside.probing import (
    Cells,
    DecodedMaps,
    FitSettings,
    ProbeInputs,
    cross_fitted,
    decode_maps,
    probe_cells,
    split_by_grid,
    true_map,
)
from goalscope.inside.probing.plans import FOLDS, grid_folds

SETTINGS = FitSettings(epochs=25, rate=1e-2, hidden=48, validation=0.0)
PLACE = ("pre", 1)


def planted(strength: float, grids: int = 240, seed: int = 0) -> ProbeInputs:
    """Noise in 120 dimensions, which a probe can learn by heart, and a linear code of the goal of some strength."""
    cells = worlds(grids, frame=5, seed=seed)
    rng = stream(seed, "cross-fitted noise")
    goals = np.eye(25)[true_map(cells).goal @ (5, 1)] @ rng.standard_normal((25, 120))
    vectors = rng.standard_normal((len(cells), 120)) + strength * goals
    return ProbeInputs(activations=[activations(cells, vectors)], cells=cells, split=split_by_grid(cells))


def correlations(data: ProbeInputs, maps: DecodedMaps) -> tuple[float, float]:
    """Return how far the decoded Manhattan distance goes with the true one in the training part and in the test."""
    true = true_map(data.cells).manhattan
    train, test = (float(np.corrcoef(true[part], maps.manhattan[part])[0, 1]) for _, part in data.split.parts)
    return train, test


@pytest.mark.parametrize(
    ("head", "strength"),
    [("percell", 0.25), *(pytest.param("mlp", strength, marks=pytest.mark.full) for strength in (0.0, 0.25))],
)
def test_maps_of_training_and_tested_steps_are_equally_good(head: str, strength: float) -> None:
    data = planted(strength)
    own = data.activations[0]
    probe = probe_cells(data, suite=((head, "none"),), settings=SETTINGS, scored=False).probe(head, own)
    naive = correlations(data, decode_maps(probe.predict(own).maps("natural")))
    train, test = correlations(data, cross_fitted(data, head=head, settings=SETTINGS)[PLACE])
    if head == "mlp":  # maps of the steps that it was fitted on are much better
        assert naive[0] > naive[1] + 0.3 and train < naive[0] - 0.3
    assert test == naive[1]
    # 180 and 60 grids: the standard error of the difference is about .15.
    assert abs(train - test) < 0.3


def test_no_map_knows_the_truth_of_its_own_grid() -> None:
    data = planted(0.5, grids=30)
    cells, train = data.cells, data.split.train
    few = replace(SETTINGS, epochs=5)
    before = cross_fitted(data, settings=few)[PLACE]
    changed = cells.labels.copy()
    grid = int(np.flatnonzero(train)[0])
    changed[grid] = np.roll(changed[grid], 7)
    after = cross_fitted(replace(data, cells=replace(cells, labels=changed)), settings=few)[PLACE]
    same = [np.array_equal(before.goal[at], after.goal[at]) for at in range(len(cells))]
    fold = grid_folds(cells, train, seed=few.seed)
    # The labels of a grid decide nothing in its own fold, and something everywhere else.
    assert all(same[at] for at in np.flatnonzero(fold == fold[grid]))
    assert not all(same[at] for at in np.flatnonzero((fold != fold[grid]) & train))
    assert not all(same[at] for at in np.flatnonzero(data.split.test))


def test_folds_are_of_whole_grids_and_of_all_kinds() -> None:
    cells = rooms(40, steps=3)
    split = split_by_grid(cells)
    fold = grid_folds(cells, split.train)
    assert (fold[split.test] == -1).all() and sorted(set(fold[split.train].tolist())) == list(range(FOLDS))
    for grid in set(cells.cluster.tolist()):
        assert len(set(fold[cells.cluster == grid].tolist())) == 1
    for size in (4, 5):
        counts = np.bincount(fold[split.train & (cells.shape[:, 0] == size)], minlength=FOLDS)
        assert counts.max() - counts.min() <= 3  # steps of one grid
    backwards = np.arange(len(cells))[::-1]
    np.testing.assert_array_equal(grid_folds(cells.where(backwards), split.train[backwards])[::-1], fold)
    assert sorted(set(grid_folds(few_grids(3), np.ones(3, dtype=bool)).tolist())) == [0, 1, 2]
    alone = few_grids(1)
    with pytest.raises(ValueError, match="at least two training grids, got 1"):
        grid_folds(alone, np.ones(len(alone), dtype=bool))


def few_grids(count: int) -> Cells:
    return cells_of(np.full((count, 9), 3), 1, 3)
