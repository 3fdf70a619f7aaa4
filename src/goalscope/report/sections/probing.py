"""What all sections on activations share: their rows, names of probes, read points, and the grids behind them."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Annotated, Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from goalscope.activations.sites import SITES
from goalscope.probing.pipeline import INFO
from goalscope.probing.scores import pairs
from goalscope.report.blocks import counted, listed
from goalscope.report.charts import Series
from goalscope.report.ledger import Estimates, Key, RunData, number_of
from goalscope.report.specs import (
    MEAN,
    SHARE,
    Bounds,
    Claim,
    Column,
    Curve,
    CurveSpec,
    Declared,
    Line,
    TableSpec,
    section,
)
from goalscope.report.verdicts import MADE, NEEDED, NETWORKS, READABLE
from goalscope.rows import Rows, Tag
from goalscope.runs.store import Store
from goalscope.stats import Grouped

TAGS = ("site", "layer", "head", "control")
"""Which probe a row is about."""
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
    "control-task": "control task",
    **NETWORKS,
    "wall-count": "number of walls",
    "input": "prompt's cells",
    "text": "reasoning text",
}
READINGS = {
    "natural": "at natural class frequencies",
    "balanced": "as if all classes were equally frequent (as trained and as published)",
}
_TITLES: Final = {
    "cognitive-map": "Cognitive map",
    "beliefs": "Actions against decoded beliefs",
    "plans": "Decoded plans",
    "distance": "Decoded distance to the goal",
    "logit-lens": "Actions by the logit lens",
}
_FACTS_TEXT: Final = (
    "Probes are fitted on some grids and scored on others: all steps of a grid, and all its turned versions, are on "
    "one side. Intervals are over the tested grids, for the probes that were fitted; another split or other first "
    "weights would give other probes. Some grids share their walls with one of the other side: their share is said."
)
_Name = Callable[[Tag, Tag], str]
"""What a head and its control are called."""


class ReadPoint(NamedTuple):
    """Where activations are read: site and layer, both None where none are read."""

    site: Tag = None
    layer: Tag = None

    @property
    def key(self) -> dict[str, Tag]:
        """The tags of rows that are read here."""
        return self._asdict()

    @property
    def order(self) -> tuple[int, str, float, str]:
        """Its place: sites in their order, layers from below."""
        sites: dict[str, int] = {name: at for at, name in enumerate(SITES)}
        site, layer = str(self.site), number_of(self.layer)
        return sites.get(site, len(sites)), site, math.inf if layer is None else layer, str(self.layer)

    def __str__(self) -> str:
        """Write ``pre, layer 3``."""
        return "no activations" if self.site is None else f"{self.site}, layer {self.layer}"


Selection = Mapping[str, Tag | Sequence[Tag]]
"""Measure and tags of rows, one value of each or several."""


class ProbeRows:
    """Rows about activations, each column coded once; of one agent, which is named where a page speaks of several."""

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

    def where(self, **wanted: Tag | Sequence[Tag]) -> Self:
        """Return the rows whose tags have a value, or one of several; a tag that no row has is None everywhere."""
        mask = np.ones(len(self.rows), dtype=bool)
        for name, given in wanted.items():
            allowed = set(given) if isinstance(given, tuple | list) else {given}
            codes, labels = self._column(name)
            mask &= np.array([label in allowed for label in labels], dtype=bool)[codes] if len(labels) else True
        return type(self)(self.rows.where(mask), self.agent)

    def estimated(self, how: Callable[..., list[Grouped]], by: Sequence[str]) -> Estimates:
        """Return an estimate for each measure and group of some tags, nothing where there are no rows."""
        return Estimates(how(self.rows, by=by) if len(self.rows) else ())

    def combinations(self, *names: str) -> list[tuple[Tag, ...]]:
        """Return the different values of some tags together; none where a tag is missing."""
        columns = self.rows.columns()
        if not all(name in columns for name in names):
            return []
        return list(dict.fromkeys(zip(*(columns[name].tolist() for name in names), strict=True)))

    def at(self, point: ReadPoint) -> Self:
        """Return the rows of a site and layer, with those that read no activations."""
        return self.where(site=(point.site, None), layer=(point.layer, None))

    def points(self) -> list[ReadPoint]:
        """Return where activations are read, see `ReadPoint.order`."""
        found = (ReadPoint(*one) for one in self.combinations("site", "layer"))
        return sorted((point for point in found if point.site), key=lambda point: point.order)

    def main_point(self) -> ReadPoint:
        """Return the site and layer with most heads and controls; of several the first site, of that the middle one."""
        kinds = Counter(ReadPoint(*one[:2]) for one in self.combinations(*TAGS) if one[0] is not None)
        most = max(kinds.values(), default=0)
        best = sorted((point for point, count in kinds.items() if count == most), key=lambda point: point.order)
        mine = [point for point in best if point.site == best[0].site]
        return mine[len(mine) // 2] if mine else ReadPoint()

    def near(self) -> list[ReadPoint]:
        """Return the points at the layer of the main one, one for each site that is read there."""
        main = self.main_point()
        return [point for point in self.points() if point.layer == main.layer]

    def _column(self, name: str) -> tuple[npt.NDArray[np.int64], list[Any]]:
        if name not in self._coded:
            self._coded[name] = self.rows.numbered(name)
        return self._coded[name]


def claims(
    less: Estimates,
    probes: Iterable[tuple[str, Sequence[tuple[str, Key]]]],
    *,
    floors: Mapping[str, str],
    higher: bool = True,
) -> Iterator[Claim]:
    """Yield what is readable and what training made so, see `goalscope.report.verdicts`.

    Args:
        less: differences to the floors and to random networks.
        probes: each probe and where it reads; of what, and the key of its differences but "less".
        floors: name in "less" -> what it is called; all of them are needed.
        higher: whether a higher score is a better one.
    """
    called, networks = {label: name for name, label in floors.items()}, {kind: kind for kind in NETWORKS}
    for title, parts in probes:
        yield Claim(f"{title}: readable", less, parts, called, READABLE, tuple(called), higher)
        yield Claim(f"{title}: made more readable by training", less, parts, networks, MADE, (NEEDED,), higher)


@dataclass(frozen=True, slots=True)
class Contrast:
    """Rows less those of a control, grid by grid."""

    name: str  # what the control is called: measures become "MEASURE less NAME"
    own: Selection
    control: Selection
    by: tuple[str, ...]  # tags that partners share, beside measure and grid


def contrasted(
    rows: ProbeRows, contrasts: Iterable[Contrast], how: Callable[..., list[Grouped]], by: Sequence[str]
) -> Estimates:
    """Return the estimates of some contrasts; one without partners has none."""
    parts = [
        pairs(rows.where(**one.own).rows, rows.where(**one.control).rows, name=one.name, by=one.by) for one in contrasts
    ]
    return ProbeRows(Rows.concatenate(parts)).estimated(how, by)


def probe_section(
    name: str, *, source: str, measures: Callable[[str], bool]
) -> Callable[[Callable[[ProbeRows], Iterator[Declared]]], Callable[[Rows], Iterator[Declared]]]:
    """Return a decorator that registers a function of one agent's rows of some measures, and makes one of all rows."""

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
    if len(agents) > 1:
        return [ProbeRows(mine.select(agent=agent), str(agent)) for agent in agents]
    return [ProbeRows(mine)] if len(mine) else []


