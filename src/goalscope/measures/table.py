"""The step table: episodes as columns, the input of every measure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_shape, freeze
from goalscope.runs.episode_columns import EpisodeColumns, episode_columns
from goalscope.runs.record import NO_ACTION, Episode
from goalscope.stats.rows import WHOLE_EPISODE, Coded, Rows, Tag, encoded
from goalscope.worlds.dynamics import State
from goalscope.worlds.planning.shortest import oracle
from goalscope.worlds.world import Oracle, TimedOracle, World

__all__ = ["CONDITIONS", "NO_ACTION", "PROVENANCE", "Per", "StepTable", "offers_of"]

Result = TypeVar("Result")
Ints = npt.NDArray[np.int64]
Texts = npt.NDArray[np.object_]

Per = Literal["episode", "step", "group"]
"""What one value of a measure belongs to. A group is all trajectories of one agent on one world."""

CONDITIONS = ("kind", "control", "transform", "fog_radius", "names", "phase")
"""Tags that separate worlds which must not be averaged; where they vary, tables and cells are grouped by them."""

ENVIRONMENT = "environment"
"""The need of measures for environments; followed by a name, the need for that environment alone."""

PROVENANCE = frozenset({"file", "source", "seed", "trajectory"})
"""Tags that describe the origin of a single episode rather than its condition; they never split a group."""

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
    """Episodes and their steps as columns, the input of every measure. All arrays are read-only.

    There are E episodes, N steps, G worlds, S numbers per recorded state, and A actions.

    Attributes:
        episode_id, agent, outcome, world_id, cluster: ``[E]`` text for each episode.
        trajectory: ``[E]`` int64 number of the trajectory on its world.
        seed: ``[E]`` root seed of the study (object, because it may be of any size).
        length: ``[E]`` int64 number of steps; the steps of an episode are consecutive.
        horizon: ``[E]`` int64 maximum number of actions.
        optimal_length: ``[E]`` int64 length of the shortest path from the start, -1 where the goal cannot be reached.
        world: ``[E]`` int64 index of the episode's world among the G worlds of the table.
        tags: name -> ``[E]`` object array; "size" defaults to the side of a square grid in cells.
        episode: ``[N]`` int64 index of the episode of each step.
        step: ``[N]`` int64 number of the step in its episode.
        codes: ``[N, S]`` int64 recorded code of the true state before the action. In one world, equal codes mean equal
            states; nothing else may be read from them: on grids they are (row, col, phase), in an environment the
            number of the state in a table. `states` and `path` give the states themselves.
        action: ``[N]`` int64, `NO_ACTION` where the turn had no action.
        withheld: ``[N]`` bool, whether a server withheld the answer, so that the turn has no action.
        reward: ``[N]`` float64 reward of each action, NaN where there is none.
        optimal: ``[N, A]`` bool, which actions are optimal in the state (in stochastic worlds: given the actions left).
        distance: ``[N]`` int64 steps to the goal before the action, -1 where it cannot be reached.
        after: ``[N]`` int64 steps to the goal after the action.
        final_codes: ``[E, S]`` int64 code of the state after the last step.
        worlds: the G different worlds.
        offers: which needs of measures these worlds meet: "oracle" (otherwise `optimal` is False), "distance"
            (otherwise, as in stochastic worlds, `distance`, `after` and `optimal_length` are -1), "grid", "environment"
            (an oracle but no grid), "reward", "tasks", and "environment NAME" for each environment among the worlds.
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
        """Build the table from episodes; the optimal actions of each different world are computed once.

        Args:
            episodes: episodes on grids, on task maps, or on other worlds.
            tasks: whether they are on task maps, to which measures of grids do not apply.

        Raises:
            ValueError: a task map although ``tasks`` is False, or a mix of grids and other worlds.
        """
        all_episodes = tuple(episodes)
        foreign = next((episode for episode in all_episodes if "tasks" in episode.world.offers and not tasks), None)
        if foreign is not None:
            raise ValueError(
                f"StepTable holds no task worlds unless tasks=True, got {foreign.id}: in a task world its tasks decide "
                "what is optimal. Use goalscope measure, which scores errors of exploration and exploitation"
            )
        return cls.from_columns(episode_columns(all_episodes), all_episodes)

    @classmethod
    def from_columns(cls, columns: EpisodeColumns, episodes: tuple[Episode, ...] | None = None) -> "StepTable":
        """Build the table from columns of states and actions.

        Args:
            columns: columns from `episode_columns`, or from `read_episode_columns` of a store.
            episodes: the same episodes, for measures that need more than states and actions.
        """
        world, length, state = columns.world, columns.length, columns.state
        following = _following(state, columns.final, length)
        episode = np.repeat(np.arange(len(length)), length)
        step = np.arange(len(state)) - np.repeat(np.cumsum(length) - length, length)
        left = np.array(columns.horizon, dtype=np.int64)[episode] - step
        oracles = [oracle(episode_world) for episode_world in columns.worlds]
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
        shared_columns = ("world", "length", "action", "withheld", "reward", "worlds")
        cells: dict[str, Any] = {name: getattr(columns, name) for name in shared_columns}
        cells |= {name: _text(getattr(columns, name)) for name in ("episode_id", "agent", "outcome", "cluster", "seed")}
        cells |= {name: np.array(getattr(columns, name), dtype=np.int64) for name in ("trajectory", "horizon")}
        for column in (episode, step, optimal, distance, after):
            column.flags.writeable = False  # so that measures can share it without copies
        return cls(
            **cells,
            codes=state,
            final_codes=columns.final,
            world_id=_text([episode_world.id for episode_world in columns.worlds])[world],
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
        """The recorded episodes, in the order of the table, including their texts.

        Raises:
            ValueError: if the table was read from a store without the episodes.
        """
        if self._episodes is None:
            raise ValueError(
                "this table was read without the texts of the episodes: use "
                "measure_episodes(store.episodes(), [measure])"
            )
        return self._episodes

    def once(self, make: Callable[["StepTable"], Result]) -> Result:
        """Compute a function of this table on the first call, and return the stored result on later ones.

        Args:
            make: a named function. The cache compares by identity, so a lambda would never be found again.
        """
        if make not in self._cache:
            self._cache[make] = make(self)
        result: Result = self._cache[make]
        return result

    @property
    def has_texts(self) -> bool:
        """Whether the episodes with their texts (`episodes`) are available; False if the table was read from a store
        without them.
        """
        return self._episodes is not None

    @property
    def is_optimal(self) -> npt.NDArray[np.bool_]:
        """``[N]`` bool: whether the action of each step is optimal; False for a turn without an action."""
        acted = self.action >= 0
        result: npt.NDArray[np.bool_] = acted & self.optimal[np.arange(len(acted)), np.where(acted, self.action, 0)]
        return result

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """``[N]`` bool: whether the turn of each step had an action."""
        result: npt.NDArray[np.bool_] = self.action != NO_ACTION
        return result

    @property
    def states(self) -> tuple[Any, ...]:
        """The N states before the actions, as their world defines them; computed once.

        On grids and task maps they are of type `State`; in an environment, they have the form that its ``step`` takes.

        Raises:
            ValueError: if the states cannot be reconstructed, see `goalscope.worlds.World.restore_state`.
        """
        return self.once(_states)

    @property
    def state(self) -> Ints:
        """``[N, S]`` int64 coordinates of the state before each action: (row, col, phase) on grids, phase as in
        `State`.

        Raises:
            AttributeError: if the states of a world have no coordinates, as in an environment; use `states`.
        """
        self._check_coordinates("state")
        return self.codes

    @property
    def final(self) -> Ints:
        """``[E, S]`` int64 coordinates of the state after the last step of each episode: (row, col, phase) on grids.

        Raises:
            AttributeError: if the states of a world have no coordinates, as in an environment.
        """
        self._check_coordinates("final")
        return self.final_codes

    @property
    def following(self) -> Ints:
        """``[N, S]`` int64 coordinates of the state after each action: (row, col, phase) on grids.

        Raises:
            AttributeError: if the states of a world have no coordinates, as in an environment.
        """
        self._check_coordinates("following")
        return self.following_codes

    @property
    def following_codes(self) -> Ints:
        """``[N, S]`` int64 recorded code of the state after each action, in the form of `codes`."""
        return _following(self.codes, self.final_codes, self.length)

    def _check_coordinates(self, name: str) -> None:
        """Raise an error if states have no coordinates, so that the index of a state is not mistaken for a position."""
        for world in self.worlds:
            if world.recorded_as:
                raise AttributeError(
                    f"table.{name} exists only where states are cells of a grid, got a world of kind {world.kind}, "
                    f"for which a run records {world.recorded_as}: use table.states (the state before each step) or "
                    "table.path(episode), which return the states as the world defines them"
                )

    @property
    def begin(self) -> Ints:
        """``[E]`` int64 index, among all N steps, of the first step of each episode."""
        return self.once(_begin)

    def path(self, index: int) -> list[Any]:
        """Return all states of one episode in the form of `states`: T + 1 states for T steps, including the final one.

        Args:
            index: index of the episode in the table.

        Raises:
            ValueError: if the states cannot be reconstructed.
        """
        first, world = self.begin[index], self.worlds[self.world[index]]
        in_cells = "cells" in world.offers
        if not in_cells and self._episodes is not None:  # the codes of worlds with shorter states are padded
            return self._episodes[index].path()
        codes = [*self.codes[first : first + self.length[index]].tolist(), self.final_codes[index].tolist()]
        return [_cell_state(code) if in_cells else world.restore_state(tuple(code)) for code in codes]

    def of_environment(self, source: str) -> "StepTable":
        """Return a table of only those episodes that took place in one environment.

        Args:
            source: the environment as a study names it: a registered name, or module:Class.
        """
        episodes = [episode for episode in self.episodes if getattr(episode.world, "source", None) == source]
        return StepTable.from_episodes(episodes)

    def per_episode(self, steps: npt.NDArray[np.bool_]) -> Ints:
        """Count, for each episode, how many of its steps a mask ``[N]`` (bool) selects; the result is ``[E]``."""
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
        """Build the rows of a measure from its values, one row per value, with the agent, world and tags of its
        episode.

        Args:
            measure: name of the measure.
            unit: unit of the values.
            value: ``[K]`` values, NaN where undefined.
            per: what one value belongs to: "episode", "step" or "group" (all episodes of an agent on a world).
            of: ``[K]`` index of the episode, step or group of each value; indices may repeat. By default all in order.
            tags: name -> ``[K]`` tags in addition to those of the episode or group (a group has none of `PROVENANCE`).

        Raises:
            ValueError: if there is not one value per episode, step or group.
        """
        episode_of_unit = (
            self.groups()[1] if per == "group" else self.episode if per == "step" else np.arange(len(self.length))
        )
        units = np.arange(len(episode_of_unit)) if of is None else of
        if np.shape(value) != units.shape:
            raise ValueError(
                f"the measure {measure!r} must return a value for each {per}, shape {units.shape}, got shape "
                f"{np.shape(value)}: return Entries(value, of) if only some have a value"
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
                **{
                    name: values[episode]
                    for name, values in own_tags.items()
                    if per != "group" or name not in PROVENANCE
                },
                **(tags or {}),
            },
        )

    def groups(self) -> tuple[Ints, Ints]:
        """Group the episodes by agent, world and tags: a group has the trajectories of one policy on one world.

        Tags of `PROVENANCE`, which only describe the origin of an episode, are ignored.

        Returns:
            ``[E]`` int64 number of each episode's group; and ``[K]`` int64 index of the first episode of each of the K
            groups.
        """
        return self.once(_groups)


