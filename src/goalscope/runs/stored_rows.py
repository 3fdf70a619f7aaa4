"""Rows in `run.db`, in packed groups.

Each group is compared with its checksum when it is read. The readers hold a transaction: groups and checksums belong
together only where nothing is written in between.
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from goalscope.rows import Rows
from goalscope.runs import checksums
from goalscope.runs.checksums import Comparison
from goalscope.runs.row_groups import GROUP_ROWS, Packed, cut, labels_of, pack, unpack
from goalscope.untrusted import DamagedError, UntrustedError, decode_json

_GROUPS_PER_PART: Final = 1 << 32  # maximum number of groups of one part of a source


class RowStore(ABC):
    """The rows of a store.

    Attributes:
        sums: the checksums of the open file.
    """

    sums: Comparison

    @abstractmethod
    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """Commit everything that is done inside, or nothing of it."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[sqlite3.Connection]:
        """Hold one consistent state of the database for several reads, whatever a writer does meanwhile."""

    def put_rows(self, rows: Rows | Iterable[tuple[int, Rows]], source: str) -> None:
        """Store the rows of one source ("behaviour", "probe 3"), in place of those it had; all of them or none.

        Args:
            rows: the rows; or parts of them, each with its position: they are read in the order of their positions,
                those of one position in the order in which they come. Few of the parts are in memory at a time.
            source: the source.
        """
        with self.transaction() as database:
            if isinstance(rows, Rows):
                write_rows(database, [rows], source)
            else:
                write_places(database, rows, source)

    def row_sources(self) -> list[str]:
        """Return the sources that have rows, ordered by name."""
        with self.snapshot() as database:
            return sources_of(database, self.sums)

    def row_counts(self, source: str) -> dict[str, int]:
        """Return the measures of a source in order of appearance, and how many rows each has at most."""
        with self.snapshot() as database:
            return counts_of(database, self.sums, source)

    def rows(self) -> Rows:
        """Return the rows of all sources, ordered by source."""
        return Rows.concatenate(rows for _, rows in self.row_groups())

    def rows_of(
        self, source: str, measures: Collection[str] | None = None, *, names: Iterable[str] | None = None
    ) -> Iterator[Rows]:
        """Return the rows of a source a group at a time, in order.

        Args:
            source: the source.
            measures: which measures; all by default. Others are not read where they have groups of their own.
            names: text columns to read besides measure and tags; others may hold "". All by default.
        """
        with self.snapshot() as database:
            yield from read_groups(database, self.sums, source, measures=measures, names=names)

    def row_groups(
        self, measures: Collection[str] | None = None, *, names: Iterable[str] | None = None
    ) -> Iterator[tuple[str, Rows]]:
        """Return the rows of all sources a group at a time, each with its source, in the order of `rows`.

        Args:
            measures, names: see `rows_of`.
        """
        with self.snapshot():
            for source in self.row_sources():
                yield from ((source, rows) for rows in self.rows_of(source, measures, names=names))

    def row_labels(self, name: str) -> Iterator[tuple[str, list[str]]]:
        """Return the measures of each group of rows, each with the values of one of its text columns."""
        with self.snapshot() as database:
            for source in sources_of(database, self.sums):
                yield from read_labels(database, self.sums, source, name)


# Writing, inside of the caller's transaction


def write_rows(database: sqlite3.Connection, parts: Iterable[Rows], source: str) -> None:
    """Replace the rows of one source, which come in parts, in order."""
    forget(database, source)
    writer = _Writer(database, source)
    for rows in parts:
        for group in cut(rows):
            writer.add(0, pack(group))
    writer.end()


def write_places(database: sqlite3.Connection, parts: Iterable[tuple[int, Rows]], source: str) -> None:
    """Replace the rows of one source by parts with positions, which sort them; equal positions keep their order.

    Few rows are in memory at a time.
    """
    forget(database, source)
    writer = _Writer(database, source)
    buffers: dict[int, list[Rows]] = {}
    for position, rows in parts:
        buffer = buffers.setdefault(position, [])
        buffer.append(rows)
        if sum(map(len, buffer)) >= GROUP_ROWS:
            *full, remainder = _whole_groups(Rows.concatenate(buffer))
            for group in full:
                writer.add(position, pack(group))
            buffers[position] = [remainder.at(np.arange(len(remainder)))]  # a slice would keep all rows in memory
    for position, buffer in sorted(buffers.items()):
        for group in _whole_groups(Rows.concatenate(buffer)):
            writer.add(position, pack(group))
    writer.end()


def _whole_groups(rows: Rows) -> list[Rows]:
    return [rows.at(slice(at, at + GROUP_ROWS)) for at in range(0, len(rows), GROUP_ROWS)]


@dataclass(slots=True)
class _Writer:
    """Numbers and stores the groups of a source."""

    database: sqlite3.Connection
    source: str
    index: list[tuple[int, int, str]] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, position: int, group: Packed) -> None:
        number = position * _GROUPS_PER_PART + self.counts.get(position, 0)
        self.counts[position] = self.counts.get(position, 0) + 1
        cells = (group.count, group.measures, group.data)
        self.database.execute("INSERT INTO row_groups VALUES (?, ?, ?, ?, ?)", (self.source, number, *cells))
        checksums.seal_group(self.database, self.source, number, cells)
        self.index.append((number, group.count, group.measures))

    def end(self) -> None:
        checksums.seal_index(self.database, self.source, sorted(self.index))


