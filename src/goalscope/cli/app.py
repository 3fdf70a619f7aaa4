"""The commands: names, options, help. What they do stands in `work` and `doctor`; nothing heavy is imported here."""

from pathlib import Path
from typing import Annotated

import typer

from goalscope import __version__
from goalscope.cli.guard import PROBLEMS, WRONG_INPUT, guarded

app = typer.Typer(
    name="goalscope",
    help="Whether, how strongly and towards what a language-model agent is goal-directed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="The run directory (it holds run.db).")]
OutFolder = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The run directory to write.")]


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


@app.command(epilog="Example: goalscope demo --out runs/demo")
@guarded
def demo(out: OutFolder = Path("runs/demo")) -> None:
    """Run the bundled language model beside an optimal, a random and an untrained agent, measure, write a report."""
    from goalscope.cli import work

    work.demo(out)


@app.command(epilog="Examples: goalscope run study.yaml --out runs/first     goalscope run demo --out runs/demo")
@guarded
def run(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="A study file (YAML), or the name of a shipped study.")],
    out: OutFolder,
    workers: Annotated[int, typer.Option(min=1, help="Calls of an agent at the same time.")] = 1,
) -> None:
    """Run a study. Called again on the same directory it goes on where it stopped and repeats nothing."""
    from goalscope.cli import work

    work.run(study, out, workers)


@app.command(epilog="Example: goalscope plan study.yaml --output-tokens 400")
@guarded
def plan(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="A study file (YAML), or the name of a shipped study.")],
    output_tokens: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Also say what N output tokens a call would cost.")
    ] = None,
) -> None:
    """Say what a study costs at most, calls, tokens and USD, before anything is spent. Needs no network, no weights."""
    from goalscope.cli import plan as planning

    planning.plan(study, output_tokens)


@app.command("import", epilog="Examples: goalscope import logs.jsonl --out runs/logs     goalscope import logs --check")
@guarded
def import_(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file or folder: JSONL, or the authors' layout.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="The run directory to write.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Check everything, write nothing.")] = False,
) -> None:
    """Import recorded trajectories, every recorded label compared with ours. Exit status 1 where there are problems."""
    from goalscope.cli import work

    if (out is None) != check:
        raise ValueError("import must be given either --out DIR (to write a run) or --check (to write nothing)")
    if not work.import_path(path, out):
        raise typer.Exit(PROBLEMS)


@app.command(epilog="Example: goalscope measure runs/demo --by size,density --measures success")
@guarded
def measure(
    run: RunDirectory,
    by: Annotated[str, typer.Option(metavar="TAGS", help="Tags to group by beside agent, e.g. size,density.")] = "",
    measures: Annotated[str, typer.Option(metavar="NAMES", help="Print these measures only (all are stored).")] = "",
) -> None:
    """Measure all episodes of a run, store the rows, print the estimates with their intervals."""
    from goalscope.cli import work

    work.measure(run, work.split(by), work.split(measures, separator=";"))


@app.command(epilog="Examples: goalscope compare runs/a runs/b     goalscope compare runs/demo --agents optimal,random")
@guarded
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN_A RUN_B ...", help="Measured run directories.")],
    measures: Annotated[
        str, typer.Option(metavar="NAMES", help="Measures, separated by ';'.")
    ] = "success;action accuracy",
    agents: Annotated[str, typer.Option(metavar="NAMES", help="Compare these agents only, separated by ';'.")] = "",
) -> None:
    """Compare agents and runs on the worlds that they share: paired differences, one corrected family of tests."""
    from goalscope.cli import compare as comparing
    from goalscope.cli import work

    comparing.compare(runs, work.split(measures, separator=";"), work.split(agents, separator=";"))


@app.command(epilog="Example: goalscope report runs/demo --out demo.html")
@guarded
def report(
    run: RunDirectory,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The page; RUN/report.html by default.")
    ] = None,
    ledger: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all numbers as JSON there, too.")] = None,
) -> None:
    """Write the report of a run as one page; a run that is not measured yet is measured first."""
    from goalscope.cli import work

    work.report(run, out, ledger)


@app.command(epilog="Example: goalscope export runs/demo --out tables")
@guarded
def export(
    run: RunDirectory,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder to write the tables to.")],
) -> None:
    """Write worlds, episodes, steps and rows as Parquet files."""
    from goalscope.cli import work

    work.export(run, out)


@app.command(epilog="Example: goalscope doctor --folder /data/runs")
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
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@guarded
def train_theseus(context: typer.Context) -> None:
    """Train the bundled model from scratch; resumable. Example: goalscope train-theseus runs/theseus --hours 6."""
    from goalscope.theseus.train import main as train

    train(context.args)
