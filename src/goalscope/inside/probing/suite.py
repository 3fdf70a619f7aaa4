"""Suites of heads and controls, whose entries are all fitted and scored on the same split."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground import registry
from goalscope._ground.parts import attempt
from goalscope.agents.models.initialisation import RANDOM_WEIGHTS
from goalscope.inside.activations.load import Activations
from goalscope.inside.probing.fitting import FitSettings, PlanSettings, Problem, fit
from goalscope.inside.probing.heads import CELL_HEADS, COUNTED
from goalscope.inside.probing.inputs import (
    CONTROLS,
    NOWHERE,
    PLAN_CONTROLS,
    Features,
    ProbeInputs,
    read,
    site_layer,
)
from goalscope.inside.probing.labels import Plans, plan_length, undetermined
from goalscope.inside.probing.maps import DecodedMaps, true_map
from goalscope.inside.probing.plan_scores import (
    DECODER_LAYERS,
    STEPWISE,
    SUBSETS,
    commonest_matches,
    marginal_matches,
    named_plans,
    planner_length,
    planner_matches,
    prefix_matches,
    repeated,
    score_lengths,
    score_prefixes,
)
from goalscope.inside.probing.probe import Callbacks, Probe, ProbeKey, Target
from goalscope.inside.probing.scores import AREA, confusion_rows, score_cells
from goalscope.inside.probing.truths import Truth, scored_rows, truths
from goalscope.stats.rows import Rows, Tag

Entry = tuple[str, str]
"""A head and a control."""
Maps = Mapping[tuple[str, int], DecodedMaps]
"""Site and layer -> the maps decoded there, of the same N steps."""
_Tags = Mapping[str, Tag]
FULL: Final[tuple[Entry, ...]] = (
    *((head, control) for head in COUNTED for control in ("none", "shuffled")),
    *((head, control) for head in CELL_HEADS if head not in COUNTED for control in CONTROLS),
)
"""All heads and controls."""
CORE: Final = tuple((head, control) for head in ("percell", "mlp") for control in ("none", *RANDOM_WEIGHTS))
"""The minimum for a claim: the linear probe and the MLP, also on random networks."""
LAYERS: Final = (1, 2, 4)
"""Layers of the decoders of the paper."""
FIRST_KNOWN: Final = ("repeat", "continuation")
"""Baselines from the decoded first action alone: its repetition, and its commonest continuation."""
SEEN: Final = "seen"
"""Value of the tag ``cells`` of scores over the cells alone that the agent had been shown."""
BLIND: Final[Mapping[str, Callable[..., npt.NDArray[np.float64]]]] = {
    "marginal": marginal_matches,
    "commonest": commonest_matches,
}
"""Baselines without any input."""


def entries_of(heads: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries of registered heads that predict cells, each with every control."""
    cells = [name for name in heads if "cells" in registry.resolve("head", name).targets and name not in COUNTED]
    return tuple((head, control) for head in cells for control in CONTROLS)


def without(suite: Sequence[Entry], *names: str) -> tuple[Entry, ...]:
    """Return a suite without some heads or controls, e.g. ``without(FULL, "text")`` for a model without reasoning."""
    return tuple(entry for entry in suite if not set(entry) & set(names))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedProbes:
    """The fitted probes of a suite by key, and the scores of probes and baselines on the test grids."""

    probes: Mapping[ProbeKey, Probe]
    rows: Rows

    def probe(
        self,
        head: str,
        activations: Activations,
        *,
        control: str = "none",
        draw: int | None = None,
        scope: str = "general",
    ) -> Probe:
        """Return the probe for the site and layer of some activations; a KeyError names the fitted probes."""
        (site, layer), description = site_layer(activations), (head, control, draw, scope)
        requested = ProbeKey(head=head, target="cells", control=control, draw=draw, scope=scope, site=site, layer=layer)
        for key, probe in self.probes.items():
            matches = (key.head, key.control, key.draw, key.scope) == description
            if matches and (key.site, key.layer) in ((site, layer), NOWHERE):
                return probe
        raise KeyError(f"there is no probe {requested.text}: fitted are {', '.join(key.text for key in self.probes)}")


Score = Callable[[Probe, Features, Truth, dict[str, Any]], Iterable[Rows]]
"""Scores a probe on the tested steps, from its inputs there, the truth and its tags."""


