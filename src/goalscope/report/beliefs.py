"""Actions against decoded beliefs on a page, each share beside the same share with shuffled beliefs.

Source: behavioural and representational evaluation, section 5.2, Table 2 and Figure 9.
"""

from collections.abc import Sequence

from goalscope.probing import beliefs as names
from goalscope.probing.heads import CELL_HEADS
from goalscope.report.figures import embed, lines
from goalscope.report.inside import (
    READINGS,
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
    place_name,
    places_of,
    probe_name,
    sites_of,
    table_of,
    what_is_undefined,
)
from goalscope.report.parts import Cell, Figure, Fold, Heading, Row, Section, Table, number
from goalscope.report.words import DEFAULT_NETWORK, READ_RULE, told
from goalscope.rows import Rows, Tag
from goalscope.stats import estimate_rows

_TOP = "accuracy against top-"
_COLUMNS = (names.TRUTH, names.DECODED, names.OVERLAP, names.BOTH, names.VERDICT, names.RECOVERY, names.INVERSE)
_LISTED = (names.DECODED, names.OVERLAP, names.RECOVERY, names.INVERSE, names.EXPECTED)
_HEADINGS = {
    names.TRUTH: "optimal in truth",
    names.DECODED: "optimal on the map",
    names.OVERLAP: "agreement: policies overlap",
    names.BOTH: "agreement: both optimal",
    names.VERDICT: "agreement: same verdict",
    names.EXPECTED: "expected optimality",
}
_TEXT = (
    "At each step a probe reads a map of the grid from the activations. The layout is the likeliest class of each "
    "cell, agent and goal stand where they are likeliest. Recovery: of the actions that are wrong in truth, the share "
    "that is optimal on the decoded map; inverse recovery: of the actions wrong on the map, the share optimal in "
    "truth. A map without a way to the goal holds no plan: every action is wrong on it.",
    "Actions fit other maps by chance, too. Each share stands beside the same share with shuffled beliefs, the decoded "
    "maps of all other states of equal size and density on other grids: only the difference speaks of this agent's "
    "beliefs here. Agreement is given in three readings, because the caption of the published table (both optimal) "
    "cannot be what its numbers are.",
)


def belief_sections(rows: Rows) -> list[Section]:
    """Return the section on decoded beliefs of each agent; nothing where there are no rows of them.

    Args:
        rows: rows about what is inside of a model, see `goalscope.report.maps.split_inside`.
    """
    kept = rows.where(rows.among("measure", _measures(rows)))
    return [_section(mine, agent, own) for own, agent, mine in of_agents(kept)]


def _section(rows: Index, agent: str, own: str) -> Section:
    natural = rows.where(reading=("natural", None))
    base = natural if len(natural) else rows
    place = main_place(base)
    # The head that most is known of; the published one where it is there.
    head = next(head for head in ("mlp", *CELL_HEADS, *map(str, base.values("head"))) if head in base.values("head"))
    main = base.where(head=head, control=("none", None), site=place[0], layer=place[1])
    if not len(main):  # beliefs of a head that reads no activations, at no place
        main = base.where(head=head, control=("none", None))
    whole = estimate_rows(base.rows, by=("head", "control", "site", "layer"))
    found = keyed(whole, "head", "control", "site", "layer", "measure")
    near = [each for each in places_of(base) if each[1] == place[1]] or [place]
    where = f"{probe_name(head)} at {place_name(place)}"
    reading = READINGS["natural" if len(natural) else "balanced"]
    caption = f"Actions against decoded beliefs ({where}, {reading}): mean and 95 % interval over grids"
    less = f"The same less its value with shuffled beliefs, paired by grid ({where}): mean and 95 % interval over grids"
    probes = sorted(dict.fromkeys(key[:4] for key in found), key=_rank)
    facts = [fact for each in near for fact in _in_words(found, head, each)]
    shown = [(str(key[4]), _label(key), one) for key, one in found.items() if str(key[4]) in _shown()]
    tables = [
        *_by_grids(main, caption, [*_COLUMNS, names.EXPECTED, names.NO_PLAN]),
        *_by_grids(main, less, [*_COLUMNS[1:], names.EXPECTED, names.NO_PLAN], names.DIFFERENCE),
        *_of_probes(found, probes, "All probes, less their value with shuffled beliefs", names.DIFFERENCE),
        *_of_probes(
            found,
            probes,
            f"How much these differences exceed those of the same probe on the {DEFAULT_NETWORK}",
            names.UNTRAINED,
        ),
    ]
    balanced = rows.where(reading="balanced") if len(natural) else rows.where(reading=())
    return Section(
        anchor=f"beliefs{own}",
        title=f"Actions against decoded beliefs{f' of {agent}' if agent else ''}",
        paragraphs=(*_TEXT, *([f"In words: differences of shares of actions. {READ_RULE}"] if facts else [])),
        facts=tuple(facts),
        tables=tuple(tables),
        figures=(*_curves(main, own), *_by_layer(found, places_of(base), head, own)),
        legend="Top-k: optimal for some pair of one of the k likeliest cells of the agent and of the goal. "
        "Bands are 95 % intervals over grids.",
        folds=(
            Fold(title="Pooled over actions, as in the published table", tables=tuple(_pooled(main))),
            *_of_reading(balanced, probes),
            *what_is_undefined(shown, _why),
            *counts_and_methods([one for one in whole if str(one.key["measure"]) in _shown()]),
        ),
    )


