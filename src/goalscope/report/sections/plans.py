"""Decoded plans: curves with controls and baselines, differences, lengths.

Source: behavioural and representational evaluation, Fig. 10, Table 5.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

from goalscope.inside.probing.plan_scores import (
    DECODER_LAYERS,
    LENGTHS,
    MAIN_DECODER,
    PREFIX,
    STEPWISE,
    guess,
    summarise_plans,
)
from goalscope.report.ledger import Estimates, Key, number_of
from goalscope.report.sections.probing import (
    CONTROLS,
    NOWHERE,
    TAGS,
    Contrast,
    ProbeRows,
    ReadPoint,
    claims,
    contrasted,
    over_layers,
    probe_name,
    probe_section,
    probe_table,
    undefined_of,
)
from goalscope.report.specs import BANDS, MEAN, Column, Curve, CurveSpec, Declared, FoldSpec, Line, Sentence, TableSpec
from goalscope.report.texts import TEXTS
from goalscope.report.verdicts import NEEDED, NETWORKS, RULES
from goalscope.stats import Estimate, Grouped
from goalscope.stats.rows import Tag

_CONTROLS = {
    "shuffled": "plans of other grids",
    **NETWORKS,
    "repeat": "first action repeated",
    "continuation": "first action continued",
}
_BASELINES = {"commonest": "commonest plan", "planner": "planner on decoded map", "text": "named in the text"}
_FLOORS = {"commonest": _BASELINES["commonest"]}
_RIVALS = {**_CONTROLS, **_BASELINES, "pre": "the same before the reasoning"}
_NAMES = {
    "commonest": "commonest plan of the training grids",
    "marginal": "drawn place by place",
    "repeat executed": "executed first action repeated",
    "planner": "planner (ties at random)",
    "planner, best ties": "planner (ties at best)",
    "text": "actions named in the text",
}
_ALL_CONTROLS = {**CONTROLS, **_CONTROLS}
_TABLE_NUMBERS = (1, 2, 3, 4, 5, 10)
_SENTENCE_NUMBERS = (1, 3, 5)
_TEXT = (TEXTS("plans/how"), TEXTS("plans/not used"))
_KINDS = {"all": "all plans", "long": "plans with at least N actions (the authors' subset)"}


class _Decoders:
    """The decoders among the heads of some rows: the number of layers of each, and whether it receives earlier
    tokens.
    """

    def __init__(self, rows: ProbeRows) -> None:
        self.forms = {
            str(head): (number_of(layers) or 0, bool(stepwise))
            for head, layers, stepwise in rows.combinations("head", DECODER_LAYERS, STEPWISE)
            if layers is not None
        }

    def among(self, heads: Sequence[Tag]) -> list[str]:
        """Return the decoders among some heads: one-shot ones first, then by number of layers."""
        return sorted({str(head) for head in heads} & self.forms.keys(), key=lambda head: self.forms[head][::-1])

    def of_size(self, head: str) -> set[str]:
        """Return the decoders of both forms with as many layers as a given one; empty if that one is missing."""
        layers = self.forms.get(head, (None, False))[0]
        return {name for name, form in self.forms.items() if form[0] == layers}

    def name(self, head: str) -> str:
        """Return a decoder in words."""
        layers, stepwise = self.forms.get(head, (2, False))
        form = ", given the earlier tokens" if stepwise else ""
        return f"decoder of {layers:g} layer{'' if layers == 1 else 's'}{form}"


@probe_section(
    "plans",
    source="behavioural and representational evaluation, Fig. 10, Table 5",
    measures=lambda measure: measure in (PREFIX, *LENGTHS),
)
def declared(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the section on the accuracy of decoded plans beside controls and baselines."""
    numbers = [int(number) for number in rows.numbers("N")]
    horizon = max(numbers, default=1)
    summarise = partial(summarise_plans, horizon=horizon)
    prefixes = rows.where(measure=PREFIX)
    estimates = prefixes.estimated(summarise, (*TAGS, "plans", "N"))
    lengths = rows.where(measure=LENGTHS).estimated(summarise, TAGS)
    points, near = rows.points(), rows.near()
    # Other layers may have fewer decoders: the decoder to compare is one of the main point.
    decoders = _Decoders(rows)
    main_decoders = decoders.among(prefixes.where(**rows.main_point().key, control="none").values("head"))
    head = MAIN_DECODER if MAIN_DECODER in main_decoders or not main_decoders else main_decoders[0]
    heads = {**_NAMES, **{decoder: decoders.name(decoder) for decoder in decoders.forms}}
    name_of = partial(probe_name, heads=heads, controls=_ALL_CONTROLS)
    table = partial(
        probe_table, name=name_of, heads=lambda head: int(head not in decoders.forms), controls=_ALL_CONTROLS
    )
    all_plans = prefixes.where(plans="all")
    differences = Estimates(
        grouped
        for point in near
        for grouped in contrasted(all_plans, _contrasts(all_plans, point, head), summarise, ("site", "layer", "N"))
    )
    table_numbers = [number for number in _TABLE_NUMBERS if number in numbers]
    keys = {plans: estimates.keys(*TAGS, "plans", plans=plans) for plans in _KINDS}
    length_keys, same_size = lengths.keys(*TAGS), decoders.of_size(head)
    less_lines = [
        Line(f"{point}: minus {label}", {**point.key, "less": name})
        for point in near
        for name, label in _RIVALS.items()
    ]
    yield Declared(
        anchor="plans",
        title=rows.title("Decoded plans"),
        explained=_TEXT,
        rule=f"{TEXTS('plans/rule', decoder=decoders.name(head))} {RULES}",
        sentences=[
            *claims(differences, [(str(point), _first(point)) for point in near], floors=_FLOORS),
            *(
                Sentence(f"{point} minus {_RIVALS[name]}", differences, _first(point, less=name))
                for point in near
                # Not for shuffled plans: a decoder that learned nothing repeats one token, which one is chance.
                for name in ("continuation", "planner", "pre")
            ),
        ],
        tables=(
            table(
                "Prefix accuracy, all plans", estimates, _front(keys["all"], same_size), _prefixes(table_numbers), near
            ),
            TableSpec(
                f"Prefix accuracy of the {decoders.name(head)} minus that of controls and baselines, paired by grid: "
                f"{MEAN}",
                "read from, minus",
                differences,
                _prefixes(table_numbers),
                less_lines,
            ),
            table("Length of plans (Table 5)", lengths, _front(length_keys, same_size), _columns(lengths), near),
        ),
        figures=(
            *(figure for point in near for figure in _by_number(prefixes, estimates, point, decoders, head, horizon)),
            *_over_layers(estimates, points, decoders.name(head), head, numbers),
        ),
        legend=f"{BANDS} {TEXTS('plans/legend', decoder=decoders.name(head))}",
        folds=(
            *(
                FoldSpec(
                    f"Prefix accuracy, {label}: all layers and N",
                    [table(f"Prefix accuracy, {label}", estimates, keys[plans], _prefixes(numbers), points)],
                )
                for plans, label in _KINDS.items()
            ),
            FoldSpec(
                "Length of plans: all decoders and controls",
                [table("Length of plans", lengths, length_keys, _columns(lengths), points)],
            ),
        ),
        undefined=undefined_of(
            [grouped for grouped in (*estimates, *lengths) if grouped.key.get("plans", "all") == "all"],
            name_of,
            ("N",),
            ", N = ",
        ),
        why=lambda measure: TEXTS(f"plans/{'no length' if measure in LENGTHS else 'no plan'}"),
        counted=(*estimates, *lengths, *differences),
    )


