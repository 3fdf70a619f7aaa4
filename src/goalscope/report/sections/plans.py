"""What else probes decode: plans, the distance to the goal, and actions by the logit lens, each beside its controls.

The logit lens applies the model's final norm and unembedding to the activations at each captured position.

Source: behavioural and representational evaluation, Fig. 10, Table 5, Appendix E.3 and Table 4.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from goalscope.inside.probing.distances import DEVIATION, ERROR, SQUARED, summarise_distance
from goalscope.inside.probing.heads import NUMBER_HEADS
from goalscope.inside.probing.logit_lens import AMONG, BLIND, HEAD, MEASURES, OPTIMAL, PROBABILITY, RANK, TAKEN
from goalscope.inside.probing.plan_scores import (
    DECODER_LAYERS,
    LENGTHS,
    MAIN_DECODER,
    PREFIX,
    STEPWISE,
    guess,
    summarise_plans,
)
from goalscope.inside.probing.scores import summarise
from goalscope.report.blocks import BANDS, MEAN, Column, Curve, CurveSpec, Declared, FoldSpec, Line, Sentence, TableSpec
from goalscope.report.definitions import NEEDED, NETWORKS, RULES
from goalscope.report.ledger import Estimates, Key, number_of
from goalscope.report.sections.probing import (
    CONTROLS,
    HEADS,
    NOWHERE,
    PROBES,
    RANDOM_NETWORKS,
    TAGS,
    Contrast,
    ProbeNames,
    ProbeRows,
    ReadPoint,
    claims,
    contrasted,
    data_bounds,
    over_layers,
    probe_section,
)
from goalscope.report.texts import TEXTS, labels
from goalscope.stats import Estimate, Grouped, estimate_rows
from goalscope.stats.rows import Tag

_PLAN_CONTROLS = {
    "shuffled": "plans of other grids",
    **NETWORKS,
    "repeat": "first action repeated",
    "continuation": "first action continued",
}
_BASELINES = labels("labels/plan baselines")
_PLAN_FLOORS = {"commonest": _BASELINES["commonest"]}
_PLAN_RIVALS = {**_PLAN_CONTROLS, **_BASELINES, "pre": "the same before the reasoning"}
_TABLE_NUMBERS = (1, 2, 3, 4, 5, 10)
_SENTENCE_NUMBERS = (1, 3, 5)
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
def plans_section(rows: ProbeRows) -> Iterator[Declared]:
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
    heads = {**labels("labels/plan heads"), **{decoder: decoders.name(decoder) for decoder in decoders.forms}}
    probes = ProbeNames(heads, {**CONTROLS, **_PLAN_CONTROLS}, sorted(decoders.forms))
    all_plans = prefixes.where(plans="all")
    differences = Estimates(
        grouped
        for point in near
        for grouped in contrasted(all_plans, _plan_contrasts(all_plans, point, head), summarise, ("site", "layer", "N"))
    )
    table_numbers = [number for number in _TABLE_NUMBERS if number in numbers]
    keys = {plans: estimates.keys(*TAGS, "plans", plans=plans) for plans in _KINDS}
    length_keys, same_size = lengths.keys(*TAGS), decoders.of_size(head)
    less_lines = [
        Line(f"{point}: minus {label}", {**point.key, "less": name})
        for point in near
        for name, label in _PLAN_RIVALS.items()
    ]
    yield Declared(
        anchor="plans",
        title=rows.title("Decoded plans"),
        explained=(TEXTS("plans/how"), TEXTS("plans/not used")),
        rule=f"{TEXTS('plans/rule', decoder=decoders.name(head))} {RULES}",
        sentences=[
            *claims(differences, [(str(point), _first(point)) for point in near], floors=_PLAN_FLOORS),
            *(
                Sentence(f"{point} minus {_PLAN_RIVALS[name]}", differences, _first(point, less=name))
                for point in near
                # Not for shuffled plans: a decoder that learned nothing repeats one token, which one is chance.
                for name in ("continuation", "planner", "pre")
            ),
        ],
        tables=(
            probes.table_at(
                near, "Prefix accuracy, all plans", estimates, _front(keys["all"], same_size), _prefixes(table_numbers)
            ),
            TableSpec(
                f"Prefix accuracy of the {decoders.name(head)} minus that of controls and baselines, paired by grid: "
                f"{MEAN}",
                "read from, minus",
                differences,
                _prefixes(table_numbers),
                less_lines,
            ),
            probes.table_at(
                near, "Length of plans (Table 5)", lengths, _front(length_keys, same_size), _length_columns(lengths)
            ),
        ),
        figures=(
            *(figure for point in near for figure in _by_number(prefixes, estimates, point, decoders, head, horizon)),
            *_prefixes_over_layers(estimates, points, decoders.name(head), head, numbers),
        ),
        legend=f"{BANDS} {TEXTS('plans/legend', decoder=decoders.name(head))}",
        folds=(
            *(
                FoldSpec(
                    f"Prefix accuracy, {label}: all layers and N",
                    [probes.table_at(points, f"Prefix accuracy, {label}", estimates, keys[plans], _prefixes(numbers))],
                )
                for plans, label in _KINDS.items()
            ),
            FoldSpec(
                "Length of plans: all decoders and controls",
                [probes.table_at(points, "Length of plans", lengths, length_keys, _length_columns(lengths))],
            ),
        ),
        undefined=probes.undefined(
            [grouped for grouped in (*estimates, *lengths) if grouped.key.get("plans", "all") == "all"],
            ("N",),
            ", N = ",
        ),
        why=lambda measure: TEXTS(f"plans/{'no length' if measure in LENGTHS else 'no plan'}"),
        counted=(*estimates, *lengths, *differences),
    )


def _first(point: ReadPoint, **key: Tag) -> list[tuple[str, Key]]:
    """Return the numbers of first actions that sentences use, each with the key of its estimate."""
    return [(f"N = {number}", {**point.key, "measure": PREFIX, **key, "N": number}) for number in _SENTENCE_NUMBERS]


def _plan_contrasts(rows: ProbeRows, point: ReadPoint, head: str) -> Iterator[Contrast]:
    """Yield the contrasts of one decoder with controls and baselines, and of "post" with "pre"."""
    decoder_key = {**point.key, "head": head, "control": "none"}
    if point.site == "post":
        yield Contrast(decoder_key, {"pre": {"site": "pre"}}, ("plans", "N"))
    rivals = {**{control: {"control": control} for control in _PLAN_CONTROLS}, **dict(_baselines(rows, point))}
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


def _length_columns(lengths: Estimates) -> list[Column]:
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
        *(Curve(label, {**point_key, "head": head, "control": name}) for name, label in _PLAN_CONTROLS.items()),
        *(
            Curve(_BASELINES[name], {**all_key, **key}, style=1 + len(_PLAN_CONTROLS) + list(_BASELINES).index(name))
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


def _prefixes_over_layers(
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


_DISTANCE_RIVALS = {
    **{kind: f"the same on {name}" for kind, name in NETWORKS.items()},
    "shuffled": "the same on shuffled labels",
    "mean": "the mean of the training grids",
    "true map": "the line on the Manhattan distance, true map",
    "decoded map": "the line on the Manhattan distance, decoded map",
}
_DISTANCE_FLOORS = {"mean": "mean"}
_OTHERS = {name: label for name, label in _DISTANCE_RIVALS.items() if name not in (*NETWORKS, *_DISTANCE_FLOORS)}
_DISTANCE_COLUMNS = (
    Column("absolute error", "steps", {"measure": ERROR}),
    Column("R²", "share of the variance", {"measure": "R^2"}),
)
_DISTANCE_PROBES = ProbeNames(
    {**HEADS, "manhattan, none": f"{HEADS['manhattan']}, decoded map"}, first=tuple(NUMBER_HEADS)
)
_Y_LABEL = "absolute error (steps)"
_MIN_GRIDS = 5  # grids behind a point of a curve over distances
_OPENINGS = labels("labels/distance openings")


@probe_section(
    "distance",
    source="behavioural and representational evaluation, Appendix E.3, Table 4",
    measures=lambda measure: measure in (ERROR, SQUARED, DEVIATION),
)
def distance_section(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the section with the errors of the decoded distance beside those of baselines and controls."""
    estimates = rows.estimated(summarise_distance, TAGS)
    points, near, keys = rows.points(), rows.near(), estimates.keys(*TAGS)
    differences = Estimates(
        grouped for point in near for grouped in _distance_differences(rows.where(measure=ERROR, distance=None), point)
    )
    by_distance = rows.estimated(summarise_distance, (*TAGS, "distance"))
    probe_lines = [
        Line(f"{point}: {PROBES(head)}", {**point.key, "head": head}) for point in near for head in NUMBER_HEADS
    ]
    error_keys = {line.title: {**line.key, "measure": ERROR} for line in probe_lines}
    figures = [_by_distance(by_distance, point) for point in near]
    drawn_keys = [{name: curve.key[name] for name in TAGS} for figure in figures for curve in figure.curves]
    yield Declared(
        anchor="distance-inside",
        title=rows.title("Decoded distance to the goal"),
        explained=(TEXTS("distance/how"),),
        rule=f"{TEXTS('distance/rule')} {RULES}",
        sentences=[
            *claims(
                differences,
                [(title, [("the distance", key)]) for title, key in error_keys.items()],
                floors=_DISTANCE_FLOORS,
                higher=False,
            ),
            *(
                Sentence(
                    title, differences, [(label, {**key, "less": name}) for name, label in _OTHERS.items()], _OPENINGS
                )
                for title, key in error_keys.items()
            ),
        ],
        tables=(
            _DISTANCE_PROBES.table_at(near, "Distance (Table 4)", estimates, keys, _DISTANCE_COLUMNS),
            TableSpec(
                "Absolute error minus that of its baselines and controls, paired by grid; below 0 the probe is better: "
                f"{MEAN}",
                "probe",
                differences,
                [
                    Column(f"minus {label}", "steps", {"measure": ERROR, "less": name})
                    for name, label in _DISTANCE_RIVALS.items()
                ],
                probe_lines,
            ),
        ),
        figures=(*_distance_over_layers(estimates, points), *figures),
        legend=TEXTS("distance/legend", fewest=_MIN_GRIDS),
        folds=[
            FoldSpec(
                "All layers", [_DISTANCE_PROBES.table_at(points, "All layers", estimates, keys, _DISTANCE_COLUMNS)]
            )
        ]
        if points != near
        else [],
        undefined=_DISTANCE_PROBES.undefined(estimates),
        counted=(
            *estimates,
            *differences,
            *(grouped for grouped in by_distance if {name: grouped.key[name] for name in TAGS} in drawn_keys),
        ),
    )


