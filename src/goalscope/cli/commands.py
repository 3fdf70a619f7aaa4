"""What the commands do."""

import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any

from goalscope import importers, studies
from goalscope.checks import did_you_mean
from goalscope.cli.console import duration, progress, say
from goalscope.cli.errors import check_outputs
from goalscope.cli.measuring import SCREEN, SOURCE, across, estimates_table, headline, measure_missing, measure_run
from goalscope.cli.overrides import Overrides
from goalscope.extras import how_to_install, lacking
from goalscope.measures.behaviour import conditions_of, mixed
from goalscope.measures.invariance import check_declared
from goalscope.own import load_function
from goalscope.preflight import beyond_reach
from goalscope.report.blocks import counted, listed, number
from goalscope.report.measured import MeasuredRows, episodes_by_agent
from goalscope.report.run_comparison import check_measures
from goalscope.report.sections.about import format_lines, unfinished
from goalscope.runs import Store, Study, StudyShard, content_hash, export_parquet
from goalscope.runs import merge as merge_shards
from goalscope.runs import run as run_study
from goalscope.runs.opening import unmade
from goalscope.runs.tables import DATABASE
from goalscope.untrusted import read_yaml_text


def load_study(name: str, changes: Overrides | None = None) -> Study:
    """Return a study from a file, or the shipped study of that name, changed as asked."""
    path = Path(name)
    if not path.is_file() and name in studies.names():  # a folder of that name is no study
        study = Study.parse(read_yaml_text(studies.text(name), name))
    elif path.exists():
        study = Study.load(path)
    else:
        shipped = ", ".join(studies.names())
        close = "" if path.suffix else did_you_mean(name, studies.names())
        raise FileNotFoundError(
            f"a study must be a file or the name of a shipped study ({shipped}), got {name!r}{close}"
        )
    study = study if changes is None else changes.apply(study)
    if study.analysis is not None and study.analysis.invariance is not None:
        check_declared(study.analysis.invariance.margin)
    return study


def say_size(study: Study) -> None:
    """Print how large a study is."""
    size = study.size()
    say(
        f"{study.name}: {counted(size.agents, 'agent')} on {counted(size.worlds, 'world')}, "
        f"{counted(size.episodes, 'episode')}, at most {counted(size.steps, 'step')}"
    )


def run_study_of(
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
) -> None:
    """Run a study, or go on with it; where it declares so, read activations and write the report.

    Args:
        study: what is run.
        out: the run directory.
        workers, executor, gpus: where agents act.
        passed, command: what the run keeps of how it was called.
        full: whether the complete table is wanted of a study that reads activations.
        guide: whether to say which command comes next.
        shard: a part of the study alone, whose activations are read after the merge.
    """
    part = None if shard is None else StudyShard.parse(shard)
    inside = study.analysis.inside if study.analysis is not None else None
    interventions = study.analysis.interventions if study.analysis is not None else ()
    if full and inside is None:
        raise ValueError(f"--full must come with a study that declares analysis: inside:, {study.name} does not")
    names = [agent.name for agent in study.agents()]
    if inside is not None and inside.agent is not None and inside.agent not in names:
        raise ValueError(
            f"the study reads the activations of {inside.agent}, which must be among the agents that are run "
            f"({', '.join(names)}): add it, or change analysis.inside.agent"
        )
    say_size(study)
    for line in beyond_reach(study):
        say(line, error=True)
    _check_kept_apart(out, imported=False)
    told = dict(passed)
    if executor != "auto":
        told["executor"] = executor
    if part is not None:
        told["shard"] = str(part)
    with progress("episodes") as show:
        done = run_study(
            study,
            out,
            workers=workers,
            arguments={"command": command, "passed": told},
            shard=part,
            executor=executor,
            gpus=gpus,
            progress=lambda finished, total, steps, left: show(finished, total, left),
        )
    if Path(done.directory) != out:
        say(f"{out} was renamed while it was written to: the run goes on in {done.directory}", error=True)
        out = Path(done.directory)
    reused = f"{counted(done.reused, 'episode')} stored before, " if done.reused else ""
    say(
        f"{reused}{counted(done.episodes, 'episode')} run with {counted(done.steps, 'step')} in "
        f"{duration(done.seconds)}: {out}"
    )
    _tell_declared(study, out)
    if done.replayed or done.lost:
        say(f"{counted(done.replayed, 'answer')} taken from the journal, {counted(done.lost, 'call')} in flight lost")
    if part is not None:
        later = (
            ", and goalscope run on the merged run works on its activations"
            if inside is not None or interventions
            else ""
        )
        say(f"shard {part}; next, once all {part.of} are there: goalscope merge OUT {quote(str(out))} ...{later}")
    elif inside is not None or interventions:
        if inside is not None:
            from goalscope.cli.activations import read_inside

            read_inside(out, inside, full=full, drop_sites=True)
        if interventions:
            from goalscope.cli.interventions import change

            change(out, interventions)
        if can_report():
            report(out, None, None)
        else:
            say(f"next: goalscope report {quote(str(out))} (it needs the extra report: {how_to_install('report')})")
    elif guide:
        say(f"next: goalscope measure {quote(str(out))}, goalscope report {quote(str(out))}")


