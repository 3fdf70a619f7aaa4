"""Numbers of tokens of the prompts of an episode: an estimate from a few of them, and an upper bound.

Tokens are counted by the model's own tokenizer where it is available, else by characters. Grids and task maps have an
upper bound each; other worlds have none. A bound counts each passage by that tokenizer, each cell of a grid as its
longest symbol, and adds a few tokens where passages meet; without a tokenizer it counts bytes.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, Final

import numpy as np

from goalscope.agents.agent import History, Observation, Past
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import Message
from goalscope.agents.models.dialect import Dialect
from goalscope.agents.models.folders import model_folder
from goalscope.agents.models.http import HttpModel
from goalscope.agents.models.http_budget import CHAT_ALLOWANCE, MESSAGE_ALLOWANCE, most_answer_tokens, most_text_tokens
from goalscope.agents.prompts import placeholders
from goalscope.agents.task_chat import TaskChatAgent
from goalscope.agents.task_scripted import RandomWalk
from goalscope.runs import EpisodeSpec, Study
from goalscope.runs.episode import LiveEpisode
from goalscope.worlds.grid import SYMBOLS, Action
from goalscope.worlds.gridworld import GridView, NamedView
from goalscope.worlds.tasks.knowledge import AgentKnowledge, NodeReport, Report, memory_text, report_text
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import TaskSession, TaskView, TaskWorld
from goalscope.worlds.world import View, World

Counter = Callable[[tuple[Message, ...]], int]
"""Counts the tokens of a chat."""

_CHARACTERS = 4  # for each token, without a tokenizer
_SEAM: Final = 4  # maximum number of extra tokens of a passage in a prompt: a blank before it, merges at its ends
MOST_ANSWER = 256
"""Maximum number of tokens of an answer that is scored and not generated, with its opening."""
_CONVERSATIONS: tuple[History, ...] = ("conversation", "reasoning")
_LONGEST_MOVE = Action.RIGHT  # no other action, and no missing one, has a longer name
_DIFFERENCE = len("RIGHT") - len("UP")
_GRID_PIECE = re.compile(r"\s*\S+")


# Token counters


def counter(agent: ChatAgent, parameters: Mapping[str, Any]) -> tuple[Counter, str]:
    """Return a counter of the tokens of a chat, and a text on its method."""

    def characters(messages: tuple[Message, ...]) -> int:
        return -(-sum(len(message.content) for message in messages) // _CHARACTERS)

    dialect, problem = dialect_of(agent, parameters)
    if dialect is None:
        return characters, f"as characters / {_CHARACTERS}, without the chat template: {problem}"

    def exact(messages: tuple[Message, ...]) -> int:
        return len(dialect.prompt_ids([dialect.render(messages, agent.sampling)])[0])

    return exact, "by the model's own tokenizer and chat template"


def dialect_of(agent: ChatAgent, parameters: Mapping[str, Any]) -> tuple[Dialect | None, str]:
    """Return the chat dialect of an agent's model, or None and the reason why it is not known here."""
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
    """Return the chat dialect of a local model, None where it is on the hub or behind a server."""
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
    """Tokens of all prompts of an episode that lasts to its horizon, of the first and of the last one.

    Earlier answers count like the requested answer, without reasoning; ``reasoned`` is the total number of earlier
    answers with reasoning in all prompts, each answer counted once for each prompt.
    """

    total: float
    first: int
    last: int
    reasoned: int


def prompts_of(study: Study, agent: ChatAgent, world: World, horizon: int, count: Counter) -> Prompts:
    """Return an estimate of the tokens that an agent reads in an episode that lasts to its horizon.

    A few of its prompts are counted, the others interpolated: a list of steps makes prompts grow linearly, a
    conversation whose every prompt holds such a list quadratically.
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
    """Yield observations after none, half and all of the steps, with the first view repeated."""
    view = LiveEpisode(planned(study, world, horizon), world, study, history).observe().view
    answer = '{"action": "RIGHT"}' if history in _CONVERSATIONS else None  # in place of each earlier answer
    past = Past(view=view, action=len(view.actions) - 1, text=answer)
    for steps in (0,) if history == "none" else sorted({0, (horizon - 1) // 2, horizon - 1}):
        yield Observation(view=view, step=steps, history=(past,) * steps, history_as=history)


def _walk_observations(study: Study, history: History, world: TaskWorld, horizon: int) -> Iterator[Observation]:
    """Yield the observations at five steps of a random walk.

    They, and the summary where there is one, are as long as those of an exploring agent.
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
    """Return the turns of a random walk up to its last observation."""
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


