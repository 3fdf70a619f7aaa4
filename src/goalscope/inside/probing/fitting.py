"""Fitting of probes. Problems with the same head and shapes train as one batch, with the same results as alone.

A `Problem` is a head (`inside.probing.heads`) with a target. Inputs are normalised on the training steps, all grids
have equal weight, as in the scores, and part of the training grids is held out for validation. A head with a solver is
solved in closed form with the penalty that is best on the validation grids. Other heads are trained with AdamW and a
learning rate that falls linearly to 0, and the weights of the epoch with the minimum validation loss are kept. The
weight decay can be chosen on the validation grids too.
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

from goalscope._ground.progress import Progress
from goalscope._ground.rng import stream
from goalscope.agents.models.threads import one_thread
from goalscope.inside.probing.heads import Weights, check_device, initial_weights, normalised, scores
from goalscope.inside.probing.inputs import of_grids
from goalscope.inside.probing.probe import Probe, ProbeKey
from goalscope.inside.probing.problem import FitSettings, Norm, Problem
from goalscope.inside.probing.ridge import PENALTIES
from goalscope.runs.executors import lost_worker
from goalscope.stats.rows import Tag

if TYPE_CHECKING:
    from torch import Tensor

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Callbacks of a fit.

    ``find`` returns the stored probe of a key, or None; ``keep`` is called with the probes of each stack as soon as all
    are fitted, so that an interrupted fit can continue. It must store all of them or none, because the last bits of a
    probe can depend on the probes that train with it. ``progress`` is called with the numbers of finished and of all
    units. ``pool`` trains stacks in other processes, with identical results to the byte.
    """

    find: Callable[[ProbeKey], Probe | None] = lambda key: None
    keep: Callable[[Mapping[ProbeKey, Probe]], None] = lambda probes: None
    progress: Progress = lambda done, total: None
    pool: Executor | None = None


def fit(
    problems: Sequence[Problem], settings: FitSettings | None = None, callbacks: Callbacks | None = None
) -> list[Probe]:
    """Fit probes. Compatible problems are trained together; each gets the same result as if trained by itself, up to
    rounding.

    Everything that is learned, including the normalisation, comes only from the given training steps.

    Args:
        problems: what to fit, with all keys different.
        settings: how to fit; missing settings have defaults.
        callbacks: source of stored probes, receiver of fitted ones and of progress (in epochs of single layers).

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
            for index, problem in enumerate(stack):
                weights = {name: np.ascontiguousarray(array[index]) for name, array in trained.weights.items()}
                if not all(np.isfinite(array).all() for array in weights.values()):
                    raise ValueError(
                        f"the fit of {problem.key.text!r} did not converge, its weights became infinite: lower the rate"
                    )
                kept_epoch = None if trained.kept is None else trained.kept[index]
                solved = trained.tags[index] if trained.tags else {}
                probes[problem.key] = problem.finished(
                    norms[id(problem.features)], weights, fit_settings, kept_epoch, solved
                )
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
            for problem, loss in zip(stack, trained_stack.loss, strict=True):
                losses[problem.key][penalty] = loss
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
) -> Iterator[tuple[list[Problem], _Trained]]:
    """Train stacks of problems with the same settings."""
    work = [
        Work(stack=stack, weights=stack[0].weights(settings), units=len(stack) * _cost(stack[0], settings))
        for stack in planned
    ]

    def train(stack: Sequence[Problem], advance: Advance) -> _Trained:
        return _train(stack, [norms[id(problem.features)] for problem in stack], settings, advance)

    def send(stack: Sequence[Problem]) -> Future[_Trained]:
        assert hooks.pool is not None
        stack_norms = [norms[id(problem.features)] for problem in stack]
        return hooks.pool.submit(_train_elsewhere, stack, stack_norms, settings)

    elsewhere = None if hooks.pool is None else send
    return train_stacks(work, train, device=settings.device, progress=hooks.progress, elsewhere=elsewhere)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Generic[Stack]):
    """Stack of probes that train together, with the number of weights per probe and the total units of progress."""

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
    """Train stacks and yield each stack with its result: first the large stacks, then the small ones, each in order.

    The operations of small stacks take microseconds. A second thread gains little for them, and if another process
    occupies its core, every operation waits (steps became up to ten times as long). On a CPU, small stacks therefore
    use one thread each and train in parallel on as many threads as PyTorch has. The results do not depend on which
    stacks train at the same time. Large stacks, and all stacks on a GPU, train one after another.

    If ``elsewhere`` is given, it passes small stacks, or all stacks on a GPU, to another process.
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


