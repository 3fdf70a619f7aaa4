"""The work of `goalscope reproduce`: run, compute or read one item or all, print them, and write results and pages.

With `--all`, items share runs that can be resumed, and their results become one table and one page. The prompts and the
sampling of a study can be those that a paper prints. How long an item takes is estimated from stored measurements.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from time import process_time
from typing import Any, Final

from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.ids import content_id
from goalscope._ground.progress import duration
from goalscope._ground.sealed import write_sealed
from goalscope._ground.untrusted import UntrustedError
from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.agents.chat import ChatAgent, TaskChatAgent
from goalscope.agents.models.folders import PACKAGED, folder_identity, model_folder
from goalscope.agents.prompts import PAPER, TASKS, PrintedPrompt, read_text, recognised, with_our_slots
from goalscope.cli.console import fail, progress, say, show
from goalscope.cli.logs import import_and_show
from goalscope.cli.measuring import can_report, measured_rows, warn_of_few
from goalscope.cli.overrides import StudyOptions, load_study
from goalscope.cli.running import show_stages, stages
from goalscope.inside.probing.pipeline import INFO
from goalscope.papers.claims import TEXTS, Tested, decide, decide_exact, lines_of, nulls_of
from goalscope.papers.exact import compute
from goalscope.papers.item import Item, find, items, scaled
from goalscope.papers.page import (
    RESULT,
    Reproduction,
    declarations_of,
    key_of,
    overview,
    read_result,
    table_of,
    write_all,
    write_page_of,
)
from goalscope.papers.readings import (
    ItemLine,
    ReadAgents,
    blocks,
    count_tested_grids,
    declare,
    ours_of,
    read,
    with_all_agents,
)
from goalscope.report.exports import as_markdown
from goalscope.runs import Store, Study
from goalscope.runs.episode_columns import count_episodes
from goalscope.runs.study_parts import Inside
from goalscope.runs.tables import DATABASE
from goalscope.verdict.subject import ready_name


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
) -> Reproduction:
    """Reproduce one figure or table of a paper: print it beside the printed numbers, write its page, and return the
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


def _read_given(item: Item, logs: Path, out: Path) -> Reproduction:
    """Reproduce an item from recorded logs, which are imported first, or from an existing run."""
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
    item: Item,
    out: Path,
    model: str | None,
    scale: float,
    templates: Sequence[Path],
    workers: int,
    settings: Sequence[str],
) -> Reproduction:
    """Run the study of an item at the requested size, and read the item from the run."""
    study = published_study(item, scale, model)
    if model or templates:
        study = as_printed(item, study, templates)
    # after the scale, because the settings may ask for less than the scale
    sized, study = study, StudyOptions(settings=settings).apply(study)
    if model or templates:
        study = with_nearest_prompts(study)  # after the settings, because a setting may name a prompt
    say(f"{item.name}: {item.title}" + ("" if model else f"; {takes(seconds(item, study))}"))
    _warn_of_few_grids(item, study)
    arguments = {**({"model": model} if model else {}), **({"changed": list(settings)} if settings else {})}
    run_item(item, study, out, scale, workers, arguments)
    at_size = all(sized.dump().get(name) == study.dump().get(name) for name in ("worlds", "trajectories", "horizon"))
    return read_run(item, out, out, asked_in(study), scale=scale if at_size else 0)


def _warn_of_few_grids(item: Item, study: Study) -> None:
    """Say before anything is run which sentences have too few grids to be tested."""
    grids = count_tested_grids(item, study)
    lacking = [claim.least for claim in item.claims if claim.least > grids]
    if lacking:
        fields = {"count": len(lacking), "of": len(item.claims), "grids": grids, "least": max(lacking)}
        say(TEXTS("notes/scale", **fields), error=True)


def asked_in(study: Study) -> list[str]:
    """Return the names of those agents of a study that are language models."""
    return [entry.build().name for entry in study.agents_ if entry.kind in _KINDS]


def published_study(item: Item, scale: float, model: str | None = None) -> Study:
    """Return the study that generates the data of a figure or table (item), at a fraction of its published size.

    Args:
        item: the item.
        scale: the fraction, in (0, 1].
        model: model to use instead of the study's own; None to keep it.
    """
    options = StudyOptions(settings=item.changes, model=model)
    study = load_study(item.study, options.read(network=True))
    return scaled(study, scale, least=item.least, tested=item.tested)


