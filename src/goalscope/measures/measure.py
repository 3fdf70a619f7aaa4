"""The protocol of a measure, and the table of steps that every measure reads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from goalscope.planning.shortest import ShortestPaths, solve
from goalscope.rows import Rows
from goalscope.runs.record import Episode, begin
from goalscope.runs.taskworld import TaskWorld
from goalscope.shapes import check_shape, freeze
from goalscope.worlds.dynamics import State

NO_ACTION = -1
"""Action of a turn that held none."""

CONDITIONS = ("kind", "control", "transform", "fog_radius", "names")
"""Tags that split a run into worlds that must not be averaged; they group every table and cell where they vary."""

PROVENANCE = frozenset({"file", "source", "seed", "trajectory"})
"""Tags that say where a single episode comes from, not under which condition it was made: they split no group."""

_SHAPES = {
    **dict.fromkeys(("episode_id", "agent", "outcome", "world_id", "grid_id"), "E"),
    **dict.fromkeys(("length", "horizon", "optimal_length", "world"), "E"),
    **dict.fromkeys(("episode", "step", "action", "distance", "after"), "N"),
    "state": "N 3",
    "optimal": "N 4",
    "final": "E 3",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """Episodes as columns: E episodes, N steps, G worlds; all arrays are read-only.

    Attributes:
        episode_id, agent, outcome, world_id, grid_id: ``[E]`` text of each episode.
        length: ``[E]`` int64 number of steps; the steps of an episode follow one another.
        horizon: ``[E]`` int64 most actions allowed.
        optimal_length: ``[E]`` int64 shortest path from the start, -1 where the goal cannot be reached.
        world: ``[E]`` int64 index of the episode's world among the G different ones of the table.
        tags: name -> ``[E]`` object array.
        episode: ``[N]`` int64 index of each step's episode.
        step: ``[N]`` int64 number of the step in its episode.
        state: ``[N, 3]`` int64 (row, col, phase) of the true state before the action; phase as in `State`.
        action: ``[N]`` int64, `NO_ACTION` where the turn held none.
        optimal: ``[N, 4]`` bool, the optimal set of the state.
        distance: ``[N]`` int64 steps to the goal before the action, -1 where it cannot be reached.
        after: ``[N]`` int64 steps to the goal after the action.
        final: ``[E, 3]`` int64 state after the last step.
        episodes: the episodes themselves, in order.
    """

    episode_id: npt.NDArray[np.object_]
    agent: npt.NDArray[np.object_]
    outcome: npt.NDArray[np.object_]
    world_id: npt.NDArray[np.object_]
    grid_id: npt.NDArray[np.object_]
    length: npt.NDArray[np.int64]
    horizon: npt.NDArray[np.int64]
    optimal_length: npt.NDArray[np.int64]
    world: npt.NDArray[np.int64]
    tags: Mapping[str, npt.NDArray[np.object_]]
    episode: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    state: npt.NDArray[np.int64]
    action: npt.NDArray[np.int64]
    optimal: npt.NDArray[np.bool_]
    distance: npt.NDArray[np.int64]
    after: npt.NDArray[np.int64]
    final: npt.NDArray[np.int64]
    episodes: tuple[Episode, ...]

    def __post_init__(self) -> None:
        sizes = {"E": len(self.episodes), "N": len(self.episode)}
        for name, shape in _SHAPES.items():
            column = getattr(self, name)
            check_shape(name, column, shape, sizes)
            object.__setattr__(self, name, freeze(column))
        for name, column in self.tags.items():
            check_shape(f"tag {name}", column, "E", sizes)
        frozen = {name: freeze(column) for name, column in self.tags.items()}
        object.__setattr__(self, "tags", MappingProxyType(frozen))

    @classmethod
    def from_episodes(cls, episodes: Iterable[Episode]) -> "StepTable":
        """Build the table; the optimal sets of each different world are computed once.

        Raises:
            ValueError: an episode of a task world, whose optimal policy is not that of its cells.
        """
        listed = tuple(episodes)
        for episode in listed:
            if isinstance(episode.world, TaskWorld):
                raise ValueError(
                    f"a table of steps must hold episodes on grids, got {episode.id} in a task world: its tasks decide "
                    "what is optimal; goalscope measure scores its errors of exploration and exploitation"
                )
        worlds: dict[str, int] = {}
        for episode in listed:
            worlds.setdefault(episode.world.id, len(worlds))
        world = np.array([worlds[episode.world.id] for episode in listed], dtype=np.int64)
        length = np.array([len(episode.steps) for episode in listed], dtype=np.int64)
        steps = [step for episode in listed for step in episode.steps]
        state = _states([step.state for step in steps])
        final = _states([episode.final for episode in listed])
        episode_of = np.repeat(np.arange(len(listed)), length)
        following = _following(state, final, length)
        optimal = np.zeros((len(steps), 4), dtype=bool)
        distance, after = np.full((2, len(steps)), -1, dtype=np.int64)
        shortest = np.full(len(listed), -1, dtype=np.int64)
        first = {index: episode for episode, index in zip(reversed(listed), reversed(world.tolist()), strict=True)}
        order = np.argsort(world[episode_of], kind="stable")
        bounds = np.searchsorted(world[episode_of][order], np.arange(len(worlds) + 1))
        for index in range(len(worlds)):
            paths = solve(first[index].world.grid)
            mine = order[bounds[index] : bounds[index + 1]]
            place = _places(state[mine], paths)
            optimal[mine], distance[mine] = paths.optimal[place], paths.distance[place]
            after[mine] = paths.distance[_places(following[mine], paths)]
            shortest[world == index] = paths.steps_from(begin(first[index].world))
        merged = [{**episode.world.tags, **episode.tags, "agent": episode.agent} for episode in listed]
        names = list(dict.fromkeys(name for tags in merged for name in tags))
        return cls(
            episode_id=_text(episode.id for episode in listed),
            agent=_text(episode.agent for episode in listed),
            outcome=_text(episode.outcome for episode in listed),
            world_id=_text(episode.world.id for episode in listed),
            grid_id=_text(episode.world.grid_id for episode in listed),
            length=length,
            horizon=np.array([episode.spec.horizon for episode in listed], dtype=np.int64),
            optimal_length=shortest,
            world=world,
            tags={name: _text(tags.get(name) for tags in merged) for name in names},
            episode=episode_of,
            step=np.array([step.index for step in steps], dtype=np.int64),
            state=state,
            action=np.array([NO_ACTION if step.action is None else step.action for step in steps], dtype=np.int64),
            optimal=optimal,
            distance=distance,
            after=after,
            final=final,
            episodes=listed,
        )

    @property
    def is_optimal(self) -> npt.NDArray[np.bool_]:
        """``[N]`` whether the action is in the optimal set; a turn without an action is not."""
        taken = self.action >= 0
        found: npt.NDArray[np.bool_] = taken & self.optimal[np.arange(len(taken)), np.where(taken, self.action, 0)]
        return found

    @property
    def following(self) -> npt.NDArray[np.int64]:
        """``[N, 3]`` int64 (row, col, phase) of the state after each action."""
        return _following(self.state, self.final, self.length)

    def groups(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Group the episodes that share world and tags, the agent among them: the trajectories of one policy on a grid.

        Tags of `PROVENANCE` do not count.

        Returns:
            ``[E]`` int64 group of each episode, and ``[K]`` int64 the first episode of each of the K groups.
        """
        keys: dict[tuple[Any, ...], int] = {}
        group = np.empty(len(self.length), dtype=np.int64)
        first: list[int] = []
        conditions = [column.tolist() for name, column in self.tags.items() if name not in PROVENANCE]
        columns = [self.world.tolist(), *conditions]
        for index, key in enumerate(zip(*columns, strict=True)):
            if key not in keys:
                keys[key] = len(keys)
                first.append(index)
            group[index] = keys[key]
        return group, np.array(first, dtype=np.int64)


