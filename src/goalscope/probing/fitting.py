"""The one fit: problems that share a head and a shape train as one batched problem, each as it would alone.

A `Problem` is a head (`goalscope.probing.heads`) with a target. Whatever they are: inputs are normalised on the
training steps, every grid weighs as much as every other, as in the scores, and part of the training grids is held back.
A head with a solver chooses its penalty there and is solved. The others are trained: AdamW minimises the target's loss
with a learning rate that falls linearly to 0, and the weights that are kept are those of the pass with the least loss
on the grids that were held back. A weight decay can be chosen there, too.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope.models.threads import one_thread
from goalscope.probing.heads import Weights, check_device, initial_weights, normalised, scores
from goalscope.probing.inputs import of_grids
from goalscope.probing.probe import Probe, ProbeKey
from goalscope.probing.problem import FitSettings, Norm, Problem
from goalscope.probing.ridge import PENALTIES
from goalscope.progress import Progress
from goalscope.rng import stream
from goalscope.rows import Tag
from goalscope.runs.executors import lost_worker

if TYPE_CHECKING:
    from torch import Tensor

_SMALL: Final = 1e-6  # an input that varies less than this, relative to all inputs, is rounding
INNER: Final = 0.2
"""Part of the training grids that chooses a penalty where no validation part is wanted."""
_ONE_THREAD: Final = 4_000_000  # weights of one probe below which one thread trains
_SIDE_BY_SIDE: Final = 4  # most stacks that hold memory at the same time
ROOM: Final = {"cpu": 1 << 24, "cuda": 1 << 30}
"""Numbers that the problems of a stack may hold together while they train."""
PER_STACK: Final = 64
"""Most problems of a stack."""

Stack = TypeVar("Stack")
Trained = TypeVar("Trained")
Passed = Callable[[int], None]
"""Told how many units of its stack are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Where probes come from and go to, by their keys.

    ``find`` returns what was fitted before, None where it was not; ``keep`` is called with each probe as soon as it
    is fitted, so that an interrupted fit can go on; ``progress`` as the work goes on. ``pool`` trains stacks in other
    processes, where there is one; it changes no byte.
    """

    find: Callable[[ProbeKey], Probe | None] = lambda key: None
    keep: Callable[[ProbeKey, Probe], None] = lambda key, made: None
    progress: Progress = lambda done, total: None
    pool: Executor | None = None


def fit(
    problems: Sequence[Problem], settings: FitSettings | None = None, callbacks: Callbacks | None = None
) -> list[Probe]:
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
    keys = [problem.key for problem in problems]
    if len(set(keys)) != len(keys):
        raise ValueError(f"problems must have different keys, got {', '.join(key.text for key in keys)}")
    found = {key: known for key in keys if (known := told.find(key)) is not None}
    missing = [problem for problem in problems if problem.key not in found]
    distinct = {id(problem.features): problem.features.vectors for problem in missing}
    norms = {identity: normalisation(vectors) for identity, vectors in distinct.items()}
    for how, wanted in _groups(missing, norms, used, told):
        for stack, made in _trained(wanted, norms, how, told):
            for at, problem in enumerate(stack):
                own = {name: np.ascontiguousarray(array[at]) for name, array in made.weights.items()}
                if not all(np.isfinite(array).all() for array in own.values()):
                    raise ValueError(
                        f"the fit of {problem.key.text!r} must converge, its weights became infinite: lower the rate"
                    )
                kept = None if made.kept is None else made.kept[at]
                solved = made.tags[at] if made.tags else {}
                found[problem.key] = problem.finished(norms[id(problem.features)], own, how, kept, solved)
                told.keep(problem.key, found[problem.key])
    return [found[key] for key in keys]


def _groups(
    problems: Sequence[Problem], norms: Mapping[int, Norm], used: FitSettings, told: Callbacks
) -> list[tuple[FitSettings, list[Problem]]]:
    """Return the problems by the settings that each is fitted with: trained ones with the best decay on inner grids."""
    modules = {problem.key: problem.module(used) for problem in problems}
    solved = [problem for problem in problems if hasattr(modules[problem.key], "solve")]
    trained = [problem for problem in problems if not hasattr(modules[problem.key], "solve")]
    losses: dict[ProbeKey, dict[float, float]] = {problem.key: {} for problem in trained}
    for penalty in used.penalties:
        inner = replace(used, weight_decay=penalty, validation=used.validation or INNER)
        for stack, made in _trained(trained, norms, inner, told):
            for problem, loss in zip(stack, made.loss, strict=True):
                losses[problem.key][penalty] = loss
    groups: dict[FitSettings, list[Problem]] = {}
    for problem in trained:
        own = losses[problem.key]
        decay = min(own, key=own.__getitem__, default=used.weight_decay)
        validation = used.validation if getattr(modules[problem.key], "early", True) else 0.0
        groups.setdefault(replace(used, weight_decay=decay, validation=validation), []).append(problem)
    # What is solved comes first: it takes little time.
    return [(used, solved), *groups.items()]


def _trained(
    problems: Sequence[Problem], norms: Mapping[int, Norm], settings: FitSettings, told: Callbacks
) -> Iterator[tuple[list[Problem], _Trained]]:
    """Train problems with the same settings, stack by stack."""
    work = [
        Work(stack=stack, weights=stack[0].weights(settings), units=len(stack) * _cost(stack[0], settings))
        for stack in stacks(problems, settings)
    ]

    def train(stack: Sequence[Problem], passed: Passed) -> _Trained:
        return _train(stack, [norms[id(problem.features)] for problem in stack], settings, passed)

    def send(stack: Sequence[Problem]) -> Future[_Trained]:
        assert told.pool is not None
        own = [norms[id(problem.features)] for problem in stack]
        return told.pool.submit(_train_elsewhere, stack, own, settings)

    elsewhere = None if told.pool is None else send
    return train_stacks(work, train, device=settings.device, progress=told.progress, elsewhere=elsewhere)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Generic[Stack]):
    """A stack of probes that train as one problem: numbers in the weights of each, and units of progress in all."""

    stack: Stack
    weights: int
    units: int


def train_stacks(
    work: Sequence[Work[Stack]],
    train: Callable[[Stack, Passed], Trained],
    *,
    device: str,
    progress: Progress,
    elsewhere: Callable[[Stack], Future[Trained]] | None = None,
) -> Iterator[tuple[Stack, Trained]]:
    """Train stacks and yield what came out, large ones first, else in their order.

    The operations of small stacks take microseconds: a second thread within them gains little, and where another
    process holds its core it waits at every one of them (ten times as long a step was seen). On a processor they are
    therefore computed with one thread each, as many side by side as PyTorch has threads: who trains beside whom changes
    no byte. Large stacks, and all on a GPU, train one after another.

    With ``elsewhere``, which hands a stack to another process, small stacks train there, and all on a GPU.
    """
    import torch

    if elsewhere is None:  # another process may see a GPU that this one does not
        check_device(device)
    total, lock, stop = sum(one.units for one in work), threading.Lock(), threading.Event()
    done = [0] * len(work)

    def job(at: int) -> Trained:
        def passed(units: int) -> None:
            if stop.is_set():
                raise CancelledError
            with lock:
                done[at] = units
                progress(sum(done), total)

        return train(work[at].stack, passed)

    small = [at for at, one in enumerate(work) if device == "cpu" and one.weights < _ONE_THREAD]
    if elsewhere is not None:
        sent = small if device == "cpu" else list(range(len(work)))
        waiting = {at: elsewhere(work[at].stack) for at in sorted(sent, key=lambda at: -work[at].units)}
        try:
            for at in sorted(set(range(len(work))) - set(sent)):
                yield work[at].stack, job(at)
            for at in sent:
                made = waiting[at].result()
                done[at] = work[at].units
                progress(sum(done), total)
                yield work[at].stack, made
        except BrokenExecutor as error:
            raise lost_worker(error) or error from None
        finally:
            for future in waiting.values():
                future.cancel()
        return
    for at in sorted(set(range(len(work))) - set(small)):
        yield work[at].stack, job(at)
    with one_thread() as threads:
        beside = min(threads, len(small), _SIDE_BY_SIDE)
        if beside < 2:
            for at in small:
                yield work[at].stack, job(at)
            return
        with ThreadPoolExecutor(beside, "goalscope-fit", initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                # The longest begin first, so that none is left over at the end.
                told = {at: pool.submit(job, at) for at in sorted(small, key=lambda at: -work[at].units)}
                for at in small:
                    yield work[at].stack, told[at].result()
            except BaseException:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _train_elsewhere(stack: Sequence[Problem], norms: Sequence[Norm], settings: FitSettings) -> _Trained:
    with one_thread():
        return _train(stack, norms, settings, lambda units: None)


def _cost(problem: Problem, settings: FitSettings) -> int:
    """Return how long a fit takes in passes of a single layer; a solver counts as one where it reads anything."""
    module = problem.module(settings)
    if hasattr(module, "solve"):
        return int(problem.registered.reads)
    return settings.epochs * int(getattr(module, "cost", 1))


def stacks(problems: Sequence[Problem], settings: FitSettings) -> Iterator[list[Problem]]:
    """Return which problems go together: those of one company, as many as memory allows."""
    groups: dict[tuple[Any, ...], list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem.company, []).append(problem)
    for group in groups.values():
        distinct = len({id(problem.features) for problem in group}) > 1
        room = ROOM["cpu" if settings.device == "cpu" else "cuda"]
        size = max(1, min(PER_STACK, room // group[0].numbers(settings, distinct=distinct)))
        for begin in range(0, len(group), size):
            yield group[begin : begin + size]


def normalisation(vectors: npt.NDArray[np.float32]) -> Norm:
    """Return mean and standard deviation of each input, ``[F]``; 0 where it varies by no more than rounding does.

    Numbers below the least normal one of float32 (1e-38) have few digits: they count as not varying.
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    std = vectors.std(axis=0, dtype=np.float64)
    level = _SMALL * max(float(std.max(initial=0)), 0.0)
    std[(std <= level) | (std <= _SMALL * np.abs(mean)) | (std < np.finfo(np.float32).tiny)] = 0.0
    return mean.astype(np.float32), std.astype(np.float32)


