"""The cognitive map: each probe beside its controls, differences with intervals, confusion.

Source: behavioural and representational evaluation, section 5.1 and Appendices E.1 and E.2 (Fig. 6-8, 15, 16).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from goalscope._ground.words import listed, short
from goalscope.inside.probing.heads import CELL_HEADS, COUNTED
from goalscope.inside.probing.labels import CLASSES
from goalscope.inside.probing.scores import AREA, CALLED, KEY, summarise
from goalscope.inside.probing.suite import CURVE_MEASURES, FULL, MARGIN, TRAINED_ON, CurveEnd, curve_ends
from goalscope.report.blocks import (
    BANDS,
    MEAN,
    Column,
    Curve,
    CurveSpec,
    Declared,
    Figure,
    FoldSpec,
    Line,
    Sentence,
    TableSpec,
    interval,
)
from goalscope.report.charts import Forest, ForestBar, HeatMap
from goalscope.report.definitions import NETWORKS, RULES
from goalscope.report.ledger import Estimates, Key, number_of
from goalscope.report.sections.probing import (
    NOWHERE,
    PROBES,
    READINGS,
    Contrast,
    ProbeNames,
    ProbeRows,
    ReadPoint,
    claims,
    contrasted,
    data_bounds,
    layers_and_sites,
    probe_section,
    share_bounds,
)
from goalscope.report.texts import TEXTS
from goalscope.stats import Grouped
from goalscope.stats.rows import Tag

INNER, AVERAGE = "cell accuracy without padding and border", "average precision"
OVERALL = "cell accuracy without padding"
LOCAL, AWAY = "localisation", "localisation distance"
RATES = ("recall", "precision")
BY = ("head", "control", "class")

MLP, PERCELL, _POSITION = ({"head": head, "control": "none"} for head in ("mlp", "percell", "position"))
_PUBLISHED_SIZE = 11  # of the grids of Fig. 15
_PERMUTED: Key = {"head": "mlp", "control": "permuted"}
_COMPARED = {
    PROBES(head, control): {"head": head, "control": control}
    for head, control in (
        *((head, "none") for head in ("mlp", "percell", "additive", "position", "majority")),
        *(("mlp", "permuted"), ("percell", "permuted"), ("mlp", "shuffled")),
    )
}


def _column(measure: str, name: Tag, title: str) -> Column:
    return Column(title, "cells" if measure == AWAY else "share", {"measure": measure, "class": name})


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


def _figure(axis: str, shown: _Shown, ticks: Sequence[float] | None = None) -> CurveSpec:
    title, y_label, estimates, curves = shown
    bounds = share_bounds if "(share)" in y_label else data_bounds
    return CurveSpec(title, y_label, axis, estimates, curves, bounds=bounds, ticks=ticks)


def over_layers_of(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the report's section with the scores of map probes as curves over the layers, for each site (token
    positions).

    There is none if only one layer was read.
    """
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
        curves = [Curve(name, {**key, **probe}, style=at, fewest=2) for at, (name, probe) in enumerate(probes.items())]
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
            _figure("layer", (f"{title}, {site}", y_label, estimates, _at_site(curves, site)), layers)
            for title, y_label, estimates, curves in figures
            for site in sites
        ],
        figures_only=True,
        legend=f"{BANDS} {TEXTS('cognitive map/layers legend', area=AREA, **READINGS)}",
        counted=(*natural, *rates, *at_size),
    )


def _at_site(curves: Sequence[Curve], site: Tag) -> list[Curve]:
    return [curve if curve.flat else replace(curve, key={**curve.key, "site": site}) for curve in curves]


def _rates_by_class() -> list[tuple[str, str, list[Curve]]]:
    """Return recall and precision of the MLP: name, title, and a curve for each class."""
    return [
        (name, name.capitalize(), [Curve(label, {**MLP, "measure": name, "class": label}) for label in CLASSES])
        for name in RATES
    ]


