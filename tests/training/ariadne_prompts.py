"""Prompts of real episodes in task worlds, for the tests of Ariadne."""

from functools import cache
from typing import Any

from goalscope.agents import NoisyGreedy, TaskChatAgent
from goalscope.worlds import ACTIONS
from goalscope.worlds.tasks import AgentKnowledge, TaskState, generate_task_map
from task_observations import task_observation
from training.task_vocabulary import vocabulary


@cache
def tokenizer() -> Any:
    return vocabulary().tokenizer()


def encoded(text: str) -> list[int]:
    found: list[int] = tokenizer().encode(text, add_special_tokens=False)
    return found


class Silent:
    """A model that is never asked."""

    name = "silent"
    tags: dict[str, str] = {}  # noqa: RUF012 - read only

    def describe(self) -> dict[str, str]:
        return {"kind": "silent"}


def prompts(preset: str, *, strategy: str, reasoned: bool, memory: bool) -> tuple[list[str], AgentKnowledge]:
    """Return the prompts of an episode of a noisy agent that names a blocked or no direction now and then."""
    agent = TaskChatAgent(model=Silent(), template="schema", strategy=strategy, reasoned=reasoned, memory=memory)  # type: ignore[arg-type]
    world, seen = TaskState(generate_task_map(preset, seed=7)), AgentKnowledge()
    seen.add(world.report())
    found: list[str] = []
    answers: list[str] = []
    walker = NoisyGreedy(epsilon=0.3)
    while world.ending is None:
        step = len(answers)
        observation = task_observation(seen, answers, seed=3, history_as="conversation", episode_id=preset)
        if step % 9 == 0:
            messages = [{"role": one.role, "content": one.content} for one in agent.messages(observation)]
            found.append(tokenizer().apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        action: int | None = walker.act([observation])[0].action
        if step % 10 == 5:
            action = ACTIONS[step % 4]
        name = "up" if action is None else ACTIONS[action].name.lower()
        answers.append(f'I go to [0, 1]. {{"action": "{name}"}}' if reasoned else f'{{"action": "{name}"}}')
        world.move(None if step % 25 == 20 else action)
        seen.add(world.report(), None if step % 25 == 20 else action)
    return found, seen
