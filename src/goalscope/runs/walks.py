"""Episodes as columns: where they went and what they did, without what was said; a fraction of the work and memory."""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.checks import freeze
from goalscope.rows import Tag
from goalscope.runs.codec import decode_head
from goalscope.runs.record import Episode, EpisodeSpec, World
from goalscope.runs.store import Store
from goalscope.worlds.grid import ACTIONS

NO_ACTION = -1
"""Action of a turn that held none."""

_COLUMNS = "episode, step, row, col, flags, ifnull(action, -1), (action IS NULL) + 2 * (failure IS NULL)"
_FAILED, _ACTED = 1, 2  # what the last of them must be: either an action or a failure is there

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walks:
    """E episodes in G different worlds, N steps in all.

    Attributes:
        episode_id, agent, outcome, grid_id: E texts each.
        trajectory, seed, horizon: E whole numbers each, as in `EpisodeSpec`.
        tags: of each episode: those of its world, its own, and its agent as "agent".
        worlds: the G worlds in the order in which the episodes name them.
        world: ``[E]`` int64 index of each episode's world.
        length: ``[E]`` int64 number of steps; the steps of an episode follow one another.
        state: ``[N, S]`` int64 before the action: (row, col, phase) on grids, phase as in `State`; else the numbers of
            the state, filled up with -1 behind.
        action: ``[N]`` int64, `NO_ACTION` where the turn held none.
        reward: ``[N]`` float64 reward of each action, NaN without one.
        final: ``[E, S]`` int64 state after the last step.
    """

    episode_id: Sequence[str]
    agent: Sequence[str]
    outcome: Sequence[str]
    grid_id: Sequence[str]
    trajectory: Sequence[int]
    seed: Sequence[int]
    horizon: Sequence[int]
    tags: Sequence[Mapping[str, Tag]]
    worlds: tuple[World, ...]
    world: Numbers
    length: Numbers
    state: Numbers
    action: Numbers
    reward: npt.NDArray[np.float64]
    final: Numbers


def walks_of(episodes: Iterable[Episode]) -> Walks:
    """Return what episodes did; the episodes themselves are not kept.

    Raises:
        ValueError: an episode in a task world, whose optimal policy is not that of its cells; grids and other worlds.
    """
    gathered = _Gathered()
    states: list[tuple[int, ...]] = []
    finals: list[tuple[int, ...]] = []
    rewards: list[float] = []
    for episode in episodes:
        world = episode.world
        if world.own_measures:
            raise ValueError(
                f"a table of steps must hold episodes of worlds without measures of their own, got {episode.id} in a "
                "task world: its tasks decide what is optimal; goalscope measure scores its errors of exploration and "
                "exploitation"
            )
        gathered.head(episode.spec, world, episode.agent, episode.outcome, episode.tags)
        gathered.length.append(len(episode.steps))
        gathered.action.extend(NO_ACTION if step.action is None else step.action for step in episode.steps)
        if world.planar:
            for step in episode.steps:
                gathered.state.extend((*step.state.position, step.state.phase))
            gathered.final.extend((*episode.final.position, episode.final.phase))
        else:
            states += [step.state for step in episode.steps]
            finals.append(episode.final)
            rewards += [math.nan if step.reward is None else step.reward for step in episode.steps]
    if not finals:
        return gathered.walks()
    if len(finals) < len(gathered.length):
        raise ValueError(
            "a table of steps must hold episodes of grids or of other worlds, got both: measure them apart"
        )
    width = max(map(len, (*states, *finals)))
    return gathered.walks(
        state=freeze(_filled(states, width)), final=freeze(_filled(finals, width)), reward=freeze(np.array(rewards))
    )


def read_walks(store: Store, progress: Callable[[int, int], None] | None = None) -> tuple[Walks, list[str]]:
    """Return what the episodes of a store did on grids, in its order, and the ids of those in other worlds.

    Only what is returned is read and checked; answers, reasoning and token ids are not looked at.

    Args:
        store: the run.
        progress: called with the number of episodes read and of all.

    Raises:
        ValueError: a stored value that cannot be one of ours.
    """
    gathered, apart, done = _Gathered(), list[str](), 0
    ((total,),) = store.query("SELECT count(*) FROM episodes")
    for page in store.pages():
        kept = [row for row in page if _readable(store.world(row[2]))]
        apart += [row[1] for row in page if not _readable(store.world(row[2]))]
        try:
            _read_page(store, kept, gathered)
        except (ValueError, TypeError):
            # Read once more one by one: the error then says what is wrong, and with which episode.
            with suppress(KeyError):  # the indices of a damaged file disagree: what was met first says enough
                for _ in store.episodes([row[1] for row in kept]):
                    pass
            raise
        done += len(page)
        if progress is not None:
            progress(done, total)
    return gathered.walks(), apart


def _readable(world: World) -> bool:
    """Whether the columns of a store tell all that is measured of an episode."""
    return world.planar and not world.own_measures


def _filled(states: Sequence[tuple[int, ...]], width: int) -> Numbers:
    """Return states as ``[N, S]``, shorter ones filled up with -1."""
    filled = np.full((len(states), width), -1, dtype=np.int64)
    for index, state in enumerate(states):
        filled[index, : len(state)] = state
    return filled


