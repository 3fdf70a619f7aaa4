"""What probes decode besides the cognitive map, each beside its controls: beliefs, plans, the distance to the goal, and
actions by the logit lens.

Maps are shown beside the true grids if they are better than what the same probe decodes from random networks. Actions
are compared with decoded maps and, as a control, with shuffled ones. The logit lens applies the model's final norm and
unembedding to the activations at each captured position.

Source: behavioural and representational evaluation, sections 5.1 and 5.2, Tables 2, 4 and 5, Figures 6, 9 and 10.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from goalscope._ground.words import listed
from goalscope.inside.probing import beliefs as names
from goalscope.inside.probing.beliefs import RULE, SOURCE, ShownMap
from goalscope.inside.probing.heads import CELL_HEADS, NUMBER_HEADS
from goalscope.inside.probing.logit_lens import AMONG, BLIND, HEAD, MEASURES, OPTIMAL, PROBABILITY, RANK, TAKEN
from goalscope.inside.probing.plans import (
    DECODER_LAYERS,
    DEVIATION,
    ERROR,
    LENGTHS,
    MAIN_DECODER,
    PREFIX,
    SQUARED,
    STEPWISE,
    guess,
    summarise_distance,
    summarise_plans,
)
from goalscope.inside.probing.scores import AREA, KEY, summarise
from goalscope.inside.probing.suite import TRAINED_ON
from goalscope.report.blocks import (
    BANDS,
    CURVED,
    MEAN,
    Column,
    Curve,
    CurveSpec,
    Declared,
    Figure,
    FoldSpec,
    Line,
    Sentence,
    Table,
    TableSpec,
    estimates_table,
    number,
    section,
)
from goalscope.report.definitions import MADE, NEEDED, NETWORKS, RULES, claim_in_words, verdict
from goalscope.report.figures import framed, map_picture, picture
from goalscope.report.ledger import Estimates, Key, RunData, number_of
from goalscope.report.sections.probing import (
    NOWHERE,
    PROBES,
    RANDOM_NETWORKS,
    READINGS,
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
from goalscope.runs.record import Episode
from goalscope.stats import Estimate, Grouped, estimate_rows
from goalscope.stats.rows import Tag
from goalscope.worlds.dynamics import shown
from goalscope.worlds.grid import Action

_BELIEF_TAGS = ("head", "control", "site", "layer")
_TOPS = {count: names.top_name(count) for count in names.TOPS}
_BELIEF_COLUMNS = (names.TRUTH, names.DECODED, names.OVERLAP, names.BOTH, names.VERDICT, names.RECOVERY, names.INVERSE)
_IN_PROBE_TABLES = (names.DECODED, names.OVERLAP, names.RECOVERY, names.INVERSE, names.EXPECTED)
_IN_SENTENCES = (names.DECODED, names.OVERLAP, names.RECOVERY, names.EXPECTED)
_CONTROLLED = (*_BELIEF_COLUMNS[1:], names.EXPECTED, names.NO_PLAN)
_BEYOND = {kind: names.beyond(kind) for kind in NETWORKS}
_ON_PAGE = frozenset(
    name + end for name in (names.TRUTH, *_CONTROLLED) for end in ("", names.DIFFERENCE, *_BEYOND.values())
)
_SHARES = (*names.SHARES, *_TOPS.values())
_LESS_SHUFFLED = frozenset(name + end for name in _SHARES for end in (names.DIFFERENCE, *_BEYOND.values()))
_MEASURES = _LESS_SHUFFLED.union(
    (names.TRUTH, names.ACTIONS, names.WRONG, names.WRONG_ON_MAP),
    (name + end for name in _SHARES for end in ("", names.SHUFFLED)),
)
_HEADINGS = labels("labels/belief measures") | {name: f"optimal for top-{count}" for count, name in _TOPS.items()}
_BELIEF_FLOORS = {"position": "position alone"}
_SYMBOLS = {"size": "n", "density": "d"}
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
    {**PROBES.heads, "manhattan, none": f"{PROBES.heads['manhattan']}, decoded map"}, first=tuple(NUMBER_HEADS)
)
_Y_ERROR = "absolute error (steps)"
_OPENINGS = labels("labels/distance openings")
_MLPS = (("MLP", "mlp", "none"), ("linear", "linear", "none"), ("MLP, permuted weights", "mlp", "permuted"))
_LENS_COLUMNS = (
    Column("best action was taken", "share", {"measure": TAKEN}),
    Column("best action is optimal", "share", {"measure": OPTIMAL}),
    Column("action taken among the four", "probability", {"measure": AMONG}),
    Column("its token among all", "probability", {"measure": PROBABILITY}),
    Column("rank of its token", "rank", {"measure": RANK}),
)
_LENS_NAMES = labels("labels/lens heads")
_LENS_CURVES = ((TAKEN, "best action was taken"), (OPTIMAL, "best action is optimal"))


@section("decoded maps", source="behavioural and representational evaluation, Fig. 6", worlds="grids")
def decoded_maps(run: RunData) -> Iterator[Declared]:
    """Yield the report's section that draws maps decoded by probes, each beside the true grid in the same state.

    Raises:
        ValueError: the stored maps are invalid.
    """
    stored = run.store.info().get(SOURCE)
    if stored is None:
        return
    try:
        stored_maps = [ShownMap.model_validate(shown_map) for shown_map in stored["maps"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{run.store.path} must hold sound maps of beliefs, but: {error}") from error
    episode_ids = run.store.episode_ids() & {shown_map.episode_id for shown_map in stored_maps}
    episodes = {episode.id: episode for episode in run.store.episodes(sorted(episode_ids))}
    steps = {identity: range(len(episode.steps)) for identity, episode in episodes.items()}
    maps = [shown_map for shown_map in stored_maps if shown_map.step in steps.get(shown_map.episode_id, ())]
    if maps:
        missing = len(stored_maps) - len(maps)
        above, sentence = _standing(run, maps[0].tags)
        if not above:
            yield Declared(anchor="decoded-maps", title="Decoded maps", paragraphs=(sentence,))
            return
        yield Declared(
            anchor="decoded-maps",
            title="Decoded maps beside the true grid",
            paragraphs=(
                sentence,
                RULE,
                *([TEXTS("decoded maps/gone", count=missing)] if missing else []),
            ),
            figures=[figure for shown_map in maps for figure in _pair(shown_map, episodes[shown_map.episode_id])],
            layout="maps",
            legend=TEXTS("decoded maps/legend"),
        )


def _standing(run: RunData, tags: Mapping[str, Tag]) -> tuple[bool, str]:
    """Return whether a probe decodes walls better than from random networks of every kind, and the sentence
    about it.
    """
    point = ReadPoint(tags.get("site"), tags.get("layer"))
    rows = ProbeRows(run.measured.probed).where(
        measure=AREA, head=tags.get("head"), scope=("general", None), reading=("natural", None), **{"class": "wall"}
    )
    rows = rows.where(**{TRAINED_ON: None}, cells=None).at(point)
    if tags.get("agent") is not None:
        rows = rows.where(agent=(tags["agent"], None))
    contrast = Contrast({"control": "none"}, RANDOM_NETWORKS, KEY)
    differences = contrasted(rows, [contrast], summarise, ("head", "class"))
    key: Key = {"measure": AREA, "class": "wall", "head": tags.get("head")}
    rivals = {kind: differences.get(key, less=kind) for kind in NETWORKS}
    if not (sentence := claim_in_words([("walls", rivals)], MADE)):
        return False, TEXTS("decoded maps/unknown")
    above = verdict(rivals) == "above"
    place = f"{PROBES(tags.get('head'))} at {point}"
    return above, TEXTS(f"decoded maps/{'shown' if above else 'not shown'}", place=place, sentence=sentence)


def _pair(shown_map: ShownMap, episode: Episode) -> Iterator[Figure]:
    """Yield the true grid of a state with its action, and the decoded map."""
    step, tags = episode.steps[shown_map.step], episode.world.tags
    grid = shown(episode.world.grid, step.state)
    later = [
        *(later_step.state for later_step in episode.steps[shown_map.step + 1 : shown_map.step + 2]),
        episode.final,
    ]
    action = "none" if step.action is None else Action(step.action).name
    condition = listed([f"{name} {number(tags[name])}" for name in ("size", "density") if name in tags])
    caption = f"Action {action}, {shown_map.verdict} ({condition}; step {shown_map.step} of {shown_map.episode_id})"
    wrong = [] if shown_map.verdict == names.VERDICTS[0] else [0]
    truth = picture(grid, [step.state.position, later[0].position], label=caption, wrong=wrong)
    outline = (grid.height, grid.width)
    frame = max(len(shown_map.lines), len(shown_map.lines[0]), *outline)
    yield Figure(framed(truth, outline, frame), caption=caption)
    agent = [] if shown_map.tags.get("agent") is None else [str(shown_map.tags["agent"])]
    probe = PROBES(shown_map.tags.get("head"), shown_map.tags.get("control", "none"))
    point = ReadPoint(shown_map.tags.get("site"), shown_map.tags.get("layer"))
    probe_caption = f"Decoded: {', '.join([*agent, probe, str(point)])}"
    yield Figure(map_picture(shown_map.lines, f"{probe_caption}; {caption}", outline=outline), caption=probe_caption)


@probe_section(
    "beliefs",
    source="behavioural and representational evaluation, section 5.2, Table 2 and Figure 9",
    measures=_MEASURES.__contains__,
)
def beliefs_section(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the report's section on how well an agent's actions fit the maps that probes decode from its activations.

    ``rows`` are the results of the analysis "beliefs" for one agent.
    """
    natural = rows.where(reading=("natural", None))
    base, reading = (natural, "natural") if len(natural) else (rows, "balanced")
    point, points = base.main_point(), base.points()
    # The published head where present, else the first of the others.
    heads = base.values("head")
    head = next(head for head in ("mlp", *CELL_HEADS, *map(str, heads)) if head in heads)
    main = base.where(head=head, control=("none", None), **point.key)
    if not len(main):  # beliefs of a head that reads no activations, at no point
        main = base.where(head=head, control=("none", None))
    estimates = base.estimated(estimate_rows, _BELIEF_TAGS)
    page_estimates = [grouped for grouped in estimates if grouped.key["measure"] in _ON_PAGE]
    probe_place = f"{PROBES(head)} at {point}"
    same_layer = [layer_point for layer_point in points if layer_point.layer == point.layer] or [point]
    probes = {f"{PROBES(head)}, {layer_point}": layer_point.key for layer_point in same_layer}
    parts = {f"“{_heading(name)}”": {"measure": name + names.DIFFERENCE} for name in _IN_SENTENCES}
    keys = PROBES.in_order(estimates.keys(*_BELIEF_TAGS), points)
    differences = _belief_differences(base, head, same_layer)
    balanced = rows.where(reading="balanced" if len(natural) else ())
    beyond = [(NETWORKS[kind], end) for kind, end in _BEYOND.items()]
    published = balanced.where(head=head, control=("none", None), **point.key)
    balanced_ends = {
        "Shares of actions": "",
        "The same shares minus their values with shuffled beliefs": names.DIFFERENCE,
        **{f"How much these differences exceed those on {network}": end for network, end in beyond},
    }
    balanced_tables = _of_probes(balanced.estimated(estimate_rows, _BELIEF_TAGS), keys, balanced_ends)
    yield Declared(
        anchor="beliefs",
        title=rows.title("Actions against decoded beliefs"),
        explained=(TEXTS("beliefs/how"), TEXTS("beliefs/shuffled")),
        rule=f"{TEXTS('beliefs/rule')} {RULES}",
        sentences=[
            *claims(
                differences,
                [
                    (title, [(f"{part} beyond shuffled beliefs", {**place, **key}) for part, key in parts.items()])
                    for title, place in probes.items()
                ],
                floors=_BELIEF_FLOORS,
            ),
            *(
                Sentence(
                    f"{title}: minus shuffled beliefs",
                    estimates,
                    [(part, {**place, "head": head, "control": "none", **key}) for part, key in parts.items()],
                )
                for title, place in probes.items()
            ),
        ],
        tables=(
            _by_grids(
                main,
                f"Actions against decoded beliefs ({probe_place}, {READINGS[reading]})",
                _belief_columns((names.TRUTH, *_CONTROLLED)),
            ),
            _by_grids(
                main,
                f"The same minus its value with shuffled beliefs, paired by grid ({probe_place})",
                _belief_columns(_CONTROLLED, names.DIFFERENCE),
            ),
            *_of_probes(
                estimates,
                keys,
                {
                    "All probes, minus their value with shuffled beliefs": names.DIFFERENCE,
                    **{f"How much these differences exceed those of the same probe on {on}": end for on, end in beyond},
                },
            ),
        ),
        figures=(
            *_belief_curves(main),
            *_belief_curves(published, ", as published"),
            *_beliefs_over_layers(estimates, points, head),
        ),
        legend=f"{TEXTS('beliefs/legend')} {BANDS}",
        folds=(
            FoldSpec("Pooled over actions, as in the published table", [_pooled(main)]),
            FoldSpec(
                f"By size and density {READINGS['balanced']}",
                [
                    _by_grids(published, f"Table 2 and Figure 9 ({probe_place})", _as_published(published)),
                    _pooled(published),
                ]
                if len(published)
                else [],
            ),
            FoldSpec(f"All probes {READINGS['balanced']}", balanced_tables),
        ),
        undefined=PROBES.undefined(page_estimates),
        why=_why,
        counted=page_estimates,
    )


