"""Tables of `run.db`, and the insertion of worlds and episodes, which must not change stored ones."""

import json
import re
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from goalscope._ground.untrusted import MOST_FILE_BYTES, printable, shorten
from goalscope.runs import checksums
from goalscope.runs.codec import EPISODE_COLUMNS, WORLD_COLUMNS, Cell, encode_world
from goalscope.runs.packed_steps import PackedSteps
from goalscope.runs.sqlite_errors import damaged
from goalscope.runs.study import Study
from goalscope.worlds.world import World

DATABASE = "run.db"
APPLICATION = 0x676F616C  # "goal", in the header of every run.db
VERSION = 6
_MOST_STATEMENT = 1_000_000  # characters
_MOST_NAMED = 20
_RESTORE_ADVICE = "where it is damaged, restore it from a copy"

# The steps of an episode (see `packed_steps`) refer to `episodes.number`; other tables are joined by content ids.
# Tables in the order of their primary key, without a second index, have no rowid.
_TABLES = """
CREATE TABLE info (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sessions (number INTEGER PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE study (id TEXT PRIMARY KEY, name TEXT NOT NULL, document TEXT NOT NULL);
CREATE TABLE agents (id TEXT PRIMARY KEY, name TEXT NOT NULL, description TEXT NOT NULL);
CREATE TABLE worlds (
    id TEXT PRIMARY KEY, grid TEXT NOT NULL, fog_radius INTEGER, cluster TEXT NOT NULL, tags TEXT NOT NULL
);
CREATE TABLE calls (
    id TEXT PRIMARY KEY, agent_id TEXT NOT NULL, prompt TEXT NOT NULL,
    episode_id TEXT NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL,
    state TEXT NOT NULL, lost INTEGER NOT NULL DEFAULT 0, sent REAL NOT NULL, done REAL,
    action INTEGER, failure TEXT, text TEXT, reasoning TEXT, prompt_tokens BLOB, output_tokens BLOB,
    usage TEXT, extra TEXT
);
CREATE TABLE episodes (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    world_id TEXT NOT NULL, agent_id TEXT NOT NULL, trajectory INTEGER NOT NULL, seed INTEGER NOT NULL,
    horizon INTEGER NOT NULL, rules TEXT NOT NULL,
    agent TEXT NOT NULL, outcome TEXT NOT NULL, row INTEGER NOT NULL, col INTEGER NOT NULL, flags INTEGER NOT NULL,
    length INTEGER NOT NULL, tags TEXT NOT NULL
);
CREATE TABLE steps (episode INTEGER PRIMARY KEY, walk BLOB NOT NULL, said BLOB NOT NULL);
CREATE TABLE usage (
    episode_id TEXT NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,
    PRIMARY KEY (episode_id, step, attempt, name)
) WITHOUT ROWID;
CREATE TABLE row_groups (
    source TEXT NOT NULL, number INTEGER NOT NULL, count INTEGER NOT NULL, measures TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (source, number)
);
CREATE TABLE artifacts (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL, tags TEXT NOT NULL
);
CREATE INDEX episodes_in_order ON episodes (world_id, agent_id, trajectory, id);
"""

Usage = Sequence[tuple[int, int, str, float]]
"""Costs of an episode: (step, attempt, name, value)."""

EncodedEpisode = tuple[World, tuple[Any, ...], PackedSteps]
"""The world of an episode, its columns, and its steps."""

ORDER = "world_id, agent_id, trajectory, id"
"""Order of episodes, independent of when they were written."""

_IDS_PER_QUERY, _STEPS_PER_RANGE = 128, 512


def create_tables(connection: sqlite3.Connection) -> None:
    """Create all tables in one transaction."""
    marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
    counts = "INSERT INTO checksums VALUES ('count', 'episodes', 0);"
    connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} {checksums.TABLE} {counts} {marks} COMMIT;")


