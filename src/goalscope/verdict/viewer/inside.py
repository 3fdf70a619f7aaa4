"""What probes decode at the steps of a run: maps and plans, each beside what the same probe decodes from a random
network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.inside.activations.shards import Capture, captures, load_activations
from goalscope.inside.activations.sites import plan_id, some_steps
from goalscope.inside.probing.beliefs import read_beliefs
from goalscope.inside.probing.logit_lens import OWN, Network
from goalscope.inside.probing.pipeline import INFO, ProbeDataset, probe_dataset
from goalscope.inside.probing.probe import Probe, stored_probes
from goalscope.measures.transcript import agent_of
from goalscope.report.ledger import Run
from goalscope.runs.store import Store
from goalscope.runs.study_parts import Inside

HEADS: Final = ("percell", "mlp")
"""Kinds of cell probes whose maps are shown, in order of preference; the claim on maps uses the linear one."""

_STRICTEST: Final = ("initial", "permuted", *RANDOM_WEIGHTS)
"""Kinds of random networks for comparison, in order of preference."""

_NOTHING: Final = (
    "Decoded maps are not shown, because no stored pair of probes (one of the model, one of a random network) matches "
    "the stored activations of these episodes. goalscope probe RUN fits them again"
)

StepKey = tuple[str, int]
"""Id of an episode, and number of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeliefMap:
    """Map of the grid that a probe decoded from a model's activations at one step.

    Attributes:
        own, control: one string of cell symbols per row of the grid, as in `DecodedMaps.text`, decoded from the model
            and from a random network.
        wrong: share of the grid's cells whose class is decoded wrongly, for the model and for the random network.
        fits: numbers of the actions that are optimal on the map decoded from the model; empty if no path leads to the
            goal on this map.
    """

    own: tuple[str, ...]
    control: tuple[str, ...]
    wrong: tuple[float, float]
    fits: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What probes decoded from the activations of a run's model, step by step, as the viewer shows it.

    Attributes:
        maps: (episode, step) -> decoded maps, only for grids on which the probe was not fitted.
        plans: (episode, step) -> next actions decoded from the model, and from a random network.
        sites: (episode, step) -> site (a set of token positions, such as "pre") -> these positions.
        about: name of what was decoded -> the probe, site, layer and control in words.
        tokenizer: tokenizer of the model that was read; None if it is not available here.
    """

    maps: Mapping[StepKey, BeliefMap] = field(default_factory=dict)
    plans: Mapping[StepKey, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    sites: Mapping[StepKey, dict[str, list[int]]] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)
    tokenizer: Any = None


def inside_of(run: Run) -> tuple[Readings, str]:
    """Return what probes decoded from the activations of a run's model, with a sentence about it for the viewer.

    The sentence explains the decoded maps and plans, or says why nothing can be shown; "" if the run has no probes.
    """
    with Store(run.path) as store:
        if INFO not in store.info():
            return Readings(), ""
        try:
            content = read_inside(store)
        except (ImportError, OSError, ValueError, KeyError, TypeError) as error:
            return Readings(), f"Decoded maps are not shown: {error}"
    return content, "; ".join(content.about.values()) or _NOTHING


def token_texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return the text of each token id; if the tokenizer is not available here (None), its number in brackets."""
    if tokenizer is None:
        return [f"[{token}]" for token in ids]
    return [str(tokenizer.decode([token])) for token in ids]


def _tokenizer(store: Store, capture: Capture) -> Any:
    """Return the tokenizer of the agent whose activations were captured; None if it cannot be loaded here."""
    try:
        agent = agent_of(store.study(), capture.agent_id)
        return getattr(getattr(agent, "model", None), "tokenizer", None)
    except (ImportError, OSError, ValueError):
        return None


def read_inside(store: Store) -> Readings:
    """Apply the stored probes of a run to its stored activations; the result is empty if the run has none.

    Raises:
        ImportError: torch is not installed.
        OSError, ValueError, KeyError: a file is missing, damaged, or of another version.
    """
    notes = store.info().get(INFO)
    if not isinstance(notes, Mapping):
        return Readings()
    # Probes of earlier readings, which may have been fitted on grids that are tested now, are still stored: those of
    # the last one are named by its rows. Probes of one size read grids of that size alone.
    rows = store.rows()
    probe_names = (
        set(rows.where(rows.among("scope", ["general", None]))["probe"].tolist()) if "probe" in rows.tags else set()
    )
    probes = [probe for _, probe in stored_probes(store.path) if probe.id in probe_names]
    maps, own_capture = dict[StepKey, BeliefMap](), None
    plans, explanations = dict[StepKey, Any](), dict[str, str]()
    for name, target in (("cognitive-map", "cells"), ("plans", "plan")):
        if name not in notes:
            continue
        settings = Inside.parse(notes[name]["settings"])
        layers = [int(layer) for layer in notes[name]["layers"]]
        by_network = _captures(store, settings, str(notes[name]["agent"]), layers)
        if (own_capture := by_network.get(OWN)) is None:
            continue
        dataset = probe_dataset(store, {OWN: own_capture}, layers, settings, shuffled=False)
        pair = _pair([candidate for candidate in probes if candidate.target == target], dataset, by_network)
        if pair is None:
            continue
        tested = [_tested(store, dataset, probe, capture) for probe, capture in pair]
        words = f"{pair[0][0].head} at {pair[0][0].source.site}, layer {pair[0][0].source.layer}"
        explanations[target] = f"{words}; beside it: {pair[1][1].random_weights} weights, seed {pair[1][1].untrained}"
        if target == "cells":
            maps = _maps(dataset, [probe for probe, _ in pair], tested)
        else:
            own_plan, control = ((probe.predict_plan(plan)) for (probe, _), plan in zip(pair, tested, strict=True))
            for at, key in enumerate(zip(tested[0].episode_id.tolist(), tested[0].step.tolist(), strict=True)):
                plans[key] = tuple(tuple(plan.tokens[at, : plan.length[at]].tolist()) for plan in (own_plan, control))
    if own_capture is None:
        return Readings()
    return Readings(
        maps=maps,
        plans=plans,
        sites=_sites(store, own_capture),
        about=explanations,
        tokenizer=_tokenizer(store, own_capture),
    )


