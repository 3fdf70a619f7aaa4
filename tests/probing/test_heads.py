"""Heads of others: any module is trained as one probe or several, and its file is as safe as those of our own."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import key, noise, rooms

from goalscope._ground import registry
from goalscope._ground.rng import stream
from goalscope.inside.activations import Shard, write_shard
from goalscope.inside.probing import CLASSES, Features, FitSettings, HeadSizes, Probe, Problem, find_head, fit, head
from registered import entries_of

SETTINGS = FitSettings(epochs=4, rate=0.02, batch=16, validation=0.0)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register a head as another package does, for one test."""
    registry.names("head")
    monkeypatch.setitem(registry._entries, "head", entries_of("head"))

    @head("narrow")
    def build(sizes: HeadSizes, directions: int = 2) -> Any:
        from torch import nn

        return nn.Sequential(
            nn.Linear(sizes.inputs, directions),
            nn.Linear(directions, sizes.outputs * sizes.classes),
            nn.Unflatten(-1, (sizes.outputs, sizes.classes)),
        )

    yield


def problem(name: str = "one", seed: int = 0, **changes: Any) -> Problem:
    cells = rooms()
    given: dict[str, Any] = {"features": Features.of(noise(cells, seed)), "target": cells.labels}
    return Problem(key=key(name, "narrow"), **(given | changes))


def test_a_module_is_trained_as_torch_trains_it_alone() -> None:
    """Against a loop over the very module, with torch's own optimiser and no `vmap`."""
    import torch

    one = problem()
    (probe,) = fit([one], SETTINGS)
    module = find_head("narrow", "cells").module(one.sizes, {}, seed=SETTINGS.seed)
    optimiser = torch.optim.AdamW(module.parameters(), lr=SETTINGS.rate, weight_decay=SETTINGS.decay)
    given = one.features.vectors
    inputs = torch.tensor((given - given.mean(axis=0)) / given.std(axis=0))
    labels = torch.tensor(rooms().labels.astype(np.int64))
    counts = np.bincount(labels.numpy().ravel(), minlength=5)
    weight = torch.tensor(labels.numel() / (counts * (counts > 0).sum()), dtype=torch.float32)
    loss = torch.nn.CrossEntropyLoss(weight, reduction="none")
    batches = [
        np.split(stream(SETTINGS.seed, "probe order", len(given), epoch).permutation(len(given)), range(16, 80, 16))
        for epoch in range(SETTINGS.epochs)
    ]
    steps = [rows for epoch in batches for rows in epoch]
    for number, rows in enumerate(steps):
        optimiser.param_groups[0]["lr"] = SETTINGS.rate * (1 - number / len(steps))
        optimiser.zero_grad()
        loss(module(inputs[rows]).mT, labels[rows]).mean().backward()
        optimiser.step()
    for name, tensor in module.named_parameters():
        np.testing.assert_allclose(probe.weights[name], tensor.detach(), rtol=1e-3, atol=2e-5, err_msg=name)


def test_several_train_together_as_each_alone_and_begin_alike() -> None:
    problems = [problem("a"), problem("b", 1), problem("c", target=np.roll(rooms().labels, 2, axis=0))]
    for one, probe in zip(problems, fit(problems, SETTINGS), strict=True):
        (alone,) = fit([one], SETTINGS)
        for name, array in probe.weights.items():
            np.testing.assert_allclose(array, alone.weights[name], rtol=1e-3, atol=2e-5)
    first, again = (fit([problem()], SETTINGS)[0] for _ in range(2))
    assert first.id == again.id != fit([problem()], replace(SETTINGS, seed=1))[0].id


def test_its_settings_are_kept_and_its_file_is_read_again(tmp_path: Path) -> None:
    (probe,) = fit([problem(settings={"directions": 3})], SETTINGS)
    probe.save(tmp_path / "probe")
    again = Probe.load(tmp_path / "probe")
    assert again.id == probe.id and again.settings == {"directions": 3}
    cells = rooms()
    assert np.array_equal(again.predict(noise(cells)).natural, probe.predict(noise(cells)).natural)
    assert probe.predict(noise(cells).where(np.zeros(0, dtype=np.int64))).natural.shape == (0, 25, 5)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"directions": -1}, "settings .*directions"),
        ({"directions": "many"}, "settings .*directions"),
        ({"directions": 1 << 70}, "settings .*directions"),
        ({"directions": 1 << 40}, "must be float32"),
        ({"directions": [3]}, "plain values of directions, got 'directions'"),
        ({"other": 3}, "plain values of directions, got 'other'"),
        ([3], "settings must be a mapping"),
    ],
)
def test_a_file_with_settings_that_do_not_fit_is_refused(settings: Any, says: str, tmp_path: Path) -> None:
    (probe,) = fit([problem()], SETTINGS)
    header = {"kind": "probe", "probe": probe.id, "classes": list(CLASSES), **probe.describe(), "settings": settings}
    write_shard(tmp_path / "probe", Shard(header=header, arrays=probe.arrays()))
    with pytest.raises(ValueError, match=says):
        Probe.load(tmp_path / "probe")


def test_a_head_that_is_not_there_or_for_another_target_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cells.*majority, .*narrow, got 'norrow'"):
        problem(head="norrow")
    with pytest.raises(ValueError, match=r"plan.*decoder, stepwise, got 'narrow'"):
        find_head("narrow", "plan")


def test_a_class_of_modules_is_a_head_too() -> None:
    from torch import Tensor, nn

    @head("direct", targets=("distance",))
    class Direct(nn.Module):
        """The sum of the inputs, scaled and shifted."""

        def __init__(self, sizes: HeadSizes, begin: float = 0.5) -> None:
            import torch

            super().__init__()
            self.scale = nn.Parameter(torch.full((1, 2), begin))

        def forward(self, vectors: Tensor) -> Tensor:
            """Return the scores."""
            return (vectors.sum(dim=1)[:, None] * self.scale[:, 0] + self.scale[:, 1])[:, None]

    assert find_head("direct", "distance").settings == {"begin": 0.5}
    given = Features.of(noise(rooms()))
    target = given.vectors.sum(axis=1).astype(np.float64)
    settings = FitSettings(epochs=40, rate=0.05)
    (probe,) = fit([Problem(key=key("sum", "direct", "distance"), features=given, target=target)], settings)
    error = np.abs(probe.predict_number(given) - target).mean()
    assert error < 0.2 * np.abs(target - target.mean()).mean()
