"""Rows of measures in the table `rows`."""

import math
import sqlite3
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.rows import Rows, Tag
from goalscope.runs.codec import Cell, decode_tags, encode_tags

_INSERT = "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT = "SELECT measure, unit, value, grid_id, episode_id, step, tags FROM rows ORDER BY source, number"
_TEXTS = (0, 1, 3, 4)  # measure, unit, grid_id, episode_id
_PAGE = 4096


def write_rows(database: sqlite3.Connection, rows: Rows, source: str) -> None:
    """Replace the rows of one source, inside the caller's transaction."""
    database.execute("DELETE FROM rows WHERE source = ?", (source,))
    tags = _encode_tags(rows)
    text = [column.tolist() for column in (rows.measure, rows.unit, rows.grid_id, rows.episode_id)]
    value = [None if math.isnan(number) else number for number in rows.value.tolist()]
    measure, unit, grid_id, episode_id = text
    columns = (measure, unit, value, grid_id, episode_id, rows.step.tolist(), tags)
    cells = zip(repeat(source), range(len(rows)), *columns, strict=False)  # the source repeats without end
    database.executemany(_INSERT, cells)


def read_rows(database: sqlite3.Connection) -> Rows:
    """Return all rows, ordered by source and then as they were put.

    Raises:
        ValueError: a value that is no row's.
    """
    columns: list[list[Any]] = [[] for _ in range(6)]
    codes: list[int] = []
    known: dict[Cell, int] = {}
    texts: dict[Cell, Cell] = {}  # equal texts become one object: rows are compared and counted by them later
    cursor = database.execute(_SELECT)
    while page := cursor.fetchmany(_PAGE):
        *cells, tags = zip(*page, strict=True)
        for index, (column, part) in enumerate(zip(columns, cells, strict=True)):
            column.extend(map(texts.setdefault, part, part) if index in _TEXTS else part)
        codes += [known.setdefault(text, len(known)) for text in tags]
    measure, unit, value, grid_id, episode_id, step = columns
    for name, column in (("measure", measure), ("unit", unit), ("grid_id", grid_id), ("episode_id", episode_id)):
        if not set(map(type, column)) <= {str}:
            raise ValueError(f"{name} of every row must be stored as text, got something else: the file is damaged")
    if not set(map(type, value)) <= {float, type(None)}:
        raise ValueError("the value of every row must be stored as a number, got something else: the file is damaged")
    if not set(map(type, step)) <= {int}:
        raise ValueError("the step of every row must be a whole number, got something else: the file is damaged")
    sets = [decode_tags(text, "a row") for text in known]
    names = list(dict.fromkeys(name for tags in sets for name in tags))
    of_row = np.array(codes, dtype=np.int64)
    return Rows.from_columns(
        measure=measure,
        unit=unit,
        value=np.array(value, dtype=np.float64),  # None becomes NaN
        grid_id=grid_id,
        episode_id=episode_id,
        step=np.array(step, dtype=np.int64),
        tags={name: _column([tags.get(name) for tags in sets])[of_row] for name in names},
    )


def _column(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _encode_tags(rows: Rows) -> list[str]:
    """Return the tags of each row as JSON; equal sets of tags are encoded once."""
    names = list(rows.tags)
    columns = [[_plain(tag) for tag in column.tolist()] for column in rows.tags.values()]
    known: dict[tuple[Any, ...], str] = {}
    encoded = []
    for tags in zip(*columns, strict=True) if columns else iter([()] * len(rows)):
        key = (*tags, *map(type, tags))  # 1, 1.0 and True are equal but different tags
        if key not in known:
            known[key] = encode_tags({name: tag for name, tag in zip(names, tags, strict=True) if tag is not None})
        encoded.append(known[key])
    return encoded


def _plain(tag: Any) -> Tag:
    plain: Tag = tag.item() if isinstance(tag, np.generic) else tag
    return plain
