"""Linear heads against scikit-learn, SciPy and least squares with rows for the penalty, and the laws that they keep."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from penalty_curves import penalty_curve
from planted import activations, cells_of, key, noise, rooms
from scipy.optimize import minimize
from sklearn.linear_model import Ridge

from goalscope._ground.rng import stream
from goalscope.inside.probing import (
    AGENT,
    CLASSES,
    OPEN,
    PADDING,
    WALL,
    Cells,
    Features,
    FitSettings,
    Problem,
    fit,
)
from goalscope.inside.probing.fitting import grid_weights, validation_rows
from goalscope.inside.probing.ridge import PENALTIES, RidgePath, calibrate

SETTINGS = FitSettings(validation=0.25, penalties=(1e-3, 1e-1, 10.0))


def uneven(counts: list[int]) -> np.ndarray[Any, Any]:
    """The names of grids that have so many steps each."""
    return np.repeat([f"grid-{at:03d}" for at in range(len(counts))], counts).astype(object)


def numbers(count: int = 60, inputs: int = 120, seed: int = 0) -> tuple[Features, np.ndarray[Any, Any]]:
    """Steps of grids of one to four steps each, and a number that depends on some inputs."""
    rng = stream(seed, "uneven")
    names = uneven((1 + rng.integers(4, size=count)).tolist())
    cells = cells_of(np.full((len(names), 4), OPEN), 1, 2)
    whole = Features.of(noise(cells, seed))
    given = replace(
        whole,
        source=replace(whole.source, width=inputs),
        positions=1,
        vectors=np.ascontiguousarray(whole.vectors[:, :inputs] * np.float32(3) + np.float32(1)),
        cluster=names,
    )
    return given, 10 + given.vectors[:, :5].sum(axis=1) + 2 * rng.standard_normal(len(names))


def scaled(given: Features) -> np.ndarray[Any, Any]:
    vectors = given.vectors.astype(np.float64)
    return np.asarray((vectors - vectors.mean(axis=0)) / vectors.std(axis=0))


@pytest.mark.parametrize("inputs", [20, 120])  # fewer and more than steps
def test_the_path_is_the_least_penalised_squared_error_for_every_penalty(inputs: int) -> None:
    rng = stream(1, "path", inputs)
    vectors, targets = rng.standard_normal((50, inputs)) + 3, rng.standard_normal((50, 4))
    steps, more = rng.uniform(0.1, 2, 50), rng.standard_normal((7, inputs))
    path = RidgePath(*map(torch.tensor, (vectors, targets, steps)))
    share = steps / steps.sum()
    for penalty in (1e-6, 1e-2, 3.0):
        act = path.weights(penalty).numpy()
        # Plain least squares with one more row for each weight.
        centre, level = share @ vectors, share @ targets
        rows = np.concatenate([np.sqrt(share)[:, None] * (vectors - centre), np.sqrt(penalty) * np.eye(inputs)])
        wanted = np.concatenate([np.sqrt(share)[:, None] * (targets - level), np.zeros((inputs, 4))])
        np.testing.assert_allclose(act, np.linalg.lstsq(rows, wanted)[0], rtol=1e-6, atol=1e-8)
        other = Ridge(alpha=penalty).fit(vectors, targets, sample_weight=share)
        np.testing.assert_allclose(act, other.coef_.T, rtol=1e-5, atol=1e-7)
        (beyond,) = path.deviations(torch.tensor(more), [penalty])
        np.testing.assert_allclose(beyond.numpy() + level, other.predict(more), rtol=1e-5, atol=1e-7)
    each = np.array([1e-6, 1e-2, 1e-2, 3.0])
    several = path.weights(torch.tensor(each)).numpy()
    for column, penalty in enumerate(each):
        np.testing.assert_allclose(several[:, column], path.weights(penalty).numpy()[:, column], rtol=1e-12)


@pytest.mark.parametrize("inputs", [20, 120])
def test_a_number_gets_the_penalty_of_least_error_on_held_back_grids(inputs: int) -> None:
    given, target = numbers(inputs=inputs)
    (probe,) = fit([Problem(key=key("n", "linear", "distance"), features=given, target=target)], SETTINGS)
    weights, held = grid_weights(given.cluster), validation_rows(given.cluster, SETTINGS)
    assert 0 < held.sum() < len(held) and not set(given.cluster[held]) & set(given.cluster[~held])
    vectors, error = scaled(given), {}
    for penalty in SETTINGS.penalties:
        share = weights[~held] / weights[~held].sum()
        tried = Ridge(alpha=penalty).fit(vectors[~held], target[~held], sample_weight=share)
        error[penalty] = weights[held] @ (tried.predict(vectors[held]) - target[held]) ** 2
    best = min(error, key=error.__getitem__)
    assert probe.tags["penalty"] == best
    assert probe.tags["penalty at an end"] == (best != 0.1)
    wanted = Ridge(alpha=best).fit(vectors, target, sample_weight=weights / weights.sum())
    np.testing.assert_allclose(probe.predict_number(given), wanted.predict(vectors), rtol=1e-4)
    mean = np.average(target, weights=weights)
    assert probe.scale == pytest.approx((mean, np.sqrt(np.average((target - mean) ** 2, weights=weights))))


def coded(cells: Cells, spread: float, seed: int = 0) -> Features:
    """Activations with the class of every cell, mixed, under noise."""
    rng = stream(seed, "coded")
    shown = np.eye(len(CLASSES))[cells.labels].reshape(len(cells), -1)
    mixed = shown @ rng.standard_normal((shown.shape[1], 120)) + spread * rng.standard_normal((len(cells), 120))
    return Features.of(activations(cells, mixed))


def test_classes_are_penalised_and_calibrated_as_scikit_learn_and_scipy_do_it() -> None:
    """The whole recipe once more, in plain steps."""
    cells = rooms(grids=80, steps=2, sizes=(4,), frame=4)
    given, labels = coded(cells, 12.0), cells.labels
    (probe,) = fit([Problem(key=key("c", "percell"), features=given, target=labels)], SETTINGS)
    vectors, held = scaled(given), validation_rows(given.cluster, SETTINGS)
    prior = np.bincount(labels.ravel(), minlength=5) / labels.size
    known = [label for label in range(5) if prior[label] > 0]
    assert PADDING not in known

    def frequencies(rows: np.ndarray[Any, Any]) -> Any:
        grids = rows.sum() / 2
        often = np.stack([(labels[rows] == label).mean(axis=0) for label in range(5)], axis=1)
        smooth = (grids * often + 0.5 * prior) / (grids + 0.5)
        return often, smooth, np.sqrt(smooth * (1 - smooth))

    def deviation(label: int, penalty: float, rows: np.ndarray[Any, Any], shown: np.ndarray[Any, Any]) -> Any:
        wanted = (labels[rows] == label).astype(float)
        model = Ridge(alpha=penalty * rows.sum()).fit(vectors[rows], wanted)
        return model.predict(vectors[shown]) - wanted.mean(axis=0)

    often, smooth, spread = frequencies(~held)
    varied = often.max(axis=1) < 1
    chosen, scores = {}, np.zeros((int(held.sum()), int(varied.sum()), 5))
    for label in known:
        correlations = {}
        for penalty in SETTINGS.penalties:
            z = (deviation(label, penalty, ~held, held) / spread[:, label])[:, varied]
            true = (((labels[held] == label) - often[:, label]) / spread[:, label])[:, varied]
            correlations[penalty] = (z * true).sum() / max(np.sqrt((z**2).sum()), 1e-300)
        chosen[label] = max(reversed(SETTINGS.penalties), key=correlations.__getitem__)  # of equal ones the strongest
        scores[..., label] = (deviation(label, chosen[label], ~held, held) / spread[:, label])[:, varied]
    assert {f"penalty {CLASSES[label]}": penalty for label, penalty in chosen.items()} == {
        name: value for name, value in probe.tags.items() if name.startswith("penalty ") and "end" not in name
    }
    size = np.sqrt((scores**2).mean(axis=(0, 1)))
    steps = np.full(int(held.sum()), 0.5)  # two steps a grid
    found = calibrate(
        scores[..., known] / np.where(size > 0, size, 1)[known],
        np.log(smooth[varied][:, known]),
        labels[held][:, varied].astype(np.int64),
        steps,
    )
    logits = np.zeros((len(labels), labels.shape[1], len(known)))
    _, smooth, spread = frequencies(np.ones(len(labels), dtype=bool))
    for at, label in enumerate(known):
        every = np.ones(len(labels), dtype=bool)
        z = deviation(label, chosen[label], every, every) / spread[:, label] / (size[label] or 1)
        logits[..., at] = found[0, at] * z + found[1, at] * np.log(smooth[:, label]) + found[2, at]
    chances = np.exp(logits)
    chances /= chances.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(probe.predict(given).natural[..., known], chances, atol=2e-5)


def test_the_calibration_is_the_penalised_maximum_likelihood() -> None:
    rng = stream(3, "calibration")
    often = rng.dirichlet(np.ones(4), size=6)
    labels = np.array([[rng.choice(4, p=one) for one in often] for _ in range(40)])
    scores = rng.standard_normal((40, 6, 4)) + 1.5 * (labels[..., None] == np.arange(4))
    scores[..., 2] *= -1  # evidence to the contrary: a slope at its bound
    steps = rng.uniform(0.2, 1, 40)

    def loss(flat: np.ndarray[Any, Any]) -> float:
        slope, weight, offset = flat.reshape(3, 4)
        logits = slope * scores + weight * np.log(often) + offset
        log = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
        own = np.take_along_axis(log, labels[..., None], axis=2)[..., 0].sum(axis=1)
        return float(-steps @ own + 0.5 * ((flat - np.repeat([0.0, 1.0, 0.0], 4)) ** 2).sum())

    found = calibrate(scores, np.log(often), labels, steps)
    bounds = [(0.01, None)] * 4 + [(None, None)] * 8
    peer = minimize(loss, found.ravel() + 0.3, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-14})
    assert loss(found.ravel()) <= peer.fun + 1e-6
    np.testing.assert_allclose(found.ravel(), peer.x, atol=2e-3)
    assert found[0, 2] == 0.01 and (found[0, [0, 1, 3]] > 0.5).all()
    # A class that never occurs has no part in it.
    more = calibrate(
        np.dstack([scores, scores[..., :1]]), np.column_stack([np.log(often), np.full(6, -np.inf)]), labels, steps
    )
    np.testing.assert_allclose(more[:, :4], found, atol=1e-9)
    assert not more[:, 4].any()
    # Without a cell that varies there is nothing to learn.
    assert calibrate(scores[:, :0], np.log(often[:0]), labels[:, :0], steps)[1].tolist() == [1, 1, 1, 1]


def test_grids_weigh_alike_however_many_steps_they_have() -> None:
    """Steps that stand there twice change neither what is fitted nor the frequencies nor the loss of trained heads."""
    cells = rooms(grids=40, steps=1)
    rows = np.concatenate([np.arange(40), np.flatnonzero(np.arange(40) % 3 == 0)])
    weights = grid_weights(cells.cluster[rows])
    assert sorted(set(weights.tolist())) == [0.5, 1.0] and weights.sum() == 40
    code = coded(cells, 8.0)
    vectors, target = torch.tensor(scaled(code)), torch.tensor(cells.labels == WALL).double()
    one = RidgePath(vectors, target, torch.ones(40, dtype=torch.float64))
    other = RidgePath(vectors[rows], target[rows], torch.tensor(weights))
    np.testing.assert_allclose(one.weights(0.1), other.weights(0.1), atol=1e-10)
    np.testing.assert_allclose(one.level, other.level, atol=1e-12)
    first, second = (
        Problem(key=key("p", "position"), features=code.where(some), target=cells.labels[some])
        for some in (np.arange(40), rows)
    )
    np.testing.assert_allclose(first.target.prior, second.target.prior, rtol=1e-12)
    tables = [fit([problem])[0].weights["table"] for problem in (first, second)]
    np.testing.assert_allclose(tables[0], tables[1], atol=1e-6)
    scored = torch.tensor(stream(0, "scored").standard_normal((1, 40, 25, 5)), dtype=torch.float32)
    device = torch.device("cpu")
    losses = [
        problem.target.loss([problem.target], device)(scored[:, some], np.arange(len(some)))
        for problem, some in ((first, np.arange(40)), (second, rows))
    ]
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-5)


def test_probabilities_of_the_linear_head_are_honest() -> None:
    """Of the cells that are said to hold a class with probability p a share of p holds it."""
    cells = rooms(grids=900, steps=1, sizes=(5,))
    given = coded(cells, 9.0)
    train = np.arange(len(cells)) < 600
    (probe,) = fit([Problem(key=key("h", "percell"), features=given.where(train), target=cells.labels[train])])
    inner = (slice(None), np.isin(np.arange(25), [6, 7, 8, 11, 12, 13, 16, 17, 18]))
    said, true = probe.predict(given.where(~train)).natural[inner], cells.labels[~train][inner]
    chance, right = said[..., AGENT].ravel(), (true == AGENT).ravel()
    assert np.log(said[..., AGENT])[true == AGENT].mean() > np.log(1 / 9) + 0.5  # it knows something
    bins = np.digitize(chance, [0.05, 0.15, 0.3])
    for one in range(4):
        mine = bins == one
        error = 4 * np.sqrt(right[mine].mean() * (1 - right[mine].mean()) / mine.sum()) + 0.03
        assert mine.sum() >= 50 and abs(chance[mine].mean() - right[mine].mean()) < error


def test_what_cannot_be_told_falls_back_to_the_frequencies_of_the_place() -> None:
    cells = rooms(grids=200, steps=2)
    problems = [
        Problem(key=key(name, head), features=given, target=cells.labels)
        for name, head, given in (
            ("noise", "percell", Features.of(noise(cells))),
            ("nothing", "percell", Features.of(activations(cells, np.ones((len(cells), 120))))),
            ("place", "position", Features.of(noise(cells))),
        )
    ]
    said = [probe.predict(problem.features).natural for problem, probe in zip(problems, fit(problems), strict=True)]
    true = cells.labels[..., None]
    loss = [-np.log(np.take_along_axis(one, true, axis=2)).mean() for one in said]
    assert abs(loss[0] - loss[2]) < 0.02 and abs(loss[1] - loss[2]) < 0.02
    assert np.abs(said[1] - said[1][:1]).max() == 0  # inputs that do not vary say the same at every step


def test_few_grids_and_odd_settings() -> None:
    cells = rooms(grids=2, steps=2)
    few = Problem(key=key("few", "percell"), features=Features.of(noise(cells)), target=cells.labels)
    assert np.isfinite(fit([few])[0].predict(noise(cells)).natural).all()
    assert "penalty at an end" in fit([few])[0].tags
    one = np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match=r"grids.*got one"):
        fit([Problem(key=key("one", "percell"), features=few.features.where(one), target=cells.labels[one])])
    # A single penalty leaves nothing to choose; 0 is the least that has a solution.
    (plain,) = fit([few], FitSettings(penalties=(0.0,)))
    assert plain.tags["penalty wall"] == 0 and plain.tags["penalty at an end"] == ""
    # Without a validation part of trained heads a fifth of the grids still chooses the penalty.
    assert fit([few], FitSettings(validation=0.0))[0].id == fit([few], FitSettings(validation=0.2))[0].id
    assert len(PENALTIES) == 27 and PENALTIES[0] == pytest.approx(1e-9) and PENALTIES[-1] == pytest.approx(1e4)
    same = cells_of(np.full((6, 4), WALL), 1, 2)
    (sure,) = fit([Problem(key=key("same", "percell"), features=Features.of(noise(same)), target=same.labels)])
    assert (sure.predict(noise(same)).natural[..., WALL] == 1).all()


def test_the_penalty_curve_is_that_of_the_choice() -> None:
    """Against a correlation of NumPy and the penalties of the probe."""
    cells = rooms(grids=120, steps=1, sizes=(5,))
    train = np.arange(len(cells)) < 80
    given, labels = coded(cells, 12.0), cells.labels
    problem = Problem(key=key("c", "percell"), features=given.where(train), target=labels[train])
    (probe,) = fit([problem])
    held_back, tested = penalty_curve(problem, given.where(~train), labels[~train])
    for label, name in enumerate(CLASSES[:PADDING]):
        if held_back[:, label].any():
            best = held_back[:, label].max()
            good = np.array(PENALTIES)[held_back[:, label] >= best - 1e-4 * abs(best)]
            assert probe.tags[f"penalty {name}"] == good[-1]
    held = validation_rows(given.cluster[train], FitSettings())
    mean, std = given.vectors[train].mean(axis=0), given.vectors[train].std(axis=0)
    vectors, fitted = (given.vectors - mean) / std, np.flatnonzero(train)[~held]
    wanted = (labels == AGENT).astype(float)
    level = wanted[fitted].mean(axis=0)
    prior = wanted[train].mean()
    often = (len(fitted) * level + 0.5 * prior) / (len(fitted) + 0.5)
    spread, varied = np.sqrt(often * (1 - often)), (labels[fitted] != labels[fitted[0]]).any(axis=0)
    place = list(PENALTIES).index(1.0)
    model = Ridge(alpha=len(fitted)).fit(vectors[fitted], wanted[fitted])
    z = ((model.predict(vectors[~train]) - level) / spread)[:, varied]
    true = ((wanted[~train] - level) / spread)[:, varied]
    correlation = (z * true).sum() / np.sqrt((z**2).sum() * (true**2).sum())
    assert tested[place, AGENT] == pytest.approx(correlation, abs=1e-4)
