"""What the sections of a report are made of: tables, curves, maps and sentences as data, and formats for estimates.

A section is a function of the run, registered under a name with `section`. It yields declarations in page order, which
`goalscope.report.page` fills with estimates and draws.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import compress
from operator import attrgetter
from typing import Any, Literal, TypeVar

from goalscope._ground import registry
from goalscope._ground.words import counted, short
from goalscope.report.charts import WIDE, HeatMap, Lines, Series
from goalscope.report.definitions import Rivals, Word, claim_in_words, in_sentence, in_words, title_of
from goalscope.report.figures import Drawn, embed
from goalscope.report.ledger import Estimates, Key, Ledger, RunData, describe_key
from goalscope.report.texts import TEXTS, labels
from goalscope.stats import FEWEST, Estimate, Grouped
from goalscope.stats.rows import Tag

SPARSE = TEXTS("tables/sparse", percent=f"{100 * FEWEST:g}")
"""Note for every table that contains an `Estimate.sparse` value."""

Entry = TypeVar("Entry")
TextColumns = Sequence[tuple[str, Callable[[Entry], str]]]
"""Columns of a table of texts: heading, and a function that returns the text of an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """An estimate as it is shown in one cell of a table: its value, its interval, notes, and counts on demand, all as
    texts.
    """

    value: str
    interval: str = ""
    note: str = ""  # text instead of the interval
    few: str = ""  # number of clusters behind it, if other clusters of its group have no value
    sparse: bool = False  # whether they are too few, see `SPARSE`
    hint: str = ""  # counts and method, shown on demand
    estimate: Estimate | None = None  # the shown estimate, if any

    @classmethod
    def of(cls, estimate: Estimate | None, noun: str = "grid") -> "Cell":
        """Format an estimate for a cell of a table; None becomes a dash.

        ``noun`` is the word for the groups over which the interval is computed, such as "grid"; their number is shown
        on demand.
        """
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
    """An interval drawn as a small picture in a table: positions from 4 to 104 on a scale, and a sentence with the same
    content.

    ``low``, ``value`` and ``high`` are the positions of the interval's ends and of the estimate, ``threshold`` that of
    a line to compare with, if any.
    """

    low: float
    value: float
    high: float
    threshold: float | None
    label: str

    @classmethod
    def of(cls, estimate: Estimate, threshold: float | None, scale: tuple[float, float], label: str) -> "Bar | None":
        """Place an estimate and its interval on a scale (lowest and highest value), as a small picture; None without an
        interval.

        ``threshold`` is a value to compare with, None for no such line, and ``label`` the sentence that says the same
        in words.
        """
        if not estimate.has_interval:
            return None
        lowest, span = scale[0], max(scale[1] - scale[0], 1e-12)

        def place(value: float) -> float:
            return round(4 + 100 * min(1.0, max(0.0, (value - lowest) / span)), 1)

        at = None if threshold is None else place(threshold)
        return cls(place(estimate.low), place(estimate.value), place(estimate.high), at, label)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A text in a table cell, with an optional subtitle, link anchor and emphasis.

    Only on pages, ``mark`` is a symbol before the text with the same meaning, and ``bar`` a small picture of an
    interval below it.
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
    """A finished table of texts, or of estimates if its columns have units, with caption, headings, rows and notes
    below.

    Each row has one entry per column: a text, a `Phrase` (a text with emphasis or symbol) or a `Cell` (an estimate).
    """

    caption: str = ""
    headings: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]  # per column a text, a `Phrase` or a `Cell`
    numbers: tuple[int, ...] = ()  # the right-aligned columns
    units: tuple[str, ...] = ()  # the unit of each column of a table of estimates; empty for a table of texts
    notes: tuple[str, ...] = ()  # lines below it
    name: str = ""  # its name in commands and pages, set by the layout

    @property
    def marks(self) -> dict[str, str]:
        """The symbols (such as ✓) before the texts of the table, each with its text; readers of a page can filter rows
        by them.
        """
        phrases = [entry for row in self.rows for entry in row if isinstance(entry, Phrase) and entry.mark]
        words = {phrase.mark: phrase.text for phrase in phrases}
        return dict(sorted(words.items(), key=lambda item: "✓✗~?".find(item[0])))


