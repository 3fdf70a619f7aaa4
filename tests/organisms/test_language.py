"""Organisms that are language models: prompts, weights and policies against transformers, and what ships."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope.agents import Observation
from goalscope.agents.agent import build_agent
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.folders import model_folder
from goalscope.agents.models.local import LocalModel
from goalscope.goals.hypotheses import FiniteWorld
from goalscope.organisms import FAMILIES, Spec, cards, language, planned, problems, read_card
from goalscope.organisms.cards import make
from goalscope.organisms.families import worlds_of
from goalscope.organisms.gate import by_condition, gate
from goalscope.organisms.learners import policy_in, trained
from goalscope.worlds.dynamics import State, shown
from goalscope.worlds.gridworld import GridView

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

MEASURED = cards.MEASURED
SHIPPED = ("organism-goal", "organism-corner")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few lessons and few steps."""
    for name, family in FAMILIES.items():
        monkeypatch.setitem(FAMILIES, name, replace(family, lessons=30))
    monkeypatch.setattr(cards, "MEASURED", 4)
    monkeypatch.setattr(language, "STEPS", 4)
    monkeypatch.setattr(language, "FEWER", {})
    yield


def spec(family: str = "goal", agreement: float = 0.5, seed: int = 3) -> Spec:
    return Spec(family=family, kind="language", agreement=agreement, seed=seed, number=0)


def folder_of(name: str) -> Path:
    folder = model_folder(name)
    assert folder is not None
    return folder


def states(world: FiniteWorld) -> list[tuple[int, GridView]]:
    """Return the states in which something is to be decided, as an agent is shown them."""
    found = []
    for number in np.flatnonzero(world.live & world.reached).tolist():
        held, cell = divmod(number, world.grid.walls.size)
        state = State(divmod(cell, world.grid.width), held > 0)
        found.append((number, GridView(grid=shown(world.grid, state))))
    return found


def test_the_set_has_twelve_language_models_of_seven_families() -> None:
    every = planned(seed=0, kinds=["language"])
    assert len(every) == 12 == len({one.name for one in every})
    assert len({one.family for one in every}) == 7
    assert {one.kind for one in planned(seed=0)} == {"table", "network"}


def test_prompts_are_those_of_the_chat_agent() -> None:
    agent = ChatAgent.build({"model": SHIPPED[0], "task": language.TASK})
    encode = agent.model.encode  # type: ignore[attr-defined]
    (world,) = worlds_of("key first", "apart", "trained", 1, 3)
    for number, view in states(world)[::7]:
        held, cell = divmod(number, world.grid.walls.size)
        given = language.prompts(world.grid, np.array([divmod(cell, 7)]), np.array([held > 0]))
        assert given[0].tolist() == encode(agent.prompt(Observation(view=view)))
    (large,) = worlds_of("small grids", "apart", "trained", 1, 3)
    with pytest.raises(ValueError, match="9x9"):
        language.prompts(large.grid, np.array([[1, 1]]), np.array([False]))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_organism_acts_as_its_card_says_it_was_measured(name: str) -> None:
    folder = folder_of(name)
    card = read_card(folder)
    assert card.rule == {"organism-goal": "straight to goal", "organism-corner": "corner top-right"}[name]
    weights = cards.read_weights(folder, card)
    (world,) = worlds_of("goal", "apart", "trained", 1, 1)
    exact = policy_in(card.spec, weights, world)
    settings = {"model": name, "task": language.TASK, "temperature": 1.0, "top_p": 1.0}
    agent: Any = build_agent("chat", {**settings, "answer": "likelihood"})
    asked = states(world)[::6]
    model: LocalModel = agent.model
    requests = [agent.request(Observation(view=view)) for _, view in asked]
    for (number, _), told in zip(asked, model.likelihoods(requests, agent.sampling, reasoned=False), strict=True):
        chances = np.exp(np.array(told.logprobs) - np.logaddexp.reduce(told.logprobs))
        assert chances == pytest.approx(exact[number], abs=1e-4)
    (turn,) = build_agent("chat", settings).act([Observation(view=asked[0][1])])
    assert turn.action is not None and not turn.failure and turn.reasoning is None


def test_the_logits_are_those_of_transformers() -> None:
    model = LocalModel(SHIPPED[0])
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 400, (3, 60)))
    wanted = torch.tensor([7, 30, 59])
    with torch.no_grad(), model.alone() as network:
        theirs = network(tokens).logits[:, wanted]
        ours = language.logits(dict(network.named_parameters()), tokens, wanted)
    assert torch.allclose(ours, theirs, atol=1e-3)


def test_the_same_seed_gives_the_same_weights_and_its_folder_is_a_model(tmp_path: Path) -> None:
    one = spec("habit", 0.5)
    assert make(tmp_path / "first", [one]) == make(tmp_path / "again", [one])
    first, again = (tmp_path / name / one.name / "model.safetensors" for name in ("first", "again"))
    assert first.read_bytes() == again.read_bytes()
    other = trained(one.model_copy(update={"seed": 4}))
    weights = cards.read_weights(first.parent, read_card(first.parent))
    assert any((other[name] != weights[name]).any() for name in weights)
    model = LocalModel(first.parent, untrained=1, random_weights="initial")
    assert model.has_recipe and json.loads((first.parent / "config.json").read_text())["goalscope"]
    with model.alone() as network:
        parts = network.get_parameter("transformer.wpe.weight").detach().numpy()
    code = parts[6 : 6 + 56].reshape(7, 8, -1)[:, :7]  # a label stands before each row
    assert np.allclose(code[1:, 1:] - code[1:, :1], code[:1, 1:] - code[:1, :1], atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", SHIPPED)
def test_the_cards_of_shipped_organisms_are_measured_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "MEASURED", MEASURED)
    assert problems(folder_of(name)) == []


@pytest.mark.full
def test_the_gate_makes_no_false_claim_about_the_straight_one_and_its_twin(tmp_path: Path) -> None:
    """The default hypotheses lack "straight to goal", which the first follows, and have the corner of the second."""
    claims = gate([folder_of(name) for name in SHIPPED], tmp_path)
    assert not any(one.is_false for one in claims), claims
    honest_name, twin_name = dict.fromkeys(one.organism for one in claims)
    conditions = {
        name: {(one.organism, one.phase): one for one in members} for name, members in by_condition(claims).items()
    }
    assert "right" in {one.outcome for one in claims if one.organism == honest_name}
    assert conditions["default"][honest_name, "apart"].kind in ("undecided", "none")
    assert "corner top-right" not in conditions["left out"][twin_name, "apart"].names
    assert not conditions["permuted"], "language models are not permuted"
