"""The decoded distance to the goal on a page: errors beside baselines and controls, by layer and by distance.

Source: behavioural and representational evaluation, Appendix E.3, Table 4.
"""

from collections.abc import Sequence

from goalscope.probing.distance import DEVIATION, ERROR, SQUARED, summarise_distance
from goalscope.probing.heads import NUMBER_HEADS
from goalscope.report.figures import Series, embed, lines
from goalscope.report.inside import (
    CONTROLS,
    NOWHERE,
    Found,
    Index,
    Place,
    ceiling,
    counts_and_methods,
    keyed,
    layers_of,
    line,
    main_place,
    numbered,
    of_agents,
    over_layers,
    paired,
    place_name,
    places_of,
    probe_name,
    sites_of,
    table_of,
    what_is_undefined,
)
from goalscope.report.parts import Figure, Fold, Section, Table
from goalscope.report.words import DEFAULT_NETWORK, READ_RULE, told
from goalscope.rows import Rows, Tag
from goalscope.stats import Grouped, estimate_rows

_MANHATTAN = {
    "none": "line on the Manhattan distance, decoded map",
    "true map": "line on the Manhattan distance, true map",
}
_BESIDE = (
    ("untrained", f"the same on the {DEFAULT_NETWORK}"),
    ("shuffled", "the same on shuffled labels"),
    ("mean", "the mean of the training grids"),
    ("true map", "the line on the Manhattan distance, true map"),
    ("decoded map", "the line on the Manhattan distance, decoded map"),
)
_FEWEST = 5  # grids behind a point of a curve over distances
_TEXT = (
    "Length of the optimal path from the current state, read from the activations of one moment. The Manhattan "
    "distance between agent and goal is most of it: a probe says something of paths where its error is smaller than "
    "that of a line on this distance. R² is one less the mean squared error over the mean squared deviation, each "
    "grid weighing alike; it has no differences by grid. Mean and lines are fitted on the training grids, every grid "
    "weighing alike, too."
)


def distance_sections(rows: Rows) -> list[Section]:
    """Return the section on the decoded distance of each agent; nothing where there are no rows of it.

    Args:
        rows: rows about what is inside of a model, see `goalscope.report.maps.split_inside`.
    """
    kept = rows.where(rows.among("measure", (ERROR, SQUARED, DEVIATION)))
    return [_section(mine, agent, own) for own, agent, mine in of_agents(kept)]


def _section(rows: Index, agent: str, own: str) -> Section:
    listed = summarise_distance(rows.rows, by=("site", "layer", "head", "control"))
    found = keyed(listed, "site", "layer", "head", "control", "measure")
    places, main = places_of(rows), main_place(rows)
    near = [place for place in places if place[1] == main[1]]
    whole = rows.where(measure=ERROR, distance=None)
    differences = [one for place in near for one in _differences(whole, place)]
    less = keyed(differences, "site", "layer", "head", "measure")
    said = [
        (
            f"{place_name(place)}: {probe_name(head)}",
            told(
                [(label, less.get((*place, head, f"{ERROR} less {name}"))) for name, label in _BESIDE],
                more="larger error than",
                less="smaller error than",
                none="no difference was shown to",
                unknown="it cannot be said beside",
            ),
        )
        for place in near
        for head in NUMBER_HEADS
    ]
    facts = tuple((name, text) for name, text in said if text)
    shown = [(str(key[4]), _label(key), estimate) for key, estimate in found.items()]
    more = [place for place in places if place not in near]
    figures, curve = _by_distance(rows, near, own)
    every = _table("All layers", found, places)
    return Section(
        anchor=f"distance-inside{own}",
        title=f"Decoded distance to the goal{f' of {agent}' if agent else ''}",
        paragraphs=(_TEXT, *([f"In words: differences in absolute error, steps. {READ_RULE}"] if facts else [])),
        facts=facts,
        tables=(
            *_table("Distance (Table 4)", found, near),
            *table_of(
                "Absolute error less that of its baselines and controls, paired by grid; below 0 the probe is better: "
                "mean and 95 % interval over grids",
                "probe",
                [(f"less {label}", "steps") for _, label in _BESIDE],
                [
                    (
                        f"{place_name(place)}: {probe_name(head)}",
                        [less.get((*place, head, f"{ERROR} less {name}")) for name, _ in _BESIDE],
                    )
                    for place in near
                    for head in NUMBER_HEADS
                ],
                grids=True,
            ),
        ),
        figures=(*_by_layer(found, places, own), *figures),
        legend="Bands are 95 % intervals over grids; a lower panel counts the grids behind each point. Distances that "
        f"fewer than {_FEWEST} grids reach are not drawn; an axis ends at twice its greatest value.",
        folds=(
            *([Fold(title="All layers", tables=tuple(every))] if more else []),
            *what_is_undefined(shown),
            *counts_and_methods([*listed, *differences, *curve]),
        ),
    )


