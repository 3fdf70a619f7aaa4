"""Rows about activations: selected by their tags, contrasted grid by grid, estimated, and named."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from goalscope.activations.record import SITES
from goalscope.probing.paired import pairs
from goalscope.report.verdicts import DEFAULT_NETWORK
from goalscope.rows import Rows, Tag
from goalscope.stats import LESS, Estimate, Grouped
from goalscope.stats.estimate import factorize

Key = Mapping[str, Tag]
"""Measure and tags of an estimate; ``less`` names the control of a difference. What is not named is None."""
Selection = Mapping[str, Tag | Sequence[Tag]]
"""Measure and tags of rows, one value of each or several."""

NOWHERE: Key = {"site": None, "layer": None}
"""The tags of what reads no activations."""

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


class ReadPoint(NamedTuple):
    """Where activations are read: site and layer, both None where none are read."""

    site: Tag = None
    layer: Tag = None

    @property
    def key(self) -> dict[str, Tag]:
        """The tags of rows that are read here."""
        return self._asdict()

    @staticmethod
    def layers(points: Iterable["ReadPoint"]) -> list[float]:
        """Return the layers of some points that are numbers, ascending."""
        return sorted({at for point in points if (at := number_of(point.layer)) is not None})

    @staticmethod
    def sites(points: Iterable["ReadPoint"]) -> list[Tag]:
        """Return the sites of some points in their order of appearance."""
        return list(dict.fromkeys(point.site for point in points))

    def __str__(self) -> str:
        """Write ``pre, layer 3``."""
        return "no activations" if self.site is None else f"{self.site}, layer {self.layer}"


class ProbeRows:
    """Rows that are selected by their tags, each column coded once.

    Attributes:
        rows: the rows.
        agent: whose activations are read, "" where a page speaks of one agent alone.
    """

    def __init__(self, rows: Rows, agent: str = "") -> None:
        self.rows, self.agent = rows, agent
        self._coded: dict[str, tuple[npt.NDArray[np.int64], list[Any]]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def title(self, text: str) -> str:
        """Return a title that names the agent where a page speaks of several."""
        return f"{text} of {self.agent}" if self.agent else text

    def values(self, name: str) -> list[Tag]:
        """Return the different values of a tag or column in their order of appearance, None left out."""
        return [value for value in self._column(name)[1] if value is not None]

    def numbers(self, name: str) -> list[float]:
        """Return the different values of a tag that are numbers, ascending."""
        return sorted({at for value in self.values(name) if (at := number_of(value)) is not None})

    def where(self, **wanted: Tag | Sequence[Tag]) -> "ProbeRows":
        """Return the rows whose tags have a value, or one of several; a tag that no row has is None everywhere."""
        mask = np.ones(len(self.rows), dtype=bool)
        for name, given in wanted.items():
            allowed = set(given) if isinstance(given, tuple | list) else {given}
            codes, labels = self._column(name)
            mask &= np.array([label in allowed for label in labels], dtype=bool)[codes] if len(labels) else True
        return ProbeRows(self.rows.where(mask), self.agent)

    def at(self, point: ReadPoint) -> "ProbeRows":
        """Return the rows of a site and layer, with those that read no activations."""
        return self.where(site=(point.site, None), layer=(point.layer, None))

    def points(self) -> list[ReadPoint]:
        """Return where activations are read: sites in their order, layers from below."""
        return sorted((point for point in map(ReadPoint, *self._tags("site", "layer")) if point.site), key=_order)

    def main_point(self) -> ReadPoint:
        """Return the site and layer with most heads and controls; of several the first site, of that the middle one."""
        kinds: dict[ReadPoint, int] = {}
        for site, layer, _, _ in zip(*self._tags("site", "layer", "head", "control"), strict=True):
            if site is not None:
                kinds[ReadPoint(site, layer)] = kinds.get(ReadPoint(site, layer), 0) + 1
        if not kinds:
            return ReadPoint()
        best = sorted((point for point, count in kinds.items() if count == max(kinds.values())), key=_order)
        mine = [point for point in best if point.site == best[0].site]
        return mine[len(mine) // 2]

    def near(self) -> list[ReadPoint]:
        """Return the points at the layer of the main one, one for each site that is read there."""
        main = self.main_point()
        return [point for point in self.points() if point.layer == main.layer]

    def estimated(self, how: Callable[..., list[Grouped]], by: Sequence[str]) -> list[Grouped]:
        """Return an estimate for each measure and group of some tags, nothing where there are no rows."""
        return how(self.rows, by=by) if len(self.rows) else []

    def _tags(self, *names: str) -> list[list[Tag]]:
        """Return the different combinations of some tags, column by column; none where a tag is missing."""
        columns = self.rows.columns()
        if not all(name in columns for name in names) or not len(self.rows):
            return [[] for _ in names]
        found = dict.fromkeys(zip(*(columns[name].tolist() for name in names), strict=True))
        return [list(column) for column in zip(*found, strict=True)]

    def _column(self, name: str) -> tuple[npt.NDArray[np.int64], list[Any]]:
        if name not in self._coded:
            column = self.rows.columns().get(name)
            self._coded[name] = (
                (np.zeros(len(self.rows), dtype=np.int64), [None] if len(self.rows) else [])
                if column is None
                else factorize(column)
            )
        return self._coded[name]


class Estimates:
    """Estimates that are found by measure and tags.

    Attributes:
        listed: the estimates with their keys, in order.
    """

    def __init__(self, listed: Iterable[Grouped]) -> None:
        self.listed = tuple(listed)
        self._found = {_identity(one.key): one.estimate for one in self.listed}

    def get(self, *keys: Key) -> Estimate | None:
        """Return the estimate of some keys together, the later before the earlier; None where there is none."""
        return self._found.get(_identity({name: value for key in keys for name, value in key.items()}))

    def keys(self, *names: str, **given: Tag) -> list[dict[str, Tag]]:
        """Return the different values of some tags together, where others have a value, in order of appearance."""
        kept = (one.key for one in self.listed if all(one.key.get(name) == value for name, value in given.items()))
        found = dict.fromkeys(tuple(key.get(name) for name in names) for key in kept)
        return [dict(zip(names, values, strict=True)) for values in found]

    def along(self, axis: str, key: Key) -> tuple[tuple[float, ...], tuple[Estimate, ...]]:
        """Return the numbers that a tag has beside a key, ascending, and their estimates."""
        points: dict[float, Estimate] = {}
        for value in dict.fromkeys(one.key.get(axis) for one in self.listed):
            if (at := number_of(value)) is not None and (found := self.get(key, {axis: value})) is not None:
                points[at] = found
        return tuple(sorted(points)), tuple(points[at] for at in sorted(points))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Rows less those of a control, grid by grid.

    Attributes:
        name: what the control is called: measures become "MEASURE less NAME".
        own, control: the rows, and those of the control.
        by: tags that partners share, beside measure and grid.
    """

    name: str
    own: Selection
    control: Selection
    by: tuple[str, ...]


