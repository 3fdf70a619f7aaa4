"""The one fit: problems that share a head and a shape train as one batched problem, each as it would alone.

A `Problem` is a head with a target: classes of cells and numbers (`goalscope.probing.probe_problem`), plans
(`goalscope.probing.plan_problem`). Whatever it is: inputs are normalised on the training steps, AdamW minimises the
problem's loss with a learning rate that falls linearly to 0, and where part of the training grids is held back, the
weights that are kept are those of the pass with the least loss there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope.checks import freeze
from goalscope.probing.fitted import Fitted, ProbeKey, check_keys
from goalscope.probing.heads import normalised
from goalscope.probing.probe import Features
from goalscope.probing.training import Callbacks, Passed, Work, train_stacks
from goalscope.rng import stream
from goalscope.rows import Tag

if TYPE_CHECKING:
    from torch import Tensor

_SMALL: Final = 1e-6  # an input that varies less than this, relative to all inputs, is rounding

Made = TypeVar("Made", bound=Fitted)
Weights = dict[str, npt.NDArray[np.float32]]
Norm = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
"""Mean and standard deviation of each input."""
Loss = Callable[[Mapping[str, Any], Any, Any], Any]
"""From weights ``[Q, ...]``, inputs ``[Q or 1, B, F]`` and the rows of the batch ``[B]`` to Q losses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """How probes are trained.

    Attributes:
        epochs: passes over the training split.
        lr: learning rate of AdamW at the beginning; it falls linearly to 0. The authors' scripts: 3e-4, constant.
        weight_decay: weight decay of AdamW.
        batch: activations of one step.
        d_hidden: width of the hidden layer of a perceptron; the paper: 1024.
        d_model: width of bottleneck and layers of a decoder of plans, a multiple of the heads.
        heads: attention heads of each of its layers.
        validation: fraction of the training grids that decides which pass is kept, in [0, 1); 0 keeps the last one.
        seed: root seed of weights, order and validation grids.
        device: where to compute, "cpu" or "cuda".

    Raises:
        ValueError: a number out of its range.
    """

    epochs: int = 50
    lr: float = 1e-3
    weight_decay: float = 1e-3
    batch: int = 32
    d_hidden: int = 1024
    d_model: int = 1024
    heads: int = 8
    validation: float = 0.0
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "d_hidden", "d_model", "heads"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} of a fit must be a whole number >= 1, got {value!r}")
        if self.d_model % self.heads:
            raise ValueError(f"d_model must be a multiple of the {self.heads} heads, got {self.d_model}")
        numbers = math.isfinite(self.lr) and self.lr > 0 and math.isfinite(self.weight_decay) and self.weight_decay >= 0
        if not numbers:
            raise ValueError(f"lr must be > 0 and weight_decay >= 0, got {self.lr!r} and {self.weight_decay!r}")
        if not 0 <= self.validation < 1:
            raise ValueError(f"the validation fraction must be in [0, 1), got {self.validation!r}")

    def for_laptop(self) -> Self:
        """Return the same with a smaller hidden layer and fewer passes, for two cores."""
        return replace(self, d_hidden=128, epochs=20, lr=5e-3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem(ABC, Generic[Made]):
    """One thing to be fitted: a head, what it reads and what it must predict.

    Attributes:
        key: which probe it becomes; different among those fitted together.
        features: N training steps.
        target: ``[N, ...]`` what is to be predicted at each of them.
        tags: kept with the probe.

    Raises:
        ValueError: no steps, or a target that does not fit.
    """

    ORDER: ClassVar[str]
    """Name of the random stream of the order of the steps."""
    ROOM: ClassVar[dict[str, int]]
    """Numbers that the problems of a stack may hold together while they train, "cpu" and "cuda"."""
    PER_STACK: ClassVar[int]
    """Most problems of a stack."""

    key: ProbeKey
    features: Features
    target: npt.NDArray[Any]
    tags: Mapping[str, Tag] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.features):
            raise ValueError(f"a probe must have training steps, {self.key.text!r} has none")
        self.check()
        object.__setattr__(self, "target", freeze(self.target))

    @abstractmethod
    def check(self) -> None:
        """Raise a ValueError unless head and target fit each other and the features."""

    @property
    @abstractmethod
    def company(self) -> tuple[Any, ...]:
        """What problems that train together share: head and shapes."""

    @abstractmethod
    def shapes(self, settings: FitSettings) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight."""

    @property
    def start(self) -> str:
        """Name of the first weights: problems of one name begin with the same ones."""
        return ""

    @abstractmethod
    def first(self, settings: FitSettings) -> Weights:
        """Return the weights that training begins with."""

    @abstractmethod
    def floats(self, settings: FitSettings, *, distinct: bool) -> int:
        """Return how many numbers it holds while it trains; with ``distinct`` its inputs are its own."""

    @property
    def cost(self) -> int:
        """How many times as long a pass takes as one of a single layer."""
        return 1

    def counted(self) -> Weights | None:
        """Return the weights of a head that is counted, None for one that is trained."""
        return None

    def known(self) -> npt.NDArray[np.bool_]:
        """Return at which steps the target is known, ``[N]``."""
        return np.ones(len(self.features), dtype=bool)

    @staticmethod
    @abstractmethod
    def loss(stack: Sequence[Any], settings: FitSettings) -> Loss:
        """Return the losses of Q problems of one company as a function of their weights, inputs and rows."""

    @abstractmethod
    def fitted(self, norm: Norm, weights: Weights, settings: FitSettings, kept: int) -> Made:
        """Return what was fitted; ``kept`` is the pass whose weights these are."""

    def trained_tags(self, settings: FitSettings, *names: str) -> dict[str, Tag]:
        """Return these settings by the names that files have for them."""
        kept = {"rate": "lr", "decay": "weight_decay"}
        return {name: getattr(settings, kept.get(name, name)) for name in names}

    @property
    def counts(self) -> dict[str, Tag]:
        """Numbers of training steps and grids."""
        return {"steps": len(self.features), "grids": len(set(self.features.grid_id.tolist()))}


def fit(
    problems: Sequence[Problem[Made]],
    settings: FitSettings | None = None,
    callbacks: Callbacks[Made] | None = None,
) -> list[Made]:
    """Fit problems; those of one company train together, each as it would alone.

    Everything that is learned, the normalisation too, comes from the given training steps alone.

    Args:
        problems: what to fit, keys all different.
        settings: how; defaults where left out.
        callbacks: gives what is fitted already, and is told of each probe that is finished and how far the work is (in
            passes of single layers).

    Returns:
        What was fitted, in the order of the problems.

    Raises:
        ValueError: two problems of one key, too few grids for a validation part, or a fit that does not converge; names
            the probe.
    """
    used, told = settings or FitSettings(), callbacks or Callbacks()
    check_keys([problem.key for problem in problems])
    found: dict[ProbeKey, Made] = {}
    for problem in problems:
        known = told.find(problem.key)
        if known is not None:
            found[problem.key] = known
    missing = [problem for problem in problems if problem.key not in found]
    norms: dict[int, Norm] = {}
    for problem in missing:
        if id(problem.features) not in norms:
            norms[id(problem.features)] = normalisation(problem.features.vectors)
    trained: list[Problem[Made]] = []

    def finish(problem: Problem[Made], weights: Weights, kept: int) -> None:
        found[problem.key] = problem.fitted(norms[id(problem.features)], weights, used, kept)
        told.keep(problem.key, found[problem.key])

    for problem in missing:
        weights = problem.counted()
        if weights is None:
            trained.append(problem)
        else:
            finish(problem, weights, 0)
    work = [
        Work(
            stack=stack,
            weights=sum(map(math.prod, stack[0].shapes(used).values())),
            units=len(stack) * stack[0].cost * used.epochs,
        )
        for stack in stacks(trained, used)
    ]

    def train(stack: Sequence[Problem[Made]], passed: Passed) -> tuple[Weights, list[int]]:
        return _train(stack, [norms[id(problem.features)] for problem in stack], used, passed)

    for stack, (arrays, kept) in train_stacks(work, train, device=used.device, progress=told.progress):
        for at, problem in enumerate(stack):
            own = {name: np.ascontiguousarray(array[at]) for name, array in arrays.items()}
            if not all(np.isfinite(array).all() for array in own.values()):
                raise ValueError(
                    f"the fit of {problem.key.text!r} must converge, its weights became infinite: lower the rate"
                )
            finish(problem, own, kept[at])
    return [found[problem.key] for problem in problems]


def stacks(problems: Sequence[Problem[Made]], settings: FitSettings) -> Iterator[list[Problem[Made]]]:
    """Return which trained problems go together: those of one company, as many as memory allows."""
    groups: dict[tuple[Any, ...], list[Problem[Made]]] = {}
    for problem in problems:
        groups.setdefault(problem.company, []).append(problem)
    for group in groups.values():
        first = group[0]
        distinct = len({id(problem.features) for problem in group}) > 1
        room = first.ROOM["cpu" if settings.device == "cpu" else "cuda"]
        size = max(1, min(first.PER_STACK, room // first.floats(settings, distinct=distinct)))
        for begin in range(0, len(group), size):
            yield group[begin : begin + size]


def normalisation(vectors: npt.NDArray[np.float32]) -> Norm:
    """Return mean and standard deviation of each input, ``[F]``; 0 where it varies by no more than rounding does.

    Numbers below the least normal one of float32 (1e-38) are rounded to few digits: they count as not varying.
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    std = vectors.std(axis=0, dtype=np.float64)
    level = _SMALL * max(float(std.max(initial=0)), 0.0)
    least = float(np.finfo(np.float32).tiny)
    std[(std <= level) | (std <= _SMALL * np.abs(mean)) | (std < least)] = 0.0
    return mean.astype(np.float32), std.astype(np.float32)


