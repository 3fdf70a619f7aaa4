"""Patched and steered activations, ablations, and edits of the written reasoning, each with its controls.

Source: behavioural and representational evaluation, Section 5.2 and Appendix F.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from goalscope._ground.words import counted
from goalscope.inside.interventions import directions, patching, reasoning
from goalscope.inside.interventions.directions import MEAN as DIFFERENCE
from goalscope.inside.interventions.directions import OWN, PROBE, RANDOM, SHUFFLED
from goalscope.inside.interventions.experiment import INFO, TAG
from goalscope.inside.interventions.patching import CHANGED, LOG_ODDS, PATCHES, RECOVERY, REROUTED, WHOLE
from goalscope.inside.interventions.patching import FOLLOWS as FOLLOWS_SOURCE
from goalscope.inside.interventions.reading import ELSEWHERE, FOLLOWS, PAIR, STAYS
from goalscope.inside.probing.scores import chosen
from goalscope.report.blocks import (
    BANDS,
    MEAN,
    Column,
    Curve,
    CurveSpec,
    Declared,
    FoldSpec,
    Line,
    MapSpec,
    RivalsSentence,
    TableSpec,
    section,
)
from goalscope.report.definitions import CARRIES, NEEDED_BY_ACTION, TURNS
from goalscope.report.ledger import Estimates, Key, RunData
from goalscope.report.sections.probing import Contrast, ProbeRows, contrasted
from goalscope.report.texts import TEXTS, labels
from goalscope.runs.provenance import noted
from goalscope.stats import LESS, Grouped, estimate_rows
from goalscope.stats.rows import Rows, Tag

_SITES: Final = labels("labels/patched sites")
_PATCHES: Final = labels("labels/patches")
_CONTROLS: Final[tuple[str, ...]] = tuple(name for name in PATCHES if name not in ("source", "identity"))
_PLACE: Final = ("layers", "layer", "component")
_BY: Final = ("site", *_PLACE, "patch", "reading")


@section("patching", source="behavioural and representational evaluation, Section 5.2 and Appendix F", worlds="grids")
def patched(run: RunData) -> Iterator[Declared]:
    """Yield the report's sections on activation patching: one for each agent and each thing moved in the paired
    grids.
    """
    yield from _experiments(run, patching.KIND)


@section("steering", worlds="grids")
def steered(run: RunData) -> Iterator[Declared]:
    """Yield the report's sections on steering, ablation and edits of reasoning: one per experiment, agent and thing
    moved.
    """
    yield from _experiments(run, directions.STEERING, directions.ABLATION, reasoning.KIND)


def _experiments(run: RunData, *kinds: str) -> Iterator[Declared]:
    """Yield a section for each experiment, agent and thing moved.

    Effects differ between pairs in which different things are moved, so they are not pooled. The title names the thing,
    and the agent if there are several.
    """
    changed = run.measured.changed
    for kind in kinds:
        rows = chosen(changed, **{TAG: kind}) if len(changed) else changed
        agents = list(dict.fromkeys(rows["agent"].tolist())) if len(rows) else []
        facts = noted(run.store, INFO).get(kind, {})
        for agent in agents:
            of_agent = chosen(rows, agent=agent)
            name = f", {agent}" if len(agents) > 1 else ""
            for thing in dict.fromkeys(of_agent["moved"].tolist()):
                section = declared(kind, chosen(of_agent, moved=thing), f", {thing} moved{name}")
                yield replace(section, facts=_facts(facts, thing) if facts.get("agent") == agent else ())


def declared(kind: str, rows: Rows, title_suffix: str = "") -> Declared:
    """Return the report's section on one experiment that changed an agent's activations or reasoning.

    Args:
        kind: patching, steering, ablation, or reasoning-edits.
        rows: its rows of results, for one agent and one thing moved.
        title_suffix: text appended to its title.
    """
    return _MAKERS[kind](rows, title_suffix)


def _facts(facts: Mapping[str, Any], thing: Tag) -> list[tuple[str, str]]:
    """Say which model was used, in how many pairs a thing is moved, how many pairs were requested if more, and what is
    left out.
    """
    details = [("model", str(facts["model"]))] if "passes left out" in facts else []
    if (numbers := facts.get("by thing moved", {}).get(thing)) is not None:
        found_pairs, requested = numbers["pairs"], numbers["asked for"]
        fields = {"pairs": counted(found_pairs, "pair"), "thing": str(thing)}
        text = TEXTS("interventions/pairs", **fields)
        if found_pairs < requested:
            text = TEXTS("interventions/too few pairs", requested=requested, **fields)
        details.append(("pairs", text))
    if "passes left out" in facts:
        left_out = {
            f"{kind}, {reason}": count
            for kind, reasons in facts["left out"].items()
            for reason, count in reasons.items()
        }
        left_out |= facts["passes left out"]
        text = "; ".join(f"{reason}: {count}" for reason, count in left_out.items())
        details.append(("left out", text or "nothing"))
    return details


def _estimated(rows: Rows, *by: str) -> Estimates:
    return Estimates(estimate_rows(rows, by=by))


def _patching(rows: Rows, title_suffix: str) -> Declared:
    free = chosen(rows, reading="free", pairs="counterfactual", structural=None)
    estimates = _estimated(free, *_BY)
    forced, control = (
        _estimated(chosen(rows, structural=None, **{tag: value}), *_BY)
        for tag, value in (("reading", "forced"), ("pairs", "control"))
    )
    rivals = {name: {"patch": name} for name in _CONTROLS}
    contrast = Contrast({"patch": "source"}, rivals, ("site", "layers", "component", "direction", "moved"))
    following = ProbeRows(chosen(free, measure=FOLLOWS_SOURCE))
    differences = contrasted(following, [contrast], estimate_rows, ("site", *_PLACE))
    all_sites = dict.fromkeys([*_SITES, *map(str, estimates.values("site"))])
    controls = {name: name for name in _CONTROLS}
    sites = [site for site in all_sites if estimates.values("layers", measure=FOLLOWS_SOURCE, site=site)]

    def table(
        caption: str,
        measure: str = FOLLOWS_SOURCE,
        selects: Callable[[Key], bool] = _single_or_all_layers,
        shown: Estimates = estimates,
        unit: str = "share",
    ) -> TableSpec:
        columns = [Column(label, unit, {"measure": measure, "patch": patch}) for patch, label in _PATCHES.items()]
        lines = _lines(shown, [WHOLE, *sites] if shown is forced else sites, selects, measure=measure)
        return TableSpec(f"{caption}: {MEAN}", "site and layer", shown, columns, lines)

    return Declared(
        anchor="patching",
        title=f"Patched activations{title_suffix}",
        explained=(TEXTS("interventions/patched"), TEXTS("interventions/nulls")),
        sentences=[
            RivalsSentence(site_name(site), differences, parts, controls, CARRIES, needed=("isotropic",))
            for site in sites
            for parts in [list(_patched_parts(site, estimates))]
        ],
        rule=TEXTS("interventions/carries rule"),
        tables=(
            table("Action follows the source, single layers and all of them"),
            TableSpec(
                f"Action follows the source, minus its controls, paired: {MEAN}",
                "site and layer",
                differences,
                [
                    Column(f"minus {_PATCHES[name]}", "share", {"measure": FOLLOWS_SOURCE, "less": name})
                    for name in _CONTROLS
                ],
                _lines(differences, sites, tags=_PLACE),
            ),
        ),
        figures=(_map(_by_layer(estimates)), *_curves(_by_layer(estimates), sites)),
        legend=BANDS,
        folds=[
            FoldSpec("Windows of layers", [table("Windows", selects=_windows)]),
            FoldSpec(
                "Attention and MLP apart",
                [
                    table("Attention output", selects=lambda key: key["component"] == "attention"),
                    table("MLP or expert output", selects=lambda key: key["component"] == "mlp"),
                ],
            ),
            FoldSpec(
                "Any change of the action, with controls of the norm and of the source",
                [table("Action leaves the target's optimal set", CHANGED)],
            ),
            FoldSpec(
                "Control pairs: the optimal actions are the same, so the action must stay",
                [table("Action leaves the optimal set", CHANGED, shown=control)],
            ),
            FoldSpec(
                "Answers after replayed reasoning",
                [
                    table("The most likely answer is one of the source's optimal ones", shown=forced),
                    table("Normalised recovery of the log-odds", RECOVERY, shown=forced, unit="ratio"),
                    table(
                        "Change of the log-odds towards the source's optimal actions",
                        LOG_ODDS,
                        shown=forced,
                        unit="nats",
                    ),
                ],
                paragraphs=[TEXTS("interventions/forced")],
            ),
            FoldSpec("By direction", [_directions(free, sites)], paragraphs=[TEXTS("interventions/direction")]),
            FoldSpec("Experts", [table("Tokens that are routed to other experts", REROUTED)]),
        ],
        undefined=[(str(grouped.key["measure"]), _place_text(grouped.key), grouped.estimate) for grouped in estimates],
        counted=[*estimates, *differences, *forced, *control],
    )


def _patched_parts(site: str, estimates: Estimates) -> Iterator[tuple[str, Key]]:
    """Yield the layers of a site about which claims are made: single layers, and all of them together."""
    site_key = {"measure": FOLLOWS_SOURCE, "site": site, "component": "residual"}
    for key in filter(_single_or_all_layers, estimates.keys(*_PLACE, patch="source", **site_key)):
        yield "all layers" if key["layer"] is None else f"layer {key['layer']}", {**site_key, **key}


def site_name(site: Tag) -> str:
    """Describe in words the tokens of a site (the positions where activations are changed), such as "pre"; unknown ones
    stay.
    """
    return _SITES.get(str(site), str(site))


def _place_text(key: Key) -> str:
    return f"{site_name(key.get('site'))}, layers {key.get('layers')}, {key.get('component')}, {key.get('patch')}"


def _single_or_all_layers(key: Key) -> bool:
    return key["component"] == "residual" and (key["layer"] is not None or key["layers"] == "all")


def _windows(key: Key) -> bool:
    return key["component"] == "residual" and not _single_or_all_layers(key)


def _lines(
    estimates: Estimates,
    sites: Sequence[str],
    selects: Callable[[Key], bool] = _single_or_all_layers,
    tags: Sequence[str] = (*_PLACE, "reading"),
    **conditions: Tag,
) -> list[Line]:
    """Return a line for each site and its layers: single layers and windows in order, then all layers together."""
    return [
        Line(f"{site_name(site)}, {_layers(key)}", {"site": site, **key})
        for site in sites
        for key in sorted(filter(selects, estimates.keys(*tags, site=site, **conditions)), key=_order)
    ]


def _layers(key: Key) -> str:
    return "all layers" if key["layers"] == "all" else f"layer{'' if key['layer'] is not None else 's'} {key['layers']}"


def _order(key: Key) -> tuple[bool, int]:
    return key["layers"] == "all", int(str(key["layers"]).split()[0]) if key["layers"] != "all" else 0


def _by_layer(estimates: Estimates) -> Estimates:
    """Return the estimates of single layers, by their number alone."""
    return Estimates(
        replace(grouped, key={name: value for name, value in grouped.key.items() if name != "layers"})
        for grouped in estimates
        if grouped.key["layer"] is not None
    )


def _map(estimates: Estimates) -> MapSpec:
    return MapSpec(
        title="Action follows the source, by site and layer",
        label="Share of runs whose action is one of the source's optimal ones, one layer patched",
        estimates=estimates,
        key={"measure": FOLLOWS_SOURCE, "patch": "source", "component": "residual", "reading": "free"},
        rows="site",
        columns="layer",
        row_label="site",
        column_label="layer (-1 is the embedding)",
    )


def _curves(estimates: Estimates, sites: Sequence[str]) -> Iterator[CurveSpec]:
    """Yield the share of runs that follow the source by layer, one curve per patched component and patch."""
    for site in sites:
        key = {"measure": FOLLOWS_SOURCE, "site": site, "reading": "free"}
        curves = [
            Curve(label, {**key, "component": component, "patch": patch})
            for label, component, patch in (
                ("residual stream", "residual", "source"),
                ("attention output", "attention", "source"),
                ("MLP output", "mlp", "source"),
                ("residual stream, isotropic noise", "residual", "isotropic"),
                ("residual stream, another pair's source", "residual", "wrong"),
            )
        ]
        yield CurveSpec(_capital(site_name(site)), "action follows the source (share)", "layer", estimates, curves)


def _directions(free: Rows, sites: Sequence[str]) -> TableSpec:
    """Return the table by direction of the patch, as in the paper's Appendix F."""
    source = chosen(free, measure=FOLLOWS_SOURCE, patch="source", component="residual")
    estimates = _estimated(source, "site", *_PLACE, "reading", "direction")
    columns = [
        Column(str(direction), "share", {"measure": FOLLOWS_SOURCE, "direction": direction})
        for direction in estimates.values("direction")
    ]
    lines = _lines(estimates, sites, measure=FOLLOWS_SOURCE)
    return TableSpec(f"Action follows the source, by direction: {MEAN}", "site and layer", estimates, columns, lines)


