"""The commands that write files from runs: `export` (tables), `figure` (one figure or table) and `view` (episodes)."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated

from goalscope._ground import registry
from goalscope._ground.arguments import Between, OutFile, OutFolder, Reads, RunDirectory, Writes
from goalscope._ground.folder import Folder, NamedFile, temporary_folder
from goalscope._ground.words import counted
from goalscope.cli.console import progress, say, table
from goalscope.cli.front.importing import import_logs
from goalscope.cli.front.measuring import measure_missing
from goalscope.report.blocks import Table, size_in_words
from goalscope.report.exports import Named, find, named_of_run, title_of, write, write_all
from goalscope.runs import Store, export_parquet
from goalscope.runs.export import write_checksums
from goalscope.verdict.opening import run_folders
from goalscope.verdict.page import named_of
from goalscope.verdict.plan import PLAN
from goalscope.verdict.viewer import serving, write_view


def export(
    run: RunDirectory,
    *,
    out: OutFolder,
    activations: Sequence[str] = (),
    capture: Sequence[str] = (),
    format: str = "",
) -> None:
    """Export the worlds, episodes, steps and rows of a run as Parquet files, optionally with its activations.

    Args:
        run: the run directory (it contains run.db).
        out: the directory to write to.
        activations (FORMATS): also export the captured activations: parquet, safetensors or parquet,safetensors.
        capture (IDS): with --activations: export only these captures, separated by commas.
        format (NAME): instead of Parquet, use the format of another package, e.g. inspect for logs that the Inspect
            viewer and Scout can open.

    Examples:
        goalscope export runs/demo --out tables
        goalscope export runs/baseline --out tables --activations parquet,safetensors
    """
    if format and (activations or capture):
        raise ValueError("--format cannot export activations: leave out --activations and --capture")
    if capture and not activations:
        raise ValueError("--capture selects among the exported activations: add --activations parquet")
    for name, folder in run_folders(run).items():
        place = Folder(out).below(name).checked() if name else out
        if format:
            _export_as(folder, place, format)
        else:
            _export_run(folder, place, activations, capture)


def _export_run(path: Path, out: Path, formats: Sequence[str], captures: Sequence[str]) -> None:
    with Store(path) as store:
        if formats:  # first, to refuse a format that cannot be written before writing the tables
            from goalscope.inside.activations.exchange import README, export_activations

            folder_path = Folder(out).below("activations").checked()
            with progress("files of activations") as show:
                folders = export_activations(store, folder_path, formats=formats, chosen=captures, progress=show)
        written = export_parquet(store, out)
    say(f"checksums: {write_checksums(out, [*written.values(), *(folders if formats else ())])}")
    for name, file in sorted(written.items()):
        say(f"{name}: {file} ({size_in_words(NamedFile(file).status().st_size)})")
    for folder in folders if formats else ():
        size = sum(status.st_size for _, status in Folder(folder).entries())
        say(f"activations: {folder} ({size_in_words(size)}), described in {README}")


def _export_as(folder: Path, place: Path, format: str) -> None:
    """Write a run in a registered format."""
    write = registry.resolve("exporter", format)
    with Store(folder) as store, progress("episodes") as show:
        written = write(store, place, show)
    say(f"checksums: {write_checksums(place, written)}")
    for file in written:
        say(f"{format}: {file} ({size_in_words(NamedFile(file).status().st_size)})")


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
        write(find(by_name, name), out)
        say(f"{name}: {out}")


def _named(run: Path) -> Named:
    if Folder(run).has_file(PLAN):
        return named_of(run)
    measure_missing(run, progress)
    return named_of_run(run)


def view(
    paths: Annotated[Sequence[Path], Reads("run", "evaluation", "log")],
    *,
    out: OutFile = None,
    reader: str | None = None,
    serve: bool = False,
    port: Annotated[int, Between(0, 65535)] = 0,
) -> None:
    """Write one HTML page that shows every episode step by step: what the agent saw, thought and did.

    Each move is marked as optimal or not. Episodes of several runs or logs in the same world stand side by side.
    The page works offline and without a server. If it exceeds 20 MB, part of it is stored in a folder beside it.

    Args:
        paths (RUN|EVALUATION|LOG ...): directories of runs or evaluations, or log files that import can read.
        out: the page to write. Default: view.html in the directory, or beside the first log.
        reader (MODULE:FUNCTION): for Inspect logs of other tasks: a function that turns a sample into an episode.
        serve: also serve the page, to this machine alone, until you press Ctrl-C.
        port: with --serve: the port; 0 chooses a free one.

    Examples:
        goalscope view runs/theseus
        goalscope view runs/demo --out demo.html --serve
        goalscope view first.eval second.eval
    """
    is_log = NamedFile(paths[0]).is_there()
    if out is None and len(paths) > 1 and not is_log:
        raise ValueError("several directories were given, so the page has no default path: add --out FILE")
    page = out or (paths[0].parent if is_log else paths[0]) / "view.html"
    with temporary_folder() as place:
        names = _distinct([path.stem for path in paths])
        directories = [_directory_of(path, place.path / name, reader) for path, name in zip(paths, names, strict=True)]
        written = write_view(directories, page)
    say(f"{counted(written.episodes, 'episode')}, {size_in_words(written.octets)}: {written.page.resolve()}")
    if written.shards:
        say(f"{counted(written.shards, 'file')} in {written.page.stem}.data: send this folder with the page")
    if serve:
        with serving(written.page, port) as (address, wait):
            say(f"{address} (this machine alone; Ctrl-C ends it)")
            wait()


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names of which repeated ones are numbered."""
    before = [names[:number].count(name) for number, name in enumerate(names)]
    return [f"{name}-{count + 1}" if count else name for name, count in zip(names, before, strict=True)]


def _directory_of(path: Path, place: Path, reader: str | None) -> Path:
    """Return a directory of a run or an evaluation; a log becomes a run in a temporary place.

    Raises:
        ValueError: no episode of the log could be read.
    """
    if not NamedFile(path).is_there():
        return path
    result = import_logs(path, place, reader=reader)
    for problem in result.problems:
        say(f"{problem}", error=True)
    if not Folder(place).is_there():
        advice = f"goalscope import {quote(str(path))} --check lists why"
        raise ValueError(f"{path} holds no episode that can be shown; {advice}")
    return place
