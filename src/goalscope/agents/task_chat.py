"""Chat agents of task worlds: four strategies, reasoning on or off, with or without the memory summary.

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
        strategy: one of `STRATEGIES`, or the path of a text file with a strategy sentence.
        reasoned: whether its answer must contain reasoning before the direction.
        memory: whether each observation comes with a summary of all reports so far (the harness).
        template: form of the bundled prompts, one of `TEMPLATE_FORMS`; `PAPER`; or the path of a system prompt of
            one's own. "" for the form in the model's card, "example" where it has none. Where the prompt does
            not contain the rules, the summary infers the effect of each move from the moves.
        history: form of earlier steps in its prompts; the conversation by default.
        example: whether each observation ends with an example of the answer.

    Raises:
        FileNotFoundError: a strategy that is neither known nor a file, a template that is not there.
        ValueError: a template with an unknown placeholder, or without a required placeholder.
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
        """Build an agent as `ChatAgent.build` does; it has no task."""
        if "task" in parameters:
            raise ValueError(
                "an agent of task worlds takes no task: its prompt is made of strategy, reasoned and memory"
            )
        return super().build(parameters)

    def _derived_fields(self) -> dict[str, Any]:
        bundled = self.template in ("", *TEMPLATE_FORMS)
        form = self.template if self.template and bundled else self._card()
        form = TEMPLATE_FORMS[0] if form == COMPLETION else form  # base models continue the log of the conversation
        form = "schema" if self._as_paper else form
        path = "" if bundled else self.template
        system = system_prompt(path, self.strategy, self.reasoned, self.memory, form=form)
        names = placeholders(template_text(path))
        details = [self._strategy, *["reasoned"] * self.reasoned, *["memory"] * self.memory, *[PAPER] * self._as_paper]
        name = self.name or self._title(details)
        if self.choice is not None and self.reasoned:
            raise ValueError(
                "reasoned must be false with answer: likelihood, which reads answers that are a JSON object and no "
                "more: leave it out, or let the model reason before its answer with answer_after: reasoning"
            )
        if self.choice is not None and self.choice.prior_symbol:
            raise ValueError(
                "prior_symbol must be left out in task worlds, whose observations show no cells: leave it out"
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
        """Tags of the model, and of the arm: prompt, reasoned, memory, and the wording where it is the paper's."""
        wording: dict[str, Tag] = {"wording": PAPER} if self._as_paper else {}
        arm: dict[str, Tag] = {"prompt": self._strategy, "reasoned": self.reasoned, "memory": self.memory}
        return {**super().tags, **arm, **wording}

    @property
    def needs(self) -> type[View]:
        """Required type of view: the report of a task map."""
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
        """Return the chat for an observation; the rules of the system prompt name the number of goals."""
        first, *later = super().messages(observation)
        rules = rules_of(observation.memory.turns[-1][1].goals)
        return (replace(first, content=first.content.replace(RULES, rules)), *later)

    def step_text(self, observation: Observation, step: int, view: View, history: Sequence[Past]) -> str:
        """Return the prompt text of one step, followed by an example of the answer where examples are used.

        With the history "actions", a list of earlier observations and moves precedes the present one. Only the present
        step has the summary.
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
    """Return the knowledge from the same reports without the rule that says how a move changes the position."""
    knowledge = AgentKnowledge(axes_told=False)
    for action, report in memory.turns:
        knowledge.add(report, action)
    return knowledge
