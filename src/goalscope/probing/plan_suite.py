"""Decoders of plans with their controls and baselines: one call fits and scores all of them on one split."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from goalscope.probing.cells import Cells, Split
from goalscope.probing.controls import PLAN_CONTROLS, check_controls, shuffled_rows
from goalscope.probing.fitting import Callbacks
from goalscope.probing.maps import Layouts, true_map
from goalscope.probing.plan_baselines import (
    commonest_matches,
    marginal_matches,
    named_plans,
    planner_length,
    planner_matches,
    repeated,
)
from goalscope.probing.plan_scores import prefix_matches, score_lengths, score_prefixes
from goalscope.probing.plans import PlanDecoder, PlanPrediction, Plans, plan_length
from goalscope.probing.problem import PlanSettings
from goalscope.probing.suite import FittedProbes, ProbeInputs, Truth, fit_suite
from goalscope.rows import Rows, Tag

LAYERS: Final = (1, 2, 4)
"""Layers of the decoders of the paper."""
FIRST_KNOWN: Final = ("repeat", "continuation")
"""What the decoded first action alone gives: itself again and again, and its commonest continuation."""
BLIND: Final = ("marginal", "commonest")
"""Baselines that see nothing."""

Maps = Mapping[tuple[str, int], Layouts]
"""Site and layer -> the maps decoded there, of the same N steps."""


def probe_plans(
    data: ProbeInputs,
    plans: Plans,
    *,
    layers: Sequence[int] = LAYERS,
    controls: Sequence[str] = PLAN_CONTROLS,
    maps: Maps | None = None,
    settings: PlanSettings | None = None,
    tags: Mapping[str, Tag] | None = None,
    callbacks: Callbacks[PlanDecoder] | None = None,
) -> FittedProbes[PlanDecoder]:
    """Fit decoders of every size with every control on one split, and score them beside all baselines.

    Args:
        data: what is read, the truth and the split.
        plans: what was executed, see `label_plans`.
        layers: layers of the decoders.
        controls: some of `PLAN_CONTROLS`, "none" among them.
        maps: decoded maps for the planner; sites and layers without one have no such baseline.
        settings: how decoders are trained; the paper's sizes where left out.
        tags: kept with every row, e.g. the agent.
        callbacks: decoders that are known are not fitted again; is told of each that is finished.

    Returns:
        The decoders, and the scores of all of them and of the baselines on the tested grids. Tags: head ("decoder-2",
        "marginal", "commonest", "repeat executed", "planner", "planner, best ties", "text"), control (`PLAN_CONTROLS`,
        `FIRST_KNOWN`, "true map"), site, layer (None where no activations are read), N, plans, size, density.

    Raises:
        ValueError: unknown controls, steps that do not match, or a control whose data is missing; says how to get it.
    """
    used, cells, split = settings or PlanSettings(), data.cells, data.split
    check_controls(controls)
    plans.check_aligned(cells)
    truths = {"none": plans}
    if "shuffled" in controls:
        truths["shuffled"] = plans.exchanged(shuffled_rows(cells, split, seed=used.seed))
    fitted = fit_suite(
        data,
        [(f"decoder-{count}", control) for control in controls for count in layers],
        {name: Truth(target=one.tokens, train=split.train, test=split.test) for name, one in truths.items()},
        target="plan",
        settings=used,
        heads={f"decoder-{count}": ("decoder", {"layers": count}) for count in layers},
        callbacks=callbacks,
    )
    parts = {name: (one.where(split.train), one.where(split.test)) for name, one in truths.items()}
    kept = dict(tags or {})
    shown = cells.where(split.test)
    rows: list[Rows] = []
    for one in fitted:
        said = one.probe.predict(one.features, device=used.device)
        rows += _decoded(said, *parts[one.truth], shown, {**kept, **one.key.tags, "probe": one.probe.id})
    rows += _baselines(parts, shown, split, maps or {}, kept)
    return FittedProbes(probes={one.key: one.probe for one in fitted}, rows=Rows.concatenate(rows))


def _decoded(said: PlanPrediction, learned: Plans, truth: Plans, shown: Cells, tags: Mapping[str, Tag]) -> list[Rows]:
    """Return the scores of what a decoder says, and of what its first action alone gives where it is no control."""
    rows = [
        score_prefixes(prefix_matches(said.tokens, truth.tokens), truth, shown, tags),
        score_lengths(said.length, truth, shown, tags),
    ]
    if tags["control"] == "none":
        straight = prefix_matches(repeated(said.first, truth.horizon), truth.tokens)
        further = commonest_matches(learned, truth.tokens, said.first)
        for name, matches in zip(FIRST_KNOWN, (straight, further), strict=True):
            rows.append(score_prefixes(matches, truth, shown, {**tags, "control": name}))
    return rows


def _baselines(
    parts: Mapping[str, tuple[Plans, Plans]], shown: Cells, split: Split, maps: Maps, tags: Mapping[str, Tag]
) -> list[Rows]:
    """Return the scores of what reads no plan out of activations."""
    rows = []
    nowhere: dict[str, Tag] = {**tags, "site": None, "layer": None}
    for control, (train, truth) in parts.items():
        for head, baseline in zip(BLIND, (marginal_matches, commonest_matches), strict=True):
            own = {**nowhere, "head": head, "control": control}
            rows.append(score_prefixes(baseline(train, truth.tokens), truth, shown, own))
    truth = parts["none"][1]
    straight = prefix_matches(np.maximum(repeated(truth.tokens[:, 0], truth.horizon), 0), truth.tokens)
    rows.append(score_prefixes(straight, truth, shown, {**nowhere, "head": "repeat executed", "control": "none"}))
    readings: list[tuple[dict[str, Any], Layouts]] = [
        ({**tags, "site": site, "layer": layer, "control": "none"}, layout.where(split.test))
        for (site, layer), layout in maps.items()
    ]
    readings.append(({**nowhere, "control": "true map"}, true_map(shown)))
    for own, layout in readings:
        rows.append(score_prefixes(planner_matches(layout, truth.tokens), truth, shown, {**own, "head": "planner"}))
        best = planner_matches(layout, truth.tokens, ties="best")
        rows.append(score_prefixes(best, truth, shown, {**own, "head": "planner, best ties"}))
        rows.append(score_lengths(planner_length(layout, truth.horizon), truth, shown, {**own, "head": "planner"}))
    if any(shown.reasoning.tolist()):
        named = named_plans(shown.reasoning, truth.horizon)
        own = {**nowhere, "head": "text", "control": "none"}
        rows.append(score_prefixes(prefix_matches(named, truth.tokens), truth, shown, own))
        rows.append(score_lengths(plan_length(named), truth, shown, own))
    return rows
