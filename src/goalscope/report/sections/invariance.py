"""The section on iso-difficulty transforms: the table of the paper with intervals, equivalence, and single grids."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from goalscope._ground.words import counted, short
from goalscope.measures.definition import PAPER
from goalscope.measures.invariance import TransformTest, check_transformed, compare_transforms
from goalscope.report.blocks import Footnotes, Table, TextColumns, plain_table
from goalscope.report.charts import DifferenceBar, Forest
from goalscope.report.comparison import p_text, tests_table
from goalscope.report.definitions import in_sentence, title_of
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
    "differ: whether its interval leaves out 0, p being the level at which it begins to; beside it the signed "
    "matched-pairs rank-biserial effect from −1 (transformed always lower) to +1. Is the mean difference smaller than "
    "the margin that the study declared: two one-sided tests; only they can show that a transform does not matter. Do "
    "single grids differ, also where their differences cancel in the mean: the root mean square over grids of the true "
    "difference, noise taken off, and a test that exchanges trajectories within each grid."
)
_ELSEWHERE = (
    "Figures and maps by size, density and distance below show the original grids; those numbers of the transformed "
    "ones are in the JSON of this page."
)
_LEGEND = (
    "Lines are 95 % intervals over grids, the band is the margin of the study. Filled: equivalent within the margin "
    "after Holm's correction."
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
    contrasts = in_order(
        compare_transforms(run.rows_of(*declared.margin), margin=declared.margin, level=declared.level), agents
    )
    tables = []
    for agent in agents:
        of_agent = [contrast for contrast in contrasts if contrast.agent == agent]
        family = counted(len(of_agent), "test")
        tables.append(means_table(of_agent, caption=f"{agent}: transformed − original, a family of {family}"))
        tables.append(grids_table(of_agent, caption=f"{agent}: differences of single grids, a family of {family}"))
    yield Declared(
        anchor="invariance",
        title=title,
        explained=(f"{_HOW} After {PAPER}, Table 3 and Fig. 14. Level {declared.level:g}.", _ELSEWHERE),
        tables=tables,
        figures=list(_figures(contrasts, agents)),
        legend=_LEGEND,
    )


def in_order(contrasts: Sequence[TransformTest], agents: Sequence[str]) -> list[TransformTest]:
    """Return contrasts by agent as listed, then by measure, condition and transform in the order of the paper."""
    measures = list(dict.fromkeys(contrast.measure for contrast in contrasts))
    transforms = list(_TRANSFORM_TITLES)
    return sorted(
        contrasts,
        key=lambda contrast: (
            agents.index(contrast.agent),
            measures.index(contrast.measure),
            describe_key(contrast.condition),
            transforms.index(contrast.transform) if contrast.transform in transforms else len(transforms),
        ),
    )


def means_table(contrasts: Sequence[TransformTest], *, caption: str = "") -> Table:
    """Return the mean differences with both tests, one transform a line: Table 3 of the paper and more."""
    return tests_table(contrasts, _NAMED, caption=caption)


def grids_table(contrasts: Sequence[TransformTest], *, caption: str = "") -> Table:
    """Return how far single grids differ, one transform a line."""
    footnotes = Footnotes()

    def ends(contrast: TransformTest) -> str:
        low, high = (
            short(end, contrast.paired.difference.unit) for end in (contrast.sensitivity.low, contrast.sensitivity.high)
        )
        return "undefined" if math.isnan(contrast.sensitivity.low) else f"[{low}, {high}]"

    def method(contrast: TransformTest) -> str:
        square, test_method = contrast.sensitivity.square, contrast.sensitivity.method
        text = (
            f"root of a mean over grids ({square.method}); {test_method}" if square.clusters else "no interval, no test"
        )
        return footnotes.mark(f"method: {text}", contrast.sensitivity.note, contrast.exchange.note)

    columns = [
        *_NAMED,
        (
            "root mean square difference",
            lambda contrast: short(contrast.sensitivity.value, contrast.paired.difference.unit),
        ),
        ("95 % interval", ends),
        ("n", lambda contrast: str(sum(contrast.sensitivity.counts))),
        ("grids", lambda contrast: str(contrast.sensitivity.square.clusters)),
        ("p / Holm", lambda contrast: f"{p_text(contrast.sensitivity.p_value)} / {p_text(contrast.exchange.adjusted)}"),
        ("notes", method),
    ]
    return plain_table(contrasts, columns, range(2, len(columns)), caption=caption, footnotes=footnotes)


def _transform(contrast: TransformTest) -> str:
    where, title = describe_key(contrast.condition), _TRANSFORM_TITLES.get(contrast.transform, contrast.transform)
    return f"{title}, {where}" if where else title


_NAMED: Final[TextColumns[TransformTest]] = (
    ("metric", lambda contrast: title_of(contrast.measure)),
    ("transformation", _transform),
)


def _figures(contrasts: Sequence[TransformTest], agents: Sequence[str]) -> Iterator[Figure]:
    for measure in dict.fromkeys(contrast.measure for contrast in contrasts):
        of_measure = [contrast for contrast in contrasts if contrast.measure == measure]
        drawn = [
            DifferenceBar(
                contrast.agent,
                agents.index(contrast.agent),
                _transform(contrast),
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
