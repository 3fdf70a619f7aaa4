"""Charts of estimates: lines, maps, differences with a margin, points.

Each is a declaration that is drawn on demand, which needs matplotlib (it comes with the extra ``report``).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from goalscope.report.figures import (
    COLOURS,
    INK,
    LONGEST_TICK,
    MARKERS,
    MUTED,
    Chart,
    Record,
    blank_figure,
    legend_columns,
    look_of,
    short_label,
)
from goalscope.report.ledger import recorded
from goalscope.stats import FEWEST, Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE: Final = 0.5
"""Fraction of a colour scale that an interval may span; wider ones are uninformative, and only in a map's data."""

_TOO_FEW: Final = "no interval: too few grids"
_LESS = f"less than {100 * FEWEST:g} % of the grids"
_LINE = 0.26  # inches of a line of the figure
_MARGINS = 1.1  # inches around the cells of a map
_RULES = "#e4e7eb"
_Colour = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a figure."""

    label: str  # label in the legend
    style: int  # index of colour, marker and dash; an agent keeps its own in all figures of a page
    x: tuple[float, ...]  # [P] positions
    estimates: tuple[Estimate, ...]  # [P] values with intervals

    def __post_init__(self) -> None:
        if len(self.x) != len(self.estimates):
            raise ValueError(f"a series must have an estimate for each x, got {len(self.estimates)} for {len(self.x)}")


@dataclass(frozen=True, eq=False)
class Lines(Chart):
    """Lines with interval bands; what comes from few of the grids is pale, and the grids are counted below.

    Undefined values leave a gap, undefined intervals a marker without a band. Many lines are legible without `bands`
    only; their intervals must then stand in a table. Positions without an order are not `joined`: they have points
    and interval bars. The other options are those of `goalscope.report.specs.CurveSpec`.
    """

    series: Sequence[Series]
    _: KW_ONLY
    title: str
    x_label: str
    y_label: str
    bounds: tuple[float, float] | None = None
    ticks: Sequence[float] | Mapping[float, str] | None = None
    counts: bool = False
    bands: bool = True
    joined: bool = True

    @property
    def records(self) -> tuple[Record, ...]:
        """One for each point of each line."""
        named = self.ticks if isinstance(self.ticks, Mapping) else {}
        return tuple(
            {"series": line.label, "x": named.get(x, x), **recorded(estimate)}
            for line in self.series
            for x, estimate in zip(line.x, line.estimates, strict=True)
        )

    def drawn(self) -> "Figure":
        """Return it as a figure of matplotlib."""
        series, names = self.series, self.ticks or {}
        sparse = any(estimate.sparse for line in series for estimate in line.estimates)
        legend = -(-len(series) // legend_columns([short_label(line.label) for line in series]))
        figure = blank_figure(5.2, (4.15 if self.counts or sparse else 3.6) + 0.19 * (max(0, legend - 3) + sparse))
        if self.counts or sparse:
            upper, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
            bottom.set_ylabel("grids")
            for axis in (bottom.xaxis, bottom.yaxis):
                axis.get_major_locator().set_params(integer=True)
        else:
            upper = bottom = figure.subplots()
        for line in series:
            _draw(upper, line, markers=not self.counts, band=self.bands, joined=self.joined)
            if bottom is not upper:
                grids = [estimate.clusters for estimate in line.estimates]
                bottom.plot(line.x, grids, drawstyle="steps-mid", **look_of(line.style, marker=None))
        if bottom is not upper:
            bottom.set_ylim(bottom=0)
        upper.grid(axis="y", color=_RULES, linewidth=0.8)
        if self.bounds is not None:
            margin = 0.04 * (self.bounds[1] - self.bounds[0])
            upper.set_ylim(self.bounds[0] - margin, self.bounds[1] + margin)
        bottom.set_xlabel(f"{self.x_label}\npale: {_LESS}" if sparse else self.x_label)
        if names:
            tick_labels = names.values() if isinstance(names, Mapping) else [f"{tick:g}" for tick in names]
            bottom.set_xticks(list(names), [short_label(name, LONGEST_TICK) for name in tick_labels])
        handles, labels = upper.get_legend_handles_labels()
        return _finished(figure, upper, self.title, self.y_label, handles if len(series) > 1 else [], labels)


@dataclass(frozen=True, eq=False)
class HeatMap(Chart):
    """A table of estimates as coloured cells, each with its value and, below it, its interval.

    A cell from few of the grids has no colour and says how many they are. An interval wider than the fraction
    `WIDE` of the scale is left to the data, with one note on the map.
    """

    cells: Sequence[Sequence[Estimate | None]]  # [R][C], None where there are no data
    _: KW_ONLY
    rows: Sequence[str]
    columns: Sequence[str]
    title: str
    row_label: str
    column_label: str
    bounds: tuple[float, float]  # values of the two ends of the colour scale

    @property
    def records(self) -> tuple[Record, ...]:
        """One for each cell with data."""
        return tuple(
            {"row": self.rows[row], "column": self.columns[column], **recorded(estimate)}
            for row, line in enumerate(self.cells)
            for column, estimate in enumerate(line)
            if estimate is not None
        )

    def drawn(self) -> "Figure":
        """Return it as a figure of matplotlib."""
        from matplotlib.text import Text

        estimates = [estimate for row in self.cells for estimate in row if estimate is not None]
        lowest, span = self.bounds[0], self.bounds[1] - self.bounds[0]
        below = [f"without colour: {_LESS}"] if any(estimate.sparse for estimate in estimates) else []
        below += [_TOO_FEW] if any(_wide(estimate, span) for estimate in estimates) else []
        figure = blank_figure(_MARGINS + 0.78 * len(self.columns), 0.95 + 0.52 * len(self.rows) + 0.19 * len(below))
        axes, scale = figure.subplots(), colour_scale()
        for row, line in enumerate(self.cells):
            for column, estimate in enumerate(line):
                with_ends = estimate is not None and not _wide(estimate, span)
                _draw_cell(axes, column, row, estimate, lambda value: scale((value - lowest) / span), ends=with_ends)
        axes.set_xlim(-0.5, len(self.columns) - 0.5)
        axes.set_ylim(len(self.rows) - 0.5, -0.5)
        axes.set_xticks(range(len(self.columns)), [short_label(name, LONGEST_TICK) for name in self.columns])
        axes.set_yticks(range(len(self.rows)), [short_label(name, LONGEST_TICK) for name in self.rows])
        axes.tick_params(length=0)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_xlabel("\n".join([self.column_label, *below]))
        _finished(figure, axes, self.title, self.row_label)
        # A map of a column or two is narrower than the words around it.
        texts = [text for text in axes.findobj(Text) if text.get_in_layout()]
        words = max(text.get_window_extent().width for text in texts) / figure.dpi
        figure.set_figwidth(max(figure.get_figwidth(), _MARGINS + words))
        return figure


def _wide(estimate: Estimate, span: float) -> bool:
    """Return whether an interval is too wide for a scale of some length; false without an interval."""
    return estimate.has_interval and estimate.high - estimate.low > WIDE * span


def _draw(axes: Any, line: Series, *, markers: bool, band: bool, joined: bool) -> None:
    # A band has no thickness at a gap: NaN ends leave it out.
    ends = [
        (estimate.low, estimate.high) if math.isfinite(estimate.high - estimate.low) else (math.nan,) * 2
        for estimate in line.estimates
    ]
    colour = COLOURS[line.style % len(COLOURS)]
    sparse = [estimate.sparse for estimate in line.estimates]
    values = [estimate.value for estimate in line.estimates]
    line_style = look_of(line.style, MARKERS if markers else None) | ({} if joined else {"linestyle": "none"})
    if any(sparse):
        axes.plot(line.x, values, **line_style | {"alpha": 0.35})
        if band and joined:
            axes.fill_between(line.x, *zip(*ends, strict=True), color=colour, alpha=0.06, linewidth=0)
        values = [math.nan if few else value for few, value in zip(sparse, values, strict=True)]
        ends = [(math.nan,) * 2 if few else both for few, both in zip(sparse, ends, strict=True)]
    lows, highs = [low for low, _ in ends], [high for _, high in ends]
    if band and joined:
        axes.fill_between(line.x, lows, highs, color=colour, alpha=0.16, linewidth=0)
    if not joined or (len(line.x) == 1 and not math.isnan(ends[0][0])):
        axes.vlines(line.x, lows, highs, color=colour, linewidth=1.4)
    axes.plot(line.x, values, label=short_label(line.label), **line_style)


def _draw_cell(
    axes: Any, column: int, row: int, estimate: Estimate | None, scale: Callable[[float], _Colour], *, ends: bool
) -> None:
    """Draw one cell of a map with its value, its interval, and the number of its grids if that is low."""
    from matplotlib.patches import Rectangle

    value, below, few, colour = "–", "no data" if estimate is None else "undefined", "", (0.94, 0.94, 0.94, 1.0)
    if estimate is not None and not math.isnan(estimate.value):
        below = f"{estimate.low:.2f} to {estimate.high:.2f}" if estimate.has_interval else "no interval"
        value, below = f"{estimate.value:.2f}".replace("-", "−"), below.replace("-", "−") if ends else ""
        colour = colour if estimate.sparse else scale(estimate.value)
    if estimate is not None and estimate.sparse:
        few = f"{estimate.clusters}/{estimate.all_clusters} grids"
    dark = _luminance(colour) < 0.36
    up = 0.09 if few else 0.0 if below else -0.13
    axes.add_artist(Rectangle((column - 0.485, row - 0.475), 0.97, 0.95, facecolor=colour, edgecolor="none"))
    for height, text, size in ((-0.13 - up, value, 10), (0.24 - up - up, below, 6.8), (0.33, few, 6.8)):
        text_style = {"ha": "center", "va": "center", "color": "white" if dark else INK, "fontsize": size}
        if text:  # within its cell: the layout need not measure it
            axes.text(column, row + height, text, in_layout=False, **text_style)


def _luminance(colour: _Colour) -> float:
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def colour_scale() -> Callable[[float], _Colour]:
    """Return the colour of each share of a scale, from pale to dark."""
    from matplotlib import colormaps

    scale = colormaps["YlGnBu"]
    # The darkest and the palest ends are left out: text stays readable on every cell, cells stay visible on white.
    return lambda fraction: tuple(float(part) for part in scale(0.08 + 0.8 * min(1.0, max(0.0, fraction))))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class DifferenceBar:
    """One difference of a figure."""

    series: str  # label in the legend, e.g. the agent
    style: int  # as in `Series`
    line: str  # the label on the vertical axis that it belongs to, e.g. the transform
    estimate: Estimate
    filled: bool = True  # whether its marker is filled


@dataclass(frozen=True, eq=False)
class Forest(Chart):
    """Differences with intervals around 0, one line each from top to bottom, a margin on both sides of 0.

    Undefined differences leave their line empty, undefined intervals a marker alone. `levels` are lines with names.
    """

    differences: Sequence[DifferenceBar]
    _: KW_ONLY
    title: str
    x_label: str
    margin: float | None = None
    levels: Mapping[float, str] = field(default_factory=dict)

    @property
    def records(self) -> tuple[Record, ...]:
        """One for each difference."""
        return tuple(
            {
                "series": difference.series,
                "line": difference.line,
                **recorded(difference.estimate),
                **({} if self.margin is None else {"margin": self.margin, "within": difference.filled}),
            }
            for difference in self.differences
        )

    def drawn(self) -> "Figure":
        """Return it as a figure of matplotlib."""
        from matplotlib.lines import Line2D

        names = list(dict.fromkeys(entry.line for entry in self.differences))
        series = list(dict.fromkeys((entry.series, entry.style) for entry in self.differences))
        series_count = max(1, len(series))
        figure = blank_figure(5.2, 1.5 + _LINE * (len(names) * (series_count + 0.6)))
        axes = figure.subplots()
        if self.margin is not None:
            axes.axvspan(-self.margin, self.margin, color=_RULES, linewidth=0)
            for edge in (-self.margin, self.margin):
                axes.axvline(edge, color=MUTED, linewidth=0.8, linestyle=":")
        axes.axvline(0, color=MUTED, linewidth=0.8)
        for level, name in self.levels.items():
            axes.axvline(level, color=MUTED, linewidth=0.8, linestyle="-" if level == 0 else ":")
            position: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            axes.annotate(name, (level, 1.0), (3, -2), **position, verticalalignment="top", color=MUTED, fontsize=8.5)
        for entry in self.differences:
            estimate, marker = entry.estimate, _marker(entry.style)
            height = names.index(entry.line) + (series.index((entry.series, entry.style)) - (series_count - 1) / 2) / (
                series_count + 1
            )
            if math.isnan(estimate.value):
                continue
            if estimate.has_interval:
                axes.hlines(height, estimate.low, estimate.high, color=marker["color"], linewidth=1.6)
            face = marker["color"] if entry.filled else "white"
            axes.plot([estimate.value], [height], markerfacecolor=face, linestyle="none", **marker)
        axes.set_yticks(range(len(names)), [short_label(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.9 if self.levels else -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(self.x_label, color=INK)
        handles = [Line2D([], [], **_marker(style)) for _, style in series] if len(series) > 1 else []
        return _finished(figure, axes, self.title, "", handles, [short_label(name) for name, _ in series])


def _marker(style: int) -> dict[str, Any]:
    return {"color": COLOURS[style % len(COLOURS)], "marker": MARKERS[style % len(MARKERS)]}


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a scatter plot: a label, a style as in `Series`, and an estimate on either axis."""

    label: str
    style: int
    x: Estimate
    y: Estimate


