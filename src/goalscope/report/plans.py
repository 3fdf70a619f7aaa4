"""Decoded plans on a page: curves with controls and baselines, differences, lengths.

Source: behavioural and representational evaluation, Fig. 10, Table 5.
"""

import math
from collections.abc import Sequence

from goalscope.probing.plan_baselines import guess
from goalscope.probing.plan_scores import LENGTHS, PREFIX, summarise_plans
from goalscope.report.figures import Series, embed, lines
from goalscope.report.inside import (
    CONTROLS,
    NOWHERE,
    Found,
    Index,
    Place,
    counts_and_methods,
    keyed,
    layers_of,
    line,
    main_place,
    number_of,
    numbered,
    of_agents,
    over_layers,
    paired,
    place_name,
    places_of,
    sites_of,
    table_of,
    what_is_undefined,
)
from goalscope.report.parts import Figure, Fold, Section, Table
from goalscope.report.words import DEFAULT_NETWORK, READ_RULE, told
from goalscope.rows import Rows, Tag
from goalscope.stats import Estimate, Grouped

_KEY = ("site", "layer", "head", "control")
_BESIDE = (
    ("shuffled", "plans of other grids"),
    ("untrained", DEFAULT_NETWORK),
    ("repeat", "first action repeated"),
    ("continuation", "first action continued"),
)
_BASELINES = (
    ("commonest", "commonest plan"),
    ("planner", "planner on decoded map"),
    ("text", "named in the text"),
)
_NAMES = {
    "commonest": "commonest plan of the training grids",
    "marginal": "drawn place by place",
    "repeat executed": "executed first action repeated",
    "planner": "planner (ties at random)",
    "planner, best ties": "planner (ties at best)",
    "text": "actions named in the text",
}
_OF_CONTROLS = {**CONTROLS, "shuffled": "plans of other grids", **dict(_BESIDE[2:])}
_SHOWN = (1, 2, 3, 4, 5, 10)
_SAID = (1, 3, 5)
_WIDTH = 2  # layers of the decoder that stands beside its controls
_TEXT = (
    "A decoder reads the next actions out of the activations of one moment, all places at once. Prefix accuracy at N: "
    "the first N tokens are all right; a plan that ends sooner goes on with the end token. What counts is the distance "
    f"to what knows no plan: a {DEFAULT_NETWORK}, the plans of other grids, what follows from the first action alone, "
    "a planner on the map that is decoded at the same place, and after the reasoning the actions that the text names.",
    "What a decoder finds is what can be computed from the activations, not yet what the model does with it.",
)
_LONG = "plans with at least N actions (the authors' subset)"


def plan_sections(rows: Rows) -> list[Section]:
    """Return the section on the decoded plans of each agent; nothing where there are no rows of them.

    Args:
        rows: rows about what is inside of a model, see `goalscope.report.maps.split_inside`.
    """
    kept = rows.where(rows.among("measure", (PREFIX, *LENGTHS)))
    return [_section(mine, agent, own) for own, agent, mine in of_agents(kept)]


def _section(rows: Index, agent: str, own: str) -> Section:
    numbers = sorted(int(at) for value in rows.values("N") if (at := number_of(value)) is not None)
    horizon = max(numbers, default=1)
    prefixes = rows.where(measure=PREFIX)
    listed = summarise_plans(prefixes.rows, by=(*_KEY, "plans", "N"), horizon=horizon)
    found = {
        plans: keyed((one for one in listed if one.key["plans"] == plans), *_KEY, "N") for plans in ("all", "long")
    }
    lengths = rows.where(measure=LENGTHS)
    spans = summarise_plans(lengths.rows, by=_KEY, horizon=horizon) if len(lengths) else []
    about = keyed(spans, *_KEY, "measure")
    places, main = places_of(rows), main_place(rows)
    near = [place for place in places if place[1] == main[1]]
    # Another layer may have been read by one decoder: what is compared is the one of the main place.
    head = _compared(prefixes, main)
    differences = [one for place in near for one in _differences(prefixes.where(plans="all"), place, head, horizon)]
    less = keyed(differences, "site", "layer", "measure", "N")
    shown = [number for number in _SHOWN if number in numbers]
    facts = _in_words(less, near)
    every = [(f"Prefix accuracy, {label}", found[plans]) for plans, label in (("all", "all plans"), ("long", _LONG))]
    spread = _length_table("Length of plans", about, places)
    undefined = [
        *((f"{PREFIX}, N = {key[4]}", _label(key), one) for key, one in found["all"].items()),
        *((str(key[4]), _label(key), one) for key, one in about.items()),
    ]
    return Section(
        anchor=f"plans{own}",
        title=f"Decoded plans{f' of {agent}' if agent else ''}",
        paragraphs=(
            *_TEXT,
            *([f"In words: differences in prefix accuracy of the {_layers(head)}. {READ_RULE}"] if facts else []),
        ),
        facts=facts,
        tables=(
            *_prefix_table("Prefix accuracy, all plans", _front(found["all"], head), near, shown),
            *_less_table(less, near, head, shown),
            *_length_table("Length of plans (Table 5)", _front(about, head), near),
        ),
        figures=(*_figures(found["all"], near, head, horizon, own), *_by_layer(found["all"], places, head, shown, own)),
        legend=f"Bands are 95 % intervals over grids. Beside controls: the {_layers(head)}. First action continued: as "
        "the training plans with its first action most often go on.",
        folds=(
            *(
                Fold(title=f"{name}: all layers and N", tables=tuple(tables))
                for name, each in every
                if (tables := _prefix_table(name, each, places, numbers))
            ),
            *([Fold(title="Length of plans: all decoders and controls", tables=tuple(spread))] if spread else []),
            *what_is_undefined(undefined, _why),
            *counts_and_methods([*listed, *spans, *differences]),
        ),
    )


