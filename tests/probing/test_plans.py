"""Plans: what is a target, what the decoder is, what it refuses and keeps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import activations, key, module_of
from planted_plans import QUICK, nothing, random_plans, worlds
from replays import GRIDS

from goalscope._ground.rng import stream
from goalscope.inside.activations import Shard, write_shard
from goalscope.inside.probing import (
    END,
    UNKNOWN,
    Cells,
    Features,
    Plans,
    PlanSettings,
    Probe,
    Problem,
    fit,
    label_grid,
    label_plans,
)
from goalscope.inside.probing.fitting import order, plan_loss, stacks, validation_rows
from goalscope.inside.probing.heads import initial_weights, scores
from goalscope.inside.probing.labels import TOKENS, plan_length
from goalscope.runs import Episode, EpisodeSpec, GridWorld, Step
from goalscope.worlds import Action, Grid, initial_state, shown, step

D, R, L, U = Action.DOWN, Action.RIGHT, Action.LEFT, Action.UP


def episode(text: str, actions: list[Action | None], outcome: str, trajectory: int = 0) -> Episode:
    world = GridWorld(grid=Grid.parse(text))
    spec = EpisodeSpec(world_id=world.id, agent_id="agent", trajectory=trajectory, seed=0, horizon=20)
    state, steps = initial_state(world.grid), []
    for number, action in enumerate(actions):
        failure = None if action is not None else "no JSON"
        steps.append(Step(index=number, state=state, action=action, failure=failure))
        state = state if action is None else step(world.grid, state, action)
    return Episode(spec=spec, world=world, agent="a", steps=tuple(steps), final=state, outcome=outcome)  # type: ignore[arg-type]


def cells_at(pairs: list[tuple[Episode, int]], frame: int = 6) -> Cells:
    grids = [shown(one.world.grid, one.steps[number].state) for one, number in pairs]
    return Cells(
        frame=frame,
        labels=np.stack([label_grid(grid, frame).ravel() for grid in grids]),
        shape=np.array([grid.walls.shape for grid in grids]),
        density=np.full(len(pairs), np.nan),
        episode_id=np.array([one.id for one, _ in pairs], dtype=object),
        step=np.array([number for _, number in pairs]),
        cluster=np.array([one.world.id for one, _ in pairs], dtype=object),
        reasoning=np.full(len(pairs), "", dtype=object),
    )


def problem(name: str = "one", layers: int = 1, seed: int = 0, **changes: Any) -> Problem:
    cells = worlds()
    given: dict[str, Any] = {"features": Features.of(nothing(cells, seed)), "target": random_plans(cells).tokens}
    return Problem(key=key(name, "decoder", "plan"), settings={"layers": layers}, **(given | changes))


def decoder(**changes: Any) -> Probe:
    found: Probe = fit([problem(features=Features.of(nothing(worlds(), **changes)))], QUICK)[0]
    return found


def executed(one: Episode, number: int, horizon: int) -> Any:
    return label_plans(cells_at([(one, number)]), [one], horizon=horizon).tokens[0]


def test_targets_are_the_executed_actions_from_the_step_on() -> None:
    arrived = episode(GRIDS[1], [D, D, R, R, R], "goal")
    stopped = episode(GRIDS[1], [R, None, R, R, D], "horizon", trajectory=1)
    assert executed(arrived, 0, 4).tolist() == [D, D, R, R]
    assert executed(arrived, 2, 5).tolist() == [R, R, R, END, END]
    assert executed(stopped, 0, 6).tolist() == [R, R, R, D, UNKNOWN, UNKNOWN]
    assert executed(stopped, 1, 3).tolist() == [R, R, D]
    pairs = [(stopped, 4), (arrived, 4), (arrived, 0)]
    plans = label_plans(cells_at(pairs), [arrived, stopped], horizon=3)
    assert plans.tokens.tolist() == [[D, UNKNOWN, UNKNOWN], [R, END, END], [D, D, R]]
    np.testing.assert_array_equal(plans.length, [np.nan, 1, 3])
    kept = label_plans(cells_at(pairs), [arrived, stopped], horizon=3, dropped=True)
    assert kept.tokens.tolist() == [[D, UNKNOWN, UNKNOWN], [R, END, END], [UNKNOWN] * 3]  # the last has five moves
    with pytest.raises(ValueError, match="episodes"):
        label_plans(cells_at(pairs), [arrived])
    with pytest.raises(ValueError, match="horizon"):
        label_plans(cells_at(pairs), [arrived, stopped], horizon=0)


def test_plans_are_checked() -> None:
    cells = worlds(2)
    names = {name: getattr(cells, name) for name in ("episode_id", "step", "cluster")}
    for tokens, says in (
        ([[0, 5], [0, 0]], "tokens from -1 to 4"),
        ([[END, 0], [0, 0]], r"after its end.*\[4, 0\] at episode-000 step 0"),
        ([[0, 0], [UNKNOWN, END]], "episode-001"),
        ([[0.5, 0], [0, 0]], "integers"),
    ):
        with pytest.raises(ValueError, match=says):
            Plans(tokens=np.array(tokens), **names)
    plans = random_plans(cells)
    with pytest.raises(ValueError, match="episode-001"):
        cells.check_aligned(plans.where(np.array([1, 0])), "plans")
    assert plan_length(np.array([[END, END], [1, END], [1, 1]])).tolist() == [0, 1, 2]


@pytest.mark.parametrize("layers", [1, 2])
def test_the_decoder_is_the_librarys_transformer_decoder(layers: int) -> None:
    import torch
    from torch import nn

    inner, heads, width, horizon = 16, 4, 7, 5
    own: dict[str, Any] = {"width": inner, "feedforward": 24, "layers": layers, "heads": heads}
    network = module_of("decoder", width, horizon, 5, positions=3, target="plan", **own)
    rng = stream(0, "oracle")
    drawn = initial_weights(network, 0, "oracle")
    # Biases and scales that do nothing would hide where they stand.
    ours = {key: torch.tensor(one + 0.1 * rng.standard_normal(one.shape)).float() for key, one in drawn.items()}
    layer = nn.TransformerDecoderLayer(inner, heads, 24, dropout=0.0, batch_first=True, norm_first=True)
    library = nn.TransformerDecoder(layer, layers, norm=nn.LayerNorm(inner)).eval()
    bottleneck, norm, head = nn.Linear(width, inner), nn.LayerNorm(inner), nn.Linear(inner, len(TOKENS))

    def put(module: Any, weight: torch.Tensor, bias: torch.Tensor) -> None:
        module.weight.data, module.bias.data = weight.clone(), bias.clone()

    put(bottleneck, ours["in"].T, ours["in.bias"])
    put(norm, ours["in.norm.scale"], ours["in.norm.bias"])
    put(head, ours["out"].T, ours["out.bias"])
    put(library.norm, ours["norm.scale"], ours["norm.bias"])
    for at, one in enumerate(library.layers):
        for module, projected in (
            (one.self_attn, [ours[f"{at}.self"].T]),
            (one.multihead_attn, [ours[f"{at}.cross.q"].T, ours[f"{at}.cross.kv"].T]),
        ):
            module.in_proj_weight.data = torch.cat(projected)
        one.self_attn.in_proj_bias.data = ours[f"{at}.self.bias"].clone()
        one.multihead_attn.in_proj_bias.data = torch.cat([ours[f"{at}.cross.q.bias"], ours[f"{at}.cross.kv.bias"]])
        put(one.self_attn.out_proj, ours[f"{at}.self.out"].T, ours[f"{at}.self.out.bias"])
        put(one.multihead_attn.out_proj, ours[f"{at}.cross.out"].T, ours[f"{at}.cross.out.bias"])
        put(one.linear1, ours[f"{at}.up"].T, ours[f"{at}.up.bias"])
        put(one.linear2, ours[f"{at}.down"].T, ours[f"{at}.down.bias"])
        for number, part in enumerate((one.norm1, one.norm2, one.norm3)):
            put(part, ours[f"{at}.norm{number}.scale"], ours[f"{at}.norm{number}.bias"])
    given = torch.tensor(rng.standard_normal((6, 3, width))).float()
    with torch.inference_mode():
        wanted = head(library(ours["queries"].expand(6, -1, -1), norm(bottleneck(given))))
        found = scores(network, {key: one[None] for key, one in ours.items()}, given.flatten(1)[None])[0]
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_the_loss_is_the_weighted_mean_over_known_places() -> None:
    import torch

    rng = stream(0, "loss")
    scored = rng.standard_normal((2, 3, 4, 5))
    tokens = np.array([[[0, 1, 4, 4], [2, 3, UNKNOWN, UNKNOWN], [1, 1, 1, 1]]] * 2)
    tokens[1, 0, 0] = 3
    steps = np.array([1.0, 0.25, 2.0])
    for probe in range(2):
        above = below = 0.0
        for row in range(3):
            for place in range(4):
                token = tokens[probe, row, place]
                if token != UNKNOWN:
                    one = scored[probe, row, place]
                    above += steps[row] * 0.9**place * (np.log(np.exp(one).sum()) - one[token])
                    below += steps[row] * 0.9**place
        found = plan_loss(torch.tensor(scored), torch.tensor(tokens), torch.tensor(steps))[probe]
        assert float(found) == pytest.approx(above / below)


def test_decoders_fitted_together_equal_those_fitted_alone() -> None:
    cells = worlds()
    turned = np.roll(random_plans(cells).tokens, 3, axis=0)
    shared = Features.of(nothing(cells))
    problems = [
        problem("real", 2, features=shared),
        problem("turned", 2, features=shared, target=turned),
        problem("other", 2, seed=3, features=Features.of(nothing(cells, 3, layer=2))),
        problem("small", 1, features=shared),
    ]
    assert [[one.key.site for one in stack] for stack in stacks(problems, QUICK)] == [
        ["real", "turned", "other"],
        ["small"],
    ]
    together = fit(problems, QUICK)
    for one, found in zip(problems, together, strict=True):
        alone = fit([one], QUICK)[0]
        assert found.tags["kept"] == alone.tags["kept"]
        for name, array in found.weights.items():
            np.testing.assert_allclose(array, alone.weights[name], rtol=1e-3, atol=2e-5, err_msg=name)
        wanted = alone.predict_plan(one.features).probabilities
        np.testing.assert_allclose(found.predict_plan(one.features).probabilities, wanted, atol=1e-4)
    # The comparison can fail: what differs in the data differs in the weights.
    assert np.abs(together[0].weights["out"] - together[1].weights["out"]).max() > 1e-3


def test_a_batch_is_decoded_as_its_steps_alone() -> None:
    cells = worlds(300)
    given, fitted = nothing(cells, 7), decoder()
    whole = fitted.predict_plan(given).probabilities
    for at in (0, 255, 256, 299):
        alone = fitted.predict_plan(given.where(np.array([at]))).probabilities[0]
        np.testing.assert_allclose(whole[at], alone, rtol=1e-4, atol=1e-6)
    assert fitted.predict_plan(given.where(np.zeros(0, dtype=np.int64))).tokens.shape == (0, 10)


def test_seed_and_name_decide_all() -> None:
    first, again, other = decoder(), decoder(), fit([problem("two")], QUICK)[0]
    assert first.id == again.id != other.id
    assert fit([problem()], replace(QUICK, seed=1))[0].id != first.id


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"site": "post"}, "site 'pre', got 'post'"),
        ({"layer": 2}, "layer 1, got 2"),
        ({"model": "model-other"}, "model 'model-.*', got 'model-other'"),
    ],
)
def test_a_decoder_refuses_activations_of_another_site_layer_or_model(changes: dict[str, Any], says: str) -> None:
    cells = worlds(3)
    assert decoder().predict_plan(nothing(cells)).tokens.shape == (3, 10)
    with pytest.raises(ValueError, match=says):
        decoder().predict_plan(nothing(cells, **changes))


def test_activations_that_are_not_finite_name_their_episode() -> None:
    cells = worlds(9)
    vectors = np.array(nothing(cells).vectors)
    vectors[5, 1, 2] = np.nan
    with pytest.raises(ValueError, match=r"finite.*episode-005 step 0, site pre, layer 1"):
        activations(cells, vectors)


def test_validation_grids_are_whole_grids_of_the_training_part() -> None:
    cells = worlds(30, steps=3)
    held = validation_rows(cells.cluster, QUICK)
    assert held.sum() == 3 * 5
    assert not set(cells.cluster[held]) & set(cells.cluster[~held])
    turned = stream(0, "turn").permutation(len(cells))
    assert (validation_rows(cells.cluster[turned], QUICK) == held[turned]).all()
    assert not validation_rows(cells.cluster, PlanSettings(validation=0)).any()
    with pytest.raises(ValueError, match="grids"):
        validation_rows(cells.cluster[:3], QUICK)
    rows = np.flatnonzero(~held)
    for epoch in range(2):
        assert sorted(np.concatenate(list(order(rows, epoch, QUICK, "plan order")))) == rows.tolist()


def test_the_kept_pass_is_the_one_with_the_least_validation_loss() -> None:
    # Noise is learned by heart: more passes fit the training steps better and the held-back grids worse.
    few, many = (
        PlanSettings(width=16, feedforward=16, heads=4, epochs=epochs, rate=1e-2, validation=0.3) for epochs in (1, 25)
    )
    kept = fit([problem()], many)[0]
    assert int(str(kept.tags["kept"])) < 24
    assert fit([problem()], few)[0].tags["kept"] == 0


def test_without_a_known_plan_to_choose_by_the_last_pass_is_kept() -> None:
    settings = PlanSettings(width=16, feedforward=16, heads=4, epochs=3, rate=1e-2, validation=0.3)
    one = problem()
    tokens = one.target.values.copy()
    tokens[validation_rows(one.features.cluster, settings)] = UNKNOWN
    fitted = fit([replace(one, target=tokens), replace(one, key=key("b", "decoder", "plan"))], settings)
    assert fitted[0].tags["kept"] == 2
    assert fitted[1].id == fit([replace(one, key=key("b", "decoder", "plan"))], settings)[0].id


def test_saving_and_loading_gives_the_same_bytes_and_predictions(tmp_path: Path) -> None:
    fitted, cells = decoder(), worlds(5)
    size = fitted.save(tmp_path / "a.safetensors")
    again = Probe.load(tmp_path / "a.safetensors")
    assert again.id == fitted.id and again.tags == fitted.tags and again.source == fitted.source
    again.save(tmp_path / "b.safetensors")
    first = (tmp_path / "a.safetensors").read_bytes()
    assert first == (tmp_path / "b.safetensors").read_bytes() and len(first) == size
    found, wanted = again.predict_plan(nothing(cells)), fitted.predict_plan(nothing(cells))
    assert np.array_equal(found.probabilities, wanted.probabilities)


def test_hostile_files_are_refused(tmp_path: Path) -> None:
    path, fitted = tmp_path / "decoder.safetensors", decoder()
    sound = {"kind": "plan-decoder", "decoder": fitted.id, "tokens": list(TOKENS), **fitted.describe()}
    arrays = fitted.arrays()

    def refused(says: str, header: Any = None, **changed: Any) -> None:
        kept = {name: array for name, array in {**arrays, **changed}.items() if array is not None}
        write_shard(path, Shard(header={**sound, **(header or {})}, arrays=kept))
        with pytest.raises(ValueError, match=says):
            Probe.load(path)

    out = arrays["weights.out"]
    flipped = out.copy()
    flipped[0, 0] += 1
    refused("its content must have the id", **{"weights.out": flipped})
    refused("finite", **{"weights.out": np.full_like(out, np.inf)})
    refused("must be float32", **{"weights.out": out[:-1].copy()})
    refused("float32 weights: 'weights.out'", **{"weights.out": out.astype(np.float64)})
    refused("missing or unknown: out", **{"weights.out": None})
    refused("multiple of its 4 heads, got 0", **{"weights.in": None})
    refused("must contain centre", centre=None)
    refused("other than float32 weights", bomb=np.zeros(3, dtype=np.float32))
    refused("std must be >= 0", spread=-arrays["spread"])
    refused("its content must have the id", {"site": "post"})
    refused(r"weights, got 29; missing or unknown: 1\.cross", {"layers": 64})
    refused("from 1 to 64", {"layers": 10**9})
    refused("from 1 to 4096", {"horizon": -1})
    refused("multiple of its 5 heads", {"heads": 5})
    refused("3 vectors of equal width", {"width": 10})
    refused("3 vectors of equal width", {"width": -3})
    refused("positions in its header must be int", {"positions": True})
    refused("its tokens must be", {"tokens": ["UP"]})
    refused("plain values", {"tags": {"a": [1]}})
    refused("does not describe a probe", {"kind": "shard"})
    refused("probe in its header must be str", {"kind": "probe"})


def test_bad_problems_and_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="different keys"):
        fit([problem(), problem()])
    with pytest.raises(ValueError, match="known plans"):
        problem(target=np.full((60, 10), UNKNOWN, dtype=np.int8))
    with pytest.raises(ValueError, match="60 steps, got 59"):
        problem(target=np.zeros((59, 10), dtype=np.int8))
    with pytest.raises(ValueError, match="layers"):
        fit([problem(layers=0)], QUICK)
    cells = worlds(4)
    with pytest.raises(ValueError, match="width 96, got 30"):
        decoder().predict_plan(activations(cells, np.zeros((4, 30))))
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"epochs": 0}, "epochs"),
        ({"rate": float("nan")}, "rate"),
        ({"width": 12}, "multiple of the 8 heads"),
        ({"validation": 1.0}, "validation"),
    )
    for changed, says in changes:
        with pytest.raises(ValueError, match=says):
            PlanSettings(**changed)
    with pytest.raises(ValueError, match=r"must converge|finite"):
        fit([problem()], PlanSettings(width=16, heads=4, feedforward=16, epochs=9, rate=1e34, validation=0))
