"""Figures and tables of a page by name, and their export as files.

Tables are written as LaTeX, Markdown and CSV with all text escaped: value and interval of an estimate share a cell, and
in CSV they have separate columns. Figures are written as SVG and CSV, and by matplotlib as PDF and PNG.
"""

import logging
import math
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

from goalscope._ground.checks import near_miss
from goalscope._ground.extras import lacking
from goalscope._ground.folder import Folder, NamedFile, anything_at
from goalscope._ground.untrusted import UntrustedError
from goalscope.report.blocks import Cell, Declared, Figure, Phrase, Table
from goalscope.report.figures import INK, as_csv, csv_text, standalone, visible
from goalscope.report.ledger import RunData, json_number
from goalscope.report.page import check_covered, sections_of
from goalscope.report.texts import TEXTS
from goalscope.runs.store import Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

FIGURES: Final = (".svg", ".pdf", ".png", ".csv")
TABLES: Final = (".tex", ".md", ".csv")
"""File endings for figures and for tables."""

_PIXELS_PER_INCH: Final = 300  # of figures written as PNG
_MAX_TABLE_LINES: Final = 40  # maximum lines of a table on one page; a longer one is a longtable
_MAX_LINE_CHARACTERS: Final = 36  # maximum characters of a cell on one line; longer text is wrapped

_TEX: Final[Mapping[int, str]] = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "`": r"\textasciigrave{}",
        "'": r"\textquotesingle{}",
        '"': r"{\char34}",
        # At the beginning of a line these would be read as an argument of the preceding line break.
        "[": "{[}",
        "]": "{]}",
        "*": "{*}",
        # LaTeX would set two of them as one other character.
        "-": "{-}",
        ",": "{,}",
        "−": "$-$",
        "×": r"$\times$",
        "·": r"$\cdot$",
        "±": r"$\pm$",
        "∞": r"$\infty$",
        "≥": r"$\geq$",
        "≤": r"$\leq$",
        "→": r"$\rightarrow$",
        "²": "$^2$",
        "³": "$^3$",
        "°": r"$^\circ$",
        "µ": r"$\mu$",
        "–": "--",
        "—": "---",
        "…": r"\ldots{}",
        "“": "``",
        "”": "''",
        "‘": "`",
        "’": "'",
        "\u00a0": "~",
        "\n": " ",
        "\t": " ",
    }
)
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e\u00c0-\u00cf\u00d1-\u00dd\u00df-\u00ef\u00f1-\u00fd\u00ff]")
_MARKDOWN_SYNTAX: Final = re.compile(r"([\\`*_|<>&~$]|^[#+=-]|!(?=\[)|\](?=[(\[:]))")


Named = Mapping[str, Figure | Table]
"""Name -> figure or table, in the order of the page."""
_ESTIMATE_COLUMNS: Final = ("low", "high", "confidence", "n", "clusters", "method")
_SETTINGS = "matplotlibrc"
_MOST_SETTINGS = 2**20  # bytes
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


def named(sections: Iterable[Declared]) -> Named:
    """Return the figures and tables of laid-out sections of a report by name."""
    items: dict[str, Figure | Table] = {}
    for declared in sections:
        tables = (*declared.tables, *(table for fold in declared.folds for table in fold.tables))
        items |= {item.name: item for item in (*declared.figures, *tables)}
    return items


def named_of_run(path: str | Path) -> Named:
    """Return the figures and tables of the report of a measured run, by name.

    Raises:
        ValueError: if the run has no episodes, or its rows do not cover them.
    """
    with Store(path) as store:
        check_covered(store)
        return named(sections_of(RunData.of(store)))


def find(items: Named, name: str) -> Figure | Table:
    """Return the figure or table of this name from the figures and tables of a page.

    Raises:
        ValueError: if the name is unknown; the message suggests similar ones.
    """
    if name not in items:
        got = f"{name!r}{near_miss(name, list(items), most=3)}"
        raise ValueError(f"the page has no figure or table of that name, got {got} (goalscope figure RUN --list)")
    return items[name]


