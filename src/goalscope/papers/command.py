"""`goalscope reproduce`: one figure or table of a paper, run, measured, and compared with the printed numbers."""

from pathlib import Path
from typing import Annotated

import typer

from goalscope.cli.console import say, table
from goalscope.cli.further import command
from goalscope.cli.help import Reads, Writes, flag, option
from goalscope.cli.studies import Settings
from goalscope.papers.working import reproduce as reproduce_item


@command(
    "reproduce",
    summary="Make one figure or table of a paper, beside the printed one.",
    examples=(
        "goalscope reproduce --list",
        "goalscope reproduce --all --scale small --out runs/all",
        "goalscope reproduce 'meg table k' --out runs/cliff",
        "goalscope reproduce 'telos table 1 rooms' --scale 0.1 --out runs/rooms",
        "goalscope reproduce 'telos table 2' --model openai/gpt-oss-20b --out runs/table-2",
        "goalscope reproduce 'telos figure 12' --logs recorded --out runs/recorded",
    ),
)
def reproduce(
    item: Annotated[
        str, typer.Argument(metavar="ITEM", help="A figure or table, e.g. 'telos table 2'; --list prints all.")
    ] = "",
    out: Annotated[
        Path | None, Writes("directory"), option("DIR", "The run directory to write.", "--out", "-o")
    ] = None,
    listed: Annotated[bool, flag("--list", "Print all items with what they work with, run nothing.")] = False,
    every: Annotated[
        bool, flag("--all", "Run all items whose name begins with ITEM, or go on with them; one table and one page.")
    ] = False,
    markdown: Annotated[
        Path | None,
        Reads("prompt"),
        Writes("file"),
        option("FILE", "With --all: write the table into FILE, between its marks if it has them."),
    ] = None,
    model: Annotated[
        str | None,
        Reads("model"),
        option("NAME", "A ready model (GPT-OSS-20B, GPT-4.1, ...), a folder, a GGUF file or a hub name."),
    ] = None,
    scale: Annotated[
        str, option("PART", "Part of the published size, e.g. 0.1; small: all items together in less than an hour.")
    ] = "1",
    logs: Annotated[
        Path | None,
        Reads("log", "run"),
        option("PATH", "Read these in place of a run: recorded logs, or a run directory."),
    ] = None,
    template: Annotated[
        list[Path] | None,
        Reads("prompt"),
        option("FILE", "Your copy of the prompt that the paper prints; once for each prompt.", "--template"),
    ] = None,
    workers: Annotated[int, option("N", "Calls at the same time.", min=1)] = 1,
    settings: Settings = None,
) -> None:
    """Make one figure or table of a paper: its study at its size, measured, reported, beside the printed numbers.

    On the same directory it goes on where it stopped.
    """
    if listed:
        list_items()
    elif every and out is not None:
        from goalscope.papers.all_items import reproduce_all

        if model or logs or template or settings:
            raise ValueError("--all runs the bundled models, it takes no --model, --logs, --template and --set")
        reproduce_all(item, out, scale, markdown, workers)
    elif not item or out is None:
        raise ValueError("reproduce must be given an item (or --all) and --out DIR, or --list to see the items")
    elif markdown is not None:
        raise ValueError("--markdown must come with --all: it is the table of all items")
    else:
        reproduce_item(
            item,
            out,
            model=model,
            scale=scale,
            logs=logs,
            templates=template or (),
            settings=settings or (),
            workers=workers,
        )


def list_items() -> None:
    """Print every item by paper: its name, its minimum input, its content or why it has no command."""
    from goalscope.papers import PAPERS, items

    for short, paper in PAPERS.items():
        own_items = [item for item in items().values() if item.name.split()[0] == short]
        lines = [
            (item.name, "–" if item.why_not else item.needs, item.study, item.why_not or item.title)
            for item in own_items
        ]
        table(("item", "works with", "study", "what it shows, or why it has no command"), lines, title=paper)
    say(
        "works with: the least that is needed; nothing: computed exactly, without an agent. Run one: goalscope "
        "reproduce ITEM --out DIR"
    )
