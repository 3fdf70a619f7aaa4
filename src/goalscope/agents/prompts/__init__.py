"""Prompt templates as data files, and how they are filled: by plain substitution, nothing is ever executed.

Those of task worlds stand apart from those of grids, whose words the bundled model is built from.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Final, TypeVar

from goalscope.agents.agent import Past
from goalscope.models.base import COMPLETION

TEMPLATES = ("grid", "key_door", "fog")
"""Names of the templates for grids that come with the package, each in all forms of `SUFFIXES`."""

ANY: Final = "text"
"""Name of the template for any world: what is seen in words, and the names of the actions that can be taken."""

PASSAGES = (
    *("system", "paper", "summary", "exploration", "exploitation", "balance"),
    *("direct", "reasoned", "direct_example", "reasoned_example", "example"),
)
"""Names of the passages for task worlds: the system prompt, the same with the paper's facts alone, the note on the
memory summary, three strategies, two kinds of answer, both once more for an answer whose form is shown by an example,
and that example."""

SUFFIXES: Final = {"example": "_example", "schema": "", COMPLETION: "_completion"}
"""What the names of the files of each form end with."""

NOTHING: Final = "none"
"""What stands in place of an action or a history that is not there."""

RULE: Final = "action (sha256(episode id) + step) mod admissible actions"
"""How the action of an example is chosen, as the descriptions of agents record it."""

_OFFSETS: Final = 2520  # a multiple of 1 to 10: each number of admissible actions has all remainders equally often
Chosen = TypeVar("Chosen", bound=int)

_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")
_BRACES = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def template(name: str, form: str = "schema") -> str:
    """Return the text of a bundled template, without the newline that ends its file."""
    if form not in SUFFIXES:
        raise ValueError(f"the form of a bundled template must be one of {', '.join(SUFFIXES)}, got {form!r}")
    if name not in (*TEMPLATES, ANY):
        raise ValueError(f"a bundled template must be one of {', '.join((*TEMPLATES, ANY))}, got {name!r}")
    return bundled(f"{name}{SUFFIXES[form]}.txt")


def passage(name: str) -> str:
    """Return the text of a passage for task worlds, without the newline that ends its file."""
    if name not in PASSAGES:
        raise ValueError(f"a passage must be one of {', '.join(PASSAGES)}, got {name!r}")
    return bundled("tasks", f"{name}.txt")


@cache
def bundled(*path: str) -> str:
    """Return the text of a file of this package, without the newline that ends it."""
    return files(__name__).joinpath(*path).read_text(encoding="utf-8").removesuffix("\n")


def read_text(path: str | Path, must: str) -> str:
    """Return the text of a file of a study's own, without the newlines that end it."""
    found = Path(path).expanduser()
    if not found.is_file():
        raise FileNotFoundError(f"{must} the path of a text file, got {str(path)!r}, and there is no such file")
    try:
        return found.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"a template must be a UTF-8 text, {path} is none ({error.reason} at byte {error.start})"
        ) from None


def check_placeholders(text: str, known: Sequence[str], source: str | Path) -> set[str]:
    """Return the placeholders of a template."""
    found = placeholders(text)
    for inner in found:
        if inner not in known:
            raise ValueError(
                f"a placeholder of a template must be one of {', '.join(f'{{{{{name}}}}}' for name in known)}, written "
                f"without blanks; {source} holds {{{{{inner}}}}}"
            )
    return set(found)


def passages(text: str) -> list[str]:
    """Return the fixed passages of a template: what stands before, between and after its placeholders."""
    return _PLACEHOLDER.split(text)[::2]


def placeholders(text: str) -> list[str]:
    """Return what stands between double braces in a template, in order, whatever it is."""
    return _BRACES.findall(text)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a template with each ``{{name}}`` replaced by its value; values are not looked into again."""
    wanted = set(_PLACEHOLDER.findall(text))
    if wanted != set(values):
        raise ValueError(
            f"the values must be those of the template's placeholders {sorted(wanted)}, got {sorted(values)}"
        )
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def render_history(history: Sequence[Past]) -> str:
    """Return the earlier steps, one a line, the oldest first: where the agent was and what it did there.

    Lines such as ``(3,4) UP`` on grids; "none" where there are no steps yet, or in place of a missing action. A
    ValueError for a grid that shows no agent.
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
