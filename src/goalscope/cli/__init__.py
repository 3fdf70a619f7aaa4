"""The command line, and the functions of `import goalscope` that its commands call."""

from importlib import import_module
from typing import Any

__all__ = ["app", "main"]


def __getattr__(name: str) -> Any:
    """Build the commands when they are first asked for: `goalscope.run` and its neighbours need none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("goalscope.cli.program"), name)
