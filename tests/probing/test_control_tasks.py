"""Control tasks: random labels of types that recur, learnt by heart or not at all."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted import activations, cells_of, noise, rooms

from goalscope._ground.rng import stream
from goalscope.inside.probing import (
    AGENT,
    CLASSES,
    GOAL,
    OPEN,
    PADDING,
    WALL,
    FitSettings,
    ProbeInputs,
    difference_rows,
    probe_cells,
    probe_distances,
    split_by_grid,
)
from goalscope.inside.probing.suite import truths

SETTINGS = FitSettings(epochs=30, hidden=32, rate=1e-2)


def mazes(grids: int = 120, seed: int = 0) -> ProbeInputs:
    """Return grids of 6x6 in a frame of 7 with walls at random, an agent and a goal, beside noise."""
    rng = stream(seed, "mazes")
    labels = np.full((grids, 7, 7), PADDING)
    for row in labels:
        row[:6, :6] = np.where(rng.random((6, 6)) < 0.3, WALL, OPEN)
        agent, goal = rng.permutation(36)[:2]
        row[:6, :6].flat[agent] = AGENT  # flat of a view writes through
        row[:6, :6].flat[goal] = GOAL
    cells = cells_of(labels.reshape(grids, 49), 1, 7, np.full((grids, 2), 6))
    return ProbeInputs(activations=[noise(cells)], cells=cells, split=split_by_grid(cells))


def literal_types(labels: np.ndarray) -> list[tuple[int, ...]]:
    side = round(len(labels) ** 0.5)

    def symbol(row: int, col: int) -> int:
        return int(labels[row * side + col]) if 0 <= row < side and 0 <= col < side else PADDING

    return [
        tuple(symbol(row + down, col + right) for down in (-1, 0, 1) for right in (-1, 0, 1))
        for row in range(side)
        for col in range(side)
    ]


def test_each_type_of_cell_has_one_label_and_only_those_that_are_trained_on_count() -> None:
    data = mazes()
    made = truths(data.cells.labels, data, ["none", "control-task"], seed=3)
    task, inside = made["control task"], data.cells.labels != PADDING
    assert task.cells is not None and made["own"].values is data.cells.labels
    known: dict[tuple[int, ...], int] = {}
    learned = set()
    for at, row in enumerate(data.cells.labels):
        for cell, kind in enumerate(literal_types(row)):
            if inside[at, cell]:
                assert known.setdefault(kind, int(task.values[at, cell])) == task.values[at, cell]
                if data.split.train[at]:
                    learned.add(kind)
    for at, row in enumerate(data.cells.labels):
        for cell, kind in enumerate(literal_types(row)):
            assert task.cells[at, cell] == (inside[at, cell] and kind in learned)
    assert (task.values[~inside] == PADDING).all() and not (task.values[inside] == PADDING).any()
    # Types have the labels with the frequencies of the real ones: four standard errors of a binomial.
    real = np.bincount(data.cells.labels[data.split.train][inside[data.split.train]], minlength=5) / 36 / 90
    drawn = np.bincount(list(known.values()), minlength=5) / len(known)
    assert (np.abs(drawn - real) < 4 * np.sqrt(real * (1 - real) / len(known)) + 1e-9).all()
    other = truths(data.cells.labels, data, ["control-task"], seed=4)["control task"]
    assert 0.1 < (other.values[inside] != task.values[inside]).mean() < 0.9


def test_a_probe_that_can_learn_types_by_heart_does_and_selectivity_is_what_is_left() -> None:
    """Activations that hold the type of one cell: a control task of it is learnable, in noise it is not."""
    rng = stream(1, "kinds")
    kinds = rng.integers(0, 8, 240)
    labels = np.full((240, 9), OPEN)
    for row, kind in zip(labels, kinds, strict=True):  # three cells of the corner tell the kind
        row[[0, 1, 2]] = np.where([kind & 1, kind & 2, kind & 4], WALL, OPEN)
    cells = cells_of(labels, 1, 3)
    split = split_by_grid(cells)
    onehot = np.eye(8)[kinds] @ rng.standard_normal((8, 120))
    for given, learnt in ((onehot, True), (rng.standard_normal((240, 120)), False)):
        data = ProbeInputs(activations=[activations(cells, given)], cells=cells, split=split)
        found = probe_cells(data, suite=[("percell", "none"), ("percell", "control-task")], settings=SETTINGS)
        name = "cell accuracy without padding"
        task = found.rows.select(measure=name, reading="natural", control="control-task")
        rows = difference_rows(found.rows, "control-task")
        less = rows.select(measure=f"{name} less control-task", reading="natural").value
        real = found.rows.select(measure=name, reading="natural", control="none")
        np.testing.assert_allclose(less, real.value - task.value)
        assert (task.value.mean() > 0.99) if learnt else (task.value.mean() < 0.95)
        assert (abs(less.mean()) < 0.01) == learnt
        counted = found.rows.select(measure="scored cells")
        assert set(counted["control"]) == {"control-task"} and (counted.value == 9).all()
        assert set(counted.cluster) == set(cells.cluster[split.test])


def test_steps_get_the_value_of_one_training_step_by_agent_and_goal() -> None:
    cells = rooms(grids=60, steps=4)
    data = ProbeInputs(activations=[noise(cells)], cells=cells, split=split_by_grid(cells))
    distances = stream(0, "distances").integers(1, 9, len(cells)).astype(float)
    distances[data.split.train.nonzero()[0][:5]] = np.nan
    made = truths(distances, data, ["control-task"], seed=0, known=~np.isnan(distances))
    task = made["control task"]
    pairs: dict[tuple[int, int], Any] = {}
    for at, row in enumerate(cells.labels.tolist()):
        pair = (row.index(AGENT), row.index(GOAL))
        assert pairs.setdefault(pair, task.values[at]) == task.values[at]
        seen = any((r.index(AGENT), r.index(GOAL)) == pair for r in cells.labels[made["own"].train].tolist())
        assert task.test[at] == (data.split.test[at] and seen)
    assert len(set(pairs.values())) > 2 and set(pairs.values()) <= set(distances[made["own"].train])
    found = probe_distances(data, distances, heads=["linear"], controls=["none", "control-task"])
    counted = found.rows.select(measure="scored steps")
    assert counted.value.sum() == task.test.sum() > 0
    assert set(counted.cluster) == set(cells.cluster[data.split.test])


def test_a_control_task_whose_types_do_not_recur_scores_nothing_and_says_so() -> None:
    cells = rooms(grids=8, steps=1)
    labels = np.full((8, 25), OPEN)
    for at, row in enumerate(labels):
        row[at], row[at + 1] = AGENT, GOAL
    cells = replace(cells, labels=labels.astype(np.int8))
    data = ProbeInputs(activations=[noise(cells)], cells=cells, split=split_by_grid(cells))
    found = probe_distances(data, np.arange(8.0), heads=["linear"], controls=["none", "control-task"])
    task = found.rows.select(control="control-task")
    assert set(task.measure) == {"scored steps"} and (task.value == 0).all() and len(task) == 2


def test_scores_of_a_control_task_leave_localisation_out() -> None:
    found = probe_cells(mazes(40), suite=[("percell", "control-task")], settings=FitSettings(epochs=1))
    assert "area under the curve" in found.rows.measure and "localisation" not in found.rows.measure
    assert set(found.rows["class"]) == {None, *CLASSES}
    counted = found.rows.select(measure="scored cells")
    assert (counted.value <= 36).all() and counted.value.mean() > 0
    with pytest.raises(ValueError, match="'control-task'"):
        difference_rows(found.rows.select(head="mlp"), "control-task")