def _train_elsewhere(stack: Sequence[Problem], norms: Sequence[Norm], settings: FitSettings) -> _Trained:
    with one_thread():
        return _train(stack, norms, settings, lambda units: None)


def _cost(problem: Problem, settings: FitSettings) -> int:
    """Return the cost of a fit in epochs of a single layer; a solver that reads activations counts as one."""
    module = problem.module(settings)
    if hasattr(module, "solve"):
        return int(problem.registered.reads)
    return settings.epochs * int(getattr(module, "cost", 1))


def stacks(problems: Sequence[Problem], settings: FitSettings) -> Iterator[list[Problem]]:
    """Yield stacks of problems with equal `stack_key`, which are fitted together, as large as memory allows."""
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
    """Compute mean and standard deviation of each input, ``[F]``; 0 if it varies by no more than rounding errors.

    Standard deviations below the smallest normal float32 number (1e-38) have few digits and also become 0.
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    std = vectors.std(axis=0, dtype=np.float64)
    level = _SMALL * max(float(std.max(initial=0)), 0.0)
    std[(std <= level) | (std <= _SMALL * np.abs(mean)) | (std < np.finfo(np.float32).tiny)] = 0.0
    return mean.astype(np.float32), std.astype(np.float32)


def order(rows: npt.NDArray[np.int64], epoch: int, settings: FitSettings, name: str) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the batches of one epoch. Their order depends only on the seed, the number of steps and the stream name."""
    shuffled = rows[stream(settings.seed, name, len(rows), epoch).permutation(len(rows))]
    for begin in range(0, len(shuffled), settings.batch):
        yield shuffled[begin : begin + settings.batch]


def validation_rows(cluster: npt.NDArray[np.object_], settings: FitSettings) -> npt.NDArray[np.bool_]:
    """Return ``[N]`` whether each step belongs to a validation grid, which chooses the epoch or the penalty."""
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Trained:
    """Weights of Q probes, ``[Q, ...]`` each; for trained probes also the chosen epoch and its validation loss."""

    weights: Weights
    kept: list[int] | None = None
    loss: list[float] = field(default_factory=list)
    tags: list[Mapping[str, Tag]] = field(default_factory=list)


def _train(stack: Sequence[Problem], norms: Sequence[Norm], settings: FitSettings, advance: Advance) -> _Trained:
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
    return _Trained(weights=arrays, kept=kept_epoch.tolist(), loss=min_loss.tolist())


def _solve(module: Any, stack: Sequence[Problem], vectors: Tensor, settings: FitSettings, advance: Advance) -> _Trained:
    """Solve Q problems one by one."""
    held_out, penalties = validation_rows(stack[0].features.cluster, settings), settings.penalties or PENALTIES
    solutions = []
    for index, problem in enumerate(stack):
        solutions.append(module.solve(vectors[index if len(vectors) > 1 else 0], problem.target, penalties, held_out))
        if problem.registered.reads:
            advance(index + 1)
    weights = {name: np.stack([solution.weights[name] for solution in solutions]) for name in solutions[0].weights}
    return _Trained(weights=weights, tags=[solution.tags for solution in solutions])


def _vectors(stack: Sequence[Problem], norms: Sequence[Norm], device: Any) -> Tensor:
    """Return the normalised inputs, ``[Q, N, F]``, or ``[1, N, F]`` if all problems have the same inputs."""
    import torch

    shared = len({id(problem.features) for problem in stack}) == 1
    distinct = list(zip(stack, norms, strict=True))[: 1 if shared else None]
    inputs = [torch.tensor(normalised(problem.features.vectors, *norm)) for problem, norm in distinct]
    return torch.stack(inputs).to(device)
