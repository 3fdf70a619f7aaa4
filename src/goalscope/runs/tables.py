"""The tables of `run.db`: their schema, their checksums, the insertion of worlds and episodes, and errors of SQLite.

Stored worlds and episodes are never changed. Checksums have a table of their own and are compared at every read. SQLite
notices pages that it cannot parse, but not a flipped bit inside a value. Values that are read together share one
checksum (64 bits of BLAKE2b), committed with them: the walk, the texts and the cost of an episode; each group of rows;
each entry of every other table. It is computed from the values that SQLite returns, after all conversions. The numbers
of episodes and rows are stored too, so that a missing group is noticed.
"""

import errno
import hashlib
import json
import re
import sqlite3
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, NoReturn

from goalscope._ground.folder import Folder
from goalscope._ground.untrusted import MOST_FILE_BYTES, AbsentPartError, DamagedError, printable, shorten
from goalscope.runs.codec import EPISODE_COLUMNS, WORLD_COLUMNS, Cell, PackedSteps, encode_world
from goalscope.runs.study import Study
from goalscope.worlds.things import UnknownSymbolError
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
CREATE TABLE checksums (
    kind TEXT NOT NULL, key NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID;
"""

Usage = Sequence[tuple[int, int, str, float]]
"""Costs of an episode: (step, attempt, name, value)."""

EncodedEpisode = tuple[World, tuple[Any, ...], PackedSteps]
"""The world of an episode, its columns, and its steps."""

ORDER = "world_id, agent_id, trajectory, id"
"""Order of episodes, independent of when they were written."""

_MAX_VALUES = 500  # maximum number of values in one SQL statement
_STEPS_PER_RANGE = 512


def create_tables(connection: sqlite3.Connection) -> None:
    """Create all tables of a run in an empty database, in one transaction."""
    marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
    counts = "INSERT INTO checksums VALUES ('count', 'episodes', 0);"
    connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} {counts} {marks} COMMIT;")


def check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Check that an open file is the database of a run with exactly the expected tables.

    It also limits how large the values may be that SQLite reads from it.

    Args:
        connection: the open database.
        path: its file, for errors.

    Raises:
        FileNotFoundError: the file is empty because its start was interrupted.
        ValueError: it is another database, of another version, or its tables differ.
    """
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
    """Return whether a database has no tables and no marks of an application, as after an interrupted start."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return _header_numbers(connection) == (0, 0) and tables == 0 and pages <= 1


def _header_numbers(connection: sqlite3.Connection) -> tuple[int, int]:
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    return application, version


def schema_of(connection: sqlite3.Connection) -> int:
    """Return the version number of the table layout of a run's database."""
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
    """Return comma-separated question marks for an SQL statement: one per value.

    Args:
        values: a sequence of values, or a text of comma-separated column names, each of which counts.
    """
    return ", ".join("?" * len(values.split(", ") if isinstance(values, str) else values))


# Checksums

ENTRIES: Final = {
    "info": ("info", "name"),
    "session": ("sessions", "number"),
    "study": ("study", "id"),
    "agent": ("agents", "id"),
    "world": ("worlds", "id"),
    "call": ("calls", "id"),
    "artifact": ("artifacts", "id"),
}
"""Kinds of entries that have one checksum each: the table, and the column that names an entry."""

EPISODES: Final = ("walk", "said", "cost")
"""Kinds of checksums of an episode; its key is its number, that of its cost its id."""

COUNT: Final = "count"
"""Kind of the stored numbers: of episodes, and of the rows of each source."""
_PUT: Final = "INSERT OR REPLACE INTO checksums VALUES (?, ?, ?)"


def checksum(*parts: Any) -> int:
    """Compute the 64-bit BLAKE2b checksum of some values, as a signed integer.

    Bytes are used unchanged; of all other values, such as numbers and tuples, the text form is used.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        # ASCII, because the set of printable characters, and so the text form, differs between versions of Python.
        digest.update(part if isinstance(part, bytes | memoryview) else ascii(part).encode("ascii"))
    return int.from_bytes(digest.digest(), "little", signed=True)


def walk_sum(header: Sequence[Cell], walk: Any) -> int:
    """Return the checksum of an episode without its texts.

    Args:
        header: the episode's table columns (`EPISODE_COLUMNS`).
        walk: its packed states and actions.
    """
    return checksum(tuple(header), walk)


class Comparison:
    """Compares what is read from a run's database with the checksums that it stores; a difference raises a
    ValueError.
    """

    def __init__(self, database: sqlite3.Connection, file: Path) -> None:
        self._database, self._file = database, file

    def known(self, kind: str, keys: Sequence[Cell]) -> dict[Cell, int]:
        """Return the stored checksums of some entries: key -> checksum; entries without a checksum are left out.

        Args:
            kind: what the entries are, such as "agent" or "walk".
            keys: their keys.
        """
        sums: dict[Cell, int] = {}
        with explained(self._file):
            for part in _parts(keys):
                select = f"SELECT key, value FROM checksums WHERE kind = ? AND key IN ({marks(part)})"
                sums |= dict(self._database.execute(select, (kind, *part)).fetchall())
        return sums

    def number_of(self, name: str) -> int | None:
        """Return how many episodes, or how many rows of one analysis, the file states to contain.

        The result is None if it does not say.

        Args:
            name: "episodes" for the number of episodes, or "rows NAME" for the rows (values of measures) that the
                analysis NAME computed.
        """
        return self.known(COUNT, [name]).get(name)

    def counted(self, prefix: str) -> set[str]:
        """Return what the file must contain according to the counts that it stores about itself.

        Args:
            prefix: how the names of the counts begin. With "rows ", the result has the names of the analyses whose rows
                (values of measures) the file must contain.

        Returns:
            The names of the counts above 0, without the prefix.
        """
        select = "SELECT key FROM checksums WHERE kind = ? AND value > 0"
        with explained(self._file):
            keys = [str(key) for (key,) in self._database.execute(select, (COUNT,))]
        return {key.removeprefix(prefix) for key in keys if key.startswith(prefix)}

    def check(self, name: str, computed: int, stored: int | None) -> None:
        """Check that a computed checksum equals the stored one.

        Args:
            name: what was read, for errors.
            computed: the checksum of what was read.
            stored: the stored checksum, None if there is none.

        Raises:
            ValueError: they differ, so the file is damaged.
        """
        if stored != computed:
            self.refuse(f"a checksum of {name}" if stored is None else f"{name} as it was written")

    def check_count(self, name: str, count: int, before: int | None, after: int | None) -> None:
        """Check that as many entries were read as the file states; a writer may have added some in the meantime.

        Args:
            name: what was read, for errors.
            count: how many entries were read.
            before: the number stated before they were read, None if there is none.
            after: the number stated afterwards.

        Raises:
            ValueError: the count is not between these two numbers, so the file is damaged.
        """
        if before is None or after is None:
            self.refuse(f"the number of its {name}")
        if not before <= count <= after:
            self.refuse(f"{after:,} {name}, of which {count:,} are found")

    def check_episodes(self, page: Sequence[tuple[Any, ...]], steps: Mapping[int, PackedSteps]) -> None:
        """Check that episodes and their steps match their checksums.

        Args:
            page: the episode's number in its table, followed by the columns `EPISODE_COLUMNS`, for each episode.
            steps: number of the episode -> its packed steps.

        Raises:
            ValueError: an episode does not match, so the file is damaged.
        """
        walks, texts = (self.known(kind, [row[0] for row in page]) for kind in ("walk", "said"))
        for number, *header in page:
            name = f"episode {header[0]!r:.80}"
            self.check(name, walk_sum(header, steps[number].walk), walks.get(number))
            self.check(f"what was said in {name}", checksum(steps[number].said), texts.get(number))

    def check_order(
        self, page: Sequence[tuple[Any, ...]], last: tuple[Any, ...], worlds: Container[str] | None = None
    ) -> tuple[Any, ...]:
        """Check that the episodes of a page follow those of the previous page in the fixed order of episodes.

        Args:
            page: the episode's number in its table, followed by the columns `EPISODE_COLUMNS`, for each episode.
            last: result for the previous page, () at the beginning.
            worlds: ids of the worlds that were asked for; None for all.

        Returns:
            What identifies the last episode of the page in this order, for the next call.

        Raises:
            ValueError: an episode is out of order, or in none of the ``worlds``.
        """
        for row in page:
            if worlds is not None and row[2] not in worlds:
                self.refuse("each episode in its world")
            before, last = last, (row[2], row[3], row[4], row[1])
            if before and (list(map(type, before)) != list(map(type, last)) or before >= last):
                self.refuse("each episode once and in order")
        return last

    def check_keys(self, kind: str, count: int) -> None:
        """Check that as many entries of one kind were read as there are checksums of this kind.

        Raises:
            ValueError: the numbers differ, so entries are missing or were added by another program.
        """
        with explained(self._file):
            ((expected,),) = self._database.execute("SELECT count(*) FROM checksums WHERE kind = ?", (kind,)).fetchall()
        if expected != count:
            self.refuse(f"a {kind} for each of {expected:,} checksums, not {count:,}")

    @contextmanager
    def described(self, name: str) -> Iterator[None]:
        """Context that turns an error of decoding into one that names the part of the file that cannot be read.

        Args:
            name: the part of the file.

        Raises:
            AbsentPartError: a symbol of a grid is unknown here. As checksums are compared before, the file is sound,
                and the package that registers a thing with this symbol is missing.
            ValueError: the part is damaged.
        """
        try:
            yield
        except AbsentPartError:
            raise
        except UnknownSymbolError as error:
            raise AbsentPartError(
                f"{self._file} must be read where its things are registered, but {error}. The file is not damaged: "
                "install the package that registers the thing with this symbol"
            ) from error
        except (ValueError, TypeError) as error:
            raise damaged(self._file, f"hold {name} as it was written", error) from error

    def refuse(self, must: str) -> NoReturn:
        """Raise the error for a damaged file; ``must`` says what the file should hold, for the message."""
        raise damaged(self._file, f"hold {must}")


# Writing, inside of the caller's transaction


def clear(database: sqlite3.Connection) -> None:
    """Delete all checksums of a database whose tables were emptied, and set the stored number of episodes to 0."""
    database.execute("DELETE FROM checksums")
    put(database, COUNT, [("episodes", 0)])


def seal(database: sqlite3.Connection, kind: str, keys: Iterable[Cell]) -> None:
    """Compute and store the checksums of entries that were just written to a table, and delete those of removed
    entries.

    Args:
        database: the open database.
        kind: what the entries are, a key of `ENTRIES`, which determines the table.
        keys: keys of the entries.
    """
    table, name = ENTRIES[kind]
    for part in _parts(list(keys)):
        rows = database.execute(f"SELECT {name}, * FROM {table} WHERE {name} IN ({marks(part)})", part).fetchall()
        put(database, kind, [(row[0], checksum(row[1:])) for row in rows])
        if len(rows) < len(part):
            removed = [(kind, key) for key in set(part) - {row[0] for row in rows}]
            database.executemany("DELETE FROM checksums WHERE kind = ? AND key = ?", removed)


def seal_row(database: sqlite3.Connection, kind: str, row: tuple[Cell, ...]) -> None:
    """Store the checksum of one entry that was just written, without reading it back as `seal` does.

    Args:
        database: the open database.
        kind: what the entry is, a key of `ENTRIES`.
        row: the entry's values, exactly as SQLite returns them.
    """
    database.execute(_PUT, (kind, row[0], checksum(row)))


def seal_episodes(database: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Compute and store the checksums of episodes that were just written, and increase the stored number of episodes.

    Args:
        database: the open database.
        numbers: numbers of the episodes in their table.
    """
    sums: dict[str, list[tuple[Cell, int]]] = {kind: [] for kind in EPISODES}
    for part in _parts(numbers):
        select = (
            f"SELECT number, walk, said, {EPISODE_COLUMNS} FROM episodes LEFT JOIN steps ON episode = number "
            f"WHERE number IN ({marks(part)})"
        )
        identities = list[Cell]()
        for number, walk, outputs, *header in database.execute(select, part):
            sums["walk"].append((number, walk_sum(header, walk)))
            sums["said"].append((number, checksum(outputs)))
            identities.append(header[0])
        sums["cost"] += cost_sums(database, identities).items()
    for kind, pairs in sums.items():
        put(database, kind, pairs)
    _count_episodes(database, len(numbers))


def forget_episode(database: sqlite3.Connection, number: int, identity: str) -> None:
    """Delete the checksums of an episode that was removed, and decrease the stored number of episodes.

    Args:
        database: the open database.
        number: number of the episode in its table.
        identity: id of the episode.
    """
    for kind, key in zip(EPISODES, (number, number, identity), strict=True):
        database.execute("DELETE FROM checksums WHERE kind = ? AND key = ?", (kind, key))
    _count_episodes(database, -1)


def _count_episodes(database: sqlite3.Connection, change: int) -> None:
    """Change the stored number of episodes."""
    insert = "INSERT INTO checksums VALUES (?, 'episodes', ?) ON CONFLICT DO UPDATE SET value = value + excluded.value"
    database.execute(insert, (COUNT, change))


def cost_sums(database: sqlite3.Connection, identities: Sequence[Cell]) -> dict[Cell, int]:
    """Return a checksum of the costs of each episode: episode id -> checksum, also for episodes without costs."""
    where = f"WHERE episode_id IN ({marks(identities)})"
    return {**dict.fromkeys(identities, checksum([])), **_sums_of_costs(database, where, identities)}


def costs_that_differ(database: sqlite3.Connection) -> Iterator[str]:
    """Yield the ids of episodes whose stored costs do not match their checksum, or that have costs but no checksum."""
    costs = _sums_of_costs(database)
    no_cost = checksum([])
    for key, stored in database.execute("SELECT key, value FROM checksums WHERE kind = 'cost'"):
        if costs.pop(key, no_cost) != stored:
            yield str(key)
    if costs:
        yield str(min(map(str, costs)))


def _sums_of_costs(database: sqlite3.Connection, where: str = "", identities: Sequence[Cell] = ()) -> dict[Cell, int]:
    """Return the checksums of the costs of the episodes that cost something, by their ids."""
    order = "ORDER BY episode_id, step, attempt, name"
    rows = database.execute(f"SELECT episode_id, step, attempt, name, value FROM usage {where} {order}", identities)
    return {identity: checksum([row[1:] for row in group]) for identity, group in groupby(rows, key=itemgetter(0))}


def put(database: sqlite3.Connection, kind: str, sums: Iterable[tuple[Cell, int]]) -> None:
    """Store checksums or counts in a run's database.

    Args:
        database: the open database.
        kind: what they belong to, such as "agent", or `COUNT` for a count.
        sums: (key, checksum or count) of each.
    """
    cells = [(kind, key, value) for key, value in sums]
    database.executemany(_PUT, cells)


# Worlds, episodes and the study


def insert_worlds(database: sqlite3.Connection, worlds: Iterable[tuple[Cell, ...]]) -> None:
    """Insert worlds into a run's database, inside the caller's transaction; a world that is stored already is skipped.

    Args:
        database: the open database.
        worlds: the table columns `WORLD_COLUMNS` of each world.

    Raises:
        ValueError: a world is stored with another cluster or other tags.
    """
    insert = f"INSERT OR IGNORE INTO worlds ({WORLD_COLUMNS}) VALUES ({marks(WORLD_COLUMNS)})"
    for cells in worlds:
        if database.execute(insert, cells).rowcount:
            seal(database, "world", cells[:1])
            continue
        stored = database.execute(f"SELECT {WORLD_COLUMNS} FROM worlds WHERE id = ?", cells[:1]).fetchone()
        if stored != cells:
            raise ValueError(
                f"world {cells[0]!r} is already stored with other cluster or tags, "
                f"{shorten(str(stored[3:]))}, got {shorten(str(cells[3:]))}: move what differs between "
                "episodes into their tags"
            )


def insert_episodes(database: sqlite3.Connection, group: Sequence[EncodedEpisode], usage: Mapping[str, Usage]) -> int:
    """Insert episodes with their worlds and costs into a run's database, inside the caller's transaction.

    Args:
        database: the open database.
        group: world, table columns and packed steps of each episode.
        usage: id of the episode -> its costs.

    Returns:
        How many of the episodes are new.

    Raises:
        ValueError: an episode is stored with other content.
    """
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
    seal_episodes(database, numbers)
    for header, steps in repeated:
        _check_same(database, header, steps)
    return len(new)


def _parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(values), _MAX_VALUES):
        yield values[begin : begin + _MAX_VALUES]