@runtime_checkable
class Measure(Protocol):
    """A quantity of behaviour: episodes in, rows out."""

    @property
    def name(self) -> str:
        """A noun phrase, the `measure` of its rows."""
        ...

    @property
    def unit(self) -> str:
        """The unit of its values."""
        ...

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and greatest value that the definition allows; infinite where there is no bound."""
        ...

    def rows(self, table: StepTable) -> Rows:
        """Return the measure's rows: one for each step, each episode, or each group of `StepTable.groups`."""
        ...


def episode_rows(table: StepTable, measure: str, unit: str, value: npt.ArrayLike) -> Rows:
    """Return one row for each episode.

    Args:
        value: ``[E]`` values, NaN where undefined.
    """
    return Rows.from_columns(
        measure=measure, unit=unit, value=value, grid_id=table.grid_id, episode_id=table.episode_id, tags=table.tags
    )


def step_rows(
    table: StepTable, measure: str, unit: str, value: npt.ArrayLike, tags: Mapping[str, npt.NDArray[np.object_]]
) -> Rows:
    """Return one row for each step.

    Args:
        value: ``[N]`` values, NaN where undefined.
        tags: name -> ``[N]`` tags of the steps beside those of their episodes.
    """
    of = table.episode
    return Rows.from_columns(
        measure=measure,
        unit=unit,
        value=value,
        grid_id=table.grid_id[of],
        episode_id=table.episode_id[of],
        step=table.step,
        tags={**{name: column[of] for name, column in table.tags.items()}, **tags},
    )


def group_rows(
    table: StepTable,
    measure: str,
    unit: str,
    value: npt.ArrayLike,
    first: npt.NDArray[np.int64],
    tags: Mapping[str, npt.NDArray[np.object_]] | None = None,
) -> Rows:
    """Return one row for each group of episodes, or several where `first` repeats.

    Args:
        value: ``[K]`` values, NaN where undefined.
        first: ``[K]`` the first episode of each group, from `StepTable.groups`.
        tags: name -> ``[K]`` tags of the rows beside those of the group; `PROVENANCE` is left out of the latter.
    """
    shared = {name: column[first] for name, column in table.tags.items() if name not in PROVENANCE}
    tags = {**shared, **(tags or {})}
    return Rows.from_columns(measure=measure, unit=unit, value=value, grid_id=table.grid_id[first], tags=tags)


def _states(states: list[State]) -> npt.NDArray[np.int64]:
    return np.array([(*state.position, state.phase) for state in states], dtype=np.int64).reshape(len(states), 3)


def _places(
    states: npt.NDArray[np.int64], paths: ShortestPaths
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where the arrays of a grid hold states ``[N, 3]``: phase, row and column."""
    row, col, phase = states.T
    return np.minimum(phase, len(paths.distance) - 1), row, col


def _following(
    state: npt.NDArray[np.int64], final: npt.NDArray[np.int64], length: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The state after a step is the next step's state, or the final one of its episode."""
    following = np.concatenate([state[1:], np.zeros((1, 3), dtype=np.int64)])[: len(state)]
    last = np.cumsum(length) - 1
    following[last[length > 0]] = final[length > 0]
    return following


def _text(values: Iterable[Any]) -> npt.NDArray[np.object_]:
    listed = list(values)
    column = np.empty(len(listed), dtype=object)
    column[:] = listed
    return column
