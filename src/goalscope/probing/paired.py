"""Rows of one thing less the rows of another, grid by grid."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from goalscope.rows import Rows
from goalscope.stats import LESS


def paired_rows(own: Rows, other: Rows, *, name: str, by: Sequence[str]) -> Rows:
    """Return how much larger some rows are than their partners on the same grid.

    Args:
        own: the rows.
        other: their partners; one whose tags `site` and `layer` are None stands against every site and layer.
        name: what the partners are: measures become "MEASURE less NAME".
        by: tags that partners share, beside measure and grid.

    Returns:
        One row for each of ``own`` that has a partner, with its tags; NaN where either is undefined.

    Raises:
        ValueError: no row has a partner, or two partners have one key.
    """
    found = pairs(own, other, name=name, by=by)
    if not len(found):
        shared = ", ".join(("measure", *by, "grid_id"))
        raise ValueError(f"some rows must have a partner among {name!r} with the same {shared}, none has")
    return found


def pairs(own: Rows, other: Rows, *, name: str, by: Sequence[str]) -> Rows:
    """Return the same as `paired_rows`, and no rows where none has a partner.

    Raises:
        ValueError: two partners have one key.
    """
    names = ("measure", *by, "grid_id")
    keys = _keys(other, names)
    known = dict(zip(keys, other.value.tolist(), strict=True))
    if len(known) < len(keys):
        raise ValueError(f"rows to compare with must differ in {', '.join(names)}, some {name!r} rows do not")
    loose = [index for index, key in enumerate(names) if key in ("site", "layer")]
    partner = []
    for key in _keys(own, names):
        anywhere = tuple(None if index in loose else part for index, part in enumerate(key))
        partner.append(known.get(key, known.get(anywhere)))
    found = np.array([value is not None for value in partner], dtype=bool)
    kept = own.where(found)
    less = np.array([value for value in partner if value is not None], dtype=np.float64)
    return Rows.from_columns(
        measure=[f"{measure}{LESS}{name}" for measure in kept.measure],
        unit=kept.unit.tolist(),
        value=kept.value - less,
        grid_id=kept.grid_id,
        tags=dict(kept.tags),
    )


def chosen(rows: Rows, **tags: Any) -> Rows:
    """Return the rows with these tags and columns; a tag that no row has is None everywhere."""
    columns = rows.columns()
    mask = np.ones(len(rows), dtype=bool)
    for name, wanted in tags.items():
        column = columns.get(name)
        same = [wanted is None] * len(rows) if column is None else [value == wanted for value in column.tolist()]
        mask &= np.array(same, dtype=bool)
    return rows.where(mask)


def _keys(rows: Rows, names: Sequence[str]) -> list[tuple[Any, ...]]:
    missing = np.full(len(rows), None, dtype=object)
    columns = rows.columns()
    return list(zip(*(columns.get(name, missing).tolist() for name in names), strict=True))