@dataclass(frozen=True, eq=False)
class Points(Chart):
    """Points with interval bars over a base-10 logarithmic axis, and a line by its slope and intercept.

    Points that are not above 0 are left out.
    """

    points: Sequence[Point]
    _: KW_ONLY
    title: str
    x_label: str
    y_label: str
    line: tuple[float, float] | None = None

    @property
    def records(self) -> tuple[Record, ...]:
        """One for each axis of each point that is shown."""
        return tuple(
            {"series": point.label, "axis": axis, **recorded(estimate)}
            for point in self._shown
            for axis, estimate in (("x", point.x), ("y", point.y))
        )

    @property
    def _shown(self) -> list[Point]:
        return [point for point in self.points if point.x.value > 0 and not math.isnan(point.y.value)]

    def drawn(self) -> "Figure":
        """Return it as a figure of matplotlib."""
        points, figure = self._shown, blank_figure(5.2, 4.1)
        axes = figure.subplots()
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        for point in points:
            bar: dict[str, Any] = {"color": COLOURS[point.style % len(COLOURS)], "linewidth": 0.8, "alpha": 0.6}
            if point.y.has_interval:
                axes.vlines(point.x.value, point.y.low, point.y.high, **bar)
            if point.x.has_interval and point.x.low > 0:
                axes.hlines(point.y.value, point.x.low, point.x.high, **bar)
            marker = look_of(point.style, MARKERS) | {"linestyle": "none", "markersize": 7}
            axes.plot([point.x.value], [point.y.value], label=short_label(point.label), **marker)
        if self.line is not None and len(points) > 1:
            ends = [min(point.x.value for point in points), max(point.x.value for point in points)]
            heights = [self.line[0] * math.log10(end) + self.line[1] for end in ends]
            axes.plot(ends, heights, color=MUTED, linewidth=1.0, linestyle="--")
        axes.set_ylim(-0.04, 1.04)
        axes.set_xlabel(self.x_label)
        axes.grid(axis="y", color=_RULES, linewidth=0.8)
        return _finished(figure, axes, self.title, self.y_label, *axes.get_legend_handles_labels(), handle=1.4)


def _finished(
    figure: Any,
    axes: Any,
    title: str,
    y_label: str,
    handles: Sequence[Any] = (),
    labels: Sequence[str] = (),
    handle: float = 2.6,
) -> "Figure":
    """Return a figure with its title, its vertical label, and a legend below it where there are handles."""
    axes.set_title(short_label(title))
    axes.set_ylabel(y_label)
    if handles:
        columns = legend_columns(labels)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=handle)
    return figure  # type: ignore[no-any-return]