def offers_of(worlds: Iterable[tuple[World, Oracle | None]]) -> frozenset[str]:
    """Return which needs of measures all given worlds meet, such as "oracle" and "grid"; see `StepTable.offers`.

    "reward" is not included, because it depends on the steps.

    Args:
        worlds: each world with its exact optimal policy, or None where that is unknown.
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
    """Return ``[E]`` shortest path lengths, from the world if it has a single start, otherwise from the first state."""
    first = np.cumsum(length) - length
    unknown = (shortest < 0) & (length > 0)
    return np.where(unknown, distance[np.where(unknown, first, 0)] if len(distance) else shortest, shortest)


def _tags(tags: Mapping[str, Tag], world: World) -> Mapping[str, Tag]:
    """Return the tags of an episode, adding the size of a square grid, or the graph of distances of a task world.

    The density cannot be added like this, because the wall fraction of a generated grid is its density rounded.
    """
    if "tasks" in world.offers:
        return {**tags, "distances": "known"}
    square = "grid" in world.offers and world.grid.height == world.grid.width
    return {**tags, "size": world.grid.height} if square and tags.get("size") is None else tags


def _states(table: StepTable) -> tuple[Any, ...]:
    return tuple(state for index in range(len(table.length)) for state in table.path(index)[:-1])


def _cell_state(code: Sequence[int]) -> State:
    row, col, phase = code
    return State((row, col), phase > 0, phase > 1)  # a door opens only with the key, so the phase gives both


def _begin(table: StepTable) -> Ints:
    return freeze(np.cumsum(table.length) - table.length)


def _encoded(table: StepTable) -> tuple[Coded, Coded, dict[str, Coded]]:
    """Encode the clusters, ids and tags of the episodes, so that rows of steps store codes only."""
    return encoded(table.cluster), encoded(table.episode_id), {name: encoded(tag) for name, tag in table.tags.items()}


def _groups(table: StepTable) -> tuple[Ints, Ints]:
    keys: dict[tuple[Any, ...], int] = {}
    conditions = [column.tolist() for name, column in table.tags.items() if name not in PROVENANCE]
    numbers = [keys.setdefault(key, len(keys)) for key in zip(table.world.tolist(), *conditions, strict=True)]
    group = np.array(numbers, dtype=np.int64)
    _, first = np.unique(group, return_index=True)
    return freeze(group), freeze(first)


def _following(state: Ints, final: Ints, length: Ints) -> Ints:
    """Return the state after each step, i.e. the state before the next step or the final state of the episode."""
    following = np.concatenate([state[1:], np.zeros((1, state.shape[1]), dtype=np.int64)])[: len(state)]
    last = np.cumsum(length) - 1
    following[last[length > 0]] = final[length > 0]
    return following


def _text(values: Sequence[Any]) -> Texts:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
