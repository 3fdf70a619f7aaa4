"""Figures of a report as SVG text: byte-identical for equal numbers. PDF and PNG come from matplotlib.

The reader that converts a picture to a figure of matplotlib supports only the subset of SVG that this package writes:
rectangles, circles, polygons, paths of straight lines, single lines of text (which may be turned about their place),
and translated groups.

Source: W3C, Scalable Vector Graphics (SVG) 1.1, chapters 8 (paths), 9 (shapes) and 10 (text).
"""

import csv
import logging
import math
import re
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from goalscope._ground.extras import lacking
from goalscope._ground.folder import Folder, NamedFile, anything_at
from goalscope._ground.untrusted import UntrustedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FONTS = "'DejaVu Sans', Verdana, 'Helvetica Neue', Arial, sans-serif"
"""Font families for SVG text; the layout uses the character widths of the first."""

INK = "#1f2328"
MUTED = "#57606a"
RULES = "#e4e7eb"
# Any two colours can be distinguished, even with protanopia or deuteranopia, and each contrasts with white paper.
COLOURS = ("#0072b2", "#d55e00", "#222222", "#3d9980", "#4b3fd0", "#704214", "#4890a8", "#700060")
LONGEST_LABEL, LONGEST_TICK = 48, 20
"""Maximum numbers of characters of a label and of a tick."""

_SETTINGS = "matplotlibrc"
_MOST_SETTINGS = 2**20  # bytes

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
    if isinstance(value, str):
        # The writer leaves a bare carriage return unquoted, and readers would take it for the end of a line.
        text = visible(value)
        return f"'{text}" if value.startswith(_FORMULA) else text
    return "" if value is None else value


def standalone(svg: str) -> str:
    """Return SVG text of a page as a standalone file."""
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    text = svg.replace("<svg ", f"<svg {spaces} ", 1).replace(' href="#', ' xlink:href="#')
    return f'<?xml version="1.0" encoding="utf-8"?>\n{visible(text)}\n'


_INCH = 72.0  # units of a view box, so that a unit is a point
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}

Point = tuple[float, float]
Shape = list[tuple[list[Point], bool]]
"""Polylines, each with a flag: whether it is closed."""


_STYLE = {
    "pdf.fonttype": 42,  # letters stay text in a paper
    "svg.fonttype": "none",
    "svg.hashsalt": "goalscope",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
}


class Drawn(ABC):
    """A finished figure, as SVG text and as records of its numbers."""

    @property
    @abstractmethod
    def svg(self) -> str:
        """SVG text without declaration or metadata."""

    @property
    @abstractmethod
    def records(self) -> tuple[Record, ...]:
        """Its numbers as records, one for each line of the CSV file; undefined numbers are None."""

    def draw(self) -> "Figure":
        """Draw it as a matplotlib figure, for PDF, PNG and further changes: shapes and texts are on one pair of axes.

        Raises:
            ImportError: if matplotlib is not installed (it comes with the extra ``report``).
            ValueError: for an element or path command that goalscope's own pictures do not use.
        """
        with drawing_style():
            return as_figure(self.svg)


@dataclass(frozen=True, slots=True)
class Picture(Drawn):
    """A picture as SVG text of this package, with its content as records.

    Attributes:
        svg: the text, made by `drawing`.
        records: one mapping per cell, step or node shown.
    """

    svg: str = field(repr=False)
    records: tuple[Record, ...] = ()


@contextmanager
def drawing_style(style: Mapping[str, Any] = _STYLE) -> Iterator[None]:
    """Return a context with fixed settings of matplotlib, independent of the user's own (needs matplotlib).

    Args:
        style: settings other than matplotlib's own defaults.
    """
    try:
        _import_matplotlib()
        from matplotlib import rc_context, rcParamsDefault
    except ImportError as error:
        raise lacking("PDF, PNG and figures in Python need matplotlib", "report", error) from error
    settings: dict[Any, Any] = {name: rcParamsDefault[name] for name in rcParamsDefault if name != "backend"}
    with rc_context(settings | dict(style)), warnings.catch_warnings():
        # A name may have letters that the font lacks; the reader's own fonts may have them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        yield


