"""Figures of a report as SVG text: the same numbers give the same bytes, and text in them stays text."""

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from html import escape
from io import StringIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from goalscope.extras import lacking
from goalscope.stats import FEWEST, Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONTS = "'DejaVu Sans', Verdana, 'Helvetica Neue', Arial, sans-serif"
"""What a reader's machine may draw text with: the first is what the layout was measured in."""

INK = "#1f2328"
MUTED = "#57606a"
# Paul Tol's bright scheme in an order that keeps neighbours apart, also for readers who do not see red or green.
COLOURS = ("#4477aa", "#cc3311", "#228833", "#aa3377", "#997700", "#33829b", "#555555", "#882255")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 2)), (0, (8, 2)))

_LONGEST_LABEL, _LONGEST_TICK = 48, 20  # characters
_LESS = f"less than {100 * FEWEST:g} % of the grids"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a figure.

    Attributes:
        label: what the legend calls it.
        style: index of colour, marker and dash; an agent keeps its own in all figures of a page.
        x: ``[P]`` positions.
        estimates: ``[P]`` values with intervals.
    """

    label: str
    style: int
    x: tuple[float, ...]
    estimates: tuple[Estimate, ...]

    def __post_init__(self) -> None:
        if len(self.x) != len(self.estimates):
            raise ValueError(f"a series must have an estimate for each x, got {len(self.estimates)} for {len(self.x)}")


def lines(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    bounds: tuple[float, float] | None = None,
    ticks: Sequence[float] | Mapping[float, str] | None = None,
    counts: bool = False,
    bands: bool = True,
    joined: bool = True,
) -> str:
    """Draw lines with interval bands; what comes from few of the grids is pale, and the grids are counted below.

    Args:
        series: the lines; undefined values leave a gap, undefined intervals a marker without a band.
        title: heading of the figure.
        x_label, y_label: labels of the axes with their units.
        bounds: range of the vertical axis; from the data where None.
        ticks: marks on the horizontal axis, with their names where a mapping; chosen by the library where None.
        counts: draw the number of grids behind each point below the lines, whether they are few or not.
        bands: draw the intervals; many lines are legible without only, their intervals must then stand in a table.
        joined: False for positions without an order: points and interval bars in place of lines and bands.

    Returns:
        SVG text without declaration or metadata.

    Raises:
        ImportError: matplotlib is not installed (it comes with the extra ``report``).
    """
    sparse = any(estimate.sparse for line in series for estimate in line.estimates)
    with drawing_style():
        legend = -(-len(series) // legend_columns([short_label(line.label) for line in series]))
        figure = blank_figure(5.2, (4.15 if counts or sparse else 3.6) + 0.19 * (max(0, legend - 3) + sparse))
        if counts or sparse:
            upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        else:
            upper, lower = figure.subplots(), None
        for line in series:
            _draw(upper, line, markers=not counts, band=bands, joined=joined)
            if lower is not None:
                grids = [estimate.clusters for estimate in line.estimates]
                lower.plot(line.x, grids, drawstyle="steps-mid", **look_of(line.style, marker=None))
        upper.set_title(short_label(title))
        upper.set_ylabel(y_label)
        upper.grid(axis="y", color="#e4e7eb", linewidth=0.8)
        if bounds is not None:
            margin = 0.04 * (bounds[1] - bounds[0])
            upper.set_ylim(bounds[0] - margin, bounds[1] + margin)
        if lower is not None:
            lower.set_ylabel("grids")
            lower.set_ylim(bottom=0)
            lower.xaxis.get_major_locator().set_params(integer=True)
            lower.yaxis.get_major_locator().set_params(integer=True)
        bottom = upper if lower is None else lower
        bottom.set_xlabel(f"{x_label}\npale: {_LESS}" if sparse else x_label)
        if ticks is not None:
            names = ticks if isinstance(ticks, Mapping) else {tick: f"{tick:g}" for tick in ticks}
            bottom.set_xticks(list(names), [short_label(name, _LONGEST_TICK) for name in names.values()])
        handles, labels = upper.get_legend_handles_labels()
        if len(series) > 1:
            figure.legend(handles, labels, loc="outside lower center", ncols=legend_columns(labels), handlelength=2.6)
        return as_svg(figure)


def heat_map(
    cells: Sequence[Sequence[Estimate | None]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    row_label: str,
    column_label: str,
    bounds: tuple[float, float],
) -> str:
    """Draw a table of estimates as coloured cells, each with its value and, below it, its interval.

    A cell from few of the grids has no colour and says how many they are.

    Args:
        cells: ``[R][C]`` estimates, None where there are no data.
        rows, columns: labels of the R rows and C columns.
        title: heading of the figure.
        row_label, column_label: what rows and columns are.
        bounds: values of the two ends of the colour scale.

    Returns:
        SVG text without declaration or metadata.

    Raises:
        ImportError: matplotlib is not installed (it comes with the extra ``report``).
    """
    with drawing_style():
        sparse = any(one is not None and one.sparse for row in cells for one in row)
        figure = blank_figure(1.1 + 0.78 * len(columns), 0.95 + 0.52 * len(rows) + 0.19 * sparse)
        axes = figure.subplots()
        scale = _colour_scale()
        low, high = bounds
        for row, line in enumerate(cells):
            for column, estimate in enumerate(line):
                known = estimate is not None and not math.isnan(estimate.value) and not estimate.sparse
                share = (estimate.value - low) / (high - low) if known and estimate else 0.0
                colour = scale(min(1.0, max(0.0, share))) if known else (0.94, 0.94, 0.94, 1.0)
                axes.add_patch(_cell(column, row, colour))
                text, below = _cell_text(estimate)
                ink = "white" if known and _luminance(colour) < 0.36 else INK
                few = f"{estimate.clusters}/{estimate.grids} grids" if estimate is not None and estimate.sparse else ""
                up = 0.09 if few else 0.0
                axes.text(column, row - 0.13 - up, text, ha="center", va="center", color=ink, fontsize=10)
                axes.text(column, row + 0.24 - up - up, below, ha="center", va="center", color=ink, fontsize=6.8)
                axes.text(column, row + 0.33, few, ha="center", va="center", color=ink, fontsize=6.8)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xticks(range(len(columns)), [short_label(name, _LONGEST_TICK) for name in columns])
        axes.set_yticks(range(len(rows)), [short_label(name, _LONGEST_TICK) for name in rows])
        axes.tick_params(length=0)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.set_title(short_label(title))
        axes.set_xlabel(f"{column_label}\nwithout colour: {_LESS}" if sparse else column_label)
        axes.set_ylabel(row_label)
        return as_svg(figure)


def visible(text: str) -> str:
    """Return a text in which control characters, changes of direction and other unseen characters can be seen."""
    return text.translate(_ESCAPES)


def short(value: float, unit: str) -> str:
    """Write a value as tables show it: shares and bits with three decimals, larger numbers with fewer."""
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    places = 3 if unit in ("share", "bits", "nats") or abs(value) < 10 else 2 if abs(value) < 100 else 1
    text = f"{value:.{places}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def _draw(axes: Any, line: Series, *, markers: bool, band: bool, joined: bool) -> None:
    # A band has no thickness at a gap: NaN ends leave it out.
    ends = [(one.low, one.high) if math.isfinite(one.high - one.low) else (math.nan,) * 2 for one in line.estimates]
    colour = COLOURS[line.style % len(COLOURS)]
    sparse = [estimate.sparse for estimate in line.estimates]
    values = [estimate.value for estimate in line.estimates]
    look = look_of(line.style, MARKERS if markers else None) | ({} if joined else {"linestyle": "none"})
    if any(sparse):
        axes.plot(line.x, values, **look | {"alpha": 0.35})
        if band and joined:
            axes.fill_between(line.x, *zip(*ends, strict=True), color=colour, alpha=0.06, linewidth=0)
        values = [math.nan if few else value for few, value in zip(sparse, values, strict=True)]
        ends = [(math.nan,) * 2 if few else both for few, both in zip(sparse, ends, strict=True)]
    lows, highs = [low for low, _ in ends], [high for _, high in ends]
    if band and joined:
        axes.fill_between(line.x, lows, highs, color=colour, alpha=0.16, linewidth=0)
    if not joined or (len(line.x) == 1 and not math.isnan(ends[0][0])):
        axes.vlines(line.x, lows, highs, color=colour, linewidth=1.4)
    axes.plot(line.x, values, label=short_label(line.label), **look)


def short_label(text: str, most: int = _LONGEST_LABEL) -> str:
    """Return a name that fits into a figure: cut where it is long, nothing unseen in it."""
    text = visible(text).replace("\n", " ")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def legend_columns(labels: Sequence[str]) -> int:
    """Return as many columns (3 at most) as fit below a figure."""
    room, handle = 66, 7  # characters across a figure, and what a legend's line takes of them
    for columns in (3, 2):
        if len(labels) < columns:
            continue
        # As the library fills them: the first columns take one more where the labels do not divide.
        least, longer = divmod(len(labels), columns)
        ends = [least * column + min(column, longer) for column in range(columns + 1)]
        widths = [max(map(len, labels[first:last])) + handle for first, last in pairwise(ends)]
        if sum(widths) <= room:
            return columns
    return 1


def look_of(style: int, marker: Sequence[str] | None) -> dict[str, Any]:
    """Return colour, dashes and marker of a style as arguments of a plot; no marker where there are none to choose."""
    shape = style + style // len(COLOURS)  # where colours come round again, shapes do not
    look: dict[str, Any] = {"color": COLOURS[style % len(COLOURS)], "linestyle": DASHES[shape % len(DASHES)]}
    if marker is not None:
        look |= {"marker": marker[shape % len(marker)], "markeredgecolor": "white", "markeredgewidth": 0.6}
    return look


def _cell_text(estimate: Estimate | None) -> tuple[str, str]:
    if estimate is None:
        return "–", "no data"
    if math.isnan(estimate.value):
        return "–", "undefined"
    ends = f"{estimate.low:.2f} to {estimate.high:.2f}" if estimate.has_interval else "no interval"
    return f"{estimate.value:.2f}".replace("-", "−"), ends.replace("-", "−")


def _cell(column: int, row: int, colour: tuple[float, float, float, float]) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.485, row - 0.475), 0.97, 0.95, facecolor=colour, edgecolor="none")


def _luminance(colour: tuple[float, float, float, float]) -> float:
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _colour_scale() -> Callable[[float], tuple[float, float, float, float]]:
    from matplotlib import colormaps

    scale = colormaps["YlGnBu"]
    # The darkest and the palest ends are left out: text stays readable on every cell, cells stay visible on white.
    return lambda share: tuple(float(part) for part in scale(0.08 + 0.8 * share))  # type: ignore[return-value]


def drawing_style() -> AbstractContextManager[None]:
    """Return a context in which figures look alike, whatever the user's own settings are (needs matplotlib)."""
    try:
        from matplotlib import rc_context, rcParamsDefault
    except ImportError as error:
        raise lacking("figures need matplotlib", "report", error) from error
    settings: dict[Any, Any] = {name: rcParamsDefault[name] for name in rcParamsDefault if name != "backend"} | _STYLE
    context: AbstractContextManager[None] = rc_context(settings)
    return context


