"""What a claim about a model's inside rests on: each quantity less that of the strictest of its controls.

A yes must hold against every control: the interval of the difference to each lies above the threshold (an
intersection-union test, each at the level of the look). A no against one control suffices, but that control is found
among several: its interval has Bonferroni's level for their number.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from goalscope.evaluation.evidence import ArmData, Evidence
from goalscope.interventions import patching, reasoning
from goalscope.interventions.experiment import TAG
from goalscope.interventions.reading import FOLLOWS
from goalscope.probing import beliefs
from goalscope.probing.plan_scores import PREFIX, summarise_plans
from goalscope.probing.scores import AREA, chosen, pairs, summarise
from goalscope.probing.suite import SEEN
from goalscope.report.sections.probing import Contrast, ProbeRows, contrasted
from goalscope.report.verdicts import NEEDED, NETWORKS, strictest, verdict
from goalscope.rows import Rows, Tag
from goalscope.stats import Estimate, Grouped, estimate_rows, paired_difference

Rivals = Mapping[str, Estimate | None]
At = Callable[[float], Rivals]
"""Control -> what the quantity exceeds it by, with intervals of a given coverage."""

_NOISE: Final = "isotropic"
CONTROLS_OF_PATCHES: Final = (_NOISE, "covariance", "wrong")
MOVES: Final = 0.5
"""Share of pairs whose action must follow the patch that must move it; else a null elsewhere says nothing."""
_KINDS: Final = tuple(NETWORKS)
_BELIEFS: Final[Mapping[str, Tag]] = {
    "measure": beliefs.DECODED + beliefs.DIFFERENCE,
    "head": "percell",
    "reading": "natural",
}


def beyond_all(at: At, data: ArmData, threshold: float, *, needed: str) -> Evidence:
    """Return the difference to the strictest control, and on which side of a threshold all of them lie.

    Args:
        at: the differences.
        data: what decides the level.
        threshold: above it against every control: yes; below it against one of them, corrected for their number: no.
        needed: the control without which nothing is said.
    """
    rivals = {name: one for name, one in at(data.confidence).items() if one is not None}
    decisive = strictest(rivals)
    if needed not in rivals or decisive is None or not decisive[1].has_interval:
        return Evidence(why="there are too few grids for the difference to its controls")
    strict = at(1 - (1 - data.confidence) / len(rivals))
    below = {name: one for name in rivals if (one := strict[name]) is not None and one.high < threshold}
    name = min(below, key=lambda one: below[one].high, default=decisive[0])
    side = "yes" if decisive[1].low > threshold else "no" if below else "not shown"
    return Evidence(estimate=below.get(name, decisive[1]), side=side, detail=f"strictest: {name}")


def made_readable(data: ArmData, what: str, *, seen: bool = False) -> Evidence:
    """Return by how much the per-cell linear probe reads a class better than in the strictest random network.

    Yes above the networks of every kind, no below all of them.

    Args:
        data: the run whose activations were read.
        what: the class of cells.
        seen: whether the cells that the agent had seen by then are scored alone.
    """
    how = partial(summarise, confidence=data.confidence)
    return _against(_networks(data, how, _map_tags(what, seen=seen)))


def _map_tags(what: str, *, seen: bool) -> dict[str, Any]:
    cells = SEEN if seen else None
    return {"measure": AREA, "head": "percell", "class": what, "scope": ("general", None), "cells": cells}


def acts_on_beliefs(data: ArmData) -> Evidence:
    """Return how much better actions fit the map decoded at their step than those of other states, less networks."""
    return _against(_networks(data, partial(estimate_rows, confidence=data.confidence), _BELIEFS))


def plan_beyond(data: ArmData, number: int, threshold: float) -> Evidence:
    """Return how much more often the first N actions are decoded than by the strictest baseline.

    Baselines: the same decoder on random networks of each kind and on the plans of other grids, the commonest plan of
    the training grids, and the commonest continuation of the first action that was decoded.
    """
    rows = _mine(data.run.probed, data).where(measure=PREFIX, plans="all", N=number)
    own = _decoder(rows)
    if own is None:
        return Evidence(why="no plans were decoded")
    rivals: dict[str, dict[str, Tag]] = {kind: {**own, "control": kind} for kind in _KINDS}
    rivals |= {"plans of other grids": {**own, "control": "shuffled"}}
    rivals |= {"first action continued": {**own, "control": "continuation"}}
    rivals |= {"commonest plan": {"head": "commonest", "control": "none", "site": None, "layer": None}}
    contrasts = [Contrast(name, own, key, _BY_PLAN) for name, key in rivals.items()]

    def at(confidence: float) -> Rivals:
        found = contrasted(rows, contrasts, partial(_plans, confidence=confidence), ())
        return {name: found.get(measure=PREFIX, less=name) for name in rivals}

    return beyond_all(at, data, threshold, needed=NEEDED)


_BY_PLAN: Final = ("site", "layer", "plans", "N")


def _decoder(rows: ProbeRows) -> dict[str, Tag] | None:
    """Return the tags of the decoder that is judged, None where there is none."""
    heads = [head for head in rows.values("head") if str(head).startswith("decoder-")]
    return {**rows.main_point().key, "head": heads[0], "control": "none"} if heads else None


def _plans(rows: Rows, by: Iterable[str], confidence: float) -> list[Grouped]:
    return summarise_plans(rows, tuple(by), confidence=confidence)


def patch_beyond(data: ArmData, site: str, threshold: float) -> Evidence:
    """Return how much more often the action follows a patch than the strictest control patch at the same place.

    At the cells of the grid the place is one layer, the end of the first third: what the cells hold there has been
    computed, and all later tokens have read what the layers below hold of the unpatched grid. Before the reasoning it
    is all layers. Its null counts only where the patch that must move the action does: all layers of all cells.
    """
    found = _patched(data, site)
    if isinstance(found, str):
        return Evidence(why=found)
    own, there = found
    return beyond_all(partial(_less, own, there), data, threshold, needed=_NOISE)


def _patched(data: ArmData, site: str) -> tuple[Rows, dict[str, Rows]] | str:
    """Return the rows of the source's patch and of its controls, or why they say nothing."""
    rows = _changed(data, patching.KIND)
    rows = chosen(rows, measure=patching.FOLLOWS, reading="free", pairs="counterfactual", component="residual")
    free = chosen(rows, structural=None)
    if not len(free):
        return "no activations were patched"
    must = chosen(free, site="grid", layers="all", patch="source")
    if not len(must) or float(must.value.mean()) < MOVES:
        moved = f"in {must.value.mean():.2f} of the runs" if len(must) else "in none"
        return f"the action follows the patch that must move it, all layers of all cells, {moved} alone"
    layers = chosen(free, site=site, layers="all")
    if site == "grid":
        first = min((layer for layer in free["layer"].tolist() if layer is not None), default=None)
        layers = chosen(free, site=site, layer=first)
    return chosen(layers, patch="source"), {name: chosen(layers, patch=name) for name in CONTROLS_OF_PATCHES}


