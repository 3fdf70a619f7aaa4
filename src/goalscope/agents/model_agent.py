"""The chat agent of all worlds: the model, how it is asked, and how its answers are read.

What differs by kind of world is how a view is written into a prompt: `ModelAgent.asked` of its two forms.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from goalscope.agents.agent import HISTORIES, History, Observation, Past, Turn
from goalscope.agents.parse import MOVES, PARSER_VERSION, parse_action
from goalscope.agents.prompts import example_action
from goalscope.ids import canonical_json
from goalscope.models.base import TEMPLATE_FORMS, Completion, Message, Model, Request, Sampling
from goalscope.models.http_budget import Budget
from goalscope.rows import Tag
from goalscope.worlds.world import View

MARKERS: Final = "markers"
"""Name of the failure of an answer that still holds markers of its model, by which it cannot be taken apart."""


@dataclass(frozen=True, kw_only=True)
class ModelAgent(ABC):
    """An agent that asks a language model about each observation.

    Attributes:
        model: the language model.
        sampling: how its outputs are drawn.
        name: short name, as tables show it; the model's name by default.
        history: what it is shown of earlier steps; None for what the study says.

    Raises:
        ValueError: an unknown history.
    """

    model: Model
    sampling: Sampling = field(default_factory=Sampling)
    name: str = ""
    history: History | None = None

    journalled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.history is not None and self.history not in HISTORIES:
            raise ValueError(f"the history of an agent must be one of {', '.join(HISTORIES)}, got {self.history!r}")
        object.__setattr__(self, "name", self.name or self.model.name)

    @property
    def form(self) -> str:
        """Form of the bundled templates that the model is asked with: what its card names, else "example"."""
        # A model behind a server has a card where its tokenizer lies in a folder.
        known = (self.model, getattr(self.model, "dialect", None))
        return next((form for one in known if (form := getattr(one, "template", None)) is not None), TEMPLATE_FORMS[0])

    @property
    def largest_batch(self) -> int:
        """Most observations of one call: 1 where answers arrive one by one, no limit for models in lockstep."""
        return int(getattr(self.model, "largest_batch", sys.maxsize))

    @property
    def concurrency(self) -> int | None:
        """Calls at the same time that the model wants, None for as many as the run has workers."""
        wanted = getattr(self.model, "concurrency", None)
        return None if wanted is None else int(wanted)

    @property
    def budget(self) -> Budget | None:
        """What the model has spent and may spend, None for models that cost nothing."""
        found = getattr(self.model, "budget", None)
        return found if isinstance(found, Budget) else None

    @property
    def tags(self) -> Mapping[str, Tag]:
        """What the model says of itself, e.g. the goal that was planted in it; empty for most models."""
        return dict(getattr(self.model, "tags", {}))

    @property
    @abstractmethod
    def needs(self) -> type[View]:
        """The views that it can be shown."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Return all that determines the agent's behaviour as plain values; the name changes no answer."""

    @abstractmethod
    def asked(self, observation: Observation, step: int, view: View, history: Sequence[Past]) -> str:
        """Return what the model is told at one step, the present one or an earlier one of a conversation.

        Args:
            observation: what the agent is shown now.
            step: number of the step.
            view: what was seen then.
            history: the steps before it.
        """

    def opening(self) -> tuple[Message, ...]:
        """Return what every chat begins with."""
        return ()

    def messages(self, observation: Observation) -> tuple[Message, ...]:
        """Return the chat that an observation becomes.

        A conversation holds, for each earlier step, the prompt of that step as it was and the answer to it; the prompt
        of the next step only adds to it.

        Raises:
            ValueError: the prompt has no place for something that the agent must know.
        """
        chat = [*self.opening()]
        history = observation.history
        if observation.history_as in ("conversation", "reasoning"):
            for step, past in enumerate(history):
                text = self.asked(observation, step, past.view, history[:step])
                chat.append(Message(role="user", content=text))
                chat.append(Message(role="assistant", content=past.answer))
        text = self.asked(observation, observation.step, observation.view, history)
        return (*chat, Message(role="user", content=text))

    def _described(self) -> dict[str, Any]:
        """What every description ends with."""
        history = {} if self.history is None else {"history": self.history}
        return {"sampling": self.sampling.describe(), "parser": PARSER_VERSION, **history}

    def request(self, observation: Observation) -> Request:
        """Return what the model is asked about an observation."""
        key = (observation.seed, observation.episode_id, observation.step, observation.attempt)
        return Request(messages=self.messages(observation), key=key)

    def prompt(self, observation: Observation) -> str:
        """Return the exact text that the model reads; the chat as JSON where only its server renders it."""
        messages = self.messages(observation)
        rendered = self.model.render(messages, self.sampling)
        if rendered is not None:
            return rendered
        return canonical_json([{"role": message.role, "content": message.content} for message in messages])

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Ask the model about each observation and read its answers."""
        requests = [self.request(observation) for observation in observations]
        completions = self.model.complete(requests, self.sampling)
        return [turn(one, seen.view.actions) for one, seen in zip(completions, observations, strict=True)]


def example_name(observation: Observation, step: int, view: View) -> str:
    """Return the name of the action that the example in the prompt of one step shows."""
    return view.actions[example_action(observation.episode_id, step, view.offered)]


def turn(completion: Completion, names: tuple[str, ...] = MOVES) -> Turn:
    """Return the turn that a completion amounts to: its action, or the name of what is wrong with it.

    Args:
        completion: what the model said.
        names: the names of the actions, those of grids by default.
    """
    parsed = parse_action(completion.text, truncated=completion.finish == "length", names=names)
    action, failure = (None, MARKERS) if completion.marked else (parsed.action, parsed.failure)
    extra: dict[str, Any] = {"finish": completion.finish}
    if completion.logprobs is not None:
        extra["logprobs"] = [dict(entry) for entry in completion.logprobs]
    if completion.reconstructed:
        extra["reconstructed"] = True
    if completion.unsupported:
        extra["unsupported"] = list(completion.unsupported)
    if completion.raw is not None and completion.output_tokens is None:
        extra["raw"] = completion.raw
    return Turn(
        action=action,
        failure=failure,
        text=completion.text,
        reasoning=completion.reasoning,
        prompt_tokens=completion.prompt_tokens,
        output_tokens=completion.output_tokens,
        usage=completion.usage,
        extra=extra,
    )