def _shown() -> frozenset[str]:
    plain = (*_COLUMNS, names.EXPECTED, names.NO_PLAN)
    return frozenset([*plain, *(name + end for name in plain for end in (names.DIFFERENCE, names.UNTRAINED))])


def _why(measure: str) -> str:
    if measure.endswith((names.DIFFERENCE, names.UNTRAINED)):
        return "no tested grid has another of its size and density to take beliefs from, or the share is undefined"
    return {
        names.RECOVERY: "no action is wrong in truth",
        names.INVERSE: "no action is wrong on the decoded map",
    }.get(measure, "")


def _measures(rows: Rows) -> list[str]:
    tops = {name for name in dict.fromkeys(rows.measure.tolist()) if str(name).startswith(_TOP)}
    plain = [
        name + suffix for name in names.SHARES for suffix in ("", names.SHUFFLED, names.DIFFERENCE, names.UNTRAINED)
    ]
    counts = [names.ACTIONS, names.WRONG, names.WRONG_ON_MAP]
    return [names.TRUTH, *plain, *counts, *sorted(tops)]


def _headings(columns: Sequence[str]) -> list[tuple[str, str]]:
    return [(_HEADINGS.get(name, name), "share") for name in columns]


def _by_grids(rows: Index, caption: str, columns: Sequence[str], suffix: str = "") -> list[Table]:
    """Return the table by size and density, its first line over all."""
    wanted = [name + suffix for name in columns]
    kept = rows.where(measure=wanted)
    whole = keyed(estimate_rows(kept.rows, by=()), "measure")
    body = [("all", [whole.get((name,)) for name in wanted])]
    for tag, symbol in (("size", "n"), ("density", "d")):
        parts = keyed(estimate_rows(kept.rows, by=(tag,)), "measure", tag)
        values = sorted({at for _, value in parts if (at := number_of(value)) is not None})
        if len(values) > 1:
            body += [(f"{symbol} = {number(value)}", [parts.get((name, value)) for name in wanted]) for value in values]
    return table_of(caption, "where", _headings(columns), body, grids=True)


def _of_probes(found: Found, probes: Sequence[tuple[Tag, ...]], caption: str, suffix: str) -> list[Table]:
    return table_of(
        f"{caption}: mean and 95 % interval over grids",
        "probe",
        _headings(_LISTED),
        [(_label(key), [found.get((*key, name + suffix)) for name in _LISTED]) for key in probes],
        grids=True,
    )


def _of_reading(rows: Index, probes: Sequence[tuple[Tag, ...]]) -> list[Fold]:
    """Return the shares of all probes read as if all classes were equally frequent."""
    if not len(rows):
        return []
    found = keyed(
        estimate_rows(rows.rows, by=("head", "control", "site", "layer")), "head", "control", "site", "layer", "measure"
    )
    tables = [
        *_of_probes(found, probes, "Shares of actions", ""),
        *_of_probes(found, probes, "Less their value with shuffled beliefs", names.DIFFERENCE),
        *_of_probes(found, probes, f"How much these exceed those on the {DEFAULT_NETWORK}", names.UNTRAINED),
    ]
    return [Fold(title=f"All probes {READINGS['balanced']}", tables=tuple(tables))]


def _label(key: tuple[Tag, ...]) -> str:
    head, control, site, layer = key[:4]
    return f"{'' if site is None else f'{place_name((site, layer))}: '}{probe_name(head, control)}"


