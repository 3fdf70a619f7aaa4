"""Rows in `run.db`, in packed groups: only this module writes, seals, reads and explains them.

The bytes of a group are those of `goalscope.runs.row_groups`. Groups and checksums match only if nothing is written in
between, so readers hold a transaction.
"""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from goalscope._ground.untrusted import DamagedError, UntrustedError, decode_json
from goalscope.runs import checksums
from goalscope.runs.checksums import Comparison
from goalscope.runs.row_groups import GROUP_ROWS, cut, labels_of, pack, unpack
from goalscope.stats.rows import Rows

_GROUPS_PER_PART: Final = 1 << 32  # maximum number of groups of one part of a source
_KIND: Final = "rows"  # kind under which the checksums are stored
_COUNTED: Final = "rows "  # prefix for the name of a source whose rows are counted


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The index entry of a group of rows that are read together: its number, number of rows, and measures in them."""

    number: int
    count: int
    measures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of an open file. All methods run inside the caller's transaction.

    Attributes:
        database: the open file.
        sums: its checksums; a mismatch raises a ValueError.
    """

    database: sqlite3.Connection
    sums: Comparison

    # Writing

    def write(self, parts: Iterable[Rows], source: str) -> None:
        """Replace the rows of one source; the new rows come in parts, in order."""
        self._replace(((0, group) for rows in parts for group in cut(rows)), source)

    def write_places(self, parts: Iterable[tuple[int, Rows]], source: str) -> None:
        """Replace the rows of one source by parts sorted by position; parts with equal positions keep their order.

        Only few rows are in memory at a time.
        """
        self._replace(_gathered(parts), source)

    def _replace(self, groups: Iterable[tuple[int, Rows]], source: str) -> None:
        self.forget(source)
        counts: dict[int, int] = {}
        index: list[tuple[int, int, str]] = []
        for position, rows in groups:
            group = pack(rows)
            number = position * _GROUPS_PER_PART + counts.get(position, 0)
            counts[position] = counts.get(position, 0) + 1
            cells = (group.count, group.measures, group.data)
            self.database.execute("INSERT INTO row_groups VALUES (?, ?, ?, ?, ?)", (source, number, *cells))
            self.seal_group(source, number, cells)
            index.append((number, group.count, group.measures))
        self.seal_index(source, sorted(index))

    def seal_group(self, source: str, number: int, cells: Sequence[Any]) -> None:
        """Store the checksum of a packed group: its number of rows, measures and columns."""
        checksums.put(self.database, _KIND, [(_group_key(source, number), checksums.checksum(*cells))])

    def seal_index(self, source: str, index: Sequence[tuple[Any, ...]]) -> None:
        """Store the checksum of (number, rows, measures) of all groups of a source, and the number of its rows."""
        checksums.put(self.database, _KIND, [(_index_key(source), checksums.checksum(list(index)))])
        checksums.put(self.database, checksums.COUNT, [(_COUNTED + source, sum(int(count) for _, count, _ in index))])

    def forget(self, source: str) -> None:
        """Remove the rows of a source and their checksums."""
        self.database.execute("DELETE FROM row_groups WHERE source = ?", (source,))
        delete = "DELETE FROM checksums WHERE kind = ? AND "
        self.database.execute(f"{delete}key >= ? AND key < ?", (_KIND, _group_key(source, 0)[:-1], f"{source}\x01"))
        self.database.execute(f"{delete}key = ?", (checksums.COUNT, _COUNTED + source))

    # Reading

    def counted(self) -> set[str]:
        """Return the sources that must have rows, according to the checksums in the file."""
        return self.sums.counted(_COUNTED)

    def sources(self) -> list[str]:
        """Return the sources that have rows, ordered by name; raise a ValueError if a counted source is missing."""
        sources = [source for (source,) in self.database.execute("SELECT DISTINCT source FROM row_groups")]
        if not all(isinstance(source, str) for source in sources):
            self.sums.refuse("the source of every row as text")
        if missing := self.counted() - set(sources):
            self.sums.refuse(f"the rows of {min(missing)!r}")
        return sorted(sources)

    def index(self, source: str) -> list[StoredGroup]:
        """Return the groups of a source in order; none if there is no such source."""
        select = "SELECT number, count, measures FROM row_groups WHERE source = ? ORDER BY number"
        cells = self.database.execute(select, (source,)).fetchall()
        key = _index_key(source)
        stored = self.sums.known(_KIND, [key]).get(key)
        if not cells and stored is None:
            return []
        self.sums.check(f"the list of the rows of {source!r}", checksums.checksum(cells), stored)
        groups = [StoredGroup(number, count, _measures(text)) for number, count, text in cells]
        counted = self.sums.number_of(_COUNTED + source)
        self.sums.check_count(f"rows of {source!r}", sum(group.count for group in groups), counted, counted)
        return groups

    def groups(
        self, source: str, *, measures: Collection[str] | None = None, names: Iterable[str] | None = None
    ) -> Iterator[Rows]:
        """Yield the rows of a source one group at a time, in order; see `Store.rows_of`."""
        wanted_measures = None if measures is None else set(measures)
        columns = None if names is None else {*names, "measure"}
        for group in self.index(source):
            if wanted_measures is None or wanted_measures.intersection(group.measures):
                data = self._data(source, group)
                with self.sums.described(f"rows {group.number:,} of {source!r}"):
                    rows = unpack(data, group.count, names=columns)
                yield rows if wanted_measures is None else rows.where(rows.among("measure", wanted_measures))

    def labels(self, source: str, name: str) -> Iterator[tuple[str, list[str]]]:
        """Yield each measure of each group of a source, with the distinct values of a text column in its rows."""
        for group in self.index(source):
            data = self._data(source, group)
            with self.sums.described(f"rows {group.number:,} of {source!r}"):
                if len(group.measures) == 1:
                    yield group.measures[0], labels_of(data, group.count, name)
                else:
                    yield from _labels_by_measure(unpack(data, group.count, names=("measure", name)), name)

    def _data(self, source: str, group: StoredGroup) -> bytes:
        """Return the columns of a group as they were written."""
        select = "SELECT count, measures, data FROM row_groups WHERE source = ? AND number = ?"
        # In a damaged file, the index may name a group that the table lacks.
        cells: tuple[Any, ...] = self.database.execute(select, (source, group.number)).fetchone() or ()
        key = _group_key(source, group.number)
        stored = self.sums.known(_KIND, [key]).get(key)
        self.sums.check(f"rows {group.number:,} of {source!r}", checksums.checksum(*cells), stored)
        data: bytes = cells[2]
        return data

    def damage(self, source: str) -> str:
        """Return the message of the error that occurs when the rows of a source are read; "" if there is none."""
        try:
            for _ in self.groups(source):
                pass
        except (sqlite3.Error, ValueError, TypeError) as error:
            return str(error)[:500]
        return ""


