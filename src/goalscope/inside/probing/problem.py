"""Fitting problems and settings. A problem is a head with inputs and a target; all problems share the settings.

Targets are classes of cells, a number or a plan, each with its own loss:

* Cells: a class-weighted cross-entropy over all cells of each activation. A class of frequency p gets the weight
  ``1 / (K p)``, so that the expected gradient is that of pairs of activation and cell that are resampled until all K
  classes are equally frequent, and the factorised first layer can be kept.
* Distance: the squared error in units of the standard deviation.
* Plan: the cross-entropy of the executed tokens; position i (from 0) has weight 0.9^i, an unknown one 0.

Source: behavioural and representational evaluation, section 5.3; the authors' scripts (weights of the positions).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, check_shape, check_whole, freeze
from goalscope.inside.probing.heads import Head, HeadSizes, Weights, find_head, weight_shapes
from goalscope.inside.probing.inputs import Features
from goalscope.inside.probing.labels import CLASSES, TOKENS, UNKNOWN, check_tokens
from goalscope.inside.probing.probe import Probe, ProbeKey, check_frame
from goalscope.stats.estimate import factorize
from goalscope.stats.rows import Tag

if TYPE_CHECKING:
    from torch import Tensor

_COPIES: Final = 5  # copies in memory per weight: weight, gradient, two averages of AdamW, best so far
DISCOUNT: Final = 0.9
"""Weight of a position of a plan relative to the one before it."""

Norm = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
"""Mean and standard deviation of each input."""
Loss = Callable[[Any, Any], Any]
"""From scores ``[Q, B, C, K]`` and the rows of the batch ``[B]`` to Q losses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """How probes are trained.

    Attributes:
        epochs: passes over the training split.
        rate: initial learning rate of AdamW, which decreases linearly to 0. The authors' scripts use 3e-4, constant.
        decay: weight decay of AdamW.
        batch: number of activations per step.
        hidden: width of the hidden layer of a perceptron; the paper uses 1024.
        width: width of the bottleneck and layers of a plan decoder, a multiple of ``heads``.
        feedforward: width of the perceptrons in its layers.
        heads: number of attention heads per layer.
        validation: fraction of the training grids that selects the epoch to keep, in [0, 1); 0 keeps the last epoch.
            Linear heads choose their penalty on these grids, or on a fifth of the grids if it is 0.
        penalties: candidates for linear heads, in units of one standardised input; by default half decades from 1e-9 to
            1e4. If they are given, trained heads also choose their ``decay`` from them: the one with the smallest loss
            on the validation grids.
        seed: root seed of weights, order and validation grids.
        device: where to compute, "cpu" or "cuda".
    """

    epochs: int = 50
    rate: float = 1e-3
    decay: float = 1e-3
    batch: int = 32
    hidden: int = 1024
    width: int = 1024
    feedforward: int = 2048
    heads: int = 8
    validation: float = 0.2
    penalties: tuple[float, ...] = ()
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "hidden", "width", "feedforward", "heads"):
            check_whole(f"{name} of a fit", getattr(self, name), 1)
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of the {self.heads} heads, got {self.width}")
        if not (0 < self.rate < math.inf and 0 <= self.decay < math.inf):
            raise ValueError(f"rate must be > 0 and decay >= 0, got {self.rate!r} and {self.decay!r}")
        object.__setattr__(self, "penalties", tuple(self.penalties))
        if not all(0 <= penalty < math.inf for penalty in self.penalties):
            raise ValueError(f"penalties must be finite numbers >= 0, got {self.penalties}")
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation must be a fraction in [0, 1), got {self.validation!r}")

    def for_laptop(self) -> Self:
        """Return smaller settings (hidden layer, number of passes) that suit two cores."""
        return replace(self, hidden=128, epochs=30, rate=1e-2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings(FitSettings):
    """How plan decoders are trained; the defaults are the sizes in the paper.

    The paper does not give the hidden width of their perceptrons, so it is the library's default. Validation: 600 of
    3,600 trajectories.

    Source: behavioural and representational evaluation, section 5.3 (sizes, validation set); the authors' scripts
    (AdamW,
    learning rate 1e-4, batch 32).
    """

    rate: float = 1e-4
    decay: float = 1e-2
    validation: float = 1 / 6

    def for_laptop(self) -> Self:
        """Return smaller settings (decoder, number of passes) that suit two cores and models as small as Theseus."""
        return replace(self, width=64, feedforward=128, epochs=20, rate=3e-3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellTarget:
    """``[N, C]`` integer labels (indices in `CLASSES`) of the cells of a square frame, by row.

    ``weights`` ``[N]`` are the weights of the steps in the fit, with sum 1 per grid (`grid_weights`); 1 for each step
    by default.
    """

    values: npt.NDArray[Any]
    weights: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    NAMES: ClassVar[tuple[str, ...]] = CLASSES  # names of the K scores at each output
    ORDER: ClassVar[str] = "probe order"  # name of the random stream of the order of the steps
    # Settings of the fit that are stored with a probe, by their names in files.
    TRAINED: ClassVar[tuple[str, ...]] = ("epochs", "rate", "decay", "batch", "validation", "seed", "kept")

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "values", freeze(self.values))
        weights = self.weights if len(self.weights) else np.ones(len(self.values))
        object.__setattr__(self, "weights", freeze(weights))

    def _check(self) -> None:
        count = check_shape("target", self.values, "N C")["C"]
        if math.isqrt(count) ** 2 != count:
            raise ValueError(
                f"labels must be those of a square of cells, got {count} cells, which is not a square number"
            )
        low, high = int(self.values.min()), int(self.values.max())
        if not np.issubdtype(self.values.dtype, np.integer) or low < 0 or high >= len(CLASSES):
            raise ValueError(f"labels must be integers from 0 to {len(CLASSES) - 1}, got {low} to {high}")
        check_frame("cells", math.isqrt(count))

    @property
    def outputs(self) -> tuple[int, int]:
        """Number C of predictions for a step, and K of scores for each."""
        return math.prod(self.values.shape[1:]), len(self.NAMES)

    @property
    def prior(self) -> npt.NDArray[np.float64]:
        """Frequency of each class among all cells, ``[K]``; grids have equal weight."""
        weights = np.repeat(self.weights, self.values.shape[1])
        counts = np.bincount(self.values.ravel().astype(np.int64), weights, minlength=len(CLASSES))
        return np.asarray(counts / counts.sum())

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a probe that belong to its target."""
        return {"frame": math.isqrt(self.values.shape[1]), "prior": self.prior}

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which steps have a target, ``[N]``."""
        return np.ones(len(self.values), dtype=bool)

    @staticmethod
    def loss(stack: Sequence[Any], device: Any) -> Loss:
        """Return the losses of Q targets as a function of scores and rows."""
        import torch

        labels = torch.tensor(np.stack([target.values for target in stack]).astype(np.int64), device=device)
        balance = torch.tensor(np.stack([class_weights(target.prior) for target in stack]), device=device)
        steps = _step_weights(stack, device)
        return lambda scored, rows: cell_loss(scored, labels[:, rows], balance, steps[rows])


class _DistanceTarget(CellTarget):
    """Target of one number per step, ``[N]``."""

    NAMES: ClassVar = ("number",)

    def _check(self) -> None:
        check_shape("target", self.values, "N")
        check_finite("target", self.values)

    @property
    def fields(self) -> dict[str, Any]:
        """Mean and standard deviation as fields of a probe; grids have equal weight."""
        mean = np.average(self.values, weights=self.weights)
        std = np.sqrt(np.average((self.values - mean) ** 2, weights=self.weights))
        return {"scale": (float(mean), float(std) or 1.0)}

    @property
    def scaled(self) -> npt.NDArray[np.float64]:
        """The numbers in units of their standard deviation from their mean, ``[N]``."""
        mean, std = self.fields["scale"]
        return np.asarray((self.values - mean) / std)

    @staticmethod
    def loss(stack: Sequence[Any], device: Any) -> Loss:
        import torch

        numbers = torch.tensor(np.stack([target.scaled for target in stack]).astype(np.float32), device=device)
        steps = _step_weights(stack, device)
        return lambda scored, rows: ((scored[:, :, 0, 0] - numbers[:, rows]).square() * steps[rows]).mean(dim=1)


class _PlanTarget(CellTarget):
    """Target of plan tokens, ``[N, T]``, see `goalscope.inside.probing.labels.Plans`."""

    NAMES: ClassVar = TOKENS
    ORDER: ClassVar = "plan order"

    def _check(self) -> None:
        check_tokens("tokens", self.values)
        if not self.known.any():
            raise ValueError(
                "a plan decoder needs known plans to train on, but all are unknown: record longer episodes"
            )

    @property
    def fields(self) -> dict[str, Any]:
        return {"horizon": self.values.shape[1]}

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        return np.asarray((self.values != UNKNOWN).any(axis=1))

    @staticmethod
    def loss(stack: Sequence[Any], device: Any) -> Loss:
        import torch

        tokens = torch.tensor(np.stack([target.values for target in stack]).astype(np.int64), device=device)
        steps = _step_weights(stack, device)
        return lambda scored, rows: plan_loss(scored, tokens[:, rows], steps[rows])


def grid_weights(cluster: npt.NDArray[np.object_]) -> npt.NDArray[np.float64]:
    """Return the weights of steps, ``[N]``; those of one grid sum to 1, as in the scores."""
    codes, _ = factorize(cluster)
    weights: npt.NDArray[np.float64] = 1 / np.bincount(codes)[codes]
    return weights


def _step_weights(stack: Sequence[CellTarget], device: Any) -> Tensor:
    """Return the weights of the steps ``[N]``, scaled to mean 1; problems of one stack have the same grids."""
    import torch

    weights = stack[0].weights
    return torch.tensor(weights / weights.mean(), dtype=torch.float32, device=device)


_TARGETS: Final = {"cells": CellTarget, "distance": _DistanceTarget, "plan": _PlanTarget}


def class_weights(prior: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return ``1 / (K p)`` for the K classes that occur, 0 for the others."""
    occurs = prior > 0
    weights = np.divide(1.0, prior * occurs.sum(), out=np.zeros_like(prior), where=occurs)
    return np.asarray(weights, dtype=np.float32)


def cell_loss(scored: Tensor, labels: Tensor, weights: Tensor, steps: Tensor) -> Tensor:
    """Compute the class-weighted cross-entropy of Q probes, averaged over all cells of a batch, ``[Q]`` nats.

    Scores have shape ``[Q, B, C, K]``, labels ``[Q, B, C]``, class weights ``[Q, K]`` and step weights ``[B]``.
    """
    import torch

    picked = torch.log_softmax(scored, dim=-1).gather(-1, labels[..., None])[..., 0]
    cell_weights = weights.gather(1, labels.flatten(1)).view_as(picked)
    return -(cell_weights * picked * steps[:, None]).mean(dim=(1, 2))


def plan_loss(scored: Tensor, tokens: Tensor, steps: Tensor) -> Tensor:
    """Return ``sum(w 0.9^i nll) / sum(w 0.9^i)`` over the known positions of a batch, for Q decoders, ``[Q]`` nats.

    Scores are ``[Q, B, T, 5]``, tokens ``[Q, B, T]`` int64, -1 where unknown, weights w of the steps ``[B]``.
    """
    import torch

    is_known = tokens != UNKNOWN
    positions = torch.arange(tokens.shape[2], device=tokens.device)
    weights = is_known * DISCOUNT**positions * steps[:, None]
    picked = torch.log_softmax(scored, dim=-1).gather(-1, tokens.clamp(min=0)[..., None])[..., 0]
    total = weights.sum(dim=(1, 2)).clamp(min=torch.finfo(scored.dtype).tiny)
    return -(weights * picked).sum(dim=(1, 2)) / total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """One fitting problem: a head, its inputs and its target.

    Attributes:
        key: identity of the fitted probe, unique among those fitted together. Its target is the kind of ``target``.
        features: N training steps.
        target: ``[N, ...]`` target of each step: a class in `CLASSES` of each cell, a number, or tokens of a plan.
        tags: stored with the probe.
        head: registered name of the head; by default that of the key.
        settings: settings of the head, instead of those of the fit.
    """

    key: ProbeKey
    features: Features
    target: Any
    tags: Mapping[str, Tag] = field(default_factory=dict)
    head: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.features):
            raise ValueError(f"a probe needs training steps, but {self.key.text!r} has none: record more grids")
        labels = self.target
        values = labels.values if isinstance(labels, CellTarget) else np.asarray(labels)
        target = _TARGETS[self.key.target](values=values, weights=grid_weights(self.features.cluster))
        if len(target.values) != len(self.features):
            raise ValueError(
                f"the target of {self.key.text!r} must have {len(self.features)} steps, got {len(target.values)}"
            )
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "head", self.head or self.key.head)
        find_head(self.head, self.key.target)

    @property
    def registered(self) -> Head:
        """The registered head of the problem."""
        return find_head(self.head, self.key.target)

    @property
    def sizes(self) -> HeadSizes:
        """Sizes of the inputs and outputs of the head."""
        # The file of a probe does not store the number of its input vectors; that of a decoder does.
        positions = self.features.positions if self.key.target == "plan" else 1
        outputs, classes = self.target.outputs
        width = self.features.source.width // positions
        return HeadSizes(positions=positions, width=width, outputs=outputs, classes=classes)

    def head_settings(self, settings: FitSettings) -> dict[str, Any]:
        """Return the settings of the head: its own, else those of the fit, else its defaults."""
        defaults = self.registered.settings
        unknown = sorted(set(self.settings) - set(defaults))
        if unknown:
            raise ValueError(f"head {self.head} has the settings {', '.join(defaults) or 'none'}, got {unknown}")
        return {name: self.settings.get(name, getattr(settings, name, value)) for name, value in defaults.items()}

    def module(self, settings: FitSettings, *, numbers: bool = False) -> Any:
        """Return a module of the head; without ``numbers`` it has shapes only."""
        head_settings = self.head_settings(settings)
        return self.registered.module(self.sizes, head_settings, seed=settings.seed if numbers else None)

    @property
    def stack_key(self) -> tuple[Any, ...]:
        """Key shared by problems that train together: head, shapes and grids (which determine the validation split)."""
        settings = tuple(sorted(self.settings.items()))
        return (self.head, settings, self.sizes, self.features.vectors.shape, tuple(self.features.cluster.tolist()))

    def weights(self, settings: FitSettings) -> int:
        """Return the number of weights."""
        return sum(map(math.prod, weight_shapes(self.module(settings)).values()))

    def numbers(self, settings: FitSettings, *, distinct: bool) -> int:
        """Return the count of numbers in memory during training; with ``distinct`` including its inputs."""
        module, batch = self.module(settings), settings.batch
        largest: int = module.numbers(batch) if hasattr(module, "numbers") else batch * math.prod(self.target.outputs)
        return max(largest, _COPIES * self.weights(settings)) + (self.features.vectors.size if distinct else 0)

    def finished(
        self, norm: Norm, weights: Weights, settings: FitSettings, kept: int | None, solved: Mapping[str, Tag]
    ) -> Probe:
        """Build the fitted probe; ``kept`` is the epoch of its weights, or None for a closed-form solution."""
        tags: dict[str, Tag] = {"steps": len(self.features), "grids": len(set(self.features.cluster.tolist()))}
        if kept is not None:
            tags |= {name: kept if name == "kept" else getattr(settings, name) for name in self.target.TRAINED}
        return Probe(
            head=self.head,
            target=self.key.target,
            source=self.features.source,
            mean=norm[0],
            std=norm[1],
            weights=weights,
            settings=self.head_settings(settings),
            tags={**tags, **solved, **self.tags},
            positions=self.sizes.positions,
            **self.target.fields,
        )
