"""Estimates per measure and combination of tags, computed from rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.stats.estimate import UNBOUNDED, Estimate, estimate_crossed, from_codes
from goalscope.stats.rows import Rows, Tag

PARTS: Final = ("distance", "distance_band", "progress")
"""Tags of parts of an episode. They select steps, not clusters: a group has the clusters of all of its parts."""

DRAW: Final = "draw"
"""Tag of rows of a random control: its seed."""

LESS: Final = " less "
"""Joins the names of two conditions in that of a measure that is their difference on the same cluster."""

DIFFERENCES: Final = "differences"
"""Tag of rows that are differences on the same cluster: 1, and 2 for differences of differences."""

_Factor = tuple[npt.NDArray[np.int64], list[Any]]  # index of each row's label, and the labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """The estimate of one measure in one group.

    Attributes:
        key: values of "measure" and of the group's tags, in the requested order.
        estimate: the estimate over the group's clusters.
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
    """Estimate every measure in every group that occurs, by averaging within clusters and then over clusters.

    Rows with the tag "differences" are paired differences and get the interval of `paired_difference`. Rows with the
    tag "draw" belong to random controls with several seeds and get an interval over clusters and seeds
    (`goalscope.stats.estimate_crossed`).

    Args:
        rows: the rows. NaN values are not used, but counted in ``estimate.undefined``.
        by: names of tags or columns to group by, in the order of sorting. A tag that no row has is None in every
            group.
        whole: rows that contain all clusters of each group, if ``rows`` contains only some of the measures, or the
            number of clusters of each group from `clusters_of`; by default ``rows``. Clusters without a value are
            counted in ``estimate.without``. The tags in `PARTS` do not split clusters.
        bounds: measure -> least and greatest possible value. Measures not listed here have bounds only if their unit
            is "share": [-k, k] for rows whose tag "differences" is k, otherwise [0, 1], or [-1, 1] if some values are
            negative.
        confidence: nominal coverage.
        counts: ``[N]`` the number of equal rows that each row represents; 1 by default.
        order: cluster -> position in the whole run, if ``rows`` are a part of it; by default the order of appearance.
            The order of clusters affects the last bits of an interval.

    Returns:
        Measures and agents in order of appearance, other tags sorted: None, then numbers by size, then texts.

    Raises:
        ValueError: a name twice in ``by``, a group with different units, a group that mixes rows of random controls
            with other rows, or values outside the given bounds.
    """
    names = [name for name in by if name != "measure"]
    if len(set(names)) != len(names):
        raise ValueError(f"by must not repeat a tag, got {list(by)}: list each tag once")
    if not len(rows):
        return []
    measures, *_ = factors = [_ordered(name, rows) for name in ("measure", *names)]
    kinds, group = np.unique(_combined(factors, np.zeros(len(rows), dtype=np.int64)), return_inverse=True)
    cluster, labels = rows.numbered("cluster")
    if order is not None:
        cluster = np.array([order[label] for label in labels], dtype=np.int64)[cluster]
    is_control = rows.known(DRAW)
    draw = rows.numbered(DRAW)[0] if is_control.any() else None
    unit_codes, unit_labels = rows.numbered("unit")
    totals = whole if isinstance(whole, Mapping) else clusters_of(rows if whole is None else whole, names)
    differences = _differences(rows)
    ranges = _bounds_of(rows, measures, unit_codes, unit_labels, bounds or {}, differences)
    by_group = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[by_group], np.arange(len(kinds) + 1))
    result = []
    for index in range(len(kinds)):
        own_rows = by_group[edges[index] : edges[index + 1]]
        key = {
            name: labels[codes[own_rows[0]]] for name, (codes, labels) in zip(("measure", *names), factors, strict=True)
        }
        units = np.unique(unit_codes[own_rows])
        if len(units) > 1:
            raise ValueError(
                f"all rows of a group must have the same unit, got {[unit_labels[code] for code in units]} at "
                f"{key}: add to by a tag that separates them"
            )
        if counts is not None:
            own_rows = np.repeat(own_rows, counts[own_rows])
        values = rows.value[own_rows]
        defined = ~np.isnan(values)
        options: dict[str, Any] = {
            "unit": str(unit_labels[units[0]]),
            "bounds": ranges[key["measure"]],
            "confidence": confidence,
            "all_clusters": totals.get(tuple(key[name] for name in names if name not in PARTS), 0),
            "differences": bool(differences[own_rows].any()),
        }
        if draw is not None and is_control[own_rows].any():
            if not is_control[own_rows].all():
                raise ValueError(f"the group {key} mixes rows of random controls with other rows: add 'control' to by")
            local_clusters, seeds = (np.unique(codes[own_rows], return_inverse=True)[1] for codes in (cluster, draw))
            estimate = estimate_crossed(values, local_clusters, seeds, **options)
        else:
            # Clusters are renumbered within the group, so that the cost of a group depends only on its own rows.
            local_clusters = np.unique(cluster[own_rows][defined], return_inverse=True)[1].astype(np.int64)
            estimate = from_codes(values[defined], local_clusters, undefined=int((~defined).sum()), **options)
        result.append(Grouped(key=key, estimate=estimate))
    return result


