"""The figures and tables of a page by their names, and outside of it: LaTeX, Markdown and CSV, in which text is text.

A table of estimates has its intervals beside its values; as CSV each estimate has columns of its own.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from goalscope.checks import near_miss
from goalscope.report.blocks import Cell, Phrase, Table
from goalscope.report.figures import as_csv, csv_text, drawing_style, standalone, visible
from goalscope.report.ledger import RunData, json_number
from goalscope.report.page import not_measured, sections_of
from goalscope.report.specs import Declared, Figure
from goalscope.runs.store import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

FIGURES: Final = (".svg", ".pdf", ".png", ".csv")
TABLES: Final = (".tex", ".md", ".csv")
"""Endings of the files that figures and tables are written as."""

_PIXELS: Final = 300  # an inch of a figure that is written as PNG
_LONG: Final = 40  # lines of a table that still fits on a page
_WIDE: Final = 36  # characters of a cell of text that is set on one line

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
        # At the beginning of a line these would be an argument of the end of the one before.
        "[": "{[}",
        "]": "{]}",
        "*": "{*}",
        # Twice they would be another letter.
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
_PLAIN: Final = re.compile(r"[^\x20-\x7e\u00c0-\u00cf\u00d1-\u00dd\u00df-\u00ef\u00f1-\u00fd\u00ff]")
_MARKS: Final = re.compile(r"([\\`*_|<>&~$]|^[#+=-]|!(?=\[)|\](?=[(\[:]))")


Named = Mapping[str, Figure | Table]
"""Name -> what a page shows under it, in the order of the page."""


def named(sections: Iterable[Declared]) -> Named:
    """Return the figures and tables of sections that are laid out."""
    found: dict[str, Figure | Table] = {}
    for one in sections:
        tables = (*one.tables, *(table for fold in one.folds for table in fold.tables))
        found |= {each.name: each for each in (*one.figures, *tables)}
    return found


def named_of_run(path: str | Path) -> Named:
    """Return the figures and tables of the report of a measured run.

    Raises:
        ValueError: the run has no episodes, or rows that do not cover them.
    """
    with Store(path) as store:
        if lacking := not_measured(store):
            raise ValueError(
                f"the rows of a run must cover its episodes, but in {path} {lacking}: goalscope measure {path}"
            )
        return named(sections_of(RunData.of(store)))


def find(there: Named, name: str) -> Figure | Table:
    """Return what has a name.

    Raises:
        ValueError: nothing has; says what was meant.
    """
    if name not in there:
        close = near_miss(name, list(there), most=3)
        raise ValueError(
            f"a figure or table must be one of the page, got {name!r}{close} (goalscope figure RUN --list)"
        )
    return there[name]


def figure(run: str | Path, name: str) -> "MatplotlibFigure":
    """Draw a figure of the report of a run.

    Args:
        run: the directory of a measured run.
        name: the name of the figure: it stands below it on the page, and in `goalscope figure RUN --list`.

    Returns:
        A figure of matplotlib, of a size in inches; change it as you like, and save it with its ``savefig``.

    Raises:
        ValueError: an unknown name, or that of a table; the run is not measured.
        ImportError: matplotlib is not installed (it comes with the extra ``report``).
    """
    return drawn(named_of_run(run), name)


def drawn(there: Named, name: str) -> "MatplotlibFigure":
    """Draw the figure that has a name.

    Raises:
        ValueError: nothing has that name, or a table.
    """
    found = find(there, name)
    if isinstance(found, Table):
        raise ValueError(
            f"a figure must be drawn, got the table {name!r}: goalscope figure RUN {name} --out {name}.tex"
        )
    return found.drawn.draw()


def title_of(shown: Figure | Table) -> str:
    """Return what a figure or table shows, in a sentence or a few words."""
    if isinstance(shown, Table):
        return shown.caption or ", ".join(shown.headings)
    return shown.label or shown.caption


def write_all(there: Named, folder: Path) -> list[Path]:
    """Write every figure as SVG and CSV, and every table as LaTeX, Markdown and CSV; return the files.

    Raises:
        ImportError: figures need matplotlib (it comes with the extra ``report``).
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, shown in there.items():
        for ending in (".tex", ".md", ".csv") if isinstance(shown, Table) else (".svg", ".csv"):
            files.append(folder / f"{name}{ending}")
            write(shown, files[-1])
    return files


def write(shown: Figure | Table, path: Path) -> None:
    """Write a figure as SVG, PDF, PNG or CSV, or a table as LaTeX, Markdown or CSV, as its name ends.

    Raises:
        ValueError: another ending, or a picture that only SVG can hold.
        ImportError: a figure needs matplotlib (it comes with the extra ``report``).
        OSError: it cannot be written.
    """
    endings = TABLES if isinstance(shown, Table) else FIGURES
    if path.suffix not in endings:
        kind = "table" if isinstance(shown, Table) else "figure"
        raise ValueError(f"a {kind} must be written as {', '.join(endings)}, got {path.name!r}: give it such an ending")
    if isinstance(shown, Table):
        text = {".tex": as_latex, ".md": as_markdown, ".csv": table_as_csv}[path.suffix](shown)
    elif path.suffix in (".csv", ".svg"):
        text = as_csv(shown.drawn.records) if path.suffix == ".csv" else standalone(shown.drawn.svg)
    else:
        made = shown.drawn.draw()
        metadata = {"CreationDate": None} if path.suffix == ".pdf" else {"Software": None}
        with drawing_style():
            made.savefig(path, dpi=_PIXELS, metadata=metadata)
        return
    path.write_text(text, encoding="utf-8", newline="")


