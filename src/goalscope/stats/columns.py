"""Dictionary-encoded columns, which store each distinct value once and a small integer code per row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Objects = npt.NDArray[np.object_]
Numbers = npt.NDArray[np.int64]

_NUMBERS = (bool, int, float, np.generic)
_SPARSE = 4  # labels per row above which a selection is made compact
_WIDTHS = (np.uint8, np.uint16, np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A dictionary-encoded column.

    Attributes:
        labels: ``[K]`` distinct values. A label may occur in no row.
        codes: ``[N]`` index of each row's value, of the smallest unsigned type.
    """

    labels: Objects
    codes: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> "Coded":
        """Select rows of the column."""
        selected = Coded(self.labels, self.codes[rows])
        return selected.compact() if _SPARSE * len(selected) < len(self.labels) else selected

    def decoded(self) -> Objects:
        """Decode the column to its values ``[N]``."""
        values: Objects = self.labels[self.codes] if len(self.labels) else np.empty(0, dtype=object)
        return values

    def numbered(self) -> tuple[Numbers, list[Any]]:
        """Number the values in order of appearance, merging 1 and 1.0. Return the numbers ``[N]`` and the values."""
        values, codes = self.appearing()
        used_labels = [self.labels[code] for code in values]
        numbers = {label: number for number, label in enumerate(dict.fromkeys(used_labels))}
        number_of_label = np.fromiter(map(numbers.__getitem__, used_labels), dtype=np.int64, count=len(used_labels))
        return number_of_label[codes] if len(used_labels) else codes, list(numbers)

    def appearing(self) -> tuple[Numbers, Numbers]:
        """Return the codes that rows use, in order of appearance, and ``[N]`` the index of each row's code in that
        list.
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
        """Drop labels that no row uses, and sort the others by first appearance."""
        values, codes = self.appearing()
        return Coded(self.labels[values], narrowed(codes, len(values)))

    def where_label(self, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Expand a mask ``[K]`` over labels to a mask ``[N]`` over rows."""
        result: npt.NDArray[np.bool_] = mask[self.codes]
        return result


Column = Coded | Objects


def narrowed(codes: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Convert codes below ``count`` to the smallest unsigned integer type that can store them."""
    return codes.astype(next(kind for kind in _WIDTHS if count <= np.iinfo(kind).max + 1), copy=False)


def column_of(values: Sequence[Any]) -> Objects:
    """Convert values of any types to an object array."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def encoded(column: Column) -> Coded:
    """Encode a column by dictionary. The values 1, 1.0 and True stay distinct."""
    if isinstance(column, Coded):
        return column
    numbers, labels = _numbers(column.tolist())
    return Coded(column_of(labels), narrowed(numbers, len(labels)))


def constant(value: Any, count: int) -> Coded:
    """Build a column in which all ``count`` rows have the same value."""
    return Coded(column_of([value]), np.zeros(count, dtype=np.uint8))


def repeated(values: Sequence[Any], count: int) -> Coded:
    """Build a column that repeats each value ``count`` times, as joining one `constant` column per value would."""
    numbers, labels = _numbers(list(values))
    return Coded(column_of(labels), np.repeat(narrowed(numbers, len(labels)), count))


def joined(columns: Sequence[Column]) -> Column:
    """Concatenate columns. The result is dictionary-encoded if any column is."""
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
    """Number a column's values in order of appearance. Return the numbers ``[N]`` and the values."""
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
    """Mapping from tag names to columns that are decoded on access.

    Args:
        columns: the columns by name.
        decode: function that decodes a column.
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
        """Return the column of a tag as it is stored, without decoding it."""
        return self._columns[name]


class ColumnDecoder:
    """Decoder of columns with a small cache for repeated access in loops."""

    __slots__ = ("_cache",)

    def __init__(self) -> None:
        self._cache: dict[int, tuple[Coded, Objects]] = {}

    def __call__(self, column: Column) -> Objects:
        """Decode a column to its values ``[N]``."""
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