def _distance_differences(rows: ProbeRows, point: ReadPoint) -> Estimates:
    """Return the differences in error between each head and its baselines and controls at one read point."""
    rivals = {
        **RANDOM_NETWORKS,
        "shuffled": {"control": "shuffled"},
        "mean": {**NOWHERE, "head": "mean"},
        "true map": {**NOWHERE, "head": "manhattan", "control": "true map"},
        "decoded map": {"head": "manhattan"},
    }
    contrasts = [Contrast({**point.key, "head": head, "control": "none"}, rivals) for head in NUMBER_HEADS]
    return contrasted(rows, contrasts, estimate_rows, ("site", "layer", "head"))


def _distance_curve(title: str, head: str, control: str = "none", point_key: Key | None = None) -> Curve:
    return Curve(title, {"measure": ERROR, **(point_key or {}), "head": head, "control": control})


def _distance_over_layers(estimates: Estimates, points: list[ReadPoint]) -> list[CurveSpec]:
    curves = [
        _distance_curve("MLP", "mlp"),
        _distance_curve("linear", "linear"),
        _distance_curve("MLP, permuted weights", "mlp", "permuted"),
    ]
    flat = [_distance_curve("Manhattan, true map", "manhattan", "true map"), _distance_curve("mean", "mean")]
    title = "Error of the decoded distance by layer"
    return over_layers(points, title, _Y_LABEL, estimates, curves, flat=flat, bounds=data_bounds)


