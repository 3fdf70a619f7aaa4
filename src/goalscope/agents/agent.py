"""The interface of agents: an agent maps observations to turns, and is built from a study's kind and parameters."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from inspect import Parameter, signature
from itertools import accumulate
from typing import Any, Final, Literal, Protocol, TypeVar, get_args, runtime_checkable

import numpy as np

from goalscope._ground import registry
from goalscope._ground.checks import check_parameters, is_whole
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
"""Prefix of the names of agent kinds for task maps: task-greedy, task-oracle, ..., task-chat."""

CHAT: Final = "chat"
TASK_CHAT: Final = f"{TASK_PREFIX}{CHAT}"

ANSWERED_BY: Final = "answered_by"
"""Key in the extra values of a turn: the server's name for the model that answered."""

REDRAWS: Final = "redraws"
"""Key in the extra values of a turn: how many replies to the same request were discarded before the reply used."""

WITHHELD: Final = "withheld by the server"
"""Name of the failure of a turn whose answer the server withheld; the model is not to blame for it."""

History = Literal["none", "actions", "conversation", "reasoning"]
"""What an agent is shown of the earlier steps of its episode: nothing; what it saw and did; the whole conversation,
including its own answers; or the conversation with the reasoning that it wrote before each answer."""

HISTORIES: Final[tuple[str, ...]] = get_args(History)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """An earlier step of an episode, as a later prompt shows it to the agent.

    Attributes:
        view: what the agent saw.
        action: what it did, None if its turn contained no valid action.
        text: its answer, None if there was none or answers are not shown.
        reasoning: the reasoning that it wrote, None if there was none or reasoning is not shown.
    """

    view: View
    action: int | None
    text: str | None = None
    reasoning: str | None = None

    @property
    def answer(self) -> str:
        """Text of the agent's earlier answer as later prompts show it: its reasoning, if reasoning is shown, then its
        answer.

        An empty line separates reasoning and answer. Reasoning is passed as plain text, since no chat format has a
        field for the reasoning of earlier turns that all servers keep.
        """
        return "\n\n".join(part for part in (self.reasoning, self.text) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What an agent is shown before it acts.

    Attributes:
        view: what the agent can see now.
        step: 0-based index of the step.
        attempt: 0, or the number of the retry after turns without a valid action.
        episode_id: content id of the episode.
        seed: root seed of the study.
        history: the earlier steps of the episode if the agent is shown any, else empty.
        history_as: in which form the prompt shows these earlier steps, one of `HISTORIES`.
        world: the whole world, for agents whose attribute `knows_world` is True (oracles); None for all others.
        horizon: maximum number of actions of the episode, for the same agents; 0 for all others.
        shared_examples: id that selects the worked examples of the prompt, so that several worlds can show the same
            examples; "" to select the examples by `episode_id`.
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
        """Id by which the worked examples of the prompt are drawn; observations with the same id show the same
        examples.
        """
        return self.shared_examples or self.episode_id

    def seen(self, kind: type[ViewType]) -> ViewType:
        """Return the agent's view after checking that the view is an instance of the class ``kind``.

        Raises:
            TypeError: the view has another class, so the agent does not fit this world.
        """
        if not isinstance(self.view, kind):
            raise TypeError(f"this agent needs to see {kind.shows}, got {self.view.shows}: choose another agent")
        return self.view

    @property
    def grid(self) -> Grid:
        """The grid as the agent can see it now: its start is the agent's current cell, and fog covers the cells not yet
        seen.

        Raises:
            TypeError: the agent does not see a grid.
        """
        return self.seen(GridView).grid

    @property
    def carrying_key(self) -> bool:
        """Whether the agent in a grid carries the key, the object that opens the locked door."""
        return self.seen(GridView).carrying_key

    @property
    def memory(self) -> AgentKnowledge:
        """Everything that the reports of this episode have told the agent about its task map.

        A task map has tasks on some of its cells, which depend on each other. Read the object while acting, and keep no
        reference to it: it changes with the next step.
        """
        return self.seen(TaskView).memory

    @property
    def report(self) -> Report:
        """What the agent sees now on a task map: its cell, the task on this cell, and the directions that are open."""
        return self.seen(TaskView).report

    def rng(self, *names: str | int) -> np.random.Generator:
        """Return the random number generator of this turn, which does not depend on the order in which episodes are
        played.

        Args:
            names: purpose of the random numbers; another purpose gets an independent generator.
        """
        return stream(self.seed, "turn", self.episode_id, self.step, self.attempt, *names)

    def uniform(self, *names: str | int) -> float:
        """Return one uniform random number in [0, 1) for this turn, independent of `rng` and much faster.

        Args:
            names: purpose of the number; the same purpose always gives the same number, another an independent number.
        """
        return uniform(self.seed, "turn", self.episode_id, self.step, self.attempt, *names)

    def draw(self, chances: Sequence[float]) -> int:
        """Draw an action's index with the given probabilities, using the random number of this turn.

        The same observation and probabilities always give the same index.
        """
        cumulative = list(accumulate(chances))
        target = self.uniform() * cumulative[-1]  # the sum may differ from 1 by a rounding error
        return min(bisect_right(cumulative, target), len(cumulative) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An agent's answer to one observation: an action, or the reason why the answer contains none.

    Attributes:
        action: index of the action in the names of the view; None if the answer contains no valid action.
        failure: name of what is wrong with the answer; None if there is an action.
        text: the final answer.
        reasoning: the reasoning that the agent wrote.
        prompt_tokens: exact token ids of the prompt, if known.
        output_tokens: exact token ids of the output, if known.
        usage: what the answer cost: name of the cost -> number of tokens, seconds or USD.
        extra: further values to store with the step, in the types of JSON.
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
            raise ValueError(f"a turn must have either an action or a failure, got {self.action=} and {self.failure=}")


def check_usage(usage: Mapping[str, Any]) -> None:
    """Check the costs of a turn, a mapping from the name of each cost to a number of tokens, seconds or USD.

    Raises:
        ValueError: a cost is not a number, not finite, or larger in size than `MOST_USAGE` (2**53).
    """
    for name, value in usage.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"usage {name!r} must be a number, got {type(value).__name__}")
        if not -MOST_USAGE <= value <= MOST_USAGE:  # this also refuses NaN and infinity
            shown_value = f"a whole number of {value.bit_length()} bits" if isinstance(value, int) else repr(value)
            raise ValueError(f"usage {name!r} must be a finite number of at most 2**53, got {shown_value}")


def check_action(turn: Turn, names: Sequence[str]) -> None:
    """Check that the action of a turn is None or a valid index into ``names``, the names of the actions in this world.

    Raises:
        ValueError: the action is anything else.
    """
    if turn.action is not None and not (is_whole(turn.action) and 0 <= turn.action < len(names)):
        raise ValueError(
            f"the action of a turn must be the number of one of the {len(names)} actions, from 0 ({', '.join(names)}), "
            f"or None, got {turn.action!r:.100}"
        )


@runtime_checkable
class Agent(Protocol):
    """Interface of an agent: it maps each observation to a turn, its answer with an action.

    An agent's answer to an observation must not depend on the other observations in its batch.

    An agent may have these optional attributes:

    * `tags`: named values, such as the checkpoint of a model, which each of its episodes then carries and by which
      results can be grouped.
    * `needs`: the class of views that it acts on; any view by default.
    * `knows_world`: True if its observations must include the world itself.
    * `reads`: True if it acts by the words of its instruction; its parameter `wording` then takes the name of the
      wording.
    * `in_worlds`: a method for agents that depend on all worlds of a study. It receives a function that returns these
      worlds, and returns the agent that acts in them.
    """

    @property
    def name(self) -> str:
        """Short name of the agent, as tables show it."""
        ...

    @property
    def journalled(self) -> bool:
        """Whether each answer is written to the run's store before it is used, because answers are expensive."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return everything that determines the agent's behaviour, in the types of JSON; its hash is the agent's id."""
        ...

    def act(self, observations: Sequence[Observation]) -> Sequence[Turn]:
        """Answer each observation with a turn, in the order of the observations.

        Raises:
            Exception: whatever the underlying model raises; the runner stops cleanly and can resume.
        """
        ...


@runtime_checkable
class Remembering(Protocol):
    """Interface of an agent that sets for itself which earlier steps of an episode its prompts show."""

    @property
    def history(self) -> History | None:
        """How the agent's prompts show earlier steps, one of `HISTORIES`; None to use the setting of the study."""
        ...


def check_fits(agent: Agent, view: type[View], place: str = "") -> None:
    """Check that the worlds of a study show what an agent needs to see.

    Args:
        agent: the agent; its optional attribute `needs` is the class of views that it can act on.
        view: class of the views that the worlds show.
        place: location of the agent in the study, which the error names.

    Raises:
        ValueError: the worlds show views of another class; the message names an agent that fits, if there is one.
    """
    needs: type[View] = getattr(agent, "needs", View)
    if not issubclass(view, needs):
        twin = f"environment-{getattr(agent, 'kind', '')}"
        other = twin if view.shows == "an environment" and twin in registry.names("agent") else "another agent"
        raise ValueError(
            f"an agent must fit the worlds of its study, but {agent.name!r}{f' at {place}' if place else ''} needs to "
            f"see {needs.shows}, and these show {view.shows}: choose {other}, or put it into a study of its own"
        )


def agent_id(agent: Agent) -> str:
    """Return the id of an agent: a hash of its description, which determines its behaviour."""
    return content_id("agent", dict(agent.describe()))


def agent_kind(kind: str) -> Callable[[Factory], Factory]:
    """Register how agents of a kind are built, so that studies can name the kind; used as a decorator.

    The decorated object is a dataclass, whose fields are the parameters, or a function that receives all parameters as
    one mapping and returns the agent. All parameters enter the id of a study.

    Args:
        kind: name of the kind. The attribute `needs` says in which worlds its agents can act, see `Agent`.

    Raises:
        ValueError: the name is taken.
    """

    def add(maker: Factory) -> Factory:
        def build(parameters: Mapping[str, Any]) -> Any:
            return _construct(kind, maker, parameters) if isinstance(maker, type) else maker(parameters)

        registry.register("agent", kind, made_of=maker)(build)
        return maker

    return add


def build_agent(kind: str, parameters: Mapping[str, Any]) -> Agent:
    """Build an agent from its kind and parameters, as a study names them.

    Args:
        kind: a registered kind: "optimal", "epsilon-greedy", ...; "chat", see `goalscope.agents.ChatAgent`;
            "task-greedy", "task-chat", ... for task maps; a kind of another package; or ``module:Class`` of a file in
            the working directory.
        parameters: the parameters of that kind; `name` sets the name shown in tables.

    Raises:
        ValueError: the kind is unknown, a parameter is unknown or missing, or a value is out of range.
    """
    agent = _own(kind, parameters) if is_own(kind) else registry.resolve("agent", kind)(parameters)
    if not isinstance(agent, Agent):
        members = ("name", "journalled", "describe", "act")
        raise ValueError(
            f"{kind} must be an agent, with a name, journalled (True if each answer is stored before it is used), "
            f"describe() and act(observations), but its class {type(agent).__name__} lacks "
            f"{', '.join(member for member in members if not hasattr(agent, member))}: add this to the class"
        )
    return agent


def decisive_parameters(kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an agent that can change a result; only these enter the id of a study.

    For chat agents, addresses, waiting times, prices and caps of their models are left out. Agents of all other kinds
    keep every parameter.

    Args:
        kind: kind of the agent.
        parameters: all its parameters in the study.
    """
    if kind not in (CHAT, TASK_CHAT):
        return dict(parameters)
    decisive = {key: value for key, value in parameters.items() if key not in ("prices", "caps", "concurrency")}
    server = decisive.get("server")
    if isinstance(server, Mapping):
        decisive["server"] = {key: value for key, value in server.items() if key in DECISIVE}
    return decisive


def _own(kind: str, parameters: Mapping[str, Any]) -> Any:
    """Build an agent from a class in the working directory and its keyword arguments."""
    agent_class = load_own(kind, ("act", "describe"), "an agent")
    if is_dataclass(agent_class):
        return _construct(kind, agent_class, parameters)
    accepted = signature(agent_class).parameters.values()
    takes_name = any(parameter.name == "name" or parameter.kind is Parameter.VAR_KEYWORD for parameter in accepted)
    names = [name for name in parameters if takes_name or name != "name"]
    check_parameters(kind, agent_class, names, f"write {kind}:{{name}}=VALUE, or name it in the study")
    return _named(kind, agent_class, parameters, takes_name=takes_name)


def _construct(kind: str, agent: type[Built], parameters: Mapping[str, Any]) -> Built:
    """Build an agent from the values of its dataclass fields."""
    parameter_fields = {entry.name: entry for entry in fields(agent)}  # type: ignore[arg-type]
    accepted = ", ".join(name for name in parameter_fields if name != "name") or "no parameters"
    unknown = sorted(set(parameters) - set(parameter_fields) - {"name"})
    if unknown:
        raise ValueError(
            f"agent kind {kind!r} has no parameter {', '.join(unknown)}: it takes {accepted} (and an optional name)"
        )
    missing = [
        name
        for name, entry in parameter_fields.items()
        if entry.default is MISSING and entry.default_factory is MISSING and name not in parameters
    ]
    if missing:
        raise ValueError(
            f"agent kind {kind!r} takes {accepted}, but {', '.join(missing)} is missing: add it to the agent"
        )
    if not isinstance(parameters.get("name", ""), str):
        raise ValueError(f"the name of an agent must be a text, got {parameters['name']!r}")
    return _named(kind, agent, parameters, takes_name="name" in parameter_fields)


def _named(kind: str, agent_class: Callable[..., Built], parameters: Mapping[str, Any], *, takes_name: bool) -> Built:
    """Build an agent. If its class takes no name, set the given name, or else its own name or its kind."""
    if takes_name:
        return agent_class(**parameters)
    agent = agent_class(**{key: value for key, value in parameters.items() if key != "name"})
    name = parameters.get("name") or getattr(agent, "name", "") or kind
    try:
        if name != getattr(agent, "name", ""):
            object.__setattr__(agent, "name", name)  # the agent may be a frozen dataclass
    except AttributeError:
        raise ValueError(
            f"agent kind {kind!r} must accept a parameter name, or have an attribute name that can be set"
        ) from None
    return agent
