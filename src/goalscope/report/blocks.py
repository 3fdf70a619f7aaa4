"""The blocks of a page: sections, tables and figures as plain text, ready for the template."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from goalscope.report.figures import short
from goalscope.rows import Tag
from goalscope.stats import FEWEST, Estimate, Grouped

SPARSE = (
    f"A value marked “only” comes from less than {100 * FEWEST:g} % of the grids or maps of its group; the others have "
    "no such value. It may differ from the values beside it because of what is left out."
)
"""What every table says that holds a value which is `Estimate.sparse`."""

_MOST_UNDEFINED = 40
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The heading of a column of estimates: what it is, and its unit."""

    text: str
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """An estimate as a table shows it.

    Attributes:
        value: the value.
        interval: its interval, "" where there is none.
        note: what stands in the interval's place.
        few: number of clusters behind it, where others of its group have no value.
        sparse: whether they are so few that a warning is due.
        hint: counts and method, shown on demand.
    """

    value: str
    interval: str = ""
    note: str = ""
    few: str = ""
    sparse: bool = False
    hint: str = ""

    @classmethod
    def of(cls, estimate: Estimate | None, noun: str = "grid") -> "Cell":
        """Write an estimate over grids, or what else ``noun`` names; None is a dash."""
        if estimate is None:
            return cls(value="–", hint="the run has no rows for this")
        unit = estimate.unit
        those = f"{estimate.clusters:,} of " if estimate.without else ""
        hint = f"{those}{counted(estimate.grids, noun)}, n = {estimate.n}, {estimate.method}"
        if estimate.undefined:
            hint += f", {estimate.undefined} undefined values left out"
        if math.isnan(estimate.value):
            return cls(value="undefined", hint=hint)
        few = few_of(estimate, noun)
        if not estimate.has_interval:
            hint = f"{hint}; {estimate.note}"
            return cls(
                value=short(estimate.value, unit), note="no interval", few=few, sparse=estimate.sparse, hint=hint
            )
        return cls(
            value=short(estimate.value, unit), interval=interval(estimate), few=few, sparse=estimate.sparse, hint=hint
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of estimates."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of estimates; the first heading is that of the row labels."""

    caption: str
    headings: tuple[Heading, ...]
    rows: tuple[Row, ...]

    @property
    def warning(self) -> str:
        """What a reader must know of the cells that few clusters are behind, "" where there is no such cell."""
        return SPARSE if any(cell.sparse for row in self.rows for cell in row.cells) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """A table of texts; ``numbers`` names the columns that are set flush right, ``notes`` are lines below it."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def plain_table(
    entries: Iterable[Entry],
    columns: Sequence[tuple[str, Callable[[Entry], str]]],
    numbers: Iterable[int],
    *,
    caption: str = "",
    notes: Sequence[str] = (),
) -> Plain:
    """Return a table of texts with a line for each entry: each column has a heading, and the text of an entry."""
    return Plain(
        caption=caption,
        headings=tuple(heading for heading, _ in columns),
        rows=tuple(tuple(text(entry) for _, text in columns) for entry in entries),
        numbers=tuple(numbers),
        notes=tuple(notes),
    )


class Footnotes:
    """Methods and notes of a table, each written once below it and marked by a letter where it applies."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, *texts: str) -> str:
        """Return the marks of some texts, e.g. ``a, c``; empty texts have none."""
        for text in texts:
            if text and text not in self._marks:
                self._marks[text] = _letters(len(self._marks))
        return ", ".join(sorted({self._marks[text] for text in texts if text}, key=lambda mark: (len(mark), mark)))

    @property
    def lines(self) -> tuple[str, ...]:
        """All texts in the order of their marks, e.g. ``a: skewness-corrected score t``."""
        return tuple(f"{mark}: {text}" for text, mark in self._marks.items())


def _letters(index: int) -> str:
    """Return a, b, ..., z, aa, ab, ..."""
    rest, last = divmod(index, 26)
    return (_letters(rest - 1) if rest else "") + chr(ord("a") + last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """An SVG text made by this package (the only text that a page does not escape) and its caption."""

    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """What a reader opens on demand."""

    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    plain: tuple[Plain, ...] = ()
    code: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the page, in the order in which its parts are shown."""

    anchor: str
    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    plain: tuple[Plain, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    code: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    layout: str = "pairs"
    legend: str = ""
    folds: tuple[Fold, ...] = field(default=())


def interval(estimate: Estimate) -> str:
    """Write an interval as ``[0.951, 0.987]``, "" where it is undefined."""
    if not estimate.has_interval:
        return ""
    return f"[{short(estimate.low, estimate.unit)}, {short(estimate.high, estimate.unit)}]"


def few_of(estimate: Estimate, noun: str = "") -> str:
    """Write the number of clusters behind a value: ``only 20 of 150 grids``, ``102 of 150 grids``, "" for all."""
    if not estimate.without or math.isnan(estimate.value):
        return ""
    those = f"{estimate.clusters:,} of {counted(estimate.grids, noun) if noun else f'{estimate.grids:,}'}"
    return f"only {those}" if estimate.sparse else those


def counted_row(label: str, found: Sequence[Estimate | Cell | None], noun: str = "grid") -> Row:
    """Return a line of estimates with the number of grids, or what else ``noun`` names, in its last cell."""
    cells = (entry if isinstance(entry, Cell) else Cell.of(entry, noun) for entry in found)
    most = max((entry.grids for entry in found if isinstance(entry, Estimate)), default=0)
    return Row(label=label, cells=(*cells, Cell(value=str(most))))


def numbers_table(listed: Sequence[Grouped]) -> Plain:
    """Return estimates one a line, with the tags they are grouped by, counts, method and notes."""
    tags = list(dict.fromkeys(name for one in listed for name in one.key if name != "measure"))

    def note(one: Grouped) -> str:
        left_out = f"{one.estimate.undefined} undefined left out" if one.estimate.undefined else ""
        return "; ".join(filter(None, (one.estimate.note, left_out, few_of(one.estimate, "grid"))))

    columns: list[tuple[str, Callable[[Grouped], str]]] = [
        ("measure", lambda one: str(one.key["measure"])),
        *((name, partial(_tag_of, name)) for name in tags),
        ("value", lambda one: short(one.estimate.value, one.estimate.unit)),
        ("95 % interval", lambda one: interval(one.estimate) or "undefined"),
        ("unit", lambda one: one.estimate.unit),
        ("n", lambda one: str(one.estimate.n)),
        ("grids", lambda one: str(one.estimate.clusters)),
        ("method", lambda one: one.estimate.method),
        ("note", note),
    ]
    first = 1 + len(tags)
    return plain_table(listed, columns, (first, first + 1, first + 3, first + 4))


def _tag_of(name: str, one: Grouped) -> str:
    return tag_text(one.key[name])


def undefined_fold(listed: Sequence[tuple[str, str, Estimate]], why: Callable[[str], str]) -> list[Fold]:
    """Return what has no value or no interval, and why; nothing where all have both.

    Args:
        listed: measure, where, and estimate of what a section shows.
        why: returns for a measure why it has no value where no grid has one, "" where this is not known.
    """
    lines_of = []
    for measure, where, estimate in listed:
        if estimate.has_interval:
            continue
        reason = f"no interval: {estimate.note or 'its ends are not known'}"
        if math.isnan(estimate.value):
            reason = why(measure) or estimate.note or "no value is defined"
        lines_of.append((measure, where, reason))
    if not lines_of:
        return []
    more = len(lines_of) - _MOST_UNDEFINED
    plain = Plain(caption="", headings=("measure", "of", "why"), rows=tuple(lines_of[:_MOST_UNDEFINED]))
    note = (f"{more} more are not listed.",) if more > 0 else ()
    return [Fold(title=f"What is undefined here ({len(lines_of)})", paragraphs=note, plain=(plain,))]


def counts_and_methods(listed: Sequence[Grouped]) -> list[Fold]:
    """Return estimates with n, grids, interval and method, those grouped by the same tags in one table."""
    tables: dict[tuple[str, ...], list[Grouped]] = {}
    for one in listed:
        tables.setdefault(tuple(one.key), []).append(one)
    title = f"Counts and methods ({counted(len(listed), 'estimate')})"
    return [Fold(title=title, plain=tuple(map(numbers_table, tables.values())))] if listed else []


def tag_text(value: Tag) -> str:
    """Write the value of a tag, "" where it is missing."""
    return "" if value is None else number(value)


def number(value: object) -> str:
    """Write a size or density as an axis shows it."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def counted(count: int, noun: str) -> str:
    """Write ``1 grid``, ``9,000 episodes``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(items: Sequence[str]) -> str:
    """Write ``a``, ``a and b``, ``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "none"
