"""Import recorded trajectories into a run directory."""

from pathlib import Path
from shlex import quote
from typing import Annotated

from goalscope._ground.arguments import Reads, Writes
from goalscope._ground.folder import anything_at
from goalscope._ground.own import consent, load_function
from goalscope._ground.progress import TALLY, aloud
from goalscope._ground.words import counted
from goalscope.cli.console import say
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


def import_and_show(
    path: Annotated[Path, Reads("log")],
    *,
    out: Annotated[Path | None, Writes("directory")] = None,
    check: bool = False,
    reader: str | None = None,
) -> bool:
    """Import recorded trajectories as a run, and compare each recorded label with the one that is computed.

    The exit status is 1 if there are problems.

    Args:
        path: a file or folder: JSONL, Inspect logs, or the layout of the TELOS authors.
        out: the run directory to write.
        check: check everything, but write nothing.
        reader (MODULE:FUNCTION): for Inspect logs of other tasks: a function that turns a sample into an episode.

    Examples:
        goalscope import logs.jsonl --out runs/logs
        goalscope import logs --check
    """
    if (out is None) != check:
        raise ValueError("give import either --out DIR (to write a run) or --check (to write nothing)")
    result = import_logs(path, out, reader=reader)
    for line in result.lines():
        say(line)
    if result.exit_status:
        if out is None:
            state = "the file was checked, and nothing was written"
        elif result.counts.get("episodes stored") or result.counts.get("episodes that were stored before"):
            state = f"the rest is in {out}; next: goalscope measure {quote(str(out))}"
        else:
            state = "nothing was imported or written (docs/import.md describes the format of a line)"
        say(f"{counted(result.problem_count, 'problem')}; {state}", error=True)
    elif out is None:
        episodes = result.counts.get("trajectories", 0)
        state = "everything can be imported" if episodes else "every label agrees, but there is no episode"
        say(f"no problem: {state}")
    else:
        say(f"no problem: everything is in {out}; next: goalscope measure {quote(str(out))}")
    return not result.exit_status
