"""The store of one run: everything that was recorded, in one SQLite file in a run directory."""

import sqlite3
import threading
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from goalscope._ground.folder import Folder
from goalscope._ground.own import note_found
from goalscope.runs import codec, tables
from goalscope.runs.codec import EPISODE_COLUMNS, Cell, PackedSteps, pack_steps, unpack_steps
from goalscope.runs.opening import DirectoryLock, open_for_reading, open_for_writing
from goalscope.runs.record import Episode
from goalscope.runs.stored_rows import StoredRows
from goalscope.runs.study import Study
from goalscope.runs.tables import (
    DATABASE,
    ORDER,
    Comparison,
    EncodedEpisode,
    Usage,
    cut,
    episode_ids,
    episodes_in,
    every_episode,
    explained,
    find_episodes,
    insert_episodes,
    insert_study,
    insert_worlds,
    marks,
    schema_of,
)
from goalscope.stats.rows import Rows
from goalscope.worlds.world import World

Durability = Literal["process", "power"]
GROUP_SECONDS = 0.5
_GROUP_STEPS = 20_000
_PAGE_EPISODES = 128


class Store:
    """The store of a run directory: its study, agents, worlds, episodes, and rows (values of measures).

    Reading needs no lock and changes nothing; many readers and one writer can work at the same time. Stored values are
    checked when they are read: a ValueError names a value that goalscope cannot have written. Changing a store that is
    open for reading raises an OSError.

    Args:
        path: the run directory, which contains `run.db`.
        mode: "r" to read, "w" to read and write (creates the directory and the file if they are missing).
        durability: what written data survive: "process" for a crash of the process; "power" also for a power failure.
            By default that of the run, and "process" for a new run.

    Raises:
        FileNotFoundError: if there is no run to read.
        BlockingIOError: if another process is writing to the directory.
        ValueError: if the file is damaged, of a newer version, or not a run.db; or the mode is unknown.
        OSError: if the directory cannot be read or written.
    """

    def __init__(
        self,
        path: str | Path,
        mode: Literal["r", "w"] = "r",
        *,
        durability: Durability | None = None,
    ) -> None:
        if mode not in ("r", "w"):
            raise ValueError(f"mode must be 'r' (read) or 'w' (write), got {mode!r}")
        if durability not in (None, "process", "power"):
            raise ValueError(f"durability must be 'process' or 'power', got {durability!r}")
        self.path = Path(path)
        self.mode = mode
        self._file = self.path / DATABASE
        self._write_lock = threading.RLock()  # requests are counted by the threads that make them
        with ExitStack() as resources:
            problem = None
            if mode == "r":
                self.database = open_for_reading(self._file)
            else:
                Folder(self.path).make()
                self._lock = DirectoryLock(self.path)
                resources.callback(self._lock.release)
                self.database, problem = open_for_writing(self._file)
            resources.callback(self.database.close)
            self.sums = Comparison(self.database, self._file)
            self.stored_rows = StoredRows(self.database, self.sums)
            if mode == "w":
                self._configure_journal(problem, durability)  # the warning may be turned into an error
            self._resources = resources.pop_all()
        self._cached_world = lru_cache(maxsize=1024)(self._read_world)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database, and release the lock of the run directory if the store was open for writing."""
        self._resources.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Context in which the database is changed: all changes are committed at its end, or none if an error occurs.

        Yields:
            The connection to the database.

        Raises:
            OSError: the store is open for reading.
        """
        if self.mode != "w":
            raise OSError("this store is open for reading and cannot be changed: open it with mode 'w'")
        with self._write_lock, explained(self._file):
            try:
                self.database.execute("BEGIN IMMEDIATE")
                yield self.database
                self.database.execute("COMMIT")
            except BaseException:
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
                raise

    @property
    def folder(self) -> Folder:
        """The run directory as a `Folder`, to read and write the files beside run.db."""
        return Folder(self.path)

    def settled(self) -> Path:
        """Return the path of the run directory, which may have been renamed since this store was opened for writing.

        Raises:
            FileNotFoundError: it was removed, or the system does not report its path.
        """
        return self._lock.directory(self.path) if self.mode == "w" else self.path

    # Study, information, agents, worlds

    def put_study(self, study: Study) -> None:
        """Store the study of this run.

        A start that failed before any answer leaves a study behind, which the corrected study replaces.

        Raises:
            ValueError: the run has answers of a different study; the message names the differences.
        """
        self.check_study(study)
        stored = self.study()
        if stored is None:
            with self.transaction() as database:
                insert_study(database, study)
        elif stored.id != study.id:
            with self.transaction() as database:
                for kind in ("world", "agent", "call", "study"):
                    table, name = tables.ENTRIES[kind]
                    keys = [key for (key,) in database.execute(f"SELECT {name} FROM {table}")]
                    database.execute(f"DELETE FROM {table}")
                    tables.seal(database, kind, keys)
                insert_study(database, study)
            self._cached_world.cache_clear()

    def check_study(self, study: Study) -> None:
        """Check that this run is empty or belongs to the given study.

        Raises:
            ValueError: it has answers of another study; the message names the differences.
        """
        stored = self.study()
        if stored is not None and stored.id != study.id and self.holds_answers():
            raise ValueError(
                f"{self.path} contains the run of another study:\n{stored.difference(study)}\nto resume that run, "
                "restore its study; to run this study, give another directory (--out)"
            )

    def holds_answers(self) -> bool:
        """Return whether the run contains answers, episodes or results, which a new start would have to produce
        again.
        """
        tables = ("episodes", "row_groups", "artifacts", "calls WHERE state = 'done'")
        return any(self.query(f"SELECT 1 FROM {table} LIMIT 1") for table in tables)

    def study(self) -> Study | None:
        """Return the study of this run; None for a run that was imported."""
        rows = self.entries("study")
        if len(rows) > 1:
            self.sums.refuse(f"one study, not {len(rows)}")
        if not rows:
            return None
        plain = codec.decode_json(rows[0][2], "the study")
        note_found(plain, self.path)
        return Study.restore(plain)

    def info(self) -> dict[str, Any]:
        """Return the provenance of the run, name -> value: versions, commit, settings, and one entry per session."""
        cells, sessions = self.entries("info"), self.entries("session")
        settings = {str(name): codec.decode_json(value, f"info {name!r}").get("value") for name, value in cells}
        documents = [codec.decode_json(document, "a session") for _, document in sessions]
        return {
            "schema": schema_of(self.database),
            **(documents[0] if documents else {}),
            **settings,
            "sessions": documents,
        }

    def put_info(self, name: str, value: Any) -> None:
        """Store one value of the run's provenance under a name, in place of an earlier one; it must consist of types of
        JSON.
        """
        with self.transaction() as database:
            database.execute("INSERT OR REPLACE INTO info VALUES (?, ?)", (name, codec.encode_json({"value": value})))
            tables.seal(database, "info", [name])

    def put_session(self, document: Mapping[str, Any]) -> None:
        """Store the provenance of a new session of the run, as `provenance.session` returns it: time, versions,
        machine, ...
        """
        with self.transaction() as database:
            cursor = database.execute("INSERT INTO sessions (document) VALUES (?)", (codec.encode_json(document),))
            tables.seal(database, "session", [cursor.lastrowid])

    def put_agents(self, agents: Iterable[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Store agents, each given as (id, name, description); agents that are stored already are left unchanged."""
        cells = [(identity, name, codec.encode_json(description)) for identity, name, description in agents]
        with self.transaction() as database:
            for cell in cells:
                if database.execute("INSERT OR IGNORE INTO agents VALUES (?, ?, ?)", cell).rowcount:
                    tables.seal(database, "agent", cell[:1])

    def agents(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Return the stored agents: id -> (name, description)."""
        rows = self.entries("agent")
        return {identity: (name, codec.decode_json(text, f"agent {name!r}")) for identity, name, text in rows}

    def agent_names(self) -> list[str]:
        """Return the names of the agents in the order of the study.

        The study need not be built for this, as its models or packages may be on another machine.
        """
        names = {identity: name for identity, name, _ in self.entries("agent")}
        order = [identity for (identity,) in self.query("SELECT id FROM agents ORDER BY rowid")]
        if set(order) != set(names):
            self.sums.refuse("each agent under its id")
        return [names[identity] for identity in order]

    def put_worlds(self, worlds: Iterable[World]) -> None:
        """Store worlds; worlds that are stored already change nothing.

        Raises:
            ValueError: a world is stored with another cluster (group of related worlds) or other tags.
        """
        with self.transaction():
            insert_worlds(self.database, [codec.encode_world(world) for world in worlds])

    def worlds(self) -> Iterator[World]:
        """Yield all stored worlds in the order of their ids."""
        for (identity,) in self.query("SELECT id FROM worlds ORDER BY id"):
            yield self.world(identity)

    def world(self, identity: str) -> World:
        """Return the stored world with this id; worlds that were read recently are kept in memory.

        Raises:
            ValueError: there is no such world, so the file is damaged.
        """
        return self._cached_world(identity)

    def put_episodes(self, episodes: Iterable[Episode], usage: Mapping[str, Usage] | None = None) -> int:
        """Store episodes with their worlds and costs; each episode is stored whole or not at all.

        They are written in groups of at most a second. If the iterable raises, the episodes before that are stored and
        the error is raised. An episode that is stored already changes nothing.

        Args:
            episodes: any number of episodes; they are not kept in memory.
            usage: the costs of the turns of each episode, by its id.

        Returns:
            Number of new episodes.

        Raises:
            ValueError: an episode is stored with other content, or contains a value that cannot be stored.
        """
        written, steps, began = 0, 0, time.monotonic()
        group: list[EncodedEpisode] = []

        def write() -> int:
            nonlocal group
            # removed from the group before it is written, so that its error is not raised twice
            full, group = group, []
            return self.put_encoded(full, usage)

        try:
            for episode in episodes:
                packed, steps = pack_steps(episode.steps, episode.world), steps + len(episode.steps)
                group.append((episode.world, codec.encode_episode(episode), packed))
                if steps >= _GROUP_STEPS or time.monotonic() - began >= GROUP_SECONDS:
                    written += write()
                    steps, began = 0, time.monotonic()
        finally:
            written += write() if group else 0
        return written

    def put_encoded(self, group: Sequence[EncodedEpisode], usage: Mapping[str, Usage] | None = None) -> int:
        """Store episodes that are encoded already, with their worlds and costs, in one transaction.

        Args:
            group: world, columns and packed steps of each episode.
            usage: the costs of the turns of each episode, by its id.

        Returns:
            Number of new episodes.

        Raises:
            ValueError: an episode is stored with other content.
        """
        with self.transaction() as database:
            return insert_episodes(database, group, usage or {})

    def episode_ids(self) -> set[str]:
        """Return the ids of all stored episodes."""
        with explained(self._file):
            return episode_ids(self.database)

    def episodes(
        self, ids: Iterable[str] | None = None, *, worlds: Mapping[str, int] | None = None
    ) -> Iterator[Episode]:
        """Yield episodes one by one, ordered by world, agent and trajectory; only few are in memory at a time.

        Args:
            ids: ids of the episodes to return; by default those in ``worlds`` or, without ``worlds``, all.
            worlds: id of each world whose episodes to return -> how many episodes it has, to detect missing ones.

        Raises:
            KeyError: an id is not stored.
            ValueError: ``worlds`` have more or fewer episodes in total, or a stored value is damaged.
        """
        for page in self.pages(ids, worlds=worlds):
            for begin, end in cut([row[-2] for row in page]):
                yield from self._read_episodes(page[begin:end])

    def pages(
        self, ids: Iterable[str] | None = None, *, worlds: Mapping[str, int] | None = None
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield episodes without their steps as table rows, 128 at a time, in the order of `episodes`.

        Each row has the episode's number in its table, followed by the columns `EPISODE_COLUMNS`. The values are not
        checked.

        Args:
            ids: ids of the episodes; by default those in ``worlds`` or, without ``worlds``, all.
            worlds: id of each world whose episodes to return -> how many episodes it has, to detect missing ones.

        Raises:
            KeyError: an id is not stored.
            ValueError: episodes are missing.
        """
        with explained(self._file):
            if worlds is not None:
                numbers: Sequence[int] = episodes_in(self.database, self._file, list(worlds))
                self.sums.check_count("episodes", len(numbers), sum(worlds.values()), sum(worlds.values()))
            elif ids is None:
                count_before = self.sums.number_of("episodes")
                numbers = every_episode(self.database)
                self.sums.check_count("episodes", len(numbers), count_before, self.sums.number_of("episodes"))
            else:
                numbers = find_episodes(self.database, self._file, list(dict.fromkeys(ids)))
        last: tuple[Any, ...] = ()
        for begin in range(0, len(numbers), _PAGE_EPISODES):
            part = list(numbers[begin : begin + _PAGE_EPISODES])
            select = f"SELECT number, {EPISODE_COLUMNS} FROM episodes WHERE number IN ({marks(part)}) ORDER BY {ORDER}"
            page = self.query(select, part)
            if len(page) != len(part):
                self.sums.refuse("each episode that its index names")
            last = self.sums.check_order(page, last, worlds)
            yield page

    def steps_of(self, numbers: Sequence[int]) -> dict[int, PackedSteps]:
        """Return the packed steps of some episodes, unchecked: number of the episode in its table -> steps.

        Raises:
            ValueError: an episode has no steps stored, so the file is damaged.
        """
        rows = self.query(f"SELECT episode, walk, said FROM steps WHERE episode IN ({marks(numbers)})", numbers)
        steps = {number: PackedSteps(walk, outputs) for number, walk, outputs in rows}
        if steps.keys() != set(numbers):
            self.sums.refuse("the steps of each episode")
        return steps

    def usage(self) -> dict[tuple[str, str], float]:
        """Return the total cost of all stored turns: (agent name, name of the cost) -> tokens, seconds or USD."""
        with self.snapshot() as database:
            if differing := next(tables.costs_that_differ(database), None):
                self.sums.refuse(f"what {differing} cost as it was written")
            totals = database.execute(
                "SELECT agent, name, total(value) FROM usage JOIN episodes ON episodes.id = usage.episode_id "
                "GROUP BY agent, name ORDER BY agent, name"
            ).fetchall()
        return {(agent, name): float(value) for agent, name, value in totals}

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Context in which all reads see the same state of the database, whatever a writer does meanwhile.

        Yields:
            The connection to the database.
        """
        with self._write_lock, explained(self._file):
            if self.database.in_transaction:
                yield self.database
                return
            self.database.execute("BEGIN")
            try:
                yield self.database
            finally:
                self.database.execute("COMMIT")

    def entries(self, kind: str, where: str = "", values: Sequence[Cell] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of one of the database's tables, with all columns, after verifying their checksums.

        Args:
            kind: kind of the entries, a key of `tables.ENTRIES` such as "agent", which determines the table.
            where: SQL clauses that select and order the entries; by default all of them, ordered by key.
            values: values for the question marks in ``where``.

        Raises:
            ValueError: an entry is missing or does not match its checksum.
        """
        table, name = tables.ENTRIES[kind]
        join = f"LEFT JOIN checksums c ON c.kind = '{kind}' AND c.key = {table}.{name}"
        select = f"SELECT {table}.*, c.value FROM {table} {join} {where or f'ORDER BY {table}.{name}'}"
        if where:
            rows = self.query(select, values)
        else:
            with self.snapshot() as database:
                rows = database.execute(select).fetchall()
                self.sums.check_keys(kind, len(rows))
        for *cells, stored in rows:
            self.sums.check(f"{kind} {cells[0]!r:.80}", tables.checksum(tuple(cells)), stored)
        return [row[:-1] for row in rows]

    def query(self, sql: str, values: Sequence[Cell] = ()) -> list[tuple[Any, ...]]:
        """Run an SQL query and return all its rows at once, so that a reader never blocks a writer.

        Args:
            sql: the query.
            values: values for its question marks.
        """
        with explained(self._file):
            return self.database.execute(sql, values).fetchall()

    def _configure_journal(self, problem: str | None, durability: Durability | None) -> None:
        if durability is None:
            durability = "power" if self.info().get("durability") == "power" else "process"
        # With a rollback journal, EXTRA also syncs the directory after the journal is deleted.
        level = "NORMAL" if durability == "process" else "EXTRA" if problem else "FULL"
        self.database.execute(f"PRAGMA synchronous = {level}")
        self.put_info("durability", durability)
        self.put_info("journal_mode", "rollback journal" if problem else "write-ahead log")
        if problem:
            notice = (
                f"{self.path} cannot hold a write-ahead log ({problem}): a rollback journal is used instead, which is "
                "as safe but slower; a directory on a local disk is faster"
            )
            self.put_info("journal_notice", notice)
            warnings.warn(notice, UserWarning, stacklevel=3)

    def _read_episodes(self, page: Sequence[tuple[Any, ...]]) -> Iterator[Episode]:
        steps = self.steps_of([row[0] for row in page])
        self.sums.check_episodes(page, steps)
        for number, *header in page:
            yield self.decoded(header, steps[number])

    def decoded(self, header: Sequence[Cell], steps: PackedSteps) -> Episode:
        """Build an episode from its table columns (`EPISODE_COLUMNS`) and packed steps.

        Raises:
            ValueError: they are invalid.
        """
        world = self.world(str(header[1]))
        with self.sums.described(f"a sound episode {header[0]!r}"):
            return codec.decode_episode(header, world, unpack_steps(steps, world))

    def _read_world(self, identity: str) -> World:
        rows = self.entries("world", "WHERE worlds.id = ?", (identity,))
        if not rows:
            self.sums.refuse(f"the world {identity!r:.80} of its episodes")
        with self.sums.described(f"a sound world {identity!r}"):
            world = codec.decode_world(rows[0])
        note_found([getattr(world, "source", ""), dict(getattr(world, "parameters", {}))], self.path)
        return world

    # Rows

    def put_rows(self, rows: Rows | Iterable[tuple[int, Rows]], source: str) -> None:
        """Store rows (values of measures), in place of all earlier rows of the same source; if an error occurs, nothing
        changes.

        Args:
            rows: the rows; or, so that they need not fit in memory, parts with their positions. Parts are stored in the
                order of their positions; parts with the same position, in the order of arrival.
            source: name of the analysis that computed the rows, for example "behaviour" or "probe 3".
        """
        with self.transaction():
            if isinstance(rows, Rows):
                self.stored_rows.write([rows], source)
            else:
                self.stored_rows.write_places(rows, source)

    def row_sources(self) -> list[str]:
        """Return the names of the analyses whose rows (values of measures) are stored, such as "behaviour", in
        order.
        """
        with self.snapshot():
            return self.stored_rows.sources()

    def row_counts(self, source: str) -> dict[str, int]:
        """Return how many rows (values of measures) an analysis has at most for each measure: measure -> upper bound.

        Args:
            source: name of the analysis, as in `put_rows`.
        """
        counts: dict[str, int] = {}
        with self.snapshot():
            for group in self.stored_rows.index(source):
                for measure in group.measures:
                    counts[measure] = counts.get(measure, 0) + group.count
        return counts

    def rows(self) -> Rows:
        """Return all stored rows (values of measures), in the alphabetical order of the analyses that computed them."""
        return Rows.concatenate(rows for _, rows in self.row_groups())

    def rows_of(
        self, source: str, measures: Collection[str] | None = None, *, names: Iterable[str] | None = None
    ) -> Iterator[Rows]:
        """Yield the rows (values of measures) that one analysis computed, a group of rows at a time, in order.

        Args:
            source: name of the analysis, as in `put_rows`.
            measures: measures to return; all by default. Measures with groups of their own are read only if needed.
            names: text columns to read in addition to measure and tags; others may be "". All by default.
        """
        with self.snapshot():
            yield from self.stored_rows.groups(source, measures=measures, names=names)

    def row_groups(
        self, measures: Collection[str] | None = None, *, names: Iterable[str] | None = None
    ) -> Iterator[tuple[str, Rows]]:
        """Yield all stored rows (values of measures), a group of rows at a time, each with the name of its analysis.

        Args:
            measures: measures to return; all by default.
            names: text columns to read in addition to measure and tags; others may be "". All by default.
        """
        with self.snapshot():
            for source in self.row_sources():
                yield from ((source, rows) for rows in self.rows_of(source, measures, names=names))

    def row_labels(self, name: str) -> Iterator[tuple[str, list[str]]]:
        """Yield each measure in each stored group of rows (values of measures), with the distinct values of a text
        column.

        For example, ``row_labels("episode_id")`` yields each measure with the ids of the episodes that have a value of
        it. A measure may occur several times, once per group.

        Args:
            name: the column: "measure", "unit", "cluster" or "episode_id".
        """
        with self.snapshot():
            for source in self.stored_rows.sources():
                yield from self.stored_rows.labels(source, name)


def writing(run: str | Path | Store, durability: Durability | None = None) -> AbstractContextManager[Store]:
    """Context that opens the store of a run directory for writing and closes it at its end.

    A store that is given instead of a path is passed on and stays open.

    Args:
        run: the run directory, or its store, open for writing.
        durability: what written data survive, see `Store`.
    """
    return nullcontext(run) if isinstance(run, Store) else Store(run, "w", durability=durability)
