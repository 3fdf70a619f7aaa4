"""Curves of the cognitive map: by layer before and after the reasoning, by size and density, by training grids.

Source: behavioural and representational evaluation, section 5.1 (36,000 grids) and Fig. 6-8, 15 and 16.
"""

from collections.abc import Iterator, Sequence

from goalscope.probing.curves import CURVE_MEASURES, MARGIN, TRAINED_ON, CurveEnd, curve_ends
from goalscope.probing.labels import CLASSES
from goalscope.probing.scores import AREA, summarise
from goalscope.report.figures import short
from goalscope.report.ledger import Key
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
from goalscope.rows import Tag
from goalscope.stats import Grouped

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


def _main(rows: ProbeRows) -> tuple[str, list[tuple[str, str, Key]]]:
    """Return by what probes are ranked, and title, axis and key of each main figure."""
    ranks_by = AREA if AREA in rows.values("measure") else AVERAGE  # rows of earlier versions have no areas
    shown: list[tuple[str, str, Key]] = [
        ("Accuracy inside the border", "accuracy (share)", {"measure": INNER}),
        *(
            (f"{ranks_by.capitalize()} of {name}", f"{ranks_by} (share)", {"measure": ranks_by, "class": name})
            for name in ("wall", "agent", "goal")
        ),
    ]
    return ranks_by, shown


