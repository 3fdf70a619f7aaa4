"""A matrix as a picture: what each row tells of each column, by colour and in numbers."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from goalscope.report.figures import INK, MUTED, Record, drawing, short_label
from goalscope.report.vector import Picture

_CELL, _LINE, _LABEL = 54, 30, 250  # width and height of a cell, width of the names; units of the view box
_PALE, _DARK = (0xEE, 0xF4, 0xFA), (0x0B, 0x5F, 0xA5)
_WARNING: Final = "#f4c7b0"


def matrix(
    names: Sequence[str],
    records: Sequence[Record],
    *,
    row: str,
    column: str,
    cell: Callable[[Record], tuple[str, str, float | None]],
    label: str,
    notes: Sequence[str] = (),
) -> Picture:
    """Draw a square matrix: names at the left with numbers, which stand above the columns.

    Args:
        names: of the rows and columns.
        records: one for each cell that is filled.
        row, column: the keys of a record that name its row and its column.
        cell: record -> two lines of text, and the share of the colour scale; None for the colour of a warning.
        label: a sentence that describes the picture.
        notes: lines below it.
    """
    at = {name: index for index, name in enumerate(names)}
    top, left = 46, _LABEL
    parts = [_text(8, 18, label, INK, "start", 12)]
    for name, index in at.items():
        middle = top + _LINE * index + _LINE / 2 + 4
        parts.append(_text(left - 8, middle, f"{short_label(name, 38)}  {index + 1}", INK, "end", 10))
        parts.append(_text(left + _CELL * (index + 0.5), top - 8, str(index + 1), MUTED, "middle", 10))
    for record in records:
        x, y = left + _CELL * at[str(record[column])], top + _LINE * at[str(record[row])]
        first, second, share = cell(record)
        fill = _WARNING if share is None else _shade(share)
        ink = "#ffffff" if share is not None and share > 0.6 else INK
        parts.append(f'<rect x="{x + 1}" y="{y + 1}" width="{_CELL - 2}" height="{_LINE - 2}" fill="{fill}"/>')
        parts.append(_text(x + _CELL / 2, y + 13, first, ink, "middle", 10))
        parts.append(_text(x + _CELL / 2, y + 24, second, ink, "middle", 7.5))
    below = top + _LINE * len(names)
    parts.extend(_text(8, below + 18 + 14 * index, note, MUTED, "start", 9) for index, note in enumerate(notes))
    longest = max(map(len, (label, *notes)), default=0)
    width = max(left + _CELL * len(names) + 8, round(6.4 * longest) + 16)
    return Picture(drawing(width, below + 14 * len(notes) + 16, label, "10px", parts), tuple(records))


def _shade(share: float) -> str:
    mixed = (round(pale + (dark - pale) * min(1.0, max(0.0, share))) for pale, dark in zip(_PALE, _DARK, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _text(x: float, y: float, text: str, colour: str, anchor: str, size: float) -> str:
    where = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text {where} fill="{colour}" font-size="{size:g}">{escape(text)}</text>'
