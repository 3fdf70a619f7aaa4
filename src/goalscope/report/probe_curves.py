"""Curves of the cognitive map: by layer before and after the reasoning, by size and density, general and size-specific.

Source: behavioural and representational evaluation, Fig. 6-8, 15 and 16.
"""

import math
from collections.abc import Sequence

from goalscope.probing.probe import CLASSES
from goalscope.probing.scores import summarise
from goalscope.report.figures import Series, embed, lines
from goalscope.report.inside import (
    NOWHERE,
    READINGS,
    Index,
    Place,
    at_place,
    ceiling,
    counts_and_methods,
    keyed,
    layers_of,
    line,
    number_of,
    numbered,
    over_layers,
    place_name,
    places_of,
    sites_of,
)
from goalscope.report.parts import Figure, Section
from goalscope.report.words import DEFAULT_NETWORK
from goalscope.rows import Tag
from goalscope.stats import Grouped

INNER = "cell accuracy without padding and border"
PRECISION = "average precision"
LOCAL, AWAY = "localisation", "localisation distance"
_AXES = {INNER: "accuracy"}
_BANDS = "Bands are 95 % intervals over grids."
_MAIN: tuple[tuple[str, Tag, str], ...] = (
    (INNER, None, "Accuracy without padding and border"),
    *((PRECISION, name, f"Average precision of {name}") for name in ("wall", "agent", "goal")),
)
_COMPARED = (
    ("mlp", "none", "MLP"),
    ("percell", "none", "per-cell linear"),
    ("additive", "none", "additive linear"),
    ("position", "none", "position alone"),
    ("majority", "none", "majority class"),
    ("mlp", "untrained", f"MLP, {DEFAULT_NETWORK}"),
    ("mlp", "shuffled", "MLP, shuffled labels"),
)
_WHERE = ("agent", "goal")


def layer_section(rows: Index, title: str, own: str) -> list[Section]:
    """Return curves over the layers of each site, nothing where there is one layer only.

    Args:
        rows: scores of general probes of one agent.
        title: what the section is about.
        own: text that makes the section's anchor and figures its own.
    """
    places = places_of(rows)
    layers, sites = layers_of(places), sites_of(places)
    if len(layers) < 2:
        return []
    by = ("site", "head", "control", "class", "layer")
    wanted = rows.where(head=("mlp", "percell", "position"), control=("none", "untrained"))
    natural = _summary(wanted.where(reading=("natural", None), measure=(INNER, PRECISION)), by)
    rare = wanted.where(head="mlp", control="none", reading=("balanced", None), measure=("recall", "precision"))
    balanced = _summary(rare, by)
    found = keyed(natural, "site", "layer", "head", "control", "measure", "class")
    figures: list[Figure] = []
    for measure, name, heading in _MAIN:
        curves = [
            (label, (head, control, measure, name))
            for head, control, label in (
                ("mlp", "none", "MLP"),
                ("mlp", "untrained", DEFAULT_NETWORK),
                ("percell", "none", "per-cell"),
            )
        ]
        series = over_layers(found, sites, curves, fewest=2)
        if not series:
            continue
        flat = found.get((*NOWHERE, "position", "none", measure, name))
        if flat is not None:
            series += line("position alone", 6, (layers, [flat] * len(layers)))
        figures.append(_figure(series, f"{heading} by layer", "layer", measure, layers, f"cogl{own}-{len(figures)}"))
    found = keyed(balanced, *_key(by))
    for measure in ("recall", "precision"):
        for site in sites:
            series = [
                each
                for style, name in enumerate(CLASSES)
                for each in line(name, style, numbered(found, measure, site, "mlp", "none", name))
            ]
            if series:
                heading = f"{measure.capitalize()} by layer, {site}"
                figures.append(_figure(series, heading, "layer", measure, layers, f"cogl{own}-{len(figures)}"))
    if not figures:
        return []
    return [
        Section(
            anchor=f"cognitive-map-layers{own}",
            title=f"{title}: by layer",
            figures=tuple(figures),
            legend=f"{_BANDS} Sites: pre before the reasoning, post after it. Accuracy and average precision are "
            f"{READINGS['natural']}; recall and precision are those of the MLP, {READINGS['balanced']}.",
            folds=tuple(counts_and_methods([*natural, *balanced])),
        )
    ]


def size_section(rows: Index, base: Index, place: Place, title: str, own: str) -> list[Section]:
    """Return curves over size and density at one site and layer, and general beside size-specific probes.

    Args:
        rows: scores of all probes of one agent.
        base: those of general probes among them.
        place: site and layer.
        title, own: as in `layer_section`.
    """
    here = at_place(base, place)
    figures: list[Figure] = []
    counted: list[Grouped] = []
    for tag, axis in (("size", "grid size n (cells a side)"), ("density", "wall density d (share)")):
        values = {at for value in here.values(tag) if (at := number_of(value)) is not None}
        if len(values) > 1:
            more, listed = _by_tag(here, tag, axis, f"cogs{own}-{tag}")
            figures += more
            counted += listed
    more, listed = _by_scope(rows, base, place, f"cogz{own}")
    figures += more
    counted += listed
    if not figures:
        return []
    return [
        Section(
            anchor=f"cognitive-map-sizes{own}",
            title=f"{title}: by size and density",
            figures=tuple(figures),
            legend=f"{_BANDS} Read at {place_name(place)}. Recall and precision are those of the MLP, "
            f"{READINGS['balanced']}; all else is {READINGS['natural']}. A curve over size averages over all "
            "densities, a curve over density over all sizes.",
            folds=tuple(counts_and_methods(counted)),
        )
    ]


