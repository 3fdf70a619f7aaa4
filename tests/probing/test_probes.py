"""The contract of a probe: what it refuses, what it keeps, and that fitting in company changes nothing."""

import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import activations, key, module_of, noise, rooms, wall_map

from goalscope._ground.rng import stream
from goalscope.inside.activations import Shard, write_shard
from goalscope.inside.probing import CLASSES, Features, FitSettings, Probe, Problem, fit
from goalscope.inside.probing.fitting import normalisation, order, stacks
from goalscope.inside.probing.heads import coordinates, initial_weights, normalised, scores, weight_shapes
from goalscope.inside.probing.probe import Callbacks

QUICK = FitSettings(epochs=2, hidden=8, batch=16)


def one(head: str = "percell", **changes: Any) -> Probe:
    cells = rooms()
    problem = Problem(key=key("one", head), features=Features.of(noise(cells, **changes)), target=cells.labels)
    found: Probe = fit([problem], QUICK)[0]
    return found


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"site": "post"}, "site 'pre', got 'post'"),
        ({"layer": 2}, "layer 1, got 2"),
        ({"model": "model-other"}, "model 'model-.*', got 'model-other'"),
    ],
)
def test_a_probe_refuses_activations_of_another_site_layer_or_model(changes: dict[str, Any], says: str) -> None:
    probe, cells = one(), rooms()
    assert probe.predict(noise(cells)).natural.shape == (len(cells), 25, 5)
    with pytest.raises(ValueError, match=says):
        probe.predict(noise(cells, **changes))


def test_a_probe_refuses_another_width_and_another_task() -> None:
    cells = rooms()
    with pytest.raises(ValueError, match="width"):
        one().predict(activations(cells, np.zeros((len(cells), 30))))
    with pytest.raises(ValueError, match=r"use predict$"):
        one().predict_number(noise(cells))


def test_activations_that_are_not_finite_are_refused_by_the_name_of_their_episode() -> None:
    cells = rooms()
    vectors = np.zeros((len(cells), 120))
    vectors[7, 3] = np.inf
    with pytest.raises(ValueError, match=r"finite.*episode-003 step 1, site pre, layer 1"):
        activations(cells, vectors)
    # Inputs that are no activations are checked alike, opposite infinities too.
    sound = Features.of(noise(cells))
    broken = sound.vectors.copy()
    broken[7, :2] = np.inf, -np.inf
    with pytest.raises(ValueError, match=r"finite.*episode-003 step 1"):
        Features(
            source=sound.source, vectors=broken, episode_id=cells.episode_id, step=cells.step, cluster=cells.cluster
        )


@pytest.mark.parametrize("head", ["majority", "position", "additive", "percell", "mlp"])
def test_a_probe_is_the_same_after_a_round_trip_and_equal_probes_are_equal_files(head: str, tmp_path: Path) -> None:
    probe, cells = one(head), rooms()
    size = probe.save(tmp_path / "a.safetensors")
    again = Probe.load(tmp_path / "a.safetensors")
    assert again.id == probe.id and again.tags == probe.tags and again.source == probe.source
    again.save(tmp_path / "b.safetensors")
    first, second = (tmp_path / "a.safetensors").read_bytes(), (tmp_path / "b.safetensors").read_bytes()
    assert first == second and len(first) == size
    one(head).save(tmp_path / "c.safetensors")
    assert (tmp_path / "c.safetensors").read_bytes() == first
    assert np.array_equal(again.predict(noise(cells)).natural, probe.predict(noise(cells)).natural)


