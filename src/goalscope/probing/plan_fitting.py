"""Fitting decoders of plans: those of one size and shape train as one batched problem.

The loss is the cross-entropy of the executed tokens; place i (from 0) weighs 0.9^i, unknown places nothing. Part of the
training grids is held back: the weights that are kept are those of the pass with the least loss on these grids.

Source: behavioural and representational evaluation, section 5.3 (sizes, validation set); the authors' scripts (AdamW,
learning rate 1e-4, batch 32, weights of the places).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.activations.record import Activations
from goalscope.probing.fitted import ProbeKey, Source, check_keys
from goalscope.probing.fitting import normalisation
from goalscope.probing.plan_decoder import PlanDecoder, plan_inputs
from goalscope.probing.plan_network import ATTENTION_HEADS, initial_plan_weights, plan_scores, plan_shapes
from goalscope.probing.plans import UNKNOWN, check_tokens
from goalscope.probing.probe import Features
from goalscope.probing.training import Callbacks, Passed, Work, train_stacks
from goalscope.rng import stream
from goalscope.rows import Tag
from goalscope.shapes import check_shape, freeze

if TYPE_CHECKING:
    from torch import Tensor

DISCOUNT: Final = 0.9
"""Weight of a place relative to the one before it."""

_FLOATS: Final = {"cpu": 1 << 26, "cuda": 1 << 31}  # numbers that the decoders of a stack hold while they train
_COPIES: Final = 5  # of each weight: itself, its gradient, two averages of AdamW, the best so far
_PER_STACK: Final = 32

Norm = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """How decoders of plans are trained; the defaults are the paper's sizes.

    Attributes:
        inner: width of bottleneck and decoder, a multiple of the heads.
        feedforward: width of the hidden layer of its perceptrons (the paper does not say; the library's default).
        heads: attention heads of each layer.
        epochs: passes over the training split.
        rate: learning rate of AdamW at the beginning; it falls linearly to 0.
        decay: weight decay of AdamW.
        batch: steps of one batch.
        validation: share of the training grids that decides which pass is kept, in [0, 1); 0 keeps the last one. The
            paper: 600 of 3,600 trajectories.
        seed: root seed of weights, order and validation grids.
        device: where to compute, "cpu" or "cuda".

    Raises:
        ValueError: a number out of its range.
    """

    inner: int = 1024
    feedforward: int = 2048
    heads: int = ATTENTION_HEADS
    epochs: int = 50
    rate: float = 1e-4
    decay: float = 1e-2
    batch: int = 32
    validation: float = 1 / 6
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("inner", "feedforward", "heads", "epochs", "batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} of a fit of plans must be a whole number >= 1, got {value!r}")
        if self.inner % self.heads:
            raise ValueError(f"inner must be a multiple of the {self.heads} heads, got {self.inner}")
        if not (math.isfinite(self.rate) and self.rate > 0 and math.isfinite(self.decay) and self.decay >= 0):
            raise ValueError(f"rate must be > 0 and decay >= 0, got {self.rate!r} and {self.decay!r}")
        if not 0 <= self.validation < 1:
            raise ValueError(f"the validation share must be in [0, 1), got {self.validation!r}")

    def for_laptop(self) -> PlanSettings:
        """Return the same with a small decoder and few passes, for two cores and models as small as Theseus."""
        return replace(self, inner=64, feedforward=128, epochs=20, rate=3e-3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanProblem:
    """One decoder to be fitted.

    Attributes:
        key: which decoder it becomes, different among those fitted together; decides its first weights.
        activations: N training steps.
        tokens: ``[N, T]`` what is to be decoded, see `goalscope.probing.plans.Plans`.
        layers: layers of the decoder; the paper: 1, 2 and 4.
        tags: kept with the decoder.

    Raises:
        ValueError: no steps, plans that are none or all unknown, or no layer.
    """

    key: ProbeKey
    activations: Activations
    tokens: npt.NDArray[np.int8]
    layers: int
    tags: Mapping[str, Tag] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.activations):
            raise ValueError(f"a decoder must have training steps, {self.key.text!r} has none")
        check_tokens("tokens", self.tokens)
        check_shape("tokens", self.tokens, "N T", {"N": len(self.activations)})
        if (self.tokens == UNKNOWN).all():
            raise ValueError(f"a decoder must have known plans to learn from, {self.key.text!r} has none")
        if isinstance(self.layers, bool) or not isinstance(self.layers, int) or self.layers < 1:
            raise ValueError(f"layers of a decoder must be a whole number >= 1, got {self.layers!r}")
        object.__setattr__(self, "tokens", freeze(self.tokens))

    def shapes(self, settings: PlanSettings) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight."""
        return plan_shapes(
            width=self.activations.width,
            inner=settings.inner,
            feedforward=settings.feedforward,
            layers=self.layers,
            horizon=self.tokens.shape[1],
        )

    def weights(self, settings: PlanSettings) -> int:
        """Return how many numbers the weights are."""
        return sum(map(math.prod, self.shapes(settings).values()))


def fit_plans(
    problems: Sequence[PlanProblem],
    settings: PlanSettings | None = None,
    callbacks: Callbacks[PlanDecoder] | None = None,
) -> list[PlanDecoder]:
    """Fit decoders; those of one size, shape and set of grids train together, each as it would alone.

    Normalisation comes from the given training steps alone.

    Args:
        problems: what to fit, keys all different.
        settings: how; the paper's where left out.
        callbacks: is told of each decoder that is finished, and how far the work is (in passes of single layers).

    Returns:
        The decoders, in the order of the problems.

    Raises:
        ValueError: two problems of one key, too few grids for a validation part, or a fit that does not converge.
    """
    used, told = settings or PlanSettings(), callbacks or Callbacks()
    check_keys([problem.key for problem in problems])
    norms: dict[int, Norm] = {}
    for problem in problems:
        if id(problem.activations) not in norms:
            norms[id(problem.activations)] = normalisation(Features.of(problem.activations).vectors)
    found: dict[ProbeKey, PlanDecoder] = {}
    work = [
        # A pass of a decoder of four layers takes as long as four of one layer.
        Work(stack=stack, weights=stack[0].weights(used), units=len(stack) * stack[0].layers * used.epochs)
        for stack in plan_stacks(problems, used)
    ]

    def train(stack: Sequence[PlanProblem], passed: Passed) -> tuple[dict[str, npt.NDArray[np.float32]], list[int]]:
        return _train(stack, [norms[id(problem.activations)] for problem in stack], used, passed)

    for stack, (weights, kept) in train_stacks(work, train, device=used.device, progress=told.progress):
        for at, problem in enumerate(stack):
            own = {name: np.ascontiguousarray(array[at]) for name, array in weights.items()}
            if not all(np.isfinite(array).all() for array in own.values()):
                raise ValueError(
                    f"the fit of {problem.key.text!r} must converge, its weights became infinite: lower the rate"
                )
            found[problem.key] = _decoder(problem, norms[id(problem.activations)], own, used, kept[at])
            told.keep(problem.key, found[problem.key])
    return [found[problem.key] for problem in problems]


def plan_stacks(problems: Sequence[PlanProblem], settings: PlanSettings) -> Iterator[list[PlanProblem]]:
    """Return which problems train together: equal layers, shapes and grids, as many as memory allows."""
    groups: dict[tuple[Any, ...], list[PlanProblem]] = {}
    for problem in problems:
        shape = problem.activations.vectors.shape
        key = (problem.layers, problem.tokens.shape[1], shape, tuple(problem.activations.grid_id.tolist()))
        groups.setdefault(key, []).append(problem)
    limit = _FLOATS["cpu" if settings.device == "cpu" else "cuda"]
    for group in groups.values():
        distinct = len({id(problem.activations) for problem in group}) > 1
        own = _COPIES * group[0].weights(settings) + (group[0].activations.vectors.size if distinct else 0)
        size = max(1, min(_PER_STACK, limit // own))
        for begin in range(0, len(group), size):
            yield group[begin : begin + size]


def validation_rows(grid_id: npt.NDArray[np.object_], settings: PlanSettings) -> npt.NDArray[np.bool_]:
    """Return which steps belong to the grids that decide which pass is kept, ``[N]``.

    Raises:
        ValueError: a validation part is wanted and there is one grid only.
    """
    grids = sorted(set(grid_id.tolist()))
    if settings.validation == 0:
        return np.zeros(len(grid_id), dtype=bool)
    if len(grids) < 2:
        raise ValueError("a validation part needs two training grids or more, got one: give more, or validation=0")
    count = min(len(grids) - 1, max(1, round(settings.validation * len(grids))))
    drawn = stream(settings.seed, "plan validation", len(grids)).permutation(len(grids))[:count]
    held = {grids[index] for index in drawn}
    return np.fromiter((grid in held for grid in grid_id.tolist()), dtype=bool, count=len(grid_id))


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


def plan_order(rows: npt.NDArray[np.int64], epoch: int, settings: PlanSettings) -> Iterator[npt.NDArray[np.int64]]:
    """Return the batches of one pass; seed and number of steps alone decide their order."""
    shuffled = rows[stream(settings.seed, "plan order", len(rows), epoch).permutation(len(rows))]
    for begin in range(0, len(shuffled), settings.batch):
        yield shuffled[begin : begin + settings.batch]


def _train(
    stack: Sequence[PlanProblem],
    norms: Sequence[Norm],
    settings: PlanSettings,
    passed: Passed,
) -> tuple[dict[str, npt.NDArray[np.float32]], list[int]]:
    """Train one stack of Q problems; return name -> ``[Q, ...]`` and the pass that was kept of each."""
    import torch

    first, device = stack[0], torch.device(settings.device)
    shapes = first.shapes(settings)
    drawn = [initial_plan_weights(shapes, settings.seed, problem.key.text) for problem in stack]
    weights = {name: torch.tensor(np.stack([one[name] for one in drawn]), device=device) for name in shapes}
    for tensor in weights.values():
        tensor.requires_grad_()
    vectors = _vectors(stack, norms, device)
    tokens = torch.tensor(np.stack([problem.tokens for problem in stack]).astype(np.int64), device=device)
    held = validation_rows(first.activations.grid_id, settings)
    rows, checked = np.flatnonzero(~held), np.flatnonzero(held)
    # Where no held-back plan is known there is nothing to choose a pass by: the last one is kept.
    blind = (tokens[:, torch.tensor(checked, device=device)] == UNKNOWN).all(dim=2).all(dim=1)
    optimiser = torch.optim.AdamW(list(weights.values()), lr=settings.rate, weight_decay=settings.decay)
    steps = settings.epochs * -(-len(rows) // settings.batch)
    best, least = dict(weights), torch.full((len(stack),), math.inf, device=device)
    kept = torch.zeros(len(stack), dtype=torch.int64, device=device)
    at = 0
    for epoch in range(settings.epochs):
        for batch in plan_order(rows, epoch, settings):
            for group in optimiser.param_groups:
                group["lr"] = settings.rate * (1 - at / steps)
            chosen = torch.tensor(batch, device=device)
            scored = plan_scores(weights, vectors[:, chosen], layers=first.layers, heads=settings.heads)
            # The sum over problems: the gradient of each is its own, and AdamW works weight by weight.
            optimiser.zero_grad(set_to_none=True)
            plan_loss(scored, tokens[:, chosen]).sum().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            at += 1
        if len(checked):
            loss = _validation_loss(weights, vectors, tokens, checked, first.layers, settings)
            better = (loss < least) | blind
            least, kept = torch.where(better, loss, least), torch.where(better, epoch, kept)
            with torch.no_grad():
                best = {
                    name: torch.where(_wide(better, one), one, best[name]).detach() for name, one in weights.items()
                }
        passed((epoch + 1) * len(stack) * first.layers)
    if not len(checked):
        best, kept = weights, torch.full_like(kept, settings.epochs - 1)
    return {name: tensor.detach().cpu().numpy() for name, tensor in best.items()}, kept.tolist()


def _validation_loss(
    weights: Mapping[str, Tensor],
    vectors: Tensor,
    tokens: Tensor,
    rows: npt.NDArray[np.int64],
    layers: int,
    settings: PlanSettings,
) -> Tensor:
    """Return the loss of each problem on the held-back steps, ``[Q]``: batches weigh by their steps."""
    import torch

    total = torch.zeros(len(tokens), device=tokens.device)
    with torch.inference_mode():
        for begin in range(0, len(rows), 4 * settings.batch):
            chosen = torch.tensor(rows[begin : begin + 4 * settings.batch], device=tokens.device)
            scored = plan_scores(weights, vectors[:, chosen], layers=layers, heads=settings.heads)
            total += len(chosen) * plan_loss(scored, tokens[:, chosen])
    return total / len(rows)


def _wide(mask: Tensor, like: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (like.ndim - 1))


def _vectors(stack: Sequence[PlanProblem], norms: Sequence[Norm], device: Any) -> Tensor:
    """Return the normalised inputs, ``[Q, N, P, D]``, or ``[1, N, P, D]`` where all problems have the same."""
    import torch

    shared = len({id(problem.activations) for problem in stack}) == 1
    used = zip(stack[:1], norms[:1], strict=True) if shared else zip(stack, norms, strict=True)
    parts = [torch.tensor(plan_inputs(problem.activations.vectors, *norm)) for problem, norm in used]
    return torch.stack(parts).to(device)


def _decoder(
    problem: PlanProblem,
    norm: Norm,
    weights: Mapping[str, npt.NDArray[np.float32]],
    settings: PlanSettings,
    kept: int,
) -> PlanDecoder:
    trained: dict[str, Tag] = {
        "steps": len(problem.activations),
        "grids": len(set(problem.activations.grid_id.tolist())),
        "kept": kept,
        **{name: getattr(settings, name) for name in ("epochs", "rate", "decay", "batch", "validation", "seed")},
    }
    given, positions = problem.activations, problem.activations.vectors.shape[1]
    return PlanDecoder(
        source=Source(site=given.site, layer=given.layer, model=given.model, width=positions * given.width),
        positions=positions,
        horizon=problem.tokens.shape[1],
        layers=problem.layers,
        heads=settings.heads,
        centre=norm[0],
        spread=norm[1],
        weights=weights,
        tags={**trained, **problem.tags},
    )
