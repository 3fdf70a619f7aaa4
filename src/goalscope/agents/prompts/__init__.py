"""Prompt templates as data files, and how they are filled: by plain substitution, nothing is ever executed."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final, TypeVar

from goalscope.agents.agent import Past
from goalscope.models.base import TEMPLATE_FORMS

TEMPLATES = ("grid", "key_door", "fog")
"""Names of the templates for grids that come with the package, each in all `TEMPLATE_FORMS`."""

ANY: Final = "text"
"""Name of the template for any world: what is seen in words, and the names of the actions that can be taken."""

SUFFIXES: Final = {"example": "_example", "schema": ""}
"""What the names of the files of each form end with."""

NOTHING: Final = "none"
"""What stands in place of an action or a history that is not there."""

RULE: Final = "action (sha256(episode id) + step) mod admissible actions"
"""How the action of an example is chosen, as the descriptions of agents record it."""

_OFFSETS: Final = 2520  # a multiple of 1 to 10: each number of admissible actions has all remainders equally often
Chosen = TypeVar("Chosen", bound=int)

_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")
_BRACES = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


@cache
def template(name: str, form: str = "schema") -> str:
    """Return the text of a bundled template, without the newline that ends its file.

    Args:
        name: one of `TEMPLATES`, or `ANY`.
        form: one of `TEMPLATE_FORMS`.

    Raises:
        ValueError: there is no template of this name or form.
    """
    check_form(form)
    if name not in (*TEMPLATES, ANY):
        raise ValueError(f"a bundled template must be one of {', '.join((*TEMPLATES, ANY))}, got {name!r}")
    text = files("goalscope.agents.prompts").joinpath(f"{name}{SUFFIXES[form]}.txt").read_text(encoding="utf-8")
    return text.removesuffix("\n")


def check_form(form: str) -> None:
    """Refuse what is no form of a template.

    Raises:
        ValueError: names the forms.
    """
    if form not in TEMPLATE_FORMS:
        raise ValueError(f"the form of a bundled template must be one of {', '.join(TEMPLATE_FORMS)}, got {form!r}")


def passages(text: str) -> list[str]:
    """Return the fixed passages of a template: what stands before, between and after its placeholders."""
    return _PLACEHOLDER.split(text)[::2]


def placeholders(text: str) -> list[str]:
    """Return what stands between double braces in a template, in order, whatever it is."""
    return _BRACES.findall(text)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a template with each ``{{name}}`` replaced by its value; values are not looked into again.

    Raises:
        ValueError: the template has a placeholder without a value, or a value has no placeholder.
    """
    wanted = set(_PLACEHOLDER.findall(text))
    if wanted != set(values):
        raise ValueError(
            f"the values must be those of the template's placeholders {sorted(wanted)}, got {sorted(values)}"
        )
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def render_history(history: Sequence[Past]) -> str:
    """Return the earlier steps, one a line, the oldest first: where the agent was and what it did there.

    Args:
        history: the earlier steps.

    Returns:
        Lines such as ``(3,4) UP`` on grids; "none" where there are no steps yet, or in place of a missing action.

    Raises:
        ValueError: a grid that shows no agent.
    """
    names = [NOTHING if past.action is None else past.view.actions[past.action] for past in history]
    return "\n".join(past.view.line(name) for past, name in zip(history, names, strict=True)) or NOTHING


def example_action(episode_id: str, step: int, admissible: Sequence[Chosen]) -> Chosen:
    """Return the action that the example in the prompt of one step shows: balanced, and blind to the world.

    The content id of the episode sets where the actions begin, and from step to step they follow each other. In any
    four consecutive steps of an episode on a grid each action is shown once. Neither the grid nor the place of the
    agent enters but through the id, a hash: the action is independent of the optimal ones.

    Args:
        episode_id: content id of the episode.
        step: number of the step, 0-based.
        admissible: the actions that may be shown, in their order.

    Raises:
        ValueError: no action is admissible.
    """
    if not admissible:
        raise ValueError("an example needs an admissible action, got none")
    offset = int.from_bytes(sha256(episode_id.encode()).digest()) % _OFFSETS
    return admissible[(offset + step) % len(admissible)]