def run_item(
    item: Item, study: Study, out: Path, scale: float, workers: int = 1, origin: Mapping[str, Any] | None = None
) -> None:
    """Run the study of a figure or table (item), or continue it: play its episodes and compute its measures.

    Args:
        item: the item.
        study: its study, at the size to be run.
        out: the run directory.
        scale: fraction of the published size, for the record.
        workers: number of concurrent calls.
        origin: further entries for the record of the run's arguments.
    """
    full = item.full and scale == 1
    arguments = {"item": item.name, "scale": scale, **(origin or {})}
    options: dict[str, Any] = {"full": full, "guide": False, "command": "reproduce", "stage": progress}
    show_stages(stages(study, out, workers, passed=arguments, **options), out=out)


def compute_exact(item: Item, out: Path) -> Reproduction:
    """Compute a figure or table (item) that needs no agent, print it beside the printed numbers, write it and return
    it.

    Args:
        item: the item.
        out: directory for the result and its files.
    """
    Folder(out).make()
    lines, files, texts = compute(item, out)
    for text in texts:
        say(text)
    claims, declared = decide_exact(item, lines), declare(item, {})
    _show(item, lines, claims)
    show(declarations_of(declared), title=f"{item.name}: {item.title}")
    result = _write(Reproduction.of(item, 0, lines=lines, claims=claims, declared=declared), out)
    if files:
        say("written: " + ", ".join(map(str, files)))
    return result


def read_run(item: Item, path: Path, out: Path, agents: Sequence[str], *, scale: float = 0) -> Reproduction:
    """Compute the numbers of a figure or table (item) from a run, print them beside the printed ones, and write the
    result.

    Args:
        item: the item.
        path: directory of the run, which is measured first if necessary.
        out: directory for the result and its page.
        agents: names of the agents to read; those that the run lacks are ignored. By default its language models, or
            else its first agent.
        scale: fraction of the published size, 0 if there is none.

    Returns:
        The result.
    """
    rows = measured_rows(path, progress)
    with Store(path) as store:
        descriptions = dict(store.agents().values())
        all_agents, ran, inside = store.agent_names(), store.study(), _probed_with(store)
    models = [name for name, description in descriptions.items() if description.get("kind") in _KINDS]
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
    claims = decide(item, rows, subject, all_agents, nulls_of(item, path, rows, read_agents))
    _show(item, lines, claims)
    if claims:
        say(TEXTS("notes/printed"))
    result = Reproduction.of(
        item,
        scale,
        lines=lines,
        claims=claims,
        declared=declare(item, ours),
        agents=read_agents,
        made_here=all(map(_made_here, described.values())),
    )
    _write(result, out)
    if can_report():
        write_page_of(item, result, path, out / "report.html")
    warn_of_few(line.ours for line in lines if line.ours is not None)
    page_path = quote(str(out / "report.html"))
    say(f"written: {out / 'reproduction.json'}; the report's section: {item.section} ({page_path})")
    return result


def _probed_with(store: Store) -> Inside | None:
    """Return the settings of the probes of a run, None if it has none."""
    noted = store.info().get(INFO) or {}
    settings = [facts["settings"] for facts in noted.values() if "settings" in facts]
    return Inside.parse(settings[-1]) if settings else None


def takes(seconds: Sequence[float] | None) -> str:
    """Describe a time estimate in words, e.g. ``about 4 min (3 min to 8 min) on two cores``.

    Args:
        seconds: least, expected and greatest number of seconds; None if they are not known.
    """
    if seconds is None:
        return "how long it takes is not known: it was not measured at this size"
    low, middle, high = map(duration, seconds)
    return f"about {middle} ({low} to {high}) on two cores"


def _show(item: Item, lines: Sequence[ItemLine], claims: Sequence[Tested]) -> None:
    if lines:
        show(table_of(item, lines), title=f"{item.name}: {item.title}")
    for claim in claims:
        for line in lines_of(claim):
            say(line)


def _write(result: Reproduction, out: Path) -> Reproduction:
    """Write a result as JSON, and return it."""
    write_sealed(Folder(out).file(RESULT, content=False), result)
    return result


def _made_here(description: Mapping[str, Any]) -> bool:
    """Return whether an agent is a model that comes with this package, judged by the hashes of its files."""
    model = description.get("model")
    if not isinstance(model, Mapping) or model.get("untrained") is not None:
        return False
    folders = (model_folder(name) for name in PACKAGED)
    return any(folder is not None and model.get("files") == folder_identity(folder) for folder in folders)