def order(rows: npt.NDArray[np.int64], epoch: int, settings: FitSettings, name: str) -> Iterator[npt.NDArray[np.int64]]:
    """Return the batches of one pass; seed, number of steps and name of the stream alone decide their order."""
    shuffled = rows[stream(settings.seed, name, len(rows), epoch).permutation(len(rows))]
    for begin in range(0, len(shuffled), settings.batch):
        yield shuffled[begin : begin + settings.batch]


def validation_rows(grid_id: npt.NDArray[np.object_], settings: FitSettings) -> npt.NDArray[np.bool_]:
    """Return which steps belong to the grids that decide which pass is kept, ``[N]``.

    Raises:
        ValueError: a validation part is wanted and there is one grid only.
    """
    if settings.validation == 0:
        return np.zeros(len(grid_id), dtype=bool)
    grids = sorted(set(grid_id.tolist()))
    if len(grids) < 2:
        raise ValueError("a validation part needs two training grids or more, got one: give more, or validation=0")
    count = min(len(grids) - 1, max(1, round(settings.validation * len(grids))))
    drawn = stream(settings.seed, "plan validation", len(grids)).permutation(len(grids))[:count]
    held = {grids[index] for index in drawn}
    return np.fromiter((grid in held for grid in grid_id.tolist()), dtype=bool, count=len(grid_id))