def forget(database: sqlite3.Connection, source: str) -> None:
    """Remove the rows of a source, inside of the caller's transaction."""
    database.execute("DELETE FROM row_groups WHERE source = ?", (source,))
    checksums.forget_rows(database, source)


# Reading


def sources_of(database: sqlite3.Connection, comparison: Comparison) -> list[str]:
    """Return the sources that have rows, ordered by name; a ValueError where a counted source is missing."""
    sources = [source for (source,) in database.execute("SELECT DISTINCT source FROM row_groups")]
    if not all(isinstance(source, str) for source in sources):
        comparison.refuse("the source of every row as text")
    if missing := comparison.counted_sources() - set(sources):
        comparison.refuse(f"the rows of {min(missing)!r}")
    return sorted(sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """The index entry of a group of rows."""

    number: int
    count: int
    measures: tuple[str, ...]


def index_of(database: sqlite3.Connection, comparison: Comparison, source: str) -> list[StoredGroup]:
    """Return the groups of a source in order.

    Raises:
        ValueError: the index does not match its checksum.
    """
    select = "SELECT number, count, measures FROM row_groups WHERE source = ? ORDER BY number"
    cells = database.execute(select, (source,)).fetchall()
    key = checksums.index_key(source)
    stored = comparison.known("rows", [key]).get(key)
    if not cells and stored is None:  # no such source
        return []
    comparison.check(f"the list of the rows of {source!r}", checksums.checksum(cells), stored)
    groups = [StoredGroup(number=number, count=count, measures=_measures(text)) for number, count, text in cells]
    counted = comparison.number_of(f"rows {source}")
    comparison.check_count(f"rows of {source!r}", sum(group.count for group in groups), counted, counted)
    return groups


def _measures(text: Any) -> tuple[str, ...]:
    try:
        names = decode_json(text)
    except UntrustedError as error:
        raise DamagedError(f"the measures of rows must be stored as JSON: {error}: the file is damaged") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DamagedError("the measures of rows must be stored as a list of texts: the file is damaged")
    return tuple(names)


def read_groups(
    database: sqlite3.Connection,
    comparison: Comparison,
    source: str,
    *,
    measures: Collection[str] | None = None,
    names: Iterable[str] | None = None,
) -> Iterator[Rows]:
    """Yield the rows of a source in order, a group at a time.

    Args:
        database, comparison: the open file.
        source: the source.
        measures: which measures; all by default. Groups without any of them are not read.
        names: text columns to read besides all tags; others may be "". All by default.

    Raises:
        ValueError: the rows do not match their checksums.
    """
    groups = index_of(database, comparison, source)
    wanted_measures = None if measures is None else set(measures)
    columns = None if names is None else {*names, "measure"}
    for group in groups:
        if wanted_measures is None or wanted_measures.intersection(group.measures):
            cells = _cells(database, comparison, source, group)
            with comparison.described(f"rows {group.number:,} of {source!r}"):
                rows = unpack(cells[2], cells[0], names=columns)
            yield rows if wanted_measures is None else rows.where(rows.among("measure", wanted_measures))


def _cells(database: sqlite3.Connection, comparison: Comparison, source: str, group: StoredGroup) -> tuple[Any, ...]:
    """Return the number of rows, the measures and the columns of a group, as they were written."""
    select = "SELECT count, measures, data FROM row_groups WHERE source = ? AND number = ?"
    # Where table and index of a damaged file disagree, the index has a group that cannot be found.
    cells: tuple[Any, ...] = database.execute(select, (source, group.number)).fetchone() or ()
    key = checksums.page_key(source, group.number)
    stored = comparison.known("rows", [key]).get(key)
    comparison.check(f"rows {group.number:,} of {source!r}", checksums.checksum(*cells), stored)
    return cells


def read_labels(
    database: sqlite3.Connection, comparison: Comparison, source: str, name: str
) -> Iterator[tuple[str, list[str]]]:
    """Yield the measures of each group of a source, each with the values of one of its text columns."""
    groups = index_of(database, comparison, source)
    for group in groups:
        cells = _cells(database, comparison, source, group)
        with comparison.described(f"rows {group.number:,} of {source!r}"):
            if len(group.measures) == 1:
                yield group.measures[0], labels_of(cells[2], cells[0], name)
            else:
                yield from _labels_by_measure(unpack(cells[2], cells[0], names=("measure", name)), name)


def _labels_by_measure(rows: Rows, name: str) -> Iterator[tuple[str, list[str]]]:
    codes, measures = rows.numbered("measure")
    for code, measure in enumerate(measures):
        yield measure, rows.where(codes == code).numbered(name)[1]


def damaged_rows(database: sqlite3.Connection, comparison: Comparison, source: str) -> str:
    """Return the error in reading the rows of a source, "" where there is none."""
    try:
        for _ in read_groups(database, comparison, source):
            pass
    except (sqlite3.Error, ValueError, TypeError) as error:
        return str(error)[:500]
    return ""


def counts_of(database: sqlite3.Connection, comparison: Comparison, source: str) -> dict[str, int]:
    """Return the measures of a source in order of appearance, and how many rows each has at most."""
    counts: dict[str, int] = {}
    groups = index_of(database, comparison, source)
    for group in groups:
        for measure in group.measures:
            counts[measure] = counts.get(measure, 0) + group.count
    return counts


def count_rows(database: sqlite3.Connection, comparison: Comparison, source: str) -> int:
    """Return the number of rows of a source."""
    return sum(group.count for group in index_of(database, comparison, source))
