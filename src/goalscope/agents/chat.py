"""Chat agents: a language model, how it is asked about an observation, and how its answers are read.

What differs by kind of world is how a view is written into a prompt: see `ChatAgent.asked`.
"""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Self, get_type_hints

from goalscope.agents.agent import CHAT, HISTORIES, History, Observation, Past, Turn, agent_kind
from goalscope.agents.choice import CHOICE_KEYS, Choice, answers_of, chosen, content_free, take_choice
from goalscope.agents.parse import DRAWN_UNDER, MOVES, PARSER_VERSION, parse_action
from goalscope.agents.prompts import (
    EXAMPLES,
    OF_GRIDS,
    RULE,
    TASKS,
    WORKED_RULE,
    drawn_in,
    example_action,
    fill,
    placeholders,
    read_template,
    render_history,
    wording,
    worked_examples,
)
from goalscope.ids import canonical_json
from goalscope.models.base import (
    TEMPLATE_FORMS,
    Completion,
    Likelihoods,
    Message,
    Model,
    Request,
    Sampling,
    Scoring,
    build_model,
    check_type,
)
from goalscope.models.http_budget import Budget
from goalscope.rows import Tag
from goalscope.worlds.gridworld import GridView, NamedView
from goalscope.worlds.world import View

_TEXTS: Final = dict.fromkeys(("model", "backend", "template", "name", "history"), str)

MARKERS: Final = "markers"
"""Name of the failure of an answer that still holds markers of its model, by which it cannot be taken apart."""


