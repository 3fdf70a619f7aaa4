"""The commands `measure` and `report`: measure runs whose rows are missing, and write their reports."""

import time
from collections.abc import Collection, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from string import ascii_lowercase
from typing import Annotated, Any

import numpy as np

from goalscope._ground.progress import TALLY, Stage, aloud, duration, lines
from goalscope._ground.words import counted, listed, short
from goalscope.cli.console import json_text, progress, say, table
from goalscope.cli.generator import OutFile, RunDirectory, Separated, lists
from goalscope.measures.behaviour import (
    BEHAVIOUR,
    behaviour_measures,
    conditions_of,
    left_out,
    mixed,
    put_measured,
    why_left_out,
)
from goalscope.report.blocks import SPARSE, few_of, interval, number
from goalscope.report.comparison import check_measures
from goalscope.report.definitions import HEADLINE, explain_failed_turns, shown_accuracies, title_of
from goalscope.report.ledger import MeasuredRows, Run, RunEstimates, episodes_by_agent
from goalscope.report.page import not_measured
from goalscope.report.sections.about import format_lines, unfinished
from goalscope.runs import Store
from goalscope.runs.episode_columns import count_episodes
from goalscope.runs.hashing import keep_content_hash
from goalscope.runs.provenance import missing_packages, noted_of_answers
from goalscope.stats import Estimate, Grouped
from goalscope.stats.rows import Rows


def measure(
    run: str | Path | Run,
    *,
    by: Sequence[str] = ("agent",),
    measures: Collection[str] | None = None,
    stage: Stage = lines,
) -> RunEstimates:
    """Measure all episodes of a run, store the values as rows, and return estimates with intervals over grids.

    Args:
        run: the run directory.
        by: tags to group by, e.g. ``("agent", "size")``.
        measures: measures to return; None for all. All are stored.
        stage: shows the progress of a task.

    Raises:
        ValueError: if the run contains no episodes, or a measure or tag is unknown.
    """
    path = run.path if isinstance(run, Run) else Path(run)
    with aloud():
        measure_run(path, stage, measures)
    with Store(path) as store:
        measured = MeasuredRows(store, BEHAVIOUR)
        _check_measured(list(measures or ()), measured, store, "measures")
        check_tags(by, measured, "by")
        return RunEstimates(measured.estimated(by, measures))


def _check_measured(names: Sequence[str], measured: MeasuredRows, store: Store, option: str = "--measures") -> None:
    """Raise a ValueError if a run has no rows of a measure, which says so if these worlds lack what it needs."""
    for name in names:
        if name not in measured.measures and (why := why_left_out(name, store.worlds())):
            raise ValueError(f"{option}: {why}")
    check_measures(names, list(measured.measures), "this run", option)


def check_tags(by: Sequence[str], measured: MeasuredRows, option: str = "--by") -> None:
    """Check that a run has the tags (such as "size") by which results are to be grouped.

    Raises:
        ValueError: if no row of results has one of the tags; the message names the option and the tags that exist.
    """
    if absent := [name for name in by if name not in measured.values]:
        present = ", ".join(name for name in measured.values if name != "agent")
        raise ValueError(
            f"{option}: this run has no tag {', '.join(absent)}. Choose from {present}, or add the tag to the worlds "
            "of the study"
        )


def tell_missing(store: Store) -> None:
    """Print which packages a run used that are not installed here; nothing if all are."""
    if missing := missing_packages(store):
        TALLY.tell(f"{store.path}: {missing}")


def measure_run(path: Path, stage: Stage = lines, measures: Collection[str] | None = None) -> None:
    """Measure all episodes of a run, store the results as rows with the run, and print how long it took.

    Args:
        path: the run directory.
        stage: shows the progress of a task.
        measures: the measures that the user asked for, to report those that do not apply here; None for all.

    Raises:
        ValueError: if the run contains no episodes.
    """
    began = time.monotonic()
    with Store(path) as reader:
        total = count_episodes(reader)
        tell_missing(reader)
    if not total:
        raise ValueError(f"{path} contains no episodes to measure: run its study first")
    with Store(path, "w") as store, stage("measuring") as show:
        put_measured(store, show)
        lacking, notes = left_out(store.worlds(), measures), noted_of_answers(store)
        keep_content_hash(store)  # so that the page need not compute it again
    TALLY.tell(f"{counted(total, 'episode')} measured in {duration(time.monotonic() - began)}")
    for line in (*notes, *([lacking] if lacking else [])):
        TALLY.tell(line)


