"""Charts of estimates: lines, maps, differences with a margin, points.

Each is a declaration that is drawn on demand.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from textwrap import wrap

from goalscope.report.axes import (
    BELOW_TITLE,
    Entry,
    Scale,
    band,
    below_axis,
    chart,
    digits,
    legend,
    look_of,
    mark,
    stroke,
    text,
    text_width,
    x_axis,
    x_labels_height,
    y_axis,
)
from goalscope.report.figures import LONGEST_TICK, MUTED, RULES, Record, short_label
from goalscope.report.ledger import recorded
from goalscope.report.vector import Drawn
from goalscope.stats import FEWEST, Estimate

_LESS = f"less than {100 * FEWEST:g} % of the grids"
_WIDTH = 374.0  # of a chart, in points
_LINE, _NAME = 19.0, 28  # height of a difference, letters in a line of its name
_DOTS = "0.8 1.4"


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
class Lines(Drawn):
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

    @property
    def svg(self) -> str:
        """The chart as SVG text."""
        sparse = any(estimate.sparse for line in self.series for estimate in line.estimates)
        counted = self.counts or sparse
        middle, bottom = BELOW_TITLE + 190, BELOW_TITLE + (250 if counted else 190)
        values = [estimate.value for line in self.series for estimate in line.estimates]
        ends = [end for line in self.series for estimate in line.estimates for end in (estimate.low, estimate.high)]
        if self.bounds is None:
            y = Scale.around([*values, *(ends if self.bands or not self.joined else ())], middle, BELOW_TITLE)
        else:  # bands may be cut, lines are not
            y = Scale.around([*self.bounds, *values], middle, BELOW_TITLE, margin=0.04)
        grids = [estimate.clusters for line in self.series for estimate in line.estimates]
        below = Scale(0.0, 1.1 * max(grids, default=1) or 1.0, bottom, middle + 14)
        y_ticks, grid_ticks = y.ticks(26), below.ticks(18, whole=True) if counted else {}
        left = 26 + max(map(text_width, (*y_ticks.values(), *grid_ticks.values())), default=0.0)
        x = Scale.around((at for line in self.series for at in line.x), left, _WIDTH - 10)
        names = self.ticks or {}
        if isinstance(names, Mapping):
            x_ticks = {at: short_label(name, LONGEST_TICK) for at, name in names.items()} or x.ticks(34, whole=counted)
        else:
            x_ticks = {at: f"{at:g}" for at in names}
        parts = [*y_axis(y, y_ticks, left, _WIDTH - 10, self.y_label)]
        if counted:
            parts += y_axis(below, grid_ticks, left, _WIDTH - 10, "grids")
            parts += [stroke([(left, middle), (_WIDTH - 10, middle)], MUTED, 0.8)]
        parts += x_axis(x, x_ticks, bottom)
        for index, one in enumerate(self.series):
            # Positions without an order have room for points side by side.
            aside = 0.0 if self.joined else 5.0 * (index - (len(self.series) - 1) / 2)
            parts += self._line(one, x, y, aside)
            if counted:
                parts.append(_steps([(x(at), below(one.clusters)) for at, one in _points(one)], one.style))
        labels = [self.x_label, *([f"pale: {_LESS}"] if sparse else [])]
        end = bottom + x_labels_height(x, x_ticks)
        parts += below_axis(labels, (left + _WIDTH - 10) / 2, end, _WIDTH)
        end += 13 * len(labels) + 4
        if len(self.series) > 1:
            entries = [Entry(one.label, look_of(one.style), self.joined, not self.counts) for one in self.series]
            drawn, end = legend(entries, end, _WIDTH)
            parts += drawn
        return chart(_WIDTH, end + 4, self.title, parts)

    def _line(self, series: Series, x: Scale, y: Scale, aside: float) -> Iterator[str]:
        """Yield the band, the line and the marks of a series; what comes from few of the grids alone is pale."""
        look = look_of(series.style)
        across = [x(at) + aside for at in series.x]
        sparse = [estimate.sparse for estimate in series.estimates]
        values = [estimate.value for estimate in series.estimates]
        ends = [
            (one.low, one.high) if math.isfinite(one.high - one.low) else (math.nan, math.nan)
            for one in series.estimates
        ]
        for pale in (True, False) if any(sparse) else (False,):
            opacity = 0.35 if pale else 1.0
            shown = [not few or pale for few in sparse]
            heights = [y(value) if show else math.nan for value, show in zip(values, shown, strict=True)]
            lows, highs = (
                [y(pair[end]) if show else math.nan for pair, show in zip(ends, shown, strict=True)] for end in (0, 1)
            )
            if self.bands and self.joined:
                yield band(across, lows, highs, look.colour, 0.06 if pale else 0.16)
            for at, low, high, alone in zip(across, lows, highs, _alone(lows), strict=True):
                if not self.joined or (self.bands and alone):
                    yield stroke([(at, low), (at, high)], look.colour, 1.4, opacity=opacity)
            if self.joined:
                yield stroke(zip(across, heights, strict=True), look.colour, 1.6, dashes=look.dashes, opacity=opacity)
            for at, height, few, alone in zip(across, heights, sparse, _alone(heights), strict=True):
                if not math.isnan(height) and pale <= few and (not self.counts or alone):
                    yield mark(at, height, look, opacity=opacity)


def _alone(heights: Sequence[float]) -> list[bool]:
    """Return which points have no neighbour that a line or a band could lead to."""
    missing = [True, *map(math.isnan, heights), True]
    return [before and after for before, after in zip(missing, missing[2:], strict=False)]


def _points(series: Series) -> Iterator[tuple[float, Estimate]]:
    return zip(series.x, series.estimates, strict=True)


def _steps(points: Sequence[tuple[float, float]], style: int) -> str:
    """Return a line of steps that change midway between its points."""
    corners = points[:1]
    for (x, y), (next_x, next_y) in pairwise(points):
        corners = [*corners, ((x + next_x) / 2, y), ((x + next_x) / 2, next_y)]
    look = look_of(style)
    return stroke([*corners, *points[-1:]], look.colour, 1.6, dashes=look.dashes)


@dataclass(frozen=True, slots=True)
class DifferenceBar:
    """One difference of a figure."""

    series: str  # label in the legend, e.g. the agent
    style: int  # as in `Series`
    line: str  # the label on the vertical axis that it belongs to, e.g. the transform
    estimate: Estimate
    filled: bool = True  # whether its marker is filled


@dataclass(frozen=True, eq=False)
class Forest(Drawn):
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

    @property
    def svg(self) -> str:
        """The chart as SVG text."""
        names = list(dict.fromkeys(entry.line for entry in self.differences))
        series = list(dict.fromkeys((entry.series, entry.style) for entry in self.differences))
        slots = max(1, len(series))
        wrapped = [wrap(short_label(name), _NAME) or [""] for name in names]
        height = max([_LINE * (slots + 0.6), *(11.0 * len(lines) + 4 for lines in wrapped)])
        levels_end = BELOW_TITLE + (12 * len(self.levels) + 2 if self.levels else 0)
        bottom = levels_end + height * len(names) + 4
        left = 12 + max([text_width(one) for lines in wrapped for one in lines], default=0.0)
        reach = [end for entry in self.differences for end in (entry.estimate.low, entry.estimate.high)]
        values = [entry.estimate.value for entry in self.differences]
        edges = [] if self.margin is None else [-self.margin, self.margin]
        x = Scale.around([*reach, *values, *edges, *self.levels, 0.0], left, _WIDTH - 10)
        parts = []
        if self.margin is not None:
            low, high = map(x, edges)
            size = f'width="{digits(high - low)}" height="{digits(bottom - BELOW_TITLE)}"'
            parts.append(f'<rect x="{digits(low)}" y="{digits(BELOW_TITLE)}" {size} fill="{RULES}"/>')
            parts += [stroke([(at, BELOW_TITLE), (at, bottom)], MUTED, 0.8, dashes=_DOTS) for at in (low, high)]
        for value in {0.0, *self.levels}:
            parts.append(
                stroke([(x(value), BELOW_TITLE), (x(value), bottom)], MUTED, 0.8, dashes=_DOTS if value else "")
            )
        for at, (level, name) in enumerate(sorted(self.levels.items())):
            right = x(level) + 3 + text_width(name, 8.5) <= _WIDTH  # else the name stands left of its line
            place, anchor = (x(level) + 3, "start") if right else (x(level) - 3, "end")
            parts.append(text(place, BELOW_TITLE + 8 + 12 * at, name, size=8.5, fill=MUTED, anchor=anchor))
        for at, lines in enumerate(wrapped):
            first = levels_end + height * (at + 0.5) + 3.5 - 5.5 * (len(lines) - 1)
            parts += [text(left - 6, first + 11 * index, one, anchor="end") for index, one in enumerate(lines)]
        for entry in self.differences:
            slot = series.index((entry.series, entry.style)) - (slots - 1) / 2
            middle = levels_end + height * (names.index(entry.line) + 0.5 + slot / (slots + 1))
            parts += _difference(entry, x, middle)
        parts += x_axis(x, x.ticks(46), bottom)
        parts += below_axis([self.x_label], (left + _WIDTH - 10) / 2, bottom + 18, _WIDTH)
        end = bottom + 35
        if len(series) > 1:
            entries = [Entry(name, look_of(style), joined=False) for name, style in series]
            drawn, end = legend(entries, end, _WIDTH)
            parts += drawn
        return chart(_WIDTH, end + 4, self.title, parts)


def _difference(entry: DifferenceBar, x: Scale, middle: float) -> Iterator[str]:
    """Yield the interval and the mark of a difference; nothing where it is undefined."""
    estimate, look = entry.estimate, look_of(entry.style)
    if math.isnan(estimate.value):
        return
    if estimate.has_interval:
        yield stroke([(x(estimate.low), middle), (x(estimate.high), middle)], look.colour, 1.6)
    fill, edge = (look.colour, look.colour) if entry.filled else ("#ffffff", look.colour)
    yield mark(x(estimate.value), middle, look, 6.0, fill=fill, edge=edge)


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a scatter plot: a label, a style as in `Series`, and an estimate on either axis."""

    label: str
    style: int
    x: Estimate
    y: Estimate


