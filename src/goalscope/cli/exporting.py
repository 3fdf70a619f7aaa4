"""The command `export`."""

from collections.abc import Sequence
from pathlib import Path

from goalscope._ground import registry
from goalscope._ground.arguments import OutFolder, RunDirectory
from goalscope._ground.folder import Folder, NamedFile
from goalscope.cli.console import progress, say
from goalscope.report.blocks import size_in_words
from goalscope.runs import Store, export_parquet
from goalscope.runs.export import write_checksums
from goalscope.verdict.opening import run_folders


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
