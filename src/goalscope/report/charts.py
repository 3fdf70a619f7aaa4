"""Charts of estimates: lines, maps, differences with a margin, points.

Each chart is a declaration that is drawn on demand as SVG text. A unit is a point; layout needs no font file.

Source: W3C, Scalable Vector Graphics (SVG) 1.1, chapters 8 (paths), 9 (shapes) and 10 (text).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from html import escape
from itertools import groupby, pairwise
from textwrap import wrap
from typing import Final, NamedTuple
from unicodedata import east_asian_width

from goalscope.report.figures import COLOURS, INK, LONGEST_TICK, MUTED, RULES, Drawn, Record, drawing, short_label
from goalscope.report.ledger import recorded
from goalscope.stats import FEWEST, Estimate

SIZE: Final = 10.0
"""Font size of a chart."""

BELOW_TITLE: Final = 28.0
"""Vertical position of the top of a chart's panel."""

_ADVANCES: Final = bytes.fromhex(
    "20282e54405f4e1b272732542024202240404040404040404040222254545435644445464d3f3a4d4b1d1d4238564b4f"
    "3c4f453f3d494463453d452722275432323d3f373f3e233f3f1c1c3a1c613f3d3f3f2934273f3b523b3b3440224054"
)
"""Widths of the characters from space to tilde in DejaVu Sans, in hundredths of the font size."""

_DASHES = ("", "5.9 2.6", "10 2.6 1.6 2.6", "1.6 2.6", "8 1.6 1.6 1.6 1.6 1.6", "4.8 1.6", "1.6 3.2", "12.8 3.2")
_PLUS = ((1, 3), (1, 1), (3, 1), (3, -1), (1, -1), (1, -3), (-1, -3), (-1, -1), (-3, -1), (-3, 1), (-1, 1), (-1, 3))
_TURNS = [(math.pi * corner / 5, 1.3 if corner % 2 == 0 else 0.55) for corner in range(10)]
# Corners relative to the position of the mark, which is their mean; a circle has none.
_SHAPES: Final[Sequence[Sequence[tuple[float, float]]]] = (
    (),
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.3), (1.15, 0.65), (-1.15, 0.65)),
    ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    ((0, 1.3), (1.15, -0.65), (-1.15, -0.65)),
    tuple((x * 0.38, y * 0.38) for x, y in _PLUS),
    tuple(((x - y) * 0.27, (x + y) * 0.27) for x, y in _PLUS),
    tuple((radius * math.sin(turn), -radius * math.cos(turn)) for turn, radius in _TURNS),
)


class LineStyle(NamedTuple):
    """Colour, dashes and marker shape with which a curve is drawn."""

    colour: str
    dashes: str
    shape: int


def look_of(style: int) -> LineStyle:
    """Return colour, dashes and marker shape for a style number. If colours repeat, dashes and shapes differ."""
    other = style + style // len(COLOURS)
    return LineStyle(COLOURS[style % len(COLOURS)], _DASHES[other % len(_DASHES)], other % len(_SHAPES))


def text_width(text: str, size: float = SIZE, bold: bool = False) -> float:
    """Return the width of a text in points, for a font size in points; characters outside ASCII are estimated by their
    class.
    """
    hundredths = sum(
        _ADVANCES[ord(letter) - 32] if " " <= letter <= "~" else 100 if east_asian_width(letter) in "WF" else 70
        for letter in text
    )
    return hundredths / 100 * size * (1.14 if bold else 1.0)


