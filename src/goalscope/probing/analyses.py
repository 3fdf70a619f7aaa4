"""The four readings of activations, one place at a time: cognitive map, beliefs, plans, distance.

Each fits what is not fitted yet and returns rows as the functions below it make them. Only the vectors of one site and
layer, and of its untrained control, are in memory at a time.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from goalscope import registry
from goalscope.probing.belief_study import BELIEF_SUITE, compare_beliefs
from goalscope.probing.beliefs import read_beliefs
from goalscope.probing.controls import PLAN_CONTROLS
from goalscope.probing.dataset import ProbeDataset, SiteLayer
from goalscope.probing.distance import probe_distances
from goalscope.probing.fitting import Progress
from goalscope.probing.heads import COUNTED, NUMBER_HEADS
from goalscope.probing.maps import Layouts, decode_maps
from goalscope.probing.plan_suite import probe_plans
from goalscope.probing.probe import Probe
from goalscope.probing.probe_store import ProbeStore
from goalscope.probing.problem import FitSettings, PlanSettings
from goalscope.probing.shown_maps import ShownMap, choose_maps
from goalscope.probing.suite import (
    CORE,
    FULL,
    Entry,
    FittedProbes,
    ProbeInputs,
    entries_of,
    probe_cells,
    probe_cells_by_size,
    without,
)
from goalscope.rows import Rows, Tag
from goalscope.runs import Store
from goalscope.runs.probing_config import Inside

Stage = Callable[[str], AbstractContextManager[Progress]]
"""Begins a piece of work of that name; what it gives is called with (done, total)."""

BY_SIZE: Final[tuple[Entry, ...]] = (("position", "none"), *CORE)
"""Probes of one size each, by default; the complete table adds the next ones."""
BY_SIZE_COMPLETE: Final[tuple[Entry, ...]] = (
    *BY_SIZE,
    ("mlp", "shuffled"),
    ("percell", "none"),
    ("percell", "shuffled"),
    ("percell", "untrained"),
)
ELSEWHERE: Final = ("none", "untrained")
"""Controls away from the middle layer, where the table is not complete."""
_NOWHERE: Final = ("input", "text")


@dataclass(slots=True, kw_only=True)
class Reader:
    """Reads one run in several ways; see `goalscope.probing.pipeline.study_inside`.

    Attributes:
        store: the run, open for writing.
        dataset: the steps that are read.
        declared: what is wanted.
        probes: what is kept of fits.
        stage: shows what is done.
        device: where to compute.
    """

    store: Store
    dataset: ProbeDataset
    declared: Inside
    probes: ProbeStore
    stage: Stage
    device: str = "cpu"

    @property
    def fit_settings(self) -> FitSettings:
        """How probes are trained."""
        told = self.declared.probes.model_dump()
        return FitSettings(
            lr=told.pop("rate"), d_hidden=told.pop("hidden"), **told, seed=self.declared.seed, device=self.device
        )

    @property
    def plan_settings(self) -> PlanSettings:
        """How decoders are trained."""
        told = self.declared.decoders.model_dump(exclude={"layers"})
        names = {"d_model": "width", "d_hidden": "feedforward", "lr": "rate"}
        renamed = {name: told.pop(old) for name, old in names.items()}
        return PlanSettings(**renamed, **told, seed=self.declared.seed, device=self.device)

    def cognitive_map(self) -> tuple[Rows, list[ShownMap]]:
        """Return the scores of all probes of cells, and maps to be drawn (none in worlds with doors)."""
        parts: list[Rows] = []
        shown: list[ShownMap] = []
        decisions = None if self.dataset.doors else self.dataset.decisions(self.store)
        for place in self.dataset.places:
            data = self.inputs(place)
            suite = self._usable((*FULL, *entries_of(self.declared.heads)) if self._whole(place) else CORE)
            sizes = self._usable(BY_SIZE_COMPLETE if self.declared.table == "complete" else BY_SIZE)
            if parts:  # what reads no activation came with the first place
                suite, sizes = without(suite, *COUNTED, *_NOWHERE), without(sizes, *COUNTED)
            found = self._fit(place, data, suite)
            parts.append(found.rows)
            if self.declared.by_size and place[1] == self.dataset.middle:
                parts.append(self._fit(place, data, sizes, by_size=True).rows)
            if decisions is not None and place[1] == self.dataset.middle:
                tested = self.dataset.split.test
                probe = found.probe("mlp", data.activations[0])
                beliefs = read_beliefs(
                    probe.predict(data.activations[0].where(tested), device=self.device).maps("natural")
                )
                tags: dict[str, Tag] = {"head": "mlp", "control": "none", "site": place[0], "layer": place[1]}
                tags |= {"scope": "general", "probe": probe.id, "reading": "natural"}
                shown += choose_maps(beliefs, decisions.where(tested), tags)
        return Rows.concatenate(parts), shown

    def beliefs(self) -> tuple[Rows, list[ShownMap]]:
        """Return the actions against the maps decoded at each place, and maps to be drawn."""
        decisions = self.dataset.decisions(self.store)
        parts: list[Rows] = []
        shown: list[ShownMap] = []
        for place in self.dataset.places:
            data = self.inputs(place)
            suite = self._usable(BELIEF_SUITE if not parts else CORE)
            found = self._fit(place, data, suite, scored=False)
            with self.stage(f"beliefs at {_named(place)}") as show:
                rows, drawn = compare_beliefs(data, decisions, found, suite=suite, device=self.device)
                show(1, 1)
            parts.append(rows)
            if place[1] == self.dataset.middle:
                shown += drawn
        return Rows.concatenate(parts), shown

    def plans(self) -> Rows:
        """Return the scores of all decoders of plans and of their baselines."""
        plans = self.dataset.plans(self.store)
        layers = self.declared.decoders.layers
        parts: list[Rows] = []
        for place in self.dataset.places:
            data = self.inputs(place)
            whole = self._whole(place)
            maps = self._map(place, data)
            with self.stage(f"plans at {_named(place)}") as show:
                found = probe_plans(
                    data,
                    plans,
                    layers=layers if whole else (sorted(layers)[(len(layers) - 1) // 2],),
                    controls=self._controls(whole),
                    maps={place: maps},
                    settings=self.plan_settings,
                    callbacks=self.probes.callbacks(show),
                )
            parts.append(_located(found.rows) if parts else found.rows)
        return Rows.concatenate(parts)

    def distance(self) -> Rows:
        """Return the errors of all probes of the distance and of their baselines."""
        distances = self.dataset.distances(self.store)
        more = [one for one in self.declared.heads if "distance" in registry.resolve("head", one).targets]
        parts: list[Rows] = []
        for place in self.dataset.places:
            data = self.inputs(place)
            maps = self._map(place, data)
            with self.stage(f"distance at {_named(place)}") as show:
                found = probe_distances(
                    data,
                    distances,
                    heads=(*NUMBER_HEADS, *more) if self._whole(place) else NUMBER_HEADS,
                    controls=self._controls(self._whole(place)),
                    maps={place: maps},
                    settings=self.fit_settings,
                    callbacks=self.probes.callbacks(show),
                )
            parts.append(_located(found.rows) if parts else found.rows)
        return Rows.concatenate(parts)

    def _whole(self, place: SiteLayer) -> bool:
        """Return whether all heads and controls are fitted at a place."""
        return self.declared.table == "complete" or place[1] == self.dataset.middle

    def _controls(self, whole: bool) -> tuple[str, ...]:
        wanted = PLAN_CONTROLS if whole else ELSEWHERE
        return wanted if self.dataset.control is not None else tuple(one for one in wanted if one != "untrained")

    def _usable(self, suite: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return the entries whose data is there."""
        gone = [] if self.dataset.control is not None else ["untrained"]
        if not any(self.dataset.cells.reasoning[self.dataset.split.train].tolist()):
            gone.append("text")
        return without(suite, *gone)

    def inputs(self, place: SiteLayer) -> ProbeInputs:
        """Return what is read at a place."""
        kinds = (False,) if self.dataset.control is None else (False, True)
        own, *control = (self.dataset.load(self.store, place, untrained=untrained) for untrained in kinds)
        return ProbeInputs(activations=[own], cells=self.dataset.cells, split=self.dataset.split, untrained=control)

    def _fit(
        self,
        place: SiteLayer,
        data: ProbeInputs,
        suite: Sequence[Entry],
        *,
        scored: bool = True,
        by_size: bool = False,
    ) -> FittedProbes[Probe]:
        """Return the probes of a place: general ones, or by size those of each shape of grid."""
        fit = probe_cells_by_size if by_size else partial(probe_cells, scored=scored)
        with self.stage(f"probes {'of one size ' if by_size else ''}at {_named(place)}") as show:
            return fit(
                data,
                suite=suite,
                settings=self.fit_settings,
                callbacks=self.probes.callbacks(show),
            )

    def _map(self, place: SiteLayer, data: ProbeInputs) -> Layouts:
        """Return the maps that the MLP decodes at all steps of a place."""
        own = data.activations[0]
        probe = self._fit(place, replace(data, untrained=()), (("mlp", "none"),), scored=False).probe("mlp", own)
        return Layouts.of(decode_maps(probe.predict(own, device=self.device).maps("natural")))


def _named(place: SiteLayer) -> str:
    return f"{place[0]}, layer {place[1]}"


def _located(rows: Rows) -> Rows:
    """Return the rows of one place, without those that belong to none: they came with the first place."""
    return rows.where(rows.known("site"))
