"""Import recorded trajectories into a run directory."""

from pathlib import Path
from typing import Annotated

from goalscope._ground.arguments import Reads, Writes
from goalscope._ground.folder import anything_at
from goalscope._ground.own import consent, load_function
from goalscope._ground.progress import TALLY, aloud
from goalscope.cli.front.running import check_kept_apart
from goalscope.runs.importers.front import import_into, import_path
from goalscope.runs.importers.problems import ImportLog, SampleReader


def import_logs(
    path: Annotated[str | Path, Reads("log")],
    out: Annotated[str | Path | None, Writes("directory")] = None,
    *,
    reader: str | SampleReader | None = None,
) -> ImportLog:
    """Import a file or folder of recorded trajectories into a run directory, or only check it.

    Args:
        path: a file or folder: JSONL, Inspect logs, or the layout of the TELOS authors.
        out: the run directory to write; without it, everything is checked and nothing is written.
        reader (MODULE:FUNCTION): for Inspect logs of other tasks: a function that turns a sample into an episode.

    Raises:
        FileNotFoundError: if there is no such file or folder.
        ValueError: if ``out`` contains the run of a study or is damaged, or there is no such reader.
        OSError: if the store cannot be opened or written; BlockingIOError if another process is writing to it.
        ImportError: if a package that a format needs is not installed.
    """
    source = Path(path)
    if not anything_at(source):
        raise FileNotFoundError(f"there is no file or folder {str(path)!r} to import: check the path")
    if out is not None:
        check_kept_apart(Path(out), imported=True)
    consent(reader)
    read_sample = load_function(reader, "a reader of samples") if isinstance(reader, str) else reader
    with aloud():
        TALLY.tell(f"reading {source}")
        if out is None:
            return import_path(source, check=True, reader=read_sample)
        return import_into(source, out, reader=read_sample)
