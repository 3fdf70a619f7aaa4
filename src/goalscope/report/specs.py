"""What a section of the report declares: tables, curves, maps and sentences as data, drawn by the engine.

A section is a function of the run, registered under a name with `section`; it yields what stands on the page.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from goalscope import registry
from goalscope.report.blocks import number
from goalscope.report.charts import WIDE, Series
from goalscope.report.definitions import in_sentence, title_of
from goalscope.report.figures import Drawable, embed
from goalscope.report.ledger import Estimates, Key, Ledger, RunData, describe_key
from goalscope.report.verdicts import Rivals, Word
from goalscope.rows import Tag
from goalscope.stats import Estimate, Grouped

MEAN = "mean and 95 % interval over grids"
AXES = {
    "size": "grid size n (cells a side)",
    "density": "wall density d (share)",
    "distance": "distance to the goal (steps)",
    "layer": "layer",
}
"""Tag -> label of its axis."""
SHARE = (0.0, 1.0)
"""Range of an axis of shares."""
Bounds = tuple[float, float] | Callable[[Sequence[Series]], tuple[float, float]] | None
"""Range of a vertical axis, or a function of what is drawn; from the data where None."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: heading, unit, and what its estimates have in common."""

    title: str
    unit: str
    key: Key


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table: label, and what its estimates have in common."""

    title: str
    key: Key


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table of estimates, each found by the keys of its line and column; empty lines and columns are left out."""

    caption: str
    first: str  # heading of the labels
    estimates: Estimates
    columns: Sequence[Column]
    lines: Sequence[Line]
    noun: str = "grid"  # what intervals run over; the last column counts it, "" for no such column
    whole: bool = False  # keep empty lines and columns where there is an estimate at all


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a figure: what the legend calls it, and what its estimates have in common."""

    title: str
    key: Key
    _: KW_ONLY
    style: int | None = None  # index of colour, marker and dash; its place among the curves where None
    fewest: int = 1  # least number of points
    flat: bool = False  # its one estimate is drawn at every tick, beside others alone
    estimates: Estimates | None = None  # where they are found, where not with those of the figure


@dataclass(frozen=True, slots=True)
class CurveSpec:
    """A figure of curves over a tag; curves without a value are left out, and a figure without curves."""

    title: str
    y_label: str  # label of the vertical axis with its unit
    axis: str  # the tag
    estimates: Estimates
    curves: Sequence[Curve]
    _: KW_ONLY
    x_label: str = ""  # label of the horizontal axis with its unit; that of the tag in `AXES` where ""
    places: Mapping[Any, float] | None = None  # value -> where it stands on the axis; numbers at their own where None
    joined: bool = True  # False for values without an order, which stand side by side
    bounds: Bounds = SHARE
    # Marks on the horizontal axis, with their names where a mapping; at all points where None, chosen where empty.
    ticks: Sequence[float] | Mapping[float, str] | None = None
    counts: bool = False  # draw the number of grids, too
    most_bands: int | None = None  # more lines than these are drawn without their intervals, to be legible
    fewest_grids: int = 0  # points with fewer grids are left out
    label_end: str = ""  # what readers who hear the page are told beside the title
    names_one: bool = False  # the title names the one curve that is drawn of several
    caption: str = ""  # text below the figure


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSpec:
    """A figure of estimates by two tags, as coloured cells; left out where it has none."""

    title: str
    label: str = ""  # what the figure shows in a sentence, the title where ""
    estimates: Estimates
    key: Key  # what they have in common
    among: Key | None = None  # the same of those whose values of the tags are shown, `key` where None
    rows: str  # the tags, and what they are called
    columns: str
    row_label: str
    column_label: str
    bounds: tuple[float, float] | None = SHARE  # ends of the colours; from 0 to the greatest value where None


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: what is drawn, what it shows in a sentence where the drawing does not say it, and its caption.

    The SVG is made by this package: the only text that a page does not escape.
    """

    drawn: Drawable
    label: str = ""
    caption: str = ""
    name: str = ""  # by which commands and pages know it; the layout gives it

    @property
    def svg(self) -> str:
        """SVG text, which shares no id with that of another figure once it has a name."""
        return embed(self.drawn.svg, self.name, self.label) if self.label and self.name else self.drawn.svg


