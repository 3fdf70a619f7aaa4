"""Evidence for claims about what is inside a model: each quantity minus that of its strictest control.

A yes must hold against every control: the interval of each difference lies above the threshold (an intersection-union
test, each at the level of the look). A no needs only one control. Because this control is selected among several, its
interval is corrected by Bonferroni for their number.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from goalscope._ground.words import listed
from goalscope.goals.finding import Answer
from goalscope.inside.interventions import patching, reasoning
from goalscope.inside.interventions.experiment import TAG
from goalscope.inside.interventions.reading import FOLLOWS
from goalscope.inside.probing import beliefs
from goalscope.inside.probing.pipeline import INFO
from goalscope.inside.probing.plans import PREFIX, STEPWISE, summarise_plans
from goalscope.inside.probing.scores import AREA, chosen, pairs, summarise
from goalscope.inside.probing.suite import SEEN
from goalscope.report.definitions import NEEDED, NETWORKS, strictest, verdict
from goalscope.report.sections.probing import Contrast, ProbeRows, contrasted
from goalscope.runs.provenance import noted
from goalscope.stats import Estimate, Grouped, estimate_rows
from goalscope.stats.rows import Rows, Tag
from goalscope.verdict.arms import MOVED
from goalscope.verdict.evidence import ArmData, Evidence

Rivals = Mapping[str, Estimate | None]
At = Callable[[float], Rivals]
"""Function from a coverage to: control -> difference of the quantity to this control, with an interval of this
coverage.
"""

FIRST: Final = 3
"""Number of first actions of a plan that must all be right."""

_NOISE: Final = "isotropic"
CONTROLS_OF_PATCHES: Final = (_NOISE, "covariance", "wrong")
MOVES: Final = 0.5
"""Minimum share of pairs whose action follows the patch that must change it; below it, a null result elsewhere shows
nothing.
"""
_KINDS: Final = tuple(NETWORKS)
_BY_PROBE: Final = ("site", "layer", "class")
_BY_PLAN: Final = ("site", "layer", "plans", "N")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity that a probe reads from the activations of one model, such as walls, and from networks and labels that
    serve as controls.

    It consists of rows of results, one per measure and grid, and of what is needed to compare the probe with its
    controls. A tag is a named fact about a row (name -> value), by which rows are selected.

    Attributes:
        rows: results of the probe and of its controls at one site (position in the prompt or answer) and layer.
        own: tags that select the rows of the probe itself; the tag `control` has another value in the rows of a
            control.
        by: names of tags in which a row of the probe and its partner in a control agree, in addition to measure and
            grid.
        how: function that estimates rows grouped by tags, with intervals of a given coverage.
    """

    rows: ProbeRows
    own: Mapping[str, Tag]
    by: tuple[str, ...]
    how: Callable[..., list[Grouped]]

    def beyond(self, rivals: Mapping[str, Mapping[str, Tag]], confidence: float) -> Rivals:
        """Estimate the score of the probe on the model minus the score of each of its controls (rivals), paired by
        grid.

        Args:
            rivals: name of a control -> tags (name -> value) that select its results.
            confidence: coverage of the intervals.

        Returns:
            Name of a control -> mean difference with its interval; None if no grid has results of both.
        """
        contrast = Contrast(self.own, rivals, self.by)
        differences = contrasted(self.rows, [contrast], partial(self.how, confidence=confidence), ())
        [measure] = self.rows.values("measure") or [""]
        return {name: differences.get(measure=measure, less=name) for name in rivals}

    @property
    def networks(self) -> dict[str, Mapping[str, Tag]]:
        """The random networks that serve as controls: kind of network -> tags that select its results."""
        return {kind: {**self.own, "control": kind} for kind in _KINDS}

    def by_grid(self) -> Rows:
        """Return for each grid by how much the probe exceeds the same probe on networks with permuted weights.

        There are no rows if no such network was probed.
        """
        probe, permuted = (self.rows.where(**{**self.own, "control": control}).rows for control in ("none", NEEDED))
        return pairs(probe, permuted, name=NEEDED, by=self.by)