def fit_suite(
    data: ProbeInputs,
    suite: Sequence[Entry],
    truth_of: Mapping[str, Truth],
    score: Score,
    *,
    target: Target,
    settings: FitSettings,
    callbacks: Callbacks | None,
    tags: _Tags | None = None,
    scope: str = "general",
    heads: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None,
) -> FittedProbes:
    """Fit and score every entry of a suite at every site and layer.

    ``heads`` maps a name in the suite to the registered head and its settings, where these differ from the name. A head
    of another package that raises is left out, with a `goalscope._ground.parts.PartWarning`.
    """
    if not suite or len(set(suite)) != len(suite):
        raise ValueError(f"suite must have at least one entry and no entry twice, got {list(suite)}")
    registered = {name: (heads or {}).get(name, (name, {}))[0] for name, _ in suite}
    theirs = [
        name
        for name, head in registered.items()
        if registry.resolve("head", head) and not registry.built_in("head", head)
    ]
    fitted = partial(
        _fit_entries,
        data,
        truth_of=truth_of,
        score=score,
        target=target,
        settings=settings,
        callbacks=callbacks,
        tags=tags,
        scope=scope,
        heads=heads,
    )
    ours = without(suite, *theirs)
    parts: list[FittedProbes | None] = [fitted(ours)] if ours else []
    for name in theirs:
        entries = [entry for entry in suite if entry[0] == name]
        parts.append(attempt("head", registered[name], partial(fitted, entries), lambda sentence: None))
    present_parts = [part for part in parts if part is not None]
    probes = {key: probe for part in present_parts for key, probe in part.probes.items()}
    return FittedProbes(probes=probes, rows=Rows.concatenate([part.rows for part in present_parts]))


def _fit_entries(
    data: ProbeInputs,
    suite: Sequence[Entry],
    truth_of: Mapping[str, Truth],
    score: Score,
    *,
    target: Target,
    settings: FitSettings,
    callbacks: Callbacks | None,
    tags: _Tags | None,
    scope: str,
    heads: Mapping[str, tuple[str, Mapping[str, Any]]] | None,
) -> FittedProbes:
    """Fit and score entries in a single loop over heads and controls."""
    parts: dict[tuple[int, int], Features] = {}
    problems: list[Problem] = []
    tested: list[tuple[Features, Truth]] = []
    first = site_layer(data.activations[0])
    # kept alive, so that the object ids below stay unique
    readings = list(read(data, [control for _, control in suite]))
    for control, (place, features, draw) in readings:
        truth = truth_of[CONTROLS[control].truth]
        for part in (truth.train, truth.test):
            if (id(features), id(part)) not in parts:
                parts[id(features), id(part)] = features.where(part)
        for head, entry_control in suite:
            # Heads that read no activations are the same at every place, so they are fitted only at the first.
            if entry_control != control or (head in COUNTED and place != first):
                continue
            site, layer = NOWHERE if head in COUNTED else place
            registered, head_settings = (heads or {}).get(head, (head, {}))
            key_fields: dict[str, Any] = {"control": control, "draw": draw, "seed": settings.seed, "scope": scope}
            problem = Problem(
                key=ProbeKey(head=head, target=target, site=site, layer=layer, **key_fields),
                features=parts[id(features), id(truth.train)],
                target=truth.values[truth.train],
                tags={"control": control} | ({"scope": scope} if target == "cells" else {}),
                head=registered,
                settings=head_settings,
            )
            problems.append(problem)
            tested.append((parts[id(features), id(truth.test)], truth))
    probes = fit(problems, settings, callbacks)
    rows: list[Rows] = []
    for problem, probe, (features, truth) in zip(problems, probes, tested, strict=True):
        key_fields = {**(tags or {}), "probe": probe.id, **problem.key.tags}
        scored = list(score(probe, features, truth, key_fields))
        rows += scored
        if scored and truth is truth_of.get("control task"):
            rows.append(scored_rows(truth, data, {**key_fields, "scope": scope}))
    return FittedProbes(
        probes={problem.key: probe for problem, probe in zip(problems, probes, strict=True)},
        rows=Rows.concatenate(rows),
    )


