"""Comparisons as tables and as records: one builder for each, whatever was compared."""

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

from goalscope._ground.words import counted, short
from goalscope.measures.behaviour import COMPARED
from goalscope.measures.comparison import Compared, Pair, compare
from goalscope.report.blocks import Footnotes, Table, TextColumns, number, plain_table, value_columns
from goalscope.report.definitions import title_of
from goalscope.report.ledger import describe_key, json_number

_TRANSFORM_TITLES: Final = {
    "reflect": "Reflection",
    "rotate": "Rotation",
    "swap": "Start/goal swap",
    "transpose": "Transposition",
}
_OF_TRANSFORMS: Final = ("agent", "transform")
"""Tags of a transform that have a column or table of their own; its other tags are conditions."""


def family_table(
    pairs: Sequence[Pair],
    caption: str,
    measures: Sequence[str] = COMPARED,
    *,
    name: str = "pairs",
    clusters: str = "grids",
) -> tuple[list[Compared], Table]:
    """Compare pairs that are corrected together, and return the comparisons with their table.

    In the caption of the table, TESTS is replaced by the number of tests.
    """
    tests = compare(pairs, measures, name=name)
    caption = caption.replace("TESTS", counted(len(tests), "test"))
    return tests, comparison_table(tests, caption=caption, clusters=clusters)


def comparison_table(comparisons: Sequence[Compared], *, caption: str = "", clusters: str = "grids") -> Table:
    """Return comparisons as a table with one row each; n counts the values of both sides on the grids that they share.

    Methods and notes are below the table, with letters in its last column; ``clusters`` is the heading for grids.
    Margins are shown for transforms, and if equivalence was tested.
    """
    footnotes = Footnotes()
    margins = _of_transforms(comparisons) or any(comparison.equivalence for comparison in comparisons)
    names, (difference_title, effect_title, equal_title) = _named(comparisons)

    def notes(comparison: Compared) -> str:
        difference = comparison.paired.difference
        by = difference.method if difference.has_interval else "no interval"
        method = f"method: {by}" if comparison.paired.labels else "method: no interval, no test"
        return footnotes.mark(method, *(note.replace("grids", clusters) for note in comparison.notes))

    def effect(comparison: Compared) -> str:
        value = comparison.paired.test.effect
        return "undefined" if math.isnan(value) else f"{value:+.2f}".replace("-", "−")

    of_margins: TextColumns[Compared] = [
        ("margin", lambda comparison: f"{comparison.equivalence.margin:g}" if comparison.equivalence else "–"),
        (equal_title, _equal_p),
    ]
    columns: TextColumns[Compared] = [
        *names,
        *([("reading", lambda comparison: comparison.verdict)] if margins else []),
        *value_columns(attrgetter("paired.difference"), difference_title),
        ("n", lambda comparison: str(sum(comparison.paired.counts))),
        (clusters, lambda comparison: str(len(comparison.paired.labels))),
        (effect_title, effect),
        ("p / Holm", lambda comparison: f"{p_text(comparison.test.p_value)} / {p_text(comparison.test.adjusted)}"),
        *(of_margins if margins else []),
        ("notes", notes),
    ]
    numbers = range(len(names) + margins, len(columns))
    return plain_table(comparisons, columns, numbers, caption=caption, footnotes=footnotes)


def _equal_p(comparison: Compared) -> str:
    return (
        "–"
        if comparison.shown is None
        else "undefined"
        if math.isnan(comparison.shown.p_value)
        else p_text(comparison.shown.adjusted)
    )


def grids_table(comparisons: Sequence[Compared], *, caption: str = "") -> Table:
    """Return the spread of differences over single grids, one comparison per line."""
    footnotes = Footnotes()

    def cells(comparison: Compared) -> tuple[str, ...]:
        single, unit = comparison.sensitivity, comparison.paired.difference.unit
        if single is None or comparison.exchange is None:
            raise ValueError(f"the single grids of {comparison.first} were not compared")
        low, high = (short(end, unit) for end in (single.low, single.high))
        method = f"root of a mean over grids ({single.square.method}); {single.method}"
        method = method if single.square.clusters else "no interval, no test"
        return (
            *(text(comparison) for _, text in names),
            short(single.value, unit),
            "undefined" if math.isnan(single.low) else f"[{low}, {high}]",
            str(sum(single.counts)),
            str(single.square.clusters),
            f"{p_text(single.p_value)} / {p_text(comparison.exchange.adjusted)}",
            footnotes.mark(f"method: {method}", single.note, comparison.exchange.note),
        )

    names, _ = _named(comparisons)
    headings = (*(title for title, _ in names), "root mean square difference", "95 % interval", "n", "grids")
    return Table(
        caption=caption,
        headings=(*headings, "p / Holm", "notes"),
        rows=tuple(map(cells, comparisons)),
        numbers=tuple(range(2, len(headings) + 2)),
        notes=footnotes.lines,
    )


