"""The work of the commands demo, import, measure and export."""

import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import numpy as np

from goalscope._ground import registry
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.progress import duration
from goalscope._ground.words import counted, listed
from goalscope.cli.console import json_text, progress, say
from goalscope.cli.front.importing import import_logs
from goalscope.cli.front.measuring import check_tags, measure_run, write_page_of
from goalscope.cli.front.measuring import measure as measure_estimates
from goalscope.cli.measuring import SCREEN, across, estimates_table, headline
from goalscope.cli.studies import load_study, run_study_of
from goalscope.measures.behaviour import BEHAVIOUR, conditions_of, mixed
from goalscope.report.blocks import number, size_in_words
from goalscope.report.definitions import explain_failed_turns, shown_accuracies
from goalscope.report.measured import MeasuredRows, episodes_by_agent
from goalscope.report.pairings import check_measures
from goalscope.report.sections.about import format_lines, unfinished
from goalscope.runs import Store, export_parquet
from goalscope.runs.export import write_checksums
from goalscope.verdict.opening import run_folders


def demo(out: Path) -> None:
    """Run the shipped demo study, measure it, write its report and show the headline."""
    began = time.monotonic()
    study = load_study("demo")
    run_study_of(study, out, passed={"study": "demo", "workers": 1}, guide=False)
    measure_run(out, progress)
    page = write_page_of(out, stage=progress)
    agents = [agent.name for agent in study.agents()]
    with Store(out) as store:
        measured = MeasuredRows(store, BEHAVIOUR)
        headline(measured, agents, "Mean and 95 % interval over grids")
        for tag in ("size", "density"):
            across(measured, "action accuracy", agents, tag)
    say(f"Report: {page.resolve()} (written in {duration(time.monotonic() - began)} altogether)")


def import_path(path: Path, out: Path | None, reader: str | None = None) -> bool:
    """Import into a run directory, or check only; return whether there was no problem."""
    result = import_logs(path, out, reader=reader)
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
        episodes = result.counts.get("trajectories", 0)
        say("no problem: " + ("everything can be imported" if episodes else "every label agrees, there is no episode"))
    else:
        say(f"no problem: everything is in {out}; next: goalscope measure {quote(str(out))}")
    return not result.exit_status


def measure(
    path: Path, by: Sequence[str], measures: Sequence[str], *, everything: bool = False, as_json: bool = False
) -> None:
    """Measure a run, store the rows, and print a screen of them, or the estimates of named measures, or all."""
    if as_json:
        found = measure_estimates(path, by=("agent", *by), measures=measures or None, stage=progress)
        say(json_text(found.records))
        return
    measure_run(path, progress)
    with Store(path) as store:
        state, about_format = unfinished(store), format_lines(episodes_by_agent(store))
        agents = store.agent_names() if store.study() is not None else sorted(store.agent_names())
        for line in about_format:
            say(line)
        if state:
            say(f"{path}: {state}", error=True)
        study = store.study()
        setting = study.analysis.failed_turns if study is not None and study.analysis is not None else "wrong"
        measured = MeasuredRows(store, BEHAVIOUR)
        _show_measured(measured, path, agents, by, measures, everything=everything, failed_turns=setting)


def _show_measured(
    measured: MeasuredRows,
    path: Path,
    agents: Sequence[str],
    by: Sequence[str],
    measures: Sequence[str],
    *,
    everything: bool,
    failed_turns: str,
) -> None:
    """Print the results of `measure`; ``failed_turns``: see `goalscope.runs.probing_config.Analysis`."""
    check_measures(measures, list(measured.measures), "this run")
    check_tags(by, measured)
    episodes = measured.of("success")
    conditions = conditions_of(episodes)
    tags = [name for name in dict.fromkeys(("agent", *(by or conditions))) if name in measured.values]
    shown_measures = measures or list(measured.measures)
    if not measures:
        screen = shown_accuracies(SCREEN, failed_turns)
        headline(measured, agents, f"Mean and 95 % interval over {measured.noun}s", tags=tags, measures=screen)
        without_action = measured.of("invalid turns", "withheld turns", episodes=False)
        if "action accuracy" in measured.measures and without_action.value[~np.isnan(without_action.value)].any():
            say(explain_failed_turns(failed_turns))
        if (own := [name for name in screen if {*measured.scales(name)} - {*tags}]) and not everything:
            estimates_table(measured.estimated(tags, own), tags, agents, measured.noun)
    if measures or everything:
        estimates_table(measured.estimated(tags, shown_measures), tags, agents, measured.noun)
    if not by and conditions:
        say(f"conditions are shown apart, by {listed(conditions)}; --by agent averages over them")
    if over := mixed(episodes, conditions, tags):
        mixed_tags = [f"{name} ({listed([number(value) for value in values])})" for name, values in over.items()]
        say(f"these averages mix conditions: {listed(mixed_tags)}; without --by they are shown apart")
    if measures or everything:
        rows = sum(measured.counts[name] for name in shown_measures)
        say(f"{counted(rows, 'row')} behind these estimates; all rows are stored in {path}")
    else:
        total = counted(len(measured.measures), "measure")
        say(f"{total} in all: --all prints them with n and method; rows are stored in {path}")


def export(path: Path, out: Path, formats: Sequence[str] = (), captures: Sequence[str] = ()) -> None:
    """Write a run, or those of an evaluation's arms, as Parquet files, and activations where formats are named."""
    for name, folder in run_folders(path).items():
        _export_run(folder, Folder(out).below(name).checked() if name else out, formats, captures)


def _export_run(path: Path, out: Path, formats: Sequence[str], captures: Sequence[str]) -> None:
    with Store(path) as store:
        if formats:  # first, so that formats that cannot be written are refused before the tables
            from goalscope.inside.activations.exchange import README, export_activations

            folder_path = Folder(out).below("activations").checked()
            with progress("files of activations") as show:
                folders = export_activations(store, folder_path, formats=formats, chosen=captures, progress=show)
        written = export_parquet(store, out)
    say(f"checksums: {write_checksums(out, [*written.values(), *(folders if formats else ())])}")
    for name, file in sorted(written.items()):
        say(f"{name}: {file} ({size_in_words(NamedFile(file).status().st_size)})")
    for folder in folders if formats else ():
        size = sum(status.st_size for _, status in Folder(folder).entries())
        say(f"activations: {folder} ({size_in_words(size)}), described in {README}")


def export_as(path: Path, out: Path, format: str) -> None:
    """Write a run, or those of an evaluation's arms, in a registered format."""
    write = registry.resolve("exporter", format)
    for name, folder in run_folders(path).items():
        with Store(folder) as store, progress("episodes") as show:
            place = Folder(out).below(name).checked() if name else out
            written = write(store, place, show)
        say(f"checksums: {write_checksums(place, written)}")
        for file in written:
            say(f"{format}: {file} ({size_in_words(NamedFile(file).status().st_size)})")
