"""The stages from captured activations to stored rows about beliefs, one function each.

``load_places`` reads what was captured, ``fit_maps`` fits probes with their controls on a split by grid,
``compare_beliefs`` sets the actions against the decoded maps, ``keep_beliefs`` stores rows and maps, from which the
report draws its sections. `study_beliefs` is all of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from goalscope.activations.load import load_activations
from goalscope.activations.record import Activations
from goalscope.probing.beliefs import DIFFERENCE, belief_rows, read_beliefs
from goalscope.probing.cells import Cells, Split, label_cells, split_by_grid
from goalscope.probing.decisions import Decisions, decisions_at
from goalscope.probing.heads import COUNTED
from goalscope.probing.probe import Probe
from goalscope.probing.problem import FitSettings
from goalscope.probing.scores import READINGS, difference_rows
from goalscope.probing.shown_maps import ShownMap, choose_maps
from goalscope.probing.suite import Entry, FittedProbes, probe_suite
from goalscope.rows import Rows, Tag
from goalscope.runs import Store

SOURCE: Final = "beliefs"
"""The source under which a store keeps the rows, and the name under which it keeps the maps that are drawn."""

BELIEF_SUITE: Final[tuple[Entry, ...]] = (("mlp", "none"), ("mlp", "untrained"), ("position", "none"))
"""Probes whose maps are read by default: the paper's, the same on an untrained model, and places alone."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BeliefInputs:
    """Activations of several sites and layers of the same N steps, with the truth and the actions there.

    Attributes:
        activations: one for each site and layer.
        untrained: the same of a model with random weights; empty without that control.
        cells: true classes of all cells.
        decisions: what was done, and what would have been optimal.
        split: which grids probes are trained on, and which are read.
    """

    activations: tuple[Activations, ...]
    untrained: tuple[Activations, ...]
    cells: Cells
    decisions: Decisions
    split: Split


def load_places(
    store: Store,
    *,
    sites: Sequence[str] = ("pre", "post"),
    layers: Sequence[int],
    untrained: int | None = 0,
    agent: str | None = None,
    frame: int = 15,
    test: float = 0.25,
    seed: int = 0,
) -> BeliefInputs:
    """Read what was captured of some sites and layers, label it and split it by grid.

    Args:
        store: the run.
        sites, layers: where; all must have been captured.
        untrained: seed of the untrained control, None for none.
        agent: whose steps, where several were captured.
        frame: side of the square that grids are padded to.
        test: share of the grids that are read and not trained on.
        seed: root seed of the split.

    Raises:
        ValueError: something was not captured (says how), sites with different steps, or worlds with doors.
    """
    where = list(product(sites, layers))
    if not where:
        raise ValueError("beliefs are read at one site and layer at least, got none")
    own = [load_activations(store, site=site, layer=layer, agent=agent) for site, layer in where]
    control = (
        [load_activations(store, site=site, layer=layer, agent=agent, untrained=untrained) for site, layer in where]
        if untrained is not None
        else []
    )
    episodes = list(store.episodes(sorted(set(own[0].episode_id.tolist()))))
    cells = label_cells(own[0], episodes, frame=frame)
    for one in (*own, *control):
        cells.check_aligned(one)
    return BeliefInputs(
        activations=tuple(own),
        untrained=tuple(control),
        cells=cells,
        decisions=decisions_at(cells, episodes),
        split=split_by_grid(cells, test=test, seed=seed),
    )


def fit_maps(
    places: BeliefInputs, *, suite: Sequence[Entry] = BELIEF_SUITE, settings: FitSettings | None = None
) -> FittedProbes[Probe]:
    """Fit the probes of a suite on the training grids; see `probe_suite`."""
    return probe_suite(
        places.activations, places.cells, places.split, untrained=places.untrained, suite=suite, settings=settings
    )


