"""The built-in world kinds of a study file: grids (generated, layouts with keys, written out) and task maps."""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache, partial
from itertools import count, product
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from goalscope._ground.checks import freeze, near_miss
from goalscope._ground.ids import content_id
from goalscope._ground.rng import stream, words
from goalscope.runs.kinds import MAX_COUNT, Phased, listed, sequence, world_kind
from goalscope.runs.placement import PlacedThing, Rule, goal_as_far, placed, with_key, with_things
from goalscope.stats.rows import Tag
from goalscope.worlds.generate import GridBatch, check_density, check_size, control, generate_batch, layout
from goalscope.worlds.grid import MAX_SIDE, Grid, Position, Side, bounded_grid
from goalscope.worlds.gridworld import GridWorld, NamedWorld
from goalscope.worlds.tasks import COOKING, WIDE_COOKING, cooking_map, symbolic_twin
from goalscope.worlds.tasks.generate import PRESETS, TaskSpec, generate_task_map, preset_tags
from goalscope.worlds.tasks.taskmap import TaskMap, plan_task
from goalscope.worlds.tasks.world import TaskWorld
from goalscope.worlds.transform import TRANSFORMS, transform

_MAX_REPEATS = 1_000  # number of consecutive repeated worlds after which the search stops
_MOST_KEPT_CELLS = 2**17  # maximum cells of a cached batch: 256 grids of 21x21; the whole cache takes at most 32 MB
WorldT = TypeVar("WorldT", bound=GridWorld)
_TASK_SPEC = tuple(entry.name for entry in fields(TaskSpec))

TransformName = Literal["identity", "reflect", "rotate", "transpose", "swap"]
if set(TRANSFORMS) != set(get_args(TransformName)):
    raise ImportError("the transforms that a study may name must be those of goalscope.worlds.transform")


def _check_name(name: str, names: Iterable[str], kind: str) -> str:
    if name not in names:
        raise ValueError(f"must name {kind}, got {name[:60]!r}{near_miss(name, list(names))}")
    return name


def _one_of(names: Iterable[str], kind: str) -> AfterValidator:
    """Build a pydantic validator for a text that must be one of the given names."""
    return AfterValidator(partial(_check_name, names=names, kind=kind))


class _DistinctLists(Phased):
    """Settings whose lists must have at least one entry and no repeated entries.

    Attributes:
        pure: whether the worlds depend on nothing but these settings and the seed.
        repeated: the setting whose entries may be repeated.
    """

    pure: ClassVar[bool] = True
    repeated: ClassVar[str] = "things"

    @field_validator("*")
    @classmethod
    def _listed(cls, value: Any, info: ValidationInfo) -> Any:
        return listed(value) if isinstance(value, tuple) and info.field_name != cls.repeated else value


class _GridSettings(_DistinctLists):
    """Settings shared by all kinds of grids."""

    fog_radius: int | None = Field(default=None, ge=1)
    transforms: tuple[TransformName, ...] = sequence(default=("identity",))

    def _versions(self, grid: Grid, cluster: Grid, tags: Mapping[str, Tag]) -> list[GridWorld]:
        """Return the transforms of a grid. All have the cluster of the original grid, so that fog is paired as well."""
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


def _first_distinct(
    path: str, candidates: Iterable[Sequence[WorldT]], tags: Mapping[str, Tag], taken_ids: set[str], count: int
) -> Iterator[WorldT]:
    """Yield the first worlds of a series with their versions, skipping repeated worlds.

    Small empty rooms soon repeat. A generated world is skipped if it or one of its versions occurred before, so that
    every grid is a cluster of its own.
    """
    accepted = rejected = 0
    for worlds in candidates:
        if _take_distinct(worlds, taken_ids):
            accepted, rejected = accepted + 1, 0
            yield from worlds
        else:
            rejected += 1
        if accepted == count:
            return
        if rejected > _MAX_REPEATS:
            described = ", ".join(f"{name} {value}" for name, value in tags.items())
            raise ValueError(
                f"{path} asks for {count} different worlds, but only {accepted} were found ({described}): "
                "lower count or use fewer transforms"
            )


def _take_distinct(worlds: Sequence[GridWorld], world_ids: set[str]) -> bool:
    """Return whether worlds differ from each other and from all earlier ones; if so, add their ids to ``world_ids``."""
    ids = {world.id for world in worlds}
    distinct = len(ids) == len(worlds) and not ids & world_ids
    world_ids |= ids if distinct else set()
    return distinct


def _check_size(size: int) -> int:
    if size > MAX_SIDE:
        raise ValueError(f"size must be at most {MAX_SIDE}, got {size}")
    return check_size(size)