def test_hostile_files_are_refused(tmp_path: Path) -> None:
    path, probe = tmp_path / "probe.safetensors", one("mlp")
    probe.save(path)
    sound = {"kind": "probe", "probe": probe.id, "classes": list(CLASSES), **probe.describe()}
    arrays = probe.arrays()

    def refused(says: str, header: dict[str, Any] | None = None, changed: dict[str, Any] | None = None) -> None:
        write_shard(path, Shard(header=sound | (header or {}), arrays=arrays | (changed or {})))
        with pytest.raises(ValueError, match=says):
            Probe.load(path)

    act = arrays["weights.act"]
    flipped = act.copy()
    flipped[0, 0] += 1
    refused("its content must have the id", changed={"weights.act": flipped})
    refused("finite", changed={"weights.act": np.full_like(act, np.nan)})
    refused("float32", changed={"weights.act": act[:-1].copy()})
    refused("other than float32 weights", changed={"weights.act": act.astype(np.float64)})
    refused("other than float32 weights", changed={"bomb": np.zeros(3, dtype=np.float32)})
    refused("5 weights, got 6; missing or unknown: more", changed={"weights.more": act})
    refused("float32", changed={"weights.bias": np.zeros((8, 8), dtype=np.float32)})
    refused("sum to 1", changed={"prior": np.full(5, np.nan)})
    refused("std must be >= 0", changed={"spread": -arrays["spread"]})
    refused("prior as a vector", changed={"prior": arrays["prior"][None]})
    refused("its content must have the id", {"site": "post"})
    refused("must be one of majority", {"head": "__import__"})
    refused("frame in its header must be int", {"frame": True})
    refused("from 1 to 256", {"frame": 10**9})
    refused("float32", {"width": 10**15})
    refused("vectors of equal width, got -1", {"width": -1})
    refused(r"standard deviation > 0, got \(0\.0, 0\.0\)", {"target": [0, 0]})
    refused("two numbers", {"target": [[], 1]})
    refused("plain values", {"tags": {"a": [1]}})
    refused("does not describe a probe", {"kind": "shard"})
    refused("its classes must be", {"classes": ["agent"]})
    with pytest.raises(FileNotFoundError, match="absent"):
        Probe.load(tmp_path / "absent")


def test_the_factorised_first_layer_equals_the_naive_one() -> None:
    import torch

    rng = stream(0, "factorised")
    frame, width, hidden, count = 4, 30, 16, 6
    cells = coordinates(frame)
    for head in ("mlp", "additive"):
        own: dict[str, Any] = {"hidden": hidden} if head == "mlp" else {}
        module = module_of(head, width, frame**2, 5, **own)
        weights = {name: rng.standard_normal(shape) for name, shape in weight_shapes(module).items()}
        vectors = rng.standard_normal((count, width))
        # Naive: one input of activation and coordinates for each pair, one matrix for both.
        pairs = np.array([[*vector, *cell] for vector in vectors for cell in cells])
        naive = pairs @ np.concatenate([weights["act"], weights["cell"]]) + weights["bias"]
        if head == "mlp":
            naive = np.maximum(naive, 0) @ weights["out"] + weights["out_bias"]
        tensors = {name: torch.tensor(array, dtype=torch.float32)[None] for name, array in weights.items()}
        found = scores(module, tensors, torch.tensor(vectors, dtype=torch.float32)[None])
        difference = np.abs(found[0].numpy() - naive.reshape(count, 16, 5))
        assert difference.max() <= 1e-5 * np.abs(naive).max()


def test_the_perceptron_in_pieces_has_the_gradients_of_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from goalscope.inside.probing import modules

    rng = stream(0, "perceptron")
    shapes = ((2, 7, 6), (2, 9, 6), (2, 6, 5), (2, 5))
    given = [torch.tensor(rng.standard_normal(shape), requires_grad=True) for shape in shapes]
    act, placed, out, bias = given
    plain = torch.relu(act[:, :, None] + placed[:, None]) @ out[:, None] + bias[:, None, None]
    back = torch.tensor(rng.standard_normal(tuple(plain.shape)))
    expected = torch.autograd.grad(plain, given, back)
    for piece in (1, 3 * 9 * 6, 1 << 18):  # one activation, three and a rest of one, all
        monkeypatch.setitem(modules._PIECE, "cpu", piece)
        found = modules.perceptron(*given)
        torch.testing.assert_close(found, plain)
        for one, other in zip(torch.autograd.grad(found, given, back), expected, strict=True):
            torch.testing.assert_close(one, other)


