"""The chat agent of a task of Inspect: our prompts and our parser around whatever model Inspect asks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from inspect_ai.model import Model as InspectModel

from goalscope.agents.build import CHAT, TASK_CHAT
from goalscope.agents.chat import ChatAgent
from goalscope.agents.task_chat import TaskChatAgent
from goalscope.inspect_ai.provider import GoalscopeAPI
from goalscope.models.backends import check_type
from goalscope.models.base import Completion, Message, Model, Request, Sampling

_KINDS: Final[Mapping[str, type[ChatAgent]]] = {CHAT: ChatAgent, TASK_CHAT: TaskChatAgent}
_TYPES: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("task", "template", "wording", "name", "history", "strategy"), str),
    **dict.fromkeys(("reasoned", "memory"), bool),
}
_SAMPLING: Final = frozenset(entry.name for entry in fields(Sampling))


@dataclass(frozen=True)
class AskedByInspect:
    """A model of another provider: Inspect asks it, here it has a name and no more.

    Attributes:
        name: as Inspect writes it, ``provider/model``.
    """

    name: str

    def describe(self) -> Mapping[str, Any]:
        """Return the provider and the model; what else decides its answers, Inspect's log holds."""
        return {"kind": "inspect", "model": self.name}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> None:
        """Return None: only its provider knows the text."""

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """Refuse: Inspect asks it."""
        raise TypeError(f"{self.name} must be asked by Inspect")


def asked_model(model: InspectModel) -> Model:
    """Return the model of ours behind one of Inspect's, or what stands for it where there is none."""
    return model.api.asked if isinstance(model.api, GoalscopeAPI) else AskedByInspect(str(model))


def split_parameters(kind: str, parameters: Mapping[str, Any]) -> tuple[dict[str, Any], Sampling]:
    """Return the parameters of an agent's prompt and its sampling, out of those that a study gives a chat agent.

    Parameters of its model are left out: Inspect says which model is asked.

    Raises:
        ValueError: another kind of agent, a value of the wrong type or out of its range, or an agent whose action is
            drawn by likelihoods, which Inspect cannot ask for.
    """
    if kind not in _KINDS:
        raise ValueError(f"the agent of a task of Inspect must be one of {', '.join(_KINDS)}, got {kind!r}")
    if parameters.get("answer", "generated") != "generated":
        raise ValueError(
            "the agent of a task of Inspect must read generated answers, got answer: likelihood, which Inspect cannot "
            "ask for: leave answer out, or use goalscope run"
        )
    taken = {entry.name for entry in fields(_KINDS[kind]) if entry.init} & set(_TYPES)
    own = {name: value for name, value in parameters.items() if name in taken}
    for name, value in own.items():
        check_type(name, value, _TYPES[name])
    return own, Sampling(**{name: value for name, value in parameters.items() if name in _SAMPLING})


def chat_agent(kind: str, model: Model, sampling: Sampling, own: Mapping[str, Any]) -> ChatAgent:
    """Return the agent that a task plays with.

    Args:
        kind: "chat" or "task-chat".
        model: see `asked_model`.
        sampling: the settings in force.
        own: see `split_parameters`.

    Raises:
        FileNotFoundError, ValueError: see `ChatAgent`.
    """
    return _KINDS[kind](model=model, sampling=sampling, **own)
