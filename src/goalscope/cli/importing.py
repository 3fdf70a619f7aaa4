"""The command `import`."""

from pathlib import Path
from shlex import quote
from typing import Annotated

from goalscope._ground.arguments import Reads, Writes
from goalscope._ground.words import counted
from goalscope.cli.console import say
from goalscope.cli.front.importing import import_logs


def import_path(
    path: Annotated[Path, Reads("log")],
    *,
    out: Annotated[Path | None, Writes("directory")] = None,
    check: bool = False,
    reader: str | None = None,
) -> bool:
    """Import recorded trajectories as a run, and check every recorded label against the computed one.

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
