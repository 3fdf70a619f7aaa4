"""The table of steps that every measure reads."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_shape, freeze
from goalscope.planning.oracle import oracle
from goalscope.rows import Tag
from goalscope.runs.record import Episode
from goalscope.runs.walks import NO_ACTION, Walks, walks_of
from goalscope.worlds.dynamics import State
from goalscope.worlds.world import World

__all__ = ["CONDITIONS", "NO_ACTION", "PROVENANCE", "StepTable"]

Made = TypeVar("Made")

CONDITIONS = ("kind", "control", "transform", "fog_radius", "names")
"""Tags that split a run into worlds that must not be averaged; they group every table and cell where they vary."""

PROVENANCE = frozenset({"file", "source", "seed", "trajectory"})
"""Tags that say where a single episode comes from, not under which condition it was made: they split no group."""

_SHAPES = {
    **dict.fromkeys(("episode_id", "agent", "outcome", "world_id", "grid_id"), "E"),
    **dict.fromkeys(("trajectory", "seed", "length", "horizon", "optimal_length", "world"), "E"),
    **dict.fromkeys(("episode", "step", "action", "distance", "after"), "N"),
    "reward": "N",
    "state": "N S",
    "optimal": "N A",
    "final": "E S",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """Episodes as columns: E episodes, N steps, G worlds; all arrays are read-only.

    Attributes:
        episode_id, agent, outcome, world_id, grid_id: ``[E]`` text of each episode.
        trajectory: ``[E]`` int64 number of the trajectory on its world.
        seed: ``[E]`` root seed of the study (object: of any size).
        length: ``[E]`` int64 number of steps; the steps of an episode follow one another.
        horizon: ``[E]`` int64 most actions allowed.
        optimal_length: ``[E]`` int64 shortest path from the start, -1 where the goal cannot be reached.
        world: ``[E]`` int64 index of the episode's world among the G different ones of the table.
        tags: name -> ``[E]`` object array; "size" is the side of a square grid in cells where nothing else is given.
        episode: ``[N]`` int64 index of each step's episode.
        step: ``[N]`` int64 number of the step in its episode.
        state: ``[N, S]`` int64 true state before the action: (row, col, phase) on grids, phase as in `State`.
        action: ``[N]`` int64, `NO_ACTION` where the turn held none.
        reward: ``[N]`` float64 reward of each action, NaN without one.
        optimal: ``[N, A]`` bool, the optimal set of the state.
        distance: ``[N]`` int64 steps to the goal before the action, -1 where it cannot be reached.
        after: ``[N]`` int64 steps to the goal after the action.
        final: ``[E, S]`` int64 state after the last step.
        worlds: the G different worlds.
        offers: what measures may need and these worlds have: "oracle" (`optimal`, `distance`, `after` and
            `optimal_length`, which else hold False and -1), "grid", "reward".
    """

    episode_id: npt.NDArray[np.object_]
    agent: npt.NDArray[np.object_]
    outcome: npt.NDArray[np.object_]
    world_id: npt.NDArray[np.object_]
    grid_id: npt.NDArray[np.object_]
    trajectory: npt.NDArray[np.int64]
    seed: npt.NDArray[np.object_]
    length: npt.NDArray[np.int64]
    horizon: npt.NDArray[np.int64]
    optimal_length: npt.NDArray[np.int64]
    world: npt.NDArray[np.int64]
    tags: Mapping[str, npt.NDArray[np.object_]]
    episode: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    state: npt.NDArray[np.int64]
    action: npt.NDArray[np.int64]
    reward: npt.NDArray[np.float64]
    optimal: npt.NDArray[np.bool_]
    distance: npt.NDArray[np.int64]
    after: npt.NDArray[np.int64]
    final: npt.NDArray[np.int64]
    worlds: tuple[World, ...]
    offers: frozenset[str] = frozenset({"oracle", "grid"})
    _episodes: tuple[Episode, ...] | None = field(default=None, repr=False, compare=False)
    _made: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

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
    def from_episodes(cls, episodes: Iterable[Episode]) -> "StepTable":
        """Build the table; the optimal sets of each different world are computed once.

        Raises:
            ValueError: see `walks_of`.
        """
        listed = tuple(episodes)
        return cls.from_walks(walks_of(listed), listed)

    @classmethod
    def from_walks(cls, walks: Walks, episodes: tuple[Episode, ...] | None = None) -> "StepTable":
        """Build the table of what episodes did, as `walks_of` returns it, or `read_walks` of a store.

        Args:
            walks: what they did.
            episodes: the same episodes, for measures that read more of them.
        """
        world, length, state = walks.world, walks.length, walks.state
        following = _following(state, walks.final, length)
        episode = np.repeat(np.arange(len(length)), length)
        known = [oracle(place) for place in walks.worlds]
        offers = {"oracle"} if None not in known else set()
        offers |= {"grid"} if all(hasattr(place, "grid") for place in walks.worlds) else set()
        offers |= {"reward"} if np.isfinite(walks.reward).any() else set()
        optimal = np.zeros((len(state), 0 if known else 4), dtype=bool)
        distance, after = np.full((2, len(state)), -1, dtype=np.int64)
        shortest = np.full(len(walks.worlds), -1, dtype=np.int64)
        order = np.argsort(world[episode], kind="stable")
        bounds = np.searchsorted(world[episode][order], np.arange(len(walks.worlds) + 1))
        for index, exact in enumerate(known):
            if exact is None:
                continue
            mine = order[bounds[index] : bounds[index + 1]]
            sets, distance[mine] = exact.look_up(state[mine])
            if optimal.shape[1] < sets.shape[1]:
                optimal = np.pad(optimal, ((0, 0), (0, sets.shape[1] - optimal.shape[1])))
            optimal[mine, : sets.shape[1]] = sets
            after[mine] = exact.look_up(following[mine])[1]
            shortest[index] = exact.length
        listed = [_sized(tags, walks.worlds[index]) for tags, index in zip(walks.tags, world.tolist(), strict=True)]
        names = list(dict.fromkeys(name for tags in listed for name in tags))
        return cls(
            episode_id=_text(walks.episode_id),
            agent=_text(walks.agent),
            outcome=_text(walks.outcome),
            world_id=_text([place.id for place in walks.worlds])[world],
            grid_id=_text(walks.grid_id),
            trajectory=np.array(walks.trajectory, dtype=np.int64),
            seed=_text(walks.seed),
            length=length,
            horizon=np.array(walks.horizon, dtype=np.int64),
            optimal_length=shortest[world],
            world=world,
            tags={name: _text([tags.get(name) for tags in listed]) for name in names},
            episode=episode,
            step=np.arange(len(state)) - np.repeat(np.cumsum(length) - length, length),
            state=state,
            action=walks.action,
            reward=walks.reward,
            optimal=optimal,
            distance=distance,
            after=after,
            final=walks.final,
            worlds=walks.worlds,
            offers=frozenset(offers),
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

    def once(self, make: Callable[["StepTable"], Made]) -> Made:
        """Return what a function makes of this table; it is made for the first measure that asks and kept for others.

        Args:
            make: a named function (one made anew each time would never be found again).
        """
        if make not in self._made:
            self._made[make] = make(self)
        found: Made = self._made[make]
        return found

    @property
    def is_optimal(self) -> npt.NDArray[np.bool_]:
        """``[N]`` whether the action is in the optimal set; a turn without an action is not."""
        taken = self.action >= 0
        found: npt.NDArray[np.bool_] = taken & self.optimal[np.arange(len(taken)), np.where(taken, self.action, 0)]
        return found

    @property
    def cluster(self) -> npt.NDArray[np.object_]:
        """``[E]`` text: the cluster of each episode's world, which intervals count."""
        return self.grid_id

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """``[N]`` whether the turn held an action."""
        found: npt.NDArray[np.bool_] = self.action != NO_ACTION
        return found

    @property
    def following(self) -> npt.NDArray[np.int64]:
        """``[N, S]`` int64 state after each action, as in `state`."""
        return _following(self.state, self.final, self.length)

    @property
    def begin(self) -> npt.NDArray[np.int64]:
        """``[E]`` int64 index of each episode's first step."""
        return self.once(_begin)

    def path(self, index: int) -> list[Any]:
        """Return the T + 1 states of an episode of T steps, the final one included: each a `State` on grids."""
        first = self.begin[index]
        states = [*self.state[first : first + self.length[index]].tolist(), self.final[index].tolist()]
        if not self.worlds[self.world[index]].planar:
            return [tuple(state) for state in states]
        # A door is opened with the key alone, so that the phase tells both.
        return [State((row, col), phase > 0, phase > 1) for row, col, phase in states]

    def groups(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Group the episodes that share world and tags, the agent among them: the trajectories of one policy on a grid.

        Tags of `PROVENANCE` do not count.

        Returns:
            ``[E]`` int64 group of each episode, and ``[K]`` int64 the first episode of each of the K groups.
        """
        return self.once(_groups)


def _sized(tags: Mapping[str, Tag], world: World) -> Mapping[str, Tag]:
    """Return the tags of an episode, with the size of its grid where they name none and the grid is square.

    The walls do not tell the density likewise: a generated grid's share of walls is that of its density rounded.
    """
    square = hasattr(world, "grid") and world.grid.height == world.grid.width
    return {**tags, "size": world.grid.height} if square and tags.get("size") is None else tags


def _begin(table: StepTable) -> npt.NDArray[np.int64]:
    return freeze(np.cumsum(table.length) - table.length)


def _groups(table: StepTable) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    keys: dict[tuple[Any, ...], int] = {}
    conditions = [column.tolist() for name, column in table.tags.items() if name not in PROVENANCE]
    listed = [keys.setdefault(key, len(keys)) for key in zip(table.world.tolist(), *conditions, strict=True)]
    group = np.array(listed, dtype=np.int64)
    _, first = np.unique(group, return_index=True)
    return freeze(group), freeze(first)


def _following(
    state: npt.NDArray[np.int64], final: npt.NDArray[np.int64], length: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The state after a step is the next step's state, or the final one of its episode."""
    following = np.concatenate([state[1:], np.zeros((1, state.shape[1]), dtype=np.int64)])[: len(state)]
    last = np.cumsum(length) - 1
    following[last[length > 0]] = final[length > 0]
    return following


def _text(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
