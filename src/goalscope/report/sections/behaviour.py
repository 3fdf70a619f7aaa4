"""The sections of a report that hold estimates: headline, size and density, distance, uncertainty, key worlds."""

import math
from collections.abc import Mapping, Sequence

from goalscope.measures.table import CONDITIONS
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
    number,
    numbers_table,
    tag_text,
)
from goalscope.report.definitions import (
    CITED,
    CURVES,
    HEADLINE,
    KEY_MEASURES,
    MAPS,
    SIZE_FIGURES,
    UNCERTAINTY,
    UNCERTAINTY_FIGURES,
    definition_of,
    in_sentence,
    title_of,
)
from goalscope.report.figures import Series, embed, heat_map, lines
from goalscope.report.ledger import Ledger, describe_key, undefined
from goalscope.rows import Tag
from goalscope.stats import Estimate, Grouped

INTERVALS = (
    "Brackets are 95 % intervals over grids (never over steps): each value is averaged within a grid first, then over "
    "grids. Where all grids agree the interval is an exact bound on the number of grids. Hover over a number, or open "
    "“All numbers”, for the counts and the method behind it."
)
_BAND = "Bands are 95 % intervals over grids."
_FEWEST_GRIDS = 5
_MOST_UNDEFINED = 40
_CELLS = "agent, size, density"


def headline(ledger: Ledger) -> Section:
    """Return the table of agents and their main measures, one for each condition that must not be averaged."""
    tables = []
    for group in ledger.groups("agent"):
        measures = [name for name in HEADLINE if _any(ledger, "agent", name, group)]
        tables.append(_by_agent(ledger, measures, group, "Main measures"))
    return Section(anchor="results", title="Results", paragraphs=(INTERVALS,), tables=tuple(tables))


def by_size_and_density(ledger: Ledger) -> list[Section]:
    """Return curves over size and density and size x density maps; nothing where a run has neither tag."""
    if not ledger.tables["agent, size"] or not ledger.tables["agent, density"]:
        return []
    figures = []
    for group in ledger.groups("agent, size, density"):
        for name in SIZE_FIGURES:
            for tag, axis in (("size", "grid size n (cells a side)"), ("density", "wall density d (share)")):
                figures.append(curve(ledger, name, tag, axis, group, bounds=(0.0, 1.0)))
    curves = Section(
        anchor="size-and-density",
        title="By size and density",
        figures=tuple(figure for figure in figures if figure),
        legend=f"{_BAND} A curve over size averages over all densities, a curve over density over all sizes.",
    )
    return [curves, *_maps(ledger)]


def by_distance(ledger: Ledger) -> list[Section]:
    """Return curves over the distance to the goal, for generated grids where a run has other worlds too."""
    groups = ledger.groups("agent, distance")
    if ledger.tables["agent, size, density"]:
        groups = ledger.groups("agent, size, density")
    figures = []
    for group in groups:
        for name in CURVES:
            share = (0.0, 1.0) if ledger.measures.get(name) == "share" else None
            axis = "distance to the goal (steps)"
            figures.append(curve(ledger, name, "distance", axis, group, bounds=share, counts=True))
    drawn = tuple(figure for figure in figures if figure)
    if not drawn:
        return []
    return [
        Section(
            anchor="distance",
            title="By distance to the goal",
            figures=drawn,
            legend=f"{_BAND} The lower panel counts the grids behind each point; distances that fewer than "
            f"{_FEWEST_GRIDS} grids reach are not drawn (they are in the JSON).",
        )
    ]


def uncertainty(ledger: Ledger) -> list[Section]:
    """Return entropy, divergence and calibration with their baselines, and the excess by size."""
    tables = []
    for group in ledger.groups("agent"):
        measures = [name for name in UNCERTAINTY if _any(ledger, "agent", name, group)]
        if measures:
            tables.append(_by_agent(ledger, measures, group, "Uncertainty"))
    if not tables:
        return []
    figures = [
        curve(ledger, name, "size", "grid size n (cells a side)", group, bounds=None)
        for group in ledger.groups("agent, size")
        for name in UNCERTAINTY_FIGURES
    ]
    return [
        Section(
            anchor="uncertainty",
            title="Uncertainty and divergence from the optimal policy",
            paragraphs=(
                "Empirical entropies and divergences are biased by the number of visits to a state: a state seen once "
                "has entropy 0, and a perfect agent at a two-way tie a divergence of 0.311 bits. The excess is the "
                "value minus that of a simulated optimal agent with the same visits; 0 means “as a perfect agent would "
                "look”.",
            ),
            tables=tuple(tables),
            figures=tuple(figure for figure in figures if figure),
            legend=_BAND if any(figures) else "",
        )
    ]


