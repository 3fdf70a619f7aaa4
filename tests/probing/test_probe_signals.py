"""Planted signals are found, noise gives nothing, and the weighted loss is what resampling would minimise."""

import numpy as np
import pytest
from planted import half_walls, noise, rooms, wall_map

from goalscope._ground.rng import stream
from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.inside.probing import (
    FULL,
    OPEN,
    WALL,
    FitSettings,
    ProbeInputs,
    difference_rows,
    probe_cells,
    probe_cells_by_size,
    split_by_grid,
    summarise,
)
from goalscope.inside.probing.fitting import CellTarget, cell_loss, class_weights
from goalscope.inside.probing.suite import without

SETTINGS = FitSettings(epochs=30, rate=1e-2, hidden=16)
QUIET = FitSettings(epochs=10, rate=3e-3, hidden=16)


def test_a_planted_wall_map_is_read_by_the_head_with_weights_for_each_cell_and_by_no_additive_one() -> None:
    cells = half_walls()
    split = split_by_grid(cells)
    heads = (("majority", "none"), ("position", "none"), ("additive", "none"), ("percell", "none"))
    found = probe_cells(
        ProbeInputs(activations=[wall_map(cells)], cells=cells, split=split), suite=heads, settings=SETTINGS
    )
    accuracy = found.rows.select(measure="cell accuracy", reading="natural")
    mean = {head: accuracy.select(head=head).value.mean() for head, _ in heads}
    assert mean["percell"] == 1.0
    assert mean["majority"] == pytest.approx((cells.labels == OPEN).mean())  # 13 of 25 cells
    estimates = {one.key["head"]: one.estimate for one in summarise(accuracy, by=("head",))}
    assert estimates["additive"].low <= mean["majority"] <= estimates["additive"].high
    assert abs(mean["additive"] - mean["majority"]) < 0.03
    precision = found.rows.select(measure="average precision", head="percell")
    assert precision.where(precision["class"] == "wall").value.min() == 1.0


@pytest.mark.full
def test_noise_gives_a_selectivity_whose_interval_holds_0_for_every_head() -> None:
    cells = rooms(grids=300)
    given = [noise(cells)]
    split = split_by_grid(cells, test=0.4)
    found = probe_cells(
        ProbeInputs(activations=given, cells=cells, split=split),
        suite=without(FULL, *RANDOM_WEIGHTS, "wall-count", "input", "text"),
        settings=QUIET,
    )
    rows = difference_rows(found.rows, "shuffled")
    heads = {"majority", "position", "additive", "percell", "mlp"}
    accuracy = summarise(rows.select(measure="cell accuracy less shuffled"), by=("head", "reading"))
    assert {one.key["head"] for one in accuracy} == heads and len(accuracy) == 10
    for one in accuracy:
        assert one.estimate.low <= 0 <= one.estimate.high, (one.key, one.estimate)
    # 40 more intervals: together they cover with 95 %.
    rows = rows.select(measure="average precision less shuffled")
    precision = summarise(rows, by=("head", "reading", "class"), confidence=1 - 0.05 / 40)
    assert {one.key["head"] for one in precision} == heads and len(precision) == 40
    for one in precision:
        assert one.estimate.low <= 0 <= one.estimate.high, (one.key, one.estimate)


def test_a_planted_map_has_selectivity_and_stands_above_a_random_network() -> None:
    cells = half_walls(grids=120)
    given = [wall_map(cells)]
    random = {("permuted", seed): [noise(cells, seed=9 + seed, model=f"random {seed}")] for seed in (0, 1)}
    entries = tuple(("percell", control) for control in ("none", "shuffled", "permuted", "wall-count", "input", "text"))
    found = probe_cells(
        ProbeInputs(activations=given, cells=cells, split=split_by_grid(cells), random=random),
        suite=entries,
        settings=SETTINGS,
    )
    for control in ("shuffled", "permuted", "wall-count", "input", "text"):
        rows = difference_rows(found.rows, control).select(reading="natural")
        estimate = {one.key["measure"]: one.estimate for one in summarise(rows, by=("head",))}[
            f"cell accuracy less {control}"
        ]
        assert estimate.low > 0.25, control
        assert estimate.clusters == 30