def _by_distance(estimates: Iterable[Grouped], point: ReadPoint) -> CurveSpec:
    curves = [
        _distance_curve("linear", "linear", point_key=point.key),
        _distance_curve("MLP", "mlp", point_key=point.key),
        _distance_curve("MLP, permuted weights", "mlp", "permuted", point.key),
        _distance_curve("Manhattan on the decoded map", "manhattan", point_key=point.key),
        _distance_curve("Manhattan on the true map", "manhattan", "true map", NOWHERE),
        _distance_curve("mean", "mean", point_key=NOWHERE),
    ]
    with_enough_grids = Estimates(grouped for grouped in estimates if grouped.estimate.clusters >= _MIN_GRIDS)
    return CurveSpec(
        f"Error by distance, {point}",
        _Y_LABEL,
        "distance",
        with_enough_grids,
        curves,
        bounds=data_bounds,
        ticks=(),
        counts=True,
    )


_LENS_COLUMNS = (
    Column("best action was taken", "share", {"measure": TAKEN}),
    Column("best action is optimal", "share", {"measure": OPTIMAL}),
    Column("action taken among the four", "probability", {"measure": AMONG}),
    Column("its token among all", "probability", {"measure": PROBABILITY}),
    Column("rank of its token", "rank", {"measure": RANK}),
)
_LENS_NAMES = labels("labels/lens heads")
_LENS_CURVES = ((TAKEN, "best action was taken"), (OPTIMAL, "best action is optimal"))


@probe_section(
    "logit-lens",
    source="nostalgebraist 2020, interpreting GPT: the logit lens",
    measures=lambda measure: measure in MEASURES,
)
def logit_lens_section(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the section on the actions that the logit lens reads from the model and from random networks."""
    estimates, points, probes = rows.estimated(summarise, TAGS), rows.points(), ProbeNames(_LENS_NAMES)
    networks = [str(control) for control in rows.values("control")]
    figures = list[CurveSpec]()
    for measure, label in _LENS_CURVES:
        curves = [Curve(name, {"measure": measure, "head": HEAD, "control": name}) for name in networks]
        flat = [Curve(BLIND, {"measure": measure, "head": BLIND, "control": "none"})]
        title = f"Logit lens, {label}, by layer"
        figures += over_layers(points, title, f"{label} (share)", estimates, curves, flat=flat)
    yield Declared(
        anchor="logit-lens",
        title=rows.title("Actions by the logit lens"),
        explained=(TEXTS("logit lens/how"),),
        tables=(probes.table_at(points, "Logit lens", estimates, estimates.keys(*TAGS), _LENS_COLUMNS),),
        figures=figures,
        counted=estimates,
    )
