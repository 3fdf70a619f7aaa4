"""A scripted agent that obeys its instruction, for validating measures of ability and of prompt wordings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np

from goalscope.agents.agent import Observation, agent_kind
from goalscope.agents.prompts import WORDINGS, wording
from goalscope.agents.scripted import PROBABILITY, Distribution, Optimal, ScriptedAgent, WrongGoal
from goalscope.stats.rows import Tag
from goalscope.worlds.grid import Position
from goalscope.worlds.gridworld import GridView, NamedView, WordedView

OWN_GOAL: Final = "goal"
"""Target of a reader that goes to the goal unless its instruction names a cell."""
SWAYING: Final = tuple(WORDINGS)[::2]
"""The wordings under which a reader takes more random actions if ``swayed`` is set."""


def _target(name: str, target: Any) -> str | Position:
    return OWN_GOAL if target == OWN_GOAL else WrongGoal(target=target).target


def _wording(name: str, value: Any) -> str:
    wording(value)
    return str(value)


@agent_kind("reader")
@dataclass(frozen=True)
class InstructedAgent(ScriptedAgent):
    """Agent that goes to the cell that its instruction names, or to its own target if the instruction names no cell.

    A fraction epsilon of its actions is random. With ``swayed``, this fraction is larger under every second wording of
    `goalscope.agents.prompts`, so that the effect of a wording is known exactly.

    Args:
        target: where it goes if its instruction names no cell: "goal", or a place as in `WrongGoal`.
        epsilon: probability of a random action, in [0, 1].
        swayed: probability of a random action under every second wording, in [0, 1]; no effect if below epsilon.
        wording: the wording of its instruction, "" for the default; a wording set by the view (`WordedView`) has
            priority.
    """

    kind: ClassVar[str] = "reader"
    reads: ClassVar[bool] = True
    target: str | Position = field(default=OWN_GOAL, metadata={"check": _target})
    epsilon: float = field(default=0.0, metadata=PROBABILITY)
    swayed: float = field(default=0.0, metadata=PROBABILITY)
    wording: str = field(default="", metadata={"check": _wording})

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the distribution over its paths to the target, mixed with the uniform distribution."""
        view = observation.view
        asked_in = view.wording if isinstance(view, WordedView) else self.wording
        noise = max(self.epsilon, self.swayed) if asked_in in SWAYING else self.epsilon
        mixture: Distribution = (1 - noise) * self._path_policy(observation) + noise * np.full(4, 0.25)
        return mixture

    @property
    def tags(self) -> Mapping[str, Tag]:
        """The wording, unless it is the default."""
        return {"wording": self.wording} if self.wording else {}

    def _parameters(self) -> dict[str, Any]:
        parameters = super()._parameters()
        return parameters if self.wording else {name: value for name, value in parameters.items() if name != "wording"}

    def _path_policy(self, observation: Observation) -> Distribution:
        view = observation.view
        if isinstance(view, NamedView) and view.named is not None:
            target_view = GridView(grid=view.grid.at(goal=view.named))
            return Optimal().probabilities(replace(observation, view=target_view))
        own_policy = Optimal() if self.target == OWN_GOAL else WrongGoal(target=self.target)
        return own_policy.probabilities(observation)
