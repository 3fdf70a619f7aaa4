"""World kinds for environments in a study file: users' classes, Gymnasium, MiniGrid with BabyAI, and TextWorld."""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, field_validator, model_validator

from goalscope._ground.ids import content_id
from goalscope._ground.own import is_own
from goalscope._ground.rng import stream
from goalscope._ground.untrusted import shorten
from goalscope.runs.kinds import OWN, Phased, listed, sequence, world_kind
from goalscope.stats.rows import Tag
from goalscope.worlds.environments.solution import LIMIT
from goalscope.worlds.environments.world import EnvironmentWorld

_MOST_SEED = 2**31 - 1
_Seed = Annotated[int, Field(ge=0, le=_MOST_SEED)]
_SPAN = re.compile(r"([0-9]{1,10})\.\.([0-9]{1,10})")
_MOST_SEEDS = 10_000


def _from_span(value: Any) -> Any:
    """Expand a span first..last to its seeds, including both ends; return anything else unchanged."""
    if not isinstance(value, str):
        return value
    span = _SPAN.fullmatch(value)
    first, last = map(int, span.groups()) if span is not None else (1, 0)
    if not first <= last < first + _MOST_SEEDS:
        raise ValueError(f"must be a list, or first..last, a span of at most {_MOST_SEEDS} seeds, got {shorten(value)}")
    return tuple(range(first, last + 1))


_Seeds = Annotated[tuple[_Seed, ...], BeforeValidator(_from_span)]
"""Seeds of worlds: a list, or a span as in ``1..30``."""


class _Searched(Phased, ABC):
    """Base of all entries for environments: limits of the state search, and worlds made from parameters.

    With `starts`, each environment becomes up to that many worlds, which begin in different states: first in those in
    which it begins itself, then in other states from which its goal can be reached, drawn with the seed of the study.
    """

    later: ClassVar[tuple[str, ...]] = ("phase", "starts")

    starts: int | None = Field(default=None, ge=1, le=100_000)
    limit: int = Field(default=LIMIT, ge=1, le=2_000_000)
    depth: int | None = Field(default=None, ge=1, le=100_000)

    @field_validator("*")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return listed(value) if isinstance(value, tuple) else value

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[EnvironmentWorld]:
        """Yield the worlds of each environment."""
        for world in self.environments_of(path):
            yield from [world] if self.starts is None else self._starting(world, seed, path)

    @abstractmethod
    def environments_of(self, path: str) -> Iterator[EnvironmentWorld]:
        """Yield a world for each environment, which begins where the environment itself does."""

    def _starting(self, world: EnvironmentWorld, seed: int, path: str) -> Iterator[EnvironmentWorld]:
        """Yield the worlds of one environment with different first states; each is a cluster of its own.

        Raises:
            ValueError: the goal cannot be reached from any state, or not all states were searched.
        """
        if self.depth is not None:
            raise ValueError(f"{path}: starts needs all states of an environment: leave depth out, or starts")
        believed = world.believed
        if not len(believed.starts):
            raise ValueError(f"{path}: the goal of {world.source} cannot be reached from any state: check goal(state)")
        own = believed.table.start[believed.starts] > 0
        shuffled = stream(seed, "first states", world.id).permutation(len(believed.starts))
        order = shuffled[np.argsort(~own[shuffled], kind="stable")]
        for state in believed.starts[order[: self.starts]].tolist():
            yield replace(world, start=state, cluster="", tags={**world.tags, "first state": state})

    def _world(
        self,
        path: str,
        source: str,
        parameters: Mapping[str, Any],
        tags: Mapping[str, Tag],
        shared_keys: Sequence[str] = (),
    ) -> EnvironmentWorld:
        """Return a world. Worlds whose descriptions have equal ``shared_keys`` form one cluster."""
        try:
            world = EnvironmentWorld.construct(source, parameters, limit=self.limit, depth=self.depth, tags=tags)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        if not shared_keys:
            return world
        return replace(world, cluster=content_id("world", {name: world.description[name] for name in shared_keys}))