def probe_cells(
    data: ProbeInputs,
    *,
    suite: Sequence[Entry] = FULL,
    settings: FitSettings | None = None,
    scope: str = "general",
    callbacks: Callbacks | None = None,
    scored: bool = True,
    seen: npt.NDArray[np.bool_] | None = None,
) -> FittedProbes:
    """Fit every head with every control on one split, and score all of them on its test grids.

    Args:
        data: activations, truth and split.
        suite: heads and controls, `FULL` by default.
        settings: how probes are trained.
        scope: which grids the probes are for; a tag.
        callbacks: source of stored probes, which are not fitted again; receives each fitted probe.
        scored: whether to score the probes; otherwise there are no rows.
        seen: ``[N, C]`` which cells the agent had seen, for an additional row (tag ``cells``) with the area under the
            curve over these cells only; None if it saw all.

    Raises:
        ValueError: if an entry is unknown, or data for a control is missing; the message says how to get it.
    """
    fit_settings = settings or FitSettings()
    for entry in suite:
        if entry not in FULL and entry not in entries_of([entry[0]]):
            raise ValueError(f"an entry of a suite must be a pair of a head and one of its controls, got {entry!r}")

    def score(probe: Probe, features: Features, truth: Truth, tags: dict[str, Any]) -> Iterable[Rows]:
        if not scored:
            return
        true_cells = replace(data.cells, labels=truth.values)
        predictions, tags = probe.predict(features, device=fit_settings.device), {**tags, "scope": scope}
        hidden = undetermined(true_cells, truth.train)
        scored_cells = None if truth.cells is None else truth.cells[truth.test]
        true_cells = true_cells.where(truth.test)
        yield score_cells(predictions, true_cells, tags, undetermined=hidden, counted=scored_cells)
        if seen is not None and truth is truth_of["own"]:
            seen_tags = {**tags, "cells": SEEN}
            scores = score_cells(predictions, true_cells, seen_tags, undetermined=hidden, counted=seen[truth.test])
            yield scores.where(scores.measure == AREA)
        if tags["control"] == "none":
            yield confusion_rows(predictions, true_cells, tags)

    truth_of = truths(data.cells.labels, data, (control for _, control in suite), seed=fit_settings.seed)
    return fit_suite(
        data, suite, truth_of, score, target="cells", settings=fit_settings, callbacks=callbacks, scope=scope
    )


def probe_cells_by_size(
    data: ProbeInputs,
    *,
    suite: Sequence[Entry] = FULL,
    settings: FitSettings | None = None,
    callbacks: Callbacks | None = None,
) -> FittedProbes:
    """Fit and score separate probes for each shape of grid, in a frame of its size; scopes are "7x7" etc."""
    fitted = [
        probe_cells(shape_data, suite=suite, settings=settings, scope=scope, callbacks=callbacks)
        for scope, shape_data in data.by_shape()
    ]
    probes = {key: probe for part in fitted for key, probe in part.probes.items()}
    return FittedProbes(probes=probes, rows=Rows.concatenate([part.rows for part in fitted]))


