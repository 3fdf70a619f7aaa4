"""Paired comparisons: agents (or runs) on shared grids, corrected as one family; as tables and as numbers."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from goalscope._ground.words import counted, short
from goalscope.measures.behaviour import COMPARED
from goalscope.measures.invariance import CorrectedComparison, TransformTest, both_sides, bounds_of, check_family, judge
from goalscope.measures.table import CONDITIONS
from goalscope.report.blocks import Footnotes, Table, TextColumns, interval, number, plain_table
from goalscope.report.definitions import title_of
from goalscope.report.ledger import json_number
from goalscope.stats import DRAW, equivalence, numbers_of, paired_difference, unpaired_difference
from goalscope.stats.groups import natural_order
from goalscope.stats.rows import Rows, Tag

LEVEL = 0.05

World = tuple[Tag, ...]
"""A grid and its conditions: two values are compared only if they share both."""

# Values of rows without these tags.
_PLAIN: dict[str, Tag] = {"transform": "identity", "control": False}


@dataclass(frozen=True, slots=True)
class SideRows:
    """One side of a comparison."""

    name: str
    rows: Rows
    left_out: int = 0  # number of worlds left out, which the other side lacks
    episodes: int = 0  # number of its episodes; 0 unless both sides may share some
    copies: int = 0  # number of them that are also on the other side, as in a run and its copy
    elsewhere: bool = False  # whether the sides have no world in common and are compared all the same

    @property
    def copied(self) -> bool:
        """Whether the other side has all of its episodes."""
        return 0 < self.copies == self.episodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared(CorrectedComparison):
    """One comparison of a family: the difference of a measure, first side minus second.

    Attributes:
        first, second: names of the sides.
        tags: what the rows of both sides share beyond their worlds, e.g. head and control of a probe.
    """

    first: str
    second: str
    tags: Mapping[str, Tag] = field(default_factory=dict)


def compare_pairs(
    pairs: Sequence[tuple[SideRows, SideRows]],
    measures: Sequence[str] = COMPARED,
    *,
    name: str = "pairs",
    margin: Mapping[str, float] | None = None,
    apart: Mapping[str, Sequence[str]] | None = None,
) -> list[Compared]:
    """Compare pairs of sides in all measures on the grids that they share; one family of tests, one of equivalence.

    Values that differ in a tag of ``apart`` are not averaged: each combination that both sides have is a comparison.

    A pair without a common grid, or without a value, has no test; it stays in the family and is never rejected. Nor has
    a pair of the same episodes; where some of them are the same, equivalence is not tested. Sides that are `elsewhere`
    are compared on their own grids.

    Args:
        pairs: the compared pairs, each with its own names.
        measures: the measures.
        name: name of the family.
        margin: measure -> maximum difference that counts as none; no equivalence is tested without one.
        apart: measure -> tags that tell its rows apart; none by default.

    Returns:
        Measure by measure, pair by pair, combination of tags by combination.

    Raises:
        ValueError: no measure or one twice, or a margin of a measure outside of the family.
    """
    margins = dict(margin or {})
    check_family(measures, margins)
    comparisons: dict[str, dict[str, Any]] = {}
    tested: dict[str, float] = {}
    for measure in measures:
        for first, second, tags, first_rows, second_rows in _matched(pairs, measure, (apart or {}).get(measure, ())):
            sides, scale = both_sides(first_rows, second_rows, bounds_of(Rows.concatenate([first_rows, second_rows])))
            paired = (unpaired_difference if first.elsewhere else paired_difference)(*sides, **scale)
            equal = measure in margins and not first.elsewhere  # equality is shown by pairs alone
            equivalence_test = equivalence(paired, margins[measure], level=LEVEL) if equal else None
            if equivalence_test and first.copies:
                equivalence_test = replace(equivalence_test, p_value=math.nan, equivalent=False)
            where = "".join(f", {tag} {value}" for tag, value in tags.items())
            member = f"{measure}: {first.name} against {second.name}{where}"
            tested[member] = math.nan if first.copied and second.copied else paired.p_value
            comparisons[member] = {
                "measure": measure,
                "first": first.name,
                "second": second.name,
                "tags": tags,
                "paired": paired,
                "equivalence": equivalence_test,
                "about": _about(first, second, any(rows.known(DRAW).any() for rows in (first_rows, second_rows))),
            }
    return [
        Compared(**comparisons[member], **tests) for member, tests in judge(comparisons, tested, name, LEVEL).items()
    ]


def _matched(
    pairs: Sequence[tuple[SideRows, SideRows]], measure: str, apart: Sequence[str]
) -> Iterator[tuple[SideRows, SideRows, dict[str, Tag], Rows, Rows]]:
    """Yield each pair of sides with the rows of a measure whose tags are equal; without any once, and without rows."""
    for one, other in pairs:
        rows, other_rows = (side.rows.where(side.rows.measure == measure) for side in (one, other))
        if not apart:
            yield one, other, {}, rows, other_rows
            continue
        both = Rows.concatenate([rows, other_rows])
        codes, first = numbers_of(both, apart), len(rows)
        common, ends = np.intersect1d(codes[:first], codes[first:]), np.unique(codes, return_index=True)
        tags = {
            code: {name: tag for name in apart if (tag := both[name][index] if name in both.tags else None) is not None}
            for code, index in zip(*(end.tolist() for end in ends), strict=True)
        }
        order = sorted(common.tolist(), key=lambda code: [natural_order(tags[code].get(name)) for name in apart])
        for code in order:
            yield one, other, tags[code], rows.where(codes[:first] == code), other_rows.where(codes[first:] == code)
        if not order:
            yield one, other, {}, rows.at(slice(0)), other_rows.at(slice(0))


def family_table(
    pairs: Sequence[tuple[SideRows, SideRows]],
    caption: str,
    measures: Sequence[str] = COMPARED,
    *,
    name: str = "pairs",
    clusters: str = "grids",
) -> tuple[list[Compared], Table]:
    """Return the comparisons of a family and their table; TESTS in its caption becomes their number."""
    tests = compare_pairs(pairs, measures, name=name)
    caption = caption.replace("TESTS", counted(len(tests), "test"))
    return tests, comparison_table(tests, caption=caption, clusters=clusters)


def _about(first: SideRows, second: SideRows, drawn: bool) -> tuple[str, ...]:
    """Return notes on worlds left out of a comparison, on episodes that both sides share, and on random controls."""
    notes = [
        f"{counted(side.left_out, 'world')} of {side.name} without a partner left out"
        for side in (first, second)
        if side.left_out
    ]
    if drawn:
        notes.append("a random control: the mean of its draws, whose spread interval and test do not hold")
    if first.copies:
        both, all_of = first.copies + second.copies, first.episodes + second.episodes
        notes.append(
            "the same episodes on both sides: nothing is compared"
            if first.copied and second.copied
            else f"{both} of {counted(all_of, 'episode')} are the same on both sides: no test can show equality"
        )
    return tuple(notes)


def worlds_of(rows: Rows, between: str = "") -> list[World]:
    """Return the world of each row; a tag whose values are compared with each other is no condition of it."""
    columns = [
        [_PLAIN.get(name) if value is None else value for value in rows.tags.get(name, [None] * len(rows))]
        for name in CONDITIONS
        if name not in ("kind", between)  # the name of a grid does not make it another world
    ]
    return list(zip(rows.cluster.tolist(), *columns, strict=True))


def shared_worlds(first: SideRows, second: SideRows, between: str = "") -> tuple[SideRows, SideRows]:
    """Return both sides with the worlds that they share: the same grid under the same conditions, ``between`` aside."""
    worlds = [worlds_of(side.rows, between) for side in (first, second)]
    common = set(worlds[0]) & set(worlds[1])
    first, second = (
        replace(
            side,
            rows=side.rows.where(
                np.fromiter((world in common for world in side_worlds), dtype=bool, count=len(side_worlds))
            ),
            left_out=len(set(side_worlds) - common),
        )
        for side, side_worlds in zip((first, second), worlds, strict=True)
    )
    return first, second


def comparison_table(comparisons: Sequence[Compared], *, caption: str = "", clusters: str = "grids") -> Table:
    """Return comparisons as a table, one a line; n counts the values of both sides on common grids.

    Methods and notes stand below it, marked in its last column; ``clusters`` is the heading for grids.
    """
    named: TextColumns[Compared] = [
        ("measure", lambda comparison: title_of(comparison.measure)),
        ("first", lambda comparison: comparison.first),
        ("second", lambda comparison: comparison.second),
        *((name, partial(_tag, name)) for name in varying_tags(comparisons)),
    ]
    headings = ("first − second", clusters, "signed effect", "equivalence p (Holm)")
    return tests_table(
        comparisons, named, headings, caption=caption, margins=any(entry.equivalence for entry in comparisons)
    )


def varying_tags(comparisons: Sequence[Compared]) -> list[str]:
    """Return the tags in which comparisons differ, in order of appearance."""
    names = dict.fromkeys(name for comparison in comparisons for name in comparison.tags)
    return [name for name in names if len({comparison.tags.get(name) for comparison in comparisons}) > 1]


def _tag(name: str, comparison: Compared) -> str:
    value = comparison.tags.get(name)
    return "" if value is None else number(value)


def tests_table(
    tests: Sequence[CorrectedComparison],
    named: TextColumns[Any],
    headings: tuple[str, str, str, str] = ("difference", "grids", "effect size", "TOST p (Holm)"),
    *,
    caption: str = "",
    margins: bool = True,
) -> Table:
    """Return paired tests as a table: first their names, then differences, counts, p values, and their notes."""
    footnotes = Footnotes()
    first_heading, clusters, effect, equal = headings

    def notes(judged: CorrectedComparison) -> str:
        method, difference = "method: no interval, no test", judged.paired.difference
        if judged.paired.labels:
            by = difference.method if difference.has_interval else "no interval"
            method = f"method: {by}"
        return footnotes.mark(method, *(note.replace("grids", clusters) for note in judged.notes))

    def effect_of(judged: CorrectedComparison) -> str:
        value = judged.paired.test.effect
        return "undefined" if math.isnan(value) else f"{value:+.2f}".replace("-", "−")

    def margin_of(judged: CorrectedComparison) -> str:
        return f"{judged.equivalence.margin:g}" if judged.equivalence else "–"

    def equal_p(judged: CorrectedComparison) -> str:
        if judged.shown is None or math.isnan(judged.shown.p_value):
            return "–" if judged.shown is None else "undefined"
        return p_text(judged.shown.adjusted)

    columns: TextColumns[Any] = [
        *named,
        *([("reading", lambda judged: judged.verdict)] if margins else []),
        (first_heading, lambda judged: short(judged.paired.difference.value, judged.paired.difference.unit)),
        ("95 % interval", lambda judged: interval(judged.paired.difference) or "undefined"),
        ("n", lambda judged: str(sum(judged.paired.counts))),
        (clusters, lambda judged: str(len(judged.paired.labels))),
        (effect, effect_of),
        ("p / Holm", lambda judged: f"{p_text(judged.test.p_value)} / {p_text(judged.test.adjusted)}"),
        *([("margin", margin_of), (equal, equal_p)] if margins else []),
        ("notes", notes),
    ]
    numbers = range(len(named) + margins, len(columns))
    return plain_table(tests, columns, numbers, caption=caption, footnotes=footnotes)


def p_text(value: float) -> str:
    """Write a p value with two digits, small ones as ``< 0.0001``."""
    if math.isnan(value):
        return "undefined"
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def comparison_records(comparisons: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return comparisons, one mapping each, undefined numbers as None."""
    return [
        {
            "measure": comparison.measure,
            "first": comparison.first,
            "second": comparison.second,
            **{f"tag {name}": value for name, value in comparison.tags.items()},
            **_numbers(comparison),
            "note": "; ".join(comparison.notes),
        }
        for comparison in comparisons
    ]


