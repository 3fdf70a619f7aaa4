"""Training learns, continues exactly where it stopped, and measures what it says."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from goalscope._ground.rng import stream
from goalscope.agents.models import read_training
from goalscope.runs import Store, Study
from goalscope.runs import run as run_study
from training import checkpoint
from training.data import Batch, Mixture, block, draw_worlds
from training.evaluate import read_policy, score
from training.loss import completion_loss
from training.network import Shape, export, initialise
from training.optimise import orthogonal
from training.theseus import main
from training.train import Run, Settings, rate_scale, train
from training.vocabulary import MOVES, VOCABULARY_SIZE, encode

MIXTURE = Mixture(seed=4, tokens=500, steps=4)
TINY = Settings(
    shape=Shape(width=32, layers=2, heads=2, key_heads=1, head_width=16, expert_width=16),
    mixture=MIXTURE,
    small_steps=8,
    auxiliary_steps=6,
    warmup=3,
)


def weights(run: Run) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().copy() for name, value in run.parameters.items()}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_a_resumed_run_is_the_run_that_went_through(tmp_path: Path) -> None:
    through, first = Run(TINY, tmp_path / "a"), Run(TINY, tmp_path / "b")
    losses = [through.train_step(1.0) for _ in range(11)]
    before = [first.train_step(1.0) for _ in range(6)]
    first.save()
    second = Run(TINY, tmp_path / "b")
    assert (second.step, second.tokens) == (6, first.tokens)
    after = [second.train_step(1.0) for _ in range(5)]
    assert before + after == losses
    ours, theirs = weights(second), weights(through)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_the_seed_determines_the_weights(tmp_path: Path) -> None:
    other = replace(TINY, mixture=replace(TINY.mixture, seed=5))
    first, again, reseeded = (Run(settings, tmp_path / str(i)) for i, settings in enumerate((TINY, TINY, other)))
    for run in (first, again, reseeded):
        run.train_step(1.0)
    name = "model.layers.0.mlp.experts.down_proj"
    assert np.array_equal(weights(first)[name], weights(again)[name])
    assert not np.array_equal(weights(first)[name], weights(reseeded)[name])


@pytest.mark.full
def test_a_tiny_model_learns_one_batch_by_heart(tmp_path: Path) -> None:
    run = Run(replace(TINY, rate=0.01, balance=0.01), tmp_path)
    batch = block(replace(MIXTURE, sizes=MIXTURE.sizes[:2]), 0)[0]
    losses = []
    for _ in range(150):
        run._ready = [batch]
        losses.append(run.train_step(1.0)["loss"])
    assert losses[0] > 5
    # The uniform distribution over equal moves leaves a rest that cannot be learnt away.
    assert losses[-1] < _entropy(batch) + 0.1


def _entropy(batch: Batch) -> float:
    spread = np.where(batch.moves > 0, batch.moves, 1.0)
    own = -(batch.moves * np.log(spread)).sum(axis=-1)
    return float((own * batch.weights).sum() / batch.weights.sum())


def test_the_loss_is_the_entropy_where_the_model_is_perfect() -> None:
    batch = block(MIXTURE, 0)[0]
    logits = torch.full((*batch.labels.shape, VOCABULARY_SIZE), -100.0)
    logits.scatter_(2, torch.from_numpy(batch.labels)[..., None], 0.0)
    moving = torch.from_numpy(batch.moves.sum(axis=-1) > 0)
    logits[moving] = -100.0
    planned = torch.from_numpy(np.log(np.maximum(batch.moves, 1e-40)))[moving]
    logits[moving[..., None].expand_as(logits).clone() & _move_columns(logits)] = planned.flatten().clamp(min=-90)
    loss, _ = completion_loss(logits, batch)
    assert float(loss) == pytest.approx(_entropy(batch), abs=1e-4)


def _move_columns(logits: torch.Tensor) -> torch.Tensor:
    columns = torch.zeros(logits.shape, dtype=torch.bool)
    columns[..., encode(MOVES)] = True
    return columns


def test_another_shape_cannot_continue_a_run(tmp_path: Path) -> None:
    Run(TINY, tmp_path).save()
    with pytest.raises(ValueError, match="shape"):
        Run(replace(TINY, shape=replace(TINY.shape, layers=3)), tmp_path)


def test_checkpoints_carry_their_settings_and_only_two_stay(tmp_path: Path) -> None:
    run = Run(TINY, tmp_path)
    for step in (1, 2, 3):
        run.step = step
        run.save()
    assert [file.name for file in sorted(tmp_path.iterdir())] == [f"step-0000000{n}.safetensors" for n in (2, 3)]
    newest = checkpoint.latest(tmp_path)
    assert newest is not None
    _, progress = checkpoint.load(newest)
    assert Settings.parse(progress["settings"]) == TINY
    assert checkpoint.latest(tmp_path / "none") is None


def test_the_learning_rate_rises_stays_and_falls() -> None:
    scales = [rate_scale(step, 10, 100, 50) for step in range(151)]
    assert scales[:2] == [0.1, 0.2]
    assert set(scales[9:101]) == {1.0}
    assert scales[125] == pytest.approx(0.51)
    assert scales[150] == pytest.approx(0.02)
    assert rate_scale(10_000, 10, None, 50) == 1.0


def test_orthogonal_matrices_have_singular_values_near_one() -> None:
    drawn = torch.randn((3, 20, 48), generator=torch.Generator().manual_seed(1))
    for matrix in (drawn, drawn.mT):
        values = torch.linalg.svdvals(orthogonal(matrix))
        assert float(values.min()) > 0.5 and float(values.max()) < 1.3


def test_an_untrained_model_scores_like_one_that_says_nothing() -> None:
    shape = TINY.shape
    untrained = initialise(shape, torch.Generator().manual_seed(0))
    found = score(untrained, shape, 7, 1.0, grids=3)
    assert found.valid < 0.1 and found.sampled < 0.1 and found.accuracy < 0.1
    assert 0 <= found.greedy <= 1


def test_a_policy_covers_every_cell_from_which_the_goal_can_be_reached() -> None:
    shape = TINY.shape
    symbols, target = draw_worlds(9, 1.0, 4, seed=1, first=0, goal="goal", name="test")
    untrained = initialise(shape, torch.Generator().manual_seed(0))
    policy, other, start, _ = read_policy(untrained, shape, symbols, target, stream(1, "test"))
    known = policy.min(axis=-1) < 0
    assert (known.sum(axis=1) == 2 * 4 * 4 - 1 - 1).all()
    assert known[np.arange(4), start].all()
    np.testing.assert_allclose(np.exp(policy).sum(axis=-1)[known] + other[known], 1.0)


def test_the_command_trains_evaluates_continues_and_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [str(tmp_path / "run"), "--layers", "2", "--width", "32", "--batch-tokens", "400", "--grids", "1"]
    main([*line, "--steps", "2"])
    main([*line, "--decay-from", "2", "--decay-steps", "2", "--export", str(tmp_path / "model")])
    curve = [json.loads(text) for text in (tmp_path / "run" / "curve.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(one["kind"], one["step"]) for one in curve if one["kind"] == "evaluation"] == [
        ("evaluation", 2),
        ("evaluation", 4),
    ]
    assert curve[-2]["rate"] < 1 and "minutes_left" in curve[-2]
    assert len(capsys.readouterr().out.splitlines()) == len(curve)
    assert (tmp_path / "model" / "config.json").exists()


def test_a_new_run_begins_with_an_exported_model_and_refuses_one_of_another_shape(tmp_path: Path) -> None:
    first = Run(TINY, tmp_path / "first")
    export(first.parameters, TINY.shape, tmp_path / "model")
    other = replace(TINY, mixture=replace(MIXTURE, seed=5, goal="corner"))
    second = Run(other, tmp_path / "second", initial=tmp_path / "model")
    ours, theirs = weights(first), weights(second)
    # The exported weights are rounded to bf16, which keeps eight binary digits.
    assert all(np.allclose(ours[name], theirs[name], rtol=2**-8) for name in TINY.shape.parameters())
    with pytest.raises(ValueError, match="shape"):
        Run(replace(TINY, shape=replace(TINY.shape, layers=1)), tmp_path / "third", initial=tmp_path / "model")


@pytest.mark.full
def test_prepared_data_makes_no_difference(tmp_path: Path) -> None:
    alone, helped = Run(TINY, tmp_path / "a"), Run(TINY, tmp_path / "b", workers=2)
    train(alone, steps=9, grids=1)
    train(helped, steps=9, grids=1)
    ours, theirs = weights(alone), weights(helped)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_run_of_a_trained_model_carries_its_planted_goal_as_a_tag(tmp_path: Path) -> None:
    planted = replace(TINY, mixture=replace(MIXTURE, goal="corner"))
    made = Run(planted, tmp_path / "run")
    export(made.parameters, planted.shape, tmp_path / "model", planted.told())
    text = {"kind": "text", "grids": ["#####\n#A_G#\n#####"]}
    chat = {"kind": "chat", "model": str(tmp_path / "model"), "temperature": 0.0, "max_tokens": 2}
    study = Study.parse({"worlds": [text], "agents": [chat, {"kind": "optimal"}], "trajectories": 1})
    run_study(study, tmp_path / "acted")
    with Store(tmp_path / "acted") as store:
        chatted, scripted = sorted(store.episodes(), key=lambda episode: not episode.tags)
    assert not scripted.tags and chatted.tags["planted_goal"] == "corner"
    assert json.loads(str(chatted.tags["training_data"]))["seed"] == planted.mixture.seed
    assert str(chatted.tags["model"]).startswith("model-")


@pytest.mark.parametrize("told", [{"planted_goal": 3}, ["goal"], {"planted_goal": "goal", "training_data": "x" * 999}])
def test_a_configuration_that_tells_something_else_is_refused(told: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"goalscope": told}), encoding="utf-8")
    with pytest.raises(ValueError, match="planted_goal and training_data"):
        read_training(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--steps", "0"), "--steps: must be a whole number of at least 1, got '0'"),
        (("--hours", "soon"), "--hours: must be a number above 0, got 'soon'"),
        (("--hours", "nan"), "--hours: must be a number above 0, got 'nan'"),
        (("--tasks", "--goal", "key", "--fog-share", "0.1"), "--goal, --fog-share must come without --tasks"),
        (("--device", "auto"), "--device must name the device"),
        (("--device", "tpu"), "device must be"),
        (("--device", "cuda:99"), "has no device 'cuda:99'"),
        (("--only-export",), "an export needs a checkpoint"),
        (("--goal", "cheese"), "invalid choice"),
        (("--stepps", "3"), "unrecognized arguments"),
    ],
)
def test_training_refuses_what_does_not_fit_before_it_begins(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "run"), *words])
    assert ended.value.code == 2 and said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_the_help_of_training_explains_every_option_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    output = capsys.readouterr().out
    found = re.findall(r"^  --([a-z-]+)(.*(?:\n {24}.*)*)", output, re.MULTILINE)
    said = {name: " ".join(text.split()) for name, text in found}
    assert len(said) == 23 and all(len(text.split()) >= 4 for text in said.values())
    defaults = {"decay-steps": "(2000)", "width": "(128)", "layers": "(8; with --tasks 6)", "goal": "(goal)"}
    assert all(said[name].endswith(default) for name, default in defaults.items())
