"""The section on iso-difficulty transforms: the paper's table with intervals and equivalence tests, and single
grids.
"""

import math
from collections.abc import Iterator, Sequence

from goalscope._ground.words import counted
from goalscope.measures.comparison import Compared, check_transformed, compare_transforms
from goalscope.measures.definition import PAPER
from goalscope.report.charts import Forest, ForestBar
from goalscope.report.comparison import comparison_table, grids_table, transform_of
from goalscope.report.definitions import in_sentence, title_of
from goalscope.report.ledger import RunData
from goalscope.report.specs import Declared, Figure, section
from goalscope.report.texts import TEXTS

_HOW = TEXTS("invariance/how")
_ELSEWHERE = TEXTS("invariance/elsewhere")
_LEGEND = TEXTS("invariance/legend")


@section("invariance", source=f"{PAPER}, Table 3 and Fig. 14", worlds="grids")
def invariance(run: RunData) -> Iterator[Declared]:
    """Yield the section that compares transformed grids with the originals, if the study declares this analysis."""
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
        explained=(f"{_HOW} After {PAPER}, Table 3 and Fig. 14. Level {declared.level:g}.", _ELSEWHERE),
        tables=tables,
        figures=list(_figures(contrasts, agents)),
        legend=_LEGEND,
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