def _belief_differences(base: ProbeRows, head: str, near: Sequence[ReadPoint]) -> Estimates:
    """Return how much better actions fit the maps of a probe than those of its baselines and of random networks."""
    probe = {"measure": tuple(f"{name}{names.DIFFERENCE}" for name in _IN_SENTENCES), "head": head, "control": "none"}
    rivals = {**RANDOM_NETWORKS, **{floor: {**NOWHERE, "head": floor} for floor in _BELIEF_FLOORS}}
    return Estimates(
        grouped
        for point in near
        for grouped in contrasted(base, [Contrast({**probe, **point.key}, rivals)], estimate_rows, ("site", "layer"))
    )


def _why(measure: str) -> str:
    if measure in _LESS_SHUFFLED:
        return TEXTS("beliefs/no others")
    why = {names.RECOVERY: TEXTS("beliefs/none wrong"), names.INVERSE: TEXTS("beliefs/none wrong on map")}
    return why.get(measure, "")


def _heading(name: str) -> str:
    return _HEADINGS.get(name, name)


def _belief_columns(measures: Sequence[str], end: str = "") -> list[Column]:
    return [Column(_heading(name), "share", {"measure": name + end}) for name in measures]


def _by_grids(rows: ProbeRows, caption: str, columns: Sequence[Column]) -> TableSpec:
    """Return the table by size and density; its first row is over all grids."""
    selected_rows = rows.where(measure=[column.key["measure"] for column in columns])
    lines = [Line("all", {}), *(Line(*part) for part in _parts(selected_rows, fewest=2))]
    estimates = Estimates(
        part for by in ((), ("size",), ("density",)) for part in selected_rows.estimated(estimate_rows, by)
    )
    return TableSpec(f"{caption}: {MEAN}", "where", estimates, columns, lines)