def map_read(data: ArmData, content: str, *, seen: bool = False) -> Quantity:
    """Return the scores of a linear probe that decodes from the model's activations where cells of one class are.

    The scores of the controls, such as random networks, are part of the result.

    Args:
        data: the model's data in the arm (part of the evaluation) whose activations were read.
        content: the class of cells, such as walls.
        seen: score only the cells that the agent had seen by then.
    """
    cells = SEEN if seen else None
    conditions = {"measure": AREA, "head": "percell", "class": content, "scope": ("general", None), "cells": cells}
    return _at_main_point(data, summarise, conditions)


def beliefs_read(data: ArmData) -> Quantity:
    """Return how much better actions fit the map decoded at the same step than maps decoded at other states.

    The result has one row per grid, for the model and for the random networks that serve as controls.

    Args:
        data: the model's data in the arm (part of the evaluation) whose activations were read.
    """
    measure = beliefs.DECODED + beliefs.DIFFERENCE
    return _at_main_point(data, estimate_rows, {"measure": measure, "head": "percell", "reading": "natural"})


def plan_read(data: ArmData, number: int) -> Quantity:
    """Return how often the first N actions of a plan (the agent's next moves) are decoded correctly from the
    activations.

    The result has one row per grid, for the model and for the random networks that serve as controls.

    Args:
        data: the model's data in the arm (part of the evaluation) whose activations were read.
        number: the number N of actions.
    """
    rows = _agent_rows(data).where(measure=PREFIX, plans="all", N=number)
    heads = rows.where(**{STEPWISE: False}).values("head")
    key = {**rows.main_point().key, "head": heads[0], "control": "none"} if heads else {"head": ""}
    return Quantity(rows, key, _BY_PLAN, _plans)


def _at_main_point(data: ArmData, how: Callable[..., list[Grouped]], conditions: Mapping[str, Any]) -> Quantity:
    rows = _agent_rows(data).where(reading=("natural", None)).where(**conditions)
    return Quantity(rows.where(**rows.main_point().key), {"control": "none"}, _BY_PROBE, how)


def _agent_rows(data: ArmData) -> ProbeRows:
    rows = data.run.probed
    return ProbeRows(rows.where(rows.among("agent", [data.agent])) if len(rows) else rows)


def _plans(rows: Rows, by: Iterable[str], confidence: float) -> list[Grouped]:
    return summarise_plans(rows, tuple(by), confidence=confidence)


def beyond_all(at: At, data: ArmData, threshold: float, *, needed: str) -> Evidence:
    """Decide whether a quantity exceeds a threshold in comparison with each of its controls.

    Args:
        at: function from a coverage to the difference between the model and each control, with an interval of this
            coverage.
        data: data of the model; it determines the error level.
        threshold: the answer is yes if all differences lie above it, and no if one lies below it, corrected for the
            number of controls.
        needed: the control without which the claim is untestable.

    Returns:
        The answer, with the smallest difference (that from the strictest control) as its evidence.
    """
    rivals = {name: difference for name, difference in at(data.confidence).items() if difference is not None}
    decisive = strictest(rivals)
    if needed not in rivals or decisive is None or not decisive[1].has_interval:
        return Evidence(why="there are too few grids for the difference from its controls")
    strict = at(1 - (1 - data.confidence) / len(rivals))
    below = {
        name: difference for name in rivals if (difference := strict[name]) is not None and difference.high < threshold
    }
    name = min(below, key=lambda name: below[name].high, default=decisive[0])
    side: Answer = "yes" if decisive[1].low > threshold else "no" if below else "undecided"
    return Evidence(estimate=below.get(name, decisive[1]), side=side, detail=f"strictest: {name}")


def beyond_networks(read: Quantity, data: ArmData) -> Evidence:
    """Decide whether a probe reads more from the model than from random networks.

    Yes if it exceeds networks of every kind, no if it lies below all of them. The evidence is the difference from the
    strictest kind. It depends on the sizes and the number of grids, so both are shown beside it.

    Args:
        read: what the probe reads.
        data: data of the model; it determines the error level.
    """
    rivals = read.beyond(read.networks, data.confidence)
    decisive = strictest(rivals)
    if decisive is None or not decisive[1].has_interval or rivals.get(NEEDED) is None:
        return Evidence(
            why="there are too few grids for the difference from random networks, or no random network was probed"
        )
    sides: Mapping[str, Answer] = {"above": "yes", "below": "no", "none": "undecided"}
    detail = f"strictest: {decisive[0]}{_fitted_on(read, data)}"
    return Evidence(estimate=decisive[1], side=sides.get(verdict(rivals)), detail=detail)