def _paper_name(agents: Sequence[str], descriptions: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the papers' name for the agents' model, or "" if the papers do not use it."""
    names = set()
    for name in agents:
        description = descriptions.get(name, {})
        model = description.get("model")
        candidates = [description.get("model_id"), *(model.values() if isinstance(model, Mapping) else [model]), name]
        ready = (ready_name(text) for text in candidates if isinstance(text, str))
        names.add(next((text for text in ready if text is not None), ""))
    return names.pop() if len(names) == 1 else ""


_MARKS = ("<!-- items: written by goalscope reproduce --all -->\n", "<!-- end of items -->\n")


def reproduce_all(begin: str, out: Path, scale: str, markdown: Path | None, workers: int) -> None:
    """Reproduce all figures and tables (items) whose name begins with a text, and write one table and one page of all
    results.

    Items whose result exists already are not run again.

    Args:
        begin: the text, such as "telos"; "" for all items.
        out: directory for the runs, results and page.
        scale: fraction of the published size, or "small".
        markdown: Markdown file for the table; None for ``table.md`` in the directory.
        workers: number of concurrent calls.

    Raises:
        ValueError: no item has such a name, or some items failed; the others are run first.
    """
    chosen = {name: item for name, item in items().items() if name.startswith(begin.casefold())}
    if not chosen:
        raise ValueError(
            f"no item's name begins with {begin!r}: run goalscope reproduce --list to see the names, or "
            "give --all without a name"
        )
    page = markdown or out / "table.md"
    _around(page)  # raise errors about unwritable files before anything is run
    work = [item for item in chosen.values() if not item.why_not]
    scales = {item.name: scale_of(item, scale) if item.study else 0.0 for item in work}
    studies = {item.name: published_study(item, scales[item.name]) for item in work if item.study}
    folders = {name: out / "items" / name.replace(" ", "-") for name in scales}
    runs = {item.name: out / "runs" / _run_name(item, studies[item.name]) for item in work if item.study}
    left = [item for item in work if not _done(item, folders[item.name], scales[item.name])]
    played = {runs[name] for name, study in studies.items() if _played(runs[name], study)}
    say(f"{len(work)} items, {len(work) - len(left)} of them done; {takes(_left(left, studies, runs, played))}")
    failed, ran = [], set[Path]()
    Folder(out).make()
    for number, item in enumerate(left, 1):
        seconds_of_item, rest = (
            takes(_left(part, studies, runs, played | ran)) for part in ([item], left[number - 1 :])
        )
        say(f"{number} of {len(left)}: {item.name}: {seconds_of_item}; with all that is left {rest}")
        began = process_time()
        try:
            if item.study:
                study, run = studies[item.name], runs[item.name]
                if run not in ran:
                    run_item(item, study, run, scales[item.name], workers)
                    ran.add(run)
                Folder(folders[item.name]).make()
                read_run(item, run, folders[item.name], asked_in(study), scale=scales[item.name])
            else:
                compute_exact(item, folders[item.name])
        except (ValueError, OSError, ImportError) as error:
            failed.append(f"{item.name}: {error}")
            fail(failed[-1])
        say(f"{item.name}: took {process_time() - began:.0f} s of processor time", error=True)
        _write_all(chosen, folders, page, out)  # after each item, so that a run of hours shows what it has
    _write_all(chosen, folders, page, out)
    say(f"Table of all items: {page}")
    if can_report():
        say(f"One page of all items: {out / 'report.html'}")
    if failed:
        raise ValueError("these items failed:\n" + "\n".join(failed))


def _write_all(chosen: Mapping[str, Item], folders: Mapping[str, Path], page: Path, out: Path) -> None:
    """Write the table and the page of all results so far."""
    results = {name: result for name, folder in folders.items() if (result := read_result(folder)) is not None}
    before, after = _around(page)
    tables = "\n".join(map(as_markdown, overview(results, chosen)))
    NamedFile(page).save_text(f"{before}{_MARKS[0]}\n{tables}\n{_MARKS[1]}{after}")
    if can_report():
        write_all(results, chosen, out / "report.html")


def _run_name(item: Item, study: Study) -> str:
    """Return the directory name of a run. Items whose studies have equal settings share a run."""
    return f"{item.study}-{content_id('run', [study.dump(), item.full]).partition('-')[2][:8]}"


def _done(item: Item, folder: Path, scale: float) -> bool:
    """Return whether the result of the item's current declaration exists with its page, which is written last."""
    result = read_result(folder)
    page = bool(item.exact) or not can_report() or Folder(folder).has_file("report.html")
    return result is not None and result.key == key_of(item, scale) and page


def _played(run: Path, study: Study) -> bool:
    """Return whether a run is complete: all episodes are stored and, if activations are read, its page is written."""
    looks = study.analysis is not None and bool(study.analysis.inside or study.analysis.interventions)
    if not Folder(run).has_file(DATABASE) or (looks and can_report() and not Folder(run).has_file("report.html")):
        return False
    with Store(run) as store:
        return count_episodes(store) >= study.size().episodes


def _left(
    left: list[Item], studies: dict[str, Study], runs: dict[str, Path], played: set[Path]
) -> tuple[float, float, float] | None:
    """Estimate the total seconds (least, expected, most) of the remaining items; None if an estimate is missing.

    Complete runs are only read, so only the reading counts for these.
    """
    total, seen = (0.0, 0.0, 0.0), set(played)
    for item in left:
        run = runs.get(item.name)
        seconds_of_item = seconds(item, studies.get(item.name), shared=run in seen)
        if seconds_of_item is None:
            return None
        total = (total[0] + seconds_of_item[0], total[1] + seconds_of_item[1], total[2] + seconds_of_item[2])
        seen |= {run} if run is not None else set()
    return total


def _around(path: Path) -> tuple[str, str]:
    """Return the text before and after the table in a page; two empty strings if the page does not exist yet."""
    if not NamedFile(path).is_there():
        return "", ""
    try:
        before, mark, rest = NamedFile(path).load_text().partition(_MARKS[0])
    except UntrustedError as error:
        raise ValueError(f"{path} is not a text file: {error}; give another file to --markdown") from error
    _, end, after = rest.partition(_MARKS[1])
    if not mark or not end:
        raise ValueError(
            f"{path} exists but has no place for the table: add the lines "
            f"{' and '.join(map(str.strip, _MARKS))}, or give a new file to --markdown"
        )
    return before, after


_KINDS: Final = (CHAT, TASK_CHAT)
_BROKEN: Final = re.compile(r"([^\W\d_]+)[-\u2010\u2011\u00ad]\s+([^\W\d_]+)")  # a word over the end of a line
_INSIDE: Final = re.compile(r"(?<=[\w,])[ \t]*\n(?=[a-z])")  # the end of a line inside a sentence
_SCHEMA: Final = "schema"  # variant of the bundled prompts that describes the answer without an example


def as_printed(item: Item, study: Study, templates: Sequence[Path]) -> Study:
    """Return a study whose chat agents have the sampling settings of a paper, and prompts copied from it.

    Args:
        item: the figure or table to be reproduced.
        study: its study.
        templates: the user's copies of prompts. Each is used for the agents for which the paper prints it.

    Raises:
        FileNotFoundError, ValueError: a file that is not a copy of one of the item's prompts, or fits none of its
            agents.
    """
    plain = study.dump()
    copies = {path: _copy(item, path) for path in templates}
    declared = blocks().get(item.basis, {})
    sampling = {name: float(declared[name][0]) for name in ("temperature", "top_p") if name in declared}
    used_copies = set()
    for entry in plain["agents"]:
        if entry["kind"] not in _KINDS:
            continue
        entry |= sampling
        for path, printed in copies.items():
            if entry["kind"] == TASK_CHAT and _arm(entry) == (printed.strategy, printed.memory, False):
                entry["template"] = str(path.resolve())
                used_copies.add(path)
            elif entry["kind"] == CHAT and not printed.strategy:
                entry |= {"task": str(path.resolve())}
                entry.pop("template", None)
                used_copies.add(path)
    for path, printed in copies.items():
        if path not in used_copies:
            raise ValueError(
                f"{path} is a copy of {printed.name} ({printed.title}), but {item.name} runs no agent with "
                "that prompt: leave this --template out"
            )
    return Study.assemble(plain)


def with_nearest_prompts(study: Study) -> Study:
    """Return a study whose chat agents without a prompt of their own use the bundled prompts closest to the printed
    ones.

    These prompts show no example move and, in task worlds, only the facts in the paper. A model whose card names a
    prompt variant keeps it, because it was trained only on that variant.
    """
    plain = study.dump()
    for entry, agent in zip(plain["agents"], study.agents(), strict=True):
        if not isinstance(agent, ChatAgent) or agent.template or agent.card_form is not None:
            continue
        if isinstance(agent, TaskChatAgent):
            entry["template"] = PAPER
        elif agent.task in TASKS:
            entry["template"] = _SCHEMA
    return Study.assemble(plain)


def _copy(item: Item, path: Path) -> PrintedPrompt:
    text = with_our_slots(read_text(path, "--template must be"))
    broken = _BROKEN.search(text)
    if broken is not None:
        line = text.count("\n", 0, broken.start()) + 1
        raise ValueError(
            f"{path}, line {line}, breaks the word {broken[1]}-{broken[2]}, as a PDF does, and would be sent so: "
            "join the two lines, and also those that the PDF breaks inside a paragraph"
        )
    printed = recognised(text)
    if printed is None or printed.name not in item.prompts:
        template = "another text" if printed is None else f"{printed.name}, {printed.title}"
        prompts = " or ".join(item.prompts) or "no prompt"
        raise ValueError(
            f"{path} is not a copy of a prompt that the paper prints for {item.name} ({prompts}), got "
            f"{template}: words, symbols and their order must agree; line breaks, quotation marks and "
            "names of slots may differ. For a prompt of your own use --set agents.0.task=FILE"
        )
    ends = [text.count("\n", 0, end.start()) + 1 for end in _INSIDE.finditer(text)]
    if ends:
        say(TEXTS("notes/broken", path=str(path), line=ends[0], others=len(ends) - 1), error=True)
    return printed


def _arm(entry: Mapping[str, Any]) -> tuple[str, bool, bool]:
    return entry.get("strategy", "base"), entry.get("memory", False), entry.get("reasoned", False)


SMALL: Final = "small"
"""As a scale: that of `COSTS` for the study of each item, at which all items together take less than an hour."""

COSTS: Final[dict[str, tuple[float, float, float, float]]] = {
    "baseline": (0.02, 20.0, 0.033, 3.0),
    "key-door": (0.1, 4.0, 0.038, 2.5),
    "two-path": (0.1, 6.0, 0.05, 2.0),
    "cognitive-map": (0.02, 76.0, 0.3, 8.0),
    "beliefs": (0.02, 56.0, 0.3, 3.5),
    "plans": (0.02, 40.0, 0.3, 5.0),
    "distance": (0.02, 37.0, 0.3, 5.0),
    "patching": (0.02, 30.0, 5.0, 5.0),
    "iso-difficulty": (0.02, 14.0, 0.072, 5.5),
    "fog": (0.02, 8.0, 0.12, 4.0),
    "explore-exploit": (0.02, 64.0, 2.3, 4.0),
    "harness": (0.02, 20.0, 2.3, 4.0),
    "semantic": (0.1, 1.0, 0.005, 1.0),
    "demand": (0.1, 1.5, 0.01, 1.5),
}
"""Study -> its small scale; processor seconds of its run at any scale, for each episode, and of reading an item.

Kept measurements with the bundled models (`goalscope reproduce --all` prints what each item took), with one thread;
probes and patches are those of a reduced scale.
"""
_COMPUTED: Final = {"cliff": 3.0}  # seconds of these exact items; other exact items take 1.5
_CORES: Final = (0.5, 0.7, 1.4)
"""Seconds on two cores for a processor second: both at work throughout, as measured, and one alone and slower."""


def scale_of(item: Item, text: str) -> float:
    """Return the fraction of the published size that the option --scale asks for.

    Args:
        item: the figure or table to be reproduced.
        text: the option: a number, or "small" for a size that takes minutes.

    Raises:
        ValueError: any other text.
    """
    if text == SMALL:
        return COSTS[item.study][0] if item.study else 1.0
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--scale must be a number in (0, 1] or {SMALL!r}, got {text!r}") from None


def seconds(item: Item, study: Study | None, *, shared: bool = False) -> tuple[float, float, float] | None:
    """Estimate how long a figure or table (item) takes on two cores: least, expected and greatest number of seconds.

    Args:
        item: the item.
        study: the study of the item, at the size to be run and with the item's own agents; None for an exact item.
        shared: whether the run already exists, so that it only needs to be read.

    Returns:
        The three numbers; None if the time is unknown.
    """
    processor = _COMPUTED.get(item.exact.partition(" ")[0], 1.5)
    if study is not None:
        _, fixed, episode, reading = COSTS[item.study]
        processor = reading + (0.0 if shared else fixed + episode * study.size().episodes)
        if not shared and item.full and study.analysis is not None and study.analysis.inside is not None:
            inside = study.analysis.inside
            if inside.steps is None or inside.random is None or inside.random.seeds > 1:
                return None  # the time of probes at the published size was not measured
    low, middle, high = (processor * share for share in _CORES)
    return low, middle, high
