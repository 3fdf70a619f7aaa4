"""Tables as plain text for the template, and formats for estimates, counts and lists."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from goalscope._ground.words import counted, short
from goalscope.report.texts import TEXTS
from goalscope.stats import FEWEST, Estimate, Grouped

SPARSE = TEXTS("tables/sparse", percent=f"{100 * FEWEST:g}")
"""Note for every table that contains an `Estimate.sparse` value."""

Entry = TypeVar("Entry")
TextColumns = Sequence[tuple[str, Callable[[Entry], str]]]
"""Columns of a table of texts: heading, and a function that returns the text of an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """An estimate as a table cell."""

    value: str
    interval: str = ""
    note: str = ""  # text instead of the interval
    few: str = ""  # number of clusters behind it, if other clusters of its group have no value
    sparse: bool = False  # whether they are too few, see `SPARSE`
    hint: str = ""  # counts and method, shown on demand
    estimate: Estimate | None = None  # the shown estimate, if any

    @classmethod
    def of(cls, estimate: Estimate | None, noun: str = "grid") -> "Cell":
        """Format an estimate over grids, or over other clusters called ``noun``; None becomes a dash."""
        if estimate is None:
            return cls(value="–", hint="the run has no rows for this")
        those = f"{estimate.clusters:,} of " if estimate.without else ""
        hint = f"{those}{counted(estimate.all_clusters, noun)}, n = {estimate.n}, {estimate.method}"
        if estimate.undefined:
            hint += f", {estimate.undefined} undefined values left out"
        if math.isnan(estimate.value):
            return cls(value="undefined", hint=hint, estimate=estimate)
        has_interval = estimate.has_interval
        return cls(
            value=short(estimate.value, estimate.unit),
            interval=interval(estimate),
            note="" if has_interval else "no interval",
            few=few_of(estimate, noun),
            sparse=estimate.sparse,
            hint=hint if has_interval else f"{hint}; {estimate.note}",
            estimate=estimate,
        )


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval as a small picture: positions from 4 to 104 on a scale, and a sentence with the same content."""

    low: float
    value: float
    high: float
    threshold: float | None
    label: str

    @classmethod
    def of(cls, estimate: Estimate, threshold: float | None, scale: tuple[float, float], label: str) -> "Bar | None":
        """Return the bar of an estimate on a scale (lowest and highest value), or None without an interval."""
        if not estimate.has_interval:
            return None
        lowest, span = scale[0], max(scale[1] - scale[0], 1e-12)

        def place(value: float) -> float:
            return round(4 + 100 * min(1.0, max(0.0, (value - lowest) / span)), 1)

        at = None if threshold is None else place(threshold)
        return cls(place(estimate.low), place(estimate.value), place(estimate.high), at, label)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A text in a table, with an optional subtitle, link anchor and emphasis.

    Only on pages, ``mark`` is a symbol before the text with the same meaning, and ``bar`` a small picture below it.
    """

    text: str
    _: KW_ONLY
    below: str = ""
    target: str = ""
    strong: bool = False
    mark: str = ""
    bar: Bar | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of texts, or of estimates if its columns have units."""

    caption: str = ""
    headings: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]  # per column a text, a `Phrase` or a `Cell`
    numbers: tuple[int, ...] = ()  # the right-aligned columns
    units: tuple[str, ...] = ()  # the unit of each column of a table of estimates; empty for a table of texts
    notes: tuple[str, ...] = ()  # lines below it
    name: str = ""  # its name in commands and pages, set by the layout

    @property
    def marks(self) -> dict[str, str]:
        """Symbols of the phrases in the table -> their meanings; readers of a page can filter its rows by them."""
        phrases = [entry for row in self.rows for entry in row if isinstance(entry, Phrase) and entry.mark]
        words = {phrase.mark: phrase.text for phrase in phrases}
        return dict(sorted(words.items(), key=lambda item: "✓✗~?".find(item[0])))


class Footnotes:
    """Methods and notes below a table, each written once and referenced by a letter in the cells."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, *texts: str) -> str:
        """Return the letters of footnotes with these texts, e.g. ``a, c``; a new text gets the next letter, an empty
        text none.
        """
        for text in filter(None, texts):
            self._marks.setdefault(text, _letters(len(self._marks)))
        return ", ".join(sorted({self._marks[text] for text in texts if text}, key=lambda mark: (len(mark), mark)))

    @property
    def lines(self) -> tuple[str, ...]:
        """All texts in the order of their letters, e.g. ``a: skewness-corrected score t``."""
        return tuple(f"{mark}: {text}" for text, mark in self._marks.items())


def _letters(index: int) -> str:
    """Return a, b, ..., z, aa, ab, ..."""
    higher, last = divmod(index, 26)
    return (_letters(higher - 1) if higher else "") + chr(ord("a") + last)


