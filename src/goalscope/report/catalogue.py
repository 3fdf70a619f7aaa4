"""The figures and tables of a page by their names, as commands and notebooks ask for them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from goalscope.checks import near_miss
from goalscope.report.blocks import Table
from goalscope.report.exports import write
from goalscope.report.ledger import RunData
from goalscope.report.page import not_measured, sections_of
from goalscope.report.specs import Declared, Figure
from goalscope.runs.store import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

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
