"""The commands: names, options, help. What they do stands in `work` and `doctor`; nothing heavy is imported here."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goalscope import __version__
from goalscope.cli import capture, probe
from goalscope.cli.errors import PROBLEMS, WRONG_INPUT, check_outputs, guarded
from goalscope.cli.help import HYPOTHESES, STUDIES, SUMMARY, MeasureCommand, as_lines, examples

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

RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="The run directory (it holds run.db).")]
OutFolder = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The run directory to write.")]
StudyName = Annotated[str, typer.Argument(metavar="STUDY", help=STUDIES)]
Sizes = Annotated[str | None, typer.Option(metavar="LIST", help="Other grid sizes, e.g. 7,9.")]
Densities = Annotated[str | None, typer.Option(metavar="LIST", help="Other wall densities, e.g. 0,0.6.")]
Count = Annotated[int | None, typer.Option(metavar="N", help="Worlds of each kind, size and density.")]
Trajectories = Annotated[int | None, typer.Option(metavar="N", help="Episodes of each agent on each world.")]
Agents = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Only these agents of the study, in this order, separated by , or ;."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Another value of any key, e.g. worlds.0.count=3. Repeatable."),
]


def main() -> None:
    """Run the command line."""
    app()


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


@app.command(epilog=examples("demo"), short_help=SUMMARY["demo"])
@guarded
def demo(out: OutFolder = Path("runs/demo")) -> None:
    """Run the bundled language model beside an optimal, a random and an untrained agent, measure, write a report."""
    from goalscope.cli import commands

    commands.demo(out)


@app.command(epilog=examples("run"), short_help=SUMMARY["run"])
@guarded
def run(
    study: StudyName,
    out: OutFolder,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Calls of an agent at the same time.")] = 1,
    full: Annotated[
        bool, typer.Option("--full", help="Studies of activations: the complete table, all heads and controls.")
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

    commands.run(study, out, workers, _overrides(sizes, densities, count, trajectories, agents, settings), full=full)


def _overrides(
    sizes: str | None,
    densities: str | None,
    count: int | None,
    trajectories: int | None,
    agents: str | None,
    settings: list[str] | None,
) -> "Overrides":
    from goalscope.cli.overrides import Overrides, numbers

    return Overrides(
        sizes=numbers("--sizes", sizes, int),
        densities=numbers("--densities", densities, float),
        count=count,
        trajectories=trajectories,
        agents=agents,
        settings=tuple(settings or ()),
    )


@app.command("plan", hidden=True, epilog=examples("estimate"))  # its name of old
@app.command(epilog=examples("estimate"), short_help=SUMMARY["estimate"])
@guarded
def estimate(
    study: StudyName,
    output_tokens: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Also say what N output tokens a call would cost.")
    ] = None,
    power: Annotated[
        bool, typer.Option("--power", help="Also say which effects and which equivalence margins it can show.")
    ] = False,
    pilot: Annotated[Path | None, typer.Option(metavar="RUN", help="A run whose variances --power takes over.")] = None,
    assume_mean: Annotated[
        float, typer.Option(metavar="SHARE", help="Mean that --power assumes without a pilot.")
    ] = 0.8,
    assume_between: Annotated[
        float,
        typer.Option(metavar="SD", help="Deviation over grids of the true difference that --power assumes."),
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
    planned = load_study(study, _overrides(sizes, densities, count, trajectories, agents, settings))
    print_cost(planned, output_tokens)
    if power:
        print_power(planned, pilot, Assumptions(mean=assume_mean, between=assume_between))


@app.command("import", epilog=examples("import"), short_help=SUMMARY["import"])
@guarded
def import_(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file or folder: JSONL, or the authors' layout.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="The run directory to write.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Check everything, write nothing.")] = False,
) -> None:
    """Import recorded trajectories, every recorded label compared with ours. Exit status 1 where there are problems."""
    from goalscope.cli import commands

    if (out is None) != check:
        raise ValueError("import must be given either --out DIR (to write a run) or --check (to write nothing)")
    if not commands.import_path(path, out):
        raise typer.Exit(PROBLEMS)


@app.command(cls=MeasureCommand, epilog=examples("measure"), short_help=SUMMARY["measure"])
@guarded
def measure(
    run: RunDirectory,
    by: Annotated[
        str,
        typer.Option(
            metavar="TAGS", help="Group by agent and these tags, e.g. size,density; by all conditions if left out."
        ),
    ] = "",
    measures: Annotated[
        str, typer.Option(metavar="NAMES", help="Print these only, separated by ';' (all are stored); listed below.")
    ] = "",
) -> None:
    """Measure all episodes of a run, store the rows, print the estimates with their intervals."""
    from goalscope.cli import commands
    from goalscope.cli.overrides import split

    commands.measure(run, split(by), split(measures, separator=";"))


@app.command(epilog=examples("compare"), short_help=SUMMARY["compare"])
@guarded
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_A RUN_B ...", help="Run directories."),
    ],
    measures: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="The measures of the family, separated by ';'; those of --margin, else success;action accuracy.",
        ),
    ] = None,
    agents: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Compare these agents only, separated by ';'.")
    ] = None,
    margin: Annotated[
        str | None,
        typer.Option(metavar="MEASURE=NUMBER", help="Also test equivalence within these margins, separated by ';'."),
    ] = None,
    transforms: Annotated[
        bool,
        typer.Option("--transforms", help="Compare each agent of one run with itself on the transformed grids."),
    ] = False,
    other_horizons: Annotated[
        bool,
        typer.Option("--other-horizons", help="Also compare runs whose episodes may last differently long."),
    ] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the numbers as JSON there, too.")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the numbers as CSV there, too.")] = None,
) -> None:
    """Compare agents and runs on the worlds that they share: paired differences, one corrected family of tests."""
    from goalscope.cli import compare as comparing
    from goalscope.cli.overrides import split
    from goalscope.report.run_comparison import ComparisonSettings

    check_outputs(json, csv)
    does = comparing.compare_versions if transforms else comparing.compare
    does(
        runs,
        ComparisonSettings(
            measures=None if measures is None else split(measures, separator=";"),
            agents=comparing.agents_of(agents),
            margin=comparing.margins_of(margin),
            horizons=other_horizons,
        ),
        comparing.Files(json=json, csv=csv),
    )


@app.command(epilog=examples("report"), short_help=SUMMARY["report"])
@guarded
def report(
    run: RunDirectory,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The page; RUN/report.html by default.")
    ] = None,
    ledger: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all numbers as JSON there, too.")] = None,
) -> None:
    """Write the report of a run as one page; a run that is not measured yet is measured first."""
    from goalscope.cli import commands

    commands.report(run, out, ledger)


@app.command(epilog=examples("export"), short_help=SUMMARY["export"])
@guarded
def export(
    run: RunDirectory,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder to write the tables to.")],
) -> None:
    """Write worlds, episodes, steps and rows as Parquet files."""
    from goalscope.cli import commands

    commands.export(run, out)


app.command("capture", epilog=examples("capture"), short_help=SUMMARY["capture"])(capture.command)
app.command("probe", epilog=examples("probe"), short_help=SUMMARY["probe"])(probe.command)


@app.command(epilog=examples("meg"), short_help=SUMMARY["meg"])
@guarded
def meg(
    path: Annotated[
        Path,
        typer.Argument(metavar="FILE|RUN", help="A decision process and an agent in it (.json, .npz), or a run."),
    ],
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Also the best of all utilities over states; of runs, held out.")
    ] = False,
    confidence: Annotated[float, typer.Option(metavar="C", help="Confidence of the intervals.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    by: Annotated[str, typer.Option(metavar="TAGS", help="Runs: also by these tags, e.g. size,density.")] = "",
    hypotheses: Annotated[
        str,
        typer.Option(metavar="NAMES", help=HYPOTHESES),
    ] = "",
    utility: Annotated[
        str, typer.Option(metavar="WHICH", help="Runs: steps (spent there, the default) or arrival (being there last).")
    ] = "",
    invalid: Annotated[
        str,
        typer.Option(
            metavar="WHICH",
            help="Runs: a turn without an action is a step in place (no-op, the default) or an action (action).",
        ),
    ] = "",
    ridge: Annotated[
        float | None, typer.Option(min=0, metavar="R", help="Runs: penalty of --unknown; 1 by default.")
    ] = None,
    beliefs: Annotated[
        str,
        typer.Option(
            metavar="SITE:LAYER",
            help="Runs: also towards the goal that captured activations speak of, beside untrained and shuffled.",
        ),
    ] = "",
    draws: Annotated[
        int | None, typer.Option(min=1, max=1000, metavar="N", help="Runs: shuffles of --beliefs; 20 by default.")
    ] = None,
) -> None:
    """Say how goal-directed agents are, in nats: in a decision process of your own, or in a run towards several goals.

    Of a run, rows and figures are stored, and reports show them.
    """
    from goalscope.cli.meg_run import check_options, meg_run, settings_of

    if ridge is not None and not unknown:
        raise ValueError("--ridge must come with --unknown, whose penalty it is: add --unknown, or leave it out")
    if path.is_dir():
        settings = settings_of(by, hypotheses, utility, invalid, confidence)
        penalty = 1.0 if ridge is None else ridge
        meg_run(path, settings, unknown=unknown, ridge=penalty, as_json=as_json, beliefs=beliefs, draws=draws)
        return
    from goalscope.cli.meg import meg_file

    given: dict[str, object] = {"by": by, "hypotheses": hypotheses, "utility": utility, "invalid": invalid}
    check_options(path, **given, ridge=ridge, beliefs=beliefs, draws=draws)
    meg_file(path, unknown=unknown, confidence=confidence, as_json=as_json)


@app.command(epilog=examples("score"), short_help=SUMMARY["score"])
@guarded
def score(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Episodes of task worlds as JSON lines.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the score of each episode there, as JSON lines."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object in place of the table.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Write every step to --out, too.")] = False,
    distances: Annotated[
        str, typer.Option(metavar="GRAPH", help="Where distances are measured: known, map or observed.")
    ] = "known",
) -> None:
    """Score exploration and exploitation errors of a log, without any model. Exit status 1 where lines are refused."""
    from goalscope.cli import score as scoring

    if not scoring.score(path, out=out, as_json=as_json, steps=steps, distances=distances):
        raise typer.Exit(PROBLEMS)


@app.command("cliff-world", epilog=examples("cliff-world"), short_help=SUMMARY["cliff-world"])
@guarded
def cliff_world(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder for figures and JSON.")],
    networks: Annotated[
        int, typer.Option(min=0, metavar="N", help="Also fit N networks as unknown utility in each row (extra lm).")
    ] = 0,
    figures: Annotated[bool, typer.Option(help="Draw the figures (extra report).")] = True,
) -> None:
    """Both experiments of the paper that defines MEG, exact, beside what it prints: tables, figures, JSON."""
    from goalscope.cli.cliff import cliff

    cliff(out, networks, figures=figures)


@app.command(epilog=examples("doctor"), short_help=SUMMARY["doctor"])
@guarded
def doctor(
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Where runs are to be written.")] = Path(),
) -> None:
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
