"""Conversion of results to plain records, data frames and notebook tables."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from goalscope._ground.extras import lacking

if TYPE_CHECKING:
    import pandas


class Records(ABC):
    """A result that can be shown as a table, one row per record."""

    __slots__ = ()

    @property
    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The result as a list of dictionaries with plain values."""

    def to_frame(self) -> "pandas.DataFrame":
        """Convert the records to a data frame with one row per record.

        Raises:
            ImportError: pandas is not installed (it comes with the extra ``export``).
        """
        return frame(self.records)

    def _repr_html_(self) -> str:
        records = self.records
        columns = list(dict.fromkeys(name for record in records for name in record))
        return html_table(columns, [[record.get(name) for name in columns] for record in records])


def frame(records: Sequence[Mapping[str, Any]]) -> "pandas.DataFrame":
    """Convert plain records to a data frame.

    Raises:
        ImportError: pandas is not installed (it comes with the extra ``export``).
    """
    try:
        import pandas
    except ImportError as error:
        raise lacking("to_frame needs pandas", "export", error) from error
    return pandas.DataFrame.from_records(list(records))


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as HTML for a notebook. Text is escaped, and None becomes an empty cell."""

    def line(cells: Iterable[object], tag: str) -> str:
        texts = (escape("" if cell is None else str(cell)) for cell in cells)
        return f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(columns, 'th')}</thead><tbody>{body}</tbody></table>"