@world_kind("environment", world=EnvironmentWorld)
@world_kind(OWN, world=EnvironmentWorld)
class Environments(_Searched):
    """Environments given by class: one world per mapping of parameters.

    ``kind: module:Class`` names a class in the working directory; ``kind: environment`` with ``source`` names a
    registered one. With `seeds`, each mapping is combined with each seed, which becomes the class's parameter ``seed``.
    Environments with equal descriptions share a cluster, i.e. intervals count them as one.
    """

    later: ClassVar[tuple[str, ...]] = ("phase", "starts", "seeds")
    kind: str
    source: str = ""
    name: str = Field(default="", max_length=80)
    parameters: tuple[dict[str, Any], ...] = sequence(default=({},))
    seeds: _Seeds | None = Field(default=None, strict=False)

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.kind == "environment":
            if not self.source:
                raise ValueError("source must name a registered environment or module:Class, got none: add source")
        elif not is_own(self.kind) or self.source:
            raise ValueError(f"kind must be environment with a source, or module:Class without one, got {self.kind!r}")
        if self.seeds is not None and any("seed" in parameters for parameters in self.parameters):
            raise ValueError("seeds are given twice, as seeds and as a parameter seed: leave one of them out")
        return self

    def environments_of(self, path: str) -> Iterator[EnvironmentWorld]:
        """Yield the worlds in the order of their parameters."""
        source = self.source or self.kind
        name = self.name or source.rpartition(":")[2]
        for index, parameters in enumerate(self.parameters):
            tags = {**_tags(parameters), "kind": name, "index": index}
            if self.seeds is None:
                yield self._world(path, source, parameters, tags)
            for number in self.seeds or ():
                made = self._world(path, source, {**parameters, "seed": number}, {**tags, "world seed": number})
                yield replace(made, cluster=content_id("world", dict(made.description)))


@world_kind("gymnasium", world=EnvironmentWorld)
class GymnasiumWorlds(_Searched):
    """Gymnasium environments that have a table of transitions ``P``: names, with options in brackets if needed.

    `options` are arguments of `gymnasium.make`, the same for all names; `modules` are files in the working directory
    that register further names.
    """

    later: ClassVar[tuple[str, ...]] = ("phase", "starts", "modules")

    kind: Literal["gymnasium"]
    environments: tuple[str, ...] = sequence()
    modules: tuple[str, ...] | None = Field(default=None, strict=False)
    options: dict[str, Any] = Field(default_factory=dict)

    def environments_of(self, path: str) -> Iterator[EnvironmentWorld]:
        """Yield one world per name."""
        for index, name in enumerate(self.environments):
            options: dict[str, Any] = {"options": self.options} if self.options else {}
            options |= {"modules": list(self.modules)} if self.modules else {}
            tags = {"kind": "gymnasium", "environment": name, "index": index, **_tags(self.options)}
            yield self._world(path, "gymnasium", {"name": name, **options}, tags)


@world_kind("minigrid", world=EnvironmentWorld)
class MiniGridWorlds(_Searched):
    """Levels of MiniGrid and BabyAI, each made with each seed.

    `form` is how a level is shown to language models ("words" or "grid"); `array` is what policies receive; `modules`
    are files in the working directory that register levels of your own.
    """

    later: ClassVar[tuple[str, ...]] = ("phase", "starts", "array", "modules")

    kind: Literal["minigrid"]
    levels: tuple[str, ...] = sequence()
    seeds: _Seeds = sequence(default=(1,))
    form: Literal["words", "grid"] = "words"
    array: Literal["image", "one-hot", "image-mission", "image-tokens", "full"] | None = None
    modules: tuple[str, ...] | None = Field(default=None, strict=False)

    def environments_of(self, path: str) -> Iterator[EnvironmentWorld]:
        """Yield the worlds by level, then by seed."""
        for level in self.levels:
            for number in self.seeds:
                parameters = {"level": level, "seed": number, "form": self.form}
                parameters |= {} if self.array is None else {"array": self.array}
                parameters |= {"modules": list(self.modules)} if self.modules else {}
                tags: dict[str, Tag] = {"kind": "minigrid", "level": level, "world seed": number}
                # Some levels have one layout regardless of the seed.
                yield self._world(path, "minigrid", parameters, tags, shared_keys=("level", "layout"))


@world_kind("textworld", world=EnvironmentWorld)
class TextWorldGames(_Searched):
    """Generated TextWorld games, each made with each seed. At most five objects keep their states enumerable."""

    kind: Literal["textworld"]
    rooms: int = Field(ge=1, le=20)
    objects: int = Field(ge=1, le=20)
    quest_length: int = Field(ge=1, le=20)
    seeds: _Seeds = sequence(default=(1,))

    def environments_of(self, path: str) -> Iterator[EnvironmentWorld]:
        """Yield one world per seed."""
        size = {"rooms": self.rooms, "objects": self.objects, "quest_length": self.quest_length}
        for number in self.seeds:
            tags: dict[str, Tag] = {"kind": "textworld", **size, "world seed": number}
            yield self._world(path, "textworld", {**size, "seed": number}, tags, shared_keys=("game",))


def _tags(parameters: Mapping[str, Any]) -> dict[str, Tag]:
    """Return the parameters that can become tags, by which rows are grouped."""
    return {key: value for key, value in parameters.items() if isinstance(value, str | int | float | bool)}
