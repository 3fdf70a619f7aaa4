"""Rows of runs for the commands that need them, measured where they are missing; estimates as tables, the report."""

import time
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from string import ascii_lowercase
from typing import Any

from goalscope.cli.console import progress, say, table
from goalscope.cli.errors import check_outputs
from goalscope.measures.behaviour import left_out, put_measured
from goalscope.progress import duration
from goalscope.report.blocks import SPARSE, counted, few_of, interval, number
from goalscope.report.definitions import HEADLINE, title_of
from goalscope.report.figures import short
from goalscope.report.measured import MeasuredRows
from goalscope.report.page import not_measured
from goalscope.report.sections.about import unfinished
from goalscope.rows import Rows
from goalscope.runs import Store
from goalscope.runs.episode_columns import count_episodes
from goalscope.runs.hashing import keep_content_hash
from goalscope.runs.provenance import missing_packages
from goalscope.stats import Estimate, Grouped

SCREEN = (
    "success",
    "action accuracy",
    "exploration error",
    "exploitation error",
    "invalid turns",
    "JSD from optimal, excess, per visit",
    "return",
)
"""Measures that `goalscope measure` prints by default, where a run has them."""


def tell_missing(store: Store) -> None:
    """Say which packages of a run are not installed here."""
    if missing := missing_packages(store):
        say(f"{store.path}: {missing}", error=True)


def measure_run(path: Path) -> None:
    """Measure all episodes of a run and store the rows."""
    began = time.monotonic()
    with Store(path) as reader:
        total = count_episodes(reader)
        tell_missing(reader)
    if not total:
        raise ValueError(f"a run must hold episodes to be measured, but {path} holds none: run its study first")
    with Store(path, "w") as store, progress("measuring") as show:
        put_measured(store, show)
        lacking = left_out(store.worlds())
        keep_content_hash(store)  # for the page, which then need not compute it again
    say(f"{counted(total, 'episode')} measured in {duration(time.monotonic() - began)}", error=True)
    if lacking:
        say(lacking, error=True)


def measure_missing(path: Path) -> None:
    """Measure a run whose rows do not cover its episodes, with a message."""
    with Store(path) as store:
        lacking = not_measured(store)
    if lacking:
        say(f"{path}: measuring first, {lacking}", error=True)
        measure_run(path)
        with Store(path) as store:
            if lacking := not_measured(store):  # its table and its indices name different episodes
                raise ValueError(f"{store.path} must hold the episodes that are measured, but {lacking}: it is damaged")


def measured_rows(path: Path) -> Rows:
    """Return all rows of a run for a comparison; it is measured first where they do not cover its episodes."""
    measure_compared(path)
    with Store(path) as store:
        return store.rows()


def measure_compared(path: Path) -> None:
    """Measure a run for a comparison where its rows do not cover its episodes."""
    with Store(path) as store:
        state, lacking = unfinished(store), not_measured(store)
    if state and lacking:
        raise ValueError(
            f"the rows of a run must cover its episodes, but in {path} {lacking} and {state}; or take what is there: "
            f"goalscope measure {quote(str(path))}"
        )
    if state:
        say(f"{path}: {state}", error=True)
    measure_missing(path)


def headline(
    rows: Rows | MeasuredRows,
    agents: Sequence[str],
    title: str,
    *,
    tags: Sequence[str] = ("agent",),
    measures: Sequence[str] = HEADLINE,
) -> None:
    """Print the main measures, one line a group of tags, in the order of the agents."""
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
    columns = [*tags, *(title_of(name) for name in names), "grids"]
    table(columns, lines, title=title, numbers=range(len(tags), len(columns)))
    warn_of_few(estimated for cells in estimates.values() for estimated in cells.values())


def _in_order(groups: Iterable[Grouped], agents: Sequence[str]) -> list[Grouped]:
    """Return estimates in the order of the agents; the order is otherwise kept."""
    ranks = {agent: rank for rank, agent in enumerate(agents)}
    return sorted(groups, key=lambda estimated: ranks.get(str(estimated.key.get("agent")), len(ranks)))


def across(rows: Rows | MeasuredRows, measure: str, agents: Sequence[str], tag: str) -> None:
    """Print one measure of each agent over the values of a tag, one line a value."""
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


def estimates_table(groups: Sequence[Grouped], tags: Sequence[str], agents: Sequence[str]) -> None:
    """Print estimates with interval, n, grids and method, one a line in the order of the agents, and their notes."""
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
    columns = [*tags, "measure", "value", "95 % interval", "unit", "n", "grids", "method"]
    first = len(tags) + 1
    table(columns, lines, title="Estimates, intervals over grids", numbers=(first, first + 1, first + 3, first + 4))
    for note, letter in letters.items():
        say(f"{letter}: {note}")
    warn_of_few(grouped.estimate for grouped in groups)


def written(estimate: Estimate | None) -> str:
    """Write an estimate as a cell: value, interval, and the number of its grids where some have no value."""
    if estimate is None:
        return "–"
    few = few_of(estimate, "grid")
    return f"{short(estimate.value, estimate.unit)} {interval(estimate)} {f'({few})' if few else ''}".strip()


def warn_of_few(estimates: Iterable[Estimate]) -> None:
    """Print the note on values from few grids below a table that has some."""
    if any(estimate.sparse for estimate in estimates):
        say(SPARSE)


def can_report() -> bool:
    """Return whether the libraries of the extra `report` are installed."""
    return all(find_spec(name) is not None for name in ("matplotlib", "jinja2"))


def report(path: Path, out: Path | None, ledger: Path | None) -> None:
    """Write the report of a run, which is measured first where its rows do not cover its episodes."""
    page = out or path / "report.html"
    check_outputs(page, ledger)
    measure_missing(path)
    with Store(path) as store:
        tell_missing(store)
    write_page_of(path, page, ledger)
    say(f"Report: {page.resolve()}")


def write_page_of(path: Path, page: Path, ledger: Path | None) -> None:
    """Write the page of a run whose rows cover its episodes."""
    from goalscope.report import write_report

    say("writing the report", error=True)
    with Store(path) as store:
        write_report(store, page, ledger_path=ledger, covered=True)