def _why(measure: str) -> str:
    return "no grid has a plan that is known so far" if measure.startswith(PREFIX) else "no length is predicted"


def _compared(rows: Index, place: Place) -> str:
    """Return the decoder that stands beside its controls: that of two layers, or the only one."""
    here = _decoders(rows.where(site=place[0], layer=place[1], control="none").values("head"))
    return f"decoder-{_WIDTH}" if f"decoder-{_WIDTH}" in here or not here else here[0]


def _differences(prefixes: Index, place: Place, head: str, horizon: int) -> list[Grouped]:
    """Return how much more of the plans one decoder says than its controls and the baselines, grid by grid."""
    here, nowhere = prefixes.where(site=place[0], layer=place[1]), prefixes.where(site=None, layer=None)
    own = here.where(head=head, control="none")
    others = [(control, here.where(head=head, control=control)) for control, _ in _BESIDE]
    for name, _ in _BASELINES:
        if (name, place[0]) != ("text", "pre"):  # what is written later is no baseline of what is read before
            at = here.where(head=name, control="none")
            others.append((name, at if len(at) else nowhere.where(head=name, control="none")))
    parts: list[Rows] = []
    if place[0] == "post":
        before = prefixes.where(site="pre", layer=place[1], head=head, control="none")
        parts += paired(own, before, "pre", ("plans", "N"))
    for name, other in others:
        parts += paired(own, other, name, ("site", "layer", "plans", "N"))
    return summarise_plans(Rows.concatenate(parts), by=("site", "layer", "N"), horizon=horizon) if parts else []


def _rivals() -> list[tuple[str, str]]:
    return [*_BESIDE, *_BASELINES, ("pre", "the same before the reasoning")]


def _in_words(less: Found, places: Sequence[Place]) -> tuple[tuple[str, str], ...]:
    said = [
        (
            f"{place_name(place)} less {label}",
            told([(f"N = {number}", less.get((*place, f"{PREFIX} less {name}", number))) for number in _SAID]),
        )
        for place in places
        for name, label in _rivals()
        if name in ("untrained", "shuffled", "continuation", "planner", "pre")
    ]
    return tuple((name, text) for name, text in said if text)


def _front(found: Found, head: str) -> Found:
    """Return decoders alone, of one of them its controls too, and the baselines."""
    return {
        key: one
        for key, one in found.items()
        if key[3] in (None, "none", "true map") or (key[2] == head and key[3] in ("untrained", "shuffled"))
    }


def _less_table(less: Found, places: Sequence[Place], head: str, numbers: Sequence[int]) -> list[Table]:
    return table_of(
        f"Prefix accuracy of the {_layers(head)} less that of controls and baselines, paired by grid: mean and 95 % "
        "interval over grids",
        "read from, less",
        [(f"N = {number}", "share") for number in numbers],
        [
            (
                f"{place_name(place)}: less {label}",
                [less.get((*place, f"{PREFIX} less {name}", number)) for number in numbers],
            )
            for place in places
            for name, label in _rivals()
        ],
        grids=True,
    )


def _prefix_table(caption: str, found: Found, places: Sequence[Place], numbers: Sequence[int]) -> list[Table]:
    columns = [(f"N = {number}", "share") for number in numbers]
    return _lines(caption, found, places, columns, list(numbers))


def _length_table(caption: str, found: Found, places: Sequence[Place]) -> list[Table]:
    units = {str(key[4]): one.unit for key, one in found.items()}
    there = [name for name in LENGTHS if name in units]
    columns = [(f"{name} (bias)" if name == "length error" else name, units[name]) for name in there]
    return _lines(caption, found, places, columns, there)


