"""Curves of the cognitive map: by layer before and after the reasoning, by size and density, by training grids.

Source: behavioural and representational evaluation, section 5.1 (36,000 grids) and Fig. 6-8, 15 and 16.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from goalscope._ground.words import short
from goalscope.inside.probing.curves import CURVE_MEASURES, MARGIN, TRAINED_ON, CurveEnd, curve_ends
from goalscope.inside.probing.labels import CLASSES
from goalscope.inside.probing.scores import AREA, summarise
from goalscope.report.ledger import Estimates, Key
from goalscope.report.sections.probing import (
    NOWHERE,
    READINGS,
    ProbeRows,
    ReadPoint,
    data_bounds,
    in_order,
    layers_and_sites,
    probe_name,
    probe_section,
    share_bounds,
)
from goalscope.report.specs import BANDS, MEAN, Column, Curve, CurveSpec, Declared, Line, TableSpec
from goalscope.report.verdicts import NETWORKS
from goalscope.stats import Grouped
from goalscope.stats.rows import Tag

INNER, AVERAGE = "cell accuracy without padding and border", "average precision"
OVERALL = "cell accuracy without padding"
LOCAL, AWAY = "localisation", "localisation distance"
RATES = ("recall", "precision")
BY = ("head", "control", "class")

MLP, PERCELL, _POSITION = ({"head": head, "control": "none"} for head in ("mlp", "percell", "position"))
_PUBLISHED_SIZE = 11  # of the grids of Fig. 15
_PERMUTED, _LINEAR_PERMUTED = ({"head": head, "control": "permuted"} for head in ("mlp", "percell"))
_COMPARED: dict[str, dict[str, str]] = {
    "MLP": MLP,
    "per-cell linear": PERCELL,
    "additive linear": {"head": "additive", "control": "none"},
    "position alone": _POSITION,
    "majority class": {"head": "majority", "control": "none"},
    "MLP, permuted weights": _PERMUTED,
    "per-cell linear, permuted weights": _LINEAR_PERMUTED,
    "MLP, shuffled labels": {"head": "mlp", "control": "shuffled"},
}


_Shown = tuple[str, str, Estimates, list[Curve]]
"""Title, label of the vertical axis, estimates and curves of a figure."""


_MAIN: Final[Sequence[tuple[str, str, Key]]] = (
    ("Accuracy inside the border", "accuracy (share)", {"measure": INNER}),
    *(
        (f"{AREA.capitalize()} of {name}", f"{AREA} (share)", {"measure": AREA, "class": name})
        for name in ("wall", "agent", "goal")
    ),
)
"""Title, axis and key of each main figure."""


def _figure(
    title: str,
    y_label: str,
    axis: str,
    estimates: Estimates,
    curves: Sequence[Curve],
    ticks: Sequence[float] | None = None,
) -> CurveSpec:
    bounds = share_bounds if "(share)" in y_label else data_bounds
    return CurveSpec(title, y_label, axis, estimates, curves, bounds=bounds, ticks=ticks)


def over_layers_of(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the section with curves over the layers of each site, nothing where there is one layer only."""
    layers, sites = layers_and_sites(rows.points())
    if len(layers) < 2:
        return
    by = ("site", "head", "control", "class", "layer")
    compared = rows.where(head=("mlp", "percell", "position"), control=("none", *NETWORKS))
    natural = _natural(compared, (INNER, AREA)).estimated(summarise, by)
    rates = _balanced(compared).estimated(summarise, by)
    probes = {"MLP": MLP, "per-cell": PERCELL}
    probes |= {f"per-cell, {name}": {"head": "percell", "control": kind} for kind, name in NETWORKS.items()}
    figures: list[_Shown] = []
    for title, y_label, key in _MAIN:
        curves = [
            Curve(name, {**key, **probe}, style=index, fewest=2) for index, (name, probe) in enumerate(probes.items())
        ]
        level = Curve("position alone", {**key, **_POSITION, **NOWHERE}, style=6, flat=True)
        figures.append((f"{title} by layer", y_label, natural, [*curves, level]))
    figures += [(f"{title} by layer", f"{name} (share)", rates, curves) for name, title, curves in _rates_by_class()]
    sizes, at_size = compared.numbers("size"), Estimates()
    if _PUBLISHED_SIZE in sizes and len(sizes) > 1:  # Fig. 15
        at_size = _balanced(compared.where(size=_PUBLISHED_SIZE), (OVERALL, *RATES)).estimated(summarise, by)
        accuracy = ("accuracy", "Accuracy", [Curve("all cells", {**MLP, "measure": OVERALL, "class": None})])
        figures += [
            (f"{title} by layer, size {_PUBLISHED_SIZE}", f"{name} (share)", at_size, curves)
            for name, title, curves in (accuracy, *_rates_by_class())
        ]
    yield Declared(
        anchor="cognitive-map-layers",
        title=f"{rows.title('Cognitive map')}: by layer",
        figures=[
            _figure(
                f"{title}, {site}", y_label, "layer", estimates, [_at_site(curve, site) for curve in curves], layers
            )
            for title, y_label, estimates, curves in figures
            for site in sites
        ],
        figures_only=True,
        legend=f"{BANDS} Sites: pre before the reasoning, post after it. Accuracy and {AREA} are "
        f"{READINGS['natural']}; recall and precision are those of the MLP, {READINGS['balanced']}.",
        counted=(*natural, *rates, *at_size),
    )


