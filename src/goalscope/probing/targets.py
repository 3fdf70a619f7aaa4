"""What is predicted at some steps: classes of cells, a number, a plan; each with its loss and what a fit of it becomes.

* Cells: a class-weighted cross-entropy over all cells of each activation. A class of frequency p gets the weight
  ``1 / (K p)``, so that the expected gradient is that of pairs of activation and cell that are resampled until all K
  classes are equally frequent, and the factorised first layer can be kept.
* Distance: the squared error in units of the standard deviation.
* Plan: the cross-entropy of the executed tokens; place i (from 0) weighs 0.9^i, unknown places nothing.

Source: behavioural and representational evaluation, section 5.3; the authors' scripts (weights of the places).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, check_shape, freeze
from goalscope.probing.fitted import Fitted
from goalscope.probing.heads import HeadSizes
from goalscope.probing.plans import TOKENS, UNKNOWN, PlanDecoder, check_tokens
from goalscope.probing.probe import CLASSES, Probe, check_task

if TYPE_CHECKING:
    from torch import Tensor

DISCOUNT: Final = 0.9
"""Weight of a place of a plan relative to the one before it."""

Loss = Callable[[Any, Any], Any]
"""From scores ``[Q, B, C, K]`` and the rows of the batch ``[B]`` to Q losses."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictionTarget(ABC):
    """What is to be predicted at N steps.

    Attributes:
        values: ``[N, ...]``.

    Raises:
        ValueError: values that are no such target.
    """

    ORDER: ClassVar[str] = "probe order"
    """Name of the random stream of the order of the steps."""
    TRAINED: ClassVar[tuple[str, ...]] = ("epochs", "rate", "decay", "batch", "seed")
    """Settings of the fit that are kept with a probe, by the names that files have for them."""

    values: npt.NDArray[Any]

    def __post_init__(self) -> None:
        self.check()
        object.__setattr__(self, "values", freeze(self.values))

    @abstractmethod
    def check(self) -> None:
        """Raise a ValueError unless the values are such a target."""

    @property
    @abstractmethod
    def outputs(self) -> tuple[int, int]:
        """Number C of things that are predicted of a step, and K of scores of each."""

    def known(self) -> npt.NDArray[np.bool_]:
        """Return at which steps there is something to be predicted, ``[N]``."""
        return np.ones(len(self.values), dtype=bool)

    @staticmethod
    @abstractmethod
    def loss(stack: Sequence[Any], device: Any) -> Loss:
        """Return the losses of Q targets as a function of scores and rows."""

    @abstractmethod
    def fitted(self, head: str, sizes: HeadSizes, settings: Mapping[str, Any], **parts: Any) -> Fitted:
        """Return the probe with these parts: source, mean, std, weights, tags."""


class CellTarget(PredictionTarget):
    """``[N, C]`` integer labels (places in `CLASSES`) of the cells of a square frame by row."""

    def check(self) -> None:
        """Raise a ValueError unless the values are classes of a square of cells."""
        sizes = check_shape("target", self.values, "N C")
        if math.isqrt(sizes["C"]) ** 2 != sizes["C"]:
            raise ValueError(f"labels must be those of a square of cells, got {sizes['C']} cells")
        low, high = int(self.values.min()), int(self.values.max())
        if not np.issubdtype(self.values.dtype, np.integer) or low < 0 or high >= len(CLASSES):
            raise ValueError(f"labels must be integers from 0 to {len(CLASSES) - 1}, got {low} to {high}")
        check_task("cells", math.isqrt(sizes["C"]))

    @property
    def outputs(self) -> tuple[int, int]:
        """Cells and classes."""
        return self.values.shape[1], len(CLASSES)

    @property
    def prior(self) -> npt.NDArray[np.float64]:
        """How frequent each class is, ``[K]``."""
        return frequencies(self.values)

    @staticmethod
    def loss(stack: Sequence[CellTarget], device: Any) -> Loss:
        """Return the class-weighted cross-entropy, see `cell_loss`."""
        import torch

        labels = torch.tensor(np.stack([one.values for one in stack]).astype(np.int64), device=device)
        balance = torch.tensor(np.stack([class_weights(one.prior) for one in stack]), device=device)
        return lambda scored, rows: cell_loss(scored, labels[:, rows], balance)

    def fitted(self, head: str, sizes: HeadSizes, settings: Mapping[str, Any], **parts: Any) -> Probe:
        """Return the probe of cells."""
        frame = math.isqrt(sizes.outputs)
        return Probe(head=head, task="cells", frame=frame, prior=self.prior, settings=settings, **parts)