def _train(
    stack: Sequence[Problem[Any]], norms: Sequence[Norm], settings: FitSettings, passed: Passed
) -> tuple[Weights, list[int]]:
    """Train one stack of Q problems; return name -> ``[Q, ...]`` and the pass that was kept of each."""
    import torch

    first, device = stack[0], torch.device(settings.device)
    drawn: dict[str, Weights] = {}
    for problem in stack:
        if problem.start not in drawn:
            drawn[problem.start] = problem.first(settings)
    weights = {
        name: torch.tensor(np.stack([drawn[problem.start][name] for problem in stack]), device=device)
        for name in first.shapes(settings)
    }
    for tensor in weights.values():
        tensor.requires_grad_()
    vectors, loss = _vectors(stack, norms, device), first.loss(stack, settings)
    held = validation_rows(first.features.grid_id, settings)
    rows, checked = np.flatnonzero(~held), np.flatnonzero(held)
    # Where no held-back target is known there is nothing to choose a pass by: the last one is kept.
    blind = torch.tensor([not problem.known()[checked].any() for problem in stack], device=device)
    optimiser = torch.optim.AdamW(list(weights.values()), lr=settings.lr, weight_decay=settings.weight_decay)
    steps = settings.epochs * -(-len(rows) // settings.batch)
    best, least = dict(weights), torch.full((len(stack),), math.inf, device=device)
    kept = torch.full((len(stack),), settings.epochs - 1, dtype=torch.int64, device=device)
    at = 0
    for epoch in range(settings.epochs):
        for batch in order(rows, epoch, settings, first.ORDER):
            for group in optimiser.param_groups:
                group["lr"] = settings.lr * (1 - at / steps)
            chosen = torch.tensor(batch, device=device)
            # The sum over problems: the gradient of each is its own, and AdamW works weight by weight.
            optimiser.zero_grad(set_to_none=True)
            loss(weights, vectors[:, chosen], chosen).sum().backward()
            optimiser.step()
            at += 1
        if len(checked):
            now = _validation_loss(loss, weights, vectors, checked, settings)
            better = (now < least) | blind
            least, kept = torch.where(better, now, least), torch.where(better, epoch, kept)
            with torch.no_grad():
                best = {
                    name: torch.where(_wide(better, one), one, best[name]).detach() for name, one in weights.items()
                }
        passed((epoch + 1) * len(stack) * first.cost)
    return {name: tensor.detach().cpu().numpy() for name, tensor in best.items()}, kept.tolist()


def _validation_loss(
    loss: Loss, weights: Mapping[str, Tensor], vectors: Tensor, rows: npt.NDArray[np.int64], settings: FitSettings
) -> Tensor:
    """Return the loss of each problem on the held-back steps, ``[Q]``: batches weigh by their steps."""
    import torch

    total: Tensor = torch.zeros((), device=vectors.device)
    with torch.inference_mode():
        for begin in range(0, len(rows), 4 * settings.batch):
            chosen = torch.tensor(rows[begin : begin + 4 * settings.batch], device=vectors.device)
            total = total + len(chosen) * loss(weights, vectors[:, chosen], chosen)
    return total / len(rows)


def _wide(mask: Tensor, like: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (like.ndim - 1))


def _vectors(stack: Sequence[Problem[Any]], norms: Sequence[Norm], device: Any) -> Tensor:
    """Return the normalised inputs, ``[Q, N, F]``, or ``[1, N, F]`` where all problems have the same."""
    import torch

    shared = len({id(problem.features) for problem in stack}) == 1
    used = zip(stack[:1], norms[:1], strict=True) if shared else zip(stack, norms, strict=True)
    parts = [torch.tensor(normalised(problem.features.vectors, *norm)) for problem, norm in used]
    return torch.stack(parts).to(device)
