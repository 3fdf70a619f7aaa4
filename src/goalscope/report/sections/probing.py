"""Shared by all sections on activations: rows, names of probes, read points, and counts of grids and steps."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Annotated, Final, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from goalscope._ground import registry
from goalscope._ground.words import counted, listed
from goalscope.inside.activations.sites import SITES
from goalscope.inside.probing.pipeline import INFO
from goalscope.inside.probing.scores import pairs
from goalscope.report.blocks import (
    MEAN,
    SHARE,
    Bounds,
    Column,
    Curve,
    CurveSpec,
    Declared,
    Line,
    RivalsSentence,
    TableSpec,
    section,
)
from goalscope.report.charts import Series
from goalscope.report.definitions import MADE, NEEDED, NETWORKS, READABLE
from goalscope.report.ledger import Estimates, Key, RunData, number_of
from goalscope.report.texts import TEXTS, labels
from goalscope.runs.store import Store
from goalscope.runs.study_parts import READS
from goalscope.stats import Estimate, Grouped
from goalscope.stats.rows import Rows, Tag

TAGS = ("site", "layer", "head", "control")
"""Tags that identify the probe of a row."""
NOWHERE: Key = {"site": None, "layer": None}
"""Tags of rows that do not read activations."""

_CONTROLS = {
    "shuffled": "shuffled labels",
    "control-task": "control task",
    **NETWORKS,
    "wall-count": "number of walls",
    "input": "prompt's cells",
    "text": "reasoning text",
}
READINGS = labels("labels/readings")


class ReadPoint(NamedTuple):
    """A place at which activations are read: a site (token positions, such as "pre") and a layer.

    Both are None for baselines that read no activations.
    """

    site: Tag = None
    layer: Tag = None

    @property
    def key(self) -> dict[str, Tag]:
        """The site and the layer as tags, which select the rows of results for this place."""
        return self._asdict()

    @property
    def order(self) -> tuple[int, str, float, str]:
        """A sort key by which sites come in the order of `SITES`, and layers ascending."""
        sites: dict[str, int] = {name: index for index, name in enumerate(SITES)}
        site, layer = str(self.site), number_of(self.layer)
        return sites.get(site, len(sites)), site, math.inf if layer is None else layer, str(self.layer)

    def __str__(self) -> str:
        """Write ``pre, layer 3``."""
        return "no activations" if self.site is None else f"{self.site}, layer {self.layer}"


Selection = Mapping[str, Tag | Sequence[Tag]]
"""Measure and tags of rows; each tag has one value or several."""


class ProbeRows:
    """Rows of results about activations, such as scores of probes, with methods to select and to estimate them.

    ``agent`` is the agent whose name titles contain; "" on a page about a single agent.
    """

    def __init__(self, rows: Rows, agent: str = "") -> None:
        self.rows, self.agent = rows, agent

    def __len__(self) -> int:
        return len(self.rows)

    def title(self, text: str) -> str:
        """Return a title for a section, with the agent's name appended on a page about several agents."""
        return f"{text} of {self.agent}" if self.agent else text

    def values(self, name: str) -> list[Tag]:
        """Return the distinct values of a tag (such as "head") or column of the rows, in order of appearance, without
        None.
        """
        return [value for value in self.rows.numbered(name)[1] if value is not None]

    def numbers(self, name: str) -> list[float]:
        """Return the distinct numbers among the values of a tag, such as "size", in ascending order."""
        return sorted({number for value in self.values(name) if (number := number_of(value)) is not None})

    def where(self, **tags: Tag | Sequence[Tag]) -> Self:
        """Return the rows whose tags have a given value, or one of several values.

        A tag that no row has counts as None in every row.
        """
        mask = np.ones(len(self.rows), dtype=bool)
        for name, accepted in tags.items():
            allowed = set(accepted) if isinstance(accepted, tuple | list) else {accepted}
            codes, labels = self.rows.numbered(name)
            mask &= np.array([label in allowed for label in labels], dtype=bool)[codes] if len(labels) else True
        return type(self)(self.rows.where(mask), self.agent)

    def estimated(self, estimator: Callable[..., list[Grouped]], by: Sequence[str]) -> Estimates:
        """Estimate each measure for every combination of values of the given tags; empty if there are no rows.

        ``estimator`` is a function such as `goalscope.stats.estimate_rows`.
        """
        return Estimates(estimator(self.rows, by=by) if len(self.rows) else ())

    def combinations(self, *names: str) -> list[tuple[Tag, ...]]:
        """Return the distinct combinations of values that some tags have in the rows; empty if no row has one of the
        tags.
        """
        columns = self.rows.columns()
        if not all(name in columns for name in names):
            return []
        return list(dict.fromkeys(zip(*(columns[name].tolist() for name in names), strict=True)))

    def at(self, point: ReadPoint) -> Self:
        """Return the rows of results at one site (token positions) and layer, and those of baselines that read no
        activations.
        """
        return self.where(site=(point.site, None), layer=(point.layer, None))

    def points(self) -> list[ReadPoint]:
        """Return the places (site and layer) at which activations were read, by site and then by layer."""
        points = (ReadPoint(*values) for values in self.combinations("site", "layer"))
        return sorted((point for point in points if point.site), key=lambda point: point.order)

    def main_point(self) -> ReadPoint:
        """Return the place (site and layer) to show first: that with the most forms of probes and controls.

        Of several, it is the first site and its middle layer. Without any, it is an empty `ReadPoint`.
        """
        counts = Counter(ReadPoint(*values[:2]) for values in self.combinations(*TAGS) if values[0] is not None)
        maximum = max(counts.values(), default=0)
        best = sorted((point for point, count in counts.items() if count == maximum), key=lambda point: point.order)
        same_site = [point for point in best if point.site == best[0].site]
        return same_site[len(same_site) // 2] if same_site else ReadPoint()

    def near(self) -> list[ReadPoint]:
        """Return the places (site and layer) at the layer of `main_point`, one for each site."""
        main = self.main_point()
        return [point for point in self.points() if point.layer == main.layer]


def claims(
    differences: Estimates,
    probes: Iterable[tuple[str, Sequence[tuple[str, Key]]]],
    *,
    floors: Mapping[str, str],
    higher: bool = True,
) -> Iterator[RivalsSentence]:
    """Yield specifications of the sentences "readable" and "made more readable by training" for each probe.

    Args:
        differences: differences of scores from the floors (baselines) and from random networks.
        probes: title of each probe, and its parts: their names, and the keys of their differences (without "less").
        floors: name in "less" -> label; a claim needs all of them.
        higher: whether a higher score is better.
    """
    floor_names, networks = {label: name for name, label in floors.items()}, {kind: kind for kind in NETWORKS}
    for title, parts in probes:
        for rivals, word, needed in ((floor_names, READABLE, tuple(floor_names)), (networks, MADE, (NEEDED,))):
            yield RivalsSentence(f"{title}: {word.above}", differences, parts, rivals, word, needed, higher)


class Contrast(NamedTuple):
    """Which rows of scores to subtract from those of a probe: the rows of its rivals (baselines, controls, random
    networks).

    ``own`` has the tags that select the probe's rows. A rival is described by the tags in which its rows differ from
    those of the probe; rows are paired by grid. Its name ends the measure of the difference: "MEASURE less NAME".
    """

    own: Selection
    rivals: Mapping[str, Selection]
    by: Sequence[str] = ("site", "layer")  # tags that paired rows share, in addition to measure and grid


RANDOM_NETWORKS: Final[Mapping[str, Selection]] = {kind: {"control": kind} for kind in NETWORKS}
"""The rivals of a probe that are the same head on random networks of each kind."""


def contrasted(
    rows: ProbeRows, contrasts: Iterable[Contrast], estimator: Callable[..., list[Grouped]], by: Sequence[str]
) -> Estimates:
    """Estimate differences between probes and their rivals (baselines, controls, random networks), grouped by some
    tags.

    Args:
        rows: all rows of scores.
        contrasts: which rows to subtract from which; rivals without a common grid are left out.
        estimator: a function such as `goalscope.stats.estimate_rows`.
        by: tags to group by.
    """
    parts = [
        pairs(rows.where(**model_rows).rows, rows.where(**{**model_rows, **rival}).rows, name=name, by=paired)
        for model_rows, rivals, paired in contrasts
        for name, rival in rivals.items()
    ]
    return ProbeRows(Rows.concatenate(parts)).estimated(estimator, by)


def probe_section(
    name: str, *, source: str, measures: Callable[[str], bool]
) -> Callable[[Callable[[ProbeRows], Iterator[Declared]]], Callable[[Rows], Iterator[Declared]]]:
    """Return a decorator that registers a section of the report about activations.

    It decorates a function of the rows of results of one agent, which is then called for each agent of a run.

    Args:
        name: name of the section in the registry.
        source: the paper and figures that it reproduces.
        measures: returns whether the section needs the rows of a measure.
    """

    def add(declare: Callable[[ProbeRows], Iterator[Declared]]) -> Callable[[Rows], Iterator[Declared]]:
        @wraps(declare)
        def of_rows(rows: Rows) -> Iterator[Declared]:
            for agent_rows in of_agents(rows, measures):
                yield from declare(agent_rows)

        section(name, source=source, worlds="grids")(wraps(declare)(lambda run: of_rows(run.measured.probed)))
        return of_rows

    return add


def of_agents(rows: Rows, measures: Callable[[str], bool]) -> list[ProbeRows]:
    """Return the rows of results of each agent, for the measures for which the function ``measures`` returns true."""
    matching = rows.where(rows.among("measure", {name for name in rows.measure.tolist() if measures(str(name))}))
    agents = ProbeRows(matching).values("agent")
    if len(agents) > 1:
        return [ProbeRows(matching.select(agent=agent), str(agent)) for agent in agents]
    return [ProbeRows(matching)] if len(matching) else []


@dataclass(frozen=True, slots=True)
class ProbeNames:
    """How a section of the report names and orders probes.

    Attributes:
        heads: label of each head (form of a probe, e.g. linear), or of a head with a control as ``"mean, none"``; other
            heads are labelled by name.
        controls: label of each control, in order; other controls follow.
        first: heads in order; others follow alphabetically.
    """

    heads: Mapping[str, str] = field(default_factory=lambda: labels("labels/heads"))
    controls: Mapping[str, str] = field(default_factory=lambda: _CONTROLS)
    first: Sequence[str] = ()

    def __call__(self, head: Tag, control: Tag = "none") -> str:
        """Write ``MLP``, ``MLP, permuted weights``."""
        name = self.heads.get(f"{head}, {control}", self.heads.get(str(head), str(head)))
        return name if control in (None, "none") else f"{name}, {self.controls.get(str(control), str(control))}"

    def at(self, key: Key) -> str:
        """Return the name of a probe with the place where it reads, such as ``pre, layer 3: MLP``; only the name if it
        reads none.

        ``key`` has its tags: site, layer, head (form) and control.
        """
        point = "" if key.get("site") is None else f"{ReadPoint(key['site'], key['layer'])}: "
        return f"{point}{self(key['head'], key['control'])}"

    def undefined(
        self, estimates: Iterable[Grouped], and_tags: Sequence[str] = (), joint: str = ", "
    ) -> list[tuple[str, str, Estimate]]:
        """Return entries for a section's list of undefined values: for each estimate the measure, the probe and the
        estimate.

        Args:
            estimates: the estimates with their tags.
            and_tags: tags to write after the measure, joined by ``joint``.
        """
        undefined = []
        for grouped in estimates:
            quantity = joint.join(str(grouped.key[tag]) for tag in ("measure", *and_tags) if grouped.key.get(tag))
            undefined.append((quantity, self.at(grouped.key), grouped.estimate))
        return undefined

    def in_order(self, keys: Iterable[Key], points: Sequence[ReadPoint] = ()) -> list[Key]:
        """Sort the keys (tags) of probes by place, then form (head), then control.

        The probe itself comes before its controls, and places that are not among ``points`` come last.
        """
        heads, controls = list(self.first), ["none", *self.controls]

        def order(key: Key) -> tuple[int, int, str, int, str]:
            point, head, control = (key.get("site"), key.get("layer")), str(key["head"]), str(key["control"] or "none")
            return (
                points.index(ReadPoint(*point)) if point in points else len(points),
                heads.index(head) if head in heads else len(heads),
                head,
                controls.index(control) if control in controls else len(controls),
                control,
            )

        return sorted(keys, key=order)

    def table(
        self,
        caption: str,
        estimates: Estimates,
        keys: Iterable[Key],
        columns: Sequence[Column],
        first: str = "read from",
    ) -> TableSpec:
        """Return the specification of a table of scores with one line per probe.

        Args:
            caption: caption of the table.
            estimates: the estimated scores.
            keys: the tags of each probe.
            columns: the columns, each with the tags that select its estimates.
            first: heading of the column of names.
        """
        return TableSpec(f"{caption}: {MEAN}", first, estimates, columns, [Line(self.at(key), key) for key in keys])

    def table_at(
        self,
        points: Sequence[ReadPoint],
        caption: str,
        estimates: Estimates,
        keys: Iterable[Key],
        columns: Sequence[Column],
    ) -> TableSpec:
        """Return the specification of a table of the probes at some places, and of those that read no activations.

        ``points`` are the places (site and layer), in the order of the lines; the other arguments are those of `table`.
        """
        near = [key for key in keys if key["site"] is None or ReadPoint(key["site"], key["layer"]) in points]
        return self.table(caption, estimates, self.in_order(near, points), columns)


PROBES: Final = ProbeNames()
"""The usual names of probes."""


def layers_and_sites(points: Iterable[ReadPoint]) -> tuple[list[float], list[Tag]]:
    """Return the layers of some places (site and layer), ascending, and their distinct sites; layers that are no
    numbers are left out.
    """
    layers = {layer for point in points if (layer := number_of(point.layer)) is not None}
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
    """Return a figure with curves over the layers, each drawn once per site (token positions); empty for a single
    layer.

    Args:
        points: the places (site and layer) that were read.
        title, y_label: title of the figure and label of its vertical axis.
        estimates: the estimates to draw.
        curves: the curves, whose keys get the site.
        flat: estimates without a layer, drawn as horizontal lines.
        bounds: range of the vertical axis.
    """
    layers, sites = layers_and_sites(points)
    of_sites = [
        replace(curve, title=f"{curve.title}, {site}", key={**curve.key, "site": site}, style=len(sites) * row + column)
        for row, curve in enumerate(curves)
        for column, site in enumerate(sites)
    ]
    all_curves = [*of_sites, *(replace(curve, flat=True) for curve in flat)]
    figure = CurveSpec(title, y_label, "layer", estimates, all_curves, bounds=bounds, ticks=layers)
    return [figure] if len(layers) > 1 else []


def share_bounds(series: Sequence[Series]) -> tuple[float, float]:
    """Return the range of a vertical axis for shares: from 0 to 1, or to 0.1, 0.2 or 0.5 if all values and intervals
    fit.
    """
    estimates = [estimate for line in series for estimate in line.points.values()]
    ends = [end for estimate in estimates for end in (estimate.value, estimate.high) if not math.isnan(end)]
    return 0.0, next((top for top in (0.1, 0.2, 0.5) if max(ends, default=1.0) <= top), 1.0)


def data_bounds(series: Sequence[Series]) -> tuple[float, float]:
    """Return the range of a vertical axis: from 0 to at most twice the greatest value. Intervals may be cut off, values
    never.
    """
    values = [estimate.value for line in series for estimate in line.points.values() if math.isfinite(estimate.value)]
    ends = [estimate.high for line in series for estimate in line.points.values() if math.isfinite(estimate.high)]
    top = min(2 * max(values, default=0.0), max([*values, *ends], default=0.0))
    return 0.0, top if top > 0 else 1.0


_Count = Annotated[int, Field(ge=0)]


class _Facts(BaseModel):
    """Stored counts of one analysis of activations; the stored names have spaces."""

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
        left_out = self.steps_left_out
        return TEXTS(
            "inside/read",
            agent=self.agent,
            sites=listed(self.sites),
            layers=f"layer{'' if len(self.layers) == 1 else 's'} {listed([str(layer) for layer in self.layers])}",
            training_grids=counted(self.training_grids, "grid"),
            training_steps=counted(self.training_steps, "step"),
            test_grids=counted(self.test_grids, "grid"),
            test_steps=counted(self.test_steps, "step"),
            left_out=TEXTS("inside/left out", steps=counted(left_out, "step")) if left_out else "",
            known=f"{100 * self.known_walls:.0f}",
        )


@section("activations", worlds="grids")
def activations(run: RunData) -> list[Declared]:
    """Return the report's section with the numbers of grids and steps behind each analysis of activations, in a list.

    The list is empty if activations were not analysed.
    """
    return probing_facts(run.store) if len(run.measured.probed) else []


def _title(name: str) -> str:
    """Return the title of an analysis, or its name if its package is not installed."""
    return str(registry.resolve("analysis", name).title) if registry.registered("analysis", name) else name


def probing_facts(store: Store) -> list[Declared]:
    """Return a section with the numbers of grids and steps behind each analysis of a run's activations; empty without
    any.

    Raises:
        ValueError: the stored counts are not in goalscope's format.
    """
    stored = store.info().get(INFO)
    if not stored:
        return []
    try:
        names = [name for name in dict.fromkeys((*READS, *stored)) if name in stored]
        facts = [(_title(name), str(_Facts.model_validate(stored[name]))) for name in names]
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(TEXTS("inside/damaged", path=str(store.path), reason=reason)) from error
    return [
        Declared(
            anchor="inside", title="What was read from activations", explained=(TEXTS("inside/facts"),), facts=facts
        )
    ]