def plan_followed(data: ArmData, threshold: float) -> Evidence:
    """Return how often the action follows the counterfactual's moves in its reasoning, less what comes about by itself.

    The controls are the own reasoning given back, and a paraphrase of it: how often the action is then one that is
    optimal in the counterfactual.
    """
    own, there = _edited(data)
    if not len(own):
        return Evidence(why="its reasoning names no moves that could be exchanged")
    return beyond_all(partial(_less, own, there), data, threshold, needed="own")


def _edited(data: ArmData) -> tuple[Rows, dict[str, Rows]]:
    """Return the rows of exchanged moves, and those of the edits that say the same."""
    rows = _changed(data, reasoning.KIND)
    there = {name: chosen(rows, measure=reasoning.OTHER, edit=name) for name in ("own", "paraphrase")}
    return chosen(rows, measure=FOLLOWS, edit="plan"), there


def _less(own: Rows, there: Mapping[str, Rows], confidence: float) -> Rivals:
    """Return paired differences over grids of shares to those of each control that has rows."""
    return {
        name: paired_difference(
            *(own.value, own.grid_id, rows.value, rows.grid_id), unit="share", bounds=(0.0, 1.0), confidence=confidence
        ).difference
        for name, rows in there.items()
        if len(rows)
    }


def _networks(data: ArmData, how: Callable[..., list[Grouped]], wanted: Mapping[str, Any]) -> Rivals:
    """Return by how much a probe exceeds the same one on random networks of each kind, at its main place."""
    own = _at_main_place(data, wanted)
    contrasts = [Contrast(kind, {"control": "none"}, {"control": kind}, _BY_PROBE) for kind in _KINDS]
    found = contrasted(own, contrasts, how, ())
    return {kind: found.get(measure=wanted["measure"], less=kind) for kind in _KINDS}


