"""Decoded plans and distances on a page: curves with controls and baselines, lengths, errors.

Source: behavioural and representational evaluation, Fig. 10, Tables 4 and 5.
"""

import math
from collections.abc import Sequence

import numpy as np

from goalscope.report.figures import Series, embed, lines
from goalscope.report.parts import Cell, Figure, Fold, Heading, Row, Section, Table
from goalscope.report.sections import numbers_table
from goalscope.represent.distance import DEVIATION, ERROR, SQUARED, summarise_distance
from goalscope.represent.paired import chosen
from goalscope.represent.plan_baselines import guess
from goalscope.represent.plan_scores import LENGTHS, PREFIX, summarise_plans
from goalscope.represent.record import SITES
from goalscope.rows import Rows, Tag
from goalscope.stats import Estimate, Grouped

_BY = ("agent", "site", "layer", "head", "control")
_BESIDE = (
    ("shuffled", "plans of other grids"),
    ("untrained", "untrained model"),
    ("repeat", "its first action repeated"),
    ("continuation", "commonest continuation of its first action"),
)
_BASELINES = (
    ("commonest", "none", "commonest plan"),
    ("planner", "none", "planner on the decoded map"),
    ("text", "none", "actions named in the text"),
)
_NAMES = {
    "commonest": "commonest plan of the training grids",
    "marginal": "drawn place by place",
    "repeat executed": "executed first action repeated",
    "planner": "planner (ties at random)",
    "planner, best ties": "planner (ties at best)",
    "text": "actions named in the text",
    "mean": "mean of the training grids",
    "manhattan": "line on the Manhattan distance",
    "linear": "linear probe",
    "mlp": "MLP probe",
}
_PLAN_TEXT = (
    "A decoder reads the next actions out of the activations of one moment, all places at once. Prefix accuracy at N: "
    "the first N tokens are all right; a plan that ends sooner goes on with the end token. What counts is the distance "
    "to the other curves: an untrained model, the plans of other grids, what follows from the first action alone, a "
    "planner on the map that is decoded at the same place, and for activations after the reasoning the actions that "
    "the text names.",
    "What a decoder finds is what can be computed from the activations, not yet what the model does with it.",
)
_DISTANCE_TEXT = (
    "Length of the optimal path from the current state, read from the activations. R² is one less the mean squared "
    "error over the mean squared deviation, each grid weighing alike. The Manhattan distance between agent and goal is "
    "most of it: a probe says something of paths where it is better than the line on that distance."
)


def plan_sections(rows: Rows) -> list[Section]:
    """Return the sections on decoded plans and on the distance; nothing where there are no rows of them.

    Args:
        rows: rows about what is inside of a model, see `goalscope.report.maps.split_inside`.
    """
    return [*_plans(rows), *_distances(rows)]


def _plans(rows: Rows) -> list[Section]:
    rows = rows.where(np.isin(rows.measure.astype(str), (PREFIX, *LENGTHS)))
    if not len(rows):
        return []
    horizon = max((int(str(one)) for one in _values(rows, "N")), default=1)
    curves = summarise_plans(chosen(rows, measure=PREFIX), by=(*_BY, "plans", "N"), horizon=horizon)
    prefixes = [one for one in curves if one.key["plans"] == "all"]
    figures: list[Figure] = []
    places = _places(prefixes)
    several = len({agent for agent, _, _ in places}) > 1
    for agent, site, layer in places:
        here = f"{f'{agent}, ' if several else ''}site {site}, layer {layer}"
        mine = [one for one in prefixes if one.key["agent"] == agent]
        for kind, series in (("size", _sizes(mine, site, layer, horizon)), ("controls", _beside(mine, site, layer))):
            if not series:
                continue
            title = f"Plans read from {here}" + ("" if kind == "size" else ", beside controls")
            svg = lines(
                series,
                title=title,
                x_label="N (first tokens)",
                y_label="prefix accuracy (share)",
                bounds=(0.0, 1.0),
                ticks=tuple(range(1, horizon + 1)),
            )
            prefix = f"plan{len(figures)}"
            figures.append(Figure(svg=embed(svg, prefix, title)))
    lengths = rows.where(np.isin(rows.measure.astype(str), LENGTHS))
    found = summarise_plans(lengths, by=_BY, horizon=horizon) if len(lengths) else []
    subset = [one for one in curves if one.key["plans"] == "long"]
    counted = [part for part in ([*prefixes, *subset], found) if part]
    return [
        Section(
            anchor="plans",
            title="Decoded plans",
            paragraphs=_PLAN_TEXT,
            tables=tuple(
                table
                for table in (
                    _prefix_table(prefixes, "Prefix accuracy, all plans", horizon),
                    _table(found, LENGTHS, "Length of plans (Table 5)"),
                )
                if table.rows
            ),
            figures=tuple(figures),
            legend="Bands are 95 % intervals over grids. Beside controls: the decoder of two layers, or the only one.",
            folds=(
                Fold(
                    title="Plans with at least N actions (the authors' subset)",
                    tables=(_prefix_table(subset, "Prefix accuracy, plans with at least N actions", horizon),),
                ),
                Fold(
                    title=f"Counts and methods ({sum(map(len, counted))} estimates)",
                    plain=tuple(map(numbers_table, counted)),
                ),
            ),
        )
    ]