def _grid_batch(size: int, density: float, seed: int, count: int, first: int, minimum_distance: int) -> GridBatch:
    """Return generated grids, see `generate_batch`. Small batches are cached for studies that generate them again.

    An evaluation describes the study of each arm several times before and while it asks the agent.
    """
    generate = _kept_batch if count * size * size <= _MOST_KEPT_CELLS else _batch_or_error
    batch = generate(size, density, seed, count, first, minimum_distance)
    if isinstance(batch, ValueError):
        raise ValueError(*batch.args)
    return batch


def _batch_or_error(
    size: int, density: float, seed: int, count: int, first: int, minimum_distance: int
) -> GridBatch | ValueError:
    """Return generated grids, or the error if there are none.

    The error is cached, because it takes a thousand draws.
    """
    try:
        batch = generate_batch(size, density, seed=seed, count=count, first=first, minimum_distance=minimum_distance)
    except ValueError as error:
        return error.with_traceback(None)
    return GridBatch(walls=freeze(batch.walls), start=freeze(batch.start), goal=freeze(batch.goal))


_kept_batch = lru_cache(maxsize=256)(_batch_or_error)


class _GeneratedGrids(_DistinctLists):
    """Settings of generated grids: for each size and density a number of grids, each with its transformed versions."""

    kind: str
    sizes: tuple[Annotated[int, AfterValidator(_check_size)], ...] = sequence()
    densities: tuple[Annotated[float, AfterValidator(check_density)], ...] = sequence()
    count: int = Field(ge=1, le=MAX_COUNT)

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[GridWorld]:
        """Yield the worlds of each size and density. World i does not depend on how many worlds follow it."""
        taken_ids = set(taken)
        for size, density in product(self.sizes, self.densities):
            tags: dict[str, Tag] = {"kind": self.kind, "size": size, "density": density}
            yield from _first_distinct(path, self._generated(size, density, seed, tags), tags, taken_ids, self.count)

    @abstractmethod
    def _generated(
        self, size: int, density: float, seed: int, tags: Mapping[str, Tag]
    ) -> Iterator[Sequence[GridWorld]]:
        """Yield the versions of each grid. Grids are generated in batches."""


@world_kind("grid", world=GridWorld)
class GridWorlds(_GeneratedGrids, _GridSettings):
    """Generated grids and their transforms (mirrored, rotated, ... versions)."""

    later: ClassVar[tuple[str, ...]] = ("phase", "goal_side", "goal", "start", "key", "apart", "things")
    kind: Literal["grid"] = "grid"
    minimum_distance: int = Field(default=1, ge=1)
    goal_side: Side | None = None
    goal: Rule | None = None
    start: Rule | None = None
    key: Rule | None = None
    apart: int | None = Field(default=None, ge=1)
    things: tuple[PlacedThing, ...] | None = sequence(default=None, min_length=1, max_length=20)

    @model_validator(mode="after")
    def _distances(self) -> Self:
        maximum = (min(self.sizes) - 2) ** 2 - 1
        if self.minimum_distance > maximum:
            raise ValueError(
                f"minimum_distance must be at most {maximum} for size {min(self.sizes)}, got {self.minimum_distance}"
            )
        if self.things and "swap" in self.transforms:
            raise ValueError("transforms of grids with things must not include swap, as things may block the way back")
        return self

    def _generated(self, size: int, density: float, seed: int, tags: Mapping[str, Tag]) -> Iterator[list[GridWorld]]:
        length, rejected = min(256, self.count + 8), 0
        for first in count(0, length):
            batch = _grid_batch(size, density, seed, length, first, self.minimum_distance)
            for index, grid in enumerate(batch, first):
                placed_grid = self._placed(grid, seed, size, density, index)
                if placed_grid is not None and (self.goal_side is None or placed_grid.goal_lies(self.goal_side)):
                    # versions of one grid with other placements form one cluster, so that phases are paired
                    rejected = 0
                    yield self._versions(placed_grid, grid, {**tags, "index": index})
                elif (rejected := rejected + 1) > _MAX_REPEATS:
                    raise ValueError(
                        f"no grid of size {size} satisfies goal, start, key, apart, things and goal_side together: "
                        "change one of them"
                    )

    def _placed(self, grid: Grid, seed: int, size: int, density: float, index: int) -> Grid | None:
        """Return a grid with its goal, start and key moved as the settings say, or None if that is impossible."""
        min_distance, of = max(self.apart or 1, self.minimum_distance), (size, repr(density), index)
        placed_grid: Grid | None = grid
        if (self.goal, self.start, self.apart) != (None, None, None):
            rng = stream(seed, "placement", *of, self.goal or "", self.start or "", min_distance)
            placed_grid = placed(grid, goal=self.goal, start=self.start, apart=min_distance, rng=rng)
        if placed_grid is not None and self.key is not None:
            rng = stream(seed, "key placement", *of, self.key, min_distance)
            placed_grid = with_key(placed_grid, self.key, apart=min_distance, rng=rng)
        if placed_grid is not None and self.things is not None:
            placed_grid = with_things(placed_grid, self.things, rng=stream(seed, "things", *of, *self.things))
        return placed_grid


