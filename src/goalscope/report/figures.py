"""Figures of a report: drawn on demand, byte-identical for equal numbers, with text as text."""

import csv
import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from io import StringIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from goalscope.extras import lacking

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FONTS = "'DejaVu Sans', Verdana, 'Helvetica Neue', Arial, sans-serif"
"""Font families for SVG text; the layout is measured in the first."""

INK = "#1f2328"
MUTED = "#57606a"
# Any two colours are distinct, also for readers with protanopia or deuteranopia, and each contrasts with white paper.
COLOURS = ("#0072b2", "#d55e00", "#222222", "#3d9980", "#4b3fd0", "#704214", "#4890a8", "#700060")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 2)), (0, (8, 2)))

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

_STYLE = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # letters stay text in a paper
    "svg.hashsalt": "goalscope",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.0,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
}


def drawing(width: float, height: float, label: str, font: str, parts: Iterable[str]) -> str:
    """Return SVG elements as a picture of a size in units of its view box, with a label (a sentence) and a font."""
    opening = (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}" width="{width}" '
        f'style="font: {font} {_FONTS}">'
    )
    return "".join([opening, *parts, "</svg>"])


def visible(text: str) -> str:
    """Return a text with escapes for control characters, changes of direction and other invisible characters."""
    return text.translate(_ESCAPES)


def short(value: float, unit: str) -> str:
    """Write a value as tables show it: shares and bits with three decimals, larger numbers with fewer."""
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    decimals = 3 if unit in ("share", "bits", "nats") or abs(value) < 10 else 2 if abs(value) < 100 else 1
    text = f"{value:.{decimals}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def short_label(text: str, max_characters: int = LONGEST_LABEL) -> str:
    """Return a name that fits into a figure: truncated, without invisible characters."""
    text = visible(text).replace("\n", " ")
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"


def legend_columns(labels: Sequence[str]) -> int:
    """Return as many columns (3 at most) as fit below a figure."""
    line_width, handle_width = 66, 7  # characters across a figure, and those of a legend's handle
    for columns in (3, 2):
        if len(labels) < columns:
            continue
        # The library's order: the first columns have one more label where the number is not divisible.
        minimum, longer = divmod(len(labels), columns)
        ends = [minimum * column + min(column, longer) for column in range(columns + 1)]
        widths = [max(map(len, labels[first:last])) + handle_width for first, last in pairwise(ends)]
        if sum(widths) <= line_width:
            return columns
    return 1


def look_of(style: int, marker: Sequence[str] | None) -> dict[str, Any]:
    """Return colour, dashes and marker of a style as arguments of a plot; no marker where ``marker`` is None."""
    shape = style + style // len(COLOURS)  # marker and dash change where colours repeat
    style_arguments: dict[str, Any] = {
        "color": COLOURS[style % len(COLOURS)],
        "linestyle": _DASHES[shape % len(_DASHES)],
    }
    if marker is not None:
        style_arguments |= {"marker": marker[shape % len(marker)], "markeredgecolor": "white", "markeredgewidth": 0.6}
    return style_arguments


@contextmanager
def drawing_style() -> Iterator[None]:
    """Return a context with fixed settings of matplotlib, independent of the user's own (needs matplotlib)."""
    try:
        from matplotlib import rc_context, rcParamsDefault
    except ImportError as error:
        raise lacking("figures need matplotlib", "report", error) from error
    settings: dict[Any, Any] = {name: rcParamsDefault[name] for name in rcParamsDefault if name != "backend"} | _STYLE
    with rc_context(settings), warnings.catch_warnings():
        # A name may have letters that the layout's font lacks; the reader's own fonts may have them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        yield


def blank_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of a width and height in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def as_svg(figure: "Figure") -> str:
    """Return a figure as SVG, within `drawing_style`: no metadata, sizes from the view box, common fonts."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    out = StringIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    # A style element would apply to the whole page; its rules are set on this figure's root instead.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href=", "href=")
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"'DejaVu Sans'[^;\"]*", _FONTS, text)
    text = re.sub(r'(<svg[^>]*?) width="([0-9.]+)pt" height="([0-9.]+)pt"', r'\1 width="\2pt"', text, count=1)
    text = re.sub(r"(\d+\.\d{2})\d+", r"\1", text)
    text = re.sub(r">\s+<", "><", text).replace("\n", " ")
    root = '<svg role="img" style="stroke-linejoin: round; stroke-linecap: butt" '
    return text.replace("<svg ", root, 1).strip()


def embed(svg: str, prefix: str, label: str) -> str:
    """Return an SVG for a page with others: ids with a prefix, and a label (a sentence)."""
    # Ids without references are removed; the others are made unique.
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))

    def rename(match: re.Match[str]) -> str:
        return f' id="{prefix}-{match[1]}"' if match[1] in used else ""

    svg = re.sub(r' id="([^"]*)"', rename, svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', svg)
    return svg.replace("<svg ", f'<svg aria-label="{escape(label)}" ', 1)


Record = Mapping[str, Any]
"""A figure's record of one estimate or cell: a line of its CSV."""


def as_csv(records: Sequence[Record]) -> str:
    """Return records as CSV: undefined numbers are empty, texts are escaped against reading as formulas."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    return csv_text(columns, ([record.get(name) for name in columns] for record in records))


def csv_text(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table as CSV: None is empty, texts are escaped against reading as formulas."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows(map(_cell, row) for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value


class Drawable(Protocol):
    """Drawable content of a figure: a `Chart`, or a `goalscope.report.vector.Picture`."""

    @property
    def svg(self) -> str:
        """SVG text without declaration or metadata."""

    @property
    def records(self) -> tuple[Record, ...]:
        """Its content as lines of its CSV."""

    def draw(self) -> "Figure":
        """Return it as a figure of matplotlib."""


class Chart(ABC):
    """A chart that is drawn on demand."""

    @property
    @abstractmethod
    def records(self) -> tuple[Record, ...]:
        """The numbers that it shows, one mapping per estimate; undefined numbers are None."""

    @abstractmethod
    def drawn(self) -> "Figure":
        """Return it as a figure of matplotlib, within `drawing_style`."""

    def draw(self) -> "Figure":
        """Return it as a figure of matplotlib with a size in inches and finished layout.

        Raises:
            ImportError: matplotlib is not installed (it comes with the extra ``report``).
        """
        with drawing_style():
            figure = self.drawn()
            figure.draw_without_rendering()  # ticks take the style in force at their creation
            return figure

    @property
    def svg(self) -> str:
        """SVG text without declaration or metadata."""
        with drawing_style():
            return as_svg(self.drawn())


def standalone(svg: str) -> str:
    """Return SVG text of a page as a standalone file."""
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    text = svg.replace("<svg ", f"<svg {spaces} ", 1).replace(' href="#', ' xlink:href="#')
    return f'<?xml version="1.0" encoding="utf-8"?>\n{visible(text)}\n'