def _gathered(parts: Iterable[tuple[int, Rows]]) -> Iterator[tuple[int, Rows]]:
    """Yield groups of parts with positions, each when it is full; at the end, the last group of each position."""
    buffers: dict[int, list[Rows]] = {}
    for position, rows in parts:
        buffer = buffers.setdefault(position, [])
        buffer.append(rows)
        if sum(map(len, buffer)) >= GROUP_ROWS:
            *full, remainder = _whole_groups(Rows.concatenate(buffer))
            yield from ((position, group) for group in full)
            # copied, because a slice would keep all rows in memory
            buffers[position] = [remainder.at(np.arange(len(remainder)))]
    for position, buffer in sorted(buffers.items()):
        yield from ((position, group) for group in _whole_groups(Rows.concatenate(buffer)))


def _whole_groups(rows: Rows) -> list[Rows]:
    return [rows.at(slice(at, at + GROUP_ROWS)) for at in range(0, len(rows), GROUP_ROWS)]


def _group_key(source: str, number: int) -> str:
    return f"{source}\0{number}"


def _index_key(source: str) -> str:
    return f"{source}\0index"


def _measures(text: Any) -> tuple[str, ...]:
    try:
        names = decode_json(text)
    except UntrustedError as error:
        raise DamagedError(f"the measures of rows must be stored as JSON: {error}: the file is damaged") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DamagedError("the measures of rows must be stored as a list of texts: the file is damaged")
    return tuple(names)


def _labels_by_measure(rows: Rows, name: str) -> Iterator[tuple[str, list[str]]]:
    codes, measures = rows.numbered("measure")
    for code, measure in enumerate(measures):
        yield measure, rows.where(codes == code).numbered(name)[1]
