"""Fitting of probes. Problems with the same head and shapes train as one batch, with the same results as alone.

A `Problem` is a head (`inside.probing.heads`) with a target. Inputs are normalised on the training steps, all grids
have equal weight, as in the scores, and part of the training grids is held out for validation. A head with a solver is
solved in closed form with the penalty that is best on the validation grids. Other heads are trained with AdamW and a
learning rate that falls linearly to 0, and the weights of the epoch with the minimum validation loss are kept. The
weight decay can be chosen on the validation grids too.

Targets are classes of cells, a number or a plan, each with its own loss:

* Cells: a class-weighted cross-entropy over all cells of each activation. A class of frequency p gets the weight
  ``1 / (K p)``, so that the expected gradient is that of pairs of activation and cell that are resampled until all K
  classes are equally frequent, and the factorised first layer can be kept.
* Distance: the squared error in units of the standard deviation.
* Plan: the cross-entropy of the executed tokens; position i (from 0) has weight 0.9^i, an unknown one 0.

Sources: section 5.3 of the paper on behavioural and representational evaluation; the weights of the positions are from
the scripts of its authors.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, check_shape, check_whole, freeze
from goalscope._ground.progress import Progress
from goalscope._ground.rng import stream
from goalscope.agents.models.decode import one_thread
from goalscope.inside.probing.heads import (
    Head,
    HeadSizes,
    Solution,
    check_device,
    find_head,
    initial_weights,
    normalised,
    scores,
    weight_shapes,
)
from goalscope.inside.probing.inputs import Features, of_grids
from goalscope.inside.probing.labels import CLASSES, TOKENS, UNKNOWN, check_tokens
from goalscope.inside.probing.probe import Callbacks, Probe, ProbeKey, check_frame
from goalscope.inside.probing.ridge import PENALTIES
from goalscope.runs.dispatch import lost_worker
from goalscope.stats.estimate import factorize
from goalscope.stats.rows import Tag

if TYPE_CHECKING:
    from torch import Tensor

_COPIES: Final = 5  # copies in memory per weight: weight, gradient, two averages of AdamW, best so far
_TRAINED: Final = ("epochs", "rate", "decay", "batch", "validation", "seed")
"""Settings of the fit that are stored with a trained probe."""
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
        batch: number of training examples per step of AdamW.
        hidden: width of the hidden layer of a perceptron; the paper uses 1024.
        width: width of the bottleneck and layers of a plan decoder (which predicts moves), a multiple of ``heads``.
        feedforward: width of the perceptrons in its layers.
        heads: number of attention heads per layer.
        validation: fraction of the training grids that selects the epoch to keep, in [0, 1); 0 keeps the last epoch.
            Linear probes choose their penalty on these grids, or on a fifth of the grids if it is 0.
        penalties: candidates for the ridge penalty of linear probes, in units of one standardised input; by default
            half decades from 1e-9 to 1e4. If they are given, probes trained by gradient descent also choose their
            ``decay`` from them: the one with the smallest loss on the validation grids.
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
        """Return smaller settings (hidden layer, number of passes over the data) that suit a machine with two cores."""
        return replace(self, hidden=128, epochs=30, rate=1e-2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings(FitSettings):
    """How plan decoders (probes that predict an agent's next moves) are trained; the defaults are the sizes in the
    paper.

    The paper does not give the hidden width of their perceptrons, so it is the library's default. A sixth of the
    training grids is used for validation, as in the paper (600 of 3,600 trajectories).

    Source: behavioural and representational evaluation, section 5.3 (sizes, validation set); the authors' scripts
    (AdamW, learning rate 1e-4, batch 32).
    """

    rate: float = 1e-4
    decay: float = 1e-2
    validation: float = 1 / 6

    def for_laptop(self) -> Self:
        """Return smaller settings (decoder, number of passes over the data) for two cores and models as small as
        Theseus.
        """
        return replace(self, width=64, feedforward=128, epochs=20, rate=3e-3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellTarget:
    """What a probe of maps is trained to predict: the class of each cell of a square frame, at N steps.

    Attributes:
        values: ``[N, C]`` integer labels (indices in `CLASSES`), steps by cells (by row).
        weights: ``[N]`` weights of the steps in the fit, with sum 1 per grid (`grid_weights`); 1 for each step by
            default.

    Raises:
        ValueError: if C is not a square number, or a label is not an index in `CLASSES`.
    """

    values: npt.NDArray[Any]
    weights: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    NAMES: ClassVar[tuple[str, ...]] = CLASSES  # names of the K scores at each output
    ORDER: ClassVar[str] = "probe order"  # name of the random stream of the order of the steps

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
        """The number C of predictions for a step (cells), and the number K of scores for each (classes)."""
        return math.prod(self.values.shape[1:]), len(self.NAMES)

    @property
    def prior(self) -> npt.NDArray[np.float64]:
        """Frequency of each class among all cells of all steps, ``[K]``; grids have equal weight."""
        weights = np.repeat(self.weights, self.values.shape[1])
        counts = np.bincount(self.values.ravel().astype(np.int64), weights, minlength=len(CLASSES))
        return np.asarray(counts / counts.sum())

    @property
    def fields(self) -> dict[str, Any]:
        """What a fitted `Probe` of cells must store about what it predicts: the side of the map and the class
        frequencies.

        Returned as fields of `Probe` by name.
        """
        return {"frame": math.isqrt(self.values.shape[1]), "prior": self.prior}

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """``[N]`` whether the value to predict is known at each step; always true for cells."""
        return np.ones(len(self.values), dtype=bool)

    @staticmethod
    def loss(stack: Sequence[Any], device: Any) -> Loss:
        """Return the loss function of Q probes that are trained together, one for each target in ``stack``.

        The function takes their scores ``[Q, B, C, K]`` (probes, steps of the batch, cells, classes) and the indices
        ``[B]`` of the steps, and returns the losses ``[Q]``. Tensors are on ``device``.
        """
        import torch

        labels = torch.tensor(np.stack([target.values for target in stack]).astype(np.int64), device=device)
        balance = torch.tensor(np.stack([class_weights(target.prior) for target in stack]), device=device)
        steps = _step_weights(stack, device)
        return lambda scored, rows: cell_loss(scored, labels[:, rows], balance, steps[rows])


class _DistanceTarget(CellTarget):
    """Target of one number for each of N steps, ``[N]``."""

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
        """The standardised numbers, ``[N]``: minus their mean, divided by their standard deviation."""
        mean, std = self.fields["scale"]
        return np.asarray((self.values - mean) / std)

    @staticmethod
    def loss(stack: Sequence[Any], device: Any) -> Loss:
        import torch

        numbers = torch.tensor(np.stack([target.scaled for target in stack]).astype(np.float32), device=device)
        steps = _step_weights(stack, device)
        return lambda scored, rows: ((scored[:, :, 0, 0] - numbers[:, rows]).square() * steps[rows]).mean(dim=1)


class _PlanTarget(CellTarget):
    """Target of T plan tokens for each of N steps, ``[N, T]``, see `goalscope.inside.probing.labels.Plans`."""

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
    """Return a weight for each of N steps, so that the weights of each grid sum to 1, as in the scores.

    ``cluster`` ``[N]`` names the grid of each step.
    """
    codes, _ = factorize(cluster)
    weights: npt.NDArray[np.float64] = 1 / np.bincount(codes)[codes]
    return weights


def _step_weights(stack: Sequence[CellTarget], device: Any) -> Tensor:
    """Return the weights of N steps ``[N]``, scaled to mean 1; all problems of a stack have the same steps."""
    import torch

    weights = stack[0].weights
    return torch.tensor(weights / weights.mean(), dtype=torch.float32, device=device)


_TARGETS: Final = {"cells": CellTarget, "distance": _DistanceTarget, "plan": _PlanTarget}


def class_weights(prior: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return weights ``[K]`` that give all classes that occur the same total weight: ``1 / (K p)``, and 0 for absent
    classes.

    ``prior`` holds the frequency p of each class.
    """
    occurs = prior > 0
    weights = np.divide(1.0, prior * occurs.sum(), out=np.zeros_like(prior), where=occurs)
    return np.asarray(weights, dtype=np.float32)


def cell_loss(scored: Tensor, labels: Tensor, weights: Tensor, steps: Tensor) -> Tensor:
    """Compute the class-weighted cross-entropy of Q probes, averaged over all cells of a batch, in nats.

    Args:
        scored: ``[Q, B, C, K]`` scores: probes, steps, cells, classes.
        labels: ``[Q, B, C]`` true classes.
        weights: ``[Q, K]`` weights of the classes.
        steps: ``[B]`` weights of the steps.

    Returns:
        ``[Q]`` the loss of each probe.
    """
    import torch

    picked = torch.log_softmax(scored, dim=-1).gather(-1, labels[..., None])[..., 0]
    cell_weights = weights.gather(1, labels.flatten(1)).view_as(picked)
    return -(cell_weights * picked * steps[:, None]).mean(dim=(1, 2))


def plan_loss(scored: Tensor, tokens: Tensor, steps: Tensor) -> Tensor:
    """Compute the cross-entropy of Q plan decoders, in nats, in which position i of a plan (from 0) has weight 0.9^i.

    It is ``sum(w 0.9^i nll) / sum(w 0.9^i)`` over the known positions of a batch, with the weights w of the steps.

    Args:
        scored: ``[Q, B, T, 5]`` scores: decoders, steps, positions of the plan, tokens.
        tokens: ``[Q, B, T]`` int64 true tokens, -1 where unknown.
        steps: ``[B]`` weights of the steps.

    Returns:
        ``[Q]`` the loss of each decoder.
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
    """A probe that is to be fitted: its head (form, such as linear or MLP), its inputs and what it should predict.

    Attributes:
        key: identity of the fitted probe, unique among those fitted together.
        features: inputs at N training steps.
        target: ``[N, ...]`` value to predict at each step: a class in `CLASSES` of each cell, a number, or tokens of a
            plan.
        tags: named facts to store with the probe.
        head: registered name of the head; by default that of the key.
        settings: settings of the head, instead of those of the fit.

    Raises:
        ValueError: if there are no steps, other numbers of inputs and targets, or no such head.
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
        """The registered head (form of probe, such as linear or MLP) that is fitted."""
        return find_head(self.head, self.key.target)

    @property
    def sizes(self) -> HeadSizes:
        """Numbers of inputs and outputs of the probe to fit."""
        # The file of a probe does not store the number of its input vectors; that of a decoder does.
        positions = self.features.positions if self.key.target == "plan" else 1
        outputs, classes = self.target.outputs
        width = self.features.source.width // positions
        return HeadSizes(positions=positions, width=width, outputs=outputs, classes=classes)

    def head_settings(self, settings: FitSettings) -> dict[str, Any]:
        """Return the settings of the head (the form of the probe) by name.

        They are those of this problem, else those of the fit, else the head's defaults.

        Raises:
            ValueError: if the problem sets something that the head does not have.
        """
        defaults = self.registered.settings
        unknown = sorted(set(self.settings) - set(defaults))
        if unknown:
            raise ValueError(f"head {self.head} has the settings {', '.join(defaults) or 'none'}, got {unknown}")
        return {name: self.settings.get(name, getattr(settings, name, value)) for name, value in defaults.items()}

    def module(self, settings: FitSettings, *, numbers: bool = False) -> Any:
        """Build the torch module of the probe to fit.

        Args:
            settings: settings of the fit, for sizes that the problem leaves open.
            numbers: whether to draw initial weights; by default the weights have shapes but no values.
        """
        head_settings = self.head_settings(settings)
        return self.registered.module(self.sizes, head_settings, seed=settings.seed if numbers else None)

    @property
    def stack_key(self) -> tuple[Any, ...]:
        """A value that is equal for problems that can be trained together as one batch.

        It consists of the head, its settings, the shapes, and the grids, which determine the validation grids.
        """
        settings = tuple(sorted(self.settings.items()))
        return (self.head, settings, self.sizes, self.features.vectors.shape, tuple(self.features.cluster.tolist()))

    def weights(self, settings: FitSettings) -> int:
        """Return the number of weights of the probe to fit, which decides how it is trained."""
        return sum(map(math.prod, weight_shapes(self.module(settings)).values()))

    def numbers(self, settings: FitSettings, *, distinct: bool) -> int:
        """Return how many numbers training this probe keeps in memory, by which the size of a batch of probes is
        chosen.

        ``distinct`` says whether its inputs count too, because the other probes of the batch have other inputs.
        """
        module, batch = self.module(settings), settings.batch
        largest: int = module.numbers(batch) if hasattr(module, "numbers") else batch * math.prod(self.target.outputs)
        return max(largest, _COPIES * self.weights(settings)) + (self.features.vectors.size if distinct else 0)

    def finished(self, norm: Norm, solution: Solution, settings: FitSettings) -> Probe:
        """Build the fitted probe from its weights.

        Args:
            norm: mean and standard deviation of each input, by which inputs are normalised.
            solution: the fitted weights.
            settings: settings of the fit, of which some are stored with the probe.
        """
        tags: dict[str, Tag] = {"steps": len(self.features), "grids": len(set(self.features.cluster.tolist()))}
        if solution.kept is not None:
            tags |= {name: getattr(settings, name) for name in _TRAINED} | {"kept": solution.kept}
        return Probe(
            head=self.head,
            target=self.key.target,
            source=self.features.source,
            mean=norm[0],
            std=norm[1],
            weights=solution.weights,
            settings=self.head_settings(settings),
            tags={**tags, **solution.tags, **self.tags},
            positions=self.sizes.positions,
            **self.target.fields,
        )


_SMALL: Final = 1e-6  # an input that varies less than this, relative to all inputs, is treated as constant
INNER: Final = 0.2
"""Part of the training grids that chooses a penalty where no validation part is wanted."""
_ONE_THREAD: Final = 4_000_000  # number of weights per probe below which one thread trains
_MAX_PARALLEL_STACKS: Final = 4  # maximum number of stacks in memory at the same time
ROOM: Final = {"cpu": 1 << 24, "cuda": 1 << 30}
"""Numbers that the problems of a stack may hold together while they train."""
PER_STACK: Final = 64
"""Most problems of a stack."""

Stack = TypeVar("Stack")
Trained = TypeVar("Trained")
Advance = Callable[[int], None]
"""Progress callback: the number of finished units of a stack."""


def fit(
    problems: Sequence[Problem], settings: FitSettings | None = None, callbacks: Callbacks | None = None
) -> list[Probe]:
    """Fit probes. Compatible ones are trained together, and each gets the same result as if trained by itself, up to
    rounding.

    Everything that is learned, including the normalisation, comes only from the given training steps.

    Args:
        problems: the probes to fit, with all keys different.
        settings: how to fit; missing settings have defaults.
        callbacks: functions that look up stored probes, receive the fitted ones, and report progress (in epochs of
            single layers).

    Returns:
        The probes, in the order of the problems.

    Raises:
        ValueError: if two problems have one key, there are too few grids for a validation part, or a fit does not
            converge; the message names the probe.
    """
    used, hooks = settings or FitSettings(), callbacks or Callbacks()
    keys = [problem.key for problem in problems]
    if len(set(keys)) != len(keys):
        raise ValueError(f"problems must have different keys, got {', '.join(key.text for key in keys)}")
    probes = {key: stored for key in keys if (stored := hooks.find(key)) is not None}
    missing = [problem for problem in problems if problem.key not in probes]
    distinct = {id(problem.features): problem.features.vectors for problem in missing}
    norms = {identity: normalisation(vectors) for identity, vectors in distinct.items()}
    # Stored probes keep their place in a stack too, so that an interrupted fit continues with the same stacks.
    planned = [
        [problem for problem in stack if problem.key not in probes]
        for stack in stacks(problems if missing else [], used)
    ]
    plan_of = {problem.key: stack for stack in planned for problem in stack}
    for fit_settings, group in _groups([stack for stack in planned if stack], norms, used, hooks):
        for stack, trained in _trained(group, norms, fit_settings, hooks):
            for problem, solution in zip(stack, trained, strict=True):
                if not all(np.isfinite(array).all() for array in solution.weights.values()):
                    raise ValueError(
                        f"the fit of {problem.key.text!r} did not converge, its weights became infinite: lower the rate"
                    )
                probes[problem.key] = problem.finished(norms[id(problem.features)], solution, fit_settings)
            whole = [problem.key for problem in plan_of[stack[0].key]]
            if all(key in probes for key in whole):
                hooks.keep({key: probes[key] for key in whole})
    return [probes[key] for key in keys]


def _groups(
    planned: Sequence[list[Problem]], norms: Mapping[int, Norm], fit_settings: FitSettings, hooks: Callbacks
) -> list[tuple[FitSettings, list[list[Problem]]]]:
    """Group stacks by the settings of their fit, choosing the best decay on inner grids for trained problems."""
    modules = {problem.key: problem.module(fit_settings) for stack in planned for problem in stack}
    solved = [stack for stack in planned if hasattr(modules[stack[0].key], "solve")]
    trained = [stack for stack in planned if not hasattr(modules[stack[0].key], "solve")]
    losses: dict[ProbeKey, dict[float, float]] = {problem.key: {} for stack in trained for problem in stack}
    for penalty in fit_settings.penalties:
        inner = replace(fit_settings, decay=penalty, validation=fit_settings.validation or INNER)
        for stack, trained_stack in _trained(trained, norms, inner, hooks):
            for problem, solution in zip(stack, trained_stack, strict=True):
                losses[problem.key][penalty] = solution.loss
    groups: dict[FitSettings, list[list[Problem]]] = {}
    for stack in trained:
        parts: dict[FitSettings, list[Problem]] = {}
        for problem in stack:
            by_penalty = losses[problem.key]
            decay = min(by_penalty, key=by_penalty.__getitem__, default=fit_settings.decay)
            validation = fit_settings.validation if getattr(modules[problem.key], "early", True) else 0.0
            parts.setdefault(replace(fit_settings, decay=decay, validation=validation), []).append(problem)
        for settings, part in parts.items():
            groups.setdefault(settings, []).append(part)
    # Closed-form problems come first, because they take little time.
    return [(fit_settings, solved), *groups.items()]


def _trained(
    planned: Sequence[list[Problem]], norms: Mapping[int, Norm], settings: FitSettings, hooks: Callbacks
) -> Iterator[tuple[list[Problem], list[Solution]]]:
    """Train stacks of problems with the same settings."""
    work = [
        Work(stack=stack, weights=stack[0].weights(settings), units=len(stack) * _cost(stack[0], settings))
        for stack in planned
    ]

    def train(stack: Sequence[Problem], advance: Advance) -> list[Solution]:
        return _train(stack, [norms[id(problem.features)] for problem in stack], settings, advance)

    def send(stack: Sequence[Problem]) -> Future[list[Solution]]:
        assert hooks.pool is not None
        stack_norms = [norms[id(problem.features)] for problem in stack]
        return hooks.pool.submit(_train_elsewhere, stack, stack_norms, settings)

    elsewhere = None if hooks.pool is None else send
    return train_stacks(work, train, device=settings.device, progress=hooks.progress, elsewhere=elsewhere)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Generic[Stack]):
    """Several probes that are trained together as one batch (``stack``).

    ``weights`` is the number of weights of one probe, and ``units`` the amount of work, in the units in which progress
    is counted.
    """

    stack: Stack
    weights: int
    units: int


