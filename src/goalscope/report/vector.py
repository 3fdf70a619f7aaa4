"""Pictures of the report: SVG text, and figures of matplotlib, which writes them as PDF and PNG.

Read is the part of SVG that `goalscope.report.pictures` and `goalscope.report.moments` write, and no more: rectangles,
circles, polygons, paths of straight lines, one line of text, and groups that are moved.

Source: W3C, Scalable Vector Graphics (SVG) 1.1, chapters 8 (paths), 9 (shapes) and 10 (text).
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from goalscope.report.figures import INK, Record, blank_figure, drawing_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCH = 72.0  # units of a view box, so that a unit is a point
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}

Point = tuple[float, float]
Shape = list[tuple[list[Point], bool]]
"""Polylines, each with whether it is closed."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as SVG text of this package, and what it shows.

    Attributes:
        svg: the text, as `drawing` makes it.
        records: one mapping for each thing that it shows, by row and column.
    """

    svg: str = field(repr=False)
    records: tuple[Record, ...] = ()

    def draw(self) -> "Figure":
        """Return it as a figure of matplotlib.

        Raises:
            ImportError: matplotlib is not installed (it comes with the extra ``report``).
            ValueError: it holds what goalscope's own pictures do not.
        """
        with drawing_style():
            return as_figure(self.svg)


def as_figure(svg: str) -> "Figure":
    """Return a picture as a figure; a unit of its view box is a point.

    Args:
        svg: text that `goalscope.report.figures.drawing` made.

    Raises:
        ValueError: an element or a command of a path that goalscope's own pictures do not hold.
    """
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    figure = blank_figure(width / _INCH, height / _INCH)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    font = re.search(r"font: (bold )?([\d.]+)px", root.attrib.get("style", ""))
    given = {"font-size": font[2], "font-weight": "bold" if font[1] else "normal"} if font else {}
    for order, (node, style, moved) in enumerate(_nodes(root, given, (0.0, 0.0))):
        if node.tag == "text":
            _write(axes, node, style, moved, order)
        else:
            _draw(axes, _shape(node), style, moved, order)
    return figure


def _nodes(
    parent: ElementTree.Element, style: Mapping[str, str], moved: Point
) -> Iterator[tuple[ElementTree.Element, Mapping[str, str], Point]]:
    """Yield what is drawn, in order, with its attributes and those of its groups, and by how much it is moved."""
    for node in parent:
        own = {**style, **node.attrib}
        if node.tag == "title":
            continue
        if node.tag != "g":
            yield node, own, moved
            continue
        by = re.fullmatch(r"translate\(([-\d.]+)[ ,]([-\d.]+)\)", own.pop("transform", "translate(0 0)"))
        if by is None:
            raise ValueError(
                f"a group of a picture may only be moved, got {node.attrib['transform']!r}: write it as .svg"
            )
        yield from _nodes(node, own, (moved[0] + float(by[1]), moved[1] + float(by[2])))


def _shape(node: ElementTree.Element) -> Shape:
    """Return the polylines of a shape; a circle is a regular polygon of 48 sides."""
    given = node.attrib
    if node.tag == "rect":
        x, y, width, height = (float(given.get(name, "0")) for name in ("x", "y", "width", "height"))
        return [([(x, y), (x + width, y), (x + width, y + height), (x, y + height)], True)]
    if node.tag == "circle":
        x, y, radius = (float(given[name]) for name in ("cx", "cy", "r"))
        angles = (math.tau * corner / 48 for corner in range(48))
        return [([(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles], True)]
    if node.tag in ("polygon", "polyline"):
        numbers = [float(one) for one in re.split(r"[\s,]+", given["points"].strip())]
        return [(list(zip(numbers[::2], numbers[1::2], strict=True)), node.tag == "polygon")]
    if node.tag == "path":
        return _path(given["d"])
    raise ValueError(
        f"a picture may hold rect, circle, polygon, polyline, path and text, got {node.tag!r}: write it as .svg"
    )


def _path(commands: str) -> Shape:
    """Return the polylines of a path: M, L, H, V and Z, in capitals from the corner, else from where it stands."""
    found: Shape = []
    x = y = 0.0
    for letter, rest in re.findall(r"([A-Za-z])([^A-Za-z]*)", commands):
        numbers = [float(one) for one in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", rest)]
        kind, each = letter.upper(), 1 if letter in "HhVv" else 2
        if kind not in ("MLHVZ" if found else "M"):
            raise ValueError(
                f"a path of a picture must begin with M and hold L, H, V and Z alone, got {letter!r}: write it as .svg"
            )
        if kind == "Z":
            found[-1] = (found[-1][0], True)
            x, y = found[-1][0][0]
        for step in (numbers[at : at + each] for at in range(0, len(numbers), each)):
            before = (x, y) if letter.islower() else (0.0, 0.0)
            if kind == "M":
                found.append(([], False))
            elif found[-1][1]:
                found.append(([(x, y)], False))
            x, y = (x if kind == "V" else before[0] + step[0]), (y if kind == "H" else before[1] + step[-1])
            found[-1][0].append((x, y))
            kind = "L" if kind == "M" else kind  # further pairs are lines
    return found


def _draw(axes: Any, shape: Shape, style: Mapping[str, str], moved: Point, order: int) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    vertices, codes = [], []
    for corners, closed in shape:
        whole = [*corners, corners[0]] if closed else corners
        vertices += [(x + moved[0], y + moved[1]) for x, y in whole]
        codes += [Path.MOVETO, *[Path.LINETO] * (len(corners) - 1), *([Path.CLOSEPOLY] if closed else [])]
    fill, stroke, dashes = style.get("fill", "black"), style.get("stroke", "none"), style.get("stroke-dasharray", "")
    width = float(style.get("stroke-width", "1"))
    # Dashes of matplotlib are multiples of the width of the line.
    dash = (0.0, tuple(float(one) / width for one in re.split(r"[\s,]+", dashes))) if dashes else "-"
    patch = PathPatch(
        Path(vertices, codes),
        facecolor=fill,
        edgecolor="none" if stroke == "none" else (stroke, float(style.get("stroke-opacity", "1"))),
        linewidth=width if stroke != "none" else 0.0,
        linestyle=dash,
        joinstyle=style.get("stroke-linejoin", "miter"),
        capstyle=style.get("stroke-linecap", "butt"),
        zorder=order,
        clip_on=False,
    )
    axes.add_patch(patch)


def _write(axes: Any, node: ElementTree.Element, style: Mapping[str, str], moved: Point, order: int) -> None:
    from matplotlib.patheffects import withStroke

    halo = style.get("stroke", "none")
    width, opacity = float(style.get("stroke-width", "1")), float(style.get("stroke-opacity", "1"))
    axes.text(
        float(node.attrib["x"]) + moved[0],
        float(node.attrib["y"]) + moved[1],
        node.text or "",
        color=style.get("fill", INK),
        fontsize=float(style.get("font-size", "12")),
        fontweight=style.get("font-weight", "normal"),
        horizontalalignment=_ANCHORS[style.get("text-anchor", "start")],
        verticalalignment="baseline",
        zorder=order,
        path_effects=[withStroke(linewidth=width, foreground=halo, alpha=opacity)] if halo != "none" else [],
    )
