"""Decoded beliefs: maps beside the true grids, and actions against what is decoded from the activations.

Maps are shown if they are better than what the same probe decodes from random networks. Actions are compared with
decoded maps and, as a control, with shuffled ones.

Source: behavioural and representational evaluation, sections 5.1 and 5.2, Table 2, Figures 6 and 9.
"""

from collections.abc import Iterator, Mapping, Sequence

from goalscope._ground.words import listed
from goalscope.inside.probing import beliefs as names
from goalscope.inside.probing.beliefs import RULE, SOURCE, ShownMap
from goalscope.inside.probing.curves import TRAINED_ON
from goalscope.inside.probing.heads import CELL_HEADS
from goalscope.inside.probing.scores import AREA, KEY, summarise
from goalscope.report.blocks import (
    BANDS,
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
from goalscope.report.definitions import MADE, NETWORKS, RULES, claim_in_words, verdict
from goalscope.report.figures import framed, map_picture, picture
from goalscope.report.ledger import Estimates, Key, RunData
from goalscope.report.sections.probing import (
    NOWHERE,
    PROBES,
    RANDOM_NETWORKS,
    READINGS,
    Contrast,
    ProbeRows,
    ReadPoint,
    claims,
    contrasted,
    over_layers,
    probe_section,
)
from goalscope.report.texts import TEXTS, labels
from goalscope.runs.record import Episode
from goalscope.stats import estimate_rows
from goalscope.stats.rows import Tag
from goalscope.worlds.dynamics import shown
from goalscope.worlds.grid import Action


@section("decoded maps", source="behavioural and representational evaluation, Fig. 6", worlds="grids")
def decoded_maps(run: RunData) -> Iterator[Declared]:
    """The stored maps of a run, each with the state to which it belongs.

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


_TAGS = ("head", "control", "site", "layer")
_TOPS = {count: names.top_name(count) for count in names.TOPS}
_COLUMNS = (names.TRUTH, names.DECODED, names.OVERLAP, names.BOTH, names.VERDICT, names.RECOVERY, names.INVERSE)
_IN_PROBE_TABLES = (names.DECODED, names.OVERLAP, names.RECOVERY, names.INVERSE, names.EXPECTED)
_IN_SENTENCES = (names.DECODED, names.OVERLAP, names.RECOVERY, names.EXPECTED)
_CONTROLLED = (*_COLUMNS[1:], names.EXPECTED, names.NO_PLAN)
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
_FLOORS = {"position": "position alone"}
_SYMBOLS = {"size": "n", "density": "d"}


@probe_section(
    "beliefs",
    source="behavioural and representational evaluation, section 5.2, Table 2 and Figure 9",
    measures=_MEASURES.__contains__,
)
def declared(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the section on how well actions fit the grid that a probe decodes from the activations of the same step."""
    natural = rows.where(reading=("natural", None))
    base, reading = (natural, "natural") if len(natural) else (rows, "balanced")
    point, points = base.main_point(), base.points()
    # The published head where present, else the first of the others.
    heads = base.values("head")
    head = next(head for head in ("mlp", *CELL_HEADS, *map(str, heads)) if head in heads)
    main = base.where(head=head, control=("none", None), **point.key)
    if not len(main):  # beliefs of a head that reads no activations, at no point
        main = base.where(head=head, control=("none", None))
    estimates = base.estimated(estimate_rows, _TAGS)
    page_estimates = [grouped for grouped in estimates if grouped.key["measure"] in _ON_PAGE]
    probe_place = f"{PROBES(head)} at {point}"
    same_layer = [layer_point for layer_point in points if layer_point.layer == point.layer] or [point]
    probes = {f"{PROBES(head)}, {layer_point}": layer_point.key for layer_point in same_layer}
    parts = {f"“{_heading(name)}”": {"measure": name + names.DIFFERENCE} for name in _IN_SENTENCES}
    keys = PROBES.in_order(estimates.keys(*_TAGS), points)
    differences = _differences(base, head, same_layer)
    balanced = rows.where(reading="balanced" if len(natural) else ())
    beyond = [(NETWORKS[kind], end) for kind, end in _BEYOND.items()]
    published = balanced.where(head=head, control=("none", None), **point.key)
    balanced_ends = {
        "Shares of actions": "",
        "The same shares minus their values with shuffled beliefs": names.DIFFERENCE,
        **{f"How much these differences exceed those on {network}": end for network, end in beyond},
    }
    balanced_tables = _of_probes(balanced.estimated(estimate_rows, _TAGS), keys, balanced_ends)
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
                floors=_FLOORS,
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
                _columns((names.TRUTH, *_CONTROLLED)),
            ),
            _by_grids(
                main,
                f"The same minus its value with shuffled beliefs, paired by grid ({probe_place})",
                _columns(_CONTROLLED, names.DIFFERENCE),
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
        figures=(*_curves(main), *_curves(published, ", as published"), *_over_layers(estimates, points, head)),
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


def _differences(base: ProbeRows, head: str, near: Sequence[ReadPoint]) -> Estimates:
    """Return how much better actions fit the maps of a probe than those of its baselines and of random networks."""
    probe = {"measure": tuple(f"{name}{names.DIFFERENCE}" for name in _IN_SENTENCES), "head": head, "control": "none"}
    rivals = {**RANDOM_NETWORKS, **{floor: {**NOWHERE, "head": floor} for floor in _FLOORS}}
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


def _columns(measures: Sequence[str], end: str = "") -> list[Column]:
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
        PROBES.table(caption, estimates, keys, _columns(_IN_PROBE_TABLES, end), first="probe")
        for caption, end in ends.items()
    ]


def _pooled(rows: ProbeRows) -> Table:
    parts = [("all", rows), *((label, rows.where(**key)) for label, key in _parts(rows))]
    return estimates_table(
        "Shares of all actions together, 95 % interval over grids",
        [("where", ""), *((column.title, column.unit) for column in _columns(_COLUMNS))],
        [(label, [names.pooled_share(part_rows.rows, name) for name in _COLUMNS]) for label, part_rows in parts],
    )


def _tops(rows: ProbeRows) -> list[int]:
    """Return the numbers of candidates for which rows have accuracies, ascending."""
    measured = rows.values("measure")
    return [count for count, name in _TOPS.items() if name in measured]


def _as_published(rows: ProbeRows) -> list[Column]:
    """Return the columns of Table 2, and those of Figure 9."""
    table = (names.TRUTH, names.DECODED, names.OVERLAP, names.RECOVERY, names.INVERSE)
    return _columns([*table, *(_TOPS[count] for count in _tops(rows))])


def _curves(rows: ProbeRows, end: str = "") -> list[CurveSpec]:
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


def _over_layers(estimates: Estimates, points: Sequence[ReadPoint], head: str) -> list[CurveSpec]:
    """Return the differences in fit between decoded and shuffled maps, by layer and site."""
    figures = list[CurveSpec]()
    for name in (names.DECODED, names.RECOVERY):
        key = {"head": head, "measure": name + names.DIFFERENCE}
        probes = {"none": PROBES(head), **NETWORKS}
        curves = [Curve(title, {**key, "control": control}) for control, title in probes.items()]
        title = f"{_heading(name).capitalize()} minus shuffled, by layer"
        figures += over_layers(points, title, "difference (share)", estimates, curves, bounds=None)
    return figures
