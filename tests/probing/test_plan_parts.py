"""Parts of decoders of plans against hand-worked numbers, and their fit against a plain loop over steps."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted import activations, cells_of, key, module_of
from planted_plans import nothing, random_plans, worlds
from test_plans import cells_at, episode

from goalscope.inside.probing import (
    END,
    UNKNOWN,
    Features,
    Plans,
    PlanSettings,
    Problem,
    fit,
    fitting,
    label_plans,
)
from goalscope.inside.probing.fitting import order, stacks, validation_rows
from goalscope.inside.probing.heads import initial_weights, scores, weight_shapes
from goalscope.inside.probing.probe import Callbacks, PlanPrediction
from goalscope.worlds import Action

SETTINGS = PlanSettings(width=8, feedforward=6, heads=2, epochs=4, rate=0.1, decay=0.4, batch=4, validation=0.4, seed=2)


def given(count: int = 16, seed: int = 0) -> Problem:
    """Plans of three steps a grid, some of which are cut off; none of the last grids is known at all."""
    cells = worlds(count, 3)
    tokens = random_plans(cells, seed, horizon=4, short=0).tokens.copy()
    for row in range(0, len(tokens), 4):
        if END not in tokens[row, :2]:
            tokens[row, 2:] = UNKNOWN
    vectors = np.asarray(nothing(cells, seed).vectors)[:, :, :5] * np.float32(3) + np.float32(1)
    return Problem(
        key=key(f"plans {seed}", "decoder", "plan"),
        features=Features.of(activations(cells, vectors)),
        target=tokens,
        settings={"layers": 2},
    )


def loop(problem: Problem, settings: PlanSettings) -> tuple[dict[str, Any], int, list[float]]:
    """Fit one decoder, its loss summed place by place; return the weights, the pass they are of, and all losses."""
    import torch

    vectors = problem.features.vectors.reshape(len(problem.features), 3, -1)
    flat = vectors.reshape(len(vectors), -1).astype(np.float64)
    scaled = ((flat - flat.mean(axis=0)) / flat.std(axis=0)).reshape(vectors.shape)
    inputs = torch.tensor(scaled, dtype=torch.float32)
    module = problem.module(settings)
    drawn = initial_weights(module, settings.seed, problem.key.text)
    own = {name: torch.nn.Parameter(torch.tensor(array)) for name, array in drawn.items()}

    def loss(rows: Any) -> Any:
        weights = {name: array[None] for name, array in own.items()}
        scored = scores(module, weights, inputs[rows].flatten(1)[None])[0]
        above, below = torch.zeros(()), 0.0
        for at, row in enumerate(rows):
            for place, token in enumerate(problem.target.values[row].tolist()):
                if token != UNKNOWN:
                    above = above - 0.9**place * torch.log_softmax(scored[at, place], dim=0)[token]
                    below += 0.9**place
        return above / below

    held = validation_rows(problem.features.cluster, settings)
    rows, checked = np.flatnonzero(~held), np.flatnonzero(held)
    optimiser = torch.optim.AdamW(own.values(), lr=settings.rate, weight_decay=settings.decay)
    steps, at = settings.epochs * math.ceil(len(rows) / settings.batch), 0
    kept: list[tuple[float, dict[str, Any]]] = []
    for epoch in range(settings.epochs):
        for batch in order(rows, epoch, settings, "plan order"):
            optimiser.param_groups[0]["lr"] = settings.rate * (steps - at) / steps
            optimiser.zero_grad()
            loss(batch).backward()
            optimiser.step()
            at += 1
        with torch.no_grad():
            size = 4 * settings.batch
            parts = [checked[begin : begin + size] for begin in range(0, len(checked), size)]
            total = sum(len(part) * float(loss(part)) for part in parts) / max(1, len(checked))
        kept.append((total, {name: array.detach().numpy().copy() for name, array in own.items()}))
    best = min(range(settings.epochs), key=lambda at: kept[at][0]) if len(checked) else settings.epochs - 1
    return kept[best][1], best, [one for one, _ in kept]


@pytest.mark.parametrize("validation", [0.4, 0.0])
def test_a_fit_is_the_plain_loop_over_places_and_keeps_its_best_pass(validation: float) -> None:
    settings = replace(SETTINGS, validation=validation)
    problem = given()
    wanted, best, losses = loop(problem, settings)
    (found,) = fit([problem], settings)
    assert found.tags["kept"] == best == (losses.index(min(losses)) if validation else 3)
    for name, array in wanted.items():
        # A bias of the keys changes no attention: its gradient is rounding.
        keys = {"self.bias": slice(8, 16), "kv.bias": slice(0, 8)}.get(name.partition(".")[2].removeprefix("cross."))
        array[keys or slice(0, 0)] = found.weights[name][keys or slice(0, 0)]
        np.testing.assert_allclose(found.weights[name], array, rtol=2e-3, atol=5e-5, err_msg=name)
    held = validation_rows(problem.features.cluster, settings)
    assert held.sum() == (18 if validation else 0)  # two batches of the check, the last one of two steps
    if validation:
        assert max(losses) - min(losses) > 0.01 and best < 3  # the pass matters


def test_what_was_fitted_says_how_and_on_what() -> None:
    told: list[tuple[int, int]] = []
    kept: list[str] = []
    callbacks: Callbacks = Callbacks(
        keep=lambda probes: kept.extend(key.text for key in probes),
        progress=lambda done, total: told.append((done, total)),
    )
    problems = [given(seed=seed) for seed in (0, 1)]
    first, _ = fit(problems, SETTINGS, callbacks)
    used = {name: getattr(SETTINGS, name) for name in ("epochs", "batch", "validation", "seed")}
    used |= {"rate": SETTINGS.rate, "decay": SETTINGS.decay}  # as files have them
    assert dict(first.tags) == {"steps": 48, "grids": 16, "kept": first.tags["kept"], **used}
    assert (first.positions, first.horizon, first.source.width) == (3, 4, 15)
    assert (first.settings["layers"], first.settings["heads"]) == (2, 2)
    # Passes of single layers: two decoders of two layers.
    assert told == [(4, 16), (8, 16), (12, 16), (16, 16)] and sorted(kept) == [
        "decoder/none/plans 0/1",
        "decoder/none/plans 1/1",
    ]


def test_first_weights_have_the_spread_of_one_over_the_root_of_the_inputs() -> None:
    sizes: dict[str, Any] = {"width": 400, "feedforward": 100, "layers": 1}
    module = module_of("decoder", 900, 50, 5, positions=3, target="plan", **sizes)
    drawn = initial_weights(module, 0, "a")
    for name, spread in (("in", 1 / 30), ("queries", 1), ("0.self", 1 / 20), ("0.down", 1 / 10), ("out", 1 / 20)):
        assert float(drawn[name].std()) == pytest.approx(spread, rel=0.05), name
    assert {float(one) for name in ("norm.scale", "0.norm2.scale") for one in drawn[name]} == {1}
    assert not any(drawn[name].any() for name in ("in.bias", "out.bias", "norm.bias", "0.cross.kv.bias"))
    other = initial_weights(module, 0, "b")
    assert not np.array_equal(drawn["in"], other["in"])


def test_decoders_beyond_the_limit_of_memory_train_in_stacks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    one = given()
    problems = [
        Problem(key=key(str(at), "decoder", "plan"), features=one.features, target=one.target, settings={"layers": 2})
        for at in range(7)
    ]

    def sizes(limit: int, given: list[Problem]) -> list[int]:
        monkeypatch.setitem(fitting.ROOM, "cpu", limit)
        return [len(stack) for stack in stacks(given, SETTINGS)]

    weights = 5 * sum(int(np.prod(shape)) for shape in weight_shapes(one.module(SETTINGS)).values())
    assert one.numbers(SETTINGS, distinct=False) == weights
    assert sizes(3 * weights, problems) == [3, 3, 1]
    assert sizes(3 * weights - 1, problems) == [2, 2, 2, 1]
    assert sizes(1, problems) == [1] * 7
    # Inputs of their own count too: 48 steps of 15 numbers.
    others = [given(seed=seed) for seed in range(4)]
    assert sizes(3 * (weights + 48 * 15), others) == [3, 1]
    assert sizes(3 * (weights + 48 * 15) - 1, others) == [2, 2]
    monkeypatch.setattr(fitting, "PER_STACK", 4)
    assert sizes(1 << 40, problems) == [4, 3]


def test_grids_are_held_back_by_their_share_and_the_seed() -> None:
    names = np.array([f"{at:02d}" for at in range(12) for _ in range(1 + at % 2)], dtype=object)
    held = {}
    for validation, count in ((0.01, 1), (0.25, 3), (0.3, 4), (0.5, 6), (0.99, 11)):
        settings = PlanSettings(validation=validation)
        held[validation] = set(names[validation_rows(names, settings)].tolist())
        assert len(held[validation]) == count
    seeds = {frozenset(names[validation_rows(names, PlanSettings(seed=seed))].tolist()) for seed in range(6)}
    assert len(seeds) > 1
    assert not validation_rows(names[:1], PlanSettings(validation=0)).any()


def test_settings_out_of_their_range_are_refused() -> None:
    for changes, says in (
        ({"batch": True}, "batch of a fit must be a whole number >= 1, got True"),
        ({"feedforward": 0}, "feedforward of a fit"),
        ({"heads": 1.0}, "heads of a fit"),
        ({"rate": 0.0}, "rate must be > 0 and decay >= 0, got 0.0"),
        ({"decay": -1.0}, "decay >= 0"),
        ({"decay": float("nan")}, "decay >= 0"),
        ({"validation": -0.1}, r"validation .*\[0, 1\), got -0.1"),
    ):
        with pytest.raises(ValueError, match=says):
            PlanSettings(**changes)
    assert PlanSettings(decay=0.0, batch=1, epochs=1, width=8, feedforward=1).decay == 0
    laptop = PlanSettings(seed=2).for_laptop()
    assert (laptop.width, laptop.feedforward, laptop.epochs, laptop.rate, laptop.seed) == (64, 128, 20, 3e-3, 2)


def test_a_prediction_says_tokens_first_action_and_length() -> None:
    said = np.full((3, 2, 5), 0.1, dtype=np.float32)
    for row, (first, second) in enumerate(((3, END), (END, 1), (0, 2))):
        said[row, 0, first] = said[row, 1, second] = 0.6
    said[1, 0, 2] = 0.2
    said[1, 0, 0] = 0.0
    found = PlanPrediction(probabilities=said)
    assert found.tokens.tolist() == [[3, END], [END, 1], [0, 2]]
    assert found.first.tolist() == [3, 2, 0]  # the second one: the likeliest but for the end
    assert found.length.tolist() == [1, 0, 2]
    with pytest.raises(ValueError, match="sum to 1"):
        PlanPrediction(probabilities=said * np.float32(1.01))


def test_plans_of_other_steps_are_refused_and_exchanged_ones_keep_their_place() -> None:
    cells = cells_of(np.zeros((3, 9)), 1, 3)
    plans = Plans(
        tokens=np.array([[0, END], [1, UNKNOWN], [2, 3]], dtype=np.int8),
        episode_id=cells.episode_id,
        step=cells.step,
        cluster=cells.cluster,
    )
    np.testing.assert_array_equal(plans.length, [1, np.nan, 2])
    swapped = replace(plans, tokens=plans.tokens[np.array([2, 2, 0])])
    assert swapped.tokens.tolist() == [[2, 3], [2, 3], [0, END]]
    cells.check_aligned(swapped, "plans")
    with pytest.raises(ValueError, match=r"plans.* 2 steps.*got 3"):
        cells.where(np.array([0, 1])).check_aligned(plans, "plans")
    for name, values in (("step", cells.step + 1), ("cluster", cells.cluster[::-1])):
        names = {key: getattr(plans, key) for key in ("tokens", "episode_id", "step", "cluster")}
        with pytest.raises(ValueError, match=r"plans.*same steps"):
            cells.check_aligned(Plans(**(names | {name: values})), "plans")
    one = episode("#####\n#A_G#\n#####", [Action.RIGHT, Action.RIGHT], "goal")
    for number in (2, -1):
        wanted = cells_at([(one, 0)])
        moved = replace(wanted, step=np.array([number]))
        with pytest.raises(ValueError, match=f"{one.id} has no step {number}\\b"):
            label_plans(moved, [one])
