"""Rows as packed groups of columns: of each column the values that occur, and small codes of them for each row.

A group is compressed as a whole: a line of JSON that describes the columns, then their numbers, little-endian. What
comes back is checked as if a stranger had written it.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.columns import Coded, Column, column_of, constant, encoded
from goalscope.ids import canonical_json
from goalscope.rows import Rows
from goalscope.runs.codec import encode_tags
from goalscope.untrusted import UntrustedError, decode_object

GROUP_ROWS: Final = 16_384
"""Most rows of a group."""

TEXTS: Final = ("measure", "unit", "grid_id", "episode_id")

_RUN = 1024  # so many rows of one measure have groups of their own
_LEVEL = 6
_MOST_BYTES = 1 << 26  # of an unpacked group; those of ours have a hundredth
_CODES: Final[dict[str, np.dtype[Any]]] = {"u1": np.dtype("<u1"), "u2": np.dtype("<u2"), "u4": np.dtype("<u4")}
_STEPS: Final[dict[str, np.dtype[Any]]] = {name: np.dtype(f"<{name}") for name in ("i1", "i2", "i4", "i8")}
_MOST_LABELS = 256  # different values of a group that are numbered


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A group of rows as it is stored.

    Attributes:
        count: number of its rows.
        measures: JSON list of its measures, in order of appearance.
        data: its columns.
    """

    count: int
    measures: str
    data: bytes


def cut(rows: Rows) -> Iterator[Rows]:
    """Yield the groups of rows, in order; long runs of one measure have groups of their own, to be read alone."""
    codes = rows.numbered("measure")[0]
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    begun = 0
    for first, last in pairwise(edges):
        if last - first >= _RUN:
            yield from _slices(rows, begun, first)
            yield from _slices(rows, first, last)
            begun = last
    yield from _slices(rows, begun, len(codes))


def _slices(rows: Rows, begin: int, end: int) -> Iterator[Rows]:
    for at in range(begin, end, GROUP_ROWS):
        yield rows.at(slice(at, min(at + GROUP_ROWS, end)))


def pack(rows: Rows) -> Packed:
    """Pack some rows.

    Raises:
        TypeError: a tag is neither text nor number, boolean or None.
        ValueError: half of a surrogate pair in a tag, or a tag that is no finite number.
    """
    described: list[list[Any]] = []
    numbers: list[bytes] = []
    names = _tags_in_order(rows)
    for name, column in [*((name, rows.held(name)) for name in TEXTS), *((f"tag.{n}", rows.held(n)) for n in names)]:
        coded = _plain(encoded(column).compact())
        labels = coded.labels.tolist()
        _check_labels(name, labels)
        width = _width(len(labels))
        described.append([name, width, labels])
        numbers.append(coded.codes.astype(_CODES[width]).tobytes() if width else b"")
    described.append(["value", *_packed_values(rows.value, numbers)])
    described.append(["step", *_packed_steps(rows.step, numbers)])
    measures = described[0][2]
    head = canonical_json({"rows": len(rows), "columns": described}).encode("ascii")
    data = zlib.compress(b"".join([head, b"\n", *numbers]), _LEVEL)
    return Packed(count=len(rows), measures=canonical_json(measures), data=data)


def _plain(coded: Coded) -> Coded:
    """Return a column whose values are plain ones; numbers of NumPy are taken for those of Python."""
    if not any(isinstance(label, np.generic) for label in coded.labels):
        return coded
    listed = [label.item() if isinstance(label, np.generic) else label for label in coded.labels]
    again = encoded(column_of(listed))
    return Coded(again.labels, again.codes[coded.codes])


def _check_labels(name: str, labels: Sequence[Any]) -> None:
    if name.startswith("tag."):
        for label in labels:
            encode_tags({name.removeprefix("tag."): label})
    elif not all(isinstance(label, str) for label in labels):
        raise TypeError(f"{name} of every row must be text, got {type(labels[0]).__name__}")


def _tags_in_order(rows: Rows) -> list[str]:
    """Return the tags that some row has: those of the first row by name, then those that later ones bring."""
    here = {name: rows.known(name) for name in sorted(rows.tags)}
    first = {name: int(mask.argmax()) for name, mask in here.items() if mask.any()}
    return sorted(first, key=lambda name: (first[name], name))


def _packed_values(values: npt.NDArray[np.float64], numbers: list[bytes]) -> tuple[str, int]:
    """Append values to the numbers, by codes where few of them differ; return how, and how many differ."""
    bits = (values + 0.0).astype("<f8")  # -0.0 becomes 0.0
    bits[np.isnan(bits)] = np.nan  # one form of NaN
    labels, codes = np.unique(bits.view("<i8"), return_inverse=True)
    if len(labels) > _MOST_LABELS:
        numbers.append(bits.tobytes())
        return "", 0
    numbers.append(labels.tobytes() + codes.astype("<u1").tobytes())
    return "u1", len(labels)


def _packed_steps(steps: npt.NDArray[np.int64], numbers: list[bytes]) -> tuple[str, int]:
    """Append steps to the numbers; return their type, "" for one step for all, and that step."""
    if not len(steps) or (steps == steps[0]).all():
        return "", int(steps[0]) if len(steps) else 0
    least, most = int(steps.min()), int(steps.max())
    width = next(name for name, kind in _STEPS.items() if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max)
    numbers.append(steps.astype(_STEPS[width]).tobytes())
    return width, 0


