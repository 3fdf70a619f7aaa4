"""What the sections on activations share: rows found by tags, names of probes and places, estimates as tables."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.activations.record import SITES
from goalscope.probing.paired import pairs
from goalscope.report.figures import Series
from goalscope.report.parts import Cell, Fold, Heading, Plain, Row, Table, counted, counted_row
from goalscope.report.sections import numbers_table
from goalscope.report.words import DEFAULT_NETWORK
from goalscope.rows import Rows, Tag
from goalscope.stats import Estimate, Grouped
from goalscope.stats.estimate import factorize

Place = tuple[Tag, Tag]
"""Site and layer; both None where no activations are read."""
NOWHERE: Place = (None, None)

Found = dict[tuple[Tag, ...], Estimate]

HEADS = {
    "majority": "majority class",
    "position": "position alone",
    "additive": "additive linear",
    "percell": "per-cell linear",
    "mlp": "MLP",
    "linear": "linear",
    "mean": "mean of the training grids",
    "manhattan": "line on the Manhattan distance",
}
CONTROLS = {
    "shuffled": "shuffled labels",
    "untrained": DEFAULT_NETWORK,
    "input": "prompt's cells",
    "text": "reasoning text",
}
READINGS = {
    "natural": "at natural class frequencies",
    "balanced": "as if all classes were equally frequent (as trained and as published)",
}
_MOST_UNDEFINED = 40


class Index:
    """Rows that are found by their tags, each column numbered once."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._numbered: dict[str, tuple[npt.NDArray[np.int64], list[Any]]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, name: str) -> list[Tag]:
        """Return the different values of a tag or column in their order of appearance, None left out."""
        return [value for value in self._column(name)[1] if value is not None]

    def where(self, **wanted: Tag | Sequence[Tag]) -> "Index":
        """Return the rows whose tags have a value, or one of several; a tag that no row has is None everywhere."""
        mask = np.ones(len(self.rows), dtype=bool)
        for name, given in wanted.items():
            allowed = set(given) if isinstance(given, tuple | list) else {given}
            codes, labels = self._column(name)
            mask &= np.array([label in allowed for label in labels], dtype=bool)[codes] if len(labels) else True
        return Index(self.rows.where(mask))

    def _column(self, name: str) -> tuple[npt.NDArray[np.int64], list[Any]]:
        if name not in self._numbered:
            column = self.rows.columns().get(name)
            self._numbered[name] = (
                (np.zeros(len(self.rows), dtype=np.int64), [None] if len(self.rows) else [])
                if column is None
                else factorize(column)
            )
        return self._numbered[name]


def of_agents(rows: Rows) -> Iterator[tuple[str, str, Index]]:
    """Return for each agent a short text that is its own in a page, its name where there are several, and its rows."""
    if not len(rows):
        return
    whole = Index(rows)
    agents = whole.values("agent")
    if len(agents) < 2:
        yield "", "", whole
        return
    for at, agent in enumerate(agents):
        yield f"-{at}", str(agent), whole.where(agent=agent)


def places_of(rows: Index) -> list[Place]:
    """Return the sites and layers of what is read from activations: sites in their order, layers from below."""
    columns = rows.rows.columns()
    if "site" not in columns or "layer" not in columns:
        return []
    pairs = dict.fromkeys(zip(columns["site"].tolist(), columns["layer"].tolist(), strict=True))
    return sorted((pair for pair in pairs if pair[0] is not None), key=_place_order)


def layers_of(places: Iterable[Place]) -> list[float]:
    """Return the layers of some places that are numbers, ascending."""
    return sorted({at for _, layer in places if (at := number_of(layer)) is not None})


def sites_of(places: Iterable[Place]) -> list[Tag]:
    """Return the sites of some places in their order of appearance."""
    return list(dict.fromkeys(site for site, _ in places))


