"""Verify a run.db by its checksums, content ids and SQLite's own integrity check, and repair it if it is damaged.

A repair copies the sound parts to a new file, and replays lost episodes. Every entry, episode and source of rows is
read separately. An unreadable page ends a scan, so keys are collected by scans from both ends, from the index, and from
the checksums. Only parts that match their checksum are copied. Lost episodes are replayed from the journal, without a
model; scripted agents act again, with the same result.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from goalscope._ground.folder import Folder
from goalscope._ground.ids import content_id
from goalscope._ground.untrusted import AbsentPartError
from goalscope.agents.agent import Agent, agent_id, check_usage
from goalscope.runs import tables
from goalscope.runs.codec import EPISODE_COLUMNS, PackedSteps, decode_json, decode_turn
from goalscope.runs.dispatch import answer
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.journal import Call, Journal, call_for
from goalscope.runs.opening import DirectoryLock, open_for_reading
from goalscope.runs.record import EpisodeSpec
from goalscope.runs.store import Store
from goalscope.runs.stored_rows import StoredRows
from goalscope.runs.study import Study
from goalscope.runs.tables import DATABASE, Comparison, Usage, explained
from goalscope.worlds.world import World

_PAGES: Final = "pages of the file"
_ADVICE: Final = {
    _PAGES: "goalscope doctor RUN --repair copies what is sound into a new file",
    "episodes": "goalscope doctor RUN --repair takes them out, and plays those again whose answers are in the journal",
    "costs": "goalscope doctor RUN --repair takes the episodes out and plays them again",
    "call": "goalscope doctor RUN --repair takes them out; goalscope run asks again where an episode needs them",
    "rows": "goalscope doctor RUN --repair takes them out; measure, probe or patch again",
    "artifact": "goalscope doctor RUN --repair takes them out; capture or probe again",
}
_OTHER_ADVICE: Final = (
    "goalscope doctor RUN --repair tells whether the rest can be kept; else restore the file from a copy"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPart:
    """The result of verifying one kind of a run's contents, such as its episodes.

    Attributes:
        what: name of the kind.
        checked: how many of this kind were checked.
        damaged: descriptions of those that are damaged.
    """

    what: str
    checked: int
    damaged: tuple[str, ...] = ()

    @property
    def mend(self) -> str:
        """An instruction for the user that says what to do if this part of the run is damaged."""
        return _ADVICE.get(self.what, _OTHER_ADVICE)


def verify(store: Store) -> Iterator[VerifiedPart]:
    """Compare all contents of a run with their checksums, and yield the result for each kind as soon as it is checked.

    The kinds are the pages of the file, entries such as study, agents, worlds and calls, episodes, costs, and rows
    (values of measures).

    Raises:
        AbsentPartError: a package that the run's worlds need is not installed here.
    """
    with store.snapshot() as database:
        yield _pages(database)
        comparison = store.sums
        for kind in tables.ENTRIES:
            yield _guarded(kind, lambda kind=kind: _entries(database, comparison, kind))  # type: ignore[misc]
        yield _guarded("episodes", lambda: _episodes(store, database))
        yield _guarded("costs", lambda: _costs(database))
        yield _guarded("rows", lambda: _rows(database, comparison))


def damage(store: Store) -> list[str]:
    """Return one description, with advice, for each kind of a run's contents that is damaged; empty if nothing is."""
    return [f"{part.what}: {'; '.join(part.damaged[:5])} ({part.mend})" for part in verify(store) if part.damaged]


def _guarded(what: str, check: Callable[[], VerifiedPart]) -> VerifiedPart:
    """Check one kind of content, which counts as damaged if it is unreadable."""
    try:
        return check()
    except AbsentPartError:
        raise
    except (sqlite3.Error, ValueError, TypeError, UnicodeDecodeError) as error:
        return VerifiedPart(what=what, checked=0, damaged=(str(error)[:300],))


def _pages(database: sqlite3.Connection) -> VerifiedPart:
    try:
        ((pages,),) = database.execute("PRAGMA page_count").fetchall()
        problems = [line for (line,) in database.execute("PRAGMA integrity_check(20)") if line != "ok"]
    except sqlite3.Error as error:
        return VerifiedPart(what=_PAGES, checked=0, damaged=(str(error),))
    return VerifiedPart(what=_PAGES, checked=pages, damaged=tuple(problems))


