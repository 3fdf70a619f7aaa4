"""Run a study in stages: first moves, episodes, activations, interventions, report."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from goalscope._ground import own
from goalscope._ground.extras import how_to_install
from goalscope._ground.progress import TALLY, Display, aloud, duration, lines
from goalscope._ground.words import counted
from goalscope.cli.front.expected import measure_and_say
from goalscope.cli.front.measuring import can_report, write_page_of
from goalscope.inside.interventions.experiment import InterventionSummary, study_interventions
from goalscope.inside.probing.pipeline import InsideSummary, study_inside
from goalscope.report.reading import Run
from goalscope.runs import Store, Study, StudyShard
from goalscope.runs import run as run_episodes
from goalscope.runs.opening import unmade
from goalscope.runs.server_checks import noted_of_answers
from goalscope.runs.tables import DATABASE
from goalscope.verdict.preflight import beyond_reach
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
        gpus: number of GPUs per actor, which may be a fraction.
        shard: "K/N" to run only the K-th of N parts of the study; its activations are read after the merge.
        full: whether to compute the complete table of a study that reads activations.
        stage: shows the progress of a task.

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
    """Run or resume a study, and yield the result of each stage as it ends.

    Args:
        study: the study.
        out: the run directory.
        workers, executor, gpus: where agents act, see `run`.
        passed, command: the user's arguments and command, for the record.
        full: whether to compute the complete table of a study that reads activations.
        guide: whether to name the next command.
        shard: run only this part of the study; its activations are read after the merge.
        stage: shows the progress of a task.
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


def size_of(study: Study) -> str:
    """Describe the size of a study in words."""
    size = study.size()
    return (
        f"{study.name}: {counted(size.agents, 'agent')} on {counted(size.worlds, 'world')}, "
        f"{counted(size.episodes, 'episode')}, at most {counted(size.steps, 'step')}"
    )


def check_kept_apart(out: Path, *, imported: bool) -> None:
    """Raise a ValueError if a directory would mix imported trajectories with episodes of a study."""
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