def _parts(rows: ProbeRows, fewest: int = 1) -> list[tuple[str, Key]]:
    """Return each size and density in the rows with its label and key; empty for a tag with only one value."""
    values = {tag: rows.numbers(tag) for tag in _SYMBOLS}
    return [
        (f"{_SYMBOLS[tag]} = {number(value)}", {tag: value})
        for tag, tag_values in values.items()
        for value in tag_values
        if len(tag_values) >= fewest
    ]


def _of_probes(estimates: Estimates, keys: Sequence[Key], ends: Mapping[str, str]) -> list[TableSpec]:
    """Return a table of all probes for each caption, with the measures whose names have this ending."""
    return [
        PROBES.table(caption, estimates, keys, _belief_columns(_IN_PROBE_TABLES, end), first="probe")
        for caption, end in ends.items()
    ]


def _pooled(rows: ProbeRows) -> Table:
    parts = [("all", rows), *((label, rows.where(**key)) for label, key in _parts(rows))]
    return estimates_table(
        "Shares of all actions together, 95 % interval over grids",
        [("where", ""), *((column.title, column.unit) for column in _belief_columns(_BELIEF_COLUMNS))],
        [(label, [names.pooled_share(part_rows.rows, name) for name in _BELIEF_COLUMNS]) for label, part_rows in parts],
    )


