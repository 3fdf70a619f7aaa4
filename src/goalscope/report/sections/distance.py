"""The decoded distance to the goal: errors beside baselines and controls, by layer and by distance.

Source: behavioural and representational evaluation, Appendix E.3, Table 4.
"""

from collections.abc import Iterator

from goalscope.probing.distance import DEVIATION, ERROR, SQUARED, summarise_distance
from goalscope.probing.heads import NUMBER_HEADS
from goalscope.report.definitions import DEFAULT_NETWORK, READ_RULE
from goalscope.report.estimates import Contrast, Estimates, Key, contrasted
from goalscope.report.sections.probing import (
    HEADS,
    NOWHERE,
    ProbeRows,
    ReadPoint,
    data_bounds,
    over_layers,
    probe_name,
    probe_section,
    probe_table,
    title_of,
)
from goalscope.report.specs import MEAN, Column, Curve, CurveSpec, Declared, FoldSpec, Line, Sentence, TableSpec
from goalscope.rows import Tag
from goalscope.stats import Grouped, estimate_rows

_TAGS = ("site", "layer", "head", "control")
_MANHATTAN = {"none": "decoded map", "true map": "true map"}
_RIVALS = {
    "untrained": f"the same on the {DEFAULT_NETWORK}",
    "shuffled": "the same on shuffled labels",
    "mean": "the mean of the training grids",
    "true map": "the line on the Manhattan distance, true map",
    "decoded map": "the line on the Manhattan distance, decoded map",
}
_FEWEST = 5  # grids behind a point of a curve over distances
_TEXT = (
    "Length of the optimal path from the current state, read from the activations of one moment. The Manhattan "
    "distance between agent and goal is most of it: a probe says something of paths where its error is smaller than "
    "that of a line on this distance. R² is one less the mean squared error over the mean squared deviation, each "
    "grid weighing alike; it has no differences by grid. Mean and lines are fitted on the training grids, every grid "
    "weighing alike, too."
)
_LEGEND = (
    "Bands are 95 % intervals over grids; a lower panel counts the grids behind each point. Distances that fewer than "
    f"{_FEWEST} grids reach are not drawn; an axis ends at twice its greatest value."
)
_OPENINGS = {
    "higher": "larger error than",
    "lower": "smaller error than",
    "none": "no difference was shown to",
    "unknown": "it cannot be said beside",
}


@probe_section(
    "distance",
    source="behavioural and representational evaluation, Appendix E.3, Table 4",
    measures=lambda measure: measure in (ERROR, SQUARED, DEVIATION),
)
def declared(rows: ProbeRows) -> Iterator[Declared]:
    """Errors of the decoded distance beside baselines and controls."""
    found = Estimates(rows.estimated(summarise_distance, _TAGS))
    points, near = rows.points(), rows.near()
    less = Estimates(one for point in near for one in _differences(rows.where(measure=ERROR, distance=None), point))
    by_distance = rows.estimated(summarise_distance, (*_TAGS, "distance"))
    compared = [
        (f"{point}: {probe_name(head)}", {**point.key, "head": head}) for point in near for head in NUMBER_HEADS
    ]
    figures = [_by_distance(by_distance, point) for point in near]
    drawn = [{name: curve.key[name] for name in _TAGS} for figure in figures for curve in figure.curves]
    yield Declared(
        anchor="distance-inside",
        title=rows.title("Decoded distance to the goal"),
        paragraphs=(_TEXT,),
        rule=f"In words: differences in absolute error, steps. {READ_RULE}",
        sentences=[
            Sentence(
                title=title,
                estimates=less,
                parts=[(label, {**key, "measure": ERROR, "less": name}) for name, label in _RIVALS.items()],
                openings=_OPENINGS,
            )
            for title, key in compared
        ],
        tables=(
            _table("Distance (Table 4)", found, near),
            TableSpec(
                caption="Absolute error less that of its baselines and controls, paired by grid; below 0 the probe is "
                f"better: {MEAN}",
                first="probe",
                estimates=less,
                columns=[
                    Column(f"less {label}", "steps", {"measure": ERROR, "less": name})
                    for name, label in _RIVALS.items()
                ],
                lines=[Line(title, key) for title, key in compared],
            ),
        ),
        figures=(*_by_layer(found, points), *figures),
        legend=_LEGEND,
        folds=[FoldSpec(title="All layers", tables=[_table("All layers", found, points)])] if points != near else [],
        undefined=[(str(one.key["measure"]), title_of(one.key, _name), one.estimate) for one in found.listed],
        counted=(
            *found.listed,
            *less.listed,
            *(one for one in by_distance if {name: one.key[name] for name in _TAGS} in drawn),
        ),
    )


