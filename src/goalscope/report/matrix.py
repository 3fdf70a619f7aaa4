"""A matrix as a picture: a cell for each row and column, by colour and in numbers."""

from collections.abc import Callable, Sequence
from html import escape
from textwrap import wrap
from typing import Final, NamedTuple

from goalscope.report.figures import INK, MUTED, Record, drawing, short_label
from goalscope.report.vector import Picture

_CELL, _LINE, _LABEL = 54, 30, 250  # width and height of a cell, width of the names; units of the view box
_LETTERS = 110  # in a line below the matrix
_WIDE = 164  # width of a cell with an interval in it
_PALE, _DARK = (0xEE, 0xF4, 0xFA), (0x0B, 0x5F, 0xA5)
_WARNING: Final = "#f4c7b0"


class MatrixCell(NamedTuple):
    """What stands in a cell: two lines of text, the share of the colour scale, and how opaque the colour is.

    A share of None is the colour of a warning.
    """

    first: str
    second: str
    share: float | None
    opacity: float = 1.0


def matrix(
    names: Sequence[str],
    records: Sequence[Record],
    *,
    row: str,
    column: str,
    cell: Callable[[Record], MatrixCell],
    label: str,
    notes: Sequence[str] = (),
    columns: Sequence[str] = (),
    narrow: bool = False,
) -> Picture:
    """Draw a matrix: names at the left, those of the columns above; of a square one numbers stand there.

    Args:
        names: of the rows, and of the columns where those have no names of their own.
        records: one for each cell that is filled.
        row, column: the keys of a record that name its row and its column.
        cell: what stands in the cell of a record.
        label: a sentence that describes the picture.
        notes: lines below it.
        columns: names of the columns.
        narrow: whether cells hold a mark alone, also under columns with names of their own.
    """
    rows = {name: index for index, name in enumerate(names)}
    across = {name: index for index, name in enumerate(columns or names)}
    top, left, wide = 46, _LABEL, _WIDE if columns and not narrow else _CELL
    parts = [_text(8, 18, label, INK, "start", 12)]
    for name, index in rows.items():
        middle = top + _LINE * index + _LINE / 2 + 4
        text = short_label(name, 38) if columns else f"{short_label(name, 38)}  {index + 1}"
        parts.append(_text(left - 8, middle, text, INK, "end", 10))
    for name, index in across.items():
        text = short_label(name, 22) if columns else str(index + 1)
        parts.append(_text(left + wide * (index + 0.5), top - 8, text, MUTED, "middle", 10))
    for record in records:
        x, y = left + wide * across[str(record[column])], top + _LINE * rows[str(record[row])]
        found = cell(record)
        fill = _WARNING if found.share is None else _shade(found.share)
        ink = "#ffffff" if found.share is not None and found.share * found.opacity > 0.6 else INK
        faint = f' fill-opacity="{found.opacity:.3g}"' if found.opacity < 1 else ""
        parts.append(f'<rect x="{x + 1}" y="{y + 1}" width="{wide - 2}" height="{_LINE - 2}" fill="{fill}"{faint}/>')
        parts.append(_text(x + wide / 2, y + 13, found.first, ink, "middle", 10))
        parts.append(_text(x + wide / 2, y + 24, found.second, ink, "middle", 7.5))
    below = top + _LINE * len(rows)
    lines = [line for note in notes for line in wrap(note, max(_LETTERS, len(label)))]
    parts.extend(_text(8, below + 18 + 14 * index, line, MUTED, "start", 9) for index, line in enumerate(lines))
    longest = max(map(len, (label, *lines)))
    width = max(left + wide * len(across) + 8, round(6.4 * longest) + 16)
    return Picture(drawing(width, below + 14 * len(lines) + 16, label, "10px", parts), tuple(records))


def _shade(share: float) -> str:
    mixed = (round(pale + (dark - pale) * min(1.0, max(0.0, share))) for pale, dark in zip(_PALE, _DARK, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _text(x: float, y: float, text: str, colour: str, anchor: str, size: float) -> str:
    where = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text {where} fill="{colour}" font-size="{size:g}">{escape(text)}</text>'