def _sizes(found: Sequence[Grouped], site: Tag, layer: Tag, horizon: int) -> list[Series]:
    """Return the curves of Fig. 10: decoders by their number of layers, and guessing."""
    series = []
    for style, head in enumerate(_decoders(found)):
        line = _series(found, f"{_layers(head)}", style, head=head, control="none", site=site, layer=layer)
        series += [line] if line else []
    if not series:
        return []
    numbers = tuple(float(number) for number in range(1, horizon + 1))
    chance = tuple(_exact(guess(number)) for number in range(1, horizon + 1))
    return [*series, Series(label="guess, 0.25^N", style=6, x=numbers, estimates=chance)]


def _beside(found: Sequence[Grouped], site: Tag, layer: Tag) -> list[Series]:
    """Return the curve of one decoder with those of its controls and of the baselines."""
    heads = [
        head
        for head in _decoders(found)
        if _series(found, "", 0, head=head, control="none", site=site, layer=layer) is not None
    ]
    if not heads:
        return []
    head = "decoder-2" if "decoder-2" in heads else heads[0]
    listed = [_series(found, _layers(head), 0, head=head, control="none", site=site, layer=layer)]
    for style, (control, label) in enumerate(_BESIDE, start=1):
        listed.append(_series(found, label, style, head=head, control=control, site=site, layer=layer))
    for style, (name, control, label) in enumerate(_BASELINES, start=1 + len(_BESIDE)):
        if name == "text" and site == "pre":
            continue  # what is written later is no baseline of what is read before
        own = _series(found, label, style, head=name, control=control, site=site, layer=layer)
        listed.append(own or _series(found, label, style, head=name, control=control, site=None, layer=None))
    return [line for line in listed if line]


def _series(found: Sequence[Grouped], label: str, style: int, **key: Tag) -> Series | None:
    points = [
        (float(str(one.key["N"])), one.estimate)
        for one in found
        if all(one.key[name] == wanted for name, wanted in key.items()) and not math.isnan(one.estimate.value)
    ]
    if not points:
        return None
    numbers, estimates = zip(*points, strict=True)
    return Series(label=label, style=style, x=numbers, estimates=estimates)


def _prefix_table(found: Sequence[Grouped], caption: str, horizon: int) -> Table:
    names = tuple(f"N = {number}" for number in range(1, horizon + 1))
    return _lines([(one, f"N = {one.key['N']}") for one in found], names, dict.fromkeys(names, "share"), caption)


def _table(found: Sequence[Grouped], measures: Sequence[str], caption: str) -> Table:
    units = {str(one.key["measure"]): one.estimate.unit for one in found}
    there = [name for name in measures if name in units]
    return _lines([(one, str(one.key["measure"])) for one in found], there, units, caption)


def _lines(found: Sequence[tuple[Grouped, str]], names: Sequence[str], units: dict[str, str], caption: str) -> Table:
    table: dict[tuple[Tag, ...], dict[str, Estimate]] = {}
    for one, name in found:
        table.setdefault(tuple(one.key[tag] for tag in _BY), {})[name] = one.estimate
    several = len({key[0] for key in table}) > 1
    rows = []
    for key, cells in sorted(table.items(), key=lambda item: _rank(item[0])):
        label = _label(key)
        rows.append(
            Row(
                label=f"{key[0]}, {label}" if several else label,
                cells=tuple(Cell.of(cells.get(name)) for name in names),
            )
        )
    headings = (Heading(text="read from"), *(Heading(text=name, unit=units[name]) for name in names))
    return Table(caption=f"{caption}: mean and 95 % interval over grids", headings=headings, rows=tuple(rows))


