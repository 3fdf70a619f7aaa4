"""What a store does with rows of measures: they are put by their source, and read whole or a group at a time."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager

from goalscope.rows import Rows
from goalscope.runs import stored_rows
from goalscope.runs.checksums import Comparison


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
        """Read several things as they are at one moment, whatever a writer does meanwhile."""

    def put_rows(self, rows: Rows | Iterable[tuple[int, Rows]], source: str) -> None:
        """Store the rows of one source ("behaviour", "probe 3"), in place of those it had; all of them or none.

        Args:
            rows: the rows; or parts of them, each with its place: they are read in the order of their places, those of
                one place in the order in which they come. Few of the parts are in memory at a time.
            source: the source.
        """
        with self.transaction() as database:
            if isinstance(rows, Rows):
                stored_rows.write_rows(database, [rows], source)
            else:
                stored_rows.write_places(database, rows, source)

    def row_sources(self) -> list[str]:
        """Return the sources that have rows, ordered by name."""
        with self.snapshot() as database:
            return stored_rows.sources_of(database, self.sums)

    def row_counts(self, source: str) -> dict[str, int]:
        """Return the measures of a source in order of appearance, and how many rows each has at most."""
        with self.snapshot() as database:
            return stored_rows.counts_of(database, self.sums, source)

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
            names: text columns that are wanted, beside measure and tags; others may hold "". All by default.
        """
        with self.snapshot() as database:
            yield from stored_rows.read_groups(database, self.sums, source, measures=measures, names=names)

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
        """Return the measures of each group of rows, each with the values that one of its text columns has."""
        with self.snapshot() as database:
            for source in stored_rows.sources_of(database, self.sums):
                yield from stored_rows.read_labels(database, self.sums, source, name)