def _import_matplotlib() -> None:
    """Import matplotlib, which reads a file of settings in the working directory and prints the lines it dislikes.

    Somebody else may have written the file. It must be a short text, and nothing of it is printed or used.

    Raises:
        ValueError: it is something else, such as a pipe.
    """
    if "matplotlib" in sys.modules:
        return
    if anything_at(_SETTINGS) and not Folder(_SETTINGS).is_there():
        try:
            NamedFile(_SETTINGS).load_text(_MOST_SETTINGS)
        except UntrustedError as error:
            raise ValueError(
                f"matplotlib reads the file {_SETTINGS} in the working directory, but {error}: move the file elsewhere"
            ) from error
    logger = logging.getLogger("matplotlib")
    logger.disabled = True
    try:
        with warnings.catch_warnings(action="ignore"):
            import_module("matplotlib")
    finally:
        logger.disabled = False


def as_figure(svg: str) -> "Figure":
    """Return a picture as a matplotlib figure; a unit of its view box is a point.

    Args:
        svg: text made by `goalscope.report.figures.drawing`.

    Raises:
        ValueError: for an element or path command that goalscope's own pictures do not use.
    """
    from matplotlib.figure import Figure

    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    figure = Figure(figsize=(width / _INCH, height / _INCH), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    font = re.search(r"font: (bold )?([\d.]+)px", root.attrib.get("style", ""))
    font_style = {"font-size": font[2], "font-weight": "bold" if font[1] else "normal"} if font else {}
    for order, (node, style, offset) in enumerate(_drawn_nodes(root, font_style, (0.0, 0.0))):
        if node.tag == "text":
            _add_text(axes, node, style, offset, order)
        else:
            _add_shape(axes, _polylines(node), style, offset, order)
    return figure


def _drawn_nodes(
    parent: ElementTree.Element, style: Mapping[str, str], offset: Point
) -> Iterator[tuple[ElementTree.Element, Mapping[str, str], Point]]:
    """Yield the drawn nodes in order, each with its attributes, which include those of its groups, and its offset."""
    for node in parent:
        node_style = {**style, **node.attrib}
        if node.tag == "title":
            continue
        if node.tag != "g":
            yield node, node_style, offset
            continue
        translation = re.fullmatch(
            r"translate\(([-\d.]+)[ ,]([-\d.]+)\)", node_style.pop("transform", "translate(0 0)")
        )
        if translation is None:
            raise ValueError(
                f"a group of a picture may only be moved, got {node.attrib['transform']!r}: write it as .svg"
            )
        yield from _drawn_nodes(
            node, node_style, (offset[0] + float(translation[1]), offset[1] + float(translation[2]))
        )


def _polylines(node: ElementTree.Element) -> Shape:
    """Return the polylines of a shape; a circle is a regular polygon of 48 sides."""
    attributes = node.attrib
    if node.tag == "rect":
        x, y, width, height = (float(attributes.get(name, "0")) for name in ("x", "y", "width", "height"))
        return [([(x, y), (x + width, y), (x + width, y + height), (x, y + height)], True)]
    if node.tag == "circle":
        x, y, radius = (float(attributes[name]) for name in ("cx", "cy", "r"))
        angles = (math.tau * corner / 48 for corner in range(48))
        return [([(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles], True)]
    if node.tag in ("polygon", "polyline"):
        numbers = [float(number) for number in re.split(r"[\s,]+", attributes["points"].strip())]
        return [(list(zip(numbers[::2], numbers[1::2], strict=True)), node.tag == "polygon")]
    if node.tag == "path":
        return _path(attributes["d"])
    raise ValueError(
        f"a picture may hold rect, circle, polygon, polyline, path and text, got {node.tag!r}: write it as .svg"
    )


def _path(commands: str) -> Shape:
    """Return the polylines of a path of M, L, H, V and Z; capitals are absolute, small letters relative."""
    polylines: Shape = []
    x = y = 0.0
    for letter, arguments in re.findall(r"([A-Za-z])([^A-Za-z]*)", commands):
        numbers = [float(number) for number in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", arguments)]
        command, count = letter.upper(), 1 if letter in "HhVv" else 2
        if command not in ("MLHVZ" if polylines else "M"):
            raise ValueError(
                f"a path of a picture must begin with M and hold L, H, V and Z alone, got {letter!r}: write it as .svg"
            )
        if command == "Z":
            polylines[-1] = (polylines[-1][0], True)
            x, y = polylines[-1][0][0]
        for pair in (numbers[index : index + count] for index in range(0, len(numbers), count)):
            origin = (x, y) if letter.islower() else (0.0, 0.0)
            if command == "M":
                polylines.append(([], False))
            elif polylines[-1][1]:
                polylines.append(([(x, y)], False))
            x, y = (x if command == "V" else origin[0] + pair[0]), (y if command == "H" else origin[1] + pair[-1])
            polylines[-1][0].append((x, y))
            command = "L" if command == "M" else command  # further pairs are lines
    return polylines


def _add_shape(axes: Any, shape: Shape, style: Mapping[str, str], offset: Point, order: int) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    vertices, codes = [], []
    for corners, closed in shape:
        outline = [*corners, corners[0]] if closed else corners
        vertices += [(x + offset[0], y + offset[1]) for x, y in outline]
        codes += [Path.MOVETO, *[Path.LINETO] * (len(corners) - 1), *([Path.CLOSEPOLY] if closed else [])]
    fill, stroke, dashes = style.get("fill", "black"), style.get("stroke", "none"), style.get("stroke-dasharray", "")
    width, opacity = float(style.get("stroke-width", "1")), float(style.get("opacity", "1"))
    # SVG gives the lengths of dashes in pixels, matplotlib expects multiples of the line width.
    dash = (0.0, tuple(float(length) / width for length in re.split(r"[\s,]+", dashes))) if dashes else "-"
    patch = PathPatch(
        Path(vertices, codes),
        facecolor="none" if fill == "none" else (fill, float(style.get("fill-opacity", "1")) * opacity),
        edgecolor="none" if stroke == "none" else (stroke, float(style.get("stroke-opacity", "1")) * opacity),
        linewidth=width if stroke != "none" else 0.0,
        linestyle=dash,
        joinstyle=style.get("stroke-linejoin", "miter"),
        capstyle=style.get("stroke-linecap", "butt"),
        zorder=order,
        clip_on=False,
    )
    axes.add_patch(patch)


def _add_text(axes: Any, node: ElementTree.Element, style: Mapping[str, str], offset: Point, order: int) -> None:
    from matplotlib.patheffects import withStroke

    halo = style.get("stroke", "none")
    width, opacity = float(style.get("stroke-width", "1")), float(style.get("stroke-opacity", "1"))
    turn = re.fullmatch(r"rotate\((-?\d+) [\d. -]+\)", style.get("transform", "rotate(0 0 0)"))
    if turn is None:
        raise ValueError(f"a text of a picture may only be turned, got {style['transform']!r}: write it as .svg")
    axes.text(
        float(node.attrib["x"]) + offset[0],
        float(node.attrib["y"]) + offset[1],
        node.text or "",
        color=style.get("fill", INK),
        fontsize=float(style.get("font-size", "12")),
        fontweight=style.get("font-weight", "normal"),
        horizontalalignment=_ANCHORS[style.get("text-anchor", "start")],
        verticalalignment="baseline",
        rotation=-float(turn[1]),
        rotation_mode="anchor",
        zorder=order,
        path_effects=[withStroke(linewidth=width, foreground=halo, alpha=opacity)] if halo != "none" else [],
    )
