"""The table of steps that every measure reads."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_shape, freeze
from goalscope.runs.episode_columns import EpisodeColumns, episode_columns
from goalscope.runs.record import NO_ACTION, Episode
from goalscope.stats.columns import Coded, encoded
from goalscope.stats.rows import WHOLE_EPISODE, Rows, Tag
from goalscope.worlds.dynamics import State
from goalscope.worlds.planning.oracle import oracle
from goalscope.worlds.world import Oracle, TimedOracle, World

__all__ = ["CONDITIONS", "NO_ACTION", "PROVENANCE", "Per", "StepTable", "offers_of"]

Result = TypeVar("Result")
Ints = npt.NDArray[np.int64]
Texts = npt.NDArray[np.object_]

Per = Literal["episode", "step", "group"]
"""The unit that a measure has a value for; a group is all trajectories of one agent on one world."""

CONDITIONS = ("kind", "control", "transform", "fog_radius", "names", "phase")
"""Tags that separate worlds which must not be averaged; they group every table and cell where they vary."""

ENVIRONMENT = "environment"
"""The need of measures that speak of environments; with a name after it, of that one alone."""

PROVENANCE = frozenset({"file", "source", "seed", "trajectory"})
"""Tags of the origin of a single episode, not of its condition: they split no group."""

_SHAPES = {
    **dict.fromkeys(("episode_id", "agent", "outcome", "world_id", "cluster"), "E"),
    **dict.fromkeys(("trajectory", "seed", "length", "horizon", "optimal_length", "world"), "E"),
    **dict.fromkeys(("episode", "step", "action", "distance", "after"), "N"),
    "reward": "N",
    "withheld": "N",
    "codes": "N S",
    "optimal": "N A",
    "final_codes": "E S",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """Episodes as columns: E episodes, N steps, G worlds; all arrays are read-only.

    Attributes:
        episode_id, agent, outcome, world_id, cluster: ``[E]`` text of each episode.
        trajectory: ``[E]`` int64 number of the trajectory on its world.
        seed: ``[E]`` root seed of the study (object: of any size).
        length: ``[E]`` int64 number of steps; the steps of an episode follow one another.
        horizon: ``[E]`` int64 maximum number of actions.
        optimal_length: ``[E]`` int64 shortest path from the start, -1 where the goal cannot be reached.
        world: ``[E]`` int64 index of the episode's world among the G different ones of the table.
        tags: name -> ``[E]`` object array; "size" is by default the side of a square grid in cells.
        episode: ``[N]`` int64 index of each step's episode.
        step: ``[N]`` int64 number of the step in its episode.
        codes: ``[N, S]`` int64 what the run records of the true state before the action. Equal codes of one world are
            equal states, and nothing else may be read from them: on grids they are (row, col, phase), in an environment
            the number of the state in a table. `states` and `path` have the states themselves.
        action: ``[N]`` int64, `NO_ACTION` where the turn held none.
        withheld: ``[N]`` bool, whether a server withheld the answer of the turn, which then holds no action.
        reward: ``[N]`` float64 reward of each action, NaN without one.
        optimal: ``[N, A]`` bool, the optimal set of the state (with chance: of state and actions left).
        distance: ``[N]`` int64 steps to the goal before the action, -1 where it cannot be reached.
        after: ``[N]`` int64 steps to the goal after the action.
        final_codes: ``[E, S]`` int64 the same of the state after the last step.
        worlds: the G different worlds.
        offers: the needs of measures that these worlds meet: "oracle" (`optimal`, else False), "distance" (`distance`,
            `after` and `optimal_length`, else -1, as in stochastic worlds), "grid",
            "environment" (an oracle and no grid), "reward", "tasks"; and "environment NAME" for each environment that
            one of them is.
    """

    episode_id: Texts
    agent: Texts
    outcome: Texts
    world_id: Texts
    cluster: Texts
    trajectory: Ints
    seed: Texts
    length: Ints
    horizon: Ints
    optimal_length: Ints
    world: Ints
    tags: Mapping[str, Texts]
    episode: Ints
    step: Ints
    codes: Ints
    action: Ints
    withheld: npt.NDArray[np.bool_]
    reward: npt.NDArray[np.float64]
    optimal: npt.NDArray[np.bool_]
    distance: Ints
    after: Ints
    final_codes: Ints
    worlds: tuple[World, ...]
    offers: frozenset[str] = frozenset({"oracle", "distance", "grid"})
    _episodes: tuple[Episode, ...] | None = field(default=None, repr=False, compare=False)
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes = {"E": len(self.length), "N": len(self.episode)}
        for name, shape in _SHAPES.items():
            column = getattr(self, name)
            check_shape(name, column, shape, sizes)
            object.__setattr__(self, name, freeze(column))
        for name, column in self.tags.items():
            check_shape(f"tag {name}", column, "E", sizes)
        frozen = {name: freeze(column) for name, column in self.tags.items()}
        object.__setattr__(self, "tags", MappingProxyType(frozen))

    @classmethod
    def from_episodes(cls, episodes: Iterable[Episode], *, tasks: bool = False) -> "StepTable":
        """Build the table; the optimal sets of each different world are computed once.

        Args:
            episodes: of grids, of task worlds or of other worlds.
            tasks: whether they are of task worlds, to which the measures of grids do not apply.

        Raises:
            ValueError: an episode in a task world where none is expected; grids and other worlds.
        """
        all_episodes = tuple(episodes)
        foreign = next((episode for episode in all_episodes if "tasks" in episode.world.offers and not tasks), None)
        if foreign is not None:
            raise ValueError(
                f"a table of steps must hold episodes of worlds without measures of their own, got {foreign.id} in a "
                "task world: its tasks decide what is optimal; goalscope measure scores its errors of exploration and "
                "exploitation"
            )
        return cls.from_columns(episode_columns(all_episodes), all_episodes)

    @classmethod
    def from_columns(cls, columns: EpisodeColumns, episodes: tuple[Episode, ...] | None = None) -> "StepTable":
        """Build the table from the states and actions of episodes.

        Args:
            columns: of `episode_columns`, or `read_episode_columns` of a store.
            episodes: the same episodes, for measures that read more of them.
        """
        world, length, state = columns.world, columns.length, columns.state
        following = _following(state, columns.final, length)
        episode = np.repeat(np.arange(len(length)), length)
        step = np.arange(len(state)) - np.repeat(np.cumsum(length) - length, length)
        left = np.array(columns.horizon, dtype=np.int64)[episode] - step
        oracles = [oracle(each) for each in columns.worlds]
        offers = offers_of(zip(columns.worlds, oracles, strict=True)) | (
            {"reward"} if np.isfinite(columns.reward).any() else set()
        )
        optimal = np.zeros((len(state), 0 if oracles else 4), dtype=bool)
        distance, after = np.full((2, len(state)), -1, dtype=np.int64)
        shortest = np.full(len(columns.worlds), -1, dtype=np.int64)
        order = np.argsort(world[episode], kind="stable")
        bounds = np.searchsorted(world[episode][order], np.arange(len(columns.worlds) + 1))
        for index, world_oracle in enumerate(oracles):
            if world_oracle is None:
                continue
            in_world = order[bounds[index] : bounds[index + 1]]
            if isinstance(world_oracle, TimedOracle):
                sets = world_oracle.look_up_left(state[in_world], left[in_world])
            else:
                sets, distance[in_world] = world_oracle.look_up(state[in_world])
                after[in_world] = world_oracle.look_up(following[in_world])[1]
            if optimal.shape[1] < sets.shape[1]:
                optimal = np.pad(optimal, ((0, 0), (0, sets.shape[1] - optimal.shape[1])))
            optimal[in_world, : sets.shape[1]] = sets
            shortest[index] = world_oracle.length
        episode_tags = [_tags(tags, columns.worlds[at]) for tags, at in zip(columns.tags, world.tolist(), strict=True)]
        names = list(dict.fromkeys(name for tags in episode_tags for name in tags))
        del following, left, order
        same = ("world", "length", "action", "withheld", "reward", "worlds")
        cells: dict[str, Any] = {name: getattr(columns, name) for name in same}
        cells |= {name: _text(getattr(columns, name)) for name in ("episode_id", "agent", "outcome", "cluster", "seed")}
        cells |= {name: np.array(getattr(columns, name), dtype=np.int64) for name in ("trajectory", "horizon")}
        for column in (episode, step, optimal, distance, after):
            column.flags.writeable = False  # not to be copied
        return cls(
            **cells,
            codes=state,
            final_codes=columns.final,
            world_id=_text([each.id for each in columns.worlds])[world],
            optimal_length=_shortest(shortest[world], distance, length),
            tags={name: _text([tags.get(name) for tags in episode_tags]) for name in names},
            episode=episode,
            step=step,
            optimal=optimal,
            distance=distance,
            after=after,
            offers=offers,
            _episodes=episodes,
        )

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """The episodes themselves, in order, with their texts.

        Raises:
            ValueError: the table was read from a store without them.
        """
        if self._episodes is None:
            raise ValueError(
                "this table holds what episodes did, not their texts: measure them with "
                "measure_episodes(store.episodes(), [measure])"
            )
        return self._episodes

    def once(self, make: Callable[["StepTable"], Result]) -> Result:
        """Return the result of a function of this table, computed once and shared by all measures.

        Args:
            make: a named function (the cache is by identity, so a lambda would never be found again).
        """
        if make not in self._cache:
            self._cache[make] = make(self)
        result: Result = self._cache[make]
        return result

    @property
    def has_texts(self) -> bool:
        """Whether `episodes` is available: the table was not read from a store without them."""
        return self._episodes is not None

    @property
    def is_optimal(self) -> npt.NDArray[np.bool_]:
        """``[N]`` whether the action is in the optimal set; a turn without an action is not."""
        acted = self.action >= 0
        result: npt.NDArray[np.bool_] = acted & self.optimal[np.arange(len(acted)), np.where(acted, self.action, 0)]
        return result

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """``[N]`` whether the turn held an action."""
        result: npt.NDArray[np.bool_] = self.action != NO_ACTION
        return result

    @property
    def states(self) -> tuple[Any, ...]:
        """N states before the actions, in the form of the world's author: each a `State` on grids and task maps, in an
        environment what its ``step`` takes and returns; computed once.

        Raises:
            ValueError: the states cannot be known here, see `goalscope.worlds.World.restore_state`.
        """
        return self.once(_states)

    @property
    def state(self) -> Ints:
        """``[N, S]`` int64 coordinates of the states, (row, col, phase) on grids, phase as in `State`.

        Raises:
            AttributeError: a world whose states are no coordinates, such as an environment: `states` has them.
        """
        self._check_coordinates("state")
        return self.codes

    @property
    def final(self) -> Ints:
        """``[E, S]`` int64 coordinates of the state after the last step, as `state`."""
        self._check_coordinates("final")
        return self.final_codes

    @property
    def following(self) -> Ints:
        """``[N, S]`` int64 coordinates of the state after each action, as `state`."""
        self._check_coordinates("following")
        return self.following_codes

    @property
    def following_codes(self) -> Ints:
        """``[N, S]`` int64 code of the state after each action, as in `codes`."""
        return _following(self.codes, self.final_codes, self.length)

    def _check_coordinates(self, name: str) -> None:
        """Refuse to hand out the number of a state as if it were a place."""
        for world in self.worlds:
            if world.recorded_as:
                raise AttributeError(
                    f"table.{name} must be read where states are cells of a grid, got a world of kind {world.kind}, of "
                    f"which a run records {world.recorded_as}: read table.states (the state before each step) or "
                    "table.path(episode), which give states as the author of the world defines them"
                )

    @property
    def begin(self) -> Ints:
        """``[E]`` int64 index of each episode's first step."""
        return self.once(_begin)

    def path(self, index: int) -> list[Any]:
        """Return the T + 1 states of an episode of T steps, the final one included, in the form of `states`.

        Raises:
            ValueError: as `states`.
        """
        first, world = self.begin[index], self.worlds[self.world[index]]
        if "cells" in world.offers:
            codes = [*self.codes[first : first + self.length[index]].tolist(), self.final_codes[index].tolist()]
            return [_cell_state(code) for code in codes]
        if self._episodes is not None:  # codes of worlds with shorter states are filled up
            return self._episodes[index].path()
        codes = [*self.codes[first : first + self.length[index]].tolist(), self.final_codes[index].tolist()]
        return [world.restore_state(tuple(code)) for code in codes]

    def of_environment(self, source: str) -> "StepTable":
        """Return the table of the episodes in one environment, by its source: a registered name or module:Class."""
        episodes = [episode for episode in self.episodes if getattr(episode.world, "source", None) == source]
        return StepTable.from_episodes(episodes)

    def per_episode(self, steps: npt.NDArray[np.bool_]) -> Ints:
        """Return ``[E]`` the number of steps of each episode in a mask ``[N]``."""
        return np.bincount(self.episode[steps], minlength=len(self.length)).astype(np.int64)

    def rows(
        self,
        measure: str,
        unit: str,
        value: npt.ArrayLike,
        *,
        per: Per = "episode",
        of: Ints | None = None,
        tags: Mapping[str, Texts] | None = None,
    ) -> Rows:
        """Return one row for each value.

        Args:
            measure: the name of the rows.
            unit: the unit of their values.
            value: ``[K]`` values, NaN where undefined.
            per: unit of the values.
            of: ``[K]`` index of the episode, step or group of each value, which may repeat; all in order by default.
            tags: name -> ``[K]`` tags beside those of the episode, or of the group, which has none of `PROVENANCE`.

        Raises:
            ValueError: not one value for each episode, step or group.
        """
        episode_of_unit = (
            self.groups()[1] if per == "group" else self.episode if per == "step" else np.arange(len(self.length))
        )
        units = np.arange(len(episode_of_unit)) if of is None else of
        if np.shape(value) != units.shape:
            raise ValueError(
                f"the measure {measure!r} must return a value for each {per}, {units.shape}, got an array "
                f"{np.shape(value)}: return Entries(value, of) where only some have one"
            )
        episode = episode_of_unit[units]
        cluster, identity, own_tags = self.once(_encoded)
        return Rows.from_columns(
            measure=measure,
            unit=unit,
            value=value,
            cluster=cluster[episode],
            episode_id="" if per == "group" else identity[episode],
            step=self.step[units] if per == "step" else WHOLE_EPISODE,
            tags={
                **{name: own[episode] for name, own in own_tags.items() if per != "group" or name not in PROVENANCE},
                **(tags or {}),
            },
        )

    def groups(self) -> tuple[Ints, Ints]:
        """Group the episodes with the same world and tags (agent included): the trajectories of one policy on a grid.

        Tags of `PROVENANCE` are ignored.

        Returns:
            ``[E]`` int64 group of each episode, and ``[K]`` int64 the first episode of each of the K groups.
        """
        return self.once(_groups)


