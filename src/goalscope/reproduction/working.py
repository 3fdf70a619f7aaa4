"""What `goalscope reproduce` does with one item: run, compute or read it, print it, write its result and its page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from goalscope.cli.console import json_text, progress, say, show
from goalscope.cli.studies import load_study, run_study_of
from goalscope.progress import duration

if TYPE_CHECKING:
    from goalscope.reproduction import Item
    from goalscope.reproduction.claims import Tested
    from goalscope.reproduction.readings import ItemLine
    from goalscope.runs import Study


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


def read_run(item: "Item", path: Path, out: Path, agents: Sequence[str], *, scale: float = 0) -> None:
    """Measure a run if necessary, and print and write the lines of an item."""
    from goalscope.cli.measuring import warn_of_few
    from goalscope.front.measuring import can_report, measured_rows
    from goalscope.reproduction import ReadAgents, read
    from goalscope.reproduction.claims import decide
    from goalscope.reproduction.comparable import other_worlds
    from goalscope.reproduction.readings import with_all_agents
    from goalscope.runs import Store

    rows = measured_rows(path, progress)
    with Store(path) as store:
        descriptions = dict(store.agents().values())
        all_agents, ran = store.agent_names(), store.study()
    models = [name for name, description in descriptions.items() if description.get("kind") in ("chat", "task-chat")]
    # Without a language model the first agent is read: a mean over agents of different goals would be of none of them.
    read_agents = [name for name in agents if name in all_agents] or models or all_agents[:1]
    described = {name: descriptions.get(name, {}) for name in read_agents}
    subject = ReadAgents(
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


def takes(seconds: Sequence[float] | None) -> str:
    """Return what some work takes in words: ``about 4 min (3 min to 8 min) on two cores``."""
    if seconds is None:
        return "how long it takes is not known: it was not measured at this size"
    low, middle, high = map(duration, seconds)
    return f"about {middle} ({low} to {high}) on two cores"


def _show(item: "Item", lines: Sequence["ItemLine"]) -> None:
    from goalscope.reproduction.page import table_of

    show(table_of(item, lines), title=f"{item.name}: {item.title}")


def _write(
    item: "Item",
    out: Path,
    lines: Sequence["ItemLine"],
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