def test_the_number_of_threads_changes_no_byte_of_the_perceptron(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from goalscope.inside.probing import modules

    rng = stream(0, "threads")
    shapes = ((2, 9, 7), (2, 5, 7), (2, 7, 4), (2, 4))
    given = [torch.tensor(rng.standard_normal(shape), requires_grad=True) for shape in shapes]
    back = torch.tensor(rng.standard_normal((2, 9, 5, 4)))
    monkeypatch.setitem(modules._PIECE, "cpu", 2 * 5 * 3)  # several pieces for each thread and a rest
    monkeypatch.setattr(modules, "_SLICE", 3)
    used: set[str] = set()
    plain = modules._hidden

    def hidden(*arguments: torch.Tensor) -> torch.Tensor:
        used.add(threading.current_thread().name.rpartition("_")[0])
        assert not torch.is_grad_enabled()
        return plain(*arguments)

    monkeypatch.setattr(modules, "_hidden", hidden)
    kept: list[list[bytes]] = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 2):
            torch.set_num_threads(threads)
            used.clear()
            found = modules.perceptron(*given)
            kept.append([one.detach().numpy().tobytes() for one in (found, *torch.autograd.grad(found, given, back))])
            assert used == {"" if threads == 1 else "goalscope-pieces"}
            assert torch.get_num_threads() == threads
            with torch.inference_mode():
                assert modules.perceptron(*given).numpy().tobytes() == kept[-1][0]
    finally:
        torch.set_num_threads(before)
    assert kept[1:] == kept[:1] * 3


