"""Interface of agents: observations in, turns out; agents are built from a study's kind and parameters."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from inspect import Parameter, signature
from itertools import accumulate
from typing import Any, Final, Literal, Protocol, TypeVar, get_args, runtime_checkable

import numpy as np

from goalscope._ground import registry
from goalscope._ground.ids import content_id
from goalscope._ground.own import is_own, load_own
from goalscope._ground.rng import stream, uniform
from goalscope.agents.models.base import MOST_USAGE
from goalscope.agents.models.http_settings import DECISIVE
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.tasks.knowledge import AgentKnowledge, Report
from goalscope.worlds.tasks.world import TaskView
from goalscope.worlds.world import View, World

ViewType = TypeVar("ViewType", bound=View)
Built = TypeVar("Built")
Factory = TypeVar("Factory", bound=Callable[..., Any])

TASK_PREFIX: Final = "task-"
"""Prefix of the kinds of agents for task maps: task-greedy, task-oracle, ..., task-chat."""

CHAT: Final = "chat"
TASK_CHAT: Final = f"{TASK_PREFIX}{CHAT}"

ANSWERED_BY: Final = "answered_by"
"""Extra value of a turn: the name that a server gives the model that answered."""

REDRAWS: Final = "redraws"
"""Extra value of a turn: how many replies to the same request were discarded before the one that it holds."""

WITHHELD: Final = "withheld by the server"
"""Failure name of a turn whose answer the server kept back: it is no failure of the model to keep to the form."""

History = Literal["none", "actions", "conversation", "reasoning"]
"""What an agent is shown of the earlier steps of its episode: nothing; what it saw and did; the whole conversation, its
own answers included; the conversation with the reasoning that it wrote before each answer."""

HISTORIES: Final[tuple[str, ...]] = get_args(History)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """An earlier step of an episode, as shown to the agent.

    Attributes:
        view: what was seen then.
        action: what it did, None where the turn held no action.
        text: its answer, None where answers are not handed over or there was none.
        reasoning: its written reasoning, None where reasoning is not handed over or there was none.
    """

    view: View
    action: int | None
    text: str | None = None
    reasoning: str | None = None

    @property
    def answer(self) -> str:
        """The answer as it stands in a conversation, after its reasoning where that is shown.

        Reasoning and answer are separated by an empty line. No chat format has a field for the reasoning of earlier
        turns that all servers keep, so it is passed as plain text.
        """
        return "\n\n".join(part for part in (self.reasoning, self.text) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What an agent is shown before it acts.

    Attributes:
        view: what can be seen now.
        step: number of the step, 0-based.
        attempt: 0, or the number of the retry after a turn that held no action.
        episode_id: content id of the episode.
        seed: root seed of the study.
        history: the earlier steps of the episode where they are handed over, else empty.
        history_as: how they are to be shown.
        world: the whole world, told to an agent that says `knows_world` (an oracle) and to no other.
        horizon: maximum number of actions of the episode, told to the agents that are told the world; 0 for others.
        shared_examples: see `World.shared_examples`.
    """

    view: View
    step: int = 0
    attempt: int = 0
    episode_id: str = ""
    seed: int = 0
    history: tuple[Past, ...] = ()
    history_as: History = "none"
    world: World | None = None
    horizon: int = 0
    shared_examples: str = ""

    @property
    def example_id(self) -> str:
        """The id by which the examples in the prompt are chosen."""
        return self.shared_examples or self.episode_id

    def seen(self, kind: type[ViewType]) -> ViewType:
        """Return the view; a TypeError where it is of another class."""
        if not isinstance(self.view, kind):
            raise TypeError(f"this agent must be shown {kind.shows}, got {self.view.shows}: choose another agent")
        return self.view

    @property
    def grid(self) -> Grid:
        """The grid as it can be seen now: the agent at its cell, fog where it has not looked."""
        return self.seen(GridView).grid

    @property
    def carrying_key(self) -> bool:
        """Whether the agent holds the key of a grid."""
        return self.seen(GridView).carrying_key

    @property
    def memory(self) -> AgentKnowledge:
        """All that was told so far of a task map; read it while acting and keep no reference."""
        return self.seen(TaskView).memory

    @property
    def report(self) -> Report:
        """What is told now of a task map."""
        return self.seen(TaskView).report

    def rng(self, *names: str | int) -> np.random.Generator:
        """Return the random stream of this turn; it does not depend on the order of work."""
        return stream(self.seed, "turn", self.episode_id, self.step, self.attempt, *names)

    def uniform(self, *names: str | int) -> float:
        """Return one uniform number in [0, 1) of this turn, independent of its stream and much faster."""
        return uniform(self.seed, "turn", self.episode_id, self.step, self.attempt, *names)

    def draw(self, chances: Sequence[float]) -> int:
        """Return an index drawn with the given probabilities, by the random number of this turn."""
        cumulative = list(accumulate(chances))
        target = self.uniform() * cumulative[-1]  # the sum may miss 1 by a rounding error
        return min(bisect_right(cumulative, target), len(cumulative) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An agent's answer.

    Attributes:
        action: index of the action in the names of the view, None where the answer holds none that can be used.
        failure: the name of what is wrong with the answer, None where there is an action.
        text: the final answer.
        reasoning: the written reasoning.
        prompt_tokens, output_tokens: exact token ids where they are known.
        usage: tokens, seconds, USD: numbers by name.
        extra: plain values to keep with the step.
    """

    action: int | None
    failure: str | None = None
    text: str | None = None
    reasoning: str | None = None
    prompt_tokens: tuple[int, ...] | None = None
    output_tokens: tuple[int, ...] | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_usage(self.usage)
        if (self.action is None) == (self.failure is None):
            raise ValueError(
                f"a turn must hold either an action or the name of a failure, got {self.action=} and {self.failure=}"
            )


def check_usage(usage: Mapping[str, Any]) -> None:
    """Raise a ValueError unless the costs of a turn are finite numbers of at most `MOST_USAGE`."""
    for name, value in usage.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"usage {name!r} must be a number, got {type(value).__name__}")
        if not -MOST_USAGE <= value <= MOST_USAGE:  # neither NaN nor infinity is in between
            shown_value = f"a whole number of {value.bit_length()} bits" if isinstance(value, int) else repr(value)
            raise ValueError(f"usage {name!r} must be a finite number of at most 2**53, got {shown_value}")


@runtime_checkable
class Agent(Protocol):
    """Anything that acts.

    An agent's answer to an observation must not depend on the other observations of its batch. `journalled` says
    whether an answer is worth money or minutes: each such answer is committed to the store before it is used.
    An agent may have an attribute `tags`, plain values by name, which each of its episodes then carries; an attribute
    `needs`, the class of views that it acts on (any view without it); and an attribute `knows_world`, which is True
    where its observations are to hold the world itself. One that acts by the words of its instruction may say so by an
    attribute `reads`, True, and then takes the name of their wording as its parameter `wording`. One that follows from
    all worlds of a study may have a method `in_worlds`, which is given a function that returns them, and returns the
    agent that acts there.
    """

    @property
    def name(self) -> str:
        """Short name, as tables show it."""
        ...

    @property
    def journalled(self) -> bool:
        """Whether each answer is committed before it is used."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return all that determines the agent's behaviour as plain values; the agent's id is their hash."""
        ...

    def act(self, observations: Sequence[Observation]) -> Sequence[Turn]:
        """Answer each observation, in order.

        Raises:
            Exception: whatever the model behind it raises; the runner stops cleanly and can resume.
        """
        ...


@runtime_checkable
class Remembering(Protocol):
    """An agent that states which history it is shown."""

    @property
    def history(self) -> History | None:
        """Form of earlier steps in its prompts; None for the study's setting."""
        ...


def check_fits(agent: Agent, view: type[View], place: str = "") -> None:
    """Raise a ValueError for an agent that needs to see something else than views of a class; place: in the study."""
    needs: type[View] = getattr(agent, "needs", View)
    if not issubclass(view, needs):
        raise ValueError(
            f"an agent must fit the worlds of its study, but {agent.name!r}{f' at {place}' if place else ''} needs to "
            f"see {needs.shows} and these show {view.shows}: choose another agent, or make it a study of its own"
        )


def agent_id(agent: Agent) -> str:
    """Return the content id of an agent's description."""
    return content_id("agent", dict(agent.describe()))


def agent_kind(kind: str) -> Callable[[Factory], Factory]:
    """Return a decorator that registers how the agents of a kind are built; studies then name the kind.

    It stands above a dataclass, whose fields are the parameters, or above a function that is given all parameters as
    one mapping and returns the agent. All parameters enter the id of a study.

    Args:
        kind: the kind. In which worlds its agents act, their attribute `needs` says, see `Agent`.

    Raises:
        ValueError: a name that is taken.
    """

    def add(maker: Factory) -> Factory:
        def build(parameters: Mapping[str, Any]) -> Any:
            return _construct(kind, maker, parameters) if isinstance(maker, type) else maker(parameters)

        registry.register("agent", kind, made_of=maker)(build)
        return maker

    return add


def build_agent(kind: str, parameters: Mapping[str, Any]) -> Agent:
    """Build an agent.

    Args:
        kind: a registered kind: "optimal", "epsilon-greedy", ...; "chat", see `goalscope.agents.ChatAgent`;
            "task-greedy", "task-chat", ... for task maps; a kind of another package; or ``module:Class`` of a file in
            the working directory.
        parameters: the parameters of that kind; `name` overrides the name that tables show.

    Raises:
        ValueError: an unknown kind, an unknown or missing parameter, or a value out of its range.
        TypeError: the result of the kind is no agent.
    """
    agent = _own(kind, parameters) if is_own(kind) else registry.resolve("agent", kind)(parameters)
    if not isinstance(agent, Agent):
        raise TypeError(
            f"agent kind {kind!r} must build an agent (name, journalled, describe(), act(observations)), got "
            f"{type(agent).__name__}"
        )
    return agent


def decisive_parameters(kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an agent that can change a result; only they enter the id of a study.

    Of models, no address, waiting time, price or cap; of all other agents, whether their kind is registered here or
    not, every parameter.
    """
    if kind not in (CHAT, TASK_CHAT):
        return dict(parameters)
    decisive = {key: value for key, value in parameters.items() if key not in ("prices", "caps", "concurrency")}
    server = decisive.get("server")
    if isinstance(server, Mapping):
        decisive["server"] = {key: value for key, value in server.items() if key in DECISIVE}
    return decisive


def _own(kind: str, parameters: Mapping[str, Any]) -> Any:
    """Build an agent of a class in the working directory from its keyword arguments."""
    agent_class = load_own(kind, ("act", "describe"), "an agent")
    if is_dataclass(agent_class):
        return _construct(kind, agent_class, parameters)
    accepted = signature(agent_class).parameters.values()
    takes_name = any(parameter.name == "name" or parameter.kind is Parameter.VAR_KEYWORD for parameter in accepted)
    try:
        return _named(kind, agent_class, parameters, takes_name=takes_name)
    except TypeError as error:
        raise ValueError(f"{kind} must take the parameters {', '.join(parameters) or 'none'}: {error}") from error


def _construct(kind: str, agent: type[Built], parameters: Mapping[str, Any]) -> Built:
    """Build an agent from the values of the fields of its dataclass."""
    parameter_fields = {entry.name: entry for entry in fields(agent)}  # type: ignore[arg-type]
    accepted = ", ".join(name for name in parameter_fields if name != "name") or "no parameters"
    unknown = sorted(set(parameters) - set(parameter_fields) - {"name"})
    if unknown:
        raise ValueError(f"agent kind {kind!r} takes {accepted} (and an optional name), got {', '.join(unknown)}")
    missing = [
        name
        for name, entry in parameter_fields.items()
        if entry.default is MISSING and entry.default_factory is MISSING and name not in parameters
    ]
    if missing:
        raise ValueError(f"agent kind {kind!r} must be given {accepted}, missing: {', '.join(missing)}")
    if not isinstance(parameters.get("name", ""), str):
        raise ValueError(f"the name of an agent must be a text, got {parameters['name']!r}")
    return _named(kind, agent, parameters, takes_name="name" in parameter_fields)


def _named(kind: str, agent_class: Callable[..., Built], parameters: Mapping[str, Any], *, takes_name: bool) -> Built:
    """Build an agent; one whose class takes no name is called by the given one, its own, or its kind."""
    if takes_name:
        return agent_class(**parameters)
    agent = agent_class(**{key: value for key, value in parameters.items() if key != "name"})
    name = parameters.get("name") or getattr(agent, "name", "") or kind
    try:
        if name != getattr(agent, "name", ""):
            object.__setattr__(agent, "name", name)  # its dataclass may be frozen
    except AttributeError:
        raise ValueError(f"agent kind {kind!r} must take a parameter name, or have a name that can be set") from None
    return agent
