"""A fitted decoder of plans: the contract of the probes (`predict`, `save`, `load`, its own source only)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from goalscope.activations.record import Activations
from goalscope.checks import check_distributions, check_shape, freeze
from goalscope.probing.fitted import Arrays, Fitted, Form, weights_of
from goalscope.probing.heads import HeadSizes, find_head, outputs, weight_shapes
from goalscope.probing.plans import END, TOKENS, plan_length
from goalscope.probing.probe import Features

_BATCH: Final = 256  # examples of one step of a prediction
_MOST: Final = {"layers": 64, "heads": 256, "horizon": 4096, "positions": 4096}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanPrediction:
    """What a decoder says of N steps.

    Attributes:
        probabilities: ``[N, T, 5]`` float32, of each token at each place, see `goalscope.probing.plans.TOKENS`.
    """

    probabilities: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        check_shape("probabilities", self.probabilities, "N T K", {"K": len(TOKENS)})
        check_distributions("probabilities", self.probabilities, tolerance=1e-4)
        object.__setattr__(self, "probabilities", freeze(self.probabilities))

    @property
    def tokens(self) -> npt.NDArray[np.int8]:
        """The likeliest token of each place, ``[N, T]``."""
        found: npt.NDArray[np.int8] = self.probabilities.argmax(axis=2).astype(np.int8)
        return found

    @property
    def first(self) -> npt.NDArray[np.int8]:
        """The likeliest first action, the end token left aside, ``[N]``."""
        found: npt.NDArray[np.int8] = self.probabilities[:, 0, :END].argmax(axis=1).astype(np.int8)
        return found

    @property
    def length(self) -> npt.NDArray[np.int64]:
        """Places before the first end token, T without one, ``[N]``."""
        return plan_length(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanDecoder(Fitted):
    """A fitted one-shot decoder.

    Attributes:
        source: what it reads; it refuses anything else. Its width is P * D.
        positions: number P of vectors of one step.
        horizon: places T of a plan.
        layers: number of its layers.
        heads: number of attention heads.
        mean, std: ``[P * D]`` float32, mean and standard deviation of each input in the training split; an input that
            does not vary there has the standard deviation 0 and is not read.
        weights: name -> array, float32, see `goalscope.probing.modules`.
        tags: how it was made: control, settings, seed, ...

    Raises:
        ValueError: a size out of range, or arrays that do not fit one another or are not finite.
    """

    FORM: ClassVar[Form] = Form(
        kind="plan-decoder",
        noun="decoder of plans",
        short="decoder",
        listed="tokens",
        names=TOKENS,
        fields=dict.fromkeys(_MOST, int),
    )

    positions: int
    horizon: int
    layers: int
    heads: int

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} of a decoder of plans must be from 1 to {most}, got {getattr(self, name)}")
        if self.source.width < 1 or self.source.width % self.positions:
            raise ValueError(
                f"the inputs must be {self.positions} vectors of one width, got {self.source.width} numbers in all"
            )
        d_model = self._width("in")
        if not d_model or d_model % self.heads:
            raise ValueError(f"the width of a decoder must be a multiple of its {self.heads} heads, got {d_model}")
        shapes = weight_shapes(self.module())
        if set(shapes) != set(self.weights):
            odd = sorted(set(shapes) ^ set(self.weights))
            raise ValueError(
                f"the weights of a decoder of {self.layers} layers must be {len(shapes)} known ones, there are "
                f"{len(self.weights)}, missing or unknown: {', '.join(odd)[:200]}"
            )
        self._accept(shapes)

    def module(self, *, seed: int | None = None) -> Any:
        """Return a new module of the decoder; without a seed it has shapes alone."""
        sizes = HeadSizes(
            positions=self.positions,
            width=self.source.width // self.positions,
            outputs=self.horizon,
            classes=len(TOKENS),
        )
        own = {"layers": self.layers, "heads": self.heads}
        own |= {"d_model": self._width("in"), "d_hidden": self._width("0.up")}
        return find_head("decoder", "plan").module(sizes, own, seed=seed)

    def _width(self, name: str) -> int:
        array = self.weights.get(name)
        return int(array.shape[1]) if array is not None and array.ndim == 2 else 0

    def describe(self) -> dict[str, Any]:
        """Return everything but the arrays as plain values."""
        return {**Fitted.describe(self), **{name: getattr(self, name) for name in _MOST}}  # no super(): slots

    def predict(self, given: Activations | Features, *, device: str = "cpu") -> PlanPrediction:
        """Return the probabilities of the tokens of all places.

        Args:
            given: N steps of the decoder's own source.
            device: where to compute, "cpu" or "cuda".

        Raises:
            ValueError: inputs of another site, layer, model or width.
        """
        import torch

        features = Features.of(given)
        self.source.check_same(features.source)
        if features.positions != self.positions:
            raise ValueError(f"a step must have {self.positions} vectors, got {features.positions}")
        scored = outputs(
            self.module(seed=0), self.weights, features.vectors, (self.mean, self.std), device, batch=_BATCH
        )
        return PlanPrediction(probabilities=torch.tensor(scored).softmax(dim=-1).numpy())

    @classmethod
    def _parts(cls, header: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        odd = [name for name, array in arrays.items() if array.dtype != np.float32]
        if odd:
            raise ValueError(f"all its arrays must be float32, these are not: {', '.join(map(repr, odd))[:200]}")
        if "centre" not in arrays or "spread" not in arrays:
            raise ValueError("it must hold centre and spread")
        fixed = {name: arrays.pop(stored) for name, stored in (("mean", "centre"), ("std", "spread"))}
        return {**fixed, "weights": weights_of(arrays), **{name: header[name] for name in _MOST}}
