"""Plans: the actions that an agent then executed, from each step on, and a fitted decoder of them.

A plan of horizon T is the next T actions. Where the agent arrives sooner, the end token fills the rest; where the
recording stops before (the horizon of the episode, a failure that ends it), what would have followed is unknown: it is
neither learned nor scored. A turn without an action executes nothing and is no part of a plan.

Source: behavioural and representational evaluation, section 5.3.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from goalscope.activations.record import Activations
from goalscope.checks import check_distributions, check_shape, freeze
from goalscope.probing.cells import Cells, steps_of
from goalscope.probing.fitted import Arrays, Fitted, Form, weights_of
from goalscope.probing.heads import HeadSizes, find_head, outputs, weight_shapes
from goalscope.probing.probe import Features
from goalscope.runs import Episode
from goalscope.worlds.grid import ACTIONS

HORIZON: Final = 10
"""Actions T of a plan in the paper."""
TOKENS: Final = (*(action.name for action in ACTIONS), "end")
"""What stands at a place of a plan; the index in this tuple is the token."""
END: Final = len(ACTIONS)
UNKNOWN: Final = -1

_ARRAYS = ("tokens", "episode_id", "step", "grid_id")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plans:
    """The executed plans of N steps, row by row with activations.

    Attributes:
        tokens: ``[N, T]`` int8, places in `TOKENS`; after the last action the end token, or -1 where what follows is
            not known.
        episode_id: ``[N]`` text.
        step: ``[N]`` int64.
        grid_id: ``[N]`` text, the cluster.

    Raises:
        ValueError: arrays that do not fit, no place, no such token, or an action after the end.
    """

    tokens: npt.NDArray[np.int8]
    episode_id: npt.NDArray[np.object_]
    step: npt.NDArray[np.int64]
    grid_id: npt.NDArray[np.object_]

    def __post_init__(self) -> None:
        check_tokens("tokens", self.tokens)
        sizes = check_shape("tokens", self.tokens, "N T")
        for name in _ARRAYS[1:]:
            check_shape(name, getattr(self, name), "N", sizes)
        ended = (self.tokens[:, :-1] == END) & (self.tokens[:, 1:] != END)
        lost = (self.tokens[:, :-1] == UNKNOWN) & (self.tokens[:, 1:] != UNKNOWN)
        if ended.any() or lost.any():
            at = int(np.argmax((ended | lost).any(axis=1)))
            raise ValueError(
                f"after its end, or where it is not known, a plan must hold nothing else, got "
                f"{self.tokens[at].tolist()} at {self.episode_id[at]} step {self.step[at]}"
            )
        for name in _ARRAYS:
            object.__setattr__(self, name, freeze(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.step)

    @property
    def horizon(self) -> int:
        """Places T of a plan."""
        return int(self.tokens.shape[1])

    @property
    def length(self) -> npt.NDArray[np.float64]:
        """Actions before the end, at most T, ``[N]``; NaN where the recording stops before."""
        found = plan_length(self.tokens).astype(np.float64)
        found[(self.tokens == UNKNOWN).any(axis=1)] = np.nan
        return found

    def where(self, mask: npt.NDArray[Any]) -> Self:
        """Return some of the steps, by a mask ``[N]`` bool or by indices ``[M]`` int."""
        return replace(self, **{name: getattr(self, name)[mask] for name in _ARRAYS})

    def exchanged(self, rows: npt.NDArray[np.int64]) -> Self:
        """Return the plans of other steps at these steps: row n gets the plan of ``rows[n]`` (the shuffled control)."""
        return replace(self, tokens=self.tokens[rows])

    def check_aligned(self, cells: Cells) -> None:
        """Raise a ValueError unless these are the same steps in the same order; names the first that differs."""
        if len(cells) != len(self):
            raise ValueError(f"plans must be those of the {len(cells)} steps of the cells, got {len(self)}")
        other = (cells.episode_id != self.episode_id) | (cells.step != self.step) | (cells.grid_id != self.grid_id)
        if other.any():
            at = int(np.argmax(other))
            raise ValueError(
                f"plans must be those of the same steps as the cells, got {self.episode_id[at]} step {self.step[at]} "
                f"where the cells have {cells.episode_id[at]} step {cells.step[at]}"
            )


def label_plans(cells: Cells, episodes: Iterable[Episode], *, horizon: int = HORIZON) -> Plans:
    """Return the plans that were executed from some steps on, in their order.

    Args:
        cells: the steps, see `label_cells`.
        episodes: the run's episodes, e.g. ``store.episodes()``; read once.
        horizon: places T of a plan; longer ones are truncated, not dropped.

    Raises:
        ValueError: a horizon below 1, or a step that is not among the episodes.
    """
    if isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1:
        raise ValueError(f"the horizon of plans must be a whole number >= 1, got {horizon!r}")
    tokens = np.full((len(cells), horizon), UNKNOWN, dtype=np.int8)
    for row, episode, number in steps_of(cells, episodes):
        tokens[row] = executed_plan(episode, number, horizon)
    return Plans(tokens=tokens, episode_id=cells.episode_id, step=cells.step, grid_id=cells.grid_id)


def executed_plan(episode: Episode, number: int, horizon: int = HORIZON) -> npt.NDArray[np.int8]:
    """Return the plan that an episode executes from a step on, ``[T]``, see `Plans`."""
    actions = [step.action for step in episode.steps[number:] if step.action is not None][:horizon]
    rest = END if episode.success else UNKNOWN
    return np.array([*actions, *[rest] * (horizon - len(actions))], dtype=np.int8)


def plan_length(tokens: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the places before the first end token, T without one, ``[N]``."""
    ended = tokens == END
    found: npt.NDArray[np.int64] = np.where(ended.any(axis=1), ended.argmax(axis=1), tokens.shape[1])
    return found


def check_tokens(name: str, tokens: npt.NDArray[Any]) -> None:
    """Raise a ValueError unless an array holds plans: ``[N, T]`` integers, T >= 1, tokens or -1."""
    check_shape(name, tokens, "N T")
    if not np.issubdtype(tokens.dtype, np.integer) or tokens.shape[1] < 1:
        raise ValueError(f"{name} must be integers at one place or more, got {tokens.dtype} {list(tokens.shape)}")
    if len(tokens) and (tokens.min() < UNKNOWN or tokens.max() > END):
        raise ValueError(f"{name} must be tokens from {UNKNOWN} to {END}, got {tokens.min()} to {tokens.max()}")


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
