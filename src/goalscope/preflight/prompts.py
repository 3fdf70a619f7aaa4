"""How many tokens the prompts of an episode have: about, counted on a few of them, and at most, whatever happens in it.

Tokens are counted by the model's own tokenizer where it is at hand, else by letters. What grids and task maps show is
bounded, each by a function of its own; what other worlds show is not. A bound counts each passage by that tokenizer,
each cell of a grid as the symbol that takes most tokens there, and allows for a few where passages meet; without a
tokenizer it counts bytes.
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
from goalscope.agents.prompts import placeholders
from goalscope.agents.task_chat import TaskChatAgent
from goalscope.agents.task_scripted import RandomWalk
from goalscope.models.base import Message
from goalscope.models.dialect import Dialect
from goalscope.models.folders import model_folder
from goalscope.models.http import HttpModel
from goalscope.models.http_budget import CHAT_ALLOWANCE, MESSAGE_ALLOWANCE, most_answer_tokens, most_text_tokens
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

_CHARACTERS = 4  # a token, where no tokenizer is at hand
_SEAM: Final = 4  # tokens, at most, that a passage has more inside of a prompt: a blank before it, merges at its ends
MOST_ANSWER = 256
"""Tokens, at most, of what opens an answer that is read and not written, and of the answer itself."""
_CONVERSATIONS: tuple[History, ...] = ("conversation", "reasoning")
_LONGEST_MOVE = Action.RIGHT  # no other action, and no missing one, has a longer name
_DIFFERENCE = len("RIGHT") - len("UP")
_PIECE = re.compile(r"\s*\S+")


# How tokens are counted


def counter(agent: ChatAgent, given: Mapping[str, Any]) -> tuple[Counter, str]:
    """Return what counts the tokens of a chat, and how it does, in words; ``given`` are the agent's parameters."""

    def characters(messages: tuple[Message, ...]) -> int:
        return -(-sum(len(message.content) for message in messages) // _CHARACTERS)

    dialect, problem = dialect_of(agent, given)
    if dialect is None:
        return characters, f"as characters / {_CHARACTERS}, without the chat template: {problem}"

    def exact(messages: tuple[Message, ...]) -> int:
        return len(dialect.encode(dialect.render(messages, agent.sampling)))

    return exact, "by the model's own tokenizer and chat template"


def dialect_of(agent: ChatAgent, given: Mapping[str, Any]) -> tuple[Dialect | None, str]:
    """Return how an agent's model writes chats, or None and why that is not known here."""
    dialect = agent.model.dialect if isinstance(agent.model, HttpModel) else _dialect(given)
    if dialect is None:
        return None, "the tokenizer is not known"
    if dialect.on_hub:
        return None, "the tokenizer would come from the hub"
    try:
        dialect.render((Message(role="user", content="."),), agent.sampling)
    except ImportError as error:
        return None, f"the tokenizer cannot be read ({error})"
    return dialect, ""


def _dialect(given: Mapping[str, Any]) -> Dialect | None:
    """Return how a local model writes chats, None where it is on the hub or its server alone knows."""
    source = str(given.get("model"))
    if "server" in given or model_folder(source) is None:
        return None
    known = {key: given[key] for key in ("reasoning", "today", "template_options") if key in given}
    return _read_dialect(source, json.dumps(known))


@lru_cache(maxsize=16)
def _read_dialect(source: str, known: str) -> Dialect:
    return Dialect(source, **json.loads(known))


# About how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Tokens of all prompts of an episode that lasts to its horizon, of the first and of the last one.

    Earlier answers count as long as the answer that is asked for, without reasoning; ``reasoned`` is how many earlier
    answers with their reasoning all prompts together hold, each answer once a prompt.
    """

    total: float
    first: int
    last: int
    reasoned: int


def prompts_of(study: Study, agent: ChatAgent, world: World, horizon: int, count: Counter) -> Prompts:
    """Return about how many tokens an agent reads in an episode that lasts to its horizon.

    A few of its prompts are counted. What stands between follows from them: a list of steps makes prompts grow evenly,
    a conversation whose every prompt holds such a list by the square of the steps.
    """
    kind = study.history_of(agent)
    shown = _SHOWN.get(study.view, _alike)(study, kind, world, horizon)
    lengths = {observation.step: count(agent.messages(observation)) for observation in shown}
    points = list(lengths)
    curve = np.polynomial.Polynomial.fit(points, list(lengths.values()), min(2, len(points) - 1))
    return Prompts(
        total=float(curve(np.arange(horizon)).sum()) if len(points) > 1 else lengths[0] * horizon,
        first=lengths[0],
        last=round(float(curve(horizon - 1))) if len(points) > 1 else lengths[0],
        reasoned=horizon * (horizon - 1) // 2 if kind == "reasoning" else 0,
    )


def _alike(study: Study, kind: History, world: World, horizon: int) -> Iterator[Observation]:
    """Yield what is shown after no step, half of the steps and all, where they all look like the first one."""
    view = LiveEpisode(planned(study, world, horizon), world, study, kind).observe().view
    said = '{"action": "RIGHT"}' if kind in _CONVERSATIONS else None  # stands in for each earlier answer
    past = Past(view=view, action=len(view.actions) - 1, text=said)
    for steps in (0,) if kind == "none" else sorted({0, (horizon - 1) // 2, horizon - 1}):
        yield Observation(view=view, step=steps, history=(past,) * steps, history_as=kind)


def _walked(study: Study, kind: History, world: TaskWorld, horizon: int) -> Iterator[Observation]:
    """Yield what is shown at five steps of a random walk.

    Its observations, and the summary where there is one, are as long as those of an agent that wanders.
    """
    turns = _walk(world.task_map, planned(study, world, horizon))
    wanted = {round(fraction * (horizon - 1)) for fraction in np.linspace(0, 1, 5)}
    said = '{"action": "right"}' if kind in _CONVERSATIONS else None
    memory = AgentKnowledge()
    for step, (action, report) in enumerate(turns):
        memory.add(report, action)
        if step in wanted:
            pasts = [Past(view=TaskView(memory=memory, report=told), action=0, text=said) for _, told in turns[:step]]
            view = TaskView(memory=memory)
            yield Observation(view=view, step=step, seed=study.seed, history=tuple(pasts), history_as=kind)


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
    """Return an episode that stands for all of a study in a world."""
    return EpisodeSpec(world_id=world.id, agent_id="plan", trajectory=0, seed=study.seed, horizon=horizon)


# At most how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The most tokens that a chat template adds.

    Attributes:
        chat: to a chat of one turn, its system prompt included.
        turn: to each earlier turn: what was asked and what was answered.
    """

    chat: int
    turn: int


class Measure:
    """Bounds how many tokens a text has inside of a prompt, by a model's tokenizer, or by bytes where it is not known.

    Args:
        dialect: how the model writes chats.
    """

    def __init__(self, dialect: Dialect | None = None) -> None:
        self._dialect = dialect
        self._pieces: dict[tuple[str, tuple[str, ...]], int] = {}

    def __call__(self, text: str) -> int:
        """Return the most tokens of a text."""
        if self._dialect is None:
            return most_text_tokens(text)
        return len(self._dialect.encode(text)) + _SEAM

    def grid(self, text: str, symbols: tuple[str, ...] = SYMBOLS) -> int:
        """Return the most tokens of a grid of this size, whatever its cells show: each counts as the longest symbol."""
        head, line, rows = text.partition("\n")  # the numbers of the columns never change
        return self._piece(head, symbols) + sum(self._piece(piece, symbols) for piece in _PIECE.findall(line + rows))

    def _piece(self, piece: str, symbols: tuple[str, ...]) -> int:
        if (piece, symbols) not in self._pieces:
            symbol = piece[-1]
            ways = [piece[:-1] + other for other in symbols] if symbol in symbols else [piece]
            found = max(map(most_text_tokens, ways)) - 1
            if self._dialect is not None:
                found = min(found, max(len(self._dialect.encode(way)) for way in ways))
            self._pieces[piece, symbols] = found
        return self._pieces[piece, symbols]


def frame(agent: ChatAgent, dialect: Dialect | None) -> Frame:
    """Return what a chat template adds: as the model's own template writes it, or the declared allowance.

    Args:
        agent: the agent.
        dialect: how its model writes chats, None where its server alone knows.
    """
    opening = [Message(role="system", content=".")] if agent.system else []
    if dialect is None:
        return Frame(chat=CHAT_ALLOWANCE + MESSAGE_ALLOWANCE * (1 + len(opening)), turn=2 * MESSAGE_ALLOWANCE)
    measure = Measure(dialect)

    def added(turns: int) -> int:
        earlier = [Message(role="user", content="."), Message(role="assistant", content=".")] * turns
        chat = [*opening, *earlier, Message(role="user", content=".")]
        return measure(dialect.render(chat, agent.sampling))

    lengths = [added(turns) for turns in range(3)]
    return Frame(chat=lengths[0], turn=max(lengths[1] - lengths[0], lengths[2] - lengths[1], 0) + 2 * _SEAM)


def most_prompts(
    study: Study, agent: ChatAgent, world: World, horizon: int, added: Frame, measure: Measure
) -> int | None:
    """Return the most tokens of all prompts of an episode together, each step asked once; None without a bound.

    A step later, a list of earlier steps is one line longer, and a conversation holds one more prompt and one more
    answer; an answer counts with all tokens that the model may say.

    Args:
        study, agent: what is planned.
        world: where.
        horizon: number of steps.
        added: what the chat template adds.
        measure: bounds the tokens of a text.

    Raises:
        ValueError: the agent's template has no place for what the world shows.
    """
    needed: type[View] = getattr(agent, "needs", View)
    bound = _MOST.get(study.view if study.view is GridView else needed)
    if bound is None:
        return None
    (first, second, third), summary = bound(study, agent, world, horizon, measure)
    fixed = measure(agent.system) if agent.system else 0
    steps = np.arange(horizon)
    own = np.where(steps == 0, first, second + (steps - 1) * (third - second))
    total = added.chat + fixed + own + summary
    if study.history_of(agent) in _CONVERSATIONS:
        earlier = np.concatenate([[0], np.cumsum(own)[:-1]])
        said = agent.sampling.max_tokens + (MOST_ANSWER if agent.choice is not None else 0)
        total = total + earlier + steps * (added.turn + most_answer_tokens(said))
    return int(total.sum())


_Most = tuple[tuple[int, int, int], int]
"""The most tokens of what is asked after no, one and two steps, and of the summary that is told each time."""


def _most_of_grid(study: Study, agent: ChatAgent, world: World, horizon: int, measure: Measure) -> _Most:
    kind = study.history_of(agent)
    first = LiveEpisode(planned(study, world, horizon), world, study, kind).observe()
    # "yes" is longer than "no"; nothing is more to read than a grid of this size.
    view = replace(first.seen(GridView), carrying_key=world.grid.key is not None)
    shown, named = agent.drawn(view.text), placeholders(agent.text)
    symbols = tuple(agent.drawn("".join(SYMBOLS)))
    longer = _DIFFERENCE * named.count("example") + named.count("carrying_key")

    seen = Observation(view=view, step=0, history_as="none" if "history" not in named else kind)
    text = agent.messages(seen)[-1].content
    begun = measure(text.replace(shown, "")) + text.count(shown) * measure.grid(shown, symbols) + longer
    if kind == "none" or "history" not in named:
        return (begun,) * 3, 0
    # No earlier step takes a longer line than this one.
    cells = product(range(world.grid.height), range(world.grid.width))
    line = max(measure(f"({row},{col}) {_LONGEST_MOVE.name}\n") for row, col in cells) * named.count("history")
    return (begun, begun + line, begun + 2 * line), 0


def _most_of_task(study: Study, agent: TaskChatAgent, world: TaskWorld, horizon: int, measure: Measure) -> _Most:
    kind = study.history_of(agent)
    report = max(_reports(world.task_map), key=lambda report: measure(report_text(report)))

    def told(steps: int) -> int:
        memory = AgentKnowledge()
        for _ in range(steps + 1):
            memory.add(report, _LONGEST_MOVE)
        view = TaskView(memory=memory)
        history = (Past(view=view, action=_LONGEST_MOVE, text=""),) * steps
        seen = Observation(view=view, step=steps, history=history, history_as=kind)
        text = agent.messages(seen)[-1].content
        return measure(text.replace(memory_text(memory), "", 1) if agent.memory else text) + _DIFFERENCE

    return (told(0), told(1), told(2)), _summary(world.task_map, measure) if agent.memory else 0


@lru_cache(maxsize=1024)
def _reports(task_map: TaskMap) -> tuple[Report, ...]:
    """Return every report of a map that can be the longest one."""
    found = []
    names: Mapping[Any, str] = {node.cell: name for name, node in task_map.nodes.items()}
    for cell in task_map.cells:
        told: list[NodeReport | None] = [None]
        if (name := names.get(cell)) is not None:
            told = [
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
        found += [Report(position=cell, available=available, node=node, rejected="unparsable") for node in told]
    return tuple(found)


@lru_cache(maxsize=1024)
def _summary(task_map: TaskMap, measure: Measure) -> int:
    """Return the most tokens of the summary of a memory of a map.

    Each cell stands in one list, each node in one line; what is added is the longest form of all that may change.
    """
    memory = AgentKnowledge()
    for report in _reports(task_map):
        memory.add(report)
    names = sum(measure(f'"{name}", ') for name in task_map.nodes)
    moves = measure("up = y + 1, down = y - 1, left = x - 1, right = x + 1")
    states = measure("not active yet") * len(task_map.nodes) + 5 * measure("not found yet")
    return measure(memory_text(memory)) + moves + 2 * names + states


# What differs by what a world shows; a study pairs agents and worlds.
_SHOWN: Mapping[type[View], Callable[..., Iterator[Observation]]] = {TaskView: _walked}
_MOST: Mapping[type[View], Callable[..., _Most]] = {
    GridView: _most_of_grid,
    NamedView: _most_of_grid,
    TaskView: _most_of_task,
}
