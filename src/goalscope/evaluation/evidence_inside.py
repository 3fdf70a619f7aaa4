"""What a claim about a model's inside rests on: each quantity less that of the strictest of its controls.

A yes must hold against every control: the interval of the difference to each lies above the threshold (an
intersection-union test, each at the level of the look). A no against one control suffices, but that control is found
among several: its interval has Bonferroni's level for their number.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from goalscope.evaluation.evidence import ArmData, Evidence
from goalscope.interventions import patching, reasoning
from goalscope.interventions.experiment import TAG
from goalscope.interventions.reading import FOLLOWS
from goalscope.probing import beliefs
from goalscope.probing.plan_scores import PREFIX, summarise_plans
from goalscope.probing.scores import AREA, chosen, summarise
from goalscope.probing.suite import SEEN
from goalscope.report.sections.probing import Contrast, ProbeRows, contrasted
from goalscope.report.verdicts import NEEDED, NETWORKS, strictest, verdict
from goalscope.rows import Rows, Tag
from goalscope.stats import Estimate, Grouped, estimate_rows, paired_difference

Rivals = Mapping[str, Estimate | None]
At = Callable[[float], Rivals]
"""Control -> what the quantity exceeds it by, with intervals of a given coverage."""

CONTROLS_OF_PATCHES: Final = ("isotropic", "covariance", "wrong")
MOVES: Final = 0.5
"""Share of pairs whose action must follow the patch that must move it; else a null elsewhere says nothing."""
_KINDS: Final = tuple(NETWORKS)


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
    tags = {
        "measure": AREA,
        "head": "percell",
        "class": what,
        "scope": ("general", None),
        "cells": SEEN if seen else None,
    }
    return _against(
        _networks(data, "control", partial(summarise, confidence=data.confidence), ("site", "layer", "class"), **tags)
    )


def acts_on_beliefs(data: ArmData) -> Evidence:
    """Return how much better actions fit the map decoded at their step than those of other states, less networks."""
    how = partial(estimate_rows, confidence=data.confidence)
    tags = {"measure": beliefs.DECODED + beliefs.DIFFERENCE, "head": "percell", "reading": "natural"}
    return _against(_networks(data, "control", how, ("site", "layer"), **tags))


def plan_beyond(data: ArmData, number: int, threshold: float) -> Evidence:
    """Return how much more often the first N actions are decoded than by the strictest baseline.

    Baselines: the same decoder on random networks of each kind and on the plans of other grids, the commonest plan of
    the training grids, and the commonest continuation of the first action that was decoded.
    """
    rows = _mine(data.run.probed, data).where(measure=PREFIX, plans="all", N=number)
    heads = [head for head in rows.values("head") if str(head).startswith("decoder-")]
    if not heads:
        return Evidence(why="no plans were decoded")
    point, by = rows.main_point(), ("site", "layer", "plans", "N")
    own: dict[str, Tag] = {**point.key, "head": heads[0], "control": "none"}
    rivals: dict[str, dict[str, Tag]] = {kind: {**own, "control": kind} for kind in _KINDS}
    rivals |= {"plans of other grids": {**own, "control": "shuffled"}}
    rivals |= {"first action continued": {**own, "control": "continuation"}}
    rivals |= {"commonest plan": {"head": "commonest", "control": "none", "site": None, "layer": None}}
    contrasts = [Contrast(name, own, key, by) for name, key in rivals.items()]

    def at(confidence: float) -> Rivals:
        found = contrasted(rows, contrasts, partial(_plans, confidence=confidence), ())
        return {name: found.get(measure=PREFIX, less=name) for name in rivals}

    return beyond_all(at, data, threshold, needed=NEEDED)


def _plans(rows: Rows, by: Iterable[str], confidence: float) -> list[Grouped]:
    return summarise_plans(rows, tuple(by), confidence=confidence)


def patch_beyond(data: ArmData, site: str, threshold: float) -> Evidence:
    """Return how much more often the action follows a patch than the strictest control patch at the same place.

    At the cells of the grid the place is one layer, the end of the first third: what the cells hold there has been
    computed, and all later tokens have read what the layers below hold of the unpatched grid. Before the reasoning it
    is all layers. Its null counts only where the patch that must move the action does: all layers of all cells.
    """
    rows = _changed(data, patching.KIND)
    rows = chosen(rows, measure=patching.FOLLOWS, reading="free", pairs="counterfactual", component="residual")
    free = chosen(rows, structural=None)
    if not len(free):
        return Evidence(why="no activations were patched")
    must = chosen(free, site="grid", layers="all", patch="source")
    if not len(must) or float(must.value.mean()) < MOVES:
        moved = f"in {must.value.mean():.2f} of the runs" if len(must) else "in none"
        return Evidence(why=f"the action follows the patch that must move it, all layers of all cells, {moved} alone")
    layers = chosen(free, site=site, layers="all")
    if site == "grid":
        first = min((layer for layer in free["layer"].tolist() if layer is not None), default=None)
        layers = chosen(free, site=site, layer=first)
    own = chosen(layers, patch="source")
    there = {name: chosen(layers, patch=name) for name in CONTROLS_OF_PATCHES}
    return beyond_all(partial(_less, own, there), data, threshold, needed="isotropic")


def plan_followed(data: ArmData, threshold: float) -> Evidence:
    """Return how often the action follows the counterfactual's moves in its reasoning, less what comes about by itself.

    The controls are the own reasoning given back, and a paraphrase of it: how often the action is then one that is
    optimal in the counterfactual.
    """
    rows = _changed(data, reasoning.KIND)
    own = chosen(rows, measure=FOLLOWS, edit="plan")
    if not len(own):
        return Evidence(why="its reasoning names no moves that could be exchanged")
    there = {name: chosen(rows, measure=reasoning.OTHER, edit=name) for name in ("own", "paraphrase")}
    return beyond_all(partial(_less, own, there), data, threshold, needed="own")


def _less(own: Rows, there: Mapping[str, Rows], confidence: float) -> Rivals:
    """Return paired differences over grids of shares to those of each control that has rows."""
    return {
        name: paired_difference(
            *(own.value, own.grid_id, rows.value, rows.grid_id), unit="share", bounds=(0.0, 1.0), confidence=confidence
        ).difference
        for name, rows in there.items()
        if len(rows)
    }


def _networks(data: ArmData, tag: str, how: Callable[..., list[Grouped]], by: tuple[str, ...], **wanted: Any) -> Rivals:
    """Return by how much a probe exceeds the same one on random networks of each kind, at its main place."""
    rows = _mine(data.run.probed, data).where(reading=("natural", None)).where(**wanted)
    own = rows.where(**rows.main_point().key)
    contrasts = [Contrast(kind, {tag: "none"}, {tag: kind}, by) for kind in _KINDS]
    found = contrasted(own, contrasts, how, ())
    return {kind: found.get(measure=wanted["measure"], less=kind) for kind in _KINDS}


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