def _entries(database: sqlite3.Connection, comparison: Comparison, kind: str) -> VerifiedPart:
    table, name = tables.ENTRIES[kind]
    checked = with_checksum = 0
    damaged = list[str]()
    for (key,) in database.execute(f"SELECT {name} FROM {table} ORDER BY {name}").fetchall():
        checked += 1
        row = database.execute(f"SELECT * FROM {table} WHERE {name} = ?", (key,)).fetchone()
        stored = comparison.known(kind, [key]).get(key)
        with_checksum += stored is not None
        if row is None or stored is None:
            damaged.append(f"{key!r:.80} has no checksum" if row else f"{key!r:.80} is not found by its name")
        elif stored != tables.checksum(tuple(row)):
            damaged.append(f"{key!r:.80}")
        elif problem := _identity(kind, row):
            damaged.append(problem)
    ((expected,),) = database.execute("SELECT count(*) FROM checksums WHERE kind = ?", (kind,)).fetchall()
    if expected > with_checksum:
        damaged.append(f"{expected - with_checksum} are gone")
    return VerifiedPart(what=kind, checked=checked, damaged=tuple(damaged))


def _identity(kind: str, row: tuple[Any, ...]) -> str:
    """Return the problem with the content id of an entry, or ""."""
    if kind == "agent" and row[0] != (computed := content_id("agent", decode_json(row[2], "an agent"))):
        return f"agent {row[0]!r:.80} must have the content id {computed}"
    if kind == "call":
        agent, prompt, episode, step, attempt = row[1:6]
        call = Call(agent_id=agent, prompt=prompt, episode_id=episode, step=step, attempt=attempt)
        if call.id != row[0]:
            return f"call {row[0]!r:.80} must have the content id {call.id}"
        if row[6] == "done":
            check_usage(decode_turn(row[10:]).usage)
    return ""


def _episodes(store: Store, database: sqlite3.Connection) -> VerifiedPart:
    damaged = list[str]()
    numbers = [number for (number,) in database.execute("SELECT number FROM episodes NOT INDEXED ORDER BY number")]
    for number in numbers:
        try:
            check_episode(store, database, number)
        except AbsentPartError:
            raise
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            damaged.append(str(error)[:200])
    try:
        indexed = [page_row[0] for page in store.pages() for page_row in page]
        if sorted(indexed) != numbers:
            damaged.append("the index of episodes does not name those that there are")
    except ValueError as error:
        damaged.append(str(error)[:200])
    return VerifiedPart(what="episodes", checked=len(numbers), damaged=tuple(damaged))


def check_episode(store: Store, database: sqlite3.Connection, number: int) -> None:
    """Check that a stored episode and its steps match their checksums and can be decoded.

    Args:
        store: the run.
        database: the run's open database.
        number: number of the episode in its table.

    Raises:
        ValueError: they do not, or there is no such episode.
    """
    header = database.execute(f"SELECT {EPISODE_COLUMNS} FROM episodes WHERE number = ?", (number,)).fetchone()
    if header is None:
        raise ValueError(f"episode number {number} is not found by its number")
    steps = store.steps_of([number])
    store.sums.check_episodes([(number, *header)], steps)
    store.decoded(header, steps[number])


def _costs(database: sqlite3.Connection) -> VerifiedPart:
    ((count,),) = database.execute("SELECT count(DISTINCT episode_id) FROM usage").fetchall()
    damaged = tuple(f"what {identity} cost" for identity in tables.costs_that_differ(database))
    return VerifiedPart(what="costs", checked=count, damaged=damaged)


def _rows(database: sqlite3.Connection, comparison: Comparison) -> VerifiedPart:
    rows, checked, damaged = StoredRows(database, comparison), 0, list[str]()
    for source in rows.sources():
        if problem := rows.damage(source):
            damaged.append(problem)
        with suppress(ValueError):  # already reported above
            checked += sum(group.count for group in rows.index(source))
    return VerifiedPart(what="rows", checked=checked, damaged=tuple(damaged))


DAMAGED: Final = f"{DATABASE}.damaged"
_PARTIAL: Final = ".run-new-repair"
"""Name of the damaged file, which is kept."""

_UNREADABLE = (sqlite3.Error, ValueError, TypeError, KeyError, UnicodeDecodeError)


@dataclass(slots=True)
class Repair:
    """What a repair of a damaged run has kept and lost.

    Attributes:
        kept: kind of content, such as "episodes" -> how many are undamaged.
        lost: kind of content -> names of those that are damaged.
        played: ids of lost episodes that could be replayed from stored answers.
        unplayed: id -> reason, for lost episodes that could not be replayed.
        changed: whether a new file replaced the old one.
    """

    kept: dict[str, int] = field(default_factory=dict)
    lost: dict[str, list[str]] = field(default_factory=dict)
    played: list[str] = field(default_factory=list)
    unplayed: dict[str, str] = field(default_factory=dict)
    changed: bool = False

    @property
    def sound(self) -> bool:
        """Whether nothing was damaged, so that nothing had to be repaired."""
        return not self.lost

    def note(self, kind: str, is_kept: bool, name: str) -> None:
        """Record whether one entry of a run was kept: count it, or list it as lost.

        Args:
            kind: kind of the entry, such as "episodes".
            is_kept: whether it was kept.
            name: its name, for the list.
        """
        if is_kept:
            self.kept[kind] = self.kept.get(kind, 0) + 1
        else:
            self.lost.setdefault(kind, []).append(name)


