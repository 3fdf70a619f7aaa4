"""Axes, legends and marks of charts as SVG text. A unit is a point; layout needs no font file.

Source: W3C, Scalable Vector Graphics (SVG) 1.1, chapters 8 (paths), 9 (shapes) and 10 (text).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise
from typing import Final, NamedTuple
from unicodedata import east_asian_width

from goalscope.report.figures import COLOURS, INK, MUTED, RULES, drawing, short_label

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

Point = tuple[float, float]


class LineStyle(NamedTuple):
    """Colour, dashes and marker shape of a series."""

    colour: str
    dashes: str
    shape: int


def look_of(style: int) -> LineStyle:
    """Return the look of a style. If colours repeat, dashes and shapes differ."""
    other = style + style // len(COLOURS)
    return LineStyle(COLOURS[style % len(COLOURS)], _DASHES[other % len(_DASHES)], other % len(_SHAPES))


def text_width(text: str, size: float = SIZE, bold: bool = False) -> float:
    """Return the width of a text; for characters outside ASCII it is estimated from their class."""
    hundredths = sum(
        _ADVANCES[ord(letter) - 32] if " " <= letter <= "~" else 100 if east_asian_width(letter) in "WF" else 70
        for letter in text
    )
    return hundredths / 100 * size * (1.14 if bold else 1.0)


def digits(value: float) -> str:
    """Format a coordinate."""
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
    """Return a line of text, smaller if it would not fit; ``turn`` is a rotation in degrees about its position."""
    size = min(size, max(5.0, size * room / max(text_width(content, size, bold), 1e-9)))
    attributes = f'x="{digits(x)}" y="{digits(y)}" fill="{fill}"'
    attributes += f' text-anchor="{anchor}"' if anchor != "start" else ""
    attributes += f' font-size="{digits(size)}"' if size != SIZE else ""
    attributes += ' font-weight="bold"' if bold else ""
    attributes += f' transform="rotate({turn} {digits(x)} {digits(y)})"' if turn else ""
    return f"<text {attributes}>{escape(content)}</text>"


def stroke(points: Iterable[Point], colour: str, width: float, *, dashes: str = "", opacity: float = 1.0) -> str:
    """Return a line through points; a NaN leaves a gap."""
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
    """Return the area between two lines; a NaN leaves a gap."""
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
    """Return the marker of a value, about as wide as its size."""
    corners = [(x + size / 2 * right, y + size / 2 * down) for right, down in _SHAPES[look.shape]]
    style = f'class="value" fill="{fill or look.colour}" stroke="{edge}" stroke-width="{1 if fill else 0.6}"'
    style += f' opacity="{opacity:g}"' if opacity < 1 else ""
    if not corners:
        return f'<circle cx="{digits(x)}" cy="{digits(y)}" r="{digits(size / 2)}" {style}/>'
    return f'<polygon points="{" ".join(f"{digits(right)},{digits(down)}" for right, down in corners)}" {style}/>'


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to positions: ``low`` to ``start``, ``high`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    @classmethod
    def around(
        cls, values: Iterable[float], start: float, end: float, *, logarithmic: bool = False, margin: float = 0.05
    ) -> "Scale":
        """Return a scale that includes all finite values, with a margin on both sides as a fraction of their range."""
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
        """Return round values of the scale with their labels, on a linear scale at least ``spacing`` apart."""
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
    """Yield the elements of the vertical axis: its ticks, horizontal grid lines, and the label at the left edge."""
    yield from (stroke([(left, scale(value)), (right, scale(value))], RULES, 0.8) for value in ticks)
    yield stroke([(left, scale.start), (left, scale.end)], MUTED, 0.8)
    for value, name in ticks.items():
        yield stroke([(left - 3.5, scale(value)), (left, scale(value))], MUTED, 0.8)
        yield text(left - 6, scale(value) + 3.5, name, anchor="end")
    middle, room = (scale.start + scale.end) / 2, abs(scale.end - scale.start) + 20
    yield text(12, middle, label, anchor="middle", turn=-90, room=room)


def x_axis(scale: Scale, ticks: Mapping[float, str], top: float) -> Iterable[str]:
    """Yield a horizontal axis below a panel; labels that do not fit side by side are slanted (texts) or left out."""
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
    """Return whether the labels of an axis are names that do not fit side by side."""
    if all(name.replace(".", "").replace("−", "").isdigit() for name in ticks.values()):
        return False
    placed = [(scale(value), text_width(name) / 2) for value, name in sorted(ticks.items())]
    return any(place + half + 3 > other - wide for (place, half), (other, wide) in pairwise(placed))


def x_labels_height(scale: Scale, ticks: Mapping[float, str]) -> float:
    """Return the height that the labels of an axis need below it."""
    if not are_aslant(scale, ticks):
        return 18.0
    return 14.0 + math.sin(math.radians(35)) * max(map(text_width, ticks.values()))


def below_axis(lines: Sequence[str], middle: float, top: float, width: float) -> Iterable[str]:
    """Yield the label of an axis and the lines below it, within the width of the paper."""
    for at, line in enumerate(lines):
        half = min(text_width(line), width - 8) / 2
        place = min(max(middle, half + 4), width - half - 4)
        yield text(place, top + 10 + 13 * at, line, anchor="middle", room=2 * half)


class Entry(NamedTuple):
    """An entry of a legend."""

    label: str
    look: LineStyle
    joined: bool = True  # whether it has a line
    marked: bool = True  # whether it has a mark


def legend(entries: Sequence[Entry], top: float, width: float) -> tuple[list[str], float]:
    """Return a legend in as many columns as fit (at most 3), and the vertical position below it."""
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
    """Return the picture of a chart with its title, in the colours of the page or, with ``paper``, its own."""
    label = short_label(title)
    heading = text(4, 14, label, size=11, bold=True, room=width - 8)
    kind = "" if paper else "chart"
    return drawing(round(width), round(height), label, f"{SIZE:g}px", [heading, *parts], unit="pt", kind=kind)