def clusters_of(rows: Rows, by: Sequence[str]) -> dict[tuple[Tag, ...], int]:
    """Count the clusters of each group that occurs, over all measures.

    Args:
        rows: the rows.
        by: names of tags or columns to group by; those in `PARTS` are ignored.

    Returns:
        A mapping from the values of the remaining tags, in order, to the number of clusters.
    """
    factors = [rows.numbered(name) for name in by if name not in PARTS]
    cluster, clusters = rows.numbered("cluster")
    codes = _combined(factors, np.zeros(len(rows), dtype=np.int64))
    kinds, first, group = np.unique(codes, return_index=True, return_inverse=True)
    pairs = np.unique(group * len(clusters) + cluster)
    counts = np.bincount(pairs // len(clusters), minlength=len(kinds))
    keys = [tuple(labels[codes[index]] for codes, labels in factors) for index in first]
    return dict(zip(keys, counts.tolist(), strict=True))


def distinct(rows: Rows, names: Sequence[str]) -> Rows:
    """Select the first row of each combination of the named columns and tags, ignoring `PARTS`."""
    mask = np.zeros(len(rows), dtype=bool)
    codes = numbers_of(rows, [name for name in names if name not in PARTS])
    mask[np.unique(codes, return_index=True)[1]] = True
    return rows.where(mask)


def numbers_of(rows: Rows, names: Sequence[str], codes: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
    """Number rows ``[N]`` by their combination of the named columns and tags, and of optional additional codes."""
    return _combined(map(rows.numbered, names), np.zeros(len(rows), dtype=np.int64) if codes is None else codes)


def _combined(factors: Iterable[_Factor], codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number rows ``[N]`` by their codes and their labels, in lexical order."""
    count = int(codes.max(initial=0)) + 1
    for column_codes, labels in factors:
        if count * max(len(labels), 1) >= 2**62:  # renumbered to avoid an overflow
            codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
            count = int(codes.max(initial=0)) + 1
        codes, count = codes * max(len(labels), 1) + column_codes, count * max(len(labels), 1)
    return codes


def _ordered(name: str, rows: Rows) -> _Factor:
    """Number a column's labels in the order in which the output lists them."""
    codes, labels = rows.numbered(name)
    if name in ("measure", "agent"):
        return codes, labels
    order = sorted(range(len(labels)), key=lambda index: natural_order(labels[index]))
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels))
    return rank[codes], [labels[index] for index in order]


def natural_order(label: Tag) -> tuple[int, float, str]:
    """Return a sort key that puts None first, then numbers by size, then strings."""
    if label is None:
        return 0, 0.0, ""
    if isinstance(label, bool | int | float | np.number | np.bool_):
        return 1, float(label), ""
    return 2, 0.0, str(label)


def _differences(rows: Rows) -> npt.NDArray[np.int64]:
    """Return ``[N]`` the tag "differences" of each row, 0 where the tag is absent."""
    codes, labels = rows.numbered(DIFFERENCES)
    return np.array([int(label or 0) for label in labels], dtype=np.int64)[codes]


def _bounds_of(
    rows: Rows,
    measures: _Factor,
    unit_codes: npt.NDArray[np.int64],
    units: list[Any],
    declared: Mapping[str, tuple[float, float]],
    differences: npt.NDArray[np.int64],
) -> dict[Any, tuple[float, float]]:
    codes, labels = measures
    result = {}
    for index, label in enumerate(labels):
        own = codes == index
        lowest = np.fmin.reduce(rows.value[own], initial=np.inf)
        highest = np.fmax.reduce(rows.value[own], initial=-np.inf)
        default, count = UNBOUNDED, float(differences[own].max())
        if units[unit_codes[own][-1]] == "share" and count:
            default = -count, count
        elif units[unit_codes[own][-1]] == "share" and lowest >= -1 and highest <= 1:
            default = (0.0, 1.0) if lowest >= 0 else (-1.0, 1.0)
        result[label] = declared.get(label, default)
    return result
