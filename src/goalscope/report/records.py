"""Comparisons as plain numbers, for JSON and CSV files."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from goalscope.measures.invariance import Contrast, verdict
from goalscope.report.comparison import Compared, notes_of
from goalscope.report.ledger import json_number
from goalscope.stats import Corrected, Equivalence, PairedComparison

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""With what a cell begins that a spreadsheet would take for a formula."""


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
