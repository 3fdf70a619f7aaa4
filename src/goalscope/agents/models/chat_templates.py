"""Render chat templates of unknown origin in a separate process with limits.

A chat template is a program (Jinja). Its sandbox keeps it away from files and from Python, but does not prevent endless
loops or texts of any length. The process compiles and renders with the same function of transformers that
`apply_chat_template` calls. It starts with the first template that does not come with the package, and renders all
later ones.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from goalscope._ground.bounded import BoundedError, BoundedWorker, Bounds

MOST_SOURCE: Final = 2**20
"""Maximum number of characters of a template."""

MOST_TEXT: Final = 4 * 2**20
"""Maximum number of characters of a rendered chat."""

MOST_SECONDS: Final = 5
"""Maximum processor time per rendering, including compilation, in seconds; the system counts whole seconds."""

MOST_WAIT: Final = 60
"""Maximum wall-clock time per rendering, in seconds."""

MOST_MEMORY: Final = 512 * 2**20
"""Maximum memory in bytes that templates may add to what the process uses before the first template (Linux)."""


class ChatTemplateError(ValueError):
    """A chat template that fails or exceeds a limit."""


def check_source(template: object) -> str:
    """Return the source of a template; raise a ChatTemplateError if it is not a text or too long."""
    if not isinstance(template, str):
        raise ChatTemplateError(f"it must be a text, got {type(template).__name__}")
    if len(template) > MOST_SOURCE:
        raise ChatTemplateError(f"it must have at most {MOST_SOURCE} characters, got {len(template)}")
    return template


def render_bounded(
    template: str, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any], *, prompt: bool = True
) -> str:
    """Render a chat with a template of unknown origin.

    Args:
        template: source of the template.
        messages: role and content of each message.
        variables: further variables of the template, including special tokens, with values that JSON can represent.
        prompt: whether the text continues to where the next answer begins.

    Raises:
        ChatTemplateError: the template fails or exceeds a limit.
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
        answer=12 * MOST_TEXT + 4096,  # JSON needs at most 12 bytes per character
    ),
    "rendering it",
)
"""The process that renders chats for this process."""