@world_kind("two-path", world=GridWorld)
@world_kind("key-no-door", world=GridWorld)
@world_kind("key-door", world=GridWorld)
class LayoutWorlds(_GridSettings):
    """Worlds with key and door, each with its matched control if requested.

    The control is the same grid without the key and the door that it opens.
    """

    kind: Literal["key-door", "key-no-door", "two-path"]
    count: int = Field(ge=1, le=MAX_COUNT)
    control: bool = False

    @model_validator(mode="after")
    def _no_swap(self) -> Self:
        if self.kind == "key-door" and "swap" in self.transforms:
            raise ValueError(
                "transforms of key-door worlds must not include swap, because the key may lie behind the "
                "door: remove swap"
            )
        return self

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[GridWorld]:
        """Yield the worlds, each followed by its control if requested."""
        yield from _first_distinct(path, self._generated(seed), {"kind": self.kind}, set(taken), self.count)

    def _generated(self, seed: int) -> Iterator[list[GridWorld]]:
        for index in count():
            base = layout(self.kind, seed=seed, index=index)
            # Worlds that are compared (with and without door, with and without key) form one cluster.
            without_key = control(base)
            shared_tags: dict[str, Tag] = {"kind": self.kind, "size": base.height, "index": index}
            worlds = self._versions(base, without_key, {**shared_tags, "control": False})
            yield (
                worlds + self._versions(without_key, without_key, {**shared_tags, "control": True})
                if self.control
                else worlds
            )


@world_kind("text", world=GridWorld)
class TextWorlds(_GridSettings):
    """Grids written out in the study."""

    kind: Literal["text"]
    grids: tuple[str, ...] = sequence()

    @field_validator("grids")
    @classmethod
    def _grids(cls, grids: tuple[str, ...]) -> tuple[str, ...]:
        for index, text in enumerate(grids):
            try:
                GridWorld(grid=bounded_grid(text))
            except ValueError as error:
                raise ValueError(f"grid {index} must be a world: {error}") from error
        return grids

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[GridWorld]:
        """Yield the worlds with their versions."""
        taken_ids = set(taken)
        for index, text in enumerate(self.grids):
            grid = Grid.parse(text)
            size_tag: dict[str, Tag] = {"size": grid.height} if grid.height == grid.width else {}
            worlds = self._versions(grid, grid, {"kind": "text", **size_tag, "index": index})
            if not _take_distinct(worlds, taken_ids):
                raise ValueError(
                    f"grid {index} of {path}, or one of its transforms, repeats an earlier world: leave it out"
                )
            yield from worlds


