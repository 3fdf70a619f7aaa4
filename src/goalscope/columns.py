"""Columns of rows that hold few different values: each value once, and a small number for each row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Objects = npt.NDArray[np.object_]
Numbers = npt.NDArray[np.int64]

_NUMBERS = (bool, int, float, np.generic)
_SPARSE = 4  # a column with so many labels for each row is made compact
_WIDTHS = (np.uint8, np.uint16, np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column by codes.

    Attributes:
        labels: ``[K]`` the values; no two of them are equal and of one type. Some may belong to no row.
        codes: ``[N]`` index of each row's value, of the smallest unsigned type.
    """

    labels: Objects
    codes: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> "Coded":
        """Return the column of some rows."""
        found = Coded(self.labels, self.codes[rows])
        return found.compact() if _SPARSE * len(found) < len(self.labels) else found

    def decoded(self) -> Objects:
        """Return ``[N]`` the values themselves."""
        found: Objects = self.labels[self.codes] if len(self.labels) else np.empty(0, dtype=object)
        return found

    def numbered(self) -> tuple[Numbers, list[Any]]:
        """Return ``[N]`` numbers in the order of appearance and the values, equal ones (1 and 1.0) as one."""
        used, codes = self.appearing()
        listed = [self.labels[code] for code in used]
        numbers = {label: number for number, label in enumerate(dict.fromkeys(listed))}
        place = np.fromiter(map(numbers.__getitem__, listed), dtype=np.int64, count=len(listed))
        return place[codes] if len(listed) else codes, list(numbers)

    def appearing(self) -> tuple[Numbers, Numbers]:
        """Return the labels that rows have, in order of appearance, and ``[N]`` the number of each row's among them."""
        count = len(self.codes)
        first = np.full(len(self.labels), count, dtype=np.int64)
        first[self.codes[::-1]] = np.arange(count - 1, -1, -1)  # what is assigned last stays
        used = np.argsort(first, kind="stable")[: int((first < count).sum())]
        number = np.zeros(len(self.labels), dtype=np.int64)
        number[used] = np.arange(len(used))
        return used, number[self.codes]

    def compact(self) -> "Coded":
        """Return the column with the labels that it has, in order of appearance."""
        used, codes = self.appearing()
        return Coded(self.labels[used], narrowed(codes, len(used)))

    def where_label(self, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return ``[N]`` whether a mask ``[K]`` of labels holds for each row."""
        found: npt.NDArray[np.bool_] = mask[self.codes]
        return found


Column = Coded | Objects


def narrowed(codes: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Return codes below ``count`` in the smallest type that holds them."""
    return codes.astype(next(kind for kind in _WIDTHS if count <= np.iinfo(kind).max + 1), copy=False)


def column_of(values: Sequence[Any]) -> Objects:
    """Return values as an array of objects, whatever they are."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def encoded(column: Column) -> Coded:
    """Return a column by codes; 1, 1.0 and True are different values."""
    if isinstance(column, Coded):
        return column
    numbers, labels = _numbers(column.tolist())
    return Coded(column_of(labels), narrowed(numbers, len(labels)))


def constant(value: Any, count: int) -> Coded:
    """Return a column of one value."""
    return Coded(column_of([value]), np.zeros(count, dtype=np.uint8))


def repeated(values: Sequence[Any], count: int) -> Coded:
    """Return a column of each of some values so many times: what `joined` makes of a `constant` for each."""
    numbers, labels = _numbers(list(values))
    return Coded(column_of(labels), np.repeat(narrowed(numbers, len(labels)), count))


def joined(columns: Sequence[Column]) -> Column:
    """Return columns one after the other; by codes where one of them is."""
    if not any(isinstance(column, Coded) for column in columns):
        return np.concatenate([column for column in columns if not isinstance(column, Coded)])
    parts = [encoded(column) for column in columns]
    if all(part.labels is parts[0].labels for part in parts):
        return Coded(parts[0].labels, np.concatenate([part.codes for part in parts]))
    every = [label for part in parts for label in part.labels.tolist()]
    numbers, labels = _numbers(every)
    # 32 bits until the number of labels is known
    places = np.split(numbers.astype(np.uint32), np.cumsum([len(part.labels) for part in parts])[:-1])
    codes = [place[part.codes] for place, part in zip(places, parts, strict=True)]
    return Coded(column_of(labels), narrowed(np.concatenate(codes), len(labels)))


def numbered(column: Column) -> tuple[Numbers, list[Any]]:
    """Return ``[N]`` numbers of a column's values in the order of appearance, and the values."""
    if isinstance(column, Coded):
        return column.numbered()
    listed = column.tolist()
    numbers: dict[Any, int] = {label: index for index, label in enumerate(dict.fromkeys(listed))}
    return np.fromiter(map(numbers.__getitem__, listed), dtype=np.int64, count=len(listed)), list(numbers)


def _numbers(listed: list[Any]) -> tuple[Numbers, list[Any]]:
    """Return ``[N]`` numbers of values in the order of appearance, and the values; 1, 1.0 and True are different."""
    kinds = set(map(type, listed))
    # Types tell apart only where numbers of several types are among them; most columns are texts.
    typed = sum(issubclass(kind, _NUMBERS) for kind in kinds) > 1
    keys: list[Any] = list(zip(map(type, listed), listed, strict=True)) if typed else listed
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    found = np.fromiter(map(numbers.__getitem__, keys), dtype=np.int64, count=len(keys))
    return found, [key[1] for key in numbers] if typed else list(numbers)


class Decoded(Mapping[str, Objects]):
    """Tags of rows by name, each decoded when it is asked for.

    Args:
        columns: the columns by name.
        decode: what decodes one of them.
    """

    def __init__(self, columns: Mapping[str, Column], decode: "Decoder") -> None:
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
        """Return a tag as it is held."""
        return self._columns[name]


class Decoder:
    """Decodes columns and keeps the last ones while they are few cells, so that a loop may ask again and again."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Coded, Objects]] = {}

    def __call__(self, column: Column) -> Objects:
        """Return ``[N]`` the values of a column."""
        if not isinstance(column, Coded):
            return column
        found = self._kept.get(id(column))
        if found is None:
            if sum(len(values) for _, values in self._kept.values()) + len(column) > _KEPT:
                self._kept.clear()
            # Beside the values stands the column, whose id is then not another one's.
            found = self._kept[id(column)] = (column, column.decoded())
        return found[1]


_KEPT = 1_000_000  # cells
