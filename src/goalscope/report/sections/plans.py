"""Decoded plans: curves with controls and baselines, differences, lengths.

Source: behavioural and representational evaluation, Fig. 10, Table 5.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial

from goalscope.probing.plan_baselines import guess
from goalscope.probing.plan_scores import LENGTHS, PREFIX, summarise_plans
from goalscope.report.charts import Series
from goalscope.report.definitions import DEFAULT_NETWORK, READ_RULE
from goalscope.report.estimates import Contrast, Estimates, Key, contrasted
from goalscope.report.sections.probing import (
    CONTROLS,
    NOWHERE,
    ProbeRows,
    ReadPoint,
    over_layers,
    probe_section,
    probe_table,
    title_of,
)
from goalscope.report.specs import MEAN, Column, Curve, CurveSpec, Declared, FoldSpec, Line, Sentence, TableSpec
from goalscope.rows import Tag
from goalscope.stats import Estimate

_TAGS = ("site", "layer", "head", "control")
_CONTROLS = {
    "shuffled": "plans of other grids",
    "untrained": DEFAULT_NETWORK,
    "repeat": "first action repeated",
    "continuation": "first action continued",
}
_BASELINES = {"commonest": "commonest plan", "planner": "planner on decoded map", "text": "named in the text"}
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


@probe_section(
    "plans",
    source="behavioural and representational evaluation, Fig. 10, Table 5",
    measures=lambda measure: measure in (PREFIX, *LENGTHS),
)
def declared(rows: ProbeRows) -> Iterator[Declared]:
    """Accuracy of decoded plans beside controls and baselines."""
    numbers = [int(number) for number in rows.numbers("N")]
    horizon = max(numbers, default=1)
    summarise = partial(summarise_plans, horizon=horizon)
    prefixes = rows.where(measure=PREFIX)
    listed = prefixes.estimated(summarise, (*_TAGS, "plans", "N"))
    found = Estimates(listed)
    lengths = Estimates(rows.where(measure=LENGTHS).estimated(summarise, _TAGS))
    points, near = rows.points(), rows.near()
    # Another layer may have been read by one decoder: what is compared is the one of the main point.
    head = _compared(prefixes, rows.main_point())
    less = Estimates(
        one
        for point in near
        for one in contrasted(
            prefixes.where(plans="all"),
            _contrasts(prefixes.where(plans="all"), point, head),
            summarise,
            ("site", "layer", "N"),
        )
    )
    shown = [number for number in _SHOWN if number in numbers]
    keys = {plans: found.keys(*_TAGS, "plans", plans=plans) for plans in ("all", "long")}
    yield Declared(
        anchor="plans",
        title=rows.title("Decoded plans"),
        paragraphs=_TEXT,
        rule=f"In words: differences in prefix accuracy of the {_layers(head)}. {READ_RULE}",
        sentences=[
            Sentence(
                title=f"{point} less {_RIVALS[name]}",
                estimates=less,
                parts=[
                    (f"N = {number}", {**point.key, "measure": PREFIX, "less": name, "N": number}) for number in _SAID
                ],
            )
            for point in near
            for name in ("shuffled", "untrained", "continuation", "planner", "pre")
        ],
        tables=(
            _table("Prefix accuracy, all plans", found, _front(keys["all"], head), _prefixes(shown), near),
            TableSpec(
                caption=f"Prefix accuracy of the {_layers(head)} less that of controls and baselines, paired by grid: "
                f"{MEAN}",
                first="read from, less",
                estimates=less,
                columns=_prefixes(shown),
                lines=[
                    Line(f"{point}: less {label}", {**point.key, "less": name})
                    for point in near
                    for name, label in _RIVALS.items()
                ],
            ),
            _table("Length of plans (Table 5)", lengths, _front(lengths.keys(*_TAGS), head), _columns(lengths), near),
        ),
        figures=(
            *(figure for point in near for figure in _by_number(prefixes, found, point, head, horizon)),
            *_by_layer(found, points, head, numbers),
        ),
        legend=f"Bands are 95 % intervals over grids. Beside controls: the {_layers(head)}. First action continued: as "
        "the training plans with its first action most often go on.",
        folds=(
            *(
                FoldSpec(
                    title=f"Prefix accuracy, {label}: all layers and N",
                    tables=[_table(f"Prefix accuracy, {label}", found, keys[plans], _prefixes(numbers), points)],
                )
                for plans, label in (("all", "all plans"), ("long", _LONG))
            ),
            FoldSpec(
                title="Length of plans: all decoders and controls",
                tables=[_table("Length of plans", lengths, lengths.keys(*_TAGS), _columns(lengths), points)],
            ),
        ),
        undefined=(
            *(
                (f"{PREFIX}, N = {one.key['N']}", title_of(one.key, _name), one.estimate)
                for one in listed
                if one.key["plans"] == "all"
            ),
            *((str(one.key["measure"]), title_of(one.key, _name), one.estimate) for one in lengths.listed),
        ),
        why=lambda measure: (
            "no grid has a plan that is known so far" if measure.startswith(PREFIX) else "no length is predicted"
        ),
        counted=(*listed, *lengths.listed, *less.listed),
    )


def _compared(rows: ProbeRows, point: ReadPoint) -> str:
    """Return the decoder that stands beside its controls: that of two layers, or the only one."""
    here = _decoders(rows.where(**point.key, control="none").values("head"))
    return f"decoder-{_WIDTH}" if f"decoder-{_WIDTH}" in here or not here else here[0]


def _contrasts(rows: ProbeRows, point: ReadPoint, head: str) -> Iterator[Contrast]:
    """Yield one decoder less its controls and the baselines, after the reasoning less the same before it."""
    own = {**point.key, "head": head, "control": "none"}
    if point.site == "post":
        yield Contrast(name="pre", own=own, control={**own, "site": "pre"}, by=("plans", "N"))
    by = ("site", "layer", "plans", "N")
    for control in _CONTROLS:
        yield Contrast(name=control, own=own, control={**own, "control": control}, by=by)
    for name, key in _baselines(rows, point):
        yield Contrast(name=name, own=own, control=key, by=by)


def _baselines(rows: ProbeRows, point: ReadPoint) -> Iterator[tuple[str, Key]]:
    """Yield the baselines at a point, those that are not there where no activations are read."""
    for name in _BASELINES:
        if (name, point.site) != ("text", "pre"):  # what is written later is no baseline of what is read before
            here = {**point.key, "head": name, "control": "none"}
            yield name, here if len(rows.where(**here)) else {**here, **NOWHERE}


def _front(keys: Sequence[Key], head: str) -> list[Key]:
    """Return decoders alone, of one of them its controls too, and the baselines."""
    return [
        key
        for key in keys
        if key["control"] in (None, "none", "true map")
        or (key["head"] == head and key["control"] in ("untrained", "shuffled"))
    ]


def _prefixes(numbers: Sequence[int]) -> list[Column]:
    return [Column(f"N = {number}", "share", {"measure": PREFIX, "N": number}) for number in numbers]


def _columns(lengths: Estimates) -> list[Column]:
    units = {str(one.key["measure"]): one.estimate.unit for one in lengths.listed}
    return [
        Column(f"{name} (bias)" if name == "length error" else name, units[name], {"measure": name})
        for name in LENGTHS
        if name in units
    ]


def _by_number(
    rows: ProbeRows, found: Estimates, point: ReadPoint, head: str, horizon: int
) -> tuple[CurveSpec, CurveSpec]:
    """Return accuracy over the number of tokens: decoders of all sizes, and one beside its controls (Fig. 10)."""
    numbers = tuple(float(number) for number in range(1, horizon + 1))
    every: dict[str, Tag] = {"measure": PREFIX, "plans": "all"}
    here = {**every, **point.key, "control": "none"}
    heads = _decoders([key["head"] for key in found.keys("head", **here)])
    chance = tuple(_exact(guess(number)) for number in range(1, horizon + 1))
    beside = [
        Curve(_layers(head), {**here, "head": head}),
        *(Curve(label, {**here, "head": head, "control": name}) for name, label in _CONTROLS.items()),
        *(
            Curve(_BASELINES[name], {**every, **key}, style=1 + len(_CONTROLS) + list(_BASELINES).index(name))
            for name, key in _baselines(rows, point)
        ),
    ]

    def figure(title: str, curves: Sequence[Curve], *more: Series) -> CurveSpec:
        return CurveSpec(
            title=title,
            x_label="N (first tokens)",
            y_label="prefix accuracy (share)",
            axis="N",
            estimates=found,
            curves=curves,
            ticks=numbers,
            more=more,
        )

    return (
        figure(
            f"Plans read at {point}",
            [Curve(_layers(one), {**here, "head": one}) for one in heads],
            Series(label="guess, 0.25^N", style=6, x=numbers, estimates=chance),
        ),
        figure(f"Plans read at {point}, beside controls", beside if head in heads else []),
    )


def _by_layer(found: Estimates, points: Sequence[ReadPoint], head: str, numbers: Sequence[int]) -> list[CurveSpec]:
    """Return the accuracy of the first tokens over the layers of each site, beside the default-initialised network."""
    probes = ((_layers(head), head, "none"), (DEFAULT_NETWORK, head, "untrained"), ("planner", "planner", "none"))
    return [
        figure
        for number in _SAID[:2]
        if number in numbers
        for figure in over_layers(
            points,
            [
                Curve(title, {"head": one, "control": control, "measure": PREFIX, "plans": "all", "N": number})
                for title, one, control in probes
            ],
            estimates=found,
            title=f"First {number} tokens by layer" if number > 1 else "First token by layer",
            y_label=f"prefix accuracy, N = {number} (share)",
        )
    ]


def _decoders(heads: Sequence[Tag]) -> list[str]:
    known = {str(head) for head in heads if str(head).startswith("decoder-")}
    return sorted(known, key=lambda head: (len(head), head))


def _layers(head: str) -> str:
    number = head.removeprefix("decoder-")
    return f"decoder of {number} layer{'' if number == '1' else 's'}"


def _name(head: Tag, control: Tag) -> str:
    name = _layers(str(head)) if str(head).startswith("decoder-") else _NAMES.get(str(head), str(head))
    return name if control in (None, "none") else f"{name}, {_ALL_CONTROLS.get(str(control), str(control))}"


def _exact(value: float) -> Estimate:
    return Estimate(value=value, low=math.nan, high=math.nan, n=0, clusters=0, method="closed form", unit="share")


_table = partial(
    probe_table, name=_name, heads=lambda head: int(not head.startswith("decoder-")), controls=_ALL_CONTROLS
)