def measure_missing(path: Path, stage: Stage = lines) -> None:
    """Measure a run if some of its episodes have no stored results yet, and say so.

    Raises:
        ValueError: if the run is damaged, so that episodes still lack results.
    """
    with Store(path) as store:
        lacking = not_measured(store)
    if lacking:
        TALLY.tell(f"{path}: measuring first, {lacking}")
        measure_run(path, stage)
        with Store(path) as store:
            if lacking := not_measured(store):  # its table and its indices name different episodes
                raise ValueError(
                    f"{store.path} is damaged: after measuring it, {lacking}; see goalscope doctor {quote(str(path))}"
                )


def measured_rows(path: Path, stage: Stage = lines) -> Rows:
    """Return all results of a run, as rows with one value of one measure each. A run with unmeasured episodes is
    measured first.

    Args:
        path: directory of the run.
        stage: shows the progress of the measuring.

    Raises:
        ValueError: the run is unfinished, and some of its episodes are not measured.
    """
    measure_compared(path, stage)
    with Store(path) as store:
        return store.rows()


def measure_compared(path: Path, stage: Stage = lines) -> None:
    """Measure a run that is to be compared with others, if some of its episodes have no stored results yet."""
    with Store(path) as store:
        state, lacking = unfinished(store), not_measured(store)
    if state and lacking:
        raise ValueError(
            f"in {path} {lacking}, and {state}; to use the episodes stored so far, run goalscope measure "
            f"{quote(str(path))} first"
        )
    if state:
        TALLY.tell(f"{path}: {state}")
    measure_missing(path, stage)


def can_report() -> bool:
    """Return whether jinja2, which reports need, is installed (it comes with the extra `report`)."""
    return find_spec("jinja2") is not None


def write_page_of(path: Path, out: Path | None = None, ledger: Path | None = None, stage: Stage = lines) -> Path:
    """Write the report of a run as an HTML page. A run with episodes that are not measured yet is measured first.

    Args:
        path: the run directory.
        out: the page; RUN/report.html by default.
        ledger: a file for all numbers as JSON; None for no such file.
        stage: shows the progress of a task.

    Returns:
        The path of the page.
    """
    from goalscope.report import write_report

    measure_missing(path, stage)
    TALLY.tell("writing the report")
    with Store(path) as store:
        tell_missing(store)
        page = out or path / "report.html"
        write_report(store, page, ledger_path=ledger, covered=True)
    return page


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
    """Print a table of the main measures of a run, with one line per agent (or per combination of values of other
    tags).

    Args:
        rows: rows of results.
        agents: names of agents in the order of the lines.
        title: title of the table.
        tags: tags to group by.
        measures: the measures to print, if there are results.
    """
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
    """Print a table of one measure, with one line per value of a tag (such as "size") and one column per agent."""
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
    """Print a table with one line per estimate: tags, measure, value, interval, n, number of groups, method and notes.

    Args:
        groups: the estimates.
        tags: the tags to show.
        agents: names of agents in the order of the lines.
        noun: the word for the groups over which intervals are computed, such as "grid".
    """
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
    """Format an estimate for a table cell: value, interval, and the number of its grids if some grids have no value.

    None becomes a dash.
    """
    if estimate is None:
        return "–"
    few = few_of(estimate, "grid")
    return f"{short(estimate.value, estimate.unit)} {interval(estimate)} {f'({few})' if few else ''}".strip()


def warn_of_few(estimates: Iterable[Estimate]) -> None:
    """Print a note on values that come from few grids, if any of the estimates does."""
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
def measure_and_show(
    run: RunDirectory,
    *,
    by: Sequence[str] = (),
    measures: Annotated[Sequence[str], Separated(";")] = (),
    everything: bool = False,
    as_json: bool = False,
) -> None:
    """Measure all episodes of a run, store the values, and print the main estimates with confidence intervals.

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
        estimates = measure(run, by=("agent", *by), measures=measures or None, stage=progress)
        say(json_text(estimates.records))
        return
    measure_run(run, progress, measures or None)
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
        _check_measured(measures, measured, store)
        check_tags(by, measured)
        episodes = measured.of("success")
        conditions = conditions_of(episodes)
        tags = [name for name in dict.fromkeys(("agent", *(by or conditions))) if name in measured.values]
        shown_measures = measures or list(measured.measures)
        if not measures:
            screen = shown_accuracies(SCREEN, setting)
            headline(measured, agents, f"Mean and 95 % interval over {measured.noun}s", tags=tags, measures=screen)
            without_action = measured.of("invalid turns", "withheld turns", episodes=False)
            if "action accuracy" in measured.measures and without_action.value[~np.isnan(without_action.value)].any():
                say(explain_failed_turns(setting))
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
            say(f"these estimates are based on {counted(rows, 'row')}; all rows are stored in {run}")
        else:
            total = counted(len(measured.measures), "measure")
            say(f"{total} in all; --all prints them with n and method; the rows are stored in {run}")


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