def test_the_perceptron_computes_in_a_fork_of_a_process_whose_threads_it_used() -> None:
    program = """
import os, torch
from goalscope.inside.probing import modules
torch.set_num_threads(2)
modules._PIECE["cpu"] = 8
given = torch.ones(1, 4, 2), torch.ones(1, 4, 2), torch.ones(1, 2, 3), torch.ones(1, 3)
assert modules.perceptron(*given).unique().tolist() == [5]
child = os.fork()
if child == 0:
    # Tensors as small as these need no threads of PyTorch's own, which a fork does not have either.
    os._exit(0 if modules.perceptron(*given).unique().tolist() == [5] else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_per_cell_weights_are_a_bilinear_map_of_activation_and_position() -> None:
    import torch

    rng = stream(0, "bilinear")
    act, bias, vectors = rng.standard_normal((7, 20)), rng.standard_normal(20), rng.standard_normal((3, 7))
    tensors = {"act": torch.tensor(act)[None], "bias": torch.tensor(bias)[None]}
    found = scores(module_of("percell", 7, 4, 5), tensors, torch.tensor(vectors)[None])[0].numpy()
    for cell in range(4):
        position = np.eye(4)[cell]
        product = np.einsum("nf,c->nfc", vectors, position).reshape(3, -1)
        weights = act.reshape(7, 4, 5).reshape(28, 5)
        np.testing.assert_allclose(found[:, cell], product @ weights + bias.reshape(4, 5)[cell])


def test_probes_fitted_together_equal_those_fitted_alone() -> None:
    cells = rooms()
    trained, other = Features.of(wall_map(cells)), Features.of(noise(cells, seed=3, layer=2))
    turned = np.roll(cells.labels, 2, axis=0)
    problems = [
        Problem(key=key(f"{head} {name}", head), features=features, target=labels)
        for head in ("additive", "percell", "mlp", "majority", "position")
        for name, features, labels in (
            ("real", trained, cells.labels),
            ("turned", trained, turned),
            ("noise", other, cells.labels),
        )
    ]
    assert [len(stack) for stack in stacks(problems[:9], QUICK)] == [3, 3, 3]
    together = fit(problems, QUICK)
    for problem, probe in zip(problems, together, strict=True):
        alone = fit([problem], QUICK)[0]
        for name, array in probe.weights.items():
            np.testing.assert_allclose(array, alone.weights[name], rtol=1e-3, atol=2e-5, err_msg=problem.key.text)
        np.testing.assert_allclose(
            probe.predict(problem.features).natural, alone.predict(problem.features).natural, atol=1e-4
        )
    # The comparison can fail: what differs in the data differs in the weights.
    assert np.abs(together[0].weights["act"] - together[1].weights["act"]).max() > 1e-3


def test_normalisation_is_that_of_the_training_steps_and_leaves_out_what_does_not_vary() -> None:
    rng = stream(0, "normalisation")
    vectors = rng.normal(3, 2, (50, 4)).astype(np.float32)
    vectors[:, 1] = 7
    vectors[:, 2] = 1000 + 1e-5 * vectors[:, 3]
    centre, spread = normalisation(vectors)
    np.testing.assert_allclose(centre, vectors.astype(np.float64).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(spread[[0, 3]], vectors[:, [0, 3]].astype(np.float64).std(axis=0), rtol=1e-6)
    assert spread[1] == spread[2] == 0
    cells = rooms()
    given = Features.of(noise(cells))
    half = np.arange(len(cells)) < 40
    problem = Problem(key=key("half", "percell"), features=given.where(half), target=cells.labels[half])
    probe = fit([problem], QUICK)[0]
    np.testing.assert_allclose(probe.mean, given.vectors[:40].mean(axis=0), atol=1e-6)
    doubled = Features.of(activations(cells, 2 * given.vectors))
    assert not np.allclose(probe.outputs(doubled), probe.outputs(given), atol=1e-3)


def test_activations_too_small_for_float32_count_as_not_varying() -> None:
    rng = stream(0, "subnormal")
    vectors = rng.standard_normal((50, 2)).astype(np.float32) * np.float32(1e-42)
    assert np.count_nonzero(vectors) > 50  # subnormal, not 0
    assert normalisation(vectors)[1].tolist() == [0, 0]
    scaled = rng.standard_normal((50, 2)).astype(np.float32) * np.float32(1e-36)
    centre, spread = normalisation(scaled)
    np.testing.assert_allclose(normalised(scaled, centre, spread).std(axis=0), 1, rtol=1e-5)


def test_every_pass_shows_every_step_once_and_the_seed_decides_the_order() -> None:
    batches = [rows for epoch in range(2) for rows in order(np.arange(37), epoch, QUICK, "probe order")]
    assert [len(batch) for batch in batches] == [16, 16, 5] * 2
    assert sorted(np.concatenate(batches[:3])) == list(range(37))
    again = list(order(np.arange(37), 0, FitSettings(batch=16, seed=1), "probe order"))
    assert not np.array_equal(batches[0], again[0])
    module = module_of("mlp", 6, 9, 5, hidden=4)
    first, second = initial_weights(module, 0, ""), initial_weights(module, 1, "")
    assert not np.array_equal(first["act"], second["act"])


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_numbers_are_predicted_in_their_own_unit(head: str, tmp_path: Path) -> None:
    cells = rooms(grids=400)
    given = Features.of(noise(cells))
    planted = 20 + 3 * given.vectors[:, 0] - 2 * given.vectors[:, 5]
    train = np.arange(len(cells)) < 640
    problem = Problem(key=key("steps", head, "distance"), features=given.where(train), target=planted[train])
    settings = FitSettings(epochs=30, rate=1e-2, hidden=32)
    probe = fit([problem], settings)[0]
    error = np.abs(probe.predict_number(given.where(~train)) - planted[~train])
    spread = np.abs(planted[~train] - planted[train].mean()).mean()
    assert error.mean() < (0.02 if head == "linear" else 0.6) * spread
    probe.save(tmp_path / "number")
    assert np.array_equal(Probe.load(tmp_path / "number").predict_number(given), probe.predict_number(given))
    with pytest.raises(ValueError, match="use predict_number"):
        probe.predict(given)


def test_bad_problems_and_settings_are_refused() -> None:
    import torch

    cells = rooms()
    given = Features.of(noise(cells))
    good = Problem(key=key("a", "percell"), features=given, target=cells.labels)
    with pytest.raises(ValueError, match="different keys"):
        fit([good, good])
    with pytest.raises(ValueError, match=r"distance.*linear, mlp.*, got 'percell'"):
        Problem(key=key("a", "percell", "distance"), features=given, target=np.ones(len(cells)))
    with pytest.raises(ValueError, match="integers from 0 to 4"):
        Problem(key=key("a", "mlp"), features=given, target=cells.labels + 1)
    with pytest.raises(ValueError, match="square"):
        Problem(key=key("a", "mlp"), features=given, target=cells.labels[:, :24])
    with pytest.raises(ValueError, match="finite"):
        Problem(key=key("a", "mlp", "distance"), features=given, target=np.full(len(cells), np.nan))
    with pytest.raises(ValueError, match="epochs"):
        FitSettings(epochs=0)
    with pytest.raises(ValueError, match="rate must"):
        FitSettings(rate=float("nan"))
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="GPU"):
            fit([good], FitSettings(device="cuda"))
    with pytest.raises(ValueError, match=r"'mlp/.*converge"):
        fit([Problem(key=key("a", "mlp"), features=given, target=cells.labels)], FitSettings(epochs=9, rate=1e34))


@pytest.mark.parametrize("head", ["additive", "percell", "mlp"])
def test_several_at_once_are_each_alone(head: str) -> None:
    """The law of `stacked`: the scores and gradients of `forward` under `torch.func.vmap`."""
    import torch
    from torch.func import functional_call, vmap

    rng = stream(0, "stacked")
    own: dict[str, Any] = {"hidden": 6} if head == "mlp" else {}
    module = module_of(head, 7, 9, 5, **own)
    weights = {
        name: torch.tensor(rng.standard_normal((3, *shape)), dtype=torch.float32, requires_grad=True)
        for name, shape in weight_shapes(module).items()
    }
    vectors = torch.tensor(rng.standard_normal((3, 4, 7)), dtype=torch.float32)
    back = torch.tensor(rng.standard_normal((3, 4, 9, 5)), dtype=torch.float32)
    for given in (vectors, vectors[:1]):
        found = scores(module, weights, given)
        several = vmap(lambda one, inputs: functional_call(module, one, (inputs,)))
        plain = several(weights, given.expand(3, -1, -1))
        torch.testing.assert_close(found, plain)
        grads = [torch.autograd.grad(one, list(weights.values()), back) for one in (found, plain)]
        for mine, theirs in zip(*grads, strict=True):
            torch.testing.assert_close(mine, theirs)


class Elsewhere(ThreadPoolExecutor):
    """Passes everything on as another process would get it, and counts."""

    def __init__(self) -> None:
        super().__init__(2)
        self.sent = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.sent += 1
        call = pickle.loads(pickle.dumps((fn, args)))  # noqa: S301 - what was just written
        return super().submit(lambda: pickle.loads(pickle.dumps(call[0](*call[1]))))  # noqa: S301


def test_probes_that_are_fitted_elsewhere_are_the_same_to_the_byte() -> None:
    cells = rooms()
    features = Features.of(noise(cells))
    problems = [
        Problem(key=key(f"{head}-{n}", head), features=features, target=cells.labels)
        for n in (1, 2)
        for head in ("mlp", "percell")
    ]
    told: list[tuple[int, int]] = []
    with Elsewhere() as pool:
        made = fit(problems, QUICK, Callbacks(pool=pool, progress=lambda done, total: told.append((done, total))))
    assert pool.sent == 2 and told[-1][0] == told[-1][1]
    assert [probe.id for probe in made] == [probe.id for probe in fit(problems, QUICK)]