@dataclass(frozen=True, slots=True)
class Sentence:
    """What some differences say."""

    title: str  # what they are the differences of
    estimates: Estimates
    parts: Sequence[tuple[str, Key]]  # of what, and key of each difference
    openings: Mapping[str, str] = field(default_factory=dict)  # arguments of `goalscope.report.definitions.in_words`


@dataclass(frozen=True, slots=True)
class Claim:
    """What differences to all rivals together allow to say, see `goalscope.report.verdicts`."""

    title: str  # the probe, and where it reads
    estimates: Estimates
    parts: Sequence[tuple[str, Key]]  # of what, and key of its differences but "less"
    rivals: Mapping[str, str]  # what each rival is called -> its name in "less"
    word: Word
    needed: Sequence[str] = ()  # rivals without which nothing is said
    higher: bool = True  # whether a higher score is a better one

    @property
    def differences(self) -> list[tuple[str, Rivals]]:
        """Of what it is said, and the difference to each rival there."""
        return [
            (what, {rival: self.estimates.get(key, less=name) for rival, name in self.rivals.items()})
            for what, key in self.parts
        ]


AnyTable = Any
"""A `TableSpec`, or a finished `Table`."""
AnyFigure = Any
"""A `CurveSpec`, a `MapSpec`, or a finished `Figure`."""


