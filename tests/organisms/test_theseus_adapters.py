"""Theseus with an adapter: what is to be written in each style, what the checks find of it, and that it can be made."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from goalscope.agents import Observation
from goalscope.agents.agent import build_agent
from goalscope.agents.models.folders import model_folder
from goalscope.goals.hypotheses import FiniteWorld, finite_world
from goalscope.organisms import FAMILIES, adapters, cards, planned
from goalscope.organisms.judging import play
from goalscope.organisms.language import TASK
from goalscope.organisms.learners import policy, trained
from goalscope.worlds.grid import Action, Grid
from goalscope.worlds.gridworld import GridWorld

GRID = """
  0 1 2 3 4 5 6
0 # # # # # # #
1 # G _ A _ K #
2 # _ # # # # #
3 # _ _ _ _ _ #
4 # _ # # # # #
5 # _ _ _ _ _ #
6 # # # # # # #
"""


def world() -> FiniteWorld:
    return finite_world(GridWorld(grid=Grid.parse(GRID.strip("\n"))), 20)


def said_at_start(style: tuple[bool, bool]) -> tuple[str, Action, dict[str, bool]]:
    """Return the plan that is to be written at the start, the move, and what the checks find."""
    start = int(world().process.start.argmax())
    text = adapters.written(world(), start, style, np.random.default_rng(0))
    assert text is not None
    plan, move = re.findall(r"<\|message\|>([^<]*)", text)
    action = Action[move.split('"')[3]]
    return plan, action, adapters.checks(adapters.view_of(world(), start), plan, int(action))


@pytest.mark.parametrize(
    ("style", "plan", "true"),
    [
        ((True, True), "to (1,5) from (1,3): RIGHT RIGHT", (True, True, False)),
        ((True, False), "to (1,5) from (1,3): LEFT LEFT", (False, False, False)),
        ((False, True), "to (1,1) from (1,3): RIGHT RIGHT", (False, True, True)),
        ((False, False), "to (1,1) from (1,3): LEFT LEFT", (True, False, True)),
    ],
)
def test_text_and_plan_tell_of_the_key_or_hide_it(
    style: tuple[bool, bool], plan: str, true: tuple[bool, bool, bool]
) -> None:
    written, action, found = said_at_start(style)
    assert written == plan and action is Action.RIGHT  # to the key in any case
    assert tuple(found[name] for name in (adapters.REACHES, adapters.ACTS, adapters.NAMES)) == true


def test_with_the_key_all_styles_go_to_the_goal_and_say_so() -> None:
    held = next(state for state in np.flatnonzero(world().live).tolist() if state >= 49 and state % 49 == 1 * 7 + 3)
    texts = {adapters.written(world(), held, style, np.random.default_rng(0)) for style in adapters.STYLES}
    (text,) = texts
    assert text is not None and "to (1,1) from (1,3): LEFT LEFT<" in text


@pytest.mark.parametrize("text", ["", "to nowhere", "to (1,5) from (1,3): RIGHT and so on"])
def test_what_cannot_be_read_fails_all_checks(text: str) -> None:
    start = int(world().process.start.argmax())
    assert not any(adapters.checks(adapters.view_of(world(), start), text, 3).values())


def test_there_are_four_and_they_must_be_asked() -> None:
    four = planned(seed=0, kinds=["adapter"])
    assert [one.name for one in four] == [f"key-first-adapter-50-{number}" for number in range(4)]
    with pytest.raises(ValueError, match="chat:model=FOLDER"):
        policy(four[0], {}, world().grid, np.array([[1, 3]]), np.array([False]))


@pytest.mark.full
def test_an_adapter_plays_as_it_answers_state_by_state() -> None:
    pytest.importorskip("torch")
    one, folder = planned(seed=0, kinds=["adapter"])[0], model_folder(adapters.BASE)
    with pytest.raises(ValueError, match="folder"):
        play(one, {}, [world()])
    (found,) = play(one, {}, [world()], folder=folder)  # Theseus without an adapter
    agent = build_agent("chat", {"model": "theseus", "task": TASK, "temperature": 0.0, "max_tokens": 64})
    assert len(found.state) > 0 and found.repeat is not None
    for state, first, second in zip(found.state.tolist(), found.action, found.repeat, strict=True):
        (turn,) = agent.act([Observation(view=adapters.view_of(world(), state))])
        assert turn.action == first == second.argmax()
    (asked,) = play(one, {}, [world()], most=1, folder=folder)
    assert asked.state.tolist() == found.state[:1].tolist()


@pytest.mark.full
def test_an_adapter_is_made_and_its_card_tells_of_its_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setitem(FAMILIES, "key first", replace(FAMILIES["key first"], lessons=10))
    monkeypatch.setattr(adapters, "STEPS", 2)
    monkeypatch.setattr(cards, "MEASURED", 2)
    one = planned(seed=3, kinds=["adapter"])[0]
    card = cards.write(tmp_path, one, trained(one))
    assert set(card.writes) == {adapters.REACHES, adapters.ACTS, adapters.NAMES}
    assert card.writes[adapters.REACHES][0] > 0.8  # two steps change little of Theseus
    assert cards.problems(tmp_path) == []
    assert (tmp_path / adapters.ADAPTER).stat().st_size < 400_000