def digits(value: float) -> str:
    """Format a coordinate for SVG with at most two decimals and no trailing zeros."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def text(
    x: float,
    y: float,
    content: str,
    *,
    size: float = SIZE,
    anchor: str = "start",
    fill: str = INK,
    bold: bool = False,
    turn: int = 0,
    room: float = math.inf,
) -> str:
    """Return the SVG of one line of text.

    Args:
        x, y: its position, in points.
        content: the text.
        size: font size in points; it is reduced if the text would be wider than ``room``.
        anchor: which part of the text is at the position: "start", "middle" or "end".
        fill: colour.
        bold: whether it is bold.
        turn: angle in degrees by which it is turned about its position.
        room: the available width in points.
    """
    size = min(size, max(5.0, size * room / max(text_width(content, size, bold), 1e-9)))
    attributes = f'x="{digits(x)}" y="{digits(y)}" fill="{fill}"'
    attributes += f' text-anchor="{anchor}"' if anchor != "start" else ""
    attributes += f' font-size="{digits(size)}"' if size != SIZE else ""
    attributes += ' font-weight="bold"' if bold else ""
    attributes += f' transform="rotate({turn} {digits(x)} {digits(y)})"' if turn else ""
    return f"<text {attributes}>{escape(content)}</text>"


def stroke(
    points: Iterable[tuple[float, float]], colour: str, width: float, *, dashes: str = "", opacity: float = 1.0
) -> str:
    """Return the SVG of a line through points; a point with NaN leaves a gap. "" if no point is defined."""
    commands, begun = [], False
    for x, y in points:
        defined = not math.isnan(y)
        if defined:
            commands.append(f"{'L' if begun else 'M'}{digits(x)} {digits(y)}")
        begun = defined
    faint = f' opacity="{opacity:g}"' if opacity < 1 else ""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    stroke = f'stroke="{colour}" stroke-width="{width:g}" stroke-linejoin="round"{dashed}{faint}'
    return f'<path d="{"".join(commands)}" fill="none" {stroke}/>' if commands else ""


def band(x: Sequence[float], lows: Sequence[float], highs: Sequence[float], colour: str, opacity: float) -> str:
    """Return the SVG of the area between two lines over positions ``x``; NaN leaves a gap.

    ``lows`` and ``highs`` are the positions of the two lines. "" if there is no area.
    """
    commands = []
    for gap, run in groupby(zip(x, lows, highs, strict=True), lambda ends: math.isnan(ends[1])):
        ends = list(run)
        if not gap and len(ends) > 1:
            outline = [(at, high) for at, _, high in ends] + [(at, low) for at, low, _ in reversed(ends)]
            commands.append("L".join(f"{digits(x)} {digits(y)}" for x, y in outline))
    path = "".join(f"M{outline}Z" for outline in commands)
    return f'<path d="{path}" fill="{colour}" fill-opacity="{opacity:g}"/>' if path else ""


def mark(
    x: float,
    y: float,
    look: LineStyle,
    size: float = 5.0,
    *,
    fill: str = "",
    edge: str = "#ffffff",
    opacity: float = 1.0,
) -> str:
    """Return the SVG of the marker of a value at the position (x, y), about as wide as ``size``; ``look`` gives its
    shape.
    """
    corners = [(x + size / 2 * right, y + size / 2 * down) for right, down in _SHAPES[look.shape]]
    style = f'class="value" fill="{fill or look.colour}" stroke="{edge}" stroke-width="{1 if fill else 0.6}"'
    style += f' opacity="{opacity:g}"' if opacity < 1 else ""
    if not corners:
        return f'<circle cx="{digits(x)}" cy="{digits(y)}" r="{digits(size / 2)}" {style}/>'
    return f'<polygon points="{" ".join(f"{digits(right)},{digits(down)}" for right, down in corners)}" {style}/>'


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to positions on the page, in points: the value ``low`` to ``start``, and ``high`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    @classmethod
    def around(
        cls, values: Iterable[float], start: float, end: float, *, logarithmic: bool = False, margin: float = 0.05
    ) -> "Scale":
        """Return a scale from ``start`` to ``end`` that includes all finite values, with a margin as a fraction of
        their range.
        """
        finite = [value for value in values if math.isfinite(value)] or [1.0]
        low, high = (math.log10(end) if logarithmic else end for end in (min(finite), max(finite)))
        wider = margin * (high - low) if high > low else 0.5 * (abs(low) or 1.0) if not logarithmic else 0.3
        low, high = low - wider, high + wider
        return cls(*((10**low, 10**high) if logarithmic else (low, high)), start, end, logarithmic)

    def __call__(self, value: float) -> float:
        """Return the position of a value; beyond the ends, that of the nearest end."""
        if math.isnan(value):
            return math.nan
        low, high, value = (
            math.log10(number) if self.logarithmic else number
            for number in (self.low, self.high, min(max(value, self.low), self.high))
        )
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, spacing: float, *, whole: bool = False) -> dict[float, str]:
        """Return round values for the ticks of the axis, with their labels, at least ``spacing`` points apart on a
        linear scale.

        ``whole`` allows only integers.
        """
        if self.logarithmic:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            for factors in ((1,), (1, 2, 5)):
                positions = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
                positions = [value for value in positions if self.low <= value <= self.high]
                if len(positions) > 2:
                    break
            return {value: f"{value:g}" for value in positions}
        least = (self.high - self.low) * spacing / abs(self.end - self.start)
        power = math.floor(math.log10(least))
        steps = [factor * 10.0**exponent for exponent in (power, power + 1) for factor in (1, 2, 2.5, 5)]
        if whole:
            steps = [round(step) for step in (*steps, 1, 10.0 ** (power + 2)) if step >= 1 and step == int(step)]
        step = min(step for step in steps if step >= least * (1 - 1e-9))
        decimals = next((places for places in range(12) if math.isclose(round(step, places), step)), 12)
        multiples = range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)
        values = [round(multiple * step, decimals) + 0.0 for multiple in multiples]
        return {value: f"{value:.{decimals}f}".replace("-", "−") for value in values}


def y_axis(scale: Scale, ticks: Mapping[float, str], left: float, right: float, label: str) -> Iterable[str]:
    """Yield the SVG elements of a vertical axis: ticks with their labels, horizontal grid lines, and the label at the
    left edge.

    ``ticks`` maps values to their labels. ``left`` and ``right`` are the ends of the panel, in points.
    """
    yield from (stroke([(left, scale(value)), (right, scale(value))], RULES, 0.8) for value in ticks)
    yield stroke([(left, scale.start), (left, scale.end)], MUTED, 0.8)
    for value, name in ticks.items():
        yield stroke([(left - 3.5, scale(value)), (left, scale(value))], MUTED, 0.8)
        yield text(left - 6, scale(value) + 3.5, name, anchor="end")
    middle, room = (scale.start + scale.end) / 2, abs(scale.end - scale.start) + 20
    yield text(12, middle, label, anchor="middle", turn=-90, room=room)


def x_axis(scale: Scale, ticks: Mapping[float, str], top: float) -> Iterable[str]:
    """Yield the SVG elements of a horizontal axis at the height ``top``: its line, ticks and labels.

    Labels that do not fit side by side are slanted if they are names, and left out if they are numbers.
    """
    yield stroke([(scale.start, top), (scale.end, top)], MUTED, 0.8)
    aslant, nearest = are_aslant(scale, ticks), -math.inf
    for value, name in sorted(ticks.items()):
        place, half = scale(value), text_width(name) / 2
        yield stroke([(place, top), (place, top + 3.5)], MUTED, 0.8)
        if aslant:
            yield text(place + 3, top + 12, name, anchor="end", turn=-35)
        elif place - half > nearest:
            yield text(place, top + 14, name, anchor="middle")
            nearest = place + half + 3


def are_aslant(scale: Scale, ticks: Mapping[float, str]) -> bool:
    """Return whether the labels of a horizontal axis must be slanted: they are names, and do not fit side by side."""
    if all(name.replace(".", "").replace("−", "").isdigit() for name in ticks.values()):
        return False
    placed = [(scale(value), text_width(name) / 2) for value, name in sorted(ticks.items())]
    return any(place + half + 3 > other - wide for (place, half), (other, wide) in pairwise(placed))


def x_labels_height(scale: Scale, ticks: Mapping[float, str]) -> float:
    """Return the height in points that the tick labels of a horizontal axis need below it; slanted labels need more."""
    if not are_aslant(scale, ticks):
        return 18.0
    return 14.0 + math.sin(math.radians(35)) * max(map(text_width, ticks.values()))


def below_axis(lines: Sequence[str], middle: float, top: float, width: float) -> Iterable[str]:
    """Yield the SVG of the axis label and other lines below a horizontal axis, centred at ``middle`` within the page's
    width.
    """
    for at, line in enumerate(lines):
        half = min(text_width(line), width - 8) / 2
        place = min(max(middle, half + 4), width - half - 4)
        yield text(place, top + 10 + 13 * at, line, anchor="middle", room=2 * half)


class Entry(NamedTuple):
    """One entry of a legend: its label, its style, and whether it has a line and a marker."""

    label: str
    look: LineStyle
    joined: bool = True  # whether it has a line
    marked: bool = True  # whether it has a mark


def legend(entries: Sequence[Entry], top: float, width: float) -> tuple[list[str], float]:
    """Return the SVG elements of a legend, in as many columns as fit (at most 3), and the vertical position below it.

    ``top`` is its upper edge and ``width`` the available width, in points.
    """
    handle, gap, row = 28.0, 14.0, 14.0
    labels = [short_label(entry.label) for entry in entries]
    lines = len(entries)
    for columns in (3, 2, 1):
        lines = -(-len(entries) // columns)
        widths = [
            max(handle + gap + text_width(label) for label in labels[first : first + lines])
            for first in range(0, len(labels), lines)
        ]
        if sum(widths) <= width:
            break
    parts, left = [], max(6.0, (width - sum(widths) + gap) / 2)
    for at, (entry, label) in enumerate(zip(entries, labels, strict=True)):
        x, y = left + sum(widths[: at // lines]), top + row * (at % lines) + 8
        if entry.joined:
            parts.append(stroke([(x, y), (x + 22, y)], entry.look.colour, 1.6, dashes=entry.look.dashes))
        if entry.marked:
            parts.append(mark(x + 11, y, entry.look).replace(' class="value"', ""))
        parts.append(text(x + handle, y + 3.5, label, room=width - x - handle))
    return parts, top + row * lines


def chart(width: float, height: float, title: str, parts: Iterable[str], *, paper: bool = False) -> str:
    """Return the SVG of a whole chart with its title.

    The chart takes the light or dark colours of the page or, with ``paper``, keeps its own colours.

    Args:
        width, height: size in points.
        title: its title.
        parts: its SVG elements.
        paper: see above.
    """
    label = short_label(title)
    heading = text(4, 14, label, size=11, bold=True, room=width - 8)
    kind = "" if paper else "chart"
    return drawing(round(width), round(height), label, f"{SIZE:g}px", [heading, *parts], unit="pt", kind=kind)


_LESS = f"less than {100 * FEWEST:g} % of the grids"
_WIDTH = 374.0  # of a chart, in points
_LINE, _NAME = 19.0, 28  # height of a difference, and characters per line of its name
_DOTS = "0.8 1.4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve of a figure: its label, its style, and its estimates by position on the horizontal axis."""

    label: str  # label in the legend
    style: int  # index of colour, marker and dash; an agent has the same one in all figures of a page
    points: Mapping[float, Estimate]  # position -> value with its interval, by position