def train_stacks(
    work: Sequence[Work[Stack]],
    train: Callable[[Stack, Advance], Trained],
    *,
    device: str,
    progress: Progress,
    elsewhere: Callable[[Stack], Future[Trained]] | None = None,
) -> Iterator[tuple[Stack, Trained]]:
    """Train batches of probes ("stacks") in parallel where that is faster, and yield each batch with its result.

    Large batches, with 4 million weights per probe or more, come first, then the small ones, each in order.

    The operations of small batches take microseconds. A second thread gains little for them, and if another process
    occupies its core, every operation waits (steps became up to ten times as long). On a CPU, small batches therefore
    use one thread each and train in parallel on as many threads as PyTorch has. The results do not depend on which
    batches train at the same time. Large batches, and all batches on a GPU, train one after another.

    Args:
        work: the batches.
        train: trains one batch; it gets the batch and a function that takes the number of finished units.
        device: where to compute, "cpu" or "cuda".
        progress: called with (units done, all units).
        elsewhere: if given, passes small batches, or all batches on a GPU, to another process.
    """
    import torch

    if elsewhere is None:  # another process may see a GPU that this one does not
        check_device(device)
    total, lock, stop = sum(item.units for item in work), threading.Lock(), threading.Event()
    done = [0] * len(work)

    def job(index: int) -> Trained:
        def advance(units: int) -> None:
            if stop.is_set():
                raise CancelledError
            with lock:
                done[index] = units
                progress(sum(done), total)

        return train(work[index].stack, advance)

    small = [index for index, item in enumerate(work) if device == "cpu" and item.weights < _ONE_THREAD]
    if elsewhere is not None:
        sent = small if device == "cpu" else list(range(len(work)))
        remote = {index: elsewhere(work[index].stack) for index in sorted(sent, key=lambda index: -work[index].units)}
        try:
            for index in sorted(set(range(len(work))) - set(sent)):
                yield work[index].stack, job(index)
            for index in sent:
                trained = remote[index].result()
                done[index] = work[index].units
                progress(sum(done), total)
                yield work[index].stack, trained
        except BrokenExecutor as error:
            raise lost_worker(error) or error from None
        finally:
            for future in remote.values():
                future.cancel()
        return
    for index in sorted(set(range(len(work))) - set(small)):
        yield work[index].stack, job(index)
    with one_thread() as threads:
        n_workers = min(threads, len(small), _MAX_PARALLEL_STACKS)
        if n_workers < 2:
            for index in small:
                yield work[index].stack, job(index)
            return
        with ThreadPoolExecutor(n_workers, "goalscope-fit", initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                # The longest stacks begin first, so that none runs alone at the end.
                futures = {
                    index: pool.submit(job, index) for index in sorted(small, key=lambda index: -work[index].units)
                }
                for index in small:
                    yield work[index].stack, futures[index].result()
            except BaseException:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _train_elsewhere(stack: Sequence[Problem], norms: Sequence[Norm], settings: FitSettings) -> list[Solution]:
    with one_thread():
        return _train(stack, norms, settings, lambda units: None)


def _cost(problem: Problem, settings: FitSettings) -> int:
    """Return the cost of a fit in epochs of a single layer; a closed-form solver counts as one epoch."""
    module = problem.module(settings)
    if hasattr(module, "solve"):
        return int(problem.registered.reads)
    return settings.epochs * int(getattr(module, "cost", 1))


def stacks(problems: Sequence[Problem], settings: FitSettings) -> Iterator[list[Problem]]:
    """Divide probes to fit into lists that are trained together as one batch each, as large as memory allows.

    The probes of a list have an equal `Problem.stack_key`.
    """
    groups: dict[tuple[Any, ...], list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem.stack_key, []).append(problem)
    for group in groups.values():
        distinct = len({id(problem.features) for problem in group}) > 1
        room = ROOM["cpu" if settings.device == "cpu" else "cuda"]
        size = max(1, min(PER_STACK, room // group[0].numbers(settings, distinct=distinct)))
        for begin in range(0, len(group), size):
            yield group[begin : begin + size]


def normalisation(vectors: npt.NDArray[np.float32]) -> Norm:
    """Compute mean and standard deviation of each input, ``[F]`` each, from the training inputs ``[N, F]``.

    A standard deviation is 0 if the input varies by no more than rounding errors, or by less than the smallest normal
    float32 number (1e-38).
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    std = vectors.std(axis=0, dtype=np.float64)
    level = _SMALL * max(float(std.max(initial=0)), 0.0)
    std[(std <= level) | (std <= _SMALL * np.abs(mean)) | (std < np.finfo(np.float32).tiny)] = 0.0
    return mean.astype(np.float32), std.astype(np.float32)


def order(rows: npt.NDArray[np.int64], epoch: int, settings: FitSettings, name: str) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the batches of one training epoch, each as an array of row indices.

    The order of the rows depends only on the seed, their number, the epoch and the name of the random stream.
    """
    shuffled = rows[stream(settings.seed, name, len(rows), epoch).permutation(len(rows))]
    for begin in range(0, len(shuffled), settings.batch):
        yield shuffled[begin : begin + settings.batch]


def validation_rows(cluster: npt.NDArray[np.object_], settings: FitSettings) -> npt.NDArray[np.bool_]:
    """Return ``[N]`` whether each training step is held out for validation, to choose the best epoch or penalty.

    All steps of a grid are on the same side; ``cluster`` ``[N]`` names the grid of each step.

    Raises:
        ValueError: if there is only one grid.
    """
    if settings.validation == 0:
        return np.zeros(len(cluster), dtype=bool)
    grids = sorted(set(cluster.tolist()))
    if len(grids) < 2:
        raise ValueError(
            "a validation part needs at least two training grids, got one: give more grids, or set validation=0"
        )
    count = min(len(grids) - 1, max(1, round(settings.validation * len(grids))))
    drawn = stream(settings.seed, "plan validation", len(grids)).permutation(len(grids))[:count]
    held_grids = {grids[index] for index in drawn}
    return of_grids(cluster, held_grids)


def _train(stack: Sequence[Problem], norms: Sequence[Norm], settings: FitSettings, advance: Advance) -> list[Solution]:
    """Train one stack of Q problems, or solve them."""
    import torch

    first, device = stack[0], torch.device(settings.device)
    module = first.module(settings, numbers=True).to(device)
    reads = first.registered.reads
    vectors = _vectors(stack, norms, device) if reads else torch.zeros(1, len(first.features), 0)
    if hasattr(module, "solve"):
        inner = replace(settings, validation=(settings.validation or INNER) if reads else 0.0)
        return _solve(module, stack, vectors, inner, advance)
    held_out = validation_rows(first.features.cluster, settings)
    rows, checked = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    targets = first.target.loss([problem.target for problem in stack], device)
    true = (
        np.stack([problem.target.values for problem in stack]).astype(np.int64) if hasattr(module, "taught") else None
    )

    def loss(weights: Mapping[str, Any], chosen: Any) -> Any:
        if true is None:
            return targets(scores(module, weights, vectors[:, chosen]), chosen)
        known_labels = torch.tensor(true[:, chosen.cpu().numpy()], device=device)
        return targets(module.taught(weights, vectors[:, chosen], known_labels), chosen)

    def checked_loss(weights: Mapping[str, Any]) -> Any:
        """Return the validation loss of each problem, ``[Q]``, with batches weighted by their numbers of steps."""
        total, size = torch.zeros((), device=device), 4 * settings.batch
        with torch.inference_mode():
            for begin in range(0, len(checked), size):
                chosen = torch.tensor(checked[begin : begin + size], device=device)
                total = total + len(chosen) * loss(weights, chosen)
        return total / len(checked)

    initial = [initial_weights(module, settings.seed, problem.key.text) for problem in stack]
    weights = {
        name: torch.tensor(np.stack([parameter[name] for parameter in initial]), device=device) for name in initial[0]
    }
    for tensor in weights.values():
        tensor.requires_grad_()
    # If no validation target is known, no epoch can be chosen, so the last epoch is kept.
    unscored = torch.tensor([not problem.target.known[checked].any() for problem in stack], device=device)
    # Not fused, although fused is twice as fast: the last bits would then depend on the other problems in the stack.
    optimiser = torch.optim.AdamW(list(weights.values()), lr=settings.rate, weight_decay=settings.decay)
    n_steps, step = settings.epochs * -(-len(rows) // settings.batch), 0
    best, min_loss = dict(weights), torch.full((len(stack),), math.inf, device=device)
    kept_epoch = torch.full((len(stack),), settings.epochs - 1, dtype=torch.int64, device=device)
    for epoch in range(settings.epochs):
        for batch in order(rows, epoch, settings, first.target.ORDER):
            for group in optimiser.param_groups:
                group["lr"] = settings.rate * (1 - step / n_steps)
            # Problems share no weights and AdamW treats each weight separately, so the sum of losses trains each as if
            # alone.
            optimiser.zero_grad(set_to_none=True)
            loss(weights, torch.tensor(batch, device=device)).sum().backward()
            optimiser.step()
            step += 1
        if len(checked):
            epoch_loss = checked_loss(weights)
            better = (epoch_loss < min_loss) | unscored
            min_loss, kept_epoch = torch.where(better, epoch_loss, min_loss), torch.where(better, epoch, kept_epoch)
            for name, parameter in weights.items():
                wide = better.view(-1, *[1] * (parameter.ndim - 1))
                best[name] = torch.where(wide, parameter.detach(), best[name].detach())
        advance((epoch + 1) * len(stack) * int(getattr(module, "cost", 1)))
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in best.items()}
    return [
        Solution(
            weights={name: np.ascontiguousarray(array[index]) for name, array in arrays.items()}, kept=epoch, loss=loss
        )
        for index, (epoch, loss) in enumerate(zip(kept_epoch.tolist(), min_loss.tolist(), strict=True))
    ]


def _solve(
    module: Any, stack: Sequence[Problem], vectors: Tensor, settings: FitSettings, advance: Advance
) -> list[Solution]:
    """Solve Q problems one by one."""
    held_out, penalties = validation_rows(stack[0].features.cluster, settings), settings.penalties or PENALTIES
    solutions = []
    for index, problem in enumerate(stack):
        solutions.append(module.solve(vectors[index if len(vectors) > 1 else 0], problem.target, penalties, held_out))
        if problem.registered.reads:
            advance(index + 1)
    return solutions


def _vectors(stack: Sequence[Problem], norms: Sequence[Norm], device: Any) -> Tensor:
    """Return the normalised inputs of Q problems: N steps with F features, ``[Q, N, F]``.

    If all problems have the same inputs, these are returned once, ``[1, N, F]``.
    """
    import torch

    shared = len({id(problem.features) for problem in stack}) == 1
    distinct = list(zip(stack, norms, strict=True))[: 1 if shared else None]
    inputs = [torch.tensor(normalised(problem.features.vectors, *norm)) for problem, norm in distinct]
    return torch.stack(inputs).to(device)
