"""The engine of the report: declared sections become blocks of the page.

All layout is here: lines without estimates, tables without lines, curves without points and sections without content
are left out, and what is undefined is listed with its reason.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

from goalscope import registry
from goalscope.report.blocks import (
    Cell,
    Figure,
    Fold,
    Heading,
    Plain,
    Row,
    Section,
    Table,
    counted_row,
    counts_and_methods,
    number,
    undefined_fold,
)
from goalscope.report.charts import Series, heat_map, lines
from goalscope.report.definitions import in_words
from goalscope.report.figures import embed
from goalscope.report.run_data import RunData
from goalscope.report.specs import AXES, AnyFigure, AnyTable, Curve, CurveSpec, Declared, MapSpec, Picture, TableSpec


def sections_of(run: RunData, *names: str) -> list[Section]:
    """Return sections of a run in the order of the page, each with an anchor of its own.

    Args:
        run: the run.
        names: names of registered sections, all where none is given.

    Raises:
        ValueError: an unknown name, or what a section finds in the run is not what goalscope writes.
    """
    specs = (registry.resolve("section", name) for name in names or registry.names("section"))
    return lay_out(one for spec in specs if spec.worlds in (None, run.worlds) for one in spec.content(run))


def lay_out(sections: Iterable[Declared]) -> list[Section]:
    """Return declared sections as blocks, each with an anchor of its own."""
    found: dict[str, Section] = {}
    for declared in sections:
        anchor = next(text for text in _numbered(declared.anchor) if text not in found)
        one = _section(declared, anchor)
        if one.figures or not declared.figures_only:
            found[anchor] = one
    return list(found.values())


def _section(declared: Declared, anchor: str) -> Section:
    """Return a declared section under an anchor, which also names its figures."""
    figures = tuple(one for at, spec in enumerate(declared.figures) for one in _drawn(spec, f"{anchor}-{at}"))
    facts = tuple(
        (one.title, text)
        for one in declared.sentences
        if (text := in_words([(name, one.estimates.get(key)) for name, key in one.parts], **one.openings))
    )
    said = declared.rule if facts else declared.silence
    tables, plain = _tables(declared.tables)
    folds = []
    for fold in declared.folds:
        if not isinstance(fold, Fold):
            shown, texts = _tables(fold.tables)
            if not shown and not texts:
                continue
            fold = Fold(title=fold.title, tables=shown, plain=texts)
        folds.append(fold)
    return Section(
        anchor=anchor,
        title=declared.title,
        paragraphs=(*declared.paragraphs, *([said] if said else [])),
        facts=(*declared.facts, *facts),
        tables=tables,
        plain=plain,
        code=tuple(declared.code),
        figures=figures,
        layout=declared.layout,
        legend=declared.legend if figures else declared.closing,
        folds=(*folds, *undefined_fold(declared.undefined, declared.why), *counts_and_methods(declared.counted)),
    )


def _numbered(anchor: str) -> Iterator[str]:
    yield anchor
    for at in count(1):
        yield f"{anchor}-{at}"


def _tables(specs: Sequence[AnyTable]) -> tuple[tuple[Table, ...], tuple[Plain, ...]]:
    tables = [one for spec in specs for one in (_table(spec) if isinstance(spec, TableSpec) else [spec])]
    return (
        tuple(one for one in tables if isinstance(one, Table)),
        tuple(one for one in tables if isinstance(one, Plain)),
    )


def _table(spec: TableSpec) -> list[Table | Plain]:
    found = [(line.title, [spec.estimates.get(line.key, column.key) for column in spec.columns]) for line in spec.lines]
    if not any(any(cells) for _, cells in found):
        return []
    lines_of = [(title, cells) for title, cells in found if spec.whole or any(cells)]
    used = [at for at in range(len(spec.columns)) if spec.whole or any(cells[at] for _, cells in lines_of)]
    rows = [
        counted_row(title, [cells[at] for at in used], spec.noun)
        if spec.noun
        else Row(label=title, cells=tuple(Cell.of(cells[at]) for at in used))
        for title, cells in lines_of
    ]
    headings = (
        Heading(text=spec.first),
        *(Heading(text=spec.columns[at].title, unit=spec.columns[at].unit) for at in used),
        *([Heading(text=f"{spec.noun}s")] if spec.noun else []),
    )
    return [Table(caption=spec.caption, headings=headings, rows=tuple(rows))]


def _drawn(spec: AnyFigure, prefix: str) -> list[Figure]:
    if isinstance(spec, Figure):
        return [spec]
    picture = _curves(spec) if isinstance(spec, CurveSpec) else _map(spec) if isinstance(spec, MapSpec) else spec
    return [Figure(svg=embed(picture.svg, prefix, picture.label), caption=picture.caption)] if picture else []


def _curves(spec: CurveSpec) -> Picture | None:
    found = {at: _series(curve, spec, at) for at, curve in enumerate(spec.curves)}
    # A level that is drawn at every tick is a comparison: alone it is no figure.
    if not any(found[at] and not curve.flat for at, curve in enumerate(spec.curves)):
        return None
    drawn = [one for one in found.values() if one is not None]
    series = [*drawn, *spec.more]
    title = spec.title
    if spec.names_one and len(drawn) == 1 < len(spec.curves):
        title += f", {drawn[0].label}"  # one line has no legend
    there = sorted({x for each in series for x in each.x})
    ticks = there if spec.ticks is None else spec.ticks
    if isinstance(ticks, Mapping):
        ticks = {at: ticks[at] for at in ticks if at in there}
    svg = lines(
        series,
        title=title,
        x_label=spec.x_label or AXES[spec.axis],
        y_label=spec.y_label,
        bounds=spec.bounds(series) if callable(spec.bounds) else spec.bounds,
        ticks=ticks or None,
        counts=spec.counts,
        bands=spec.most_bands is None or len(series) <= spec.most_bands,
        joined=spec.joined,
    )
    return Picture(svg=svg, label=title + spec.label_end, caption=spec.caption)


def _series(curve: Curve, spec: CurveSpec, at: int) -> Series | None:
    estimates = curve.estimates or spec.estimates
    x, found = estimates.along(spec.axis, curve.key, spec.places)
    if curve.flat:
        level = estimates.get(curve.key)
        x = tuple(spec.ticks or ()) if level is not None else ()
        found = (level,) * len(x) if level is not None else ()
    if spec.fewest_grids:
        kept = [(place, one) for place, one in zip(x, found, strict=True) if one.clusters >= spec.fewest_grids]
        x, found = tuple(place for place, _ in kept), tuple(one for _, one in kept)
    if len(found) < curve.fewest or all(math.isnan(one.value) for one in found):
        return None
    return Series(label=curve.title, style=at if curve.style is None else curve.style, x=x, estimates=found)


def _map(spec: MapSpec) -> Picture | None:
    among = spec.key if spec.among is None else spec.among
    rows, columns = (spec.estimates.values(tag, **among) for tag in (spec.rows, spec.columns))
    cells = [[spec.estimates.get(spec.key, {spec.rows: row, spec.columns: at}) for at in columns] for row in rows]
    known = [one.value for row in cells for one in row if one is not None and not math.isnan(one.value)]
    if not any(one for row in cells for one in row):
        return None
    svg = heat_map(
        cells,
        rows=[number(row) for row in rows],
        columns=[number(column) for column in columns],
        title=spec.title,
        row_label=spec.row_label,
        column_label=spec.column_label,
        bounds=spec.bounds or (0.0, max([*known, 0.01]) if known else 1.0),
    )
    return Picture(svg=svg, label=spec.label or spec.title)
