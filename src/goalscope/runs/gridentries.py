"""The grids of a study file: generated ones, the layouts with keys and doors, and grids written out."""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count, product
from typing import Any, Literal, Self, get_args

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from goalscope.rows import Tag
from goalscope.runs.config_base import MOST_COUNT, Part, distinct, filled, sequence
from goalscope.runs.kinds import world_kind
from goalscope.worlds.generate import check_density, check_size, generate_batch
from goalscope.worlds.grid import Grid, Side
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.layouts import control, layout
from goalscope.worlds.transform import TRANSFORMS, transform
from goalscope.worlds.world import World

_MOST_SIZE = 501  # rows of a grid; far beyond, one grid alone fills the memory
_MOST_REPEATS = 1_000  # in a row

TransformName = Literal["identity", "reflect", "rotate", "transpose", "swap"]
if set(TRANSFORMS) != set(get_args(TransformName)):
    raise ImportError("the transforms that a study may name must be those of goalscope.worlds.transform")


class _Worlds(Part):
    """What all kinds of grids have."""

    fog_radius: int | None = Field(default=None, ge=1)
    transforms: tuple[TransformName, ...] = sequence(default=("identity",))

    @field_validator("*")
    @classmethod
    def _sets(cls, value: Any) -> Any:
        return distinct(filled(value)) if isinstance(value, tuple) else value

    def _versions(self, grid: Grid, cluster: Grid, tags: Mapping[str, Tag]) -> list[GridWorld]:
        """Return a grid's transforms; they share the cluster of the whole grid, so that fog too is paired."""
        shared = GridWorld(grid=cluster).id
        fog: dict[str, Tag] = {} if self.fog_radius is None else {"fog_radius": self.fog_radius}
        return [
            GridWorld(
                grid=transform(grid, name),
                fog_radius=self.fog_radius,
                cluster=shared,
                tags={**tags, "transform": name, **fog},
            )
            for name in self.transforms
        ]

    def _series(
        self,
        path: str,
        draw: Callable[[int], list[GridWorld] | None],
        tags: Mapping[str, Tag],
        taken: set[str],
        wanted: int,
    ) -> Iterator[GridWorld]:
        """Yield the worlds of one series with their versions, passing over the ones that are there already.

        Small empty rooms repeat soon. A drawn world that is there already, itself or one of its versions, is passed
        over for the next of its series, so that every grid is a cluster of its own.
        """
        found = passed = 0
        for index in count():
            if found == wanted:
                return
            worlds = draw(index)
            if worlds is None:
                continue
            ids = {world.id for world in worlds}
            if len(ids) < len(worlds) or ids & taken:
                passed += 1
                if passed > _MOST_REPEATS:
                    asked = ", ".join(f"{name} {value}" for name, value in tags.items())
                    raise ValueError(
                        f"{path} must have as many different worlds as it asks for, but only {found} of {wanted} "
                        f"were found ({asked}): lower count or use fewer transforms"
                    )
                continue
            taken |= ids
            found, passed = found + 1, 0
            yield from worlds


@world_kind("grid", world=GridWorld)
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

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[World]:
        """Yield the worlds of each size and density; world i does not depend on how many follow it."""
        known = set(taken)
        for size, density in product(self.sizes, self.densities):
            tags: dict[str, Tag] = {"kind": "grid", "size": size, "density": density}
            yield from self._series(path, self._numbered(size, density, seed, tags), tags, known, self.count)

    def _numbered(
        self, size: int, density: float, seed: int, tags: Mapping[str, Tag]
    ) -> Callable[[int], list[GridWorld] | None]:
        """Return a function from the number of a world to its versions; grids are drawn in batches."""
        blocks: dict[int, list[Grid]] = {}
        length = min(256, self.count + 8)

        def draw(index: int) -> list[GridWorld] | None:
            block = index // length
            if block not in blocks:
                blocks.clear()
                batch = generate_batch(
                    size, density, seed=seed, count=length, first=block * length, minimum_distance=self.minimum_distance
                )
                blocks[block] = list(batch)
            grid = blocks[block][index % length]
            if self.goal_side is not None and not grid.goal_lies(self.goal_side):
                return None  # about half of all grids lie on either side
            return self._versions(grid, grid, {**tags, "index": index})

        return draw


@world_kind("two-path", world=GridWorld)
@world_kind("key-no-door", world=GridWorld)
@world_kind("key-door", world=GridWorld)
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

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[World]:
        """Yield the worlds, each with its control where asked."""

        def draw(index: int) -> list[GridWorld]:
            base = layout(self.kind, seed=seed, index=index)
            # With and without door, with and without key: what is compared with each other is one cluster.
            plain = control(base)
            sized: dict[str, Tag] = {"kind": self.kind, "size": base.height, "index": index}
            worlds = self._versions(base, plain, {**sized, "control": False})
            return worlds + self._versions(plain, plain, {**sized, "control": True}) if self.control else worlds

        yield from self._series(path, draw, {"kind": self.kind}, set(taken), self.count)


@world_kind("text", world=GridWorld)
class TextWorlds(_Worlds):
    """Grids written out."""

    kind: Literal["text"]
    grids: tuple[str, ...] = sequence()

    @field_validator("grids")
    @classmethod
    def _grids(cls, grids: tuple[str, ...]) -> tuple[str, ...]:
        for index, text in enumerate(grids):
            try:
                GridWorld(grid=Grid.parse(text))
            except ValueError as error:
                raise ValueError(f"grid {index} must be a world: {error}") from error
        return grids

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[World]:
        """Yield the worlds with their versions."""
        known = set(taken)
        for index, text in enumerate(self.grids):
            grid = Grid.parse(text)
            square: dict[str, Tag] = {"size": grid.height} if grid.height == grid.width else {}
            worlds = self._versions(grid, grid, {"kind": "text", **square, "index": index})
            ids = {world.id for world in worlds}
            if ids & known or len(ids) < len(worlds):
                raise ValueError(
                    f"worlds must be different, but grid {index} of {path}, or one of its transforms, is there "
                    "already: leave it out"
                )
            known |= ids
            yield from worlds
