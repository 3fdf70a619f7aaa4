"""Rows of runs for the commands that need them, measured where they are missing; estimates as tables, the report."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from goalscope._ground.words import short
from goalscope.cli.console import progress, say, table
from goalscope.cli.errors import check_outputs
from goalscope.cli.front.measuring import write_page_of
from goalscope.report.blocks import SPARSE, few_of, interval, number
from goalscope.report.definitions import HEADLINE, title_of
from goalscope.report.measured import MeasuredRows
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
"""Measures that `goalscope measure` prints by default, where a run has them."""


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
    columns = [*tags, *(title_of(name) for name in names), f"{measured.noun}s"]
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


def estimates_table(groups: Sequence[Grouped], tags: Sequence[str], agents: Sequence[str], noun: str) -> None:
    """Print estimates with interval, n, worlds (by ``noun``) and method, a line each, and their notes."""
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
    """Write an estimate as a cell: value, interval, and the number of its grids where some have no value."""
    if estimate is None:
        return "–"
    few = few_of(estimate, "grid")
    return f"{short(estimate.value, estimate.unit)} {interval(estimate)} {f'({few})' if few else ''}".strip()


def warn_of_few(estimates: Iterable[Estimate]) -> None:
    """Print the note on values from few grids below a table that has some."""
    if any(estimate.sparse for estimate in estimates):
        say(SPARSE)


def report(path: Path, out: Path | None, ledger: Path | None) -> None:
    """Write the report of a run, which is measured first where its rows do not cover its episodes."""
    check_outputs(out, ledger)
    say(f"Report: {write_page_of(path, out, ledger, progress).resolve()}")
