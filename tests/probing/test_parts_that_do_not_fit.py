"""Tables of probes and decoders whose parts do not fit one another, and arrays that nobody may change."""

from typing import Any

import numpy as np
import pytest
from believed import FRAME, certain, decide
from believed import rooms as squares
from planted import cells_of, key, map_of, noise, rooms
from planted_plans import nothing, random_plans, worlds

from goalscope.inside.probing import (
    Features,
    FitSettings,
    ProbeInputs,
    Problem,
    Split,
    decode_maps,
    probe_cells,
    probe_cells_by_size,
    probe_distances,
    probe_plans,
    read_beliefs,
    split_by_grid,
    true_map,
)
from goalscope.inside.probing.beliefs import maps_of
from goalscope.inside.probing.probe import PlanPrediction
from goalscope.inside.probing.scores import chosen

PLACES = (("position", "none"),)
QUICK = FitSettings(epochs=1, hidden=4)


def test_a_table_of_probes_without_or_with_doubled_parts_is_refused() -> None:
    cells = rooms(grids=8)
    split, given = split_by_grid(cells), noise(cells)
    for activations, suite, says in (
        ([], PLACES, "activations .*got none"),
        ([given], (), "suite .*got"),
        ([given], PLACES * 2, "suite .*got"),
    ):
        with pytest.raises(ValueError, match=says):
            probe_cells(ProbeInputs(activations=activations, cells=cells, split=split), suite=suite)
    with pytest.raises(ValueError, match="the split"):
        probe_cells(ProbeInputs(activations=[given], cells=cells, split=split_by_grid(rooms(grids=6))), suite=PLACES)
    other = noise(cells.where(np.arange(16)[::-1]), model="random")
    with pytest.raises(ValueError, match="the labels"):
        probe_cells(
            ProbeInputs(activations=[given], cells=cells, split=split, random={("permuted", 0): [other]}), suite=PLACES
        )
    with pytest.raises(ValueError, match=r"permuted .*layer 2"):
        random = [noise(cells, model="random")]
        probe_cells(
            ProbeInputs(
                activations=[noise(cells, layer=2)], cells=cells, split=split, random={("permuted", 0): random}
            ),
            suite=(("mlp", "permuted"),),
        )


def test_probes_of_one_size_need_grids_of_it_on_both_sides() -> None:
    cells = rooms(grids=8)
    small = (cells.shape == 4).all(axis=1)
    for train, says in ((small, "test part .* 4 x 4"), (~small, "train part .* 4 x 4")):
        split = Split(train=train, test=~train, cluster=cells.cluster)
        with pytest.raises(ValueError, match=says):
            probe_cells_by_size(ProbeInputs(activations=[noise(cells)], cells=cells, split=split), suite=PLACES)


def test_maps_of_random_networks_need_its_activations() -> None:
    cells = rooms(grids=8)
    split, given = split_by_grid(cells), noise(cells)
    one = ProbeInputs(activations=[given], cells=cells, split=split)
    two = ProbeInputs(activations=[given, noise(cells, layer=2)], cells=cells, split=split)
    fitted = probe_cells(one, suite=PLACES)
    with pytest.raises(ValueError, match="--untrained SEED --random-weights permuted"):
        list(maps_of(one, fitted, (("position", "permuted"),)))
    ((entry, tags, posteriors),) = maps_of(two, fitted, PLACES)
    assert entry == ("position", "none") and tags["site"] is None and tags["layer"] is None  # once, at no place
    assert {name: one.shape for name, one in posteriors.items()} == {
        name: (split.test.sum(), 5, 5, 5) for name in ("balanced", "natural")
    }
    assert not len(
        probe_cells(ProbeInputs(activations=[given], cells=cells, split=split), suite=PLACES, scored=False).rows
    )


def test_a_table_of_decoders_without_or_with_doubled_parts_is_refused() -> None:
    cells = worlds(8)
    plans, split, given = random_plans(cells), split_by_grid(cells), nothing(cells)
    options: dict[str, Any] = {"controls": ("none",), "layers": (1,)}
    for activations, changes, says in (
        ([], {}, "activations .*got none"),
        ([given], {"layers": ()}, "suite .*got"),
        ([given], {"layers": (1, 1)}, "suite .*got"),
        ([given], {"controls": ("none", "none")}, "suite .*got"),
        ([given], {"controls": ("shuffled",)}, "include none, got"),
    ):
        with pytest.raises(ValueError, match=says):
            probe_plans(ProbeInputs(activations=activations, cells=cells, split=split), plans, **options | changes)
    with pytest.raises(ValueError, match="same steps"):
        random = {("permuted", 0): [nothing(cells.where(np.arange(8)[::-1]))]}
        ProbeInputs(activations=[given], cells=cells, split=split, random=random)
    with pytest.raises(ValueError, match="the split"):
        probe_plans(ProbeInputs(activations=[given], cells=cells, split=split_by_grid(worlds(6))), plans, **options)
    with pytest.raises(ValueError, match=r"plans .*8 .*7"):
        probe_plans(ProbeInputs(activations=[given], cells=cells, split=split), plans.where(np.arange(7)), **options)


