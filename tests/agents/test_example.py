"""The example in a prompt: balanced over the actions, blind to what is optimal, recorded, and chosen by the study."""

import json
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.agents import (
    STRATEGIES,
    ChatAgent,
    Observation,
    Past,
    TaskChatAgent,
    agent_id,
    build_agent,
    parse_action,
)
from goalscope.agents.models import TEMPLATE_FORMS, LocalModel
from goalscope.agents.prompts import RULE, TASKS, example_action
from goalscope.runs import EpisodeSpec, Study
from goalscope.worlds import ACTIONS, Action, Grid, GridView, NamedView, initial_state, step
from goalscope.worlds.planning import optimal_actions
from goalscope.worlds.tasks import AgentKnowledge, TaskState, generate_task_map
from task_observations import task_observation

GRID = Grid.parse("#####\n#A_G#\n#####")


class Bare:
    """A model that is never asked; its card, if it has one, names a template."""

    name = "bare"

    def __init__(self, template: str | None = None) -> None:
        self.template = template

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "bare"}


def chat(**settings: Any) -> ChatAgent:
    return ChatAgent(model=Bare(settings.pop("card", None)), **settings)  # type: ignore[arg-type]


def task_chat(**settings: Any) -> TaskChatAgent:
    return TaskChatAgent(model=Bare(settings.pop("card", None)), **settings)  # type: ignore[arg-type]


def shown(text: str) -> Action | None:
    """The action of the last object in a text, as the parser reads it."""
    action: Action | None = parse_action(text[text.rindex("{") :].split("}")[0] + "}").action
    return action