def over_layers_of(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the section with curves over the layers of each site, nothing where there is one layer only."""
    points = rows.points()
    layers, sites = layers_and_sites(points)
    if len(layers) < 2:
        return
    by = ("site", "head", "control", "class", "layer")
    wanted = rows.where(head=("mlp", "percell", "position"), control=("none", *NETWORKS))
    ranks_by, main = _main(wanted)
    natural = _natural(wanted, (INNER, ranks_by)).estimated(summarise, by)
    rates = _balanced(wanted).estimated(summarise, by)
    probes = {"MLP": MLP, "per-cell": PERCELL}
    probes |= {f"per-cell, {name}": {"head": "percell", "control": kind} for kind, name in NETWORKS.items()}
    figures = [
        CurveSpec(
            f"{title} by layer, {site}",
            y_label,
            "layer",
            natural,
            [
                *(
                    Curve(name, {**key, **probe, "site": site}, style=at, fewest=2)
                    for at, (name, probe) in enumerate(probes.items())
                ),
                Curve("position alone", {**key, **_POSITION, **NOWHERE}, style=6, flat=True),
            ],
            bounds=share_bounds,
            ticks=layers,
        )
        for title, y_label, key in main
        for site in sites
    ]
    figures += [
        CurveSpec(
            f"{measure.capitalize()} by layer, {site}",
            f"{measure} (share)",
            "layer",
            rates,
            _by_class({**MLP, "measure": measure, "site": site}),
            bounds=share_bounds,
            ticks=layers,
        )
        for measure in RATES
        for site in sites
    ]
    at_size = _of_published_size(wanted, by, sites, layers)
    figures += at_size[0]
    yield Declared(
        anchor="cognitive-map-layers",
        title=f"{rows.title('Cognitive map')}: by layer",
        figures=figures,
        figures_only=True,
        legend=f"{BANDS} Sites: pre before the reasoning, post after it. Accuracy and {ranks_by} are "
        f"{READINGS['natural']}; recall and precision are those of the MLP, {READINGS['balanced']}.",
        counted=(*natural, *rates, *at_size[1]),
    )


def _of_published_size(
    rows: ProbeRows, by: Sequence[str], sites: Sequence[Tag], layers: Sequence[float]
) -> tuple[list[CurveSpec], list[Grouped]]:
    """Return accuracy, recall and precision of the MLP by layer on grids of size 11, beside others (Fig. 15)."""
    if _PUBLISHED_SIZE not in rows.numbers("size") or len(rows.numbers("size")) < 2:
        return [], []
    found = _balanced(rows.where(size=_PUBLISHED_SIZE), (OVERALL, *RATES)).estimated(summarise, by)
    shown = {"accuracy": [Curve("all cells", {**MLP, "measure": OVERALL, "class": None})]}
    shown |= {measure: _by_class({**MLP, "measure": measure}) for measure in RATES}
    figures = [
        CurveSpec(
            f"{title.capitalize()} by layer, size {_PUBLISHED_SIZE}, {site}",
            f"{title} (share)",
            "layer",
            found,
            [Curve(curve.title, {**curve.key, "site": site}) for curve in curves],
            bounds=share_bounds,
            ticks=layers,
        )
        for title, curves in shown.items()
        for site in sites
    ]
    return figures, list(found)


def over_sizes(rows: ProbeRows, base: ProbeRows, point: ReadPoint) -> Declared:
    """Return the section with curves over size and density at one read point, general beside size-specific probes."""
    here = base.at(point)
    parts = [_by_tag(here, tag) for tag in ("size", "density") if len(here.numbers(tag)) > 1]
    parts.append(_by_scope(rows, base, point))
    return Declared(
        anchor="cognitive-map-sizes",
        title=f"{rows.title('Cognitive map')}: by size and density",
        figures=[figure for figures, _ in parts for figure in figures],
        figures_only=True,
        legend=f"{BANDS} Read at {point}. Recall and precision are those of the MLP, {READINGS['balanced']}; all else "
        f"is {READINGS['natural']}. A curve over size averages over all densities, a curve over density over all "
        "sizes.",
        counted=[one for _, counted in parts for one in counted],
    )


def _by_tag(here: ProbeRows, tag: str) -> tuple[list[CurveSpec], list[Grouped]]:
    by = (*BY, tag)
    heads, controls = (tuple({probe[name] for probe in _COMPARED.values()}) for name in ("head", "control"))
    compared = here.where(control=controls, head=heads)
    ranks_by, main = _main(compared)
    natural = _natural(compared, (INNER, ranks_by, LOCAL, AWAY)).estimated(summarise, by)
    shown = [
        (f"{title} by {tag}", y_label, natural, [Curve(name, {**key, **probe}) for name, probe in _COMPARED.items()])
        for title, y_label, key in (main if tag == "size" else main[:2])
    ]
    counted = list(natural)
    if tag == "size":
        rates = _balanced(here).estimated(summarise, by)
        overall = _balanced(compared, (OVERALL,), {}).estimated(summarise, by)
        counted += [*rates, *overall]
        curves = [Curve(name, {**probe, "measure": OVERALL, "class": None}) for name, probe in _COMPARED.items()]
        shown.append(("Accuracy of all cells by size, balanced (Fig. 6 left)", "accuracy (share)", overall, curves))
        for measure in RATES:
            curves = _by_class({**MLP, "measure": measure})
            shown.append((f"{measure.capitalize()} by class and size", f"{measure} (share)", rates, curves))
        for measure, title, y_label in (
            (LOCAL, "Agent and goal at their cells", "states (share)"),
            (AWAY, "Distance from their cells", "Manhattan distance (cells)"),
        ):
            curves = [
                Curve(f"{name}{end}", {**probe, "measure": measure, "class": name})
                for probe, end in ((MLP, ""), (_PERMUTED, ", permuted weights"))
                for name in ("agent", "goal")
            ]
            shown.append((f"{title} by size (MLP)", y_label, natural, curves))
    figures = [
        CurveSpec(title, y_label, tag, found, curves, bounds=share_bounds if "(share)" in y_label else data_bounds)
        for title, y_label, found, curves in shown
    ]
    return figures, counted


def _by_class(key: Key) -> list[Curve]:
    return [Curve(name, {**key, "class": name}) for name in CLASSES]


def _by_scope(rows: ProbeRows, base: ProbeRows, point: ReadPoint) -> tuple[list[CurveSpec], list[Grouped]]:
    """Return general probes beside those of one size each (Fig. 16)."""
    scopes = tuple(scope for scope in rows.values("scope") if scope != "general")
    if not scopes or point == ReadPoint() or base is rows:
        return [], []
    ranks_by, main = _main(base)
    specific, general = (
        _natural(mine.where(**PERCELL, **point.key), (INNER, ranks_by)).estimated(summarise, ("class", "size"))
        for mine in (rows.where(scope=scopes), base)
    )
    figures = [
        CurveSpec(f"{title}: per-cell probes by size", y_label, "size", general, curves, bounds=share_bounds)
        for title, (_, y_label, key) in (("Accuracy", main[0]), (main[1][0], main[1]))
        for curves in [[Curve("general", key), Curve("of one size each", key, estimates=specific)]]
    ]
    rates = [
        _balanced(mine.where(**point.key)).estimated(summarise, ("class", "size"))
        for mine in (rows.where(scope=scopes), base)
    ]
    figures += [
        CurveSpec(
            f"{measure.capitalize()} of {name}: MLPs by size (Fig. 16)",
            f"{measure} (share)",
            "size",
            rates[1],
            [Curve("general", key), Curve("of one size each", key, estimates=rates[0])],
            bounds=share_bounds,
        )
        for measure in RATES
        for name in ("agent", "goal")
        for key in [{"measure": measure, "class": name}]
    ]
    return (figures, [*specific, *rates[0]]) if specific else ([], [])


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
    counts = [int(one) for one in rows.numbers(TRAINED_ON)]
    mine = rows.where(**{TRAINED_ON: tuple(counts)})
    if not counts:
        return
    found = mine.estimated(summarise, (*_HEAD, TRAINED_ON))
    keys = in_order(({**key, "control": "none"} for key in found.keys("site", "layer", "head")), mine.points())
    heads: list[Key] = [{name: key[name] for name in ("site", "layer", "head")} for key in keys]
    shown = [(measure, name) for measure, name in _LEARNT if measure in mine.values("measure")]
    yield Declared(
        anchor="learning-curves",
        title=mine.title("Learning curves"),
        paragraphs=_LEARNING,
        facts=[(_title(one), _said(one)) for one in curve_ends(mine.rows, _HEAD) if _pair(one) in _LEARNT],
        tables=[
            TableSpec(
                f"Scores by number of training grids: {MEAN}",
                "trained on",
                found,
                [Column(f"{measure}: {name}", "share", {"measure": measure, "class": name}) for measure, name in shown],
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
                found,
                [
                    Curve(probe_name(head["head"]), {**head, "measure": measure, "class": name})
                    for head in heads
                    if head["site"] is None or ReadPoint(head["site"], head["layer"]) == point
                ],
                x_label="training grids",
                ticks=counts,
            )
            for point in mine.points()
            for measure, name in shown[:3]
            if len(counts) > 1
        ],
        legend=BANDS,
        counted=list(found),
    )


def _pair(one: CurveEnd) -> tuple[str, str]:
    return str(one.key["measure"]), str(one.key["class"])


def _where(key: Key) -> str:
    name = probe_name(key["head"])
    return name if key["site"] is None else f"{name}, {ReadPoint(key['site'], key['layer'])}"


def _title(one: CurveEnd) -> str:
    return f"{_where(one.key)}: {one.key['measure']}, {one.key['class']}"


def _said(one: CurveEnd) -> str:
    """Write what the last doubling gained, and what it means for a null result."""
    value, low, high = (short(end, "share") for end in (one.gain.value, one.gain.low, one.gain.high))
    gained = f"{value} [{low}, {high}]" if one.gain.has_interval else f"{value} ({one.gain.note or 'no interval'})"
    said = "flattened" if one.flattened else "not flattened, more grids may show more"
    return f"{gained} from {one.grids[0]} to {one.grids[1]} training grids: {said}"