def key_worlds(ledger: Ledger) -> list[Section]:
    """Return the measures of worlds with a key that are none of the paper's environments."""
    tables = []
    for group in ledger.groups("agent"):
        measures = [name for name in KEY_MEASURES if _any(ledger, "agent", name, group, defined=True)]
        if measures:
            measures = [*MAPS, *measures]
            tables.append(_by_agent(ledger, measures, group, "Stages and key"))
    if not tables:
        return []
    return [Section(anchor="keys", title="Instrumental and implicit goals", tables=tuple(tables))]


def all_numbers(ledger: Ledger) -> Section:
    """Return every estimate by agent and the main ones by size and density, with counts and method."""
    folds = []
    for name in ("agent", "agent, size", "agent, density"):
        main = {*HEADLINE, *UNCERTAINTY} if name != "agent" else set(ledger.measures)
        listed = [grouped for grouped in ledger.tables[name] if grouped.key["measure"] in main]
        if listed:
            folds.append(Fold(title=f"By {name} ({len(listed)} estimates)", plain=(numbers_table(listed),)))
    text = (
        "All estimates of this run, those by size and density together and by distance too, are embedded in this page "
        "as JSON (element “ledger”). n counts values: a value is one episode, one grid or one step."
    )
    return Section(anchor="numbers", title="All numbers", paragraphs=(text,), folds=tuple(folds))


def what_is_undefined(ledger: Ledger) -> Section:
    """Return what has no value or no interval in the headline tables, and why."""
    found = undefined(ledger, ("agent", "agent, size", "agent, density"))
    if not found:
        text = "Every measure has a value and an interval for every agent, size and density of this run."
        return Section(anchor="undefined", title="What is undefined", paragraphs=(text,))
    reasons: dict[tuple[str, str], list[str]] = {}
    for table, grouped in found:
        note = grouped.estimate.note or "no value is defined"
        reasons.setdefault((str(grouped.key["measure"]), note), []).append(f"{table}: {_where(grouped)}")
    rows = [(measure, reason, str(len(where)), _few(where)) for (measure, reason), where in reasons.items()]
    plain = Plain(
        caption="A number without an interval is never shown as a finding.",
        headings=("measure", "reason", "cases", "where"),
        rows=tuple(rows[:_MOST_UNDEFINED]),
        numbers=(2,),
    )
    more = (f"{len(rows) - _MOST_UNDEFINED} further kinds are in the JSON.",) if len(rows) > _MOST_UNDEFINED else ()
    return Section(anchor="undefined", title="What is undefined", paragraphs=more, plain=(plain,))


def definitions(ledger: Ledger) -> Section:
    """Return the definition and source of each measure of the run."""
    rows = []
    for measure, unit in ledger.measures.items():
        known = definition_of(measure)
        text = known.text if known else "not one of goalscope's own measures; see where its rows were made"
        rows.append((measure, unit, text, known.source if known else "–"))
    plain = Plain(caption="", headings=("measure", "unit", "definition", "source"), rows=tuple(rows))
    return Section(anchor="definitions", title="What the measures mean", plain=(plain,), legend=CITED)


def _maps(ledger: Ledger) -> list[Section]:
    figures: list[Figure] = []
    folds: list[Fold] = []
    groups = ledger.groups(_CELLS) if ledger.tables[_CELLS] else []
    for group in groups:
        where = describe_key(group) if len(groups) > 1 else ""
        sizes, densities = (ledger.values(_CELLS, tag, **group) for tag in ("size", "density"))
        for agent in ledger.agents:
            what = f"{agent}, {where}" if where else agent
            tables = []
            for name in MAPS:
                cells = [
                    [ledger.find(_CELLS, name, agent=agent, size=n, density=d, **group) for d in densities]
                    for n in sizes
                ]
                if not any(cell for line in cells for cell in line):
                    continue
                if name == MAPS[0]:
                    figures.append(_map(cells, sizes, densities, what, f"map{len(figures)}"))
                headings = (Heading(text="size"), *(Heading(text=f"d = {number(density)}") for density in densities))
                rows = [
                    Row(label=number(size), cells=tuple(Cell.of(cell) for cell in line))
                    for size, line in zip(sizes, cells, strict=True)
                ]
                caption = f"{title_of(name)} ({ledger.measures[name]}) of {what}"
                tables.append(Table(caption=caption, headings=headings, rows=tuple(rows)))
            if tables:
                folds.append(Fold(title=f"Tables: {what}", tables=tuple(tables)))
    if not figures:
        return []
    legend = f"{title_of(MAPS[0])} by size and density; below each value its 95 % interval over the grids of the cell."
    return [Section(anchor="maps", title="Size × density", figures=tuple(figures), legend=legend, folds=tuple(folds))]


