"""The engine of declared sections: tables, curves and sentences on what is read from activations.

A `SectionSpec` says which rows a section is about, and declares its content as data for the rows of one agent. All
layout is here: lines without estimates, tables without lines, curves without points and sections without content are
left out, and what is undefined is listed with its reason.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from goalscope.report.blocks import (
    Cell,
    Figure,
    Fold,
    Heading,
    Row,
    Section,
    Table,
    counted_row,
    counts_and_methods,
    undefined_fold,
)
from goalscope.report.figures import Series, embed, lines
from goalscope.report.probe_rows import Estimates, Key, ProbeRows, ReadPoint
from goalscope.report.verdicts import in_words
from goalscope.rows import Rows
from goalscope.stats import Estimate, Grouped

MEAN = "mean and 95 % interval over grids"
SHARE = (0.0, 1.0)
"""Range of an axis of shares."""
Bounds = tuple[float, float] | Callable[[Sequence[Series]], tuple[float, float]] | None
"""Range of a vertical axis, or a function of what is drawn; from the data where None."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: heading, unit, and what its estimates have in common."""

    title: str
    unit: str
    key: Key


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table: label, and what its estimates have in common."""

    title: str
    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A table of estimates, each found by the keys of its line and column.

    Attributes:
        caption: what the table shows.
        first: heading of the labels.
        estimates: where the estimates are found.
        columns, lines: columns and lines; those without any estimate are left out.
        grids: add the number of grids of each line.
    """

    caption: str
    first: str
    estimates: Estimates
    columns: Sequence[Column]
    lines: Sequence[Line]
    grids: bool = True


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a figure.

    Attributes:
        title: what the legend calls it.
        key: what its estimates have in common.
        style: index of colour, marker and dash; its place among the curves where None.
        fewest: least number of points.
        flat: its one estimate is drawn at every tick, beside others alone.
        estimates: where the estimates are found, where not with those of the figure.
    """

    title: str
    key: Key
    _: KW_ONLY
    style: int | None = None
    fewest: int = 1
    flat: bool = False
    estimates: Estimates | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSpec:
    """A figure of curves over a tag.

    Attributes:
        title: heading of the figure.
        x_label, y_label: labels of the axes with their units.
        axis: the tag.
        estimates: where the estimates are found.
        curves: the lines; those without a value are left out, and a figure without lines.
        bounds: see `Bounds`.
        ticks: marks on the horizontal axis; at all points where None, chosen by the library where empty.
        counts: draw the number of grids, too.
        more: further lines, drawn where there is one at least of the others.
    """

    title: str
    x_label: str
    y_label: str
    axis: str
    estimates: Estimates
    curves: Sequence[Curve]
    bounds: Bounds = SHARE
    ticks: Sequence[float] | None = None
    counts: bool = False
    more: Sequence[Series] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure that is no figure of curves: its SVG text, what it shows in a sentence, and its caption."""

    svg: str
    label: str
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """What some differences say.

    Attributes:
        title: what they are the differences of.
        estimates: where they are found.
        parts: of what, and key of each difference.
        openings: arguments of `goalscope.report.verdicts.in_words`.
    """

    title: str
    estimates: Estimates
    parts: Sequence[tuple[str, Key]]
    openings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSpec:
    """Tables that a reader opens on demand, left out where there are none."""

    title: str
    tables: Sequence[TableSpec | Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The content of a section on one agent.

    Attributes:
        anchor: short text that is unique among the sections on an agent.
        title: heading of the section.
        paragraphs: what a reader must know first.
        sentences: differences in words; those without any difference are left out.
        rule: how sentences follow from intervals, said where there are sentences.
        silence: what is said where there are none.
        tables, figures, folds: what is shown.
        legend: how to read the figures, said where there are figures.
        undefined: measure, where, and estimate of what is shown.
        why: returns for a measure why it has no value where no grid has one, "" where this is not known.
        counted: the estimates behind all this, for the table of counts and methods.
        figures_only: the section is left out where nothing is drawn.
    """

    anchor: str
    title: str
    paragraphs: Sequence[str] = ()
    sentences: Sequence[Sentence] = ()
    rule: str = ""
    silence: str = ""
    tables: Sequence[TableSpec | Table] = ()
    figures: Sequence[CurveSpec | Picture] = ()
    legend: str = ""
    folds: Sequence[FoldSpec] = ()
    undefined: Sequence[tuple[str, str, Estimate]] = ()
    why: Callable[[str], str] = lambda measure: ""
    counted: Sequence[Grouped] = ()
    figures_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionSpec:
    """A declared section.

    Attributes:
        name: what it is called.
        source: paper and figures that it shows the same as.
        measures: whether a measure belongs to it.
        declare: its content for the rows of one agent, in the order of the page.
    """

    name: str
    source: str
    measures: Callable[[str], bool]
    declare: Callable[[ProbeRows], Iterable[Declared]]


def sections_of(spec: SectionSpec, rows: Rows) -> list[Section]:
    """Return a declared section for each agent, nothing where there are no rows for it.

    Args:
        spec: the declaration.
        rows: rows about what is read from activations.
    """
    mine = rows.where(rows.among("measure", {name for name in rows.measure.tolist() if spec.measures(str(name))}))
    agents = ProbeRows(mine).values("agent")
    if not len(mine):
        return []
    if len(agents) < 2:
        return _laid_out(spec, ProbeRows(mine), "")
    return [
        section
        for at, agent in enumerate(agents)
        for section in _laid_out(spec, ProbeRows(mine.select(agent=agent), str(agent)), f"-{at}")
    ]


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
        x_label="layer",
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


def _laid_out(spec: SectionSpec, rows: ProbeRows, end: str) -> list[Section]:
    return [
        section
        for declared in spec.declare(rows)
        for section in _section(declared, f"{declared.anchor}{end}")
        if section.figures or not declared.figures_only
    ]


def _section(declared: Declared, anchor: str) -> list[Section]:
    drawn = [one for one in map(_drawn, declared.figures) if one is not None]
    figures = tuple(
        Figure(svg=embed(one.svg, f"{anchor}-{at}", one.label), caption=one.caption) for at, one in enumerate(drawn)
    )
    facts = tuple(
        (one.title, text)
        for one in declared.sentences
        if (text := in_words([(name, one.estimates.get(key)) for name, key in one.parts], **one.openings))
    )
    said = declared.rule if facts else declared.silence
    return [
        Section(
            anchor=anchor,
            title=declared.title,
            paragraphs=(*declared.paragraphs, *([said] if said else [])),
            facts=facts,
            tables=tuple(_tables(declared.tables)),
            figures=figures,
            legend=declared.legend if figures else "",
            folds=(
                *(
                    Fold(title=fold.title, tables=tuple(tables))
                    for fold in declared.folds
                    if (tables := _tables(fold.tables))
                ),
                *undefined_fold(declared.undefined, declared.why),
                *counts_and_methods(declared.counted),
            ),
        )
    ]


def _tables(specs: Sequence[TableSpec | Table]) -> list[Table]:
    return [table for spec in specs for table in ([spec] if isinstance(spec, Table) else _table(spec))]


def _table(spec: TableSpec) -> list[Table]:
    lines_of = [
        (line.title, cells)
        for line in spec.lines
        if any(cells := [spec.estimates.get(line.key, column.key) for column in spec.columns])
    ]
    used = [at for at in range(len(spec.columns)) if any(cells[at] for _, cells in lines_of)]
    rows = [
        counted_row(title, [cells[at] for at in used])
        if spec.grids
        else Row(label=title, cells=tuple(Cell.of(cells[at]) for at in used))
        for title, cells in lines_of
    ]
    headings = (
        Heading(text=spec.first),
        *(Heading(text=spec.columns[at].title, unit=spec.columns[at].unit) for at in used),
        *([Heading(text="grids")] if spec.grids else []),
    )
    return [Table(caption=spec.caption, headings=headings, rows=tuple(rows))] if rows else []


def _curves(spec: CurveSpec) -> list[Series]:
    found = {at: _series(curve, spec, at) for at, curve in enumerate(spec.curves)}
    series = [one for one in found.values() if one is not None]
    # A level that is drawn at every tick is a comparison: alone it is no figure.
    return [*series, *spec.more] if any(found[at] and not curve.flat for at, curve in enumerate(spec.curves)) else []


def _series(curve: Curve, spec: CurveSpec, at: int) -> Series | None:
    estimates = curve.estimates or spec.estimates
    x, found = estimates.along(spec.axis, curve.key)
    if curve.flat:
        level = estimates.get(curve.key)
        x = tuple(spec.ticks or ()) if level is not None else ()
        found = (level,) * len(x) if level is not None else ()
    if len(found) < curve.fewest or all(math.isnan(one.value) for one in found):
        return None
    return Series(label=curve.title, style=at if curve.style is None else curve.style, x=x, estimates=found)


def _drawn(spec: CurveSpec | Picture) -> Picture | None:
    if isinstance(spec, Picture):
        return spec
    series = _curves(spec)
    if not series:
        return None
    ticks = sorted({x for each in series for x in each.x}) if spec.ticks is None else list(spec.ticks)
    svg = lines(
        series,
        title=spec.title,
        x_label=spec.x_label,
        y_label=spec.y_label,
        bounds=spec.bounds(series) if callable(spec.bounds) else spec.bounds,
        ticks=ticks or None,
        counts=spec.counts,
    )
    return Picture(svg=svg, label=spec.title)
