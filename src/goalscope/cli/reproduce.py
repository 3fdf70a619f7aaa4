"""`goalscope reproduce`: one figure or table of a paper, run, measured, and compared with the printed numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goalscope.cli.console import json_text, progress, say, table
from goalscope.cli.help import flag, option
from goalscope.cli.studies import Settings, load_study, run_study_of

if TYPE_CHECKING:
    from goalscope.reproduction import Item

RESULT = "reproduction.json"


def reproduce(
    item: Annotated[
        str, typer.Argument(metavar="ITEM", help="A figure or table, e.g. 'telos table 2'; --list prints all.")
    ] = "",
    out: Annotated[Path | None, option("DIR", "The run directory to write.", "--out", "-o")] = None,
    listed: Annotated[bool, flag("--list", "Print all items with what they work with, run nothing.")] = False,
    model: Annotated[
        str | None, option("NAME", "A ready model (GPT-OSS-20B, GPT-4.1, ...), a folder, a GGUF file or a hub name.")
    ] = None,
    scale: Annotated[float, option("PART", "Part of the published size, e.g. 0.1.")] = 1.0,
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

    if listed:
        list_items()
        return
    if not item or out is None:
        raise ValueError("reproduce must be given an item and --out DIR, or --list to see the items")
    chosen = find(item)
    if chosen.why_not:
        raise ValueError(f"{chosen.name} ({chosen.title}) has no command: {chosen.why_not}")
    if chosen.exact:
        if model or logs or scale != 1 or settings or template:
            raise ValueError(
                f"{chosen.name} is computed exactly, it takes no --model, --logs, --scale, --template and --set: leave "
                "them out"
            )
        _compute_exact(chosen, out)
    elif logs is not None:
        if template:
            raise ValueError(
                "--template is for models that are asked, got --logs of answers that are there: leave one out"
            )
        _read_recorded(chosen, logs, out)
    else:
        _run(chosen, out, model, scale, template or [], workers, settings or [])


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


def _compute_exact(item: "Item", out: Path) -> None:
    from goalscope.reproduction.exact import compute

    out.mkdir(parents=True, exist_ok=True)
    result = compute(item, out)
    for text in result.texts:
        say(text)
    _print(item, result.lines, "exact")
    _write(item, out, result.lines, [], agents=[])
    if result.files:
        say("written: " + ", ".join(map(str, result.files)))


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
    _read(item, path, out, [])


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
    from goalscope.cli.overrides import Overrides, read_overrides
    from goalscope.reproduction.comparable import as_printed
    from goalscope.reproduction.items import scaled
    from goalscope.runs import Study

    changes = read_overrides(None, None, [*item.changes], model, network=True)
    study = scaled(load_study(item.study, changes), scale, least=item.least)
    if model or templates:
        plain = study.dump()
        as_printed(item, plain, templates)
        study = Study.parse(plain)
    study = Overrides(settings=settings).apply(study)  # after the scale, so that they can be smaller than it
    say(f"{item.name}: {item.title}")
    passed = {"item": item.name, "scale": scale, **changes.given(), **({"changed": list(settings)} if settings else {})}
    run_study_of(study, out, workers, passed=passed, full=item.full and scale == 1, guide=False, command="reproduce")
    names = [entry.build().name for entry in study.agents_ if entry.kind in ("chat", "task-chat")]
    _read(item, out, out, names)


def _read(item: "Item", path: Path, out: Path, agents: Sequence[str]) -> None:
    """Measure a run if necessary, and print and write the lines of an item."""
    from goalscope.cli.measuring import warn_of_few
    from goalscope.front.measuring import can_report, measured_rows
    from goalscope.reproduction import Subject, read
    from goalscope.reproduction.claims import decide, lines_of
    from goalscope.reproduction.readings import with_all_agents
    from goalscope.runs import Store

    rows = measured_rows(path, progress)
    with Store(path) as store:
        descriptions = dict(store.agents().values())
        all_agents = store.agent_names()
    models = [name for name, description in descriptions.items() if description.get("kind") in ("chat", "task-chat")]
    # Without a language model the first agent is read: a mean over agents of different goals would be of none of them.
    read_agents = [name for name in agents if name in all_agents] or models or all_agents[:1]
    described = {name: descriptions.get(name, {}) for name in read_agents}
    subject = Subject(agents=tuple(read_agents), model=_paper_name(read_agents, descriptions), descriptions=described)
    if others := [name for name in all_agents if name not in read_agents]:
        say(f"read: {', '.join(read_agents)}; also in this run: {', '.join(others)}", error=True)
    lines = read(item, rows, with_all_agents(item, subject, all_agents))
    tested = decide(item, rows, subject)
    _print(item, lines, ", ".join(read_agents))
    for claim in tested:
        for line in lines_of(claim):
            say(line)
    if tested:
        say("Claims: intervals over grids; differences of neighbours hold together. “Not shown” is not “not so”.")
    _write(item, out, lines, [asdict(claim) for claim in tested], agents=read_agents)
    if can_report():
        from goalscope.reproduction import page

        numbers = (out / RESULT).read_text(encoding="utf-8")
        page.write(item, lines, tested, read_agents, run=path, numbers=numbers, path=out / "report.html")
    warn_of_few(line.ours for line in lines if line.ours is not None)
    say(f"written: {out / RESULT}; the report's section: {item.section} ({quote(str(out / 'report.html'))})")


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


def _print(item: "Item", lines: Sequence[Any], who: str) -> None:
    from goalscope.reproduction.readings import in_figures

    if not lines:
        return
    papers = list(dict.fromkeys(name for line in lines for name in line.published))
    reasons = list(dict.fromkeys(reason for line in lines for reason in line.differs))
    compared = bool(reasons) or any(line.within is not None for line in lines)
    controlled = any(line.control is not None for line in lines)
    columns = ["", "", *(f"published, {name}" for name in papers), f"ours, {who}"[:60]]
    columns += [*(["control"] if controlled else []), "n", "grids"]
    columns += ["published within ours"] if compared else []
    rows = []
    for line in lines:
        cells = [line.published.get(name) for name in papers]
        printed = ["" if cell is None else str(cell) for cell in cells]
        ours, exact = in_figures(line.ours, line.percent), line.ours is None or line.ours.method == "exact"
        n, grids = ("", "") if exact or line.ours is None else (str(line.ours.n), str(line.ours.clusters))
        beside = [in_figures(line.control, line.percent) if line.control is not None else ""] if controlled else []
        within = {True: "yes", False: "no", None: ""}[line.within]
        if line.differs:
            within = f"not compared: {', '.join(str(reasons.index(reason) + 1) for reason in line.differs)}"
        value = "" if line.value is None else f"{line.value:g}" if isinstance(line.value, float) else str(line.value)
        rows.append((line.label, value, *printed, ours, *beside, n, grids, *([within] if compared else [])))
    table(columns, rows, title=f"{item.name}: {item.title}", numbers=range(2, 3 + len(papers)))
    for number, reason in enumerate(reasons, 1):
        say(f"{number}: {reason}")
    if item.note:
        say(item.note)


def _write(item: "Item", out: Path, lines: Sequence[Any], claims: Sequence[Any], *, agents: Sequence[str]) -> None:
    """Write the results as JSON."""
    from goalscope.plain_files import write_text

    content: dict[str, Any] = {"item": item.name, "title": item.title, "agents": agents, "note": item.note}
    content |= {"lines": [asdict(line) for line in lines], "claims": claims}
    write_text(out / RESULT, json_text(content, indent=1) + "\n")
