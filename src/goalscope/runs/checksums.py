"""Checksums of all that a run.db holds, in a table of their own; compared whenever something is read.

SQLite notices a page that it cannot parse, and no other damage: a bit that flips inside of a value is a value. Each
group of values that is read together has one checksum (64 bits of BLAKE2b), committed with it: of an episode where it
went, what was said and what it cost; each group of rows; each entry of every other table. It is taken from what SQLite
gives back, so that no conversion can come between. Numbers of episodes and rows are kept, too: a group that is gone
does not go unnoticed. Files of schema version 1 have none of this; once such a file is written to, what is new has.
"""

import hashlib
import sqlite3
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from pathlib import Path
from sys import byteorder
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from goalscope.runs.codec import EPISODE_COLUMNS, STEP_COLUMNS, Cell
from goalscope.runs.sqlite_errors import damaged, explained

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
"""Kinds of entries with one checksum each: the table, and the column that names an entry."""

EPISODES: Final = ("walk", "said", "cost")
"""Kinds of checksums of an episode; its key is its number, that of its cost its id."""

WALK_COLUMNS: Final = "step, row, col, flags, ifnull(action, -1), (action IS NULL) + 2 * (failure IS NULL)"
"""What a step did, without what was said."""

ROW_TEXTS: Final = "measure, unit, grid_id, episode_id"
PAGE_ROWS: Final = 4096
"""Rows of a source that have a checksum together."""

_FEW: Final = 500  # values that one statement is given
_COUNT, _BEFORE, _ROWS = "count", "before", "rows "
_SAID = 5  # the columns of a step before what was said


def checksum(*parts: Any) -> int:
    """Return 64 bits of what some plain values are; bytes are taken as they stand."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        # ASCII: what is printable, and so how it is written, differs between versions of Python.
        digest.update(part if isinstance(part, bytes | memoryview) else ascii(part).encode("ascii"))
    return int.from_bytes(digest.digest(), "little", signed=True)


def walk_sum(header: Sequence[Cell], steps: Sequence[Sequence[Any]] | npt.NDArray[np.int64]) -> int:
    """Return the checksum of `EPISODE_COLUMNS` and of `WALK_COLUMNS` of each step."""
    if isinstance(steps, np.ndarray):
        return checksum(tuple(header), len(steps), steps.astype("<i8", copy=False).tobytes())
    try:
        words = array("q", chain.from_iterable(steps))
    except (TypeError, OverflowError):  # a state that is no cell of a grid
        return checksum(tuple(header), list(map(tuple, steps)))
    if byteorder == "big":
        words.byteswap()
    return checksum(tuple(header), len(steps), words.tobytes())


def said_sum(steps: Sequence[Sequence[Cell]]) -> int:
    """Return the checksum of the columns `STEP_COLUMNS` of steps from the failure on."""
    return checksum([tuple(step[_SAID:]) for step in steps])


def walked(step: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return `WALK_COLUMNS` of `STEP_COLUMNS`."""
    index, row, col, flags, action, failure = step[:6]
    held = (action is None) + 2 * (failure is None)
    return index, row, col, flags, -1 if action is None else action, held


def page_sum(texts: Sequence[Sequence[Any]], values: Sequence[Any], steps: Sequence[Any]) -> int:
    """Return the checksum of a page of rows: `ROW_TEXTS` and tags, column by column, and its numbers.

    Raises:
        ValueError, TypeError: a cell of another kind; the file is damaged.
    """
    joined = ["\0".join(column).encode("utf-8", "surrogatepass") for column in texts]
    numbers = np.array(values, dtype="<f8").tobytes(), np.array(steps, dtype="<i8").tobytes()
    return checksum(tuple(map(len, joined)), *joined, *numbers)


def present(database: sqlite3.Connection) -> bool:
    """Return whether a file has checksums."""
    return bool(database.execute("SELECT 1 FROM sqlite_master WHERE name = 'checksums'").fetchone())


def known(database: sqlite3.Connection, kind: str, keys: Sequence[Cell]) -> dict[Cell, int]:
    """Return the checksums of some keys of a kind, by key."""
    found: dict[Cell, int] = {}
    for part in _parts(keys):
        marks = ", ".join("?" * len(part))
        select = f"SELECT key, value FROM checksums WHERE kind = ? AND key IN ({marks})"
        found |= dict(database.execute(select, (kind, *part)).fetchall())
    return found


def number_of(database: sqlite3.Connection, what: str) -> int | None:
    """Return how many episodes, or rows of a source, there are; None where the file does not say so."""
    found = known(database, _COUNT, [what])
    return found.get(what)


