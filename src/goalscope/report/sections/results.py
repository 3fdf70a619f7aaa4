"""The main measures of each agent in grids, measures of other packages, and iso-difficulty transforms."""

import math
from collections.abc import Iterator, Sequence

from goalscope._ground.words import counted
from goalscope.measures.comparison import Compared, check_transformed, compare_transforms
from goalscope.measures.definition import PAPER
from goalscope.report.blocks import Declared, Figure, TableSpec, by_agent, mean_over, section
from goalscope.report.charts import Forest, ForestBar
from goalscope.report.comparison import comparison_table, grids_table, transform_of
from goalscope.report.definitions import HEADLINE, explain_failed_turns, in_sentence, shown_accuracies, title_of
from goalscope.report.ledger import RunData, describe_key
from goalscope.report.texts import TEXTS
from goalscope.runs.provenance import packages_of


@section("results", worlds="grids")
def headline(run: RunData) -> Iterator[Declared]:
    """Yield the report's first section for grids: a table of agents and their main measures."""
    setting = run.analysis.failed_turns
    accuracies = shown_accuracies(HEADLINE, setting)
    tables = [by_agent(run.ledger, accuracies, group, "Main measures") for group in run.ledger.groups("agent")]
    other_tables, figures = of_packages(run)
    yield Declared(
        anchor="results",
        title="Results",
        explained=(TEXTS("tasks/intervals").replace("grid", run.ledger.noun), explain_failed_turns(setting)),
        tables=[*tables, *other_tables],
        figures=figures,
    )


def of_packages(run: RunData) -> tuple[list[TableSpec], list[Figure]]:
    """Return tables and figures of the measures that were registered by other packages or by files in the working
    directory.

    The tables have the form of the main tables. There is a figure for each measure with mean and interval, one line per
    agent.
    """
    names = [name for kind, name in packages_of(run.store) if kind == "measure" and name in run.ledger.measures]
    groups = run.ledger.groups("agent") if names else []
    figures = []
    for name in names:
        bars = [
            ForestBar(agent, style, describe_key(group) or "all worlds", estimate)
            for group in groups
            for style, agent in enumerate(run.ledger.agents)
            if (estimate := run.ledger.find("agent", name, agent=agent, **group)) is not None
        ]
        if bars:
            title = title_of(name)
            chart = Forest(bars, title=title, x_label=f"{in_sentence(name)} ({run.ledger.measures[name]})")
            figures.append(Figure(chart, title, f"{title}: {mean_over(run.ledger.noun)}"))
    return [by_agent(run.ledger, names, group, "Measures of other packages") for group in groups], figures


@section("invariance", source=f"{PAPER}, Table 3 and Fig. 14", worlds="grids")
def invariance(run: RunData) -> Iterator[Declared]:
    """Yield the report's section that compares agents on transformed grids (e.g. rotated ones) with the original grids.

    Only runs have it whose study declares this analysis.
    """
    declared, agents, title = run.analysis.invariance, run.ledger.agents, "Iso-difficulty transforms"
    if declared is None:
        return
    try:
        check_transformed(run.rows_of(*declared.margin))
    except ValueError as error:
        yield Declared(anchor="invariance", title=title, paragraphs=(f"Not done: {error}.",))
        return
    rows = run.rows_of(*declared.margin)
    contrasts = compare_transforms(rows, margin=declared.margin, agents=agents, level=declared.level)
    tables = []
    for agent in agents:
        of_agent = [contrast for contrast in contrasts if contrast.tags["agent"] == agent]
        family = counted(len(of_agent), "test")
        tables.append(comparison_table(of_agent, caption=f"{agent}: transformed − original, a family of {family}"))
        tables.append(grids_table(of_agent, caption=f"{agent}: differences of single grids, a family of {family}"))
    yield Declared(
        anchor="invariance",
        title=title,
        explained=(
            f"{TEXTS('invariance/how')} After {PAPER}, Table 3 and Fig. 14. Level {declared.level:g}.",
            TEXTS("invariance/elsewhere"),
        ),
        tables=tables,
        figures=list(_figures(contrasts, agents)),
        legend=TEXTS("invariance/legend"),
    )


def _figures(contrasts: Sequence[Compared], agents: Sequence[str]) -> Iterator[Figure]:
    for measure in dict.fromkeys(contrast.measure for contrast in contrasts):
        of_measure = [contrast for contrast in contrasts if contrast.measure == measure]
        drawn = [
            ForestBar(
                agent := str(contrast.tags["agent"]),
                agents.index(agent),
                transform_of(contrast),
                contrast.paired.difference,
                filled=contrast.shown is not None and contrast.shown.rejected,
            )
            for contrast in of_measure
        ]
        if not all(math.isnan(entry.estimate.value) for entry in drawn):
            unit = next(contrast.paired.difference.unit for contrast in of_measure if contrast.paired.difference.unit)
            margin = next((contrast.equivalence.margin for contrast in of_measure if contrast.equivalence), None)
            title = f"{title_of(measure)}: transformed − original"
            chart = Forest(drawn, title=title, x_label=f"difference in {in_sentence(measure)} ({unit})", margin=margin)
            yield Figure(chart, f"{title_of(measure)}, difference of each transform from the original grids")
