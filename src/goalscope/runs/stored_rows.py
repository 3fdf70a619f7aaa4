"""Rows in `run.db`, in packed groups: only this module packs, writes, seals, reads and explains them.

A group consists of columns, each with its distinct values and a small code per row. It is compressed as a whole: a line
of JSON that describes the columns, then their numbers, little-endian. Groups are validated as untrusted input when
unpacked. Groups and checksums match only if nothing is written in between, so readers hold a transaction.
"""

import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.ids import canonical_json
from goalscope._ground.untrusted import DamagedError, UntrustedError, decode_json, decode_object
from goalscope.runs import tables
from goalscope.runs.codec import encode_tags
from goalscope.runs.tables import Comparison
from goalscope.stats.rows import Coded, Column, Rows, column_of, constant, encoded

_GROUPS_PER_PART: Final = 1 << 32  # maximum number of groups of one part of a source
_KIND: Final = "rows"  # kind under which the checksums are stored
_COUNTED: Final = "rows "  # prefix for the name of a source whose rows are counted


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """What a run's index says about one stored group of rows (values of measures that are read together).

    The fields are the group's number, how many rows it has, and the measures that occur in it.
    """

    number: int
    count: int
    measures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows (values of measures with their tags) in an open run.db. All methods run inside the caller's transaction.

    The *source* of rows is the name of the analysis that computed them, such as "behaviour".

    Attributes:
        database: the open file.
        sums: its checksums; a mismatch raises a ValueError.
    """

    database: sqlite3.Connection
    sums: Comparison

    # Writing

    def write(self, parts: Iterable[Rows], source: str) -> None:
        """Store rows (values of measures) in place of all earlier rows of the same analysis.

        Args:
            parts: the rows, in any number of parts, in order.
            source: name of the analysis that computed them.
        """
        self._replace(((0, group) for rows in parts for group in cut(rows)), source)

    def write_places(self, parts: Iterable[tuple[int, Rows]], source: str) -> None:
        """Store rows (values of measures) in place of all earlier rows of the same analysis, from parts in any order.

        Only few rows are in memory at a time.

        Args:
            parts: (position, rows); parts are sorted by position, and those with equal positions keep their order.
            source: name of the analysis that computed them.
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
        """Store the checksum of one packed group of rows (values of measures).

        Args:
            source: name of the analysis that computed the rows.
            number: number of the group.
            cells: the group's number of rows, measures and packed columns.
        """
        tables.put(self.database, _KIND, [(_group_key(source, number), tables.checksum(*cells))])

    def seal_index(self, source: str, index: Sequence[tuple[Any, ...]]) -> None:
        """Store the checksum of the list of groups in which the rows of an analysis are stored, and the number of its
        rows.

        Args:
            source: name of the analysis that computed the rows (values of measures).
            index: (number, number of rows, measures) of each group.
        """
        tables.put(self.database, _KIND, [(_index_key(source), tables.checksum(list(index)))])
        tables.put(self.database, tables.COUNT, [(_COUNTED + source, sum(int(count) for _, count, _ in index))])

    def forget(self, source: str) -> None:
        """Delete the rows (values of measures) of one analysis, named by ``source``, and their checksums."""
        self.database.execute("DELETE FROM row_groups WHERE source = ?", (source,))
        delete = "DELETE FROM checksums WHERE kind = ? AND "
        self.database.execute(f"{delete}key >= ? AND key < ?", (_KIND, _group_key(source, 0)[:-1], f"{source}\x01"))
        self.database.execute(f"{delete}key = ?", (tables.COUNT, _COUNTED + source))

    # Reading

    def counted(self) -> set[str]:
        """Return the names of the analyses that must have rows (values of measures), according to the stored numbers of
        rows.
        """
        return self.sums.counted(_COUNTED)

    def sources(self) -> list[str]:
        """Return the names of the analyses that have rows (values of measures), in alphabetical order.

        Raises:
            ValueError: an analysis that must have rows has none, so the file is damaged.
        """
        sources = [source for (source,) in self.database.execute("SELECT DISTINCT source FROM row_groups")]
        if not all(isinstance(source, str) for source in sources):
            self.sums.refuse("the source of every row as text")
        if missing := self.counted() - set(sources):
            self.sums.refuse(f"the rows of {min(missing)!r}")
        return sorted(sources)

    def index(self, source: str) -> list[StoredGroup]:
        """Return number, size and measures of each group in which the rows of an analysis are stored, in order.

        Args:
            source: name of the analysis that computed the rows (values of measures). Without rows, the result is empty.

        Raises:
            ValueError: the list does not match its checksum.
        """
        select = "SELECT number, count, measures FROM row_groups WHERE source = ? ORDER BY number"
        cells = self.database.execute(select, (source,)).fetchall()
        key = _index_key(source)
        stored = self.sums.known(_KIND, [key]).get(key)
        if not cells and stored is None:
            return []
        self.sums.check(f"the list of the rows of {source!r}", tables.checksum(cells), stored)
        groups = [StoredGroup(number, count, _measures(text)) for number, count, text in cells]
        counted = self.sums.number_of(_COUNTED + source)
        self.sums.check_count(f"rows of {source!r}", sum(group.count for group in groups), counted, counted)
        return groups

    def groups(
        self, source: str, *, measures: Collection[str] | None = None, names: Iterable[str] | None = None
    ) -> Iterator[Rows]:
        """Yield the rows (values of measures) that one analysis computed, a stored group at a time, in order.

        Args:
            source: name of the analysis.
            measures: measures to return; all by default.
            names: text columns to read in addition to measure and tags; others are "". All by default.

        Raises:
            ValueError: a group is damaged.
        """
        wanted_measures = None if measures is None else set(measures)
        columns = None if names is None else {*names, "measure"}
        for group in self.index(source):
            if wanted_measures is None or wanted_measures.intersection(group.measures):
                data = self._data(source, group)
                with self.sums.described(f"rows {group.number:,} of {source!r}"):
                    rows = unpack(data, group.count, names=columns)
                yield rows if wanted_measures is None else rows.where(rows.among("measure", wanted_measures))

    def labels(self, source: str, name: str) -> Iterator[tuple[str, list[str]]]:
        """Yield each measure in each stored group of rows of an analysis, with the distinct values of a text column.

        Args:
            source: name of the analysis that computed the rows (values of measures).
            name: the column, one of `TEXTS`.
        """
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
        self.sums.check(f"rows {group.number:,} of {source!r}", tables.checksum(*cells), stored)
        data: bytes = cells[2]
        return data

    def damage(self, source: str) -> str:
        """Return the error message that results from reading the rows (values of measures) of an analysis; "" if there
        is none.

        Args:
            source: name of the analysis.
        """
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


