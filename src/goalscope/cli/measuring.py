"""The commands `measure` and `report`, and the tables of estimates that several commands print."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Annotated, Any

import numpy as np

from goalscope._ground.arguments import OutFile, RunDirectory, Separated
from goalscope._ground.words import counted, listed, short
from goalscope.cli.console import json_text, progress, say, table
from goalscope.cli.front.measuring import check_tags, measure_run, write_page_of
from goalscope.cli.front.measuring import measure as measure_rows
from goalscope.cli.generator import lists
from goalscope.measures.behaviour import BEHAVIOUR, behaviour_measures, conditions_of, mixed
from goalscope.report.blocks import SPARSE, few_of, interval, number
from goalscope.report.definitions import HEADLINE, explain_failed_turns, shown_accuracies, title_of
from goalscope.report.measured import MeasuredRows, episodes_by_agent
from goalscope.report.pairings import check_measures
from goalscope.report.sections.about import format_lines, unfinished
from goalscope.runs import Store
from goalscope.stats import Estimate, Grouped
from goalscope.stats.rows import Rows

SCREEN = (
    "success",
    "action accuracy",
    "exploration error",
    "exploitation error",
    "invalid turns",
    "JSD from optimal, excess, per visit",
    "return",
)
"""Measures that `goalscope measure` prints by default, if a run has them."""


def headline(
    rows: Rows | MeasuredRows,
    agents: Sequence[str],
    title: str,
    *,
    tags: Sequence[str] = ("agent",),
    measures: Sequence[str] = HEADLINE,
) -> None:
    """Print the main measures, one line per group of tags, in the order of the agents."""
    measured = rows if isinstance(rows, MeasuredRows) else MeasuredRows(rows)
    estimates: dict[tuple[Any, ...], dict[str, Estimate]] = {}
    for estimated in _in_order(measured.estimated(tags, measures), agents):
        estimates.setdefault(tuple(estimated.key[tag] for tag in tags), {})[str(estimated.key["measure"])] = (
            estimated.estimate
        )
    names = [name for name in measures if any(name in cells for cells in estimates.values())]
    lines = [
        (
            *(number(value) if value is not None else "" for value in group),
            *(written(cells.get(name)) for name in names),
            str(max(estimated.clusters for estimated in cells.values())),
        )
        for group, cells in estimates.items()
    ]
    columns = [*tags, *(title_of(name) for name in names), f"{measured.noun}s"]
    table(columns, lines, title=title, numbers=range(len(tags), len(columns)))
    warn_of_few(estimated for cells in estimates.values() for estimated in cells.values())


def _in_order(groups: Iterable[Grouped], agents: Sequence[str]) -> list[Grouped]:
    """Sort estimates by agent; the order is otherwise unchanged."""
    ranks = {agent: rank for rank, agent in enumerate(agents)}
    return sorted(groups, key=lambda estimated: ranks.get(str(estimated.key.get("agent")), len(ranks)))


def across(rows: Rows | MeasuredRows, measure: str, agents: Sequence[str], tag: str) -> None:
    """Print one measure of each agent, one line per value of a tag."""
    measured = rows if isinstance(rows, MeasuredRows) else MeasuredRows(rows)
    estimates = {
        (estimated.key["agent"], estimated.key[tag]): estimated.estimate
        for estimated in measured.estimated(("agent", tag), (measure,))
    }
    values = sorted({value for _, value in estimates if value is not None}, key=float)
    lines = []
    for value in values:
        row = [estimates.get((agent, value)) for agent in agents]
        grids = max((estimate.all_clusters for estimate in row if estimate), default=0)
        lines.append((number(value), *map(written, row), str(grids)))
    columns = [tag, *agents, "grids"]
    table(columns, lines, title=f"{title_of(measure)} by {tag}", numbers=range(len(columns)))
    warn_of_few(estimates.values())


def estimates_table(groups: Sequence[Grouped], tags: Sequence[str], agents: Sequence[str], noun: str) -> None:
    """Print one line per estimate, with interval, n, number of worlds (called ``noun``), method and notes."""
    lines = []
    letters: dict[str, str] = {}
    for grouped in _in_order(groups, agents):
        estimate = grouped.estimate
        keys = [number(grouped.key[tag]) if grouped.key[tag] is not None else "" for tag in tags]
        method = estimate.method if estimate.has_interval else estimate.note
        if estimate.has_interval and "cover" in estimate.note:
            method += f" ({letters.setdefault(estimate.note, ascii_lowercase[len(letters)])})"
        lines.append(
            (
                *keys,
                str(grouped.key["measure"]),
                short(estimate.value, estimate.unit),
                interval(estimate) or "undefined",
                estimate.unit,
                str(estimate.n),
                few_of(estimate) or str(estimate.clusters),
                method,
            )
        )
    columns = [*tags, "measure", "value", "95 % interval", "unit", "n", f"{noun}s", "method"]
    first = len(tags) + 1
    table(columns, lines, title=f"Estimates, intervals over {noun}s", numbers=(first, first + 1, first + 3, first + 4))
    for note, letter in letters.items():
        say(f"{letter}: {note}")
    warn_of_few(grouped.estimate for grouped in groups)


def written(estimate: Estimate | None) -> str:
    """Format an estimate for a cell: value, interval, and its number of grids if some grids have no value."""
    if estimate is None:
        return "–"
    few = few_of(estimate, "grid")
    return f"{short(estimate.value, estimate.unit)} {interval(estimate)} {f'({few})' if few else ''}".strip()


def warn_of_few(estimates: Iterable[Estimate]) -> None:
    """Print the note on values from few grids, if any of the estimates needs it."""
    if any(estimate.sparse for estimate in estimates):
        say(SPARSE)


def _definitions() -> list[tuple[str, str]]:
    """Return each registered measure with its definition, followed by the names of its variants."""
    entries, variants = dict[str, str](), dict[str, list[str]]()
    for measure in behaviour_measures():
        base = getattr(measure, "base", "")
        if base:
            variants.setdefault(base, []).append(measure.name)
        else:
            text = getattr(measure, "text", "not defined by its package")
            low, high = measure.bounds
            entries[measure.name] = f"{text} ({measure.unit}, {low:g} to {high:g})"
    return [
        (name, f"{text}. Also: {'; '.join(variants[name])}" if name in variants else text)
        for name, text in entries.items()
    ]


@lists("Measures", _definitions)
def measure(
    run: RunDirectory,
    *,
    by: Sequence[str] = (),
    measures: Annotated[Sequence[str], Separated(";")] = (),
    everything: bool = False,
    as_json: bool = False,
) -> None:
    """Measure all episodes of a run, store the rows, and print the main estimates with their confidence intervals.

    Args:
        run: the run directory (it contains run.db).
        by (TAGS): group by agent and these tags, e.g. size,density. Default: by all conditions.
        measures (NAMES): print only these measures, separated by ';' (all are stored). They are listed below.
        everything: print all measures, with n and method.
        as_json: print all estimates, or those of --measures, as JSON.

    Examples:
        goalscope measure runs/demo
        goalscope measure runs/demo --by size,density --measures 'success;action accuracy'
    """
    if as_json:
        estimates = measure_rows(run, by=("agent", *by), measures=measures or None, stage=progress)
        say(json_text(estimates.records))
        return
    measure_run(run, progress)
    with Store(run) as store:
        state, about_format = unfinished(store), format_lines(episodes_by_agent(store))
        agents = store.agent_names() if store.study() is not None else sorted(store.agent_names())
        for line in about_format:
            say(line)
        if state:
            say(f"{run}: {state}", error=True)
        study = store.study()
        setting = study.analysis.failed_turns if study is not None and study.analysis is not None else "wrong"
        measured = MeasuredRows(store, BEHAVIOUR)
        _show_measured(measured, run, agents, by, measures, everything=everything, failed_turns=setting)


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
    """Print the results of `measure`. For ``failed_turns`` see `goalscope.runs.probing_config.Analysis`."""
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
        if (several_scales := [name for name in screen if {*measured.scales(name)} - {*tags}]) and not everything:
            estimates_table(measured.estimated(tags, several_scales), tags, agents, measured.noun)
    if measures or everything:
        estimates_table(measured.estimated(tags, shown_measures), tags, agents, measured.noun)
    if not by and conditions:
        say(f"conditions are shown separately, by {listed(conditions)}; --by agent averages over them")
    if over := mixed(episodes, conditions, tags):
        mixed_tags = [f"{name} ({listed([number(value) for value in values])})" for name, values in over.items()]
        say(f"these averages mix conditions: {listed(mixed_tags)}; without --by they are shown separately")
    if measures or everything:
        rows = sum(measured.counts[name] for name in shown_measures)
        say(f"these estimates are based on {counted(rows, 'row')}; all rows are stored in {path}")
    else:
        total = counted(len(measured.measures), "measure")
        say(f"{total} in all; --all prints them with n and method; the rows are stored in {path}")


def report(
    run: RunDirectory,
    *,
    out: OutFile = None,
    ledger: OutFile = None,
) -> None:
    """Write the report of a run as one HTML page. A run that has not been measured yet is measured first.

    Args:
        run: the run directory (it contains run.db).
        out: the page to write. Default: RUN/report.html.
        ledger: also write all numbers to this file as JSON.

    Examples:
        goalscope report runs/demo --out demo.html
        goalscope report runs/demo --ledger numbers.json
    """
    say(f"Report: {write_page_of(run, out, ledger, progress).resolve()}")
