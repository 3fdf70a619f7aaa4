"""The section on iso-difficulty transforms: the table of the paper with intervals, equivalence, and single grids."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from goalscope.measures.definition import PAPER
from goalscope.measures.invariance import Contrast, check_transformed, compare_transforms
from goalscope.report.blocks import Footnotes, Table, TextColumns, counted, plain_table
from goalscope.report.charts import Difference, Forest
from goalscope.report.comparison import p_text, tests_table
from goalscope.report.definitions import in_sentence, title_of
from goalscope.report.figures import short
from goalscope.report.ledger import RunData, describe_key
from goalscope.report.specs import Declared, Figure, section

_TRANSFORM_TITLES = {
    "reflect": "Reflection",
    "rotate": "Rotation",
    "swap": "Start/goal swap",
    "transpose": "Transposition",
}
"""The rows of Table 3 of the paper, in its order."""

_HOW = (
    "Transformed minus original, paired by grid, intervals over grids. Three questions have a family of tests each, "
    "and Holm's correction inside the family of an agent (its measures, each under each transform). Does the mean "
    "differ: two-sided Wilcoxon signed-rank test, with the signed matched-pairs rank-biserial effect from −1 "
    "(transformed always lower) to +1. Is the mean difference smaller than the margin that the study declared: two "
    "one-sided tests (TOST); only they can show that a transform does not matter. Do single grids differ, also where "
    "their differences cancel in the mean: the root mean square over grids of the true difference, noise taken off, "
    "and a test that exchanges trajectories within each grid."
)
_ELSEWHERE = (
    "Figures and maps by size, density and distance below show the original grids; those numbers of the transformed "
    "ones are in the JSON of this page."
)
_LEGEND = (
    "Lines are 95 % intervals over grids, the band is the margin of the study. Filled: equivalent within the margin "
    "after Holm's correction (TOST)."
)


@section("invariance", source=f"{PAPER}, Table 3 and Fig. 14", worlds="grids")
def invariance(run: RunData) -> Iterator[Declared]:
    """Transformed grids against the originals, where a study declares this analysis."""
    declared, agents, title = run.analysis.invariance, run.ledger.agents, "Iso-difficulty transforms"
    if declared is None:
        return
    try:
        check_transformed(run.rows_of(*declared.margin))
    except ValueError as error:
        yield Declared(anchor="invariance", title=title, paragraphs=(f"Not done: {error}.",))
        return
    found = in_order(
        compare_transforms(run.rows_of(*declared.margin), margin=declared.margin, level=declared.level), agents
    )
    tables = []
    for agent in agents:
        mine = [contrast for contrast in found if contrast.agent == agent]
        family = counted(len(mine), "test")
        tables.append(means_table(mine, caption=f"{agent}: transformed − original, a family of {family}"))
        tables.append(grids_table(mine, caption=f"{agent}: differences of single grids, a family of {family}"))
    yield Declared(
        anchor="invariance",
        title=title,
        paragraphs=(f"{_HOW} After {PAPER}, Table 3 and Fig. 14. Level {declared.level:g}.", _ELSEWHERE),
        tables=tables,
        figures=list(_figures(found, agents)),
        legend=_LEGEND,
    )


def in_order(found: Sequence[Contrast], agents: Sequence[str]) -> list[Contrast]:
    """Return contrasts by agent as listed, then by measure, condition and transform in the order of the paper."""
    measures = list(dict.fromkeys(contrast.measure for contrast in found))
    ways = list(_TRANSFORM_TITLES)
    return sorted(
        found,
        key=lambda one: (
            agents.index(one.agent),
            measures.index(one.measure),
            describe_key(one.condition),
            ways.index(one.transform) if one.transform in ways else len(ways),
        ),
    )


def means_table(found: Sequence[Contrast], *, caption: str = "") -> Table:
    """Return the mean differences with both tests, one transform a line: Table 3 of the paper and more."""
    return tests_table(found, _NAMED, caption=caption)


def grids_table(found: Sequence[Contrast], *, caption: str = "") -> Table:
    """Return how far single grids differ, one transform a line."""
    footnotes = Footnotes()

    def ends(one: Contrast) -> str:
        low, high = (short(end, one.paired.difference.unit) for end in (one.sensitivity.low, one.sensitivity.high))
        return "undefined" if math.isnan(one.sensitivity.low) else f"[{low}, {high}]"

    def method(one: Contrast) -> str:
        square, how = one.sensitivity.square, one.sensitivity.method
        text = f"root of a mean over grids ({square.method}); {how}" if square.clusters else "no interval, no test"
        return footnotes.mark(f"method: {text}", one.sensitivity.note, one.exchange.note)

    columns = [
        *_NAMED,
        ("root mean square difference", lambda one: short(one.sensitivity.value, one.paired.difference.unit)),
        ("95 % interval", ends),
        ("n", lambda one: str(sum(one.sensitivity.counts))),
        ("grids", lambda one: str(one.sensitivity.square.clusters)),
        ("p / Holm", lambda one: f"{p_text(one.sensitivity.p_value)} / {p_text(one.exchange.adjusted)}"),
        ("notes", method),
    ]
    return plain_table(found, columns, range(2, len(columns)), caption=caption, footnotes=footnotes)


def _transform(one: Contrast) -> str:
    where, title = describe_key(one.condition), _TRANSFORM_TITLES.get(one.transform, one.transform)
    return f"{title}, {where}" if where else title


_NAMED: Final[TextColumns[Contrast]] = (
    ("metric", lambda one: title_of(one.measure)),
    ("transformation", _transform),
)


def _figures(found: Sequence[Contrast], agents: Sequence[str]) -> Iterator[Figure]:
    for measure in dict.fromkeys(one.measure for one in found):
        mine = [one for one in found if one.measure == measure]
        drawn = [
            Difference(
                one.agent,
                agents.index(one.agent),
                _transform(one),
                one.paired.difference,
                filled=one.shown is not None and one.shown.rejected,
            )
            for one in mine
        ]
        if not all(math.isnan(entry.estimate.value) for entry in drawn):
            unit = next(one.paired.difference.unit for one in mine if one.paired.difference.unit)
            margin = next((one.equivalence.margin for one in mine if one.equivalence), None)
            title = f"{title_of(measure)}: transformed − original"
            chart = Forest(drawn, title=title, x_label=f"difference in {in_sentence(measure)} ({unit})", margin=margin)
            yield Figure(chart, f"{title_of(measure)}, difference of each transform from the original grids")