def _by_tag(here: Index, tag: str, axis: str, prefix: str) -> tuple[list[Figure], list[Grouped]]:
    by = ("head", "control", "class", tag)
    measures = (INNER, PRECISION, LOCAL, AWAY)
    natural = _summary(here.where(reading=("natural", None), measure=measures, control=_controls(), head=_heads()), by)
    rare = here.where(
        head="mlp", control="none", reading=("balanced", None), measure=("recall", "precision") if tag == "size" else ()
    )
    balanced = _summary(rare, by)
    found = keyed(natural, *_key(by))
    figures: list[Figure] = []

    def draw(series: Sequence[Series], heading: str, y_label: str, share: bool = True) -> None:
        if series:
            ticks = sorted({x for each in series for x in each.x})
            figures.append(_figure(series, heading, axis, y_label, ticks, f"{prefix}{len(figures)}", share=share))

    for measure, name, heading in _MAIN if tag == "size" else _MAIN[:2]:
        series = [
            each
            for style, (head, control, label) in enumerate(_COMPARED)
            for each in line(label, style, numbered(found, measure, head, control, name))
        ]
        draw(series, f"{heading} by {tag}", measure)
    if tag == "size":
        rates = keyed(balanced, *_key(by))
        for measure in ("recall", "precision"):
            series = [
                each
                for style, name in enumerate(CLASSES)
                for each in line(name, style, numbered(rates, measure, "mlp", "none", name))
            ]
            draw(series, f"{measure.capitalize()} by class and {tag}", measure)
        for measure, heading, y_label in (
            (LOCAL, "Agent and goal at their cells", "states"),
            (AWAY, "Distance from their cells", "Manhattan distance (cells)"),
        ):
            series = [
                each
                for style, (control, name) in enumerate(
                    (control, name) for control in ("none", "untrained") for name in _WHERE
                )
                for each in line(
                    f"{name}{'' if control == 'none' else f', {DEFAULT_NETWORK}'}",
                    style,
                    numbered(found, measure, "mlp", control, name),
                )
            ]
            draw(series, f"{heading} by {tag} (MLP)", y_label, share=measure == LOCAL)
    return figures, [*natural, *balanced]


def _by_scope(rows: Index, base: Index, place: Place, prefix: str) -> tuple[list[Figure], list[Grouped]]:
    """Return general probes beside those of one size each (Fig. 16)."""
    scopes = tuple(scope for scope in rows.values("scope") if scope != "general")
    if not scopes or place == NOWHERE or base is rows:
        return [], []
    own = {"head": "mlp", "control": "none", "reading": ("natural", None), "site": place[0], "layer": place[1]}
    measures = {"measure": (INNER, PRECISION)}
    by = ("class", "size")
    specific = _summary(rows.where(scope=scopes, **own, **measures), by)
    general = _summary(base.where(**own, **measures), by)
    if not specific:
        return [], []
    figures: list[Figure] = []
    for measure, name, heading in _MAIN[:2]:
        series = [
            each
            for style, (label, listed) in enumerate((("general", general), ("of one size each", specific)))
            for each in line(label, style, numbered(keyed(listed, *_key(by)), measure, name))
        ]
        ticks = sorted({x for each in series for x in each.x})
        if series:
            heading = f"{'Accuracy' if measure == INNER else heading}: probes by size"
            axis = "grid size n (cells a side)"
            figures.append(_figure(series, heading, axis, measure, ticks, f"{prefix}{len(figures)}"))
    return figures, specific


def _heads() -> tuple[str, ...]:
    return tuple(dict.fromkeys(head for head, _, _ in _COMPARED))


def _controls() -> tuple[str, ...]:
    return tuple(dict.fromkeys(control for _, control, _ in _COMPARED))


def _key(by: Sequence[str]) -> tuple[str, ...]:
    return ("measure", *by)


def _summary(rows: Index, by: Sequence[str]) -> list[Grouped]:
    return summarise(rows.rows, by=by) if len(rows) else []


def _figure(
    series: Sequence[Series],
    title: str,
    x_label: str,
    y_label: str,
    ticks: Sequence[float],
    prefix: str,
    *,
    share: bool = True,
) -> Figure:
    svg = lines(
        series,
        title=title,
        x_label=x_label,
        y_label=f"{_AXES.get(y_label, y_label)}{' (share)' if share else ''}",
        bounds=(0.0, _top(series)) if share else ceiling(series),
        ticks=ticks,
    )
    return Figure(svg=embed(svg, prefix, title))


def _top(series: Sequence[Series]) -> float:
    """Return the end of an axis of shares: 1, or less where all lines and bands lie far below it."""
    ends = [end for each in series for one in each.estimates for end in (one.value, one.high) if not math.isnan(end)]
    return next((top for top in (0.1, 0.2, 0.5) if max(ends, default=1.0) <= top), 1.0)