def merge(out: Path, shards: Sequence[Path]) -> None:
    """Put the shards of a study together."""
    with progress("episodes") as show:
        done = merge_shards(
            shards,
            out,
            progress=lambda finished, total: show(finished, total),
            arguments={"command": "merge", "passed": {"shards": [path.name for path in shards]}},
        )
    with Store(out) as store:
        digest = content_hash(store)
    say(
        f"{counted(done.shards, 'shard')}, {counted(done.episodes, 'episode')}, "
        f"{counted(done.calls, 'journalled call')}: {out}, content hash {digest}"
    )
    if done.measured:
        say(
            "rows of measures are not taken over, since some compare worlds of different shards: measure the merged run"
        )
    if done.read:
        say("activations and probes are not taken over: capture and probe the merged run")
    say(f"next: goalscope measure {quote(str(out))}, goalscope report {quote(str(out))}")


def _check_kept_apart(out: Path, *, imported: bool) -> None:
    """Refuse to put imported trajectories and the episodes of a study into one directory."""
    if unmade(out / DATABASE):
        return
    with Store(out) as store:
        study = store.study()
        [(held,)] = store.query("SELECT COUNT(*) FROM episodes")
    if imported and study is not None:
        ours, theirs = "imported trajectories", f"the run of the study {study.name!r}"
    elif not imported and study is None and held:
        ours, theirs = "a study", "imported trajectories"
    else:
        return
    raise ValueError(
        f"{ours} must have a directory of {'their' if imported else 'its'} own, but {out} holds {theirs}: choose "
        f"another one (goalscope compare {quote(str(out))} OTHER compares both)"
    )


def _tell_declared(study: Study, out: Path) -> None:
    """Say so where the analysis was declared otherwise when the run was begun: that declaration stays."""
    with Store(out) as store:
        stored = store.study()
    if stored is not None and _tests(stored) != _tests(study):
        say(
            f"the analysis that {out} declared when it was begun stays, the one of the study given now differs; "
            "compare with other margins: goalscope compare RUN --transforms --margin ...",
            error=True,
        )


def _tests(study: Study) -> object:
    """Return what a study declares about tests; what it reads out of activations may change from time to time."""
    return (None, ()) if study.analysis is None else (study.analysis.invariance, study.analysis.pairs)


def can_report() -> bool:
    """Return whether the libraries of the extra `report` are there."""
    return all(find_spec(name) is not None for name in ("matplotlib", "jinja2"))


def demo(out: Path) -> None:
    """Run the shipped demo study, measure it, write its report and show the headline."""
    began = time.monotonic()
    study = load_study("demo")
    run_study_of(study, out, passed={"study": "demo", "workers": 1}, guide=False)
    measure_run(out)
    page = out / "report.html"
    _write_report(out, page, None)
    agents = [agent.name for agent in study.agents()]
    with Store(out) as store:
        measured = MeasuredRows(store, SOURCE)
        headline(measured, agents, "Mean and 95 % interval over grids")
        for tag in ("size", "density"):
            across(measured, "action accuracy", agents, tag)
    say(f"Report: {page.resolve()} (written in {duration(time.monotonic() - began)} altogether)")


def import_path(path: Path, out: Path | None, reader: str | None = None) -> bool:
    """Import into a run directory, or check only; return whether everything was read and agrees."""
    if not path.exists():
        raise FileNotFoundError(f"what is imported must be a file or a folder, got {str(path)!r}: there is none")
    if out is not None:
        _check_kept_apart(out, imported=True)
    read = None if reader is None else load_function(reader, "a reader of samples")
    say(f"reading {path}", error=True)
    result = (
        importers.import_path(path, check=True, reader=read)
        if out is None
        else importers.import_into(path, out, reader=read)
    )
    for line in result.lines():
        say(line)
    if result.exit_status:
        if out is None:
            state = "checked, nothing written"
        elif result.counts.get("episodes stored") or result.counts.get("episodes that were stored before"):
            state = f"the rest is in {out}; next: goalscope measure {quote(str(out))}"
        else:
            state = "nothing could be imported, nothing is written"
        say(f"{counted(result.problem_count, 'problem')}; {state}", error=True)
    elif out is None:
        say("no problem: everything can be imported")
    else:
        say(f"no problem: everything is in {out}; next: goalscope measure {quote(str(out))}")
    return not result.exit_status


