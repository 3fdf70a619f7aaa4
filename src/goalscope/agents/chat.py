"""Chat agents for grids and task worlds: a language model, its prompts, and how its answers become actions.

Only the text of a view in a prompt depends on the kind of world, see `ChatAgent.step_text`. An answer is parsed
(`goalscope.agents.parse`), or the action is drawn by how likely the model finds each complete answer (`Choice`).
"""

import hashlib
import json
import math
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Final, Self, get_type_hints

import numpy as np

from goalscope._ground.checks import check_choice
from goalscope._ground.ids import canonical_json
from goalscope._ground.progress import Arrived, handing_out, takes_arrived
from goalscope.agents.agent import (
    ANSWERED_BY,
    CHAT,
    HISTORIES,
    REDRAWS,
    TASK_CHAT,
    WITHHELD,
    History,
    Observation,
    Past,
    Turn,
    agent_kind,
)
from goalscope.agents.models.base import (
    COMPLETION,
    TEMPLATE_FORMS,
    Likelihoods,
    Message,
    Model,
    Reply,
    Request,
    Sampling,
    Scoring,
    build_model,
    check_type,
)
from goalscope.agents.models.http_settings import CallBudget
from goalscope.agents.parse import DRAWN_UNDER, EXAMPLE, LIKELIHOOD, LITTLE_MASS, turn
from goalscope.agents.prompts import (
    ANY,
    EXAMPLES,
    OF_GRIDS,
    OF_THINGS,
    PAPER,
    RULE,
    STRATEGIES,
    TASKS,
    THINGS,
    WORKED_RULE,
    drawn_in,
    encoded_template,
    example_action,
    fill,
    object_texts,
    passage,
    placeholders,
    printed_entry,
    read_template,
    recognised,
    render_history,
    system_prompt,
    template_text,
    wording,
    worked_examples,
)
from goalscope.stats.rows import Tag
from goalscope.worlds.grid import KEY, LISTS, MATRIX, SYMBOLS, check_encoding, written
from goalscope.worlds.gridworld import GridView, NamedView, WordedView
from goalscope.worlds.tasks.knowledge import RULES, AgentKnowledge, memory_text, rules_of, write_log
from goalscope.worlds.tasks.world import TaskView
from goalscope.worlds.world import View

_TEXTS: Final = dict.fromkeys(("model", "backend", "template", "name", "history"), str)


