"""The built-in world kinds of a study file: grids, task maps, and environments.

Grids are generated, layouts with keys, or written out. Environments are users' classes, or those of Gymnasium, MiniGrid
with BabyAI, and TextWorld.

The goal, start and key of a grid can be placed by rule: "top-right", "left", "anywhere", optionally preceded by "not ".
Things can also be placed "on the way". A corner is the open cell nearest to it (`Grid.corner`; in generated grids
always the corner inside the border). A side is one half of the grid, without the middle row or column. A cell is on the
way if all shortest paths from the start to the goal lead through it, whatever things there are.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache, partial
from itertools import count, product
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from goalscope._ground import registry
from goalscope._ground.checks import freeze, near_miss
from goalscope._ground.ids import content_id
from goalscope._ground.own import is_own
from goalscope._ground.progress import paced
from goalscope._ground.rng import stream, words
from goalscope._ground.untrusted import shorten
from goalscope._ground.words import counted
from goalscope.runs.study_parts import MAX_COUNT, OWN, Phased, listed, sequence, world_kind
from goalscope.stats.rows import Tag
from goalscope.worlds.dynamics import initial_state
from goalscope.worlds.environments.solution import LIMIT
from goalscope.worlds.environments.world import EnvironmentWorld
from goalscope.worlds.generate import check_density, check_size, control, generate_batch, layout
from goalscope.worlds.grid import CORNERS, MAX_SIDE, OPEN, Grid, Position, Side, bounded_grid, symbols
from goalscope.worlds.gridworld import GridWorld, NamedWorld
from goalscope.worlds.planning.shortest import distances_batch, distances_to, solve
from goalscope.worlds.tasks import COOKING, WIDE_COOKING, cooking_map, symbolic_twin
from goalscope.worlds.tasks.generate import PRESETS, TaskSpec, generate_task_map, preset_tags
from goalscope.worlds.tasks.taskmap import TaskMap, plan_task
from goalscope.worlds.tasks.world import TaskWorld
from goalscope.worlds.transform import TRANSFORMS, transform

# Placement in grids

ANYWHERE: Final = "anywhere"
RULES: Final = (ANYWHERE, *CORNERS, *get_args(Side))
_NOT, _AT, _ON_THE_WAY = "not ", " at ", " on the way"
_CELLS: Final = 2**22  # maximum total number of cells of the grids that are searched at once


def check_rule(rule: str) -> str:
    """Check a placement rule, which says where the goal, start or key of a grid may be, and return it unchanged.

    Raises:
        ValueError: the rule is not one of `RULES` ("anywhere", "top-right", "left", ...), with or without "not " before
            it.
    """
    name = rule.removeprefix(_NOT)
    if name not in RULES or rule == f"{_NOT}{ANYWHERE}":
        raise ValueError(
            f"a placement must be one of {', '.join(RULES)}, the corners and sides also with 'not ' before them, got "
            f"{rule[:60]!r}{near_miss(name, RULES)}"
        )
    return rule


Rule = Annotated[str, AfterValidator(check_rule)]
"""A placement rule in a study."""


def check_thing(text: str) -> str:
    """Check how a study names a thing (an object in a grid, such as a coin) and where it may be, and return it
    unchanged.

    Valid forms are "coin", "coin at top-right" and "toll gate on the way".

    Raises:
        ValueError: no kind of thing has this name, or the placement rule is invalid.
    """
    name, _, rule = text.removesuffix(_ON_THE_WAY).partition(_AT)
    names = registry.names("thing")
    if name not in names:
        raise ValueError(
            f"a thing must be one of {', '.join(names)}, with or without a place such as {_AT.strip()} top-right or "
            f"{_ON_THE_WAY.strip()}, got {text[:60]!r}{near_miss(name, names)}"
        )
    if rule and text.endswith(_ON_THE_WAY):
        raise ValueError(f"a thing must have one place, got {text[:60]!r}: leave one of the two out")
    check_rule(rule or ANYWHERE)
    return text


PlacedThing = Annotated[str, AfterValidator(check_thing)]
"""A thing in a study, with or without its placement rule."""


def fits(grid: Grid, rule: str) -> npt.NDArray[np.bool_]:
    """Return which open cells of a grid satisfy a placement rule such as "top-right", as booleans ``[H, W]`` (rows by
    columns).
    """
    name = rule.removeprefix(_NOT)
    corner = grid.corner(name) if name in CORNERS else None
    return np.asarray(~grid.walls & _region(rule, *grid.walls.shape, corner))


@lru_cache(maxsize=256)
def _region(rule: str, height: int, width: int, corner: Position | None) -> npt.NDArray[np.bool_]:
    """Return a mask ``[H, W]`` of the cells that satisfy a rule; walls are included."""
    name, (rows, cols) = rule.removeprefix(_NOT), np.indices((height, width))
    if corner is not None:
        mask = (rows == corner[0]) & (cols == corner[1])
    elif name == ANYWHERE:
        mask = np.ones((height, width), dtype=bool)
    else:
        index, length = (cols, width) if name in ("left", "right") else (rows, height)
        mask = 2 * index + 1 < length if name in ("left", "top") else 2 * index + 1 > length
    return freeze(~mask if rule.startswith(_NOT) else mask)


def placed(grid: Grid, *, goal: str | None, start: str | None, apart: int, rng: np.random.Generator) -> Grid | None:
    """Move the goal and the start of a grid to cells that satisfy placement rules such as "top-right", drawn at random.

    Args:
        grid: the grid, with goal and start; its walls stay.
        goal: the rule for the goal; None leaves it unchanged.
        start: the rule for the start; None leaves it unchanged.
        apart: minimum number of steps between start and goal. If the goal's rule excludes a corner ("not top-right"),
            also the minimum from both to that corner, so that the ways to it and to the goal differ.
        rng: draws one of all suitable pairs of cells, each equally likely.

    Returns:
        The changed grid; None if no pair of cells is suitable.
    """
    cells = []
    for rule, current_cell in ((start, grid.start), (goal, grid.goal)):
        candidates = (
            [(int(row), int(col)) for row, col in np.argwhere(fits(grid, rule))] if rule is not None else [current_cell]
        )
        cells.append([cell for cell in candidates if cell is not None])
    name = "" if goal is None else goal.removeprefix(_NOT)
    far = ~grid.walls
    if goal != name and name in CORNERS:
        far = distances_to(grid.walls, [grid.corner(name)]) >= apart
    if not cells[0] or not cells[1]:
        return None
    starts, goals = np.array(cells[0]), np.array(cells[1])
    enough = _steps_between(grid.walls, starts, goals) >= max(apart, 1)
    pairs = np.argwhere(enough & far[tuple(starts.T)][:, None] & far[tuple(goals.T)])
    if not len(pairs):
        return None
    first, last = pairs[int(rng.integers(len(pairs)))]
    return grid.at(start=cells[0][first], goal=cells[1][last])


def _steps_between(
    walls: npt.NDArray[np.bool_], starts: npt.NDArray[np.int64], goals: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """Return the steps between S cells ``[S, 2]`` and G cells ``[G, 2]``, an array ``[S, G]``; -1 without a path."""
    if len(goals) < len(starts):
        return _steps_between(walls, goals, starts).T
    at_once = max(1, _CELLS // walls.size)
    parts = []
    for begin in range(0, len(starts), at_once):
        some = starts[begin : begin + at_once]
        distances = distances_batch(np.broadcast_to(walls, (len(some), *walls.shape)), some)
        parts.append(distances[:, goals[:, 0], goals[:, 1]])
    return np.concatenate(parts)


def with_key(grid: Grid, rule: str, *, apart: int, rng: np.random.Generator) -> Grid | None:
    """Put a key that opens nothing into a grid, as a distraction, at a cell drawn at random.

    Args:
        grid: the grid, with start and goal.
        rule: the placement rule for the key, such as "top-right".
        apart: minimum number of steps from start and goal to the key.
        rng: draws one of all suitable cells, each equally likely.

    Returns:
        The changed grid; None if no cell is suitable.
    """
    assert grid.start is not None and grid.goal is not None
    cells = np.argwhere(fits(grid, rule) & (distances_to(grid.walls, [grid.start, grid.goal]) >= max(apart, 1)))
    if not len(cells):
        return None
    row, col = cells[int(rng.integers(len(cells)))]
    return grid.at(key=(int(row), int(col)))


def with_things(grid: Grid, entries: Sequence[str], *, rng: np.random.Generator) -> Grid | None:
    """Put things (objects such as coins) into empty cells of a grid, drawn at random.

    Args:
        grid: the grid, with start and goal.
        entries: the things, in the form of `check_thing`.
        rng: draws the cell of each thing, in their order; all suitable cells are equally likely.

    Returns:
        The changed grid; None if a thing has no suitable cell, or the goal could no longer be reached.
    """
    empty, things = symbols(grid) == OPEN, []
    for entry in entries:
        name, _, rule = entry.removesuffix(_ON_THE_WAY).partition(_AT)
        suitable = _way(grid) if entry.endswith(_ON_THE_WAY) else fits(grid, rule or ANYWHERE)
        cells = np.argwhere(suitable & empty)
        if not len(cells):
            return None
        row, col = cells[int(rng.integers(len(cells)))].tolist()
        empty[row, col] = False
        things.append(((row, col), registry.resolve("thing", name).symbol))
    filled = grid.at(things=tuple(things))
    return filled if solve(filled).steps_from(initial_state(filled)) > 0 else None


def _way(grid: Grid) -> npt.NDArray[np.bool_]:
    """Return ``[H, W]`` bool, the cells through which all shortest paths from the start to the goal lead."""
    assert grid.start is not None and grid.goal is not None
    before, after = (distances_to(grid.walls, [cell]) for cell in (grid.start, grid.goal))
    shortest = (before >= 0) & (before + after == before[grid.goal])
    cells_at = np.bincount(before[shortest])  # by distance from the start
    return np.asarray(shortest & (cells_at[np.where(shortest, before, 0)] == 1))


def goal_as_far(grid: Grid, corner: Position, minimum: int) -> Position | None:
    """Find a cell for the goal that is as many steps from the start as a corner, and as far from this corner as
    possible.

    An agent that goes to the corner then cannot be confused with one that goes to the goal.

    Args:
        grid: the grid, with start.
        corner: the cell of the corner.
        minimum: minimum number of steps from the start to the corner.

    Returns:
        The cell (row, column); None if there is none.
    """
    assert grid.start is not None
    steps = distances_to(grid.walls, [grid.start])
    as_far = steps == steps[corner]
    as_far[corner] = False
    if steps[corner] < minimum or not as_far.any():
        return None
    distance = np.where(as_far, distances_to(grid.walls, [corner]), -1)
    row, col = np.unravel_index(int(np.argmax(distance)), distance.shape)  # ties: first by row, then by column
    return int(row), int(col)


# Grids and task maps

_MAX_REPEATS = 1_000  # number of consecutive repeated worlds after which the search stops
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
    """Entry of a study (``kind: grid``) for generated grids and their transforms (mirrored, rotated, ... versions).

    For each of `sizes` and `densities` it gives `count` grids. Rules for goal, start and key, such as "top-right", and
    a list of things (objects) are optional. ``apart`` is the minimum distance between the placed cells, in steps.
    """

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
            batch = generate_batch(
                size, density, seed=seed, count=length, first=first, minimum_distance=self.minimum_distance
            )
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
    """Entry of a study for grids with a key: ``kind: key-door``, ``key-no-door`` or ``two-path``.

    With ``control``, each world is followed by its matched control: the same grid without the key and the door that it
    opens.
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
        """Yield the worlds of this entry with their transformed versions, each followed by its control if requested.

        Args:
            seed: seed of the study.
            path: location of the entry in the study, for errors.
            taken: ids of earlier worlds of the study, which are skipped.
        """
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
    """Entry of a study (``kind: text``) for grids that are written out as text in the study file."""

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
        """Yield the world of each grid with its transformed versions.

        Args:
            seed: seed of the study; not used.
            path: location of the entry in the study, for errors.
            taken: ids of earlier worlds of the study.

        Raises:
            ValueError: a grid or one of its versions repeats an earlier world.
        """
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
    """Entry of a study (``kind: named-place``) for generated grids with three different instructions each.

    The instructions are: go to G, to the cell of G by its coordinates, or to the cell of a distant corner. They show
    whether an agent follows its instruction or goes to the symbol G. In each grid, the corner is exactly as many steps
    from the start as the goal, and the goal lies as far as possible from it. The three worlds of a grid form one
    cluster (intervals resample grids); their tag `named` is "no", "goal" or "rival" (the corner).
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
    """Entry of a study (``kind: task-map``) for generated task maps (maps with tasks that depend on each other).

    `presets` names members of `PRESETS`, settings of the generator, and `count` is the number of maps for each.
    `generator` changes parameters of `TaskSpec` in all of them, e.g. `size`.
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
        """Yield the task maps of each preset; map i of a preset does not depend on how many maps follow it.

        Args:
            seed: seed of the study.
            path: location of the entry in the study, for errors.
            taken: ids of earlier worlds of the study; not used.
        """
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
    """Entry of a study (``kind: cooking``) for the bundled task maps about cooking.

    The tasks of a map have meaningful names or symbolic ones, as `names` says, or each map comes in both versions. A
    map with symbolic names is the *twin* of the one with meaningful names: it has the same cells and graph. `starts` is
    the number of start cells per map: its own start, and others drawn from the cells without a task. All versions of
    one map form one cluster: intervals treat them as one world, because they share cells and graph.
    """

    kind: Literal["cooking"]
    maps: tuple[Annotated[str, _one_of((*COOKING, *WIDE_COOKING), "cooking maps")], ...] = sequence(default=COOKING)
    names: tuple[Literal["semantic", "symbolic"], ...] = sequence(default=("semantic", "symbolic"))
    starts: int = Field(default=1, ge=1, le=10)

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[TaskWorld]:
        """Yield the worlds of each cooking map, start by start; a map and its twin with symbolic names have the same
        starts.

        Args:
            seed: seed of the study.
            path: location of the entry in the study; not used.
            taken: ids of earlier worlds of the study; not used.
        """
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


