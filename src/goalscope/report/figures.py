"""Figures of a report as SVG text: byte-identical for equal numbers, with text as text."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from io import StringIO
from typing import Any

_FONTS = "'DejaVu Sans', Verdana, 'Helvetica Neue', Arial, sans-serif"
"""Font families for SVG text; the layout uses the character widths of the first."""

INK = "#1f2328"
MUTED = "#57606a"
RULES = "#e4e7eb"
# Any two colours can be distinguished, even with protanopia or deuteranopia, and each contrasts with white paper.
COLOURS = ("#0072b2", "#d55e00", "#222222", "#3d9980", "#4b3fd0", "#704214", "#4890a8", "#700060")
LONGEST_LABEL, LONGEST_TICK = 48, 20
"""Maximum numbers of characters of a label and of a tick."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of cells that a spreadsheet reads as a formula."""

_UNSEEN = (
    *(code for code in range(32) if code not in (9, 10)),
    *range(0x7F, 0xA0),
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xD800, 0xE000),
    0xFEFF,
)
_ESCAPES = {code: f"\\u{code:04x}" for code in _UNSEEN}


def drawing(
    width: float, height: float, label: str, font: str, parts: Iterable[str], *, unit: str = "", kind: str = ""
) -> str:
    """Return SVG elements as a picture.

    Args:
        width, height: size in units of the view box.
        label: a sentence that describes the picture.
        font: size and weight of its text.
        parts: the elements.
        unit: unit of the width on the page, "" for pixels.
        kind: "chart" for a picture that uses the colours of the page.
    """
    drawn_as = f' class="{kind}"' if kind else ""
    opening = (
        f'<svg role="img"{drawn_as} aria-label="{escape(label)}" '
        f'viewBox="0 0 {width} {height}" width="{width}{unit}" style="font: {font} {_FONTS}">'
    )
    return "".join([opening, *parts, "</svg>"])


_OF_THE_PAGE = {INK: "ink", MUTED: "soft", RULES: "line", "#ffffff": "back"} | {
    colour: f"series-{index}" for index, colour in enumerate(COLOURS)
}
"""Colour of a chart -> variable of the page's style sheet; colours given by name stay unchanged."""


def themed(svg: str) -> str:
    """Return a figure for a page: a chart uses the light or dark colours that the reader chose."""
    if 'class="chart"' not in svg[: svg.index(">")]:
        return svg

    def variable(match: re.Match[str]) -> str:
        return f'{match[1]}="var(--{name})"' if (name := _OF_THE_PAGE.get(match[2])) else match[0]

    return re.sub(r'(fill|stroke)="(#[0-9a-f]{6})"', variable, svg)


def visible(text: str) -> str:
    """Escape control characters, direction changes and other invisible characters in a text."""
    return text.translate(_ESCAPES)


def short_label(text: str, max_characters: int = LONGEST_LABEL) -> str:
    """Shorten a name to fit into a figure, without invisible characters."""
    text = visible(text).replace("\n", " ")
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"


def embed(svg: str, label: str) -> str:
    """Return an SVG with its label (a sentence) replaced."""
    return re.sub(r'aria-label="[^"]*"', lambda _: f'aria-label="{escape(label)}"', svg, count=1)


Record = Mapping[str, Any]
"""A figure's record of one estimate or cell: one line of its CSV."""


def as_csv(records: Sequence[Record]) -> str:
    """Return records as CSV; undefined numbers are empty, and texts are escaped against reading as formulas."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    return csv_text(columns, ([record.get(name) for name in columns] for record in records))


def csv_text(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table as CSV; None is empty, and texts are escaped so that no spreadsheet reads a formula."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows(map(_cell, row) for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value


def standalone(svg: str) -> str:
    """Return SVG text of a page as a standalone file."""
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    text = svg.replace("<svg ", f"<svg {spaces} ", 1).replace(' href="#', ' xlink:href="#')
    return f'<?xml version="1.0" encoding="utf-8"?>\n{visible(text)}\n'