def is_old(database: sqlite3.Connection) -> bool:
    """Return whether parts of a file were written before it had checksums."""
    return not present(database) or bool(known(database, _BEFORE, ["episodes"]))


class Comparison:
    """The checksums of an open file, and what is said where one does not fit.

    Attributes:
        present: whether the file has any.
        old: whether parts of it were written before it had.
    """

    def __init__(self, database: sqlite3.Connection, file: Path) -> None:
        self._database, self._file = database, file
        self.present = present(database)
        self.old = is_old(database)

    def known(self, kind: str, keys: Sequence[Cell]) -> dict[Cell, int]:
        """Return the checksums of some keys of a kind; none where the file has none."""
        with explained(self._file):
            return known(self._database, kind, keys) if self.present else {}

    def number_of(self, what: str) -> int | None:
        """Return how many there are of what is counted; None where the file does not say so."""
        with explained(self._file):
            return number_of(self._database, what) if self.present else None

    def counted_sources(self) -> set[str]:
        """Return the sources of which rows are counted, those that have none left out."""
        if not self.present:
            return set()
        select = "SELECT key FROM checksums WHERE kind = ? AND value > 0"
        with explained(self._file):
            keys = [str(key) for (key,) in self._database.execute(select, (_COUNT,))]
        return {key.removeprefix(_ROWS) for key in keys if key.startswith(_ROWS)}

    def check(self, what: str, found: int, stored: int | None) -> None:
        """Raise a ValueError unless what was read fits its checksum; what is older than checksums has none."""
        if stored is None and self.old:
            return
        if stored != found:
            self.refuse(f"a checksum of {what}" if stored is None else f"{what} as it was written")

    def check_count(self, what: str, count: int, least: int | None, most: int | None) -> None:
        """Raise a ValueError unless as many were read as the file says, before and after they were read."""
        if least is None or most is None:
            if self.present and not self.old:
                self.refuse(f"the number of its {what}")
        elif not least <= count <= most:
            self.refuse(f"{most:,} {what}, of which {count:,} are found")

    def check_episodes(self, page: Sequence[tuple[Any, ...]], steps: Mapping[int, Sequence[Sequence[Cell]]]) -> None:
        """Compare a page of (number, `EPISODE_COLUMNS`) and the `STEP_COLUMNS` of their steps with their checksums."""
        walks, said = (self.known(kind, [row[0] for row in page]) for kind in ("walk", "said"))
        for number, *header in page:
            what = f"episode {header[0]!r:.80}"
            self.check(what, walk_sum(header, list(map(walked, steps[number]))), walks.get(number))
            self.check(f"what was said in {what}", said_sum(steps[number]), said.get(number))

    def check_order(
        self, page: Sequence[tuple[Any, ...]], last: tuple[Any, ...], worlds: Container[str] | None = None
    ) -> tuple[Any, ...]:
        """Return the key of the last episode of a page.

        Raises:
            ValueError: one is not behind the one before it, or in none of some worlds.
        """
        for row in page:
            if worlds is not None and row[2] not in worlds:
                self.refuse("each episode in its world")
            before, last = last, (row[2], row[3], row[4], row[1])
            if before and (list(map(type, before)) != list(map(type, last)) or before >= last):
                self.refuse("each episode once and in order")
        return last

    def check_keys(self, kind: str, count: int) -> None:
        """Raise a ValueError unless there are as many entries of a kind as have checksums."""
        if not self.present:
            return
        with explained(self._file):
            ((summed,),) = self._database.execute("SELECT count(*) FROM checksums WHERE kind = ?", (kind,)).fetchall()
        if summed > count or (summed < count and not self.old):
            self.refuse(f"a {kind} for each of {summed:,} checksums, not {count:,}")

    @contextmanager
    def described(self, what: str) -> Iterator[None]:
        """Say of an error inside what cannot be read."""
        try:
            yield
        except (ValueError, TypeError) as error:
            raise damaged(self._file, f"hold {what} as it was written", error) from error

    def refuse(self, must: str) -> NoReturn:
        """Raise the error of a file that is damaged."""
        raise damaged(self._file, f"hold {must}")


# Writing, inside of the caller's transaction


def begin(database: sqlite3.Connection) -> None:
    """Give a file of schema version 1 the table of checksums; what it holds already has none."""
    database.execute(TABLE)
    count = database.execute("SELECT count(*) FROM episodes").fetchone()[0]
    _put(database, _BEFORE, [("episodes", count)])
    _put(database, _COUNT, [("episodes", count)])


