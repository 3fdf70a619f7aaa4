"""What a language model reads about the things in a grid."""

from collections.abc import Iterator

import numpy as np
import pytest
from test_chat import Scripted

from goalscope.agents import Observation
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import COMPLETION, TEMPLATE_FORMS
from goalscope.agents.policies import planes
from goalscope.worlds import Action, Grid, GridView, GridWorld
from goalscope.worlds.grid import ENCODINGS
from goalscope.worlds.thing_check import grid_with
from goalscope.worlds.things import kinds
from thing_grids import all_names, plugin_things

FORMS = (*TEMPLATE_FORMS, COMPLETION)


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    with plugin_things():
        yield


def prompt(view: GridView, form: str = "schema", **settings: str) -> str:
    agent = ChatAgent(model=Scripted(), task="things", template=form, **settings)  # type: ignore[arg-type]
    return agent.messages(Observation(view=view, episode_id="e"))[0].content


@pytest.mark.parametrize("name", all_names())
def test_the_legend_and_the_rules_are_those_of_the_kinds_that_are_present(name: str) -> None:
    grid = grid_with(name, 1)
    present = {symbol for _, symbol in grid.things}
    for form in FORMS:
        text = prompt(GridView(grid=grid), form)
        assert text.count(grid.render()) == 1 and "{{" not in text
        for kind in kinds():
            assert (f"\n{kind.symbol} {kind.legend}\n" in text) == (kind.symbol in present)
            assert kind.symbol not in present or kind.rule in text


def test_what_is_carried_and_what_lies_under_the_agent_are_said() -> None:
    session = GridWorld(grid=Grid.parse("########\n#AyT_TG#\n########")).begin()
    assert "carries: nothing" in prompt(session.view)
    session.step(Action.RIGHT)
    assert "carries: a yellow key" in prompt(session.view) and "picks up the yellow key" in prompt(session.view)
    session.step(Action.RIGHT)
    text = prompt(session.view)
    assert "stands now, on a teleporter\n" in text and text.count("T a teleporter") == 1
    both = GridWorld(grid=Grid.parse("########\n#AK_DcG#\n########")).begin()
    assert "\nD a locked door\n" in prompt(both.view)
    both.step(Action.RIGHT)
    assert "carries: a key" in prompt(both.view)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_things_are_written_in_every_encoding(encoding: str) -> None:
    assert "T" in prompt(GridView(grid=Grid.parse("#ATTG#")), encoding=encoding).rsplit("as it is now", 1)[1]


def test_prompts_and_policies_that_cannot_show_things_refuse_them() -> None:
    view = GridView(grid=Grid.parse("#ArRG#"))
    for task in ("grid", "key-door"):
        with pytest.raises(ValueError, match="task to things"):
            ChatAgent(model=Scripted(), task=task).messages(Observation(view=view))
    carrying = GridView(grid=Grid.parse("#A_G#").at(held=("r",)))
    with pytest.raises(ValueError, match="task to things"):
        ChatAgent(model=Scripted(), task="key-door").messages(Observation(view=carrying))
    fog = np.array([[False, False, False, False, True, False]])
    with pytest.raises(ValueError, match="template of your own"):
        prompt(GridView(grid=Grid.parse("#Ar_G#").at(fog=fog, goal=None)))
    with pytest.raises(ValueError, match="plane"):
        planes(view)
