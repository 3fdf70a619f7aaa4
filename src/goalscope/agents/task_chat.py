"""Chat agents for task worlds, with four strategies, with or without reasoning, and with or without a memory summary.

Source: measuring exploration and exploitation errors, Appendices C.3 and D; the wording is our own.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from goalscope.agents.agent import TASK_CHAT, History, Observation, Past, agent_kind
from goalscope.agents.chat import ChatAgent, example_name
from goalscope.agents.models.base import COMPLETION, TEMPLATE_FORMS, Message
from goalscope.agents.printed_prompts import printed_entry
from goalscope.agents.prompts import (
    PAPER,
    RULE,
    STRATEGIES,
    fill,
    passage,
    placeholders,
    system_prompt,
    template_text,
)
from goalscope.stats.rows import Tag
from goalscope.worlds.tasks.knowledge import RULES, AgentKnowledge, memory_text, rules_of, write_log
from goalscope.worlds.tasks.world import TaskView
from goalscope.worlds.world import View


@dataclass(frozen=True, kw_only=True)
class TaskChatAgent(ChatAgent):
    """A language model that reads a report at each step and answers with a direction.

    Attributes:
        strategy: one of `STRATEGIES`, or the path of a text file with a sentence that states a strategy.
        reasoned: whether the answer must contain reasoning before the direction.
        memory: whether each observation comes with a summary of all reports so far (the harness).
        template: form of the bundled prompts, one of `TEMPLATE_FORMS`; `PAPER`; or the path of a system prompt of your
            own. "" for the form that the model's card names, or "example" if it names none. If the prompt does not
            explain how each move changes the position, the summary infers it from the moves made so far.
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
        """Build an agent as `ChatAgent.build` does, but without the parameter ``task``."""
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
        """Tags of the model and of the agent's settings: prompt, reasoned, memory, and wording (if the paper's)."""
        wording: dict[str, Tag] = {"wording": PAPER} if self._as_paper else {}
        arm: dict[str, Tag] = {"prompt": self._strategy, "reasoned": self.reasoned, "memory": self.memory}
        return {**super().tags, **arm, **wording}

    @property
    def needs(self) -> type[View]:
        """The required type of view: the report of a task map."""
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
        """Return the chat for an observation; the system prompt states the number of goals if there are several."""
        first, *later = super().messages(observation)
        rules = rules_of(observation.memory.turns[-1][1].goals)
        return (replace(first, content=first.content.replace(RULES, rules)), *later)

    def step_text(self, observation: Observation, step: int, view: View, history: Sequence[Past]) -> str:
        """Return the prompt text of one step, followed by an example of an answer if the agent uses examples.

        With the history "actions", a list of earlier observations and moves precedes the current observation. Only the
        current step includes the summary.
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
    """Return what the same reports reveal without the rule that says how each move changes the position."""
    knowledge = AgentKnowledge(axes_told=False)
    for action, report in memory.turns:
        knowledge.add(report, action)
    return knowledge