class _Gathered:
    """Columns that grow."""

    def __init__(self) -> None:
        self._heads: list[tuple[Any, ...]] = []
        self._numbers: dict[str, int] = {}
        self._worlds: list[World] = []
        self.world, self.length, self.state, self.action, self.final = (array("q") for _ in range(5))

    def head(self, spec: EpisodeSpec, world: World, agent: str, outcome: str, tags: Mapping[str, Tag]) -> None:
        """Add all of an episode but its steps and states."""
        number = self._numbers.setdefault(spec.world_id, len(self._worlds))
        if number == len(self._worlds):
            self._worlds.append(world)
        self.world.append(number)
        merged = {**world.tags, **tags, "agent": agent}
        self._heads.append((spec.id, agent, outcome, world.grid_id, spec.trajectory, spec.seed, spec.horizon, merged))

    def walks(
        self,
        state: Numbers | None = None,
        final: Numbers | None = None,
        reward: npt.NDArray[np.float64] | None = None,
    ) -> Walks:
        """Return what was added, with the states and rewards given, or without rewards and with the states added."""
        unrewarded = np.full(len(self.action), np.nan)
        columns: list[Sequence[Any]] = [list(column) for column in zip(*self._heads, strict=True)] or [()] * 8
        episode_id, agent, outcome, grid_id, trajectory, seed, horizon, tags = columns
        return Walks(
            episode_id=episode_id,
            agent=agent,
            outcome=outcome,
            grid_id=grid_id,
            trajectory=trajectory,
            seed=seed,
            horizon=horizon,
            tags=tags,
            worlds=tuple(self._worlds),
            world=_frozen(self.world),
            length=_frozen(self.length),
            state=_frozen(self.state).reshape(-1, 3) if state is None else state,
            action=_frozen(self.action),
            reward=freeze(unrewarded) if reward is None else reward,
            final=_frozen(self.final).reshape(-1, 3) if final is None else final,
        )


def _read_page(store: Store, page: Sequence[tuple[Any, ...]], gathered: _Gathered) -> None:
    """Add the episodes of a page of (number, columns of the episode).

    Raises:
        ValueError: a value that cannot be one of ours.
    """
    steps: dict[int, list[tuple[Any, ...]]] = {row[0]: [] for row in page}
    marks = ", ".join("?" * len(steps))
    for found in store.query(f"SELECT {_COLUMNS} FROM steps WHERE episode IN ({marks}) ORDER BY 1, 2", list(steps)):
        if found[0] not in steps:
            raise ValueError(f"steps of {store.path} must be found by their episode, got {found[0]!r}: it is damaged")
        steps[found[0]].append(found)
    sizes, ends = list[tuple[int, int]](), list[tuple[Any, ...]]()
    for number, *header in page:
        world = store.world(header[1])
        head = decode_head(header)
        if header[12] != len(steps[number]) or len(steps[number]) > head.spec.horizon:
            raise ValueError(f"episode {head.spec.id} must have its {header[12]!r} steps, got {len(steps[number])}")
        gathered.head(head.spec, world, head.agent, head.outcome, head.tags)
        gathered.length.append(len(steps[number]))
        sizes.append((world.grid.height, world.grid.width))
        ends.append(tuple(header[9:12]))
    length = [len(found) for found in steps.values()]
    _, index, *place, action, held = _whole([row for found in steps.values() for row in found], 7).T
    number = np.concatenate([np.arange(count) for count in length]) if length else index
    acted = (held == _ACTED) & (action >= 0) & (action < len(ACTIONS))
    if (index != number).any() or not (acted | (held == _FAILED)).all():
        raise ValueError("the steps of an episode must be numbered 0, 1, 2, ... and hold an action or a failure")
    size = np.array(sizes, dtype=np.int64).reshape(-1, 2)
    gathered.state.frombytes(_states(np.stack(place, axis=1), np.repeat(size, length, axis=0)).tobytes())
    gathered.action.frombytes(action.tobytes())
    gathered.final.frombytes(_states(_whole(ends, 3), size).tobytes())


def _states(cells: Numbers, size: Numbers) -> Numbers:
    """Return states ``[N, 3]`` from (row, col, flags) on grids of these sizes ``[N, 2]``.

    Raises:
        ValueError: a cell outside of its grid, or other flags.
    """
    place, flags = cells[:, :2], cells[:, 2]
    if not ((place >= 0) & (place < size)).all() or not ((flags >= 0) & (flags <= 3)).all():
        raise ValueError("states must be stored as row and col in their grid and flags 0..3")
    # Phases as in `State`: the key held and the door open count one each.
    return np.column_stack([place, (flags & 1) + (flags >> 1)])


def _whole(cells: Sequence[tuple[Any, ...]], columns: int) -> Numbers:
    """Return cells as ``[N, columns]`` int64.

    Raises:
        ValueError: cells that are not all whole numbers.
    """
    whole = np.array(cells) if cells else np.zeros((0, columns), dtype=np.int64)
    if whole.dtype != np.int64:
        raise ValueError("states and actions must be stored as whole numbers")
    return whole


def _frozen(numbers: "array[int]") -> Numbers:
    found = np.frombuffer(numbers, dtype=np.int64) if numbers else np.zeros(0, dtype=np.int64)
    return freeze(found)
