"""Agents from the kind and parameters that a study names."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Final, TypeVar

from goalscope import registry
from goalscope.agents.agent import Agent
from goalscope.models.http_settings import DECISIVE
from goalscope.own import is_own, load_own

TASK_PREFIX: Final = "task-"
"""With what the kinds of our agents of task maps begin: task-greedy, task-oracle, ..., task-chat."""

CHAT: Final = "chat"
TASK_CHAT: Final = f"{TASK_PREFIX}{CHAT}"

Built = TypeVar("Built")
Maker = TypeVar("Maker", bound=Callable[..., Any])


def agent_kind(kind: str) -> Callable[[Maker], Maker]:
    """Return a decorator that registers how the agents of a kind are built; studies then name the kind.

    It stands above a dataclass, whose fields are the parameters, or above a function that is given all parameters as
    one mapping and returns the agent. All parameters enter the id of a study.

    Args:
        kind: the kind. In which worlds its agents act, their attribute `needs` says, see `Agent`.

    Raises:
        ValueError: a name that is taken.
    """

    def add(maker: Maker) -> Maker:
        def build(parameters: Mapping[str, Any]) -> Any:
            return _construct(kind, maker, parameters) if isinstance(maker, type) else maker(parameters)

        registry.register("agent", kind, made_of=maker)(build)
        return maker

    return add


def build_agent(kind: str, parameters: Mapping[str, Any]) -> Agent:
    """Build an agent.

    Args:
        kind: a registered kind: "optimal", "epsilon-greedy", ...; "chat", see `goalscope.agents.chat.chat_agent`;
            "task-greedy", "task-chat", ... for task maps; a kind of another package; or ``module:Class`` of a file in
            the working directory.
        parameters: the parameters of that kind; `name` overrides the name that tables show.

    Raises:
        ValueError: an unknown kind, an unknown or missing parameter, or a value out of its range.
        TypeError: what the kind builds is no agent.
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
    kept = {key: value for key, value in parameters.items() if key not in ("prices", "caps", "concurrency")}
    server = kept.get("server")
    if isinstance(server, Mapping):
        kept["server"] = {key: value for key, value in server.items() if key in DECISIVE}
    return kept


def _own(kind: str, parameters: Mapping[str, Any]) -> Any:
    """Build an agent of a class in the working directory from its keyword arguments."""
    made = load_own(kind, ("act", "describe"), "an agent")
    if is_dataclass(made):
        return _construct(kind, made, parameters)
    try:
        return made(**parameters)
    except TypeError as error:
        raise ValueError(f"{kind} must take the parameters {', '.join(parameters) or 'none'}: {error}") from error


def _construct(kind: str, agent: type[Built], parameters: Mapping[str, Any]) -> Built:
    """Build an agent from the values of the fields of its dataclass."""
    known = {entry.name: entry for entry in fields(agent)}  # type: ignore[arg-type]
    takes = ", ".join(name for name in known if name != "name") or "no parameters"
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise ValueError(f"agent kind {kind!r} takes {takes} (and an optional name), got {', '.join(unknown)}")
    missing = [
        name
        for name, entry in known.items()
        if entry.default is MISSING and entry.default_factory is MISSING and name not in parameters
    ]
    if missing:
        raise ValueError(f"agent kind {kind!r} must be given {takes}, missing: {', '.join(missing)}")
    if not isinstance(parameters.get("name", ""), str):
        raise ValueError(f"the name of an agent must be a text, got {parameters['name']!r}")
    return agent(**parameters)