_BY_PROBE: Final = ("site", "layer", "class")


def _at_main_place(data: ArmData, wanted: Mapping[str, Any]) -> ProbeRows:
    rows = _mine(data.run.probed, data).where(reading=("natural", None)).where(**wanted)
    return rows.where(**rows.main_point().key)


def _against(rivals: Rivals) -> Evidence:
    decisive = strictest(rivals)
    if decisive is None or not decisive[1].has_interval or rivals.get(NEEDED) is None:
        return Evidence(why="there are too few grids for the difference to random networks, or none was read")
    side = {"above": "yes", "below": "no", "none": "not shown"}.get(verdict(rivals), "")
    return Evidence(estimate=decisive[1], side=side, detail=f"strictest: {decisive[0]}")


def _mine(rows: Rows, data: ArmData) -> ProbeRows:
    return ProbeRows(rows.where(rows.among("agent", [data.agent])) if len(rows) else rows)


def _changed(data: ArmData, kind: str) -> Rows:
    rows = data.run.changed
    return chosen(rows, agent=data.agent, **{TAG: kind}) if len(rows) else rows


def map_by_grid(data: ArmData, what: str, *, seen: bool = False) -> Rows:
    """Return by grid how much better a class is read than in networks with permuted weights; none where none was."""
    return _less_permuted(_at_main_place(data, _map_tags(what, seen=seen)), {}, _BY_PROBE)


def beliefs_by_grid(data: ArmData) -> Rows:
    """Return by grid what `acts_on_beliefs` compares, less the same of networks with permuted weights."""
    return _less_permuted(_at_main_place(data, _BELIEFS), {}, _BY_PROBE)


def plan_by_grid(data: ArmData, number: int) -> Rows:
    """Return by grid how much more often the first N actions are decoded than in networks with permuted weights."""
    rows = _mine(data.run.probed, data).where(measure=PREFIX, plans="all", N=number)
    own = _decoder(rows)
    return rows.where(head="").rows if own is None else _less_permuted(rows, own, _BY_PLAN)


def patch_by_grid(data: ArmData, site: str) -> Rows:
    """Return by grid how much more often the action follows the source's patch than noise of the same norm."""
    found = _patched(data, site)
    return Rows.from_rows([]) if isinstance(found, str) else _less_by_grid(found[0], found[1][_NOISE])


def plan_followed_by_grid(data: ArmData) -> Rows:
    """Return by grid how much more often the action follows exchanged moves than the own reasoning given back."""
    own, there = _edited(data)
    return _less_by_grid(own, there["own"])


def _less_permuted(rows: ProbeRows, own: Mapping[str, Tag], by: Sequence[str]) -> Rows:
    """Return the rows of a probe less those on the same grids of networks with permuted weights."""
    one, other = ({**own, "control": control} for control in ("none", NEEDED))
    return pairs(rows.where(**one).rows, rows.where(**other).rows, name=NEEDED, by=by)


def _less_by_grid(own: Rows, control: Rows) -> Rows:
    """Return for each grid that both have the mean of some rows less that of their control."""
    means = [
        {grid: float(rows.value[rows.grid_id == grid].mean()) for grid in dict.fromkeys(rows.grid_id.tolist())}
        for rows in (own, control)
    ]
    shared = [grid for grid in means[0] if grid in means[1]]
    values = [means[0][grid] - means[1][grid] for grid in shared]
    return Rows.from_columns(measure=FOLLOWS, unit="share", value=values, grid_id=shared)
