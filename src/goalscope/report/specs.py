"""What a section of the report declares: tables, curves, maps and sentences as data, drawn by the engine.

A section is a function of the run, registered under a name with `section`; it yields what stands on the page.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from goalscope import registry
from goalscope.report.blocks import Figure, Fold, Plain, Table
from goalscope.report.charts import Series
from goalscope.report.estimates import Estimates, Key
from goalscope.report.run_data import RunData
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A table of estimates, each found by the keys of its line and column.

    Attributes:
        caption: what the table shows.
        first: heading of the labels.
        estimates: where the estimates are found.
        columns, lines: columns and lines; those without any estimate are left out.
        noun: what intervals run over; the last column counts it, "" for no such column.
        whole: keep columns and lines without any estimate where there is one at all.
    """

    caption: str
    first: str
    estimates: Estimates
    columns: Sequence[Column]
    lines: Sequence[Line]
    noun: str = "grid"
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a figure.

    Attributes:
        title: what the legend calls it.
        key: what its estimates have in common.
        style: index of colour, marker and dash; its place among the curves where None.
        fewest: least number of points.
        flat: its one estimate is drawn at every tick, beside others alone.
        estimates: where the estimates are found, where not with those of the figure.
    """

    title: str
    key: Key
    _: KW_ONLY
    style: int | None = None
    fewest: int = 1
    flat: bool = False
    estimates: Estimates | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSpec:
    """A figure of curves over a tag.

    Attributes:
        title: heading of the figure.
        y_label, x_label: labels of the axes with their units; that of the tag in `AXES` where "".
        axis: the tag.
        estimates: where the estimates are found.
        curves: the lines; those without a value are left out, and a figure without lines.
        places: value of the tag -> where it stands on the axis; numbers stand at their own where None.
        joined: False for values without an order, which stand side by side.
        bounds: see `Bounds`.
        ticks: marks on the horizontal axis, with their names where a mapping; at all points where None, chosen by the
            library where empty.
        counts: draw the number of grids, too.
        most_bands: more lines than these are drawn without their intervals, to be legible.
        fewest_grids: points with fewer grids are left out.
        label_end: what readers who hear the page are told beside the title.
        names_one: the title names the one curve that is drawn of several.
        caption: text below the figure.
        more: further lines, drawn where there is one at least of the others.
    """

    title: str
    y_label: str
    axis: str
    x_label: str = ""
    estimates: Estimates
    curves: Sequence[Curve]
    places: Mapping[Any, float] | None = None
    joined: bool = True
    bounds: Bounds = SHARE
    ticks: Sequence[float] | Mapping[float, str] | None = None
    counts: bool = False
    most_bands: int | None = None
    fewest_grids: int = 0
    label_end: str = ""
    names_one: bool = False
    caption: str = ""
    more: Sequence[Series] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSpec:
    """A figure of estimates by two tags, as coloured cells; left out where it has none.

    Attributes:
        title: heading of the figure.
        label: what the figure shows in a sentence, the title where "".
        estimates: where the estimates are found.
        key: what they have in common.
        among: what the estimates have in common whose values of the tags are shown, `key` where None.
        rows, columns: the tags.
        row_label, column_label: what the tags are called.
        bounds: ends of the colours; from 0 to the greatest value where None.
    """

    title: str
    label: str = ""
    estimates: Estimates
    key: Key
    among: Key | None = None
    rows: str
    columns: str
    row_label: str
    column_label: str
    bounds: tuple[float, float] | None = SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure that is neither curves nor a map: its SVG text, what it shows in a sentence, and its caption."""

    svg: str
    label: str
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """What some differences say.

    Attributes:
        title: what they are the differences of.
        estimates: where they are found.
        parts: of what, and key of each difference.
        openings: arguments of `goalscope.report.definitions.in_words`.
    """

    title: str
    estimates: Estimates
    parts: Sequence[tuple[str, Key]]
    openings: Mapping[str, str] = field(default_factory=dict)


AnyTable = TableSpec | Table | Plain
AnyFigure = CurveSpec | MapSpec | Picture | Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSpec:
    """Tables that a reader opens on demand, left out where there are none."""

    title: str
    tables: Sequence[AnyTable]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A section as it is declared, of finished parts where they are neither a table of estimates nor curves.

    Attributes:
        anchor: short text for links to it; a number is added where it is taken.
        title: heading of the section.
        paragraphs: what a reader must know first.
        facts: names and texts.
        sentences: differences in words; those without any difference are left out.
        rule: how sentences follow from intervals, said where there are sentences.
        silence: what is said where there are none.
        tables, code, figures, folds: what is shown.
        layout: how figures are set: "pairs", "maps" or "pictures".
        legend: how to read the figures, said where there are figures.
        closing: what is said in its place where there are none.
        undefined: measure, where, and estimate of what is shown.
        why: returns for a measure why it has no value where no grid has one, "" where this is not known.
        counted: the estimates behind all this, for the table of counts and methods.
        figures_only: the section is left out where nothing is drawn.
    """

    anchor: str
    title: str
    paragraphs: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    sentences: Sequence[Sentence] = ()
    rule: str = ""
    silence: str = ""
    tables: Sequence[AnyTable] = ()
    code: Sequence[str] = ()
    figures: Sequence[AnyFigure] = ()
    layout: str = "pairs"
    legend: str = ""
    closing: str = ""
    folds: Sequence[FoldSpec | Fold] = ()
    undefined: Sequence[tuple[str, str, Estimate]] = ()
    why: Callable[[str], str] = lambda measure: ""
    counted: Sequence[Grouped] = ()
    figures_only: bool = False


Content = Callable[[RunData], Iterable[Declared]]
"""What a section says of a run, nothing where it does not concern it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionSpec:
    """A registered section.

    Attributes:
        name: its name in the registry.
        source: paper and figures that it shows the same as, "" for none.
        worlds: the runs that it may concern, None for all.
        content: see `Content`.
    """

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
        registry.register("section", name, made_of=content)(
            SectionSpec(name=name, source=source, worlds=worlds, content=content)
        )
        return content

    return add
