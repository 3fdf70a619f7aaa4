"""Maps of estimates: coloured cells with values and intervals."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

from goalscope.report.axes import (
    BELOW_TITLE,
    Scale,
    below_axis,
    chart,
    digits,
    text,
    text_width,
    x_axis,
    x_labels_height,
)
from goalscope.report.figures import LONGEST_TICK, Record, short_label
from goalscope.report.ledger import recorded
from goalscope.report.vector import Drawn
from goalscope.stats import FEWEST, Estimate

WIDE: Final = 0.5
"""Fraction of a colour scale that an interval may span; wider ones are uninformative, and only in a map's data."""

_TOO_FEW: Final = "no interval: too few grids"

_CELL, _ROW = 56.0, 37.0  # of a cell of a map

_NO_COLOUR: Final = bytes.fromhex("f0f0f0")

_SHADES: Final = [
    *map(bytes.fromhex, ("ffffd9", "edf8b1", "c7e9b4", "7fcdbb", "41b6c4", "1d91c0", "225ea8", "253494", "081d58"))
]


@dataclass(frozen=True, eq=False)
class HeatMap(Drawn):
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

    @property
    def svg(self) -> str:
        """The chart as SVG text."""
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
        bottom = BELOW_TITLE + _ROW * len(rows)
        x = Scale(-0.5, len(columns) - 0.5, left, left + _CELL * len(columns))
        names = {float(at): name for at, name in enumerate(columns)}
        labels = [self.column_label, *notes]
        title = text_width(short_label(self.title), 11, bold=True)
        width = max(x.end + 6, title + 8, *(text_width(one) + 8 for one in labels))
        parts = []
        for row, line in enumerate(self.cells):
            parts.append(text(left - 6, BELOW_TITLE + _ROW * (row + 0.5) + 3.5, rows[row], anchor="end"))
            for column, estimate in enumerate(line):
                share = math.nan if estimate is None else (estimate.value - lowest) / span
                ends = estimate is not None and not _wide(estimate, span)
                parts += _cell(left + _CELL * column, BELOW_TITLE + _ROW * row, estimate, share, ends=ends)
        parts += [part for part in x_axis(x, names, bottom) if part.startswith("<text")]
        parts.append(text(12, (BELOW_TITLE + bottom) / 2, self.row_label, anchor="middle", turn=-90, room=bottom))
        end = bottom + x_labels_height(x, names)
        parts += below_axis(labels, (x.start + x.end) / 2, end, width)
        return chart(width, end + 13 * len(labels) + 6, self.title, parts, paper=True)


def _wide(estimate: Estimate, span: float) -> bool:
    """Return whether an interval is too wide for a scale of some length; false without an interval."""
    return estimate.has_interval and estimate.high - estimate.low > WIDE * span


def _cell(left: float, top: float, estimate: Estimate | None, share: float, *, ends: bool) -> Iterator[str]:
    """Yield a cell of a map with its value, its interval, and the number of its grids if that is low."""
    value, below, few, colour = "–", "no data" if estimate is None else "undefined", "", _NO_COLOUR
    if estimate is not None and not math.isnan(estimate.value):
        below = f"{estimate.low:.2f} to {estimate.high:.2f}" if estimate.has_interval else "no interval"
        value, below = f"{estimate.value:.2f}".replace("-", "−"), below.replace("-", "−") if ends else ""
        colour = colour if estimate.sparse else shade(share)
    if estimate is not None and estimate.sparse:
        few = f"{estimate.clusters}/{estimate.all_clusters} grids"
    ink = "white" if _luminance(colour) < 0.36 else "black"
    middle, height = left + _CELL / 2, _ROW * (0.31 if few else 0.4 if below else 0.5) + 3.5
    sides = f'width="{_CELL - 1.5:g}" height="{_ROW - 1.5:g}"'
    yield f'<rect x="{digits(left + 0.75)}" y="{digits(top + 0.75)}" {sides} fill="#{colour.hex()}"/>'
    for down, words, size in ((height, value, 10.0), (height + 11, below, 6.8), (height + 20, few, 6.8)):
        if words:
            yield text(middle, top + down, words, anchor="middle", size=size, fill=ink, room=_CELL - 3)


def _luminance(colour: bytes) -> float:
    """Return the relative luminance of a colour. Source: WCAG 2.1, Relative luminance."""
    parts = (part / 255 for part in colour)
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def shade(share: float) -> bytes:
    """Return the colour of a share of a scale, from pale to dark: red, green and blue.

    Source: ColorBrewer 2.0, YlGnBu in 9 classes, interpolated. The palest and the darkest colours are left out: text
    stays readable on every cell, and cells stay visible on white.
    """
    place = (0.08 + 0.8 * min(1.0, max(0.0, share))) * (len(_SHADES) - 1)
    first = int(place)
    pairs = zip(_SHADES[first], _SHADES[first + 1], strict=True)
    return bytes(round(one + (place - first) * (other - one)) for one, other in pairs)