@dataclass(frozen=True, eq=False)
class Lines(Drawn):
    """A chart of curves with bands for their intervals. Values from few grids are pale, and the number of grids is
    drawn below.

    Undefined values leave a gap; undefined intervals, a marker without a band. Figures with many curves are legible
    only without `bands`; their intervals should then be in a table. Positions without an order are not `joined`: they
    have points and interval bars. The other options are those of `goalscope.report.blocks.CurveSpec`.
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
        """The plotted numbers as dictionaries for a CSV file, one per point of each curve: curve, position, value,
        interval, counts.
        """
        named = self.ticks if isinstance(self.ticks, Mapping) else {}
        return tuple(
            {"series": line.label, "x": named.get(x, x), **recorded(estimate)}
            for line in self.series
            for x, estimate in line.points.items()
        )

    @property
    def svg(self) -> str:
        """The chart of curves as SVG text."""
        estimates = [estimate for line in self.series for estimate in line.points.values()]
        sparse = any(estimate.sparse for estimate in estimates)
        counted = self.counts or sparse
        middle, bottom = BELOW_TITLE + 190, BELOW_TITLE + (250 if counted else 190)
        values = [estimate.value for estimate in estimates]
        ends = [end for estimate in estimates for end in (estimate.low, estimate.high)]
        if self.bounds is None:
            y = Scale.around([*values, *(ends if self.bands or not self.joined else ())], middle, BELOW_TITLE)
        else:  # bands may be cut off, lines may not
            y = Scale.around([*self.bounds, *values], middle, BELOW_TITLE, margin=0.04)
        most_grids = max((estimate.clusters for estimate in estimates), default=1)
        below = Scale(0.0, 1.1 * most_grids or 1.0, bottom, middle + 14)
        y_ticks, grid_ticks = y.ticks(26), below.ticks(18, whole=True) if counted else {}
        left = 26 + max(map(text_width, (*y_ticks.values(), *grid_ticks.values())), default=0.0)
        x = Scale.around((at for line in self.series for at in line.points), left, _WIDTH - 10)
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
        for index, series in enumerate(self.series):
            # Positions without an order have room for points side by side.
            aside = 0.0 if self.joined else 5.0 * (index - (len(self.series) - 1) / 2)
            parts += self._line(series, x, y, aside)
            if counted:
                counts = [(x(at), below(estimate.clusters)) for at, estimate in series.points.items()]
                parts.append(_steps(counts, series.style))
        labels = [self.x_label, *([f"pale: {_LESS}"] if sparse else [])]
        entries = [Entry(series.label, look_of(series.style), self.joined, not self.counts) for series in self.series]
        entries = entries if len(entries) > 1 else []
        return _complete(self.title, parts, left, bottom + x_labels_height(x, x_ticks), labels, entries)

    def _line(self, series: Series, x: Scale, y: Scale, aside: float) -> Iterator[str]:
        """Yield the band, the line and the markers of a series; values from few grids are pale."""
        look = look_of(series.style)
        across, estimates = [x(at) + aside for at in series.points], series.points.values()
        sparse, values = ([estimate.sparse for estimate in estimates], [estimate.value for estimate in estimates])
        ends = [
            (estimate.low, estimate.high) if math.isfinite(estimate.high - estimate.low) else (math.nan, math.nan)
            for estimate in estimates
        ]
        for pale in (True, False) if any(sparse) else (False,):
            opacity = 0.35 if pale else 1.0
            is_shown = [not few or pale for few in sparse]
            heights = [y(value) if show else math.nan for value, show in zip(values, is_shown, strict=True)]
            lows, highs = (
                [y(pair[end]) if show else math.nan for pair, show in zip(ends, is_shown, strict=True)]
                for end in (0, 1)
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


def _complete(
    title: str, parts: list[str], left: float, end: float, labels: Sequence[str], entries: Sequence[Entry]
) -> str:
    """Return a chart with the labels of its horizontal axis and its legend below the position ``end``."""
    parts += below_axis(labels, (left + _WIDTH - 10) / 2, end, _WIDTH)
    end += 13 * len(labels) + 4
    if entries:
        drawn, end = legend(entries, end, _WIDTH)
        parts += drawn
    return chart(_WIDTH, end + 4, title, parts)


def _alone(heights: Sequence[float]) -> list[bool]:
    """Return which points have no neighbour to which a line or band could lead."""
    missing = [True, *map(math.isnan, heights), True]
    return [before and after for before, after in zip(missing, missing[2:], strict=False)]


def _steps(points: Sequence[tuple[float, float]], style: int) -> str:
    """Return a step line that changes midway between its points."""
    corners = points[:1]
    for (x, y), (next_x, next_y) in pairwise(points):
        corners = [*corners, ((x + next_x) / 2, y), ((x + next_x) / 2, next_y)]
    look = look_of(style)
    return stroke([*corners, *points[-1:]], look.colour, 1.6, dashes=look.dashes)


@dataclass(frozen=True, slots=True)
class ForestBar:
    """One line of a chart of differences: its labels, its style and the estimated difference."""

    series: str  # label in the legend, e.g. the agent
    style: int  # as in `Series`
    line: str  # its label on the vertical axis, e.g. the transform
    estimate: Estimate
    filled: bool = True  # whether its marker is filled


@dataclass(frozen=True, eq=False)
class Forest(Drawn):
    """A chart of differences with their intervals, one per line, beside a vertical line at 0 (a forest plot).

    `margin` draws an equivalence margin on both sides of 0. Undefined differences leave their line empty; undefined
    intervals, only a marker. `levels` are further vertical lines with names.
    """

    differences: Sequence[ForestBar]
    _: KW_ONLY
    title: str
    x_label: str
    margin: float | None = None
    levels: Mapping[float, str] = field(default_factory=dict)

    @property
    def records(self) -> tuple[Record, ...]:
        """The plotted numbers as dictionaries for a CSV file, one per difference: labels, value, interval, counts."""
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
        """The chart of differences as SVG text."""
        names = list(dict.fromkeys(entry.line for entry in self.differences))
        series = list(dict.fromkeys((entry.series, entry.style) for entry in self.differences))
        slots = max(1, len(series))
        wrapped = [wrap(short_label(name), _NAME) or [""] for name in names]
        height = max([_LINE * (slots + 0.6), *(11.0 * len(lines) + 4 for lines in wrapped)])
        levels_end = BELOW_TITLE + (12 * len(self.levels) + 2 if self.levels else 0)
        bottom = levels_end + height * len(names) + 4
        left = 12 + max([text_width(line) for lines in wrapped for line in lines], default=0.0)
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
            right = x(level) + 3 + text_width(name, 8.5) <= _WIDTH  # else the name is to the left of its line
            place, anchor = (x(level) + 3, "start") if right else (x(level) - 3, "end")
            parts.append(text(place, BELOW_TITLE + 8 + 12 * at, name, size=8.5, fill=MUTED, anchor=anchor))
        for at, lines in enumerate(wrapped):
            first = levels_end + height * (at + 0.5) + 3.5 - 5.5 * (len(lines) - 1)
            parts += [text(left - 6, first + 11 * index, line, anchor="end") for index, line in enumerate(lines)]
        for entry in self.differences:
            slot = series.index((entry.series, entry.style)) - (slots - 1) / 2
            middle = levels_end + height * (names.index(entry.line) + 0.5 + slot / (slots + 1))
            parts += _difference(entry, x, middle)
        parts += x_axis(x, x.ticks(46), bottom)
        entries = [Entry(name, look_of(style), joined=False) for name, style in series] if len(series) > 1 else []
        return _complete(self.title, parts, left, bottom + 18, [self.x_label], entries)


def _difference(entry: ForestBar, x: Scale, middle: float) -> Iterator[str]:
    """Yield the interval and the marker of a difference; nothing if it is undefined."""
    estimate, look = entry.estimate, look_of(entry.style)
    if math.isnan(estimate.value):
        return
    if estimate.has_interval:
        yield stroke([(x(estimate.low), middle), (x(estimate.high), middle)], look.colour, 1.6)
    fill, edge = (look.colour, look.colour) if entry.filled else ("#ffffff", look.colour)
    yield mark(x(estimate.value), middle, look, 6.0, fill=fill, edge=edge)


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a scatter plot: its label, its style number as in `Series`, and an estimate for each axis."""

    label: str
    style: int
    x: Estimate
    y: Estimate


