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
from goalscope.agents.chat import chat_agent
from goalscope.agents.model_agent import ModelAgent, example_name
from goalscope.agents.prompts import RULE, SUFFIXES, fill, placeholders
from goalscope.agents.prompts.tasks import passage
from goalscope.models.base import TEMPLATE_FORMS, Message
from goalscope.rows import Tag
from goalscope.worlds.tasks.text import RULES, memory_text, write_log
from goalscope.worlds.tasks.world import TaskView
from goalscope.worlds.world import View

STRATEGIES: Final = ("base", "exploration", "exploitation", "balance")
"""The strategy sentences; "base" has none."""

PLACEHOLDERS: Final = ("rules", "summary", "strategy", "answer")
"""What a system prompt may hold, written ``{{rules}}``; it must hold the rules."""

_OWN: Final[Mapping[str, tuple[type, ...]]] = {
    "strategy": (str,),
    "reasoned": (bool,),
    "memory": (bool,),
    "template": (str,),
}


@dataclass(frozen=True, kw_only=True)
class TaskChatAgent(ModelAgent):
    """A language model that is told at each step what it finds, and answers with a direction.

    Attributes:
        strategy: one of `STRATEGIES`, or the path of a text file with a strategy sentence of one's own.
        reasoned: whether it is asked to reason in its answer before it names a direction.
        memory: whether each observation comes with a summary of all that was told so far (the harness).
        template: form of the bundled prompts, one of `TEMPLATE_FORMS`, or the path of a system prompt of one's own;
            "" for the form that the model's card names, and "example" where it names none.
        history: what else it is shown of earlier steps: the conversation unless stated otherwise.
        system: the system prompt, put together.
        example: whether each observation ends with an example of the answer.

    Raises:
        FileNotFoundError: a strategy that is neither known nor a file, a template that is not there.
        ValueError: a template with an unknown placeholder, or without a place for what it must say.
    """

    strategy: str = "base"
    reasoned: bool = False
    memory: bool = False
    template: str = ""
    history: History | None = "conversation"
    system: str = field(default="", init=False)
    example: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        form = self.template if self.template in TEMPLATE_FORMS else self.form
        path = "" if self.template in TEMPLATE_FORMS else self.template
        text = system_prompt(path, self.strategy, self.reasoned, self.memory, form=form)
        object.__setattr__(self, "system", text)
        shown = form == "example" and (not path or "answer" in placeholders(_file(path, "")))
        object.__setattr__(self, "example", shown)
        if not self.name:
            arm = [
                self.strategy if self.strategy in STRATEGIES else Path(self.strategy).stem,
                *(["reasoned"] if self.reasoned else []),
                *(["memory"] if self.memory else []),
            ]
            object.__setattr__(self, "name", f"{self.model.name} ({', '.join(arm)})")
        super().__post_init__()

    @property
    def tags(self) -> Mapping[str, Tag]:
        """Return what the model says of itself, and the arm: prompt, reasoned, memory."""
        prompt = self.strategy if self.strategy in STRATEGIES else Path(self.strategy).stem
        return {**super().tags, "prompt": prompt, "reasoned": self.reasoned, "memory": self.memory}

    def describe(self) -> Mapping[str, Any]:
        """Return model, system prompt, sampling, parser and what it is shown; the name changes no answer."""
        return {
            "kind": "task-chat",
            "model": dict(self.model.describe()),
            "system": hashlib.sha256(self.system.encode()).hexdigest(),
            "memory": self.memory,
            **({"example": {"rule": RULE, "text": passage("example")}} if self.example else {}),
            **self._described(),
        }

    @property
    def needs(self) -> type[View]:
        """A task map."""
        return TaskView

    def opening(self) -> tuple[Message, ...]:
        """Return the system prompt."""
        return (Message(role="system", content=self.system),)

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
                text = f"{text}\n\nSUMMARY:\n{memory_text(memory)}"
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
    own: dict[str, Any] = {key: value for key, value in parameters.items() if key in _OWN}
    for key, value in own.items():
        if not isinstance(value, _OWN[key]):
            wanted = "true or false" if _OWN[key] == (bool,) else "a text"
            raise ValueError(f"the parameter {key} of a chat agent of task worlds must be {wanted}, got {value!r}")
    common = chat_agent({key: value for key, value in parameters.items() if key not in _OWN})
    if "history" in parameters:
        own["history"] = common.history
    return TaskChatAgent(model=common.model, sampling=common.sampling, name=str(parameters.get("name", "")), **own)


def system_prompt(template: str, strategy: str, reasoned: bool, memory: bool, *, form: str) -> str:
    """Return the system prompt; a paragraph that says nothing in this arm leaves no gap.

    Args:
        template: path of a system prompt of one's own, "" for the bundled one.
        strategy, reasoned, memory: see `TaskChatAgent`.
        form: how the answer is described, one of `TEMPLATE_FORMS`.

    Raises:
        FileNotFoundError: a template or a strategy that is not there.
        ValueError: a template with an unknown placeholder, or without a place for what it must say.
    """
    text = _file(template, "a template of task worlds must be") if template else passage("system")
    wanted = set(placeholders(text))
    for inner in sorted(wanted - set(PLACEHOLDERS)):
        known = ", ".join(f"{{{{{name}}}}}" for name in PLACEHOLDERS)
        raise ValueError(f"a placeholder must be one of {known}, written without blanks; {template} holds {inner!r}")
    if strategy in STRATEGIES:
        sentence = "" if strategy == "base" else passage(strategy)
    else:
        sentence = _file(strategy, f"a strategy must be one of {', '.join(STRATEGIES)} or")
    values = {
        "rules": RULES,
        "summary": passage("summary") if memory else "",
        "strategy": sentence,
        "answer": passage(f"{'reasoned' if reasoned else 'direct'}{SUFFIXES[form]}"),
    }
    needed = {"rules", *(["strategy"] if sentence else []), *(["summary"] if memory else [])}
    for name in sorted(needed - wanted):
        raise ValueError(f"a template must have a place for the {name}: put {{{{{name}}}}} where it belongs")
    filled = fill(text, {name: value for name, value in values.items() if name in wanted})
    return re.sub(r"\n{3,}", "\n\n", filled).strip()


def _file(path: str, must: str) -> str:
    found = Path(path).expanduser()
    if not found.is_file():
        raise FileNotFoundError(f"{must} the path of a text file, got {path!r}, and there is no such file")
    try:
        return found.read_text(encoding="utf-8-sig").strip("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be a UTF-8 text, it is none ({error.reason} at byte {error.start})") from None