def plain_table(
    entries: Iterable[Entry],
    columns: TextColumns[Entry],
    numbers: Iterable[int],
    *,
    caption: str = "",
    footnotes: Footnotes | None = None,
) -> Table:
    """Return a table of texts with one line per entry, and the footnotes that its columns reference."""
    return Table(
        caption=caption,
        headings=tuple(heading for heading, _ in columns),
        rows=tuple(tuple(text(entry) for _, text in columns) for entry in entries),
        numbers=tuple(numbers),
        notes=footnotes.lines if footnotes else (),
    )


def estimates_table(
    caption: str,
    columns: Sequence[tuple[str, str]],
    rows: Iterable[tuple[str, Sequence[Estimate | Cell | None]]],
    noun: str = "",
) -> Table:
    """Return a table of estimates with units in the headings; a last column counts ``noun``, unless it is ""."""
    headings = (*columns, *([(f"{noun}s", "")] if noun else []))
    lines: list[tuple[str, list[Cell]]] = []
    for label, estimates in rows:
        cells = [
            estimate if isinstance(estimate, Cell) else Cell.of(estimate, noun or "grid") for estimate in estimates
        ]
        if noun:
            maximum = max(
                (estimate.all_clusters for estimate in estimates if isinstance(estimate, Estimate)), default=0
            )
            cells.append(Cell(value=str(maximum)))
        lines.append((label, cells))
    return Table(
        caption=caption,
        headings=tuple(text for text, _ in headings),
        rows=tuple((label, *cells) for label, cells in lines),
        numbers=tuple(range(1, len(headings))),
        units=tuple(unit for _, unit in headings),
        notes=(SPARSE,) if any(cell.sparse for _, cells in lines for cell in cells) else (),
    )


def value_columns(of: Callable[[Entry], Estimate], value: str = "value") -> TextColumns[Entry]:
    """Return two columns for the estimate that ``of`` gives for each entry: its value and its interval."""
    return [
        (value, lambda entry: short(of(entry).value, of(entry).unit)),
        ("95 % interval", lambda entry: interval(of(entry)) or "undefined"),
    ]


def interval(estimate: Estimate) -> str:
    """Format an interval as ``[0.951, 0.987]``, or "" if it is undefined."""
    ends = f"[{short(estimate.low, estimate.unit)}, {short(estimate.high, estimate.unit)}]"
    return ends if estimate.has_interval else ""


def few_of(estimate: Estimate, noun: str = "") -> str:
    """Say from how few clusters a value comes: ``only 20 of 150 grids``, ``102 of 150 grids``, or "" if from all of
    them.
    """
    if not estimate.without or math.isnan(estimate.value):
        return ""
    those = f"{estimate.clusters:,} of {counted(estimate.all_clusters, noun) if noun else f'{estimate.all_clusters:,}'}"
    return f"only {those}" if estimate.sparse else those


def numbers_table(estimates: Sequence[Grouped], noun: str = "grid") -> Table:
    """Return a table with one estimate per line: tags, counts (including worlds, called ``noun``), method and notes."""
    tags = list(dict.fromkeys(name for grouped in estimates for name in grouped.key if name != "measure"))

    def note(grouped: Grouped) -> str:
        left_out = f"{grouped.estimate.undefined} undefined left out" if grouped.estimate.undefined else ""
        return "; ".join(filter(None, (grouped.estimate.note, left_out, few_of(grouped.estimate, noun))))

    def tag_of(name: str, grouped: Grouped) -> str:
        return "" if grouped.key[name] is None else number(grouped.key[name])

    columns: TextColumns[Grouped] = [
        ("measure", partial(tag_of, "measure")),
        *((name, partial(tag_of, name)) for name in tags),
        *value_columns(attrgetter("estimate")),
        ("unit", lambda grouped: grouped.estimate.unit),
        ("n", lambda grouped: str(grouped.estimate.n)),
        (f"{noun}s", lambda grouped: str(grouped.estimate.clusters)),
        ("method", lambda grouped: grouped.estimate.method),
        ("note", note),
    ]
    first = 1 + len(tags)
    return plain_table(estimates, columns, (first, first + 1, first + 3, first + 4))


def number(value: object) -> str:
    """Format a size or density for an axis."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def size_in_words(octets: int) -> str:
    """Format a file size with a suitable unit: 812 bytes, 8 kB, 1.4 MB."""
    for unit, size_of_unit in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if octets >= size_of_unit:
            return (
                f"{octets / size_of_unit:.1f} {unit}"
                if octets < 10 * size_of_unit and unit != "kB"
                else f"{octets / size_of_unit:,.0f} {unit}"
            )
    return counted(octets, "byte")
