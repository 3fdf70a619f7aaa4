"""The shards of a study put together: one run directory that holds what one run of the whole study would hold."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from goalscope.agents.agent import agent_id
from goalscope.runs import checksums
from goalscope.runs.codec import TURN_COLUMNS, decode_json, decode_turn
from goalscope.runs.opening import sync
from goalscope.runs.provenance import session
from goalscope.runs.server_checks import INFO as SERVERS
from goalscope.runs.store import Store
from goalscope.runs.study import Study
from goalscope.runs.study_shard import StudyShard, episodes_of, listed_units, shard_of
from goalscope.runs.tables import DATABASE, marks

_EPISODES = 256  # copied at a time
_CALLS = 1024
_CALL = f"id, agent_id, prompt, episode_id, step, attempt, state, lost, sent, done, {TURN_COLUMNS}"
_TABLES = (
    *("info", "sessions", "study", "agents", "worlds", "calls", "episodes", "steps", "usage", "rows", "row_groups"),
    "artifacts",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSummary:
    """What was put together.

    Attributes:
        shards: number of shards.
        episodes: number of episodes.
        calls: number of journalled calls.
        measured: shards that hold rows of measures; the merged run is to be measured anew.
        read: shards that hold activations or probes; the merged run is to be captured anew.
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

    Study, agents, worlds, episodes, journal, costs and sessions are taken over; the shards are only read. Rows of
    measures, activations and probes are not: measures of a whole run may compare worlds that lie in different shards.
    The run is written beside its place and renamed into it once it is whole, so that an interrupted merge leaves no
    half of it and can be repeated.

    Args:
        shards: the run directories, in any order.
        directory: the run directory to be made; must be empty or not be there.
        progress: told (episodes copied, episodes in all).
        arguments: what the user passed, for the record; see `provenance.session`.

    Returns:
        What was put together.

    Raises:
        FileNotFoundError: a shard without `run.db`.
        FileExistsError: the directory holds something.
        ValueError: a shard is missing, given twice, unfinished, damaged, no shard, or of another study.
        BlockingIOError: another process merges into the same directory.
    """
    out = Path(directory)
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise FileExistsError(f"shards must be merged into a new directory, but {out} is there: choose another one")
    with ExitStack() as opened:
        stores = [opened.enter_context(Store(path)) for path in shards]
        ordered, study = _checked(stores)
        beside = out.with_name(f".{out.name}.merging")
        with Store(beside, "w", durability=study.durability) as target:
            _clear(target)  # of a merge that was cut short
            summary = _fill(target, ordered, study, progress, arguments)
    beside.rename(out)  # over an empty directory, too
    sync(out.absolute().parent)
    return summary


@contextmanager
def _in_its_place(place: Path, study: Study) -> Iterator[Store]:
    """Give an empty run of a study that is written beside its place and takes it once it is whole."""
    beside, old = (place.with_name(f".{place.name}.{name}") for name in ("growing", "old"))
    with Store(beside, "w", durability=study.durability) as target:
        _clear(target)  # of an attempt that was cut short
        yield target
    if place.exists():
        place.rename(old)
    beside.rename(place)
    sync(place.absolute().parent)
    if old.exists():
        rmtree(old)


def settle(directory: str | Path) -> None:
    """Put a run back in its place where `grow` was cut short while it exchanged two directories."""
    place = Path(directory)
    old = place.with_name(f".{place.name}.old")
    if old.exists() and place.exists():
        rmtree(old)  # what took its place is whole
    elif old.exists():
        old.rename(place)


def grow(directory: str | Path, study: Study) -> int:
    """Make a run the beginning of a larger study: what both have in common is taken over and not asked again.

    Episodes, journal and costs are kept where the larger study has the same episode, and the trials of servers; rows,
    activations and probes are not, since they speak of the smaller one. A run that cannot be made whole is left as it
    was.

    Args:
        directory: the run directory; must hold a run of some study.
        study: the larger study.

    Returns:
        The number of episodes taken over.

    Raises:
        ValueError: the directory holds no run of a study, or a damaged one.
        BlockingIOError: another process runs on the directory.
    """
    place = Path(directory)
    settle(place)
    with _in_its_place(place, study) as target, Store(place, "w") as store:
        if store.study() is None:
            raise ValueError(f"only the run of a study can grow, but {place} holds none: choose another directory")
        _check_sound(store)
        if (tried := store.info().get(SERVERS)) is not None:  # trials of servers are calls, too, and count in caps
            target.put_info(SERVERS, tried)
        kept = _take_over(store, target, study)
        _copy_calls(store, target)
    return kept


def excerpt(directory: str | Path, study: Study, out: str | Path) -> int:
    """Write a run of those episodes of another run that are those of a smaller study, e.g. of one of its agents.

    The journal is not taken over: calls and their costs stay with the run that made them. Neither are rows, activations
    and probes. It is written beside its place and renamed into it once it is whole; what lies there is replaced.

    Args:
        directory: the run directory; is only read.
        study: the smaller study.
        out: the run directory to be made.

    Returns:
        The number of episodes taken over.

    Raises:
        ValueError: the run does not hold all episodes of the smaller study, or is damaged.
        BlockingIOError: another process writes to the directory to be made.
    """
    place = Path(out)
    settle(place)
    with _in_its_place(place, study) as target, Store(directory) as store:
        _check_sound(store)
        wanted = sum(1 for _ in study.specs(study.agents()))
        kept = _take_over(store, target, study)
        if kept < wanted:
            raise ValueError(
                f"an excerpt must find all episodes of its study in {directory}, it finds {kept:,} of {wanted:,}: "
                "finish the run first"
            )
    return kept


def _take_over(store: Store, target: Store, study: Study) -> int:
    """Copy what two studies have in common, but for the journal; return how many episodes that are."""
    agents = study.agents()
    target.put_study(study)
    target.put_agents([(agent_id(agent), agent.name, agent.describe()) for agent in agents])
    target.put_worlds(study.worlds())
    for document in store.info()["sessions"]:
        target.put_session(document)
    kept = sorted({spec.id for spec, _, _ in study.specs(agents)} & store.episode_ids())
    for begin in range(0, len(kept), _EPISODES):
        page = kept[begin : begin + _EPISODES]
        target.put_episodes(store.episodes(page), usage=_usage(store, page))
    return len(kept)


def _checked(stores: Sequence[Store]) -> tuple[list[tuple[StudyShard, Store]], Study]:
    """Return the shards in their order, and their study, once they are found to be all of it."""
    if not stores:
        raise ValueError("a merge must be given at least one shard, got none")
    found: dict[StudyShard, Store] = {}
    first, study = stores[0], None
    for store in stores:
        _check_sound(store)
        given, shard = store.study(), shard_of(store)
        if given is None or shard is None:
            what = "imported trajectories" if given is None else "a run of a whole study"
            raise ValueError(
                f"a merge must be given shards (goalscope run STUDY --shard 1/16 writes one), but {store.path} holds "
                f"{what}: leave it out"
            )
        study = study or given
        if given.id != study.id:
            raise ValueError(
                f"all shards must be of one study, but {store.path} is of another one than {first.path}:\n"
                f"{study.difference(given)}\nleave it out"
            )
        if given.analysis != study.analysis:
            raise ValueError(
                f"all shards must declare the same analysis, but {store.path} declares another one than {first.path}: "
                "merge those that agree, or run that shard again with the study of the others"
            )
        if found and shard.of != next(iter(found)).of:
            raise ValueError(
                f"all shards must be of one division, but {store.path} is shard {shard} and {first.path} is shard "
                f"{next(iter(found))}: leave one of them out"
            )
        if shard in found:
            raise ValueError(
                f"each shard must be given once, but {found[shard].path} and {store.path} are both shard {shard}: "
                "leave one of them out"
            )
        found[shard] = store
    assert study is not None
    units = listed_units(first)
    for shard, store in found.items():
        if listed_units(store) != units:
            raise ValueError(
                f"all shards must have the same agents and worlds, but those of {store.path} differ from those of "
                f"{first.path}: run it again with the same version of goalscope and the same agents"
            )
        _check_whole(store, shard, episodes_of(shard, *units, study.trajectories))
    of = next(iter(found)).of
    if missing := [str(StudyShard(number, of)) for number in range(1, of + 1) if StudyShard(number, of) not in found]:
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        raise ValueError(
            f"a merge must be given all {of} shards, missing: {', '.join(missing[:8])}{more}; run them, or give their "
            "directories, too"
        )
    return sorted(found.items(), key=lambda item: item[0]), study


def _check_sound(store: Store) -> None:
    [(verdict,), *_] = store.query("PRAGMA quick_check(1)")
    if verdict != "ok":
        raise ValueError(
            f"{store.path / DATABASE} must be a sound SQLite file, but it is damaged ({verdict}): run the shard again"
        )


def _check_whole(store: Store, shard: StudyShard, wanted: set[tuple[str, str, int]]) -> None:
    there = set(store.query("SELECT agent_id, world_id, trajectory FROM episodes NOT INDEXED"))
    if foreign := there - wanted:
        raise ValueError(
            f"a shard must hold its own episodes only, but {store.path} holds {len(foreign)} that are not of shard "
            f"{shard}: run the shard again in a new directory"
        )
    if lacking := wanted - there:
        raise ValueError(
            f"each shard must be finished, but {store.path} lacks {len(lacking):,} of its {len(wanted):,} episodes: "
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
    described = first.agents()
    target.put_study(study)
    target.put_agents([(identity, *described[identity]) for identity, _ in listed_units(first)[0]])
    target.put_worlds(first.world(identity) for identity in listed_units(first)[1])
    for shard, store in shards:
        for document in store.info()["sessions"]:
            target.put_session({**document, "shard": str(shard)})
    target.put_session(session(arguments))
    target.put_info("shards", {str(shard): _settings(store) for shard, store in shards})
    ids = {shard: sorted(store.episode_ids()) for shard, store in shards}
    total, copied, calls = sum(map(len, ids.values())), 0, 0
    for shard, store in shards:
        for begin in range(0, len(ids[shard]), _EPISODES):
            page = ids[shard][begin : begin + _EPISODES]
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


def _settings(store: Store) -> dict[str, Any]:
    cells = store.entries("info")
    return {str(name): decode_json(value, f"info {name!r}").get("value") for name, value in cells}


def _holds(store: Store, table: str) -> bool:
    return bool(store.query(f"SELECT EXISTS (SELECT 1 FROM {table})")[0][0])


def _usage(store: Store, ids: Sequence[str]) -> dict[str, list[tuple[int, int, str, float]]]:
    found = defaultdict(list)
    select = (
        f"SELECT episode_id, step, attempt, name, value FROM usage WHERE episode_id IN ({marks(ids)}) "
        "ORDER BY episode_id, step, attempt, name"
    )
    for episode, step, attempt, name, value in store.query(select, ids):
        if not (isinstance(name, str) and isinstance(value, float) and math.isfinite(value)):
            raise ValueError(f"{store.path} must hold costs as finite numbers by name, but not of {episode}: damaged")
        found[episode].append((step, attempt, name, value))
    # What is put gets a checksum of its own, so what is damaged must not come so far.
    sums = store.sums.known("cost", ids)
    for episode in ids:
        store.sums.check(f"what {episode} cost", checksums.checksum(found.get(episode, [])), sums.get(episode))
    return dict(found)


def _copy_calls(store: Store, target: Store) -> int:
    """Copy the journal, answers that an agent gave among them, as it stands; return how many calls it holds."""
    copied, last = 0, ""
    insert = f"INSERT INTO calls ({_CALL}) VALUES ({marks(_CALL)})"
    while page := store.entries("call", f"WHERE calls.id > ? ORDER BY calls.id LIMIT {_CALLS}", (last,)):
        for row in page:
            if row[6] == "done":
                decode_turn(row[10:])  # raises where the file is damaged
        with target.transaction() as database:
            database.executemany(insert, page)
            checksums.seal(database, "call", [row[0] for row in page])
        copied, last = copied + len(page), page[-1][0]
    return copied
