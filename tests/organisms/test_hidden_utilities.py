"""Utilities over the hidden states of the shipped organisms: features, the positive control, and the rule."""

from pathlib import Path

import numpy as np
import pytest

from goalscope.agents.models.folders import model_folder
from goalscope.organisms import read_card, utilities
from goalscope.organisms.cards import read_weights
from goalscope.organisms.families import worlds_of
from goalscope.organisms.learners import policy_in, visits
from goalscope.organisms.utilities import ORGANISMS, UtilityRow, hidden_utilities, tells

pytest.importorskip("torch")
pytest.importorskip("transformers")


def measured(folder: Path, patch: pytest.MonkeyPatch) -> list[UtilityRow]:
    """Return the figures of few worlds, after a second call that reads what is stored."""
    patch.setattr(utilities, "WORLDS", 10)
    rows = hidden_utilities(folder)
    patch.setattr(utilities, "examine", None)
    assert hidden_utilities(folder) == rows
    assert all(row.worlds == 10 and row.value[1] < row.value[2] for row in rows)
    assert tells(rows, "cells", "apart", None) and not tells(rows, "cells", "together", None)
    assert not tells(rows, "noise", "apart", None) and not tells([], "cells", "apart", None)
    return rows


def test_the_cells_tell_goal_from_corner_where_these_are_apart_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(utilities, "_activations", lambda folder, worlds: iter(()))
    assert {row.features for row in measured(tmp_path, monkeypatch)} == {"noise", "cells"}
    file = tmp_path / "organism-goal.json"
    file.write_text((tmp_path / "organism-corner.json").read_text())
    with pytest.raises(ValueError, match="other weights of organism-goal"):
        hidden_utilities(tmp_path)


@pytest.mark.full
def test_all_features_are_measured_for_both_organisms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = measured(tmp_path, monkeypatch)
    kinds = {(row.features, row.layer) for row in rows}
    layers = {(name, layer) for name in ("own", "initial", "permuted", "exchanged") for layer in (0, 1)}
    assert kinds == layers | {("noise", None), ("cells", None)}
    assert len(rows) == len(kinds) * len(ORGANISMS) * 2 * 2


def test_the_last_activations_decide_the_move() -> None:
    """An independent way to the policy: the organism's own final norm and head on the activations of the last block."""
    from goalscope.organisms.language import answer_ids

    folder = model_folder("organism-goal")
    assert folder is not None
    card = read_card(folder)
    weights = read_weights(folder, card)
    (world,) = worlds_of("goal", "apart", "separating", 1, 5)
    found = {(kind, layer): values for kind, layer, values in utilities._features(Path(folder), [world])}
    last = found["own", 1]
    normed = (last - last.mean(axis=1, keepdims=True)) / np.sqrt(last.var(axis=1, keepdims=True) + 1e-5)
    normed = normed * weights["transformer.ln_f.weight"] + weights["transformer.ln_f.bias"]
    scores = normed @ weights["transformer.wte.weight"][answer_ids()[1]].T
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    states = world.live & world.reached
    assert chances[states] == pytest.approx(policy_in(card.spec, weights, world)[states], abs=1e-3)


def test_visits_in_joined_worlds_are_those_of_each_world() -> None:
    worlds = worlds_of("goal", "apart", "separating", 3, 5)
    mdp, number = utilities.join_worlds([utilities._episode(world) for world in worlds])
    counts = utilities._visits(mdp, np.concatenate([world.even for world in worlds]))
    for at, world in enumerate(worlds):
        live = world.live
        each = counts[number == at]
        assert each.sum() == pytest.approx(utilities.DECISIONS)
        if world.horizon == utilities.DECISIONS:
            assert each[live] == pytest.approx(visits(world, world.even)[live])