def _map(
    cells: Sequence[Sequence[Estimate | None]], sizes: Sequence[Tag], densities: Sequence[Tag], what: str, prefix: str
) -> Figure:
    svg = heat_map(
        cells,
        rows=[number(size) for size in sizes],
        columns=[number(density) for density in densities],
        title=what,
        row_label="size n",
        column_label="wall density d",
        bounds=(0.0, 1.0),
    )
    return Figure(svg=embed(svg, prefix, f"{title_of(MAPS[0])} of {what} by size and density"))


def _by_agent(ledger: Ledger, measures: Sequence[str], group: Mapping[str, Tag], caption: str) -> Table:
    rows = []
    for agent in ledger.agents:
        found = [ledger.find("agent", name, agent=agent, **group) for name in measures]
        if any(found):
            rows.append(counted_row(agent, found))
    headings = [Heading(text=title_of(name), unit=ledger.measures[name]) for name in measures]
    where = describe_key(group)
    return Table(
        caption=f"{caption}{f' – {where}' if where else ''}, mean and 95 % interval over grids",
        headings=(Heading(text="agent"), *headings, Heading(text="grids")),
        rows=tuple(rows),
    )


def curve(
    ledger: Ledger,
    measure: str,
    tag: str,
    axis: str,
    group: Mapping[str, Tag],
    *,
    bounds: tuple[float, float] | None,
    counts: bool = False,
) -> Figure | None:
    """Return the curves of all agents over a tag, None where no agent has a value.

    Where a value is text that is no number, such as the size "large", all stand side by side as points.

    Args:
        ledger: the numbers.
        measure: what is drawn.
        tag: size, density or distance.
        axis: label of the horizontal axis.
        group: the conditions of the run.
        bounds: range of the vertical axis; from the data where None.
        counts: draw the number of grids too, and leave out points with few of them.
    """
    table = f"agent, {tag}"
    places = _places(ledger.values(table, tag, **group))
    ordered = places is not None
    if places is None:
        places = {value: float(index) for index, value in enumerate(ledger.values(table, tag, **group))}
    series = []
    for style, agent in enumerate(ledger.agents):
        points = [
            (places[value], ledger.find(table, measure, agent=agent, **{tag: value}, **group))
            for value in ledger.values(table, tag, agent=agent, **group)
        ]
        least = _FEWEST_GRIDS if counts else 0
        known = [(x, estimate) for x, estimate in points if estimate is not None and estimate.clusters >= least]
        if any(not math.isnan(estimate.value) for _, estimate in known):
            xs, estimates = zip(*known, strict=True)
            series.append(Series(label=agent, style=style, x=xs, estimates=estimates))
    if not series:
        return None
    where = describe_key(group)
    title = f"{title_of(measure)} by {tag}"
    if len(series) == 1 < len(ledger.agents):
        title += f", {series[0].label}"  # one line has no legend
    names = {x: number(value) for value, x in places.items()}
    ticks = None if counts else {x: names[x] for x in sorted({x for line in series for x in line.x})}
    svg = lines(
        series,
        title=title,
        x_label=axis,
        y_label=f"{in_sentence(measure)} ({ledger.measures[measure]})",
        bounds=bounds,
        ticks=ticks,
        counts=counts,
        joined=ordered,
    )
    prefix = "-".join(("c", *(f"{ord(letter):x}" for letter in f"{measure}{tag}{where}")))
    caption = where if len(ledger.groups(table)) > 1 else ""
    return Figure(svg=embed(svg, prefix, f"{title}, {where}" if where else title), caption=caption)


def _places(values: Sequence[Tag]) -> dict[Tag, float] | None:
    """Return where the values of a tag stand on an axis of numbers, None where one of them is no finite number."""
    try:
        places = {value: float(str(value)) for value in values}
    except ValueError:
        return None
    return places if all(map(math.isfinite, places.values())) else None


def _any(ledger: Ledger, table: str, measure: str, group: Mapping[str, Tag], *, defined: bool = False) -> bool:
    found = [ledger.find(table, measure, agent=agent, **group) for agent in ledger.agents]
    return any(estimate is not None and (not defined or estimate.n > 0) for estimate in found)


def _where(grouped: Grouped) -> str:
    plain = [
        tag_text(value)
        for name, value in grouped.key.items()
        if name not in ("measure", *CONDITIONS)
        if value is not None
    ]
    under = describe_key({name: value for name, value in grouped.key.items() if name in CONDITIONS})
    return ", ".join([*plain, under] if under else plain)


def _few(where: Sequence[str]) -> str:
    return "; ".join(where[:3]) + (f"; and {len(where) - 3} more" if len(where) > 3 else "")
