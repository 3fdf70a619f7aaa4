"""Chat templates of unknown origin: rendered in a process of their own, with bounds.

A chat template is a program (Jinja). Its sandbox keeps it from files and from Python, not from loops without end and
texts without bound. The process compiles and renders with the function of transformers that `apply_chat_template`
calls. It starts with the first template that does not come with the package, and serves all that follow.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from goalscope._ground.bounded import BoundedError, BoundedWorker, Bounds

MOST_SOURCE: Final = 2**20
"""Most characters of a template."""

MOST_TEXT: Final = 4 * 2**20
"""Most characters of a rendered chat."""

MOST_SECONDS: Final = 5
"""Most seconds of processor time of one rendering, its compilation included; the system counts in whole seconds."""

MOST_WAIT: Final = 60
"""Most seconds by the clock of one rendering."""

MOST_MEMORY: Final = 512 * 2**20
"""Most bytes of memory that templates add to what the process has before the first (Linux)."""


class ChatTemplateError(ValueError):
    """A chat template that fails, or passes a bound."""


def check_source(template: object) -> str:
    """Return the source of a template; a ChatTemplateError for what is no text, or a long one."""
    if not isinstance(template, str):
        raise ChatTemplateError(f"it must be a text, got {type(template).__name__}")
    if len(template) > MOST_SOURCE:
        raise ChatTemplateError(f"it must have at most {MOST_SOURCE} characters, got {len(template)}")
    return template


def render_bounded(
    template: str, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any], *, prompt: bool = True
) -> str:
    """Return the chat that a template of unknown origin writes.

    Args:
        template: source of the template.
        messages: role and content of each message.
        variables: further variables of the template, special tokens among them: values that JSON can hold.
        prompt: whether the text goes on to where the next answer begins.

    Raises:
        ChatTemplateError: the template fails, or passes a bound.
        ImportError: the process lacks transformers or jinja2.
        OSError: the process cannot be started.
    """
    request = {
        "template": template,
        "messages": list(messages),
        "variables": dict(variables),
        "prompt": prompt,
        "length": MOST_TEXT,
    }
    try:
        return str(RENDERER.ask(request))
    except BoundedError as error:
        raise ChatTemplateError(str(error)) from None


RENDERER: Final = BoundedWorker(
    Path(__file__).with_name("template_process.py"),
    Bounds(
        seconds=MOST_SECONDS,
        wait=MOST_WAIT,
        memory=MOST_MEMORY,
        answer=12 * MOST_TEXT + 4096,  # JSON takes 12 bytes at most for a character
    ),
    "rendering it",
)
"""The process that renders for this one."""