def probe_name(head: Tag, control: Tag = "none") -> str:
    """Write ``MLP``, ``MLP, permuted weights``."""
    name = HEADS.get(str(head), str(head))
    return name if control in (None, "none") else f"{name}, {CONTROLS.get(str(control), str(control))}"


def title_of(key: Key, name: _Name = probe_name) -> str:
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
    """Return keys by read point, rank and name of head, and control: no control first, unknown read points last."""
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
    name: _Name = probe_name,
    heads: Callable[[str], int] = lambda head: 0,
    controls: Iterable[str] = CONTROLS,
) -> TableSpec:
    """Return the table of heads and controls at some read points and nowhere, in order; all as given without points."""
    if points is not None:
        near = [key for key in keys if key["site"] is None or ReadPoint(key["site"], key["layer"]) in points]
        keys = in_order(near, points, heads=heads, controls=controls)
    return TableSpec(f"{caption}: {MEAN}", first, estimates, columns, [Line(title_of(key, name), key) for key in keys])


def layers_and_sites(points: Iterable[ReadPoint]) -> tuple[list[float], list[Tag]]:
    """Return the layers that are numbers, ascending, and the sites of some read points."""
    layers = {at for point in points if (at := number_of(point.layer)) is not None}
    return sorted(layers), list(dict.fromkeys(point.site for point in points))


def over_layers(
    points: Sequence[ReadPoint],
    title: str,
    y_label: str,
    estimates: Estimates,
    curves: Sequence[Curve],
    *,
    flat: Sequence[Curve] = (),
    bounds: Bounds = SHARE,
) -> list[CurveSpec]:
    """Return a figure over the layers, each curve once for each site in a style of its own, and flat ones as levels.

    There is no figure where there is one layer only.
    """
    layers, sites = layers_and_sites(points)
    of_sites = [
        replace(curve, title=f"{curve.title}, {site}", key={**curve.key, "site": site}, style=len(sites) * number + at)
        for number, curve in enumerate(curves)
        for at, site in enumerate(sites)
    ]
    drawn = [*of_sites, *(replace(curve, flat=True) for curve in flat)]
    figure = CurveSpec(title, y_label, "layer", estimates, drawn, bounds=bounds, ticks=layers)
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


_Count = Annotated[int, Field(ge=0)]


class _Facts(BaseModel):
    """What a run keeps about one analysis of activations; its names have spaces there."""

    model_config = ConfigDict(strict=True, alias_generator=lambda name: name.replace("_", " "))
    agent: str
    sites: list[str]
    layers: list[_Count]
    known_walls: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    training_grids: _Count
    training_steps: _Count
    test_grids: _Count
    test_steps: _Count
    steps_left_out: _Count

    def __str__(self) -> str:
        gone = self.steps_left_out
        left = f"; {counted(gone, 'step')} left out, where not all sites are there" if gone else ""
        return (
            f"{self.agent}: {listed(self.sites)}, layer{'' if len(self.layers) == 1 else 's'} "
            f"{listed([str(layer) for layer in self.layers])}. Fitted on {counted(self.training_grids, 'grid')} "
            f"({counted(self.training_steps, 'step')}), tested on {counted(self.test_grids, 'grid')} "
            f"({counted(self.test_steps, 'step')}){left}. The wall maps of {100 * self.known_walls:.0f} % of the "
            "tested grids stand in the other part, too."
        )


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
        said = [(title, str(_Facts.model_validate(stored[name]))) for name, title in _TITLES.items() if name in stored]
    except (TypeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{store.path} must say soundly what was read out of activations, but: {why}") from error
    return [Declared(anchor="inside", title="What was read out of activations", paragraphs=(_FACTS_TEXT,), facts=said)]
