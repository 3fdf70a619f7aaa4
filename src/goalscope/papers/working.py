"""The work of `goalscope reproduce` for one item: run, compute or read it, print it, and write its result and page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from goalscope._ground.folder import Folder
from goalscope._ground.progress import duration
from goalscope.cli.console import progress, say, show

if TYPE_CHECKING:
    from goalscope.papers.claims import Tested
    from goalscope.papers.contract import Term
    from goalscope.papers.item import Item
    from goalscope.papers.readings import ItemLine
    from goalscope.papers.stored import Reproduction
    from goalscope.runs import Store, Study
    from goalscope.runs.probing_config import Inside


def reproduce(
    item: str,
    out: str | Path,
    *,
    model: str | None = None,
    scale: float | str = 1,
    logs: str | Path | None = None,
    templates: Sequence[str | Path] = (),
    settings: Sequence[str] = (),
    workers: int = 1,
) -> "Reproduction":
    """Reproduce one figure or table of a paper, print it beside the printed numbers, write its page, and return the
    result.

    Called again with the same directory, it continues where it stopped.

    Args:
        item: name of the figure or table, e.g. "telos table 2".
        out: the run directory.
        model: model to use instead of the study's own model.
        scale: fraction of the published size, or "small".
        logs: recorded logs or a run directory to read instead of running the study.
        templates: your copies of printed prompts.
        settings: KEY=VALUE changes of the study, applied after the scale.
        workers: number of concurrent calls.

    Raises:
        ValueError: an unknown item, an item that cannot be reproduced, or an option that does not apply to it.
    """
    from goalscope.papers.costs import scale_of
    from goalscope.papers.item import find

    chosen, out = find(item), Path(out)
    if chosen.why_not:
        raise ValueError(f"{chosen.name} ({chosen.title}) cannot be reproduced: {chosen.why_not}")
    if chosen.exact:
        if model or logs or float(scale_of(chosen, str(scale))) != 1 or settings or templates:
            raise ValueError(
                f"{chosen.name} is computed exactly, so --model, --logs, --scale, --template and --set do not "
                "apply: leave them out"
            )
        return compute_exact(chosen, out)
    if logs is not None:
        if templates:
            raise ValueError(
                "--template sets the prompt of a model that is run, but --logs reads existing answers: leave "
                "one of them out"
            )
        return _read_given(chosen, Path(logs), out)
    return _run(chosen, out, model, scale_of(chosen, str(scale)), list(map(Path, templates)), workers, settings)


def _read_given(item: "Item", logs: Path, out: Path) -> "Reproduction":
    """Reproduce an item from recorded logs, which are imported first, or from an existing run."""
    from goalscope.cli.front.importing import import_and_show
    from goalscope.runs.tables import DATABASE

    path = logs
    if not Folder(logs).has_file(DATABASE):
        if item.needs != "logs":
            raise ValueError(
                f"{item.name} needs {item.needs}, which recorded logs do not contain: give --logs a run directory"
            )
        import_and_show(logs, out=out)
        path = out
    Folder(out).make()
    return read_run(item, path, out, [])


def _run(
    item: "Item",
    out: Path,
    model: str | None,
    scale: float,
    templates: Sequence[Path],
    workers: int,
    settings: Sequence[str],
) -> "Reproduction":
    """Run the study of an item at the requested size, and read the item from the run."""
    from goalscope.cli.overrides import Overrides
    from goalscope.papers.as_printed import as_printed, with_nearest_prompts
    from goalscope.papers.costs import seconds

    study = published_study(item, scale, model)
    if model or templates:
        study = as_printed(item, study, templates)
    # after the scale, because the settings may ask for less than the scale
    sized, study = study, Overrides(settings=settings).apply(study)
    if model or templates:
        study = with_nearest_prompts(study)  # after the settings, because a setting may name a prompt
    say(f"{item.name}: {item.title}" + ("" if model else f"; {takes(seconds(item, study))}"))
    _warn_of_few_grids(item, study)
    arguments = {**({"model": model} if model else {}), **({"changed": list(settings)} if settings else {})}
    run_item(item, study, out, scale, workers, arguments)
    at_size = all(sized.dump().get(name) == study.dump().get(name) for name in ("worlds", "trajectories", "horizon"))
    return read_run(item, out, out, asked_in(study), scale=scale if at_size else 0)


def _warn_of_few_grids(item: "Item", study: "Study") -> None:
    """Say before anything is run which sentences have too few grids to be tested."""
    from goalscope.papers.answers import TEXTS
    from goalscope.papers.contract import count_tested_grids

    grids = count_tested_grids(item, study)
    lacking = [claim.least for claim in item.claims if claim.least > grids]
    if lacking:
        fields = {"count": len(lacking), "of": len(item.claims), "grids": grids, "least": max(lacking)}
        say(TEXTS("notes/scale", **fields), error=True)


def asked_in(study: "Study") -> list[str]:
    """Return the names of the language models among the agents of a study."""
    return [entry.build().name for entry in study.agents_ if entry.kind in ("chat", "task-chat")]


def published_study(item: "Item", scale: float, model: str | None = None) -> "Study":
    """Return the study of an item at a fraction of its published size."""
    from goalscope.cli.overrides import StudyOptions, load_study
    from goalscope.papers.item import scaled

    options = StudyOptions(settings=item.changes, model=model)
    study = load_study(item.study, options.read(network=True))
    return scaled(study, scale, least=item.least, tested=item.tested)


def run_item(
    item: "Item", study: "Study", out: Path, scale: float, workers: int = 1, origin: Mapping[str, Any] | None = None
) -> None:
    """Run the study of an item, or continue it."""
    from goalscope.cli.console import progress
    from goalscope.cli.front.running import show_stages, stages

    full = item.full and scale == 1
    arguments = {"item": item.name, "scale": scale, **(origin or {})}
    options: dict[str, Any] = {"full": full, "guide": False, "command": "reproduce", "stage": progress}
    show_stages(stages(study, out, workers, passed=arguments, **options), out=out)


def compute_exact(item: "Item", out: Path) -> "Reproduction":
    """Compute an exact item, print and write it, and return it."""
    from goalscope.papers.claims import decide_exact
    from goalscope.papers.contract import declare
    from goalscope.papers.exact import compute
    from goalscope.papers.page import declarations_of

    Folder(out).make()
    lines, files, texts = compute(item, out)
    for text in texts:
        say(text)
    tested = decide_exact(item, lines)
    if lines:
        _show(item, lines)
    _say_claims(tested)
    declared = declare(item, {})
    show(declarations_of(declared), title=f"{item.name}: {item.title}")
    written, _ = _write(item, out, lines, tested, declared, [], False, scale=0)
    if files:
        say("written: " + ", ".join(map(str, files)))
    return written


def read_run(item: "Item", path: Path, out: Path, agents: Sequence[str], *, scale: float = 0) -> "Reproduction":
    """Measure a run if necessary, print and write the lines of an item, and return them."""
    from goalscope.cli.front.measuring import can_report, measured_rows, warn_of_few
    from goalscope.papers.answers import TEXTS
    from goalscope.papers.claims import decide
    from goalscope.papers.contract import declare, ours_of
    from goalscope.papers.null_agents import nulls_of
    from goalscope.papers.readings import ReadAgents, read, with_all_agents
    from goalscope.runs import Store

    rows = measured_rows(path, progress)
    with Store(path) as store:
        descriptions = dict(store.agents().values())
        all_agents, ran, inside = store.agent_names(), store.study(), _probed_with(store)
    models = [name for name, description in descriptions.items() if description.get("kind") in ("chat", "task-chat")]
    # Without a language model, only the first agent is read, because a mean over agents with different goals describes
    # none of them.
    read_agents = [name for name in agents if name in all_agents] or models or all_agents[:1]
    described = {name: descriptions.get(name, {}) for name in read_agents}
    model = _paper_name(read_agents, descriptions)
    ours = ours_of(item, ran, described, model, inside if item.full else None)
    subject = ReadAgents(agents=tuple(read_agents), model=model, ours=ours)
    if unread := [name for name in all_agents if name not in read_agents]:
        say(f"also in this run: {', '.join(unread)}", error=True)
    say(f"read: {', '.join(read_agents)}")
    lines = read(item, rows, with_all_agents(item, subject, all_agents))
    tested = decide(item, rows, subject, all_agents, nulls_of(item, path, rows, read_agents))
    _show(item, lines)
    _say_claims(tested)
    if tested:
        say(TEXTS("notes/printed"))
    made_here = all(map(_made_here, described.values()))
    declared = declare(item, ours)
    written, numbers = _write(item, out, lines, tested, declared, read_agents, made_here, scale=scale)
    if can_report():
        from goalscope.papers import page

        page.write(
            item,
            lines,
            tested,
            declared,
            read_agents,
            made_here=made_here,
            scale=scale,
            run=path,
            numbers=numbers,
            path=out / "report.html",
        )
    warn_of_few(line.ours for line in lines if line.ours is not None)
    page_path = quote(str(out / "report.html"))
    say(f"written: {out / 'reproduction.json'}; the report's section: {item.section} ({page_path})")
    return written


def _probed_with(store: "Store") -> "Inside | None":
    """Return the settings of the probes of a run, None if it has none."""
    from goalscope.inside.probing.pipeline import INFO
    from goalscope.runs.probing_config import Inside

    noted = store.info().get(INFO) or {}
    settings = [facts["settings"] for facts in noted.values() if "settings" in facts]
    return Inside.parse(settings[-1]) if settings else None


def takes(seconds: Sequence[float] | None) -> str:
    """Describe a time estimate in words, e.g. ``about 4 min (3 min to 8 min) on two cores``."""
    if seconds is None:
        return "how long it takes is not known: it was not measured at this size"
    low, middle, high = map(duration, seconds)
    return f"about {middle} ({low} to {high}) on two cores"


def _show(item: "Item", lines: Sequence["ItemLine"]) -> None:
    from goalscope.papers.page import table_of

    show(table_of(item, lines), title=f"{item.name}: {item.title}")


def _write(
    item: "Item",
    out: Path,
    lines: Sequence["ItemLine"],
    tested: Sequence["Tested"],
    declared: Sequence["Term"],
    agents: Sequence[str],
    made_here: bool,
    *,
    scale: float,
) -> tuple["Reproduction", str]:
    """Write a result as JSON. Return the result and the JSON text."""
    from goalscope._ground.sealed import seal, write_sealed
    from goalscope.papers.stored import RESULT, Reproduction, key_of

    result = Reproduction(
        item=item.name,
        title=item.title,
        note=item.note,
        key=key_of(item, scale),
        scale=float(scale),
        agents=tuple(agents),
        made_here=made_here,
        declared=tuple(declared),
        lines=tuple(lines),
        claims=tuple(tested),
    )
    write_sealed(Folder(out).file(RESULT, content=False), result)
    return result, seal(result) + "\n"


def _say_claims(tested: Sequence["Tested"]) -> None:
    from goalscope.papers.claims import lines_of

    for claim in tested:
        for line in lines_of(claim):
            say(line)


def _made_here(description: Mapping[str, Any]) -> bool:
    """Return whether an agent is a model that comes with this package, judged by the hashes of its files."""
    from goalscope.agents.models.folders import PACKAGED, folder_identity, model_folder

    model = description.get("model")
    if not isinstance(model, Mapping) or model.get("untrained") is not None:
        return False
    folders = (model_folder(name) for name in PACKAGED)
    return any(folder is not None and model.get("files") == folder_identity(folder) for folder in folders)


def _paper_name(agents: Sequence[str], descriptions: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the papers' name for the agents' model, or "" if the papers do not use it."""
    from goalscope.verdict.preflight.model_defaults import ready_name

    names = set()
    for name in agents:
        description = descriptions.get(name, {})
        model = description.get("model")
        candidates = [description.get("model_id"), *(model.values() if isinstance(model, Mapping) else [model]), name]
        ready = (ready_name(text) for text in candidates if isinstance(text, str))
        names.add(next((text for text in ready if text is not None), ""))
    return names.pop() if len(names) == 1 else ""
