"""`goalscope reproduce`: one figure or table of a paper, run, measured, and compared with the printed numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from goalscope._ground.arguments import Positive, Reads, Separated, Settings, Writes
from goalscope.cli.console import say, table
from goalscope.cli.further import command
from goalscope.papers.working import reproduce as reproduce_item


@command(
    "reproduce",
    summary="Make one figure or table of a paper, beside the printed one.",
)
def reproduce(
    item: str = "",
    *,
    out: Annotated[Path | None, Writes("directory")] = None,
    listed: bool = False,
    everything: bool = False,
    markdown: Annotated[Path | None, Reads("prompt"), Writes("file")] = None,
    model: Annotated[str | None, Reads("model")] = None,
    scale: str = "1",
    logs: Annotated[Path | None, Reads("log", "run")] = None,
    template: Annotated[Sequence[Path], Reads("prompt"), Separated("")] = (),
    workers: Positive = 1,
    settings: Settings = (),
) -> None:
    """Make one figure or table of a paper: its study at its size, measured, reported, beside the printed numbers.

    On the same directory it goes on where it stopped.

    Args:
        item: a figure or table, e.g. 'telos table 2'; --list prints all.
        out: the run directory to write.
        listed: print all items with what they work with, run nothing.
        everything: run all items whose name begins with ITEM, or go on with them; one table and one page.
        markdown: with --all: write the table into FILE, between its marks if it has them.
        model (NAME): a ready model (GPT-OSS-20B, GPT-4.1, ...), a folder, a GGUF file or a hub name.
        scale (PART): part of the published size, e.g. 0.1; small: all items together in less than an hour.
        logs (PATH): read these in place of a run: recorded logs, or a run directory.
        template (FILE): your copy of the prompt that the paper prints; once for each prompt.
        workers: calls at the same time.
        settings (KEY=VALUE): another value of any key, e.g. worlds.0.count=3. Repeatable.

    Examples:
        goalscope reproduce --list
        goalscope reproduce --all --scale small --out runs/all
        goalscope reproduce 'meg table k' --out runs/cliff
        goalscope reproduce 'telos table 1 rooms' --scale 0.1 --out runs/rooms
        goalscope reproduce 'telos table 2' --model openai/gpt-oss-20b --out runs/table-2
        goalscope reproduce 'telos figure 12' --logs recorded --out runs/recorded
    """
    if listed:
        list_items()
    elif everything and out is not None:
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
            templates=template,
            settings=settings,
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