@dataclass(frozen=True, eq=False)
class Points(Drawn):
    """A scatter plot with interval bars over a base-10 logarithmic axis, and a line given by slope and intercept.

    Points whose x is not above 0 are left out.
    """

    points: Sequence[Point]
    _: KW_ONLY
    title: str
    x_label: str
    y_label: str
    line: tuple[float, float] | None = None

    @property
    def records(self) -> tuple[Record, ...]:
        """The plotted numbers as dictionaries for a CSV file, one per axis of each drawn point: label, axis, value,
        interval, counts.
        """
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
        """The scatter plot as SVG text."""
        points, bottom = self._shown, BELOW_TITLE + 200
        y = Scale.around((0.0, 1.0), bottom, BELOW_TITLE, margin=0.04)
        y_ticks = y.ticks(26)
        left = 26 + max(map(text_width, y_ticks.values()))
        across = [end for place in points for end in (place.x.value, place.x.low, place.x.high) if end > 0]
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
        entries = [Entry(point.label, look_of(point.style), joined=False) for point in points]
        return _complete(self.title, parts, left, bottom + 18, [self.x_label], entries)

    def _fit(self, fit: tuple[float, float], x: Scale, y: Scale) -> str:
        """Return the fitted line between the outermost points, as far as it is on the paper."""
        slope, intercept = fit
        ends = [math.log10(end([point.x.value for point in self._shown])) for end in (min, max)]
        if slope:
            heights = sorted((height - intercept) / slope for height in (y.low, y.high))
            ends = [max(ends[0], heights[0]), min(ends[1], heights[1])]
        if ends[0] > ends[1]:
            return ""
        return stroke([(x(10**end), y(slope * end + intercept)) for end in ends], MUTED, 1.0, dashes="3.7 1.6")