def _table(caption: str, found: Found, places: Sequence[Place]) -> list[Table]:
    keys = [key[:4] for key in found if key[:2] == NOWHERE or key[:2] in places]
    ordered = sorted(dict.fromkeys(keys), key=lambda key: _rank(key, places))
    return table_of(
        f"{caption}: mean and 95 % interval over grids",
        "read from",
        [("absolute error", "steps"), ("R²", "share of the variance")],
        [(_label(key), [found.get((*key, ERROR)), found.get((*key, "R^2"))]) for key in ordered],
        grids=True,
    )


def _rank(key: tuple[Tag, ...], places: Sequence[Place]) -> tuple[int, int, str, int, str]:
    """Put places in their order, within each the probes with their controls first, then what reads no activations."""
    site, layer, head, control = key
    controls = ["none", *CONTROLS]
    at = places.index((site, layer)) if (site, layer) in places else len(places)
    kind = NUMBER_HEADS.index(str(head)) if head in NUMBER_HEADS else len(NUMBER_HEADS)
    return at, kind, str(head), controls.index(str(control)) if control in controls else len(controls), str(control)


def _label(key: tuple[Tag, ...]) -> str:
    site, layer, head, control = key[:4]
    place = "" if site is None else f"{place_name((site, layer))}: "
    if head == "manhattan":
        return place + _MANHATTAN.get(str(control), f"line on the Manhattan distance, {control}")
    return place + probe_name(head, control)


def _differences(whole: Index, place: Place) -> list[Grouped]:
    here = whole.where(site=place[0], layer=place[1])
    nowhere = whole.where(site=None, layer=None)
    parts: list[Rows] = []
    for head in NUMBER_HEADS:
        own = here.where(head=head, control="none")
        for name, other in (
            ("untrained", here.where(head=head, control="untrained")),
            ("shuffled", here.where(head=head, control="shuffled")),
            ("mean", nowhere.where(head="mean")),
            ("true map", nowhere.where(head="manhattan", control="true map")),
            ("decoded map", here.where(head="manhattan", control="none")),
        ):
            parts += paired(own, other, name, ("site", "layer"))
    return estimate_rows(Rows.concatenate(parts), by=("site", "layer", "head"))


def _by_layer(found: Found, places: Sequence[Place], own: str) -> list[Figure]:
    layers, sites = layers_of(places), sites_of(places)
    if len(layers) < 2:
        return []
    curves = [
        ("MLP", ("mlp", "none", ERROR)),
        ("linear", ("linear", "none", ERROR)),
        (f"MLP, {DEFAULT_NETWORK}", ("mlp", "untrained", ERROR)),
    ]
    series = over_layers(found, sites, curves)
    for style, (head, control, label) in enumerate(
        (("manhattan", "true map", "Manhattan, true map"), ("mean", "none", "mean")), start=len(sites) * len(curves)
    ):
        flat = found.get((None, None, head, control, ERROR))
        if flat is not None:
            series += line(label, style, (layers, [flat] * len(layers)))
    if not series:
        return []
    title = "Error of the decoded distance by layer"
    svg = lines(
        series, title=title, x_label="layer", y_label="absolute error (steps)", bounds=ceiling(series), ticks=layers
    )
    return [Figure(svg=embed(svg, f"dlayer{own}", title))]


def _by_distance(rows: Index, places: Sequence[Place], own: str) -> tuple[list[Figure], list[Grouped]]:
    by = ("site", "layer", "head", "control", "distance")
    listed = [one for one in summarise_distance(rows.rows, by=by) if one.key["distance"] is not None]
    found = keyed((one for one in listed if one.estimate.clusters >= _FEWEST), *by)
    figures: list[Figure] = []
    drawn: set[tuple[Tag, ...]] = set()
    for place in places:
        series: list[Series] = []
        for style, (where, head, control, label) in enumerate(
            (
                (place, "linear", "none", "linear"),
                (place, "mlp", "none", "MLP"),
                (place, "mlp", "untrained", f"MLP, {DEFAULT_NETWORK}"),
                (place, "manhattan", "none", "Manhattan on the decoded map"),
                (NOWHERE, "manhattan", "true map", "Manhattan on the true map"),
                (NOWHERE, "mean", "none", "mean"),
            )
        ):
            series += line(label, style, numbered(found, *where, head, control))
            drawn.add((*where, head, control))
        if series:
            title = f"Error by distance, {place_name(place)}"
            axis, name = "distance to the goal (steps)", "absolute error (steps)"
            svg = lines(series, title=title, x_label=axis, y_label=name, bounds=ceiling(series), counts=True)
            figures.append(Figure(svg=embed(svg, f"distance{own}-{len(figures)}", title)))
    return figures, [one for one in listed if tuple(one.key[name] for name in by[:4]) in drawn]
