"""Success against the logarithm of both errors (Fig. 1), and exploration over the course of an episode (Fig. 4)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from goalscope.measures.exploration.recorded import PROGRESS_SHARE, TENTHS
from goalscope.measures.exploration.relation import MOST_APART, Divergence, Relation, divergences, log_relation
from goalscope.report.blocks import Figure, Fold, Heading, Plain, Section, Table, counted, counted_row, interval
from goalscope.report.figures import (
    COLOURS,
    MARKERS,
    MUTED,
    Series,
    as_svg,
    blank_figure,
    drawing_style,
    embed,
    legend_columns,
    lines,
    look_of,
    short,
    short_label,
)
from goalscope.report.ledger import Ledger, describe_key
from goalscope.rows import Rows, Tag
from goalscope.stats import Estimate, estimate_rows

_ERRORS = ("exploration error", "exploitation error")
_MOST_PAIRS = 3
MOST_BANDS = 6
"""Most lines of a figure that are drawn with their intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a scatter plot: a label, a style as in `Series`, and an estimate on either axis."""

    label: str
    style: int
    x: Estimate
    y: Estimate


def points(
    listed: Sequence[Point], *, title: str, x_label: str, y_label: str, line: tuple[float, float] | None = None
) -> str:
    """Draw points with interval bars over a base-10 logarithmic axis; points that are not above 0 are left out.

    Args:
        listed: the points.
        title: heading of the figure.
        x_label, y_label: labels of the axes with their units.
        line: slope and intercept of a line over log10 x, None for none.

    Returns:
        SVG text without declaration or metadata.

    Raises:
        ImportError: matplotlib is not installed (it comes with the extra ``report``).
    """
    shown = [point for point in listed if point.x.value > 0 and not math.isnan(point.y.value)]
    with drawing_style():
        figure = blank_figure(5.2, 4.1)
        axes = figure.subplots()
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        for point in shown:
            colour = COLOURS[point.style % len(COLOURS)]
            if point.y.has_interval:
                axes.vlines(point.x.value, point.y.low, point.y.high, color=colour, linewidth=0.8, alpha=0.6)
            if point.x.has_interval and point.x.low > 0:
                axes.hlines(point.y.value, point.x.low, point.x.high, color=colour, linewidth=0.8, alpha=0.6)
            look = look_of(point.style, MARKERS) | {"linestyle": "none", "markersize": 7}
            axes.plot([point.x.value], [point.y.value], label=short_label(point.label), **look)
        if line is not None and len(shown) > 1:
            ends = [min(point.x.value for point in shown), max(point.x.value for point in shown)]
            heights = [line[0] * math.log10(end) + line[1] for end in ends]
            axes.plot(ends, heights, color=MUTED, linewidth=1.0, linestyle="--")
        axes.set_ylim(-0.04, 1.04)
        axes.set_title(short_label(title))
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.grid(axis="y", color="#e4e7eb", linewidth=0.8)
        handles, labels = axes.get_legend_handles_labels()
        if shown:
            figure.legend(handles, labels, loc="outside lower center", ncols=legend_columns(labels), handlelength=1.4)
        return as_svg(figure)


def relation_section(rows: Rows, ledger: Ledger) -> list[Section]:
    """Return success against the logarithm of each error with its R squared; nothing for fewer than three agents."""
    figures, table = [], []
    for number, group in enumerate(ledger.groups("agent")):
        mine, where = rows.select(**group), describe_key(group)
        for error in _ERRORS:
            found = log_relation(mine, error, ledger.agents)
            if len(found.agents) > 1:
                figures.append(_scatter(found, ledger, group, f"r{number}-{error[:8]}"))
                table.append(_relation_line(found, where or "all maps"))
    if not figures:
        return []
    plain = Plain(
        caption="Least squares of success on log10 of the error, one point an agent",
        headings=(
            "error",
            "maps of",
            "R²",
            "95 % interval",
            "success for a tenfold error",
            "agents",
            "maps",
            "method",
            "left out",
        ),
        rows=tuple(table),
        numbers=(2, 3, 4, 5, 6),
    )
    text = (
        "A line through a handful of agents says how well one number goes with another among them, no more; which "
        "agents were run decides it. An agent without error has no logarithm; it is named, not given a small number."
    )
    return [
        Section(
            anchor="relation", title="Success and errors", paragraphs=(text,), figures=tuple(figures), plain=(plain,)
        )
    ]


def _scatter(found: Relation, ledger: Ledger, group: Mapping[str, Tag], prefix: str) -> Figure:
    """Draw success against the error of each agent, with the line that fits them."""
    listed = []
    for style, agent in enumerate(ledger.agents):
        x = ledger.find("agent", found.error, agent=agent, **group)
        y = ledger.find("agent", "success", agent=agent, **group)
        if agent in found.agents and x is not None and y is not None:
            listed.append(Point(label=agent, style=style, x=x, y=y))
    where = describe_key(group)
    title = f"Success against {found.error}{f', {where}' if where else ''}"
    svg = points(
        listed,
        title=title,
        x_label=f"{found.error} (share, logarithmic)",
        y_label="success (share)",
        line=None if math.isnan(found.slope) else (found.slope, found.intercept),
    )
    r = found.r_squared
    fit = f"{short(r.value, 'share')} {interval(r)}".rstrip()
    counts = f"{counted(len(found.agents), 'agent')}, {counted(r.clusters, 'map')}"
    return Figure(svg=embed(svg, prefix, title), caption=f"R² {fit} ({counts}; {r.note or r.method})")


def _relation_line(found: Relation, where: str) -> tuple[str, ...]:
    r = found.r_squared
    return (
        found.error,
        where,
        short(r.value, "share"),
        interval(r) or r.note or "undefined",
        "–" if math.isnan(found.slope) else short(found.slope, "share"),
        str(len(found.agents)),
        str(r.clusters),
        r.method,
        "; ".join(f"{agent}: {why}" for agent, why in found.left_out.items()),
    )


def progress_section(rows: Rows, ledger: Ledger) -> list[Section]:
    """Return the exploration share over the course of episodes, and where agents of equal success part."""
    mine = rows.where(rows.measure == PROGRESS_SHARE)
    if not len(mine):
        return []
    found = {(g.key["agent"], g.key["progress"]): g.estimate for g in estimate_rows(mine, by=("agent", "progress"))}
    ends = [tenth / TENTHS for tenth in range(1, TENTHS + 1)]
    shown = [agent for agent in ledger.agents if (agent, ends[0]) in found]
    style = {agent: number for number, agent in enumerate(ledger.agents)}
    curves = {agent: tuple(found[agent, end] for end in ends) for agent in shown}
    figures = [_course("Exploration share over the course of an episode", curves, style, "progress")]
    parted = divergences(rows, ledger.agents)
    for number, entry in enumerate(sorted((e for e in parted if e.begins), key=lambda e: -e.apart)[:_MOST_PAIRS]):
        pair = dict(zip((entry.first, entry.second), entry.curves, strict=True))
        title = f"Equal success, parting in tenth {entry.begins}"
        figures.append(_course(title, pair, style, f"progress-{number}"))
    text = (
        "Share of steps that enter an unobserved cell, by tenth of the episode, over all episodes. "
        f"The table compares agents whose success rates differ by at most {MOST_APART:g} and are at least 0.5, on maps "
        "where both have a successful episode, over successful episodes only. They part in the first tenth whose "
        "interval, corrected for ten tenths, leaves out 0. Further figures show the pairs that part most, over the "
        "same episodes as the table."
    )
    numbers = Table(
        caption="Exploration share by tenth, all episodes: mean over the episodes of a map, then over maps",
        headings=(
            Heading(text="agent"),
            *(Heading(text=str(tenth), unit="share") for tenth in range(1, TENTHS + 1)),
            Heading(text="maps"),
        ),
        rows=tuple(counted_row(agent, curves[agent], "map") for agent in shown),
    )
    plain = Plain(
        caption="Equal success, different exploration: first − second, paired by map",
        headings=("first", "second", "maps", "mean |difference|", "largest difference", "interval", "tenth", "part in"),
        rows=tuple(_divergence(entry) for entry in parted),
        numbers=(2, 3, 4, 5, 6),
    )
    return [
        Section(
            anchor="progress",
            title="Exploration over time",
            paragraphs=(text,) if parted else (text, "No two agents of this run succeed equally often."),
            figures=tuple(figures),
            legend=bands_legend(len(shown)),
            plain=(plain,) if parted else (),
            folds=(Fold(title="The exploration shares with their intervals", tables=(numbers,)),),
        )
    ]


def bands_legend(agents: int) -> str:
    """Return what a reader must know of the bands of a figure with so many lines."""
    if agents <= MOST_BANDS:
        return "Bands are 95 % intervals over maps."
    return (
        f"Bands are 95 % intervals over maps; figures of more than {MOST_BANDS} agents are drawn without, so that the "
        "lines can be told apart: their intervals stand in the tables below."
    )


def _course(title: str, curves: Mapping[str, tuple[Estimate, ...]], style: Mapping[str, int], prefix: str) -> Figure:
    """Draw exploration shares over the course of an episode."""
    ends = tuple(tenth / TENTHS for tenth in range(1, TENTHS + 1))
    svg = lines(
        [Series(label=agent, style=style[agent], x=ends, estimates=curve) for agent, curve in curves.items()],
        title=title,
        x_label="progress of the episode (share of its steps, end of each tenth)",
        y_label="new cells (share of steps)",
        bounds=(0.0, 1.0),
        ticks=[0.2, 0.4, 0.6, 0.8, 1.0],
        bands=len(curves) <= MOST_BANDS,
    )
    return Figure(svg=embed(svg, prefix, f"{title}: {', '.join(curves)}"))


def _divergence(entry: Divergence) -> tuple[str, ...]:
    tenth = max(range(TENTHS), key=lambda index: abs(entry.tenths[index].value))
    largest = entry.tenths[tenth]
    return (
        entry.first,
        entry.second,
        str(entry.maps),
        short(entry.apart, "share"),
        short(largest.value, "share"),
        interval(largest) or "undefined",
        str(tenth + 1),
        "nowhere shown" if entry.begins is None else f"tenth {entry.begins}",
    )