# Environments

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
        tell = paced(path)
        for number, world in enumerate(self.environments_of(path), 1):
            yield from [world] if self.starts is None else self._starting(world, seed, path)
            tell(f"{counted(number, 'environment')} made")

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
    """Entry of a study for environments given by their class: one world per mapping of parameters.

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
        """Yield one world per mapping of parameters and seed, in order; ``path`` is the location of the entry, for
        errors.
        """
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
    """Entry of a study (``kind: gymnasium``) for Gymnasium environments that have a table of transitions ``P``.

    `environments` are their names. `options` are arguments of `gymnasium.make`, the same for all names; `modules` are
    files in the working directory that register further names.
    """

    later: ClassVar[tuple[str, ...]] = ("phase", "starts", "modules")

    kind: Literal["gymnasium"]
    environments: tuple[str, ...] = sequence()
    modules: tuple[str, ...] | None = Field(default=None, strict=False)
    options: dict[str, Any] = Field(default_factory=dict)

    def environments_of(self, path: str) -> Iterator[EnvironmentWorld]:
        """Yield one world per named environment, in order; ``path`` is the location of the entry in the study, for
        errors.
        """
        for index, name in enumerate(self.environments):
            options: dict[str, Any] = {"options": self.options} if self.options else {}
            options |= {"modules": list(self.modules)} if self.modules else {}
            tags = {"kind": "gymnasium", "environment": name, "index": index, **_tags(self.options)}
            yield self._world(path, "gymnasium", {"name": name, **options}, tags)


@world_kind("minigrid", world=EnvironmentWorld)
class MiniGridWorlds(_Searched):
    """Entry of a study (``kind: minigrid``) for levels of MiniGrid and BabyAI, each made with each seed.

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
        """Yield one world per level and seed, in the order of levels, then seeds; ``path`` is the location of the
        entry, for errors.
        """
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
    """Entry of a study (``kind: textworld``) for generated TextWorld games, one for each seed.

    A game has a given number of rooms, objects and steps of its quest. Only games with at most five objects have few
    enough states to be enumerated.
    """

    kind: Literal["textworld"]
    rooms: int = Field(ge=1, le=20)
    objects: int = Field(ge=1, le=20)
    quest_length: int = Field(ge=1, le=20)
    seeds: _Seeds = sequence(default=(1,))

    def environments_of(self, path: str) -> Iterator[EnvironmentWorld]:
        """Yield one world (a generated game) per seed; ``path`` is the location of the entry in the study, for
        errors.
        """
        size = {"rooms": self.rooms, "objects": self.objects, "quest_length": self.quest_length}
        for number in self.seeds:
            tags: dict[str, Tag] = {"kind": "textworld", **size, "world seed": number}
            yield self._world(path, "textworld", {**size, "seed": number}, tags, shared_keys=("game",))


def _tags(parameters: Mapping[str, Any]) -> dict[str, Tag]:
    """Return the parameters that can become tags, by which rows are grouped."""
    return {key: value for key, value in parameters.items() if isinstance(value, str | int | float | bool)}
