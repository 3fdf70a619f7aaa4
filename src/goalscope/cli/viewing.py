"""The command `view`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from goalscope._ground.arguments import Between, OutFile, Reads
from goalscope._ground.words import counted
from goalscope.cli.console import say
from goalscope.report.blocks import size_in_words
from goalscope.verdict.viewer import serving, write_view


def view(
    paths: Annotated[Sequence[Path], Reads("run", "evaluation")],
    *,
    out: OutFile = None,
    serve: bool = False,
    port: Annotated[int, Between(0, 65535)] = 0,
) -> None:
    """Write one HTML page that shows every episode step by step: what the agent saw, thought and did.

    Each move is marked as optimal or not.
    The page works offline and without a server. If it exceeds 20 MB, part of it is stored in a folder beside it.

    Args:
        paths (RUN|EVALUATION ...): directories of runs or evaluations.
        out: the page to write. Default: view.html in the directory.
        serve: also serve the page to this machine only, until Ctrl-C.
        port: with --serve: the port; 0 chooses a free one.

    Examples:
        goalscope view runs/theseus
        goalscope view runs/demo --out demo.html --serve
    """
    if out is None and len(paths) > 1:
        raise ValueError("several directories were given, so the page has no default path: add --out FILE")
    written = write_view(paths, paths[0] / "view.html" if out is None else out)
    say(f"{counted(written.episodes, 'episode')}, {size_in_words(written.octets)}: {written.page.resolve()}")
    if written.shards:
        say(f"{counted(written.shards, 'file')} in {written.page.stem}.data: send this folder with the page")
    if serve:
        with serving(written.page, port) as (address, wait):
            say(f"{address} (this machine alone; Ctrl-C ends it)")
            wait()