def _tops(rows: ProbeRows) -> list[int]:
    """Return the numbers of candidates for which rows have accuracies, ascending."""
    measured = rows.values("measure")
    return [count for count, name in _TOPS.items() if name in measured]


def _as_published(rows: ProbeRows) -> list[Column]:
    """Return the columns of Table 2, and those of Figure 9."""
    table = (names.TRUTH, names.DECODED, names.OVERLAP, names.RECOVERY, names.INVERSE)
    return _belief_columns([*table, *(_TOPS[count] for count in _tops(rows))])


def _belief_curves(rows: ProbeRows, end: str = "") -> list[CurveSpec]:
    """Return accuracy on the true map and on the maps of the k likeliest pairs, each with its control (Fig. 9)."""
    tops = _tops(rows)
    measures = {"truth": names.TRUTH, **{f"top-{count}": _TOPS[count] for count in tops}}
    measures |= {f"top-{count}, shuffled": _TOPS[count] + names.SHUFFLED for count in tops[:1] + tops[-1:]}
    selected_rows = rows.where(measure=tuple(measures.values()))
    curves = [Curve(title, {"measure": measure}, fewest=2) for title, measure in measures.items()]
    estimates = {tag: selected_rows.estimated(estimate_rows, (tag,)) for tag in _SYMBOLS}
    return [
        CurveSpec(f"Optimal actions by {tag}{end}", "share of actions", tag, estimates[tag], curves)
        for tag in estimates
    ]


