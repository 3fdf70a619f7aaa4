"""Chat agents of task worlds: four strategies, reasoning on or off, with or without the memory summary.

Source: measuring exploration and exploitation errors, Appendices C.3 and D; the wording is our own.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from goalscope.agents.agent import TASK_CHAT, History, Observation, Past, agent_kind
from goalscope.agents.chat import ChatAgent, example_name
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
from goalscope.models.base import COMPLETION, TEMPLATE_FORMS
from goalscope.rows import Tag
from goalscope.worlds.tasks.knowledge import RULES, AgentKnowledge, memory_text, write_log
from goalscope.worlds.tasks.world import TaskView
from goalscope.worlds.world import View


@dataclass(frozen=True, kw_only=True)
class TaskChatAgent(ChatAgent):
    """A language model that is told at each step what it finds, and answers with a direction.

    Attributes:
        strategy: one of `STRATEGIES`, or the path of a text file with a strategy sentence of one's own.
        reasoned: whether it is asked to reason in its answer before it names a direction.
        memory: whether each observation comes with a summary of all that was told so far (the harness).
        template: form of the bundled prompts, one of `TEMPLATE_FORMS`; `PAPER`; or the path of a system prompt of
            one's own. "" for the form that the model's card names, and "example" where it names none. Where the
            prompt does not hold the rules, the summary learns what a move does from the moves.
        history: what else it is shown of earlier steps: the conversation unless stated otherwise.
        example: whether each observation ends with an example of the answer.

    Raises:
        FileNotFoundError: a strategy that is neither known nor a file, a template that is not there.
        ValueError: a template with an unknown placeholder, or without a place for what it must say.
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

    def _read(self) -> dict[str, Any]:
        bundled = self.template in ("", *TEMPLATE_FORMS)
        form = self.template if self.template and bundled else self._card()
        form = TEMPLATE_FORMS[0] if form == COMPLETION else form  # base models go on with the log of the conversation
        form = "schema" if self._as_paper else form
        path = "" if bundled else self.template
        system = system_prompt(path, self.strategy, self.reasoned, self.memory, form=form)
        held = placeholders(template_text(path))
        arm = [self._strategy, *["reasoned"] * self.reasoned, *["memory"] * self.memory, *[PAPER] * self._as_paper]
        name = self.name or self._title(arm)
        if self.choice is not None and self.reasoned:
            raise ValueError(
                "reasoned must be false with answer: likelihood, which reads answers that are a JSON object and no "
                "more: leave it out, or let the model reason before its answer with answer_after: reasoning"
            )
        if self.choice is not None and self.choice.prior_symbol:
            raise ValueError(
                "prior_symbol must be left out in task worlds, whose observations show no cells: leave it out"
            )
        told = {"axes_told": "rules" in held, "example": form == "example" and "answer" in held}
        return {"system": system, "name": name, **told}

    @property
    def _as_paper(self) -> bool:
        return self.template == PAPER

    @property
    def _strategy(self) -> str:
        return self.strategy if self.strategy in STRATEGIES else Path(self.strategy).stem

    @property
    def tags(self) -> Mapping[str, Tag]:
        """Return what the model says of itself, and the arm: prompt, reasoned, memory, the wording where not ours."""
        wording: dict[str, Tag] = {"wording": PAPER} if self._as_paper else {}
        arm: dict[str, Tag] = {"prompt": self._strategy, "reasoned": self.reasoned, "memory": self.memory}
        return {**super().tags, **arm, **wording}

    @property
    def needs(self) -> type[View]:
        """What is told of a task map."""
        return TaskView

    def _prompt(self) -> dict[str, Any]:
        example = {"example": {"rule": RULE, "text": passage("example")}} if self.example else {}
        system = hashlib.sha256(self.system.encode()).hexdigest()
        return {"kind": TASK_CHAT, "system": system, "memory": self.memory, **example}

    def asked(self, observation: Observation, step: int, view: View, history: Sequence[Past]) -> str:
        """Return what is told at a step, with the example of its answer below it where examples are shown.

        Earlier observations and moves stand before the present one as a list where the history is "actions"; the
        summary stands below the present one alone.
        """
        text = f"OBSERVATION: {view.text}"
        if view is observation.view:
            memory = observation.memory
            if observation.history_as == "actions":
                text = write_log(memory.turns).removeprefix(f"{RULES}\n").removesuffix("\n")
            if self.memory:
                text = f"{text}\n\nSUMMARY:\n{memory_text(memory if self.axes_told else without_axes(memory))}"
        if not self.example:
            return text
        return f"{text}\n\n{fill(passage('example'), {'example': example_name(observation, step, view)})}"


agent_kind(TASK_CHAT)(TaskChatAgent.build)


def without_axes(memory: AgentKnowledge) -> AgentKnowledge:
    """Return what an agent knows that was told the same, but not what a move does to its position."""
    learned = AgentKnowledge(axes_told=False)
    for action, report in memory.turns:
        learned.add(report, action)
    return learned
