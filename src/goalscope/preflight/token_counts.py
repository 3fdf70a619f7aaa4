"""How many tokens a prompt has: counted by the model's own tokenizer where it is at hand, else by letters."""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from goalscope.agents.chat import ChatAgent
from goalscope.agents.model_agent import ModelAgent
from goalscope.agents.task_chat import TaskChatAgent
from goalscope.models.base import Message
from goalscope.models.devices import PACKAGED
from goalscope.models.http import HttpModel
from goalscope.models.http_tokens import Dialect
from goalscope.preflight.prompt_lengths import Counter, Prompts, episode_prompts
from goalscope.preflight.task_prompt_lengths import task_prompts
from goalscope.runs import Study
from goalscope.worlds.tasks.world import TaskWorld
from goalscope.worlds.world import World

_CHARACTERS = 4  # a token, where no tokenizer is at hand


def prompts_of(study: Study, agent: ModelAgent, world: World, horizon: int, count: Counter) -> Prompts:
    """Return how long the prompts of an episode become that lasts to its horizon.

    Raises:
        ValueError: the agent's template has no place for what the world shows.
    """
    if isinstance(agent, TaskChatAgent):
        assert isinstance(world, TaskWorld)  # a study pairs agents and worlds
        return task_prompts(study, agent, world, horizon, count)
    if not isinstance(agent, ChatAgent):
        raise TypeError(f"an agent with a model must be a chat agent for its prompts to be counted, got {agent.name!r}")
    return episode_prompts(study, agent, world, horizon, count)


def counter(agent: ModelAgent, given: Mapping[str, Any]) -> tuple[Counter, str]:
    """Return what counts the tokens of a chat, and how it does, in words.

    Args:
        agent: an agent with a model.
        given: its parameters as the study gives them.
    """

    def characters(messages: tuple[Message, ...]) -> int:
        return -(-sum(len(message.content) for message in messages) // _CHARACTERS)

    dialect, problem = dialect_of(agent, given)
    if dialect is None:
        return characters, f"as characters / {_CHARACTERS}, without the chat template: {problem}"

    def exact(messages: tuple[Message, ...]) -> int:
        return len(dialect.encode(dialect.render(messages, agent.sampling)))

    return exact, "by the model's own tokenizer and chat template"


def dialect_of(agent: ModelAgent, given: Mapping[str, Any]) -> tuple[Dialect | None, str]:
    """Return how an agent's model writes chats, or None and why that is not known here.

    Args:
        agent, given: see `counter`.
    """
    dialect = agent.model.dialect if isinstance(agent.model, HttpModel) else _dialect(given)
    if dialect is None:
        return None, "the tokenizer is not known"
    if dialect.on_hub:
        return None, "the tokenizer would come from the hub"
    try:
        dialect.render((Message(role="user", content="."),), agent.sampling)
    except (ImportError, OSError, ValueError) as error:
        return None, f"the tokenizer cannot be read ({error})"
    return dialect, ""


def _dialect(given: Mapping[str, Any]) -> Dialect | None:
    """Return how a local model writes chats, None where it is on the hub or its server alone knows."""
    if "server" in given:
        return None
    source = str(given["model"])
    if source not in PACKAGED and not Path(source).expanduser().is_dir():
        return None
    return _read_dialect(
        source, json.dumps({key: given[key] for key in ("reasoning", "today", "template_options") if key in given})
    )


@lru_cache(maxsize=16)
def _read_dialect(source: str, known: str) -> Dialect:
    return Dialect(source, **json.loads(known))
