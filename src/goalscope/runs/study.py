"""Studies: what is run, written as YAML, validated, with a content id."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from goalscope.agents.agent import Agent, agent_id
from goalscope.agents.build import build_agent
from goalscope.ident import canonical_json, content_id
from goalscope.planning.shortest import shortest_length
from goalscope.runs.expand import expand
from goalscope.runs.reading import explain, read_yaml, shorten
from goalscope.runs.record import EpisodeSpec, World
from goalscope.worlds.generate import check_density, check_size
from goalscope.worlds.grid import Grid
from goalscope.worlds.transform import TRANSFORMS

_MOST_COUNT = 1_000_000
_MOST_SEED = 2**63 - 1
_NO_RESULT = ("name", "durability")  # keys that change no result

TransformName = Literal["identity", "reflect", "rotate", "transpose", "swap"]
if set(TRANSFORMS) != set(TransformName.__args__):  # type: ignore[attr-defined]
    raise ImportError("the transforms that a study may name must be those of goalscope.worlds.transform")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _sequence(**constraints: Any) -> Any:
    return Field(strict=False, **constraints)  # a YAML list is as good as a tuple; its items stay strict


class _Worlds(_Part):
    fog_radius: int | None = Field(default=None, ge=1)
    transforms: tuple[TransformName, ...] = _sequence(default=("identity",))

    @field_validator("*")
    @classmethod
    def _sets(cls, value: Any) -> Any:
        return _distinct(_filled(value)) if isinstance(value, tuple) else value


class GridWorlds(_Worlds):
    """Generated grids: for each size and density a number of worlds."""

    kind: Literal["grid"] = "grid"
    sizes: tuple[int, ...] = _sequence()
    densities: tuple[float, ...] = _sequence()
    count: int = Field(ge=1, le=_MOST_COUNT)
    minimum_distance: int = Field(default=1, ge=1)

    @field_validator("sizes")
    @classmethod
    def _sizes(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
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
    count: int = Field(ge=1, le=_MOST_COUNT)
    control: bool = False

    @model_validator(mode="after")
    def _no_swap(self) -> Self:
        if self.kind == "key-door" and "swap" in self.transforms:
            raise ValueError("start and goal of a key-door world must not be swapped: the key may lie behind the door")
        return self


class TextWorlds(_Worlds):
    """Grids written out."""

    kind: Literal["text"]
    grids: tuple[str, ...] = _sequence()

    @field_validator("grids")
    @classmethod
    def _grids(cls, grids: tuple[str, ...]) -> tuple[str, ...]:
        for index, text in enumerate(grids):
            try:
                World(grid=Grid.parse(text))
            except ValueError as error:
                raise ValueError(f"grid {index} must be a world: {error}") from error
        return grids


class AgentEntry(_Part):
    """An agent: its kind and the parameters of that kind."""

    kind: str
    name: str | None = Field(default=None, min_length=1, max_length=80)
    parameters: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or "parameters" in given:
            return given
        return {
            **{key: given[key] for key in ("kind", "name") if key in given},
            "parameters": {key: value for key, value in given.items() if key not in ("kind", "name")},
        }

    @model_validator(mode="after")
    def _buildable(self) -> Self:
        try:
            canonical_json(self.parameters)
            self.build()
        except TypeError as error:
            raise ValueError(str(error)) from error
        return self

    def build(self) -> Agent:
        """Return the agent."""
        name = {} if self.name is None else {"name": self.name}
        return build_agent(self.kind, {**self.parameters, **name})

    def dump(self) -> dict[str, Any]:
        """Return the entry as it may stand in a study."""
        return {"kind": self.kind, **({} if self.name is None else {"name": self.name}), **self.parameters}


class Horizon(_Part):
    """Most actions of an episode: a factor of the shortest path (rounded up), or a number of steps."""

    factor: float | None = Field(default=None, gt=0, le=1000)
    steps: int | None = Field(default=None, ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.factor is None) == (self.steps is None):
            raise ValueError("a horizon must have either a factor (of the shortest path) or steps, give exactly one")
        return self

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


class FailurePolicy(_Part):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySize:
    """How large a study is: worlds, agents, episodes, and the most steps that they can take together."""

    worlds: int
    agents: int
    episodes: int
    steps: int


WorldEntry = Annotated[GridWorlds | LayoutWorlds | TextWorlds, Field(discriminator="kind")]


class Study(_Part):
    """What is run: worlds x agents x trajectories, and the rules of an episode.

    `load` and `parse` are the ways in; both raise a ValueError with one line for each thing that is wrong.
    """

    name: str = Field(default="study", min_length=1, max_length=200)
    seed: int = Field(default=0, ge=-_MOST_SEED, le=_MOST_SEED)
    worlds_: tuple[WorldEntry, ...] = _sequence(alias="worlds")
    agents_: tuple[AgentEntry, ...] = _sequence(alias="agents")
    trajectories: int = Field(default=10, ge=1, le=_MOST_COUNT)
    horizon: Horizon = Horizon(factor=1.5)
    history: Literal["none", "actions"] = "none"
    failure: FailurePolicy = FailurePolicy()
    durability: Literal["process", "power"] = "process"

    @field_validator("worlds_", "agents_")
    @classmethod
    def _some(cls, entries: Any) -> Any:
        return _filled(entries)

    @model_validator(mode="after")
    def _distinct_parts(self) -> Self:
        _distinct([entry.model_dump_json() for entry in self.worlds_], "entries of worlds")
        built = [entry.build() for entry in self.agents_]
        _distinct([agent.name for agent in built], "names of agents")
        ids = [agent_id(agent) for agent in built]
        for index, identity in enumerate(ids):
            if identity in ids[:index]:
                raise ValueError(
                    f"agents must behave differently, agents[{index}] repeats agents[{ids.index(identity)}]"
                )
        return self

    @classmethod
    def load(cls, path: str | Path) -> "Study":
        """Read a study from a YAML file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: what is wrong, one line for each thing.
        """
        return cls._validate(read_yaml(Path(path)), str(path))

    @classmethod
    def parse(cls, mapping: Mapping[str, Any]) -> "Study":
        """Read a study from plain values.

        Raises:
            ValueError: what is wrong, one line for each thing.
        """
        return cls._validate(mapping, "the study")

    @classmethod
    def _validate(cls, given: Any, name: str) -> "Study":
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise ValueError(
                f"{name} must be a study: a mapping with the keys {', '.join(_KEYS[''])}; got {shorten(given)}"
            )
        try:
            study = cls.model_validate(dict(given))
        except ValidationError as error:
            raise ValueError(explain(error, _KEYS, name)) from None
        return study

    @cached_property
    def id(self) -> str:
        """Content id of all that decides a result; name and durability do not."""
        return content_id("study", {key: part for key, part in self.dump().items() if key not in _NO_RESULT})

    def dump(self) -> dict[str, Any]:
        """Return the study as plain values with every default written out, the inverse of `parse`."""
        plain = self.model_dump(mode="json", by_alias=True)
        plain["agents"] = [entry.dump() for entry in self.agents_]
        plain["horizon"] = {key: part for key, part in plain["horizon"].items() if part is not None}
        return plain

    @cached_property
    def _expanded(self) -> tuple[World, ...]:
        return tuple(expand(self.worlds_, self.seed))

    def worlds(self) -> list[World]:
        """Return all worlds, all different, in the order of the study.

        Raises:
            ValueError: there are not as many different worlds as the study asks for.
        """
        return list(self._expanded)

    def agents(self) -> list[Agent]:
        """Return the agents in the order of the study."""
        return [entry.build() for entry in self.agents_]

    def rules(self) -> str:
        """Return `EpisodeSpec.rules` of this study's episodes."""
        rules: dict[str, Any] = {}
        if self.history != "none":
            rules["history"] = self.history
        if self.failure != FailurePolicy():
            rules["failure"] = self.failure.model_dump()
        return canonical_json(rules) if rules else ""

    def specs(self, agents: Sequence[Agent] | None = None) -> Iterator[tuple[EpisodeSpec, World, Agent]]:
        """Yield every episode of the study: agent by agent, world by world, trajectory by trajectory.

        Args:
            agents: ready agents in place of the study's own.
        """
        rules = self.rules()
        horizons = [(world, self.horizon.of(world.grid)) for world in self._expanded]
        for agent in self.agents() if agents is None else agents:
            identity = agent_id(agent)
            for world, horizon in horizons:
                for trajectory in range(self.trajectories):
                    spec = EpisodeSpec(
                        world_id=world.id,
                        agent_id=identity,
                        trajectory=trajectory,
                        seed=self.seed,
                        horizon=horizon,
                        rules=rules,
                    )
                    yield spec, world, agent

    def size(self, agents: Sequence[Agent] | None = None) -> StudySize:
        """Return how large the study is before anything is run."""
        count = len(self.agents_ if agents is None else agents)
        worlds = len(self._expanded)
        steps = sum(self.horizon.of(world.grid) for world in self._expanded)
        return StudySize(
            worlds=worlds,
            agents=count,
            episodes=worlds * count * self.trajectories,
            steps=steps * count * self.trajectories,
        )

    def difference(self, other: "Study") -> str:
        """Return one line for each key whose value differs, this study's first; name and durability are left out."""
        mine, theirs = _flat(self.dump()), _flat(other.dump())
        lines = [
            f"  {key}: {shorten(mine.get(key, 'nothing'))} stored, {shorten(theirs.get(key, 'nothing'))} given"
            for key in dict.fromkeys([*mine, *theirs])
            if key not in _NO_RESULT and mine.get(key, _flat) != theirs.get(key, _flat)
        ]
        return "\n".join(lines[:8] + ([f"  and {len(lines) - 8} more"] if len(lines) > 8 else []))


_KEYS: dict[str, Sequence[str]] = {
    "": [field.alias or name for name, field in Study.model_fields.items()],
    "worlds grid": list(GridWorlds.model_fields),
    **{f"worlds {kind}": list(LayoutWorlds.model_fields) for kind in ("key-door", "key-no-door", "two-path")},
    "worlds text": list(TextWorlds.model_fields),
    "agents": list(AgentEntry.model_fields),
    "horizon": list(Horizon.model_fields),
    "failure": list(FailurePolicy.model_fields),
}


def _filled(values: Any) -> Any:
    if not values:
        raise ValueError("must have at least one entry, got an empty list")
    return values


def _distinct(values: Any, what: str = "values") -> Any:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{what} must be different, got {shorten(value)} twice")
    return values


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the leaves of nested plain values by their paths."""
    if isinstance(value, dict) and value:
        parts = [_flat(item, f"{path}.{key}".lstrip(".")) for key, item in value.items()]
    elif isinstance(value, list) and value:
        parts = [_flat(item, f"{path}[{index}]") for index, item in enumerate(value)]
    else:
        return {path: value}
    return {key: leaf for part in parts for key, leaf in part.items()}
