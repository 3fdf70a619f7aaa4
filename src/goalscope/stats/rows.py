"""The row type that all measures produce and all statistics read.

A row has the name and unit of a measure, one value, the grid (the cluster of every interval), the episode and step if
any, and tags to group by. Behaviour, goal-directedness, exploration errors and probes all produce such rows.

Columns of many equal values are dictionary-encoded: they store each distinct value once and a small integer code per
row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.extras import lacking

if TYPE_CHECKING:
    import pandas

Objects = npt.NDArray[np.object_]
Numbers = npt.NDArray[np.int64]

_NUMBERS = (bool, int, float, np.generic)
_SPARSE = 4  # labels per row above which a selection is made compact
_WIDTHS = (np.uint8, np.uint16, np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column of rows, stored as its distinct values and, for each row, the index of its value.

    Attributes:
        labels: ``[K]`` distinct values. A label may occur in no row.
        codes: ``[N]`` index of each row's value, of the smallest unsigned type.
    """

    labels: Objects
    codes: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> "Coded":
        """Select rows of the column by a mask, by indices or by a slice, and return them as a shorter column."""
        selected = Coded(self.labels, self.codes[rows])
        return selected.compact() if _SPARSE * len(selected) < len(self.labels) else selected

    def decoded(self) -> Objects:
        """Return the values of all rows, ``[N]``, as an object array."""
        values: Objects = self.labels[self.codes] if len(self.labels) else np.empty(0, dtype=object)
        return values

    def numbered(self) -> tuple[Numbers, list[Any]]:
        """Number the distinct values in order of appearance, with 1 and 1.0 as one value.

        Returns:
            ``[N]`` the number of each row's value; and the list of values, at the positions of their numbers.
        """
        values, codes = self.appearing()
        used_labels = [self.labels[code] for code in values]
        numbers = {label: number for number, label in enumerate(dict.fromkeys(used_labels))}
        number_of_label = np.fromiter(map(numbers.__getitem__, used_labels), dtype=np.int64, count=len(used_labels))
        return number_of_label[codes] if len(used_labels) else codes, list(numbers)

    def appearing(self) -> tuple[Numbers, Numbers]:
        """Find which labels (distinct values) occur in some row, in order of appearance.

        Returns:
            The indices of these labels; and ``[N]`` the position of each row's label in that list.
        """
        count = len(self.codes)
        first = np.full(len(self.labels), count, dtype=np.int64)
        # in reverse, so that the first row of each code is the last to be assigned
        first[self.codes[::-1]] = np.arange(count - 1, -1, -1)
        order = np.argsort(first, kind="stable")[: int((first < count).sum())]
        number = np.zeros(len(self.labels), dtype=np.int64)
        number[order] = np.arange(len(order))
        return order, number[self.codes]

    def compact(self) -> "Coded":
        """Return the same column without labels that no row uses, and with labels in order of first appearance."""
        values, codes = self.appearing()
        return Coded(self.labels[values], narrowed(codes, len(values)))

    def where_label(self, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Turn a mask over distinct values ``[K]`` into a mask over rows ``[N]``, true where the row's value is
        marked.
        """
        result: npt.NDArray[np.bool_] = mask[self.codes]
        return result


Column = Coded | Objects


def narrowed(codes: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Convert integers from 0 to ``count - 1`` to the smallest unsigned integer type that can store them."""
    return codes.astype(next(kind for kind in _WIDTHS if count <= np.iinfo(kind).max + 1), copy=False)


def column_of(values: Sequence[Any]) -> Objects:
    """Convert N values of any types to an object array ``[N]``."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def encoded(column: Column) -> Coded:
    """Encode a column as its distinct values and, per row, the index of the value.

    The values 1, 1.0 and True stay distinct. An encoded column is returned as it is.
    """
    if isinstance(column, Coded):
        return column
    numbers, labels = _numbers(column.tolist())
    return Coded(column_of(labels), narrowed(numbers, len(labels)))


def constant(value: Any, count: int) -> Coded:
    """Build an encoded column in which all ``count`` rows have the same value."""
    return Coded(column_of([value]), np.zeros(count, dtype=np.uint8))


def joined(columns: Sequence[Column]) -> Column:
    """Concatenate columns of rows, one below the other. The result is dictionary-encoded if any of the columns is."""
    if not any(isinstance(column, Coded) for column in columns):
        return np.concatenate([column for column in columns if not isinstance(column, Coded)])
    parts = [encoded(column) for column in columns]
    if all(part.labels is parts[0].labels for part in parts):
        return Coded(parts[0].labels, np.concatenate([part.codes for part in parts]))
    all_labels = [label for part in parts for label in part.labels.tolist()]
    numbers, labels = _numbers(all_labels)
    # 32 bits until the number of labels is known
    new_codes = np.split(numbers.astype(np.uint32), np.cumsum([len(part.labels) for part in parts])[:-1])
    codes = [new[part.codes] for new, part in zip(new_codes, parts, strict=True)]
    return Coded(column_of(labels), narrowed(np.concatenate(codes), len(labels)))


def numbered(column: Column) -> tuple[Numbers, list[Any]]:
    """Number the distinct values of a column in order of appearance.

    Returns:
        ``[N]`` the number of each row's value; and the list of values, at the positions of their numbers.
    """
    if isinstance(column, Coded):
        return column.numbered()
    values = column.tolist()
    numbers: dict[Any, int] = {label: index for index, label in enumerate(dict.fromkeys(values))}
    return np.fromiter(map(numbers.__getitem__, values), dtype=np.int64, count=len(values)), list(numbers)


def _numbers(values: list[Any]) -> tuple[Numbers, list[Any]]:
    """Number values in order of appearance, with 1, 1.0 and True distinct. Return numbers ``[N]`` and values."""
    kinds = set(map(type, values))
    # Types matter only if the column mixes numbers of several types; most columns are strings.
    typed = sum(issubclass(kind, _NUMBERS) for kind in kinds) > 1
    keys: list[Any] = list(zip(map(type, values), values, strict=True)) if typed else values
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    codes = np.fromiter(map(numbers.__getitem__, keys), dtype=np.int64, count=len(keys))
    return codes, [key[1] for key in numbers] if typed else list(numbers)


class DecodedColumns(Mapping[str, Objects]):
    """Read-only mapping from names of tags to the values of all rows, which are decoded only when they are accessed.

    Args:
        columns: the stored columns by name.
        decode: function that turns a stored column into an array of values.
    """

    def __init__(self, columns: Mapping[str, Column], decode: "ColumnDecoder") -> None:
        self._columns, self._decode = columns, decode

    def __getitem__(self, name: str) -> Objects:
        return self._decode(self._columns[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def held(self, name: str) -> Column:
        """Return the column of a tag as it is stored (dictionary-encoded or as an object array), without decoding
        it.
        """
        return self._columns[name]


class ColumnDecoder:
    """Turns dictionary-encoded columns into arrays of values, and caches recent results for repeated access in
    loops.
    """

    __slots__ = ("_cache",)

    def __init__(self) -> None:
        self._cache: dict[int, tuple[Coded, Objects]] = {}

    def __call__(self, column: Column) -> Objects:
        """Return the values ``[N]`` of a column, one per row."""
        if not isinstance(column, Coded):
            return column
        entry = self._cache.get(id(column))
        if entry is None:
            if sum(len(values) for _, values in self._cache.values()) + len(column) > _CACHE_CELLS:
                self._cache.clear()
            # The cache entry keeps the column alive, so that no other object can get the same id.
            entry = self._cache[id(column)] = (column, column.decoded())
        return entry[1]


_CACHE_CELLS = 1_000_000

Tag = str | int | float | bool | None

WHOLE_EPISODE = -1
"""Step of a row for a whole episode or a whole grid."""

COLUMNS = ("measure", "unit", "value", "cluster", "episode_id", "step")
RESERVED: Final = frozenset({*COLUMNS, "agent"})
"""Names forbidden for tags of worlds and episodes: rows have these columns, and the tag "agent"."""
_TEXTS = ("measure", "unit", "cluster", "episode_id")
_PLAIN = frozenset({type(None), str, int, float, bool})  # types of a single value that applies to every row


def unreserved(tags: dict[str, Tag]) -> dict[str, Tag]:
    """Check that no tag of a world or an episode has a reserved name, and return the tags unchanged.

    Tags are named facts, such as the size of a world, which reports group by.

    Raises:
        ValueError: if a tag has a name in `RESERVED`, such as "measure", which rows of results use themselves.
    """
    reserved = sorted(RESERVED & set(tags))
    if reserved:
        raise ValueError(
            f"a tag must not be called {', '.join(reserved)}, because rows of measures use that name: rename the tag"
        )
    return tags


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One value of one measure, with what it was measured on.

    Attributes:
        measure: the measure's name, a noun phrase ("success", "action accuracy").
        unit: unit of the value ("share", "bits", "nats", "steps", "cells").
        value: the value. NaN means undefined (e.g. an empty denominator), never zero.
        cluster: content id of the grid, the independent unit of every interval. Paired conditions of a grid share the
            id.
        episode_id: content id of the episode, or "" for a value over all episodes of a grid.
        step: 0-based step of the episode, or `WHOLE_EPISODE` for a value over all steps.
        tags: named properties to group by, such as agent, size, density or transform.
    """

    measure: str
    unit: str
    value: float
    cluster: str
    episode_id: str = ""
    step: int = WHOLE_EPISODE
    tags: Mapping[str, Tag] = field(default_factory=dict)


class Rows:
    """Table of rows (each is one value of one measure), stored as named columns of equal length N.

    Args:
        measure, unit, cluster, episode_id: ``[N]`` strings, as object arrays or encoded columns.
        value: ``[N]`` float64, NaN where undefined.
        step: ``[N]`` int64.
        tags: name -> ``[N]`` object array or encoded column; None where a row lacks the tag.

    Raises:
        ValueError: columns of different lengths, or a tag with the name of a column.

    The columns are attributes. Encoded columns are decoded to object arrays on access.
    """

    __slots__ = ("_columns", "_decode", "_tags", "step", "value")

    def __init__(
        self,
        *,
        measure: Column,
        unit: Column,
        value: npt.NDArray[np.float64],
        cluster: Column,
        episode_id: Column,
        step: npt.NDArray[np.int64],
        tags: Mapping[str, Column],
    ) -> None:
        self.value, self.step, self._decode = value, step, ColumnDecoder()
        self._columns: dict[str, Column] = {
            "measure": measure,
            "unit": unit,
            "cluster": cluster,
            "episode_id": episode_id,
        }
        # Tags of other rows are copied without decoding.
        self._tags = {name: tags.held(name) if isinstance(tags, DecodedColumns) else tags[name] for name in tags}
        count = len(value) if np.ndim(value) == 1 else -1
        for name, column in {**self._columns, "step": step, **self._tags}.items():
            if len(column) != count:
                raise ValueError(
                    f"every column must be a vector as long as value ({len(value)}), but column {name!r} has "
                    f"length {len(column)}"
                )
        clash = set(tags) & set(COLUMNS)
        if clash:
            raise ValueError(f"a tag must not have the name of a column, got {sorted(clash)}: rename the tag")

    def __len__(self) -> int:
        return len(self.value)

    @property
    def measure(self) -> npt.NDArray[np.object_]:
        """``[N]`` name of the measure of each row, such as "success"."""
        return self._decode(self._columns["measure"])

    @property
    def unit(self) -> npt.NDArray[np.object_]:
        """``[N]`` unit of each row's value, such as "share" or "nats"."""
        return self._decode(self._columns["unit"])

    @property
    def cluster(self) -> npt.NDArray[np.object_]:
        """``[N]`` content id of each row's cluster: the grid (or other world) that intervals count as one
        independent unit.
        """
        return self._decode(self._columns["cluster"])

    @property
    def episode_id(self) -> npt.NDArray[np.object_]:
        """``[N]`` content id of each row's episode, or "" for rows over all episodes of a grid."""
        return self._decode(self._columns["episode_id"])

    @property
    def tags(self) -> Mapping[str, npt.NDArray[np.object_]]:
        """The tags (named properties to group by, such as the agent): name -> ``[N]`` values, None where a row lacks
        the tag.
        """
        return DecodedColumns(self._tags, self._decode)

    def __iter__(self) -> Iterator[Row]:
        columns = {name: column.tolist() for name, column in self.columns().items()}
        for cells in zip(*columns.values(), strict=True):
            values = dict(zip(columns, cells, strict=True))
            fixed: dict[str, Any] = {name: values.pop(name) for name in COLUMNS}
            yield Row(**fixed, tags={name: tag for name, tag in values.items() if tag is not None})

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return the values ``[N]`` of a column (such as "value") or of a tag (such as "agent") by name.

        Raises:
            KeyError: if no column or tag has this name.
        """
        column = self.held(name)
        return self._decode(column) if isinstance(column, Coded) else column

    def held(self, name: str) -> Column | npt.NDArray[Any]:
        """Return a column or tag by name in the form in which it is stored: dictionary-encoded, or as an array ``[N]``.

        Raises:
            KeyError: if no column or tag has this name.
        """
        if name in ("value", "step"):
            array: npt.NDArray[Any] = getattr(self, name)
            return array
        column = self._columns.get(name, self._tags.get(name))
        if column is None:
            names = ", ".join(sorted((*COLUMNS, *self._tags)))
            raise KeyError(f"there is no column or tag {name!r}: choose one of {names}")
        return column

    def numbered(self, name: str) -> tuple[npt.NDArray[np.int64], list[Any]]:
        """Number the distinct values of a column or tag in order of appearance. A tag that no row has counts as None.

        Returns:
            ``[N]`` the number of each row's value; and the list of values, at the positions of their numbers.
        """
        if name not in COLUMNS and name not in self._tags:
            return np.zeros(len(self), dtype=np.int64), [None] if len(self) else []
        return numbered(self.held(name))

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return all columns and tags: name -> ``[N]`` values, one per row."""
        return {name: getattr(self, name) for name in COLUMNS} | dict(self.tags)

    def changed(self, **columns: Any) -> "Rows":
        """Return a copy of the rows with the given columns ``[N]`` replaced; the argument ``tags`` replaces all
        tags.
        """
        return Rows(**{**self._columns, "value": self.value, "step": self.step, "tags": self._tags, **columns})

    def tagged(self, tags: Mapping[str, Column]) -> "Rows":
        """Return a copy of the rows with tags added or replaced.

        Args:
            tags: name of a tag -> ``[N]`` values as an object array or encoded column.
        """
        return self.changed(tags={**self._tags, **tags})

    def where(self, mask: npt.NDArray[np.bool_]) -> "Rows":
        """Select the rows where ``mask`` ``[N]`` is true. If it is true everywhere, return the same object."""
        if len(mask) == len(self) and mask.all():
            return self
        return self.at(mask)

    def at(self, rows: npt.NDArray[Any] | slice) -> "Rows":
        """Select rows by a mask ``[N]``, by a slice, or by indices (in the order of the indices)."""
        fixed: dict[str, Any] = {name: column[rows] for name, column in self._columns.items()}
        tags = {name: column[rows] for name, column in self._tags.items()}
        return Rows(**fixed, value=self.value[rows], step=self.step[rows], tags=tags)

    def select(self, **equal: Tag) -> "Rows":
        """Select the rows in which columns and tags have the given values, e.g. ``select(measure="success", size=7)``.

        Raises:
            KeyError: if no column or tag has one of the names.
        """
        mask = np.ones(len(self), dtype=bool)
        for name, expected in equal.items():
            mask &= self.among(name, [expected])
        return self.where(mask)

    def among(self, name: str, wanted: Iterable[Tag]) -> npt.NDArray[np.bool_]:
        """Return a mask ``[N]``: whether the value of a column or tag is among ``wanted``.

        For example, ``among("measure", ["success"])``.

        Raises:
            KeyError: if no column or tag has this name.
        """
        allowed, column = set(wanted), self.held(name)
        values = (column.labels if isinstance(column, Coded) else column).tolist()
        mask = np.fromiter(map(allowed.__contains__, values), dtype=bool, count=len(values))
        return column.where_label(mask) if isinstance(column, Coded) else mask

    def known(self, name: str) -> npt.NDArray[np.bool_]:
        """Return a mask ``[N]``: whether each row has the tag with this name. It is all False if no row has it."""
        return ~self.among(name, [None]) if name in self._tags else np.zeros(len(self), dtype=bool)

    def to_frame(self) -> "pandas.DataFrame":
        """Convert the rows to a pandas data frame with one line per row, and one column per column and tag of the rows.

        Raises:
            ImportError: if pandas is not installed (it comes with the extra ``export``).
        """
        try:
            import pandas
        except ImportError as error:
            raise lacking("to_frame needs pandas", "export", error) from error
        return pandas.DataFrame(self.columns())

    @classmethod
    def from_columns(
        cls,
        *,
        measure: str | Sequence[str],
        unit: str | Sequence[str],
        value: npt.ArrayLike,
        cluster: Sequence[str] | Column,
        episode_id: str | Sequence[str] | Column = "",
        step: int | npt.NDArray[np.int64] = WHOLE_EPISODE,
        tags: Mapping[str, Any] | None = None,
    ) -> "Rows":
        """Build rows (each one value of one measure) from columns. A single string, number or tag value is repeated for
        every row.

        Args:
            measure, unit, cluster, episode_id: ``[N]`` strings, or one string for all rows.
            value: ``[N]`` values, NaN where undefined; N is the number of rows.
            step: ``[N]`` steps, or one step for all rows.
            tags: name -> ``[N]`` values, or one value for all rows.

        Raises:
            ValueError: columns of different lengths, or a tag with the name of a column.
        """
        values = np.atleast_1d(np.asarray(value, dtype=np.float64))

        def text(cells: Any) -> Column:
            return _column(cells, len(values))

        return cls(
            measure=text(measure),
            unit=text(unit),
            value=values,
            cluster=text(cluster),
            episode_id=text(episode_id),
            step=np.broadcast_to(np.asarray(step, dtype=np.int64), values.shape).copy(),
            tags={name: text(column_value) for name, column_value in (tags or {}).items()},
        )

    @classmethod
    def of_measures(
        cls,
        measured: Iterable[tuple[str, str, npt.NDArray[np.float64], Mapping[str, Tag]]],
        *,
        cluster: Sequence[str],
        tags: Mapping[str, Any],
    ) -> "Rows":
        """Build the rows of several measures on the same G grids, one row per measure and grid.

        Args:
            measured: per measure its name, unit, ``[G]`` values, and tags that only this measure has.
            cluster: ``[G]`` content ids of the grids.
            tags: name -> ``[G]`` values, or one value for all rows, for all measures.
        """
        return cls.concatenate(
            cls.from_columns(measure=name, unit=unit, value=values, cluster=cluster, tags={**tags, **own_tags})
            for name, unit, values, own_tags in measured
        )

    @classmethod
    def concatenate(cls, parts: Iterable["Rows"]) -> "Rows":
        """Join tables of rows, one below the other. A tag that a table lacks is None in its rows."""
        blocks = list(parts)
        if not blocks:
            return cls.from_rows([])
        if len(blocks) == 1:
            return blocks[0]
        fixed: dict[str, Any] = {name: joined([block._columns[name] for block in blocks]) for name in _TEXTS}
        names = dict.fromkeys(name for block in blocks for name in block._tags)
        tags = {name: joined([block._tags.get(name, constant(None, len(block))) for block in blocks]) for name in names}
        value, step = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("value", "step"))
        return cls(**fixed, value=value, step=step, tags=tags)

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> "Rows":
        """Build a table from `Row` objects; a tag that a row lacks is None there."""
        items = list(rows)
        names = dict.fromkeys(name for row in items for name in row.tags)
        fixed: dict[str, Any] = {name: [getattr(row, name) for row in items] for name in COLUMNS}
        return cls.from_columns(**fixed, tags={name: [row.tags.get(name) for row in items] for name in names})


def _column(cells: Any, count: int) -> Column:
    """Return the cells of a column, repeating a single value for every row."""
    if isinstance(cells, Coded):
        return cells
    if type(cells) in _PLAIN:
        return constant(cells, count)
    column = np.empty(count, dtype=object)
    column[:] = cells
    return column