def order(rows: npt.NDArray[np.int64], epoch: int, settings: FitSettings, name: str) -> Iterator[npt.NDArray[np.int64]]:
    """Return the batches of one pass; seed, number of steps and name of the stream alone decide their order."""
    shuffled = rows[stream(settings.seed, name, len(rows), epoch).permutation(len(rows))]
    for begin in range(0, len(shuffled), settings.batch):
        yield shuffled[begin : begin + settings.batch]


def validation_rows(grid_id: npt.NDArray[np.object_], settings: FitSettings) -> npt.NDArray[np.bool_]:
    """Return which steps belong to the grids that are held back of a fit and choose its pass or penalty, ``[N]``."""
    if settings.validation == 0:
        return np.zeros(len(grid_id), dtype=bool)
    grids = sorted(set(grid_id.tolist()))
    if len(grids) < 2:
        raise ValueError("a validation part needs two training grids or more, got one: give more, or validation=0")
    count = min(len(grids) - 1, max(1, round(settings.validation * len(grids))))
    drawn = stream(settings.seed, "plan validation", len(grids)).permutation(len(grids))[:count]
    held = {grids[index] for index in drawn}
    return of_grids(grid_id, held)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Trained:
    """Weights of Q probes, ``[Q, ...]`` each; of trained ones their pass and its loss on held-back grids."""

    weights: Weights
    kept: list[int] | None = None
    loss: list[float] = field(default_factory=list)
    tags: list[Mapping[str, Tag]] = field(default_factory=list)


