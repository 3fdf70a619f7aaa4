"""Distance to the goal: labels, scores against literal versions, planted signals, baselines and refusals."""

import functools
from typing import Any

import numpy as np
import pytest
from planted import activations, map_of
from planted_plans import nothing, worlds
from test_plans import cells_at, episode

from goalscope._ground.rng import stream
from goalscope.inside.probing import (
    Cells,
    FitSettings,
    Probe,
    ProbeInputs,
    label_distances,
    probe_distances,
    score_distance,
    split_by_grid,
    summarise_distance,
    true_map,
)
from goalscope.inside.probing.plans import fit_line, r_squared
from goalscope.inside.probing.scores import chosen
from goalscope.inside.probing.suite import FittedProbes
from goalscope.stats import Estimate
from goalscope.worlds import Action

SETTINGS = FitSettings(epochs=15, rate=1e-2, hidden=32)


@functools.cache
def planted() -> tuple[Cells, np.ndarray[Any, Any], FittedProbes]:
    """Activations that hold the Manhattan distance and a little more, which only the label knows."""
    cells = worlds(1000, frame=7)
    rng = stream(0, "planted distance")
    distances = true_map(cells).manhattan + 2.0 * rng.integers(0, 3, len(cells))
    distances[::40] = np.nan
    vectors = np.asarray(nothing(cells).vectors).reshape(len(cells), -1).copy()
    vectors[:, 5] += np.nan_to_num(distances)
    fitted = probe_distances(
        ProbeInputs(
            activations=[activations(cells, vectors)],
            cells=cells,
            split=split_by_grid(cells),
            random={("permuted", 3): [nothing(cells, 5, model="model-random")]},
        ),
        distances,
        controls=("none", "shuffled", "permuted"),
        maps={("pre", 1): true_map(cells)},
        settings=SETTINGS,
    )
    return cells, distances, fitted


def found(head: str, control: str, measure: str) -> Estimate:
    rows = chosen(planted()[2].rows, head=head, control=control)
    return next(one.estimate for one in summarise_distance(rows) if one.key["measure"] == measure)


def test_the_label_is_the_length_of_the_optimal_path_from_the_state() -> None:
    plain = episode("#####\n#A_G#\n#####", [Action.LEFT, Action.RIGHT, Action.RIGHT], "goal")
    door = episode("#######\n#KA_DG#\n#######", [Action.LEFT, Action.RIGHT], "horizon")
    closed = episode("#####\n#A#G#\n#####", [Action.LEFT], "horizon")
    cells = cells_at([(plain, 0), (plain, 2), (door, 0), (door, 1), (closed, 0)], frame=7)
    # Left to the key and back: 1 + 4 steps; with the key 4.
    np.testing.assert_array_equal(label_distances(cells, [plain, closed, door]), [2, 1, 5, 4, np.nan])
    with pytest.raises(ValueError, match="episodes"):
        label_distances(cells, [plain])


def test_errors_are_what_counting_by_hand_gives() -> None:
    cells = worlds(9, 5)
    rng = stream(0, "distance scores")
    true, said = rng.integers(1, 5, 45).astype(float), rng.normal(3, 1, 45)
    rows = score_distance(said, true, cells, {"head": "linear", "control": "none", "site": "pre", "layer": 1})
    grids = sorted(set(cells.cluster.tolist()))
    mean = np.mean([true[cells.cluster == grid].mean() for grid in grids])
    tops, bottoms, errors = [], [], []
    for grid in grids:
        mine = cells.cluster == grid
        errors.append(np.mean([abs(a - b) for a, b in zip(said[mine], true[mine], strict=True)]))
        tops.append(np.mean([(a - b) ** 2 for a, b in zip(said[mine], true[mine], strict=True)]))
        bottoms.append(np.mean([(b - mean) ** 2 for b in true[mine]]))
        for distance in set(true[mine]):
            value = np.mean([abs(a - b) for a, b in zip(said[mine], true[mine], strict=True) if b == distance])
            row = chosen(rows, measure="distance error", cluster=grid, distance=int(distance))
            assert row.value == pytest.approx([value])
    by = {one.key["measure"]: one.estimate for one in summarise_distance(rows)}
    assert by["distance error"].value == pytest.approx(np.mean(errors))
    assert by["R^2"].value == pytest.approx(1 - sum(tops) / sum(bottoms))
    assert by["R^2"].low < by["R^2"].value < by["R^2"].high
    curve = summarise_distance(rows, by=("head", "distance"))
    assert [one.key["distance"] for one in curve] == [1, 2, 3, 4]
    # With one step a grid it is the R^2 of any textbook.
    single = worlds(45)
    lone = summarise_distance(
        score_distance(said, true, single, {"site": None, "layer": None, "head": "", "control": ""})
    )
    wanted = 1 - ((said - true) ** 2).sum() / ((true - true.mean()) ** 2).sum()
    assert next(one.estimate.value for one in lone if one.key["measure"] == "R^2") == pytest.approx(wanted)
    assert r_squared([0.0, 0.0], [1.0, 2.0], ["a", "b"]).value == 1


def test_no_interval_of_r_squared_passes_1() -> None:
    rng = stream(0, "skewed errors")
    passed = 0
    for _ in range(20):
        deviation = np.exp(2 * rng.standard_normal(12))
        error = deviation * rng.uniform(0, 1, 12) * (np.arange(12) < 8)
        found = r_squared(error, deviation, list(range(12)))
        assert found.low <= found.value <= found.high <= 1
        assert found.value == pytest.approx(1 - error.sum() / deviation.sum())
        passed += found.high == 1
    assert passed  # the linearised ratio alone would have
    (alone,) = [r_squared([1.0], [2.0], ["a"])]
    assert alone.value == 0.5 and np.isnan(alone.low) and np.isnan(alone.high)