def _name(head: Tag, control: Tag) -> str:
    if head == "manhattan":
        return f"{HEADS['manhattan']}, {_MANHATTAN.get(str(control), control)}"
    return probe_name(head, control)


def _table(caption: str, found: Estimates, points: list[ReadPoint]) -> TableSpec:
    columns = [
        Column("absolute error", "steps", {"measure": ERROR}),
        Column("R²", "share of the variance", {"measure": "R^2"}),
    ]
    kinds = {head: at for at, head in enumerate(NUMBER_HEADS)}
    return probe_table(
        caption,
        found,
        found.keys(*_TAGS),
        columns,
        points,
        name=_name,
        heads=lambda head: kinds.get(head, len(kinds)),
    )


def _differences(whole: ProbeRows, point: ReadPoint) -> list[Grouped]:
    def less(head: str, name: str, control: Key) -> Contrast:
        own = {**point.key, "head": head, "control": "none"}
        return Contrast(name=name, own=own, control=control, by=("site", "layer"))

    contrasts = [
        contrast
        for head in NUMBER_HEADS
        for contrast in (
            less(head, "untrained", {**point.key, "head": head, "control": "untrained"}),
            less(head, "shuffled", {**point.key, "head": head, "control": "shuffled"}),
            less(head, "mean", {**NOWHERE, "head": "mean"}),
            less(head, "true map", {**NOWHERE, "head": "manhattan", "control": "true map"}),
            less(head, "decoded map", {**point.key, "head": "manhattan", "control": "none"}),
        )
    ]
    return contrasted(whole, contrasts, estimate_rows, ("site", "layer", "head"))


def _by_layer(found: Estimates, points: list[ReadPoint]) -> list[CurveSpec]:
    def curve(title: str, head: str, control: str, style: int | None = None) -> Curve:
        return Curve(title, {"measure": ERROR, "head": head, "control": control}, style=style)

    probes = [
        curve("MLP", "mlp", "none"),
        curve("linear", "linear", "none"),
        curve(f"MLP, {DEFAULT_NETWORK}", "mlp", "untrained"),
    ]
    return over_layers(
        points,
        probes,
        flat=[curve("Manhattan, true map", "manhattan", "true map"), curve("mean", "mean", "none")],
        estimates=found,
        title="Error of the decoded distance by layer",
        y_label="absolute error (steps)",
        bounds=data_bounds,
    )


def _by_distance(listed: list[Grouped], point: ReadPoint) -> CurveSpec:
    curves = (
        ("linear", point.key, "linear", "none"),
        ("MLP", point.key, "mlp", "none"),
        (f"MLP, {DEFAULT_NETWORK}", point.key, "mlp", "untrained"),
        ("Manhattan on the decoded map", point.key, "manhattan", "none"),
        ("Manhattan on the true map", NOWHERE, "manhattan", "true map"),
        ("mean", NOWHERE, "mean", "none"),
    )
    return CurveSpec(
        title=f"Error by distance, {point}",
        y_label="absolute error (steps)",
        axis="distance",
        estimates=Estimates(one for one in listed if one.estimate.clusters >= _FEWEST),
        curves=[
            Curve(title, {"measure": ERROR, **at, "head": head, "control": control})
            for title, at, head, control in curves
        ],
        bounds=data_bounds,
        ticks=(),
        counts=True,
    )
