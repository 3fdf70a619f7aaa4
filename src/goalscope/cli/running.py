"""The commands `run`, `merge` and `demo`: first moves, episodes, activations, interventions, report."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from goalscope._ground import own
from goalscope._ground.extras import how_to_install
from goalscope._ground.progress import TALLY, Display, aloud, duration, lines
from goalscope._ground.words import counted
from goalscope.cli.claims import show_whole
from goalscope.cli.console import json_text, progress, say
from goalscope.cli.expected import measure_and_say, size_of
from goalscope.cli.generator import Between, OutFolder, Positive, Reads, lists, prints
from goalscope.cli.inside import show_inside, show_intervention
from goalscope.cli.measuring import across, can_report, headline, measure_run, write_page_of
from goalscope.cli.overrides import StudyOptions, load_study, study_entries
from goalscope.inside.interventions.experiment import InterventionSummary, study_interventions
from goalscope.inside.probing.pipeline import InsideSummary, study_inside
from goalscope.measures.behaviour import BEHAVIOUR
from goalscope.report.ledger import MeasuredRows, Run
from goalscope.runs import Store, Study, StudyShard, content_hash
from goalscope.runs import merge as merge_shards
from goalscope.runs import run as run_episodes
from goalscope.runs.opening import check_new_run, unmade
from goalscope.runs.provenance import noted_of_answers
from goalscope.runs.tables import DATABASE
from goalscope.verdict.opening import is_evaluation, merge_evaluations
from goalscope.verdict.preflight.cost import beyond_reach
from goalscope.verdict.preflight.study_files import load

Result = str | InsideSummary | InterventionSummary
"""Result of a stage: a line of text, or the summary of probes or of an experiment with activations."""


def run(
    study: str | Path | Study,
    out: str | Path,
    *,
    workers: int = 1,
    executor: str = "auto",
    gpus: float = 0.0,
    shard: str | None = None,
    full: bool = False,
    stage: Display = lines,
) -> Run:
    """Run a study, or resume it. If it declares an analysis of activations, do the analysis and write the report.

    Args:
        study: a study, its file, or the name of a shipped study.
        out: the run directory.
        workers: number of simultaneous calls to an agent.
        executor: where agents act: "threads", "processes", "ray" or "auto".
        gpus: for "ray": number of GPUs per actor (process), which may be a fraction.
        shard: "K/N" to run only the K-th of N parts of the study; its activations are read after the merge.
        full: whether to compute the complete table (all probes and controls) of a study that reads activations.
        stage: shows the progress of a task.

    Returns:
        The run directory, for reading.

    Raises:
        ValueError: if the study or an option is invalid, or the directory contains something else.
    """
    read = study if isinstance(study, Study) else load(study)
    arguments = {"study": read.name, "workers": workers}
    options: dict[str, Any] = {"executor": executor, "gpus": gpus, "shard": shard, "full": full}
    with aloud():
        for done in stages(read, Path(out), workers, passed=arguments, guide=False, stage=stage, **options):
            if isinstance(done, str):
                TALLY.tell(done)
    return Run(Path(out))


def stages(
    study: Study,
    out: Path,
    workers: int = 1,
    *,
    passed: Mapping[str, Any],
    full: bool = False,
    guide: bool = True,
    shard: str | None = None,
    executor: str = "auto",
    gpus: float = 0.0,
    command: str = "run",
    stage: Display = lines,
) -> Iterator[Result]:
    """Run or resume a study, and yield the result of each stage (episodes, activations, experiments, report) as it
    ends.

    Args:
        study: the study.
        out: the run directory.
        workers, executor, gpus: where agents act, see `run`.
        passed, command: the user's arguments and command, for the record.
        full: whether to compute the complete table (all probes and controls) of a study that reads activations.
        guide: whether to name the next command.
        shard: run only this part of the study; its activations are read after the merge.
        stage: shows the progress of a task.

    Yields:
        Lines of text to print, and the summaries of analyses of activations and of experiments.
    """
    part = None if shard is None else StudyShard.parse(shard)
    inside = study.analysis.inside if study.analysis is not None else None
    interventions = study.analysis.interventions if study.analysis is not None else ()
    if full and inside is None:
        raise ValueError(
            f"--full applies to studies that declare analysis: inside:, but {study.name} does not: leave it out"
        )
    names = [agent.name for agent in study.agents()]
    if inside is not None and inside.agent is not None and inside.agent not in names:
        raise ValueError(
            f"analysis.inside.agent is {inside.agent}, but the agents to run are {', '.join(names)}: add it to the "
            "agents, or change analysis.inside.agent"
        )
    yield size_of(study)
    check_kept_apart(out, imported=False)
    if not unmade(out / DATABASE):  # refuse another study before loading or asking a model
        with Store(out) as store:
            store.check_study(study)
    for line in beyond_reach(study):
        TALLY.tell(line)
    arguments = dict(passed)
    if executor != "auto":
        arguments["executor"] = executor
    if part is not None:
        arguments["shard"] = str(part)
    first = measure_and_say(study, out, workers=workers, arguments=arguments, patient=True) if part is None else []
    with stage("episodes") as show:
        done = run_episodes(
            study,
            out,
            workers=workers,
            arguments={"command": command, "passed": arguments},
            shard=part,
            executor=executor,
            gpus=gpus,
            progress=lambda finished, total, steps, left: show(finished, total, left),
        )
    if Path(done.directory) != out:
        TALLY.tell(f"{out} was renamed during the run, which continues in {done.directory}")
        out = Path(done.directory)
    reused = f"{counted(done.reused, 'episode')} stored before, " if done.reused else ""
    yield (
        f"{reused}{counted(done.episodes, 'episode')} run with {counted(done.steps, 'step')} in "
        f"{duration(done.seconds)}: {out}"
    )
    _tell_changed_analysis(study, out)
    with Store(out) as store:
        for line in noted_of_answers(store):
            TALLY.tell(line)
    if done.replayed > sum(record["asked"] for record in first) or done.lost:
        yield f"{counted(done.replayed, 'answer')} taken from the journal, {counted(done.lost, 'call')} in flight lost"
    if part is not None:
        later = (
            ", then goalscope run on the merged run for its activations" if inside is not None or interventions else ""
        )
        yield f"shard {part}; next, once all {part.of} are done: goalscope merge OUT {quote(str(out))} ...{later}"
    elif inside is not None or interventions:
        if inside is not None:
            yield study_inside(out, inside, full=full, stage=stage, drop_sites=True)
        if interventions:
            began = time.monotonic()
            yield from study_interventions(out, interventions, stage=stage)
            yield f"interventions in {duration(time.monotonic() - began)}"
        if can_report():
            yield f"Report: {write_page_of(out, stage=stage).resolve()}"
        else:
            yield f"next: goalscope report {quote(str(out))} (it needs the extra report: {how_to_install('report')})"
    elif guide:
        program = own.program_for(study.dump())  # a run allows no import
        yield f"next: {program} measure {quote(str(out))}, {program} report {quote(str(out))}"


def check_kept_apart(out: Path, *, imported: bool) -> None:
    """Check that a directory would not mix imported trajectories, episodes of a study and files of others.

    ``imported`` says whether imported trajectories are to be written there.

    Raises:
        ValueError: if it would.
    """
    check_new_run(out)
    if unmade(out / DATABASE):
        return
    with Store(out) as store:
        study = store.study()
        [(episode_count,)] = store.query("SELECT COUNT(*) FROM episodes")
    if imported and study is not None:
        new, existing = "imported trajectories", f"the run of the study {study.name!r}"
    elif not imported and study is None and episode_count:
        new, existing = "a study", "imported trajectories"
    else:
        return
    raise ValueError(
        f"cannot store {new} in {out}, which contains {existing}: choose another directory (goalscope compare "
        f"{quote(str(out))} OTHER compares both)"
    )


def _tell_changed_analysis(study: Study, out: Path) -> None:
    """Say so if the declared analysis differs from the one stored with the study, which is kept."""
    with Store(out) as store:
        stored = store.study()
    if stored is not None and _tests(stored) != _tests(study):
        TALLY.tell(
            f"{out} keeps the analysis that it declared when it was begun, although the study now declares another; "
            "to compare with other margins: goalscope compare RUN --transforms --margin ..."
        )


def _tests(study: Study) -> object:
    """Return the declared tests of a study. Its declared probing is not included, as it may change between sessions."""
    return (None, ()) if study.analysis is None else (study.analysis.invariance, study.analysis.pairs)


def stages_of(
    study: Annotated[str, Reads("study")],
    *,
    out: OutFolder,
    workers: Positive = 1,
    executor: str = "auto",
    gpus: Annotated[float, Between(0)] = 0.0,
    shard: str | None = None,
    full: bool = False,
    changes: StudyOptions,
    stage: Display = lines,
) -> Iterator[Result]:
    """Run a study that the command line names and changes, and yield the result of each stage as it ends.

    Args:
        study: a study file (YAML), or the name of one of the studies listed below.
        out: the run directory to write.
        workers: number of simultaneous calls to an agent (threads, processes or actors).
        executor (NAME): where agents act: threads, processes, ray (needs the extra ray), or auto to choose.
        gpus (N): with --executor ray: number of GPUs per actor; 0.5 lets two actors share one.
        shard (K/N): run only the K-th of N parts, e.g. 3/16. Combine all N with goalscope merge.
        full: for studies that read activations: compute the complete table, with all probe forms (heads) and controls.
        changes: changes to the study, see `StudyOptions`.
        stage: shows the progress of each stage.
    """
    overrides = changes.read(network=True)
    passed = {"study": Path(study).name, "workers": workers, **overrides.given()}
    options: dict[str, Any] = {"executor": executor, "gpus": gpus, "shard": shard, "full": full}
    return stages(load_study(study, overrides), out, workers, passed=passed, stage=stage, **options)


@lists("Studies", study_entries)
@prints(stages_of)
def show_stages(results: Iterator[Result], *, out: Path, as_json: bool = False) -> None:
    """Run a study. To resume it, run the same command on the same directory; no finished episode is repeated.

    A changed study has an id of its own and needs a new directory.

    Args:
        as_json: print the directory, study, agents and number of episodes as JSON.

    Examples:
        goalscope run study.yaml --out runs/first
        goalscope run baseline --count 3 --agents Theseus,optimal --out runs/small
        goalscope run baseline --model HuggingFaceTB/SmolLM2-135M-Instruct --out runs/smollm2
        goalscope run cognitive-map --out runs/inside
        goalscope run baseline --shard 1/2 --out shards/1
    """
    began = time.monotonic()
    for done in results:
        if isinstance(done, str):
            say(done, error=as_json)
        elif as_json:
            continue
        elif isinstance(done, InsideSummary):
            show_inside(done, time.monotonic() - began)
        elif isinstance(done, InterventionSummary):
            show_intervention(done)
        began = time.monotonic()
    if as_json:
        with Store(out) as store:
            [(episodes,)] = store.query("SELECT COUNT(*) FROM episodes")
            names, study = list(store.agent_names()), store.study()
        assert study is not None  # it was stored before the first episode
        say(json_text({"run": str(out), "study": study.name, "id": study.id, "agents": names, "episodes": episodes}))


def merge(
    directory: OutFolder,
    shards: Annotated[Sequence[Path], Reads("shard", "evaluation")],
) -> None:
    """Merge the shards (separately run parts) of a study into one run, with the same content as an undivided run.

    The shards are only read. Evaluations with the same plan can be merged too: the result has the models of all of
    them, judged together.

    Args:
        directory (OUT): the directory to write; must not exist yet.
        shards (SHARD ...): the run directories of all shards, in any order; or the directories of evaluations.

    Examples:
        goalscope merge runs/whole shards/1 shards/2
    """
    whole = [path for path in shards if is_evaluation(path)]
    if whole and len(whole) < len(shards):
        raise ValueError("cannot merge evaluations with shards of a study: give directories of one kind")
    if whole:
        began = time.monotonic()
        show_whole(merge_evaluations(shards, directory), time.monotonic() - began)
        return
    with progress("episodes") as show:
        done = merge_shards(
            shards,
            directory,
            progress=lambda finished, total: show(finished, total),
            arguments={"command": "merge", "passed": {"shards": [path.name for path in shards]}},
        )
    with Store(directory) as store:
        digest = content_hash(store)
    say(
        f"{counted(done.shards, 'shard')}, {counted(done.episodes, 'episode')}, "
        f"{counted(done.calls, 'journalled call')}: {directory}, content hash {digest}"
    )
    if done.measured:
        say("rows of measures are not merged, because some compare worlds across shards: measure the merged run")
    if done.read:
        say("activations and probes are not merged: run capture and probe on the merged run")
    say(f"next: goalscope measure {quote(str(directory))}, goalscope report {quote(str(directory))}")


def demo(
    *,
    out: OutFolder = Path("runs/demo"),
) -> None:
    """Run a bundled language model beside an optimal, a random and an untrained agent, measure them and write a report.

    Args:
        out: the run directory to write; by default runs/demo, below the working directory.

    Examples:
        goalscope demo --out runs/demo
    """
    began = time.monotonic()
    say(f"The run and its report are written into {out}.")
    study = load_study("demo")
    show_stages(stages(study, out, passed={"study": "demo", "workers": 1}, guide=False, stage=progress), out=out)
    measure_run(out, progress)
    page = write_page_of(out, stage=progress)
    agents = [agent.name for agent in study.agents()]
    with Store(out) as store:
        measured = MeasuredRows(store, BEHAVIOUR)
        headline(measured, agents, "Mean and 95 % interval over grids")
        for tag in ("size", "density"):
            across(measured, "action accuracy", agents, tag)
    say(f"Report: {page.resolve()} (the whole demo took {duration(time.monotonic() - began)})")