def _width(count: int) -> str:
    return "" if count < 2 else next(name for name, kind in _CODES.items() if count <= np.iinfo(kind).max + 1)


# Back


def unpack(data: bytes, count: int, *, names: Iterable[str] | None = None) -> Rows:
    """Return the rows of a packed group.

    Args:
        data: as `pack` made it.
        count: how many rows there must be.
        names: text columns that are wanted, beside all tags; the others are "". All by default.

    Raises:
        ValueError: it is none of ours.
    """
    buffer, described = _opened(data, count)
    wanted = set(TEXTS if names is None else names)
    texts: dict[str, Column] = {name: constant("", count) for name in TEXTS}
    tags: dict[str, Column] = {}
    for name, width, labels in described[:-2]:
        codes = buffer.take(_CODES[width], count) if width else np.zeros(count, dtype=np.uint8)
        if count and (not labels or codes.max() >= len(labels)):
            raise ValueError("codes must be those of its labels")
        if name.startswith("tag."):
            tags[name.removeprefix("tag.")] = Coded(column_of(labels), codes)
        elif name in wanted:
            texts[name] = Coded(column_of(labels), codes)
    (_, value_width, labelled), (_, step_width, only) = described[-2:]
    value, step = buffer.values(value_width, labelled, count), buffer.steps(step_width, only, count)
    if buffer.left:
        raise ValueError("it must end behind its last column")
    return Rows(**texts, value=value, step=step, tags=tags)


def labels_of(data: bytes, count: int, name: str) -> list[str]:
    """Return the values of a text column of a packed group, without its rows.

    Raises:
        ValueError: it is none of ours.
    """
    return next(list(labels) for own, _, labels in _opened(data, count)[1] if own == name)


class _Buffer:
    """What of the numbers of a group was not taken yet."""

    def __init__(self, numbers: memoryview) -> None:
        self.left = numbers

    def take(self, kind: np.dtype[Any], count: int) -> npt.NDArray[Any]:
        size = kind.itemsize * count
        if len(self.left) < size:
            raise ValueError("a column must have a number for each row")
        found = np.frombuffer(self.left[:size], dtype=kind)
        self.left = self.left[size:]
        return found

    def values(self, width: Any, labels: Any, count: int) -> npt.NDArray[np.float64]:
        if width == "":
            return self.take(np.dtype("<f8"), count).astype(np.float64)
        if width != "u1" or not isinstance(labels, int) or not 0 <= labels <= _MOST_LABELS:
            raise ValueError("values must be numbers, or numbered")
        known = self.take(np.dtype("<f8"), labels).astype(np.float64)
        codes = self.take(_CODES["u1"], count)
        if count and (not labels or codes.max() >= labels):
            raise ValueError("codes must be those of its values")
        found: npt.NDArray[np.float64] = known[codes]
        return found

    def steps(self, width: Any, only: Any, count: int) -> npt.NDArray[np.int64]:
        if width == "" and type(only) is int and -(2**63) <= only < 2**63:
            return np.full(count, only, dtype=np.int64)
        if width not in _STEPS:
            raise ValueError("steps must be whole numbers")
        return self.take(_STEPS[width], count).astype(np.int64)


def _opened(data: bytes, count: int) -> tuple[_Buffer, list[Any]]:
    """Return the numbers of a group, and for each column its name, the type of its codes, and its labels."""
    if not isinstance(data, bytes):
        raise ValueError(f"it must be stored as bytes, got {type(data).__name__}")
    opener = zlib.decompressobj()
    try:
        raw = opener.decompress(data, _MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"it must be compressed, got {error}") from error
    if not opener.eof or opener.unused_data:
        raise ValueError(f"it must unpack to at most {_MOST_BYTES:,} bytes, and end there")
    head, _, _ = raw.partition(b"\n")
    try:
        about = decode_object(head, strict=False)
    except UntrustedError as error:
        raise ValueError(f"it must begin with a line of JSON: {error}") from error
    columns = about.get("columns")
    if about.get("rows") != count or type(count) is not int or not _well_formed(columns):
        raise ValueError(f"it must describe {count!r} rows and their columns")
    return _Buffer(memoryview(raw)[len(head) + 1 :]), list(columns or ())


def _well_formed(columns: Any) -> bool:
    """Whether columns are described: texts first, then tags, values and steps."""
    if not isinstance(columns, list) or not all(isinstance(one, list) and len(one) == 3 for one in columns):
        return False
    names = [one[0] for one in columns]
    tags = names[len(TEXTS) : -2]
    if names[: len(TEXTS)] != list(TEXTS) or names[-2:] != ["value", "step"] or len(set(map(str, names))) < len(names):
        return False
    if not all(isinstance(name, str) and name.startswith("tag.") for name in tags):
        return False
    for name, width, labels in columns[:-2]:
        if width not in ("", *_CODES) or not isinstance(labels, list) or width != _width(len(labels)):
            return False
        kinds = (str,) if name in TEXTS else (str, int, float, bool, type(None))
        if not all(isinstance(label, kinds) for label in labels):
            return False
    return True
