"""Declarations of a report's sections: tables, curves, maps and sentences as data, which `goalscope.report.page` draws.

A section is a function of the run, registered under a name with `section`; it yields declarations in page order.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from goalscope._ground import registry
from goalscope.report.blocks import number
from goalscope.report.charts import WIDE, Series
from goalscope.report.definitions import in_sentence, title_of
from goalscope.report.figures import Drawn, embed
from goalscope.report.ledger import Estimates, Key, Ledger, RunData, describe_key
from goalscope.report.texts import TEXTS
from goalscope.report.verdicts import Rivals, Word
from goalscope.stats import Estimate, Grouped
from goalscope.stats.rows import Tag

MEAN = "mean and 95 % interval over grids"
"""Phrase for the captions of tables that only grids have; for other worlds see `mean_over`."""
AXES = {
    "size": "grid size n (cells a side)",
    "density": "wall density d (share)",
    "distance": "distance to the goal (steps)",
    "layer": "layer",
}
"""Tag -> label of its axis."""
SHARE = (0.0, 1.0)
"""Range of an axis for shares."""
Bounds = tuple[float, float] | Callable[[Sequence[Series]], tuple[float, float]] | None
"""Range of a vertical axis, or a function of the drawn series; None to derive it from the data."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its heading, its unit, and the tags that all estimates in it have in common (``key``)."""

    title: str
    unit: str
    key: Key


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table: its label, and the tags that all estimates in it have in common (``key``)."""

    title: str
    key: Key


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table of estimates. The key of a line and the key of a column together select the estimate of a cell; empty
    lines and columns are left out.
    """

    caption: str
    first: str  # heading of the labels
    estimates: Estimates
    columns: Sequence[Column]
    lines: Sequence[Line]
    noun: str = "grid"  # unit of the intervals; the last column counts it, "" for no such column
    whole: bool = False  # keep empty lines and columns unless all are empty


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a figure: its name in the legend, and the tags that all its estimates have in common (``key``)."""

    title: str
    key: Key
    _: KW_ONLY
    style: int | None = None  # index of colour, marker and dash; the curve's index where None
    fewest: int = 1  # minimum number of points
    flat: bool = False  # draw its single estimate at every tick, only together with other curves
    estimates: Estimates | None = None  # its estimates; those of the figure where None


@dataclass(frozen=True, slots=True)
class CurveSpec:
    """A figure of curves over a tag. Curves without values are left out, and so are figures without curves."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSpec:
    """A figure of estimates by two tags, as coloured cells; left out if it has none."""

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


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: its drawing, a sentence that describes it if the drawing has none, and its caption.

    The SVG is made by this package; it is the only text that a page does not escape.
    """

    drawn: Drawn
    label: str = ""
    caption: str = ""
    name: str = ""  # name on pages and in commands; set by the layout

    @property
    def svg(self) -> str:
        """SVG text, with its sentence for screen readers."""
        return embed(self.drawn.svg, self.label) if self.label else self.drawn.svg


@dataclass(frozen=True, slots=True)
class Sentence:
    """Specification of a sentence about one or several differences."""

    title: str  # name of the differences
    estimates: Estimates
    parts: Sequence[tuple[str, Key]]  # name and key of each difference
    openings: Mapping[str, str] = field(default_factory=dict)  # arguments of `goalscope.report.definitions.in_words`


@dataclass(frozen=True, slots=True)
class RivalsSentence:
    """Specification of a sentence on a probe, which depends on its differences from all rivals; see
    `goalscope.report.verdicts`.
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
        """Name of each part, and its difference from each rival."""
        return [
            (part, {rival: self.estimates.get(key, less=name) for rival, name in self.rivals.items()})
            for part, key in self.parts
        ]


AnyTable = Any
"""A `TableSpec`, or a finished `Table`."""
AnyFigure = Any
"""A `CurveSpec`, a `MapSpec`, or a finished `Figure`."""


@dataclass(frozen=True, slots=True)
class FoldSpec:
    """Tables and code that are folded away on the page until the reader opens them; left out if there are none."""

    title: str
    tables: Sequence[AnyTable] = ()
    code: Sequence[str] = ()
    paragraphs: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A section of the page. Its content is either finished or given as specifications, which are then filled with
    estimates.
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
    """Return a decorator that registers a function of the run as a section of the report.

    The page shows sections in the order of registration, built-in ones first.

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
    """Return the phrase for means over worlds called ``noun``."""
    return f"mean and 95 % interval over {noun}s"


def by_agent(
    ledger: Ledger,
    measures: Sequence[str],
    group: Key,
    caption: str,
    *,
    first: str = "agent",
    labels: Sequence[tuple[str, str]] = (),
) -> TableSpec:
    """Return a table of measures with one line per agent.

    Args:
        ledger: the estimates.
        measures: the columns; those without a value for any agent are left out.
        group: the conditions of the table, see `Ledger.groups`.
        caption: the content; the conditions and the kind of mean are appended.
        first: heading of the lines.
        labels: agents and their labels; all agents under their names if empty.
    """
    return TableSpec(
        f"{caption}{after(group)}, {mean_over(ledger.noun)}",
        first,
        ledger.tables["agent"],
        [Column(title_of(name), ledger.measures.get(name, ""), {"measure": name}) for name in measures],
        [Line(label, {**group, "agent": name}) for name, label in labels or [(name, name) for name in ledger.agents]],
        ledger.noun,
    )


def agent_lines(agents: Iterable[str], key: Key) -> list[Line]:
    """Return a table line for each agent; ``key`` contains the tags that all lines have in common."""
    return [Line(agent, {**key, "agent": agent}) for agent in agents]


def over_tag(
    ledger: Ledger, measure: str, tag: str, group: Key, *, bounds: Bounds = None, counts: bool = False
) -> CurveSpec:
    """Return the curves of all agents over size, density or distance.

    If a value is not a number, such as the size "large", all values are separate points at equal distances.

    Args:
        ledger: the estimates.
        measure: the measure to draw.
        tag: size, density or distance.
        group: the conditions of the figure.
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
    """Return the specification of a table of estimates by two tags.

    Args:
        estimates: the estimates.
        key: tags that all of them have in common.
        rows: a tag, and the heading of its column.
        columns: a tag, and the prefix of its headings.
        caption: caption of the table.
        among: values of the tags to include; by default all.
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
    """Format conditions as the end of a caption, or ""."""
    condition = describe_key(group)
    return f" – {condition}" if condition else ""


def _as_numbers(values: Sequence[Tag]) -> dict[Tag, float] | None:
    """Return the values of a tag as numbers, or None if one is not a finite number."""
    try:
        numbers = {value: float(str(value)) for value in values}
    except ValueError:
        return None
    return numbers if all(map(math.isfinite, numbers.values())) else None
