"""The forms of probes: from a vector and a cell to the scores of the classes, many probes at once.

All heads see a normalised vector x ``[F]`` and a cell with coordinates r ``[2]`` (row and column, -1 to 1):

* ``majority``: nothing; always the frequencies of the classes.
* ``position``: the frequencies of the classes in this cell; no activation.
* ``additive``: ``W_a x + W_r r + b``. It has no term of activation and cell together, so all cells shift alike with the
  activation: it cannot draw scattered walls whatever the activations hold.
* ``percell``: ``W_c x + b_c``, weights for each cell; the fair linear comparator.
* ``mlp``: ``V relu(W_a x + W_r r + b) + v``. The first layer is computed once for each activation and once for each
  cell and added; the product of activations and cells, 225 times the size of the activations, is never made.

For a number, ``linear`` and ``mlp`` are ``percell`` and ``mlp`` with one cell and one output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from goalscope.activations.devices import check_device
from goalscope.probing.probe import CLASSES, Features, Probe, Task
from goalscope.rng import stream

if TYPE_CHECKING:
    from torch import Tensor

CELL_HEADS: Final = ("majority", "position", "additive", "percell", "mlp")
NUMBER_HEADS: Final = ("linear", "mlp")
COUNTED: Final = ("majority", "position")
"""Heads that are counted, not trained, and read no activation."""

_BATCH: Final = 64  # examples of one step of a prediction


def weight_shapes(head: str, task: Task, width: int, frame: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of a head.

    Args:
        head: its name.
        task: what it predicts.
        width: numbers F of an example.
        frame: side of the square of cells, 0 for a number.
        hidden: width of the hidden layer of ``mlp``.

    Raises:
        ValueError: no such head for the task.
    """
    heads = CELL_HEADS if task == "cells" else NUMBER_HEADS
    if head not in heads:
        raise ValueError(f"a head for {task} must be one of {', '.join(heads)}, got {head!r}")
    cells, classes = (frame * frame, len(CLASSES)) if task == "cells" else (1, 1)
    shapes: dict[str, dict[str, tuple[int, ...]]] = {
        "majority": {},
        "position": {"table": (cells, classes)},
        "additive": {"act": (width, classes), "cell": (2, classes), "bias": (classes,)},
        "percell": {"act": (width, cells * classes), "bias": (cells * classes,)},
        "linear": {"act": (width, 1), "bias": (1,)},
        "mlp": {
            "act": (width, hidden),
            "cell": (2, hidden),
            "bias": (hidden,),
            "out": (hidden, classes),
            "out_bias": (classes,),
        },
    }
    return shapes[head]


def coordinates(frame: int) -> npt.NDArray[np.float32]:
    """Return row and column of the cells of a frame by row, -1 to 1, ``[frame * frame, 2]``; one zero cell for 0."""
    if frame == 0:
        return np.zeros((1, 2), dtype=np.float32)
    along = np.linspace(-1, 1, frame, dtype=np.float32) if frame > 1 else np.zeros(1, dtype=np.float32)
    return np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1).reshape(-1, 2)


def initial_weights(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Return random weights: normal with the spread 1 / sqrt(inputs), biases 0; linear heads begin at 0.

    Args:
        shapes: see `weight_shapes`.
        seed: root seed. A probe and its controls begin with the same weights, alone and in company.
    """
    if "out" not in shapes:
        return {key: np.zeros(shape, dtype=np.float32) for key, shape in shapes.items()}
    found = {}
    for key, shape in shapes.items():
        rng = stream(seed, "probe weights", key)
        # Two coordinates stand beside thousands of activations: both parts begin with the same weight.
        scale = {"act": 1 / math.sqrt(shape[0]), "cell": 1.0, "out": 1 / math.sqrt(shape[0])}.get(key, 0.0)
        drawn = rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        # Biases spread the kinks of the hidden units over the frame.
        found[key] = rng.uniform(-1, 1, shape).astype(np.float32) if key == "bias" else drawn
    return found


def scores(head: str, weights: Mapping[str, Tensor], vectors: Tensor, cells: Tensor) -> Tensor:
    """Return the scores of the classes of all cells for Q probes of one head at once.

    Args:
        head: a trained head.
        weights: name -> ``[Q, ...]``, see `weight_shapes`.
        vectors: ``[Q or 1, B, F]`` normalised.
        cells: ``[C, 2]``.

    Returns:
        ``[Q, B, C, K]``.
    """
    import torch

    found = torch.matmul(vectors, weights["act"])  # [Q, B, ...]
    probes, batch = found.shape[:2]
    count = len(cells)
    if head in ("percell", "linear"):
        return (found + weights["bias"][:, None]).view(probes, batch, count, -1)
    placed = torch.matmul(cells, weights["cell"]) + weights["bias"][:, None]  # [Q, C, ...]
    if head == "additive":
        return found[:, :, None, :] + placed[:, None, :, :]
    from goalscope.probing.factorised import perceptron

    return perceptron(found, placed, weights["out"], weights["out_bias"])


def normalised(
    vectors: npt.NDArray[np.float32], centre: npt.NDArray[np.float32], spread: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return ``(vectors - centre) / spread``, and 0 where the spread is 0."""
    factor = np.divide(1, spread, out=np.zeros_like(spread), where=spread > 0)
    with np.errstate(over="ignore", invalid="ignore"):  # what is made of it is checked
        return (vectors - centre) * factor


def outputs(probe: Probe, features: Features, device: str = "cpu") -> npt.NDArray[np.float64]:
    """Return the scores of a fitted probe, ``[N, C, K]``; of ``position`` the log frequencies less the log prior."""
    count = len(features)
    cells = probe.frame * probe.frame or 1
    check_device(device)
    if probe.head == "majority":
        return np.zeros((count, cells, len(CLASSES)))
    if probe.head == "position":
        return np.broadcast_to(probe.weights["table"].astype(np.float64), (count, cells, len(CLASSES)))
    import torch

    weights = {name: torch.tensor(array, device=device)[None] for name, array in probe.weights.items()}
    places = torch.tensor(coordinates(probe.frame), device=device)
    found = []
    with torch.inference_mode():
        for begin in range(0, count, _BATCH):
            part = normalised(features.vectors[begin : begin + _BATCH], probe.centre, probe.spread)
            found.append(scores(probe.head, weights, torch.tensor(part, device=device)[None], places)[0].cpu())
    if not found:
        return np.zeros((0, cells, len(CLASSES) if probe.task == "cells" else 1))
    joined: npt.NDArray[np.float64] = torch.cat(found).double().numpy()
    if not np.isfinite(joined).all():
        raise ValueError(
            f"the scores of a probe must be finite, those of this one of head {probe.head} are not: its weights or "
            "what it reads are too large for float32, fit it again"
        )
    return joined
