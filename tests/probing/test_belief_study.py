"""From activations to rows about beliefs, stage by stage, on planted activations."""

from typing import Any

import numpy as np
import pytest
from believed import FRAME, decide, rooms
from planted import activations, cells_of

from goalscope._ground.rng import stream
from goalscope.inside.probing import Decisions, FitSettings, ProbeInputs, probe_cells, split_by_grid
from goalscope.inside.probing import beliefs as names
from goalscope.inside.probing.beliefs import VERDICTS, compare_beliefs
from goalscope.stats import estimate_rows

MATRIX = (("percell", "none"), ("percell", "permuted"), ("position", "none"))


@pytest.fixture(scope="module")
def places() -> tuple[ProbeInputs, Decisions]:
    """A site that holds the whole map linearly, and a model that holds nothing."""
    labels = rooms(300, seed=11)
    cells = cells_of(labels, 2, FRAME, np.full((len(labels), 2), 6))
    rng = stream(3, "whole map")
    said = np.eye(5)[labels].reshape(len(labels), -1)
    vectors = said @ rng.standard_normal((said.shape[1], 3 * 100))
    decisions = decide(
        labels,
        rng.integers(0, 4, len(labels)),
        cells.cluster,
        episode_id=cells.episode_id,
        step=cells.step,
    )
    data = ProbeInputs(
        activations=(activations(cells, vectors),),
        random={("permuted", 0): (activations(cells, rng.standard_normal((len(labels), 300)), model="random"),)},
        cells=cells,
        split=split_by_grid(cells),
    )
    return data, decisions


def test_beliefs_that_are_in_the_activations_are_found_and_not_in_noise(places: tuple[ProbeInputs, Decisions]) -> None:
    fitted = probe_cells(places[0], suite=MATRIX, settings=FitSettings(epochs=10, rate=1e-2))
    rows, shown = compare_beliefs(*places, fitted, suite=MATRIX)
    found: dict[Any, Any] = {
        (one.key["measure"], one.key["head"], one.key["control"]): one.estimate
        for one in estimate_rows(rows.select(reading="natural"), by=("head", "control"))
    }
    trained, random = (found[names.OVERLAP + names.DIFFERENCE, "percell", kind] for kind in ("none", "permuted"))
    assert found[names.OVERLAP, "percell", "none"].value > 0.85
    assert trained.low > 0.2
    assert random.low <= 0.02
    assert random.high < trained.low
    more = found[names.OVERLAP + names.beyond("permuted"), "percell", "none"]
    assert more.value == pytest.approx(trained.value - random.value)
    assert more.low > 0.1
    place = found[names.OVERLAP + names.DIFFERENCE, "position", "none"]
    assert abs(place.value) < 1e-9  # one map for all states: another state's is the same
    assert {one.verdict for one in shown} <= set(VERDICTS)
    assert {one.tags["head"] for one in shown} == {"percell"}
    tested = set(places[0].cells.cluster[places[0].split.test].tolist())
    assert set(rows.cluster.tolist()) == tested


def test_controls_that_make_no_maps_are_refused(places: tuple[ProbeInputs, Decisions]) -> None:
    fitted = probe_cells(places[0], suite=[("position", "none")])
    with pytest.raises(ValueError, match="permuted, got 'shuffled'"):
        compare_beliefs(*places, fitted, suite=[("position", "shuffled")])