def figure(run: str | Path, name: str) -> "MatplotlibFigure":
    """Draw a figure of the report of a run.

    Args:
        run: the directory of a measured run.
        name: name of the figure; it is below the figure on the page, and in `goalscope figure RUN --list`.

    Returns:
        A matplotlib figure with its size in inches: shapes and texts (the first one is the title) on one pair of axes.
        Change them as you like, and save the figure with ``savefig``.

    Raises:
        ValueError: if the name is unknown or that of a table, or the run is not measured.
        ImportError: if matplotlib is not installed (it comes with the extra ``report``).
    """
    return drawn(named_of_run(run), name)


def drawn(items: Named, name: str) -> "MatplotlibFigure":
    """Draw one of the figures of a page with matplotlib.

    Args:
        items: the figures and tables of the page by name.
        name: name of the figure.

    Raises:
        ValueError: if the name is unknown, or that of a table.
        ImportError: if matplotlib is not installed (it comes with the extra ``report``).
    """
    item = find(items, name)
    if isinstance(item, Table):
        raise ValueError(TEXTS("files/a table", name=name))
    return as_figure(item.drawn.svg)


def title_of(item: Figure | Table) -> str:
    """Return a description of a figure or table in a few words or a sentence, for its file."""
    if isinstance(item, Table):
        return item.caption or ", ".join(item.headings)
    return item.label or item.caption


def write_all(items: Named, folder: Path) -> list[Path]:
    """Write every figure of a page as SVG and CSV, and every table as LaTeX, Markdown and CSV, into a folder.

    Returns:
        The files.

    Raises:
        OSError: if the folder cannot be written.
    """
    Folder(folder).make()
    files = []
    for name, item in items.items():
        for ending in TABLES if isinstance(item, Table) else (".svg", ".csv"):
            files.append(folder / f"{name}{ending}")
            write(item, files[-1])
    return files


def write(item: Figure | Table, path: Path) -> None:
    """Write a figure as SVG, PDF, PNG or CSV, or a table as LaTeX, Markdown or CSV, depending on the file ending.

    Raises:
        ValueError: for another ending, or a picture that only SVG can represent.
        ImportError: if matplotlib, which PDF and PNG need, is not installed (it comes with the extra ``report``).
        OSError: if the file cannot be written.
    """
    kind, endings = ("table", TABLES) if isinstance(item, Table) else ("figure", FIGURES)
    if path.suffix not in endings:
        raise ValueError(TEXTS("files/ending", kind=kind, endings=", ".join(endings), got=repr(path.name)))
    if isinstance(item, Table):
        text = {".tex": as_latex, ".md": as_markdown, ".csv": table_as_csv}[path.suffix](item)
    elif path.suffix in (".csv", ".svg"):
        text = as_csv(item.drawn.records) if path.suffix == ".csv" else standalone(item.drawn.svg)
    else:
        figure_drawn = as_figure(item.drawn.svg)
        metadata = {"CreationDate": None} if path.suffix == ".pdf" else {"Software": None}
        with drawing_style(), NamedFile(path).replacing() as partial:
            figure_drawn.savefig(partial, dpi=_PIXELS_PER_INCH, metadata=metadata, format=path.suffix[1:])
        return
    NamedFile(path).save_text(text, newline="")


def table_as_csv(table: Table) -> str:
    """Return a table as CSV text; an estimate takes several columns: value, ends of the interval, n, clusters and
    method.

    Numbers have seven digits.
    """
    columns_have_estimates = [
        any(isinstance(row[column], Cell) and row[column].estimate is not None for row in table.rows)
        for column in range(len(table.headings))
    ]
    names = zip(table.headings, _headings(table), columns_have_estimates, strict=True)
    headings = [
        text
        for name, heading, has_estimates in names
        for text in (heading, *(f"{name}: {statistic}" for statistic in _ESTIMATE_COLUMNS if has_estimates))
    ]
    numeric = [column in table.numbers for column in range(len(columns_have_estimates))]
    rows = (chain.from_iterable(map(_entry_columns, row, columns_have_estimates, numeric)) for row in table.rows)
    return csv_text(headings, rows)


