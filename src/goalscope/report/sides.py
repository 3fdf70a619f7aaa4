"""The worlds that two sides of a comparison share."""

from dataclasses import replace

import numpy as np

from goalscope.measures.table import CONDITIONS
from goalscope.report.comparison import Side
from goalscope.rows import Rows, Tag

World = tuple[Tag, ...]
"""A grid and the conditions under which it is shown: what two values must share to be compared."""

# A missing transform is the grid as it is; a missing control is the world itself.
_PLAIN: dict[str, Tag] = {"transform": "identity", "control": False}


def worlds_of(rows: Rows) -> list[World]:
    """Return the world of each row."""
    columns = [
        [_PLAIN.get(name) if value is None else value for value in rows.tags[name].tolist()]
        if name in rows.tags
        else [_PLAIN.get(name)] * len(rows)
        for name in CONDITIONS
        if name != "kind"  # what the grid is called does not make it another world
    ]
    return list(zip(rows.grid_id.tolist(), *columns, strict=True))


def shared_worlds(first: Side, second: Side) -> tuple[Side, Side]:
    """Return both sides with the worlds that they share: the same grid under the same conditions."""
    ours, theirs = worlds_of(first.rows), worlds_of(second.rows)
    common = set(ours) & set(theirs)
    return _within(first, ours, common), _within(second, theirs, common)


def _within(side: Side, worlds: list[World], common: set[World]) -> Side:
    mask = np.fromiter((world in common for world in worlds), dtype=bool, count=len(worlds))
    return replace(side, rows=side.rows.where(mask), left_out=len(set(worlds) - common))
