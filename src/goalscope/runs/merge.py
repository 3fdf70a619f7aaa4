"""Merging the shards of a study into one run directory, equal to that of one run of the whole study."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goalscope.agents.agent import agent_id
from goalscope.plain_files import path_in, remove_folder
from goalscope.runs import checksums
from goalscope.runs.codec import TURN_COLUMNS, decode_json, decode_turn
from goalscope.runs.opening import sync
from goalscope.runs.provenance import FIRST_TURNS, session
from goalscope.runs.server_checks import INFO as SERVERS
from goalscope.runs.store import Store
from goalscope.runs.study import Study
from goalscope.runs.study_shard import StudyShard, episodes_of, listed_units, shard_of
from goalscope.runs.tables import DATABASE, marks

_EPISODES_PER_PAGE = 256  # copied at a time
_CALLS_PER_PAGE = 1024
_CALL_COLUMNS = f"id, agent_id, prompt, episode_id, step, attempt, state, lost, sent, done, {TURN_COLUMNS}"
_TABLES = (
    *("info", "sessions", "study", "agents", "worlds", "calls", "episodes", "steps", "usage", "row_groups"),
    "artifacts",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSummary:
    """Contents of a merged run.

    Attributes:
        shards: number of shards.
        episodes: number of episodes.
        calls: number of journalled calls.
        measured: shards that hold rows of measures; the merged run must be measured again.
        read: shards that hold activations or probes; the merged run must be captured again.
    """

    shards: int
    episodes: int
    calls: int
    measured: tuple[Path, ...]
    read: tuple[Path, ...]


def merge(
    shards: Sequence[str | Path],
    directory: str | Path,
    *,
    progress: Callable[[int, int], None] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> MergeSummary:
    """Write the run of a whole study from the runs of all its shards.

    Study, agents, worlds, episodes, journal, costs and sessions are copied; the shards are only read. Rows of
    measures, activations and probes are not copied: measures of a whole run may compare worlds in different shards.
    The run is written under a temporary name and renamed once it is complete, so that an interrupted merge leaves no
    partial run and can be repeated.

    Args:
        shards: the run directories, in any order.
        directory: the new run directory; must be empty or not exist.
        progress: called with (episodes copied, total number of episodes).
        arguments: the user's arguments, for the record; see `provenance.session`.

    Returns:
        The contents of the merged run.

    Raises:
        FileNotFoundError: a shard without `run.db`.
        FileExistsError: the directory holds something.
        ValueError: a shard is missing, repeated, unfinished, damaged, not a shard, or of another study.
        BlockingIOError: another process merges into the same directory.
    """
    out = Path(directory)
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise FileExistsError(f"shards must be merged into a new directory, but {out} is there: choose another one")
    with ExitStack() as opened:
        stores = [opened.enter_context(Store(path)) for path in shards]
        ordered, study = _sorted_shards(stores)
        partial = path_in(out.parent, f".{out.name}.merging")
        with Store(partial, "w", durability=study.durability) as target:
            _clear(target)  # the contents of an interrupted merge
            summary = _fill(target, ordered, study, progress, arguments)
    partial.rename(out)  # over an empty directory, too
    sync(out.absolute().parent)
    return summary


@contextmanager
def _replacing(path: Path, study: Study) -> Iterator[Store]:
    """Yield an empty run with a temporary name, which replaces the run at a path once it is complete."""
    partial, old = (path_in(path.parent, f".{path.name}.{name}") for name in ("growing", "old"))
    with Store(partial, "w", durability=study.durability) as target:
        _clear(target)  # the contents of an interrupted attempt
        yield target
    if path.exists():
        path.rename(old)
    partial.rename(path)
    sync(path.absolute().parent)
    if old.exists():
        remove_folder(old)


def settle(directory: str | Path) -> None:
    """Restore a run where `grow` was interrupted between its two renames."""
    path = Path(directory)
    old = path_in(path.parent, f".{path.name}.old")
    if old.exists() and path.exists():
        remove_folder(old)  # its replacement is complete
    elif old.exists():
        old.rename(path)


def grow(directory: str | Path, study: Study) -> int:
    """Make a run the beginning of a larger study: the episodes that both share are kept and not run again.

    Episodes, journal and costs are kept where the larger study has the same episode, and the trials of servers. Rows,
    activations and probes are dropped, since they describe the smaller study. On an error the run stays as it was.

    Args:
        directory: the run directory; must hold a run of some study.
        study: the larger study.

    Returns:
        The number of episodes kept.

    Raises:
        ValueError: the directory holds no run of a study, or a damaged one.
        BlockingIOError: another process runs on the directory.
    """
    path = Path(directory)
    settle(path)
    with _replacing(path, study) as target, Store(path, "w") as store:
        if store.study() is None:
            raise ValueError(f"only the run of a study can grow, but {path} holds none: choose another directory")
        _check_sound(store)
        for name in (SERVERS, FIRST_TURNS):  # trials of servers are calls, too, and count in caps
            if (kept := store.info().get(name)) is not None:
                target.put_info(name, kept)
        copied = _take_over(store, target, study)
        _copy_calls(store, target)
    return copied


def excerpt(directory: str | Path, study: Study, out: str | Path) -> int:
    """Write a run of those episodes of another run that a smaller study has, e.g. the study of one of its agents.

    The journal is not copied: calls and their costs stay with the run that made them. Rows, activations and probes are
    not copied either. The new run has a temporary name until it is complete; a run at `out` is replaced.

    Args:
        directory: the run directory; is only read.
        study: the smaller study.
        out: the new run directory.

    Returns:
        The number of episodes copied.

    Raises:
        ValueError: the run does not hold all episodes of the smaller study, or is damaged.
        BlockingIOError: another process writes to the new directory.
    """
    path = Path(out)
    settle(path)
    with _replacing(path, study) as target, Store(directory) as store:
        _check_sound(store)
        expected = sum(1 for _ in study.specs(study.agents()))
        copied = _take_over(store, target, study)
        if copied < expected:
            raise ValueError(
                f"an excerpt must find all episodes of its study in {directory}, it finds {copied:,} of {expected:,}: "
                "finish the run first"
            )
    return copied


def _take_over(store: Store, target: Store, study: Study) -> int:
    """Copy the agents, worlds, sessions and shared episodes of two studies; return the number of episodes."""
    agents = study.agents()
    target.put_study(study)
    target.put_agents([(agent_id(agent), agent.name, agent.describe()) for agent in agents])
    target.put_worlds(study.worlds())
    for document in store.info()["sessions"]:
        target.put_session(document)
    shared = sorted({spec.id for spec, _, _ in study.specs(agents)} & store.episode_ids())
    for begin in range(0, len(shared), _EPISODES_PER_PAGE):
        page = shared[begin : begin + _EPISODES_PER_PAGE]
        target.put_episodes(store.episodes(page), usage=_usage(store, page))
    return len(shared)


def _sorted_shards(stores: Sequence[Store]) -> tuple[list[tuple[StudyShard, Store]], Study]:
    """Return the shards in order, and their study.

    Raises:
        ValueError: they are not all shards of one study.
    """
    if not stores:
        raise ValueError("a merge must be given at least one shard, got none")
    by_shard: dict[StudyShard, Store] = {}
    first, study = stores[0], None
    for store in stores:
        _check_sound(store)
        store_study, shard = store.study(), shard_of(store)
        if store_study is None or shard is None:
            content = "imported trajectories" if store_study is None else "a run of a whole study"
            raise ValueError(
                "a merge must be given shards (`goalscope run STUDY --shard 1/16 --out DIR` writes one), but "
                f"{store.path} holds {content}: leave it out, and put whole runs side by side with "
                "`goalscope compare RUN OTHER`"
            )
        study = study or store_study
        if store_study.id != study.id:
            raise ValueError(
                f"all shards must be of one study, but {store.path} is of another one than {first.path}:\n"
                f"{study.difference(store_study)}\nleave it out"
            )
        if store_study.analysis != study.analysis:
            raise ValueError(
                f"all shards must declare the same analysis, but {store.path} declares another one than {first.path}: "
                "merge those that agree, or run that shard again with the study of the others"
            )
        if by_shard and shard.of != next(iter(by_shard)).of:
            raise ValueError(
                f"all shards must be of one division, but {store.path} is shard {shard} and {first.path} is shard "
                f"{next(iter(by_shard))}: leave one of them out"
            )
        if shard in by_shard:
            raise ValueError(
                f"each shard must be given once, but {by_shard[shard].path} and {store.path} are both shard {shard}: "
                "leave one of them out"
            )
        by_shard[shard] = store
    assert study is not None
    units = listed_units(first)
    for shard, store in by_shard.items():
        if listed_units(store) != units:
            raise ValueError(
                f"all shards must have the same agents and worlds, but those of {store.path} differ from those of "
                f"{first.path}: run it again with the same version of goalscope and the same agents"
            )
        _check_complete(store, shard, episodes_of(shard, *units, study.trajectories))
    count = next(iter(by_shard)).of
    if missing := [
        str(StudyShard(number, count)) for number in range(1, count + 1) if StudyShard(number, count) not in by_shard
    ]:
        others = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        raise ValueError(
            f"a merge must be given all {count} shards, missing: {', '.join(missing[:8])}{others}; run them, or give "
            "their directories, too"
        )
    return sorted(by_shard.items(), key=lambda item: item[0]), study


def _check_sound(store: Store) -> None:
    [(verdict,), *_] = store.query("PRAGMA quick_check(1)")
    if verdict != "ok":
        raise ValueError(
            f"{store.path / DATABASE} must be a sound SQLite file, but it is damaged ({verdict}): run the shard again"
        )


def _check_complete(store: Store, shard: StudyShard, expected: set[tuple[str, str, int]]) -> None:
    stored = set(store.query("SELECT agent_id, world_id, trajectory FROM episodes NOT INDEXED"))
    if foreign := stored - expected:
        raise ValueError(
            f"a shard must hold its own episodes only, but {store.path} holds {len(foreign)} that are not of shard "
            f"{shard}: run the shard again in a new directory"
        )
    if missing := expected - stored:
        raise ValueError(
            f"each shard must be finished, but {store.path} lacks {len(missing):,} of its {len(expected):,} episodes: "
            f"run the same study with --shard {shard} on it to go on"
        )


def _clear(target: Store) -> None:
    with target.transaction() as database:
        for table in _TABLES:
            database.execute(f"DELETE FROM {table}")
        checksums.clear(database)


def _fill(
    target: Store,
    shards: Sequence[tuple[StudyShard, Store]],
    study: Study,
    progress: Callable[[int, int], None] | None,
    arguments: Mapping[str, Any] | None,
) -> MergeSummary:
    first = shards[0][1]
    descriptions = first.agents()
    target.put_study(study)
    target.put_agents([(identity, *descriptions[identity]) for identity, _ in listed_units(first)[0]])
    target.put_worlds(first.world(identity) for identity in listed_units(first)[1])
    for shard, store in shards:
        for document in store.info()["sessions"]:
            target.put_session({**document, "shard": str(shard)})
    target.put_session(session(arguments))
    target.put_info("shards", {str(shard): _info(store) for shard, store in shards})
    ids = {shard: sorted(store.episode_ids()) for shard, store in shards}
    total, copied, calls = sum(map(len, ids.values())), 0, 0
    for shard, store in shards:
        for begin in range(0, len(ids[shard]), _EPISODES_PER_PAGE):
            page = ids[shard][begin : begin + _EPISODES_PER_PAGE]
            copied += target.put_episodes(store.episodes(page), usage=_usage(store, page))
            if progress is not None:
                progress(copied, total)
        calls += _copy_calls(store, target)
    if len(target.episode_ids()) != total:
        raise ValueError("shards must hold different episodes, but some have the same id: a file is damaged")
    return MergeSummary(
        shards=len(shards),
        episodes=total,
        calls=calls,
        measured=tuple(store.path for _, store in shards if store.row_sources()),
        read=tuple(store.path for _, store in shards if _holds(store, "artifacts")),
    )


def _info(store: Store) -> dict[str, Any]:
    cells = store.entries("info")
    return {str(name): decode_json(value, f"info {name!r}").get("value") for name, value in cells}


def _holds(store: Store, table: str) -> bool:
    return bool(store.query(f"SELECT EXISTS (SELECT 1 FROM {table})")[0][0])


def _usage(store: Store, ids: Sequence[str]) -> dict[str, list[tuple[int, int, str, float]]]:
    costs = defaultdict(list)
    select = (
        f"SELECT episode_id, step, attempt, name, value FROM usage WHERE episode_id IN ({marks(ids)}) "
        "ORDER BY episode_id, step, attempt, name"
    )
    for episode, step, attempt, name, value in store.query(select, ids):
        if not (isinstance(name, str) and isinstance(value, float) and math.isfinite(value)):
            raise ValueError(f"{store.path} must hold costs as finite numbers by name, but not of {episode}: damaged")
        costs[episode].append((step, attempt, name, value))
    # The target computes new checksums, so damaged costs must be refused here.
    sums = store.sums.known("cost", ids)
    for episode in ids:
        store.sums.check(f"what {episode} cost", checksums.checksum(costs.get(episode, [])), sums.get(episode))
    return dict(costs)


def _copy_calls(store: Store, target: Store) -> int:
    """Copy the journal, with its answers, unchanged; return the number of its calls."""
    copied, last = 0, ""
    insert = f"INSERT INTO calls ({_CALL_COLUMNS}) VALUES ({marks(_CALL_COLUMNS)})"
    while page := store.entries("call", f"WHERE calls.id > ? ORDER BY calls.id LIMIT {_CALLS_PER_PAGE}", (last,)):
        for row in page:
            if row[6] == "done":
                decode_turn(row[10:])  # raises where the file is damaged
        with target.transaction() as database:
            database.executemany(insert, page)
            checksums.seal(database, "call", [row[0] for row in page])
        copied, last = copied + len(page), page[-1][0]
    return copied