def _named(comparisons: Sequence[Compared]) -> tuple[TextColumns[Compared], tuple[str, str, str]]:
    """Return the columns that name the comparisons, and the headings for difference, effect and equivalence."""
    measure = ("metric" if _of_transforms(comparisons) else "measure", lambda comparison: title_of(comparison.measure))
    if _of_transforms(comparisons):
        return [measure, ("transformation", transform_of)], ("difference", "effect size", "TOST p (Holm)")
    sides: TextColumns[Compared] = [
        measure,
        ("first", lambda comparison: comparison.first),
        ("second", lambda comparison: comparison.second),
        *((name, partial(_tag, name)) for name in varying_tags(comparisons)),
    ]
    return sides, ("first − second", "signed effect", "equivalence p (Holm)")


def _of_transforms(comparisons: Sequence[Compared]) -> bool:
    return any(comparison.sensitivity is not None for comparison in comparisons)


def transform_of(comparison: Compared) -> str:
    """Describe in words the transform that a comparison is about, with the conditions of its worlds."""
    conditions = describe_key({name: value for name, value in comparison.tags.items() if name not in _OF_TRANSFORMS})
    title = _TRANSFORM_TITLES.get(str(comparison.tags["transform"]), str(comparison.tags["transform"]))
    return f"{title}, {conditions}" if conditions else title


def varying_tags(comparisons: Sequence[Compared]) -> list[str]:
    """Return the tags in which comparisons differ, in order of appearance."""
    names = dict.fromkeys(name for comparison in comparisons for name in comparison.tags)
    return [name for name in names if len({comparison.tags.get(name) for comparison in comparisons}) > 1]


def _tag(name: str, comparison: Compared) -> str:
    value = comparison.tags.get(name)
    return "" if value is None else number(value)


def p_text(value: float) -> str:
    """Format a p value with two digits, small ones as ``< 0.0001``."""
    if math.isnan(value):
        return "undefined"
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def comparison_records(comparisons: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return one mapping per comparison, with undefined numbers as None."""
    return [_record(comparison) for comparison in comparisons]


def _record(comparison: Compared) -> dict[str, Any]:
    difference, test = comparison.paired.difference, comparison.paired.test
    single, exchange, equivalence = comparison.sensitivity, comparison.exchange, comparison.equivalence
    if single is None:
        names = {"measure": comparison.measure, "first": comparison.first, "second": comparison.second}
        record = {**names, **{f"tag {name}": value for name, value in comparison.tags.items()}}
    else:
        record = {"agent": comparison.tags["agent"], "measure": comparison.measure, **comparison.tags}
    record |= {
        "unit": difference.unit,
        "difference": json_number(difference.value),
        "low": json_number(difference.low),
        "high": json_number(difference.high),
        "confidence": difference.confidence,
        "n": sum(comparison.paired.counts),
        "grids": difference.clusters,
        "method": difference.method,
        "effect": json_number(test.effect),
        "nonzero": test.nonzero,
        "p": json_number(comparison.test.p_value),
        "p_holm": json_number(comparison.test.adjusted),
        "test": "interval of the mean difference",
        "p_signed_rank": json_number(test.p_value),
        "signed_rank_method": test.method,
        "margin": None if equivalence is None else equivalence.margin,
        "p_equivalence": None if equivalence is None else json_number(equivalence.p_value),
        "p_equivalence_holm": None if comparison.shown is None else json_number(comparison.shown.adjusted),
        "reading": comparison.verdict,
        "unpaired": len(comparison.paired.unpaired_a) + len(comparison.paired.unpaired_b),
        "undefined": comparison.paired.undefined,
    }
    if single is not None and exchange is not None:  # over single grids
        record |= {
            "root_mean_square": json_number(single.value),
            "root_mean_square_low": json_number(single.low),
            "root_mean_square_high": json_number(single.high),
            "root_mean_square_n": sum(single.counts),
            "root_mean_square_grids": single.square.clusters,
            "p_exchange": json_number(single.p_value),
            "p_exchange_holm": json_number(exchange.adjusted),
            "exchange_method": single.method,
            "exchange_note": single.note,
        }
    return {**record, "note": "; ".join(comparison.notes)}


def as_json(records: Sequence[Mapping[str, Any]], **metadata: Any) -> str:
    """Return records as JSON with metadata; the same numbers give the same text."""
    value = {**metadata, "comparisons": list(records)}
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=1, sort_keys=True) + "\n"
