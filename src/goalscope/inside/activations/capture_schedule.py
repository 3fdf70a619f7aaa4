"""Schedule of a capture, which divides steps into windows, windows into batches of equal length, and batches into
shards.

The plan depends only on the run and the settings, never on what has been captured already, so that a resumed capture
computes the same batches and writes the same bytes.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from goalscope._ground.ids import content_id
from goalscope._ground.rng import stream
from goalscope.inside.activations.sites import Site, SiteFinder, steps_seen
from goalscope.runs import Store
from goalscope.runs.episode_columns import read_heads
from goalscope.runs.sqlite_errors import explained
from goalscope.runs.tables import DATABASE

SCOPES: Final = ("all", "first")
"""Which steps are captured: all, or the first one of each episode; or `some_steps`."""
_MIN_PREFIX = 64  # tokens; caching a shorter prefix does not pay off
_WINDOW_TOKENS = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """Sizes that limit the memory of a capture.

    Attributes:
        window: number of steps planned together. They are sorted by length, so larger windows make fuller batches.
        batch_tokens: maximum tokens per forward pass; a single sequence may exceed it. None: 2,048 on a CPU, 32,768 on
            a GPU.
        shard_bytes: size at which a file of activations is full, in bytes; a single batch may exceed it.
        share_prefix: whether to compute the common first tokens of a window's sequences only once, if that saves time.

    Raises:
        ValueError: if a size is below 1.
    """

    window: int = 4096
    batch_tokens: int | None = None
    shard_bytes: int = 1 << 26
    share_prefix: bool = True

    def __post_init__(self) -> None:
        for name in ("window", "batch_tokens", "shard_bytes"):
            size = getattr(self, name)
            if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
                raise ValueError(f"{name} of a capture must be an integer >= 1, got {size!r}")

    def on(self, device: str) -> Self:
        """Fill in the defaults for a kind of device ("cpu", "cuda")."""
        return replace(self, batch_tokens=self.batch_tokens or (2048 if device == "cpu" else 32_768))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayItem:
    """Step to replay."""

    episode: tuple[str, str, str]  # ids of episode, world and grid
    step: int
    shape: tuple[int, int]  # height and width of the grid
    reconstructed: bool  # whether its token ids were reconstructed from text
    # [T] prompt and output up to the last requested position, because later tokens cannot affect earlier ones
    ids: npt.NDArray[np.int64]
    positions: dict[Site, npt.NDArray[np.int64]]  # site -> [P] positions in ids


@dataclass(slots=True, kw_only=True)
class ReplayCounts:
    """Numbers of scheduled steps by outcome."""

    steps: int = 0
    captured: int = 0  # steps with at least one site
    reconstructed: int = 0  # captured steps whose ids were reconstructed from text
    found: Counter[str] = field(default_factory=Counter)  # captured steps by site
    left_out: Counter[str] = field(default_factory=Counter)  # missing sites by "site: reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayBatch:
    """Steps of equal length that pass through the model together. Identical sequences pass only once."""

    sequences: tuple[npt.NDArray[np.int64], ...]
    items: tuple[ReplayItem, ...]
    places: tuple[int, ...]  # index of the sequence of each item


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """Plan of one file: its number, its batches, and the number of prefix tokens to compute only once."""

    number: int
    batches: tuple[ReplayBatch, ...]
    prefix: npt.NDArray[np.int64]


def some_steps(maximum: int, seed: int) -> str:
    """Return the scope for a maximum number of random steps per grid and a root seed, e.g. "4:0"."""
    return f"{maximum}:{seed}"


def chosen_steps(store: Store, agent_id: str, scope: str) -> Mapping[str, frozenset[int]] | None:
    """Return the steps of each episode of an agent that a scope draws, or None if a scope draws none.

    For each grid, the choice is the first step of one episode and random steps of any episode. The random stream
    depends on the grid's name and the seed, so the choice does not depend on the captured model.

    Raises:
        ValueError: if there is no such scope.
    """
    if scope in SCOPES:
        return None
    maximum, colon, seed = scope.partition(":")
    if not (colon and maximum.isdecimal() and seed.isdecimal() and int(maximum)):
        raise ValueError(
            f"scope must be {', '.join(SCOPES)}, or N:SEED for N random steps per grid, e.g. 4:0, got {scope!r}"
        )
    steps_of_grid: dict[str, list[tuple[str, int]]] = {}
    for item in sorted(item for item in read_heads(store) if item.agent_id == agent_id):
        grid = store.world(item.world_id).cluster_id
        steps_of_grid.setdefault(grid, []).extend((item.id, step) for step in range(item.length))
    by_episode: dict[str, set[int]] = {}
    for grid, steps in steps_of_grid.items():
        shuffled = [steps[index] for index in stream(int(seed), "steps of a grid", grid).permutation(len(steps))]
        first = next(item for item in shuffled if item[1] == 0)
        for episode, step in [first, *(item for item in shuffled if item != first)][: int(maximum)]:
            by_episode.setdefault(episode, set()).add(step)
    return {episode: frozenset(steps) for episode, steps in by_episode.items()}


def plan_id(store: Store, agent_id: str, scope: str) -> str:
    """Return the id of the steps to capture; it changes when episodes are added to the run."""
    digest = hashlib.sha256()
    sql = "SELECT id, length FROM episodes WHERE agent_id = ? ORDER BY world_id, agent_id, trajectory, id"
    with explained(store.path / DATABASE):
        for identity, length in store.database.execute(sql, (agent_id,)):
            digest.update(f"{identity} {length}\n".encode())
    return content_id("plan", {"agent": agent_id, "scope": scope, "episodes": digest.hexdigest()})


def windows(
    store: Store, agent_id: str, scope: str, finder: SiteFinder, sites: Sequence[Site], size: int, counts: ReplayCounts
) -> Iterator[list[ReplayItem]]:
    """Yield the steps of an agent in the order of the store, at most ``size`` at a time; ``counts`` is updated.

    Raises:
        ValueError: a requested site occurs in none of the steps of a window; the message names the site and says why.
    """
    window: list[ReplayItem] = []
    n_steps, tokens = 0, 0
    for episode, step, grid in steps_seen(store, agent_id, scope, chosen_steps(store, agent_id, scope)):
        counts.steps += 1
        n_steps += 1
        try:
            sites_found = finder.find(step, grid)
        except ValueError as error:
            raise ValueError(f"{episode.id} step {step.index}: {error}") from error
        counts.left_out.update(f"{site}: {reason}" for site, reason in sites_found.missing.items())
        counts.found.update(list(sites_found.positions))
        if sites_found.positions:
            last = max(int(positions.max()) for positions in sites_found.positions.values())
            ids = [*(step.prompt_tokens or ()), *(step.output_tokens or ())][: last + 1]
            item = ReplayItem(
                episode=(episode.id, episode.world.id, episode.world.cluster_id),
                step=step.index,
                shape=(episode.world.grid.height, episode.world.grid.width),
                reconstructed=bool(step.extra.get("reconstructed", False)),
                ids=np.array(ids, dtype=np.int64),
                positions=sites_found.positions,
            )
            counts.captured += 1
            counts.reconstructed += item.reconstructed
            tokens += len(ids)
            window.append(item)
        if n_steps >= size or tokens >= _WINDOW_TOKENS:
            _check_found(sites, counts)
            yield window
            window, n_steps, tokens = [], 0, 0
    _check_found(sites, counts)
    if window:
        yield window


def shards(
    window: Sequence[ReplayItem],
    first: int,
    *,
    settings: CaptureSettings,
    item_bytes: int,
    shares_prefix: bool,
    by_shape: bool,
) -> Iterator[ShardPlan]:
    """Yield the shards of a window, numbered from ``first``.

    Args:
        window, first, settings: the steps, the number of the first file, and the batch sizes that fit on the device.
        item_bytes: bytes of the vectors at one position, all layers together.
        shares_prefix: whether the model can continue from a cached prefix.
        by_shape: whether grids of different shapes go into different files (site ``grid``).
    """
    prefix = _shared(window) if shares_prefix and settings.share_prefix else np.zeros(0, dtype=np.int64)

    def key(item: ReplayItem) -> tuple[tuple[int, int], int]:
        return (item.shape if by_shape else (0, 0)), len(item.ids)

    plan, size, shape = ShardPlan(number=first, batches=(), prefix=prefix), 0, (0, 0)
    for (group_shape, length), group in groupby(sorted(window, key=key), key=key):
        rows = max(1, (settings.batch_tokens or 1) // max(1, length - len(prefix)))
        for batch, added in _batches(list(group), rows, item_bytes, settings.shard_bytes):
            if plan.batches and (size >= settings.shard_bytes or group_shape != shape):
                yield plan
                plan, size = ShardPlan(number=plan.number + 1, batches=(), prefix=prefix), 0
            plan, size, shape = replace(plan, batches=(*plan.batches, batch)), size + added, group_shape
    if plan.batches:
        yield plan


def _batches(
    group: Sequence[ReplayItem], rows: int, item_bytes: int, max_bytes: int
) -> Iterator[tuple[ReplayBatch, int]]:
    """Cut steps of one length into batches of at most ``rows`` different sequences."""
    by_ids: dict[bytes, list[ReplayItem]] = {}
    for item in group:
        by_ids.setdefault(item.ids.tobytes(), []).append(item)
    batch: list[tuple[int, ReplayItem]] = []  # index of its sequence, step
    size, row = 0, -1
    for equal_items in by_ids.values():
        is_new = True
        for item in equal_items:
            if (is_new and row + 1 == rows) or size >= max_bytes:
                yield _batch(batch), size
                batch, size, row, is_new = [], 0, -1, True
            row += is_new
            is_new = False
            batch.append((row, item))
            size += item_bytes * sum(len(positions) for positions in item.positions.values())
    if batch:
        yield _batch(batch), size


def _batch(items: Sequence[tuple[int, ReplayItem]]) -> ReplayBatch:
    sequences = {place: item.ids for place, item in items}
    places, members = zip(*items, strict=True)
    return ReplayBatch(sequences=tuple(sequences.values()), items=members, places=places)


def _shared(window: Sequence[ReplayItem]) -> npt.NDArray[np.int64]:
    """Return the common prefix of all sequences before any captured position, empty if caching does not pay off."""
    none = np.zeros(0, dtype=np.int64)
    first = window[0].ids
    n_shared = min(int(positions.min()) for item in window for positions in item.positions.values())
    for item in window:
        length = min(n_shared, len(item.ids) - 1)
        differing = np.flatnonzero(item.ids[:length] != first[:length])
        n_shared = int(differing[0]) if len(differing) else length
    mean = sum(len(item.ids) for item in window) / len(window)
    worthwhile = len(window) > 1 and n_shared >= _MIN_PREFIX and n_shared >= mean / 4
    return first[:n_shared] if worthwhile else none


def _check_found(sites: Sequence[Site], counts: ReplayCounts) -> None:
    for site in sites:
        if counts.steps and not counts.found[site]:
            reasons = [
                f"{reason.removeprefix(f'{site}: ')} ({count} steps)"
                for reason, count in counts.left_out.most_common()
                if reason.startswith(f"{site}: ")
            ]
            raise ValueError(
                f"site {site} was not found in any of the first {counts.steps} steps: {'; '.join(reasons)}. "
                "Leave the site out, or give the model that generated the run"
            )