def check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Raise a ValueError unless the file is a run.db with exactly the expected schema; limit the size of its values."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_FILE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _MOST_STATEMENT)
    application, version = _header_numbers(connection)
    if without_tables(connection):
        raise FileNotFoundError(
            f"{path} is empty because its start was interrupted: run the study, or import, into this "
            "directory once more"
        )
    if application != APPLICATION:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type != 'index' LIMIT ?", (_MOST_NAMED,))
        names = ", ".join(sorted(printable(str(name)) for (name,) in tables)) or "none"
        raise ValueError(
            f"{path} is another SQLite database, not a run.db written by goalscope (tables: {names}): "
            "choose another directory, or restore the file from a copy"
        )
    if version != VERSION:
        advice = f"update goalscope, or {_RESTORE_ADVICE}"
        if version < VERSION:
            advice = "an earlier version wrote it: run the study, or import, again into another directory"
        raise ValueError(f"{path} must have schema version {VERSION}, got {version}: {advice}")
    expected = _expected_schema()
    schema = _schema(connection)
    if set(schema) != set(expected):
        # Names may be bytes in a damaged file.
        different = ", ".join(sorted({printable(str(entry[1])) for entry in set(schema) ^ set(expected)})[:_MOST_NAMED])
        raise ValueError(
            f"{path} must hold exactly the tables of a run.db, got a difference at: {different}; {_RESTORE_ADVICE}"
        )
    for entry, text in expected.items():
        if schema[entry] != text:
            # Comparing only column names would accept foreign expressions, which every reader would evaluate.
            raise ValueError(
                f"{entry[0]} {entry[1]} of {path} must be declared as {printable(str(text))}, got "
                f"{printable(str(schema[entry]))}; {_RESTORE_ADVICE}"
            )


def without_tables(connection: sqlite3.Connection) -> bool:
    """Return whether a database is empty, without tables or marks of an application, as after an interrupted start."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return _header_numbers(connection) == (0, 0) and tables == 0 and pages <= 1


def _header_numbers(connection: sqlite3.Connection) -> tuple[int, int]:
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    return application, version


def schema_of(connection: sqlite3.Connection) -> int:
    """Return the version of the schema that a file has."""
    return _header_numbers(connection)[1]


def _schema(connection: sqlite3.Connection) -> dict[tuple[Any, ...], Any]:
    """Return the statement that declares each entry of the schema, by (type, name, table), without its layout."""
    entries = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    return {tuple(entry): _plain(text) if isinstance(text, str) else text for *entry, text in entries}


def _plain(statement: str) -> str:
    """Normalise the blanks of a statement; goalscope's statements quote no text."""
    return re.sub(r" ?([(),]) ?", r"\1", " ".join(statement.split()))


@cache
def _expected_schema() -> dict[tuple[Any, ...], Any]:
    """Return the schema as SQLite itself stores it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create_tables(connection)
        return _schema(connection)


def marks(values: Sequence[Any] | str) -> str:
    """Return the question marks of an SQL statement: one per value, or per column of a comma-separated text."""
    return ", ".join("?" * len(values.split(", ") if isinstance(values, str) else values))


def insert_worlds(database: sqlite3.Connection, worlds: Iterable[tuple[Cell, ...]]) -> None:
    """Insert worlds given by their columns, inside the caller's transaction."""
    insert = f"INSERT OR IGNORE INTO worlds ({WORLD_COLUMNS}) VALUES ({marks(WORLD_COLUMNS)})"
    for cells in worlds:
        if database.execute(insert, cells).rowcount:
            checksums.seal(database, "world", cells[:1])
            continue
        stored = database.execute(f"SELECT {WORLD_COLUMNS} FROM worlds WHERE id = ?", cells[:1]).fetchone()
        if stored != cells:
            raise ValueError(
                f"world {cells[0]!r} is already stored with other cluster or tags, "
                f"{shorten(str(stored[3:]))}, got {shorten(str(cells[3:]))}: move what differs between "
                "episodes into their tags"
            )


def insert_episodes(database: sqlite3.Connection, group: Sequence[EncodedEpisode], usage: Mapping[str, Usage]) -> int:
    """Insert episodes with their worlds and costs, inside the caller's transaction, and return how many are new."""
    worlds = {id(world): world for world, _, _ in group}
    insert_worlds(database, [encode_world(world) for world in worlds.values()])
    ((last,),) = database.execute("SELECT ifnull(max(number), 0) FROM episodes")
    known_keys = {key for part in _parts([header[0] for _, header, _ in group]) for key in _stored(database, part)}
    new: list[tuple[tuple[Cell, ...], PackedSteps]] = []
    repeated: list[tuple[tuple[Cell, ...], PackedSteps]] = []
    for _, header, steps in group:
        (repeated if header[0] in known_keys else new).append((header, steps))
        known_keys.add(header[0])
    numbers = range(last + 1, last + 1 + len(new))
    database.executemany(
        f"INSERT INTO episodes (number, {EPISODE_COLUMNS}) VALUES (?, {marks(EPISODE_COLUMNS)})",
        [(number, *header) for number, (header, _) in zip(numbers, new, strict=True)],
    )
    database.executemany(
        "INSERT INTO steps VALUES (?, ?, ?)",
        [(number, *steps) for number, (_, steps) in zip(numbers, new, strict=True)],
    )
    if usage:
        costs = [(header[0], *entry) for header, _ in new for entry in usage.get(str(header[0]), ())]
        database.executemany("INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?)", costs)
    checksums.seal_episodes(database, numbers)
    for header, steps in repeated:
        _check_same(database, header, steps)
    return len(new)


