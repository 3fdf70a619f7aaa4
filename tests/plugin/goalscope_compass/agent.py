"""An agent without a goal that prefers one direction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goalscope.agents import Observation, Turn, agent_kind
from goalscope.worlds import ACTIONS, Action, GridView


@agent_kind("compass")
@dataclass(frozen=True, kw_only=True)
class Compass:
    """Goes in one direction with a given probability, else in any of the four.

    Args:
        direction: "up", "down", "left" or "right".
        pull: probability of that direction, in [0, 1].
        name: short name, as tables show it.
    """

    direction: str = "right"
    pull: float = 0.5
    name: str = ""
    journalled = False
    needs = GridView

    def __post_init__(self) -> None:
        known = [action.name.lower() for action in ACTIONS]
        if self.direction not in known:
            raise ValueError(f"direction must be one of {', '.join(known)}, got {self.direction!r}")
        if not 0 <= self.pull <= 1:
            raise ValueError(f"pull must be a probability in [0, 1], got {self.pull!r}")
        object.__setattr__(self, "name", self.name or f"compass({self.direction}, {self.pull:g})")

    def describe(self) -> Mapping[str, Any]:
        """Return all that decides what it does; the id of the agent is the hash of it."""
        return {"kind": "compass", "version": 1, "direction": self.direction, "pull": self.pull}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Draw one action for each observation, from the random numbers of its turn alone."""
        return [Turn(action=self._choose(observation)) for observation in observations]

    def _choose(self, observation: Observation) -> Action:
        if observation.uniform("pull") < self.pull:
            return Action[self.direction.upper()]
        return ACTIONS[int(4 * observation.uniform("direction"))]