def _stored(database: sqlite3.Connection, ids: Sequence[Any]) -> Iterator[Any]:
    """Yield those of the given ids under which an episode is stored."""
    for (identity,) in database.execute(f"SELECT id FROM episodes WHERE id IN ({marks(ids)})", ids):
        yield identity


def insert_study(database: sqlite3.Connection, study: Study) -> None:
    """Store the study of a run that has none yet, inside the caller's transaction."""
    database.execute("INSERT INTO study VALUES (?, ?, ?)", (study.id, study.name, json.dumps(study.dump())))
    seal(database, "study", [study.id])


def remove_episodes(database: sqlite3.Connection, ids: Sequence[str]) -> None:
    """Delete episodes, given by their ids, with their steps, costs and checksums, inside the caller's transaction."""
    for identity in ids:
        ((number,),) = database.execute("SELECT number FROM episodes WHERE id = ?", (identity,)).fetchall()
        database.execute("DELETE FROM steps WHERE episode = ?", (number,))
        database.execute("DELETE FROM usage WHERE episode_id = ?", (identity,))
        database.execute("DELETE FROM episodes WHERE number = ?", (number,))
        forget_episode(database, number, identity)


def episode_ids(database: sqlite3.Connection) -> set[str]:
    """Return the ids of all episodes in a run's database."""
    # Read from the table, because the index of a damaged file may name other ids, which no reader would find.
    return {identity for (identity,) in database.execute("SELECT id FROM episodes NOT INDEXED")}


