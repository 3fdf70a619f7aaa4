"""Chat agents: a prompt template, a language model and the parser of its answers."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from goalscope.agents.agent import Observation, Past
from goalscope.agents.build import CHAT, agent_kind
from goalscope.agents.model_agent import ModelAgent, example_name
from goalscope.agents.prompts import ANY, RULE, fill, placeholders, render_history, template
from goalscope.models.backends import build_model, check_type
from goalscope.models.base import Sampling
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.world import View

TASKS: Final = {"grid": "grid", "key-door": "key_door", "fog": "fog", "text": ANY}
"""The tasks that come with the package, and the names of their templates."""

_OF_GRIDS: Final = ("grid", "carrying_key")
PLACEHOLDERS: Final = (*_OF_GRIDS, "history", "example", "view", "actions")
"""What a template may hold, written ``{{grid}}``; it must hold the grid, or the view of any world in words."""


def read_template(task: str | Path, form: str = "schema") -> str:
    """Return the template of a task.

    Args:
        task: a key of `TASKS`, or the path of a text file.
        form: one of `TEMPLATE_FORMS`; a file is what it is.

    Raises:
        FileNotFoundError: neither a task nor a file.
        ValueError: the template shows neither grid nor view, or holds a placeholder that is not known; names it.
    """
    if task in TASKS:
        text = template(TASKS[str(task)], form)
    else:
        path = Path(task).expanduser()
        if not path.is_file():
            raise FileNotFoundError(
                f"a task must be one of {', '.join(TASKS)} or the path of a template file, got {str(task)!r}, and "
                "there is no such file"
            )
        try:
            text = path.read_text(encoding="utf-8-sig").removesuffix("\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"a template must be a UTF-8 text, {path} is none ({error.reason} at byte {error.start})"
            ) from None
    known = ", ".join(f"{{{{{name}}}}}" for name in PLACEHOLDERS)
    for inner in placeholders(text):
        if inner not in PLACEHOLDERS:
            raise ValueError(
                f"a placeholder of a template must be one of {known}, written without blanks; {task} holds "
                f"{{{{{inner}}}}}"
            )
    if not {"grid", "view"} & set(placeholders(text)):
        raise ValueError(f"a template must show the grid: put {{{{grid}}}} where it belongs in {task}")
    return text


@dataclass(frozen=True, kw_only=True)
class ChatAgent(ModelAgent):
    """A language model that is shown each state as text and answers with an action.

    Attributes:
        model: the language model.
        task: "grid", "key-door", "fog", "text" (any world in words), or the path of a template of one's own.
        template: form of the bundled template, one of `TEMPLATE_FORMS`; "" for the one that the model's card names, and
            "example" where it names none.
        text: the template.
        sampling: how its outputs are drawn.
        name: short name, as tables show it; the model's name by default.
        history: what it is shown of earlier steps; None for what the study says.

    Raises:
        FileNotFoundError, ValueError: see `read_template`; or an unknown history.
    """

    task: str | Path = "grid"
    template: str = ""
    text: str = field(default="", init=False)

    def __post_init__(self) -> None:
        if self.template and self.task not in TASKS:
            raise ValueError(
                f"the form of a template must be given for a bundled task ({', '.join(TASKS)}), got {self.template!r} "
                f"for the file {self.task}: leave template out"
            )
        object.__setattr__(self, "text", read_template(self.task, self.template or self.form))
        super().__post_init__()

    @property
    def needs(self) -> type[View]:
        """A grid where the template shows one, else any view."""
        return GridView if set(_OF_GRIDS) & set(placeholders(self.text)) else View

    def describe(self) -> Mapping[str, Any]:
        """Return model, template, sampling, parser and its own history; the name changes no answer and is left out."""
        return {
            "kind": "chat",
            "model": dict(self.model.describe()),
            "template": hashlib.sha256(self.text.encode()).hexdigest(),
            **({"example": RULE} if "example" in placeholders(self.text) else {}),
            **self._described(),
        }

    def asked(self, observation: Observation, step: int, view: View, history: Sequence[Past]) -> str:
        """Return the filled template.

        Raises:
            ValueError: the template has no place for something that the agent must know: a key, fog, the history.
        """
        wanted = set(placeholders(self.text))
        told = observation.history_as in ("conversation", "reasoning")
        if history and not told and "history" not in wanted:
            raise ValueError(
                f"this study hands over the history, for which the template {self.task} has no {{{{history}}}}: set "
                "the agent's task to fog, or its history to none or conversation"
            )
        if isinstance(view, GridView) and "view" not in wanted:
            self._check_shown(view, wanted)
        values = {
            **view.fields(),
            "view": view.text,
            "actions": ", ".join(view.actions[index] for index in view.offered),
            "example": example_name(observation, step, view),
        }
        if "history" in wanted:
            values["history"] = render_history(history)
        return fill(self.text, {name: value for name, value in values.items() if name in wanted})

    def _check_shown(self, view: GridView, wanted: set[str]) -> None:
        """Refuse a template that has no place for a key or says nothing about fog."""
        grid = view.grid
        if (view.carrying_key or grid.key is not None or grid.door is not None) and "carrying_key" not in wanted:
            raise ValueError(
                f"worlds with a key or a door need a template with {{{{carrying_key}}}}, {self.task} has none: set "
                "the agent's task to key-door"
            )
        if grid.fog is not None and self.task in ("grid", "key-door"):
            raise ValueError(f"the task {self.task} says nothing about fog: set the agent's task to fog")


_SAMPLING = tuple(entry.name for entry in fields(Sampling))
_OWN: Final[Mapping[str, tuple[type, ...]]] = {
    "model": (str,),
    "backend": (str,),
    "task": (str,),
    "template": (str,),
    "name": (str,),
    "history": (str,),
    "temperature": (int, float),
    "top_p": (int, float),
    "max_tokens": (int,),
    "reasoning_effort": (str, type(None)),
    "top_logprobs": (int,),
}


@agent_kind(CHAT)
def chat_agent(parameters: Mapping[str, Any]) -> ChatAgent:
    """Build a chat agent from the parameters of a study; no weight is read and nothing is sent yet.

    Args:
        parameters: ``model`` (a folder, a name on the hub, "theseus", or what a server or backend knows it by),
            ``task``, ``template``, ``name``, ``history``, the fields of `Sampling`, ``backend`` and its options, see
            `goalscope.models.backends`.

    Raises:
        FileNotFoundError: a folder or a template that is not there.
        ValueError: an unknown parameter, a missing model, or a value of the wrong type or out of its range.
    """
    if "model" not in parameters:
        raise ValueError(
            "a chat agent must be given its model: a folder, a name on the Hugging Face hub, or theseus, which comes "
            "with the package"
        )
    own = {key: value for key, value in parameters.items() if key in _OWN}
    for parameter, value in own.items():
        check_type(parameter, value, _OWN[parameter])
    name = own.get("name", "")
    model = build_model(
        own["model"],
        {key: value for key, value in parameters.items() if key not in _OWN},
        backend=own.get("backend", ""),
        name=name or None,
        others=tuple(_OWN),
    )
    return ChatAgent(
        model=model,
        task=own.get("task", "grid"),
        template=own.get("template", ""),
        sampling=Sampling(**{key: value for key, value in own.items() if key in _SAMPLING}),
        name=name,
        history=own.get("history"),
    )
