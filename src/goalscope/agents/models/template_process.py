"""The work of a bounded process (`_ground.bounded`) that renders chat templates with a function of transformers."""

from collections.abc import Callable, Iterator
from typing import Any


def prepare() -> Callable[[dict[str, Any]], Iterator[str]]:
    """Return the function that renders a chat, for the separate process in which templates of unknown origin are
    rendered.

    The function takes a request (a mapping with template, messages, variables and the maximum length) and yields the
    text.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    def render(request: dict[str, Any]) -> Iterator[str]:
        rendered: Any = render_jinja_template(
            conversations=[request["messages"]],
            chat_template=request["template"],
            add_generation_prompt=request["prompt"],
            **request["variables"],
        )
        text = str(rendered[0][0])
        if len(text) > request["length"]:
            raise ValueError(f"it writes more than {request['length']} characters")
        text.encode()
        yield text

    return render