def table_as_csv(table: Table) -> str:
    """Return a table as CSV: an estimate has columns for value, ends, n and clusters; numbers have seven digits."""
    split = [
        any(isinstance(row[at], Cell) and row[at].estimate is not None for row in table.rows)
        for at in range(len(table.headings))
    ]
    units = table.units or ("",) * len(table.headings)
    headings = [
        [f"{name} ({unit})" if unit else name, *(f"{name}: {part}" for part in _PARTS if own)]
        for name, unit, own in zip(table.headings, units, split, strict=True)
    ]
    flush = [at in table.numbers for at in range(len(split))]
    rows = (chain.from_iterable(map(_values, row, split, flush)) for row in table.rows)
    return csv_text(list(chain.from_iterable(headings)), rows)


_PARTS: Final = ("low", "high", "confidence", "n", "clusters", "method")


def _values(entry: str | Phrase | Cell, split: bool, number: bool) -> list[Any]:
    """Return what stands in the columns of one entry."""
    if not isinstance(entry, Cell) or entry.estimate is None:
        text = entry.value if isinstance(entry, Cell) else _shown(entry)
        return [_number(text) if number else text, *[None] * (len(_PARTS) * split)]
    one = entry.estimate
    numbers = [json_number(number) for number in (one.value, one.low, one.high)]
    return [*numbers, one.confidence, one.n, one.clusters, one.method]


def _number(text: str) -> float | str:
    """Return a number that a table shows as one, any other text as it is."""
    plain = text.replace("−", "-").replace(",", "")
    return float(plain) if re.fullmatch(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", plain) else text


def as_markdown(table: Table) -> str:
    """Return a table as Markdown, its caption above and its notes below."""
    body = [[_marked(_shown(entry)) for entry in row] for row in table.rows]
    headings = [_marked(text) for text in _headings(table)]
    rules = ["---:" if at in table.numbers else "---" for at in range(len(headings))]
    lines = [f"| {' | '.join(cells)} |" for cells in (headings, rules, *body)]
    above = [_marked(table.caption), ""] if table.caption else []
    below = [text for note in table.notes for text in ("", _marked(note))]
    return "\n".join([*above, *lines, *below]) + "\n"


def _marked(text: str) -> str:
    return _MARKS.sub(r"\\\1", visible(text).replace("\n", " "))


def as_latex(table: Table) -> str:
    """Return a table as LaTeX, with the rules of booktabs; a long one is a longtable, over several pages.

    Every letter of a text is printed, none is obeyed; what no font of plain LaTeX has stands as its code point.
    """
    longest = [max((len(_shown(row[at])) for row in table.rows), default=0) for at in range(len(table.headings))]
    wide = [at for at, length in enumerate(longest) if length > _WIDE]
    share = round(0.8 / max(2, len(wide)), 2)
    columns = "".join(
        f"p{{{share}\\linewidth}}" if at in wide else "r" if at in table.numbers else "l" for at in range(len(longest))
    )
    heading = " & ".join(map(latex_text, _headings(table))) + r" \\"
    body = [" & ".join(latex_text(_shown(entry)) for entry in row) + r" \\" for row in table.rows]
    caption = rf"\caption{{{latex_text(table.caption)}}}"
    label = rf"\label{{tab:{table.name}}}"
    notes = [rf"\par\smallskip\footnotesize {latex_text(note)}" for note in table.notes]
    if len(body) > _LONG:
        begin = [rf"\begin{{longtable}}{{{columns}}}", rf"{caption}{label} \\", r"\toprule", heading, r"\midrule"]
        lines = [*begin, r"\endhead", r"\bottomrule", r"\endfoot", *body, r"\end{longtable}", *notes]
        needed = r"\usepackage{booktabs,longtable}"
    else:
        rules = [r"\toprule", heading, r"\midrule", *body, r"\bottomrule"]
        inside = [rf"\begin{{tabular}}{{{columns}}}", *rules, r"\end{tabular}", *notes]
        lines = [r"\begin{table}", r"\centering", caption, label, *inside, r"\end{table}"]
        needed = r"\usepackage{booktabs}"
    return "\n".join([f"% {needed}", *lines]) + "\n"


def latex_text(text: str) -> str:
    """Return a text as LaTeX prints it letter by letter."""
    escaped = visible(text).translate(_TEX)
    return _PLAIN.sub(lambda found: rf"\texttt{{U+{ord(found[0]):04X}}}", escaped)


def _headings(table: Table) -> list[str]:
    units = table.units or ("",) * len(table.headings)
    return [f"{name} ({unit})" if unit else name for name, unit in zip(table.headings, units, strict=True)]


def _shown(entry: str | Phrase | Cell) -> str:
    """Return what a table shows in one place, on one line."""
    if isinstance(entry, str):
        return entry
    if isinstance(entry, Phrase):
        return f"{entry.text} ({entry.below})" if entry.below else entry.text
    return " ".join(filter(None, (entry.value, entry.interval or entry.note, f"({entry.few})" if entry.few else "")))