def over_sizes(rows: ProbeRows, base: ProbeRows, point: ReadPoint) -> Declared:
    """Return the report's section with scores of map probes as curves over grid size and wall density.

    Args:
        rows: scores of all probes.
        base: those of the probes to draw, for grids of all sizes.
        point: the site (token positions) and layer that is drawn.
    """
    at_point = base.at(point)
    parts = [_by_tag(at_point, tag) for tag in ("size", "density") if len(at_point.numbers(tag)) > 1]
    parts.append(_by_scope(rows, base, point))
    return Declared(
        anchor="cognitive-map-sizes",
        title=f"{rows.title('Cognitive map')}: by size and density",
        figures=[figure for figures, _ in parts for figure in figures],
        figures_only=True,
        legend=f"{BANDS} {TEXTS('cognitive map/sizes legend', point=str(point), **READINGS)}",
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
    return [_figure(tag, shown) for shown in figures], counted


def _by_scope(rows: ProbeRows, base: ProbeRows, point: ReadPoint) -> tuple[list[CurveSpec], list[Grouped]]:
    """Return the scores of general probes and of probes for a single size (Fig. 16)."""
    scopes = tuple(scope for scope in rows.values("scope") if scope != "general")
    if not scopes or point == ReadPoint() or base is rows:
        return [], []
    by, row_sets = ("class", "size"), (rows.where(scope=scopes, **point.key), base.where(**point.key))
    cells = [
        _natural(rows_of_scope.where(**PERCELL), (INNER, AREA)).estimated(summarise, by) for rows_of_scope in row_sets
    ]
    rates = [_balanced(rows_of_scope).estimated(summarise, by) for rows_of_scope in row_sets]
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
            "size", (title, label, general, [Curve("general", key), Curve("of one size each", key, estimates=of_size)])
        )
        for title, label, (of_size, general), key in declared_figures
    ]
    return (figures, [*cells[0], *rates[0]]) if cells[0] else ([], [])


def _natural(rows: ProbeRows, measures: Sequence[str]) -> ProbeRows:
    return rows.where(reading=("natural", None), measure=measures)


def _balanced(rows: ProbeRows, measures: Sequence[str] = RATES, probe: Key = MLP) -> ProbeRows:
    return rows.where(**probe, reading=("balanced", None), measure=measures)


_LEARNT = (*((AREA, name) for name in ("wall", "goal", "agent")), *((LOCAL, name) for name in ("goal", "agent")))
_HEAD = ("site", "layer", "head", "class")


