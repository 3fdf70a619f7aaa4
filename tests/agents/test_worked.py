"""Worked examples of prompts for base models: balanced, blind to the world, right in their own grids."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from goalscope._ground.rng import stream
from goalscope.agents import ChatAgent, Observation, agent_id
from goalscope.agents.models import Message, Reply, Request, Sampling
from goalscope.agents.prompts import WORKED_RULE, example_action, turned
from goalscope.worlds import ACTIONS, Action, Grid, GridView, generate
from goalscope.worlds.planning import optimal_actions

ANSWER = re.compile(r'^\{"action": "([A-Z]+)"\}$', re.MULTILINE)
GRIDS = [generate(7, 0.4, rng=stream(1, "worked", number)) for number in range(4)]


@dataclass(frozen=True)
class Base:
    """A model whose files hold no chat template."""

    template: str = "completion"
    name: str = "base"

    def describe(self) -> dict[str, Any]:
        return {"kind": "base"}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str | None:
        return None

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        return []


def prompt(grid: Grid, episode: str, step: int, task: str = "grid") -> str:
    seen = Observation(view=GridView(grid=grid), episode_id=episode, step=step)
    (message,) = ChatAgent(model=Base(), task=task).messages(seen)
    return message.content


def examples(text: str) -> list[Action]:
    return [Action[name] for name in ANSWER.findall(text)]


@pytest.mark.parametrize("task", ["grid", "key-door", "fog", "text"])
def test_each_action_is_shown_once_and_the_last_one_takes_turns(task: str) -> None:
    shown = [[examples(prompt(GRIDS[0], f"episode {number}", step, task)) for step in range(4)] for number in range(40)]
    for steps in shown:
        assert all(sorted(one) == list(ACTIONS) for one in steps)
        assert sorted(one[-1] for one in steps) == list(ACTIONS)
    firsts = Counter(steps[0][-1] for steps in shown)
    assert set(firsts) == set(ACTIONS) and max(firsts.values()) <= 20


def test_the_examples_are_the_same_whatever_the_grid_is() -> None:
    for step in range(4):
        texts = [prompt(grid, "one", step).removesuffix(grid.render()) for grid in GRIDS]
        assert len(set(texts)) == 1, "nothing but the episode's id and the step orders them"
        assert examples(texts[0])[-1] == example_action("one", step, ACTIONS)


def test_each_example_is_right_in_its_own_grid_and_no_other_answer_is() -> None:
    text = prompt(GRIDS[0], "one", 0)
    for action in ACTIONS:
        grid = turned(action)
        assert grid.start is not None and optimal_actions(grid, grid.start) == {action}
        assert f'{grid.render()}\nAnswer:\n{{"action": "{action.name}"}}' in text
    assert len({turned(action).walls.tobytes() for action in ACTIONS}) == 1


def test_a_base_model_is_asked_so_by_itself_and_a_study_may_ask_otherwise() -> None:
    agent = ChatAgent(model=Base())
    assert agent.describe()["examples"] == WORKED_RULE and "example" not in agent.describe()
    other = ChatAgent(model=Base(), template="example")
    assert "examples" not in other.describe() and agent_id(agent) != agent_id(other)
    text = prompt(GRIDS[0], "one", 0)
    assert text.count(GRIDS[0].render()) == 1 and text.endswith(GRIDS[0].render()) and "{{" not in text
    keyed = Grid.parse("#####\n#AKG#\n#####")
    assert prompt(keyed, "one", 0, "key-door").endswith("The agent carries the key: no")