def main_place(rows: Index) -> Place:
    """Return the site and layer with most heads and controls; of several the first site, of that the middle layer."""
    columns = rows.rows.columns()
    names = ("site", "layer", "head", "control")
    if not all(name in columns for name in names):
        return NOWHERE
    kinds: dict[Place, int] = {}
    for site, layer, _, _ in dict.fromkeys(zip(*(columns[name].tolist() for name in names), strict=True)):
        if site is not None:
            kinds[site, layer] = kinds.get((site, layer), 0) + 1
    if not kinds:
        return NOWHERE
    best = sorted((place for place, count in kinds.items() if count == max(kinds.values())), key=_place_order)
    mine = [place for place in best if place[0] == best[0][0]]
    return mine[len(mine) // 2]


def at_place(rows: Index, place: Place) -> Index:
    """Return the rows of a site and layer, with those that read no activations."""
    return rows.where(site=(place[0], None), layer=(place[1], None))


def place_name(place: Place) -> str:
    """Write ``pre, layer 3``."""
    return f"{place[0]}, layer {place[1]}" if place[0] is not None else "no activations"


def probe_name(head: Tag, control: Tag = "none") -> str:
    """Write ``MLP``, ``MLP, default-initialised network``."""
    name = HEADS.get(str(head), str(head))
    return name if control in (None, "none") else f"{name}, {CONTROLS.get(str(control), str(control))}"


def number_of(value: Tag) -> float | None:
    """Return a size, layer or density as a number, None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def numbered(found: Found, *key: Tag) -> tuple[list[float], list[Estimate]]:
    """Return the numbers that follow a key, ascending, and their estimates."""
    points = sorted(
        (
            (x, estimate)
            for each, estimate in found.items()
            if each[:-1] == key and (x := number_of(each[-1])) is not None
        ),
        key=lambda point: point[0],
    )
    return [x for x, _ in points], [estimate for _, estimate in points]


def ceiling(series: Sequence[Series]) -> tuple[float, float]:
    """Return the range of an axis from 0 to twice the greatest value: a band may leave it, a line does not."""
    values = [one.value for each in series for one in each.estimates if math.isfinite(one.value)]
    ends = [one.high for each in series for one in each.estimates if math.isfinite(one.high)]
    top = min(2 * max(values, default=0.0), max([*values, *ends], default=0.0))
    return 0.0, top if top > 0 else 1.0


def line(label: str, style: int, points: tuple[Sequence[float], Sequence[Estimate]]) -> list[Series]:
    """Return a line of a figure, nothing where no point of it has a value."""
    x, estimates = points
    if all(math.isnan(estimate.value) for estimate in estimates):
        return []
    return [Series(label=label, style=style, x=tuple(x), estimates=tuple(estimates))]


def over_layers(
    found: Found, sites: Sequence[Tag], curves: Sequence[tuple[str, tuple[Tag, ...]]], *, fewest: int = 1
) -> list[Series]:
    """Return the lines of a figure over layers, one for each curve and site, those of one curve next to each other.

    Args:
        found: estimates by site, layer, and what else there is.
        sites: which sites are drawn.
        curves: label of each curve, and its key after site and layer.
        fewest: least number of layers of a line.
    """
    by_site: Found = {(key[0], *key[2:], key[1]): one for key, one in found.items()}
    series: list[Series] = []
    for style, (label, key) in enumerate(curves):
        for at, site in enumerate(sites):
            points = numbered(by_site, site, *key)
            if len(points[0]) >= fewest:
                series += line(f"{label}, {site}", len(sites) * style + at, points)
    return series


def keyed(listed: Iterable[Grouped], *names: str) -> Found:
    """Return estimates by the values of some names of their key."""
    return {tuple(one.key.get(name) for name in names): one.estimate for one in listed}


def table_of(
    caption: str,
    first: str,
    columns: Sequence[tuple[str, str]],
    lines: Sequence[tuple[str, Sequence[Estimate | None]]],
    *,
    grids: bool = False,
) -> list[Table]:
    """Lay estimates out as a table; lines without any, and a table without lines, are left out.

    Args:
        caption: what the table shows.
        first: heading of the labels.
        columns: heading and unit of each column.
        lines: label and estimates of each line.
        grids: add the number of grids of each line.
    """
    kept = [(label, cells) for label, cells in lines if any(cell is not None for cell in cells)]
    used = [at for at in range(len(columns)) if any(cells[at] is not None for _, cells in kept)]
    of_used = [(label, [cells[at] for at in used]) for label, cells in kept]
    rows = [
        counted_row(label, cells) if grids else Row(label=label, cells=tuple(map(Cell.of, cells)))
        for label, cells in of_used
    ]
    headings = (
        Heading(text=first),
        *(Heading(text=columns[at][0], unit=columns[at][1]) for at in used),
        *([Heading(text="grids")] if grids else []),
    )
    return [Table(caption=caption, headings=headings, rows=tuple(rows))] if rows else []


def what_is_undefined(
    listed: Sequence[tuple[str, str, Estimate]], why: Callable[[str], str] = lambda measure: ""
) -> list[Fold]:
    """Return what has no value or no interval, and why.

    Args:
        listed: measure, where, and estimate of what the tables show.
        why: returns for a measure why it has no value where no grid has one, "" where this is not known.
    """
    lines = []
    for measure, where, estimate in listed:
        if estimate.has_interval:
            continue
        reason = f"no interval: {estimate.note or 'its ends are not known'}"
        if math.isnan(estimate.value):
            reason = why(measure) or estimate.note or "no value is defined"
        lines.append((measure, where, reason))
    if not lines:
        return []
    more = len(lines) - _MOST_UNDEFINED
    plain = Plain(caption="", headings=("measure", "of", "why"), rows=tuple(lines[:_MOST_UNDEFINED]))
    note = (f"{more} more are not listed.",) if more > 0 else ()
    return [Fold(title=f"What is undefined here ({len(lines)})", paragraphs=note, plain=(plain,))]


def paired(own: Index, other: Index, name: str, by: Sequence[str]) -> list[Rows]:
    """Return how much larger some rows are than others, grid by grid, nothing where none has a partner.

    Args:
        own, other: the rows.
        name: what the others are: measures become "MEASURE less NAME".
        by: tags that partners share, beside measure and grid.
    """
    found = pairs(own.rows, other.rows, name=name, by=by)
    return [found] if len(found) else []


def counts_and_methods(listed: Sequence[Grouped]) -> list[Fold]:
    """Return estimates with n, grids, interval and method, those grouped by the same tags in one table."""
    tables: dict[tuple[str, ...], list[Grouped]] = {}
    for one in listed:
        tables.setdefault(tuple(one.key), []).append(one)
    title = f"Counts and methods ({counted(len(listed), 'estimate')})"
    return [Fold(title=title, plain=tuple(map(numbers_table, tables.values())))] if listed else []


def _place_order(place: Place) -> tuple[int, str, float, str]:
    order: dict[str, int] = {name: at for at, name in enumerate(SITES)}
    site, layer = place
    at = number_of(layer)
    return order.get(str(site), len(order)), str(site), math.inf if at is None else at, str(layer)