WIDE: Final = 0.5
"""Maximum fraction of a colour scale that an interval may span; wider intervals are shown only in a map's data."""

_TOO_FEW: Final = "no interval: too few grids"

_MAP_CELL, _MAP_ROW = 56.0, 37.0  # of a cell of a map

_NO_COLOUR: Final = bytes.fromhex("f0f0f0")

_SHADES: Final = [
    *map(bytes.fromhex, ("ffffd9", "edf8b1", "c7e9b4", "7fcdbb", "41b6c4", "1d91c0", "225ea8", "253494", "081d58"))
]


@dataclass(frozen=True, eq=False)
class HeatMap(Drawn):
    """A chart that shows a table of estimates as coloured cells, each with its value and, below it, its interval.

    A cell based on few grids has no colour and shows their number. An interval wider than the fraction `WIDE` of the
    scale is only in the data; a note on the map says so.
    """

    cells: Sequence[Sequence[Estimate | None]]  # [R][C], None if there are no data
    _: KW_ONLY
    rows: Sequence[str]
    columns: Sequence[str]
    title: str
    row_label: str
    column_label: str
    bounds: tuple[float, float]  # values at the two ends of the colour scale

    @property
    def records(self) -> tuple[Record, ...]:
        """The plotted numbers as dictionaries for a CSV file, one per cell with data: row, column, value, interval,
        counts.
        """
        return tuple(
            {"row": self.rows[row], "column": self.columns[column], **recorded(estimate)}
            for row, line in enumerate(self.cells)
            for column, estimate in enumerate(line)
            if estimate is not None
        )

    @property
    def svg(self) -> str:
        """The chart of coloured cells as SVG text."""
        estimates = [estimate for row in self.cells for estimate in row if estimate is not None]
        lowest, span = self.bounds[0], self.bounds[1] - self.bounds[0]
        notes = (
            [f"without colour: less than {100 * FEWEST:g} % of the grids"]
            if any(estimate.sparse for estimate in estimates)
            else []
        )
        notes += [_TOO_FEW] if any(_wide(estimate, span) for estimate in estimates) else []
        rows, columns = ([short_label(name, LONGEST_TICK) for name in names] for names in (self.rows, self.columns))
        left = 26 + max(map(text_width, rows), default=0.0)
        bottom = BELOW_TITLE + _MAP_ROW * len(rows)
        x = Scale(-0.5, len(columns) - 0.5, left, left + _MAP_CELL * len(columns))
        names = {float(at): name for at, name in enumerate(columns)}
        labels = [self.column_label, *notes]
        title = text_width(short_label(self.title), 11, bold=True)
        width = max(x.end + 6, title + 8, *(text_width(label) + 8 for label in labels))
        parts = []
        for row, line in enumerate(self.cells):
            parts.append(text(left - 6, BELOW_TITLE + _MAP_ROW * (row + 0.5) + 3.5, rows[row], anchor="end"))
            for column, estimate in enumerate(line):
                share = math.nan if estimate is None else (estimate.value - lowest) / span
                ends = estimate is not None and not _wide(estimate, span)
                parts += _map_cell(left + _MAP_CELL * column, BELOW_TITLE + _MAP_ROW * row, estimate, share, ends=ends)
        parts += [part for part in x_axis(x, names, bottom) if part.startswith("<text")]
        parts.append(text(12, (BELOW_TITLE + bottom) / 2, self.row_label, anchor="middle", turn=-90, room=bottom))
        end = bottom + x_labels_height(x, names)
        parts += below_axis(labels, (x.start + x.end) / 2, end, width)
        return chart(width, end + 13 * len(labels) + 6, self.title, parts, paper=True)