class Footnotes:
    """Methods and notes below a table, each written once and referenced by a letter in the cells."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, *texts: str) -> str:
        """Return the letters of the footnotes with these texts, e.g. ``a, c``, to be written in a cell of the table.

        A new text gets the next letter; an empty text has none.
        """
        for text in filter(None, texts):
            self._marks.setdefault(text, _letters(len(self._marks)))
        return ", ".join(sorted({self._marks[text] for text in texts if text}, key=lambda mark: (len(mark), mark)))

    @property
    def lines(self) -> tuple[str, ...]:
        """The texts of all footnotes in the order of their letters, e.g. ``a: skewness-corrected score t``."""
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
    """Build a table of texts with one line per entry.

    Args:
        entries: the objects that the lines describe.
        columns: for each column its heading and a function that returns the text of an entry.
        numbers: indices of the right-aligned columns.
        caption: caption of the table.
        footnotes: footnotes that the functions of the columns fill; they are written below the table.
    """
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
    """Build a table of estimates, with units in the headings.

    Args:
        caption: caption of the table.
        columns: heading and unit of each column; the first is the column of labels.
        rows: label of each line, and its estimates; None becomes a dash.
        noun: the word for the groups over which intervals are computed, such as "grid"; a last column counts them. ""
            for no such column.
    """
    headings = (*columns, *([(f"{noun}s", "")] if noun else []))
    lines: list[tuple[str, list[Cell]]] = []
    for label, entries in rows:
        cells = [entry if isinstance(entry, Cell) else Cell.of(entry, noun or "grid") for entry in entries]
        if noun:
            counts = [entry.all_clusters for entry in entries if isinstance(entry, Estimate)]
            cells.append(Cell(value=str(max(counts, default=0))))
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
    """Return two columns for `plain_table`: the value of an estimate, and its 95 % interval.

    Args:
        of: returns the estimate of an entry.
        value: heading of the first column.
    """
    return [
        (value, lambda entry: short(of(entry).value, of(entry).unit)),
        ("95 % interval", lambda entry: interval(of(entry)) or "undefined"),
    ]


def interval(estimate: Estimate) -> str:
    """Format the interval of an estimate as ``[0.951, 0.987]``; "" if it has none."""
    ends = f"[{short(estimate.low, estimate.unit)}, {short(estimate.high, estimate.unit)}]"
    return ends if estimate.has_interval else ""


def value_text(estimate: Estimate | None) -> str:
    """Format an estimate with its interval in one line, e.g. ``0.970 [0.951, 0.987]``; None becomes a dash."""
    if estimate is None:
        return "–"
    return f"{short(estimate.value, estimate.unit)} {interval(estimate)}".rstrip()


def few_of(estimate: Estimate, noun: str = "") -> str:
    """Say how many of all groups (such as grids) have a value: ``only 20 of 150 grids``, ``102 of 150 grids``.

    Returns "" if all have one, or if the estimate is undefined. ``noun`` is the word for a group.
    """
    if not estimate.without or math.isnan(estimate.value):
        return ""
    those = f"{estimate.clusters:,} of {counted(estimate.all_clusters, noun) if noun else f'{estimate.all_clusters:,}'}"
    return f"only {those}" if estimate.sparse else those


def numbers_table(estimates: Sequence[Grouped], noun: str = "grid") -> Table:
    """Build a table with one estimate per line: measure, tags, value, interval, counts, method and notes.

    ``noun`` is the word for the groups over which intervals are computed, such as "grid".
    """
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
    """Format the value of a tag, such as a size or wall density, for an axis or a heading: 0.50 becomes "0.5"."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def size_in_words(octets: int) -> str:
    """Format a file size with a suitable unit: 812 bytes, 8 kB, 1.4 MB."""
    for unit, size_of_unit in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if octets >= size_of_unit:
            decimals = 1 if octets < 10 * size_of_unit and unit != "kB" else 0
            return f"{octets / size_of_unit:,.{decimals}f} {unit}"
    return counted(octets, "byte")


