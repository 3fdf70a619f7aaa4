"""Episodes as columns of states and actions, without texts: much faster to read, with much less memory."""

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import freeze
from goalscope._ground.progress import Progress
from goalscope.agents.agent import WITHHELD
from goalscope.runs.codec import EPISODE_COLUMNS, WALK_WIDTH, decode_head, unpack_failures, unpack_walk, walk_numbers
from goalscope.runs.record import NO_ACTION, Episode, EpisodeSpec, World
from goalscope.runs.store import Store
from goalscope.runs.tables import checksum, marks, walk_sum
from goalscope.stats.rows import Tag
from goalscope.worlds.dynamics import flag_count, phase_column
from goalscope.worlds.grid import ACTIONS

_HEAD_NAMES = ("episode_id", "agent", "outcome", "cluster", "trajectory", "seed", "horizon", "tags")

Numbers = npt.NDArray[np.int64]

PART_EPISODES = 4000
"""Number of episodes that are read and measured together; large enough that the overhead per part is negligible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeColumns:
    """States and actions of many episodes as arrays, for computing measures: E episodes in G worlds, with N steps in
    total.

    S is the number of integers that describe a state.

    Attributes:
        episode_id, agent, outcome, cluster: E texts each.
        trajectory, seed, horizon: E whole numbers each, as in `EpisodeSpec`.
        tags: E mappings: tags of the world, of the episode, and its agent as "agent".
        worlds: the G worlds, in the order in which episodes refer to them.
        world: ``[E]`` int64 index of each episode's world.
        length: ``[E]`` int64 number of steps; the steps of an episode are contiguous.
        state: ``[N, S]`` int64 state before the action. On grids: (row, col, phase), see `phase_column`. In other
            worlds: the numbers of the state, padded with -1.
        action: ``[N]`` int64, `NO_ACTION` for a turn without a valid move.
        withheld: ``[N]`` bool, whether the server withheld the answer, so that the turn has no move.
        reward: ``[N]`` float64 reward of each action, NaN if there is none.
        final: ``[E, S]`` int64 state after the last step.
    """

    episode_id: Sequence[str]
    agent: Sequence[str]
    outcome: Sequence[str]
    cluster: Sequence[str]
    trajectory: Sequence[int]
    seed: Sequence[int]
    horizon: Sequence[int]
    tags: Sequence[Mapping[str, Tag]]
    worlds: tuple[World, ...]
    world: Numbers
    length: Numbers
    state: Numbers
    action: Numbers
    withheld: npt.NDArray[np.bool_]
    reward: npt.NDArray[np.float64]
    final: Numbers


def episode_columns(episodes: Iterable[Episode]) -> EpisodeColumns:
    """Collect the states and actions of episodes into arrays; the episodes themselves are not kept in memory.

    Raises:
        ValueError: some episodes are on grids and others in other worlds.
    """
    heads, kinds = _Heads(), set[bool]()
    states: list[tuple[int, ...]] = []
    finals: list[tuple[int, ...]] = []
    actions, rewards, withheld = array("q"), array("d"), list[bool]()
    for episode in episodes:
        planar, length = "cells" in episode.world.offers, len(episode.steps)
        kinds.add(planar)
        heads.add(episode.world, episode.spec, episode.agent, episode.outcome, episode.tags, length=length)
        states += episode.column("state")
        finals.append(episode.final)
        actions.extend(NO_ACTION if action is None else action for action in episode.column("action"))
        withheld += [failure == WITHHELD for failure in episode.column("failure")]
        rewards.extend(math.nan if planar or reward is None else reward for reward in episode.column("reward"))
    if len(kinds) > 1:
        raise ValueError(
            "a table of steps must contain only episodes on grids or only episodes in other worlds, got "
            "both: measure them separately"
        )
    width = max(map(len, (*states, *finals)), default=3)
    state, final = _padded(states, width), _padded(finals, width)
    if True in kinds:
        for column in (state, final):
            column[:, 2] = phase_column(column[:, 2])
    return heads.columns(
        state=state,
        action=np.array(actions),
        withheld=np.array(withheld, dtype=np.bool_),
        reward=np.array(rewards),
        final=final,
    )


def read_episode_columns(store: Store, progress: Progress | None = None) -> tuple[EpisodeColumns, list[str]]:
    """Read states and actions of a run's episodes on grids into arrays, in the order of the store.

    Answers, reasoning and token ids are neither read nor checked.

    Args:
        store: the run.
        progress: called with the number of episodes read so far and in total.

    Returns:
        The arrays, and the ids of the episodes in other worlds, which are not in the arrays.

    Raises:
        ValueError: a stored value is invalid.
    """
    total = count_episodes(store)
    return _read(store, store.pages(), lambda done: progress(done, total) if progress else None)


def count_episodes(store: Store) -> int:
    """Return how many episodes a run has stored."""
    # Counted from the table and not from an index, because they may differ in a damaged file.
    ((total,),) = store.query("SELECT count(*) FROM episodes NOT INDEXED")
    return int(total)


def episode_column_parts(
    store: Store, progress: Progress | None = None, *, most: int = PART_EPISODES
) -> Iterator[tuple[EpisodeColumns, list[str]]]:
    """Yield the result of `read_episode_columns` in parts, so that only few episodes are in memory at a time.

    Worlds of one cluster (such as versions of one grid) are in the same part, because some measures compare them. Parts
    are in the order of the first world of each cluster; within a part, episodes are in the order of the store.

    Args:
        store: the run.
        progress: called with the number of episodes read so far and in total.
        most: maximum number of episodes per part; a larger cluster forms a part of its own.

    Raises:
        ValueError: a stored value is invalid.
    """
    before = 0
    total = count_episodes(store)
    for worlds in parts_of(store, most):

        def report(done: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, total)

        yield _read(store, store.pages(worlds=worlds), report)
        before += sum(worlds.values())


def parts_of(store: Store, most: int = PART_EPISODES) -> Iterator[dict[str, int]]:
    """Divide the worlds of a run into parts with few episodes each, as `episode_column_parts` does.

    Args:
        store: the run.
        most: maximum number of episodes per part; a larger cluster of worlds forms a part of its own.

    Yields:
        For each part: world id -> number of its episodes.

    Raises:
        ValueError: episodes of the run are missing.
    """
    least = store.sums.number_of("episodes")
    select = (
        "SELECT world_id, ifnull(nullif(cluster, ''), world_id), count(*) FROM episodes "
        "LEFT JOIN worlds ON worlds.id = world_id GROUP BY world_id ORDER BY world_id"
    )
    clusters: dict[Any, dict[str, int]] = {}
    for world, cluster, count in store.query(select):
        clusters.setdefault(cluster, {})[world] = count
    total = sum(sum(world_counts.values()) for world_counts in clusters.values())
    store.sums.check_count("episodes", total, least, store.sums.number_of("episodes"))
    part: dict[str, int] = {}
    for world_counts in clusters.values():
        if part and sum(part.values()) + sum(world_counts.values()) > most:
            yield part
            part = {}
        part |= world_counts
    if part:
        yield part


def _read(
    store: Store, pages: Iterable[list[tuple[Any, ...]]], progress: Callable[[int], None]
) -> tuple[EpisodeColumns, list[str]]:
    heads, unreadable, done = _Heads(), list[str](), 0
    parts: dict[str, list[npt.NDArray[Any]]] = {
        "state": [np.zeros((0, 3), dtype=np.int64)],
        "action": [np.zeros(0, dtype=np.int64)],
        "withheld": [np.zeros(0, dtype=np.bool_)],
        "final": [np.zeros((0, 3), dtype=np.int64)],
    }
    for page in pages:
        readable = [row for row in page if _readable(store.world(row[2]))]
        unreadable += [row[1] for row in page if not _readable(store.world(row[2]))]
        try:
            for name, column in _read_page(store, readable, heads).items():
                parts[name].append(column)
        except (ValueError, TypeError):
            # Read again one by one, so that the error names the episode.
            with suppress(KeyError):  # the indices of a damaged file disagree; reporting the first error is enough
                for _ in store.episodes([row[1] for row in readable]):
                    pass
            raise
        done += len(page)
        progress(done)
    # Each part is freed as soon as it is joined, and `freeze` does not copy read-only arrays.
    columns = {name: _joined(parts.pop(name)) for name in tuple(parts)}
    reward = _joined([np.full(len(columns["action"]), np.nan)])
    return heads.columns(reward=reward, **columns), unreadable


def _joined(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    whole = np.concatenate(arrays)
    whole.flags.writeable = False
    return whole


def _readable(world: World) -> bool:
    """Return whether the columns of a store suffice for all measures of an episode."""
    return "grid" in world.offers


def _padded(states: Sequence[tuple[int, ...]], width: int) -> Numbers:
    """Return N states as rows of S = ``width`` integers, ``[N, S]``; shorter states are padded with -1."""
    if all(len(state) == width for state in states):
        return np.array(states, dtype=np.int64).reshape(-1, width)
    return np.array([(*state, *(-1,) * (width - len(state))) for state in states], dtype=np.int64)


class EpisodeHead(NamedTuple):
    """An episode without its steps, as it is stored: ids, agent, outcome, horizon and number of steps (``length``).

    ``failed`` is the number of steps without a valid action.
    """

    id: str
    world_id: str
    agent_id: str
    agent: str
    outcome: str
    horizon: int
    length: int
    failed: int


_EPISODE_NAMES = EPISODE_COLUMNS.split(", ")
_HEAD_INDICES = [_EPISODE_NAMES.index(name) for name in EpisodeHead._fields[:-1]]


def read_heads(store: Store, ids: Iterable[str] | None = None) -> Iterator[EpisodeHead]:
    """Yield episodes without their steps, in the order of `Store.episodes`, after verifying their checksums.

    This is much faster than reading the whole episodes.

    Args:
        store: the run.
        ids: ids of the episodes; all by default.

    Raises:
        KeyError: an id is not stored.
        ValueError: an episode does not match its checksum.
    """
    for page in store.pages(ids):
        for (_, *header), walk in zip(page, _checked_walks(store, page), strict=True):
            failed = sum(step[-1] == NO_ACTION for step in unpack_walk(walk))
            yield EpisodeHead._make([*(header[at] for at in _HEAD_INDICES), failed])


class _Heads:
    """Growing columns of episodes without their steps."""

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {name: [] for name in _HEAD_NAMES}
        self._worlds: dict[str, tuple[int, World]] = {}
        self._world, self._length = array("q"), array("q")

    def add(
        self, world: World, spec: EpisodeSpec, agent: str, outcome: str, tags: Mapping[str, Tag], *, length: int
    ) -> None:
        self._world.append(self._worlds.setdefault(spec.world_id, (len(self._worlds), world))[0])
        self._length.append(length)
        merged = {**world.tags, **tags, "agent": agent}
        cells = (spec.id, agent, outcome, world.cluster_id, spec.trajectory, spec.seed, spec.horizon, merged)
        for column, cell in zip(self._columns.values(), cells, strict=True):
            column.append(cell)

    def columns(self, **steps: npt.NDArray[Any]) -> EpisodeColumns:
        """Return all columns, given the columns of the steps and the last states."""
        columns: dict[str, Any] = {**self._columns, **{name: freeze(column) for name, column in steps.items()}}
        return EpisodeColumns(
            **columns,
            worlds=tuple(world for _, world in self._worlds.values()),
            world=freeze(np.array(self._world, dtype=np.int64)),
            length=freeze(np.array(self._length, dtype=np.int64)),
        )


def _checked_walks(store: Store, page: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return the stored walk of each episode of a page, after verifying episodes and walks by their checksums."""
    numbers = [row[0] for row in page]
    walks = dict(store.query(f"SELECT episode, walk FROM steps WHERE episode IN ({marks(numbers)})", numbers))
    if walks.keys() != set(numbers):
        store.sums.refuse("the steps of each episode")
    sums = store.sums.known("walk", numbers)
    for number, *header in page:
        store.sums.check(f"episode {header[0]!r:.80}", walk_sum(header, walks[number]), sums.get(number))
    return [walks[number] for number in numbers]


