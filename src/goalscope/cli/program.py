"""All commands by name: those of goalscope and those that other packages register. Each is imported on first use."""

import gc
import inspect
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from goalscope._ground import own, registry
from goalscope._ground.version import __version__
from goalscope.cli.generator import Body, as_lines, generated
from goalscope.cli.generator import Reads as Reads
from goalscope.cli.generator import RunDirectory as RunDirectory
from goalscope.cli.generator import Writes as Writes

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "demo": ("running:demo", "Run a bundled model and three reference agents, and write a report."),
    "evaluate": ("claims:evaluate", "Judge whether a model is goal-directed, how strongly and towards what."),
    "ledger": ("claims:ledger", "Print the claims of an evaluation."),
    "card": ("claims:card", "Make a model card of an evaluation, or a record for Every Eval Ever."),
    "run": ("running:show_stages", "Run a study, or resume it."),
    "merge": ("running:merge", "Merge the shards of a study into one run."),
    "depends": (
        "depending:show_dependences",
        "Test what an agent's moves depend on, by changing one thing at a time.",
    ),
    "separate": ("hypotheses:separate", "Show which hypotheses a set of worlds can tell apart."),
    "design": ("hypotheses:design", "Choose the worlds that best tell hypotheses apart."),
    "attribute": (
        "attributing:show_attributed",
        "Find the hypothesis that explains an agent's moves, if any does.",
    ),
    "predict": (
        "attributing:show_predicted",
        "Predict what an agent does in kinds of worlds where nobody has seen it, then look.",
    ),
    "table": ("exporting:show_table", "Write an environment as a table of states and transitions, for other tools."),
    "estimate": ("expected:estimate", "Estimate what a study costs and, with --power, what it can detect."),
    "import": ("logs:import_and_show", "Check recorded trajectories, and store them as a run."),
    "measure": ("measuring:measure_and_show", "Measure a run, and print estimates with confidence intervals."),
    "show": ("exporting:show", "List the episodes of a run, or show one step by step."),
    "compare": ("comparing:show_comparisons", "Compare agents or runs on the worlds they share, with tests."),
    "report": ("measuring:report", "Write the report of a run as one HTML page."),
    "view": ("exporting:view", "Write a page that shows each episode step by step."),
    "figure": ("exporting:figure", "Write one figure or table of a report to a file, e.g. for a paper."),
    "export": ("exporting:export", "Write the tables of a run as Parquet files."),
    "capture": ("inside:capture", "Replay the recorded tokens of a run, and store the activations."),
    "probe": ("inside:show_probed", "Fit probes and their controls on the activations of a run."),
    "patch": ("inside:show_patched", "Patch activations, and measure whether the chosen move changes."),
    "meg": ("goals:meg", "Measure goal-directedness (MEG, in nats) of agents towards several goals."),
    "score": ("logs:show_scored", "Score the exploration and exploitation errors in a log."),
    "verify": ("examining:verify", "Verify a run or an evaluation against its checksums."),
    "doctor": ("doctor:doctor", "Check the installation, a run, a model or a server."),
}
"""Name of a command -> where its function is, as "module:function", and its line in the list of commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherCommand:
    """A command of the command line that another package registers.

    Attributes:
        body: the function that the command is generated from, see `goalscope.cli.generator`.
        summary: the line of the command in the list of commands.
    """

    body: Callable[..., Any]
    summary: str


def command(name: str, *, summary: str, examples: tuple[str, ...] = ()) -> Callable[[Body], Body]:
    """Return a decorator that registers a function as a command of the command line.

    Args:
        name: what the user types after ``goalscope``.
        summary: the line of the command in the list of commands.
        examples: whole command lines for the help, if the docstring of the function has no ``Examples:``.

    Raises:
        ValueError: if goalscope or another package already has a command of this name.
    """
    if name in COMMANDS:
        raise ValueError(
            f"cannot register a command named {name!r}: goalscope has a command of that name; choose another name"
        )

    def add(body: Body) -> Body:
        if examples and "\n\nExamples:\n" not in (inspect.getdoc(body) or ""):
            lines = "".join(f"\n    {line}" for line in examples)
            body.__doc__ = f"{inspect.getdoc(body) or summary}\n\nExamples:{lines}"
        registry.register("command", name, made_of=body)(FurtherCommand(body=body, summary=summary))
        return body

    return add


@contextmanager
def _uncollected() -> Iterator[None]:
    """Import modules inside this context without looking for garbage, since what they define lives as long as the
    process. This saves a seventh of the processor time of a short command.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _Generated(Mapping[str, Any]):
    """The commands by name, each generated on first use. Other packages are loaded only for names unknown here."""

    def __init__(self) -> None:
        self._made = dict[str, Any]()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*COMMANDS, *registry.names("command")]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            if name in COMMANDS:
                place, summary = COMMANDS[name]
                module, _, function = place.partition(":")
                with _uncollected():
                    body = getattr(import_module(f"goalscope.cli.{module}"), function)
            elif name in registry.names("command"):
                part: FurtherCommand = registry.resolve("command", name)
                body, summary = part.body, part.summary
            else:
                raise KeyError(name)
            self._made[name] = generated(name, body, summary)
        return self._made[name]


class Commands(TyperGroup):
    """The group of all commands of goalscope. Listing their names imports none of their modules."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Generated()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, as click needs them; ``ctx`` is the context of click."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands with their summaries into the help."""
        built_in = {name: summary for name, (_, summary) in COMMANDS.items()}
        further = {name: registry.resolve("command", name).summary for name in registry.names("command")}
        with formatter.section("Commands"):
            formatter.write_dl(
                [*built_in.items(), *((name, text) for name, text in further.items() if name not in built_in)]
            )


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
    """Run the command line of goalscope with the arguments of the process."""
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
    advice = f"If the file is yours, type: goalscope --own-code {whole}"
    context.with_resource(own.command(own_code=own_code, advice=advice))
