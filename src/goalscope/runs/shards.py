"""Shards of a study, which divide its episodes into n parts that different machines can run, and their merging.

The parts depend only on the study, not on the state of a run. All trajectories of one agent in one world form a unit;
units are numbered in the order of the study (agent by agent, world by world), and shard k of n has the units k - 1,
k - 1 + n, k - 1 + 2 n, ... So all shards have about the same number of worlds of each size. The merged run
equals a run of the whole study.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from goalscope._ground.folder import Folder
from goalscope._ground.untrusted import DamagedError
from goalscope.agents.agent import agent_id
from goalscope.runs import tables
from goalscope.runs.codec import TURN_COLUMNS, decode_json, decode_turn
from goalscope.runs.provenance import FIRST_TURNS, SERVERS, session
from goalscope.runs.store import Store
from goalscope.runs.study import Study
from goalscope.runs.tables import DATABASE, insert_study, marks, remove_episodes

Item = TypeVar("Item")

_INFO = "shard"
_MAX_SHARDS = 100_000


@dataclass(frozen=True, slots=True, order=True)
class StudyShard:
    """Shard of a study: a part that can be run separately, e.g. on another machine. ``3/16`` is the third of 16 parts.

    Attributes:
        number: number of the part, counted from 1.
        of: number of parts.

    Raises:
        ValueError: if a number is out of range.
    """

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of <= _MAX_SHARDS:
            raise ValueError(
                f"a shard must be K/N with 1 <= K <= N <= {_MAX_SHARDS:,}, got {self}: the first of 16 parts is 1/16"
            )

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a shard (a part of a study that is run separately) from a text such as ``3/16``, the third of 16 parts.

        Raises:
            ValueError: the text has another form, or a number is out of range.
        """
        if not re.fullmatch(r"[0-9]{1,6}/[0-9]{1,6}", text):
            raise ValueError(f"a shard must be K/N, e.g. 3/16 for the third of 16 parts, got {text!r}")
        number, of = map(int, text.split("/"))
        return cls(number, of)

    def part(self, specified: Iterable[Item], trajectories: int) -> Iterator[Item]:
        """Yield those episodes of a study that belong to this shard.

        Args:
            specified: all episodes of the study, in the order of `Study.specs`.
            trajectories: number of episodes per agent and world, which always belong to the same shard.
        """
        for index, item in enumerate(specified):
            if (index // trajectories) % self.of == self.number - 1:
                yield item


def shard_of(store: Store) -> StudyShard | None:
    """Return which shard (part) of its study a run directory is for; None if it is for the whole study.

    Raises:
        DamagedError, ValueError: the stored value is not a shard.
    """
    cells = store.query("SELECT value FROM info WHERE name = ?", (_INFO,))
    value: Any = store.info().get(_INFO) if cells else None
    if value is None:
        return None
    if not isinstance(value, str):
        raise DamagedError(f"{store.path} must name its shard as text, got {type(value).__name__}: the file is damaged")
    return StudyShard.parse(value)


def keep_to_shard(store: Store, shard: StudyShard | None) -> None:
    """Record in a new run directory which shard (part) of its study it is for; in an existing one, check that it is the
    same.

    Args:
        store: the run, open for writing.
        shard: the shard; None for the whole study.

    Raises:
        ValueError: the directory was begun with another shard.
    """
    if not store.query("SELECT EXISTS (SELECT 1 FROM sessions)")[0][0]:
        store.put_info(_INFO, None if shard is None else str(shard))
        return
    stored = shard_of(store)
    if stored != shard:
        stored_part, requested = (f"shard {part}" if part else "the whole study" for part in (stored, shard))
        advice = f"give --shard {stored}" if stored else "leave --shard out"
        raise ValueError(
            f"{store.path} was begun with {stored_part}, got {requested}: {advice}, or choose another directory"
        )


def listed_units(store: Store) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the agents of a run as (id, name), and the ids of its worlds, both in the order of its study.

    Together with the number of trajectories they determine which episodes belong to each shard of the study.
    """
    agents = store.query("SELECT id, name FROM agents ORDER BY rowid")
    worlds = store.query("SELECT id FROM worlds ORDER BY rowid")
    return [(identity, name) for identity, name in agents], [identity for (identity,) in worlds]


def episodes_of(
    shard: StudyShard, agents: Sequence[tuple[str, str]], worlds: Sequence[str], trajectories: int
) -> set[tuple[str, str, int]]:
    """Return (agent id, world id, trajectory) of each episode that belongs to a shard (part) of a study.

    Args:
        shard: the shard.
        agents: (id, name) of each agent, in the order of the study.
        worlds: id of each world, in the order of the study.
        trajectories: number of episodes per agent and world.
    """
    units = (
        (agent, world, trajectory) for agent, _ in agents for world in worlds for trajectory in range(trajectories)
    )
    return set(shard.part(units, trajectories))


_EPISODES_PER_PAGE = 256  # number of items copied at a time
_CALLS_PER_PAGE = 1024
_FOLDERS = ("activations", "probes")
_CALL_COLUMNS = f"id, agent_id, prompt, episode_id, step, attempt, state, lost, sent, done, {TURN_COLUMNS}"
_TABLES = (
    *("info", "sessions", "study", "agents", "worlds", "calls", "episodes", "steps", "usage", "row_groups"),
    "artifacts",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSummary:
    """What a run that was merged from the shards (parts) of a study contains.

    Attributes:
        shards: number of shards.
        episodes: number of episodes.
        calls: number of journalled calls.
        measured: directories of shards that have values of measures; these are not merged, so the merged run must be
            measured again.
        read: directories of shards that have activations or probes; these are not merged, so the merged run must be
            captured again.
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
    """Write the run of a whole study from the runs of all its shards (parts that were run separately).

    Study, agents, worlds, episodes, journal, costs and sessions are copied; the shards are only read. Values of
    measures, activations and probes are not copied, because some measures compare worlds across shards. The run has a
    temporary name until it is complete, so that an interrupted merge leaves no partial run and can be repeated.

    Args:
        shards: the run directories, in any order.
        directory: the new run directory; it must be empty or not exist.
        progress: called with (episodes copied, total number of episodes).
        arguments: the user's arguments, for the record; see `provenance.session`.

    Returns:
        What the merged run contains.

    Raises:
        FileNotFoundError: a shard has no `run.db`.
        FileExistsError: the directory is not empty.
        ValueError: a shard is missing, repeated, unfinished, damaged, not a shard, or from another study.
        BlockingIOError: another process is merging into the same directory.
    """
    out = Path(directory)
    parent = Folder(out.parent)
    if not parent.is_free(out.name):
        raise FileExistsError(f"{out} already exists and is not empty: merge into a new directory")
    with ExitStack() as opened:
        stores = [opened.enter_context(Store(path)) for path in shards]
        ordered, study = _sorted_shards(stores)
        partial = parent.below(f".{out.name}.merging")
        with Store(partial.checked(), "w", durability=study.durability) as target:
            _clear(target)  # remove the contents of an interrupted merge
            summary = _fill(target, ordered, study, progress, arguments)
    parent.move(partial.path.name, out.name)  # also replaces an empty directory
    parent.sync()
    return summary


def grow(store: Store, study: Study) -> None:
    """Turn an open run into the start of a larger study, so that episodes that belong to both studies are not run
    again.

    Episodes and costs are kept if the larger study has the same episode; the journal and the server checks are kept as
    they are. Values of measures, activations and probes are deleted, since they describe the smaller study. All of it
    is one transaction. An empty run, or one of the same study, is left unchanged.

    Args:
        store: the run, open for writing.
        study: the larger study.

    Raises:
        ValueError: the run contains imported trajectories, or is damaged.
    """
    stored = store.study()
    if stored is None and not store.episode_ids():
        return
    if stored is None:
        raise ValueError(f"only the run of a study can grow, but {store.path} contains none: choose another directory")
    if stored.id == study.id:
        return
    _check_sound(store)
    agents = study.agents()
    kept_rows = {
        "episodes": {spec.id for spec, _, _ in study.specs(agents)},
        "worlds": {world.id for world in study.worlds()},
        "agents": {agent_id(agent) for agent in agents},
        "info": {"durability", "journal_mode", "journal_notice", SERVERS, FIRST_TURNS},
    }
    dropped, sources = store.episode_ids() - kept_rows["episodes"], store.row_sources()
    with store.transaction() as database:
        remove_episodes(database, sorted(dropped))
        for source in sources:
            store.stored_rows.forget(source)
        for kind in ("world", "agent", "info", "artifact", "study"):
            table, name = tables.ENTRIES[kind]
            keys = [
                key for (key,) in database.execute(f"SELECT {name} FROM {table}") if key not in kept_rows.get(table, ())
            ]
            database.executemany(f"DELETE FROM {table} WHERE {name} = ?", [(key,) for key in keys])
            tables.seal(database, kind, keys)
        insert_study(database, study)
    for folder in _FOLDERS:  # these files are no longer listed, so they do no harm if the process dies here
        Folder(store.settled()).below(folder).checked()
        Folder(store.settled()).remove_folder(folder)


def _sorted_shards(stores: Sequence[Store]) -> tuple[list[tuple[StudyShard, Store]], Study]:
    """Sort the shards, and return them with their study.

    Raises:
        ValueError: if they are not all shards of one study.
    """
    if not stores:
        raise ValueError("merge needs at least one shard, got none")
    by_shard: dict[StudyShard, Store] = {}
    first, study = stores[0], None
    for store in stores:
        _check_sound(store)
        store_study, shard = store.study(), shard_of(store)
        if store_study is None or shard is None:
            content = "imported trajectories" if store_study is None else "a run of a whole study"
            raise ValueError(
                f"{store.path} contains {content}, not a shard (`goalscope run STUDY --shard 1/16 --out DIR` "
                "writes one): leave it out, and compare whole runs with `goalscope compare RUN OTHER`"
            )
        study = study or store_study
        if store_study.id != study.id:
            raise ValueError(
                f"all shards must belong to one study, but the study of {store.path} differs from that of "
                f"{first.path}:\n{study.difference(store_study)}\nleave it out"
            )
        if store_study.analysis != study.analysis:
            raise ValueError(
                f"all shards must declare the same analysis, but {store.path} and {first.path} differ: merge "
                "shards that agree, or run this shard again with the study of the others"
            )
        if by_shard and shard.of != next(iter(by_shard)).of:
            raise ValueError(
                f"all shards must come from one division of the study, but {store.path} is shard {shard} and "
                f"{first.path} is shard {next(iter(by_shard))}: leave one of them out"
            )
        if shard in by_shard:
            raise ValueError(f"{by_shard[shard].path} and {store.path} are both shard {shard}: leave one of them out")
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
        further = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        raise ValueError(
            f"merge needs all {count} shards, missing: {', '.join(missing[:8])}{further}; run them, or "
            "add their directories"
        )
    return sorted(by_shard.items(), key=lambda item: item[0]), study


def _check_sound(store: Store) -> None:
    [(verdict,), *_] = store.query("PRAGMA quick_check(1)")
    if verdict != "ok":
        raise ValueError(f"{store.path / DATABASE} is damaged ({verdict}): run the shard again")


def _check_complete(store: Store, shard: StudyShard, expected: set[tuple[str, str, int]]) -> None:
    stored = set(store.query("SELECT agent_id, world_id, trajectory FROM episodes NOT INDEXED"))
    if foreign := stored - expected:
        raise ValueError(
            f"{store.path} contains {len(foreign)} episodes that do not belong to shard {shard}: run the "
            "shard again in a new directory"
        )
    if missing := expected - stored:
        raise ValueError(
            f"{store.path} lacks {len(missing):,} of its {len(expected):,} episodes: finish it by running "
            f"the same study with --shard {shard} on this directory"
        )


def _clear(target: Store) -> None:
    with target.transaction() as database:
        for table in _TABLES:
            database.execute(f"DELETE FROM {table}")
        tables.clear(database)


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
            raise ValueError(f"{store.path} is damaged: the costs of episode {episode} are not finite numbers")
        costs[episode].append((step, attempt, name, value))
    # The target computes new checksums, so damaged costs must be detected here.
    sums = store.sums.known("cost", ids)
    for episode in ids:
        store.sums.check(f"what {episode} cost", tables.checksum(costs.get(episode, [])), sums.get(episode))
    return dict(costs)


def _copy_calls(store: Store, target: Store) -> int:
    """Copy the journal, with its answers, unchanged; return the number of its calls."""
    copied, last = 0, ""
    insert = f"INSERT INTO calls ({_CALL_COLUMNS}) VALUES ({marks(_CALL_COLUMNS)})"
    while page := store.entries("call", f"WHERE calls.id > ? ORDER BY calls.id LIMIT {_CALLS_PER_PAGE}", (last,)):
        for row in page:
            if row[6] == "done":
                decode_turn(row[10:])  # raises an error if the file is damaged
        with target.transaction() as database:
            database.executemany(insert, page)
            tables.seal(database, "call", [row[0] for row in page])
        copied, last = copied + len(page), page[-1][0]
    return copied