def _read_page(store: Store, page: Sequence[tuple[Any, ...]], heads: _Heads) -> dict[str, npt.NDArray[Any]]:
    """Add the episodes of a page of (number, columns of the episode), and return the columns of their steps by name."""
    walks = [walk_numbers(walk) for walk in _checked_walks(store, page)]
    sizes, ends = list[tuple[int, int, int]](), list[tuple[Any, ...]]()
    for (_, *header), walk in zip(page, walks, strict=True):
        world, head, count = store.world(header[1]), decode_head(header), len(walk)
        if header[12] != count or count > head["spec"].horizon:
            raise ValueError(f"episode {head['spec'].id} must have its {header[12]!r} steps, got {count}")
        heads.add(world, **head, length=count)
        sizes.append((world.grid.height, world.grid.width, flag_count(world.grid)))
        ends.append(tuple(header[9:12]))
    steps = np.concatenate([*walks, np.zeros((0, WALK_WIDTH), dtype=np.int64)])
    action = steps[:, -1].copy()  # a view of one column would keep the other columns in memory
    if not ((action >= NO_ACTION) & (action < len(ACTIONS))).all():
        raise ValueError("each step must have one of the four actions or none: the file is damaged")
    size = np.array(sizes, dtype=np.int64).reshape(-1, 3)
    return {
        "state": _states(steps[:, :-1], np.repeat(size, list(map(len, walks)), axis=0)),
        "action": action,
        "withheld": _withheld(store, [row[0] for row in page], walks),
        "final": _states(_as_integers(ends, 3), size),
    }