def _fitted_on(read: Quantity, data: ArmData) -> str:
    """Describe how many grids of which sizes a probe was fitted on; "" if the run does not say."""
    notes = noted(data.run.store, INFO)
    number = next((notes[name]["training grids"] for name in ("cognitive-map", "beliefs") if name in notes), None)
    sizes = sorted({size for size in read.rows.values("size") if isinstance(size, int)})
    return f"; fitted on {number} grids of sizes {listed(list(map(str, sizes)))}" if number and sizes else ""


def plan_beyond(data: ArmData, number: int, threshold: float) -> Evidence:
    """Decide whether the first N actions of a plan are decoded from the model's activations more often than by
    baselines.

    The baselines are the same decoder on random networks of each kind and on plans of other grids, the most common plan
    of the training grids, and the most common continuation of the first decoded action.

    Args:
        data: the model's data in the arm (part of the evaluation) whose activations were read.
        number: the number N of actions.
        threshold: yes if the difference from every baseline lies above it.
    """
    read = plan_read(data, number)
    if not read.own["head"]:
        return Evidence(why="no plans were decoded")
    rivals = read.networks
    rivals["plans of other grids"] = {**read.own, "control": "shuffled"}
    rivals["first action continued"] = {**read.own, "control": "continuation"}
    rivals["commonest plan"] = {"head": "commonest", "control": "none", "site": None, "layer": None}
    return beyond_all(partial(read.beyond, rivals), data, threshold, needed=NEEDED)


def patch_beyond(data: ArmData, site: str, threshold: float) -> Evidence:
    """Decide whether the action follows activations patched in from another grid more often than it follows control
    patches.

    If the cells of the grid are patched, this is done in one layer, the last of the first third: there the content of
    the cells has been computed, while later tokens have read only the unpatched layers below. If the end of the prompt,
    before the reasoning, is patched, this is done in all layers. An answer that nothing changed counts only if the
    patch of all cells in all layers does change the action.

    Args:
        data: the model's data in the arm (part of the evaluation) in which activations were patched.
        site: position in the prompt or answer at which they were patched.
        threshold: the answer is yes if the difference from every control patch at this site lies above it.
    """
    patched = _patched(data, site)
    if isinstance(patched, str):
        return Evidence(why=patched)
    source, controls = patched
    return _with_each_moved(source, controls, data, threshold, needed=_NOISE)


def _patched(data: ArmData, site: str) -> tuple[Rows, dict[str, Rows]] | str:
    """Return the rows of the patch and of its controls, or the reason why these rows decide nothing."""
    rows = _changed(data, patching.KIND)
    rows = chosen(rows, measure=patching.FOLLOWS, reading="free", pairs="counterfactual", component="residual")
    free = chosen(rows, structural=None)
    if not len(free):
        return "no activations were patched"
    for thing in MOVED:
        must = chosen(free, site="grid", layers="all", patch="source", moved=thing)
        if not len(must) or float(must.value.mean()) < MOVES:
            moved = f"in {must.value.mean():.2f} of the runs" if len(must) else "never"
            return (
                f"with the {thing} moved, the action follows even the strongest patch (all layers, all cells) only "
                f"{moved}"
            )
    layers = chosen(free, site=site, layers="all")
    if site == "grid":
        first = min((layer for layer in free["layer"].tolist() if layer is not None), default=None)
        layers = chosen(free, site=site, layer=first)
    return chosen(layers, patch="source"), {name: chosen(layers, patch=name) for name in CONTROLS_OF_PATCHES}


def plan_followed(data: ArmData, threshold: float) -> Evidence:
    """Decide whether the model's action follows its written reasoning when its moves are those for another grid.

    The evidence is how often the action is then optimal in the other grid, minus the same after the strictest control:
    the model's own reasoning given back, or a paraphrase of it.

    Args:
        data: the model's data in the arm (part of the evaluation) in which reasoning was edited.
        threshold: yes if the difference from every control lies above it.
    """
    exchanged, controls = _edited(data)
    if not len(exchanged):
        return Evidence(why="its reasoning names no moves that could be exchanged")
    return _with_each_moved(exchanged, controls, data, threshold, needed="own")


