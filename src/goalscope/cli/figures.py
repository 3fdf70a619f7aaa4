"""The command `figure`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goalscope._ground.folder import Folder
from goalscope.cli.help import Reads, Writes, flag, option

if TYPE_CHECKING:
    from goalscope.report.exports import Named


def figure(
    run: Annotated[
        Path,
        Reads("run", "evaluation"),
        typer.Argument(metavar="RUN", help="The directory of a run, or of an evaluation."),
    ],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The name below the figure on the page, or see --list.")
    ] = None,
    out: Annotated[
        Path | None,
        Writes("file"),
        option("FILE", "Write it there: .svg, .pdf, .png or .csv; a table as .tex, .md or .csv.", "--out", "-o"),
    ] = None,
    listing: Annotated[bool, flag("--list", "List the names of all figures and tables.")] = False,
    every: Annotated[
        Path | None,
        Writes("directory"),
        option("DIR", "Write all there: figures as SVG and CSV, tables as LaTeX, Markdown, CSV.", "--all"),
    ] = None,
) -> None:
    """Write a figure or a table of the page of a run or of an evaluation, list their names, or write all of them."""
    from goalscope._ground.words import counted
    from goalscope.cli.console import say, table
    from goalscope.cli.errors import check_outputs
    from goalscope.report.blocks import Table
    from goalscope.report.exports import find, title_of, write, write_all

    if (name is None) != (out is None) or [name is not None, listing, every is not None].count(True) != 1:
        raise ValueError("figure must be given one of: NAME with --out FILE, --list, or --all DIR")
    check_outputs(out)
    by_name = _named(run)
    if listing:
        rows = [
            (label, "table" if isinstance(block, Table) else "figure", title_of(block))
            for label, block in by_name.items()
        ]
        table(("name", "what", "shows"), rows, title=f"Figures and tables of {run}")
    elif every is not None:
        from goalscope.runs.export import write_checksums

        files = write_all(by_name, every)
        say(f"{counted(len(files), 'file')}: {every}; checksums: {write_checksums(every, files)}")
    elif name is not None and out is not None:
        Folder(out.parent).make()
        write(find(by_name, name), out)
        say(f"{name}: {out}")


def _named(run: Path) -> "Named":
    from goalscope.cli.console import progress
    from goalscope.cli.front.measuring import measure_missing
    from goalscope.report.exports import named_of_run
    from goalscope.verdict.judging import PLAN
    from goalscope.verdict.page import named_of

    if Folder(run).has_file(PLAN):
        return named_of(run)
    measure_missing(run, progress)
    return named_of_run(run)
