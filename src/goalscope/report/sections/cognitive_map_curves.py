"""Curves of the cognitive map: by layer before and after the reasoning, by size and density, general and size-specific.

Source: behavioural and representational evaluation, Fig. 6-8, 15 and 16.
"""

from collections.abc import Iterator, Sequence

from goalscope.probing.probe import CLASSES
from goalscope.probing.scores import summarise
from goalscope.report.definitions import DEFAULT_NETWORK
from goalscope.report.estimates import Estimates, Key, Selection
from goalscope.report.sections.probing import (
    NOWHERE,
    READINGS,
    ProbeRows,
    ReadPoint,
    data_bounds,
    over_layers,
    share_bounds,
)
from goalscope.report.specs import Curve, CurveSpec, Declared
from goalscope.stats import Grouped

INNER = "cell accuracy without padding and border"
PRECISION = "average precision"
LOCAL, AWAY = "localisation", "localisation distance"
_BANDS = "Bands are 95 % intervals over grids."
_RATES = ("recall", "precision")
_MLP: Key = {"head": "mlp", "control": "none"}
_UNTRAINED: Key = {"head": "mlp", "control": "untrained"}
_PERCELL: Key = {"head": "percell", "control": "none"}
_POSITION: Key = {"head": "position", "control": "none"}
_COMPARED: dict[str, Key] = {
    "MLP": _MLP,
    "per-cell linear": _PERCELL,
    "additive linear": {"head": "additive", "control": "none"},
    "position alone": _POSITION,
    "majority class": {"head": "majority", "control": "none"},
    f"MLP, {DEFAULT_NETWORK}": _UNTRAINED,
    "MLP, shuffled labels": {"head": "mlp", "control": "shuffled"},
}
_MAIN: tuple[tuple[str, str, Key], ...] = (
    ("Accuracy without padding and border", "accuracy (share)", {"measure": INNER}),
    *(
        (f"Average precision of {name}", f"{PRECISION} (share)", {"measure": PRECISION, "class": name})
        for name in ("wall", "agent", "goal")
    ),
)
_FOUND = (
    (LOCAL, "Agent and goal at their cells", "states (share)"),
    (AWAY, "Distance from their cells", "Manhattan distance (cells)"),
)


