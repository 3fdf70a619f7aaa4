"""Results in text: what `print` shows of a result with records."""

from dataclasses import dataclass
from typing import Any

from goalscope.stats.records import Records


@dataclass(frozen=True)
class Result(Records):
    """A result with a part that no reader wants to see."""

    worlds: tuple[str, ...] = ("world-0123456789",) * 50

    @property
    def records(self) -> list[dict[str, Any]]:
        return [{"measure": "success", "value": 0.123456, "note": None}, {"measure": "a", "value": 2, "note": "few"}]


def test_a_printed_result_is_the_table_of_its_records() -> None:
    heading, first, second = str(Result()).split("\n")
    assert heading.split() == ["measure", "value", "note"]
    assert first.split() == ["success", "0.1235"] and second.split() == ["a", "2", "few"]
    assert heading.index("value") == first.index("0.1235") == second.index("2"), "columns are aligned"