def repair(directory: str | Path, *, write: bool) -> Repair:
    """Repair the damaged database of a run: copy what is undamaged to a new file, and replay lost episodes where
    possible.

    The new run.db replaces the old one, which is kept as `run.db.damaged`. Files with activations and probes are not
    touched. Nothing changes if everything is undamaged.

    Args:
        directory: the run directory.
        write: whether to replace the file; otherwise the repair is only tried, and the report says what it would keep.

    Raises:
        AbsentPartError: a package that the run's worlds need is not installed here, since all would seem damaged.
        FileNotFoundError: there is no run.
        ValueError: the file is not a run.db, or its first page is damaged: restore it from a copy.
        BlockingIOError: another process is writing to the directory.
    """
    directory_path = Path(directory)
    folder = Folder(directory_path)
    partial = folder.below(_PARTIAL).checked()
    report = Repair()
    with closing(open_for_reading(directory_path / DATABASE)) as database:
        pages_sound = _read_or_none(lambda: database.execute("PRAGMA integrity_check(1)").fetchall()) == [("ok",)]
        lock = DirectoryLock(directory_path)
        try:
            folder.remove_folder(_PARTIAL)
            with explained(directory_path / DATABASE):
                comparison = Comparison(database, directory_path / DATABASE)
            with Store(partial, "w") as target:
                _copy(database, comparison, target, report)
                if not pages_sound:
                    report.lost.setdefault("pages of the file", []).append("SQLite finds some damaged")
                _replay_lost(target, report)
            if write and not report.sound:
                database.close()
                _replace_database(folder)
                report.changed = True
        except AbsentPartError as error:
            raise AbsentPartError(str(error).replace(str(partial), str(directory_path))) from error
        finally:
            folder.remove_folder(_PARTIAL)
            lock.release()
    return report


def _read_or_none(read: Callable[[], Any]) -> Any:
    """Return the result of a read, or None if the read fails."""
    try:
        return read()
    except AbsentPartError:
        raise
    except _UNREADABLE:
        return None


def _keys(database: sqlite3.Connection, table: str, name: str, kinds: Sequence[str]) -> list[Any]:
    """Return the keys of a table that any scan or checksum finds, first those of a plain scan."""
    scans = [
        f"SELECT {name} FROM {table} {order}" for order in ("NOT INDEXED", f"ORDER BY {name}", f"ORDER BY {name} DESC")
    ]
    keys: dict[Any, None] = {}
    for scan in scans:
        with suppress(*_UNREADABLE):
            for (key,) in database.execute(scan):
                keys[key] = None
    for kind in kinds:
        with suppress(*_UNREADABLE):
            for (key,) in database.execute("SELECT key FROM checksums WHERE kind = ?", (kind,)):
                keys[key] = None
    return list(keys)


def _copy(database: sqlite3.Connection, comparison: Comparison, target: Store, report: Repair) -> None:
    with target.transaction() as new:
        new.execute("DELETE FROM info")
        tables.clear(new)
    for kind in ("study", "info", "session", "agent", "world", "artifact", "call"):
        _copy_entries(database, comparison, target, kind, report)
    study = _read_or_none(target.study)
    if study is not None and report.lost.get("world"):
        stored_worlds = set(_read_or_none(lambda: [world.id for world in target.worlds()]) or [])
        target.put_worlds(world for world in study.worlds() if world.id not in stored_worlds)
    _copy_all_episodes(database, comparison, target, report)
    _copy_rows(database, comparison, target, report)


def _copy_entries(
    database: sqlite3.Connection, comparison: Comparison, target: Store, kind: str, report: Repair
) -> None:
    table, name = tables.ENTRIES[kind]
    select = f"SELECT * FROM {table} WHERE {name} = ?"
    for key in _keys(database, table, name, [kind]):

        def read(key: Any = key) -> tuple[Any, ...]:
            (row,) = database.execute(select, (key,)).fetchall()
            comparison.check(kind, tables.checksum(tuple(row)), comparison.known(kind, [key]).get(key))
            return tuple(row)

        row = _read_or_none(read)
        report.note(kind, row is not None, f"{key!r:.80}")
        if row is not None:
            with target.transaction() as new:
                new.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
                tables.seal(new, kind, [key])


