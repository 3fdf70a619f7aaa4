"""The commands: names, options, help. What they do stands in the other modules; nothing heavy is imported here."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from goalscope import __version__
from goalscope.cli import activations, interventions, show
from goalscope.cli.errors import PROBLEMS, WRONG_INPUT, check_outputs, guarded
from goalscope.cli.help import (
    HYPOTHESES,
    STUDIES,
    SUMMARY,
    MeasureCommand,
    RunDirectory,
    as_lines,
    examples,
    flag,
    option,
)

if TYPE_CHECKING:
    from goalscope.cli.overrides import Overrides

app = typer.Typer(
    name="goalscope",
    help="Whether, how strongly and towards what a language-model agent is goal-directed.",
    epilog=as_lines(("goalscope demo --out runs/demo", "goalscope run --help")),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

StudyName = Annotated[str, typer.Argument(metavar="STUDY", help=STUDIES)]
OutFolder = Annotated[Path, option("DIR", "The run directory to write.", "--out", "-o")]
Sizes = Annotated[str | None, option("LIST", "Other grid sizes, e.g. 7,9.")]
Densities = Annotated[str | None, option("LIST", "Other wall densities, e.g. 0,0.6.")]
Count = Annotated[int | None, option("N", "Worlds of each kind, size and density.")]
Trajectories = Annotated[int | None, option("N", "Episodes of each agent on each world.")]
Agents = Annotated[str | None, option("NAMES", "Only these agents of the study, in this order, separated by , or ;.")]
Settings = Annotated[
    list[str] | None,
    option("KEY=VALUE", "Another value of any key, e.g. worlds.0.count=3. Repeatable.", "--set"),
]

Body = TypeVar("Body", bound=Callable[..., None])


def main() -> None:
    """Run the command line."""
    app()


def _command(name: str, **more: Any) -> Callable[[Body], Body]:
    """Return a decorator that adds a command with its one-line summary and its examples."""

    def add(body: Body) -> Body:
        return app.command(name, epilog=examples(name), short_help=SUMMARY[name], **more)(guarded(body))

    return add


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Whether, how strongly and towards what a language-model agent is goal-directed."""


@_command("demo")
def demo(out: OutFolder = Path("runs/demo")) -> None:
    """Run the bundled language model beside an optimal, a random and an untrained agent, measure, write a report."""
    from goalscope.cli import commands

    commands.demo(out)


@_command("run")
def run(
    study: StudyName,
    out: OutFolder,
    workers: Annotated[int, option("N", "Calls of an agent at the same time: threads, processes, actors.", min=1)] = 1,
    executor: Annotated[
        str, option("NAME", "Where agents act: threads, processes, ray (extra ray) or dask (extra dask).")
    ] = "threads",
    shard: Annotated[
        str | None, option("K/N", "Only the K-th of N parts, e.g. 3/16; goalscope merge puts all N together.")
    ] = None,
    full: Annotated[
        bool, flag("--full", "Studies of activations: the complete table, all heads and controls.")
    ] = False,
    sizes: Sizes = None,
    densities: Densities = None,
    count: Count = None,
    trajectories: Trajectories = None,
    agents: Agents = None,
    settings: Settings = None,
) -> None:
    """Run a study. Called again on the same directory it goes on where it stopped and repeats nothing.

    A changed study is another study: it has its own id and needs a directory of its own.
    """
    from goalscope.cli import commands

    changes = _overrides(sizes, densities, settings, count=count, trajectories=trajectories, agents=agents)
    commands.run(study, out, workers, changes, full=full, shard=shard, executor=executor)


@_command("merge")
def merge(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The run directory to write; must be new.")],
    shards: Annotated[
        list[Path], typer.Argument(metavar="SHARD ...", help="The run directories of all shards, in any order.")
    ],
) -> None:
    """Put the shards of a study together: the same content as one run of it. The shards are read, never changed."""
    from goalscope.cli import commands

    commands.merge(out, shards)


def _overrides(sizes: str | None, densities: str | None, settings: list[str] | None, **given: Any) -> "Overrides":
    from goalscope.cli.overrides import Overrides, numbers

    return Overrides(
        sizes=numbers("--sizes", sizes, int),
        densities=numbers("--densities", densities, float),
        settings=tuple(settings or ()),
        **given,
    )