def find_episodes(database: sqlite3.Connection, path: Path, ids: Sequence[str]) -> list[int]:
    """Return the numbers under which episodes are stored in their table, in the fixed order of episodes.

    Args:
        database: the open database.
        path: its file, for errors.
        ids: ids of the episodes.

    Raises:
        KeyError: an id is not stored.
        DamagedError: an episode is stored but not found by its id.
    """
    keys = _keys(database, path, "id", ids)
    missing = set(ids) - {key[3] for key in keys}
    if unindexed := missing & episode_ids(database) if missing else None:
        raise damaged(path, f"find each of its episodes by id, not so {min(unindexed)}")
    if missing:
        lacking = f"{min(missing)} ({len(missing)} of {len(ids)} missing)"
        raise KeyError(f"{path.parent} has no episode {lacking}")
    return [key[4] for key in keys]


def every_episode(database: sqlite3.Connection) -> Sequence[int]:
    """Return the numbers of all episodes in their table, in the fixed order of episodes (`ORDER`)."""
    return array("q", (number for (number,) in database.execute(f"SELECT number FROM episodes ORDER BY {ORDER}")))


def episodes_in(database: sqlite3.Connection, path: Path, worlds: Sequence[str]) -> list[int]:
    """Return the numbers of the episodes of some worlds, given by their ids, in the fixed order of episodes
    (`ORDER`).
    """
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
    """Divide episodes into ranges with few steps each, so that few are decoded at a time; a long episode is a range
    alone.

    Args:
        lengths: number of steps of each episode.

    Yields:
        Index of the first episode of the range, and of the first one after it.
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


# Errors of SQLite

_FULL = "{} must have room to grow, but the disk is full: what was stored is kept, free some room and run again"


def damaged(file: Path, must: str, why: object = "") -> DamagedError:
    """Make the error, without raising it, for a damaged run.db, with advice on how to repair it.

    Args:
        file: the file.
        must: what the file should do, such as "hold UTF-8 text".
        why: further explanation, or "".
    """
    reason = f" ({why})" if why else ""
    return DamagedError(
        f"{file} must {must}, but it is damaged{reason}: goalscope doctor {file.parent} says what can be rebuilt, or "
        "restore the file from a copy"
    )


def reached_limit(path: Path | None, error: BaseException) -> str:
    """Return the message for an error of writing that a file-size limit or a quota has caused; "" for other errors.

    SQLite reports both as "disk I/O error". A file-size limit of this process is recognised by the size of the file,
    and a quota by writing a byte to a file beside it.

    Args:
        path: the file that was written, None if it is unknown.
        error: an error of the operating system, or of SQLite.
    """
    import resource

    number = error.errno if isinstance(error, OSError) else None
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    named = "the file" if path is None else str(path)
    if number is None and isinstance(error, sqlite3.Error) and "disk I/O" in str(error) and path is not None:
        number = _of_a_write(path, limit)
    if number == errno.EFBIG:
        words = (
            f"{limit:,} bytes (ulimit -f, or LimitFSIZE of a service)" if limit >= 0 else "what its file system allows"
        )
        return (
            f"{named} must be able to grow, but the limit on the size of a file is reached, {words}: what was stored "
            "is kept, raise the limit and run the same command again"
        )
    if number == errno.EDQUOT:
        return (
            f"{named} must be able to grow, but the quota of this user or project on its disk is used up (quota -s): "
            "what was stored is kept, free some room and run the same command again"
        )
    return ""


def _of_a_write(path: Path, limit: int) -> int | None:
    """Write a trial file beside a file of SQLite, and return the number of the error, or None if there is none."""
    sizes = [status.st_size for name, status in Folder(path.parent).entries() if name.startswith(path.name)]
    if limit >= 0 and any(size + 2**16 > limit for size in sizes):
        return errno.EFBIG
    try:
        with TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(2**16))
            probe.flush()
    except OSError as error:
        return error.errno
    return None


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Context that turns errors of SQLite on a run's database into errors that say what is wrong and what to do.

    Raises:
        BlockingIOError: another process uses the file.
        DamagedError: the file is damaged or not a SQLite file.
        OSError: it cannot be read or written, or there is no room.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise BlockingIOError(
                f"{path} is in use by another process, or its file system has no locks: {text}; try again later"
            ) from error
        if "full" in text:
            raise OSError(_FULL.format(path)) from error
        if limit := reached_limit(path, error):
            raise OSError(limit) from error
        if "decode" in text:
            raise damaged(path, "hold UTF-8 text") from error
        raise OSError(
            f"SQLite cannot read {path} (or write it, for a run): {text}; check the directory's "
            "permissions and its file system"
        ) from error
    except UnicodeDecodeError as error:  # of SQLite's message, which quotes the file
        raise damaged(path, "hold UTF-8 text") from error
    except sqlite3.DatabaseError as error:
        if "malformed" in str(error):
            raise DamagedError(
                f"{path} is damaged: {error}. Nothing was changed. goalscope doctor {path.parent} --repair "
                "keeps the intact parts; if it cannot, restore the file from a copy"
            ) from error
        raise DamagedError(
            f"{path} is damaged, or not a SQLite file written by goalscope: {error}. Nothing was changed. "
            "Restore it from a copy or choose another directory"
        ) from error
    except OSError as error:
        if limit := reached_limit(path, error):
            raise OSError(limit) from error
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(_FULL.format(path)) from error