def offers_of(worlds: Iterable[tuple[World, Oracle | None]]) -> frozenset[str]:
    """Return `StepTable.offers` of the worlds of a table, without "reward", which depends on the steps.

    Args:
        worlds: each world with its exact optimal policy, None where it is unknown.
    """
    common, sources = None, set[str]()
    for world, world_oracle in worlds:
        of_world: set[str] = {"tasks", "grid"} & world.offers
        of_world |= {"oracle"} if world_oracle is not None else set()
        of_world |= {"distance"} if world_oracle is not None and not isinstance(world_oracle, TimedOracle) else set()
        common = of_world if common is None else common & of_world
        if isinstance(source := getattr(world, "source", None), str):
            sources.add(f"{ENVIRONMENT} {source}")
    common = {"oracle", "distance", "grid"} if common is None else common
    environment = {ENVIRONMENT} if "oracle" in common and not common & {"tasks", "grid"} else set()
    return frozenset(common | sources | environment)


def _shortest(shortest: Ints, distance: Ints, length: Ints) -> Ints:
    """Return ``[E]`` shortest paths: of the world where it has one start, else from the first state."""
    first = np.cumsum(length) - length
    unknown = (shortest < 0) & (length > 0)
    return np.where(unknown, distance[np.where(unknown, first, 0)] if len(distance) else shortest, shortest)