def _with_each_moved(
    changed: Rows, controls: Mapping[str, Rows], data: ArmData, threshold: float, *, needed: str
) -> Evidence:
    """Combine the answers for each moved thing, see `beyond_all`: yes if all say yes, no if all say no.

    The estimate shown is the deciding one: the least favourable for a yes or an open answer, the highest for a no.
    """
    evidence_by_thing: dict[str, Evidence] = {}
    for thing in MOVED:
        of_thing = chosen(changed, moved=thing)
        if not len(of_thing):
            return Evidence(why=f"there are no pairs in which it acts optimally on both sides with the {thing} moved")
        of_controls = {name: chosen(rows, moved=thing) for name, rows in controls.items()}
        at = partial(less_controls, data, of_thing, of_controls)
        evidence_by_thing[f"{thing} moved"] = evidence = beyond_all(at, data, threshold, needed=needed)
        if evidence.estimate is None:
            return Evidence(why=f"{evidence.why}, {thing} moved")
    sides = {evidence.side for evidence in evidence_by_thing.values()}
    side = sides.pop() if len(sides) == 1 else "undecided"
    name = (
        max(evidence_by_thing, key=lambda name: _ends(evidence_by_thing[name])[1])
        if side == "no"
        else min(evidence_by_thing, key=lambda name: _ends(evidence_by_thing[name])[0])
    )
    answers = "; ".join(f"{other}: {evidence.side}" for other, evidence in evidence_by_thing.items())
    return Evidence(
        estimate=evidence_by_thing[name].estimate,
        side=side,
        detail=f"{answers}; {name}, {evidence_by_thing[name].detail}",
    )


def _ends(evidence: Evidence) -> tuple[float, float]:
    assert evidence.estimate is not None  # callers leave out evidence without one
    return evidence.estimate.low, evidence.estimate.high


def _edited(data: ArmData) -> tuple[Rows, dict[str, Rows]]:
    """Return the rows of edits that exchange the moves, and of each edit that keeps the content unchanged."""
    rows = _changed(data, reasoning.KIND)
    controls = {name: chosen(rows, measure=reasoning.OTHER, edit=name) for name in ("own", "paraphrase")}
    return chosen(rows, measure=FOLLOWS, edit="plan"), controls


def less_controls(data: ArmData, changed: Rows, controls: Mapping[str, Rows], confidence: float) -> Rivals:
    """Estimate by how much a share exceeds that of each control, paired by grid.

    Args:
        data: the model's data.
        changed: results of the intervention.
        controls: name of a control -> its results; controls without any are left out.
        confidence: coverage of the intervals.
    """
    return {name: data.difference(changed, rows, confidence) for name, rows in controls.items() if len(rows)}


def _changed(data: ArmData, kind: str) -> Rows:
    rows = data.run.changed
    return chosen(rows, agent=data.agent, **{TAG: kind}) if len(rows) else rows


def patch_by_grid(data: ArmData, site: str, moved: str) -> Rows:
    """Return for each grid how much more often the action follows patched activations than noise of the same norm.

    Args:
        data: the model's data in the arm (part of the evaluation) in which activations were patched.
        site: position in the prompt or answer at which they were patched.
        moved: what differs between both grids, "agent" or "goal".
    """
    patched = _patched(data, site)
    if isinstance(patched, str):
        return Rows.from_rows([])
    return _less_by_grid(chosen(patched[0], moved=moved), chosen(patched[1][_NOISE], moved=moved))


def plan_followed_by_grid(data: ArmData, moved: str) -> Rows:
    """Return for each grid how much more often the action follows reasoning with exchanged moves than unchanged
    reasoning.

    Args:
        data: the model's data in the arm (part of the evaluation) in which reasoning was edited.
        moved: what differs between both grids, "agent" or "goal".
    """
    exchanged, controls = _edited(data)
    return _less_by_grid(chosen(exchanged, moved=moved), chosen(controls["own"], moved=moved))


def _less_by_grid(changed: Rows, control: Rows) -> Rows:
    """Return the mean of the changed rows minus the mean of the control rows, for each grid that has both."""
    means = [
        {grid: float(rows.value[rows.cluster == grid].mean()) for grid in dict.fromkeys(rows.cluster.tolist())}
        for rows in (changed, control)
    ]
    shared = [grid for grid in means[0] if grid in means[1]]
    values = [means[0][grid] - means[1][grid] for grid in shared]
    return Rows.from_columns(measure=FOLLOWS, unit="share", value=values, cluster=shared)
