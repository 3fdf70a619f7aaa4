"""Paired comparisons: agents (or runs) on shared grids, corrected as one family; as tables and as numbers."""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from goalscope.measures.behaviour import COMPARED
from goalscope.measures.invariance import Contrast, bounds_of, check_family, notes_on, verdict
from goalscope.measures.table import CONDITIONS
from goalscope.report.blocks import Footnotes, Plain, counted, interval, plain_table
from goalscope.report.definitions import title_of
from goalscope.report.figures import short
from goalscope.report.ledger import json_number
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
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""With what a cell begins that a spreadsheet would take for a formula."""

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

    def notes(entry: Compared) -> str:
        return footnotes.mark(method_of(entry.paired), *(note.replace("grids", clusters) for note in notes_of(entry)))

    margins = any(entry.equivalence for entry in listed)
    columns: list[tuple[str, Callable[[Compared], str]]] = [
        ("measure", lambda one: title_of(one.measure)),
        ("first", lambda one: one.first),
        ("second", lambda one: one.second),
        *([("reading", lambda one: verdict(one.corrected, one.shown))] if margins else []),
        ("first − second", lambda one: short(one.paired.difference.value, one.paired.difference.unit)),
        ("95 % interval", lambda one: interval(one.paired.difference) or "undefined"),
        ("n", lambda one: str(sum(one.paired.counts))),
        (clusters, lambda one: str(len(one.paired.labels))),
        ("signed effect", lambda one: effect_text(one.paired.test.effect)),
        ("p / Holm", lambda one: f"{p_text(one.corrected.p_value)} / {p_text(one.corrected.adjusted)}"),
        *([("margin", lambda one: f"{one.equivalence.margin:g}" if one.equivalence else "–")] if margins else []),
        *(
            [("equivalence p (Holm)", lambda one: equivalence_p_text(one.shown) if one.shown else "–")]
            if margins
            else []
        ),
        ("notes", notes),
    ]
    table = plain_table(listed, columns, range(3 + margins, len(columns)), caption=caption)
    return replace(table, notes=footnotes.lines)


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


def comparison_records(listed: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return comparisons, one mapping each, undefined numbers as None."""
    return [
        {
            "measure": entry.measure,
            "first": entry.first,
            "second": entry.second,
            **_numbers(entry.paired, entry.corrected, entry.equivalence, entry.shown),
            "note": "; ".join(notes_of(entry)),
        }
        for entry in listed
    ]


def contrast_records(found: Sequence[Contrast]) -> list[dict[str, Any]]:
    """Return contrasts of transforms, one mapping each, undefined numbers as None."""
    return [
        {
            "agent": one.agent,
            "measure": one.measure,
            "transform": one.transform,
            **one.condition,
            **_numbers(one.paired, one.test, one.equivalence, one.shown),
            "root_mean_square": json_number(one.sensitivity.value),
            "root_mean_square_low": json_number(one.sensitivity.low),
            "root_mean_square_high": json_number(one.sensitivity.high),
            "root_mean_square_n": sum(one.sensitivity.counts),
            "root_mean_square_grids": one.sensitivity.square.clusters,
            "p_exchange": json_number(one.sensitivity.p_value),
            "p_exchange_holm": json_number(one.exchange.adjusted),
            "exchange_method": one.sensitivity.method,
            "exchange_note": one.sensitivity.note,
            "note": "; ".join(one.notes),
        }
        for one in found
    ]


def as_json(records: Sequence[Mapping[str, Any]], **about: Any) -> str:
    """Return records as JSON; the same numbers give the same text.

    Args:
        records: from `comparison_records` or `contrast_records`.
        about: plain values to stand beside them.
    """
    value = {**about, "comparisons": list(records)}
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=1, sort_keys=True) + "\n"


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Return records as CSV: undefined numbers are empty, no text can be taken for a formula."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(record.get(name)) for name in columns} for record in records)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value


def _numbers(
    paired: PairedComparison, test: Corrected, equal: Equivalence | None, shown: Corrected | None
) -> dict[str, Any]:
    difference = paired.difference
    return {
        "unit": difference.unit,
        "difference": json_number(difference.value),
        "low": json_number(difference.low),
        "high": json_number(difference.high),
        "confidence": difference.confidence,
        "n": sum(paired.counts),
        "grids": difference.clusters,
        "method": difference.method,
        "effect": json_number(paired.test.effect),
        "nonzero": paired.test.nonzero,
        "p": json_number(test.p_value),
        "p_holm": json_number(test.adjusted),
        "test": f"Wilcoxon signed-rank, {paired.test.method}",
        "margin": None if equal is None else equal.margin,
        "p_equivalence": None if equal is None else json_number(equal.p_value),
        "p_equivalence_holm": None if shown is None else json_number(shown.adjusted),
        "reading": verdict(test, shown),
        "unpaired": len(paired.unpaired_a) + len(paired.unpaired_b),
        "undefined": paired.undefined,
    }
