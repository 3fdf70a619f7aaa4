"""What all sections on activations share: their rows, names of probes, read points, and the grids behind them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Final, NamedTuple

from goalscope.activations.record import SITES
from goalscope.probing.pipeline import INFO
from goalscope.report.blocks import counted, listed
from goalscope.report.charts import Series
from goalscope.report.definitions import DEFAULT_NETWORK
from goalscope.report.estimates import Estimates, Key, SelectedRows, number_of
from goalscope.report.run_data import RunData
from goalscope.report.specs import MEAN, SHARE, Bounds, Column, Curve, CurveSpec, Declared, Line, TableSpec, section
from goalscope.rows import Rows, Tag
from goalscope.runs.store import Store

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
_TITLES: Final[Mapping[str, str]] = {
    "cognitive-map": "Cognitive map",
    "beliefs": "Actions against decoded beliefs",
    "plans": "Decoded plans",
    "distance": "Decoded distance to the goal",
}
_COUNTS: Final = ("training grids", "training steps", "test grids", "test steps", "steps left out")
_FACTS_TEXT: Final = (
    "Probes are fitted on some grids and scored on others: all steps of a grid, and all its turned versions, are on "
    "one side. Intervals are over the tested grids, for the probes that were fitted; another split or other first "
    "weights would give other probes. Grids with different ids may have the same walls, which a probe may know by "
    "heart: their share is said."
)


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


class ProbeRows(SelectedRows):
    """The rows about the activations of one agent."""

    def at(self, point: ReadPoint) -> "ProbeRows":
        """Return the rows of a site and layer, with those that read no activations."""
        return self.where(site=(point.site, None), layer=(point.layer, None))

    def points(self) -> list[ReadPoint]:
        """Return where activations are read: sites in their order, layers from below."""
        found = (ReadPoint(*one) for one in self.combinations("site", "layer"))
        return sorted((point for point in found if point.site), key=_order)

    def main_point(self) -> ReadPoint:
        """Return the site and layer with most heads and controls; of several the first site, of that the middle one."""
        kinds: dict[ReadPoint, int] = {}
        for site, layer, _, _ in self.combinations("site", "layer", "head", "control"):
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


def probe_section(
    name: str, *, source: str, measures: Callable[[str], bool]
) -> Callable[[Callable[[ProbeRows], Iterator[Declared]]], Callable[[Rows], Iterator[Declared]]]:
    """Return a decorator that registers a function of the rows of one agent as a section, and makes one of all rows.

    Args:
        name: its name in the registry.
        source: paper and figures that it shows the same as.
        measures: whether a measure belongs to it.
    """

    def add(declare: Callable[[ProbeRows], Iterator[Declared]]) -> Callable[[Rows], Iterator[Declared]]:
        @wraps(declare)
        def of_rows(rows: Rows) -> Iterator[Declared]:
            for mine in of_agents(rows, measures):
                yield from declare(mine)

        section(name, source=source, worlds="grids")(wraps(declare)(lambda run: of_rows(run.probed)))
        return of_rows

    return add


def of_agents(rows: Rows, measures: Callable[[str], bool]) -> list[ProbeRows]:
    """Return the rows of some measures for each agent."""
    mine = rows.where(rows.among("measure", {name for name in rows.measure.tolist() if measures(str(name))}))
    agents = ProbeRows(mine).values("agent")
    if not len(mine):
        return []
    return (
        [ProbeRows(mine)] if len(agents) < 2 else [ProbeRows(mine.select(agent=agent), str(agent)) for agent in agents]
    )


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


def probe_table(
    caption: str,
    estimates: Estimates,
    keys: Iterable[Key],
    columns: Sequence[Column],
    points: Sequence[ReadPoint] | None = None,
    *,
    first: str = "read from",
    name: Callable[[Tag, Tag], str] = probe_name,
    heads: Callable[[str], int] = lambda head: 0,
    controls: Iterable[str] = CONTROLS,
) -> TableSpec:
    """Return the table of heads and controls, see `in_order`.

    Args:
        caption: what it shows.
        estimates, columns: as in `TableSpec`.
        keys: site, layer, head and control of the lines.
        points: read points; only these and what reads no activations are shown, all lines as given where None.
        first: heading of the lines.
        name: what a head and its control are called.
        heads, controls: as in `in_order`.
    """
    if points is not None:
        near = [key for key in keys if key["site"] is None or ReadPoint(key["site"], key["layer"]) in points]
        keys = in_order(near, points, heads=heads, controls=controls)
    lines = [Line(title_of(key, name), key) for key in keys]
    return TableSpec(caption=f"{caption}: {MEAN}", first=first, estimates=estimates, columns=columns, lines=lines)


def over_layers(
    points: Sequence[ReadPoint],
    curves: Sequence[Curve],
    *,
    flat: Sequence[Curve] = (),
    estimates: Estimates,
    title: str,
    y_label: str,
    bounds: Bounds = SHARE,
) -> list[CurveSpec]:
    """Return a figure over the layers, each curve once for each site; nothing where there is one layer only.

    Args:
        points: where activations are read.
        curves: the curves of each site, those of one curve next to each other and in styles of their own.
        flat: curves whose one estimate is drawn at every layer.
        estimates, title, y_label, bounds: as in `CurveSpec`.
    """
    layers, sites = ReadPoint.layers(points), ReadPoint.sites(points)
    of_sites = [
        replace(curve, title=f"{curve.title}, {site}", key={**curve.key, "site": site}, style=len(sites) * number + at)
        for number, curve in enumerate(curves)
        for at, site in enumerate(sites)
    ]
    figure = CurveSpec(
        title=title,
        y_label=y_label,
        axis="layer",
        estimates=estimates,
        curves=[*of_sites, *(replace(curve, flat=True) for curve in flat)],
        bounds=bounds,
        ticks=layers,
    )
    return [figure] if len(layers) > 1 else []


def share_bounds(series: Sequence[Series]) -> tuple[float, float]:
    """Return the range of an axis of shares: up to 1, or to less where all lines and bands lie far below it."""
    ends = [end for each in series for one in each.estimates for end in (one.value, one.high) if not math.isnan(end)]
    return 0.0, next((top for top in (0.1, 0.2, 0.5) if max(ends, default=1.0) <= top), 1.0)


def data_bounds(series: Sequence[Series]) -> tuple[float, float]:
    """Return the range of an axis from 0 to twice the greatest value: a band may leave it, a line does not."""
    values = [one.value for each in series for one in each.estimates if math.isfinite(one.value)]
    ends = [one.high for each in series for one in each.estimates if math.isfinite(one.high)]
    top = min(2 * max(values, default=0.0), max([*values, *ends], default=0.0))
    return 0.0, top if top > 0 else 1.0


@section("activations", worlds="grids")
def activations(run: RunData) -> list[Declared]:
    """What was read out of activations, and on how many grids and steps it stands."""
    return probing_facts(run.store) if len(run.probed) else []


def probing_facts(store: Store) -> list[Declared]:
    """Return on how many grids and steps each analysis of activations stands; nothing where none was made.

    Raises:
        ValueError: what the run keeps about them is not what goalscope writes.
    """
    stored = store.info().get(INFO)
    if not stored:
        return []
    try:
        said = [(title, _said(stored[name])) for name, title in _TITLES.items() if name in stored]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{store.path} must say soundly what was read out of activations, but: {error!r}") from error
    return [Declared(anchor="inside", title="What was read out of activations", paragraphs=(_FACTS_TEXT,), facts=said)]


def _order(point: ReadPoint) -> tuple[int, str, float, str]:
    order: dict[str, int] = {name: at for at, name in enumerate(SITES)}
    at = number_of(point.layer)
    site = str(point.site)
    return order.get(site, len(order)), site, math.inf if at is None else at, str(point.layer)


def _said(about: Mapping[str, Any]) -> str:
    grids, steps, tested, scored, gone = (_count(about[name]) for name in _COUNTS)
    known = about["known walls"]
    if isinstance(known, bool) or not isinstance(known, int | float) or not (math.isfinite(known) and 0 <= known <= 1):
        raise ValueError(f"known walls is {known!r}")
    layers = [str(_count(layer)) for layer in about["layers"]]
    left = f"; {counted(gone, 'step')} left out, where not all sites are there" if gone else ""
    return (
        f"{about['agent']}: {listed([str(site) for site in about['sites']])}, layer{'' if len(layers) == 1 else 's'} "
        f"{listed(layers)}. Fitted on {counted(grids, 'grid')} ({counted(steps, 'step')}), tested on "
        f"{counted(tested, 'grid')} ({counted(scored, 'step')}){left}. The wall maps of {100 * known:.0f} % of the "
        "tested grids stand in the other part, too."
    )


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"a count is {value!r}")
    return value