def _beliefs_over_layers(estimates: Estimates, points: Sequence[ReadPoint], head: str) -> list[CurveSpec]:
    """Return the differences in fit between decoded and shuffled maps, by layer and site."""
    probes = [(PROBES(head), head, "none"), *((title, head, kind) for kind, title in NETWORKS.items())]
    figures = list[CurveSpec]()
    for name in (names.DECODED, names.RECOVERY):
        curves = _probe_curves({"measure": name + names.DIFFERENCE}, probes)
        title = f"{_heading(name).capitalize()} minus shuffled, by layer"
        figures += over_layers(points, title, "difference (share)", estimates, curves, bounds=None)
    return figures


def _probe_curves(key: Key, probes: Iterable[tuple[str, str, str]]) -> list[Curve]:
    """Return a curve for each probe, given by its label, head and control."""
    return [Curve(label, {**key, "head": head, "control": control}) for label, head, control in probes]


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
    """Yield the report's section on the accuracy of plans (next moves) decoded by probes, beside controls and
    baselines.

    ``rows`` are the results of the analysis "plans" for one agent.
    """
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
    probes = ProbeNames(heads, {**PROBES.controls, **_PLAN_CONTROLS}, sorted(decoders.forms))
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
    for tokens in _SENTENCE_NUMBERS[:2]:
        if tokens in numbers:
            key: Key = {"measure": PREFIX, "plans": "all", "N": tokens}
            curves = _probe_curves(key, probes)
            caption = f"First {tokens} tokens by layer" if tokens > 1 else "First token by layer"
            figures += over_layers(points, caption, f"prefix accuracy, N = {tokens} (share)", estimates, curves)
    return figures


@probe_section(
    "distance",
    source="behavioural and representational evaluation, Appendix E.3, Table 4",
    measures=lambda measure: measure in (ERROR, SQUARED, DEVIATION),
)
def distance_section(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the report's section on errors of distances to the goal decoded by probes, beside baselines and controls.

    ``rows`` are the results of the analysis "distance" for one agent.
    """
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
        legend=TEXTS("distance/legend", fewest=CURVED),
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


def _distance_over_layers(estimates: Estimates, points: list[ReadPoint]) -> list[CurveSpec]:
    key: Key = {"measure": ERROR}
    flat = _probe_curves(key, [("Manhattan, true map", "manhattan", "true map"), ("mean", "mean", "none")])
    title = "Error of the decoded distance by layer"
    return over_layers(points, title, _Y_ERROR, estimates, _probe_curves(key, _MLPS), flat=flat, bounds=data_bounds)


def _by_distance(estimates: Estimates, point: ReadPoint) -> CurveSpec:
    mlp, linear, permuted = _MLPS
    decoded, true = (
        ("Manhattan on the decoded map", "manhattan", "none"),
        ("Manhattan on the true map", "manhattan", "true map"),
    )
    curves = [
        *_probe_curves({"measure": ERROR, **point.key}, [linear, mlp, permuted, decoded]),
        *_probe_curves({"measure": ERROR, **NOWHERE}, [true, ("mean", "mean", "none")]),
    ]
    title = f"Error by distance, {point}"
    return CurveSpec(
        title, _Y_ERROR, "distance", estimates, curves, bounds=data_bounds, ticks=(), counts=True, fewest_grids=CURVED
    )


@probe_section(
    "logit-lens",
    source="nostalgebraist 2020, interpreting GPT: the logit lens",
    measures=lambda measure: measure in MEASURES,
)
def logit_lens_section(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the report's section on the actions that the logit lens reads from the agent's network and from random
    networks.

    ``rows`` are the results of the analysis "logit-lens" for one agent.
    """
    estimates, points, probes = rows.estimated(summarise, TAGS), rows.points(), ProbeNames(_LENS_NAMES)
    networks = [str(control) for control in rows.values("control")]
    figures = list[CurveSpec]()
    for measure, label in _LENS_CURVES:
        curves = _probe_curves({"measure": measure}, [(name, HEAD, name) for name in networks])
        flat = _probe_curves({"measure": measure}, [(BLIND, BLIND, "none")])
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
