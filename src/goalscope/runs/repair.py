"""A damaged run.db: what of it is sound, copied into a new one; what is not, made again from what is.

Every entry, episode and source of rows is taken alone, found by scans from both ends, by the index, and by the keys of
checksums, since a page that cannot be read ends a scan. Only what fits its checksum is copied. Episodes that are lost
are played again from the journal, which asks nobody; those of scripted agents act anew, with the same result.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from goalscope.agents.agent import Agent, agent_id
from goalscope.runs import checksums
from goalscope.runs.checksums import Comparison
from goalscope.runs.codec import EPISODE_COLUMNS, STEP_COLUMNS
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.executors import answer
from goalscope.runs.journal import Journal, call_for
from goalscope.runs.opening import DirectoryLock, open_for_reading, sync
from goalscope.runs.record import EpisodeSpec
from goalscope.runs.sqlite_errors import explained
from goalscope.runs.store import Store
from goalscope.runs.stored_rows import damaged_rows, read_groups, write_rows
from goalscope.runs.study import Study
from goalscope.runs.tables import DATABASE, Usage
from goalscope.worlds.world import World

DAMAGED: Final = f"{DATABASE}.damaged"
"""What the file is called that was repaired; it is kept."""

_UNREADABLE = (sqlite3.Error, ValueError, TypeError, KeyError, UnicodeDecodeError)


@dataclass(slots=True)
class Repair:
    """What became of a run.

    Attributes:
        kept: how many of each kind are sound.
        lost: the names of those that are not, by kind.
        played: episodes that were lost and could be played again.
        unplayed: why others could not, by their ids.
        changed: whether a new file was put in the place of the old one.
    """

    kept: dict[str, int] = field(default_factory=dict)
    lost: dict[str, list[str]] = field(default_factory=dict)
    played: list[str] = field(default_factory=list)
    unplayed: dict[str, str] = field(default_factory=dict)
    changed: bool = False

    @property
    def sound(self) -> bool:
        """Whether nothing is lost."""
        return not self.lost

    def note(self, kind: str, kept: bool, name: str) -> None:
        """Count one that is kept, or name one that is lost."""
        if kept:
            self.kept[kind] = self.kept.get(kind, 0) + 1
        else:
            self.lost.setdefault(kind, []).append(name)


def repair(directory: str | Path, *, write: bool) -> Repair:
    """Say what of a run can be rebuilt, and with ``write`` do it.

    The new run.db is made beside the old one, which is kept as `run.db.damaged`. Files of activations and probes are
    not touched. Nothing at all is changed where everything is sound, or without ``write``.

    Raises:
        FileNotFoundError: there is no run.
        ValueError: the file is none of ours, or its first page is damaged: restore it from a copy.
        BlockingIOError: another process writes to the directory.
    """
    place = Path(directory)
    beside = place / ".run-new-repair"
    found = Repair()
    with closing(open_for_reading(place / DATABASE)) as database:
        pages = _try(lambda: database.execute("PRAGMA integrity_check(1)").fetchall()) == [("ok",)]
        lock = DirectoryLock(place)
        try:
            rmtree(beside, ignore_errors=True)
            with explained(place / DATABASE):
                comparison = Comparison(database, place / DATABASE)
            with Store(beside, "w") as target:
                _copy(database, comparison, target, found)
                if not pages:
                    found.lost.setdefault("pages of the file", []).append("SQLite finds some damaged")
                _play(target, found)
            if write and not found.sound:
                database.close()
                _exchange(place, beside)
                found.changed = True
        finally:
            rmtree(beside, ignore_errors=True)
            lock.release()
    return found


def _try(read: Callable[[], Any]) -> Any:
    """Return what can be read, None where it cannot."""
    with suppress(*_UNREADABLE):
        return read()
    return None


def _keys(database: sqlite3.Connection, table: str, name: str, kinds: Sequence[str]) -> list[Any]:
    """Return all keys of a table that can be found in any way, those of a plain scan first."""
    scans = [
        f"SELECT {name} FROM {table} {rest}" for rest in ("NOT INDEXED", f"ORDER BY {name}", f"ORDER BY {name} DESC")
    ]
    found: dict[Any, None] = {}
    for scan in scans:
        with suppress(*_UNREADABLE):
            for (key,) in database.execute(scan):
                found[key] = None
    for kind in kinds:
        with suppress(*_UNREADABLE):
            for (key,) in database.execute("SELECT key FROM checksums WHERE kind = ?", (kind,)):
                found[key] = None
    return list(found)


def _copy(database: sqlite3.Connection, comparison: Comparison, target: Store, found: Repair) -> None:
    with target.transaction() as new:
        new.execute("DELETE FROM info")
        checksums.clear(new)
    for kind in ("study", "info", "session", "agent", "world", "artifact", "call"):
        _copy_entries(database, comparison, target, kind, found)
    study = _try(target.study)
    if study is not None and found.lost.get("world"):
        before = set(_try(lambda: [world.id for world in target.worlds()]) or [])
        target.put_worlds(world for world in study.worlds() if world.id not in before)
    _copy_episodes(database, comparison, target, found)
    _copy_rows(database, comparison, target, found)


def _copy_entries(
    database: sqlite3.Connection, comparison: Comparison, target: Store, kind: str, found: Repair
) -> None:
    table, name = checksums.ENTRIES[kind]
    select = f"SELECT * FROM {table} WHERE {name} = ?"
    for key in _keys(database, table, name, [kind]):

        def read(key: Any = key) -> tuple[Any, ...]:
            (row,) = database.execute(select, (key,)).fetchall()
            comparison.check(kind, checksums.checksum(tuple(row)), comparison.known(kind, [key]).get(key))
            return tuple(row)

        row = _try(read)
        found.note(kind, row is not None, f"{key!r:.80}")
        if row is not None:
            with target.transaction() as new:
                new.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
                checksums.seal(new, kind, [key])


def _copy_episodes(database: sqlite3.Connection, comparison: Comparison, target: Store, found: Repair) -> None:
    wanted = {key for key in _keys(database, "episodes", "id", ["cost"]) if isinstance(key, str)}
    kept = set[str]()
    for number in _keys(database, "episodes", "number", ["walk", "said"]):
        identity = _try(lambda number=number: _copy_episode(database, comparison, target, number))  # type: ignore[misc]
        if identity is not None:
            kept.add(identity)
            found.note("episodes", True, identity)
    for identity in sorted(wanted - kept):
        found.note("episodes", False, identity)


def _copy_episode(database: sqlite3.Connection, comparison: Comparison, target: Store, number: Any) -> str:
    (header,) = database.execute(f"SELECT {EPISODE_COLUMNS} FROM episodes WHERE number = ?", (number,)).fetchall()
    steps = database.execute(f"SELECT {STEP_COLUMNS} FROM steps WHERE episode = ? ORDER BY step", (number,)).fetchall()
    comparison.check_episodes([(number, *header)], {number: steps})
    identity = str(header[0])
    stored = comparison.known("cost", [identity]).get(identity)
    comparison.check("what an episode cost", checksums.cost_sum(database, identity), stored)
    select = "SELECT step, attempt, name, value FROM usage WHERE episode_id = ? ORDER BY step, attempt, name"
    cost: Usage = database.execute(select, (identity,)).fetchall()
    episode = target.decoded(header, steps)
    target.put_episodes([episode], usage={identity: cost})
    return identity


def _copy_rows(database: sqlite3.Connection, comparison: Comparison, target: Store, found: Repair) -> None:
    counted = _try(comparison.counted_sources) or set()
    listed = {source for table in ("rows", "row_groups") for source in _keys(database, table, "source", ())}
    for source in sorted({*counted, *(source for source in listed if isinstance(source, str))}):
        problem = damaged_rows(database, comparison, source)
        found.note("rows", not problem, source)
        if not problem:
            with target.transaction() as new:
                write_rows(new, read_groups(database, comparison, source), source)


# Episodes from the journal


def _play(store: Store, found: Repair) -> None:
    """Play lost episodes again into a store; the agents of the study are built, and no model is asked."""
    lost = set(found.lost.get("episodes", ()))
    study = _try(store.study)
    if not lost or study is None:
        found.unplayed |= dict.fromkeys(lost, "the run has no study: import its logs again")
        return
    try:
        agents = study.agents()
    except (ValueError, OSError, ImportError) as error:
        found.unplayed |= dict.fromkeys(lost, f"the agents of the study cannot be built here: {error}"[:300])
        return
    journal = Journal(store)
    for spec, world, agent in study.specs(agents):
        if spec.id in lost:
            if (problem := _play_one(store, journal, study, spec, world, agent)) is None:
                found.played.append(spec.id)
            else:
                found.unplayed[spec.id] = problem
            lost.discard(spec.id)
    found.unplayed |= dict.fromkeys(lost, "the study does not name it")


def _play_one(
    store: Store, journal: Journal, study: Study, spec: EpisodeSpec, world: World, agent: Agent
) -> str | None:
    """Play one episode and store it; return why it cannot be, None where it was."""
    told = bool(getattr(agent, "knows_world", False))
    rules = study.history_of(agent), study.failure_of(agent)
    live, identity = LiveEpisode(spec, world, study, *rules, knows_world=told), agent_id(agent)
    while live.outcome is None:
        observation = live.observe()
        if agent.journalled:
            turn = journal.find(call_for(agent, identity, observation))
            if turn is None:
                return f"the journal lacks the answer to step {observation.step}: goalscope run asks for it"
        else:
            (turn,) = answer(agent, [observation])
        live.apply(turn)
    episode = live.record(agent.name, getattr(agent, "tags", None))
    store.put_episodes([episode], usage={episode.id: live.usage})
    return None


def _exchange(place: Path, beside: Path) -> None:
    """Put the new file in the place of the old one, which is kept with its log under another name."""
    old, ends = place / DATABASE, ("", "-wal")
    for end in ends:
        source, kept = Path(f"{old}{end}"), place / f"{DAMAGED}{end}"
        if source.exists():
            kept.unlink(missing_ok=True)
            os.link(source, kept)
    sync(place)
    for end in ("-wal", "-shm"):  # SQLite would take the old log for the new file's
        Path(f"{old}{end}").unlink(missing_ok=True)
    (beside / DATABASE).replace(old)
    sync(place)


def lines(found: Repair) -> Iterator[str]:
    """Yield what became of a run, in words."""
    named = {"rows": "sources of rows"}  # the rows of one measurement are kept or lost together
    kept = ", ".join(f"{number:,} {named.get(kind, kind)}" for kind, number in found.kept.items())
    yield f"sound: {kept or 'nothing'}"
    for kind, names in found.lost.items():
        more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
        yield f"damaged: {kind}: {', '.join(names[:5])}{more}"
    if found.played:
        yield f"{len(found.played):,} lost episodes can be played again without asking a model"
    for why in dict.fromkeys(found.unplayed.values()):
        names = [name for name, said in found.unplayed.items() if said == why]
        yield f"{len(names):,} lost episodes cannot be played again ({names[0]}): {why}"
