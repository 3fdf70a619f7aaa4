"""The program `goalscope` and its global options. Its commands are generated, see `goalscope.cli.further`."""

import shlex
import sys
from typing import Annotated

import typer

from goalscope._ground import own
from goalscope._ground.version import __version__
from goalscope.cli.further import Commands
from goalscope.cli.generator import as_lines

app = typer.Typer(
    name="goalscope",
    cls=Commands,
    help="Measure whether, how strongly and towards what a language-model agent is goal-directed.",
    epilog=as_lines(("goalscope demo --out runs/demo", "goalscope run --help")),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line."""
    app()


def _version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    own_code: Annotated[
        bool,
        typer.Option("--own-code", help="Let run directories load classes of the working directory (module:Class)."),
    ] = False,
) -> None:
    """Measure whether, how strongly and towards what a language-model agent is goal-directed."""
    command = context.invoked_subcommand
    arguments = sys.argv[1:]
    whole = shlex.join(arguments) if arguments[:1] == [command] else f"{command} ..."
    advice = f"if the file is yours: goalscope --own-code {whole}"
    context.with_resource(own.command(own_code=own_code, advice=advice))
