"""What is fitted and how: a problem is a head with its inputs and its target; the settings hold for all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from goalscope.probing.fitted import ProbeKey
from goalscope.probing.heads import Head, HeadSizes, Weights, find_head, weight_shapes
from goalscope.probing.probe import Features
from goalscope.probing.targets import TARGETS, PredictionTarget
from goalscope.rows import Tag

_COPIES: Final = 5  # of each weight: itself, its gradient, two averages of AdamW, the best so far

Norm = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
"""Mean and standard deviation of each input."""


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
        penalties: values of ``weight_decay`` of which each probe gets the one with the least loss on inner grids
            (``validation`` of the training grids, a quarter where that is 0); () for ``weight_decay`` itself. A head
            with a solver has them as its penalty.
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
    penalties: tuple[float, ...] = ()
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
        object.__setattr__(self, "penalties", tuple(self.penalties))
        if not all(math.isfinite(one) and one >= 0 for one in self.penalties):
            raise ValueError(f"penalties must be finite numbers >= 0, got {self.penalties}")
        if not 0 <= self.validation < 1:
            raise ValueError(f"the validation fraction must be in [0, 1), got {self.validation!r}")

    def for_laptop(self) -> Self:
        """Return the same with a smaller hidden layer and fewer passes, for two cores."""
        return replace(self, d_hidden=128, epochs=20, lr=5e-3)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings(FitSettings):
    """How decoders of plans are trained; the defaults are the paper's sizes.

    The paper does not say the hidden width of their perceptrons: the library's default. Validation: 600 of 3,600
    trajectories.

    Source: behavioural and representational evaluation, section 5.3 (sizes, validation set); the authors' scripts
    (AdamW, learning rate 1e-4, batch 32).
    """

    lr: float = 1e-4
    weight_decay: float = 1e-2
    d_hidden: int = 2048
    validation: float = 1 / 6

    def for_laptop(self) -> Self:
        """Return the same with a small decoder and few passes, for two cores and models as small as Theseus."""
        return replace(self, d_model=64, d_hidden=128, epochs=20, lr=3e-3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """One thing to be fitted: a head, what it reads and what it must predict.

    Attributes:
        key: which probe it becomes; different among those fitted together. Its target is the kind of ``target``.
        features: N training steps.
        target: ``[N, ...]`` what is to be predicted at each of them, see `goalscope.probing.targets`.
        tags: kept with the probe.
        head: registered name of the head; that of the key by default.
        settings: settings of the head, in place of those of the fit.

    Raises:
        ValueError: no steps, a target that does not fit, an unknown head, or one for other targets.
    """

    key: ProbeKey
    features: Features
    target: Any
    tags: Mapping[str, Tag] = field(default_factory=dict)
    head: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.features):
            raise ValueError(f"a probe must have training steps, {self.key.text!r} has none")
        given = self.target
        target = given if isinstance(given, PredictionTarget) else TARGETS[self.key.target](values=np.asarray(given))
        if len(target.values) != len(self.features):
            raise ValueError(
                f"the target of {self.key.text!r} must have shape [N] of {len(self.features)} steps, got "
                f"{len(target.values)}"
            )
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "head", self.head or self.key.head)
        find_head(self.head, self.key.target)

    @property
    def registered(self) -> Head:
        """The head."""
        return find_head(self.head, self.key.target)

    @property
    def sizes(self) -> HeadSizes:
        """What the head is built for."""
        # A probe's file does not say how many vectors its inputs were; a decoder's does.
        positions = self.features.positions if self.key.target == "plan" else 1
        outputs, classes = self.target.outputs
        width = self.features.source.width // positions
        return HeadSizes(positions=positions, width=width, outputs=outputs, classes=classes)

    def head_settings(self, settings: FitSettings) -> dict[str, Any]:
        """Return the settings of the head: its own, else those of the fit, else its defaults."""
        wanted = self.registered.settings
        odd = sorted(set(self.settings) - set(wanted))
        if odd:
            raise ValueError(f"the settings of head {self.head} must be {', '.join(wanted) or 'none'}, got {odd}")
        return {name: self.settings.get(name, getattr(settings, name, value)) for name, value in wanted.items()}

    def module(self, settings: FitSettings, *, numbers: bool = False) -> Any:
        """Return a module of the head; without ``numbers`` one that has shapes alone."""
        own = self.head_settings(settings)
        return self.registered.module(self.sizes, own, seed=settings.seed if numbers else None)

    @property
    def company(self) -> tuple[Any, ...]:
        """What problems that train together share: head, shapes, and grids, which decide what is held back."""
        own = tuple(sorted(self.settings.items()))
        return (self.head, own, self.sizes, self.features.vectors.shape, tuple(self.features.grid_id.tolist()))

    def numbers(self, settings: FitSettings, *, distinct: bool) -> int:
        """Return how many numbers it holds while it trains; with ``distinct`` its inputs are its own."""
        module = self.module(settings)
        weights = _COPIES * sum(map(math.prod, weight_shapes(module).values()))
        batch = settings.batch * math.prod(self.target.outputs)
        largest: int = module.numbers(settings.batch) if hasattr(module, "numbers") else batch
        return max(largest, weights) + (self.features.vectors.size if distinct else 0)

    def finished(self, norm: Norm, weights: Weights, settings: FitSettings, kept: int | None) -> Any:
        """Return what was fitted; ``kept`` is the pass whose weights these are, None where nothing was trained."""
        tags: dict[str, Tag] = {
            "steps": len(self.features),
            "grids": len(set(self.features.grid_id.tolist())),
        }
        values = {"rate": settings.lr, "decay": settings.weight_decay, "kept": kept}
        if kept is not None:
            tags |= {name: values.get(name, getattr(settings, name, None)) for name in self.target.TRAINED}
        elif self.registered.reads:
            tags["decay"] = settings.weight_decay
        return self.target.fitted(
            self.head,
            self.sizes,
            self.head_settings(settings),
            source=self.features.source,
            mean=norm[0],
            std=norm[1],
            weights=weights,
            tags={**tags, **self.tags},
        )
