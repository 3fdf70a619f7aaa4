"""The store of one run: everything that was recorded, in one SQLite file of a run directory."""

import json
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from goalscope.rows import Rows
from goalscope.runs import codec
from goalscope.runs.codec import EPISODE_COLUMNS, STEP_COLUMNS, WORLD_COLUMNS, Cell
from goalscope.runs.opening import DirectoryLock, open_for_reading, open_for_writing
from goalscope.runs.record import Episode, Step
from goalscope.runs.study import Study
from goalscope.runs.tables import (
    DATABASE,
    VERSION,
    EncodedEpisode,
    Usage,
    explained,
    insert_episodes,
    insert_worlds,
    marks,
    read_rows,
    write_rows,
)
from goalscope.worlds.world import World

Durability = Literal["process", "power"]
GROUP_SECONDS = 0.5
_GROUP_STEPS = 20_000
_PAGE_EPISODES = 128
_PAGE_STEPS = 512
_ORDER = "world_id, agent_id, trajectory, id"


class Store:
    """The store of a run directory.

    Reading needs no lock and changes nothing; many readers and one writer can be there at the same time. What is read
    is checked: a ValueError says which stored value cannot be one of ours. To change a store that is open for reading
    is an OSError.

    Args:
        path: the run directory, which holds `run.db`.
        mode: "r" to read, "w" to read and write (the directory and the file are made where they are missing).
        durability: what written rows survive: "process", the process being killed; "power", a power failure too. What
            the run was made with where it is left out, "process" for a new one.

    Raises:
        FileNotFoundError: nothing to read.
        BlockingIOError: another process writes to the directory.
        ValueError: the file is damaged, of a newer version, or no run.db; an unknown mode.
        OSError: the directory cannot be read or written.
    """

    def __init__(
        self,
        path: str | Path,
        mode: Literal["r", "w"] = "r",
        *,
        durability: Durability | None = None,
    ) -> None:
        if mode not in ("r", "w"):
            raise ValueError(f"a store's mode must be 'r' (read) or 'w' (write), got {mode!r}")
        if durability not in (None, "process", "power"):
            raise ValueError(f"durability must be 'process' or 'power', got {durability!r}")
        self.path = Path(path)
        self.mode = mode
        self._file = self.path / DATABASE
        self._writing = threading.RLock()  # requests are counted by the threads that make them
        with ExitStack() as opened:
            problem = None
            if mode == "r":
                self.database = open_for_reading(self._file)
            else:
                self.path.mkdir(parents=True, exist_ok=True)
                opened.callback(DirectoryLock(self.path).release)
                self.database, problem = open_for_writing(self._file)
            opened.callback(self.database.close)
            if mode == "w":
                self._note_journal(problem, durability)  # a warning may be an error
            self._opened = opened.pop_all()
        self._known_world = lru_cache(maxsize=1024)(self._read_world)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and give the lock back."""
        self._opened.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit everything that is done inside, or nothing of it."""
        if self.mode != "w":
            raise OSError("a store must be open for writing to be changed, got mode 'r': open it with mode 'w'")
        with self._writing, explained(self._file):
            try:
                self.database.execute("BEGIN IMMEDIATE")
                yield self.database
                self.database.execute("COMMIT")
            except BaseException:
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
                raise

    # Study, information, agents, worlds

    def put_study(self, study: Study) -> None:
        """Store the study of this run; another one is refused with a ValueError that names the differences."""
        stored = self.study()
        if stored is None:
            with self.transaction() as database:
                document = json.dumps(study.dump())
                database.execute("INSERT INTO study VALUES (?, ?, ?)", (study.id, study.name, document))
        elif stored.id != study.id:
            raise ValueError(
                f"{self.path} must be continued with the study that it was begun with, got a different one:\n"
                f"{stored.difference(study)}\nrestore the study or choose another directory"
            )

    def study(self) -> Study | None:
        """Return the study of this run, None where there is none (an import)."""
        found = self.query("SELECT document FROM study")
        if len(found) > 1:
            raise ValueError(f"{self._file} must hold one study, got {len(found)}: the file is damaged")
        return Study.restore(codec.decode_json(found[0][0], "the study")) if found else None

    def info(self) -> dict[str, Any]:
        """Return what is known about how the run was made: versions, commit, settings, and one entry a session."""
        cells = self.query("SELECT name, value FROM info")
        sessions = self.query("SELECT document FROM sessions ORDER BY number")
        settings = {str(name): codec.decode_json(value, f"info {name!r}").get("value") for name, value in cells}
        documents = [codec.decode_json(document, "a session") for (document,) in sessions]
        return {"schema": VERSION, **(documents[0] if documents else {}), **settings, "sessions": documents}

    def put_info(self, name: str, value: Any) -> None:
        """Store one setting by name, in place of an earlier one."""
        with self.transaction() as database:
            database.execute("INSERT OR REPLACE INTO info VALUES (?, ?)", (name, codec.encode_json({"value": value})))

    def put_session(self, document: Mapping[str, Any]) -> None:
        """Store what is known about the session that begins: see `provenance.session`."""
        with self.transaction() as database:
            database.execute("INSERT INTO sessions (document) VALUES (?)", (codec.encode_json(document),))

    def put_agents(self, agents: Iterable[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Store agents as (id, name, description)."""
        cells = [(identity, name, codec.encode_json(description)) for identity, name, description in agents]
        with self.transaction() as database:
            database.executemany("INSERT OR IGNORE INTO agents VALUES (?, ?, ?)", cells)

    def agents(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Return (name, description) of each agent by its id."""
        found = self.query("SELECT id, name, description FROM agents ORDER BY id")
        return {identity: (name, codec.decode_json(text, f"agent {name!r}")) for identity, name, text in found}

    def agent_names(self) -> list[str]:
        """Return the names of the agents in the order in which they were stored, that of the study.

        The study itself need not be built for them: its models or packages may be on another machine.
        """
        return [name for (name,) in self.query("SELECT name FROM agents ORDER BY rowid")]

    def put_worlds(self, worlds: Iterable[World]) -> None:
        """Store worlds; one that is there already with another cluster or other tags is a ValueError."""
        with self.transaction():
            insert_worlds(self.database, [codec.encode_world(world) for world in worlds])

    def worlds(self) -> Iterator[World]:
        """Return all worlds in the order of their ids."""
        for (identity,) in self.query("SELECT id FROM worlds ORDER BY id"):
            yield self.world(identity)

    def world(self, identity: str) -> World:
        """Return the world of an id; the same object, as long as few others are asked for."""
        return self._known_world(identity)

    # Episodes

    def put_episodes(self, episodes: Iterable[Episode], usage: Mapping[str, Usage] | None = None) -> int:
        """Store episodes with their worlds, in groups of at most a second; each is stored whole or not at all.

        Where the iterable raises, what it gave before is stored and the error goes on. Putting an episode that is
        there already changes nothing.

        Args:
            episodes: any number; they are not kept in memory.
            usage: by episode id, what its turns cost.

        Returns:
            Number of episodes that were not there before.

        Raises:
            ValueError: an episode is stored with other content, or holds a value that cannot be stored.
        """
        written, steps, began = 0, 0, time.monotonic()
        group: list[EncodedEpisode] = []

        def write() -> int:
            nonlocal group
            # The group is given up before it is written, so that an error in it is not met a second time.
            full, group = group, []
            with self.transaction() as database:
                return insert_episodes(database, full, usage or {})

        try:
            for episode in episodes:
                listed = [codec.encode_step(step, episode.world) for step in episode.steps]
                group.append((episode, codec.encode_episode(episode), listed))
                steps += len(episode.steps)
                if steps >= _GROUP_STEPS or time.monotonic() - began >= GROUP_SECONDS:
                    written += write()
                    steps, began = 0, time.monotonic()
        finally:
            if group:
                written += write()
        return written

    def episode_ids(self) -> set[str]:
        """Return the ids of all stored episodes."""
        # Of the table: in a damaged file the index may name others, which nothing that reads episodes would find.
        return {identity for (identity,) in self.query("SELECT id FROM episodes NOT INDEXED")}

    def episodes(self, ids: Iterable[str] | None = None) -> Iterator[Episode]:
        """Return episodes one by one, ordered by world, agent and trajectory, a few in memory at a time.

        Args:
            ids: the episodes to return, all by default.

        Raises:
            KeyError: an id that is not stored.
        """
        for page in self.pages(ids):
            for begin, end in _cut([row[-2] for row in page]):
                yield from self._read_episodes(page[begin:end])

    def pages(self, ids: Iterable[str] | None = None) -> Iterator[list[tuple[Any, ...]]]:
        """Return pages of (number, `EPISODE_COLUMNS`) as they are stored, unchecked, in the order of `episodes`."""
        if ids is None:
            numbers = [number for (number,) in self.query(f"SELECT number FROM episodes ORDER BY {_ORDER}")]
        else:
            numbers = self._numbers(list(dict.fromkeys(ids)))
        for begin in range(0, len(numbers), _PAGE_EPISODES):
            part = numbers[begin : begin + _PAGE_EPISODES]
            select = f"SELECT number, {EPISODE_COLUMNS} FROM episodes WHERE number IN ({marks(part)}) ORDER BY {_ORDER}"
            page = self.query(select, part)
            if len(page) != len(part):
                raise ValueError(f"{self._file} must hold each episode that its index names: the file is damaged")
            yield page

    def _numbers(self, wanted: Sequence[str]) -> list[int]:
        """Return the numbers of episodes in the order of `episodes`."""
        keys = []
        for begin in range(0, len(wanted), _PAGE_EPISODES):
            part = wanted[begin : begin + _PAGE_EPISODES]
            keys += self.query(f"SELECT {_ORDER}, number FROM episodes WHERE id IN ({marks(part)})", part)
        missing = set(wanted) - {key[3] for key in keys}
        if torn := missing & self.episode_ids():
            raise ValueError(
                f"{self._file} must find each of its episodes by id, but not {min(torn)}: the file is damaged"
            )
        if missing:
            raise KeyError(f"{self.path} holds no episode {min(missing)} ({len(missing)} of {len(wanted)} missing)")
        return [key[4] for key in sorted(keys)]

    def steps_of(self, numbers: Sequence[int], columns: str) -> dict[int, list[tuple[Any, ...]]]:
        """Return columns of the steps of episodes by the number of the episode, unchecked."""
        found: dict[int, list[tuple[Any, ...]]] = {number: [] for number in numbers}
        select = f"SELECT episode, {columns} FROM steps WHERE episode IN ({marks(numbers)}) ORDER BY episode, step"
        for row in self.query(select, numbers):
            if row[0] not in found:
                raise ValueError(f"{self._file} must find steps by their episode, got {row[0]!r}: it is damaged")
            found[row[0]].append(row[1:])
        return found

    def usage(self) -> dict[tuple[str, str], float]:
        """Return what all stored turns cost together, by (agent name, name of the quantity)."""
        found = self.query(
            "SELECT agent, name, total(value) FROM usage JOIN episodes ON episodes.id = usage.episode_id "
            "GROUP BY agent, name ORDER BY agent, name"
        )
        return {(agent, name): float(value) for agent, name, value in found}

    # Rows of measures

    def put_rows(self, rows: Rows, source: str) -> None:
        """Store the rows of one source ("behaviour", "probe 3"), in place of those it had."""
        with self.transaction() as database:
            write_rows(database, rows, source)

    def rows(self) -> Rows:
        """Return the rows of all sources, ordered by source."""
        with explained(self._file):
            return read_rows(self.database)

    def query(self, sql: str, values: Sequence[Cell] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query at once, so that no reader stands in a writer's way."""
        with explained(self._file):
            return self.database.execute(sql, values).fetchall()

    def _note_journal(self, problem: str | None, durability: Durability | None) -> None:
        if durability is None:
            durability = "power" if self.info().get("durability") == "power" else "process"
        # With a rollback journal, EXTRA also syncs the directory once the journal is gone.
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
        steps = self.steps_of([row[0] for row in page], STEP_COLUMNS)
        for number, *header in page:
            world = self.world(header[1])
            try:
                states: dict[tuple[Cell, ...], tuple[int, ...]] = {}
                listed: list[Step] = []
                for cells in steps[number]:
                    row, col, flags = place = cells[1:4]
                    if place not in states:
                        states[place] = codec.decode_state(row, col, flags, world)
                    listed.append(codec.decode_step(cells, states[place], world))
                episode = codec.decode_episode(header, world, tuple(listed))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{self._file} must hold sound episodes, but {header[0]!r} is not: {error}") from error
            yield episode

    def _read_world(self, identity: str) -> World:
        found = self.query(f"SELECT {WORLD_COLUMNS} FROM worlds WHERE id = ?", (identity,))
        if not found:
            raise ValueError(f"{self._file} must hold the world of every episode, but {identity!r} is missing")
        try:
            return codec.decode_world(found[0])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self._file} must hold sound worlds, but {identity!r} is not: {error}") from error


def _cut(lengths: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Return ranges of episodes that together have few steps (a long episode stands alone)."""
    begin, steps = 0, 0
    for index, length in enumerate(lengths):
        steps += length if isinstance(length, int) else 0
        if index > begin and steps > _PAGE_STEPS:
            yield begin, index
            begin, steps = index, length
    if begin < len(lengths):
        yield begin, len(lengths)
