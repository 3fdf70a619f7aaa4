"""Targets of probes and their controls: the truth, the truth of another grid, or the labels of a control task.

A control task gives every type of example one fixed random label, with the frequencies of the real labels. A probe can
only memorise these labels, type by type. Its score on types that recur in test grids is its capacity, and the real
score minus the capacity is its selectivity. Types recur over grids:

* The type of a cell is the symbols of its 3 x 3 neighbourhood, including a symbol for the outside of the grid. Its
  label is a class.
* The type of a step, for predicting plans or distances, is the cells of agent and goal. Its label is the target of a
  training step.

Source: Hewitt and Liang 2019, Designing and interpreting probes with control tasks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import uniform
from goalscope.inside.probing.inputs import CONTROLS, ProbeInputs, shuffled_rows
from goalscope.inside.probing.labels import AGENT, CLASSES, GOAL, PADDING, Cells
from goalscope.inside.probing.scores import Grids
from goalscope.stats.rows import Rows, Tag

_STREAM: Final = "control task"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """Targets at N steps.

    Attributes:
        values: ``[N, ...]`` targets.
        train: ``[N]`` which steps are used for training.
        test: ``[N]`` which steps are used for testing.
        cells: ``[N, C]`` which cells of a control task are scored; None for all.
    """

    values: npt.NDArray[Any]
    train: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]
    cells: npt.NDArray[np.bool_] | None = None


def truths(
    values: npt.NDArray[Any],
    data: ProbeInputs,
    controls: Iterable[str],
    *,
    seed: int,
    known: npt.NDArray[np.bool_] | None = None,
) -> dict[str, Truth]:
    """Return the targets by the names of `Control.truth`, always including "own".

    Args:
        values: ``[N, ...]`` the truth at N steps.
        data: activations, labels and the split.
        controls: names of the controls.
        seed: root seed of the exchange of grids, and of the labels of control tasks.
        known: ``[N]`` at which steps there is a truth; None for all.
    """
    is_known = np.ones(len(values), dtype=bool) if known is None else known
    names = {CONTROLS[control].truth for control in controls if control in CONTROLS}
    truth = _known(values, data, is_known)
    by_name = {"own": truth}
    if "shuffled" in names:
        # Labels of another grid are paired with this grid's activations, and the score belongs to this grid.
        rows = shuffled_rows(data.cells, data.split, seed=seed)
        by_name["shuffled"] = _known(values[rows], data, is_known[rows])
    if "control task" in names:
        by_name["control task"] = _of_cells(data, seed) if values is data.cells.labels else _of_steps(truth, data, seed)
    return by_name


def scored_rows(truth: Truth, data: ProbeInputs, tags: Mapping[str, Tag]) -> Rows:
    """Return rows with the number of cells or steps per test grid on which a control task is scored."""
    tested = data.split.test
    grids = Grids.of(data.cells.where(tested))
    if truth.cells is None:
        name, unit, counts = "scored steps", "steps", truth.test[tested]
    else:
        name, unit, counts = "scored cells", "cells", truth.cells[tested].sum(axis=1)
    return grids.rows(iter([(name, unit, grids.sums(counts), {})]), tags)


def _known(values: npt.NDArray[Any], data: ProbeInputs, is_known: npt.NDArray[np.bool_]) -> Truth:
    # If everything is known, all targets share the inputs of one split.
    parts = {name: part if is_known.all() else part & is_known for name, part in data.split.parts}
    return Truth(values=values, **parts)


def _of_cells(data: ProbeInputs, seed: int) -> Truth:
    """Build the control task of cells. Cells outside the grid stay padding and are not scored."""
    cells, train = data.cells, data.split.train
    inside = cells.labels != PADDING
    types, type_index = np.unique(neighbourhoods(cells)[inside], return_inverse=True)
    step = np.nonzero(inside)[0]
    frequency = np.bincount(cells.labels[train][inside[train]], minlength=len(CLASSES)).cumsum()
    uniforms = [uniform(seed, _STREAM, "cells", int(cell_type)) for cell_type in types]
    labels = cells.labels.copy()
    labels[inside] = np.searchsorted(frequency / frequency[-1], uniforms, side="right")[type_index]
    in_training = np.bincount(type_index[train[step]], minlength=len(types)) > 0
    scored = np.zeros_like(inside)
    scored[inside] = in_training[type_index]
    return Truth(values=labels, train=train, test=data.split.test, cells=scored)


def neighbourhoods(cells: Cells) -> npt.NDArray[np.int64]:
    """Return the type of every cell, ``[N, C]``: a number for the symbols of its 3 x 3 neighbourhood."""
    side = cells.frame
    square = np.pad(cells.labels.reshape(-1, side, side), ((0, 0), (1, 1), (1, 1)), constant_values=PADDING)
    codes = np.zeros((len(cells), side, side), dtype=np.int64)
    for row in range(3):
        for col in range(3):
            codes = codes * len(CLASSES) + square[:, row : row + side, col : col + side]
    return codes.reshape(len(cells), -1)


def _of_steps(truth: Truth, data: ProbeInputs, seed: int) -> Truth:
    """Build the control task of steps, which gives each pair of agent and goal cells the value of one training step."""
    types = step_types(data.cells)
    pairs, pair_index = np.unique(types, return_inverse=True)
    source = np.flatnonzero(truth.train)
    uniforms = [uniform(seed, _STREAM, "steps", int(pair)) for pair in pairs]
    rows = source[(np.array(uniforms) * len(source)).astype(np.int64)][pair_index]
    in_training = np.isin(types, types[truth.train])
    return Truth(values=truth.values[rows], train=truth.train, test=truth.test & in_training)


def step_types(cells: Cells) -> npt.NDArray[np.int64]:
    """Return the type of every step, ``[N]``, a number for the cells of agent and goal, if present."""
    count = cells.labels.shape[1]
    cell_indices = []
    for label in (AGENT, GOAL):
        is_label = cells.labels == label
        cell_indices.append(np.where(is_label.any(axis=1), is_label.argmax(axis=1), count))
    return np.asarray(cell_indices[0] * (count + 1) + cell_indices[1], dtype=np.int64)
