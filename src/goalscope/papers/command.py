"""`goalscope reproduce`, which runs and measures a figure or table of a paper and compares it with printed numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from goalscope.cli.console import say, table
from goalscope.cli.generator import Positive, Reads, Separated, Settings, Writes
from goalscope.cli.program import command


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
    """Reproduce one figure or table of a paper: run its study, measure it, and report it beside the printed numbers.

    Called again with the same directory, it continues where it stopped.

    Args:
        item: a figure or table, e.g. 'telos table 2'; --list prints all.
        out: the run directory to write.
        listed: print all items with the minimum access that each needs, and run nothing.
        everything: run or continue all items whose name begins with ITEM, and write one table and one page.
        markdown: with --all, also write the table to FILE; if FILE exists, between the two marks in it.
        model (NAME): a ready model (GPT-OSS-20B, GPT-4.1, ...), a folder, a GGUF file or a hub name.
        scale (PART): fraction of the published size, e.g. 0.1; small takes less than an hour for all items together.
        logs (PATH): read recorded logs or a run directory instead of running the study.
        template (FILE): your copy of a prompt printed in the paper. Repeatable, once per prompt.
        workers: number of concurrent calls.
        settings (KEY=VALUE): change any key of the study, e.g. worlds.0.count=3. Repeatable.

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
        from goalscope.papers.working import reproduce_all

        if model or logs or template or settings:
            raise ValueError(
                "--all runs the bundled models, so it cannot be combined with --model, --logs, --template or "
                "--set: leave these out"
            )
        reproduce_all(item, out, scale, markdown, workers)
    elif not item or out is None:
        raise ValueError("give an item (or --all) and --out DIR; --list prints all items")
    elif markdown is not None:
        raise ValueError(
            "--markdown writes the table of all items, so it needs --all: add --all or leave --markdown out"
        )
    else:
        from goalscope.papers.working import reproduce as reproduce_item

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
    """Print all figures and tables of the papers that can be reproduced, with the access that each needs, and why
    others cannot.
    """
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