def _lines(
    caption: str, found: Found, places: Sequence[Place], columns: Sequence[tuple[str, str]], last: Sequence[Tag]
) -> list[Table]:
    keys = [key[:4] for key in found if key[:2] == NOWHERE or key[:2] in places]
    ordered = sorted(dict.fromkeys(keys), key=lambda key: _rank(key, places))
    return table_of(
        f"{caption}: mean and 95 % interval over grids",
        "read from",
        columns,
        [(_label(key), [found.get((*key, name)) for name in last]) for key in ordered],
        grids=True,
    )


def _figures(found: Found, places: Sequence[Place], head: str, horizon: int, own: str) -> list[Figure]:
    figures: list[Figure] = []
    numbers = tuple(float(number) for number in range(1, horizon + 1))
    for place in places:
        heads = _decoders([key[2] for key in found if key[:2] == place and key[3] == "none"])
        sizes = [
            each
            for style, one in enumerate(heads)
            for each in line(_layers(one), style, numbered(found, *place, one, "none"))
        ]
        if sizes:
            chance = tuple(_exact(guess(number)) for number in range(1, horizon + 1))
            sizes.append(Series(label="guess, 0.25^N", style=6, x=numbers, estimates=chance))
        for title, series in (
            (f"Plans read at {place_name(place)}", sizes),
            (f"Plans read at {place_name(place)}, beside controls", _beside(found, place, head)),
        ):
            if series:
                svg = lines(
                    series,
                    title=title,
                    x_label="N (first tokens)",
                    y_label="prefix accuracy (share)",
                    bounds=(0.0, 1.0),
                    ticks=numbers,
                )
                figures.append(Figure(svg=embed(svg, f"plan{own}-{len(figures)}", title)))
    return figures


def _beside(found: Found, place: Place, head: str) -> list[Series]:
    """Return the curve of one decoder with those of its controls and of the baselines."""
    series = line(_layers(head), 0, numbered(found, *place, head, "none"))
    if not series:
        return []
    for style, (control, label) in enumerate(_BESIDE, start=1):
        series += line(label, style, numbered(found, *place, head, control))
    for style, (name, label) in enumerate(_BASELINES, start=1 + len(_BESIDE)):
        if (name, place[0]) == ("text", "pre"):
            continue
        mine = line(label, style, numbered(found, *place, name, "none"))
        series += mine or line(label, style, numbered(found, *NOWHERE, name, "none"))
    return series


def _by_layer(found: Found, places: Sequence[Place], head: str, numbers: Sequence[int], own: str) -> list[Figure]:
    """Return the accuracy of the first tokens over the layers of each site, beside the default-initialised network."""
    layers = layers_of(places)
    if len(layers) < 2:
        return []
    figures: list[Figure] = []
    for number in (number for number in _SAID[:2] if number in numbers):
        curves = [
            (_layers(head), (head, "none", number)),
            (DEFAULT_NETWORK, (head, "untrained", number)),
            ("planner", ("planner", "none", number)),
        ]
        series = over_layers(found, sites_of(places), curves)
        if series:
            title = f"First {number} tokens by layer" if number > 1 else "First token by layer"
            svg = lines(
                series,
                title=title,
                x_label="layer",
                y_label=f"prefix accuracy, N = {number} (share)",
                bounds=(0.0, 1.0),
                ticks=layers,
            )
            figures.append(Figure(svg=embed(svg, f"planl{own}-{number}", title)))
    return figures


def _decoders(heads: Sequence[Tag]) -> list[str]:
    known = {str(head) for head in heads if str(head).startswith("decoder-")}
    return sorted(known, key=lambda head: (len(head), head))


def _layers(head: str) -> str:
    number = head.removeprefix("decoder-")
    return f"decoder of {number} layer{'' if number == '1' else 's'}"


def _label(key: tuple[Tag, ...]) -> str:
    site, layer, head, control = key[:4]
    name = _layers(str(head)) if str(head).startswith("decoder-") else _NAMES.get(str(head), str(head))
    place = "" if site is None else f"{place_name((site, layer))}: "
    told_of = "" if control in (None, "none") else f", {_OF_CONTROLS.get(str(control), str(control))}"
    return f"{place}{name}{told_of}"


def _rank(key: tuple[Tag, ...], places: Sequence[Place]) -> tuple[int, bool, str, int, str]:
    site, layer, head, control = key
    controls = ["none", *_OF_CONTROLS]
    at = places.index((site, layer)) if (site, layer) in places else len(places)
    order = controls.index(str(control)) if control in controls else len(controls)
    return at, not str(head).startswith("decoder-"), str(head), order, str(control)


def _exact(value: float) -> Estimate:
    return Estimate(value=value, low=math.nan, high=math.nan, n=0, clusters=0, method="closed form", unit="share")
