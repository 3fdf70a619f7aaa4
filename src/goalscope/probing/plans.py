"""What a decoder of plans must say: the actions that an agent then executed, from each step on.

A plan of horizon T is the next T actions. Where the agent arrives sooner, the end token fills the rest; where the
recording stops before (the horizon of the episode, a failure that ends it), what would have followed is unknown: it is
neither learned nor scored. A turn without an action executes nothing and is no part of a plan.

Source: behavioural and representational evaluation, section 5.3.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_shape, freeze
from goalscope.probing.cells import Cells, steps_of
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