MEAN = "mean and 95 % interval over grids"
"""Phrase for the captions of tables that only grids have; for other worlds see `mean_over`."""
AXES = labels("labels/axes")
"""Tag -> label of its axis."""
SHARE = (0.0, 1.0)
"""Range of an axis for shares."""
Bounds = tuple[float, float] | Callable[[Sequence[Series]], tuple[float, float]] | None
"""Range of a vertical axis, or a function of the drawn series; None to derive it from the data."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table of estimates: its heading, its unit, and the tags that select its estimates (``key``)."""

    title: str
    unit: str
    key: Key


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table of estimates: its label, and the tags that select its estimates (``key``), such as the
    agent.
    """

    title: str
    key: Key


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Specification of a table of estimates, by its lines and columns.

    The tags of a line and those of a column together select the estimate of a cell; empty lines and columns are left
    out.
    """

    caption: str
    first: str  # heading of the labels
    estimates: Estimates
    columns: Sequence[Column]
    lines: Sequence[Line]
    noun: str = "grid"  # unit of the intervals; the last column counts it, "" for no such column
    whole: bool = False  # keep empty lines and columns unless all are empty

    def table(self) -> Table | None:
        """Look up the estimates of all cells and build the table; None if there is no estimate."""
        cells = [[self.estimates.get(line.key, column.key) for column in self.columns] for line in self.lines]
        if not any(map(any, cells)):
            return None
        has_cells = [self.whole or any(row) for row in cells]
        used_columns = [self.whole or any(column) for column in zip(*cells, strict=True)]
        columns = [(self.first, ""), *((column.title, column.unit) for column in compress(self.columns, used_columns))]
        rows = [
            (line.title, [*compress(row, used_columns)])
            for line, row in compress(zip(self.lines, cells, strict=True), has_cells)
        ]
        return estimates_table(self.caption, columns, rows, self.noun)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a report: its drawing, a sentence that describes it if the drawing has none, and its caption.

    The SVG is made by this package; it is the only text that a page does not escape.
    """

    drawn: Drawn
    label: str = ""
    caption: str = ""
    name: str = ""  # name on pages and in commands; set by the layout

    @property
    def svg(self) -> str:
        """The figure as SVG text, with the sentence that describes it for screen readers."""
        return embed(self.drawn.svg, self.label) if self.label else self.drawn.svg


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve of a figure: its name in the legend, and the tags that select its estimates (``key``), such as the
    agent.
    """

    title: str
    key: Key
    _: KW_ONLY
    style: int | None = None  # index of colour, marker and dash; the curve's index where None
    fewest: int = 1  # minimum number of points
    flat: bool = False  # draw its single estimate at every tick, only together with other curves
    estimates: Estimates | None = None  # its estimates; those of the figure where None


