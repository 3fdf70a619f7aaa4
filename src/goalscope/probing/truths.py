"""What probes and their controls are to predict: the truth, that of another grid, or the labels of a control task.

A control task gives every type of example one random label for good, with the frequencies of the real ones. A probe
can only learn it by heart, type by type: how well it does on the types that recur in tested grids is its capacity, and
what the real score exceeds that by is its selectivity. Types recur over grids:

* of a cell: the symbols of its 3 x 3 neighbourhood, the outside of the grid being one of them; the label is a class.
* of a step, where a plan or a distance is predicted: the cells of agent and goal; the label is that of a training step.

Source: Hewitt and Liang 2019, Designing and interpreting probes with control tasks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.probing.inputs import CONTROLS, ProbeInputs, shuffled_rows
from goalscope.probing.labels import AGENT, CLASSES, GOAL, PADDING, Cells
from goalscope.probing.scores import Grids
from goalscope.rng import uniform
from goalscope.rows import Rows, Tag

_STREAM: Final = "control task"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """What is to be predicted at N steps.

    Attributes:
        values: ``[N, ...]``.
        train, test: ``[N]``, which steps are trained on, and which are tested.
        cells: ``[N, C]``, which cells of a control task are scored; None for all.
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
    """Return what is to be predicted by the names that `Control.truth` has for it, "own" always among them.

    Args:
        values: ``[N, ...]`` the truth of N steps.
        data: what is read, and the split.
        controls: those that are wanted.
        seed: root seed of the exchange of grids, and of the labels of control tasks.
        known: ``[N]`` where there is a truth; None for everywhere.
    """
    there = np.ones(len(values), dtype=bool) if known is None else known
    wanted = {CONTROLS[control].truth for control in controls if control in CONTROLS}
    own = _known(values, data, there)
    found = {"own": own}
    if "shuffled" in wanted:
        # Another grid's labels stand beside this grid's activations, and their score belongs to this grid.
        rows = shuffled_rows(data.cells, data.split, seed=seed)
        found["shuffled"] = _known(values[rows], data, there[rows])
    if "control task" in wanted:
        found["control task"] = _of_cells(data, seed) if values is data.cells.labels else _of_steps(own, data, seed)
    return found


def scored_rows(truth: Truth, data: ProbeInputs, tags: Mapping[str, Tag]) -> Rows:
    """Return how many cells, or steps, of each tested grid a control task is scored on, 0 included."""
    tested = data.split.test
    grids = Grids.of(data.cells.where(tested))
    if truth.cells is None:
        name, unit, counts = "scored steps", "steps", truth.test[tested]
    else:
        name, unit, counts = "scored cells", "cells", truth.cells[tested].sum(axis=1)
    return grids.rows(iter([(name, unit, grids.sums(counts), {})]), tags)


def _known(values: npt.NDArray[Any], data: ProbeInputs, there: npt.NDArray[np.bool_]) -> Truth:
    # Where all is known, all share the inputs of one split.
    parts = {name: part if there.all() else part & there for name, part in data.split.parts}
    return Truth(values=values, **parts)


def _of_cells(data: ProbeInputs, seed: int) -> Truth:
    """Return the control task of cells; what lies outside of a grid stays padding and is not scored."""
    cells, train = data.cells, data.split.train
    inside = cells.labels != PADDING
    types, at = np.unique(neighbourhoods(cells)[inside], return_inverse=True)
    step = np.nonzero(inside)[0]
    frequency = np.bincount(cells.labels[train][inside[train]], minlength=len(CLASSES)).cumsum()
    drawn = [uniform(seed, _STREAM, "cells", int(one)) for one in types]
    labels = cells.labels.copy()
    labels[inside] = np.searchsorted(frequency / frequency[-1], drawn, side="right")[at]
    learned = np.bincount(at[train[step]], minlength=len(types)) > 0
    scored = np.zeros_like(inside)
    scored[inside] = learned[at]
    return Truth(values=labels, train=train, test=data.split.test, cells=scored)


def neighbourhoods(cells: Cells) -> npt.NDArray[np.int64]:
    """Return the type of every cell, ``[N, C]``: a number for the symbols of its 3 x 3 neighbourhood."""
    side = cells.frame
    square = np.pad(cells.labels.reshape(-1, side, side), ((0, 0), (1, 1), (1, 1)), constant_values=PADDING)
    found = np.zeros((len(cells), side, side), dtype=np.int64)
    for row in range(3):
        for col in range(3):
            found = found * len(CLASSES) + square[:, row : row + side, col : col + side]
    return found.reshape(len(cells), -1)


def _of_steps(own: Truth, data: ProbeInputs, seed: int) -> Truth:
    """Return the control task of steps: each pair of cells of agent and goal gets the value of one training step."""
    types = step_types(data.cells)
    pairs, at = np.unique(types, return_inverse=True)
    source = np.flatnonzero(own.train)
    drawn = [uniform(seed, _STREAM, "steps", int(one)) for one in pairs]
    rows = source[(np.array(drawn) * len(source)).astype(np.int64)][at]
    learned = np.isin(types, types[own.train])
    return Truth(values=own.values[rows], train=own.train, test=own.test & learned)


def step_types(cells: Cells) -> npt.NDArray[np.int64]:
    """Return the type of every step, ``[N]``: a number for the cells of agent and goal; either may be nowhere."""
    count = cells.labels.shape[1]
    places = []
    for label in (AGENT, GOAL):
        held = cells.labels == label
        places.append(np.where(held.any(axis=1), held.argmax(axis=1), count))
    return np.asarray(places[0] * (count + 1) + places[1], dtype=np.int64)
