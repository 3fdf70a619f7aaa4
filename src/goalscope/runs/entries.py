"""The parts of a study file: agents, horizon, what a turn without an action costs."""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from goalscope.agents.agent import Agent
from goalscope.agents.build import build_agent, decisive_parameters
from goalscope.ids import canonical_json
from goalscope.planning.oracle import oracle
from goalscope.runs.config_base import Part
from goalscope.runs.kinds import STORED
from goalscope.worlds.world import World


class FailurePolicy(Part):
    """What becomes of a turn without an action.

    "step": it costs a step in place. "retry": the agent is asked again, up to `retries` times, and then `then` holds.
    "end": the episode ends there as a failure.
    """

    policy: Literal["step", "retry", "end"] = "step"
    retries: int = Field(default=0, ge=0, le=1000)
    then: Literal["step", "end"] = "step"

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.policy == "retry" and self.retries == 0:
            raise ValueError("retries must be at least 1 where the policy is retry: give retries")
        if self.policy != "retry" and (self.retries or self.then != "step"):
            raise ValueError(f"retries and then belong to policy retry, got them with {self.policy}: leave them out")
        return self

    @property
    def ends(self) -> bool:
        """Whether the last failed attempt ends the episode."""
        return "end" in (self.policy, self.then)


_OWN: Final = ("kind", "name", "failure")


class AgentEntry(Part):
    """An agent: its kind, the parameters of that kind, and what becomes of its turns without an action."""

    kind: str
    name: str | None = Field(default=None, min_length=1, max_length=80)
    failure: FailurePolicy | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or "parameters" in given:
            return given
        return {
            **{key: given[key] for key in _OWN if key in given},
            "parameters": {key: value for key, value in given.items() if key not in _OWN},
        }

    @model_validator(mode="after")
    def _buildable(self, info: ValidationInfo) -> Self:
        if self.failure is not None and self.name is None:
            raise ValueError(
                "an agent with a failure policy of its own must have a name, by which it is found: add name"
            )
        try:
            canonical_json(self.parameters)
            if info.context is not STORED:
                self.build()
        except (TypeError, OSError) as error:
            raise ValueError(str(error)) from error
        return self

    def build(self) -> Agent:
        """Return the agent."""
        name = {} if self.name is None else {"name": self.name}
        return build_agent(self.kind, {**self.parameters, **name})

    def dump(self, *, decisive: bool = False) -> dict[str, Any]:
        """Return the entry as it may stand in a study; where asked, only what can change a result."""
        parameters = decisive_parameters(self.kind, self.parameters) if decisive else self.parameters
        return {**self.model_dump(mode="json", include=set(_OWN), exclude_none=True), **parameters}


class Horizon(Part):
    """Most actions of an episode: a factor of the shortest path (rounded up), or a number of steps."""

    factor: float | None = Field(default=None, gt=0, le=1000)
    steps: int | None = Field(default=None, ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.factor is None) == (self.steps is None):
            raise ValueError("a horizon must have either a factor (of the shortest path) or steps, give exactly one")
        return self

    def of(self, world: World) -> int:
        """Return the most actions on one world: its own horizon where it has one.

        Raises:
            ValueError: a factor, and a shortest path that is not known, or a goal that cannot be reached.
        """
        if world.horizon is not None:
            return world.horizon
        if self.steps is not None:
            return self.steps
        known = oracle(world)
        if known is None:
            raise ValueError(
                f"a horizon by factor must be given worlds whose shortest path is known, got one of kind {world.kind}: "
                "give horizon: {steps: N}"
            )
        if known.length < 0:
            raise ValueError(
                f"the goal must be within reach for a horizon by factor, got\n{world.stored}\ngive horizon steps"
            )
        # The factor is taken as it is written: 1.1 x 10 steps are 11, not the 12 that binary fractions round up to.
        return max(1, math.ceil(Fraction(repr(self.factor)) * known.length))