@dataclass(frozen=True, kw_only=True)
class ChatAgent:
    """A language model that is shown each state as text and answers with an action.

    Attributes:
        model: the language model.
        sampling: how its outputs are drawn.
        name: short name, as tables show it; the model's name by default.
        history: what it is shown of earlier steps; None for what the study says.
        task: "grid", "key-door", "fog", "text" (any world in words), or the path of a template of one's own.
        template: form of the bundled template, one of `TEMPLATE_FORMS` or "completion"; "" for the one that the
            model's card names, "completion" for a base model whose files are here, else "example".
        wording: name of another wording of the task grid, see `goalscope.agents.prompts`; "" for the usual one.
        choice: how its action is drawn by the likelihoods of all answers; None where the model's answer is read.
        text: the template.
        system: the system prompt, "" for none.

    Raises:
        FileNotFoundError, ValueError: see `read_template`; an unknown history; or a model that tells no likelihoods.
    """

    model: Model
    sampling: Sampling = field(default_factory=Sampling)
    name: str = ""
    history: History | None = None
    task: str | Path = "grid"
    template: str = ""
    wording: str = ""
    choice: Choice | None = None
    text: str = field(default="", init=False)
    system: str = field(default="", init=False)

    journalled: ClassVar[bool] = True
    settings: ClassVar[Mapping[str, type]] = {"task": str, "wording": str}
    """The parameters of a study that are this class's own, and their types."""

    def __post_init__(self) -> None:
        if self.history is not None and self.history not in HISTORIES:
            raise ValueError(f"the history of an agent must be one of {', '.join(HISTORIES)}, got {self.history!r}")
        if self.choice is not None:
            self.choice.check_model(self.model, self.sampling)
        for name, value in self._read().items():
            object.__setattr__(self, name, value)

    def _read(self) -> dict[str, Any]:
        """Return the fields that follow from the others."""
        if self.template and self.task not in TASKS:
            raise ValueError(
                f"the form of a template must be given for a bundled task ({', '.join(TASKS)}), got {self.template!r} "
                f"for the file {self.task}: leave template out"
            )
        text = read_template(self.task, self.template or self._card(), self.wording)
        return {"text": text, "name": self.name or self._title([])}

    def _title(self, arm: Sequence[str]) -> str:
        """Return the default name: the model's, and in brackets what else tells agents of that model apart."""
        told = [*arm, *([self.choice.title] if self.choice is not None else [])]
        return f"{self.model.name} ({', '.join(told)})" if told else self.model.name

    def _card(self) -> str:
        """Return the form of the bundled templates that the model's card or kind wants, "example" for chat models."""
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
        """What the model says of itself, e.g. the goal that was planted in it; and that its action is a choice."""
        found = {} if self.choice is None else {"answer": "likelihood"}
        found |= {"wording": self.wording} if self.wording else {}
        return {**getattr(self.model, "tags", {}), **found}

    @property
    def needs(self) -> type[View]:
        """A grid where the template shows one, with the place to go to where it says that, else any view."""
        blanked, held = self.choice is not None and self.choice.prior_symbol, set(placeholders(self.text))
        if "aim" in held:
            return NamedView
        return GridView if blanked or set(OF_GRIDS) & held else View

    def drawn(self, grid: str) -> str:
        """Return the text of a grid in the symbols of the agent's wording."""
        return drawn_in(self.wording, grid)

    def describe(self) -> Mapping[str, Any]:
        """Return model, prompt, sampling, parser and its own history; the name changes no answer and is left out."""
        history = {} if self.history is None else {"history": self.history}
        return {
            "model": dict(self.model.describe()),
            "sampling": self.sampling.describe(),
            "parser": DRAWN_UNDER,
            **history,
            **({} if self.choice is None else {"answer": dict(self.choice.describe())}),
            **self._prompt(),
        }

    def _prompt(self) -> dict[str, Any]:
        """Return what the description says of kind and prompt."""
        held = placeholders(self.text)
        rule = {
            **({"example": RULE} if "example" in held else {}),
            **({EXAMPLES: WORKED_RULE} if EXAMPLES in held else {}),
        }
        symbols = wording(self.wording).symbols
        own = {"symbols": dict(symbols)} if symbols else {}
        return {"kind": CHAT, "template": hashlib.sha256(self.text.encode()).hexdigest(), **rule, **own}

    def asked(self, observation: Observation, step: int, view: View, history: Sequence[Past]) -> str:
        """Return what the model is told at one step, the present one or an earlier one of a conversation."""
        wanted = set(placeholders(self.text))
        told = observation.history_as in ("conversation", "reasoning")
        if history and not told and "history" not in wanted:
            raise ValueError(
                f"this study hands over the history, for which the template {self.task} has no {{{{history}}}}: set "
                "the agent's task to fog, or its history to none or conversation"
            )
        if isinstance(view, GridView) and "view" not in wanted:
            grid = view.grid
            if (view.carrying_key or grid.key is not None or grid.door is not None) and "carrying_key" not in wanted:
                raise ValueError(
                    f"worlds with a key or a door need a template with {{{{carrying_key}}}}, {self.task} has none: set "
                    "the agent's task to key-door"
                )
            if grid.fog is not None and self.task in ("grid", "key-door"):
                raise ValueError(f"the task {self.task} says nothing about fog: set the agent's task to fog")
        values = {
            **view.fields(),
            "view": view.text,
            "actions": ", ".join(view.actions[index] for index in view.offered),
            "example": example_name(observation, step, view),
        }
        if isinstance(view, GridView):
            values |= {"grid": self.drawn(values["grid"]), "view": self.drawn(values["view"])}
        if EXAMPLES in wanted:
            values[EXAMPLES] = worked_examples(self.text, view, observation.episode_id, step, self.drawn)
        if "history" in wanted:
            values["history"] = render_history(history)
        return fill(self.text, {name: value for name, value in values.items() if name in wanted})

    def messages(self, observation: Observation) -> tuple[Message, ...]:
        """Return the chat that an observation becomes.

        A conversation holds, for each earlier step, the prompt of that step as it was and the answer to it; the prompt
        of the next step only adds to it.
        """
        chat = [Message(role="system", content=self.system)] if self.system else []
        history = observation.history
        if observation.history_as in ("conversation", "reasoning"):
            for step, past in enumerate(history):
                text = self.asked(observation, step, past.view, history[:step])
                chat.append(Message(role="user", content=text))
                chat.append(Message(role="assistant", content=past.answer))
        text = self.asked(observation, observation.step, observation.view, history)
        return (*chat, Message(role="user", content=text))

    def prompt(self, observation: Observation) -> str:
        """Return the exact text that the model reads; the chat as JSON where only its server renders it."""
        messages = self.messages(observation)
        rendered = self.model.render(messages, self.sampling)
        if rendered is not None:
            return rendered
        return canonical_json([{"role": message.role, "content": message.content} for message in messages])

    def request(self, observation: Observation) -> Request:
        """Return what the model is asked about an observation."""
        key = (observation.seed, observation.episode_id, observation.step, observation.attempt)
        return Request(messages=self.messages(observation), key=key, answers=answers_of(observation.view.actions))

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Ask the model about each observation and read its answers, or draw one of them."""
        if self.choice is not None:
            return self._choose(self.choice, observations)
        completions = self.model.complete([self.request(seen) for seen in observations], self.sampling)
        return [turn(one, seen.view.actions) for one, seen in zip(completions, observations, strict=True)]

    def _choose(self, choice: Choice, observations: Sequence[Observation]) -> list[Turn]:
        assert isinstance(self.model, Scoring)  # checked when the agent was made
        asked = [self.request(seen) for seen in observations]
        count = len(asked)
        if choice.prior_symbol:
            asked += [self.request(content_free(seen, choice.prior_symbol)) for seen in observations]
        found = self.model.likelihoods(asked, self.sampling, reasoned=choice.after == "reasoning")
        priors: list[Likelihoods | None] = [*found[count:]] or [None] * count
        return [
            chosen(choice, self.sampling, one, prior, seen)
            for one, prior, seen in zip(found[:count], priors, observations, strict=True)
        ]

    @classmethod
    def build(cls, parameters: Mapping[str, Any]) -> Self:
        """Build an agent from the parameters of a study; no weight is read and nothing is sent yet.

        Args:
            parameters: ``model`` (a folder, a name on the hub, "theseus", or what a server or backend knows it by),
                the attributes of the class that `settings` names, ``template``, ``name``, ``history``, the fields of
                `Sampling`, ``answer``, ``answer_after``, ``least_mass`` and ``prior_symbol`` (see
                `goalscope.agents.choice.Choice`), ``backend`` and its options, see `goalscope.models.base`.

        Raises:
            FileNotFoundError: a folder, a strategy or a template that is not there.
            ValueError: an unknown parameter, a missing model, or a value of the wrong type or out of its range.
        """
        if "model" not in parameters:
            raise ValueError(
                "a chat agent must be given its model: a folder, a name on the Hugging Face hub, or theseus, which "
                "comes with the package"
            )
        types = {**_TEXTS, **CHOICE_KEYS, **get_type_hints(Sampling), **cls.settings}
        own = {key: value for key, value in parameters.items() if key in types}
        for parameter, value in own.items():
            check_type(parameter, value, types[parameter])
        others = {key: value for key, value in parameters.items() if key not in types}
        name, backend = own.get("name") or None, own.pop("backend", "")
        model = build_model(own.pop("model"), others, backend=backend, name=name, others=tuple(types))
        sampling = Sampling(**{entry.name: own.pop(entry.name) for entry in fields(Sampling) if entry.name in own})
        return cls(model=model, sampling=sampling, choice=take_choice(own), **own)


agent_kind(CHAT)(ChatAgent.build)


def example_name(observation: Observation, step: int, view: View) -> str:
    """Return the name of the action that the example in the prompt of one step shows."""
    return view.actions[example_action(observation.episode_id, step, view.offered)]


def turn(completion: Completion, names: tuple[str, ...] = MOVES) -> Turn:
    """Return the turn that a completion amounts to: its action, or the name of what is wrong with it."""
    parsed = parse_action(completion.text, truncated=completion.finish == "length", names=names)
    action, failure = (None, MARKERS) if completion.marked else (parsed.action, parsed.failure)
    extra: dict[str, Any] = {"finish": completion.finish, "parser": PARSER_VERSION}
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
