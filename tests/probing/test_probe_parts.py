"""Parts of probes against hand-worked numbers, and a fit against a plain loop over torch's own layers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted import cells_of, key, module_of, noise, rooms

from goalscope._ground.rng import stream
from goalscope.inside.probing import (
    AGENT,
    CLASSES,
    OPEN,
    WALL,
    Features,
    FitSettings,
    Probe,
    Problem,
    Source,
    fit,
    fitting,
)
from goalscope.inside.probing.fitting import CellTarget, class_weights, normalisation, order, stacks
from goalscope.inside.probing.heads import coordinates, initial_weights, normalised
from goalscope.inside.probing.probe import Callbacks

SETTINGS = FitSettings(epochs=3, batch=6, hidden=5, rate=0.02, decay=0.3, validation=0.0, seed=4)


def some(count: int = 16, **changes: Any) -> tuple[Features, np.ndarray[Any, Any]]:
    cells = rooms(grids=count // 2, steps=2)
    return Features.of(noise(cells, **changes)), cells.labels


def test_coordinates_are_row_and_column() -> None:
    assert coordinates(3).tolist() == [
        *([-1, -1], [-1, 0], [-1, 1]),
        *([0, -1], [0, 0], [0, 1]),
        *([1, -1], [1, 0], [1, 1]),
    ]
    assert coordinates(1).tolist() == [[0, 0]]


def test_first_weights_have_the_spread_of_one_over_the_root_of_the_inputs() -> None:
    drawn = initial_weights(module_of("mlp", 400, 9, 5, hidden=900), 0, "")
    spreads = {name: float(array.std()) for name, array in drawn.items()}
    assert spreads["act"] == pytest.approx(1 / 20, rel=0.02)
    assert spreads["cell"] == pytest.approx(1, rel=0.05)
    assert spreads["out"] == pytest.approx(1 / 30, rel=0.05)
    assert not drawn["out_bias"].any()
    # Biases are spread evenly from -1 to 1.
    assert spreads["bias"] == pytest.approx(1 / np.sqrt(3), rel=0.05)
    assert -1 <= drawn["bias"].min() < -0.99 and 0.99 < drawn["bias"].max() <= 1
    assert not any(array.any() for array in initial_weights(module_of("percell", 9, 9, 5), 0, "").values())


def test_weights_of_classes_undo_their_frequencies() -> None:
    labels = np.array([[WALL, OPEN, OPEN, OPEN]])
    assert CellTarget(values=labels).prior.tolist() == [0, 0, 0.25, 0.75, 0]
    np.testing.assert_allclose(class_weights(CellTarget(values=labels).prior), [0, 0, 2, 2 / 3, 0])


def test_an_input_that_varies_less_than_a_millionth_of_the_others_or_of_its_level_is_not_read() -> None:
    sign = np.where(np.arange(40) % 2, 1.0, -1.0)
    columns = [2 * sign, 1e-5 * sign, 1e-6 * sign, 1 + 1e-3 * sign, 4000 + 2**-9 * sign]
    centre, spread = normalisation(np.stack(columns, axis=1).astype(np.float32))
    np.testing.assert_allclose(spread, [2, 1e-5, 0, 1e-3, 0], rtol=1e-3)
    np.testing.assert_allclose(centre, [0, 0, 0, 1, 4000], atol=1e-6)
    one = normalised(np.array([[4.0, 5.0]], dtype=np.float32), np.array([1.0, 1.0]), np.array([2.0, 0.0]))
    assert one.tolist() == [[1.5, 0]]


def test_the_table_of_places_gives_back_smoothed_frequencies() -> None:
    labels = np.array([[WALL, OPEN, OPEN, OPEN], [WALL, WALL, OPEN, AGENT], [WALL, OPEN, OPEN, OPEN]])
    cells = cells_of(labels, 1, 2)
    given = Features.of(noise(cells))
    (probe,) = fit([Problem(key=key("p", "position"), features=given, target=labels)])
    prior = np.array([1, 0, 4, 7, 0]) / 12
    counts = np.array([[0, 0, 3, 0, 0], [0, 0, 1, 2, 0], [0, 0, 0, 3, 0], [1, 0, 0, 2, 0]])
    wanted = (counts + 0.5 * prior) / 3.5
    said = probe.predict(given)
    for state in range(3):
        np.testing.assert_allclose(said.natural[state], wanted, atol=1e-6)
        even = np.divide(wanted, prior, out=np.zeros_like(wanted), where=prior > 0)
        np.testing.assert_allclose(said.balanced[state], even / even.sum(axis=1, keepdims=True), atol=1e-6)
    (blind,) = fit([Problem(key=key("m", "majority"), features=given, target=labels)])
    for name in ("natural", "balanced"):
        np.testing.assert_allclose(blind.predict(given).reading(name), np.tile(prior, (3, 4, 1)), atol=1e-6)


def test_natural_frequencies_weigh_the_evidence_and_unseen_classes_are_never_said() -> None:
    bias = np.array([0.5, 3, -1, 0, 9], dtype=np.float32)
    prior = np.array([0.1, 0.2, 0.3, 0.4, 0])
    probe = Probe(
        head="percell",
        target="cells",
        source=Source(site="pre", layer=1, model="m", width=2),
        frame=1,
        prior=prior,
        mean=np.zeros(2, dtype=np.float32),
        std=np.ones(2, dtype=np.float32),
        weights={"act": np.zeros((2, 5), dtype=np.float32), "bias": bias},
    )
    names = np.array(["a"], dtype=object)
    given = Features(
        source=probe.source,
        vectors=np.zeros((1, 2), dtype=np.float32),
        episode_id=names,
        step=np.zeros(1, dtype=np.int64),
        cluster=names,
    )
    said = probe.predict(given)
    evidence = np.exp([0.5, 3, -1, 0])
    np.testing.assert_allclose(said.balanced[0, 0], [*evidence / evidence.sum(), 0], rtol=1e-6)
    weighed = evidence * prior[:4]
    np.testing.assert_allclose(said.natural[0, 0], [*weighed / weighed.sum(), 0], rtol=1e-6)


def loop(head: str, given: Features, target: np.ndarray[Any, Any], settings: FitSettings) -> dict[str, Any]:
    """Fit one probe with torch's own layers and loss, one pair of a step and a cell at a time in the data."""
    import torch
    from torch import nn

    task: Any = "cells" if target.ndim == 2 else "number"
    cells = target.shape[1] if target.ndim == 2 else 1
    side = round(cells**0.5) if target.ndim == 2 else 0
    spread = given.vectors.std(axis=0)
    inputs = torch.tensor((given.vectors - given.vectors.mean(axis=0)) / spread)
    own_settings: dict[str, Any] = {"hidden": settings.hidden} if head == "mlp" else {}
    sizes = (inputs.shape[1], cells, len(CLASSES) if task == "cells" else 1)
    kind: Any = "cells" if task == "cells" else "distance"
    drawn = initial_weights(module_of(head, *sizes, target=kind, **own_settings), settings.seed, "")
    own = {name: nn.Parameter(torch.tensor(array)) for name, array in drawn.items()}
    if task == "cells":
        truth = torch.tensor(target.astype(np.int64))
        counts = np.bincount(target.ravel(), minlength=5)
        weight = np.array([target.size / (count * (counts > 0).sum()) if count else 0 for count in counts])
        loss = nn.CrossEntropyLoss(torch.tensor(weight, dtype=torch.float32), reduction="none")
    else:
        truth = torch.tensor(((target - target.mean()) / target.std()).astype(np.float32))
    optimiser = torch.optim.AdamW(own.values(), lr=settings.rate, weight_decay=settings.decay)
    batches = [
        rows
        for epoch in range(settings.epochs)
        for rows in order(np.arange(len(inputs)), epoch, settings, "probe order")
    ]
    for number, rows in enumerate(batches):
        total = torch.zeros(())
        for row in rows:
            for cell in range(cells):
                where = torch.tensor([divmod(cell, side)] if side else [[0, 0]], dtype=torch.float32)
                place = 2 * where[0] / (side - 1) - 1 if side > 1 else 0 * where[0]
                scored = inputs[row] @ own["act"] + place @ own["cell"] + own["bias"]
                if head == "mlp":
                    scored = scored.relu() @ own["out"] + own["out_bias"]
                one = loss(scored[None], truth[row, cell][None])[0] if side else (scored[0] - truth[row]) ** 2
                total = total + one
        optimiser.param_groups[0]["lr"] = settings.rate * (len(batches) - number) / len(batches)
        optimiser.zero_grad()
        (total / (len(rows) * cells)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return {name: array.detach().numpy() for name, array in own.items()}


@pytest.mark.parametrize("head", ["additive", "mlp"])
def test_a_fit_of_cells_is_the_plain_loop_over_pairs(head: str) -> None:
    rng = stream(1, "plain loop")
    labels = rng.choice(5, p=[0.1, 0, 0.3, 0.5, 0.1], size=(14, 4))
    given = Features.of(noise(cells_of(labels, 2, 2), seed=3))
    small = Features(
        source=Source(site="pre", layer=1, model="m", width=4),
        vectors=given.vectors[:, :4] * np.float32(3) + np.float32(2),
        episode_id=given.episode_id,
        step=given.step,
        cluster=given.cluster,
    )
    (probe,) = fit([Problem(key=key(head, head), features=small, target=labels)], SETTINGS)
    for name, array in loop(head, small, labels, SETTINGS).items():
        np.testing.assert_allclose(probe.weights[name], array, rtol=1e-3, atol=2e-5, err_msg=name)
        assert np.abs(array).max() > 0.01


def test_a_fit_of_numbers_is_the_plain_loop_in_units_of_their_spread() -> None:
    given = some(14)[0]
    target = 10 + 4 * stream(2, "numbers").standard_normal(14)
    (probe,) = fit([Problem(key=key("mlp", "mlp", "distance"), features=given, target=target)], SETTINGS)
    wanted = loop("mlp", given, target, SETTINGS)
    for name, array in wanted.items():
        np.testing.assert_allclose(probe.weights[name], array, rtol=1e-3, atol=2e-5, err_msg=name)
    scaled = (given.vectors - given.vectors.mean(axis=0)) / given.vectors.std(axis=0)
    hidden = np.maximum(scaled @ wanted["act"] + wanted["bias"], 0) @ wanted["out"] + wanted["out_bias"]
    found = probe.predict_number(given)
    np.testing.assert_allclose(found, target.mean() + target.std() * hidden[:, 0], rtol=1e-4, atol=1e-4)
    # A number that never changes is its own mean.
    (same,) = fit([Problem(key=key("same", "mlp", "distance"), features=given, target=np.full(14, 7.0))], SETTINGS)
    assert same.scale == (7.0, 1.0)


def test_what_was_fitted_says_how_and_on_what() -> None:
    given, labels = some(16)
    (probe, counted) = fit(
        [
            Problem(key=key("a", "additive"), features=given, target=labels, tags={"control": "none"}),
            Problem(key=key("b", "majority"), features=given, target=labels),
        ],
        SETTINGS,
    )
    used = {name: getattr(SETTINGS, name) for name in ("epochs", "batch", "validation", "seed")}
    used |= {"rate": SETTINGS.rate, "decay": SETTINGS.decay, "kept": SETTINGS.epochs - 1}  # as files have them
    assert dict(probe.tags) == {"steps": 16, "grids": 8, "control": "none", **used}
    assert dict(counted.tags) == {"steps": 16, "grids": 8}
    assert probe.prior.tolist() == CellTarget(values=labels).prior.tolist()


def test_problems_beyond_the_limit_of_memory_train_in_stacks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:

    given, labels = some(16)
    problems = [Problem(key=key(str(at), "percell"), features=given, target=labels) for at in range(7)]

    def sizes(limit: int) -> list[int]:
        monkeypatch.setitem(fitting.ROOM, "cpu", limit)
        return [len(stack) for stack in stacks(problems, SETTINGS)]

    weights = 5 * 121 * 25 * 5  # inputs and biases, cells, classes; five copies
    assert sizes(3 * weights) == [3, 3, 1]
    assert sizes(3 * weights - 1) == [2, 2, 2, 1]
    assert sizes(1) == [1] * 7
    monkeypatch.setattr(fitting, "PER_STACK", 4)
    assert sizes(1 << 40) == [4, 3]
    names = [problem.key.site for stack in stacks(problems, SETTINGS) for problem in stack]
    assert names == [str(at) for at in range(7)]


def test_progress_counts_the_passes_of_single_probes() -> None:
    given, labels = some(16)
    told: list[tuple[int, int]] = []
    kept: list[str] = []
    callbacks: Callbacks = Callbacks(
        keep=lambda probes: kept.extend(key.text for key in probes),
        progress=lambda done, total: told.append((done, total)),
    )
    problems = [Problem(key=key(str(at), "additive"), features=given, target=labels) for at in range(2)]
    problems.append(Problem(key=key("counted", "majority"), features=given, target=labels))
    fit(problems, SETTINGS, callbacks)
    assert told == [(2, 6), (4, 6), (6, 6)]
    assert sorted(kept) == [
        f"{one}/1/general" for one in ("additive/none/0", "additive/none/1", "majority/none/counted")
    ]


def test_settings_out_of_their_range_are_refused() -> None:
    for changes, says in (
        ({"epochs": True}, "epochs of a fit must be a whole number >= 1, got True"),
        ({"batch": 0}, "batch of a fit"),
        ({"hidden": 2.0}, "hidden of a fit"),
        ({"rate": 0.0}, "rate must be > 0 and decay >= 0, got 0.0"),
        ({"decay": -1e-3}, "got 0.001 and -0.001"),
        ({"decay": float("inf")}, "got 0.001 and inf"),
    ):
        with pytest.raises(ValueError, match=says):
            FitSettings(**changes)
    assert FitSettings(decay=0.0, epochs=1, batch=1, hidden=1).decay == 0
    laptop = FitSettings(seed=3).for_laptop()
    assert (laptop.hidden, laptop.epochs, laptop.rate, laptop.seed) == (128, 30, 1e-2, 3)


def test_a_trained_head_gets_the_weight_decay_that_is_best_on_inner_grids() -> None:
    """Noise asks for as much decay as there is, a clear signal for little; both at once, each for itself."""
    cells = rooms(grids=100, steps=2)
    signal, empty = Features.of(noise(cells, seed=1)), Features.of(noise(cells, seed=2))
    labels = signal.vectors[:, :3].sum(axis=1).astype(np.float64)
    penalties = (1e-4, 30.0)
    settings = FitSettings(epochs=8, batch=16, rate=0.02, hidden=16, penalties=penalties)
    problems = [
        Problem(key=key(name, "mlp", "distance"), features=given, target=labels)
        for name, given in (("signal", signal), ("empty", empty))
    ]
    probes = fit(problems, settings)
    assert tuple(probe.tags["decay"] for probe in probes) == penalties
    for problem, probe, decay in zip(problems, probes, penalties, strict=True):
        (alone,) = fit([problem], replace(settings, decay=decay, penalties=()))
        for name, array in probe.weights.items():
            np.testing.assert_allclose(array, alone.weights[name], rtol=1e-3, atol=1e-4, err_msg=name)


def test_a_probe_of_cells_can_stop_on_inner_grids_too() -> None:
    cells = rooms(grids=60, steps=2)
    given = Features.of(noise(cells, seed=1))
    problem = Problem(key=key("early", "mlp"), features=given, target=cells.labels)
    many = FitSettings(epochs=25, batch=16, hidden=16, rate=0.02, validation=0.3)
    (stopped,), (last,) = fit([problem], many), fit([problem], replace(many, validation=0.0))
    fresh = Features.of(noise(cells, seed=5))
    true = cells.labels[..., None]

    def loss(probe: Probe) -> float:
        return float(-np.log(np.take_along_axis(probe.predict(fresh).natural, true, axis=2)).mean())

    assert loss(stopped) < 0.9 * loss(last)
    assert last.tags["kept"] == 24 and stopped.tags["kept"] != 24
    # The additive probe is trained as it was published: on all grids, to the last pass.
    published = Problem(key=key("all", "additive"), features=given, target=cells.labels)
    (one,), (other,) = fit([published], many), fit([published], replace(many, validation=0.0))
    assert one.id == other.id and one.tags["kept"] == 24


def test_penalties_out_of_their_range_are_refused() -> None:
    for penalties in ((-1.0,), (float("nan"),), (1e-3, float("inf"))):
        with pytest.raises(ValueError, match=r"penalties.*>= 0"):
            FitSettings(penalties=penalties)


def test_the_settings_of_a_head_are_its_own() -> None:
    given, labels = some(16)
    wrong = Problem(key=key("a", "mlp"), features=given, target=labels, settings={"d_hiden": 4})
    with pytest.raises(ValueError, match=r"mlp.*hidden, got \['d_hiden'\]"):
        fit([wrong], SETTINGS)
    (small,) = fit([Problem(key=key("b", "mlp"), features=given, target=labels, settings={"hidden": 3})], SETTINGS)
    assert small.weights["bias"].shape == (3,) and small.settings == {"hidden": 3}
