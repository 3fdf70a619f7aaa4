"""Fig. 4 (bottom) and Fig. 12: how behaviour changes with size, density and distance to the goal.

The upper half of Fig. 4, curves over distance, is in the section by distance; curves over size or density alone are in
the section by size and density.

Source: behavioural and representational evaluation, Fig. 4 and Fig. 12.
"""

import math
from collections.abc import Mapping, Sequence

from goalscope.measures.behaviour import measure_bounds
from goalscope.measures.performance import with_distance_bands
from goalscope.report.agent_groups import AgentGroups, settings
from goalscope.report.blocks import Cell, Figure, Fold, Heading, Row, Section, Table, number
from goalscope.report.definitions import title_of
from goalscope.report.figures import embed, heat_map
from goalscope.report.ledger import STEPWISE, Ledger, describe_key
from goalscope.rows import Rows, Tag
from goalscope.stats import Estimate, estimate_rows

FIGURE_12 = ("success", "policy entropy", "JSD from optimal", "calibration error")
EXCESS = ("policy entropy, excess, per visit", "JSD from optimal, excess, per visit", "calibration error, excess")
_BANDS = 11  # of distances, the most that a map shows
_BIASED = (
    "Entropy, divergence and calibration error are as the paper defines them, over all visited states. They "
    "depend on the number of visits, whoever acts, and visits fall with difficulty: part of every trend in them is no "
    "behaviour at all. The tables hold the excess over an optimal agent with the same visits beside them."
)
_DISTANCE = (
    "Accuracy of single actions, by the distance to the goal at which they were taken. Within a row of the maps "
    "size or density is held fixed, so that what distance adds can be read across."
)

Cells = Mapping[tuple[Tag, Tag], Estimate]


def difficulty_tables(rows: Rows, ledger: Ledger, arms: AgentGroups) -> list[Section]:
    """Return the maps of both figures for each condition with sizes and densities; nothing where a run has none."""
    if not ledger.tables["agent, size, density"]:
        return []
    found = []
    groups = ledger.groups("agent, size, density")
    known = [group for group, _ in settings(rows, ledger) if group in groups]
    for position, group in enumerate(known):
        mine = rows.select(**group)
        if any(len(ledger.values("agent, size, density", tag, **group)) < 2 for tag in ("size", "density")):
            continue
        end, where = f"-{position}" if position else "", describe_key(group) if len(known) > 1 else ""
        found.append(_by_distance(mine, arms, f"figure-4{end}", where))
        found.append(_by_size_and_density(mine, ledger, arms, f"figure-12{end}", where))
    return [section for section in found if section]


def _by_size_and_density(rows: Rows, ledger: Ledger, arms: AgentGroups, anchor: str, where: str) -> Section:
    listed = [name for name in (*FIGURE_12, *EXCESS) if name in ledger.measures]
    kept = rows.where(rows.among("measure", listed))
    found: dict[tuple[str, str], dict[tuple[Tag, Tag], Estimate]] = {}
    for grouped in estimate_rows(kept, by=("agent", "size", "density"), bounds=measure_bounds()):
        key = str(grouped.key["agent"]), str(grouped.key["measure"])
        found.setdefault(key, {})[grouped.key["size"], grouped.key["density"]] = grouped.estimate
    figures: list[Figure] = []
    folds: list[Fold] = []
    for agent in (*arms.subjects, *arms.others):
        tables = []
        for name in listed:
            cells = found.get((agent, name), {})
            if agent in arms.subjects and name in FIGURE_12:
                figures.append(_map(cells, name, f"{title_of(name)}: {agent}", f"{anchor}-{len(figures)}"))
            if cells:
                tables.append(_table(cells, f"{title_of(name)} ({ledger.measures[name]}) of {agent}", "size", "d ="))
        folds.append(Fold(title=f"Tables: {agent}", tables=tuple(tables)))
    return Section(
        anchor=anchor,
        title="Figure 12: performance by size and density" + (f", {where}" if where else ""),
        paragraphs=(_BIASED,),
        figures=tuple(figures),
        legend="Below each value its 95 % interval over the grids of the cell; colours run from 0 to the greatest one.",
        folds=tuple(folds),
    )


