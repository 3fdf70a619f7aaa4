"""Shared options and the texts of `goalscope --help`: a line for each command, and the examples of its help."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from typer.core import TyperCommand

SUMMARY: Final[Mapping[str, str]] = {
    "demo": "Run the bundled model beside agents with known goals, write a report.",
    "evaluate": "Say whether a model is goal-directed: one command, one verdict.",
    "ledger": "Print the claims of an evaluation.",
    "run": "Run a study, a file or a shipped one, or go on with it.",
    "estimate": "Say beforehand what a study costs, with --power what it can show.",
    "depends": "Say what the actions of agents depend on, one thing changed.",
    "separate": "Say which hypotheses some worlds can tell apart.",
    "design": "Choose worlds that tell hypotheses apart.",
    "attribute": "Say which hypothesis an agent's actions follow, or that none does.",
    "merge": "Put the shards of a study together into one run.",
    "import": "Check recorded trajectories and store them as a run.",
    "measure": "Measure a run, print estimates with intervals.",
    "show": "List the episodes of a run, or show one step by step.",
    "compare": "Compare agents and runs on common worlds, with tests.",
    "report": "Write the report of a run as one HTML page.",
    "view": "Write a page that shows each episode step by step.",
    "figure": "Write a figure or table of a page for a paper, or list them.",
    "export": "Write the tables of a run as Parquet files.",
    "capture": "Store the activations of a run by replaying its token ids.",
    "probe": "Fit probes on activations beside their controls.",
    "patch": "Change activations, see whether the action follows.",
    "meg": "Say how goal-directed agents are, in nats, and towards what.",
    "score": "Score exploration and exploitation errors of a log.",
    "verify": "Compare all that a run holds with its checksums.",
    "doctor": "Say what is installed, what is missing, how to get it.",
}

STUDIES: Final = "A study file (YAML), or the name of a registered study, see below."
"""Help text of the argument STUDY of `run` and `estimate`."""

HYPOTHESES: Final = (
    "Runs: written hypotheses such as goal, key, key held, corner top-left, corner top-right, corner bottom-left, "
    "corner bottom-right, 'cell ROW COL' or 'beside goal', or names of goals that environments give, with commas or "
    "';' between them. By default goal, key, key held and the four corners where they make sense, or the goals that "
    "the environments name."
)
"""Help text of the option --hypotheses of `meg`."""

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "demo": ("goalscope demo --out runs/demo",),
    "evaluate": (
        "goalscope evaluate theseus --quick --out runs/theseus",
        "goalscope evaluate theseus epsilon-greedy:epsilon=0.3 --budget 20m --out runs/two",
        "goalscope evaluate HuggingFaceTB/SmolLM2-135M-Instruct --arms grids --answer likelihood --out runs/smollm2",
        "goalscope evaluate openai:gpt-oss-20b@http://127.0.0.1:8000/v1 --budget 200k-tokens --out runs/gpt",
        "goalscope evaluate --plan runs/gpt/evaluation.json --out runs/again",
    ),
    "ledger": ("goalscope ledger runs/theseus", "goalscope ledger runs/theseus --card"),
    "run": (
        "goalscope run study.yaml --out runs/first",
        "goalscope run baseline --count 3 --agents Theseus,optimal --out runs/small",
        "goalscope run baseline --model HuggingFaceTB/SmolLM2-135M-Instruct --out runs/smollm2",
        "goalscope run cognitive-map --out runs/inside",
        "goalscope run baseline --shard 1/2 --out shards/1",
    ),
    "depends": (
        "goalscope depends theseus --out runs/depends",
        "goalscope depends runs/first --out runs/depends-first",
        "goalscope depends optimal 'wrong-goal:target=top-right' --worlds key-door --moved goal,key --out runs/keys",
    ),
    "separate": (
        "goalscope separate --hypotheses grids --worlds baseline --count 10",
        "goalscope separate --hypotheses 'goal;beside goal;corner top-right' --worlds grid",
        "goalscope separate --hypotheses mine.yaml --worlds key-door",
    ),
    "design": ("goalscope design --hypotheses grids --worlds grid --choose 8 --out study.yaml",),
    "attribute": (
        "goalscope attribute epsilon-greedy:epsilon=0.3 --hypotheses grids --worlds grid --out runs/after",
        "goalscope attribute runs/first --hypotheses 'grids;key' --methods meg",
    ),
    "merge": ("goalscope merge runs/whole shards/1 shards/2",),
    "estimate": (
        "goalscope estimate study.yaml --output-tokens 400",
        "goalscope estimate baseline --agents Theseus --measure",
        "goalscope estimate iso-difficulty --power --pilot runs/pilot",
    ),
    "import": ("goalscope import logs.jsonl --out runs/logs", "goalscope import logs --check"),
    "measure": (
        "goalscope measure runs/demo",
        "goalscope measure runs/demo --by size,density --measures 'success;action accuracy'",
    ),
    "show": (
        "goalscope show runs/demo --agent Theseus --outcome horizon",
        "goalscope show runs/demo 5b9409 --full",
    ),
    "compare": (
        "goalscope compare runs/a runs/b --margin 'success=0.1'",
        "goalscope compare runs/demo --agents 'optimal;random'",
        "goalscope compare runs/iso --transforms --json iso.json",
        "goalscope compare runs/early runs/late --at 0,1000 --svg curve.svg",
    ),
    "report": ("goalscope report runs/demo --out demo.html", "goalscope report runs/demo --ledger numbers.json"),
    "view": ("goalscope view runs/theseus", "goalscope view runs/demo --out demo.html --serve"),
    "figure": (
        "goalscope figure runs/demo --list",
        "goalscope figure runs/demo maps-figure-1 --out maps.pdf",
        "goalscope figure runs/demo results-table-1 --out results.tex",
        "goalscope figure runs/theseus --all runs/figures",
    ),
    "export": (
        "goalscope export runs/demo --out tables",
        "goalscope export runs/baseline --out tables --activations parquet,safetensors",
    ),
    "capture": (
        "goalscope capture runs/baseline",
        "goalscope capture runs/baseline --untrained 0",
        "goalscope capture runs/baseline --shard 3/16",
        "goalscope capture runs/gpt --model openai/gpt-oss-20b --layers 7,15,23 --sites pre,post",
    ),
    "probe": (
        "goalscope probe runs/gpt --reads cognitive-map,beliefs --sites pre,post --layers 7,15,23",
        "goalscope probe runs/inside --full",
        "goalscope probe runs/gpt --model openai/gpt-oss-20b --set probes.hidden=1024 --set probes.epochs=50",
    ),
    "patch": (
        "goalscope patch runs/patching",
        "goalscope patch runs/baseline --kind patching --pairs 4 --sites grid,changed",
    ),
    "meg": (
        "goalscope meg world.json",
        "goalscope meg world.npz --unknown --json",
        "goalscope meg runs/demo --by size,density",
        "goalscope meg runs/demo --hypotheses 'goal,corner top-right'",
        "goalscope meg runs/inside --beliefs pre:7",
    ),
    "score": (
        "goalscope score log.jsonl",
        "goalscope score log.jsonl --report runs/log",
        "goalscope score log.jsonl --out scores.jsonl --steps",
    ),
    "verify": ("goalscope verify runs/first",),
    "doctor": (
        "goalscope doctor --folder /data/runs",
        "goalscope doctor runs/first --repair",
        "goalscope doctor --model models/mine",
    ),
}


def examples(name: str) -> str:
    """Return the examples of a command, each on a line that is never wrapped, so that it can be copied."""
    return as_lines(EXAMPLES[name])


def as_lines(lines: tuple[str, ...]) -> str:
    """Return example lines as the help shows them."""
    return "\b\n" + "\n".join(("Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)))


def option(metavar: str, help: str, *names: str, **options: Any) -> Any:
    """Return an option with a value; by default it is named like the argument."""
    return typer.Option(*names, metavar=metavar, help=help, **options)


def flag(name: str, help: str) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=help)


Thing = Literal[
    "run",
    "shard",
    "evaluation",
    "organisms",
    "challenge",
    "key",
    "study",
    "hypotheses",
    "plan",
    "agent",
    "model",
    "log",
    "process",
    "prompt",
]
"""What a file or directory may be that a command reads. `agent` is a YAML file, `model` a folder of weights."""


class Reads:
    """State what an argument may name on disk, beside its type; nothing of it is shown in the help.

    The suite of attacks in ``tests/attacks`` takes from this which damaged files and directories a command is given.
    An argument that names a file or a directory without saying what it is makes that suite fail.

    Attributes:
        things: what may lie there and is read.
    """

    def __init__(self, *things: Thing) -> None:
        self.things = things


class Writes:
    """State that a command writes a file or a directory at the place that an argument names; see `Reads`.

    Attributes:
        form: whether a file or a directory is written.
    """

    def __init__(self, form: Literal["file", "directory"]) -> None:
        self.form = form


RunDirectory = Annotated[Path, Reads("run"), typer.Argument(metavar="RUN", help="The run directory (it holds run.db).")]
Executor = Annotated[str, option("NAME", "Where it is computed: threads (here), processes, or ray (extra ray).")]
Workers = Annotated[int, option("N", "With --executor: how many processes or actors.", min=1)]
Gpus = Annotated[float, option("N", "With --executor ray: GPUs of each actor; .5 lets two share one.", min=0)]
Pilot = Annotated[
    Path | None,
    Reads("run"),
    option("RUN", "A run that says what is expected: calls, tokens, hours; and the variances of --power.", "--pilot"),
]
MeasureSpeed = Annotated[
    bool, flag("--measure", "Ask some first turns, 30 s at most, and say what is expected: hours, tokens, USD, memory.")
]
Exported = Annotated[
    str,
    option(
        "FORMATS",
        "Also the activations that were captured: parquet, safetensors, or both with a comma.",
        "--activations",
    ),
]
Captures = Annotated[str, option("IDS", "With --activations: these captures only, separated by commas.", "--capture")]
LAYERS: Final = "Decoder blocks, 0-based: 7,15,23; thirds: the last one of each third; all."


class MeasureCommand(TyperCommand):
    """A command whose help ends with the definitions of all registered measures, imported only for that help."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the definitions, a measure with its variants, then the examples."""
        from goalscope.measures import behaviour_measures

        entries: dict[str, str] = {}
        variants: dict[str, list[str]] = {}
        for measure in behaviour_measures():
            base = getattr(measure, "base", "")
            if base:
                variants.setdefault(base, []).append(measure.name)
            else:
                text = getattr(measure, "text", "not defined by its package")
                low, high = measure.bounds
                entries[measure.name] = f"{text} ({measure.unit}, {low:g} to {high:g})"
        with formatter.section("Measures"):
            formatter.write_dl(
                [
                    (name, f"{text}. Also: {'; '.join(variants[name])}" if name in variants else text)
                    for name, text in entries.items()
                ]
            )
        super().format_epilog(ctx, formatter)


class StudyCommand(TyperCommand):
    """A command whose help ends with the names of the registered studies."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the names, then the examples."""
        from goalscope._ground import registry

        with formatter.section("Studies"):
            formatter.write_text(", ".join(sorted(registry.names("study"))))
        super().format_epilog(ctx, formatter)


class ProbeCommand(TyperCommand):
    """A command whose help ends with the registered analyses of activations, imported only for that help."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the analyses, then the examples."""
        from goalscope._ground import registry

        with formatter.section("Analyses"):
            formatter.write_dl(
                [(name, registry.resolve("analysis", name).title) for name in registry.names("analysis")]
            )
        super().format_epilog(ctx, formatter)
