"""Classes of cells and numbers as targets of the fit, with the heads of `goalscope.probing.heads`.

The loss is a class-weighted cross-entropy over all cells of each activation. A class of frequency p gets the weight
``1 / (K p)``, so that the expected gradient is that of pairs of activation and cell that are resampled until all K
classes are equally frequent, and the factorised first layer can be kept. For a number it is the squared error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, check_shape
from goalscope.probing.fitting import FitSettings, Loss, Norm, Problem, Weights
from goalscope.probing.heads import COUNTED, coordinates, initial_weights, scores, weight_shapes
from goalscope.probing.probe import CLASSES, Probe, Task, check_task
from goalscope.rows import Tag

if TYPE_CHECKING:
    from torch import Tensor

TRAINED: Final = ("epochs", "rate", "decay", "batch", "seed")
"""Settings that are kept with a probe."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeProblem(Problem[Probe]):
    """One probe to be fitted.

    Its target: ``[N, C]`` integer labels (places in `CLASSES`) of the cells of a square frame by row, or ``[N]``
    numbers.

    Raises:
        ValueError: no steps, labels that are no classes or no square, or a number that is not finite.
    """

    ORDER: ClassVar[str] = "probe order"
    ROOM: ClassVar[dict[str, int]] = {"cpu": 1 << 24, "cuda": 1 << 30}  # the largest array of one step
    PER_STACK: ClassVar[int] = 64

    @property
    def task(self) -> Task:
        """What is predicted."""
        return "cells" if self.target.ndim == 2 else "number"

    @property
    def frame(self) -> int:
        """Side of the square of cells, 0 for a number."""
        return math.isqrt(self.target.shape[1]) if self.target.ndim == 2 else 0

    def check(self) -> None:
        """Raise a ValueError unless the target holds classes of a square of cells, or finite numbers."""
        if self.task == "cells":
            check_shape("target", self.target, "N C", {"N": len(self.features)})
            if self.frame**2 != self.target.shape[1]:
                raise ValueError(f"labels must be those of a square of cells, got {self.target.shape[1]} cells")
            low, high = int(self.target.min()), int(self.target.max())
            if not np.issubdtype(self.target.dtype, np.integer) or low < 0 or high >= len(CLASSES):
                raise ValueError(f"labels must be integers from 0 to {len(CLASSES) - 1}, got {low} to {high}")
        else:
            check_shape("target", self.target, "N", {"N": len(self.features)})
            check_finite("target", self.target)
        check_task(self.task, self.frame)
        weight_shapes(self.key.head, self.task, 1, self.frame, 1)

    @property
    def company(self) -> tuple[Any, ...]:
        """Head, shape of the target and width of the inputs."""
        return self.key.head, self.target.shape, self.features.source.width

    def shapes(self, settings: FitSettings) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight."""
        return weight_shapes(self.key.head, self.task, self.features.source.width, self.frame, settings.d_hidden)

    def first(self, settings: FitSettings) -> Weights:
        """Return the first weights, which the seed alone decides."""
        return initial_weights(self.shapes(settings), settings.seed)

    def floats(self, settings: FitSettings, *, distinct: bool) -> int:
        """Return the size of its largest array in a step."""
        steps, *cells = self.target.shape
        width, count = self.features.source.width, math.prod(cells)
        inner = settings.d_hidden if self.key.head == "mlp" else len(CLASSES)
        # A step holds an array of all cells; the optimiser four arrays of the size of the weights.
        weights = width * (count * inner if self.key.head == "percell" else inner)
        return max(settings.batch * count * inner, 4 * weights, steps * width if distinct else 0)

    def counted(self) -> Weights | None:
        """Return the table of ``position``, nothing for ``majority``, None for heads that are trained."""
        if self.key.head not in COUNTED:
            return None
        return {"table": _table(self.target)} if self.key.head == "position" else {}

    @staticmethod
    def loss(stack: Sequence[ProbeProblem], settings: FitSettings) -> Loss:
        """Return the class-weighted cross-entropy of cells, or the squared error of numbers in units of their spread.

        The coordinates of a number's one cell are 0: their weights stay what they are.
        """
        import torch

        head, device = stack[0].key.head, torch.device(settings.device)
        cells = torch.tensor(coordinates(stack[0].frame), device=device)
        if stack[0].task == "cells":
            labels = torch.tensor(np.stack([problem.target for problem in stack]).astype(np.int64), device=device)
            balance = torch.tensor(
                np.stack([class_weights(frequencies(problem.target)) for problem in stack]), device=device
            )
            return lambda weights, vectors, rows: cell_loss(
                scores(head, weights, vectors, cells), labels[:, rows], balance
            )
        scaled = [(problem.target - problem.scale[0]) / problem.scale[1] for problem in stack]
        numbers = torch.tensor(np.stack(scaled).astype(np.float32), device=device)
        return lambda weights, vectors, rows: (
            (scores(head, weights, vectors, cells)[:, :, 0, 0] - numbers[:, rows]).square().mean(dim=1)
        )

    @property
    def scale(self) -> tuple[float, float]:
        """Mean and standard deviation of the number, (0, 1) for cells."""
        if self.task == "cells":
            return 0.0, 1.0
        return float(self.target.mean()), float(self.target.std()) or 1.0

    def fitted(self, norm: Norm, weights: Weights, settings: FitSettings, kept: int) -> Probe:
        """Return the probe with these weights."""
        trained: Mapping[str, Tag] = {} if self.key.head in COUNTED else self.trained_tags(settings, *TRAINED)
        return Probe(
            head=self.key.head,
            task=self.task,
            source=self.features.source,
            frame=self.frame,
            prior=frequencies(self.target) if self.task == "cells" else np.zeros(0),
            centre=norm[0],
            spread=norm[1],
            target=self.scale,
            weights=weights,
            tags={**self.counts, **trained, **self.tags},
        )


def frequencies(labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return how frequent each class is among all cells, ``[K]``."""
    counts = np.bincount(labels.ravel().astype(np.int64), minlength=len(CLASSES))
    shares: npt.NDArray[np.float64] = counts / counts.sum()
    return shares


def class_weights(prior: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return ``1 / (K p)`` for the K classes that occur, 0 for the others."""
    occur = prior > 0
    weights: npt.NDArray[np.float64] = np.divide(1.0, prior * occur.sum(), out=np.zeros_like(prior), where=occur)
    return weights.astype(np.float32)


def cell_loss(scored: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Return the class-weighted cross-entropy of Q probes, the mean over all cells of a batch, ``[Q]`` nats.

    Args:
        scored: ``[Q, B, C, K]``.
        labels: ``[Q, B, C]``.
        weights: ``[Q, K]``, see `class_weights`.
    """
    import torch

    picked = torch.log_softmax(scored, dim=-1).gather(-1, labels[..., None])[..., 0]
    each = weights.gather(1, labels.flatten(1)).view_as(picked)
    return -(each * picked).mean(dim=(1, 2))


def _table(labels: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return the log frequency of each class in each cell less its log frequency in all, ``[C, K]``.

    Half a step of each class's overall frequency is added to every cell, so that no class is impossible anywhere.
    """
    prior = frequencies(labels)
    counts = np.stack([(labels == one).sum(axis=0) for one in range(len(CLASSES))], axis=1)
    smooth = (counts + 0.5 * prior) / (len(labels) + 0.5)
    ratio = np.divide(smooth, prior, out=np.ones_like(smooth), where=prior > 0)
    return np.log(ratio).astype(np.float32)
