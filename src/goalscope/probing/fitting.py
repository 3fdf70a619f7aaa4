"""Fitting probes: those that share a head and a shape train as one batched problem.

The loss is a class-weighted cross-entropy over all cells of each activation. A class of frequency p gets the weight
``1 / (K p)``, so that the expected gradient is that of pairs of activation and cell that are resampled until all K
classes are equally frequent, and the factorised first layer can be kept. For a number it is the squared error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.probing.fitted import ProbeKey, check_keys
from goalscope.probing.heads import COUNTED, coordinates, initial_weights, normalised, scores, weight_shapes
from goalscope.probing.probe import CLASSES, Features, Probe, Task, check_task
from goalscope.probing.training import Callbacks, Passed, Work, train_stacks
from goalscope.rng import stream
from goalscope.rows import Tag
from goalscope.shapes import check_finite, check_shape, freeze

if TYPE_CHECKING:
    from torch import Tensor

_SMALL: Final = 1e-6  # an input that varies less than this, relative to all inputs, is rounding
_FLOATS: Final = {"cpu": 1 << 24, "cuda": 1 << 30}  # numbers in the largest array of one step of a stack
_PER_STACK: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """How probes are trained.

    Attributes:
        epochs: passes over the training split.
        rate: learning rate of AdamW at the beginning; it falls linearly to 0. The authors' scripts: 3e-4, constant.
        decay: weight decay of AdamW.
        batch: activations of one step.
        hidden: width of the hidden layer of ``mlp``; the paper: 1024.
        seed: root seed of weights and order.
        device: where to compute, "cpu" or "cuda".

    Raises:
        ValueError: a number out of its range.
    """

    epochs: int = 50
    rate: float = 1e-3
    decay: float = 1e-3
    batch: int = 32
    hidden: int = 1024
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "hidden"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} of a fit must be a whole number >= 1, got {value!r}")
        if not (math.isfinite(self.rate) and self.rate > 0 and math.isfinite(self.decay) and self.decay >= 0):
            raise ValueError(f"rate must be > 0 and decay >= 0, got {self.rate!r} and {self.decay!r}")

    def for_laptop(self) -> FitSettings:
        """Return the same with a smaller hidden layer and fewer passes, for two cores."""
        return replace(self, hidden=128, epochs=20, rate=5e-3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """One probe to be fitted.

    Attributes:
        key: which probe it becomes; different among those fitted together.
        features: N training steps.
        target: ``[N, C]`` integer labels (places in `CLASSES`) of the cells of a square frame by row, or ``[N]``
            numbers.
        tags: kept with the probe.

    Raises:
        ValueError: no steps, labels that are no classes or no square, or a number that is not finite.
    """

    key: ProbeKey
    features: Features
    target: npt.NDArray[Any]
    tags: Mapping[str, Tag] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.features):
            raise ValueError(f"a probe must have training steps, {self.key.text!r} has none")
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
        object.__setattr__(self, "target", freeze(self.target))

    @property
    def task(self) -> Task:
        """What is predicted."""
        return "cells" if self.target.ndim == 2 else "number"

    @property
    def frame(self) -> int:
        """Side of the square of cells, 0 for a number."""
        return math.isqrt(self.target.shape[1]) if self.target.ndim == 2 else 0

    @property
    def outputs(self) -> int:
        """Number of scores of a cell."""
        return len(CLASSES) if self.task == "cells" else 1


def fit(
    problems: Sequence[Problem], settings: FitSettings | None = None, callbacks: Callbacks[Probe] | None = None
) -> list[Probe]:
    """Fit probes; those of one head, task, width and number of steps train together, each as it would alone.

    Normalisation, frequencies of classes and mean of a number come from the given training steps alone.

    Args:
        problems: what to fit, keys all different.
        settings: how; defaults where left out.
        callbacks: is told of each probe that is finished, and how far the work is (in passes of single probes).

    Returns:
        The probes, in the order of the problems.

    Raises:
        ValueError: two problems of one key, or a fit that does not converge; names the probe.
    """
    used, told = settings or FitSettings(), callbacks or Callbacks()
    check_keys([problem.key for problem in problems])
    norms: dict[int, tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]] = {}
    for problem in problems:
        key = id(problem.features)
        if key not in norms:
            norms[key] = normalisation(problem.features.vectors)
    found: dict[ProbeKey, Probe] = {}
    for problem in problems:
        if problem.key.head in COUNTED:
            weights = {"table": _frequencies(problem)} if problem.key.head == "position" else {}
            found[problem.key] = _probe(problem, norms[id(problem.features)], weights, used)
            told.keep(problem.key, found[problem.key])
    work = [
        Work(
            stack=stack,
            weights=sum(map(math.prod, _shapes(stack[0], used).values())),
            units=len(stack) * used.epochs,
        )
        for stack in stacks(problems, used)
    ]

    def train(stack: Sequence[Problem], passed: Passed) -> dict[str, npt.NDArray[np.float32]]:
        return _train(stack, [norms[id(problem.features)] for problem in stack], used, passed)

    for stack, weights in train_stacks(work, train, device=used.device, progress=told.progress):
        for at, problem in enumerate(stack):
            own = {name: np.ascontiguousarray(array[at]) for name, array in weights.items()}
            if not all(np.isfinite(array).all() for array in own.values()):
                raise ValueError(
                    f"the fit of {problem.key.text!r} must converge, its weights became infinite: lower the rate"
                )
            found[problem.key] = _probe(problem, norms[id(problem.features)], own, used)
            told.keep(problem.key, found[problem.key])
    return [found[problem.key] for problem in problems]


def stacks(problems: Sequence[Problem], settings: FitSettings) -> Iterator[list[Problem]]:
    """Return which trained problems go together: equal head, task and shapes, as many as memory allows."""
    groups: dict[tuple[Any, ...], list[Problem]] = {}
    for problem in problems:
        if problem.key.head not in COUNTED:
            key = (problem.key.head, problem.target.shape, problem.features.source.width)
            groups.setdefault(key, []).append(problem)
    limit = _FLOATS["cpu" if settings.device == "cpu" else "cuda"]
    for (head, shape, width), group in groups.items():
        cells = shape[1] if len(shape) == 2 else 1
        inner = settings.hidden if head == "mlp" else len(CLASSES)
        # A step holds an array of all cells; the optimiser four arrays of the size of the weights.
        weights = width * (cells * inner if head == "percell" else inner)
        distinct = len({id(problem.features) for problem in group}) > 1
        own = max(settings.batch * cells * inner, 4 * weights, shape[0] * width if distinct else 0)
        size = max(1, min(_PER_STACK, limit // own))
        for begin in range(0, len(group), size):
            yield group[begin : begin + size]


def normalisation(
    vectors: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return mean and standard deviation of each input, ``[F]``; 0 where it varies by no more than rounding does.

    Numbers below the least normal one of float32 (1e-38) are rounded to few digits: they count as not varying.
    """
    centre = vectors.mean(axis=0, dtype=np.float64)
    spread = vectors.std(axis=0, dtype=np.float64)
    level = _SMALL * max(float(spread.max(initial=0)), 0.0)
    least = float(np.finfo(np.float32).tiny)
    spread[(spread <= level) | (spread <= _SMALL * np.abs(centre)) | (spread < least)] = 0.0
    return centre.astype(np.float32), spread.astype(np.float32)


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