def contrasted(
    rows: ProbeRows, contrasts: Iterable[Contrast], how: Callable[..., list[Grouped]], by: Sequence[str]
) -> list[Grouped]:
    """Return the estimates of some contrasts; one without partners has none."""
    parts = [
        pairs(rows.where(**one.own).rows, rows.where(**one.control).rows, name=one.name, by=one.by) for one in contrasts
    ]
    return ProbeRows(Rows.concatenate(parts)).estimated(how, by)


def probe_name(head: Tag, control: Tag = "none") -> str:
    """Write ``MLP``, ``MLP, default-initialised network``."""
    name = HEADS.get(str(head), str(head))
    return name if control in (None, "none") else f"{name}, {CONTROLS.get(str(control), str(control))}"


def title_of(key: Key, name: Callable[[Tag, Tag], str] = probe_name) -> str:
    """Write ``pre, layer 3: MLP``, the name alone where no activations are read."""
    point = "" if key["site"] is None else f"{ReadPoint(key['site'], key['layer'])}: "
    return f"{point}{name(key['head'], key['control'])}"


def in_order(
    keys: Iterable[Key],
    points: Sequence[ReadPoint] = (),
    *,
    heads: Callable[[str], int] = lambda head: 0,
    controls: Iterable[str] = CONTROLS,
) -> list[Key]:
    """Return keys by read point, head and control: no control first, what reads no activations last.

    Args:
        keys: the keys, with head and control.
        points: the order of the read points.
        heads: rank of a head; of equals the first in the alphabet.
        controls: the controls in their order.
    """
    known = ["none", *controls]

    def order(key: Key) -> tuple[int, int, str, int, str]:
        point, head, control = (key.get("site"), key.get("layer")), str(key["head"]), str(key["control"] or "none")
        at = points.index(ReadPoint(*point)) if point in points else len(points)
        return at, heads(head), head, known.index(control) if control in known else len(known), control

    return sorted(keys, key=order)


def number_of(value: Tag) -> float | None:
    """Return a size, layer or density as a number, None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _identity(key: Key) -> frozenset[tuple[str, Tag]]:
    found = {name: value for name, value in key.items() if value is not None}
    if control := found.pop("less", None):
        found["measure"] = f"{found['measure']}{LESS}{control}"
    return frozenset(found.items())


def _order(point: ReadPoint) -> tuple[int, str, float, str]:
    order: dict[str, int] = {name: at for at, name in enumerate(SITES)}
    at = number_of(point.layer)
    site = str(point.site)
    return order.get(site, len(order)), site, math.inf if at is None else at, str(point.layer)
