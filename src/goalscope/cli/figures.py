"""The command `figure`."""

from pathlib import Path
from typing import Annotated

from goalscope._ground.arguments import OutFile, Reads, Writes
from goalscope._ground.folder import Folder
from goalscope._ground.words import counted
from goalscope.cli.console import progress, say, table
from goalscope.cli.front.measuring import measure_missing
from goalscope.report.blocks import Table
from goalscope.report.exports import Named, find, named_of_run, title_of, write, write_all
from goalscope.runs.export import write_checksums
from goalscope.verdict.judging import PLAN
from goalscope.verdict.page import named_of


def figure(
    run: Annotated[Path, Reads("run", "evaluation")],
    name: str | None = None,
    *,
    out: OutFile = None,
    listed: bool = False,
    everything: Annotated[Path | None, Writes("directory")] = None,
) -> None:
    """Write a figure or table of a report to a file, list their names, or write all of them.

    Args:
        run: the directory of a run or of an evaluation.
        name: name of the figure or table. The page shows it below the figure or table; --list prints all names.
        out: file to write: .svg, .pdf, .png or .csv for a figure; .tex, .md or .csv for a table.
        listed: list the names of all figures and tables.
        everything: write all of them to this directory: figures as SVG and CSV, tables as LaTeX, Markdown and CSV.

    Examples:
        goalscope figure runs/demo --list
        goalscope figure runs/demo maps-figure-1 --out maps.pdf
        goalscope figure runs/demo results-table-1 --out results.tex
        goalscope figure runs/theseus --all runs/figures
    """
    if (name is None) != (out is None) or [name is not None, listed, everything is not None].count(True) != 1:
        raise ValueError(
            "give either the NAME of a figure or table with --out FILE, or --list to print all names, or --all DIR to "
            "write all"
        )
    by_name = _named(run)
    if listed:
        rows = [
            (label, "table" if isinstance(block, Table) else "figure", title_of(block))
            for label, block in by_name.items()
        ]
        table(("name", "what", "shows"), rows, title=f"Figures and tables of {run}")
    elif everything is not None:
        files = write_all(by_name, everything)
        say(f"{counted(len(files), 'file')}: {everything}; checksums: {write_checksums(everything, files)}")
    elif name is not None and out is not None:
        Folder(out.parent).make()
        write(find(by_name, name), out)
        say(f"{name}: {out}")


def _named(run: Path) -> Named:
    if Folder(run).has_file(PLAN):
        return named_of(run)
    measure_missing(run, progress)
    return named_of_run(run)
