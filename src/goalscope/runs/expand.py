"""From the entries of a study to its worlds, all of them different."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, product
from typing import TYPE_CHECKING

from goalscope.rows import Tag
from goalscope.runs.record import World
from goalscope.worlds.generate import generate_batch
from goalscope.worlds.grid import Grid
from goalscope.worlds.layouts import control, layout
from goalscope.worlds.transform import transform

if TYPE_CHECKING:
    from goalscope.runs.entries import GridWorlds, LayoutWorlds, TextWorlds
    from goalscope.runs.taskentries import CookingWorlds, TaskMapWorlds

_MOST_REPEATS = 1_000  # in a row


def expand(
    entries: "Sequence[GridWorlds | LayoutWorlds | TextWorlds | TaskMapWorlds | CookingWorlds]", seed: int
) -> Iterator[World]:
    """Yield the worlds of a study.

    Small empty rooms repeat soon. A drawn world that is there already, itself or one of its versions, is passed over
    for the next of its series, so that every grid is a cluster of its own; world i therefore does not depend on how
    many follow it.

    Args:
        entries: the parts of `Study.worlds_`.
        seed: root seed.

    Raises:
        ValueError: fewer different worlds than asked for, or a written grid that is given twice.
    """
    taken: set[str] = set()
    for position, entry in enumerate(entries):
        path = f"worlds[{position}]"
        if entry.kind == "task-map" or entry.kind == "cooking":
            yield from _tasks(entry, path, seed, taken)
        elif entry.kind == "text":
            yield from _written(entry, path, taken)
        elif entry.kind == "grid":
            for size, density in product(entry.sizes, entry.densities):
                tags: dict[str, Tag] = {"kind": "grid", "size": size, "density": density}
                yield from _series(entry, path, _generated(entry, size, density, seed), tags, taken)
        else:
            draw = partial(_layout, entry.kind, seed)
            yield from _series(entry, path, draw, {"kind": entry.kind}, taken)


def _tasks(entry: "TaskMapWorlds | CookingWorlds", path: str, seed: int, taken: set[str]) -> Iterator[World]:
    """Yield the task worlds of one entry."""
    for world in entry.expand(seed, path):
        if world.id in taken:
            raise ValueError(f"worlds must be different, but {path} repeats a task map: leave it out")
        taken.add(world.id)
        yield world


def _written(entry: "TextWorlds", path: str, taken: set[str]) -> Iterator[World]:
    """Yield the worlds of grids written out, with their versions."""
    for index, text in enumerate(entry.grids):
        grid = Grid.parse(text)
        square: dict[str, Tag] = {"size": grid.height} if grid.height == grid.width else {}
        worlds = _versions(entry, grid, grid, {"kind": "text", **square, "index": index})
        ids = {world.id for world in worlds}
        if ids & taken or len(ids) < len(worlds):
            raise ValueError(
                f"worlds must be different, but grid {index} of {path}, or one of its transforms, is there already: "
                "leave it out"
            )
        taken |= ids
        yield from worlds


def _series(
    entry: "GridWorlds | LayoutWorlds",
    path: str,
    draw: Callable[[int], Grid],
    tags: dict[str, Tag],
    taken: set[str],
) -> Iterator[World]:
    """Yield the worlds of one series with their versions, passing over the ones that are there already."""
    found = passed = 0
    for index in count():
        if found == entry.count:
            return
        base = draw(index)
        if entry.kind == "grid" and entry.goal_side is not None and not base.goal_lies(entry.goal_side):
            continue  # about half of all grids lie on either side
        if entry.kind == "grid":
            worlds = _versions(entry, base, base, {**tags, "index": index})
        else:
            # With and without door, with and without key: what is compared with each other is one cluster.
            plain = control(base)
            sized = {**tags, "size": base.height, "index": index}
            worlds = _versions(entry, base, plain, {**sized, "control": False})
            if entry.control:
                worlds += _versions(entry, plain, plain, {**sized, "control": True})
        ids = {world.id for world in worlds}
        if len(ids) < len(worlds) or ids & taken:
            passed += 1
            if passed > _MOST_REPEATS:
                asked = ", ".join(f"{name} {value}" for name, value in tags.items())
                raise ValueError(
                    f"{path} must have as many different worlds as it asks for, but only {found} of {entry.count} were "
                    f"found ({asked}): lower count or use fewer transforms"
                )
            continue
        taken |= ids
        found, passed = found + 1, 0
        yield from worlds


def _layout(kind: str, seed: int, index: int) -> Grid:
    return layout(kind, seed=seed, index=index)


def _generated(entry: "GridWorlds", size: int, density: float, seed: int) -> Callable[[int], Grid]:
    """Return a function from the number of a world to its grid; worlds are drawn in batches."""
    blocks: dict[int, list[Grid]] = {}
    length = min(256, entry.count + 8)

    def draw(index: int) -> Grid:
        block = index // length
        if block not in blocks:
            blocks.clear()
            batch = generate_batch(
                size, density, seed=seed, count=length, first=block * length, minimum_distance=entry.minimum_distance
            )
            blocks[block] = list(batch)
        return blocks[block][index % length]

    return draw


def _versions(
    entry: "GridWorlds | LayoutWorlds | TextWorlds", grid: Grid, cluster: Grid, tags: dict[str, Tag]
) -> list[World]:
    """Return a grid's transforms; they share the cluster of the whole grid, so that fog too is paired."""
    shared = World(grid=cluster).id
    return [
        World(
            grid=transform(grid, name),
            fog_radius=entry.fog_radius,
            cluster=shared,
            tags={**tags, "transform": name, **({} if entry.fog_radius is None else {"fog_radius": entry.fog_radius})},
        )
        for name in entry.transforms
    ]
