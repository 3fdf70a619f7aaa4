"""Paired comparisons: agents (or runs) on the grids that they share, corrected as one declared family."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from goalscope.measures.behaviour import COMPARED
from goalscope.measures.invariance import bounds_of, check_family, notes_on, verdict
from goalscope.measures.table import CONDITIONS
from goalscope.report.blocks import Footnotes, Plain, counted, interval
from goalscope.report.definitions import title_of
from goalscope.report.figures import short
from goalscope.rows import Rows, Tag
from goalscope.stats import (
    Corrected,
    Equivalence,
    Family,
    PairedComparison,
    equivalence,
    holm,
    paired_difference,
)

LEVEL = 0.05

World = tuple[Tag, ...]
"""A grid and the conditions under which it is shown: what two values must share to be compared."""

# A missing transform is the grid as it is; a missing control is the world itself.
_PLAIN: dict[str, Tag] = {"transform": "identity", "control": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison.

    Attributes:
        name: what it is called.
        rows: the rows behind it.
        left_out: number of worlds whose rows were left out, since the other side has no such world.
        episodes: number of its episodes; only told where some of them may stand on the other side, too.
        copies: how many of them are the same as one of the other side, as in a run and its copy.
    """

    name: str
    rows: Rows
    left_out: int = 0
    episodes: int = 0
    copies: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One comparison of a family.

    Attributes:
        measure: what is compared.
        first, second: names of the sides; the difference is first minus second.
        paired: difference, test, and what had no partner.
        corrected: its p value after Holm's correction.
        equivalence: two one-sided tests against the margin of the measure, None without one.
        shown: their p value after Holm's correction inside the family of all equivalence tests.
        about: what else a reader must know of the two sides.
    """

    measure: str
    first: str
    second: str
    paired: PairedComparison
    corrected: Corrected
    equivalence: Equivalence | None = None
    shown: Corrected | None = None
    about: tuple[str, ...] = ()


def compare_sides(
    sides: Sequence[Side], measures: Sequence[str] = COMPARED, *, name: str = "pairs", confidence: float = 0.95
) -> list[Compared]:
    """Compare all pairs of sides in all measures on the grids that they share; one family of tests.

    Args:
        sides: what is compared with each other, two or more, with names of their own.
        measures: the measures.
        name: name of the family.
        confidence: nominal coverage of the intervals.

    Returns:
        Measure by measure, pair by pair.

    Raises:
        ValueError: fewer than two sides, or a name twice.
    """
    if len(sides) < 2 or len({side.name for side in sides}) != len(sides):
        raise ValueError(
            f"a comparison needs at least two sides with different names, got {[side.name for side in sides]}"
        )
    return compare_pairs(list(combinations(sides, 2)), measures, name=name, confidence=confidence)


def compare_pairs(
    pairs: Sequence[tuple[Side, Side]],
    measures: Sequence[str] = COMPARED,
    *,
    name: str = "pairs",
    confidence: float = 0.95,
    margin: Mapping[str, float] | None = None,
) -> list[Compared]:
    """Compare given pairs of sides in all measures; one family of tests, and one of equivalence tests.

    A pair without a common grid, or without a value, has no test; it stays in the family and is never rejected. Nor has
    a pair of the same episodes; where some of them are the same, equivalence is not tested.

    Args:
        pairs: first and second of each comparison.
        measures, name, confidence: as in `compare_sides`.
        margin: measure -> the greatest difference that counts as none, > 0; no equivalence is tested without one.

    Raises:
        ValueError: no measure or one twice, a margin of another measure or not above 0.
    """
    margins = dict(margin or {})
    check_family(measures, margins)
    found: dict[str, tuple[str, Side, Side, PairedComparison]] = {}
    for measure in measures:
        for first, second in pairs:
            rows, others = (side.rows.where(side.rows.measure == measure) for side in (first, second))
            member = f"{measure}: {first.name} against {second.name}"
            found[member] = (measure, first, second, _paired(rows, others, confidence))
    family = Family(name=name, members=tuple(found))
    p_values = {
        member: paired.test.p_value if paired.labels and not _all_the_same(one, other) else math.nan
        for member, (_, one, other, paired) in found.items()
    }
    corrected = {entry.name: entry for entry in holm(p_values, family, level=LEVEL)}
    equal = {
        member: equivalence(paired, margins[measure], level=LEVEL)
        for member, (measure, _, _, paired) in found.items()
        if measure in margins
    }
    shown = {}
    if equal:
        equal = {
            member: replace(test, p_value=math.nan, equivalent=False) if found[member][1].copies else test
            for member, test in equal.items()
        }
        of_all = {member: test.p_value for member, test in equal.items()}
        judged = holm(of_all, Family(name=f"{name}, equivalence", members=tuple(of_all)), level=LEVEL)
        shown = {entry.name: entry for entry in judged}
    return [
        Compared(
            measure=measure,
            first=first.name,
            second=second.name,
            paired=paired,
            corrected=corrected[member],
            equivalence=equal.get(member),
            shown=shown.get(member),
            about=_about(first, second),
        )
        for member, (measure, first, second, paired) in found.items()
    ]


def _all_the_same(first: Side, second: Side) -> bool:
    return all(0 < side.copies == side.episodes for side in (first, second))


def _about(first: Side, second: Side) -> tuple[str, ...]:
    """Return what was left out of the sides of a comparison, and what stands on both."""
    notes = [
        f"{counted(side.left_out, 'world')} of {side.name} without a partner left out"
        for side in (first, second)
        if side.left_out
    ]
    if first.copies:
        both, all_of = first.copies + second.copies, first.episodes + second.episodes
        notes.append(
            "the same episodes on both sides: nothing is compared"
            if _all_the_same(first, second)
            else f"{both} of {counted(all_of, 'episode')} are the same on both sides: no test can show equality"
        )
    return tuple(notes)


def worlds_of(rows: Rows) -> list[World]:
    """Return the world of each row."""
    columns = [
        [_PLAIN.get(name) if value is None else value for value in rows.tags[name].tolist()]
        if name in rows.tags
        else [_PLAIN.get(name)] * len(rows)
        for name in CONDITIONS
        if name != "kind"  # what the grid is called does not make it another world
    ]
    return list(zip(rows.grid_id.tolist(), *columns, strict=True))


def shared_worlds(first: Side, second: Side) -> tuple[Side, Side]:
    """Return both sides with the worlds that they share: the same grid under the same conditions."""
    ours, theirs = worlds_of(first.rows), worlds_of(second.rows)
    common = set(ours) & set(theirs)
    return _within(first, ours, common), _within(second, theirs, common)


def _within(side: Side, worlds: list[World], common: set[World]) -> Side:
    mask = np.fromiter((world in common for world in worlds), dtype=bool, count=len(worlds))
    return replace(side, rows=side.rows.where(mask), left_out=len(set(worlds) - common))


def comparison_table(listed: Sequence[Compared], *, caption: str = "", clusters: str = "grids") -> Plain:
    """Return comparisons as a table, one a line; n counts the values of both sides on common grids.

    Methods and notes stand below it, marked in its last column; ``clusters`` is what grids are called.
    """
    footnotes = Footnotes()
    margins = any(entry.equivalence for entry in listed)
    headings = (
        "measure",
        "first",
        "second",
        *(("reading",) if margins else ()),
        "first − second",
        "95 % interval",
        "n",
        clusters,
        "signed effect",
        "p / Holm",
        *(("margin", "equivalence p (Holm)") if margins else ()),
        "notes",
    )
    rows = tuple(
        (
            title_of(entry.measure),
            entry.first,
            entry.second,
            *((verdict(entry.corrected, entry.shown),) if margins else ()),
            short(entry.paired.difference.value, entry.paired.difference.unit),
            interval(entry.paired.difference) or "undefined",
            str(sum(entry.paired.counts)),
            str(len(entry.paired.labels)),
            effect_text(entry.paired.test.effect),
            f"{p_text(entry.corrected.p_value)} / {p_text(entry.corrected.adjusted)}",
            *(_equivalence_cells(entry) if margins else ()),
            footnotes.mark(method_of(entry.paired), *(note.replace("grids", clusters) for note in notes_of(entry))),
        )
        for entry in listed
    )
    numbers = tuple(range(3 + margins, len(headings)))
    return Plain(caption=caption, headings=headings, rows=rows, numbers=numbers, notes=footnotes.lines)


def method_of(paired: PairedComparison) -> str:
    """Return how interval and test of a paired comparison were made, as a note."""
    if not paired.labels:
        return "method: no interval, no test"
    interval_by = paired.difference.method if paired.difference.has_interval else "no interval"
    return f"method: {interval_by}; signed-rank {paired.test.method}"


def p_text(value: float) -> str:
    """Write a p value with two digits, small ones as ``< 0.0001``."""
    if math.isnan(value):
        return "undefined"
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def equivalence_p_text(shown: Corrected) -> str:
    """Write the corrected p value of an equivalence test, which is known up to a half; "undefined" without a test."""
    if math.isnan(shown.p_value):
        return "undefined"
    return "≥ 0.5" if shown.adjusted >= 0.5 else p_text(shown.adjusted)


def _equivalence_cells(entry: Compared) -> tuple[str, ...]:
    if entry.equivalence is None or entry.shown is None:
        return "–", "–"
    return (
        f"{entry.equivalence.margin:g}",
        equivalence_p_text(entry.shown),
    )


def effect_text(value: float) -> str:
    """Write a signed effect size."""
    return "undefined" if math.isnan(value) else f"{value:+.2f}".replace("-", "−")


def _paired(rows: Rows, others: Rows, confidence: float) -> PairedComparison:
    units = list(dict.fromkeys([*rows.unit.tolist(), *others.unit.tolist()]))
    if len(units) > 1:
        raise ValueError(f"what is compared must have one unit, got {', '.join(units)}")
    bounds = bounds_of(Rows.concatenate([rows, others]))
    return paired_difference(
        rows.value,
        rows.grid_id,
        others.value,
        others.grid_id,
        unit=units[0] if units else "",
        bounds=bounds,
        confidence=confidence,
    )


def notes_of(entry: Compared) -> tuple[str, ...]:
    """Return everything that a reader must know beside the numbers of a comparison."""
    return *notes_on(entry.paired, entry.equivalence, entry.corrected), *entry.about