@world_kind("named-place", world=NamedWorld)
class NamedPlaceWorlds(_GeneratedGrids):
    """Generated grids, each with three instructions: go to G, to the cell of G, or to the cell of a distant corner.

    They show whether an agent follows its instruction or goes to the symbol G. In each grid, one corner is exactly as
    many steps from the start as the goal, and the goal lies as far as possible from that corner, which is its rival.
    The three worlds of a grid form one cluster (intervals resample grids); their tag `named` is "no", "goal" or
    "rival".
    """

    kind: Literal["named-place"]
    minimum_distance: int = Field(default=4, ge=1)

    def _generated(self, size: int, density: float, seed: int, tags: Mapping[str, Tag]) -> Iterator[list[NamedWorld]]:
        """Yield the worlds of each grid. A grid without a cell as far away as the corner is skipped."""
        length, rejected = 2 * self.count + 8, 0
        for first in count(0, length):
            batch = generate_batch(size, density, seed=seed, count=length, first=first, name="named places")
            for index, grid in enumerate(batch, first):
                corner = ((1, size - 2)[index % 2], (1, size - 2)[index // 2 % 2])
                goal = goal_as_far(grid, corner, self.minimum_distance)
                rejected = rejected + 1 if goal is None else 0
                if goal is not None:
                    yield _with_instructions(grid.at(goal=goal), corner, {**tags, "index": index})
                elif rejected > _MAX_REPEATS:
                    raise ValueError(
                        f"no generated grid of size {size} has a corner minimum_distance = {self.minimum_distance} "
                        "steps from its start: lower minimum_distance"
                    )


def _with_instructions(grid: Grid, rival: Position, tags: Mapping[str, Tag]) -> list[NamedWorld]:
    """Return three worlds of a grid: with the usual instruction, with the goal named, and with the rival named."""
    shared = GridWorld(grid=grid).id
    variants: dict[str, dict[str, Any]] = {
        "no": {"grid": grid, "named": False},
        "goal": {"grid": grid},
        "rival": {"grid": grid.at(goal=rival), "marker": grid.goal},
    }
    return [NamedWorld(**settings, cluster=shared, tags={**tags, "named": name}) for name, settings in variants.items()]


@world_kind("task-map", world=TaskWorld)
class TaskMapWorlds(_DistinctLists):
    """Generated task maps (maps with tasks that depend on each other): a number of maps for each preset.

    `presets` names members of `PRESETS`; `generator` changes parameters of `TaskSpec` in all of them, e.g. `size`.
    """

    kind: Literal["task-map"]
    presets: tuple[Annotated[str, _one_of(PRESETS, "presets of task maps")], ...] = sequence()
    count: int = Field(ge=1, le=MAX_COUNT)
    generator: dict[str, Any] = Field(default_factory=dict)

    @field_validator("generator")
    @classmethod
    def _generator(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        for name, value in parameters.items():
            _check_name(name, _TASK_SPEC, "parameters of the generator")
            if isinstance(value, dict):
                raise ValueError(f"{name} must be a list of pairs [number, probability], got a mapping")
        _with_parameters(PRESETS["medium-medium"], parameters)
        return parameters

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[TaskWorld]:
        """Yield the maps of each preset. Map i of a preset does not depend on how many maps follow it."""
        for preset in self.presets:
            spec = _with_parameters(PRESETS[preset], self.generator)
            tags: dict[str, Tag] = {"kind": "task-map", "preset": preset, **preset_tags(preset)}
            for index in range(self.count):
                # Each preset has its own random stream.
                number = int(words(seed, "task maps", first=index, count=1, each=1)[0, 0] >> 1)
                try:
                    task_map = generate_task_map(spec, seed=number)
                except ValueError as error:
                    raise ValueError(f"{path}: preset {preset}: {error}") from error
                yield TaskWorld(task_map=task_map, tags={**tags, **_size_tags(task_map), "index": index})


@world_kind("cooking", world=TaskWorld)
class CookingWorlds(_DistinctLists):
    """The task maps about cooking, with meaningful names, with symbolic names (twins), or both.

    `starts` is the number of start cells per map: its own start, and others drawn from the cells without a node. All
    versions of one map form one cluster, because they share cells and graph.
    """

    kind: Literal["cooking"]
    maps: tuple[Annotated[str, _one_of((*COOKING, *WIDE_COOKING), "cooking maps")], ...] = sequence(default=COOKING)
    names: tuple[Literal["semantic", "symbolic"], ...] = sequence(default=("semantic", "symbolic"))
    starts: int = Field(default=1, ge=1, le=10)

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[TaskWorld]:
        """Yield the maps, start by start. Twins have the same starts."""
        for name in self.maps:
            kitchen = cooking_map(name)
            cluster = content_id("world", {"task_map": kitchen.to_plain()})
            for index, start in enumerate(_starts(kitchen, self.starts, seed, name)):
                moved = replace(kitchen, start=start)
                for names in self.names:
                    tags: dict[str, Tag] = {"kind": "cooking", "map": name, "names": names, **_size_tags(kitchen)}
                    yield TaskWorld(
                        task_map=moved if names == "semantic" else symbolic_twin(moved),
                        cluster=cluster,
                        tags={**tags, "start": index},
                    )


def _with_parameters(spec: TaskSpec, generator: Mapping[str, Any]) -> TaskSpec:
    """Return a spec with changed parameters; lists from a YAML file become tuples."""
    parameters: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in generator.items()
    }
    try:
        return replace(spec, **parameters)
    except TypeError as error:
        raise ValueError(f"a parameter has a value of the wrong type: {error}") from error


def _size_tags(task_map: TaskMap) -> dict[str, Tag]:
    return {"nodes": len(task_map.nodes), "cells": len(task_map.cells)}


def _starts(task_map: TaskMap, count: int, seed: int, name: str) -> list[tuple[int, int]]:
    """Return the map's own start, and further cells without a node from which the goal is within the budget."""
    occupied_cells = {node.cell for node in task_map.nodes.values()} | {task_map.start}
    free = [cell for cell in task_map.cells if cell not in occupied_cells]
    starts = [task_map.start]
    for position in stream(seed, "cooking starts", name).permutation(len(free)):
        if len(starts) == count:
            break
        cell = free[int(position)]
        if plan_task(replace(task_map, start=cell)).within_budget:
            starts.append(cell)
    return starts