def _by_distance(rows: Rows, arms: AgentGroups, anchor: str, where: str) -> Section | None:
    steps = rows.where(rows.measure == STEPWISE)
    steps = steps.where(steps.known("distance"))
    if not len(steps):
        return None
    width = -(-max(int(distance) for distance in steps["distance"]) // _BANDS)
    steps = with_distance_bands(steps, width)
    figures: list[Figure] = []
    folds: list[Fold] = []
    for tag, words in (("size", "size"), ("density", "d =")):
        found = _cells(steps, ("agent", tag, "distance_band"))
        for agent in (*arms.subjects, *arms.others):
            cells = found.get((agent,), {})
            if agent in arms.subjects:
                figures.append(_map(cells, tag, f"{agent}: accuracy by {tag} and distance", f"{anchor}-{len(figures)}"))
            else:
                caption = f"Accuracy (share) of {agent} by {tag} and distance to the goal in steps"
                folds.append(Fold(title=f"{agent}, by {tag}", tables=(_table(cells, caption, words, ""),)))
    three = _cells(steps, ("agent", "size", "density", "distance_band"))
    for agent in (*arms.subjects, *arms.others):
        tables = tuple(
            _table(cells, f"Accuracy (share) of {agent}, size {number(size)}: density × distance in steps", "d =", "")
            for (who, size), cells in three.items()
            if who == agent
        )
        folds.append(Fold(title=f"Size × density × distance: {agent}", tables=tables))
    return Section(
        anchor=anchor,
        title="Figure 4: accuracy by size, density and distance" + (f", {where}" if where else ""),
        paragraphs=(_DISTANCE,),
        figures=tuple(figures),
        legend="Distances in steps. Below each value its 95 % interval over the grids that have such steps.",
        folds=tuple(folds),
    )


def _cells(steps: Rows, tags: Sequence[str]) -> dict[tuple[Tag, ...], dict[tuple[Tag, Tag], Estimate]]:
    """Return estimates by the first tags, and in there by the last two."""
    found: dict[tuple[Tag, ...], dict[tuple[Tag, Tag], Estimate]] = {}
    for grouped in estimate_rows(steps, by=tags, bounds=measure_bounds()):
        values = [grouped.key[tag] for tag in tags]
        found.setdefault(tuple(values[:-2]), {})[values[-2], values[-1]] = grouped.estimate
    return found


def _axes(cells: Cells) -> tuple[list[Tag], list[Tag]]:
    def order(value: Tag) -> tuple[float, str]:
        return (float(value), "") if isinstance(value, int | float) else (0.0, str(value))

    first, second = ({key[index] for key in cells} for index in (0, 1))
    return sorted(first, key=order), sorted(second, key=order)


def _map(cells: Cells, name: str, title: str, prefix: str) -> Figure:
    lines, columns = _axes(cells)
    greatest = max((one.value for one in cells.values() if not math.isnan(one.value)), default=1.0)
    share = name in ("success", "size", "density")
    svg = heat_map(
        [[cells.get((line, column)) for column in columns] for line in lines],
        rows=[number(line) for line in lines],
        columns=[number(column) for column in columns],
        title=title,
        row_label="wall density d" if name == "density" else "size n",
        column_label="distance to the goal" if name in ("size", "density") else "wall density d",
        bounds=(0.0, 1.0 if share else max(greatest, 0.01)),
    )
    return Figure(svg=embed(svg, prefix, title))


def _table(cells: Cells, caption: str, first: str, second: str) -> Table:
    lines, columns = _axes(cells)
    headings = (
        Heading(text=first.removesuffix(" =")),
        *(Heading(text=f"{second} {number(c)}".strip()) for c in columns),
    )
    rows = [
        Row(label=number(line), cells=tuple(Cell.of(cells.get((line, column))) for column in columns)) for line in lines
    ]
    return Table(caption=caption, headings=headings, rows=tuple(rows))