def _wide(estimate: Estimate, span: float) -> bool:
    """Return whether an interval is too wide for a scale of some length; False without an interval."""
    return estimate.has_interval and estimate.high - estimate.low > WIDE * span


def _map_cell(left: float, top: float, estimate: Estimate | None, share: float, *, ends: bool) -> Iterator[str]:
    """Yield a cell of a map with its value, its interval, and the number of its grids if that is low."""
    value, below, few, colour = "–", "no data" if estimate is None else "undefined", "", _NO_COLOUR
    if estimate is not None and not math.isnan(estimate.value):
        below = f"{estimate.low:.2f} to {estimate.high:.2f}" if estimate.has_interval else "no interval"
        value, below = f"{estimate.value:.2f}".replace("-", "−"), below.replace("-", "−") if ends else ""
        colour = colour if estimate.sparse else shade(share)
    if estimate is not None and estimate.sparse:
        few = f"{estimate.clusters}/{estimate.all_clusters} grids"
    ink = "white" if _luminance(colour) < 0.36 else "black"
    middle, height = left + _MAP_CELL / 2, _MAP_ROW * (0.31 if few else 0.4 if below else 0.5) + 3.5
    sides = f'width="{_MAP_CELL - 1.5:g}" height="{_MAP_ROW - 1.5:g}"'
    yield f'<rect x="{digits(left + 0.75)}" y="{digits(top + 0.75)}" {sides} fill="#{colour.hex()}"/>'
    for down, words, size in ((height, value, 10.0), (height + 11, below, 6.8), (height + 20, few, 6.8)):
        if words:
            yield text(middle, top + down, words, anchor="middle", size=size, fill=ink, room=_MAP_CELL - 3)


def _luminance(colour: bytes) -> float:
    """Return the relative luminance of a colour. Source: WCAG 2.1, Relative luminance."""
    parts = (part / 255 for part in colour)
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def shade(share: float) -> bytes:
    """Return the colour of a fraction (0 to 1) of a colour scale, from pale to dark, as three bytes: red, green, blue.

    Source: ColorBrewer 2.0, YlGnBu in 9 classes, interpolated. The palest and the darkest colours are left out, so that
    text is readable on every cell and cells are visible on white.
    """
    place = (0.08 + 0.8 * min(1.0, max(0.0, share))) * (len(_SHADES) - 1)
    first = int(place)
    pairs = zip(_SHADES[first], _SHADES[first + 1], strict=True)
    return bytes(round(channel + (place - first) * (other - channel)) for channel, other in pairs)