def _paired_differences(rows: Rows, key: Key, rivals: Mapping[str, Key], by: Sequence[str]) -> Iterator[Grouped]:
    """Yield the difference of an intervention from each rival, paired by pair of grids."""
    for grouped in contrasted(ProbeRows(rows), [Contrast(key, rivals, (*by, PAIR))], estimate_rows, by):
        measure, _, rival = str(grouped.key["measure"]).partition(LESS)
        yield Grouped(key={**key, **grouped.key, "measure": measure, "less": rival}, estimate=grouped.estimate)


def _steering(rows: Rows, title_suffix: str) -> Declared:
    by = ("site", "layer", "dose")
    counterfactual = chosen(rows, pairs="counterfactual")
    follows = chosen(counterfactual, measure=FOLLOWS)
    estimates = _estimated(counterfactual, "direction", *by)
    control = _estimated(chosen(rows, pairs="control"), "direction", *by)
    rivals = {"random directions": {"direction": RANDOM}, "shuffled probe": {"direction": SHUFFLED}}
    differences = Estimates(
        grouped
        for kind in (PROBE, DIFFERENCE)
        for grouped in _paired_differences(follows, {"direction": kind}, rivals, by)
    )
    kinds = [kind for kind in (PROBE, DIFFERENCE, SHUFFLED, RANDOM, OWN) if kind in estimates.values("direction")]
    positions = estimates.keys("site", "layer")
    lines = [Line(_where(key), key) for key in estimates.keys(*by)]

    def table(caption: str, measure: str, shown: Estimates = estimates) -> TableSpec:
        columns = [Column(kind, "share", {"measure": measure, "direction": kind}) for kind in kinds]
        return TableSpec(f"{caption}: {MEAN}", "site, layer, dose", shown, columns, lines)

    def doses(key: Key) -> list[tuple[str, Key]]:
        return [(f"dose {part['dose']:g}", {**key, **part}) for part in differences.keys("dose", **key)]

    return Declared(
        anchor="steering",
        title=f"Steering{title_suffix}",
        explained=(TEXTS("interventions/steered"), TEXTS("interventions/steered controls")),
        sentences=[
            RivalsSentence(
                f"{kind}, {_where(position)}",
                differences,
                doses({"direction": kind, "measure": FOLLOWS, **position}),
                {name: name for name in rivals},
                TURNS,
            )
            for kind in (PROBE, DIFFERENCE)
            for position in positions
        ],
        rule=TEXTS("interventions/turns rule"),
        tables=(table("Action follows the edited grid", FOLLOWS), table("Its own probe flips", directions.FLIPPED)),
        figures=[
            CurveSpec(
                _capital(_where(position)),
                "action follows the edited grid (share)",
                "dose",
                estimates,
                [Curve(kind, {"measure": FOLLOWS, "direction": kind, **position}) for kind in kinds],
                x_label="dose (own differences)",
            )
            for position in positions
        ],
        legend=BANDS,
        folds=[
            FoldSpec(
                "Damage",
                [
                    table("Control pairs: the action stays optimal", STAYS, control),
                    table("The action is optimal in neither grid", ELSEWHERE),
                    table("The position of what did not move is still stated", directions.STATED),
                ],
            )
        ],
        counted=[*estimates, *control, *differences],
    )


