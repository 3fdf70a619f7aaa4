"""Rows in the one order that the content hash takes them in, whatever order they were stored in.

The order is that of source, measure, unit, value (an undefined one first), grid, episode, step and tags as JSON. Few
rows are sorted at a time: those of one measure, and where they are many those of a range of values and grids.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.columns import encoded
from goalscope.rows import Rows
from goalscope.runs.codec import encode_tags
from goalscope.runs.store import Store

MOST: Final = 1 << 21
"""Rows that are sorted at a time, but for those that share measure, value and grid."""

_PAGE = 4096
Line = tuple[Any, ...]


def ordered_rows(store: Store, most: int = MOST) -> Iterator[list[Line]]:
    """Yield pages of rows in order: source, measure, unit, value or None, grid, episode, step, tags as JSON.

    Args:
        store: the store.
        most: how many rows are sorted at a time.
    """
    with store.snapshot():
        for source in store.row_sources():
            counts = store.row_counts(source)
            if sum(counts.values()) <= most:
                yield from _sorted(source, Rows.concatenate(store.rows_of(source)))
                continue
            for measure in sorted(counts):
                if counts[measure] <= most:
                    yield from _sorted(source, Rows.concatenate(store.rows_of(source, [measure])))
                else:
                    yield from _by_parts(store, source, measure, most)


def _by_parts(store: Store, source: str, measure: str, most: int) -> Iterator[list[Line]]:
    """Yield the rows of one measure, those of a range of units, values and grids at a time."""
    grids: set[str] = set()
    units: set[str] = set()
    values = np.zeros(0)
    for rows in store.rows_of(source, [measure], names=("unit", "grid_id")):
        grids.update(rows.numbered("grid_id")[1])
        units.update(rows.numbered("unit")[1])
        values = np.unique(np.concatenate([values, _value_keys(rows)]))
    named = {"unit": units, "grid_id": grids}
    ranks = {name: {label: rank for rank, label in enumerate(sorted(found))} for name, found in named.items()}

    def keys(rows: Rows) -> npt.NDArray[np.int64]:
        unit, grid = (_ranked(rows, name, ranks[name]) for name in ("unit", "grid_id"))
        value = np.searchsorted(values, _value_keys(rows))
        found: npt.NDArray[np.int64] = (unit * len(values) + value) * len(grids) + grid
        return found

    pages = store.rows_of(source, [measure], names=("unit", "grid_id"))
    every = np.sort(np.concatenate([keys(rows) for rows in pages]))
    cuts = np.unique(every[::most]).tolist()
    del every
    for low, high in zip(cuts, [*cuts[1:], math.inf], strict=True):
        parts = []
        for rows in store.rows_of(source, [measure]):
            key = keys(rows)
            parts.append(rows.where((key >= low) & (key < high)))
        yield from _sorted(source, Rows.concatenate(part for part in parts if len(part)))


def _sorted(source: str, rows: Rows) -> Iterator[list[Line]]:
    tags, texts = _tag_texts(rows)
    names = ("measure", "unit", "grid_id", "episode_id")
    rank = {name: _ranked(rows, name, None) for name in names}
    order = np.lexsort(
        (tags, rows.step, rank["episode_id"], rank["grid_id"], _value_keys(rows), rank["unit"], rank["measure"])
    )
    for begin in range(0, len(order), _PAGE):
        at = order[begin : begin + _PAGE]
        page = rows.at(at)
        values = [None if math.isnan(value) else value for value in page.value.tolist()]
        measure, unit, grid, episode = (page[name].tolist() for name in names)
        listed = [texts[code] for code in tags[at].tolist()]
        yield [
            (source, *cells)
            for cells in zip(measure, unit, values, grid, episode, page.step.tolist(), listed, strict=True)
        ]


def _value_keys(rows: Rows) -> npt.NDArray[np.float64]:
    """Return ``[N]`` values by which rows are sorted: an undefined one comes first, before minus infinity."""
    found = rows.value + 0.0
    # No row can hold both: one step below the least number is none that a measure has.
    least = np.nextafter(-np.finfo(np.float64).max, 0)
    shifted = np.where(found == -math.inf, -np.finfo(np.float64).max, np.maximum(found, least))
    return np.where(np.isnan(found), -math.inf, shifted)


def _ranked(rows: Rows, name: str, known: dict[Any, int] | None) -> npt.NDArray[np.int64]:
    """Return ``[N]`` the places of a column's values in alphabetical order, or those that are known."""
    codes, labels = rows.numbered(name)
    places = {label: rank for rank, label in enumerate(sorted(labels))} if known is None else known
    found: npt.NDArray[np.int64] = np.array([places[label] for label in labels], dtype=np.int64)[codes]
    return found


def _tag_texts(rows: Rows) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
    """Return ``[N]`` the places of the tags of each row as JSON in alphabetical order, and these texts."""
    codes = np.zeros(len(rows), dtype=np.int64)
    columns = [(name, encoded(rows.held(name))) for name in rows.tags]
    for _, column in columns:  # numbered anew after each, so that no number grows too large
        codes = np.unique(codes * max(len(column.labels), 1) + column.codes, return_inverse=True)[1].reshape(-1)
    _, first = np.unique(codes, return_index=True)
    told = [{name: column.labels[column.codes[at]] for name, column in columns} for at in first.tolist()]
    texts = [encode_tags({name: tag for name, tag in tags.items() if tag is not None}) for tags in told]
    listed = sorted(set(texts))
    place = {text: rank for rank, text in enumerate(listed)}
    return np.array([place[text] for text in texts], dtype=np.int64)[codes], listed
