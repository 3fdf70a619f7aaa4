"""The decoded distance to the goal: its errors beside those of baselines and controls, by layer and by distance.

Source: behavioural and representational evaluation, Appendix E.3, Table 4.
"""

from collections.abc import Iterable, Iterator

from goalscope.inside.probing.distances import DEVIATION, ERROR, SQUARED, summarise_distance
from goalscope.inside.probing.heads import NUMBER_HEADS
from goalscope.report.ledger import Estimates, Key
from goalscope.report.sections.probing import (
    HEADS,
    NOWHERE,
    RANDOM_NETWORKS,
    TAGS,
    Contrast,
    ProbeRows,
    ReadPoint,
    claims,
    contrasted,
    data_bounds,
    over_layers,
    probe_name,
    probe_section,
    probe_table,
    undefined_of,
)
from goalscope.report.specs import MEAN, Column, Curve, CurveSpec, Declared, FoldSpec, Line, Sentence, TableSpec
from goalscope.report.texts import TEXTS
from goalscope.report.verdicts import NETWORKS, RULES
from goalscope.stats import Grouped, estimate_rows
from goalscope.stats.rows import Tag

_MANHATTAN = {"none": "decoded map", "true map": "true map"}
_RIVALS = {
    **{kind: f"the same on {name}" for kind, name in NETWORKS.items()},
    "shuffled": "the same on shuffled labels",
    "mean": "the mean of the training grids",
    "true map": "the line on the Manhattan distance, true map",
    "decoded map": "the line on the Manhattan distance, decoded map",
}
_FLOORS = {"mean": "mean"}
_OTHERS = {name: label for name, label in _RIVALS.items() if name not in (*NETWORKS, *_FLOORS)}
_COLUMNS = (
    Column("absolute error", "steps", {"measure": ERROR}),
    Column("R²", "share of the variance", {"measure": "R^2"}),
)
_RANKS = {head: at for at, head in enumerate(NUMBER_HEADS)}
_Y_LABEL = "absolute error (steps)"
_MIN_GRIDS = 5  # grids behind a point of a curve over distances
_TEXT = TEXTS("distance/how")
_LEGEND = TEXTS("distance/legend", fewest=_MIN_GRIDS)
_OPENINGS = {
    "higher": "larger error than",
    "lower": "smaller error than",
    "none": "no difference was shown from",
    "unknown": "no interval for the difference from",
}


@probe_section(
    "distance",
    source="behavioural and representational evaluation, Appendix E.3, Table 4",
    measures=lambda measure: measure in (ERROR, SQUARED, DEVIATION),
)
def declared(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the section with the errors of the decoded distance beside those of baselines and controls."""
    estimates = rows.estimated(summarise_distance, TAGS)
    points, near = rows.points(), rows.near()
    differences = Estimates(
        grouped for point in near for grouped in _differences(rows.where(measure=ERROR, distance=None), point)
    )
    by_distance = rows.estimated(summarise_distance, (*TAGS, "distance"))
    probe_lines = [
        Line(f"{point}: {probe_name(head)}", {**point.key, "head": head}) for point in near for head in NUMBER_HEADS
    ]
    error_keys = {line.title: {**line.key, "measure": ERROR} for line in probe_lines}
    figures = [_by_distance(by_distance, point) for point in near]
    drawn_keys = [{name: curve.key[name] for name in TAGS} for figure in figures for curve in figure.curves]
    yield Declared(
        anchor="distance-inside",
        title=rows.title("Decoded distance to the goal"),
        explained=(_TEXT,),
        rule=f"{TEXTS('distance/rule')} {RULES}",
        sentences=[
            *claims(
                differences,
                [(title, [("the distance", key)]) for title, key in error_keys.items()],
                floors=_FLOORS,
                higher=False,
            ),
            *(
                Sentence(
                    title, differences, [(label, {**key, "less": name}) for name, label in _OTHERS.items()], _OPENINGS
                )
                for title, key in error_keys.items()
            ),
        ],
        tables=(
            _table("Distance (Table 4)", estimates, near),
            TableSpec(
                "Absolute error minus that of its baselines and controls, paired by grid; below 0 the probe is better: "
                f"{MEAN}",
                "probe",
                differences,
                [
                    Column(f"minus {label}", "steps", {"measure": ERROR, "less": name})
                    for name, label in _RIVALS.items()
                ],
                probe_lines,
            ),
        ),
        figures=(*_over_layers(estimates, points), *figures),
        legend=_LEGEND,
        folds=[FoldSpec("All layers", [_table("All layers", estimates, points)])] if points != near else [],
        undefined=undefined_of(estimates, _name),
        counted=(
            *estimates,
            *differences,
            *(grouped for grouped in by_distance if {name: grouped.key[name] for name in TAGS} in drawn_keys),
        ),
    )


def _name(head: Tag, control: Tag) -> str:
    if head == "manhattan":
        return f"{HEADS['manhattan']}, {_MANHATTAN.get(str(control), control)}"
    return probe_name(head, control)


def _table(caption: str, estimates: Estimates, points: list[ReadPoint]) -> TableSpec:
    return probe_table(
        caption,
        estimates,
        estimates.keys(*TAGS),
        _COLUMNS,
        points,
        name=_name,
        heads=lambda head: _RANKS.get(head, len(_RANKS)),
    )


def _differences(rows: ProbeRows, point: ReadPoint) -> Estimates:
    """Return the differences in error between each head and its baselines and controls at one read point."""
    rivals = {
        **RANDOM_NETWORKS,
        "shuffled": {"control": "shuffled"},
        "mean": {**NOWHERE, "head": "mean"},
        "true map": {**NOWHERE, "head": "manhattan", "control": "true map"},
        "decoded map": {"head": "manhattan"},
    }
    contrasts = [Contrast({**point.key, "head": head, "control": "none"}, rivals) for head in NUMBER_HEADS]
    return contrasted(rows, contrasts, estimate_rows, ("site", "layer", "head"))


def _curve(title: str, head: str, control: str = "none", point_key: Key | None = None) -> Curve:
    return Curve(title, {"measure": ERROR, **(point_key or {}), "head": head, "control": control})


def _over_layers(estimates: Estimates, points: list[ReadPoint]) -> list[CurveSpec]:
    curves = [_curve("MLP", "mlp"), _curve("linear", "linear"), _curve("MLP, permuted weights", "mlp", "permuted")]
    flat = [_curve("Manhattan, true map", "manhattan", "true map"), _curve("mean", "mean")]
    title = "Error of the decoded distance by layer"
    return over_layers(points, title, _Y_LABEL, estimates, curves, flat=flat, bounds=data_bounds)


def _by_distance(estimates: Iterable[Grouped], point: ReadPoint) -> CurveSpec:
    curves = [
        _curve("linear", "linear", point_key=point.key),
        _curve("MLP", "mlp", point_key=point.key),
        _curve("MLP, permuted weights", "mlp", "permuted", point.key),
        _curve("Manhattan on the decoded map", "manhattan", point_key=point.key),
        _curve("Manhattan on the true map", "manhattan", "true map", NOWHERE),
        _curve("mean", "mean", point_key=NOWHERE),
    ]
    with_enough_grids = Estimates(grouped for grouped in estimates if grouped.estimate.clusters >= _MIN_GRIDS)
    return CurveSpec(
        f"Error by distance, {point}",
        _Y_LABEL,
        "distance",
        with_enough_grids,
        curves,
        bounds=data_bounds,
        ticks=(),
        counts=True,
    )