def _frequencies(problem: Problem) -> npt.NDArray[np.float32]:
    """Return the log frequency of each class in each cell less its log frequency in all, ``[C, K]``.

    Half a step of each class's overall frequency is added to every cell, so that no class is impossible anywhere.
    """
    prior = frequencies(problem.target)
    counts = np.stack([(problem.target == label).sum(axis=0) for label in range(len(CLASSES))], axis=1)
    smooth = (counts + 0.5 * prior) / (len(problem.target) + 0.5)
    ratio = np.divide(smooth, prior, out=np.ones_like(smooth), where=prior > 0)
    return np.log(ratio).astype(np.float32)


def _probe(
    problem: Problem,
    norm: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]],
    weights: Mapping[str, npt.NDArray[np.float32]],
    settings: FitSettings,
) -> Probe:
    trained: dict[str, Tag] = {"steps": len(problem.features), "grids": len(set(problem.features.grid_id.tolist()))}
    if problem.key.head not in COUNTED:
        trained |= {name: getattr(settings, name) for name in ("epochs", "rate", "decay", "batch", "seed")}
    return Probe(
        head=problem.key.head,
        task=problem.task,
        source=problem.features.source,
        frame=problem.frame,
        prior=frequencies(problem.target) if problem.task == "cells" else np.zeros(0),
        centre=norm[0],
        spread=norm[1],
        target=_scale(problem),
        weights=weights,
        tags={**trained, **problem.tags},
    )


