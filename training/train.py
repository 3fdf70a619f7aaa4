"""Train a bundled model from scratch: seeded, resumable, on a processor or a GPU.

A run lives in a folder: the last two checkpoints, and ``curve.jsonl`` with everything that was measured. The same
command continues it. The learning rate rises, stays, and once a decay is asked for falls to 2 % over the last steps;
without one the run goes on at the constant rate.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from training import checkpoint
from training.data import Mixture
from training.network import Shape, export, forward, initialise
from training.optimise import Optimiser
from training.sources import block_of, source_of
from training.task_data import TaskMixture

SMALL_PRESETS = ("medium-small", "high-small", "medium-medium", "high-medium")
"""Task maps of the first steps."""
FLOOR = 0.02
"""Share of the learning rate that is left at the end of a decay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that determines a training run.

    Attributes:
        shape: the model's shape.
        mixture: the training data: grids or task worlds.
        small_steps: first steps, on the two smallest sizes of grids or on the smallest task maps alone.
        auxiliary_steps: first steps, in which the auxiliary loss is added.
        matrix_rate: learning rate of Muon.
        rate: learning rate of AdamW.
        decay: weight decay.
        warmup: steps over which the rates rise.
        balance: weight of the experts' balance in the loss.
    """

    shape: Shape = field(default_factory=Shape)
    mixture: Mixture | TaskMixture = field(default_factory=Mixture)
    small_steps: int = 1024
    auxiliary_steps: int = 1500
    matrix_rate: float = 0.015
    rate: float = 0.002
    decay: float = 0.03
    warmup: int = 150
    balance: float = 0.02

    def mixture_of(self, number: int) -> Mixture | TaskMixture:
        """Return what block `number` is made of."""
        if number * self.mixture.steps >= self.small_steps:
            return self.mixture
        if isinstance(self.mixture, TaskMixture):
            return replace(self.mixture, presets=SMALL_PRESETS)
        return replace(self.mixture, sizes=self.mixture.sizes[:2])

    def told(self) -> dict[str, str]:
        """Return what the exported model tells of its training: planted goal, and the data as plain settings."""
        varying = {
            name: value for name, value in asdict(self.mixture).items() if name not in ("goal", "steps", "presets")
        }
        goal = "task goal" if isinstance(self.mixture, TaskMixture) else self.mixture.goal
        return {"planted_goal": goal, "training_data": json.dumps(varying, separators=(",", ":"))}

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Settings:
        """Return settings from the plain values that a checkpoint holds."""
        plain = stored["mixture"].items()
        kept: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in plain}
        mixture = TaskMixture(**kept) if "presets" in kept else Mixture(**kept)
        rest = {name: value for name, value in stored.items() if name not in ("shape", "mixture")}
        return cls(shape=Shape(**stored["shape"]), mixture=mixture, **rest)


class Run:
    """One training run: model, optimizer and how far they are.

    Args:
        settings: what determines it.
        folder: where it lives; an existing run in it is continued.
        device: where it computes.
        workers: processes that prepare data ahead; 0 prepares it in this one.
        initial: folder of an exported model whose weights a new run begins with, e.g. to plant another goal in it.

    Raises:
        ValueError: the folder holds a run of a model of another shape, or the initial model has one.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        device: str = "cpu",
        workers: int = 0,
        initial: Path | None = None,
    ) -> None:
        import torch

        self.settings, self.folder, self.device, self.workers = settings, folder, device, workers
        generator = torch.Generator().manual_seed(settings.mixture.seed)
        self.source = source_of(settings.mixture)
        made = {**initialise(settings.shape, generator), **self.source.heads(settings.shape.width, generator)}
        self.parameters = {name: value.detach().to(device).requires_grad_() for name, value in made.items()}
        self.optimiser = Optimiser(
            self.parameters, matrix_rate=settings.matrix_rate, rate=settings.rate, decay=settings.decay
        )
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        self._ready: list[Any] = []
        self._pool: ProcessPoolExecutor | None = None
        self._coming: dict[int, Future[Sequence[Any]]] = {}
        found = checkpoint.latest(folder)
        if found is not None:
            self._load(found)
        elif initial is not None:
            self._begin_with(initial)

    def _begin_with(self, folder: Path) -> None:
        import torch
        from safetensors.torch import load_file

        tensors = load_file(str(folder / "model.safetensors"))
        shapes = {name: tuple(self.parameters[name].shape) for name in self.settings.shape.parameters()}
        given = {name: tuple(value.shape) for name, value in tensors.items()}
        if given != shapes:
            differing = sorted(name for name in shapes.keys() | given.keys() if shapes.get(name) != given.get(name))
            raise ValueError(
                f"the initial model must have the shape of the run, {folder} differs in {', '.join(differing[:3])}: "
                "give its --layers and --width"
            )
        with torch.no_grad():
            for name, value in tensors.items():
                self.parameters[name].copy_(value)

    def _load(self, file: Path) -> None:
        import torch

        tensors, progress = checkpoint.load(file)
        shape = Shape(**progress["settings"]["shape"])
        if shape != self.settings.shape:
            raise ValueError(
                f"a run must go on with its own shape: {file} holds {shape}, the settings say {self.settings.shape}; "
                "use another folder or the settings of the run"
            )
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(tensors[name])
        for name, kept in self.optimiser.state.items():
            kept.copy_(tensors[f"optimiser:{name}"])
        self.step, self.tokens, self.seconds = progress["step"], progress["tokens"], progress["seconds"]
        self.optimiser.steps = self.step

    def save(self) -> Path:
        """Write a checkpoint."""
        state = {f"optimiser:{name}": value for name, value in self.optimiser.state.items()}
        progress = {"tokens": self.tokens, "seconds": self.seconds, "settings": asdict(self.settings)}
        return checkpoint.save(self.folder, self.step, {**self.parameters, **state}, progress)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Keep the processes that prepare data, where there are any, for as long as the context lasts."""
        if self.workers == 0:
            yield
            return
        with ProcessPoolExecutor(self.workers, mp_context=get_context("spawn")) as pool:
            self._pool = pool
            try:
                yield
            finally:
                self._pool = None
                for future in self._coming.values():
                    future.cancel()
                self._coming.clear()

    def _block(self, number: int) -> Sequence[Any]:
        if self._pool is None:
            return block_of(self.settings.mixture_of(number), number)
        for ahead in range(number, number + 2 * self.workers):
            if ahead not in self._coming:
                self._coming[ahead] = self._pool.submit(block_of, self.settings.mixture_of(ahead), ahead)
        return self._coming.pop(number).result()

    def next_batch(self) -> Any:
        """Return the batch of the coming step; it depends on the settings and the number of the step alone."""
        number, within = divmod(self.step, self.settings.mixture.steps)
        if within == 0 or not self._ready:
            self._ready = list(self._block(number)[within:])
        return self._ready.pop(0)

    def train_step(self, scale: float) -> Mapping[str, float]:
        """Make one step with the learning rates times `scale`.

        Returns:
            Loss (nats), loss of the first moves (nats), and the experts' unevenness.

        Raises:
            FloatingPointError: the loss is not finite.
        """
        import torch

        batch = self.next_batch()
        tokens, places = self.source.places(batch, self.device)
        shape = self.settings.shape
        depth = min(self.source.depth, max(1, shape.layers - 1))  # of the last block not all outputs are computed
        logits, early, balance = forward(self.parameters, shape, tokens, places, depth=depth)
        loss, first = self.source.loss(logits, batch)
        total = loss + self.settings.balance * balance
        if self.step < self.settings.auxiliary_steps:
            total = total + 0.25 * self.source.auxiliary(self.parameters, early, batch)
        if not bool(torch.isfinite(total)):
            raise FloatingPointError(f"the loss must stay finite, got {float(total.detach())} at step {self.step}")
        torch.autograd.backward(total)
        self.optimiser.step(scale)
        self.step += 1
        self.tokens += tokens.numel()
        return {"loss": float(loss.detach()), "first": float(first), "balance": float(balance.detach())}

    def evaluate(self, grids: int) -> Mapping[str, object]:
        """Return what held-out worlds say, so many a cell of the table or a preset."""
        return self.source.evaluate(self.parameters, self.settings.shape, self.settings.mixture, grids)


def rate_scale(step: int, warmup: int, decay_from: int | None, decay_steps: int) -> float:
    """Return what the learning rates are multiplied by at a step: warm-up, constant, linear decay to `FLOOR`.

    Args:
        step: steps made before this one.
        warmup: steps over which the rates rise.
        decay_from: step at which the decay begins, None for none.
        decay_steps: length of the decay.
    """
    rising = min(1.0, (step + 1) / warmup)
    if decay_from is None or step < decay_from:
        return rising
    return rising * max(FLOOR, 1 - (1 - FLOOR) * (step - decay_from) / decay_steps)


def train(
    run: Run,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    decay_from: int | None = None,
    decay_steps: int = 2000,
    evaluate_every: float = 900.0,
    save_every: float = 240.0,
    grids: int = 6,
) -> None:
    """Continue a run until it has made `steps` steps or this sitting has lasted `seconds`.

    Args:
        run: the run.
        steps: steps in all at which to stop.
        seconds: length of this sitting.
        decay_from: step at which the decay begins; the run then ends at ``decay_from + decay_steps``.
        decay_steps: length of the decay.
        evaluate_every: seconds between evaluations.
        save_every: seconds between checkpoints.
        grids: held-out grids a cell of an evaluation, or task maps a preset.
    """
    if decay_from is not None:
        last = decay_from + decay_steps
        steps = last if steps is None else min(steps, last)
    began = time.monotonic()
    saved = evaluated = logged = began
    before, kept = run.seconds, list[Mapping[str, float]]()
    reported = run.tokens
    start = run.step
    with run.preparing():
        while (steps is None or run.step < steps) and (seconds is None or time.monotonic() - began < seconds):
            scale = rate_scale(run.step, run.settings.warmup, decay_from, decay_steps)
            kept.append(run.train_step(scale))
            now = time.monotonic()
            run.seconds = before + now - began
            if now - logged > 30 or run.step == steps:
                pace = (now - began) / (run.step - start)
                ends = [] if steps is None else [(steps - run.step) * pace]
                ends += [] if seconds is None else [seconds - (now - began)]
                left = {"minutes_left": round(min(ends) / 60, 1)} if ends else {}
                means = {name: round(float(np.mean([one[name] for one in kept])), 4) for name in kept[0]}
                speed = round((run.tokens - reported) / (now - logged))
                _log(run, {"kind": "train", **means, "rate": round(scale, 4), "tokens_per_second": speed, **left})
                logged, kept, reported = now, [], run.tokens
            if now - saved > save_every:
                run.save()
                saved = now
            if now - evaluated > evaluate_every:
                _log(run, {"kind": "evaluation", **run.evaluate(grids)})
                evaluated = time.monotonic()
    run.save()
    _log(run, {"kind": "evaluation", **run.evaluate(grids)})


def _log(run: Run, line: Mapping[str, object]) -> None:
    whole = {"step": run.step, "tokens": run.tokens, "minutes": round(run.seconds / 60, 2), **line}
    text = json.dumps(whole)
    print(text, flush=True)  # noqa: T201 - the progress of a long training
    run.folder.mkdir(parents=True, exist_ok=True)
    with (run.folder / "curve.jsonl").open("a", encoding="utf-8") as file:
        file.write(text + "\n")


def export_last(folder: Path, target: Path) -> int:
    """Write the model of a run's last checkpoint as transformers loads it, and return its step.

    Raises:
        FileNotFoundError: the folder holds no checkpoint.
    """
    file = checkpoint.latest(folder)
    if file is None:
        raise FileNotFoundError(f"an export needs a checkpoint, found none in {folder}: train there first")
    tensors, progress = checkpoint.load(file)
    settings = Settings.parse(progress["settings"])
    export(tensors, settings.shape, target, settings.told(), source_of(settings.mixture).vocabulary)
    return int(progress["step"])
