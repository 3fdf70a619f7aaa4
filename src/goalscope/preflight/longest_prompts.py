"""The most tokens that the prompts of an episode can have, whatever the agent does and says in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from goalscope.agents.agent import Observation, Past
from goalscope.agents.chat import ChatAgent
from goalscope.agents.model_agent import ModelAgent
from goalscope.agents.prompts import placeholders
from goalscope.agents.task_chat import TaskChatAgent
from goalscope.models.base import Message
from goalscope.models.http_tokens import Dialect
from goalscope.models.prompt_bound import (
    CHAT_ALLOWANCE,
    MESSAGE_ALLOWANCE,
    most_answer_tokens,
    most_text_tokens,
)
from goalscope.runs import Study
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.record import EpisodeSpec
from goalscope.worlds.grid import Action
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.tasks.knowledge import NodeReport, Report
from goalscope.worlds.tasks.memory import Memory
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.text import memory_text, report_text
from goalscope.worlds.tasks.world import TaskView, TaskWorld
from goalscope.worlds.world import World

_LONGEST_MOVE = Action.RIGHT  # no other action, and no missing one, has a longer name
_STATUSES = ((True, True), (True, False), (False, False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The most tokens that a chat template adds.

    Attributes:
        chat: to a chat of one turn, its system prompt included.
        turn: to each earlier turn: what was asked and what was answered.
    """

    chat: int
    turn: int


def frame(agent: ModelAgent, dialect: Dialect | None) -> Frame:
    """Return what a chat template adds: as the model's own template writes it, or the declared allowance.

    Args:
        agent: the agent.
        dialect: how its model writes chats, None where its server alone knows.
    """
    system = isinstance(agent, TaskChatAgent)
    if dialect is None:
        return Frame(chat=CHAT_ALLOWANCE + MESSAGE_ALLOWANCE * (1 + system), turn=2 * MESSAGE_ALLOWANCE)

    def added(turns: int) -> int:
        chat = [Message(role="system", content=".")] * system + [Message(role="user", content=".")]
        for _ in range(turns):
            chat += [Message(role="assistant", content="."), Message(role="user", content=".")]
        return most_text_tokens(dialect.render(chat, agent.sampling)) - len(chat)

    lengths = [added(turns) for turns in range(3)]
    return Frame(chat=lengths[0], turn=max(lengths[1] - lengths[0], lengths[2] - lengths[1], 0))


def most_prompts(study: Study, agent: ModelAgent, world: World, horizon: int, added: Frame) -> int | None:
    """Return the most tokens of all prompts of an episode together, each step asked once; None without a bound.

    Only grids and task maps bound what they show.

    Every text counts with its bytes. A step later, a list of earlier steps is one line longer, and a conversation holds
    one more prompt and one more answer; an answer counts with all tokens that the model may say.

    Args:
        study, agent: what is planned.
        world: where.
        horizon: number of steps.
        added: what the chat template adds.

    Raises:
        ValueError: the agent's template has no place for what the world shows.
    """
    if not world.planar:
        return None
    if isinstance(agent, TaskChatAgent):
        assert isinstance(world, TaskWorld)  # a study pairs agents and worlds
        asked = _task_turns(study, agent, world.task_map)
        summary = _summary(world.task_map) if agent.memory else 0
        fixed = most_text_tokens(agent.system)
    else:
        asked, summary, fixed = _grid_turns(study, agent, world, horizon), 0, 0
    first, second, third = asked
    steps = np.arange(horizon)
    own = np.where(steps == 0, first, second + (steps - 1) * (third - second))
    total = added.chat + fixed + own + summary
    if study.history_of(agent) in ("conversation", "reasoning"):
        earlier = np.concatenate([[0], np.cumsum(own)[:-1]])
        total = total + earlier + steps * (added.turn + most_answer_tokens(agent.sampling.max_tokens))
    return int(total.sum())


def _grid_turns(study: Study, agent: ModelAgent, world: World, horizon: int) -> tuple[int, int, int]:
    """Return the most bytes of what is asked after no, one and two steps."""
    assert isinstance(agent, ChatAgent)
    kind = study.history_of(agent)
    spec = EpisodeSpec(world_id=world.id, agent_id="plan", trajectory=0, seed=study.seed, horizon=horizon)
    # A grid has one length whatever stands where; "yes" is longer than "no".
    first = LiveEpisode(spec, world, study, kind).observe()
    key = world.grid.key is not None
    view = GridView(grid=first.grid, carrying_key=key)
    past = Past(view=view, action=_LONGEST_MOVE)
    row, col = world.grid.start or (0, 0)
    line = sum(len(str(size - 1)) for size in (world.grid.height, world.grid.width)) - len(str(row)) - len(str(col))

    def asked(steps: int) -> int:
        history = (past,) * steps
        seen = Observation(view=view, step=steps, history=history, history_as=kind)
        return most_text_tokens(agent.messages(seen)[-1].content)

    if kind == "none" or "history" not in placeholders(agent.text):
        return (asked(0),) * 3
    return asked(0), asked(1) + line, asked(2) + 2 * line


def _task_turns(study: Study, agent: TaskChatAgent, task_map: TaskMap) -> tuple[int, int, int]:
    """Return the most bytes of what is told after no, one and two steps, the summary left out."""
    kind = study.history_of(agent)
    report = max(_reports(task_map), key=lambda report: most_text_tokens(report_text(report)))

    def told(steps: int) -> int:
        memory = Memory()
        for _ in range(steps + 1):
            memory.add(report, _LONGEST_MOVE)
        past = Past(view=TaskView(memory=memory), action=_LONGEST_MOVE, text="")
        seen = Observation(view=TaskView(memory=memory), step=steps, history=(past,) * steps, history_as=kind)
        rest = most_text_tokens(memory_text(memory)) if agent.memory else 0
        return most_text_tokens(agent.messages(seen)[-1].content) - rest

    first, second, third = (told(steps) for steps in range(3))
    return first, second, third


@lru_cache(maxsize=1024)
def _reports(task_map: TaskMap) -> tuple[Report, ...]:
    """Return every report of a map that can be the longest one."""
    found = []
    nodes: Mapping[Any, str] = {node.cell: name for name, node in task_map.nodes.items()}
    for cell in task_map.cells:
        name = nodes.get(cell)
        told: list[NodeReport | None] = [None]
        if name is not None:
            told = [
                NodeReport(
                    name=name,
                    options=task_map.nodes[name].options,
                    children=task_map.children[name],
                    achieved=achieved,
                    fresh=fresh,
                )
                for achieved, fresh in _STATUSES
            ]
        found += [
            Report(position=cell, available=task_map.available(cell), node=node, rejected="unparsable") for node in told
        ]
    return tuple(found)


@lru_cache(maxsize=1024)
def _summary(task_map: TaskMap) -> int:
    """Return the most bytes of the summary of a memory of a map.

    Each cell stands in one list, each node in one line; what is added is the longest form of all that may change.
    """
    memory = Memory()
    for report in _reports(task_map):
        memory.add(report)
    names = sum(most_text_tokens(name) + len('"", ') for name in task_map.nodes)
    moves = len("up = y + 1, down = y - 1, left = x - 1, right = x + 1")
    empty = 5 * len("not found yet")
    return (
        most_text_tokens(memory_text(memory)) + moves + 2 * names + len("not active yet") * len(task_map.nodes) + empty
    )