@dataclass(frozen=True, slots=True)
class CurveSpec:
    """Specification of a figure that draws estimates as curves over the values of a tag, such as the size of the grid.

    Curves without values are left out, and so is a figure without curves.
    """

    title: str
    y_label: str  # label of the vertical axis with its unit
    axis: str  # the tag
    estimates: Estimates
    curves: Sequence[Curve]
    _: KW_ONLY
    x_label: str = ""  # label of the horizontal axis with its unit; that of the tag in `AXES` where ""
    places: Mapping[Any, float] | None = None  # value -> position on the axis; numbers are their own where None
    joined: bool = True  # False for values without an order
    bounds: Bounds = SHARE
    # Ticks of the horizontal axis, with labels where a mapping; at all points where None, automatic where empty.
    ticks: Sequence[float] | Mapping[float, str] | None = None
    counts: bool = False  # also draw the number of grids
    most_bands: int | None = None  # maximum number of lines with intervals; more are drawn without any
    fewest_grids: int = 0  # points with fewer grids are left out
    label_end: str = ""  # text after the title in the label for screen readers
    names_one: bool = False  # a single drawn curve of several is named in the title
    caption: str = ""  # text below the figure

    def figure(self) -> Figure | None:
        """Look up the estimates and draw the curves; None if there are no values."""
        series_by_index = {index: self._series(curve, index) for index, curve in enumerate(self.curves)}
        # A level, which is drawn at every tick, is for comparison: on its own it is not a figure.
        if not any(series_by_index[index] and not curve.flat for index, curve in enumerate(self.curves)):
            return None
        series = [line for line in series_by_index.values() if line is not None]
        title = self.title
        if self.names_one and len(series) == 1 < len(self.curves):
            title += f", {series[0].label}"  # one line has no legend
        x_values = sorted({x for line in series for x in line.points})
        ticks = x_values if self.ticks is None else self.ticks
        if isinstance(ticks, Mapping):
            ticks = {x: ticks[x] for x in ticks if x in x_values}
        chart = Lines(
            series,
            title=title,
            x_label=self.x_label or AXES[self.axis],
            y_label=self.y_label,
            bounds=self.bounds(series) if callable(self.bounds) else self.bounds,
            ticks=ticks or None,
            counts=self.counts,
            bands=self.most_bands is None or len(series) <= self.most_bands,
            joined=self.joined,
        )
        return Figure(chart, title + self.label_end, self.caption)

    def _series(self, curve: Curve, at: int) -> Series | None:
        """Return the points of a curve; None if they are too few."""
        all_estimates = curve.estimates or self.estimates
        points = all_estimates.along(self.axis, curve.key, self.places)
        if curve.flat:
            level = all_estimates.get(curve.key)
            points = dict.fromkeys(self.ticks or (), level) if level is not None else {}
        points = {x: estimate for x, estimate in points.items() if estimate.clusters >= self.fewest_grids}
        if len(points) < curve.fewest or all(math.isnan(estimate.value) for estimate in points.values()):
            return None
        return Series(label=curve.title, style=at if curve.style is None else curve.style, points=points)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSpec:
    """Specification of a figure that shows estimates by two tags (such as size and density) as a map of coloured cells.

    It is left out if it has no estimates.
    """

    title: str
    label: str = ""  # what the figure shows in a sentence, the title where ""
    estimates: Estimates
    key: Key  # common key of the estimates
    among: Key | None = None  # key of the estimates whose tag values are the rows and columns, `key` where None
    rows: str  # the tags of rows and columns, and their labels
    columns: str
    row_label: str
    column_label: str
    bounds: tuple[float, float] | None = SHARE  # range of the colours; from 0 to the maximum where None

    def figure(self) -> Figure | None:
        """Look up the estimates and draw the map; None if there are no values."""
        among = self.key if self.among is None else self.among
        rows, columns = (self.estimates.values(tag, **among) for tag in (self.rows, self.columns))
        cells = [[self.estimates.get(self.key, {self.rows: row, self.columns: at}) for at in columns] for row in rows]
        values = [estimate.value for row in cells for estimate in row if estimate is not None]
        defined = [value for value in values if not math.isnan(value)]
        if not values:
            return None
        chart = HeatMap(
            cells,
            rows=[number(row) for row in rows],
            columns=[number(column) for column in columns],
            title=self.title,
            row_label=self.row_label,
            column_label=self.column_label,
            bounds=self.bounds or (0.0, max([*defined, 0.01]) if defined else 1.0),
        )
        return Figure(chart, self.label or self.title)


@dataclass(frozen=True, slots=True)
class Sentence:
    """Specification of a sentence that says which differences are above 0, below 0 or neither.

    ``parts`` has the name of each difference and the tags that select its estimate.
    """

    title: str  # name of the differences
    estimates: Estimates
    parts: Sequence[tuple[str, Key]]  # name and key of each difference
    openings: Mapping[str, str] = field(default_factory=dict)  # arguments of `goalscope.report.definitions.in_words`

    @property
    def text(self) -> str:
        """The sentence for the estimates of the run; "" if there is no estimate."""
        return in_words([(name, self.estimates.get(key)) for name, key in self.parts], **self.openings)


@dataclass(frozen=True, slots=True)
class RivalsSentence:
    """Specification of a sentence on a probe, such as "readable": it depends on the probe's differences from all
    rivals.

    Rivals are the baselines and random networks that the probe must beat; see `goalscope.report.definitions`.
    """

    title: str  # the probe and its read point
    estimates: Estimates
    parts: Sequence[tuple[str, Key]]  # name of each part, and the key of its differences without "less"
    rivals: Mapping[str, str]  # label of each rival -> its name in "less"
    word: Word
    needed: Sequence[str] = ()  # rivals that a claim requires
    higher: bool = True  # whether a higher score is a better one

    @property
    def differences(self) -> list[tuple[str, Rivals]]:
        """The name of each part of the sentence, with the probe's difference from each rival (baseline or random
        network) there.
        """
        return [
            (part, {rival: self.estimates.get(key, less=name) for rival, name in self.rivals.items()})
            for part, key in self.parts
        ]

    @property
    def text(self) -> str:
        """A sentence that says for which parts of its scores the probe is better than all its rivals (baselines, random
        networks).

        "" if the run has no estimate of any difference between the probe and a rival.
        """
        return claim_in_words(self.differences, self.word, needed=self.needed, higher=self.higher)


