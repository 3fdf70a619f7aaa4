"""Rows of measures in the table `rows`."""

import math
import sqlite3
from array import array
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.rows import Rows, Tag
from goalscope.runs.codec import Cell, decode_tags, encode_tags

_INSERT = "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT = "SELECT measure, unit, grid_id, episode_id, value, step, tags FROM rows ORDER BY source, number"
_OTHERS = "SELECT EXISTS (SELECT 1 FROM rows WHERE source < ?) OR EXISTS (SELECT 1 FROM rows WHERE source > ?)"
_PAGE = 4096
_DAMAGED = "the file is damaged"


def write_rows(database: sqlite3.Connection, rows: Rows, source: str) -> None:
    """Replace the rows of one source, inside the caller's transaction."""
    ((others,),) = database.execute(_OTHERS, (source, source)).fetchall()
    # Without a condition SQLite drops the whole table at once, row by row otherwise.
    database.execute("DELETE FROM rows WHERE source = ?" if others else "DELETE FROM rows", (source,) * others)
    tags = _TagTexts(rows)
    for begin in range(0, len(rows), _PAGE):
        page = slice(begin, begin + _PAGE)
        measure, unit, grid_id, episode_id, step = (
            column[page].tolist() for column in (rows.measure, rows.unit, rows.grid_id, rows.episode_id, rows.step)
        )
        value = [None if math.isnan(number) else number for number in rows.value[page].tolist()]
        columns = (measure, unit, value, grid_id, episode_id, step, tags.of(page))
        # The source repeats without end.
        database.executemany(_INSERT, zip(repeat(source), range(begin, len(rows)), *columns, strict=False))


def read_rows(database: sqlite3.Connection) -> Rows:
    """Return all rows, ordered by source and then as they were put.

    Raises:
        ValueError: a value that is no row's.
    """
    names = ("measure", "unit", "grid_id", "episode_id")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    values, steps = [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
    codes = array("q")
    known: dict[Cell, int] = {}
    texts: dict[Cell, Cell] = {}  # equal texts become one object: rows are compared and counted by them later
    cursor = database.execute(_SELECT)
    while page := cursor.fetchmany(_PAGE):
        *cells, value, step, tags = zip(*page, strict=True)
        for name, part in zip(names, cells, strict=True):
            if set(map(type, part)) != {str}:
                raise ValueError(f"{name} of every row must be stored as text, got something else: {_DAMAGED}")
            columns[name].extend(map(texts.setdefault, part, part))
        if not set(map(type, value)) <= {float, type(None)}:
            raise ValueError(f"the value of every row must be stored as a number, got something else: {_DAMAGED}")
        if set(map(type, step)) != {int}:
            raise ValueError(f"the step of every row must be a whole number, got something else: {_DAMAGED}")
        values.append(np.array(value, dtype=np.float64))  # None becomes NaN
        steps.append(np.array(step, dtype=np.int64))
        codes.extend([known.setdefault(text, len(known)) for text in tags])
    sets = [decode_tags(text, "a row") for text in known]
    of_row = np.array(codes, dtype=np.int64)
    return Rows(
        value=np.concatenate(values),
        step=np.concatenate(steps),
        tags={
            name: _column([tags.get(name) for tags in sets])[of_row]
            for name in dict.fromkeys(name for tags in sets for name in tags)
        },
        **{name: _column(columns.pop(name)) for name in names},
    )


def _column(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


class _TagTexts:
    """The tags of rows as JSON; equal sets of tags are encoded once."""

    def __init__(self, rows: Rows) -> None:
        self._tags, self._count = rows.tags, len(rows)
        kinds = [set(map(type, column.tolist())) for column in rows.tags.values()]
        self._foreign = any(issubclass(kind, np.generic) for kind in set().union(*kinds))
        # 1, 1.0 and True are equal but different tags.
        self._alike = self._foreign or any(len(kind & {bool, int, float}) > 1 for kind in kinds)
        self._known: dict[tuple[Any, ...], str] = {}

    def of(self, page: slice) -> list[str]:
        """Return the texts of some rows."""
        columns: list[list[Any]] = [column[page].tolist() for column in self._tags.values()]
        if self._foreign:
            columns = [[_plain(tag) for tag in column] for column in columns]
        keys = zip(*columns, strict=True) if columns else iter([()] * len(range(self._count)[page]))
        known, texts = self._known, []
        for tags in keys:
            key = (*tags, *map(type, tags)) if self._alike else tags
            if key not in known:
                known[key] = encode_tags(
                    {name: tag for name, tag in zip(self._tags, tags, strict=True) if tag is not None}
                )
            texts.append(known[key])
        return texts


def _plain(tag: Any) -> Tag:
    plain: Tag = tag.item() if isinstance(tag, np.generic) else tag
    return plain
