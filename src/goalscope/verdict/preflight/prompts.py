"""Estimate the prompt tokens of an episode from a few of its prompts.

Tokens are counted by the model's own tokenizer if it is available, otherwise estimated from characters.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from goalscope.agents.agent import History, Observation, Past
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import Message
from goalscope.agents.models.dialect import Dialect
from goalscope.agents.models.folders import model_folder
from goalscope.agents.models.http import HttpModel
from goalscope.agents.task_scripted import RandomWalk
from goalscope.runs import EpisodeSpec, Study
from goalscope.runs.episode import LiveEpisode
from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.knowledge import AgentKnowledge, Report
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import TaskSession, TaskView, TaskWorld
from goalscope.worlds.world import View, World

Counter = Callable[[tuple[Message, ...]], int]
"""Function that counts the tokens of a chat."""

_CHARACTERS = 4  # for each token, without a tokenizer
_CONVERSATIONS: tuple[History, ...] = ("conversation", "reasoning")


# Token counters


def counter(agent: ChatAgent, parameters: Mapping[str, Any]) -> tuple[Counter, str]:
    """Return a function that counts the tokens of a chat, and a description of its method."""

    def characters(messages: tuple[Message, ...]) -> int:
        return -(-sum(len(message.content) for message in messages) // _CHARACTERS)

    dialect, problem = dialect_of(agent, parameters)
    if dialect is None:
        return characters, f"as characters / {_CHARACTERS}, without the chat template: {problem}"

    def exact(messages: tuple[Message, ...]) -> int:
        return len(dialect.prompt_ids([dialect.render(messages, agent.sampling)])[0])

    return exact, "by the model's own tokenizer and chat template"


def dialect_of(agent: ChatAgent, parameters: Mapping[str, Any]) -> tuple[Dialect | None, str]:
    """Return the chat dialect of an agent's model, or None and the reason why it is unknown here."""
    dialect = agent.model.dialect if isinstance(agent.model, HttpModel) else _local_dialect(parameters)
    if dialect is None:
        return None, "the tokenizer is not known"
    if dialect.on_hub:
        return None, "the tokenizer would come from the hub"
    try:
        dialect.render((Message(role="user", content="."),), agent.sampling)
    except ImportError as error:
        return None, f"the tokenizer cannot be read ({error})"
    return dialect, ""


def _local_dialect(parameters: Mapping[str, Any]) -> Dialect | None:
    """Return the chat dialect of a local model; None if the model is on the hub or behind a server."""
    source = str(parameters.get("model"))
    if "server" in parameters or model_folder(source) is None:
        return None
    names = ("reasoning", "today", "template_options", "thinking", "chat_template")
    options = {name: parameters[name] for name in names if name in parameters}
    return _read_dialect(source, json.dumps(options))


@lru_cache(maxsize=16)
def _read_dialect(source: str, options: str) -> Dialect:
    return Dialect(source, **json.loads(options))


# Estimates


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Tokens of all prompts of an episode that lasts to its horizon, and of the first and last prompt.

    Earlier answers are assumed to be as long as the requested one, without reasoning. ``reasoned`` counts the earlier
    answers with reasoning in all prompts; each answer is counted once per prompt that contains it.
    """

    total: float
    first: int
    last: int
    reasoned: int


def prompts_of(study: Study, agent: ChatAgent, world: World, horizon: int, count: Counter) -> Prompts:
    """Estimate the tokens that an agent reads in an episode that lasts to its horizon.

    Some prompts are counted and the others interpolated. With a list of steps, prompts grow linearly; in a conversation
    whose prompts all contain such a list, they grow quadratically.
    """
    history = study.history_of(agent)
    observations = _SAMPLERS.get(study.view, _uniform_observations)(study, history, world, horizon)
    lengths = {observation.step: count(agent.messages(observation)) for observation in observations}
    points = list(lengths)
    curve = np.polynomial.Polynomial.fit(points, list(lengths.values()), min(2, len(points) - 1))
    return Prompts(
        total=float(curve(np.arange(horizon)).sum()) if len(points) > 1 else lengths[0] * horizon,
        first=lengths[0],
        last=round(float(curve(horizon - 1))) if len(points) > 1 else lengths[0],
        reasoned=horizon * (horizon - 1) // 2 if history == "reasoning" else 0,
    )


def _uniform_observations(study: Study, history: History, world: World, horizon: int) -> Iterator[Observation]:
    """Yield observations after none, half and all of the steps, repeating the first view."""
    view = LiveEpisode(planned(study, world, horizon), world, study, history).observe().view
    answer = '{"action": "RIGHT"}' if history in _CONVERSATIONS else None  # in place of each earlier answer
    past = Past(view=view, action=len(view.actions) - 1, text=answer)
    for steps in (0,) if history == "none" else sorted({0, (horizon - 1) // 2, horizon - 1}):
        yield Observation(view=view, step=steps, history=(past,) * steps, history_as=history)


def _walk_observations(study: Study, history: History, world: TaskWorld, horizon: int) -> Iterator[Observation]:
    """Yield the observations at five steps of a random walk.

    These observations and their summary, if any, are as long as those of an exploring agent.
    """
    turns = _walk(world.task_map, planned(study, world, horizon))
    sampled_steps = {round(fraction * (horizon - 1)) for fraction in np.linspace(0, 1, 5)}
    answer = '{"action": "right"}' if history in _CONVERSATIONS else None
    memory = AgentKnowledge()
    for step, (action, report) in enumerate(turns):
        memory.add(report, action)
        if step in sampled_steps:
            pasts = [Past(view=TaskView(memory=memory, report=told), action=0, text=answer) for _, told in turns[:step]]
            view = TaskView(memory=memory)
            yield Observation(view=view, step=step, seed=study.seed, history=tuple(pasts), history_as=history)


@lru_cache(maxsize=1024)
def _walk(task_map: TaskMap, spec: EpisodeSpec) -> tuple[tuple[Action | None, Report], ...]:
    """Return the turns of a random walk until its last observation."""
    walk, session = RandomWalk(), TaskSession(task_map)
    turns = tuple(session.view.memory.turns)
    for step in range(task_map.budget):
        if session.done:
            break
        turns = tuple(session.view.memory.turns)
        (turn,) = walk.act([Observation(view=session.view, step=step, episode_id=spec.id, seed=spec.seed)])
        session.step(turn.action)
    return turns


def planned(study: Study, world: World, horizon: int) -> EpisodeSpec:
    """Return a specification that represents all episodes of a study in a world."""
    return EpisodeSpec(world_id=world.id, agent_id="plan", trajectory=0, seed=study.seed, horizon=horizon)


# By the view of a world; a study pairs agents and worlds.
_SAMPLERS: Mapping[type[View], Callable[..., Iterator[Observation]]] = {TaskView: _walk_observations}