def _first(point: ReadPoint, **key: Tag) -> list[tuple[str, Key]]:
    """Return the numbers of first actions that sentences use, each with the key of its estimate."""
    return [(f"N = {number}", {**point.key, "measure": PREFIX, **key, "N": number}) for number in _SENTENCE_NUMBERS]


def _contrasts(rows: ProbeRows, point: ReadPoint, head: str) -> Iterator[Contrast]:
    """Yield the contrasts of one decoder with controls and baselines, and of "post" with "pre"."""
    decoder_key = {**point.key, "head": head, "control": "none"}
    if point.site == "post":
        yield Contrast(decoder_key, {"pre": {"site": "pre"}}, ("plans", "N"))
    rivals = {**{control: {"control": control} for control in _CONTROLS}, **dict(_baselines(rows, point))}
    yield Contrast(decoder_key, rivals, ("site", "layer", "plans", "N"))


def _baselines(rows: ProbeRows, point: ReadPoint) -> Iterator[tuple[str, Key]]:
    """Yield the baselines at a read point; a baseline without rows there has the key of rows that read no
    activations.
    """
    for name in _BASELINES:
        if (name, point.site) != ("text", "pre"):  # the text follows the site "pre"
            point_key = {**point.key, "head": name, "control": "none"}
            yield name, point_key if len(rows.where(**point_key)) else {**point_key, **NOWHERE}