@dataclass(frozen=True, slots=True)
class FoldSpec:
    """Tables and code that a reader opens on demand, left out where there are none."""

    title: str
    tables: Sequence[AnyTable] = ()
    code: Sequence[str] = ()
    paragraphs: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A section of the page: what stands in it, drawn or to be drawn."""

    anchor: str  # short text for links to it; a number is added where it is taken
    title: str
    paragraphs: Sequence[str] = ()  # what a reader must know first
    facts: Sequence[tuple[str, str]] = ()  # names and texts
    sentences: Sequence[Sentence | Claim] = ()  # differences in words; those without any difference are left out
    rule: str = ""  # how sentences follow from intervals, said where there are sentences
    silence: str = ""  # what is said where there are none
    tables: Sequence[AnyTable] = ()
    code: Sequence[str] = ()
    figures: Sequence[AnyFigure] = ()
    layout: str = "pairs"  # how figures are set: "pairs", "maps" or "pictures"
    legend: str = ""  # how to read the figures, said where there are figures
    closing: str = ""  # what is said in its place where there are none
    folds: Sequence[FoldSpec] = ()
    undefined: Sequence[tuple[str, str, Estimate]] = ()  # measure, where, and estimate of what is shown
    why: Callable[[str], str] = lambda measure: ""  # why a measure has no value where no grid has one, "" for unknown
    counted: Iterable[Grouped] = ()  # the estimates behind all this, for the table of counts and methods
    figures_only: bool = False  # left out where nothing is drawn


Content = Callable[[RunData], Iterable[Declared]]
"""What a section says of a run, nothing where it does not concern it."""


@dataclass(frozen=True, slots=True)
class _SectionSpec:
    """A registered section; ``worlds`` are the runs that it may concern, None for all."""

    name: str
    source: str
    worlds: Literal["grids", "tasks"] | None
    content: Content


def section(
    name: str, *, source: str = "", worlds: Literal["grids", "tasks"] | None = None
) -> Callable[[Content], Content]:
    """Return a decorator that registers a function of the run as a section of the report.

    Sections stand on the page in the order of their registration, the built-in ones first.

    Args:
        name: its name in the registry.
        source: paper and figures that it shows the same as.
        worlds: "grids" or "tasks" where it concerns runs in such worlds alone.

    Raises:
        ValueError: a name that is taken.
    """

    def add(content: Content) -> Content:
        registry.register("section", name, made_of=content)(_SectionSpec(name, source, worlds, content))
        return content

    return add


BANDS = "Bands are 95 % intervals over grids."
WIDE_LEFT_OUT = f", unless it is wider than {100 * WIDE:g} % of the scale"
"""What legends of maps say of their intervals."""
CURVED = 5
"""Least number of grids behind a point of a curve over distances."""


def by_agent(
    ledger: Ledger,
    measures: Sequence[str],
    group: Key,
    caption: str,
    *,
    first: str = "agent",
    labels: Sequence[tuple[str, str]] = (),
) -> TableSpec:
    """Return the table of measures with a line for each agent.

    Args:
        ledger: the estimates.
        measures: the columns; those that no agent has a value for are left out.
        group: the conditions that the table is about, see `Ledger.groups`.
        caption: what it shows; the conditions and how it was averaged are added.
        first: heading of the lines.
        labels: agents and what they are called, all under their names where empty.
    """
    return TableSpec(
        f"{caption}{after(group)}, {MEAN}",
        first,
        ledger.tables["agent"],
        [Column(title_of(name), ledger.measures.get(name, ""), {"measure": name}) for name in measures],
        [Line(label, {**group, "agent": agent}) for agent, label in labels or [(one, one) for one in ledger.agents]],
    )


def over_tag(
    ledger: Ledger, measure: str, tag: str, group: Key, *, bounds: Bounds = None, counts: bool = False
) -> CurveSpec:
    """Return the curves of all agents over size, density or distance.

    Where a value is text that is no number, such as the size "large", all stand side by side as points.

    Args:
        ledger: the estimates.
        measure: what is drawn.
        tag: size, density or distance.
        group: the conditions that the figure is about.
        bounds: range of the vertical axis; from the data where None.
        counts: draw the number of grids too, and leave out points with less than `CURVED`.
    """
    table = ledger.tables[f"agent, {tag}"]
    values = table.values(tag, **group)
    numbers = _numbers(values)
    places = {value: float(at) for at, value in enumerate(values)} if numbers is None else numbers
    where = describe_key(group)
    return CurveSpec(
        f"{title_of(measure)} by {tag}",
        f"{in_sentence(measure)} ({ledger.measures.get(measure, '')})",
        tag,
        table,
        [Curve(agent, {"measure": measure, "agent": agent, **group}) for agent in ledger.agents],
        places=places,
        joined=numbers is not None,
        bounds=bounds,
        ticks=() if counts else dict(sorted((at, number(value)) for value, at in places.items())),
        counts=counts,
        fewest_grids=CURVED if counts else 0,
        names_one=True,
        label_end=f", {where}" if where else "",
        caption=where if len(ledger.groups(f"agent, {tag}")) > 1 else "",
    )


def of_two_tags(
    estimates: Estimates,
    key: Key,
    rows: tuple[str, str],
    columns: tuple[str, str],
    caption: str,
    among: Key | None = None,
) -> TableSpec:
    """Return estimates by two tags as a table; a tag comes with a heading, or with what stands before its values."""
    values = {tag: estimates.values(tag, **(key if among is None else among)) for tag, _ in (rows, columns)}
    return TableSpec(
        caption,
        rows[1],
        estimates,
        [Column(f"{columns[1]} {number(at)}".strip(), "", {columns[0]: at}) for at in values[columns[0]]],
        [Line(number(at), {**key, rows[0]: at}) for at in values[rows[0]]],
        noun="",
        whole=True,
    )


def after(group: Key) -> str:
    """Write conditions as a caption ends with them, "" for none."""
    where = describe_key(group)
    return f" – {where}" if where else ""


def _numbers(values: Sequence[Tag]) -> dict[Tag, float] | None:
    """Return where the values of a tag stand on an axis of numbers, None where one of them is no finite number."""
    try:
        places = {value: float(str(value)) for value in values}
    except ValueError:
        return None
    return places if all(map(math.isfinite, places.values())) else None
