"""Activation patching: effect on the action by site and layer, with controls at the same site and layer.

Source: behavioural and representational evaluation, Section 5.2 and Appendix F.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from goalscope._ground.words import counted
from goalscope.inside.interventions.experiment import INFO, TAG
from goalscope.inside.interventions.passes import PATCHES
from goalscope.inside.interventions.patching import CHANGED, FOLLOWS, KIND, LOG_ODDS, RECOVERY, REROUTED, WHOLE
from goalscope.inside.probing.scores import chosen, pairs
from goalscope.report.ledger import Estimates, Key, RunData
from goalscope.report.specs import (
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
from goalscope.report.verdicts import CARRIES, CARRIES_RULE
from goalscope.runs.provenance import noted
from goalscope.stats import estimate_rows
from goalscope.stats.rows import Rows, Tag

_SITES: Final = {
    "grid": "all cells of the grid",
    "changed": "the cells that differ",
    "pre": "the tokens before the reasoning",
    "post": "the tokens between reasoning and answer",
    "action": "the token before the action",
    WHOLE: "the whole prompt",
}
_PATCHES: Final = {
    "source": "source",
    "isotropic": "isotropic noise",
    "covariance": "noise with the activations' covariance",
    "wrong": "another pair's source",
    "identity": "itself (identity)",
}
_CONTROLS: Final[tuple[str, ...]] = tuple(name for name in PATCHES if name not in ("source", "identity"))
_FREE: Final = {"reading": "free", "pairs": "counterfactual", "structural": None}
_BY: Final = ("site", "layers", "layer", "component", "patch", "reading")
_LINE: Final = ("layers", "layer", "component", "reading")
_TEXT: Final = (
    "Vectors of a run on one grid (the source) are written into a run on its counterfactual (the target), "
    "in which one thing is moved so that no optimal action is shared; the agent acted optimally in both. Then the "
    "model writes reasoning and answer freely. Shown is the share of runs whose action is one of the source's optimal "
    "ones, both directions together. Layer -1 is the embedding: at the cells that differ a swap there must move the "
    "action, for the prompt is then the source's."
)
_NULLS: Final = (
    "Not counted: the last layer at sites without the last token of the pass. No later layer reads it there: it cannot "
    "move anything, whatever the model does."
)
_FORCED: Final = (
    "Answer after the target's recorded reasoning (forced), biased to null: the plan that was written stays in the "
    "context. The line on the whole prompt is the bias itself: there every token of the prompt is the source's, and no "
    "patch of the prompt can do more. Recovery is the change of log-odds between the two sets of optimal actions, in "
    "units of their difference between the two unchanged runs: 0 is the target, 1 the source."
)


@section("patching", source="behavioural and representational evaluation, Section 5.2 and Appendix F", worlds="grids")
def content(run: RunData) -> Iterator[Declared]:
    """Yield one section for each agent whose activations were patched, and each thing moved."""
    for thing, rows, title_suffix, facts in by_thing(run, KIND):
        yield _declared(f"Patched activations{title_suffix}", rows, thing, facts)


def by_thing(run: RunData, kind: str) -> Iterator[tuple[Tag, Rows, str, Mapping[str, Any]]]:
    """Yield each agent and thing moved of an experiment: the thing, the rows, a suffix for titles, and facts.

    Effects on pairs in which another thing is moved differ, so that they are not pooled. The suffix names the thing,
    and the agent if there are several.
    """
    rows = chosen(run.changed, **{TAG: kind}) if len(run.changed) else run.changed
    agents = list(dict.fromkeys(rows["agent"].tolist())) if len(rows) else []
    facts = noted(run.store, INFO).get(kind, {})
    for agent in agents:
        of_agent = chosen(rows, agent=agent)
        name = f", {agent}" if len(agents) > 1 else ""
        for thing in dict.fromkeys(of_agent["moved"].tolist()):
            of_thing = chosen(of_agent, moved=thing)
            yield thing, of_thing, f", {thing} moved{name}", facts if facts.get("agent") == agent else {}


def pair_facts(facts: Mapping[str, Any], thing: Tag) -> list[tuple[str, str]]:
    """Return how many pairs there are in which a thing is moved, and how many were asked for if more."""
    numbers = facts.get("by thing moved", {}).get(thing)
    if numbers is None:
        return []
    found, asked = numbers["pairs"], numbers["asked for"]
    more = f" of {asked} asked for: too few grids have one in which the agent acts optimally on both sides"
    return [("pairs", f"{counted(found, 'pair')}, {thing} moved{more if found < asked else ''}")]


def _declared(title: str, rows: Rows, thing: Tag, facts: Mapping[str, Any]) -> Declared:
    free = chosen(rows, **_FREE)
    estimates = Estimates(estimate_rows(free, by=_BY))
    differences = _paired_differences(chosen(free, measure=FOLLOWS))
    further_sites = [site for site in estimates.values("site") if site not in _SITES]
    sites = [
        site for site in [*_SITES, *map(str, further_sites)] if estimates.values("layers", measure=FOLLOWS, site=site)
    ]
    forced = Estimates(estimate_rows(chosen(rows, reading="forced", structural=None), by=_BY))
    control = Estimates(estimate_rows(chosen(rows, pairs="control", structural=None), by=_BY))
    return Declared(
        anchor="patching",
        title=title,
        explained=(_TEXT, _NULLS),
        facts=_facts(facts, thing),
        sentences=[_claim(site, estimates, differences) for site in sites],
        rule=CARRIES_RULE,
        tables=(
            _table(
                "Action follows the source, single layers and all of them",
                estimates,
                sites,
                FOLLOWS,
                _single_or_all_layers,
            ),
            TableSpec(
                f"Action follows the source, less its controls, paired: {MEAN}",
                "site and layer",
                differences,
                [Column(f"less {_PATCHES[name]}", "share", {"measure": FOLLOWS, "less": name}) for name in _CONTROLS],
                _lines(differences, sites, _single_or_all_layers, ("layers", "layer", "component")),
            ),
        ),
        figures=(_map(estimates), *_curves(estimates, sites)),
        legend="Bands are 95 % intervals over grids.",
        folds=[
            FoldSpec("Windows of layers", [_table("Windows", estimates, sites, FOLLOWS, _windows)]),
            FoldSpec(
                "Attention and MLP apart",
                [
                    _table(label, estimates, sites, FOLLOWS, lambda key, part=component: key["component"] == part)  # type: ignore[misc]
                    for component, label in (("attention", "Attention output"), ("mlp", "MLP or expert output"))
                ],
            ),
            FoldSpec(
                "Any change of the action, controls of the norm and of the source",
                [_table("Action leaves the target's optimal set", estimates, sites, CHANGED, _single_or_all_layers)],
            ),
            FoldSpec(
                "Control pairs: the optimal actions are the same, the action must stay",
                [_table("Action leaves the optimal set", control, sites, CHANGED, _single_or_all_layers)],
            ),
            FoldSpec(
                "Answers after replayed reasoning",
                [
                    _table(caption, forced, [WHOLE, *sites], measure, _single_or_all_layers, unit)
                    for measure, unit, caption in (
                        (FOLLOWS, "share", "The most likely answer is one of the source's optimal ones"),
                        (RECOVERY, "ratio", "Normalised recovery of the log-odds"),
                        (LOG_ODDS, "nats", "Change of the log-odds towards the source's optimal actions"),
                    )
                ],
                paragraphs=[_FORCED],
            ),
            FoldSpec(
                "By direction", [_directions(free, sites)], paragraphs=["Vectors of the one grid into the other's run."]
            ),
            FoldSpec(
                "Experts",
                [_table("Tokens whose experts are others", estimates, sites, REROUTED, _single_or_all_layers)],
            ),
        ],
        undefined=[(str(grouped.key["measure"]), _place_text(grouped.key), grouped.estimate) for grouped in estimates],
        counted=[*estimates, *differences, *forced, *control],
    )


def _facts(facts: Mapping[str, Any], thing: Tag) -> list[tuple[str, str]]:
    if not facts:
        return []
    left_out = {
        f"{kind}, {reason}": count for kind, reasons in facts["left out"].items() for reason, count in reasons.items()
    }
    left_out |= facts["passes left out"]
    return [
        ("model", str(facts["model"])),
        *pair_facts(facts, thing),
        (
            "left out",
            "; ".join(f"{reason}: {count}" for reason, count in left_out.items()) or "nothing",
        ),
    ]


def _paired_differences(rows: Rows) -> Estimates:
    """Return the paired differences in following the source between source patches and each control."""
    source = chosen(rows, patch="source")
    by = ("site", "layers", "component", "direction", "moved")
    paired = (pairs(source, chosen(rows, patch=control), name=control, by=by) for control in _CONTROLS)
    return Estimates(
        grouped
        for part in paired
        if len(part)
        for grouped in estimate_rows(part, by=("site", "layers", "layer", "component"))
    )


def _claim(site: str, estimates: Estimates, differences: Estimates) -> RivalsSentence:
    """Return the claim about a site: single layers, and all of them."""
    site_key = {"measure": FOLLOWS, "site": site, "component": "residual"}
    keys = filter(_single_or_all_layers, estimates.keys("layers", "layer", "component", patch="source", **site_key))
    parts = [("all layers" if key["layer"] is None else f"layer {key['layer']}", {**site_key, **key}) for key in keys]
    return RivalsSentence(
        site_name(site), differences, parts, {name: name for name in _CONTROLS}, CARRIES, needed=("isotropic",)
    )


def site_name(site: Tag) -> str:
    """Return the description of the tokens of a site."""
    return _SITES.get(str(site), str(site))


def _place_text(key: Key) -> str:
    return f"{site_name(key.get('site'))}, layers {key.get('layers')}, {key.get('component')}, {key.get('patch')}"


def _single_or_all_layers(key: Key) -> bool:
    return key["component"] == "residual" and (key["layer"] is not None or key["layers"] == "all")


def _windows(key: Key) -> bool:
    return key["component"] == "residual" and not _single_or_all_layers(key)


def _lines(
    estimates: Estimates,
    sites: list[str],
    selects: Callable[[Key], bool],
    tags: tuple[str, ...] = _LINE,
    **conditions: Tag,
) -> list[Line]:
    return [
        Line(f"{site_name(site)}, {_layers(key)}", {"site": site, **key})
        for site in sites
        for key in sorted(filter(selects, estimates.keys(*tags, site=site, **conditions)), key=_order)
    ]


def _layers(key: Key) -> str:
    return "all layers" if key["layers"] == "all" else f"layer{'' if key['layer'] is not None else 's'} {key['layers']}"


def _order(key: Key) -> tuple[bool, int]:
    return key["layers"] == "all", int(str(key["layers"]).split()[0]) if key["layers"] != "all" else 0


def _table(
    caption: str,
    estimates: Estimates,
    sites: list[str],
    measure: str,
    selects: Callable[[Key], bool],
    unit: str = "share",
) -> TableSpec:
    columns = [Column(label, unit, {"measure": measure, "patch": patch}) for patch, label in _PATCHES.items()]
    lines = _lines(estimates, sites, selects, measure=measure)
    return TableSpec(f"{caption}: {MEAN}", "site and layer", estimates, columns, lines)


def _by_layer(estimates: Estimates) -> Estimates:
    """Return the estimates of single layers, by their number alone."""
    single = [grouped for grouped in estimates if grouped.key["layer"] is not None]
    return Estimates(
        replace(grouped, key={k: v for k, v in grouped.key.items() if k != "layers"}) for grouped in single
    )


def _map(estimates: Estimates) -> MapSpec:
    return MapSpec(
        title="Action follows the source, by site and layer",
        label="Share of runs whose action is one of the source's optimal ones, one layer patched",
        estimates=_by_layer(estimates),
        key={"measure": FOLLOWS, "patch": "source", "component": "residual", "reading": "free"},
        rows="site",
        columns="layer",
        row_label="site",
        column_label="layer (-1 is the embedding)",
    )


def _curves(all_estimates: Estimates, sites: list[str]) -> Iterator[CurveSpec]:
    """Yield the share of runs that follow the source by layer, one curve per patched component and patch."""
    estimates = _by_layer(all_estimates)
    for site in sites:
        curves = [
            Curve(
                label,
                {"measure": FOLLOWS, "site": site, "reading": "free", "component": component, "patch": patch},
            )
            for label, component, patch in (
                ("residual stream", "residual", "source"),
                ("attention output", "attention", "source"),
                ("MLP output", "mlp", "source"),
                ("residual stream, isotropic noise", "residual", "isotropic"),
                ("residual stream, another pair's source", "residual", "wrong"),
            )
        ]
        title = f"{site_name(site)[0].upper()}{site_name(site)[1:]}"
        yield CurveSpec(title, "action follows the source (share)", "layer", estimates, curves)


def _directions(free: Rows, sites: list[str]) -> TableSpec:
    """Return the table of both directions, as in the paper's Appendix F."""
    source = chosen(free, measure=FOLLOWS, patch="source", component="residual")
    estimates = Estimates(estimate_rows(source, by=("site", "layers", "layer", "component", "reading", "direction")))
    columns = [
        Column(str(direction), "share", {"measure": FOLLOWS, "direction": direction})
        for direction in estimates.values("direction")
    ]
    lines = _lines(estimates, sites, _single_or_all_layers, measure=FOLLOWS)
    return TableSpec(f"Action follows the source, by direction: {MEAN}", "site and layer", estimates, columns, lines)