def _tags(tags: Mapping[str, Tag], world: World) -> Mapping[str, Tag]:
    """Return the tags of an episode, with the graph of distances of a task world, or the size of a square grid.

    The density cannot be added in this way: the wall fraction of a generated grid is its density rounded.
    """
    if "tasks" in world.offers:
        return {**tags, "distances": "known"}
    square = "grid" in world.offers and world.grid.height == world.grid.width
    return {**tags, "size": world.grid.height} if square and tags.get("size") is None else tags


def _states(table: StepTable) -> tuple[Any, ...]:
    return tuple(state for index in range(len(table.length)) for state in table.path(index)[:-1])


def _cell_state(code: Sequence[int]) -> State:
    row, col, phase = code
    return State((row, col), phase > 0, phase > 1)  # a door opens only with the key, so the phase determines both


def _begin(table: StepTable) -> Ints:
    return freeze(np.cumsum(table.length) - table.length)


def _encoded(table: StepTable) -> tuple[Coded, Coded, dict[str, Coded]]:
    """Return the clusters, ids and tags of the episodes, of which rows of steps hold codes."""
    return encoded(table.cluster), encoded(table.episode_id), {name: encoded(tag) for name, tag in table.tags.items()}


def _groups(table: StepTable) -> tuple[Ints, Ints]:
    keys: dict[tuple[Any, ...], int] = {}
    conditions = [column.tolist() for name, column in table.tags.items() if name not in PROVENANCE]
    numbers = [keys.setdefault(key, len(keys)) for key in zip(table.world.tolist(), *conditions, strict=True)]
    group = np.array(numbers, dtype=np.int64)
    _, first = np.unique(group, return_index=True)
    return freeze(group), freeze(first)


def _following(state: Ints, final: Ints, length: Ints) -> Ints:
    """The state after a step is the next step's state, or the final one of its episode."""
    following = np.concatenate([state[1:], np.zeros((1, state.shape[1]), dtype=np.int64)])[: len(state)]
    last = np.cumsum(length) - 1
    following[last[length > 0]] = final[length > 0]
    return following


def _text(values: Sequence[Any]) -> Texts:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