def probe_plans(
    data: ProbeInputs,
    plans: Plans,
    *,
    layers: Sequence[int] = LAYERS,
    beside: Sequence[int] | None = None,
    controls: Sequence[str] = PLAN_CONTROLS,
    maps: Maps | None = None,
    stepwise: bool = False,
    settings: PlanSettings | None = None,
    tags: _Tags | None = None,
    callbacks: Callbacks | None = None,
) -> FittedProbes:
    """Fit decoders of every size with every control on one split, and score them and all baselines.

    Args:
        data: activations, truth and split.
        plans: the executed moves, see `label_plans`.
        layers: numbers of layers of the decoders.
        beside: numbers of layers of the decoders that are also fitted to random networks; by default all.
        controls: some of `PLAN_CONTROLS`, including "none".
        maps: decoded maps for the planner; a site and layer without one lacks this baseline.
        stepwise: whether to also fit decoders that receive the tokens decoded so far.
        settings: how decoders are trained; by default the sizes in the paper.
        tags: stored with every row, e.g. the agent.
        callbacks: source of stored decoders, which are not fitted again; receives each fitted decoder.

    Rows are tagged by head ("decoder-2", "decoder-2-stepwise", "marginal", "commonest", "repeat executed", "planner",
    "planner, best ties", "text"), control (`PLAN_CONTROLS`, `FIRST_KNOWN`, "true map"), site, layer (None if no
    activations are read), N, plans, size and density; those of decoders also by `DECODER_LAYERS` and `STEPWISE`.

    Raises:
        ValueError: if controls are unknown, steps do not match, or data for a control is missing; the message says how
            to get it.
    """
    fit_settings, cells, split = settings or PlanSettings(), data.cells, data.split
    check_controls(controls)
    cells.check_aligned(plans, "plans")
    truth_of = truths(plans.tokens, data, controls, seed=fit_settings.seed)
    parts = {}
    for name, truth in truth_of.items():
        exchanged = replace(plans, tokens=truth.values)
        parts[name] = (exchanged.where(truth.train), exchanged.where(truth.test), cells.where(truth.test))
    decoders: dict[str, dict[str, Tag]] = {}
    for count in layers:
        decoders[f"decoder-{count}"] = {DECODER_LAYERS: count, STEPWISE: False}
        if stepwise:
            decoders[f"decoder-{count}-stepwise"] = {DECODER_LAYERS: count, STEPWISE: True}

    def score(probe: Probe, features: Features, truth: Truth, tags: dict[str, Any]) -> Iterable[Rows]:
        train_plans, true_plans, true_cells = parts[CONTROLS[tags["control"]].truth]
        tags = {**tags, **decoders[tags["head"]]}
        predictions = probe.predict_plan(features, device=fit_settings.device)
        yield score_prefixes(prefix_matches(predictions.tokens, true_plans.tokens), true_plans, true_cells, tags)
        yield score_lengths(predictions.length, true_plans, true_cells, tags)
        if tags["control"] == "none":  # baseline that continues the decoder's first action
            repetition = prefix_matches(repeated(predictions.first, true_plans.horizon), true_plans.tokens)
            continuation, long_continuation = (
                commonest_matches(train_plans, true_plans.tokens, predictions.first, plans) for plans in SUBSETS
            )
            for name, *matches in zip(
                FIRST_KNOWN, (repetition, continuation), (repetition, long_continuation), strict=True
            ):
                yield score_prefixes(matches[0], true_plans, true_cells, {**tags, "control": name}, long=matches[1])

    def baselines() -> Iterable[Rows]:
        """Yield the scores of the baselines, which decode no plan from activations."""
        nowhere: dict[str, Any] = {**(tags or {}), "site": None, "layer": None, "control": "none"}
        for control in (name for name in ("none", "shuffled") if name in controls):
            train, true_plans, true_cells = parts[CONTROLS[control].truth]
            for head, baseline in BLIND.items():
                row_tags = {**nowhere, "head": head, "control": control}
                matches, long = (baseline(train, true_plans.tokens, plans=plans) for plans in SUBSETS)
                yield score_prefixes(matches, true_plans, true_cells, row_tags, long=long)
        _, truth, true_cells = parts["own"]
        repetition = prefix_matches(np.maximum(repeated(truth.tokens[:, 0], truth.horizon), 0), truth.tokens)
        yield score_prefixes(repetition, truth, true_cells, {**nowhere, "head": "repeat executed"})
        true = ({**nowhere, "control": "true map"}, true_map(true_cells))
        for row_tags, layout in (*on_maps(maps, split.test, tags), true):
            planned = {**row_tags, "head": "planner"}
            yield score_prefixes(planner_matches(layout, truth.tokens), truth, true_cells, planned)
            best = planner_matches(layout, truth.tokens, ties="best")
            yield score_prefixes(best, truth, true_cells, {**row_tags, "head": "planner, best ties"})
            yield score_lengths(planner_length(layout, truth.horizon), truth, true_cells, planned)
        if any(true_cells.reasoning.tolist()):
            text_plans, row_tags = named_plans(true_cells.reasoning, truth.horizon), {**nowhere, "head": "text"}
            yield score_prefixes(prefix_matches(text_plans, truth.tokens), truth, true_cells, row_tags)
            yield score_lengths(plan_length(text_plans), truth, true_cells, row_tags)

    heads = {
        name: ("stepwise" if form[STEPWISE] else "decoder", {"layers": form[DECODER_LAYERS]})
        for name, form in decoders.items()
    }
    random_layers = layers if beside is None else beside
    suite = [
        (name, control)
        for control in controls
        for count in (random_layers if control in RANDOM_WEIGHTS else layers)
        for name, form in decoders.items()
        if form[DECODER_LAYERS] == count
    ]
    fitted = fit_suite(
        data, suite, truth_of, score, target="plan", settings=fit_settings, callbacks=callbacks, tags=tags, heads=heads
    )
    return replace(fitted, rows=Rows.concatenate([fitted.rows, *baselines()]))


def check_controls(controls: Sequence[str]) -> None:
    """Raise a ValueError unless these are controls of plans and distances, including the probe itself ("none")."""
    if "none" not in controls or not set(controls) <= set(PLAN_CONTROLS):
        raise ValueError(f"controls must be some of {', '.join(PLAN_CONTROLS)} and include none, got {list(controls)}")


def on_maps(
    maps: Maps | None, steps: npt.NDArray[np.bool_], tags: _Tags | None
) -> Iterable[tuple[dict[str, Any], DecodedMaps]]:
    """Yield the decoded maps at the selected steps, each with its tags."""
    for (site, layer), decoded in (maps or {}).items():
        yield {**(tags or {}), "site": site, "layer": layer, "control": "none"}, decoded.where(steps)
