"""The built-in analyses of activations: cognitive map, beliefs, plans, distance, logit lens."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from goalscope._ground import registry
from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.inside.probing.beliefs import BELIEF_SUITE, choose_maps, compare_beliefs, read_beliefs
from goalscope.inside.probing.curves import CURVE_HEADS, learning_curve
from goalscope.inside.probing.distances import MAPS, cross_fitted, probe_distances
from goalscope.inside.probing.fitting import FitSettings, PlanSettings
from goalscope.inside.probing.heads import COUNTED, NUMBER_HEADS
from goalscope.inside.probing.inputs import PLAN_CONTROLS, ProbeInputs
from goalscope.inside.probing.logit_lens import score_lens
from goalscope.inside.probing.maps import decode_maps
from goalscope.inside.probing.pipeline import AnalysisReader, Place, analysis, place_name
from goalscope.inside.probing.plan_scores import MAIN_DECODER, STEPWISE
from goalscope.inside.probing.suite import CORE, FULL, Entry, FittedProbes, Maps, entries_of, probe_plans, without
from goalscope.stats.rows import Rows, Tag

BY_SIZE: Final[tuple[Entry, ...]] = (
    ("position", "none"),
    ("mlp", "none"),
    *(("percell", control) for control in ("none", *RANDOM_WEIGHTS)),
)
"""Probes of one size each, by default; the complete table adds those of `BY_SIZE_COMPLETE`."""
BY_SIZE_COMPLETE: Final[tuple[Entry, ...]] = (
    *BY_SIZE,
    *(("mlp", control) for control in ("shuffled", *RANDOM_WEIGHTS)),
    ("percell", "shuffled"),
)
ELSEWHERE: Final = ("none", "permuted")
"""Controls of trained heads outside of the middle layer, where the table is not complete."""
CORE_ELSEWHERE: Final = tuple(entry for entry in CORE if entry[0] == "percell" or entry[1] in ELSEWHERE)
"""Probes of cells outside of the middle layer: the linear one, which has a closed form, also on all random networks."""
MIDDLE: Final = tuple(entry for entry in FULL if entry[0] != "additive" or entry[1] not in RANDOM_WEIGHTS)
"""Probes of cells at the middle layer: all but the additive ones of random networks, which the complete table adds."""
_NOWHERE: Final = ("wall-count", "input", "text")


def _decoder(heads: Sequence[str]) -> str:
    """Return the two-layer decoder if it was fitted, otherwise the alphabetically first decoder."""
    return MAIN_DECODER if MAIN_DECODER in heads else min(heads)


@analysis(
    "cognitive-map",
    title="Cognitive map",
    headline=[
        (label, {"measure": measure, "class": name, "head": head, "reading": "natural", "scope": "general"})
        for label, measure, name in (
            ("agent at its cell", "localisation", "agent"),
            ("goal at its cell", "localisation", "goal"),
            ("walls, area under the curve", "area under the curve", "wall"),
        )
        for head in ("percell", "mlp")
    ],
)
def cognitive_map(reader: AnalysisReader, place: Place, data: ProbeInputs) -> Rows:
    """Score all probes that predict the cells of the grid. Maps are drawn only at the middle layer, and in worlds
    without doors.
    """
    middle = place[1] == reader.dataset.middle
    entries = FULL if reader.declared.table == "complete" else MIDDLE
    suite = reader.usable((*entries, *entries_of(reader.declared.heads)) if reader.full(place) else CORE_ELSEWHERE)
    sizes = reader.usable(BY_SIZE_COMPLETE if reader.declared.table == "complete" else BY_SIZE)
    if not reader.is_first(place):  # probes without activations are included at the first place only
        suite, sizes = without(suite, *COUNTED, *_NOWHERE), without(sizes, *COUNTED)
    fitted = reader.fit(place, data, suite)
    rows = fitted.rows
    if reader.declared.by_size and middle:
        rows = Rows.concatenate([rows, reader.fit(place, data, sizes, by_size=True).rows])
    if reader.declared.curve and middle:
        settings = reader.fit_settings(FitSettings, reader.declared.probes)
        heads = CURVE_HEADS if reader.is_first(place) else tuple(head for head in CURVE_HEADS if head not in COUNTED)
        with reader.stage(f"learning curve at {place_name(place)}") as show:
            curve = learning_curve(data, reader.declared.curve, heads=heads, settings=settings, progress=show)
        rows = Rows.concatenate([rows, curve])
    if middle and not reader.dataset.doors:
        tested, activations = data.split.test, data.activations[0]
        probe = fitted.probe("mlp", activations)
        beliefs = read_beliefs(probe.predict(activations.where(tested), device=reader.device).maps("natural"))
        tags: dict[str, Tag] = {"head": "mlp", "control": "none", "site": place[0], "layer": place[1]}
        tags |= {"scope": "general", "probe": probe.id, "reading": "natural"}
        reader.show(choose_maps(beliefs, reader.decisions.where(tested), tags))
    return rows


@analysis(
    "beliefs",
    title="Actions against decoded beliefs",
    headline=[
        (label, {"measure": f"{measure} less shuffled", "head": "mlp", "reading": "natural"})
        for label, measure in (
            ("optimal on the decoded map, less shuffled", "accuracy against decoded beliefs"),
            ("recovery, less shuffled", "recovery"),
        )
    ],
)
def beliefs(reader: AnalysisReader, place: Place, data: ProbeInputs) -> Rows:
    """Compare the agent's actions with those that are optimal on decoded maps."""
    suite = reader.usable(BELIEF_SUITE if reader.full(place) else CORE_ELSEWHERE)
    suite = suite if reader.is_first(place) else without(suite, *COUNTED)
    fitted = reader.fit(place, data, suite, scored=False)
    with reader.stage(f"beliefs at {place_name(place)}") as show:
        rows, shown_maps = compare_beliefs(data, reader.decisions, fitted, suite=suite, device=reader.device)
        show(1, 1)
    if place[1] == reader.dataset.middle:
        reader.show(shown_maps)
    return rows


