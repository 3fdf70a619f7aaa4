"""The section on iso-difficulty transforms: the table of the paper with intervals, equivalence, and single grids."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from goalscope.measures.definition import PAPER
from goalscope.measures.invariance import Contrast, check_transformed, compare_transforms
from goalscope.report.blocks import Footnotes, Plain, counted, interval, plain_table
from goalscope.report.charts import Difference, forest
from goalscope.report.comparison import effect_text, equivalence_p_text, method_of, p_text
from goalscope.report.definitions import in_sentence, title_of
from goalscope.report.estimates import describe_key
from goalscope.report.figures import short
from goalscope.report.run_data import RunData
from goalscope.report.specs import Declared, Picture, section

TRANSFORM_TITLES = {
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
        check_transformed(run.rows)
    except ValueError as error:
        yield Declared(anchor="invariance", title=title, paragraphs=(f"Not done: {error}.",))
        return
    found = in_order(compare_transforms(run.rows, margin=declared.margin, level=declared.level), agents)
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
        figures=_figures(found, agents),
        legend=_LEGEND,
    )


def in_order(found: Sequence[Contrast], agents: Sequence[str]) -> list[Contrast]:
    """Return contrasts by agent as listed, then by measure, condition and transform in the order of the paper."""
    measures = list(dict.fromkeys(contrast.measure for contrast in found))
    ways = list(TRANSFORM_TITLES)
    return sorted(
        found,
        key=lambda one: (
            agents.index(one.agent),
            measures.index(one.measure),
            describe_key(one.condition),
            ways.index(one.transform) if one.transform in ways else len(ways),
        ),
    )


def means_table(found: Sequence[Contrast], *, caption: str = "") -> Plain:
    """Return the mean differences with both tests, one transform a line: Table 3 of the paper and more."""
    footnotes = Footnotes()
    columns = [
        *_NAMED,
        ("reading", lambda one: one.verdict),
        ("difference", lambda one: short(one.paired.difference.value, one.paired.difference.unit)),
        ("95 % interval", lambda one: interval(one.paired.difference) or "undefined"),
        ("n", lambda one: str(sum(one.paired.counts))),
        ("grids", lambda one: str(one.paired.difference.clusters)),
        ("effect size", lambda one: effect_text(one.paired.test.effect)),
        ("p / Holm", lambda one: f"{p_text(one.test.p_value)} / {p_text(one.test.adjusted)}"),
        ("margin", lambda one: "–" if one.equivalence is None else f"{one.equivalence.margin:g}"),
        ("TOST p (Holm)", lambda one: "–" if one.shown is None else equivalence_p_text(one.shown)),
        ("notes", lambda one: footnotes.mark(method_of(one.paired), *one.notes)),
    ]
    table = plain_table(found, columns, range(3, len(columns)), caption=caption)
    return replace(table, notes=footnotes.lines)


def grids_table(found: Sequence[Contrast], *, caption: str = "") -> Plain:
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
    table = plain_table(found, columns, range(2, len(columns)), caption=caption)
    return replace(table, notes=footnotes.lines)


def _transform(one: Contrast) -> str:
    where, title = describe_key(one.condition), TRANSFORM_TITLES.get(one.transform, one.transform)
    return f"{title}, {where}" if where else title


_NAMED: Final[Sequence[tuple[str, Callable[[Contrast], str]]]] = (
    ("metric", lambda one: title_of(one.measure)),
    ("transformation", _transform),
)


def _figures(found: Sequence[Contrast], agents: Sequence[str]) -> list[Picture]:
    figures = []
    for measure in dict.fromkeys(one.measure for one in found):
        mine = [one for one in found if one.measure == measure]
        drawn = [
            Difference(
                series=one.agent,
                style=agents.index(one.agent),
                line=_transform(one),
                estimate=one.paired.difference,
                filled=one.shown is not None and one.shown.rejected,
            )
            for one in mine
        ]
        if all(math.isnan(entry.estimate.value) for entry in drawn):
            continue
        unit = next(one.paired.difference.unit for one in mine if one.paired.difference.unit)
        margin = next((one.equivalence.margin for one in mine if one.equivalence), None)
        title = f"{title_of(measure)}: transformed − original"
        svg = forest(drawn, title=title, x_label=f"difference in {in_sentence(measure)} ({unit})", margin=margin)
        label = f"{title_of(measure)}, difference of each transform from the original grids"
        figures.append(Picture(svg=svg, label=label))
    return figures