@pytest.mark.parametrize("admissible", [ACTIONS, ACTIONS[1:], ACTIONS[::2], ACTIONS[3:]])
def test_the_actions_of_an_episode_are_balanced_exactly(admissible: tuple[Action, ...]) -> None:
    for episode in map(str, range(40)):
        found = Counter(example_action(episode, step, admissible) for step in range(5, 5 + 12))
        assert found == dict.fromkeys(admissible, 12 // len(admissible))
    with pytest.raises(ValueError, match="valid action"):
        example_action("e", 0, ())


def test_first_steps_are_balanced_over_episodes() -> None:
    count = 4000  # the bound is five standard deviations of a binomial share
    for admissible in (ACTIONS, ACTIONS[1:], ACTIONS[:2]):
        chance = 1 / len(admissible)
        found = Counter(example_action(f"episode-{number}", 0, admissible) for number in range(count))
        for action in admissible:
            assert abs(found[action] / count - chance) < 5 * np.sqrt(chance * (1 - chance) / count)


def test_the_example_is_independent_of_the_optimal_actions() -> None:
    """Examples that are optimal, less the share of actions that are: 0 but for chance, at a bound fixed beforehand."""
    study = Study.parse(
        {
            "seed": 5,
            "worlds": [{"kind": "grid", "sizes": [7, 9], "densities": [0.0, 0.4, 0.8], "count": 10}],
            "agents": [{"kind": "random"}],
        }
    )
    agent, less = chat(), list[float]()
    for world in study.worlds():
        for trajectory in range(5):
            spec = EpisodeSpec(world_id=world.id, agent_id="a", trajectory=trajectory, seed=5, horizon=8)
            state, rng = initial_state(world.grid), stream(5, spec.id)
            for number in range(spec.horizon):
                best = optimal_actions(world.grid, state.position)
                if not best:
                    break
                seen = Observation(view=GridView(grid=world.grid), episode_id=spec.id, step=number)
                example = shown(agent.messages(seen)[-1].content)
                assert example is not None
                less.append((example in best) - len(best) / 4)
                state = step(world.grid, state, Action(int(rng.integers(4))))
    assert len(less) > 1500
    error = np.std(less) / np.sqrt(len(less))
    assert abs(np.mean(less)) < 4 * error < 0.05


@pytest.mark.parametrize("task", TASKS)
def test_each_prompt_of_a_conversation_keeps_its_own_example(task: str) -> None:
    view = NamedView(grid=Grid.parse("#####\n#A_G#\n#####"))  # a grid like any other, for tasks that name no place
    past = tuple(Past(view=view, action=Action.UP, text='{"action": "UP"}') for _ in range(5))
    agent = chat(task=task)
    whole = agent.messages(
        Observation(view=view, history=past, history_as="conversation", step=5, episode_id="episode")
    )
    examples = [shown(message.content) for message in whole if message.role == "user"]
    assert examples == [example_action("episode", number, ACTIONS) for number in range(6)]
    before = agent.messages(
        Observation(view=view, history=past[:4], history_as="conversation", step=4, episode_id="episode")
    )
    assert whole[: len(before)] == before, "the prompt of the next step only adds to it"


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("reasoned", [False, True])
def test_examples_of_task_worlds_name_open_directions_and_follow_the_map_in_nothing_else(
    strategy: str, reasoned: bool
) -> None:
    agent = task_chat(strategy=strategy, reasoned=reasoned, memory=True)
    assert agent.example and "{" not in agent.system, "the one object to be seen is the example below the observation"
    knowledge, memory, rng = TaskState(generate_task_map("low-small", seed=3)), AgentKnowledge(), stream(1, strategy)
    memory.add(knowledge.report())
    answers = list[str]()
    while knowledge.ending is None and len(answers) < 12:
        told = task_observation(memory, answers, episode_id="e", history_as="conversation")
        messages = [message.content for message in agent.messages(told) if message.role == "user"]
        for number, content in enumerate(messages):
            available = memory.turns[number][1].available
            assert shown(content) is example_action("e", number, available) and shown(content) in available
        action = Action(int(rng.integers(4)))
        answers.append(f'{{"action": "{action.name.lower()}"}}')
        knowledge.move(action)
        memory.add(knowledge.report(), action)


def test_the_card_of_a_model_names_its_template_and_the_study_may_name_another(tmp_path: Path) -> None:
    assert '"<UP|' in chat(card="schema").text and '"<UP|' in chat(template="schema").text
    assert chat().text == chat(card="schema", template="example").text
    assert "{{example}}" in chat().text
    assert len({agent_id(chat(template=form)) for form in TEMPLATE_FORMS}) == 2
    assert chat().describe()["example"] == RULE and "example" not in chat(card="schema").describe()
    own = tmp_path / "own.txt"
    own.write_text("{{grid}} {{example}}")
    assert (
        chat(task=own)
        .messages(Observation(view=GridView(grid=GRID)))[0]
        .content.endswith(example_action("", 0, ACTIONS).name)
    )
    with pytest.raises(ValueError, match="template"):
        chat(task=own, template="schema")
    tasked = {form: task_chat(template=form) for form in TEMPLATE_FORMS}
    assert task_chat().describe() == tasked["example"].describe() != tasked["schema"].describe()
    assert task_chat(card="schema").describe() == tasked["schema"].describe()
    prompt = tmp_path / "system.txt"
    prompt.write_text("{{rules}}")
    assert not task_chat(template=str(prompt)).example, "a prompt of one's own without a place for the answer is whole"


@pytest.mark.parametrize("name", ["theseus", "ariadne"])
def test_the_bundled_models_name_theirs_in_their_cards(name: str) -> None:
    folder = files("goalscope") / "agents" / "theseus" / {"theseus": "weights", "ariadne": "ariadne"}[name]
    assert json.loads((folder / "goalscope.json").read_text(encoding="utf-8")) == {"template": "schema"}
    model = LocalModel(name)
    assert model.template == "schema" and "goalscope.json" not in model.describe()["files"]


def test_a_card_is_checked(tmp_path: Path) -> None:
    for wrong in ('{"template": "other"}', '{"prompt": "schema"}', "[]", "{"):
        (tmp_path / "goalscope.json").write_text(wrong)
        with pytest.raises(ValueError, match=r"goalscope\.json"):
            build_agent("chat", {"model": str(tmp_path)})