@probe_section(
    "learning curves",
    source="behavioural and representational evaluation, section 5.1",
    measures=lambda measure: measure in CURVE_MEASURES,
)
def learning_curves(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the report's section with scores of map probes by number of training grids, for each form of probe, site
    and layer.
    """
    counts = [int(count) for count in rows.numbers(TRAINED_ON)]
    curve_rows = rows.where(**{TRAINED_ON: tuple(counts)})
    if not counts:
        return
    estimates = curve_rows.estimated(summarise, (*_HEAD, TRAINED_ON))
    keys = PROBES.in_order(
        ({**key, "control": "none"} for key in estimates.keys("site", "layer", "head")), curve_rows.points()
    )
    heads: list[Key] = [{name: key[name] for name in ("site", "layer", "head")} for key in keys]
    classes = [(measure, name) for measure, name in _LEARNT if measure in curve_rows.values("measure")]
    yield Declared(
        anchor="learning-curves",
        title=curve_rows.title("Learning curves"),
        explained=(TEXTS("cognitive map/learning curves"), TEXTS("cognitive map/flattened", margin=f"{MARGIN:g}")),
        facts=[
            (f"{_where(end.key)}: {end.key['measure']}, {end.key['class']}", _gain_text(end))
            for end in curve_ends(curve_rows.rows, _HEAD)
            if (end.key["measure"], end.key["class"]) in _LEARNT
        ],
        tables=[
            TableSpec(
                f"Scores by number of training grids: {MEAN}",
                "trained on",
                estimates,
                [_column(measure, name, f"{measure}: {name}") for measure, name in classes],
                [
                    Line(f"{_where(head)}: {count} grids", {**head, TRAINED_ON: count})
                    for head in heads
                    for count in counts
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
                    Curve(PROBES(head["head"]), {**head, "measure": measure, "class": name})
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


def _where(key: Key) -> str:
    name = PROBES(key["head"])
    return name if key["site"] is None else f"{name}, {ReadPoint(key['site'], key['layer'])}"


def _gain_text(curve_end: CurveEnd) -> str:
    """Say how much the last doubling of the training grids gained, and what that means for a null result."""
    gain = curve_end.gain
    gained = f"{short(gain.value, 'share')} {interval(gain) or '(' + (gain.note or 'no interval') + ')'}"
    outcome = TEXTS(f"cognitive map/gain {'flattened' if curve_end.flattened else 'open'}")
    fewer, more = curve_end.grids
    return TEXTS("cognitive map/gain", gain=gained, fewer=fewer, more=more, outcome=outcome)


_PLURALS = {"wall": "walls", "agent": "agent", "goal": "goal"}


_AREAS = tuple(_column(AREA, name, f"{AREA}: {name}") for name in _PLURALS)
_ACCURACY = (
    *_AREAS,
    _column("cell accuracy", None, "accuracy"),
    _column("cell accuracy without padding", None, "without padding"),
    _column(INNER, None, "without padding and border"),
    *(_column(AVERAGE, name, f"{AVERAGE}: {name}") for name in (*_PLURALS, "open")),
)
_FINDING = tuple(
    _column(measure, name, f"{name}: {title}")
    for name in ("agent", "goal")
    for measure, title in ((LOCAL, "at its cell"), (AWAY, "distance"))
)
_RATES = {name: tuple(_column(name, label, label) for label in CLASSES) for name in RATES}
_DIFFERENCES = (*_AREAS, *_ACCURACY[5:9], *(column for column in _FINDING if column.unit == "cells"))
_MEASURES = frozenset(column.key["measure"] for column in (*_ACCURACY, *_FINDING, *sum(_RATES.values(), ())))
_PRECISION = frozenset(f"precision, {name}" for name in CLASSES)
_CALLED = frozenset(f"{CALLED}{name}" for name in CLASSES)
_RIVALS = {name: {**PROBES.controls, **PROBES.heads}[name] for name in (*PROBES.controls, "position", "percell")}
_FLOORS = {name: _RIVALS[name] for name in ("position", "wall-count", "input")}
_AGAINST = (*NETWORKS, "shuffled", "control-task", *_FLOORS, "text", "percell")
_SENTENCE_PAIRS = (
    *((head, against) for head in ("mlp", "percell") for against in ("shuffled", "control-task")),
    ("mlp", "percell"),
)


@probe_section(
    "cognitive map",
    source="behavioural and representational evaluation, section 5.1, Appendices E.1 and E.2 (Fig. 6-8, 15, 16)",
    measures=(_MEASURES | _CALLED).__contains__,
)
def declared(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the report's sections on map probes: the scores beside those of controls, and curves by layer, size and
    density.

    ``rows`` are the scores of one agent's probes.
    """
    rows = rows.where(**{TRAINED_ON: None}, cells=None)  # learning curves have a section of their own
    if not len(rows):
        return
    general = rows.where(scope=("general", None))
    # Without general probes each size of grid has probes of its own.
    base = general if len(general) else rows
    point = base.main_point()
    yield _matrix(base, point)
    yield from over_layers_of(base)
    yield over_sizes(rows, base, point)


def _matrix(base: ProbeRows, point: ReadPoint) -> Declared:
    """Return the section on all heads and controls at one read point."""
    point_rows = base.at(point)
    summaries = {
        kind: point_rows.where(reading=kind).estimated(summarise, BY) for kind in ("natural", "balanced", None)
    }
    kind = next((kind for kind, estimates in summaries.items() if estimates), None)
    estimates, balanced = summaries[kind], summaries["balanced"]
    differences = _differences(point_rows.where(reading=kind))
    site_differences = _between_sites(base.where(reading=kind))
    keys = ProbeNames(first=CELL_HEADS).in_order(estimates.keys("head", "control"))
    # Heads that read no activations give the same frequencies under every control: shown once outside of the folds.
    front = [key for key in keys if key["head"] not in COUNTED or key["control"] == "none"]
    network_keys = [key for key in front if key["control"] in ("none", *NETWORKS)]
    title, balanced_title = f"{point}{f', {READINGS[kind]}' if kind else ''}", f"{point}, {READINGS['balanced']}"
    layers = sorted(site_differences.keys("layer"), key=lambda key: (number_of(key["layer"]) or 0, str(key["layer"])))
    page_estimates = [grouped for grouped in estimates if grouped.key["measure"] not in _CALLED]
    heads = dict.fromkeys(str(key["head"]) for key in keys)
    rivals = [
        Line(_less(head, against), {"head": head, "less": against})
        for head in heads
        for against in _AGAINST
        if head != "additive" or against not in ("wall-count", "input", "text")
    ]
    return Declared(
        anchor="cognitive-map",
        title=base.title("Cognitive map"),
        paragraphs=tuple(_missing(keys)),
        explained=(
            TEXTS("cognitive map/how"),
            TEXTS("cognitive map/recall"),
            *([TEXTS("cognitive map/additive")] if "additive" in heads else []),
        ),
        sentences=(
            *claims(
                differences, [(PROBES(head), _parts({"head": head})) for head in ("percell", "mlp")], floors=_FLOORS
            ),
            *(
                Sentence(_less(head, against), differences, _parts({"head": head, "less": against}))
                for head, against in _SENTENCE_PAIRS
            ),
            *(
                Sentence(
                    f"MLP, layer {key['layer']}: pre minus post", site_differences, _parts({**key, "less": "post"})
                )
                for key in layers
            ),
        ),
        rule=f"{TEXTS('cognitive map/rule', area=AREA, point=str(point))} {RULES}",
        silence=TEXTS("cognitive map/silence"),
        tables=(
            _table(f"Accuracy and average precision ({title})", _ACCURACY, front, estimates, noun="grid"),
            TableSpec(
                f"Differences, paired by grid ({title}): {MEAN}. The difference from the control task is the "
                "selectivity",
                "probe minus control",
                differences,
                _DIFFERENCES,
                rivals,
            ),
            TableSpec(
                f"MLP before the reasoning (pre) minus after it (post), paired by grid: {MEAN}",
                "layer",
                site_differences,
                _DIFFERENCES,
                [Line(str(key["layer"]), {**key, "less": "post"}) for key in layers],
            ),
            _table(f"Finding agent and goal ({title})", _FINDING, network_keys, estimates),
            *_rate_tables("{name} by class ({where})", balanced_title, network_keys, balanced),
        ),
        figures=(*_forests(differences, point), *_confusion(estimates, point)),
        legend=TEXTS("cognitive map/legend"),
        folds=(
            FoldSpec("All heads and controls: finding agent and goal", [_table(title, _FINDING, keys, estimates)]),
            FoldSpec(
                "All heads and controls: recall and precision by class",
                [
                    *_rate_tables("{name} ({where})", title, keys, estimates),
                    *_rate_tables("{name} ({where})", balanced_title, keys, balanced),
                ],
            ),
            FoldSpec(
                f"Accuracy and average precision {READINGS['balanced']}",
                [_table(balanced_title, _ACCURACY, keys, balanced)] if kind != "balanced" else [],
            ),
        ),
        undefined=PROBES.undefined(page_estimates, and_tags=("class",)),
        why=lambda measure: TEXTS(f"cognitive map/{'called' if measure in _PRECISION else 'no such cell'}"),
        counted=(*page_estimates, *differences),
    )


def _table(
    caption: str, columns: Sequence[Column], keys: Sequence[Key], estimates: Estimates, *, noun: str = ""
) -> TableSpec:
    lines = [Line(PROBES(key["head"], key["control"]), key) for key in keys]
    return TableSpec(f"{caption}: {MEAN}", "probe", estimates, columns, lines, noun)


def _rate_tables(caption: str, place: str, keys: Sequence[Key], estimates: Estimates) -> list[TableSpec]:
    return [
        _table(caption.format(name=name.capitalize(), where=place), columns, keys, estimates)
        for name, columns in _RATES.items()
    ]


def _differences(point_rows: ProbeRows) -> Estimates:
    """Return the differences between each probe and its controls, the position-only probe and the per-cell head."""
    rows = point_rows.where(measure=tuple({column.key["measure"] for column in _DIFFERENCES}))
    trained = tuple(head for head in rows.values("head") if head not in COUNTED)
    no_control, by = {"control": ("none", None)}, ("site", "layer", "reading", "class")
    contrasts = [
        Contrast({"head": trained, "control": "none"}, {name: {"control": name} for name in PROBES.controls}, KEY),
        *(
            Contrast({**no_control, "head": head}, {name: {"head": name}}, by)
            for name, heads in (("position", ("additive", "percell", "mlp")), ("percell", ("mlp",)))
            for head in heads
        ),
    ]
    return contrasted(rows, contrasts, summarise, ("head", "class"))


def _between_sites(rows: ProbeRows) -> Estimates:
    """Return the differences of the MLP between "pre" and "post", by layer."""
    measures = tuple({column.key["measure"] for column in _DIFFERENCES})
    probe = {"measure": measures, "head": "mlp", "control": ("none", None), "site": "pre"}
    contrast = Contrast(probe, {"post": {"site": "post"}}, ("layer", "class"))
    return contrasted(rows, [contrast], summarise, ("layer", "class"))


def _parts(key: Key) -> list[tuple[str, Key]]:
    return [(plural, {**key, "measure": AREA, "class": name}) for name, plural in _PLURALS.items()]


def _less(head: str, against: str) -> str:
    return f"{PROBES(head)} minus {_RIVALS[against]}"


def _missing(keys: Sequence[Key]) -> list[str]:
    """Return a sentence about heads and controls of the full suite that have no rows."""
    measured = {(key["head"], key["control"]) for key in keys}
    heads = {head for head, _ in measured}
    parts = [f"the head “{PROBES(head)}”" for head in CELL_HEADS if head not in heads]
    for control, title in PROBES.controls.items():
        lacking = [
            PROBES(head)
            for head, probe_control in FULL
            if probe_control == control and head in heads and head not in COUNTED and (head, control) not in measured
        ]
        parts += [f"“{title}” for {listed(lacking)}"] if lacking else []
    return [TEXTS("cognitive map/not in this run", parts=listed(parts))] if parts else []


def _forests(differences: Estimates, point: ReadPoint) -> Iterator[Figure]:
    """Draw the differences in area under the curve between the MLP or the per-cell head and their controls."""
    legend = {kind: f"minus {name}" for kind, name in NETWORKS.items()}
    legend |= {"shuffled": "minus shuffled labels", "position": "minus position alone"}
    for head in ("mlp", "percell"):
        bars = [
            ForestBar(label, style, plural, estimate)
            for plural, key in _parts({"head": head})
            for style, (against, label) in enumerate(legend.items())
            if (estimate := differences.get(key, {"less": against})) is not None
        ]
        if bars:
            title = f"{PROBES(head)} minus its controls"
            chart = Forest(bars, title=title, x_label=f"difference in {AREA} (share)")
            yield Figure(chart, f"{title}, {point}", str(point))


def _confusion(estimates: Estimates, point: ReadPoint) -> Iterator[Figure]:
    """Draw the confusion matrices of the MLP and the per-cell head."""
    for key in (MLP, PERCELL):
        cells = [
            [estimates.get(key, {"measure": f"{CALLED}{name}", "class": label}) for name in CLASSES]
            for label in CLASSES[:-1]
        ]
        if any(cell for row in cells for cell in row):
            title = f"{PROBES(key['head'])}: confusion of classes"
            chart = HeatMap(
                cells,
                rows=CLASSES[:-1],
                columns=CLASSES,
                title=title,
                row_label="true class",
                column_label="decoded class",
                bounds=(0.0, 1.0),
            )
            yield Figure(chart, f"{title}, {point}", str(point))
