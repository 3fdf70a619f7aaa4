"""Declared suites of heads and controls: one call fits and scores all of one on one split, whatever is predicted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope import registry
from goalscope.activations.load import Activations
from goalscope.models.initialisation import RANDOM_WEIGHTS
from goalscope.probing.fitting import Callbacks, fit
from goalscope.probing.heads import CELL_HEADS, COUNTED
from goalscope.probing.inputs import (
    CONTROLS,
    NOWHERE,
    PLAN_CONTROLS,
    Features,
    ProbeInputs,
    read,
    site_layer,
)
from goalscope.probing.labels import Plans, plan_length, undetermined
from goalscope.probing.maps import DecodedMaps, true_map
from goalscope.probing.plan_scores import (
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
from goalscope.probing.probe import Probe, ProbeKey, Target
from goalscope.probing.problem import FitSettings, PlanSettings, Problem
from goalscope.probing.scores import AREA, confusion_rows, score_cells
from goalscope.probing.truths import Truth, scored_rows, truths
from goalscope.rows import Rows, Tag

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
"""What a claim rests on: the linear probe and the MLP, also on random networks."""
LAYERS: Final = (1, 2, 4)
"""Layers of the decoders of the paper."""
FIRST_KNOWN: Final = ("repeat", "continuation")
"""What the decoded first action alone gives: itself again and again, and its commonest continuation."""
SEEN: Final = "seen"
"""Value of the tag ``cells`` of scores over the cells alone that the agent had been shown."""
BLIND: Final[Mapping[str, Callable[..., npt.NDArray[np.float64]]]] = {
    "marginal": marginal_matches,
    "commonest": commonest_matches,
}
"""Baselines that see nothing."""


def entries_of(heads: Sequence[str]) -> tuple[Entry, ...]:
    """Return those of some registered heads that predict cells, each with every control."""
    cells = [name for name in heads if "cells" in registry.resolve("head", name).targets and name not in COUNTED]
    return tuple((head, control) for head in cells for control in CONTROLS)


def without(suite: Sequence[Entry], *names: str) -> tuple[Entry, ...]:
    """Return a suite without some heads or controls, e.g. ``without(FULL, "text")`` for a model without reasoning."""
    return tuple(entry for entry in suite if not set(entry) & set(names))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedProbes:
    """The fitted probes of a suite by key, and the scores on the tested grids: theirs and those of the baselines."""

    probes: Mapping[ProbeKey, Probe]
    rows: Rows

    def probe(
        self, head: str, given: Activations, *, control: str = "none", draw: int | None = None, scope: str = "general"
    ) -> Probe:
        """Return the probe for the site and layer of some activations; a KeyError names those that were fitted."""
        (site, layer), about = site_layer(given), (head, control, draw, scope)
        asked = ProbeKey(head=head, target="cells", control=control, draw=draw, scope=scope, site=site, layer=layer)
        for key, probe in self.probes.items():
            known = (key.head, key.control, key.draw, key.scope) == about
            if known and (key.site, key.layer) in ((site, layer), NOWHERE):
                return probe
        raise KeyError(f"no probe {asked.text}: there are {', '.join(key.text for key in self.probes)}")


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
    """Fit and score every entry of a suite at every place: the one loop over heads and controls.

    ``heads`` maps a name in the suite to the registered head and its settings, where the name does not tell them.
    """
    if not suite or len(set(suite)) != len(suite):
        raise ValueError(f"the entries of a suite must be there and be different, got {list(suite)}")
    parts: dict[tuple[int, int], Features] = {}
    problems: list[Problem] = []
    tested: list[tuple[Features, Truth]] = []
    first = site_layer(data.activations[0])
    placed = list(read(data, [control for _, control in suite]))  # kept: the ids below must stay their own
    for control, (place, given, draw) in placed:
        truth = truth_of[CONTROLS[control].truth]
        for part in (truth.train, truth.test):
            if (id(given), id(part)) not in parts:
                parts[id(given), id(part)] = given.where(part)
        for head, wanted in suite:
            # Heads that read no activation are the same at every place: they are fitted at the first.
            if wanted != control or (head in COUNTED and place != first):
                continue
            site, layer = NOWHERE if head in COUNTED else place
            registered, own = (heads or {}).get(head, (head, {}))
            about: dict[str, Any] = {"control": control, "draw": draw, "seed": settings.seed, "scope": scope}
            one = Problem(
                key=ProbeKey(head=head, target=target, site=site, layer=layer, **about),
                features=parts[id(given), id(truth.train)],
                target=truth.values[truth.train],
                tags={"control": control} | ({"scope": scope} if target == "cells" else {}),
                head=registered,
                settings=own,
            )
            problems.append(one)
            tested.append((parts[id(given), id(truth.test)], truth))
    probes = fit(problems, settings, callbacks)
    rows: list[Rows] = []
    for problem, probe, (features, truth) in zip(problems, probes, tested, strict=True):
        about = {**(tags or {}), "probe": probe.id, **problem.key.tags}
        scored = list(score(probe, features, truth, about))
        rows += scored
        if scored and truth is truth_of.get("control task"):
            rows.append(scored_rows(truth, data, {**about, "scope": scope}))
    return FittedProbes(
        probes={one.key: probe for one, probe in zip(problems, probes, strict=True)}, rows=Rows.concatenate(rows)
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
    """Fit every head with every control on one split, and score all of them on its tested grids.

    Args:
        data: what is read, the truth and the split.
        suite: heads and controls, `FULL` by default.
        settings: how probes are trained.
        scope: which grids the probes are for; a tag.
        callbacks: probes that are known are not fitted again; is told of each that is finished.
        scored: whether the probes are scored, too; without, there are no rows.
        seen: ``[N, C]`` which cells the agent had been shown: the area under the curve over these alone stands beside
            that over all, tagged ``cells``; None where it was shown all.

    Raises:
        ValueError: an unknown entry, or a control whose data is missing; says how to get it.
    """
    used = settings or FitSettings()
    for entry in suite:
        if entry not in FULL and entry not in entries_of([entry[0]]):
            raise ValueError(f"an entry of a suite must be a head with one of its controls, got {entry!r}")

    def score(probe: Probe, features: Features, truth: Truth, about: dict[str, Any]) -> Iterable[Rows]:
        if not scored:
            return
        shown = replace(data.cells, labels=truth.values)
        said, about = probe.predict(features, device=used.device), {**about, "scope": scope}
        wanted = undetermined(shown, truth.train)
        counted = None if truth.cells is None else truth.cells[truth.test]
        shown = shown.where(truth.test)
        yield score_cells(said, shown, about, undetermined=wanted, counted=counted)
        if seen is not None and truth is truth_of["own"]:
            told = {**about, "cells": SEEN}
            scores = score_cells(said, shown, told, undetermined=wanted, counted=seen[truth.test])
            yield scores.where(scores.measure == AREA)
        if about["control"] == "none":
            yield confusion_rows(said, shown, about)

    truth_of = truths(data.cells.labels, data, (control for _, control in suite), seed=used.seed)
    return fit_suite(data, suite, truth_of, score, target="cells", settings=used, callbacks=callbacks, scope=scope)


def probe_cells_by_size(
    data: ProbeInputs,
    *,
    suite: Sequence[Entry] = FULL,
    settings: FitSettings | None = None,
    callbacks: Callbacks | None = None,
) -> FittedProbes:
    """Do the same with probes of their own for each shape of grid, in a frame of its size; scopes are "7x7" etc."""
    found = [
        probe_cells(own, suite=suite, settings=settings, scope=scope, callbacks=callbacks)
        for scope, own in data.by_shape()
    ]
    probes = {key: probe for one in found for key, probe in one.probes.items()}
    return FittedProbes(probes=probes, rows=Rows.concatenate([one.rows for one in found]))


def probe_plans(
    data: ProbeInputs,
    plans: Plans,
    *,
    layers: Sequence[int] = LAYERS,
    beside: Sequence[int] | None = None,
    controls: Sequence[str] = PLAN_CONTROLS,
    maps: Maps | None = None,
    settings: PlanSettings | None = None,
    tags: _Tags | None = None,
    callbacks: Callbacks | None = None,
) -> FittedProbes:
    """Fit decoders of every size with every control on one split, and score them beside all baselines.

    Args:
        data: what is read, the truth and the split.
        plans: what was executed, see `label_plans`.
        layers, beside: layers of the decoders, and of those that also read random networks, all by default.
        controls: some of `PLAN_CONTROLS`, "none" among them.
        maps: decoded maps for the planner; sites and layers without one have no such baseline.
        settings: how decoders are trained; the paper's sizes where left out.
        tags: kept with every row, e.g. the agent.
        callbacks: decoders that are known are not fitted again; is told of each that is finished.

    Rows are tagged by head ("decoder-2", "marginal", "commonest", "repeat executed", "planner", "planner, best ties",
    "text"), control (`PLAN_CONTROLS`, `FIRST_KNOWN`, "true map"), site, layer (None where no activations are read), N,
    plans, size and density.

    Raises:
        ValueError: unknown controls, steps that do not match, or a control whose data is missing; says how to get it.
    """
    used, cells, split = settings or PlanSettings(), data.cells, data.split
    check_controls(controls)
    cells.check_aligned(plans, "plans")
    truth_of = truths(plans.tokens, data, controls, seed=used.seed)
    parts = {}
    for name, truth in truth_of.items():
        exchanged = replace(plans, tokens=truth.values)
        parts[name] = (exchanged.where(truth.train), exchanged.where(truth.test), cells.where(truth.test))

    def score(probe: Probe, features: Features, truth: Truth, about: dict[str, Any]) -> Iterable[Rows]:
        learned, real, shown = parts[CONTROLS[about["control"]].truth]
        said = probe.predict_plan(features, device=used.device)
        yield score_prefixes(prefix_matches(said.tokens, real.tokens), real, shown, about)
        yield score_lengths(said.length, real, shown, about)
        if about["control"] == "none":  # what its first action alone gives
            straight = prefix_matches(repeated(said.first, real.horizon), real.tokens)
            further, long = (commonest_matches(learned, real.tokens, said.first, plans) for plans in SUBSETS)
            for name, *matches in zip(FIRST_KNOWN, (straight, further), (straight, long), strict=True):
                yield score_prefixes(matches[0], real, shown, {**about, "control": name}, long=matches[1])

    def baselines() -> Iterable[Rows]:
        """Yield the scores of what reads no plan out of activations."""
        nowhere: dict[str, Any] = {**(tags or {}), "site": None, "layer": None, "control": "none"}
        for control in (one for one in ("none", "shuffled") if one in controls):
            train, real, shown = parts[CONTROLS[control].truth]
            for head, baseline in BLIND.items():
                own = {**nowhere, "head": head, "control": control}
                matches, long = (baseline(train, real.tokens, plans=plans) for plans in SUBSETS)
                yield score_prefixes(matches, real, shown, own, long=long)
        _, truth, shown = parts["own"]
        straight = prefix_matches(np.maximum(repeated(truth.tokens[:, 0], truth.horizon), 0), truth.tokens)
        yield score_prefixes(straight, truth, shown, {**nowhere, "head": "repeat executed"})
        true = ({**nowhere, "control": "true map"}, true_map(shown))
        for own, layout in (*on_maps(maps, split.test, tags), true):
            planned = {**own, "head": "planner"}
            yield score_prefixes(planner_matches(layout, truth.tokens), truth, shown, planned)
            best = planner_matches(layout, truth.tokens, ties="best")
            yield score_prefixes(best, truth, shown, {**own, "head": "planner, best ties"})
            yield score_lengths(planner_length(layout, truth.horizon), truth, shown, planned)
        if any(shown.reasoning.tolist()):
            named, own = named_plans(shown.reasoning, truth.horizon), {**nowhere, "head": "text"}
            yield score_prefixes(prefix_matches(named, truth.tokens), truth, shown, own)
            yield score_lengths(plan_length(named), truth, shown, own)

    heads = {f"decoder-{count}": ("decoder", {"layers": count}) for count in layers}
    few = layers if beside is None else beside
    suite = [(f"decoder-{n}", one) for one in controls for n in (few if one in RANDOM_WEIGHTS else layers)]
    found = fit_suite(
        data, suite, truth_of, score, target="plan", settings=used, callbacks=callbacks, tags=tags, heads=heads
    )
    return replace(found, rows=Rows.concatenate([found.rows, *baselines()]))


def check_controls(controls: Sequence[str]) -> None:
    """Raise a ValueError unless these are controls of plans and distances, the probe itself among them."""
    if "none" not in controls or not set(controls) <= set(PLAN_CONTROLS):
        raise ValueError(f"controls must be some of {', '.join(PLAN_CONTROLS)} with none, got {list(controls)}")


def on_maps(
    maps: Maps | None, steps: npt.NDArray[np.bool_], tags: _Tags | None
) -> Iterable[tuple[dict[str, Any], DecodedMaps]]:
    """Yield the decoded maps of some steps, each with its tags."""
    for (site, layer), decoded in (maps or {}).items():
        yield {**(tags or {}), "site": site, "layer": layer, "control": "none"}, decoded.where(steps)
