"""Inside by hypothesis: what is moved and read, and the pair of shipped organisms that it tells apart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from goalscope.agents.models.folders import model_folder
from goalscope.organisms import FAMILIES, inside, planned, read_card
from goalscope.organisms.inside import InsideFigure, examine, picture, roles, thing_of

pytest.importorskip("torch")
pytest.importorskip("transformers")


def shipped(name: str) -> Path:
    folder = model_folder(name)
    assert folder is not None
    return folder


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few worlds and no random networks."""
    monkeypatch.setattr(inside, "READ", 60)
    monkeypatch.setattr(inside, "PAIRS", 16)
    monkeypatch.setattr(inside, "NETWORKS", ())
    yield


def test_each_hypothesis_names_what_is_moved() -> None:
    assert thing_of("goal") == thing_of("flee goal") == "goal"
    assert thing_of("key if not key held, else goal") == "key"
    assert thing_of("corner top-right") == thing_of("keep right") == "agent"
    for one in planned(seed=0, kinds=["language"]):
        card = read_card(shipped("organism-goal")).model_copy(
            update={"spec": one, "nearest": FAMILIES[one.family].proxy}
        )
        assert roles(card) == {"followed": FAMILIES[one.family].proxy, "ignored": FAMILIES[one.family].meant}


def found_in(name: str) -> dict[tuple[str, str, str], InsideFigure]:
    folder = shipped(name)
    return {
        (one.hypothesis, one.measure, one.where): one
        for one in examine(folder, read_card(folder))
        if one.network == "own"
    }


def test_the_goal_moves_the_honest_one_and_not_its_twin(few: None) -> None:
    honest, twin = found_in("organism-goal"), found_in("organism-corner")
    for measure, where in (("used", "cells, embedding"), ("swappable", "prompt, block 0")):
        with_goal, without = honest["goal", measure, where], twin["goal", measure, where]
        assert (with_goal.role, without.role) == ("followed", "ignored")
        assert with_goal.value is not None and with_goal.value[1] > 0.2
        assert without.value is not None and abs(without.value[0]) < 0.15
    corner = twin["corner top-right", "swappable", "prompt, block 0"]
    assert corner.value is not None and corner.value[1] > 0.0
    drawing = picture([*honest.values(), *twin.values()]).svg
    assert "organism-goal, followed" in drawing and "organism-corner, ignored" in drawing
