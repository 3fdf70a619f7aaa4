"""Rows in, one estimate for each measure and combination of tags out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.rows import Rows, Tag
from goalscope.stats.crossed import estimate_crossed
from goalscope.stats.estimate import UNBOUNDED, Estimate, from_codes
from goalscope.stats.intervals import check_confidence

PARTS: Final = ("distance", "distance_band", "progress")
"""Tags of parts of an episode: they choose steps, never grids, so that a group has the grids of all of its parts."""

DRAW: Final = "draw"
"""Tag of rows of a random control: the seed that it was drawn with."""

LESS: Final = " less "
"""Stands between two conditions in the name of a measure that is their difference on the same grid."""

_Factor = tuple[npt.NDArray[np.int64], list[Any]]  # number of each row's label, and the labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """The estimate of one measure in one group.

    Attributes:
        key: "measure" and the tags of the group, in the order in which they were asked for.
        estimate: the estimate over the group's grids.
    """

    key: Mapping[str, Tag]
    estimate: Estimate


def estimate_rows(
    rows: Rows,
    by: Sequence[str] = ("agent", "size"),
    *,
    whole: Rows | Mapping[tuple[Tag, ...], int] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    confidence: float = 0.95,
    counts: npt.NDArray[np.int64] | None = None,
    order: Mapping[str, int] | None = None,
) -> list[Grouped]:
    """Estimate every measure in every group that occurs: mean within each grid, then over grids.

    A measure named "X less Y" is a paired difference; its interval is that of `paired_difference`. Rows with a tag
    "draw" are of random controls, drawn with several seeds: their interval is over grids and seeds
    (`goalscope.stats.crossed.estimate_crossed`).

    Args:
        rows: the rows; NaN values are left out and counted in ``estimate.undefined``.
        by: names of tags (or of columns) to group by, in the order of sorting; a tag that no row has is None.
        whole: rows that hold all grids of each group, where ``rows`` are some measures of them; ``rows`` by default. A
            grid of a group without a value is counted in ``estimate.without``; `PARTS` make no group of grids. Or
            the number of grids of each group, as `grids_of` tells it.
        bounds: measure -> least and greatest possible value. For measures that are not named here, if their unit is
            "share": [-1, 1] for a difference, [-2, 2] for one of differences, ...; for others [0, 1] if all values lie
            there, [-1, 1] if some are negative. No bounds otherwise.
        confidence: nominal coverage.
        counts: ``[N]`` how many equal rows each one stands for; 1 by default.
        order: grid -> its place, where ``rows`` are some of those of a run: the last bits of an interval depend on the
            order of grids. That of their appearance by default.

    Returns:
        Measures and agents in order of appearance, other tags sorted: None, then numbers by size, then texts.

    Raises:
        ValueError: a name in ``by`` twice, a group whose rows have different units, or of which some alone are of a
            random control, values outside of given bounds.
    """
    check_confidence(confidence)
    names = [name for name in by if name != "measure"]
    if len(set(names)) != len(names):
        raise ValueError(f"by must name each tag once, got {list(by)}")
    if not len(rows):
        return []
    measures, *_ = factors = [_ordered(name, rows) for name in ("measure", *names)]
    kinds, group = np.unique(_combined(factors, len(rows)), return_inverse=True)
    grid, labels = rows.numbered("grid_id")
    if order is not None:
        grid = np.array([order[label] for label in labels], dtype=np.int64)[grid]
    drawn = rows.known(DRAW)
    draw = rows.numbered(DRAW)[0] if drawn.any() else None
    unit_codes, unit_labels = rows.numbered("unit")
    grids = whole if isinstance(whole, Mapping) else grids_of(rows if whole is None else whole, names)
    ranges = _bounds_of(rows, measures, unit_codes, unit_labels, bounds or {})
    listed = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[listed], np.arange(len(kinds) + 1))
    found = []
    for index in range(len(kinds)):
        mine = listed[edges[index] : edges[index + 1]]
        key = {name: labels[codes[mine[0]]] for name, (codes, labels) in zip(("measure", *names), factors, strict=True)}
        units = np.unique(unit_codes[mine])
        if len(units) > 1:
            raise ValueError(
                f"a group's rows must share one unit, got {[unit_labels[code] for code in units]} at {key}"
            )
        if counts is not None:
            mine = np.repeat(mine, counts[mine])
        values = rows.value[mine]
        defined = ~np.isnan(values)
        about: dict[str, Any] = {
            "unit": str(unit_labels[units[0]]),
            "bounds": ranges[key["measure"]],
            "confidence": confidence,
            "grids": grids.get(tuple(key[name] for name in names if name not in PARTS), 0),
            "differences": LESS in str(key["measure"]),
        }
        if draw is not None and drawn[mine].any():
            if not drawn[mine].all():
                raise ValueError(
                    f"a group must be of random controls, or have none, {key} mixes them: group by control"
                )
            local, seeds = (np.unique(codes[mine], return_inverse=True)[1] for codes in (grid, draw))
            estimate = estimate_crossed(values, local, seeds, **about)
        else:
            # Numbered anew within the group, so that a group costs what its own rows cost.
            local = np.unique(grid[mine][defined], return_inverse=True)[1].astype(np.int64)
            estimate = from_codes(values[defined], local, undefined=int((~defined).sum()), **about)
        found.append(Grouped(key=key, estimate=estimate))
    return found


def grids_of(rows: Rows, by: Sequence[str]) -> dict[tuple[Tag, ...], int]:
    """Return the number of grids of each group that occurs, whatever was measured of them.

    Args:
        rows: the rows.
        by: names of tags (or of columns) to group by; `PARTS` are passed over.

    Returns:
        Values of the tags that are not passed over, in order -> number of grids.
    """
    factors = [rows.numbered(name) for name in by if name not in PARTS]
    grid, grids = rows.numbered("grid_id")
    kinds, first, group = np.unique(_combined(factors, len(rows)), return_index=True, return_inverse=True)
    pairs = np.unique(group * len(grids) + grid)
    counts = np.bincount(pairs // len(grids), minlength=len(kinds))
    keys = [tuple(labels[codes[index]] for codes, labels in factors) for index in first]
    return dict(zip(keys, counts.tolist(), strict=True))


def distinct(rows: Rows, names: Sequence[str]) -> Rows:
    """Return the first of all rows that are equal in some columns and tags, but for `PARTS`."""
    mask = np.zeros(len(rows), dtype=bool)
    codes = numbers_of(rows, [name for name in names if name not in PARTS])
    mask[np.unique(codes, return_index=True)[1]] = True
    return rows.where(mask)


def numbers_of(rows: Rows, names: Sequence[str], codes: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
    """Return ``[N]`` a number for each combination of some columns and tags, and of further codes where given."""
    found = np.zeros(len(rows), dtype=np.int64) if codes is None else codes
    count = int(found.max(initial=0)) + 1
    for own, labels in map(rows.numbered, names):
        if count * max(len(labels), 1) >= 2**62:  # numbered anew
            found = np.unique(found, return_inverse=True)[1].reshape(-1)
            count = int(found.max(initial=0)) + 1
        found, count = found * max(len(labels), 1) + own, count * max(len(labels), 1)
    return found


def _combined(factors: Sequence[_Factor], count: int) -> npt.NDArray[np.int64]:
    """Return ``[N]`` one number for each combination of labels."""
    group = np.zeros(count, dtype=np.int64)
    for codes, labels in factors:
        group = group * len(labels) + codes
    return group


def _ordered(name: str, rows: Rows) -> _Factor:
    """Number a column's labels in the order in which they are to be listed."""
    codes, labels = rows.numbered(name)
    if name in ("measure", "agent"):
        return codes, labels
    order = sorted(range(len(labels)), key=lambda index: natural_order(labels[index]))
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels))
    return rank[codes], [labels[index] for index in order]