def blank_figure(width: float, height: float) -> "Figure":
    """Return a figure of a width and height in inches, with nothing in it."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def as_svg(figure: "Figure") -> str:
    """Return the figure as SVG: no declaration, no metadata, sizes from the view box, a font that others have."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    out = StringIO()
    canvas: Any = FigureCanvasSVG(figure)
    with warnings.catch_warnings():
        # A name may have letters that the layout's font lacks; the reader's own fonts have them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        canvas.print_svg(out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    # A style element would reach the whole page; what it says is said for this figure alone.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href=", "href=")
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"'DejaVu Sans'[^;\"]*", FONTS, text)
    text = re.sub(r'(<svg[^>]*?) width="([0-9.]+)pt" height="([0-9.]+)pt"', r'\1 width="\2pt"', text, count=1)
    text = re.sub(r"(\d+\.\d{2})\d+", r"\1", text)
    root = '<svg role="img" style="stroke-linejoin: round; stroke-linecap: butt" '
    return text.replace("<svg ", root, 1).strip()


def embed(svg: str, prefix: str, label: str) -> str:
    """Make an SVG fit to stand beside others in one page: ids of its own, and a label for readers who hear the page.

    Args:
        svg: text from `lines`, `heat_map` or `picture`.
        prefix: short text that is unique in the page.
        label: what the figure shows, in a sentence.
    """
    # Ids of mere groups serve nobody; those that something refers to are made unique.
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))

    def rename(match: re.Match[str]) -> str:
        return f' id="{prefix}-{match[1]}"' if match[1] in used else ""

    svg = re.sub(r' id="([^"]*)"', rename, svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', svg)
    return svg.replace("<svg ", f'<svg aria-label="{escape(label)}" ', 1)