def _at_site(curve: Curve, site: Tag) -> Curve:
    return curve if curve.flat else replace(curve, key={**curve.key, "site": site})


def _rates_by_class() -> list[tuple[str, str, list[Curve]]]:
    """Return recall and precision of the MLP: name, title, and a curve for each class."""
    return [
        (name, name.capitalize(), [Curve(label, {**MLP, "measure": name, "class": label}) for label in CLASSES])
        for name in RATES
    ]


def over_sizes(rows: ProbeRows, base: ProbeRows, point: ReadPoint) -> Declared:
    """Return the section with curves over size and density at one read point, general and size-specific probes."""
    at_point = base.at(point)
    parts = [_by_tag(at_point, tag) for tag in ("size", "density") if len(at_point.numbers(tag)) > 1]
    parts.append(_by_scope(rows, base, point))
    return Declared(
        anchor="cognitive-map-sizes",
        title=f"{rows.title('Cognitive map')}: by size and density",
        figures=[figure for figures, _ in parts for figure in figures],
        figures_only=True,
        legend=f"{BANDS} Read at {point}. Recall and precision are those of the MLP, {READINGS['balanced']}; all else "
        f"is {READINGS['natural']}. A curve over size averages over all densities, a curve over density over all "
        "sizes.",
        counted=[grouped for _, counted in parts for grouped in counted],
    )


def _by_tag(at_point: ProbeRows, tag: str) -> tuple[list[CurveSpec], list[Grouped]]:
    by = (*BY, tag)
    heads, controls = (tuple({probe[name] for probe in _COMPARED.values()}) for name in ("head", "control"))
    compared = at_point.where(control=controls, head=heads)
    natural = _natural(compared, (INNER, AREA, LOCAL, AWAY)).estimated(summarise, by)
    figures: list[_Shown] = [
        (f"{title} by {tag}", y_label, natural, [Curve(name, {**key, **probe}) for name, probe in _COMPARED.items()])
        for title, y_label, key in (_MAIN if tag == "size" else _MAIN[:2])
    ]
    counted = list(natural)
    if tag == "size":
        rates = _balanced(at_point).estimated(summarise, by)
        overall = _balanced(compared, (OVERALL,), {}).estimated(summarise, by)
        counted += [*rates, *overall]
        curves = [Curve(name, {**probe, "measure": OVERALL, "class": None}) for name, probe in _COMPARED.items()]
        figures.append(("Accuracy of all cells by size, balanced (Fig. 6 left)", "accuracy (share)", overall, curves))
        figures += [
            (f"{title} by class and size", f"{name} (share)", rates, class_curves)
            for name, title, class_curves in _rates_by_class()
        ]
        for measure, title, y_label in (
            (LOCAL, "Agent and goal at their cells", "states (share)"),
            (AWAY, "Distance from their cells", "Manhattan distance (cells)"),
        ):
            curves = [
                Curve(f"{name}{end}", {**probe, "measure": measure, "class": name})
                for probe, end in ((MLP, ""), (_PERMUTED, ", permuted weights"))
                for name in ("agent", "goal")
            ]
            figures.append((f"{title} by size (MLP)", y_label, natural, curves))
    return [_figure(title, y_label, tag, estimates, curves) for title, y_label, estimates, curves in figures], counted


def _by_scope(rows: ProbeRows, base: ProbeRows, point: ReadPoint) -> tuple[list[CurveSpec], list[Grouped]]:
    """Return general probes and those of one size each (Fig. 16)."""
    scopes = tuple(scope for scope in rows.values("scope") if scope != "general")
    if not scopes or point == ReadPoint() or base is rows:
        return [], []
    by, both = ("class", "size"), (rows.where(scope=scopes, **point.key), base.where(**point.key))
    cells = [_natural(rows_of_scope.where(**PERCELL), (INNER, AREA)).estimated(summarise, by) for rows_of_scope in both]
    rates = [_balanced(rows_of_scope).estimated(summarise, by) for rows_of_scope in both]
    (_, accuracy, accuracy_key), (ranked, y_label, ranked_key) = _MAIN[:2]
    declared_figures = [
        ("Accuracy: per-cell probes by size", accuracy, cells, accuracy_key),
        (f"{ranked}: per-cell probes by size", y_label, cells, ranked_key),
        *(
            (f"{measure.capitalize()} of {name}: MLPs by size (Fig. 16)", f"{measure} (share)", rates, key)
            for measure in RATES
            for name in ("agent", "goal")
            for key in [{"measure": measure, "class": name}]
        ),
    ]
    figures = [
        _figure(
            title,
            label,
            "size",
            general,
            [Curve("general", key), Curve("of one size each", key, estimates=size_specific)],
        )
        for title, label, (size_specific, general), key in declared_figures
    ]
    return (figures, [*cells[0], *rates[0]]) if cells[0] else ([], [])


