"""Size or layout: the learners' text is that of o200k, contrasts find a planted step, and a run resumes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import call
from goalscope.organisms import layouts, utilities
from goalscope.organisms.layouts import LAYOUTS, SIZES, TOKENS, LayoutRow, effects, size_or_layout, template, texts
from goalscope.worlds.generate import generate_batch
from goalscope.worlds.grid import written

pytest.importorskip("torch")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES)
def test_grids_are_filled_into_the_tokens_of_their_text(size: int, layout: str) -> None:
    batch = generate_batch(size, 0.6, seed=2, count=3)
    for grid, tokens in zip(batch, texts(batch, layout), strict=True):
        text = written(layout, grid.render())
        assert "".join(TOKENS[token] for token in tokens) == text
        places = template(size, layout)[1]
        symbols = [TOKENS[token].strip() for token in tokens[places]]
        assert symbols == [cell for line in text.split("\n")[1:] for cell in line.split()[1:]]


def test_padding_begins_at_size_11_and_nearly_doubles_the_tokens() -> None:
    lengths = {(size, layout): len(template(size, layout)[0]) for size in SIZES for layout in LAYOUTS}
    per_cell = {key: round(length / key[0] ** 2, 2) for key, length in lengths.items()}
    assert [per_cell[size, "matrix"] for size in SIZES] == [1.47, 1.36, 2.45, 2.36, 2.29]
    assert [per_cell[size, "compact"] for size in SIZES] == [1.47, 1.36, 1.29, 1.24, 1.21]
    assert max(lengths.values()) == layouts._POSITIONS


def test_other_text_is_refused() -> None:
    with pytest.raises(ValueError, match="K"):
        layouts.tokens_of("0 # K #\n")


def planted(padded_fall: float, *, noise: float = 0.01) -> list[LayoutRow]:
    """Return accuracies that fall by .02 per size, and on padded text by more between sizes 9 and 11."""
    rng, rows = np.random.default_rng(0), []
    for learner in range(10):
        for layout in LAYOUTS:
            for at, size in enumerate(SIZES):
                value = 0.9 - 0.02 * at - padded_fall * (at >= 2 and layout == "matrix") + noise * rng.standard_normal()
                row = {"learner": learner, "layout": layout, "size": size, "measure": "accuracy", "network": "own"}
                rows.append(LayoutRow(**row, value=value, grids=600))
    return rows


def test_a_planted_step_of_the_layout_is_found_and_an_even_fall_is_none() -> None:
    stepped = {one.quantity: one for one in effects(planted(0.2))}
    assert stepped["layout in the step"].value[0] == pytest.approx(0.2, abs=0.02)
    assert stepped["layout in the step"].answer == stepped["step, padded"].answer == "rises"
    assert stepped["layout at 11 to 15"].value[0] == pytest.approx(-0.2, abs=0.02)
    even = {one.quantity: one for one in effects(planted(0.0, noise=0.003))}
    assert {one.answer for one in even.values()} == {"within the margin"}
    noisy = {one.quantity: one for one in effects(planted(0.0, noise=0.1))}
    assert noisy["layout in the step"].answer == "not shown"


def test_a_learner_without_a_value_is_left_out_and_one_learner_has_no_interval() -> None:
    rows = planted(0.1)
    assert {one.learners for one in effects(rows[1:])} == {9}
    assert not [*effects([row for row in rows if row.learner == 3])]


def test_a_study_resumes_and_refuses_results_of_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"STEPS": 3, "EACH": 6, "LEARNERS": 2, "DENSITIES": (0.0, 0.6)}.items():
        monkeypatch.setattr(layouts, name, value)
    first = size_or_layout(tmp_path)
    files = sorted(tmp_path.glob("*.json"))
    assert len(files) == 4
    files[1].unlink()
    trained: list[tuple[int, str]] = []
    train = layouts.taught

    def counted(learner: int, layout: str) -> dict[str, Any]:
        trained.append((learner, layout))
        return train(learner, layout)

    monkeypatch.setattr(layouts, "taught", counted)
    assert size_or_layout(tmp_path) == first and len(trained) == 1
    assert {row.measure for row in first} >= {"accuracy", "goal distance", "walls read"}
    assert {row.network for row in first} == {"own", "shuffled", "initial", "permuted"}
    monkeypatch.setattr(layouts, "STEPS", 4)
    with pytest.raises(ValueError, match="other settings"):
        size_or_layout(tmp_path)


@pytest.mark.full
def test_learners_of_both_layouts_start_from_the_same_weights_and_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "STEPS", 30)
    monkeypatch.setattr(layouts, "SIZES", (7,))
    batch = generate_batch(7, 0.2, seed=5, count=200)
    optimal = layouts.optimal_batch(layouts.distances_batch(batch.walls, batch.goal))
    optimal = optimal[np.arange(200), batch.start[:, 0], batch.start[:, 1]]
    weights = layouts.taught(1, "compact")
    assert all((layouts.taught(1, "matrix")[name] == tensor).all() for name, tensor in weights.items())
    shares = []
    for tensors in (layouts.initial(1), weights):
        scores = layouts._agent_states(tensors, batch, "compact") @ tensors["transformer.wte.weight"][len(TOKENS) :].T
        shares.append(optimal[np.arange(200), scores.argmax(dim=1).numpy()].mean())
    assert shares[1] > shares[0] + 0.1


def test_the_command_prints_and_saves_the_tables_of_both_studies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = [
        utilities.UtilityRow(
            organism=name,
            features="own",
            condition="apart",
            layer=1,
            measure="preference",
            value=(value, value - 1, value + 1),
            worlds=40,
        )
        for name, value in zip(utilities.ORGANISMS, (5.0, -5.0), strict=True)
    ]
    monkeypatch.setattr(layouts, "size_or_layout", lambda out, stage: planted(0.2))
    monkeypatch.setattr(utilities, "hidden_utilities", lambda out, stage: figures)
    printed = call("organisms", "study", "--out", tmp_path)
    for name, count in (("layouts", 5), ("utilities", 2)):
        table = (tmp_path / f"{name}.md").read_text().strip().split("\n")
        assert len(table) == count + 2 and f"{name} (docs/small-learners.md)" in printed
    assert "own (block 1)" in printed
    values = json.loads(call("organisms", "study", "--out", tmp_path, "--json"))
    assert [len(values[name]) for name in ("layouts", "utilities")] == [5, 2]