@dataclass(frozen=True, eq=False)
class Points(Drawn):
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

    @property
    def svg(self) -> str:
        """The chart as SVG text."""
        points, bottom = self._shown, BELOW_TITLE + 200
        y = Scale.around((0.0, 1.0), bottom, BELOW_TITLE, margin=0.04)
        y_ticks = y.ticks(26)
        left = 26 + max(map(text_width, y_ticks.values()))
        across = [end for one in points for end in (one.x.value, one.x.low, one.x.high) if end > 0]
        x = Scale.around(across, left, _WIDTH - 10, logarithmic=True)
        parts = [*y_axis(y, y_ticks, left, _WIDTH - 10, self.y_label), *x_axis(x, x.ticks(34), bottom)]
        for point in points:
            colour, (at, height) = look_of(point.style).colour, (x(point.x.value), y(point.y.value))
            if point.y.has_interval:
                parts.append(stroke([(at, y(point.y.low)), (at, y(point.y.high))], colour, 0.8, opacity=0.6))
            if point.x.has_interval and point.x.low > 0:
                parts.append(stroke([(x(point.x.low), height), (x(point.x.high), height)], colour, 0.8, opacity=0.6))
        if self.line is not None and len(points) > 1:
            parts.append(self._fit(self.line, x, y))
        parts += [mark(x(point.x.value), y(point.y.value), look_of(point.style), 7.0) for point in points]
        parts += below_axis([self.x_label], (left + _WIDTH - 10) / 2, bottom + 18, _WIDTH)
        drawn, end = legend([Entry(one.label, look_of(one.style), joined=False) for one in points], bottom + 35, _WIDTH)
        return chart(_WIDTH, end + 4, self.title, [*parts, *drawn])

    def _fit(self, fit: tuple[float, float], x: Scale, y: Scale) -> str:
        """Return the fitted line between the outermost points, as far as it lies on the paper."""
        slope, intercept = fit
        ends = [math.log10(end([point.x.value for point in self._shown])) for end in (min, max)]
        if slope:
            heights = sorted((height - intercept) / slope for height in (y.low, y.high))
            ends = [max(ends[0], heights[0]), min(ends[1], heights[1])]
        if ends[0] > ends[1]:
            return ""
        return stroke([(x(10**end), y(slope * end + intercept)) for end in ends], MUTED, 1.0, dashes="3.7 1.6")