def contrast_records(contrasts: Sequence[TransformTest]) -> list[dict[str, Any]]:
    """Return contrasts of transforms, one mapping each, undefined numbers as None."""
    return [
        {
            "agent": contrast.agent,
            "measure": contrast.measure,
            "transform": contrast.transform,
            **contrast.condition,
            **_numbers(contrast),
            "root_mean_square": json_number(contrast.sensitivity.value),
            "root_mean_square_low": json_number(contrast.sensitivity.low),
            "root_mean_square_high": json_number(contrast.sensitivity.high),
            "root_mean_square_n": sum(contrast.sensitivity.counts),
            "root_mean_square_grids": contrast.sensitivity.square.clusters,
            "p_exchange": json_number(contrast.sensitivity.p_value),
            "p_exchange_holm": json_number(contrast.exchange.adjusted),
            "exchange_method": contrast.sensitivity.method,
            "exchange_note": contrast.sensitivity.note,
            "note": "; ".join(contrast.notes),
        }
        for contrast in contrasts
    ]


def _numbers(judged: CorrectedComparison) -> dict[str, Any]:
    difference, test = judged.paired.difference, judged.paired.test
    return {
        "unit": difference.unit,
        "difference": json_number(difference.value),
        "low": json_number(difference.low),
        "high": json_number(difference.high),
        "confidence": difference.confidence,
        "n": sum(judged.paired.counts),
        "grids": difference.clusters,
        "method": difference.method,
        "effect": json_number(test.effect),
        "nonzero": test.nonzero,
        "p": json_number(judged.test.p_value),
        "p_holm": json_number(judged.test.adjusted),
        "test": "interval of the mean difference",
        "p_signed_rank": json_number(test.p_value),
        "signed_rank_method": test.method,
        "margin": None if judged.equivalence is None else judged.equivalence.margin,
        "p_equivalence": None if judged.equivalence is None else json_number(judged.equivalence.p_value),
        "p_equivalence_holm": None if judged.shown is None else json_number(judged.shown.adjusted),
        "reading": judged.verdict,
        "unpaired": len(judged.paired.unpaired_a) + len(judged.paired.unpaired_b),
        "undefined": judged.paired.undefined,
    }


def as_json(records: Sequence[Mapping[str, Any]], **about: Any) -> str:
    """Return records as JSON with metadata; the same numbers give the same text."""
    value = {**about, "comparisons": list(records)}
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=1, sort_keys=True) + "\n"