def _copy_all_episodes(database: sqlite3.Connection, comparison: Comparison, target: Store, report: Repair) -> None:
    expected = {key for key in _keys(database, "episodes", "id", ["cost"]) if isinstance(key, str)}
    copied = set[str]()
    for number in _keys(database, "episodes", "number", ["walk", "said"]):
        identity = _read_or_none(lambda number=number: _copy_episode(database, comparison, target, number))  # type: ignore[misc]
        if identity is not None:
            copied.add(identity)
            report.note("episodes", True, identity)
    for identity in sorted(expected - copied):
        report.note("episodes", False, identity)


def _copy_episode(database: sqlite3.Connection, comparison: Comparison, target: Store, number: Any) -> str:
    (header,) = database.execute(f"SELECT {EPISODE_COLUMNS} FROM episodes WHERE number = ?", (number,)).fetchall()
    ((walk, outputs),) = database.execute("SELECT walk, said FROM steps WHERE episode = ?", (number,)).fetchall()
    steps = PackedSteps(walk, outputs)
    comparison.check_episodes([(number, *header)], {number: steps})
    identity = str(header[0])
    stored = comparison.known("cost", [identity]).get(identity)
    comparison.check("what an episode cost", tables.cost_sums(database, [identity])[identity], stored)
    select = "SELECT step, attempt, name, value FROM usage WHERE episode_id = ? ORDER BY step, attempt, name"
    cost: Usage = database.execute(select, (identity,)).fetchall()
    episode = target.decoded(header, steps)
    target.put_episodes([episode], usage={identity: cost})
    return identity


def _copy_rows(database: sqlite3.Connection, comparison: Comparison, target: Store, report: Repair) -> None:
    rows = StoredRows(database, comparison)
    counted = _read_or_none(rows.counted) or set()
    stored = _keys(database, "row_groups", "source", ())
    for source in sorted({*counted, *(source for source in stored if isinstance(source, str))}):
        problem = rows.damage(source)
        report.note("rows", not problem, source)
        if not problem:
            with target.transaction():
                target.stored_rows.write(rows.groups(source), source)


# Episodes from the journal


def _replay_lost(store: Store, report: Repair) -> None:
    """Replay lost episodes into a store with the agents of its study, from the journal and without a model."""
    lost = set(report.lost.get("episodes", ()))
    study = _read_or_none(store.study)
    if not lost or study is None:
        report.unplayed |= dict.fromkeys(lost, "the run has no study: import its logs again")
        return
    try:
        agents = study.agents()
    except (ValueError, OSError, ImportError) as error:
        report.unplayed |= dict.fromkeys(lost, f"the agents of the study cannot be built here: {error}"[:300])
        return
    journal = Journal(store)
    for spec, world, agent in study.specs(agents):
        if spec.id in lost:
            if (problem := _replay(store, journal, study, spec, world, agent)) is None:
                report.played.append(spec.id)
            else:
                report.unplayed[spec.id] = problem
            lost.discard(spec.id)
    report.unplayed |= dict.fromkeys(lost, "the study does not name it")


def _replay(store: Store, journal: Journal, study: Study, spec: EpisodeSpec, world: World, agent: Agent) -> str | None:
    """Replay and store one episode; return the reason if this fails, else None."""
    knows_world = bool(getattr(agent, "knows_world", False))
    rules = study.history_of(agent), study.failure_of(agent)
    live, identity = LiveEpisode(spec, world, study, *rules, knows_world=knows_world), agent_id(agent)
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


def _replace_database(folder: Folder) -> None:
    """Replace the old file by the new one; the old file and its log are kept under another name."""
    for suffix in ("", "-wal"):
        if folder.has_file(f"{DATABASE}{suffix}"):
            folder.remove_file(f"{DAMAGED}{suffix}")
            folder.link(f"{DATABASE}{suffix}", f"{DAMAGED}{suffix}")
    folder.sync()
    for suffix in ("-wal", "-shm"):  # SQLite would use the old log for the new file
        folder.remove_file(f"{DATABASE}{suffix}")
    folder.move(f"{_PARTIAL}/{DATABASE}", DATABASE)
    folder.sync()


def lines(report: Repair) -> Iterator[str]:
    """Describe a repair for the user, as lines to print: what is undamaged, damaged, and can be replayed."""
    labels = {"rows": "sources of rows"}  # rows of one source are kept or lost together
    sound = ", ".join(f"{number:,} {labels.get(kind, kind)}" for kind, number in report.kept.items())
    yield f"sound: {sound or 'nothing'}"
    for kind, names in report.lost.items():
        further = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
        yield f"damaged: {kind}: {', '.join(names[:5])}{further}"
    if report.played:
        yield f"{len(report.played):,} lost episodes can be played again without asking a model"
    for reason in dict.fromkeys(report.unplayed.values()):
        names = [name for name, problem in report.unplayed.items() if problem == reason]
        yield f"{len(names):,} lost episodes cannot be played again ({names[0]}): {reason}"