def _front(keys: Sequence[Key], heads: Collection[str]) -> list[Key]:
    """Return the keys of all decoders without a control, of the controls of some decoders, and of the baselines."""
    return [
        key
        for key in keys
        if key["control"] in (None, "none", "true map")
        or (key["head"] in heads and key["control"] in (*NETWORKS, "shuffled"))
    ]


def _prefixes(numbers: Sequence[int]) -> list[Column]:
    return [Column(f"N = {number}", "share", {"measure": PREFIX, "N": number}) for number in numbers]


def _columns(lengths: Estimates) -> list[Column]:
    units = {str(grouped.key["measure"]): grouped.estimate.unit for grouped in lengths}
    return [
        Column(f"{name} (bias)" if name == "length error" else name, units[name], {"measure": name})
        for name in LENGTHS
        if name in units
    ]


def _by_number(
    rows: ProbeRows, estimates: Estimates, point: ReadPoint, decoders: _Decoders, head: str, horizon: int
) -> Iterator[CurveSpec]:
    """Yield accuracy by number of tokens: all decoders, and one of them with its controls (Fig. 10)."""
    numbers = range(1, horizon + 1)
    all_key: dict[str, Tag] = {"measure": PREFIX, "plans": "all"}
    point_key = {**all_key, **point.key, "control": "none"}
    heads = decoders.among([key["head"] for key in estimates.keys("head", **point_key)])
    exact = Estimate(value=0, low=math.nan, high=math.nan, n=0, clusters=0, method="closed form", unit="share")
    chance = Estimates(Grouped(key={"N": number}, estimate=replace(exact, value=guess(number))) for number in numbers)
    plain = [Curve(decoders.name(decoder), {**point_key, "head": decoder}) for decoder in heads]
    with_controls = [
        Curve(decoders.name(head), {**point_key, "head": head}),
        *(Curve(label, {**point_key, "head": head, "control": name}) for name, label in _CONTROLS.items()),
        *(
            Curve(_BASELINES[name], {**all_key, **key}, style=1 + len(_CONTROLS) + list(_BASELINES).index(name))
            for name, key in _baselines(rows, point)
        ),
    ]
    for title_end, curves in (
        ("", [*plain, Curve("guess, 0.25^N", {}, style=6, estimates=chance)] if heads else []),
        (", beside controls", with_controls if head in heads else []),
    ):
        title, ticks = f"Plans read at {point}{title_end}", [float(number) for number in numbers]
        yield CurveSpec(
            title, "prefix accuracy (share)", "N", estimates, curves, x_label="N (first tokens)", ticks=ticks
        )


def _over_layers(
    estimates: Estimates, points: Sequence[ReadPoint], title: str, head: str, numbers: Sequence[int]
) -> list[CurveSpec]:
    """Return the accuracy of the first tokens by layer and site, beside that with permuted weights."""
    probes = ((title, head, "none"), (NETWORKS[NEEDED], head, NEEDED), ("planner", "planner", "none"))
    figures = list[CurveSpec]()
    for number in _SENTENCE_NUMBERS[:2]:
        if number in numbers:
            key: Key = {"measure": PREFIX, "plans": "all", "N": number}
            curves = [Curve(name, {**key, "head": of, "control": control}) for name, of, control in probes]
            caption = f"First {number} tokens by layer" if number > 1 else "First token by layer"
            figures += over_layers(points, caption, f"prefix accuracy, N = {number} (share)", estimates, curves)
    return figures