def _scale(problem: Problem) -> tuple[float, float]:
    if problem.task == "cells":
        return 0.0, 1.0
    return float(problem.target.mean()), float(problem.target.std()) or 1.0


def _shapes(problem: Problem, settings: FitSettings) -> dict[str, tuple[int, ...]]:
    return weight_shapes(problem.key.head, problem.task, problem.features.source.width, problem.frame, settings.hidden)


def _train(
    stack: Sequence[Problem],
    norms: Sequence[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]],
    settings: FitSettings,
    passed: Passed,
) -> dict[str, npt.NDArray[np.float32]]:
    """Train one stack of Q problems; return name -> ``[Q, ...]``."""
    import torch

    first = stack[0]
    count, device = len(first.features), torch.device(settings.device)
    shapes = _shapes(first, settings)
    drawn = initial_weights(shapes, settings.seed)
    weights = {name: torch.tensor(np.stack([drawn[name]] * len(stack)), device=device) for name in shapes}
    # The coordinates of a number's one cell are 0: their weights stay what they are.
    for tensor in weights.values():
        tensor.requires_grad_()
    vectors = _vectors(stack, norms, device)
    cells = torch.tensor(coordinates(first.frame), device=device)
    if first.task == "cells":
        target = torch.tensor(np.stack([problem.target for problem in stack]).astype(np.int64), device=device)
        balance = torch.tensor(
            np.stack([class_weights(frequencies(problem.target)) for problem in stack]), device=device
        )
    else:
        scaled = [(problem.target - _scale(problem)[0]) / _scale(problem)[1] for problem in stack]
        target = torch.tensor(np.stack(scaled).astype(np.float32), device=device)
        balance = torch.empty(0)
    optimiser = torch.optim.AdamW(list(weights.values()), lr=settings.rate, weight_decay=settings.decay)
    batches = list(order(count, settings))
    each = len(batches) // settings.epochs
    for at, rows in enumerate(batches):
        for group in optimiser.param_groups:
            group["lr"] = settings.rate * (1 - at / len(batches))
        chosen = torch.tensor(rows, device=device)
        scored = scores(first.key.head, weights, vectors[:, chosen], cells)
        if first.task == "cells":
            loss = cell_loss(scored, target[:, chosen], balance)
        else:
            loss = (scored[:, :, 0, 0] - target[:, chosen]).square().mean(dim=1)
        # The sum over problems: the gradient of each is its own, and AdamW works weight by weight.
        optimiser.zero_grad(set_to_none=True)
        loss.sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if (at + 1) % each == 0:
            passed((at + 1) // each * len(stack))
    return {name: tensor.detach().cpu().numpy() for name, tensor in weights.items()}


def order(count: int, settings: FitSettings) -> Iterator[npt.NDArray[np.int64]]:
    """Return the batches of all passes, the same for all problems of a stack: seed and count alone decide them."""
    for epoch in range(settings.epochs):
        shuffled = stream(settings.seed, "probe order", count, epoch).permutation(count)
        for begin in range(0, count, settings.batch):
            yield shuffled[begin : begin + settings.batch]


def _vectors(
    stack: Sequence[Problem],
    norms: Sequence[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]],
    device: Any,
) -> Tensor:
    """Return the normalised inputs, ``[Q, N, F]``, or ``[1, N, F]`` where all problems have the same."""
    import torch

    shared = len({id(problem.features) for problem in stack}) == 1
    used = zip(stack[:1], norms[:1], strict=True) if shared else zip(stack, norms, strict=True)
    parts = [torch.tensor(normalised(problem.features.vectors, *norm)) for problem, norm in used]
    return torch.stack(parts).to(device)
