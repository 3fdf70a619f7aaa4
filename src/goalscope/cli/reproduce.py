"""`goalscope reproduce`: one figure or table of a paper, run, measured, and compared with the printed numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goalscope.cli.console import duration, json_text, say, show, table
from goalscope.cli.help import flag, option
from goalscope.cli.studies import Settings, load_study, run_study_of

if TYPE_CHECKING:
    from goalscope.reproduction import Item
    from goalscope.reproduction.claims import Tested
    from goalscope.reproduction.readings import Line
    from goalscope.runs import Study


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
        from goalscope.cli.reproduce_all import reproduce_all

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


def compute_exact(item: "Item", out: Path) -> None:
    """Compute an exact item, and print and write it."""
    from goalscope.reproduction.claims import decide_exact
    from goalscope.reproduction.exact import compute

    out.mkdir(parents=True, exist_ok=True)
    result = compute(item, out)
    for text in result.texts:
        say(text)
    tested = decide_exact(item, result.lines)
    if result.lines:
        _show(item, result.lines)
    _say_claims(tested)
    _write(item, out, result.lines, tested, [], scale=0)
    if result.files:
        say("written: " + ", ".join(map(str, result.files)))


def _show(item: "Item", lines: Sequence["Line"]) -> None:
    from goalscope.reproduction.page import table_of

    show(table_of(item, lines), title=f"{item.name}: {item.title}")


def _write(
    item: "Item",
    out: Path,
    lines: Sequence["Line"],
    tested: Sequence["Tested"],
    agents: Sequence[str],
    *,
    scale: float,
) -> str:
    """Write a result as JSON and return its text."""
    from goalscope.plain_files import write_text
    from goalscope.reproduction.stored import RESULT, Result, key_of

    key = key_of(item, scale)
    result = Result(key=key, scale=scale, agents=tuple(agents), lines=tuple(lines), tested=tuple(tested))
    text = json_text(result.plain(item), indent=1) + "\n"
    write_text(out / RESULT, text)
    return text


def _say_claims(tested: Sequence["Tested"]) -> None:
    from goalscope.reproduction.claims import lines_of

    for claim in tested:
        for line in lines_of(claim):
            say(line)


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


def published_study(item: "Item", scale: float, model: str | None = None) -> "Study":
    """Return the study of an item at a part of its published size."""
    from goalscope.cli.overrides import read_overrides
    from goalscope.reproduction.items import scaled

    changes = read_overrides(None, None, [*item.changes], model, network=True)
    return scaled(load_study(item.study, changes), scale, least=item.least)


def run_item(
    item: "Item", study: "Study", out: Path, scale: float, workers: int = 1, passed: Mapping[str, Any] | None = None
) -> None:
    """Run the study of an item, or go on with it."""
    full = item.full and scale == 1
    given = {"item": item.name, "scale": scale, **(passed or {})}
    run_study_of(study, out, workers, passed=given, full=full, guide=False, command="reproduce")


def takes(seconds: Sequence[float] | None) -> str:
    """Return what some work takes in words: ``about 4 min (3 min to 8 min) on two cores``."""
    if seconds is None:
        return "how long it takes is not known: it was not measured at this size"
    low, middle, high = map(duration, seconds)
    return f"about {middle} ({low} to {high}) on two cores"


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
    from goalscope.reproduction.comparable import as_printed
    from goalscope.reproduction.costs import seconds
    from goalscope.runs import Study

    study = published_study(item, scale, model)
    if model or templates:
        plain = study.dump()
        as_printed(item, plain, templates)
        study = Study.parse(plain)
    study = Overrides(settings=settings).apply(study)  # after the scale, so that they can be smaller than it
    say(f"{item.name}: {item.title}" + ("" if model else f"; {takes(seconds(item, study))}"))
    passed = {**({"model": model} if model else {}), **({"changed": list(settings)} if settings else {})}
    run_item(item, study, out, scale, workers, passed)
    names = [entry.build().name for entry in study.agents_ if entry.kind in ("chat", "task-chat")]
    read_run(item, out, out, names, scale=scale)


def read_run(item: "Item", path: Path, out: Path, agents: Sequence[str], *, scale: float = 0) -> None:
    """Measure a run if necessary, and print and write the lines of an item."""
    from goalscope.cli.measuring import can_report, measured_rows, warn_of_few
    from goalscope.reproduction import Subject, read
    from goalscope.reproduction.claims import decide
    from goalscope.reproduction.comparable import other_worlds
    from goalscope.reproduction.readings import with_all_agents
    from goalscope.runs import Store

    rows = measured_rows(path)
    with Store(path) as store:
        descriptions = dict(store.agents().values())
        all_agents, ran = store.agent_names(), store.study()
    models = [name for name, description in descriptions.items() if description.get("kind") in ("chat", "task-chat")]
    # Without a language model the first agent is read: a mean over agents of different goals would be of none of them.
    read_agents = [name for name in agents if name in all_agents] or models or all_agents[:1]
    described = {name: descriptions.get(name, {}) for name in read_agents}
    subject = Subject(
        agents=tuple(read_agents),
        model=_paper_name(read_agents, descriptions),
        descriptions=described,
        differs=tuple(other_worlds(published_study(item, 1), ran, probed=item.full)),
    )
    if others := [name for name in all_agents if name not in read_agents]:
        say(f"also in this run: {', '.join(others)}", error=True)
    say(f"read: {', '.join(read_agents)}")
    lines = read(item, rows, with_all_agents(item, subject, all_agents))
    tested = decide(item, rows, subject, all_agents)
    _show(item, lines)
    _say_claims(tested)
    if tested:
        say("Sentences: intervals over grids; parts of one hold together. “Not shown” is not “not so”.")
    numbers = _write(item, out, lines, tested, read_agents, scale=scale)
    if can_report():
        from goalscope.reproduction import page

        page.write(item, lines, tested, read_agents, scale=scale, run=path, numbers=numbers, path=out / "report.html")
    warn_of_few(line.ours for line in lines if line.ours is not None)
    page_path = quote(str(out / "report.html"))
    say(f"written: {out / 'reproduction.json'}; the report's section: {item.section} ({page_path})")


def _paper_name(agents: Sequence[str], descriptions: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the papers' name of the model of the agents, "" where it is none of theirs."""
    from goalscope.preflight.model_defaults import ready_name

    names = set()
    for name in agents:
        description = descriptions.get(name, {})
        model = description.get("model")
        candidates = [description.get("model_id"), *(model.values() if isinstance(model, Mapping) else [model]), name]
        ready = (ready_name(text) for text in candidates if isinstance(text, str))
        names.add(next((text for text in ready if text is not None), ""))
    return names.pop() if len(names) == 1 else ""