@pytest.mark.full
def test_a_planted_distance_is_found_and_its_controls_are_not() -> None:
    mean = found("mean", "none", "distance error").value
    for head in ("linear", "mlp"):
        assert found(head, "none", "R^2").low > 0.5 and found(head, "none", "distance error").high < 0.6 * mean
        for control in ("shuffled", "permuted"):
            assert found(head, control, "R^2").value < 0.1
    assert found("mean", "none", "R^2").value == pytest.approx(0, abs=0.05)
    # The map of this site is the true one here: both lines say the same, and less than the probe.
    line = found("manhattan", "none", "R^2")
    assert line.value == found("manhattan", "true map", "R^2").value
    assert 0.2 < line.high < found("linear", "none", "R^2").low


def test_rows_stand_on_tested_grids_and_leave_out_what_cannot_be_reached() -> None:
    cells, distances, fitted = planted()
    split = split_by_grid(cells)
    tested = split.test & ~np.isnan(distances)
    own = chosen(fitted.rows, head="linear", control="none", measure="distance error", distance=None)
    assert sorted(own.cluster.tolist()) == sorted(cells.cluster[tested].tolist())
    assert not set(fitted.rows.cluster.tolist()) & set(cells.cluster[split.train].tolist())
    assert {(one.head, one.target) for one in fitted.probes.values()} == {("linear", "distance"), ("mlp", "distance")}
    probes = {key.text: probe for key, probe in fitted.probes.items()}
    assert probes["linear/none/pre/1"].id in own["probe"].tolist()
    assert isinstance(probes["mlp/permuted 3/pre/1"], Probe)


def test_a_line_is_that_of_least_squares() -> None:
    rng = stream(0, "line")
    x, y = rng.normal(size=50), rng.normal(size=50)
    line = fit_line(x, y, np.ones(50))
    np.testing.assert_allclose(line, np.polyfit(x, y, 1))
    np.testing.assert_allclose(fit_line([2, 2], [1, 3], [1, 1]), (0, 2))
    weights = rng.uniform(0.1, 3, 50)
    line = fit_line(x, y, weights)
    np.testing.assert_allclose(line, np.polyfit(x, y, 1, w=np.sqrt(weights)))  # it squares them
    repeated = fit_line([0, 1, 1, 1, 2], [5, 1, 1, 1, 0], np.ones(5))
    line = fit_line([0, 1, 2], [5, 1, 0], [1, 3, 1])
    np.testing.assert_allclose(line, repeated)


def test_every_grid_counts_alike_in_the_baselines() -> None:
    """One grid in four has a long way and most of the steps; a mean of steps would lie far from that of the grids."""
    counts = np.tile([12, 1, 1, 1], 10)
    whole = worlds(40)
    cells = whole.where(np.repeat(np.arange(40), counts))
    distances = np.repeat(np.tile([30.0, 2.0, 4.0, 6.0], 10), counts)
    split = split_by_grid(cells)
    fitted = probe_distances(
        ProbeInputs(activations=[nothing(cells)], cells=cells, split=split),
        distances,
        heads=["linear"],
        controls=["none"],
        settings=FitSettings(epochs=1),
    )
    grids = {grid: distances[split.train & (cells.cluster == grid)] for grid in cells.cluster[split.train].tolist()}
    mean = np.mean([own.mean() for own in grids.values()])
    rows = chosen(fitted.rows, head="mean", measure="distance error", distance=None)
    for grid, error in zip(rows.cluster.tolist(), rows.value.tolist(), strict=True):
        assert error == pytest.approx(np.abs(distances[cells.cluster == grid] - mean).mean())
    assert abs(mean - distances[split.train].mean()) > 5


def test_a_suite_is_refused_where_its_parts_do_not_fit() -> None:
    cells = worlds(8)
    split, given, distances = split_by_grid(cells), nothing(cells), np.ones(8)
    with pytest.raises(ValueError, match="--untrained"):
        probe_distances(ProbeInputs(activations=[given], cells=cells, split=split), distances)
    with pytest.raises(ValueError, match=r"distances.*shape"):
        probe_distances(ProbeInputs(activations=[given], cells=cells, split=split), distances[:3], controls=("none",))
    with pytest.raises(ValueError, match="controls"):
        probe_distances(ProbeInputs(activations=[given], cells=cells, split=split), distances, controls=("text",))
    with pytest.raises(ValueError, match="the split"):
        probe_distances(
            ProbeInputs(activations=[given], cells=cells, split=split_by_grid(worlds(6))), distances, controls=("none",)
        )
    with pytest.raises(ValueError, match="test part"):
        probe_distances(
            ProbeInputs(activations=[given], cells=cells, split=split),
            np.where(split.test, np.nan, 1.0),
            controls=("none",),
        )
    with pytest.raises(ValueError, match=r"distances.*finite"):
        score_distance(distances, np.full(8, np.nan), cells, {})
    short = map_of(np.zeros((2, 3, 3), dtype=bool), np.zeros((2, 2), int), np.ones((2, 2), int))
    with pytest.raises(ValueError, match=r"maps.*shape"):
        probe_distances(
            ProbeInputs(activations=[given], cells=cells, split=split),
            distances,
            controls=("none",),
            maps={("pre", 1): short},
        )