def _captures(store: Store, settings: Inside, agent: str, layers: Sequence[int]) -> dict[Network, Capture]:
    """Return, by network, the captures that probes read: those with the given steps, sites and layers."""
    scope = "all" if settings.steps is None else some_steps(settings.steps, settings.seed)
    capture_by_network = dict[Network, Capture]()
    for capture in captures(store):
        holds = set(capture.layers) >= set(layers) and set(capture.sites) >= set(settings.wanted_sites)
        if (
            capture.complete
            and holds
            and capture.agent == agent
            and capture.plan == plan_id(store, capture.agent_id, scope)
        ):
            capture_by_network.setdefault(
                OWN if capture.untrained is None else (capture.random_weights, capture.untrained), capture
            )
    return capture_by_network


def _pair(
    probes: Sequence[Probe], dataset: ProbeDataset, networks: Mapping[Network, Capture]
) -> tuple[tuple[Probe, Capture], tuple[Probe, Capture]] | None:
    """Return a probe of the model and the same probe of a random network, with their captures; None if one is
    missing.
    """
    by_model = {capture.model: capture for capture in networks.values()}
    read_here = [
        probe for probe in probes if probe.source.layer == dataset.middle and probe.source.site in dataset.sites
    ]
    for head in (*HEADS, *sorted({probe.head for probe in read_here} - {*HEADS, "additive", "position", "majority"})):
        of_head = [probe for probe in read_here if probe.head == head and probe.source.model in by_model]
        own_probe = next((probe for probe in of_head if probe.tags.get("control", "none") == "none"), None)
        for kind in _STRICTEST:
            control = next((probe for probe in of_head if probe.tags.get("control") == kind), None)
            if own_probe is not None and control is not None and own_probe.source.site == control.source.site:
                return (own_probe, by_model[own_probe.source.model]), (control, by_model[control.source.model])
    return None


def _tested(store: Store, dataset: ProbeDataset, probe: Probe, capture: Capture) -> Any:
    """Return the activations of a network at the site and layer of a probe, only for the test grids."""
    site = str(probe.source.site)
    activations = load_activations(store, site=site, layer=int(probe.source.layer), capture=capture.id)
    return activations.where(dataset.rows[site]).where(dataset.split.test)


def _maps(dataset: ProbeDataset, probes: Sequence[Probe], tested: Sequence[Any]) -> dict[StepKey, BeliefMap]:
    cells = dataset.cells.where(dataset.split.test)
    inside = cells.inside()
    decoded, control = (probe.predict(inputs).maps("natural") for probe, inputs in zip(probes, tested, strict=True))
    own_read, control_read = read_beliefs(decoded), read_beliefs(control)
    wrong = [
        np.mean(read.maps.layout.reshape(len(cells), -1) != cells.labels, axis=1, where=inside)
        for read in (own_read, control_read)
    ]
    maps = {}
    for at, key in enumerate(zip(cells.episode_id.tolist(), cells.step.tolist(), strict=True)):
        height, width = cells.shape[at].tolist()
        lines = [tuple(line[:width] for line in read.maps.text(at)[:height]) for read in (own_read, control_read)]
        maps[key] = BeliefMap(
            own=lines[0],
            control=lines[1],
            wrong=(round(float(wrong[0][at]), 4), round(float(wrong[1][at]), 4)),
            fits=tuple(np.flatnonzero(own_read.optimal[at]).tolist()),
        )
    return maps


def _sites(store: Store, capture: Capture) -> dict[StepKey, dict[str, list[int]]]:
    """Return the token positions from which the vectors of each captured step were taken."""
    sites = dict[StepKey, dict[str, list[int]]]()
    for site in capture.sites:
        activations = load_activations(store, site=site, layer=capture.layers[0], capture=capture.id)
        for at, key in enumerate(zip(activations.episode_id.tolist(), activations.step.tolist(), strict=True)):
            positions: npt.NDArray[np.int64] = activations.positions[at]
            sites.setdefault(key, {})[site] = positions.tolist()
    return sites