@dataclass(frozen=True, kw_only=True)
class ChatAgent:
    """A language model that is shown each state as text and answers with an action.

    Attributes:
        model: the language model.
        sampling: settings for sampling its outputs, such as the temperature.
        name: short name for tables; the model's name by default.
        history: how its prompts show earlier steps; None for the study's setting.
        task: which prompt template to use: that of a bundled task ("grid", "key-door", "fog", "things", or "text" for
            any world in words), or a template file, given by its path.
        template: which form of the bundled template to use: one of `TEMPLATE_FORMS` or "completion". "" for the form
            that the model's card names; if it names none, "completion" for a base model with local files, else
            "example".
        wording: name of another wording of the task grid, see `goalscope.agents.prompts`; "" for the default wording.
        encoding: how its prompts write a grid, one of `goalscope.worlds.grid.ENCODINGS`.
        choice: settings for drawing its action by the likelihoods of all answers; None to parse a generated answer.
        text: the text of the template, which follows from ``task``, ``template``, ``wording`` and ``encoding``.
        system: the system prompt, or "".

    Raises:
        FileNotFoundError: `read_template` does not find the template.
        ValueError: `read_template` refuses the template, the history is unknown, or the model returns no likelihoods
            although ``choice`` needs them.
    """

    model: Model
    sampling: Sampling = field(default_factory=Sampling)
    name: str = ""
    history: History | None = None
    task: str | Path = "grid"
    template: str = ""
    wording: str = ""
    encoding: str = MATRIX
    choice: "Choice | None" = None
    text: str = field(default="", init=False)
    system: str = field(default="", init=False)

    journalled: ClassVar[bool] = True
    settings: ClassVar[Mapping[str, type]] = {"task": str, "wording": str, "encoding": str}
    """Parameters of a study that are specific to this class -> type of the value."""

    def __post_init__(self) -> None:
        if self.history is not None:
            check_choice("the history of an agent", self.history, HISTORIES)
        if self.choice is not None:
            self.choice.check_model(self.model, self.sampling)
        for name, value in self._derived_fields().items():
            object.__setattr__(self, name, value)

    def _derived_fields(self) -> dict[str, Any]:
        """Return the fields whose values follow from the other fields."""
        if self.template and self.task not in TASKS:
            raise ValueError(
                f"template works only with a bundled task ({', '.join(TASKS)}), got template: {self.template} for the "
                f"file {self.task}: leave template out"
            )
        text = read_template(self.task, self.template or self._card(), self.wording)
        if check_encoding(self.encoding) not in LISTS:
            labels = [] if self.encoding == MATRIX else [self.encoding]
            return {"text": text, "name": self.name or self._title(labels)}
        if self.wording or recognised(text):
            raise ValueError(
                f"encoding: {self.encoding} cannot be combined with {self.wording or 'a printed prompt'}, whose text "
                "describes a matrix: leave encoding out, or use the default wording or your own template"
            )
        text = encoded_template(text, self.encoding) if TASKS.get(str(self.task), ANY) != ANY else text
        return {"text": text, "name": self.name or self._title([self.encoding])}

    def _title(self, labels: Sequence[str]) -> str:
        """Return the default name: the model's name, and in brackets the settings that differ from the defaults."""
        details = [*labels, *([self.choice.title] if self.choice is not None else [])]
        return f"{self.model.name} ({', '.join(details)})" if details else self.model.name

    @property
    def card_form(self) -> str | None:
        """Form of the prompt ("completion", "example", ...) that the model suggests, or None if it suggests none.

        A model suggests a form by a file in its folder (its card), or by being a base model.
        """
        # A model behind a server has a card if its tokenizer is in a local folder.
        sources = (self.model, getattr(self.model, "dialect", None))
        return next((form for source in sources if (form := getattr(source, "template", None)) is not None), None)

    @property
    def form(self) -> str:
        """Form of the bundled prompt template that the agent uses, such as "example".

        It is "" if it uses a template of its own.
        """
        return (self.template or self._card()) if self.task in TASKS else ""

    def _card(self) -> str:
        """Return the form of the bundled templates that the model's card or kind suggests, by default "example"."""
        return self.card_form or TEMPLATE_FORMS[0]

    @property
    def largest_batch(self) -> int:
        """Maximum number of observations per call of `act`.

        It is 1 if answers arrive one by one, as from a server, and unlimited if the model decodes batches.
        """
        return int(getattr(self.model, "largest_batch", sys.maxsize))

    @property
    def hands_out(self) -> bool:
        """Whether the model reports its answers one by one or in small groups, instead of all at the end of a call."""
        return self.largest_batch == 1 or takes_arrived(self._asked)

    @property
    def joins(self) -> bool:
        """Whether a new call may be decoded together with calls that are already running.

        True only if the model supports it and timing then changes no stored number except durations. Timing changes the
        last bits of likelihoods and of log-probabilities, so agents that store either do not join.
        """
        return self.choice is None and not self.sampling.top_logprobs and bool(getattr(self.model, "joins", False))

    @property
    def _asked(self) -> Callable[..., Sequence[Any]]:
        """The method of the model that produces answers."""
        return self.model.likelihoods if self.choice is not None else self.model.complete  # type: ignore[attr-defined]

    @property
    def concurrency(self) -> int | None:
        """Maximum number of concurrent calls to the model; None for as many calls as the run has workers."""
        limit = getattr(self.model, "concurrency", None)
        return None if limit is None else int(limit)

    @property
    def budget(self) -> CallBudget | None:
        """What has been spent on calls to the model, with the limits on it; None for models that cost nothing."""
        budget = getattr(self.model, "budget", None)
        return budget if isinstance(budget, CallBudget) else None

    @property
    def tags(self) -> Mapping[str, Tag]:
        """Named values by which results can be grouped: those of the model, e.g. its planted goal, and the agent's
        settings.

        The settings are ``answer``, ``wording`` and ``encoding``, each left out at its default.
        """
        tags = {} if self.choice is None else {"answer": "likelihood"}
        tags |= {"wording": self.wording} if self.wording else {}
        tags |= {} if self.encoding == MATRIX else {"encoding": self.encoding}
        return {**getattr(self.model, "tags", {}), **tags}

    @property
    def needs(self) -> type[View]:
        """Class of the views that the agent can act on.

        It is `NamedView` (a grid with a named target) if the template has the placeholder for the target, `GridView` if
        the template shows a grid, and otherwise any `View`.
        """
        uses_grid, names = self.choice is not None and self.choice.prior_symbol, set(placeholders(self.text))
        if "aim" in names:
            return NamedView
        return GridView if uses_grid or set(OF_GRIDS) & names else View

    def drawn(self, grid: str, worded: str | None = None) -> str:
        """Return the text of a grid as this agent's prompts show it: in its encoding, and with the symbols of a
        wording.

        Args:
            grid: the grid as text, one character per cell.
            worded: name of a wording (a variant of the prompt), which may use other symbols; by default the agent's
                own.
        """
        return written(self.encoding, drawn_in(self.wording if worded is None else worded, grid))

    def _worded(self, view: View) -> tuple[str, str]:
        """Return template and wording for one view: the agent's own, or those that the view requests."""
        if not isinstance(view, WordedView):
            return self.text, self.wording
        if self.task != "grid" or self.wording or self.encoding in LISTS:
            raise ValueError(
                f"the wording can be changed only for agents with task grid in the default wording and encoding, but "
                f"{self.name} has task {self.task}, wording {self.wording or 'default'} and encoding {self.encoding}: "
                "leave names, order and words out of the changes"
            )
        return read_template(self.task, self.template or self._card(), view.wording), view.wording

    def describe(self) -> Mapping[str, Any]:
        """Return what determines the agent's answers: its model, prompt, sampling, parser and history settings.

        The agent's id is the hash of this description. The name is left out, since it changes no answer.
        """
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
        """Return the entries of the description for kind and prompt."""
        names = placeholders(self.text)
        rule = {
            **({"example": RULE} if "example" in names else {}),
            **({EXAMPLES: WORKED_RULE} if EXAMPLES in names else {}),
        }
        symbols = wording(self.wording).symbols
        symbol_entry = {"symbols": dict(symbols)} if symbols else {}
        encoding = {} if self.encoding == MATRIX else {"encoding": self.encoding}
        template = {"template": hashlib.sha256(self.text.encode()).hexdigest(), **printed_entry(self.text)}
        return {"kind": CHAT, **template, **rule, **symbol_entry, **encoding}

    def step_text(self, observation: Observation, step: int, view: View, history: Sequence[Past]) -> str:
        """Return the user message of one step: of the current step, or of an earlier step of a conversation.

        Args:
            observation: what the agent is shown now; determines the examples and the form of the history.
            step: index of the step that the message belongs to.
            view: what the agent sees at that step.
            history: the steps before that step.

        Raises:
            ValueError: the template lacks a placeholder for something that the agent must be shown.
        """
        template, worded = self._worded(view)
        names = set(placeholders(template))
        as_conversation = observation.history_as in ("conversation", "reasoning")
        if history and not as_conversation and "history" not in names:
            raise ValueError(
                f"this study shows the history, but the template {self.task} has no placeholder {{{{history}}}}: set "
                "the agent's task to fog, or its history to none or conversation"
            )
        if isinstance(view, GridView) and "view" not in names:
            grid, explained = view.grid, names.issuperset(OF_THINGS)
            if (grid.things or set(grid.held) - {KEY}) and not explained:
                raise ValueError(
                    f"worlds with things need a template with the placeholders {{{{{'}}, {{'.join(OF_THINGS)}}}}}, "
                    f"which {self.task} lacks: set the agent's task to {THINGS}"
                )
            with_key = view.carrying_key or grid.key is not None or grid.door is not None
            if with_key and not explained and "carrying_key" not in names:
                raise ValueError(
                    f"worlds with a key or a door need a template with the placeholder {{{{carrying_key}}}}, which "
                    f"{self.task} lacks: set the agent's task to key-door"
                )
            if grid.fog is not None and self.task in ("grid", "key-door", THINGS):
                other = "use a template of your own" if self.task == THINGS else "set the task to fog"
                raise ValueError(f"the world has fog, which the prompt of task {self.task} does not explain: {other}")
        values = {
            **view.fields(),
            "view": view.text,
            "actions": ", ".join(view.actions[index] for index in view.offered),
            "example": example_name(observation, step, view),
        }
        if isinstance(view, GridView):
            values |= {name: self.drawn(values[name], worded) for name in ("grid", "view")}
            values |= object_texts(view) if names & set(OF_THINGS) else {}
        if EXAMPLES in names:
            drawn = partial(self.drawn, worded=worded)
            values[EXAMPLES] = worked_examples(template, view, observation.example_id, step, drawn)
        if "history" in names:
            values["history"] = render_history(history)
        return fill(template, {name: value for name, value in values.items() if name in names})

    def messages(self, observation: Observation) -> tuple[Message, ...]:
        """Return the messages sent to the model for an observation: the system prompt if there is one, then the user's
        prompt.

        If the history is shown as a conversation, each earlier step contributes its original prompt and the model's
        answer to it. The chat of the next step therefore only appends to this chat.
        """
        chat = [Message(role="system", content=self.system)] if self.system else []
        history = observation.history
        if observation.history_as in ("conversation", "reasoning"):
            for step, past in enumerate(history):
                text = self.step_text(observation, step, past.view, history[:step])
                chat.append(Message(role="user", content=text))
                chat.append(Message(role="assistant", content=past.answer))
        text = self.step_text(observation, observation.step, observation.view, history)
        return (*chat, Message(role="user", content=text))

    def prompt(self, observation: Observation) -> str:
        """Return the exact text that the model reads for an observation.

        If only the model's server turns the chat into text, the result is the chat as JSON.
        """
        messages = self.messages(observation)
        rendered = self.model.render(messages, self.sampling)
        if rendered is not None:
            return rendered
        return canonical_json([{"role": message.role, "content": message.content} for message in messages])

    def request(self, observation: Observation) -> Request:
        """Return the request to the model for an observation: messages, the key of its random numbers, and the valid
        answers.
        """
        key = (observation.seed, observation.episode_id, observation.step, observation.attempt)
        return Request(messages=self.messages(observation), key=key, answers=answers_of(observation.view.actions))

    def act(self, observations: Sequence[Observation], arrived: Arrived[Turn] = lambda turns: None) -> list[Turn]:
        """Query the model about each observation, and return one turn for each, in the same order.

        The action is parsed from the model's answer, or drawn by likelihood if ``choice`` is set. ``arrived`` is called
        with (index of the observation, turn) as soon as an answer is complete.
        """
        turns: dict[int, Turn] = {}

        def take(new: Sequence[tuple[int, Turn]]) -> None:
            turns.update(new)
            arrived(new)

        def parsed(replies: Sequence[tuple[int, Reply]]) -> None:
            take([(index, turn(reply, observations[index].view.actions)) for index, reply in replies])

        if self.choice is not None:
            self._choose(self.choice, observations, take)
        else:
            requests = [self.request(observation) for observation in observations]
            handing_out(self._asked, parsed, requests, self.sampling)
        return [turns[index] for index in range(len(observations))]

    def _choose(self, choice: "Choice", observations: Sequence[Observation], take: Arrived[Turn]) -> None:
        # Each prompt is followed by its content-free version, so that both are answered shortly after one another.
        questions = list[Observation]()
        for observation in observations:
            questions.append(observation)
            if choice.prior_symbol:
                questions.append(content_free(observation, choice.prior_symbol))
        per_turn = 2 if choice.prior_symbol else 1
        scored, lock = dict[int, Likelihoods](), threading.Lock()

        def drawn(answers: Sequence[tuple[int, Likelihoods]]) -> None:
            turns = []
            with lock:  # the two prompts may be answered in different threads
                scored.update(answers)
                for number in sorted({index // per_turn for index, _ in answers}):
                    indices = range(per_turn * number, per_turn * (number + 1))
                    if all(index in scored for index in indices):
                        prior = scored[indices[1]] if choice.prior_symbol else None
                        result = scored[indices[0]]
                        turns.append((number, chosen(choice, self.sampling, result, prior, observations[number])))
            take(turns)

        requests = [self.request(observation) for observation in questions]
        handing_out(self._asked, drawn, requests, self.sampling, reasoned=choice.after == "reasoning")

    @classmethod
    def build(cls, parameters: Mapping[str, Any]) -> Self:
        """Build an agent from the parameters of a study; this reads no weights and sends nothing.

        Args:
            parameters: ``model`` (a folder, a name on the Hugging Face hub, "theseus", or its name at a server or
                backend), the attributes of the class that `settings` lists, ``template``, ``name``, ``history``, the
                fields of `Sampling`, ``answer``, ``answer_after``, ``least_mass`` and ``prior_symbol`` (see
                `goalscope.agents.chat.Choice`), and ``backend`` with its options (see
                `goalscope.agents.models.base`).

        Raises:
            FileNotFoundError: a folder, a strategy or a template does not exist.
            ValueError: a parameter is unknown, the model is missing, or a value has the wrong type or is out of range.
        """
        if "model" not in parameters:
            raise ValueError(
                "a chat agent needs the parameter model: a folder, a name on the Hugging Face hub, or theseus, which "
                "comes with the package"
            )
        types = {**_TEXTS, **CHOICE_KEYS, **get_type_hints(Sampling), **cls.settings}
        own_parameters = {key: value for key, value in parameters.items() if key in types}
        for parameter, value in own_parameters.items():
            check_type(parameter, value, types[parameter])
        model_options = {key: value for key, value in parameters.items() if key not in types}
        name, backend = own_parameters.get("name") or None, own_parameters.pop("backend", "")
        model = build_model(own_parameters.pop("model"), model_options, backend=backend, name=name, others=tuple(types))
        sampling = Sampling(
            **{entry.name: own_parameters.pop(entry.name) for entry in fields(Sampling) if entry.name in own_parameters}
        )
        return cls(model=model, sampling=sampling, choice=take_choice(own_parameters), **own_parameters)


agent_kind(CHAT)(ChatAgent.build)


def example_name(observation: Observation, step: int, view: View) -> str:
    """Return the name of the action that the worked example in the prompt of one step shows.

    It is drawn from the actions that ``view`` offers, by the observation's `example_id` and the index of the step.
    """
    return view.actions[example_action(observation.example_id, step, view.offered)]


def ways_in_use(agent: Any) -> tuple[str, ...]:
    """Return which remedies against invalid answers an agent already uses: `EXAMPLE`, `LIKELIHOOD`, both or none.

    `EXAMPLE` is a worked example in the prompt; `LIKELIHOOD` draws the action from the likelihoods of all answers.
    Agents other than `ChatAgent` use none.
    """
    if not isinstance(agent, ChatAgent):
        return ()
    form = agent.template or agent.card_form or TEMPLATE_FORMS[0]
    return (*((EXAMPLE,) if form == EXAMPLE else ()), *((LIKELIHOOD,) if agent.choice is not None else ()))


# Chat agents for task worlds, with four strategies, with or without reasoning, and with or without a memory summary.
#
# Source: measuring exploration and exploitation errors, Appendices C.3 and D; the wording is our own.


@dataclass(frozen=True, kw_only=True)
class TaskChatAgent(ChatAgent):
    """A language model on a task map, which reads a report of what it sees at each step and answers with a direction.

    A task map has tasks on some of its cells, which must be achieved in an order that respects their prerequisites.

    Attributes:
        strategy: one of `STRATEGIES`, or the path of a text file with a sentence that states a strategy.
        reasoned: whether the answer must contain reasoning before the direction.
        memory: whether each observation comes with a summary of all reports so far.
        template: which prompt to use: a form of the bundled prompts, one of `TEMPLATE_FORMS`; `PAPER`, for a prompt
            that states only what the exploration paper's does; or the path of a system prompt of your own. "" for the
            form that the model's card names, or "example" if it names none. If the prompt does not explain how each
            move changes the position, the summary infers it from the moves made so far.
        history: how prompts show earlier steps; by default as a conversation.
        example: whether each observation ends with an example of an answer.

    Raises:
        FileNotFoundError: the strategy is neither known nor a file, or the template does not exist.
        ValueError: the template has an unknown placeholder, or lacks a required placeholder.
    """

    strategy: str = "base"
    reasoned: bool = False
    memory: bool = False
    history: History | None = "conversation"
    example: bool = field(default=False, init=False)
    axes_told: bool = field(default=True, init=False)

    settings: ClassVar[Mapping[str, type]] = {"strategy": str, "reasoned": bool, "memory": bool}

    @classmethod
    def build(cls, parameters: Mapping[str, Any]) -> Self:
        """Build an agent for task maps from the parameters of a study; this reads no weights and sends nothing.

        Args:
            parameters: those of `ChatAgent.build` without ``task``, and ``strategy``, ``reasoned`` and ``memory``.

        Raises:
            FileNotFoundError: a folder, a strategy or a template does not exist.
            ValueError: a parameter is unknown, the model is missing, or a value has the wrong type or is out of range.
        """
        if "task" in parameters:
            raise ValueError(
                "agents of kind task-chat have no parameter task, since strategy, reasoned and memory determine their "
                "prompt: leave task out"
            )
        return super().build(parameters)

    def _derived_fields(self) -> dict[str, Any]:
        bundled = self.template in ("", *TEMPLATE_FORMS)
        form = self.template if self.template and bundled else self._card()
        form = TEMPLATE_FORMS[0] if form == COMPLETION else form  # base models simply continue the log of the episode
        form = "schema" if self._as_paper else form
        path = "" if bundled else self.template
        system = system_prompt(path, self.strategy, self.reasoned, self.memory, form=form)
        names = placeholders(template_text(path))
        details = [self._strategy, *["reasoned"] * self.reasoned, *["memory"] * self.memory, *[PAPER] * self._as_paper]
        name = self.name or self._title(details)
        if self.choice is not None and self.reasoned:
            raise ValueError(
                "reasoned must be false with answer: likelihood, which scores answers that consist of a JSON object "
                "only: leave reasoned out, or let the model reason before its answer with answer_after: reasoning"
            )
        if self.choice is not None and self.choice.prior_symbol:
            raise ValueError(
                "prior_symbol has no effect in task worlds, because their observations show no grid: leave it out"
            )
        from_prompt = {"axes_told": "rules" in names, "example": form == "example" and "answer" in names}
        return {"system": system, "name": name, **from_prompt}

    @property
    def _as_paper(self) -> bool:
        return self.template == PAPER

    @property
    def _strategy(self) -> str:
        return self.strategy if self.strategy in STRATEGIES else Path(self.strategy).stem

    @property
    def tags(self) -> Mapping[str, Tag]:
        """Named values by which results can be grouped: those of the model, and the agent's strategy, reasoning and
        memory.

        The tag ``wording`` is added if the prompt is worded as in the paper.
        """
        wording: dict[str, Tag] = {"wording": PAPER} if self._as_paper else {}
        arm: dict[str, Tag] = {"prompt": self._strategy, "reasoned": self.reasoned, "memory": self.memory}
        return {**super().tags, **arm, **wording}

    @property
    def needs(self) -> type[View]:
        """Class of the views that the agent can act on: `TaskView`, the report of a task map."""
        return TaskView

    def _prompt(self) -> dict[str, Any]:
        example_entry = {"example": {"rule": RULE, "text": passage("example")}} if self.example else {}
        system = hashlib.sha256(self.system.encode()).hexdigest()
        return {
            "kind": TASK_CHAT,
            "system": system,
            "memory": self.memory,
            **example_entry,
            **printed_entry(self.system),
        }

    def messages(self, observation: Observation) -> tuple[Message, ...]:
        """Return the messages sent to the model for an observation: the system prompt, then the user's prompt.

        The system prompt states the number of goals if the map has several.
        """
        first, *later = super().messages(observation)
        rules = rules_of(observation.memory.turns[-1][1].goals)
        return (replace(first, content=first.content.replace(RULES, rules)), *later)

    def step_text(self, observation: Observation, step: int, view: View, history: Sequence[Past]) -> str:
        """Return the user message of one step, followed by an example of an answer if the agent uses examples.

        With the history "actions", the message lists the earlier observations and moves before the current observation.
        Only the message of the current step includes the summary of all reports so far, and only if the agent has a
        memory.
        """
        text = f"OBSERVATION: {view.text}"
        if view is observation.view:
            memory = observation.memory
            if observation.history_as == "actions":
                rules = rules_of(memory.turns[0][1].goals)
                text = write_log(memory.turns).removeprefix(f"{rules}\n").removesuffix("\n")
            if self.memory:
                text = f"{text}\n\nSUMMARY:\n{memory_text(memory if self.axes_told else without_axes(memory))}"
        if not self.example:
            return text
        return f"{text}\n\n{fill(passage('example'), {'example': example_name(observation, step, view)})}"


agent_kind(TASK_CHAT)(TaskChatAgent.build)


def without_axes(memory: AgentKnowledge) -> AgentKnowledge:
    """Rebuild an agent's knowledge of a task map for an agent that is not told how each move changes the position.

    Such an agent learns the effect of each move only from its own moves. The reports are those of ``memory``.
    """
    knowledge = AgentKnowledge(axes_told=False)
    for action, report in memory.turns:
        knowledge.add(report, action)
    return knowledge


# Constrained choice: draw the action by how likely the model finds each complete answer, instead of parsing a reply.
#
# There is one answer per action of the view, such as ``{"action": "UP"}``. The model scores each answer after the same
# tokens. The likelihoods are normalised to a sum of 1, and the action is drawn from them at the agent's temperature.
# The model generates no answer, so such an agent differs from an agent that generates its answers.
#
# Source: scoring the complete string of each option and dividing by its likelihood after a content-free prompt: Zhao et
# al. (2021), Calibrate Before Use, section 4; the mass and its threshold: goalscope.

ANSWERS: Final = ("generated", "likelihood")
"""How a chat agent gets its action: by parsing generated text, or by drawing from the likelihoods of all answers."""

AFTER: Final = ("prompt", "reasoning")
"""The two texts after which answers can be scored: the prompt, or the prompt and the model's reasoning."""

LEAST_MASS: Final = 0.5
"""Default threshold on the mass, the total probability of all answers. A turn with less mass is invalid, since the
model would rather write something other than an action. Each turn stores its mass, so the fraction of invalid turns
under another threshold can be computed later."""

_GRID_SYMBOLS: Final = "".join(SYMBOLS)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Settings for drawing an action by the likelihoods that a model gives to the answers that state it.

    Attributes:
        after: "prompt", or "reasoning" to let the model reason freely first.
        least_mass: minimum total probability of all answers, after their common beginning, for the turn to be valid; in
            [0, 1].
        prior_symbol: one character. The likelihoods are divided by the likelihoods after the same prompt with this
            character in every cell of its grids. "" for no division.

    Raises:
        ValueError: a setting is out of its range.
    """

    after: str = "prompt"
    least_mass: float = LEAST_MASS
    prior_symbol: str = ""

    def __post_init__(self) -> None:
        check_choice("answer_after", self.after, AFTER)
        if not 0 <= self.least_mass <= 1:
            raise ValueError(f"least_mass must be a probability, 0 to 1, got {self.least_mass!r}")
        symbol = self.prior_symbol
        if symbol and (len(symbol) > 1 or not symbol.isprintable() or symbol.isspace() or symbol.isdigit()):
            raise ValueError(f"prior_symbol must be one printable character that is not a digit, got {symbol!r}: use ?")
        if symbol and symbol in _GRID_SYMBOLS:
            raise ValueError(f"prior_symbol must not be a symbol of grids ({_GRID_SYMBOLS}), got {symbol!r}: use ?")
        if symbol and self.after == "reasoning":
            raise ValueError(
                "prior_symbol cannot be combined with answer_after: reasoning, because the reasoning repeats what the "
                "grid shows: leave one of the two out"
            )

    def describe(self) -> Mapping[str, Any]:
        """Return the settings in the types of JSON, as part of the agent's description."""
        return {"kind": "likelihood", **asdict(self)}

    def check_model(self, model: Model, sampling: Sampling) -> None:
        """Check that an action can be drawn by likelihood from this model with these sampling settings.

        Raises:
            ValueError: the model returns no likelihoods of given answers, or ``sampling`` asks for `top_logprobs`.
        """
        if not isinstance(model, Scoring):
            raise ValueError(
                f"answer: likelihood needs a model that returns likelihoods, and {model.name} does not: use a local "
                "model or a server in mode completions, or answer: generated"
            )
        if getattr(model, "dialect", self) is None:
            raise ValueError(
                "answer: likelihood needs a server in mode completions, got mode chat, which returns no likelihood "
                "of a given answer: set server.mode: completions, or use answer: generated"
            )
        if sampling.top_logprobs:
            raise ValueError(
                "top_logprobs must be 0 with answer: likelihood, which stores the log-probabilities of all actions: "
                "leave it out"
            )

    def reads(self, actions: int) -> int:
        """Return how many answers the model must score per turn in a world with ``actions`` actions.

        It is one answer per action, or two with a `prior_symbol`: the second is scored after the content-free prompt.
        Each scored answer needs a pass over its whole prompt.
        """
        return actions * (2 if self.prior_symbol else 1)

    @property
    def title(self) -> str:
        """Words that mark these settings in the default name of an agent, such as "likelihood after reasoning"."""
        words = ["likelihood", *(["after reasoning"] if self.after == "reasoning" else [])]
        return f"{' '.join(words)}{', prior taken off' if self.prior_symbol else ''}"


_KEYS = {"answer_after": "after", "least_mass": "least_mass", "prior_symbol": "prior_symbol"}
CHOICE_KEYS: Final[Mapping[str, Any]] = {"answer": str, "answer_after": str, "least_mass": float, "prior_symbol": str}
"""Keys of a study that determine how answers are obtained -> type of the value."""


def take_choice(parameters: dict[str, Any]) -> Choice | None:
    """Remove from a chat agent's parameters the settings for drawing actions by likelihood, and return them as a
    `Choice`.

    Args:
        parameters: the parameters of the agent in the study, which are changed in place.

    Returns:
        The settings; None if the model generates its answers.

    Raises:
        ValueError: the kind of answer is unknown, or there are such settings although answers are generated.
    """
    answer = parameters.pop("answer", ANSWERS[0])
    settings = {name: parameters.pop(key) for key, name in _KEYS.items() if key in parameters}
    check_choice("answer", answer, ANSWERS)
    if answer == ANSWERS[0]:
        if settings:
            keys = ", ".join(key for key, name in _KEYS.items() if name in settings)
            raise ValueError(
                f"{keys} works only with answer: likelihood, but this agent's answers are generated: leave it out"
            )
        return None
    return Choice(**settings)


@lru_cache(maxsize=256)
def answers_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the complete answer that states each of the named actions, e.g. ``{"action": "UP"}``."""
    return tuple(json.dumps({"action": name}, ensure_ascii=False) for name in names)


@dataclass(frozen=True, slots=True)
class _ContentFree(GridView):
    """A grid that shows only its size."""

    symbol: str = "?"

    @property
    def text(self) -> str:
        return re.sub(r"[^\s\d]", lambda _: self.symbol, self.grid.render())


def content_free(observation: Observation, symbol: str) -> Observation:
    """Return a copy of an observation whose grids, also those of earlier steps, show ``symbol`` in every cell.

    A model's likelihoods after this prompt measure its preference for an answer regardless of the grid.
    """

    def blank(view: Any) -> GridView:
        return _ContentFree(grid=view.grid, symbol=symbol)

    history = tuple(replace(past, view=blank(past.view)) for past in observation.history)
    return replace(observation, view=blank(observation.seen(GridView)), history=history)


def policy_of(logprobs: Sequence[float], prior: Sequence[float] | None, temperature: float) -> list[float]:
    """Turn the log-likelihoods of all answers into the probabilities ``[A]`` with which each of the A actions is drawn.

    ``p(a)`` is proportional to ``exp((l(a) - l0(a)) / T)``, where l are the log-likelihoods, and l0 those of the prior
    (after a prompt without content, see `content_free`; 0 without one). At T = 0 the first action with the largest
    value has probability 1.

    Args:
        logprobs: ``[A]`` log-likelihoods in nats.
        prior: ``[A]`` log-likelihoods after the content-free prompt, in nats, or None.
        temperature: T >= 0.
    """
    scores = np.asarray(logprobs, dtype=np.float64) - (0.0 if prior is None else np.asarray(prior, dtype=np.float64))
    if temperature == 0:
        return [float(index == scores.argmax()) for index in range(len(scores))]
    weights = np.exp((scores - scores.max()) / temperature)
    return [float(weight) for weight in weights / weights.sum()]


def chosen(
    choice: Choice, sampling: Sampling, scored: Likelihoods, prior: Likelihoods | None, observation: Observation
) -> Turn:
    """Draw an action from the likelihoods of all answers, and return it as the agent's turn.

    The turn fails if the model gave no likelihoods, or if the total probability of all answers is below
    ``choice.least_mass``. Its extra values include the probabilities from which the action was drawn (``policy``) and,
    under ``likelihood``, the log-probabilities, their total probability, and the prior.

    Args:
        choice: settings of the draw.
        sampling: sampling settings, of which the temperature is used.
        scored: the likelihood of each answer after the prompt.
        prior: the likelihood of each answer after the content-free prompt, or None.
        observation: the observation, which determines the random number.
    """
    reasoned = scored.reasoned
    usage = dict(scored.usage)
    for name, value in (prior.usage if prior is not None else {}).items():
        usage[name] = usage.get(name, 0.0) + value
    stored: dict[str, Any] = {
        "unsupported": list(scored.unsupported) or None,
        ANSWERED_BY: scored.answered_by or None,
    }
    if reasoned is not None:
        stored |= {"finish": reasoned.finish, "generated": reasoned.answer}
        stored |= {REDRAWS: reasoned.redraws or None, "error": reasoned.error or None}
    action, text, output = None, "", None if reasoned is None else reasoned.output_tokens
    failure: str | None = None
    if not scored.logprobs:
        failures = {"length": "truncated", "withheld": WITHHELD}
        failure = "empty" if reasoned is None else failures.get(reasoned.finish, "empty")
    else:
        mass = math.fsum(map(math.exp, scored.logprobs))
        stored["likelihood"] = {"logprobs": list(scored.logprobs), "beginning": scored.beginning, "mass": mass}
        if prior is not None:
            stored["likelihood"]["prior"] = list(prior.logprobs)
        failure = None if mass >= choice.least_mass else LITTLE_MASS
    if failure is None:
        policy = policy_of(scored.logprobs, None if prior is None else prior.logprobs, sampling.temperature)
        index = int(np.searchsorted(np.cumsum(policy), observation.uniform("choice"), side="right"))
        action = policy.index(1.0) if sampling.temperature == 0 else min(index, len(policy) - 1)
        stored["policy"] = policy
        text, output = answers_of(observation.view.actions)[action], scored.outputs[action]
    return Turn(
        action=action,
        failure=failure,
        text=text,
        reasoning=None if reasoned is None else reasoned.reasoning,
        prompt_tokens=scored.prompt_tokens,
        output_tokens=output,
        usage=usage,
        extra={name: value for name, value in stored.items() if value is not None},
    )
