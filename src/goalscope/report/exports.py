"""Tables and figures outside of a page: LaTeX, Markdown and CSV, in which text stays text.

A table of estimates has its intervals beside its values; as CSV each estimate has columns of its own.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from goalscope.report.blocks import Cell, Phrase, Table
from goalscope.report.figures import Record, save, visible
from goalscope.report.ledger import json_number
from goalscope.report.specs import Figure

FIGURES: Final = (".svg", ".pdf", ".png", ".csv")
TABLES: Final = (".tex", ".md", ".csv")
"""Endings of the files that figures and tables are written as."""

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""With what a cell begins that a spreadsheet would take for a formula."""

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
    if isinstance(shown, Figure) and path.suffix != ".csv":
        save(shown.drawn, path)
        return
    if isinstance(shown, Figure):
        text = as_csv(shown.drawn.records)
    else:
        text = {".tex": as_latex, ".md": as_markdown, ".csv": table_as_csv}[path.suffix](shown)
    path.write_text(text, encoding="utf-8", newline="")


def as_csv(records: Sequence[Record]) -> str:
    """Return records as CSV: undefined numbers are empty, no text can be taken for a formula."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    return _csv(columns, ([record.get(name) for name in columns] for record in records))


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
    return _csv(list(chain.from_iterable(headings)), rows)


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


def _csv(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows(map(_cell, row) for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value


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