def test_probes_of_the_distance_need_activations_and_the_probe_itself() -> None:
    cells = worlds(8)
    split, given, distances = split_by_grid(cells), nothing(cells), np.ones(8)
    with pytest.raises(ValueError, match="activations"):
        probe_distances(ProbeInputs(activations=[], cells=cells, split=split), distances, controls=("none",))
    with pytest.raises(ValueError, match="none, shuffled"):
        probe_distances(ProbeInputs(activations=[given], cells=cells, split=split), distances, controls=("shuffled",))
    with pytest.raises(ValueError, match="train part"):
        probe_distances(
            ProbeInputs(activations=[given], cells=cells, split=split),
            np.where(split.train, np.nan, 1.0),
            controls=("none",),
        )
    with pytest.raises(ValueError, match="same steps"):
        probe_distances(
            ProbeInputs(activations=[given.where(np.arange(8)[::-1])], cells=cells, split=split),
            distances,
            controls=("none",),
        )


def test_every_grid_counts_alike_in_the_lines_too() -> None:
    """Grids have one to nine steps each, and the more of them the longer their ways."""
    counts = 1 + np.arange(40) % 9
    cells = worlds(40).where(np.repeat(np.arange(40), counts))
    map_read = true_map(cells)
    distances = 0.5 * map_read.manhattan + np.repeat(counts.astype(float), counts) ** 2
    split = split_by_grid(cells)
    turned = map_of(map_read.closed, map_read.goal[::-1], map_read.agent)
    fitted = probe_distances(
        ProbeInputs(activations=[nothing(cells)], cells=cells, split=split),
        distances,
        heads=["linear"],
        controls=["none"],
        maps={("pre", 1): turned},
        settings=QUICK,
    )
    _, codes, sizes = np.unique(cells.cluster[split.train], return_inverse=True, return_counts=True)
    for control, layout in (("none", turned), ("true map", map_read)):
        slope, offset = np.polyfit(
            layout.manhattan[split.train], distances[split.train], 1, w=1 / np.sqrt(sizes[codes])
        )
        errors = np.abs(slope * layout.manhattan + offset - distances)
        rows = chosen(fitted.rows, head="manhattan", control=control, measure="distance error", distance=None)
        assert len(rows) == 10
        for grid, value in zip(rows.cluster.tolist(), rows.value.tolist(), strict=True):
            assert value == pytest.approx(errors[cells.cluster == grid].mean())


def test_no_array_of_a_record_can_be_changed() -> None:
    labels = squares(2)
    posterior = certain(labels)
    cells, decisions, beliefs = cells_of(labels, 1, FRAME), decide(labels, None, range(2)), read_beliefs(posterior)
    given, plans = noise(cells), random_plans(cells)
    even = np.full((2, FRAME**2, 5), 0.2, dtype=np.float32)
    held: dict[str, tuple[Any, tuple[str, ...]]] = {
        "cells": (cells, ("labels", "shape", "density", "episode_id", "step", "cluster", "reasoning")),
        "split": (split_by_grid(cells_of(labels, 1, FRAME)), ("train", "test", "cluster")),
        "decisions": (decisions, ("action", "optimal", "place", "goal", "agent", "density", "cluster")),
        "beliefs": (beliefs, ("optimal", "top", "expected")),
        "maps": (decode_maps(posterior), ("layout", "agent", "goal")),
        "reading": (true_map(cells), ("layout", "agent", "goal")),
        "plans": (plans, ("tokens", "episode_id", "step", "cluster")),
        "activations": (given, ("vectors", "positions", "tokens", "reconstructed", "world_id")),
        "some of them": (given.where(np.array([1])), ("vectors", "positions", "tokens", "cluster")),
        "features": (Features.of(given), ("vectors", "episode_id", "step", "cluster")),
        "prediction": (PlanPrediction(probabilities=even[:, :10]), ("probabilities",)),
        "problem": (Problem(key=key("a", "mlp"), features=Features.of(given), target=labels).target, ("values",)),
        "plan": (
            Problem(
                key=key("a", "decoder", "plan"),
                features=Features.of(given),
                target=plans.tokens.copy(),
                settings={"layers": 1},
            ).target,
            ("values",),
        ),
    }
    for what, (record, names) in held.items():
        for name in names:
            assert not getattr(record, name).flags.writeable, (what, name)