def test_the_weighted_loss_has_the_gradient_of_resampled_pairs() -> None:
    import torch

    rng = stream(0, "resampled")
    count, cells, width = 12, 9, 4
    labels = rng.choice(5, p=[0.05, 0.05, 0.3, 0.5, 0.1], size=(count, cells))
    labels[0, :5] = range(5)
    vectors = torch.tensor(rng.standard_normal((count, width)))
    weights = torch.tensor(rng.standard_normal((width, cells * 5)), requires_grad=True)

    def scored() -> torch.Tensor:
        return (vectors @ weights).view(count, cells, 5)

    balance = torch.tensor(class_weights(CellTarget(values=labels).prior), dtype=torch.float64)
    alike = torch.ones(count, dtype=torch.float64)
    loss = cell_loss(scored()[None], torch.tensor(labels)[None], balance[None], alike)[0]
    (weighted,) = torch.autograd.grad(loss, weights)
    # Literal: the gradient of every pair alone, the mean within a class, then the mean over classes.
    every = np.zeros((count, cells, width, cells * 5))
    for row in range(count):
        for cell in range(cells):
            one = -torch.log_softmax(scored()[row, cell], dim=-1)[int(labels[row, cell])]
            every[row, cell] = torch.autograd.grad(one, weights)[0].numpy()
    means = np.stack([every[labels == label].mean(axis=0) for label in range(5)])
    np.testing.assert_allclose(weighted.numpy(), means.mean(axis=0), rtol=1e-5, atol=1e-7)
    # Drawn: a class at random, then one of its pairs.
    draws = 4000
    drawn = np.zeros((draws, width * cells * 5))
    for at, label in enumerate(rng.integers(5, size=draws)):
        pairs = every[labels == label]
        drawn[at] = pairs[rng.integers(len(pairs))].ravel()
    error = np.abs(drawn.mean(axis=0) - weighted.numpy().ravel())
    assert (error <= 5 * drawn.std(axis=0) / np.sqrt(draws) + 1e-12).all()
    # Unweighted training would not do: the gradient is another one.
    flat = cell_loss(scored()[None], torch.tensor(labels)[None], torch.ones(1, 5, dtype=torch.float64), alike)[0]
    assert not np.allclose(torch.autograd.grad(flat, weights)[0].numpy(), weighted.numpy(), atol=1e-3)


def test_probes_of_each_size_have_frames_of_their_own() -> None:
    cells = rooms(grids=40)
    found = probe_cells_by_size(
        ProbeInputs(activations=[noise(cells)], cells=cells, split=split_by_grid(cells)),
        suite=(("percell", "none"),),
        settings=FitSettings(epochs=1),
    )
    smaller = next(probe for key, probe in found.probes.items() if key.scope == "4x4")
    assert {key.text: probe.frame for key, probe in found.probes.items()} == {
        "percell/none/pre/1/4x4": 4,
        "percell/none/pre/1/5x5": 5,
    }
    assert {(scope, size) for scope, size in zip(found.rows["scope"], found.rows["size"], strict=True)} == {
        ("4x4", 4),
        ("5x5", 5),
    }
    # Nothing is padding there.
    assert smaller.prior[4] == 0
    assert smaller.prior[WALL] == pytest.approx(12 / 16)


def test_the_full_suite_comes_side_by_side_on_one_split() -> None:
    cells = rooms(grids=24)
    given = [noise(cells), noise(cells, seed=1, layer=2)]
    random = {
        (kind, draw): [noise(cells, seed=2 + layer, layer=layer, model=f"{kind} {draw}") for layer in (1, 2)]
        for kind in RANDOM_WEIGHTS
        for draw in (0, 1)
    }
    split = split_by_grid(cells)
    found = probe_cells(
        ProbeInputs(activations=given, cells=cells, split=split, random=random),
        settings=FitSettings(epochs=1, hidden=4),
    )
    pairs = set(zip(found.rows["head"].tolist(), found.rows["control"].tolist(), strict=True))
    assert pairs == set(FULL)
    tested = set(cells.cluster[split.test].tolist())
    for head, control in FULL:
        rows = found.rows.select(head=head, control=control)
        assert set(rows.cluster.tolist()) == tested
        placed = control not in ("wall-count", "input", "text") and head not in ("majority", "position")
        assert set(rows["layer"].tolist()) == ({1, 2} if placed else {None})
    assert len(found.probes) == 2 * 2 + 3 * ((3 + 3 * 2) * 2 + 3)
    assert found.probe("mlp", given[1]).source.layer == 2
    of_random = {
        (key.control, key.draw): probe.source.model for key, probe in found.probes.items() if key.draw is not None
    }
    assert of_random == {network: one[0].model for network, one in random.items()}
    assert found.probe("majority", given[1]).head == "majority"
    assert found.probe("mlp", given[1], control="text").source.site == "text"
    with pytest.raises(KeyError, match="mlp/none/pre/7"):
        found.probe("mlp", noise(cells, layer=7))
    # A control without activations stands against every layer.
    less = difference_rows(found.rows, "text")
    assert set(less.select(head="mlp")["layer"].tolist()) == {1, 2}


def test_what_a_control_needs_must_be_there() -> None:
    cells = rooms(grids=24)
    split = split_by_grid(cells)
    with pytest.raises(ValueError, match="--untrained 0 --random-weights default-init"):
        probe_cells(ProbeInputs(activations=[noise(cells)], cells=cells, split=split))
    with pytest.raises(ValueError, match="another model"):
        probe_cells(
            ProbeInputs(
                activations=[noise(cells)], cells=cells, split=split, random={("default-init", 0): [noise(cells)]}
            )
        )
    with pytest.raises(ValueError, match="episode-023 step 1"):
        probe_cells(ProbeInputs(activations=[noise(cells).where(np.arange(48)[::-1])], cells=cells, split=split))
    with pytest.raises(ValueError, match="controls"):
        probe_cells(ProbeInputs(activations=[noise(cells)], cells=cells, split=split), suite=(("mlp", "fog"),))
    with pytest.raises(ValueError, match=r"site and layer .*'pre', 1.*'pre', 1"):
        probe_cells(
            ProbeInputs(activations=[noise(cells), noise(cells)], cells=cells, split=split), suite=(("mlp", "none"),)
        )
