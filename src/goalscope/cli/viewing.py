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
    """Write a page that shows every episode step by step: what was seen, thought and done, beside what was optimal.

    It is one file to send to somebody, and works without a server. Above 20 MB a folder of its name lies beside it.

    Args:
        paths (RUN|EVALUATION ...): directories of runs or of evaluations.
        out: the page; view.html in the directory by default.
        serve: also serve it on this machine alone, until Ctrl-C.
        port: with --serve: the port; 0 takes a free one.

    Examples:
        goalscope view runs/theseus
        goalscope view runs/demo --out demo.html --serve
    """
    if out is None and len(paths) > 1:
        raise ValueError("several directories must be given a page of their own: add --out FILE")
    written = write_view(paths, paths[0] / "view.html" if out is None else out)
    say(f"{counted(written.episodes, 'episode')}, {size_in_words(written.octets)}: {written.page.resolve()}")
    if written.shards:
        say(f"{counted(written.shards, 'file')} of it in {written.page.stem}.data: send this folder with the page")
    if serve:
        with serving(written.page, port) as (address, wait):
            say(f"{address} (this machine alone; Ctrl-C ends it)")
            wait()
