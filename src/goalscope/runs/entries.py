"""The parts of a study file: worlds, agents, horizon, what a turn without an action costs."""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from goalscope.agents.agent import Agent
from goalscope.agents.build import build_agent, decisive_parameters
from goalscope.ids import canonical_json
from goalscope.planning.shortest import shortest_length
from goalscope.runs.config_base import MOST_COUNT, Part, distinct, filled, sequence
from goalscope.runs.record import World
from goalscope.runs.taskentries import CookingWorlds, TaskMapWorlds
from goalscope.runs.taskworld import TaskWorld
from goalscope.worlds.generate import check_density, check_size
from goalscope.worlds.grid import Grid, Side
from goalscope.worlds.transform import TRANSFORMS

_MOST_SIZE = 501  # rows of a grid; far beyond, one grid alone fills the memory

STORED: Mapping[str, Any] = {"stored": True}  # the context in which agents are read, but not built

TransformName = Literal["identity", "reflect", "rotate", "transpose", "swap"]
if set(TRANSFORMS) != set(get_args(TransformName)):
    raise ImportError("the transforms that a study may name must be those of goalscope.worlds.transform")


class _Worlds(Part):
    fog_radius: int | None = Field(default=None, ge=1)
    transforms: tuple[TransformName, ...] = sequence(default=("identity",))

    @field_validator("*")
    @classmethod
    def _sets(cls, value: Any) -> Any:
        return distinct(filled(value)) if isinstance(value, tuple) else value


class GridWorlds(_Worlds):
    """Generated grids: for each size and density a number of worlds."""

    kind: Literal["grid"] = "grid"
    sizes: tuple[int, ...] = sequence()
    densities: tuple[float, ...] = sequence()
    count: int = Field(ge=1, le=MOST_COUNT)
    minimum_distance: int = Field(default=1, ge=1)
    goal_side: Side | None = None

    @model_serializer(mode="wrap")
    def _without_side(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Left out where it asks for nothing: the ids of studies that do not name it stay what they were.
        plain: dict[str, Any] = written(self)
        return {key: value for key, value in plain.items() if key != "goal_side" or value is not None}

    @field_validator("sizes")
    @classmethod
    def _sizes(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if max(sizes, default=0) > _MOST_SIZE:
            raise ValueError(f"size must be at most {_MOST_SIZE}, got {max(sizes)}")
        return tuple(check_size(size) for size in sizes)

    @field_validator("densities")
    @classmethod
    def _densities(cls, densities: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(check_density(density) for density in densities)

    @model_validator(mode="after")
    def _distances(self) -> Self:
        most = (min(self.sizes) - 2) ** 2 - 1
        if self.minimum_distance > most:
            raise ValueError(
                f"minimum_distance must be at most {most} for size {min(self.sizes)}, got {self.minimum_distance}"
            )
        return self


class LayoutWorlds(_Worlds):
    """Key and door worlds, each with its matched control where asked."""

    kind: Literal["key-door", "key-no-door", "two-path"]
    count: int = Field(ge=1, le=MOST_COUNT)
    control: bool = False

    @model_validator(mode="after")
    def _no_swap(self) -> Self:
        if self.kind == "key-door" and "swap" in self.transforms:
            raise ValueError("start and goal of a key-door world must not be swapped: the key may lie behind the door")
        return self


class TextWorlds(_Worlds):
    """Grids written out."""

    kind: Literal["text"]
    grids: tuple[str, ...] = sequence()

    @field_validator("grids")
    @classmethod
    def _grids(cls, grids: tuple[str, ...]) -> tuple[str, ...]:
        for index, text in enumerate(grids):
            try:
                World(grid=Grid.parse(text))
            except ValueError as error:
                raise ValueError(f"grid {index} must be a world: {error}") from error
        return grids


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

    def of_world(self, world: World) -> int:
        """Return the most actions on one world: the budget of a task map, else what `of` says of its grid."""
        return world.task_map.budget if isinstance(world, TaskWorld) else self.of(world.grid)

    def of(self, grid: Grid) -> int:
        """Return the most actions on one grid.

        Raises:
            ValueError: a factor, and a goal that cannot be reached.
        """
        if self.steps is not None:
            return self.steps
        length = shortest_length(grid)
        if length < 0:
            raise ValueError(f"the goal must be within reach for a horizon by factor, got\n{grid}\ngive horizon steps")
        # The factor is taken as it is written: 1.1 x 10 steps are 11, not the 12 that binary fractions round up to.
        return max(1, math.ceil(Fraction(repr(self.factor)) * length))


WorldEntry = Annotated[
    GridWorlds | LayoutWorlds | TextWorlds | TaskMapWorlds | CookingWorlds, Field(discriminator="kind")
]