@analysis(
    "plans",
    title="Decoded plans",
    headline=[
        (f"plan right up to N = {count}", {"measure": "prefix accuracy", "N": count, "plans": "all", STEPWISE: False})
        for count in (1, 3, 5)
    ],
    pick=_decoder,
)
def plans(reader: AnalysisReader, place: Place, data: ProbeInputs) -> Rows:
    """Decode the next actions, and compare with what decoded maps predict."""
    decoders = reader.declared.decoders
    layers, settings = decoders.layers, reader.fit_settings(PlanSettings, decoders)
    main = (sorted(layers)[(len(layers) - 1) // 2],)
    beside_layers = layers if reader.declared.table == "complete" else main
    kinds: dict[str, Any] = {"beside": beside_layers, "stepwise": decoders.stepwise, "settings": settings}
    fit_plans = partial(probe_plans, plans=reader.executed, layers=layers if reader.full(place) else main, **kinds)
    # The planner needs no fit. It is scored on test maps, on which no probe was fitted.
    activations = data.activations[0]
    probe = reader.fit(place, replace(data, random={}), ((MAPS, "none"),), scored=False).probe(MAPS, activations)
    maps = {place: decode_maps(probe.predict(activations, device=reader.device).maps("natural"))}
    return _score_with_maps(reader, "plans", fit_plans, place, data, maps)


@analysis(
    "distance",
    title="Decoded distance to the goal",
    headline=[
        ("distance, absolute error (steps)", {"measure": "distance error", "head": head, "distance": None})
        for head in ("linear", "mlp")
    ],
)
def distance(reader: AnalysisReader, place: Place, data: ProbeInputs) -> Rows:
    """Decode the distance to the goal, and compare with the distance on decoded maps."""
    extra = [head for head in reader.declared.heads if "distance" in registry.resolve("head", head).targets]
    heads = (*NUMBER_HEADS, *extra) if reader.full(place) else NUMBER_HEADS
    settings = reader.fit_settings(FitSettings, reader.declared.probes)
    fit_distances = partial(probe_distances, distances=reader.distances, heads=heads, settings=settings)
    with reader.stage(f"maps of all steps at {place_name(place)}") as show:
        maps = cross_fitted(data, head=MAPS, settings=settings, callbacks=reader.probes.callbacks(show))
    return _score_with_maps(reader, "distance", fit_distances, place, data, maps)


def _score_with_maps(
    reader: AnalysisReader,
    name: str,
    fit_targets: Callable[..., FittedProbes],
    place: Place,
    data: ProbeInputs,
    maps: Maps,
) -> Rows:
    """Score probes of plans or distances, and their baselines on decoded maps."""
    missing = set(RANDOM_WEIGHTS) - set(reader.dataset.kinds)
    controls = tuple(name for name in (PLAN_CONTROLS if reader.full(place) else ELSEWHERE) if name not in missing)
    with reader.stage(f"{name} at {place_name(place)}") as show:
        return fit_targets(data, controls=controls, maps=maps, callbacks=reader.probes.callbacks(show)).rows


@analysis(
    "logit-lens",
    title="Actions by the logit lens",
    headline=[
        (f"logit lens, best action {what}", {"measure": measure, "head": "logit-lens"})
        for what, measure in (("was taken", "lens, action taken"), ("is optimal", "lens, optimal action"))
    ],
)
def logit_lens(reader: AnalysisReader, place: Place, data: ProbeInputs) -> Rows:
    """Score the actions that the unembedding reads from a layer; nothing if their tokens are ambiguous."""
    if reader.tokens is None:
        return Rows.concatenate([])
    with reader.stage(f"logit lens at {place_name(place)}") as show:
        rows = score_lens(data, reader.tokens, reader.lens)
        show(1, 1)
    return rows
