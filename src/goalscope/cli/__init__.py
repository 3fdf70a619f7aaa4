"""The command line, and the functions of `import goalscope` that the commands call."""

from typing import TYPE_CHECKING

from goalscope._ground.later import names_later

if TYPE_CHECKING:
    from goalscope.cli.program import Reads as Reads
    from goalscope.cli.program import RunDirectory as RunDirectory
    from goalscope.cli.program import Writes as Writes
    from goalscope.cli.program import app as app
    from goalscope.cli.program import command as command
    from goalscope.cli.program import main as main

__all__ = ["Reads", "RunDirectory", "Writes", "app", "command", "main"]


# Commands are built on first use, because `goalscope.run` needs none of them.
__getattr__ = names_later(__name__, dict.fromkeys(__all__, "program"))
