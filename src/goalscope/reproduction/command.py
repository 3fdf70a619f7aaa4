"""`goalscope reproduce`: one figure or table of a paper, run, measured, and compared with the printed numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goalscope.cli.console import say, table
from goalscope.cli.further import command
from goalscope.cli.help import flag, option
from goalscope.cli.studies import Settings
from goalscope.reproduction.working import compute_exact, published_study, read_run, run_item, takes

if TYPE_CHECKING:
    from goalscope.reproduction import Item


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
    out: Annotated[Path | None, option("DIR", "The run directory to write.", "--out", "-o")] = None,
    listed: Annotated[bool, flag("--list", "Print all items with what they work with, run nothing.")] = False,
    every: Annotated[
        bool, flag("--all", "Run all items whose name begins with ITEM, or go on with them; one table and one page.")
    ] = False,
    markdown: Annotated[
        Path | None, option("FILE", "With --all: write the table into FILE, between its marks if it has them.")
    ] = None,
    model: Annotated[
        str | None, option("NAME", "A ready model (GPT-OSS-20B, GPT-4.1, ...), a folder, a GGUF file or a hub name.")
    ] = None,
    scale: Annotated[
        str, option("PART", "Part of the published size, e.g. 0.1; small: all items together in less than an hour.")
    ] = "1",
    logs: Annotated[
        Path | None, option("PATH", "Read these in place of a run: recorded logs, or a run directory.")
    ] = None,
    template: Annotated[
        list[Path] | None,
        option("FILE", "Your copy of the prompt that the paper prints; once for each prompt.", "--template"),
    ] = None,
    workers: Annotated[int, option("N", "Calls at the same time.", min=1)] = 1,
    settings: Settings = None,
) -> None:
    """Make one figure or table of a paper: its study at its size, measured, reported, beside the printed numbers.

    On the same directory it goes on where it stopped.
    """
    from goalscope.reproduction import find
    from goalscope.reproduction.costs import scale_of

    if listed:
        list_items()
        return
    if every and out is not None:
        from goalscope.reproduction.all_items import reproduce_all

        if model or logs or template or settings:
            raise ValueError("--all runs the bundled models, it takes no --model, --logs, --template and --set")
        reproduce_all(item, out, scale, markdown, workers)
        return
    if not item or out is None:
        raise ValueError("reproduce must be given an item (or --all) and --out DIR, or --list to see the items")
    if markdown is not None:
        raise ValueError("--markdown must come with --all: it is the table of all items")
    chosen = find(item)
    if chosen.why_not:
        raise ValueError(f"{chosen.name} ({chosen.title}) has no command: {chosen.why_not}")
    if chosen.exact:
        if model or logs or scale != "1" or settings or template:
            raise ValueError(
                f"{chosen.name} is computed exactly, it takes no --model, --logs, --scale, --template and --set: leave "
                "them out"
            )
        compute_exact(chosen, out)
    elif logs is not None:
        if template:
            raise ValueError(
                "--template is for models that are asked, got --logs of answers that are there: leave one out"
            )
        _read_recorded(chosen, logs, out)
    else:
        _run(chosen, out, model, scale_of(chosen, scale), template or [], workers, settings or [])


def list_items() -> None:
    """Print every item by paper: its name, its minimum input, its content or why it has no command."""
    from goalscope.reproduction import PAPERS, items

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


def _read_recorded(item: "Item", logs: Path, out: Path) -> None:
    """Compute an item from recorded logs, which are imported first, or from an existing run."""
    from goalscope.cli.commands import import_path
    from goalscope.runs.tables import DATABASE

    path = logs
    if not (logs / DATABASE).is_file():
        if item.needs != "logs":
            raise ValueError(
                f"--logs must be a run directory for {item.name}, which works with {item.needs}: recorded logs alone "
                "do not hold what it needs"
            )
        import_path(logs, out)
        path = out
    out.mkdir(parents=True, exist_ok=True)
    read_run(item, path, out, [])


def _run(
    item: "Item",
    out: Path,
    model: str | None,
    scale: float,
    templates: Sequence[Path],
    workers: int,
    settings: Sequence[str],
) -> None:
    """Run the study of an item at its size and compute the item."""
    from goalscope.cli.overrides import Overrides
    from goalscope.reproduction.comparable import as_printed, with_nearest_prompts
    from goalscope.reproduction.costs import seconds

    study = published_study(item, scale, model)
    if model or templates:
        study = as_printed(item, study, templates)
    study = Overrides(settings=settings).apply(study)  # after the scale, so that they can be smaller than it
    if model or templates:
        study = with_nearest_prompts(study)  # after the settings: one of them may name a prompt
    say(f"{item.name}: {item.title}" + ("" if model else f"; {takes(seconds(item, study))}"))
    passed = {**({"model": model} if model else {}), **({"changed": list(settings)} if settings else {})}
    run_item(item, study, out, scale, workers, passed)
    names = [entry.build().name for entry in study.agents_ if entry.kind in ("chat", "task-chat")]
    read_run(item, out, out, names, scale=scale)
