"""Results as plain records: for JSON files, data frames, and tables in text and notebooks."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import isfinite, nan
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, PlainSerializer, PlainValidator

from goalscope._ground.extras import lacking
from goalscope._ground.sealed import StrictRecord
from goalscope._ground.words import short
from goalscope.stats.estimate import Estimate

if TYPE_CHECKING:
    import pandas


class Records(ABC):
    """Base class of results that can be shown as a table, in text and in notebooks, and converted to a data frame.

    A subclass defines `records`, one dictionary per row of the table.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The rows of the table: one dictionary per row, from name of a column to a text, number, boolean or None."""

    def to_frame(self) -> "pandas.DataFrame":
        """Convert the result to a data frame with one row per entry of `records`.

        Raises:
            ImportError: if pandas is not installed (it comes with the extra ``export``).
        """
        return frame(self.records)

    def __str__(self) -> str:
        return text_table(*self._cells())

    def _repr_html_(self) -> str:
        return html_table(*self._cells())

    def _cells(self) -> tuple[list[str], list[list[object]]]:
        records = self.records
        columns = list(dict.fromkeys(name for record in records for name in record))
        return columns, [[record.get(name) for name in columns] for record in records]


def frame(records: Sequence[Mapping[str, Any]]) -> "pandas.DataFrame":
    """Convert dictionaries, one per row and with equal or different keys, to a pandas data frame.

    Raises:
        ImportError: if pandas is not installed (it comes with the extra ``export``).
    """
    try:
        import pandas
    except ImportError as error:
        raise lacking("to_frame needs pandas", "export", error) from error
    return pandas.DataFrame.from_records(list(records))


def text_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table as text with aligned columns. Floats have four significant digits, and None becomes an empty cell.

    Args:
        columns: names of the columns.
        rows: one sequence of cells per row.
    """
    lines = [list(columns), *([_cell_text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in padded)


def _cell_text(cell: object) -> str:
    if cell is None:
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else " ".join(str(cell).split())


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table as HTML for a notebook. Text is escaped, and None becomes an empty cell.

    Args:
        columns: names of the columns.
        rows: one sequence of cells per row.
    """

    def line(cells: Iterable[object], tag: str) -> str:
        texts = (escape("" if cell is None else str(cell)) for cell in cells)
        return f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(columns, 'th')}</thead><tbody>{body}</tbody></table>"


class EstimateRecord(StrictRecord):
    """An `Estimate` in the form in which it is stored as JSON, with the same fields, and None for numbers that are
    not finite.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int = Field(ge=0)
    clusters: int = Field(ge=0)
    method: str
    unit: str
    confidence: float = Field(gt=0, lt=1)
    note: str
    undefined: int = Field(ge=0)
    without: int = Field(ge=0)

    @classmethod
    def of(cls, estimate: Estimate) -> Self:
        """Convert an `Estimate` to the form in which it is stored."""
        values: dict[str, Any] = {name: getattr(estimate, name) for name in cls.model_fields}
        values |= {name: float(values[name]) if isfinite(values[name]) else None for name in ("value", "low", "high")}
        values |= {name: int(values[name]) for name in ("n", "clusters", "undefined", "without")}
        return cls(**values)

    @property
    def text(self) -> str:
        """The value and its interval as text, such as "0.870 [0.830, 0.900]", for sentences and tables; "undefined"
        without value.
        """
        if self.value is None:
            return "undefined"
        ends = (
            ""
            if self.low is None or self.high is None
            else (f" [{short(self.low, self.unit)}, {short(self.high, self.unit)}]")
        )
        return short(self.value, self.unit) + ends

    @property
    def estimate(self) -> Estimate:
        """The stored values as an `Estimate`, with NaN where a number is None."""
        values: dict[str, Any] = {name: nan if value is None else value for name, value in self.model_dump().items()}
        return Estimate(**values)


def _read(plain: Any) -> Estimate:
    return plain if isinstance(plain, Estimate) else EstimateRecord.model_validate(plain).estimate


StoredEstimate = Annotated[
    Estimate, PlainValidator(_read), PlainSerializer(lambda estimate: EstimateRecord.of(estimate).plain())
]
"""An `Estimate` as a field of a record, written as an `EstimateRecord`."""