GROUP_ROWS: Final = 16_384
"""Maximum number of rows of a group."""

TEXTS: Final = ("measure", "unit", "cluster", "episode_id")
"""Text columns of rows."""

_MIN_RUN = 1024  # minimum number of rows for which a measure gets groups of its own
_LEVEL = 6
_MAX_BYTES = 1 << 26  # maximum size of an unpacked group; about 100 times the usual size
_CODES: Final[dict[str, np.dtype[Any]]] = {"u1": np.dtype("<u1"), "u2": np.dtype("<u2"), "u4": np.dtype("<u4")}
_STEPS: Final[dict[str, np.dtype[Any]]] = {name: np.dtype(f"<{name}") for name in ("i1", "i2", "i4", "i8")}
_MAX_LABELS = 256  # maximum number of different values in a group that are stored as codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A group of rows (values of measures with their tags) in compressed form, as run.db stores it.

    Attributes:
        count: number of its rows.
        measures: JSON list of its measures, in order of appearance.
        data: its columns.
    """

    count: int
    measures: str
    data: bytes


def cut(rows: Rows) -> Iterator[Rows]:
    """Divide rows (values of measures) into the groups in which they are stored, in order.

    Many rows of one measure form groups of their own, so that they can be read without the others.
    """
    codes = rows.numbered("measure")[0]
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    start = 0
    for first, last in pairwise(edges):
        if last - first >= _MIN_RUN:
            yield from _slices(rows, start, first)
            yield from _slices(rows, first, last)
            start = last
    yield from _slices(rows, start, len(codes))


def _slices(rows: Rows, begin: int, end: int) -> Iterator[Rows]:
    for at in range(begin, end, GROUP_ROWS):
        yield rows.at(slice(at, min(at + GROUP_ROWS, end)))


def pack(rows: Rows, *, level: int = _LEVEL) -> Packed:
    """Compress a group of rows (values of measures with their tags) for storage; `unpack` restores it.

    Args:
        rows: the rows.
        level: compression level, 0 for none.

    Raises:
        TypeError: a tag is not text, a number, a boolean or None.
        ValueError: a tag has half of a surrogate pair, or is a number that is not finite.
    """
    described: list[list[Any]] = []
    numbers: list[bytes] = []
    names = _tags_in_order(rows)
    for name, column in [
        *((name, rows.held(name)) for name in TEXTS),
        *((f"tag.{n}", rows.held(n)) for n in names),
    ]:
        coded = _plain_values(encoded(column).compact())
        labels = coded.labels.tolist()
        _check_labels(name, labels)
        width = _width(len(labels))
        described.append([name, width, labels])
        numbers.append(coded.codes.astype(_CODES[width]).tobytes() if width else b"")
    described.append(["value", *_packed_values(rows.value, numbers)])
    described.append(["step", *_packed_steps(rows.step, numbers)])
    measures = described[0][2]
    head = canonical_json({"rows": len(rows), "columns": described}).encode("ascii")
    data = zlib.compress(b"".join([head, b"\n", *numbers]), level)
    return Packed(count=len(rows), measures=canonical_json(measures), data=data)


def _plain_values(coded: Coded) -> Coded:
    """Return a column with Python's numbers instead of NumPy's."""
    if not any(isinstance(label, np.generic) for label in coded.labels):
        return coded
    values = [label.item() if isinstance(label, np.generic) else label for label in coded.labels]
    recoded = encoded(column_of(values))
    return Coded(recoded.labels, recoded.codes[coded.codes])


def _check_labels(name: str, labels: Sequence[Any]) -> None:
    if name.startswith("tag."):
        for label in labels:
            encode_tags({name.removeprefix("tag."): label})
    elif not all(isinstance(label, str) for label in labels):
        raise TypeError(f"{name} of every row must be text, got {type(labels[0]).__name__}")


def _tags_in_order(rows: Rows) -> list[str]:
    """Return the tags that any row has, in order of the first row with them, then by name."""
    masks = {name: rows.known(name) for name in sorted(rows.tags)}
    first_row = {name: int(mask.argmax()) for name, mask in masks.items() if mask.any()}
    return sorted(first_row, key=lambda name: (first_row[name], name))


def _packed_values(values: npt.NDArray[np.float64], numbers: list[bytes]) -> tuple[str, int]:
    """Append the values to ``numbers``, as codes if there are few different ones.

    Return the type of the codes ("" without codes) and the number of different values.
    """
    bits = (values + 0.0).astype("<f8")  # converts -0.0 to 0.0
    bits[np.isnan(bits)] = np.nan  # uses a single bit pattern for NaN
    labels, codes = np.unique(bits.view("<i8"), return_inverse=True)
    if len(labels) > _MAX_LABELS:
        numbers.append(bits.tobytes())
        return "", 0
    numbers.append(labels.tobytes() + codes.astype("<u1").tobytes())
    return "u1", len(labels)


def _packed_steps(steps: npt.NDArray[np.int64], numbers: list[bytes]) -> tuple[str, int]:
    """Append the steps to ``numbers`` and return their type and 0.

    If all are equal, return "" and this step instead.
    """
    if not len(steps) or (steps == steps[0]).all():
        return "", int(steps[0]) if len(steps) else 0
    minimum, maximum = int(steps.min()), int(steps.max())
    width = next(
        name for name, kind in _STEPS.items() if np.iinfo(kind).min <= minimum and maximum <= np.iinfo(kind).max
    )
    numbers.append(steps.astype(_STEPS[width]).tobytes())
    return width, 0


def _width(count: int) -> str:
    return "" if count < 2 else next(name for name, kind in _CODES.items() if count <= np.iinfo(kind).max + 1)


# Back


def unpack(data: bytes, count: int, *, names: Iterable[str] | None = None) -> Rows:
    """Restore the rows (values of measures with their tags) of a group that `pack` compressed.

    Args:
        data: the field ``data`` of the packed group.
        count: expected number of rows.
        names: text columns to read in addition to all tags; the others are "". All by default.

    Raises:
        ValueError: the data are not a valid group.
    """
    buffer, described = _opened(data, count)
    wanted_names = set(TEXTS if names is None else names)
    texts: dict[str, Column] = {name: constant("", count) for name in TEXTS}
    tags: dict[str, Column] = {}
    for name, width, labels in described[:-2]:
        codes = buffer.take(_CODES[width], count) if width else np.zeros(count, dtype=np.uint8)
        if count and (not labels or codes.max() >= len(labels)):
            raise ValueError("codes must be those of its labels")
        if name.startswith("tag."):
            tags[name.removeprefix("tag.")] = Coded(column_of(labels), codes)
        elif name in wanted_names:
            texts[name] = Coded(column_of(labels), codes)
    (_, value_width, label_count), (_, step_width, constant_step) = described[-2:]
    value, step = buffer.values(value_width, label_count, count), buffer.steps(step_width, constant_step, count)
    if buffer.remaining:
        raise ValueError("it must end behind its last column")
    return Rows(**texts, value=value, step=step, tags=tags)


def labels_of(data: bytes, count: int, name: str) -> list[str]:
    """Return the distinct values of a text column of a packed group of rows, without unpacking the rows.

    Args:
        data: the field ``data`` of the packed group.
        count: expected number of rows.
        name: the column, one of `TEXTS`.

    Raises:
        ValueError: the data are not a valid group.
    """
    return next(list(labels) for column, _, labels in _opened(data, count)[1] if column == name)


class _Buffer:
    """The numbers of a group, read from the start."""

    def __init__(self, numbers: memoryview) -> None:
        self.remaining = numbers

    def take(self, kind: np.dtype[Any], count: int) -> npt.NDArray[Any]:
        size = kind.itemsize * count
        if len(self.remaining) < size:
            raise ValueError("a column must have a number for each row")
        column = np.frombuffer(self.remaining[:size], dtype=kind)
        self.remaining = self.remaining[size:]
        return column

    def values(self, width: Any, label_count: Any, count: int) -> npt.NDArray[np.float64]:
        if width == "":
            return self.take(np.dtype("<f8"), count).astype(np.float64)
        if width != "u1" or not isinstance(label_count, int) or not 0 <= label_count <= _MAX_LABELS:
            raise ValueError("values must be numbers, or numbered")
        labels = self.take(np.dtype("<f8"), label_count).astype(np.float64)
        codes = self.take(_CODES["u1"], count)
        if count and (not label_count or codes.max() >= label_count):
            raise ValueError("codes must be those of its values")
        values: npt.NDArray[np.float64] = labels[codes]
        return values

    def steps(self, width: Any, constant_step: Any, count: int) -> npt.NDArray[np.int64]:
        if width == "" and type(constant_step) is int and -(2**63) <= constant_step < 2**63:
            return np.full(count, constant_step, dtype=np.int64)
        if width not in _STEPS:
            raise ValueError("steps must be whole numbers")
        return self.take(_STEPS[width], count).astype(np.int64)


def _opened(data: bytes, count: int) -> tuple[_Buffer, list[Any]]:
    """Return the numbers of a group, and for each column its name, the type of its codes, and its labels."""
    if not isinstance(data, bytes):
        raise ValueError(f"it must be stored as bytes, got {type(data).__name__}")
    opener = zlib.decompressobj()
    try:
        raw = opener.decompress(data, _MAX_BYTES)
    except zlib.error as error:
        raise ValueError(f"it must be compressed, got {error}") from error
    if not opener.eof or opener.unused_data:
        raise ValueError(f"it must unpack to at most {_MAX_BYTES:,} bytes, and end there")
    header_line, _, _ = raw.partition(b"\n")
    try:
        header = decode_object(header_line, strict=False)
    except UntrustedError as error:
        raise ValueError(f"it must begin with a line of JSON: {error}") from error
    columns = header.get("columns")
    if header.get("rows") != count or type(count) is not int or not _well_formed(columns):
        raise ValueError(f"it must describe {count!r} rows and their columns")
    return _Buffer(memoryview(raw)[len(header_line) + 1 :]), list(columns or ())


def _well_formed(columns: Any) -> bool:
    """Return whether the columns are in order: texts first, then tags, values and steps."""
    if not isinstance(columns, list) or not all(isinstance(column, list) and len(column) == 3 for column in columns):
        return False
    names = [column[0] for column in columns]
    tags = names[len(TEXTS) : -2]
    if names[: len(TEXTS)] != [*TEXTS] or names[-2:] != ["value", "step"]:
        return False
    if len(set(map(str, names))) < len(names):
        return False
    if not all(isinstance(name, str) and name.startswith("tag.") for name in tags):
        return False
    for name, width, labels in columns[:-2]:
        if width not in ("", *_CODES) or not isinstance(labels, list) or width != _width(len(labels)):
            return False
        kinds = (str, int, float, bool, type(None)) if name.startswith("tag.") else (str,)
        if not all(isinstance(label, kinds) for label in labels):
            return False
    return True
