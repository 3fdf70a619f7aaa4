"""Plans as targets of the fit, with the decoder of `goalscope.probing.plan_network` as their head.

The loss is the cross-entropy of the executed tokens; place i (from 0) weighs 0.9^i, unknown places nothing.

Source: behavioural and representational evaluation, section 5.3 (sizes, validation set); the authors' scripts (AdamW,
learning rate 1e-4, batch 32, weights of the places).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_shape
from goalscope.probing.fitting import FitSettings, Loss, Norm, Problem, Weights
from goalscope.probing.plan_decoder import PlanDecoder
from goalscope.probing.plan_network import initial_plan_weights, plan_scores, plan_shapes
from goalscope.probing.plans import UNKNOWN, check_tokens

if TYPE_CHECKING:
    from torch import Tensor

DISCOUNT: Final = 0.9
"""Weight of a place relative to the one before it."""
TRAINED: Final = ("epochs", "rate", "decay", "batch", "validation", "seed")
"""Settings that are kept with a decoder."""

_COPIES: Final = 5  # of each weight: itself, its gradient, two averages of AdamW, the best so far


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings(FitSettings):
    """How decoders of plans are trained; the defaults are the paper's sizes.

    The paper does not say the hidden width of their perceptrons: the library's default. Validation: 600 of 3,600
    trajectories.
    """

    lr: float = 1e-4
    weight_decay: float = 1e-2
    d_hidden: int = 2048
    validation: float = 1 / 6

    def for_laptop(self) -> Self:
        """Return the same with a small decoder and few passes, for two cores and models as small as Theseus."""
        return replace(self, d_model=64, d_hidden=128, epochs=20, lr=3e-3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanProblem(Problem[PlanDecoder]):
    """One decoder to be fitted; its key decides its first weights.

    Its target: ``[N, T]`` tokens, see `goalscope.probing.plans.Plans`.

    Attributes:
        layers: those of the decoder; the paper: 1, 2 and 4.

    Raises:
        ValueError: no steps, plans that are none or all unknown, or no layer.
    """

    ORDER: ClassVar[str] = "plan order"
    ROOM: ClassVar[dict[str, int]] = {"cpu": 1 << 26, "cuda": 1 << 31}
    PER_STACK: ClassVar[int] = 32

    layers: int

    def check(self) -> None:
        """Raise a ValueError unless the target holds plans, some of them known, and there is a layer."""
        check_tokens("tokens", self.target)
        check_shape("tokens", self.target, "N T", {"N": len(self.features)})
        if (self.target == UNKNOWN).all():
            raise ValueError(f"a decoder must have known plans to learn from, {self.key.text!r} has none")
        if isinstance(self.layers, bool) or not isinstance(self.layers, int) or self.layers < 1:
            raise ValueError(f"layers of a decoder must be a whole number >= 1, got {self.layers!r}")

    @property
    def cost(self) -> int:
        """A pass of a decoder of four layers takes as long as four of one layer."""
        return self.layers

    @property
    def width(self) -> int:
        """Numbers D of one of the P vectors of a step."""
        return self.features.source.width // self.features.positions

    @property
    def company(self) -> tuple[Any, ...]:
        """Layers, places, shape of the inputs, and grids: they decide what is held back."""
        return (
            self.layers,
            self.target.shape[1],
            self.features.vectors.shape,
            self.features.positions,
            tuple(self.features.grid_id.tolist()),
        )

    def shapes(self, settings: FitSettings) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight."""
        return plan_shapes(
            width=self.width,
            inner=settings.d_model,
            feedforward=settings.d_hidden,
            layers=self.layers,
            horizon=self.target.shape[1],
        )

    @property
    def start(self) -> str:
        """The key: decoders begin with weights of their own."""
        return self.key.text

    def first(self, settings: FitSettings) -> Weights:
        """Return the first weights, which seed and key decide."""
        return initial_plan_weights(self.shapes(settings), settings.seed, self.start)

    def floats(self, settings: FitSettings, *, distinct: bool) -> int:
        """Return the numbers of its weights with all their copies, and of its inputs where they are its own."""
        weights = sum(map(math.prod, self.shapes(settings).values()))
        return _COPIES * weights + (self.features.vectors.size if distinct else 0)

    def known(self) -> npt.NDArray[np.bool_]:
        """Return at which steps some token is known, ``[N]``."""
        found: npt.NDArray[np.bool_] = (self.target != UNKNOWN).any(axis=1)
        return found

    @staticmethod
    def loss(stack: Sequence[PlanProblem], settings: FitSettings) -> Loss:
        """Return the weighted cross-entropy of the tokens, see `plan_loss`."""
        import torch

        one, device = stack[0], torch.device(settings.device)
        tokens = torch.tensor(np.stack([problem.target for problem in stack]).astype(np.int64), device=device)
        positions, width = one.features.positions, one.width

        def loss(weights: Any, vectors: Tensor, rows: Tensor) -> Tensor:
            apart = vectors.view(*vectors.shape[:2], positions, width)
            scored = plan_scores(weights, apart, layers=one.layers, heads=settings.heads)
            return plan_loss(scored, tokens[:, rows])

        return loss

    def fitted(self, norm: Norm, weights: Weights, settings: FitSettings, kept: int) -> PlanDecoder:
        """Return the decoder with these weights."""
        return PlanDecoder(
            source=self.features.source,
            positions=self.features.positions,
            horizon=self.target.shape[1],
            layers=self.layers,
            heads=settings.heads,
            centre=norm[0],
            spread=norm[1],
            weights=weights,
            tags={**self.counts, "kept": kept, **self.trained_tags(settings, *TRAINED), **self.tags},
        )


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
