"""The task worlds of a study file: generated maps by preset, and the cooking maps with their symbolic twins."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Literal

from pydantic import Field, field_validator

from goalscope.checks import near_miss
from goalscope.ids import content_id
from goalscope.rng import stream, words
from goalscope.rows import Tag
from goalscope.runs.config_base import MOST_COUNT, Part, distinct, filled, sequence
from goalscope.runs.kinds import world_kind
from goalscope.worlds.tasks.cooking import COOKING, cooking_map
from goalscope.worlds.tasks.generate import generate_task_map, symbolic_twin
from goalscope.worlds.tasks.optimal import shortest_order
from goalscope.worlds.tasks.spec import PRESETS, TaskSpec
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import TaskWorld

_KEYS = tuple(entry.name for entry in fields(TaskSpec))


@world_kind("task-map", world=TaskWorld)
class TaskMapWorlds(Part):
    """Generated task maps: for each preset a number of maps.

    `presets` names members of `PRESETS`; `generator` changes parameters of `TaskSpec` in all of them, e.g. `size`.
    """

    kind: Literal["task-map"]
    presets: tuple[str, ...] = sequence()
    count: int = Field(ge=1, le=MOST_COUNT)
    generator: dict[str, Any] = Field(default_factory=dict)

    @field_validator("presets")
    @classmethod
    def _presets(cls, presets: tuple[str, ...]) -> tuple[str, ...]:
        for name in presets:
            if name not in PRESETS:
                raise ValueError(f"must name presets of task maps, got {name[:60]!r}{near_miss(name, list(PRESETS))}")
        distinct(filled(presets))
        return presets

    @field_validator("generator")
    @classmethod
    def _generator(cls, given: dict[str, Any]) -> dict[str, Any]:
        for name in given:
            if name not in _KEYS:
                raise ValueError(
                    f"must name parameters of the generator, got {str(name)[:60]!r}{near_miss(name, _KEYS)}"
                )
            if isinstance(given[name], dict):
                raise ValueError(f"{name} must be a list of pairs [number, probability], got a mapping")
        _changed(PRESETS["medium-medium"], given)
        return given

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[TaskWorld]:
        """Yield the maps of each preset; map i of a preset does not depend on how many follow it."""
        for preset in self.presets:
            spec = _changed(PRESETS[preset], self.generator)
            demand, _, graph = preset.partition("-")
            named: dict[str, Tag] = {"demand": demand, "graph": graph} if graph else {}
            for index in range(self.count):
                try:
                    task_map = generate_task_map(spec, seed=_seed(seed, index))
                except ValueError as error:
                    raise ValueError(f"{path}: preset {preset}: {error}") from error
                tags: dict[str, Tag] = {"kind": "task-map", "preset": preset, **named, **_sizes(task_map)}
                yield TaskWorld(task_map=task_map, tags={**tags, "index": index})


@world_kind("cooking", world=TaskWorld)
class CookingWorlds(Part):
    """The cooking maps, with names that mean something, as symbolic twins, or both.

    `starts` gives each map that many start cells: its own and others drawn from the cells without a node. All versions
    of one map are one cluster, for they share cells and graph.
    """

    kind: Literal["cooking"]
    maps: tuple[str, ...] = sequence(default=COOKING)
    names: tuple[Literal["semantic", "symbolic"], ...] = sequence(default=("semantic", "symbolic"))
    starts: int = Field(default=1, ge=1, le=10)

    @field_validator("maps")
    @classmethod
    def _maps(cls, maps: tuple[str, ...]) -> tuple[str, ...]:
        for name in maps:
            if name not in COOKING:
                raise ValueError(f"must name cooking maps, got {name[:60]!r}{near_miss(name, COOKING)}")
        distinct(filled(maps))
        return maps

    @field_validator("names")
    @classmethod
    def _names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        distinct(filled(names))
        return names

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[TaskWorld]:
        """Yield the maps, start by start; twins have the same starts."""
        for name in self.maps:
            kitchen = cooking_map(name)
            cluster = content_id("world", {"task_map": kitchen.to_plain()})
            for index, start in enumerate(_starts(kitchen, self.starts, seed, name)):
                moved = replace(kitchen, start=start)
                for names in self.names:
                    tags: dict[str, Tag] = {"kind": "cooking", "map": name, "names": names, **_sizes(kitchen)}
                    yield TaskWorld(
                        task_map=moved if names == "semantic" else symbolic_twin(moved),
                        cluster=cluster,
                        tags={**tags, "start": index},
                    )


def _seed(seed: int, index: int) -> int:
    """Return the seed of map number `index` of a study; maps of different presets have streams of their own."""
    return int(words(seed, "task maps", first=index, count=1, each=1)[0, 0] >> 1)


def _changed(spec: TaskSpec, generator: Mapping[str, Any]) -> TaskSpec:
    """Return a spec with other parameters, lists of a YAML file taken for tuples."""
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in generator.items()
    }
    try:
        return replace(spec, **plain)
    except TypeError as error:
        raise ValueError(f"a parameter has a value of the wrong type: {error}") from error


def _sizes(task_map: TaskMap) -> dict[str, Tag]:
    return {"nodes": len(task_map.nodes), "cells": len(task_map.cells)}


def _starts(task_map: TaskMap, count: int, seed: int, name: str) -> list[tuple[int, int]]:
    """Return the map's own start and further cells without a node, from which the goal is within the budget."""
    taken = {node.cell for node in task_map.nodes.values()} | {task_map.start}
    free = [cell for cell in task_map.cells if cell not in taken]
    found = [task_map.start]
    for position in stream(seed, "cooking starts", name).permutation(len(free)):
        if len(found) == count:
            break
        cell = free[int(position)]
        if shortest_order(replace(task_map, start=cell))[0] <= task_map.budget:
            found.append(cell)
    return found
