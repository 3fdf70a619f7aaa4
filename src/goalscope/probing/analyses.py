"""The readings of a run's activations by site and layer: cognitive map, beliefs, plans, distance, logit lens.

All use one set of steps, their labels, and one split by grid. Each fits the probes that are not stored yet and returns
rows. Only the vectors of one site and layer, of all networks, are in memory at a time.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from goalscope import registry
from goalscope.activations.capture_schedule import chosen_steps, some_steps
from goalscope.activations.load import Capture, load_activations
from goalscope.models.initialisation import RANDOM_WEIGHTS
from goalscope.models.local import LocalModel
from goalscope.probing.beliefs import BELIEF_SUITE, ShownMap, choose_maps, compare_beliefs, read_beliefs
from goalscope.probing.curves import CURVE_HEADS, check_counts, learning_curve
from goalscope.probing.distances import MAPS, cross_fitted, probe_distances
from goalscope.probing.heads import COUNTED, NUMBER_HEADS
from goalscope.probing.inputs import PLAN_CONTROLS, ProbeInputs, Split, check_sizes, shuffled_rows, split_by_grid
from goalscope.probing.labels import (
    FRAME,
    Cells,
    Decisions,
    Plans,
    decisions_at,
    label_cells,
    label_distances,
    label_plans,
    seen_cells,
)
from goalscope.probing.logit_lens import OWN, Lens, LensSteps, Network, label_tokens, score_lens
from goalscope.probing.maps import decode_maps
from goalscope.probing.probe_store import ProbeStore
from goalscope.probing.problem import FitSettings, PlanSettings
from goalscope.probing.suite import (
    CORE,
    FULL,
    Entry,
    FittedProbes,
    Maps,
    entries_of,
    probe_cells,
    probe_cells_by_size,
    probe_plans,
    without,
)
from goalscope.progress import Stage
from goalscope.rows import Rows, Tag
from goalscope.runs import Episode, Store
from goalscope.runs.probing_config import READS, Inside, Read

Reading = tuple[Rows, list[ShownMap]]
"""Rows, and maps to draw."""
Settings = TypeVar("Settings", bound=FitSettings)

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
_IN_EVERY_ID: Final = {"hidden", "epochs", "rate", "batch"}  # settings that enter the id of every fit
_OWN_KEYS: Final = {"layers", "stepwise"}  # which decoders there are, not how they are trained
_RENAMED: Final = {"hidden": "d_hidden", "rate": "lr", "width": "d_model", "feedforward": "d_hidden"}

Place = tuple[str, int]
"""A site and a layer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeDataset:
    """N steps of one agent that have every site, with their labels.

    Attributes:
        captures: of the agent's model (`OWN`) and of random networks, by kind and seed.
        sites, layers: sites of a sequence, and sorted numbers of decoder blocks.
        rows: site -> ``[N]`` indices of the steps among those captured there.
        cells, split: true classes of all cells; training and test grids.
        left_out: number of captured steps that lack one of the sites.
        doors: whether some world has a door: no class of cells stands for one.
    """

    captures: dict[Network, Capture]
    sites: tuple[str, ...]
    layers: tuple[int, ...]
    rows: dict[str, npt.NDArray[Any]]
    cells: Cells
    split: Split
    left_out: int
    doors: bool

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the captured random networks."""
        return tuple(dict.fromkeys(kind for kind, seed in self.captures if seed is not None))

    @property
    def middle(self) -> int:
        """The middle layer."""
        return self.layers[len(self.layers) // 2]

    @property
    def places(self) -> list[Place]:
        """All sites and layers, the middle layer of each site first."""
        others = [layer for layer in self.layers if layer != self.middle]
        return [(site, self.middle) for site in self.sites] + [(site, layer) for site in self.sites for layer in others]

    def summary(self) -> dict[str, int]:
        """Return numbers of steps and grids."""
        split = self.split
        return {
            "steps": len(self.cells),
            "steps left out": self.left_out,
            "training steps": int(split.train.sum()),
            "test steps": int(split.test.sum()),
            "training grids": len(set(split.cluster[split.train].tolist())),
            "test grids": len(set(split.cluster[split.test].tolist())),
        }


def probe_dataset(
    store: Store,
    captures: Mapping[Network, Capture],
    layers: Sequence[int],
    declared: Inside,
    *,
    shuffled: bool = True,
) -> ProbeDataset:
    """Return the steps that have every site, their labels and their split; too few grids are refused at once.

    With ``shuffled`` there must also be enough grids for the control of shuffled labels.
    """
    sites, capture = declared.wanted_sites, captures[OWN]
    activations = {site: load_activations(store, site=site, layer=layers[0], capture=capture.id) for site in sites}
    keys = {
        site: list(zip(loaded.episode_id.tolist(), loaded.step.tolist(), strict=True))
        for site, loaded in activations.items()
    }
    common = set.intersection(*map(set, keys.values()))
    if not common:
        raise ValueError(f"the steps that are read must have all sites ({', '.join(sites)}), none has: read fewer")
    rows: dict[str, npt.NDArray[Any]] = {
        site: np.flatnonzero([key in common for key in site_keys]) for site, site_keys in keys.items()
    }
    steps = activations[sites[0]].where(rows[sites[0]])
    if declared.steps is not None and capture.scope == "all":
        chosen = chosen_steps(store, capture.agent_id, some_steps(declared.steps, declared.seed)) or {}
        step_keys = zip(steps.episode_id.tolist(), steps.step.tolist(), strict=True)
        selected = np.flatnonzero([step in chosen.get(episode, ()) for episode, step in step_keys])
        steps, rows = steps.where(selected), {name: indices[selected] for name, indices in rows.items()}
    episodes = store.episodes(sorted(set(steps.episode_id.tolist())))
    cells = label_cells(steps, episodes, frame=max(FRAME, int(steps.shape.max())))
    split = split_by_grid(cells, test=declared.test, seed=declared.seed)
    if shuffled:
        shuffled_rows(cells, split, seed=declared.seed)
    if declared.by_size and "cognitive-map" in declared.reads:
        check_sizes(cells, split)
    if declared.curve and "cognitive-map" in declared.reads:
        check_counts(cells, split, declared.curve)
    worlds = set(steps.world_id.tolist())
    return ProbeDataset(
        captures=dict(captures),
        sites=tuple(sites),
        layers=tuple(sorted(layers)),
        rows=rows,
        cells=cells,
        split=split,
        left_out=len(set.union(*map(set, keys.values()))) - len(common),
        doors=any(world.id in worlds and world.grid.door is not None for world in store.worlds()),
    )


class Reader:
    """Computes the readings of one run, open for writing; see `goalscope.probing.pipeline.study_inside`."""

    def __init__(
        self,
        store: Store,
        dataset: ProbeDataset,
        declared: Inside,
        stage: Stage,
        device: str,
        models: Callable[[Network], LocalModel] | None = None,
    ) -> None:
        self.store, self.dataset, self.declared, self.stage, self.device = store, dataset, declared, stage, device
        self._models = models  # the networks themselves, for the logit lens
        self._lenses: dict[Network, Lens] = {}

    @cached_property
    def probes(self) -> ProbeStore:
        """The store of fitted probes: those with equal settings are reused by all readings."""
        dataset, declared = self.dataset, self.declared
        digest = sha256()
        for episode, step in zip(dataset.cells.episode_id.tolist(), dataset.cells.step.tolist(), strict=True):
            digest.update(f"{episode} {step}\n".encode())
        probes = declared.probes.model_dump(exclude_defaults=True) | declared.probes.model_dump(include=_IN_EVERY_ID)
        return ProbeStore(
            store=self.store,
            decisive={"steps": digest.hexdigest(), "frame": dataset.cells.frame, "test": declared.test},
            settings={"cells": probes, "distance": probes, "plan": declared.decoders.model_dump(exclude=_OWN_KEYS)},
            models={network: capture.model for network, capture in dataset.captures.items()},
            first="/".join(map(str, dataset.places[0])),
            tags={"agent": dataset.captures[OWN].agent},
        )

    def _settings(self, kind: type[Settings], declared: BaseModel) -> Settings:
        fields = {_RENAMED.get(name, name): value for name, value in declared.model_dump(exclude=_OWN_KEYS).items()}
        return kind(**fields, seed=self.declared.seed, device=self.device)

    @cached_property
    def _decisions(self) -> Decisions:
        return decisions_at(self.dataset.cells, self._episodes)

    @cached_property
    def _executed(self) -> Plans:
        return label_plans(self.dataset.cells, self._episodes)

    @cached_property
    def _distances(self) -> npt.NDArray[np.float64]:
        return label_distances(self.dataset.cells, self._episodes)

    @cached_property
    def _seen(self) -> npt.NDArray[np.bool_] | None:
        seen = seen_cells(self.dataset.cells, self._episodes)
        return None if (seen >= self.dataset.cells.inside()).all() else seen

    @property
    def _episodes(self) -> Iterator[Episode]:
        return self.store.episodes(sorted(set(self.dataset.cells.episode_id.tolist())))

    def read(self, name: Read) -> Reading:
        """Return the rows of a reading at all sites and layers, and maps to draw; those without a site once."""
        readings: dict[Read, Callable[[Place, ProbeInputs, bool], Reading]] = {
            "cognitive-map": self._cognitive_map,
            "beliefs": self._beliefs,
            "plans": self._plans,
            "distance": self._distance,
            "logit-lens": self._logit_lens,
        }
        places = self.dataset.places
        parts = [readings[name](place, self.inputs(place), place == places[0]) for place in places]
        row_parts = [rows if index == 0 else rows.where(rows.known("site")) for index, (rows, _) in enumerate(parts)]
        return Rows.concatenate(row_parts), [shown_map for _, shown in parts for shown_map in shown]

    def inputs(self, place: Place) -> ProbeInputs:
        """Return the inputs of probes at one site and layer, of all networks, in the order of the labels."""
        (site, layer), dataset = place, self.dataset
        networks = {
            network: load_activations(self.store, site=site, layer=layer, capture=capture.id).where(dataset.rows[site])
            for network, capture in dataset.captures.items()
        }
        agent_activations = networks.pop(OWN)
        random = {(kind, seed): [activations] for (kind, seed), activations in networks.items() if seed is not None}
        return ProbeInputs(activations=[agent_activations], cells=dataset.cells, split=dataset.split, random=random)

    def _cognitive_map(self, place: Place, data: ProbeInputs, first: bool) -> Reading:
        """Score all probes of cells; maps are drawn at the middle layer only, in worlds without doors."""
        middle = place[1] == self.dataset.middle
        entries = FULL if self.declared.table == "complete" else MIDDLE
        suite = self._usable((*entries, *entries_of(self.declared.heads)) if self._full(place) else CORE_ELSEWHERE)
        sizes = self._usable(BY_SIZE_COMPLETE if self.declared.table == "complete" else BY_SIZE)
        if not first:  # probes without activations are included at the first place only
            suite, sizes = without(suite, *COUNTED, *_NOWHERE), without(sizes, *COUNTED)
        fitted = self.fit(place, data, suite)
        rows, shown = fitted.rows, []
        if self.declared.by_size and middle:
            rows = Rows.concatenate([rows, self.fit(place, data, sizes, by_size=True).rows])
        if self.declared.curve and middle:
            settings = self._settings(FitSettings, self.declared.probes)
            heads = CURVE_HEADS if first else tuple(head for head in CURVE_HEADS if head not in COUNTED)
            with self.stage(f"learning curve at {_place_name(place)}") as show:
                curve = learning_curve(data, self.declared.curve, heads=heads, settings=settings, progress=show)
            rows = Rows.concatenate([rows, curve])
        if middle and not self.dataset.doors:
            tested, activations = data.split.test, data.activations[0]
            probe = fitted.probe("mlp", activations)
            beliefs = read_beliefs(probe.predict(activations.where(tested), device=self.device).maps("natural"))
            tags: dict[str, Tag] = {"head": "mlp", "control": "none", "site": place[0], "layer": place[1]}
            tags |= {"scope": "general", "probe": probe.id, "reading": "natural"}
            shown = choose_maps(beliefs, self._decisions.where(tested), tags)
        return rows, shown

    def _beliefs(self, place: Place, data: ProbeInputs, first: bool) -> Reading:
        suite = self._usable(BELIEF_SUITE if self._full(place) else CORE_ELSEWHERE)
        suite = suite if first else without(suite, *COUNTED)
        fitted = self.fit(place, data, suite, scored=False)
        with self.stage(f"beliefs at {_place_name(place)}") as show:
            rows, shown_maps = compare_beliefs(data, self._decisions, fitted, suite=suite, device=self.device)
            show(1, 1)
        return rows, shown_maps if place[1] == self.dataset.middle else []

    def _plans(self, place: Place, data: ProbeInputs, first: bool) -> Reading:
        decoders = self.declared.decoders
        layers, settings = decoders.layers, self._settings(PlanSettings, decoders)
        main = (sorted(layers)[(len(layers) - 1) // 2],)
        beside = layers if self.declared.table == "complete" else main
        kinds: dict[str, Any] = {"beside": beside, "stepwise": decoders.stepwise, "settings": settings}
        fit_plans = partial(probe_plans, plans=self._executed, layers=layers if self._full(place) else main, **kinds)
        # The planner is not fitted: it is scored on the test maps alone, and no probe was fitted on those.
        activations = data.activations[0]
        probe = self.fit(place, replace(data, random={}), ((MAPS, "none"),), scored=False).probe(MAPS, activations)
        maps = {place: decode_maps(probe.predict(activations, device=self.device).maps("natural"))}
        return self._score_with_maps("plans", fit_plans, place, data, maps)

    def _distance(self, place: Place, data: ProbeInputs, first: bool) -> Reading:
        extra = [head for head in self.declared.heads if "distance" in registry.resolve("head", head).targets]
        heads = (*NUMBER_HEADS, *extra) if self._full(place) else NUMBER_HEADS
        settings = self._settings(FitSettings, self.declared.probes)
        fit_distances = partial(probe_distances, distances=self._distances, heads=heads, settings=settings)
        with self.stage(f"maps of all steps at {_place_name(place)}") as show:
            maps = cross_fitted(data, head=MAPS, settings=settings, callbacks=self.probes.callbacks(show))
        return self._score_with_maps("distance", fit_distances, place, data, maps)

    def _score_with_maps(
        self, name: str, fit_targets: Callable[..., FittedProbes], place: Place, data: ProbeInputs, maps: Maps
    ) -> Reading:
        """Score probes of plans or distances, and their baselines on decoded maps."""
        missing = set(RANDOM_WEIGHTS) - set(self.dataset.kinds)
        controls = tuple(name for name in (PLAN_CONTROLS if self._full(place) else ELSEWHERE) if name not in missing)
        with self.stage(f"{name} at {_place_name(place)}") as show:
            return fit_targets(data, controls=controls, maps=maps, callbacks=self.probes.callbacks(show)).rows, []

    def _logit_lens(self, place: Place, data: ProbeInputs, first: bool) -> Reading:
        if self._tokens is None:
            return Rows.concatenate([]), []
        with self.stage(f"logit lens at {_place_name(place)}") as show:
            rows = score_lens(data, self._tokens, self._lens)
            show(1, 1)
        return rows, []

    @cached_property
    def _tokens(self) -> LensSteps | None:
        """The tokens of the actions; None where they are ambiguous and the reading was not requested by name."""
        try:
            return label_tokens(self.dataset.cells, self._episodes, self._model(OWN))
        except ValueError as error:
            if self.declared.reads != READS:
                raise
            warnings.warn(f"the reading logit-lens is left out: {error}", stacklevel=2)
            return None

    def _model(self, network: Network) -> LocalModel:
        if self._models is None:
            raise ValueError("the logit lens needs the networks themselves, a reader was made without them (models=)")
        return self._models(network)

    def _lens(self, network: Network) -> Lens:
        if network not in self._lenses:
            self._lenses[network] = Lens(self._model(network).model)
        return self._lenses[network]

    def _full(self, place: Place) -> bool:
        return self.declared.table == "complete" or place[1] == self.dataset.middle

    def _usable(self, suite: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return the entries whose data exist."""
        missing = set(RANDOM_WEIGHTS) - set(self.dataset.kinds)
        if not any(self.dataset.cells.reasoning[self.dataset.split.train].tolist()):
            missing.add("text")
        return without(suite, *missing)

    def fit(
        self, place: Place, data: ProbeInputs, suite: Sequence[Entry], *, scored: bool = True, by_size: bool = False
    ) -> FittedProbes:
        """Return the probes at a place: general ones, or with ``by_size`` those of each shape of grid."""
        fit = probe_cells_by_size if by_size else partial(probe_cells, scored=scored, seen=self._seen)
        with self.stage(f"probes {'of one size ' if by_size else ''}at {_place_name(place)}") as show:
            return fit(
                data,
                suite=suite,
                settings=self._settings(FitSettings, self.declared.probes),
                callbacks=self.probes.callbacks(show),
            )


def _place_name(place: Place) -> str:
    return f"{place[0]}, layer {place[1]}"
