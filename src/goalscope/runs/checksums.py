"""Checksums of the contents of a run.db, stored in a table of their own and compared at every read.

SQLite notices pages that it cannot parse, but not a flipped bit inside a value. Values that are read together share one
checksum (64 bits of BLAKE2b), committed with them: the walk, the texts and the cost of an episode; each group of rows;
each entry of every other table. It is computed from the values that SQLite returns, after all conversions. The numbers
of episodes and rows are stored too, so that a missing group is noticed.
"""

import hashlib
import sqlite3
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NoReturn

from goalscope._ground.untrusted import AbsentPartError
from goalscope.runs.codec import EPISODE_COLUMNS, Cell
from goalscope.runs.packed_steps import PackedSteps
from goalscope.runs.sqlite_errors import damaged, explained
from goalscope.worlds.things import UnknownSymbolError

TABLE: Final = """
CREATE TABLE checksums (
    kind TEXT NOT NULL, key NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID;
"""
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

_MAX_VALUES: Final = 500  # maximum number of values in one SQL statement
COUNT: Final = "count"
"""Kind of the stored numbers: of episodes, and of the rows of each source."""
_PUT: Final = "INSERT OR REPLACE INTO checksums VALUES (?, ?, ?)"


def checksum(*parts: Any) -> int:
    """Compute 64 bits of BLAKE2b over the text form of plain values; bytes are used unchanged."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        # ASCII, because the set of printable characters, and so the text form, differs between versions of Python.
        digest.update(part if isinstance(part, bytes | memoryview) else ascii(part).encode("ascii"))
    return int.from_bytes(digest.digest(), "little", signed=True)


def walk_sum(header: Sequence[Cell], walk: Any) -> int:
    """Return the checksum of an episode's columns (`EPISODE_COLUMNS`) and the states and actions of its steps."""
    return checksum(tuple(header), walk)


def said_sum(cell: Any) -> int:
    """Return the checksum of the packed outputs of the steps of an episode."""
    return checksum(cell)


def known(database: sqlite3.Connection, kind: str, keys: Sequence[Cell]) -> dict[Cell, int]:
    """Return the stored checksums of some entries of one kind, by their keys."""
    sums: dict[Cell, int] = {}
    for part in _parts(keys):
        marks = ", ".join("?" * len(part))
        select = f"SELECT key, value FROM checksums WHERE kind = ? AND key IN ({marks})"
        sums |= dict(database.execute(select, (kind, *part)).fetchall())
    return sums


def number_of(database: sqlite3.Connection, name: str) -> int | None:
    """Return a number that the file stores about itself; None if it does not store it.

    Args:
        database: the open file.
        name: "episodes" for the number of episodes, or "rows NAME" for the number of rows of the source NAME.
    """
    counts = known(database, COUNT, [name])
    return counts.get(name)


