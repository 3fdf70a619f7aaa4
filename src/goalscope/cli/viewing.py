"""The command `view`."""

from pathlib import Path
from typing import Annotated

import typer

from goalscope.cli.help import Reads, Writes, flag, option


def view(
    paths: Annotated[
        list[Path],
        Reads("run", "evaluation"),
        typer.Argument(metavar="RUN|EVALUATION ...", help="Directories of runs or of evaluations."),
    ],
    out: Annotated[
        Path | None, Writes("file"), option("FILE", "The page; view.html in the directory by default.", "--out", "-o")
    ] = None,
    serve: Annotated[bool, flag("--serve", "Also serve it on this machine alone, until Ctrl-C.")] = False,
    port: Annotated[int, option("N", "With --serve: the port; 0 takes a free one.", min=0, max=65535)] = 0,
) -> None:
    """Write a page that shows every episode step by step: what was seen, thought and done, beside what was optimal.

    It is one file to send to somebody, and works without a server. Above 20 MB a folder of its name lies beside it.
    """
    from goalscope._ground.words import counted
    from goalscope.cli.console import say
    from goalscope.cli.errors import check_outputs
    from goalscope.report.blocks import size_in_words
    from goalscope.verdict.viewer import serving, write_view

    if out is None and len(paths) > 1:
        raise ValueError("several directories must be given a page of their own: add --out FILE")
    check_outputs(out)
    written = write_view(paths, paths[0] / "view.html" if out is None else out)
    say(f"{counted(written.episodes, 'episode')}, {size_in_words(written.octets)}: {written.page.resolve()}")
    if written.shards:
        say(f"{counted(written.shards, 'file')} of it in {written.page.stem}.data: send this folder with the page")
    if serve:
        with serving(written.page, port) as (address, wait):
            say(f"{address} (this machine alone; Ctrl-C ends it)")
            wait()