@app.command("plan", hidden=True, epilog=examples("estimate"))  # its name of old
@_command("estimate")
def estimate(
    study: StudyName,
    output_tokens: Annotated[int | None, option("N", "Also say what N output tokens a call would cost.", min=0)] = None,
    power: Annotated[
        bool, flag("--power", "Also say which effects and which equivalence margins it can show.")
    ] = False,
    pilot: Annotated[Path | None, option("RUN", "A run whose variances --power takes over.")] = None,
    assume_mean: Annotated[float, option("SHARE", "Mean that --power assumes without a pilot.")] = 0.8,
    assume_between: Annotated[
        float, option("SD", "Deviation over grids of the true difference that --power assumes.")
    ] = 0.05,
    sizes: Sizes = None,
    densities: Densities = None,
    count: Count = None,
    trajectories: Trajectories = None,
    agents: Agents = None,
    settings: Settings = None,
) -> None:
    """Say what a study costs at most, calls, tokens and USD, before anything is spent. Needs no network, no weights."""
    from goalscope.cli.commands import load_study
    from goalscope.cli.estimate import print_cost, print_power
    from goalscope.preflight.power import Assumptions

    if pilot is not None and not power:
        raise ValueError("--pilot must come with --power, whose variances it gives: add --power")
    changes = _overrides(sizes, densities, settings, count=count, trajectories=trajectories, agents=agents)
    planned = load_study(study, changes)
    print_cost(planned, output_tokens)
    if power:
        print_power(planned, pilot, Assumptions(mean=assume_mean, between=assume_between))


@_command("import")
def import_(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file or folder: JSONL, or the authors' layout.")],
    out: Annotated[Path | None, option("DIR", "The run directory to write.", "--out", "-o")] = None,
    check: Annotated[bool, flag("--check", "Check everything, write nothing.")] = False,
) -> None:
    """Import recorded trajectories, every recorded label compared with ours. Exit status 1 where there are problems."""
    from goalscope.cli import commands

    if (out is None) != check:
        raise ValueError("import must be given either --out DIR (to write a run) or --check (to write nothing)")
    if not commands.import_path(path, out):
        raise typer.Exit(PROBLEMS)


@_command("measure", cls=MeasureCommand)
def measure(
    run: RunDirectory,
    by: Annotated[
        str, option("TAGS", "Group by agent and these tags, e.g. size,density; by all conditions if left out.")
    ] = "",
    measures: Annotated[
        str, option("NAMES", "Print these only, separated by ';' (all are stored); listed below.")
    ] = "",
    everything: Annotated[bool, flag("--all", "Print all measures, with n and method.")] = False,
) -> None:
    """Measure all episodes of a run, store the rows, print the main estimates with their intervals."""
    from goalscope.cli import commands
    from goalscope.cli.overrides import split

    commands.measure(run, split(by), split(measures, separator=";"), everything=everything)


_command("show")(show.show)


@_command("compare")
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN_A RUN_B ...", help="Run directories.")],
    measures: Annotated[
        str | None,
        option(
            "NAMES", "The measures of the family, separated by ';'; those of --margin, else success;action accuracy."
        ),
    ] = None,
    agents: Annotated[str | None, option("NAMES", "Compare these agents only, separated by ';'.")] = None,
    margin: Annotated[
        str | None, option("MEASURE=NUMBER", "Also test equivalence within these margins, separated by ';'.")
    ] = None,
    transforms: Annotated[
        bool, flag("--transforms", "Compare each agent of one run with itself on the transformed grids.")
    ] = False,
    other_horizons: Annotated[
        bool, flag("--other-horizons", "Also compare runs whose episodes may last differently long.")
    ] = False,
    json: Annotated[Path | None, option("FILE", "Write the numbers as JSON there, too.")] = None,
    csv: Annotated[Path | None, option("FILE", "Write the numbers as CSV there, too.")] = None,
) -> None:
    """Compare agents and runs on the worlds that they share: paired differences, one corrected family of tests."""
    from goalscope.cli import compare as comparing
    from goalscope.cli.overrides import split
    from goalscope.report.run_comparison import ComparisonSettings

    check_outputs(json, csv)
    settings = ComparisonSettings(
        measures=None if measures is None else split(measures, separator=";"),
        agents=comparing.agents_of(agents),
        margin=comparing.margins_of(margin),
        horizons=other_horizons,
    )
    does = comparing.compare_versions if transforms else comparing.compare
    does(runs, settings, {"json": json, "csv": csv})


@_command("report")
def report(
    run: RunDirectory,
    out: Annotated[Path | None, option("FILE", "The page; RUN/report.html by default.", "--out", "-o")] = None,
    ledger: Annotated[Path | None, option("FILE", "Write all numbers as JSON there, too.")] = None,
) -> None:
    """Write the report of a run as one page; a run that is not measured yet is measured first."""
    from goalscope.cli import commands

    commands.report(run, out, ledger)


@_command("export")
def export(
    run: RunDirectory, out: Annotated[Path, option("DIR", "The folder to write the tables to.", "--out", "-o")]
) -> None:
    """Write worlds, episodes, steps and rows as Parquet files."""
    from goalscope.cli import commands

    commands.export(run, out)


_command("capture")(activations.capture)
_command("probe")(activations.probe)
_command("patch")(interventions.patch)