# Upper bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFrame:
    """Maximum number of tokens that a chat template adds.

    Attributes:
        chat: to a chat of one turn, its system prompt included.
        turn: to each earlier turn: question and answer.
    """

    chat: int
    turn: int


class PromptMeasure:
    """Upper bound of the tokens of a text in a prompt, by a model's tokenizer, or by bytes where it is not known.

    Args:
        dialect: the model's chat dialect.
    """

    def __init__(self, dialect: Dialect | None = None) -> None:
        self._dialect = dialect
        self._pieces: dict[tuple[str, tuple[str, ...]], int] = {}

    def __call__(self, text: str) -> int:
        """Return the maximum number of tokens of a text."""
        if self._dialect is None:
            return most_text_tokens(text)
        return len(self._dialect.encode(text)) + _SEAM

    def grid(self, text: str, symbols: tuple[str, ...] = SYMBOLS) -> int:
        """Return the maximum number of tokens of a grid of this size: each cell counts as the longest symbol."""
        head, line, rows = text.partition("\n")  # the numbers of the columns never change
        return self._piece(head, symbols) + sum(
            self._piece(piece, symbols) for piece in _GRID_PIECE.findall(line + rows)
        )

    def _piece(self, piece: str, symbols: tuple[str, ...]) -> int:
        if (piece, symbols) not in self._pieces:
            symbol = piece[-1]
            variants = [piece[:-1] + other for other in symbols] if symbol in symbols else [piece]
            most = max(map(most_text_tokens, variants)) - 1
            if self._dialect is not None:
                most = min(most, max(len(self._dialect.encode(variant)) for variant in variants))
            self._pieces[piece, symbols] = most
        return self._pieces[piece, symbols]


def frame(agent: ChatAgent, dialect: Dialect | None) -> PromptFrame:
    """Return the tokens that a chat template adds: those of the model's own template, or the declared allowance.

    Args:
        agent: the agent.
        dialect: its model's chat dialect, None where only its server knows it.
    """
    opening = [Message(role="system", content=".")] if agent.system else []
    if dialect is None:
        return PromptFrame(chat=CHAT_ALLOWANCE + MESSAGE_ALLOWANCE * (1 + len(opening)), turn=2 * MESSAGE_ALLOWANCE)
    measure = PromptMeasure(dialect)

    def added(turns: int) -> int:
        earlier = [Message(role="user", content="."), Message(role="assistant", content=".")] * turns
        chat = [*opening, *earlier, Message(role="user", content=".")]
        return measure(dialect.render(chat, agent.sampling))

    lengths = [added(turns) for turns in range(3)]
    return PromptFrame(chat=lengths[0], turn=max(lengths[1] - lengths[0], lengths[2] - lengths[1], 0) + 2 * _SEAM)


def most_prompts(
    study: Study, agent: ChatAgent, world: World, horizon: int, added: PromptFrame, measure: PromptMeasure
) -> int | None:
    """Return the maximum total number of tokens of the prompts of an episode, one for each step; None without a bound.

    With each step, a list of earlier steps grows by one line, and a conversation by one prompt and one answer. An
    answer counts with the model's maximum number of output tokens.

    Args:
        study, agent: the study and one of its agents.
        world: the world.
        horizon: number of steps.
        added: tokens of the chat template.
        measure: bounds the tokens of a text.

    Raises:
        ValueError: the agent's template has no placeholder for the view of the world.
    """
    needed: type[View] = getattr(agent, "needs", View)
    bound = _BOUNDS.get(study.view if study.view is GridView else needed)
    if bound is None:
        return None
    (first, second, third), summary = bound(study, agent, world, horizon, measure)
    fixed = measure(agent.system) if agent.system else 0
    steps = np.arange(horizon)
    question_tokens = np.where(steps == 0, first, second + (steps - 1) * (third - second))
    total = added.chat + fixed + question_tokens + summary
    if study.history_of(agent) in _CONVERSATIONS:
        earlier = np.concatenate([[0], np.cumsum(question_tokens)[:-1]])
        output_tokens = agent.sampling.max_tokens + (MOST_ANSWER if agent.choice is not None else 0)
        total = total + earlier + steps * (added.turn + most_answer_tokens(output_tokens))
    return int(total.sum())