def _ablation(rows: Rows, title_suffix: str) -> Declared:
    place = ("thing", "site", "layer")
    by = (*place, directions.RANK, directions.READABLE, "fallen")
    estimates = _estimated(rows, *by, "subspace")
    sizes = _estimated(chosen(rows, fallen=True), *place, "subspace", "size")
    rivals = {"random subspaces": {"subspace": directions.RANDOM_SUBSPACE}}
    differences = Estimates(_paired_differences(rows, {"subspace": directions.AMNESIC}, rivals, (*place, "fallen")))
    fallen: Key = {"fallen": True, "measure": STAYS, "subspace": directions.AMNESIC}

    def table(
        caption: str, first: str, estimates: Estimates, tags: Sequence[str], label: Callable[[Key], str]
    ) -> TableSpec:
        columns = [
            Column(name, "share", {"measure": STAYS, "subspace": name})
            for name in (directions.AMNESIC, directions.RANDOM_SUBSPACE)
        ]
        lines = [Line(f"{key['thing']}, {_where(key)}{label(key)}", key) for key in estimates.keys(*tags)]
        return TableSpec(f"{caption}: {MEAN}", first, estimates, columns, lines)

    def fall(key: Key) -> str:
        state = "at chance" if key["fallen"] else "readable"
        correlation, rank = str(key[directions.READABLE]), str(key[directions.RANK])
        return TEXTS(f"interventions/{state}", correlation=correlation, rank=rank)

    def places(thing: Tag) -> list[tuple[str, Key]]:
        keys = differences.keys("site", "layer", thing=thing, **fallen)
        return [(_where(key), {"thing": thing, **fallen, **key}) for key in keys]

    first = "probe, correlation on held-out grids, directions removed"
    by_size = table(
        "Action stays optimal, by size", "probe, size", sizes, (*place, "size"), lambda key: f", size {key['size']}"
    )
    return Declared(
        anchor="ablation",
        title=f"Ablation of what probes read{title_suffix}",
        explained=(TEXTS("interventions/ablated"),),
        sentences=[
            RivalsSentence(
                f"Cell of the {thing}", differences, places(thing), {name: name for name in rivals}, NEEDED_BY_ACTION
            )
            for thing in estimates.values("thing")
        ],
        rule=TEXTS("interventions/needed rule"),
        tables=(table("Action stays optimal", first, estimates, by, fall),),
        folds=[FoldSpec("By size, if the probe is at chance", [by_size])],
        counted=[*estimates, *sizes, *differences],
    )


def _reasoning(rows: Rows, title_suffix: str) -> Declared:
    estimates = _estimated(rows, "edit")
    columns = [Column(name, "share", {"measure": name}) for name in (FOLLOWS, STAYS, ELSEWHERE, reasoning.UNSTATED)]
    order = [*reasoning.EDITS, *reasoning.PATCHES]
    lines = [Line(name, {"edit": name}) for name in order if name in estimates.values("edit")]
    return Declared(
        anchor="reasoning-edits",
        title=f"Edits of the written reasoning{title_suffix}",
        explained=(TEXTS("interventions/edited"), TEXTS("interventions/edited beside")),
        tables=(TableSpec(f"The answer after an edit: {MEAN}", "edit", estimates, columns, lines),),
        counted=[*estimates],
    )


def _where(key: Key) -> str:
    dose = f", dose {key['dose']:g}" if "dose" in key else ""
    return f"{site_name(key['site'])}, layer {key['layer']}{dose}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


_MAKERS: Final[Mapping[str, Callable[[Rows, str], Declared]]] = {
    patching.KIND: _patching,
    directions.STEERING: _steering,
    directions.ABLATION: _ablation,
    reasoning.KIND: _reasoning,
}
