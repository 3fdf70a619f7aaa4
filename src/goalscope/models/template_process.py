"""The process that renders chat templates of unknown origin; `chat_templates` starts it and says what they are.

A script without an import of the project: it takes requests as lines of JSON and answers each by a line. A rendering
that takes too long is ended by the operating system, whatever it is busy with.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MOST_MESSAGE = 1000  # characters of an error


def main() -> None:
    """Answer requests until the input ends; arguments: processor seconds, bytes of memory, characters of a text."""
    seconds, memory, length = map(int, sys.argv[1:])
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        from transformers.utils.chat_template_utils import render_jinja_template
    except ImportError as error:
        _answer(answers, {"kind": "ImportError", "failed": str(error)})
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _bound_memory(memory)
    _answer(answers, {"text": ""})  # ready
    for line in sys.stdin.buffer:
        _bound(resource.RLIMIT_CPU, int(time.process_time()) + 1 + seconds)
        _answer(answers, _rendered(render_jinja_template, json.loads(line), length))


def _rendered(render: Callable[..., Any], request: dict[str, Any], length: int) -> dict[str, str]:
    """Return the text, or kind and message of the error."""
    try:
        texts, _ = render(
            conversations=[request["messages"]],
            chat_template=request["template"],
            add_generation_prompt=request["prompt"],
            **request["variables"],
        )
        text = texts[0]
        if len(text) > length:
            return {"kind": "ValueError", "failed": f"it writes more than {length} characters"}
        text.encode()
    except Exception as error:  # noqa: BLE001 - a template may raise anything
        return {"kind": type(error).__name__, "failed": str(error)[:_MOST_MESSAGE]}
    return {"text": text}


def _bound_memory(most: int) -> None:
    """Bound the address space beyond what it is now, where the system tells it (Linux)."""
    sizes = Path("/proc/self/statm")
    if sizes.exists():
        _bound(resource.RLIMIT_AS, int(sizes.read_text().split()[0]) * resource.getpagesize() + most)


def _bound(which: int, most: int) -> None:
    """Set a limit of this process, which stays below one that is there already."""
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _answer(stream: Any, value: dict[str, str]) -> None:
    octets = memoryview(json.dumps(value).encode() + b"\n")
    while octets:
        octets = octets[stream.write(octets) :]


if __name__ == "__main__":
    main()