def _distances(rows: Rows) -> list[Section]:
    rows = rows.where(np.isin(rows.measure.astype(str), (ERROR, SQUARED, DEVIATION)))
    if not len(rows):
        return []
    found = summarise_distance(_with_agent(rows), by=_BY)
    curve = summarise_distance(_with_agent(rows), by=(*_BY, "distance"))
    figures: list[Figure] = []
    for agent, site, layer in _places(curve):
        series = []
        for style, (head, control, label) in enumerate(
            (
                ("linear", "none", "linear"),
                ("mlp", "none", "MLP"),
                ("mlp", "untrained", "MLP, untrained model"),
                ("manhattan", "none", "Manhattan on the decoded map"),
                ("manhattan", "true map", "Manhattan on the true map"),
                ("mean", "none", "mean"),
            )
        ):
            for place in ((site, layer), (None, None)):
                points = [
                    (float(str(one.key["distance"])), one.estimate)
                    for one in curve
                    if tuple(one.key[tag] for tag in _BY) == (agent, *place, head, control)
                ]
                if points:
                    numbers, estimates = zip(*points, strict=True)
                    series.append(Series(label=label, style=style, x=numbers, estimates=estimates))
                    break
        title = f"Error by distance, site {site}, layer {layer}"
        svg = lines(
            series, title=title, x_label="distance to the goal (steps)", y_label="absolute error (steps)", counts=True
        )
        figures.append(Figure(svg=embed(svg, f"distance{len(figures)}", title)))
    return [
        Section(
            anchor="distance-inside",
            title="Decoded distance to the goal",
            paragraphs=(_DISTANCE_TEXT,),
            tables=(_table(found, (ERROR, "R^2"), "Distance (Table 4)"),),
            figures=tuple(figures),
            legend="Bands are 95 % intervals over grids; the lower panel counts the grids behind each point.",
            folds=(Fold(title=f"Counts and methods ({len(found)} estimates)", plain=(numbers_table(found),)),),
        )
    ]


def _with_agent(rows: Rows) -> Rows:
    """Return rows that all have the tags of `_BY`."""
    missing = {name: np.full(len(rows), None, dtype=object) for name in _BY if name not in rows.tags}
    if not missing:
        return rows
    fixed = {name: column for name, column in rows.columns().items() if name not in rows.tags}
    return Rows(**fixed, tags={**rows.tags, **missing})


def _values(rows: Rows, tag: str) -> list[Tag]:
    return [value for value in dict.fromkeys(rows.tags[tag].tolist()) if value is not None] if tag in rows.tags else []


def _decoders(found: Sequence[Grouped]) -> list[str]:
    heads = {str(one.key["head"]) for one in found if str(one.key["head"]).startswith("decoder-")}
    return sorted(heads, key=lambda head: (len(head), head))


def _places(found: Sequence[Grouped]) -> list[tuple[Tag, Tag, Tag]]:
    """Return agent, site and layer of what is read from activations, in the order of the sites."""
    order: dict[str, int] = {name: at for at, name in enumerate(SITES)}
    places = dict.fromkeys((one.key["agent"], one.key["site"], one.key["layer"]) for one in found)
    return sorted(
        (place for place in places if place[1] is not None),
        key=lambda place: (str(place[0]), order.get(str(place[1]), len(order)), float(str(place[2] or 0))),
    )


def _layers(head: str) -> str:
    number = head.removeprefix("decoder-")
    return f"decoder of {number} layer{'' if number == '1' else 's'}"


def _label(key: tuple[Tag, ...]) -> str:
    _, site, layer, head, control = key
    name = _layers(str(head)) if str(head).startswith("decoder-") else _NAMES.get(str(head), str(head))
    place = "" if site is None else f"{site}, layer {layer}: "
    return f"{place}{name}" + ("" if control == "none" else f", {control}")


def _rank(key: tuple[Tag, ...]) -> tuple[str, bool, str, float, str, str, str]:
    agent, site, layer, head, control = key
    return str(agent), site is None, str(site), float(str(layer or 0)), str(head), f"{control != 'none'}", str(control)


def _exact(value: float) -> Estimate:
    return Estimate(value=value, low=math.nan, high=math.nan, n=0, clusters=0, method="closed form", unit="share")