def clear(database: sqlite3.Connection) -> None:
    """Forget all checksums of a file whose tables were emptied."""
    database.execute("DELETE FROM checksums")
    _put(database, _COUNT, [("episodes", 0)])


def seal(database: sqlite3.Connection, kind: str, keys: Iterable[Cell]) -> None:
    """Take the checksums of entries of a table; those of entries that are gone are removed."""
    table, name = ENTRIES[kind]
    for part in _parts(list(keys)):
        marks = ", ".join("?" * len(part))
        rows = database.execute(f"SELECT {name}, * FROM {table} WHERE {name} IN ({marks})", part).fetchall()
        _put(database, kind, [(row[0], checksum(row[1:])) for row in rows])
        if len(rows) < len(part):
            gone = [(kind, key) for key in set(part) - {row[0] for row in rows}]
            database.executemany("DELETE FROM checksums WHERE kind = ? AND key = ?", gone)


def seal_episodes(database: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Take the checksums of episodes that were put."""
    sums: dict[str, list[tuple[Cell, int]]] = {kind: [] for kind in EPISODES}
    for number in numbers:
        header = database.execute(f"SELECT {EPISODE_COLUMNS} FROM episodes WHERE number = ?", (number,)).fetchone()
        select = f"SELECT {STEP_COLUMNS} FROM steps WHERE episode = ? ORDER BY step"
        steps = database.execute(select, (number,)).fetchall()
        sums["walk"].append((number, walk_sum(header, list(map(walked, steps)))))
        sums["said"].append((number, said_sum(steps)))
        sums["cost"].append((header[0], cost_sum(database, header[0])))
    for kind, found in sums.items():
        _put(database, kind, found)
    _put(database, _COUNT, [("episodes", (number_of(database, "episodes") or 0) + len(numbers))])


def cost_sum(database: sqlite3.Connection, identity: Cell) -> int:
    """Return the checksum of what an episode cost."""
    select = "SELECT step, attempt, name, value FROM usage WHERE episode_id = ? ORDER BY step, attempt, name"
    return checksum(database.execute(select, (identity,)).fetchall())


def costs_that_differ(database: sqlite3.Connection, comparison: Comparison) -> Iterator[str]:
    """Yield the ids of episodes whose costs do not fit their checksum, and those that cost something and are gone."""
    if not comparison.present:
        return
    select = "SELECT episode_id, step, attempt, name, value FROM usage ORDER BY episode_id, step, attempt, name"
    found = {
        identity: checksum([row[1:] for row in rows])
        for identity, rows in groupby(database.execute(select), key=lambda row: row[0])
    }
    nothing = checksum([])
    for key, stored in database.execute("SELECT key, value FROM checksums WHERE kind = 'cost'"):
        if found.pop(key, nothing) != stored:
            yield str(key)
    if found and not comparison.old:
        yield str(min(map(str, found)))


def seal_group(database: sqlite3.Connection, source: str, number: int, cells: Sequence[Cell]) -> None:
    """Take the checksum of a packed group of rows: how many, which measures, its columns."""
    _put(database, "rows", [(page_key(source, number), checksum(*cells))])


def seal_index(database: sqlite3.Connection, source: str, index: Sequence[tuple[Any, ...]]) -> None:
    """Take the checksum of (number, rows, measures) of all groups of a source, and the number of its rows."""
    _put(database, "rows", [(index_key(source), checksum(list(index)))])
    _put(database, _COUNT, [(_ROWS + source, sum(int(count) for _, count, _ in index))])


def forget_rows(database: sqlite3.Connection, source: str) -> None:
    """Remove the checksums of the rows of a source."""
    begin, end = page_key(source, 0)[:-1], f"{source}\x01"
    database.execute("DELETE FROM checksums WHERE kind = 'rows' AND key >= ? AND key < ?", (begin, end))
    database.execute("DELETE FROM checksums WHERE kind = ? AND key = ?", (_COUNT, _ROWS + source))


def _put(database: sqlite3.Connection, kind: str, sums: Iterable[tuple[Cell, int]]) -> None:
    cells = [(kind, key, value) for key, value in sums]
    database.executemany("INSERT OR REPLACE INTO checksums VALUES (?, ?, ?)", cells)


def page_key(source: str, begun: int) -> str:
    """Return the key of a group of rows by its number, or of a page of rows by that of its first row."""
    return f"{source}\0{begun}"


def index_key(source: str) -> str:
    """Return the key of what is told of the groups of a source without reading them."""
    return f"{source}\0index"


def _parts(keys: Sequence[Cell]) -> Iterator[Sequence[Cell]]:
    for begun in range(0, len(keys), _FEW):
        yield keys[begun : begun + _FEW]