def _parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(values), _IDS_PER_QUERY):
        yield values[begin : begin + _IDS_PER_QUERY]


def _stored(database: sqlite3.Connection, ids: Sequence[Any]) -> Iterator[Any]:
    """Yield those of the given ids under which an episode is stored."""
    for (identity,) in database.execute(f"SELECT id FROM episodes WHERE id IN ({marks(ids)})", ids):
        yield identity


def insert_study(database: sqlite3.Connection, study: Study) -> None:
    """Store the study of a run that has none, inside of the caller's transaction."""
    database.execute("INSERT INTO study VALUES (?, ?, ?)", (study.id, study.name, json.dumps(study.dump())))
    checksums.seal(database, "study", [study.id])


def remove_episodes(database: sqlite3.Connection, ids: Sequence[str]) -> None:
    """Remove episodes with their steps and costs, inside of the caller's transaction."""
    for identity in ids:
        ((number,),) = database.execute("SELECT number FROM episodes WHERE id = ?", (identity,)).fetchall()
        database.execute("DELETE FROM steps WHERE episode = ?", (number,))
        database.execute("DELETE FROM usage WHERE episode_id = ?", (identity,))
        database.execute("DELETE FROM episodes WHERE number = ?", (number,))
        checksums.forget_episode(database, number, identity)


def episode_ids(database: sqlite3.Connection) -> set[str]:
    """Return the ids of all stored episodes."""
    # Read from the table, because the index of a damaged file may name other ids, which no reader would find.
    return {identity for (identity,) in database.execute("SELECT id FROM episodes NOT INDEXED")}


def find_episodes(database: sqlite3.Connection, path: Path, ids: Sequence[str]) -> list[int]:
    """Return the numbers of episodes by their ids, in their `ORDER`; a KeyError for an id that is not stored."""
    keys = _keys(database, path, "id", ids)
    missing = set(ids) - {key[3] for key in keys}
    if unindexed := missing & episode_ids(database) if missing else None:
        raise damaged(path, f"find each of its episodes by id, not so {min(unindexed)}")
    if missing:
        lacking = f"{min(missing)} ({len(missing)} of {len(ids)} missing)"
        raise KeyError(f"{path.parent} has no episode {lacking}")
    return [key[4] for key in keys]


def every_episode(database: sqlite3.Connection) -> Sequence[int]:
    """Return the numbers of all episodes in their `ORDER`, 8 bytes each."""
    return array("q", (number for (number,) in database.execute(f"SELECT number FROM episodes ORDER BY {ORDER}")))


def episodes_in(database: sqlite3.Connection, path: Path, worlds: Sequence[str]) -> list[int]:
    """Return the numbers of the episodes in some worlds, in their `ORDER`."""
    return [key[4] for key in _keys(database, path, "world_id", worlds)]


def _keys(database: sqlite3.Connection, path: Path, column: str, values: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the sorted (`ORDER`, number) of the episodes whose value in a column is among the given ones."""
    keys: list[tuple[Any, ...]] = []
    for part in _parts(values):
        keys += database.execute(f"SELECT {ORDER}, number FROM episodes WHERE {column} IN ({marks(part)})", part)
    try:
        return sorted(keys)
    except TypeError as error:  # in a damaged file an id may be bytes
        raise damaged(path, "name each episode by texts and a number", error) from error


def cut(lengths: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Divide episodes, given by their numbers of steps, into ranges (first, end) with few steps each.

    A long episode forms a range of its own.
    """
    begin, steps = 0, 0
    for index, length in enumerate(lengths):
        steps += length if isinstance(length, int) else 0
        if index > begin and steps > _STEPS_PER_RANGE:
            yield begin, index
            begin, steps = index, length
    if begin < len(lengths):
        yield begin, len(lengths)


def _check_same(database: sqlite3.Connection, header: tuple[Cell, ...], steps: PackedSteps) -> None:
    columns = f"{EPISODE_COLUMNS}, walk, said"
    select = f"SELECT {columns} FROM episodes LEFT JOIN steps ON episode = number WHERE id = ?"
    if database.execute(select, header[:1]).fetchone() != (*header, *steps):
        raise ValueError(
            f"episode {header[0]!r} (agent {header[7]!r}, trajectory {header[3]!r}) is already stored "
            "with other steps or tags: give it another trajectory number, or use another directory"
        )