def _entry_columns(entry: str | Phrase | Cell, column_has_estimates: bool, column_is_numeric: bool) -> list[Any]:
    """Return the CSV columns of one entry."""
    if not isinstance(entry, Cell) or entry.estimate is None:
        text = entry.value if isinstance(entry, Cell) else _entry_text(entry)
        empty = [None] * (len(_ESTIMATE_COLUMNS) * column_has_estimates)
        return [_parse_number(text) if column_is_numeric else text, *empty]
    estimate = entry.estimate
    numbers = [json_number(number) for number in (estimate.value, estimate.low, estimate.high)]
    return [*numbers, estimate.confidence, estimate.n, estimate.clusters, estimate.method]


def _parse_number(text: str) -> float | str:
    """Return the number that a text shows, or the text itself if it is not a number."""
    ascii_text = text.replace("−", "-").replace(",", "")
    return float(ascii_text) if re.fullmatch(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", ascii_text) else text


def as_markdown(table: Table) -> str:
    """Return a table as Markdown text, with its caption above and its notes below."""
    body = [[markdown_text(_entry_text(entry)) for entry in row] for row in table.rows]
    headings = [markdown_text(text) for text in _headings(table)]
    rules = ["---:" if column in table.numbers else "---" for column in range(len(headings))]
    lines = [f"| {' | '.join(cells)} |" for cells in (headings, rules, *body)]
    caption_lines = [markdown_text(table.caption), ""] if table.caption else []
    note_lines = [text for note in table.notes for text in ("", markdown_text(note))]
    return "\n".join([*caption_lines, *lines, *note_lines]) + "\n"


def markdown_text(text: str) -> str:
    """Return a text as one line of Markdown that shows it as it is, without markup of its own."""
    return _MARKDOWN_SYNTAX.sub(r"\\\1", visible(text).replace("\n", " "))


def as_latex(table: Table) -> str:
    """Return a table as LaTeX text with booktabs rules; a table of many lines is a longtable, over several pages.

    All text is escaped; characters that plain LaTeX fonts lack are written as code points.
    """
    lengths = [
        max((len(_entry_text(row[column])) for row in table.rows), default=0) for column in range(len(table.headings))
    ]
    wide_columns = [column for column, length in enumerate(lengths) if length > _MAX_LINE_CHARACTERS]
    fraction = round(0.8 / max(2, len(wide_columns)), 2)
    columns = "".join(
        f"p{{{fraction}\\linewidth}}" if column in wide_columns else "r" if column in table.numbers else "l"
        for column in range(len(lengths))
    )
    heading = " & ".join(map(latex_text, _headings(table))) + r" \\"
    body = [" & ".join(latex_text(_entry_text(entry)) for entry in row) + r" \\" for row in table.rows]
    caption = rf"\caption{{{latex_text(table.caption)}}}"
    label = rf"\label{{tab:{table.name}}}"
    notes = [rf"\par\smallskip\footnotesize {latex_text(note)}" for note in table.notes]
    if len(body) > _MAX_TABLE_LINES:
        begin = [rf"\begin{{longtable}}{{{columns}}}", rf"{caption}{label} \\", r"\toprule", heading, r"\midrule"]
        lines = [*begin, r"\endhead", r"\bottomrule", r"\endfoot", *body, r"\end{longtable}", *notes]
        packages = r"\usepackage{booktabs,longtable}"
    else:
        rules = [r"\toprule", heading, r"\midrule", *body, r"\bottomrule"]
        tabular = [rf"\begin{{tabular}}{{{columns}}}", *rules, r"\end{tabular}", *notes]
        lines = [r"\begin{table}", r"\centering", caption, label, *tabular, r"\end{table}"]
        packages = r"\usepackage{booktabs}"
    return "\n".join([f"% {packages}", *lines]) + "\n"


def latex_text(text: str) -> str:
    """Escape a text for LaTeX; characters that plain LaTeX fonts lack are written as code points."""
    escaped = visible(text).translate(_TEX)
    return _UNPRINTABLE.sub(lambda match: rf"\texttt{{U+{ord(match[0]):04X}}}", escaped)


def _headings(table: Table) -> list[str]:
    units = table.units or ("",) * len(table.headings)
    return [f"{name} ({unit})" if unit else name for name, unit in zip(table.headings, units, strict=True)]


def _entry_text(entry: str | Phrase | Cell) -> str:
    """Return the text of a table entry on one line."""
    if isinstance(entry, str):
        return entry
    if isinstance(entry, Phrase):
        return f"{entry.text} ({entry.below})" if entry.below else entry.text
    return " ".join(filter(None, (entry.value, entry.interval or entry.note, f"({entry.few})" if entry.few else "")))


@contextmanager
def drawing_style(style: Mapping[str, Any] = _STYLE) -> Iterator[None]:
    """Return a context manager with fixed settings of matplotlib, independent of the user's own.

    Args:
        style: settings other than matplotlib's own defaults.

    Raises:
        ImportError: if matplotlib is not installed (it comes with the extra ``report``).
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
            raise ValueError(TEXTS("files/settings", file=_SETTINGS, error=str(error))) from error
    logger = logging.getLogger("matplotlib")
    logger.disabled = True
    try:
        with warnings.catch_warnings(action="ignore"):
            import_module("matplotlib")
    finally:
        logger.disabled = False


def as_figure(svg: str) -> "MatplotlibFigure":
    """Draw a picture with matplotlib, for PDF, PNG and further changes: shapes and texts are on one pair of axes.

    Args:
        svg: text made by `goalscope.report.figures.drawing`; a unit of its view box is a point.

    Raises:
        ImportError: if matplotlib is not installed (it comes with the extra ``report``).
        ValueError: for an element or path command that goalscope's own pictures do not use.
    """
    with drawing_style():
        from matplotlib.figure import Figure as MatplotlibFigure

        root = ElementTree.fromstring(svg)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        figure = MatplotlibFigure(figsize=(width / _INCH, height / _INCH), facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        font = re.search(r"font: (bold )?([\d.]+)px", root.attrib.get("style", ""))
        font_style = {"font-size": font[2], "font-weight": "bold" if font[1] else "normal"} if font else {}
        for order, node in enumerate(root):
            if node.tag == "text":
                _add_text(axes, node, {**font_style, **node.attrib}, order)
            else:
                _add_shape(axes, _polylines(node), node.attrib, order)
        return figure


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
    if node.tag == "polygon":
        numbers = [float(number) for number in re.split(r"[\s,]+", attributes["points"].strip())]
        return [(list(zip(numbers[::2], numbers[1::2], strict=True)), True)]
    if node.tag == "path":
        return _path(attributes["d"])
    raise ValueError(f"a picture may hold rect, circle, polygon, path and text, got {node.tag!r}: write it as .svg")


def _path(commands: str) -> Shape:
    """Return the polylines of a path of M, L, H, V and Z; capitals are absolute, small letters relative."""
    polylines: Shape = []
    x = y = 0.0
    for letter, arguments in re.findall(r"([A-Za-z])([^A-Za-z]*)", commands):
        numbers = [float(number) for number in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", arguments)]
        command, count = letter.upper(), 1 if letter in "HhVv" else 2
        if command not in ("MLHVZ" if polylines else "M"):
            raise ValueError(TEXTS("files/path", got=repr(letter)))
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


def _add_shape(axes: "Axes", shape: Shape, style: Mapping[str, str], order: int) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    vertices, codes = [], []
    for corners, closed in shape:
        outline = [*corners, corners[0]] if closed else corners
        vertices += outline
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


def _add_text(axes: "Axes", node: ElementTree.Element, style: Mapping[str, str], order: int) -> None:
    from matplotlib.patheffects import withStroke

    halo = style.get("stroke", "none")
    width, opacity = float(style.get("stroke-width", "1")), float(style.get("stroke-opacity", "1"))
    turn = re.fullmatch(r"rotate\((-?\d+) [\d. -]+\)", style.get("transform", "rotate(0 0 0)"))
    if turn is None:
        raise ValueError(f"a text of a picture may only be turned, got {style['transform']!r}: write it as .svg")
    axes.text(
        float(node.attrib["x"]),
        float(node.attrib["y"]),
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
