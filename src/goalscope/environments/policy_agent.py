"""Agents for anything with a method ``predict``, such as the policies of stable-baselines3, in environments.

A policy that was trained on one environment acts in its worlds: it is shown the state as the trainer's environment
shows it. `PolicyAgent` is used from Python, with the policy as an object; no file of a policy is ever loaded here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt

from goalscope.agents.agent import Observation, Turn
from goalscope.environments.world import EnvironmentView
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.world import View


class Predicts(Protocol):
    """A policy as stable-baselines3 has it."""

    def predict(self, observation: npt.NDArray[Any], deterministic: bool = False) -> tuple[Any, Any]:
        """Return the actions of a batch of observations ``[B, ...]``, and a state that is not looked at."""
        ...


PLANES: Final = ("wall", "agent", "goal", "key", "locked door", "key carried")
"""What each plane of a grid as an array shows."""


def planes(view: GridView) -> npt.NDArray[np.float32]:
    """Return a grid as `PLANES`, ``[6, H, W]`` float32, 1 where it is so; hidden cells are 0 in all of them."""
    grid = view.grid
    found = np.zeros((len(PLANES), *grid.walls.shape), dtype=np.float32)
    found[0] = grid.walls
    for number, cell in enumerate((grid.start, grid.goal, grid.key, grid.door), 1):
        if cell is not None:
            found[(number, *cell)] = 1.0
    found[5] = view.carrying_key
    return found


def shown_array(view: View) -> npt.NDArray[Any]:
    """Return what a view shows as an array: planes of a grid, or the array of an environment.

    Raises:
        ValueError: the view shows no array.
    """
    if isinstance(view, GridView):
        return planes(view)
    if isinstance(view, EnvironmentView) and view.observed.array is not None:
        return view.observed.array
    raise ValueError(
        f"a policy must be shown an array, but {view.shows} here shows words alone: give PolicyAgent a function "
        "`shows` from the view to an array"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PolicyAgent:
    """Acts by the method ``predict`` of a policy.

    A policy that draws its actions does so from random numbers of its own, which no resumed run can repeat; so it is
    asked for its most probable action, or for its probabilities, from which the action is drawn here.

    Attributes:
        policy: the object with ``predict(observations, deterministic)``.
        name: short name, as tables show it.
        identity: what the policy is, e.g. the digest of its weights or seed and steps of its training: the id of the
            agent is the hash of it.
        probabilities: observations ``[B, ...]`` -> action probabilities ``[B, A]``; None for the most probable action.
        shows: view -> array; `shown_array` by default.

    Raises:
        ValueError: no ``predict``, or an empty identity.
    """

    policy: Predicts
    name: str
    identity: Mapping[str, Any]
    probabilities: Callable[[npt.NDArray[Any]], npt.ArrayLike] | None = None
    shows: Callable[[View], npt.NDArray[Any]] = field(default=shown_array)

    journalled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(getattr(self.policy, "predict", None)):
            raise ValueError(f"a policy must have a method predict, got {type(self.policy).__name__}")
        if not self.identity:
            raise ValueError("identity must say what the policy is, e.g. {'weights': digest}, got nothing")

    def describe(self) -> Mapping[str, Any]:
        """Return what decides its actions, as it was told."""
        drawn = self.probabilities is not None
        return {"kind": "policy", "version": 1, "drawn": drawn, "policy": dict(self.identity)}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Answer each observation by itself, so that no batch changes an answer."""
        return [Turn(action=self._choose(observation)) for observation in observations]

    def _choose(self, observation: Observation) -> int:
        shown, count = self.shows(observation.view)[None], len(observation.view.actions)
        if self.probabilities is None:
            action, _ = self.policy.predict(shown, deterministic=True)
            return int(np.asarray(action).reshape(-1)[0])
        chances = np.asarray(self.probabilities(shown), dtype=np.float64).reshape(-1)
        if chances.shape != (count,) or not np.isfinite(chances).all() or (chances < 0).any() or not chances.sum() > 0:
            raise ValueError(f"probabilities must be [1, {count}], each >= 0, got {chances!r:.200}")
        total = np.cumsum(chances)
        return min(int(np.searchsorted(total, observation.uniform() * total[-1], side="right")), count - 1)
