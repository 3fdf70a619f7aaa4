"""Rows of measures in the table `rows`."""

import math
import sqlite3
from itertools import repeat
from typing import Any

import numpy as np

from goalscope.rows import Rows, Tag
from goalscope.runs.codec import Cell, decode_tags, encode_tags

_INSERT = "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT = "SELECT measure, unit, value, grid_id, episode_id, step, tags FROM rows ORDER BY source, number"


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
    for *cells, tags in database.execute(_SELECT):
        for column, cell in zip(columns, cells, strict=True):
            column.append(cell)
        codes.append(known.setdefault(tags, len(known)))
    measure, unit, value, grid_id, episode_id, step = columns
    for name, column in (("measure", measure), ("unit", unit), ("grid_id", grid_id), ("episode_id", episode_id)):
        if not all(isinstance(cell, str) for cell in column):
            raise ValueError(f"{name} of every row must be stored as text, got something else: the file is damaged")
    if not all(cell is None or isinstance(cell, float) for cell in value):
        raise ValueError("the value of every row must be stored as a number, got something else: the file is damaged")
    if not all(isinstance(cell, int) for cell in step):
        raise ValueError("the step of every row must be a whole number, got something else: the file is damaged")
    sets = [decode_tags(text, "a row") for text in known]
    names = list(dict.fromkeys(name for tags in sets for name in tags))
    return Rows.from_columns(
        measure=measure,
        unit=unit,
        value=[math.nan if cell is None else cell for cell in value],
        grid_id=grid_id,
        episode_id=episode_id,
        step=np.array(step, dtype=np.int64),
        tags={name: [sets[code].get(name) for code in codes] for name in names},
    )


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