class Comparison:
    """Compares the contents of an open file with its checksums; a difference raises an error."""

    def __init__(self, database: sqlite3.Connection, file: Path) -> None:
        self._database, self._file = database, file

    def known(self, kind: str, keys: Sequence[Cell]) -> dict[Cell, int]:
        """Return the stored checksums of some entries of one kind, by their keys."""
        with explained(self._file):
            return known(self._database, kind, keys)

    def number_of(self, name: str) -> int | None:
        """Return the stored number of episodes, or of rows of a source; None if the file does not store it."""
        with explained(self._file):
            return number_of(self._database, name)

    def counted(self, prefix: str) -> set[str]:
        """Return the names, without the given prefix, whose stored number is above 0."""
        select = "SELECT key FROM checksums WHERE kind = ? AND value > 0"
        with explained(self._file):
            keys = [str(key) for (key,) in self._database.execute(select, (COUNT,))]
        return {key.removeprefix(prefix) for key in keys if key.startswith(prefix)}

    def check(self, name: str, computed: int, stored: int | None) -> None:
        """Raise a ValueError unless a computed checksum equals the stored one."""
        if stored != computed:
            self.refuse(f"a checksum of {name}" if stored is None else f"{name} as it was written")

    def check_count(self, name: str, count: int, before: int | None, after: int | None) -> None:
        """Raise a ValueError unless the number read lies between the numbers stored before and after the read."""
        if before is None or after is None:
            self.refuse(f"the number of its {name}")
        if not before <= count <= after:
            self.refuse(f"{after:,} {name}, of which {count:,} are found")

    def check_episodes(self, page: Sequence[tuple[Any, ...]], steps: Mapping[int, PackedSteps]) -> None:
        """Compare a page of (number, `EPISODE_COLUMNS`) and their steps with their checksums."""
        walks, texts = (self.known(kind, [row[0] for row in page]) for kind in ("walk", "said"))
        for number, *header in page:
            name = f"episode {header[0]!r:.80}"
            self.check(name, walk_sum(header, steps[number].walk), walks.get(number))
            self.check(f"what was said in {name}", said_sum(steps[number].said), texts.get(number))

    def check_order(
        self, page: Sequence[tuple[Any, ...]], last: tuple[Any, ...], worlds: Container[str] | None = None
    ) -> tuple[Any, ...]:
        """Return the key of the last episode of a page.

        Raises:
            ValueError: if an episode is out of order, or in none of the ``worlds``.
        """
        for row in page:
            if worlds is not None and row[2] not in worlds:
                self.refuse("each episode in its world")
            before, last = last, (row[2], row[3], row[4], row[1])
            if before and (list(map(type, before)) != list(map(type, last)) or before >= last):
                self.refuse("each episode once and in order")
        return last

    def check_keys(self, kind: str, count: int) -> None:
        """Raise a ValueError unless there are as many entries of a kind as there are checksums."""
        with explained(self._file):
            ((expected,),) = self._database.execute("SELECT count(*) FROM checksums WHERE kind = ?", (kind,)).fetchall()
        if expected != count:
            self.refuse(f"a {kind} for each of {expected:,} checksums, not {count:,}")

    @contextmanager
    def described(self, name: str) -> Iterator[None]:
        """While this context lasts, turn an error into one that names the part of the file that cannot be read.

        Raises:
            AbsentPartError: a symbol of a grid is unknown here. As checksums are compared before, the file is sound,
                and the package that registers a thing with this symbol is missing.
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
        """Raise the error for a damaged file."""
        raise damaged(self._file, f"hold {must}")


# Writing, inside of the caller's transaction


def clear(database: sqlite3.Connection) -> None:
    """Delete all checksums of a file whose tables were emptied."""
    database.execute("DELETE FROM checksums")
    put(database, COUNT, [("episodes", 0)])


def seal(database: sqlite3.Connection, kind: str, keys: Iterable[Cell]) -> None:
    """Compute and store the checksums of the entries of a table, and delete those of removed entries."""
    table, name = ENTRIES[kind]
    for part in _parts(list(keys)):
        marks = ", ".join("?" * len(part))
        rows = database.execute(f"SELECT {name}, * FROM {table} WHERE {name} IN ({marks})", part).fetchall()
        put(database, kind, [(row[0], checksum(row[1:])) for row in rows])
        if len(rows) < len(part):
            removed = [(kind, key) for key in set(part) - {row[0] for row in rows}]
            database.executemany("DELETE FROM checksums WHERE kind = ? AND key = ?", removed)


def seal_row(database: sqlite3.Connection, kind: str, row: tuple[Cell, ...]) -> None:
    """Store the checksum of an entry that was just written. ``row`` must contain the values that SQLite returns for
    it.
    """
    database.execute(_PUT, (kind, row[0], checksum(row)))


def seal_episodes(database: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Store the checksums of new episodes."""
    sums: dict[str, list[tuple[Cell, int]]] = {kind: [] for kind in EPISODES}
    for part in _parts(numbers):
        select = (
            f"SELECT number, walk, said, {EPISODE_COLUMNS} FROM episodes LEFT JOIN steps ON episode = number "
            f"WHERE number IN ({', '.join('?' * len(part))})"
        )
        identities = list[Cell]()
        for number, walk, outputs, *header in database.execute(select, part):
            sums["walk"].append((number, walk_sum(header, walk)))
            sums["said"].append((number, said_sum(outputs)))
            identities.append(header[0])
        sums["cost"] += cost_sums(database, identities).items()
    for kind, pairs in sums.items():
        put(database, kind, pairs)
    put(database, COUNT, [("episodes", (number_of(database, "episodes") or 0) + len(numbers))])


def forget_episode(database: sqlite3.Connection, number: int, identity: str) -> None:
    """Delete the checksums of a removed episode."""
    for kind, key in zip(EPISODES, (number, number, identity), strict=True):
        database.execute("DELETE FROM checksums WHERE kind = ? AND key = ?", (kind, key))
    put(database, COUNT, [("episodes", (number_of(database, "episodes") or 0) - 1)])


def cost_sums(database: sqlite3.Connection, identities: Sequence[Cell]) -> dict[Cell, int]:
    """Return the checksums of the costs of some episodes by their ids."""
    select = (
        "SELECT episode_id, step, attempt, name, value FROM usage "
        f"WHERE episode_id IN ({', '.join('?' * len(identities))}) ORDER BY episode_id, step, attempt, name"
    )
    rows = database.execute(select, identities).fetchall()
    costs = {identity: [row[1:] for row in group] for identity, group in groupby(rows, key=itemgetter(0))}
    nothing = checksum([])
    return {identity: checksum(costs[identity]) if identity in costs else nothing for identity in identities}


def costs_that_differ(database: sqlite3.Connection) -> Iterator[str]:
    """Yield the ids of episodes whose costs do not match their checksum, or have costs but no checksum."""
    select = "SELECT episode_id, step, attempt, name, value FROM usage ORDER BY episode_id, step, attempt, name"
    costs = {
        identity: checksum([row[1:] for row in rows])
        for identity, rows in groupby(database.execute(select), key=lambda row: row[0])
    }
    no_cost = checksum([])
    for key, stored in database.execute("SELECT key, value FROM checksums WHERE kind = 'cost'"):
        if costs.pop(key, no_cost) != stored:
            yield str(key)
    if costs:
        yield str(min(map(str, costs)))


def put(database: sqlite3.Connection, kind: str, sums: Iterable[tuple[Cell, int]]) -> None:
    """Store checksums or counts of one kind, given by key."""
    cells = [(kind, key, value) for key, value in sums]
    database.executemany(_PUT, cells)


def _parts(keys: Sequence[Cell]) -> Iterator[Sequence[Cell]]:
    for first in range(0, len(keys), _MAX_VALUES):
        yield keys[first : first + _MAX_VALUES]