def _withheld(store: Store, numbers: Sequence[int], walks: Sequence[Numbers]) -> npt.NDArray[np.bool_]:
    """Return for each step whether its answer was withheld, given the numbers and walks of the episodes.

    Outputs are long, so they are read only for episodes that contain the name of this failure.
    """
    columns = [np.zeros(len(walk), dtype=np.bool_) for walk in walks]
    candidates = {
        number: index
        for index, (number, walk) in enumerate(zip(numbers, walks, strict=True))
        if (walk[:, -1] == NO_ACTION).any()
    }
    if candidates:
        select = f"SELECT episode, said FROM steps WHERE episode IN ({marks(list(candidates))}) AND instr(said, ?)"
        texts = store.query(select, (*candidates, WITHHELD.encode()))
        sums = store.sums.known("said", [number for number, _ in texts])
        for number, outputs in texts:
            store.sums.check(f"what was said in episode number {number}", checksum(outputs), sums.get(number))
            index = candidates[number]
            failures = unpack_failures(outputs, len(walks[index]))
            columns[index] = np.array([failure == WITHHELD for failure in failures], dtype=np.bool_)
            columns[index] &= walks[index][:, -1] == NO_ACTION
    return np.concatenate([*columns, np.zeros(0, dtype=np.bool_)])


def _states(cells: Numbers, size: Numbers) -> Numbers:
    """Return N states (row, column, phase) ``[N, 3]`` from rows, columns and flags in grids of sizes ``[N, 3]``."""
    if not ((cells[:, :3] >= 0) & (cells[:, :3] < size)).all():
        raise ValueError("states must be stored as row and col in their grid, and flags that the grid can have")
    return np.column_stack([cells[:, :2], phase_column(cells[:, 2])])


def _as_integers(cells: Sequence[tuple[Any, ...]] | npt.NDArray[Any], columns: int) -> Numbers:
    """Return N cells, each of several integers, as an array ``[N, columns]`` of int64."""
    integers = np.array(cells) if len(cells) else np.zeros((0, columns), dtype=np.int64)
    if integers.dtype != np.int64:
        raise ValueError("states and actions must be stored as whole numbers")
    return integers
