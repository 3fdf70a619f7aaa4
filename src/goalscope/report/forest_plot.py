"""Differences with their intervals beside the margin inside which they count as none, as SVG text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from goalscope.report.figures import (
    COLOURS,
    INK,
    MARKERS,
    MUTED,
    as_svg,
    blank_figure,
    drawing_style,
    legend_columns,
    short_label,
)
from goalscope.stats import Estimate

_LINE = 0.26  # inches of a line of the figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference of a figure.

    Attributes:
        series: what the legend calls it, e.g. the agent.
        style: index of colour and marker; an agent keeps its own in all figures of a page.
        line: the label on the vertical axis that it belongs to, e.g. the transform.
        estimate: the difference with its interval.
        filled: whether its marker is filled.
    """

    series: str
    style: int
    line: str
    estimate: Estimate
    filled: bool = True


def forest(differences: Sequence[Difference], *, title: str, x_label: str, margin: float | None = None) -> str:
    """Draw differences with intervals around 0, one line each, and the equivalence margin as a band.

    Args:
        differences: what is drawn, from top to bottom; undefined ones leave their line empty, undefined intervals a
            marker alone.
        title: heading of the figure.
        x_label: label of the horizontal axis with its unit.
        margin: half the width of the band, in the unit of the axis, None for no band.

    Returns:
        SVG text without declaration or metadata.

    Raises:
        ImportError: matplotlib is not installed (it comes with the extra ``report``).
    """
    names = list(dict.fromkeys(entry.line for entry in differences))
    series = list(dict.fromkeys((entry.series, entry.style) for entry in differences))
    each = max(1, len(series))
    with drawing_style():
        from matplotlib.lines import Line2D

        figure = blank_figure(5.2, 1.5 + _LINE * (len(names) * (each + 0.6)))
        axes = figure.subplots()
        if margin is not None:
            axes.axvspan(-margin, margin, color="#e4e7eb", linewidth=0)
            for edge in (-margin, margin):
                axes.axvline(edge, color=MUTED, linewidth=0.8, linestyle=":")
        axes.axvline(0, color=MUTED, linewidth=0.8)
        for entry in differences:
            height = names.index(entry.line) + (series.index((entry.series, entry.style)) - (each - 1) / 2) / (each + 1)
            if math.isnan(entry.estimate.value):
                continue
            colour = COLOURS[entry.style % len(COLOURS)]
            if entry.estimate.has_interval:
                axes.hlines(height, entry.estimate.low, entry.estimate.high, color=colour, linewidth=1.6)
            axes.plot(
                [entry.estimate.value],
                [height],
                marker=MARKERS[entry.style % len(MARKERS)],
                color=colour,
                markerfacecolor=colour if entry.filled else "white",
                linestyle="none",
            )
        axes.set_yticks(range(len(names)), [short_label(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_title(short_label(title))
        axes.set_xlabel(x_label, color=INK)
        if len(series) > 1:
            labels = [short_label(name) for name, _ in series]
            handles = [
                Line2D([], [], color=COLOURS[style % len(COLOURS)], marker=MARKERS[style % len(MARKERS)])
                for _, style in series
            ]
            figure.legend(handles, labels, loc="outside lower center", ncols=legend_columns(labels), handlelength=2.6)
        return as_svg(figure)