class DistanceTarget(PredictionTarget):
    """``[N]`` numbers."""

    def check(self) -> None:
        """Raise a ValueError unless the values are finite numbers."""
        check_shape("target", self.values, "N")
        check_finite("target", self.values)

    @property
    def outputs(self) -> tuple[int, int]:
        """One number."""
        return 1, 1

    @property
    def scale(self) -> tuple[float, float]:
        """Mean and standard deviation."""
        return float(self.values.mean()), float(self.values.std()) or 1.0

    @property
    def scaled(self) -> npt.NDArray[np.float64]:
        """The numbers in units of their standard deviation from their mean, ``[N]``."""
        found: npt.NDArray[np.float64] = (self.values - self.scale[0]) / self.scale[1]
        return found

    @staticmethod
    def loss(stack: Sequence[DistanceTarget], device: Any) -> Loss:
        """Return the squared error."""
        import torch

        numbers = torch.tensor(np.stack([one.scaled for one in stack]).astype(np.float32), device=device)
        return lambda scored, rows: (scored[:, :, 0, 0] - numbers[:, rows]).square().mean(dim=1)

    def fitted(self, head: str, sizes: HeadSizes, settings: Mapping[str, Any], **parts: Any) -> Probe:
        """Return the probe of a number."""
        empty = np.zeros(0)
        return Probe(head=head, task="number", frame=0, prior=empty, target=self.scale, settings=settings, **parts)


class PlanTarget(PredictionTarget):
    """``[N, T]`` tokens, see `goalscope.probing.plans.Plans`."""

    ORDER: ClassVar[str] = "plan order"
    TRAINED: ClassVar[tuple[str, ...]] = ("epochs", "rate", "decay", "batch", "validation", "seed", "kept")

    def check(self) -> None:
        """Raise a ValueError unless the values hold plans, some of them known."""
        check_tokens("tokens", self.values)
        if (self.values == UNKNOWN).all():
            raise ValueError("a decoder must have known plans to learn from, it has none")

    @property
    def outputs(self) -> tuple[int, int]:
        """Places and tokens."""
        return self.values.shape[1], len(TOKENS)

    def known(self) -> npt.NDArray[np.bool_]:
        """Return at which steps some token is known, ``[N]``."""
        found: npt.NDArray[np.bool_] = (self.values != UNKNOWN).any(axis=1)
        return found

    @staticmethod
    def loss(stack: Sequence[PlanTarget], device: Any) -> Loss:
        """Return the weighted cross-entropy of the tokens, see `plan_loss`."""
        import torch

        tokens = torch.tensor(np.stack([one.values for one in stack]).astype(np.int64), device=device)
        return lambda scored, rows: plan_loss(scored, tokens[:, rows])

    def fitted(self, head: str, sizes: HeadSizes, settings: Mapping[str, Any], **parts: Any) -> PlanDecoder:
        """Return the decoder."""
        own = {name: settings[name] for name in ("layers", "heads")}
        return PlanDecoder(positions=sizes.positions, horizon=sizes.outputs, **own, **parts)


TARGETS: Final[Mapping[str, type[PredictionTarget]]] = {
    "cells": CellTarget,
    "distance": DistanceTarget,
    "plan": PlanTarget,
}
"""The kinds of targets by their names."""


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


def plan_loss(scored: Tensor, tokens: Tensor) -> Tensor:
    """Return the weighted cross-entropy of Q decoders, the mean over the steps of a batch, ``[Q]`` nats.

    Args:
        scored: ``[Q, B, T, 5]``.
        tokens: ``[Q, B, T]`` int64, -1 where unknown.

    Returns:
        ``sum(0.9^i nll) / sum(0.9^i)`` over the known places of the whole batch.
    """
    import torch

    known = tokens != UNKNOWN
    places = torch.arange(tokens.shape[2], device=tokens.device)
    weights = known * DISCOUNT**places
    picked = torch.log_softmax(scored, dim=-1).gather(-1, tokens.clamp(min=0)[..., None])[..., 0]
    total = weights.sum(dim=(1, 2)).clamp(min=torch.finfo(scored.dtype).tiny)
    return -(weights * picked).sum(dim=(1, 2)) / total
