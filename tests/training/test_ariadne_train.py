"""Training on task worlds learns, and continues exactly where it stopped; the same code trains both bundled models."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from goalscope.agents.models import read_training
from training.network import Shape
from training.task_data import TaskMixture
from training.task_evaluate import held_out
from training.task_loss import task_loss
from training.task_tree import FIRST_CELL, TaskBatch
from training.task_vocabulary import STEPS, VOCABULARY_SIZE, vocabulary
from training.theseus import main
from training.train import Run, Settings

MIXTURE = TaskMixture(presets=("high-small", "medium-small"), tokens=400, steps=2)
TINY = Settings(
    shape=Shape(width=32, layers=3, heads=2, key_heads=1, head_width=16, expert_width=16, vocabulary=VOCABULARY_SIZE),
    mixture=MIXTURE,
    small_steps=0,
    auxiliary_steps=1000,
    warmup=3,
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def weights(run: Run) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().copy() for name, value in run.parameters.items()}


def test_a_resumed_run_is_the_run_that_went_through(tmp_path: Path) -> None:
    through, first = Run(TINY, tmp_path / "a"), Run(TINY, tmp_path / "b")
    losses = [through.train_step(1.0) for _ in range(5)]
    before = [first.train_step(1.0) for _ in range(3)]
    first.save()
    second = Run(TINY, tmp_path / "b")
    assert before + [second.train_step(1.0) for _ in range(2)] == losses
    assert all(np.array_equal(value, weights(through)[name]) for name, value in weights(second).items())
    assert Settings.parse(json.loads(json.dumps(asdict(TINY)))) == TINY


@pytest.mark.full
def test_a_tiny_model_learns_one_batch_by_heart(tmp_path: Path) -> None:
    run = Run(replace(TINY, rate=0.01), tmp_path)
    batch = run.next_batch()
    losses = []
    for _ in range(120):
        run._ready = [batch]
        losses.append(run.train_step(1.0)["first"])
    assert losses[0] > 5
    assert losses[-1] < entropy(batch) + 0.2


def entropy(batch: TaskBatch) -> float:
    """Return the mean entropy of the good moves from the agent's own cell."""
    moves = batch.moves[batch.own & (batch.moves.sum(axis=1) > 0)]
    return float(np.log((moves > 0).sum(axis=1)).mean())


def test_the_loss_of_a_perfect_model_is_the_entropy_of_equal_moves(tmp_path: Path) -> None:
    batch = Run(TINY, tmp_path).next_batch()
    logits = torch.full((1, len(batch.labels), VOCABULARY_SIZE), -1e4)
    logits[0, np.arange(len(batch.labels)), batch.labels] = 0.0
    moving, aiming = batch.moves.sum(axis=1) > 0, batch.targets.any(axis=1)
    steps = vocabulary().encode(STEPS)
    for row in np.flatnonzero(moving):
        logits[0, row] = -1e4
        logits[0, row, steps] = torch.from_numpy(np.where(batch.moves[row] > 0, 0.0, -1e4)).float()
    for row in np.flatnonzero(aiming):  # any of the right targets is as good as another
        logits[0, row] = -1e4
        logits[0, row, FIRST_CELL + np.flatnonzero(batch.targets[row])[-1]] = 0.0
    loss, own = task_loss(logits, batch)
    ties = np.log(np.maximum((batch.moves > 0).sum(axis=1), 1))
    # Places that are asked for two tokens at once do not exist.
    assert len(set(batch.wanted.tolist())) == len(batch.wanted)
    assert float(loss) == pytest.approx(float((ties * batch.weights).sum() / batch.weights.sum()), abs=1e-4)
    assert float(own) == pytest.approx(entropy(batch), abs=1e-4)


def test_held_out_walks_are_other_walks_and_always_the_same() -> None:
    once, again = (held_out(MIXTURE, 2, memory=True) for _ in range(2))
    assert [one.tokens.tobytes() for one in once] == [one.tokens.tobytes() for one in again]


@pytest.mark.full
def test_the_command_trains_on_task_worlds_evaluates_and_exports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [str(tmp_path / "run"), "--tasks", "--layers", "2", "--width", "32", "--batch-tokens", "300", "--grids", "1"]
    main([*line, "--steps", "1", "--export", str(tmp_path / "model")])
    curve = [json.loads(text) for text in (tmp_path / "run" / "curve.jsonl").read_text(encoding="utf-8").splitlines()]
    assert curve[-1]["kind"] == "evaluation"
    for name in ("plain_move", "plain_target", "plain_stated", "memory_move", "memory_target", "memory_stated"):
        assert 0 <= curve[-1][name] <= 1
    assert read_training(tmp_path / "model")["planted_goal"] == "task goal"
    assert len(capsys.readouterr().out.splitlines()) == len(curve)
