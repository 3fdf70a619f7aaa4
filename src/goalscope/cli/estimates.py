"""Estimates as the command line prints them."""

from collections.abc import Iterable, Sequence
from string import ascii_lowercase

from goalscope.cli.console import say, table
from goalscope.measures.behaviour import measure_bounds
from goalscope.report.blocks import SPARSE, few_of, interval, number
from goalscope.report.definitions import HEADLINE, title_of
from goalscope.report.figures import short
from goalscope.rows import Rows
from goalscope.stats import Estimate, Grouped, estimate_rows


def headline(rows: Rows, agents: Sequence[str], title: str) -> None:
    """Print the main measures of each agent, one line an agent."""
    found = {
        (grouped.key["agent"], grouped.key["measure"]): grouped.estimate
        for grouped in estimate_rows(
            rows.where(rows.among("measure", HEADLINE)), by=("agent",), whole=rows, bounds=measure_bounds()
        )
    }
    names = [name for name in HEADLINE if any(measure == name for _, measure in found)]
    lines = []
    for agent in agents:
        lines.append((str(agent), *(written(found.get((agent, name))) for name in names)))
    columns = ["agent", *(title_of(name) for name in names)]
    table(columns, lines, title=title, numbers=range(1, len(columns)))
    warn_of_few(found.values())


def across(rows: Rows, measure: str, agents: Sequence[str], tag: str) -> None:
    """Print one measure of each agent over the values of a tag, one line a value."""
    found = {
        (grouped.key["agent"], grouped.key[tag]): grouped.estimate
        for grouped in estimate_rows(
            rows.select(measure=measure), by=("agent", tag), whole=rows, bounds=measure_bounds()
        )
    }
    values = sorted({value for _, value in found if value is not None}, key=float)
    lines = []
    for value in values:
        each = [found.get((agent, value)) for agent in agents]
        grids = max((estimate.grids for estimate in each if estimate), default=0)
        lines.append((number(value), *map(written, each), str(grids)))
    columns = [tag, *agents, "grids"]
    table(columns, lines, title=f"{title_of(measure)} by {tag}", numbers=range(len(columns)))
    warn_of_few(found.values())


def estimates_table(listed: Sequence[Grouped], tags: Sequence[str]) -> None:
    """Print estimates with interval, n, grids and method, one a line, and below them what limits some of them."""
    lines = []
    letters: dict[str, str] = {}
    for grouped in listed:
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
    lines.sort(key=lambda line: line[0])
    columns = [*tags, "measure", "value", "95 % interval", "unit", "n", "grids", "method"]
    first = len(tags) + 1
    table(columns, lines, title="Estimates, intervals over grids", numbers=(first, first + 1, first + 3, first + 4))
    for note, letter in letters.items():
        say(f"{letter}: {note}")
    warn_of_few(grouped.estimate for grouped in listed)


def written(estimate: Estimate | None) -> str:
    """Write an estimate as a cell: value, interval, and the number of its grids where some have no value."""
    if estimate is None:
        return "–"
    few = few_of(estimate, "grid")
    return f"{short(estimate.value, estimate.unit)} {interval(estimate)} {f'({few})' if few else ''}".strip()


def warn_of_few(estimates: Iterable[Estimate]) -> None:
    """Say below a table what its values from few grids are, where it has any."""
    if any(estimate.sparse for estimate in estimates):
        say(SPARSE)