def by_layer(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the section with curves over the layers of each site, nothing where there is one layer only.

    Args:
        rows: scores of general probes of one agent.
    """
    points = rows.points()
    layers, sites = ReadPoint.layers(points), ReadPoint.sites(points)
    if len(layers) < 2:
        return
    by = ("site", "head", "control", "class", "layer")
    wanted = rows.where(head=("mlp", "percell", "position"), control=("none", "untrained"))
    natural = Estimates(_natural(wanted, (INNER, PRECISION)).estimated(summarise, by))
    rates = Estimates(_balanced(wanted).estimated(summarise, by))
    probes = {"MLP": _MLP, DEFAULT_NETWORK: _UNTRAINED, "per-cell": _PERCELL}
    figures = [
        figure
        for title, y_label, key in _MAIN
        for figure in over_layers(
            points,
            [Curve(name, {**key, **probe}, fewest=2) for name, probe in probes.items()],
            flat=[Curve("position alone", {**key, **_POSITION, **NOWHERE}, style=6)],
            estimates=natural,
            title=f"{title} by layer",
            y_label=y_label,
            bounds=share_bounds,
        )
    ]
    figures += [
        CurveSpec(
            title=f"{measure.capitalize()} by layer, {site}",
            y_label=f"{measure} (share)",
            axis="layer",
            estimates=rates,
            curves=[Curve(name, {**_MLP, "measure": measure, "site": site, "class": name}) for name in CLASSES],
            bounds=share_bounds,
            ticks=layers,
        )
        for measure in _RATES
        for site in sites
    ]
    yield Declared(
        anchor="cognitive-map-layers",
        title=f"{rows.title('Cognitive map')}: by layer",
        figures=figures,
        figures_only=True,
        legend=f"{_BANDS} Sites: pre before the reasoning, post after it. Accuracy and average precision are "
        f"{READINGS['natural']}; recall and precision are those of the MLP, {READINGS['balanced']}.",
        counted=(*natural.listed, *rates.listed),
    )


def by_size(rows: ProbeRows, base: ProbeRows, point: ReadPoint) -> Declared:
    """Return the section with curves over size and density at one read point, general beside size-specific probes.

    Args:
        rows: scores of all probes of one agent.
        base: those of general probes among them.
        point: site and layer.
    """
    here = base.at(point)
    parts = [_by_tag(here, tag) for tag in ("size", "density") if len(here.numbers(tag)) > 1]
    parts.append(_by_scope(rows, base, point))
    return Declared(
        anchor="cognitive-map-sizes",
        title=f"{rows.title('Cognitive map')}: by size and density",
        figures=[figure for figures, _ in parts for figure in figures],
        figures_only=True,
        legend=f"{_BANDS} Read at {point}. Recall and precision are those of the MLP, {READINGS['balanced']}; all else "
        f"is {READINGS['natural']}. A curve over size averages over all densities, a curve over density over all "
        "sizes.",
        counted=[one for _, listed in parts for one in listed],
    )


def _by_tag(here: ProbeRows, tag: str) -> tuple[list[CurveSpec], list[Grouped]]:
    by = ("head", "control", "class", tag)
    heads, controls = ({probe[name]: None for probe in _COMPARED.values()} for name in ("head", "control"))
    compared = here.where(control=tuple(controls), head=tuple(heads))
    natural = Estimates(_natural(compared, (INNER, PRECISION, LOCAL, AWAY)).estimated(summarise, by))

    main = _MAIN if tag == "size" else _MAIN[:2]
    shown = [
        (f"{title} by {tag}", y_label, natural, [Curve(name, {**key, **probe}) for name, probe in _COMPARED.items()])
        for title, y_label, key in main
    ]
    counted = list(natural.listed)
    if tag == "size":
        rates = Estimates(_balanced(here).estimated(summarise, by))
        counted += rates.listed
        for measure in _RATES:
            curves = [Curve(name, {**_MLP, "measure": measure, "class": name}) for name in CLASSES]
            shown.append((f"{measure.capitalize()} by class and size", f"{measure} (share)", rates, curves))
        for measure, title, y_label in _FOUND:
            curves = [
                Curve(f"{name}{end}", {**probe, "measure": measure, "class": name})
                for probe, end in ((_MLP, ""), (_UNTRAINED, f", {DEFAULT_NETWORK}"))
                for name in ("agent", "goal")
            ]
            shown.append((f"{title} by size (MLP)", y_label, natural, curves))
    figures = [
        CurveSpec(
            title=title,
            y_label=y_label,
            axis=tag,
            estimates=found,
            curves=curves,
            bounds=share_bounds if y_label.endswith("(share)") else data_bounds,
        )
        for title, y_label, found, curves in shown
    ]
    return figures, counted


def _by_scope(rows: ProbeRows, base: ProbeRows, point: ReadPoint) -> tuple[list[CurveSpec], list[Grouped]]:
    """Return general probes beside those of one size each (Fig. 16)."""
    scopes = tuple(scope for scope in rows.values("scope") if scope != "general")
    if not scopes or point == ReadPoint() or base is rows:
        return [], []
    own: Selection = {**_MLP, **point.key}
    specific, general = (
        Estimates(_natural(mine.where(**own), (INNER, PRECISION)).estimated(summarise, ("class", "size")))
        for mine in (rows.where(scope=scopes), base)
    )
    figures = [
        CurveSpec(
            title=f"{title}: probes by size",
            y_label=y_label,
            axis="size",
            estimates=general,
            curves=[Curve("general", key), Curve("of one size each", key, estimates=specific)],
            bounds=share_bounds,
        )
        for title, (_, y_label, key) in (("Accuracy", _MAIN[0]), (_MAIN[1][0], _MAIN[1]))
    ]
    return (figures, list(specific.listed)) if specific.listed else ([], [])


def _natural(rows: ProbeRows, measures: Sequence[str]) -> ProbeRows:
    return rows.where(reading=("natural", None), measure=measures)


def _balanced(rows: ProbeRows) -> ProbeRows:
    return rows.where(**_MLP, reading=("balanced", None), measure=_RATES)