def _rank(key: tuple[Tag, ...]) -> tuple[bool, str, float, str, str]:
    head, control, site, layer = key
    # "pre" comes before "post", controls after what they belong to.
    return (
        site is None,
        {"pre": "0", "post": "1"}.get(str(site), str(site)),
        number_of(layer) or 0.0,
        str(head),
        str("" if control in (None, "none") else control),
    )


def _in_words(found: Found, head: str, place: Place) -> list[tuple[str, str]]:
    said = []
    for suffix, against in (
        (names.DIFFERENCE, "less shuffled beliefs"),
        (names.UNTRAINED, f"the same less the {DEFAULT_NETWORK}"),
    ):
        parts = [
            (f"“{_HEADINGS.get(name, name)}”", found.get((head, "none", *place, name + suffix)))
            for name in (names.DECODED, names.OVERLAP, names.RECOVERY, names.EXPECTED)
        ]
        text = told(parts)
        if text:
            said.append((f"{probe_name(head)}, {place_name(place)}: {against}", text))
    return said


def _pooled(rows: Index) -> list[Table]:
    parts = [("all", rows)]
    for tag, symbol in (("size", "n"), ("density", "d")):
        known = sorted({at for value in rows.values(tag) if (at := number_of(value)) is not None})
        parts += [(f"{symbol} = {number(value)}", rows.where(**{tag: value})) for value in known]
    body = [
        Row(label=label, cells=tuple(Cell.of(names.pooled_share(mine.rows, name)) for name in _COLUMNS))
        for label, mine in parts
    ]
    headings = (Heading(text="where"), *(Heading(text=name, unit=unit) for name, unit in _headings(_COLUMNS)))
    caption = "Shares of all actions together, 95 % interval over grids"
    return [Table(caption=caption, headings=headings, rows=tuple(body))]


def _curves(rows: Index, own: str) -> list[Figure]:
    """Draw accuracy against truth and against the k likeliest pairs, each with its control (Fig. 9)."""
    tops = sorted({int(str(name).removeprefix(_TOP).split()[0]) for name in rows.values("measure") if _is_top(name)})
    wanted = [("truth", names.TRUTH), *((f"top-{count}", names.top_name(count)) for count in tops)]
    wanted += [(f"top-{count}, shuffled", names.top_name(count) + names.SHUFFLED) for count in (tops[:1] + tops[-1:])]
    kept = rows.where(measure=[measure for _, measure in wanted])
    figures: list[Figure] = []
    for tag, x_label in (("size", "grid size n (cells a side)"), ("density", "wall density d (share)")):
        found = keyed(estimate_rows(kept.rows, by=(tag,)), "measure", tag)
        points = [(label, numbered(found, measure)) for label, measure in wanted]
        series = [
            each for style, (label, one) in enumerate(points) if len(one[0]) > 1 for each in line(label, style, one)
        ]
        if series:
            title = f"Optimal actions by {tag}"
            ticks = sorted({x for each in series for x in each.x})
            svg = lines(
                series, title=title, x_label=x_label, y_label="share of actions", bounds=(0.0, 1.0), ticks=ticks
            )
            figures.append(Figure(svg=embed(svg, f"belief{own}-{tag}", title)))
    return figures


def _is_top(name: Tag) -> bool:
    return str(name).startswith(_TOP) and str(name).removeprefix(_TOP).split()[0].isdecimal()


def _by_layer(found: Found, places: Sequence[Place], head: str, own: str) -> list[Figure]:
    """Draw what actions fit decoded maps more than shuffled ones over the layers of each site."""
    layers = layers_of(places)
    if len(layers) < 2:
        return []
    at_places: Found = {(*key[2:4], *key[:2], *key[4:]): one for key, one in found.items()}
    figures: list[Figure] = []
    for name in (names.DECODED, names.RECOVERY):
        curves = [
            (label, (head, control, name + names.DIFFERENCE))
            for control, label in (("none", probe_name(head)), ("untrained", DEFAULT_NETWORK))
        ]
        series = over_layers(at_places, sites_of(places), curves)
        if series:
            title = f"{_HEADINGS.get(name, name).capitalize()} less shuffled, by layer"
            svg = lines(series, title=title, x_label="layer", y_label="difference (share)", ticks=layers)
            figures.append(Figure(svg=embed(svg, f"beliefl{own}-{len(figures)}", title)))
    return figures