@_command("meg")
def meg(
    path: Annotated[
        Path, typer.Argument(metavar="FILE|RUN", help="A decision process and an agent in it (.json, .npz), or a run.")
    ],
    unknown: Annotated[
        bool, flag("--unknown", "Also the best of all utilities over states; of runs, held out.")
    ] = False,
    confidence: Annotated[float, option("C", "Confidence of the intervals.")] = 0.95,
    as_json: Annotated[bool, flag("--json", "Print JSON.")] = False,
    by: Annotated[str, option("TAGS", "Runs: also by these tags, e.g. size,density.")] = "",
    hypotheses: Annotated[str, option("NAMES", HYPOTHESES)] = "",
    utility: Annotated[
        str, option("WHICH", "Runs: steps (spent there, the default) or arrival (being there last).")
    ] = "",
    invalid: Annotated[
        str,
        option(
            "WHICH", "Runs: a turn without an action is a step in place (no-op, the default) or an action (action)."
        ),
    ] = "",
    ridge: Annotated[float | None, option("R", "Runs: penalty of --unknown; 1 by default.", min=0)] = None,
    beliefs: Annotated[
        str,
        option(
            "SITE:LAYER",
            "Runs: also towards the goal that captured activations speak of, beside a random network and shuffled.",
        ),
    ] = "",
    draws: Annotated[int | None, option("N", "Runs: shuffles of --beliefs; 20 by default.", min=1, max=1000)] = None,
) -> None:
    """Say how goal-directed agents are, in nats: in a decision process of your own, or in a run towards several goals.

    Of a run, rows and figures are stored, and reports show them.
    """
    if ridge is not None and not unknown:
        raise ValueError("--ridge must come with --unknown, whose penalty it is: add --unknown, or leave it out")
    from goalscope.cli.meg import meg_file, meg_run

    given = {"by": by, "hypotheses": hypotheses, "utility": utility, "invalid": invalid}
    if path.is_dir():
        meg_run(
            path,
            given,
            confidence=confidence,
            unknown=unknown,
            ridge=1.0 if ridge is None else ridge,
            as_json=as_json,
            beliefs=beliefs,
            draws=draws,
        )
        return
    only_runs: dict[str, object] = {**given, "ridge": ridge, "beliefs": beliefs, "draws": draws}
    if names := [f"--{name}" for name, value in only_runs.items() if value not in ("", None)]:
        raise ValueError(f"{', '.join(names)} must come with a run directory, got the file {path}: leave it out")
    meg_file(path, unknown=unknown, confidence=confidence, as_json=as_json)


@_command("score")
def score(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Episodes of task worlds as JSON lines.")],
    out: Annotated[
        Path | None, option("FILE", "Write the score of each episode there, as JSON lines.", "--out", "-o")
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print one JSON object in place of the table.")] = False,
    steps: Annotated[bool, flag("--steps", "Write every step to --out, too.")] = False,
    distances: Annotated[str, option("GRAPH", "Where distances are measured: known, map or observed.")] = "known",
) -> None:
    """Score exploration and exploitation errors of a log, without any model. Exit status 1 where lines are refused."""
    from goalscope.cli import score as scoring

    if not scoring.score(path, out=out, as_json=as_json, steps=steps, distances=distances):
        raise typer.Exit(PROBLEMS)


@_command("cliff-world")
def cliff_world(
    out: Annotated[Path, option("DIR", "The folder for figures and JSON.", "--out", "-o")],
    networks: Annotated[int, option("N", "Also fit N networks as unknown utility in each row (extra lm).", min=0)] = 0,
    figures: Annotated[bool, typer.Option(help="Draw the figures (extra report).")] = True,
) -> None:
    """Both experiments of the paper that defines MEG, exact, beside what it prints: tables, figures, JSON."""
    from goalscope.cli.meg import cliff

    cliff(out, networks, figures=figures)


@_command("doctor")
def doctor(folder: Annotated[Path, option("DIR", "Where runs are to be written.")] = Path()) -> None:
    """Say what is installed, what is missing and which extra brings it, and whether runs can be written."""
    from goalscope.cli.console import table
    from goalscope.cli.doctor import examine

    findings = examine(folder)
    rows = [(finding.what, finding.state, finding.detail) for finding in findings]
    table(("what", "state", "detail"), rows, title="goalscope doctor")
    if any(finding.fatal for finding in findings):
        raise typer.Exit(WRONG_INPUT)


@app.command(
    "train-theseus",
    hidden=True,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
@guarded
def train_theseus() -> None:
    """Bundled models are trained from a clone of the repository: python -m training.theseus FOLDER --hours 6."""
    raise ValueError(
        "the code that trains the bundled models must be run in a clone of the repository, this is the installed "
        "package: python -m training.theseus --help there"
    )