def compare_beliefs(
    places: BeliefInputs, fitted: FittedProbes[Probe], *, suite: Sequence[Entry] = BELIEF_SUITE, device: str = "cpu"
) -> tuple[Rows, list[ShownMap]]:
    """Set the actions on the tested grids against the maps that each probe decodes there.

    Args:
        places: the activations with truth and actions.
        fitted: probes of the same places.
        suite: heads and controls whose maps are read; controls "none" and "untrained".
        device: where probes compute.

    Returns:
        Rows of all probes in both readings (tag ``reading``), see `belief_rows`; with an untrained control also how
        much each difference exceeds that of the untrained model, by grid; and the maps to be drawn: of the first
        entry at the middle layer of each site, at natural frequencies.

    Raises:
        ValueError: another control, or no captured activations of the untrained one.
    """
    tested = places.decisions.where(places.split.test)
    layers = sorted({one.layer for one in places.activations})
    middle = layers[len(layers) // 2]
    parts, shown = [], []
    read = maps_of(fitted, places.activations, places.untrained, places.split.test, suite, device)
    for entry, tags, posteriors in read:
        for reading in READINGS:
            beliefs = read_beliefs(posteriors[reading])
            told: Mapping[str, Tag] = {**tags, "reading": reading}
            parts.append(belief_rows(beliefs, tested, told))
            if entry == suite[0] and reading == "natural" and tags["layer"] in (middle, None):
                shown += choose_maps(beliefs, tested, told)
    rows = Rows.concatenate(parts)
    if any(control == "untrained" for _, control in suite):
        less = np.fromiter((str(name).endswith(DIFFERENCE) for name in rows.measure), dtype=bool, count=len(rows))
        rows = Rows.concatenate([rows, difference_rows(rows.where(less), "untrained")])
    return rows, shown


def maps_of(
    fitted: FittedProbes[Probe],
    activations: Sequence[Activations],
    untrained: Sequence[Activations],
    tested: npt.NDArray[np.bool_],
    suite: Sequence[Entry],
    device: str = "cpu",
) -> Iterator[tuple[Entry, dict[str, Tag], dict[str, npt.NDArray[np.float32]]]]:
    """Return each probe's entry, its tags and its posteriors by reading, ``[N, n, n, K]``.

    Args:
        fitted: the probes.
        activations: of several sites and layers, the same steps.
        untrained: the same of a model with random weights.
        tested: ``[N]`` bool, the steps that are read.
        suite: heads and controls; heads that read no activation come once.
        device: where to compute.

    Raises:
        ValueError: a control that is not "none" or "untrained", or whose activations are not given.
    """
    for entry in suite:
        head, control = entry
        if control not in ("none", "untrained"):
            raise ValueError(f"maps are read of controls none and untrained, got {control!r}")
        given = activations if control == "none" else untrained
        if not given:
            raise ValueError(
                "the untrained control needs activations of a model with random weights: capture with --untrained SEED"
            )
        for one in given[:1] if head in COUNTED else given:
            probe = fitted.probe(head, one, control=control)
            said = probe.predict(one.where(tested), device=device)
            tags: dict[str, Tag] = {"head": head, "control": control, "scope": "general", "probe": probe.id}
            tags |= {"site": None, "layer": None} if head in COUNTED else {"site": one.site, "layer": one.layer}
            yield entry, tags, {name: said.maps(name) for name in READINGS}


def keep_beliefs(store: Store, rows: Rows, shown: Sequence[ShownMap]) -> None:
    """Store rows and maps in place of those that were there."""
    store.put_rows(rows, source=SOURCE)
    store.put_info(SOURCE, {"maps": [one.to_plain() for one in shown]})


def study_beliefs(
    run: str | Path,
    *,
    layers: Sequence[int],
    sites: Sequence[str] = ("pre", "post"),
    untrained: int | None = 0,
    suite: Sequence[Entry] = BELIEF_SUITE,
    settings: FitSettings | None = None,
    agent: str | None = None,
) -> Rows:
    """Read beliefs from the captured activations of a run, store the rows and return them.

    Args:
        run: a run directory.
        layers, sites, untrained, agent: see `load_places`.
        suite: heads and controls.
        settings: how probes are trained.

    Raises:
        ValueError: see `load_places` and `compare_beliefs`.
    """
    with Store(run) as store:
        places = load_places(store, sites=sites, layers=layers, untrained=untrained, agent=agent)
    fitted = fit_maps(places, suite=suite, settings=settings)
    rows, shown = compare_beliefs(
        places, fitted, suite=suite, device=settings.device if settings is not None else "cpu"
    )
    with Store(run, "w") as store:
        keep_beliefs(store, rows, shown)
    return rows