def measure(path: Path, by: Sequence[str], measures: Sequence[str], *, everything: bool = False) -> None:
    """Measure a run, store the rows, and print a screen of them, or the estimates of named measures, or all."""
    measure_run(path)
    with Store(path) as store:
        state, about_format = unfinished(store), format_lines(episodes_by_agent(store))
        agents = store.agent_names() if store.study() is not None else sorted(store.agent_names())
        for line in about_format:
            say(line)
        if state:
            say(f"{path}: {state}", error=True)
        _show_measured(MeasuredRows(store, SOURCE), path, agents, by, measures, everything=everything)


def _show_measured(
    measured: MeasuredRows,
    path: Path,
    agents: Sequence[str],
    by: Sequence[str],
    measures: Sequence[str],
    *,
    everything: bool,
) -> None:
    """Print what `measure` was asked for."""
    check_measures(measures, list(measured.measures), "this run")
    absent = [name for name in by if name not in measured.values]
    if absent:
        there = ", ".join(name for name in measured.values if name != "agent")
        raise ValueError(f"--by must name tags of this run ({there}), got {', '.join(absent)}: tag its worlds so")
    episodes = measured.of("success")
    conditions = conditions_of(episodes)
    tags = [name for name in dict.fromkeys(("agent", *(by or conditions))) if name in measured.values]
    kept = measures or list(measured.measures)
    if not measures:
        headline(measured, agents, "Mean and 95 % interval over grids", tags=tags, measures=SCREEN)
    if measures or everything:
        estimates_table(measured.estimated(tags, kept), tags, agents)
    if not by and conditions:
        say(f"conditions are shown apart, by {listed(conditions)}; --by agent averages over them")
    if over := mixed(episodes, conditions, tags):
        told = [f"{name} ({listed([number(value) for value in values])})" for name, values in over.items()]
        say(f"these averages mix conditions: {listed(told)}; without --by they are shown apart")
    if measures or everything:
        rows = sum(measured.counts[name] for name in kept)
        say(f"{counted(rows, 'row')} behind these estimates; all rows are stored in {path}")
    else:
        known = counted(len(measured.measures), "measure")
        say(f"{known} in all: --all prints them with n and method; rows are stored in {path}")


def report(path: Path, out: Path | None, ledger: Path | None) -> None:
    """Write the report of a run, which is measured first where its rows do not cover its episodes."""
    page = out or path / "report.html"
    check_outputs(page, ledger)
    measure_missing(path)
    _write_report(path, page, ledger)
    say(f"Report: {page.resolve()}")


def export(path: Path, out: Path, formats: Sequence[str] = (), captures: Sequence[str] = ()) -> None:
    """Write a run as Parquet files, and its activations where formats are named."""
    with Store(path) as store:
        if formats:  # what cannot be written is refused first
            from goalscope.activations.exchange import README, export_activations

            beside = out / "activations"
            with progress("files of activations") as show:
                folders = export_activations(store, beside, formats=formats, chosen=captures, progress=show)
        written = export_parquet(store, out)
    for name, file in sorted(written.items()):
        say(f"{name}: {file} ({file.stat().st_size / 1e6:.1f} MB)")
    for folder in folders if formats else ():
        size = sum(file.stat().st_size for file in folder.iterdir())
        say(f"activations: {folder} ({size / 1e6:.1f} MB), described in {README}")


def export_inspect(path: Path, out: Path) -> None:
    """Write a run as logs of Inspect, one for each agent or several where it has many steps."""
    try:
        from goalscope.inspect_ai.export import export_logs
    except ImportError as error:
        raise lacking("export --inspect needs inspect-ai", "inspect", error) from error
    with Store(path) as store, progress("episodes") as show:
        written = export_logs(store, out, progress=show)
    for file in written:
        say(f"log: {file} ({file.stat().st_size / 1e6:.1f} MB)")
    say(f"next: inspect view --log-dir {quote(str(out))}")


def _write_report(path: Path, page: Path, ledger: Path | None) -> None:
    """Write the page of a run that was measured a moment ago, or found to be."""
    from goalscope.report import write_report

    say("writing the report", error=True)
    with Store(path) as store:
        write_report(store, page, ledger_path=ledger, covered=True)
