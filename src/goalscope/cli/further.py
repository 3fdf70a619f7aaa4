"""The commands by name: those of goalscope and those that packages register. Each is imported when it is asked for."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from typer.core import TyperGroup

from goalscope._ground import registry
from goalscope._ground.arguments import Reads as Reads
from goalscope._ground.arguments import RunDirectory as RunDirectory
from goalscope._ground.arguments import Writes as Writes
from goalscope.cli.generator import Body, generated

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "demo": ("demo:demo", "Run the bundled model beside agents with known goals, write a report."),
    "evaluate": ("evaluating:evaluate", "Say whether a model is goal-directed: one command, one verdict."),
    "ledger": ("claims:ledger", "Print the claims of an evaluation."),
    "run": ("studies:run", "Run a study, a file or a shipped one, or go on with it."),
    "merge": ("studies:merge", "Put the shards of a study together into one run."),
    "depends": ("depending:show_dependences", "Say what the actions of agents depend on, one thing changed."),
    "separate": ("hypotheses:separate", "Say which hypotheses some worlds can tell apart."),
    "design": ("hypotheses:design", "Choose worlds that tell hypotheses apart."),
    "attribute": ("attributing:show_attributed", "Say which hypothesis an agent's actions follow, or that none does."),
    "estimate": ("estimate:estimate", "Say what a study will cost; with --power, what it can show."),
    "import": ("importing:import_path", "Check recorded trajectories and store them as a run."),
    "measure": ("measuring:measure", "Measure a run, print estimates with intervals."),
    "show": ("transcripts:show", "List the episodes of a run, or show one step by step."),
    "compare": ("compare:show_comparisons", "Compare agents and runs on common worlds, with tests."),
    "report": ("measuring:report", "Write the report of a run as one HTML page."),
    "view": ("viewing:view", "Write a page that shows each episode step by step."),
    "figure": ("figures:figure", "Write a figure or table of a page for a paper, or list them."),
    "export": ("exporting:export", "Write the tables of a run as Parquet files."),
    "capture": ("activations:capture", "Store the activations of a run by replaying its token ids."),
    "probe": ("activations:show_probed", "Fit probes on activations beside their controls."),
    "patch": ("interventions:show_patched", "Change activations, see whether the action follows."),
    "meg": ("meg:meg", "Say how goal-directed agents are, in nats, and towards what."),
    "score": ("score:show_scored", "Score exploration and exploitation errors of a log."),
    "verify": ("verify:verify", "Compare all that a run holds with its checksums."),
    "doctor": ("doctor:doctor", "Say what is installed, what is missing, how to get it."),
}
"""Name -> function, or printer of a result, and the line in the list of commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherCommand:
    """A command of a package.

    Attributes:
        body: its function, from which it is generated, see `goalscope.cli.generator`.
        summary: its line in the list of commands.
    """

    body: Callable[..., Any]
    summary: str


def command(name: str, *, summary: str, examples: tuple[str, ...] = ()) -> Callable[[Body], Body]:
    """Return a decorator that registers a function as a command, see `FurtherCommand`.

    Args:
        name: what is typed behind ``goalscope``.
        summary: its line in the list of commands.
        examples: whole command lines, where the docstring of the function has none.

    Raises:
        ValueError: the name of a command of goalscope or of another package.
    """
    if name in COMMANDS:
        raise ValueError(
            f"the name of a registered command must be its own, but {name!r} is one of goalscope: choose another name"
        )

    def add(body: Body) -> Body:
        if examples and "\n\nExamples:\n" not in (inspect.getdoc(body) or ""):
            lines = "".join(f"\n    {line}" for line in examples)
            body.__doc__ = f"{inspect.getdoc(body) or summary}\n\nExamples:{lines}"
        registry.register("command", name, made_of=body)(FurtherCommand(body=body, summary=summary))
        return body

    return add


class _Generated(Mapping[str, Any]):
    """The commands by name, each generated when it is first asked for; packages only where a name is none of ours."""

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
                body = getattr(import_module(f"goalscope.cli.{module}"), function)
            elif name in registry.names("command"):
                part: FurtherCommand = registry.resolve("command", name)
                body, summary = part.body, part.summary
            else:
                raise KeyError(name)
            self._made[name] = generated(name, body, summary)
        return self._made[name]


class Commands(TyperGroup):
    """The program: all commands by name; a list of them needs none of their modules."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Generated()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        own = {name: summary for name, (_, summary) in COMMANDS.items()}
        further = {name: registry.resolve("command", name).summary for name in registry.names("command")}
        with formatter.section("Commands"):
            formatter.write_dl([*own.items(), *((name, text) for name, text in further.items() if name not in own)])