def _natural(rows: ProbeRows, measures: Sequence[str]) -> ProbeRows:
    return rows.where(reading=("natural", None), measure=measures)


def _balanced(rows: ProbeRows, measures: Sequence[str] = RATES, probe: Key = MLP) -> ProbeRows:
    return rows.where(**probe, reading=("balanced", None), measure=measures)


_LEARNT = (*((AREA, name) for name in ("wall", "goal", "agent")), *((LOCAL, name) for name in ("goal", "agent")))
_HEAD = ("site", "layer", "head", "class")
_LEARNING = (
    "Probes are trained on more and more of the training grids, in nested random subsets, and scored on the same "
    "tested grids. That nothing can be read from activations needs a curve that has flattened: a probe with too few "
    "grids fails whatever they hold.",
    f"A curve has flattened where the whole 95 % interval of the gain of its last doubling lies below {MARGIN:g}. "
    "Intervals are over tested grids and draws of the subsets, and conditional on the training grids: the draws of all "
    "of them are one.",
)


@probe_section(
    "learning curves",
    source="behavioural and representational evaluation, section 5.1",
    measures=lambda measure: measure in CURVE_MEASURES,
)
def learning_curves(rows: ProbeRows) -> Iterator[Declared]:
    """Scores over the number of training grids, each head at each read point."""
    counts = [int(count) for count in rows.numbers(TRAINED_ON)]
    curve_rows = rows.where(**{TRAINED_ON: tuple(counts)})
    if not counts:
        return
    estimates = curve_rows.estimated(summarise, (*_HEAD, TRAINED_ON))
    keys = in_order(
        ({**key, "control": "none"} for key in estimates.keys("site", "layer", "head")), curve_rows.points()
    )
    heads: list[Key] = [{name: key[name] for name in ("site", "layer", "head")} for key in keys]
    classes = [(measure, name) for measure, name in _LEARNT if measure in curve_rows.values("measure")]
    yield Declared(
        anchor="learning-curves",
        title=curve_rows.title("Learning curves"),
        explained=_LEARNING,
        facts=[(_title(end), _gain_text(end)) for end in curve_ends(curve_rows.rows, _HEAD) if _pair(end) in _LEARNT],
        tables=[
            TableSpec(
                f"Scores by number of training grids: {MEAN}",
                "trained on",
                estimates,
                [
                    Column(f"{measure}: {name}", "share", {"measure": measure, "class": name})
                    for measure, name in classes
                ],
                [
                    Line(f"{_where(head)}: {counted} grids", {**head, TRAINED_ON: counted})
                    for head in heads
                    for counted in counts
                ],
            )
        ],
        figures=[
            CurveSpec(
                f"{measure.capitalize()} of {name} by training grids, {point}",
                f"{measure} (share)",
                TRAINED_ON,
                estimates,
                [
                    Curve(probe_name(head["head"]), {**head, "measure": measure, "class": name})
                    for head in heads
                    if head["site"] is None or ReadPoint(head["site"], head["layer"]) == point
                ],
                x_label="training grids",
                ticks=counts,
            )
            for point in curve_rows.points()
            for measure, name in classes[:3]
            if len(counts) > 1
        ],
        legend=BANDS,
        counted=list(estimates),
    )


def _pair(curve_end: CurveEnd) -> tuple[str, str]:
    return str(curve_end.key["measure"]), str(curve_end.key["class"])


def _where(key: Key) -> str:
    name = probe_name(key["head"])
    return name if key["site"] is None else f"{name}, {ReadPoint(key['site'], key['layer'])}"


def _title(curve_end: CurveEnd) -> str:
    return f"{_where(curve_end.key)}: {curve_end.key['measure']}, {curve_end.key['class']}"


def _gain_text(curve_end: CurveEnd) -> str:
    """Write the gain of the last doubling, and its meaning for a null result."""
    value, low, high = (short(end, "share") for end in (curve_end.gain.value, curve_end.gain.low, curve_end.gain.high))
    gained = (
        f"{value} [{low}, {high}]"
        if curve_end.gain.has_interval
        else f"{value} ({curve_end.gain.note or 'no interval'})"
    )
    outcome = "flattened" if curve_end.flattened else "not flattened, more grids may show more"
    return f"{gained} from {curve_end.grids[0]} to {curve_end.grids[1]} training grids: {outcome}"
