"""The command line, and the functions of `import goalscope` that the commands call."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from goalscope.cli.further import Reads as Reads
    from goalscope.cli.further import RunDirectory as RunDirectory
    from goalscope.cli.further import Writes as Writes
    from goalscope.cli.further import command as command
    from goalscope.cli.program import app as app
    from goalscope.cli.program import main as main

_LATER: Final = {
    "Reads": "further",
    "RunDirectory": "further",
    "Writes": "further",
    "app": "program",
    "command": "further",
    "main": "program",
}
"""Name -> its module. Commands are built on first use, because `goalscope.run` needs none of them."""

__all__ = ["Reads", "RunDirectory", "Writes", "app", "command", "main"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"goalscope.cli.{_LATER[name]}"), name)