def _train(stack: Sequence[Problem], norms: Sequence[Norm], settings: FitSettings, passed: Passed) -> _Trained:
    """Train one stack of Q problems, or solve them."""
    import torch

    first, device = stack[0], torch.device(settings.device)
    module = first.module(settings, numbers=True).to(device)
    reads = first.registered.reads
    vectors = _vectors(stack, norms, device) if reads else torch.zeros(1, len(first.features), 0)
    if hasattr(module, "solve"):
        inner = replace(settings, validation=(settings.validation or INNER) if reads else 0.0)
        return _solve(module, stack, vectors, inner, passed)
    held = validation_rows(first.features.grid_id, settings)
    rows, checked = np.flatnonzero(~held), np.flatnonzero(held)
    targets = first.target.loss([problem.target for problem in stack], device)

    def loss(weights: Mapping[str, Any], chosen: Any) -> Any:
        return targets(scores(module, weights, vectors[:, chosen]), chosen)

    def checked_loss(weights: Mapping[str, Any]) -> Any:
        """Return the loss of each problem on the held-back steps, ``[Q]``: batches weigh by their steps."""
        total, size = torch.zeros((), device=device), 4 * settings.batch
        with torch.inference_mode():
            for begin in range(0, len(checked), size):
                chosen = torch.tensor(checked[begin : begin + size], device=device)
                total = total + len(chosen) * loss(weights, chosen)
        return total / len(checked)

    drawn = [initial_weights(module, settings.seed, problem.key.text) for problem in stack]
    weights = {name: torch.tensor(np.stack([one[name] for one in drawn]), device=device) for name in drawn[0]}
    for tensor in weights.values():
        tensor.requires_grad_()
    # Where no held-back target is known there is nothing to choose a pass by: the last one is kept.
    blind = torch.tensor([not problem.target.known[checked].any() for problem in stack], device=device)
    optimiser = torch.optim.AdamW(list(weights.values()), lr=settings.lr, weight_decay=settings.weight_decay)
    steps, at = settings.epochs * -(-len(rows) // settings.batch), 0
    best, least = dict(weights), torch.full((len(stack),), math.inf, device=device)
    kept = torch.full((len(stack),), settings.epochs - 1, dtype=torch.int64, device=device)
    for epoch in range(settings.epochs):
        for batch in order(rows, epoch, settings, first.target.ORDER):
            for group in optimiser.param_groups:
                group["lr"] = settings.lr * (1 - at / steps)
            # The sum over problems: the gradient of each is its own, and AdamW works weight by weight.
            optimiser.zero_grad(set_to_none=True)
            loss(weights, torch.tensor(batch, device=device)).sum().backward()
            optimiser.step()
            at += 1
        if len(checked):
            now = checked_loss(weights)
            better = (now < least) | blind
            least, kept = torch.where(better, now, least), torch.where(better, epoch, kept)
            for name, one in weights.items():
                wide = better.view(-1, *[1] * (one.ndim - 1))
                best[name] = torch.where(wide, one.detach(), best[name].detach())
        passed((epoch + 1) * len(stack) * int(getattr(module, "cost", 1)))
    made = {name: tensor.detach().cpu().numpy() for name, tensor in best.items()}
    return _Trained(weights=made, kept=kept.tolist(), loss=least.tolist())


def _solve(module: Any, stack: Sequence[Problem], vectors: Tensor, settings: FitSettings, passed: Passed) -> _Trained:
    """Solve Q problems one by one."""
    held, penalties = validation_rows(stack[0].features.grid_id, settings), settings.penalties or PENALTIES
    found = []
    for at, problem in enumerate(stack):
        found.append(module.solve(vectors[at if len(vectors) > 1 else 0], problem.target, penalties, held))
        if problem.registered.reads:
            passed(at + 1)
    weights = {name: np.stack([one.weights[name] for one in found]) for name in found[0].weights}
    return _Trained(weights=weights, tags=[one.tags for one in found])


def _vectors(stack: Sequence[Problem], norms: Sequence[Norm], device: Any) -> Tensor:
    """Return the normalised inputs, ``[Q, N, F]``, or ``[1, N, F]`` where all problems have the same."""
    import torch

    shared = len({id(problem.features) for problem in stack}) == 1
    used = list(zip(stack, norms, strict=True))[: 1 if shared else None]
    return torch.stack([torch.tensor(normalised(one.features.vectors, *norm)) for one, norm in used]).to(device)
