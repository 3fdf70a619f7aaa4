"""Commands that packages register, beside those of goalscope itself; they are imported when one is asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from goalscope._ground import registry
from goalscope.cli.errors import guarded
from goalscope.cli.help import as_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherCommand:
    """A command of a package.

    Attributes:
        body: its function; annotations say its arguments and options as Typer reads them.
        summary: its line in the list of commands.
        examples: whole command lines.
    """

    body: Callable[..., None]
    summary: str
    examples: tuple[str, ...] = ()


def command(
    name: str, *, summary: str, examples: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that registers a function as a command, see `FurtherCommand`."""

    def add(body: Callable[..., None]) -> Callable[..., None]:
        part = FurtherCommand(body=body, summary=summary, examples=examples)
        registry.register("command", name, made_of=body)(part)
        return body

    return add


class Commands(TyperGroup):
    """The commands of goalscope, and of packages where a name is none of them or all are listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names."""
        self._load()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, None where there is none of that name."""
        if cmd_name not in self.commands:
            self._load()
        return super().get_command(ctx, cmd_name)

    def _load(self) -> None:
        for name in registry.names("command"):
            part: FurtherCommand = registry.resolve("command", name)
            self.commands.setdefault(name, _built(name, part))  # a name of goalscope's stays what it is


def _built(name: str, part: FurtherCommand) -> Any:
    one = typer.Typer(
        add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
    )
    epilog = as_lines(part.examples) if part.examples else None
    one.command(name, short_help=part.summary, epilog=epilog)(guarded(part.body))
    return typer.main.get_command(one)