def natural_order(label: Tag) -> tuple[int, float, str]:
    """Return what tags are sorted by: None, then numbers by size, then texts."""
    if label is None:
        return 0, 0.0, ""
    if isinstance(label, bool | int | float | np.number | np.bool_):
        return 1, float(label), ""
    return 2, 0.0, str(label)


def _bounds_of(
    rows: Rows,
    measures: _Factor,
    unit_codes: npt.NDArray[np.int64],
    units: list[Any],
    given: Mapping[str, tuple[float, float]],
) -> dict[Any, tuple[float, float]]:
    codes, labels = measures
    least, most = np.full(len(labels), np.inf), np.full(len(labels), -np.inf)
    np.fmin.at(least, codes, rows.value)
    np.fmax.at(most, codes, rows.value)
    share = np.zeros(len(labels), dtype=bool)
    share[codes] = np.array([unit == "share" for unit in units])[unit_codes]
    found = {}
    for index, label in enumerate(labels):
        default, differences = UNBOUNDED, float(str(label).count(LESS))
        if share[index] and differences:
            default = -differences, differences
        elif share[index] and least[index] >= -1 and most[index] <= 1:
            default = (0.0, 1.0) if least[index] >= 0 else (-1.0, 1.0)
        found[label] = given.get(label, default)
    return found