AnyTable = Any
"""A `TableSpec`, or a finished `Table`."""
AnyFigure = Any
"""A `CurveSpec`, a `MapSpec`, or a finished `Figure`."""


@dataclass(frozen=True, slots=True)
class FoldSpec:
    """Part of a report that stays closed until the reader opens it: a title with tables, code and paragraphs.

    It is left out if it has neither tables nor code.
    """

    title: str
    tables: Sequence[AnyTable] = ()
    code: Sequence[str] = ()
    paragraphs: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A section of a report: its title, and its texts, tables and figures in the order of the page.

    Tables, figures and sentences are either finished or given as specifications, which are filled with the estimates of
    the run when the page is laid out.
    """

    anchor: str  # short text for links to it; a number is added to duplicates
    title: str
    tiles: Sequence[tuple[str, str, str]] = ()  # label, large text and small text of what to read first
    paragraphs: Sequence[str] = ()  # introduction
    facts: Sequence[tuple[str, str]] = ()  # names and texts
    sentences: Sequence[Sentence | RivalsSentence] = ()  # differences in words; those without estimates are left out
    rule: str = ""  # how sentences follow from intervals; shown only with sentences
    silence: str = ""  # text instead of missing sentences
    tables: Sequence[AnyTable] = ()
    code: Sequence[str] = ()
    figures: Sequence[AnyFigure] = ()
    layout: str = "pairs"  # how figures are set: "pairs", "maps" or "pictures"
    legend: str = ""  # how to read the figures; shown only with figures
    closing: str = ""  # text instead of the legend if there are no figures
    folds: Sequence[FoldSpec] = ()
    undefined: Sequence[tuple[str, str, Estimate]] = ()  # measure, place and estimate of each value shown
    why: Callable[[str], str] = lambda measure: ""  # measure -> why no grid has a value, "" for unknown
    counted: Iterable[Grouped] = ()  # the section's estimates, for the table of counts and methods
    figures_only: bool = False  # the section is left out without figures
    figures_first: bool = False  # figures stand before the tables
    explained: Sequence[str] = ()  # how it is measured and read, folded
    folded: bool = False  # the section is closed but for its title


Content = Callable[[RunData], Iterable[Declared]]
"""A function from a run to its declarations; empty if the section does not apply."""


@dataclass(frozen=True, slots=True)
class _SectionSpec:
    """A registered section; ``worlds`` is the kind of runs to which it applies, None for all."""

    name: str
    source: str
    worlds: Literal["grids", "tasks"] | None
    content: Content


def section(
    name: str, *, source: str = "", worlds: Literal["grids", "tasks"] | None = None
) -> Callable[[Content], Content]:
    """Return a decorator that registers a section of the report.

    It decorates a function that takes the `RunData` of a measured run and yields `Declared` content, or nothing if the
    section does not apply to the run. The page shows sections in the order of registration, built-in ones first.

    Args:
        name: its name in the registry.
        source: the paper and figures that it reproduces.
        worlds: "grids" or "tasks", for a section that only such runs have.

    Raises:
        ValueError: if the name is taken.
    """

    def add(content: Content) -> Content:
        registry.register("section", name, made_of=content)(_SectionSpec(name, source, worlds, content))
        return content

    return add


BANDS = TEXTS("tables/bands")
WIDE_LEFT_OUT = f", unless it is wider than {100 * WIDE:g} % of the scale"
"""Note on intervals in the legends of maps."""
CURVED = 5
"""Minimum number of grids behind a point of a curve over distances."""


def mean_over(noun: str) -> str:
    """Return the phrase "mean and 95 % interval over grids" for captions, with the word for other groups in place of
    "grid".
    """
    return f"mean and 95 % interval over {noun}s"


def by_agent(
    ledger: Ledger,
    measures: Sequence[str],
    group: Key,
    caption: str,
    *,
    labels: Sequence[tuple[str, str]] = (),
) -> TableSpec:
    """Return the specification of a table of measures with one line per agent.

    Args:
        ledger: all estimates of the run.
        measures: the columns; those without a value for any agent are left out.
        group: values of conditions that select the estimates, such as the kind of world, see `Ledger.groups`.
        caption: the content; the conditions and the kind of mean are appended.
        labels: agents and their labels; all agents under their names if empty.
    """
    return TableSpec(
        f"{caption}{after(group)}, {mean_over(ledger.noun)}",
        "agent",
        ledger.tables["agent"],
        [Column(title_of(name), ledger.measures.get(name, ""), {"measure": name}) for name in measures],
        [Line(label, {**group, "agent": name}) for name, label in labels or [(name, name) for name in ledger.agents]],
        ledger.noun,
    )


def agent_lines(agents: Iterable[str], key: Key) -> list[Line]:
    """Return the specification of one table line per agent; ``key`` has the tags that all their estimates have in
    common.
    """
    return [Line(agent, {**key, "agent": agent}) for agent in agents]


def over_tag(
    ledger: Ledger, measure: str, tag: str, group: Key, *, bounds: Bounds = None, counts: bool = False
) -> CurveSpec:
    """Return the specification of a figure: one curve per agent over size, density or distance to the goal.

    If a value is not a number, such as the size "large", all values are separate points at equal distances.

    Args:
        ledger: all estimates of the run.
        measure: the measure to draw.
        tag: size, density or distance.
        group: values of conditions that select the estimates, such as the kind of world.
        bounds: range of the vertical axis; from the data if None.
        counts: whether to draw the number of grids, too, and to leave out points with fewer than `CURVED`.
    """
    table = ledger.tables[f"agent, {tag}"]
    values = table.values(tag, **group)
    numbers = _as_numbers(values)
    positions = {value: float(position) for position, value in enumerate(values)} if numbers is None else numbers
    condition = describe_key(group)
    return CurveSpec(
        f"{title_of(measure)} by {tag}",
        f"{in_sentence(measure)} ({ledger.measures.get(measure, '')})",
        tag,
        table,
        [Curve(agent, {"measure": measure, "agent": agent, **group}) for agent in ledger.agents],
        places=positions,
        joined=numbers is not None,
        bounds=bounds,
        ticks=() if counts else dict(sorted((position, number(value)) for value, position in positions.items())),
        counts=counts,
        fewest_grids=CURVED if counts else 0,
        names_one=True,
        label_end=f", {condition}" if condition else "",
        caption=condition if len(ledger.groups(f"agent, {tag}")) > 1 else "",
    )


def of_two_tags(
    estimates: Estimates,
    key: Key,
    rows: tuple[str, str],
    columns: tuple[str, str],
    caption: str,
    among: Key | None = None,
) -> TableSpec:
    """Return the specification of a table of estimates with one line per value of a tag and one column per value of
    another.

    Args:
        estimates: the estimates.
        key: tags that all of them have in common.
        rows: a tag, and the heading of its column.
        columns: a tag, and the prefix of its headings.
        caption: caption of the table.
        among: tags that select the estimates whose values make the lines and columns; by default those of ``key``.
    """
    values = {tag: estimates.values(tag, **(key if among is None else among)) for tag, _ in (rows, columns)}
    return TableSpec(
        caption,
        rows[1],
        estimates,
        [Column(f"{columns[1]} {number(value)}".strip(), "", {columns[0]: value}) for value in values[columns[0]]],
        [Line(number(value), {**key, rows[0]: value}) for value in values[rows[0]]],
        noun="",
        whole=True,
    )


def after(group: Key) -> str:
    """Format conditions, such as the kind of world, as the end of a caption: " – key-door worlds"; "" if there are
    none.
    """
    condition = describe_key(group)
    return f" – {condition}" if condition else ""


def _as_numbers(values: Sequence[Tag]) -> dict[Tag, float] | None:
    """Return the values of a tag as numbers, or None if one is not a finite number."""
    try:
        numbers = {value: float(str(value)) for value in values}
    except ValueError:
        return None
    return numbers if all(map(math.isfinite, numbers.values())) else None
