"""Sets of places, each a site and a layer: which of them carry the action together, beside sets that need not."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from goalscope.interventions.patching import CHANGED, FOLLOWS
from goalscope.interventions.place_sets import ALL, FOUND, KIND, PLACE, RANDOM, Place
from goalscope.probing.scores import chosen, pairs
from goalscope.report.figures import Record
from goalscope.report.ledger import Estimates, Key, RunData
from goalscope.report.matrix import MatrixCell, matrix
from goalscope.report.sections.patching import by_thing, pair_facts, site_name
from goalscope.report.specs import (
    MEAN,
    Column,
    Declared,
    Figure,
    FoldSpec,
    Line,
    RivalsSentence,
    TableSpec,
    section,
)
from goalscope.report.verdicts import CARRIES
from goalscope.rows import Rows, Tag
from goalscope.stats import estimate_rows

_PATCHES: Final = {"source": "source", "isotropic": "noise in the same places", RANDOM: "random sets of as many places"}
_CONTROLS: Final = tuple(name for name in _PATCHES if name != "source")
_SEARCHED: Final = "searched"
_BY: Final = ("set", "patch")
_TEXT: Final = (
    "A place is a site and a layer. The vectors of a set of places are read in the run on one grid (the source) and "
    "written, in one pass, into the run on its counterfactual (the target), in which one thing is moved so that no "
    "optimal action is shared; the agent acted optimally in both. Shown is the share of runs whose action is one of "
    "the source's optimal ones, both directions together."
)
_FOUND: Final = (
    "The set that was found is irreducible on the half of the grids that the search saw: without any one of its places "
    "it had less than the declared share of the effect of all places. Another set may be smaller. Its numbers, and "
    "those of all places, are of the other half, which had no part in the choice."
)
_RULE: Final = (
    "Carries the action: with the source's vectors in the places of the set, the action is one of the source's optimal "
    "actions more often than with noise of the same norm in the same places and than with random sets of as many "
    "places, each with a 95 % interval of the paired difference, over grids, above 0. The control whose difference has "
    "the lowest end decides and is named. All places together have no random sets beside them."
)


@section(KIND, worlds="grids")
def content(run: RunData) -> Iterator[Declared]:
    """Yield one section for each agent in which sets of places were patched, and each thing moved."""
    for thing, rows, title_suffix, facts in by_thing(run, KIND):
        if thing is not None:  # the rows of the places that were found are of all things moved
            found = chosen(run.changed, measure=PLACE, intervention=KIND, agent=rows["agent"].tolist()[0])
            places = [(str(row.tags["site"]), int(str(row.tags["layer"]))) for row in found]
            yield _declared(f"Sets of places{title_suffix}", rows, thing, facts, places)


def _declared(title: str, rows: Rows, thing: Tag, facts: Mapping[str, Any], found: Sequence[Place]) -> Declared:
    counterfactual, control = (chosen(rows, pairs=name) for name in ("counterfactual", "control"))
    # What was chosen on a half of the grids is not judged by it; nobody chose the named sets on any.
    searched = np.array(
        [half == _SEARCHED and _by_search(name) for half, name in _columns(counterfactual, "half", "set")], dtype=bool
    )
    judged, seen = counterfactual.where(~searched), counterfactual.where(searched)
    estimates, of_search, of_control = (Estimates(estimate_rows(part, by=_BY)) for part in (judged, seen, control))
    directions = Estimates(estimate_rows(chosen(judged, patch="source"), by=("set", "direction")))
    differences = _paired_differences(chosen(judged, measure=FOLLOWS))
    names = sorted(dict.fromkeys(rows["set"].tolist()), key=_order)
    lines = [Line(_title(name), {"set": name}) for name in names]

    def table(caption: str, shown: Estimates, measure: str) -> TableSpec:
        columns = [Column(label, "share", {"measure": measure, "patch": patch}) for patch, label in _PATCHES.items()]
        return TableSpec(f"{caption}: {MEAN}", "set", shown, columns, lines)

    return Declared(
        anchor="place-sets",
        title=title,
        explained=(_TEXT, *([_FOUND] if found else [])),
        facts=_facts(facts, thing, found),
        sentences=[_claim(name, differences) for name in names],
        rule=_RULE,
        tables=(
            table("Action follows the source", estimates, FOLLOWS),
            TableSpec(
                f"Action follows the source, less its controls, paired: {MEAN}",
                "set",
                differences,
                [Column(f"less {_PATCHES[name]}", "share", {"measure": FOLLOWS, "less": name}) for name in _CONTROLS],
                lines,
            ),
        ),
        figures=_pictures(facts, found),
        folds=[
            FoldSpec(
                "The half that the search saw",
                [table("Action follows the source, where the set was chosen", of_search, FOLLOWS)],
                paragraphs=["Better than elsewhere by the choice itself: no result, only beside the other half."],
            ),
            FoldSpec("Any change of the action", [table("Action leaves the target's optimal set", estimates, CHANGED)]),
            FoldSpec(
                "Control pairs: the optimal actions are the same, the action must stay",
                [table("Action leaves the optimal set", of_control, CHANGED)],
            ),
            FoldSpec("By direction", [_directions(directions, lines)]),
        ],
        counted=[*estimates, *differences, *of_search, *of_control, *directions],
    )


def _columns(rows: Rows, *names: str) -> Iterator[tuple[Tag, ...]]:
    return zip(*(rows[name].tolist() for name in names), strict=True)


def _by_search(name: Tag) -> bool:
    return name == ALL or str(name).startswith(FOUND)


def _order(name: Tag) -> int:
    """Return the place of a set on the page: the one found, named ones, all places."""
    return 2 if name == ALL else 0 if _by_search(name) else 1


def _title(name: Tag) -> str:
    return "found by the search" if _order(name) == 0 else str(name)


def _paired_differences(rows: Rows) -> Estimates:
    source, by = chosen(rows, patch="source"), ("set", "direction", "moved")
    paired = (pairs(source, chosen(rows, patch=control), name=control, by=by) for control in _CONTROLS)
    return Estimates(grouped for part in paired if len(part) for grouped in estimate_rows(part, by=("set",)))


def _claim(name: Tag, differences: Estimates) -> RivalsSentence:
    rivals = {_PATCHES[control]: control for control in _CONTROLS if name != ALL or control != RANDOM}
    parts: list[tuple[str, Key]] = [("its places together", {"measure": FOLLOWS, "set": name})]
    return RivalsSentence(_title(name), differences, parts, rivals, CARRIES, needed=tuple(rivals))


def _directions(estimates: Estimates, lines: Sequence[Line]) -> TableSpec:
    columns = [
        Column(str(direction), "share", {"measure": FOLLOWS, "direction": direction})
        for direction in estimates.values("direction")
    ]
    return TableSpec(f"Action follows the source, by direction: {MEAN}", "set", estimates, columns, lines)


def _facts(facts: Mapping[str, Any], thing: Tag, found: Sequence[Place]) -> list[tuple[str, str]]:
    places = "; ".join(f"{site_name(site)}, layer {layer}" for site, layer in sorted(found))
    shown = [("found", places)] if found else []
    if not facts:
        return shown
    settings = facts["settings"]
    searched = f"{facts.get('pairs of the search')} pairs, for {settings['share']:.0%} of the effect of all places"
    return [
        ("model", str(facts["model"])),
        *pair_facts(facts, thing),
        *([("searched", searched)] if found else []),
        *shown,
        ("random sets", f"{settings['random']} a set, pair and direction"),
        ("left out", f"{facts['left out']} passes: sides of unlike length, or an unchanged answer that fell otherwise"),
    ]


def _pictures(facts: Mapping[str, Any], found: Sequence[Place]) -> list[Figure]:
    """Return the picture of the sets: their places among all sites and layers; none without the run's settings."""
    if not facts:
        return []
    settings = facts["settings"]
    sites = (*settings["sites"], *settings["spans"])
    sets: dict[str, set[Place]] = {_title(FOUND): set(found)} if found else {}
    sets |= {name: {(site, int(layer)) for site, layer in places} for name, places in settings["sets"].items()}
    layers = sorted({*facts["layers"], *(layer for places in sets.values() for _, layer in places)})
    records: list[Record] = [
        {"set": name, "site": site, "layer": layer, "line": f"{name}: {site}", "in the set": (site, layer) in places}
        for name, places in sets.items()
        for site in dict.fromkeys((*(sites if name == _title(FOUND) else ()), *(site for site, _ in sorted(places))))
        for layer in layers
    ]
    label = "The places of each set, by layer: dark in the set, pale not in it"
    drawn = matrix(
        list(dict.fromkeys(str(record["line"]) for record in records)),
        records,
        row="line",
        column="layer",
        columns=list(map(str, layers)),
        narrow=True,
        cell=lambda record: MatrixCell("●" if record["in the set"] else "", "", float(bool(record["in the set"]))),
        label=label,
        notes=["; ".join(f"{site}: {site_name(site)}" for site in dict.fromkeys(str(one["site"]) for one in records))],
    )
    return [Figure(drawn)] if records else []