_Bound = tuple[tuple[int, int, int], int]
"""Maximum numbers of tokens of the questions after no, one and two steps, and of the summary in each of them."""


def _grid_bound(study: Study, agent: ChatAgent, world: World, horizon: int, measure: PromptMeasure) -> _Bound:
    history_kind = study.history_of(agent)
    first = LiveEpisode(planned(study, world, horizon), world, study, history_kind).observe()
    # "yes" is longer than "no"; all grids of this size have the same bound.
    view = replace(first.seen(GridView), carrying_key=world.grid.key is not None)
    drawn_grid, fields = agent.drawn(view.text), placeholders(agent.text)
    symbols = tuple(agent.drawn("".join(SYMBOLS)))
    extra = _DIFFERENCE * fields.count("example") + fields.count("carrying_key")

    observation = Observation(view=view, step=0, history_as="none" if "history" not in fields else history_kind)
    text = agent.messages(observation)[-1].content
    first_tokens = (
        measure(text.replace(drawn_grid, "")) + text.count(drawn_grid) * measure.grid(drawn_grid, symbols) + extra
    )
    if history_kind == "none" or "history" not in fields:
        return (first_tokens,) * 3, 0
    # The longest line of an earlier step.
    cells = product(range(world.grid.height), range(world.grid.width))
    line = max(measure(f"({row},{col}) {_LONGEST_MOVE.name}\n") for row, col in cells) * fields.count("history")
    return (first_tokens, first_tokens + line, first_tokens + 2 * line), 0


def _task_bound(study: Study, agent: TaskChatAgent, world: TaskWorld, horizon: int, measure: PromptMeasure) -> _Bound:
    history_kind = study.history_of(agent)
    report = max(_reports(world.task_map), key=lambda report: measure(report_text(report)))

    def question_tokens(steps: int) -> int:
        memory = AgentKnowledge()
        for _ in range(steps + 1):
            memory.add(report, _LONGEST_MOVE)
        view = TaskView(memory=memory)
        history = (Past(view=view, action=_LONGEST_MOVE, text=""),) * steps
        seen = Observation(view=view, step=steps, history=history, history_as=history_kind)
        text = agent.messages(seen)[-1].content
        return measure(text.replace(memory_text(memory), "", 1) if agent.memory else text) + _DIFFERENCE

    return (question_tokens(0), question_tokens(1), question_tokens(2)), _summary(
        world.task_map, measure
    ) if agent.memory else 0


@lru_cache(maxsize=1024)
def _reports(task_map: TaskMap) -> tuple[Report, ...]:
    """Return every report of a map that can be the longest one."""
    reports = []
    names: Mapping[Any, str] = {node.cell: name for name, node in task_map.nodes.items()}
    for cell in task_map.cells:
        nodes: list[NodeReport | None] = [None]
        if (name := names.get(cell)) is not None:
            nodes = [
                NodeReport(
                    name=name,
                    options=task_map.nodes[name].options,
                    children=task_map.children[name],
                    achieved=achieved,
                    fresh=fresh,
                )
                for achieved, fresh in ((True, True), (True, False), (False, False))
            ]
        available = task_map.available(cell)
        common: dict[str, Any] = {"available": available, "rejected": "unparsable", "goals": len(task_map.goals)}
        reports += [Report(position=cell, node=node, **common) for node in nodes]
    return tuple(reports)


@lru_cache(maxsize=1024)
def _summary(task_map: TaskMap, measure: PromptMeasure) -> int:
    """Return the maximum number of tokens of the summary of a memory of a map.

    Each cell is in one list, each node in one line; the longest form of all changing parts is added.
    """
    memory = AgentKnowledge()
    for report in _reports(task_map):
        memory.add(report)
    names = sum(measure(f'"{name}", ') for name in task_map.nodes)
    moves = measure("up = y + 1, down = y - 1, left = x - 1, right = x + 1")
    states = measure("not active yet") * len(task_map.nodes) + 5 * measure("not found yet")
    return measure(memory_text(memory)) + moves + 2 * names + states


# By the view of a world; a study pairs agents and worlds.
_SAMPLERS: Mapping[type[View], Callable[..., Iterator[Observation]]] = {TaskView: _walk_observations}
_BOUNDS: Mapping[type[View], Callable[..., _Bound]] = {
    GridView: _grid_bound,
    NamedView: _grid_bound,
    TaskView: _task_bound,
}
