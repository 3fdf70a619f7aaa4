"""Methods that look inside: planted activations whose answer is known, and an organism that cannot see the goal."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import two_answers
from families import long_after
from goalscope._ground.rng import stream
from goalscope.agents.models.folders import model_folder
from goalscope.goals.attribution import Attribution, Looking, Trial, judged, usual_methods
from goalscope.goals.hypotheses import FiniteWorld, Undefined, finite_world, load_hypotheses, parse
from goalscope.organisms import Spec, cards, inside, judging, read_card
from goalscope.organisms.judging import bank_of, ordinary, play
from goalscope.runs import Study
from goalscope.worlds.grid import GOAL, OPEN

pytest.importorskip("torch")
pytest.importorskip("transformers")

BANK = "goal;corner top-right;corner bottom-left;flee goal;keep right"
SPEC = Spec(family="goal", kind="table", agreement=1.0, seed=1, number=0)
METHODS = ("decoded map", "decoded plan", "patching")


@lru_cache(maxsize=4)
def worlds(goal: str) -> tuple[FiniteWorld, ...]:
    entry = {"kind": "grid", "sizes": [7], "densities": [0.4], "count": 24, "minimum_distance": 3, "goal": goal}
    study = Study.parse({"worlds": [entry], "agents": [{"kind": "random"}], "seed": 5})
    return tuple(finite_world(world, 12) for world in study.worlds())


def policy_of(rule: str, world: FiniteWorld) -> Any:
    try:
        return 0.9 * parse(rule).solved(world).policy[0] + 0.1 * world.even
    except Undefined:
        return world.even


def trial_of(rule: str, goal: str, read: Callable[[FiniteWorld, int, str], Any]) -> Trial:
    """Return a trial of an agent that follows a rule, whose activations are planted."""

    def patched(pairs: Sequence[tuple[FiniteWorld, FiniteWorld]]) -> Any:
        starts = [int(one.process.start.argmax()) for pair in pairs for one in pair]
        rows = [
            policy_of(rule, one)[at] for one, at in zip((one for pair in pairs for one in pair), starts, strict=True)
        ]
        return np.array(rows).reshape(len(pairs), 2, -1)[:, ::-1]

    def vectors(places: Sequence[tuple[FiniteWorld, int]], network: str) -> Any:
        return np.array([read(world, state, network) for world, state in places])

    states = two_answers.play(worlds(goal), lambda world: policy_of(rule, world))
    planted = Looking(read=vectors, networks=("own", "random"), patched=patched)
    return Trial(states=states, bank=load_hypotheses(BANK), inside=planted)


def noise(world: FiniteWorld, state: int, network: str) -> Any:
    return stream(3, "noise", world.world.id, state, network).normal(size=8)


def goal_cell(world: FiniteWorld, state: int, network: str) -> Any:
    """Return the goal's cell in the agent's own network, noise in others."""
    found = np.zeros(49)
    if network == "own" and world.grid.goal is not None:
        found[world.grid.goal[0] * 7 + world.grid.goal[1]] = 1.0
    return found + 0.01 * np.resize(noise(world, state, network), 49)


def said(trial: Trial, method: str) -> Attribution:
    stratum = judged("", trial, [method])
    assert stratum.attributions, stratum.refused
    return stratum.attributions[0]


@pytest.mark.parametrize("rule", long_after(1, ["goal", "corner top-right", "flee goal"]))
def test_what_own_pairs_turn_and_null_pairs_do_not_is_claimed(rule: str) -> None:
    for goal in ("top-right", "anywhere"):
        found = said(trial_of(rule, goal, noise), "patching")
        assert rule in found.names and found.turns > 0, found
        assert not {"goal", "corner top-right", "flee goal"} - {rule} & {*found.names}


def test_activations_that_turn_nothing_are_no_reason_for_a_claim() -> None:
    for rule in ("random", "keep right"):
        found = said(trial_of(rule, "anywhere", noise), "patching")
        assert found.kind == "undecided" and not found.names and not found.predicts


def test_a_place_is_claimed_where_it_is_read_and_random_networks_do_not_have_it() -> None:
    found = said(trial_of("goal", "anywhere", goal_cell), "decoded map")
    assert {*found.names} == {"goal", "flee goal"}  # no reading tells whether it is gone to
    shared = said(trial_of("goal", "anywhere", lambda world, state, _: goal_cell(world, state, "own")), "decoded map")
    nothing = said(trial_of("goal", "anywhere", noise), "decoded map")
    assert shared.kind == nothing.kind == "undecided"


def test_a_plan_is_claimed_where_later_moves_are_read_and_random_networks_do_not_have_them() -> None:
    def later(world: FiniteWorld, state: int, network: str) -> Any:
        """Return the three moves after the next one that an agent without noise would make."""
        if network != "own":
            return noise(world, state, network)
        found, policy = [], parse("corner top-right").solved(world).policy[0]
        for ahead in range(4):
            move = int(policy[state].argmax())
            if ahead:
                found.append(np.eye(5)[move if world.live[state] else 4])
            state = int(world.process.transitions[state, move])
        return np.concatenate(found)

    trial = trial_of("corner top-right", "anywhere", later)
    assert said(trial, "decoded plan").names == ("corner top-right",)
    assert said(replace(trial, inside=trial_of("goal", "anywhere", noise).inside), "decoded plan").kind == "undecided"


def test_tables_give_nothing_with_the_reason_and_no_method_looks_inside_by_default() -> None:
    trial = replace(trial_of("goal", "anywhere", noise), inside=inside.opened(SPEC, Path()))
    refused = judged("", trial, METHODS).refused
    assert {*refused} == {*METHODS} and all("a table" in why for why in refused.values())
    assert not {*METHODS} & {*usual_methods()}


@pytest.fixture
def blind(tmp_path: Path) -> Path:
    """The shipped organism that goes to the goal, the embedding of the goal's token that of an open cell."""
    from safetensors.numpy import load_file, save_file

    from goalscope.organisms import language

    source = model_folder("organism-goal")
    assert source is not None
    folder = tmp_path / "blind"
    shutil.copytree(source, folder)
    *_, ids = language._written()
    tensors = load_file(folder / "model.safetensors")
    table = tensors["transformer.wte.weight"].copy()
    table[ids[GOAL]] = table[ids[OPEN]]
    save_file({**tensors, "transformer.wte.weight": table}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.full
def test_an_organism_that_cannot_see_the_goal_is_not_claimed_to_use_it(
    blind: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = model_folder("organism-goal")
    assert source is not None
    card = read_card(source)
    monkeypatch.setattr(judging, "WORLDS", 12)
    given, claims = ordinary(card.spec, 1.0, "ordinary"), dict[str, tuple[str, ...]]()
    weights = cards.read_weights(source, card)
    for name, folder in (("seeing", source), ("blind", blind)):
        states = play(card.spec, weights, given)
        trial = Trial(states=states, bank=bank_of("goal"), seed=1, inside=inside.opened(card.spec, folder))
        claims[name] = said(trial, "patching").names
    assert {"goal", "straight to goal"} & {*claims["seeing"]}, claims
    assert not any("goal" in name for name in claims["blind"]), claims
