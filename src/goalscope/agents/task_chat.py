"""Chat agents of task worlds: four strategies, reasoning on or off, with or without the memory summary.

Source: measuring exploration and exploitation errors, Appendices C.3 and D; the wording is our own.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from goalscope.agents.agent import History, Observation, Past
from goalscope.agents.build import TASK_CHAT, agent_kind
from goalscope.agents.chat import ChatAgent, example_name
from goalscope.agents.prompts import RULE, SUFFIXES, check_placeholders, fill, passage, placeholders, read_text
from goalscope.models.base import COMPLETION, TEMPLATE_FORMS
from goalscope.rows import Tag
from goalscope.worlds.tasks.knowledge import RULES, AgentKnowledge, memory_text, write_log
from goalscope.worlds.tasks.world import TaskView
from goalscope.worlds.world import View

STRATEGIES: Final = ("base", "exploration", "exploitation", "balance")
"""The strategy sentences; "base" has none."""

PLACEHOLDERS: Final = ("rules", "summary", "strategy", "answer")
"""What a system prompt may hold, written ``{{rules}}``."""

PAPER: Final = "paper"
"""The template that tells what the paper's base prompt tells and no more: neither axes nor to take few steps."""


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


@agent_kind(TASK_CHAT)
def task_chat_agent(parameters: Mapping[str, Any]) -> TaskChatAgent:
    """Build a chat agent of task worlds from the parameters of a study; nothing is read or sent yet.

    Args:
        parameters: those of `goalscope.agents.chat.chat_agent` but for ``task``, and ``strategy``, ``reasoned``,
            ``memory`` and ``template`` as in `TaskChatAgent`.

    Raises:
        FileNotFoundError: a folder, a strategy or a template that is not there.
        ValueError: an unknown parameter, a missing model, or a value of the wrong type or out of its range.
    """
    if "task" in parameters:
        raise ValueError("an agent of task worlds takes no task: its prompt is made of strategy, reasoned and memory")
    return TaskChatAgent.build(parameters, {"strategy": str, "reasoned": bool, "memory": bool})


def template_text(template: str = "") -> str:
    """Return the text of a system prompt with its placeholders: `PAPER`, a file of one's own, or ours for ""."""
    if template in ("", PAPER):
        text = passage(template or "system")
    else:
        text = read_text(template, f"a template of task worlds must be {PAPER}, {', '.join(TEMPLATE_FORMS)} or").strip(
            "\n"
        )
    check_placeholders(text, PLACEHOLDERS, template)
    return text


def without_axes(memory: AgentKnowledge) -> AgentKnowledge:
    """Return what an agent knows that was told the same, but not what a move does to its position."""
    learned = AgentKnowledge(axes_told=False)
    for action, report in memory.turns:
        learned.add(report, action)
    return learned


def system_prompt(template: str, strategy: str, reasoned: bool, memory: bool, *, form: str) -> str:
    """Return the system prompt; a paragraph that says nothing in this arm leaves no gap.

    Args:
        template: as in `template_text`.
        strategy, reasoned, memory: as in `TaskChatAgent`.
        form: form of the passage on the answer, one of `TEMPLATE_FORMS`.
    """
    text = template_text(template)
    wanted = set(placeholders(text))
    if strategy in STRATEGIES:
        sentence = "" if strategy == "base" else passage(strategy)
    else:
        sentence = read_text(strategy, f"a strategy must be one of {', '.join(STRATEGIES)} or").strip("\n")
    values = {
        "rules": RULES,
        "summary": passage("summary") if memory else "",
        "strategy": sentence,
        "answer": passage(f"{'reasoned' if reasoned else 'direct'}{SUFFIXES[form]}"),
    }
    needed = {*(["strategy"] if sentence else []), *(["summary"] if memory else [])}
    for name in sorted(needed - wanted):
        raise ValueError(f"a template must have a place for the {name}: put {{{{{name}}}}} where it belongs")
    filled = fill(text, {name: value for name, value in values.items() if name in wanted})
    return re.sub(r"\n{3,}", "\n\n", filled).strip()
