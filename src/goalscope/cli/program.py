"""The commands: names, options, help. Their work is in the other modules; nothing heavy is imported here."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from goalscope._ground import own
from goalscope._ground.folder import Folder
from goalscope._ground.version import __version__
from goalscope.cli import (
    activations,
    attributing,
    depending,
    doctor,
    evaluating,
    figures,
    hypotheses,
    interventions,
    studies,
    verify,
    viewing,
)
from goalscope.cli.errors import PROBLEMS, check_outputs, guarded
from goalscope.cli.further import Commands
from goalscope.cli.help import (
    HYPOTHESES,
    SUMMARY,
    Captures,
    Exported,
    MeasureCommand,
    ProbeCommand,
    Reads,
    RunDirectory,
    StudyCommand,
    Writes,
    as_lines,
    examples,
    flag,
    option,
)

app = typer.Typer(
    name="goalscope",
    cls=Commands,
    help="Whether, how strongly and towards what a language-model agent is goal-directed.",
    epilog=as_lines(("goalscope demo --out runs/demo", "goalscope run --help")),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Body = TypeVar("Body", bound=Callable[..., None])


def main() -> None:
    """Run the command line."""
    app()


def _command(name: str, **options: Any) -> Callable[[Body], Body]:
    """Return a decorator that adds a command with its one-line summary and its examples."""

    def add(body: Body) -> Body:
        return app.command(name, epilog=examples(name), short_help=SUMMARY[name], **options)(guarded(body))

    return add


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    own_code: Annotated[
        bool, flag("--own-code", "Let run directories name classes of the working directory (module:Class).")
    ] = False,
) -> None:
    """Whether, how strongly and towards what a language-model agent is goal-directed."""
    command = context.invoked_subcommand
    given = sys.argv[1:]
    whole = shlex.join(given) if given[:1] == [command] else f"{command} ..."
    advice = f"if the file is yours: goalscope --own-code {whole}"
    context.with_resource(own.command(own_code=own_code, advice=advice))


@_command("demo")
def demo(out: studies.OutFolder = Path("runs/demo")) -> None:
    """Run the bundled language model beside an optimal, a random and an untrained agent, measure, write a report."""
    from goalscope.cli import commands

    commands.demo(out)


_command("evaluate")(evaluating.evaluate)
_command("ledger")(evaluating.ledger)
_command("run", cls=StudyCommand)(studies.run)
_command("merge")(studies.merge)
_command("depends")(depending.depends)
_command("separate")(hypotheses.separate)
_command("design")(hypotheses.design)
_command("attribute")(attributing.attribute)
_command("estimate", cls=StudyCommand)(studies.estimate)


@_command("import")
def import_(
    path: Annotated[
        Path,
        Reads("log"),
        typer.Argument(metavar="PATH", help="A file or folder: JSONL, logs of Inspect, or the authors' layout."),
    ],
    out: Annotated[
        Path | None, Writes("directory"), option("DIR", "The run directory to write.", "--out", "-o")
    ] = None,
    check: Annotated[bool, flag("--check", "Check everything, write nothing.")] = False,
    reader: Annotated[
        str | None,
        option("MODULE:FUNCTION", "Logs of Inspect of other people's tasks: a function that returns an episode."),
    ] = None,
) -> None:
    """Import recorded trajectories, every recorded label compared with ours. Exit status 1 where there are problems."""
    from goalscope.cli import commands

    if (out is None) != check:
        raise ValueError("import must be given either --out DIR (to write a run) or --check (to write nothing)")
    if not commands.import_path(path, out, reader):
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
    as_json: Annotated[bool, flag("--json", "Print all estimates, or those of --measures, as JSON.")] = False,
) -> None:
    """Measure all episodes of a run, store the rows, print the main estimates with their intervals."""
    from goalscope.cli import commands
    from goalscope.cli.overrides import split

    commands.measure(run, split(by), split(measures, separator=";"), everything=everything, as_json=as_json)


@_command("show")
def show(
    run: RunDirectory,
    episode: Annotated[
        str | None, typer.Argument(metavar="EPISODE", help="How its id begins; a list of episodes if left out.")
    ] = None,
    agent: Annotated[str | None, option("NAME", "Only episodes of this agent.")] = None,
    world: Annotated[str | None, option("ID", "Only episodes in worlds whose id begins so.")] = None,
    outcome: Annotated[
        str | None, option("WHICH", "Only episodes that ended so: goal, horizon, failure, stopped or ended.")
    ] = None,
    failures: Annotated[bool, flag("--failures", "Only episodes with turns that held no action.")] = False,
    full: Annotated[bool, flag("--full", "Every line of every prompt, also those that did not change.")] = False,
    limit: Annotated[int, option("N", "Most episodes of the list.", min=1)] = 20,
    as_json: Annotated[bool, flag("--json", "Print JSON: the list, or an episode with all steps.")] = False,
) -> None:
    """Show an episode step by step: prompt, reasoning, answer, whether it was valid and optimal; or list episodes."""
    from goalscope.cli import transcripts

    chosen = transcripts.Filter(agent=agent, world=world, outcome=outcome, failures=failures)
    transcripts.show(run, episode, chosen, limit, full=full, as_json=as_json)


@_command("compare")
def compare(
    runs: Annotated[
        list[Path], Reads("run", "evaluation"), typer.Argument(metavar="RUN_A RUN_B ...", help="Run directories.")
    ],
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
    where: Annotated[
        str | None, option("TAG=VALUE", "Compare rows with these tags only, separated by ';', e.g. of probes head=mlp.")
    ] = None,
    between: Annotated[
        str, option("TAG", "One run: compare the values of this tag, e.g. site, in place of agents.")
    ] = "",
    transforms: Annotated[
        bool, flag("--transforms", "Compare each agent of one run with itself on the transformed grids.")
    ] = False,
    over: Annotated[
        str, option("TAG", "A curve over training: the tag of episodes that says their checkpoint, e.g. checkpoint.")
    ] = "",
    at: Annotated[
        str | None, option("NUMBERS", "A curve over training: the number of each run's checkpoint, separated by ','.")
    ] = None,
    svg: Annotated[
        Path | None, Writes("file"), option("FILE", "Draw the curve there: .svg, .pdf, .png or .csv.")
    ] = None,
    other_horizons: Annotated[
        bool, flag("--other-horizons", "Also compare runs whose episodes may last differently long.")
    ] = False,
    json: Annotated[Path | None, Writes("file"), option("FILE", "Write the numbers as JSON there, too.")] = None,
    csv: Annotated[Path | None, Writes("file"), option("FILE", "Write the numbers as CSV there, too.")] = None,
) -> None:
    """Compare agents and runs on the worlds that they share: paired differences, one corrected family of tests."""
    from goalscope.cli import compare as comparing
    from goalscope.cli.overrides import split
    from goalscope.report.pairings import ComparisonSettings

    check_outputs(json, csv, svg)
    curve = bool(over) or at is not None
    if (svg is not None and not curve) or (curve and transforms) or (over and at is not None):
        raise ValueError("a curve over training must be asked for by --over TAG or --at NUMBERS, without --transforms")
    settings = ComparisonSettings(
        measures=None if measures is None else split(measures, separator=";"),
        agents=comparing.agents_of(agents),
        margin=comparing.margins_of(margin),
        horizons=other_horizons,
        where=comparing.where_of(where),
        between=between,
        transforms=transforms,
    )
    files = {"json": json, "csv": csv}
    if curve:
        places = comparing.places_of(at)
        comparing.compare_checkpoints(runs, settings, files, over=over or "checkpoint", places=places, svg=svg)
        return
    comparing.compare(runs, settings, files)


@_command("report")
def report(
    run: RunDirectory,
    out: Annotated[
        Path | None, Writes("file"), option("FILE", "The page; RUN/report.html by default.", "--out", "-o")
    ] = None,
    ledger: Annotated[Path | None, Writes("file"), option("FILE", "Write all numbers as JSON there, too.")] = None,
) -> None:
    """Write the report of a run as one page; a run that is not measured yet is measured first."""
    from goalscope.cli import measuring

    measuring.report(run, out, ledger)


_command("view")(viewing.view)
_command("figure")(figures.figure)


@_command("export")
def export(
    run: RunDirectory,
    out: Annotated[Path, Writes("directory"), option("DIR", "The folder to write to.", "--out", "-o")],
    activations: Exported = "",
    captures: Captures = "",
    format: Annotated[
        str, option("NAME", "In place of tables, what a package writes, e.g. inspect: logs for its viewer and Scout.")
    ] = "",
) -> None:
    """Write worlds, episodes, steps and rows as Parquet files, and activations by names that others use."""
    from goalscope.cli import commands
    from goalscope.cli.overrides import split

    if format:
        if activations or captures:
            raise ValueError("--format must come alone, without activations: leave --activations and --capture out")
        commands.export_as(run, out, format)
        return
    if captures and not activations:
        raise ValueError("--capture must come with --activations, which it chooses from: add --activations parquet")
    commands.export(run, out, split(activations) if activations else (), split(captures) if captures else ())


_command("capture")(activations.capture)
_command("probe", cls=ProbeCommand)(activations.probe)
_command("patch")(interventions.patch)


@_command("meg")
def meg(
    path: Annotated[
        Path,
        Reads("process", "run"),
        typer.Argument(metavar="FILE|RUN", help="A decision process and an agent in it (.json, .npz), or a run."),
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
    from goalscope.cli.overrides import split, split_names

    texts = {"utility": utility, "invalid": invalid, "beliefs": beliefs}
    if Folder(path).is_there():
        options: dict[str, Any] = {**texts, "by": split(by), "hypotheses": split_names(hypotheses), "draws": draws}
        options |= {"confidence": confidence, "unknown": unknown, "ridge": 1.0 if ridge is None else ridge}
        meg_run(path, options, as_json=as_json)
        return
    only_runs = {"by": by, "hypotheses": hypotheses, **texts, "ridge": ridge, "draws": draws}
    if names := [f"--{name}" for name, value in only_runs.items() if value not in ("", None)]:
        raise ValueError(f"{', '.join(names)} must come with a run directory, got the file {path}: leave it out")
    meg_file(path, unknown=unknown, confidence=confidence, as_json=as_json)


@_command("score")
def score(
    path: Annotated[Path, Reads("log"), typer.Argument(metavar="FILE", help="Episodes of task worlds as JSON lines.")],
    out: Annotated[
        Path | None,
        Writes("file"),
        option("FILE", "Write the score of each episode there, as JSON lines.", "--out", "-o"),
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print one JSON object in place of the table.")] = False,
    steps: Annotated[bool, flag("--steps", "Write every step to --out, too.")] = False,
    distances: Annotated[str, option("GRAPH", "Where distances are measured: known, map or observed.")] = "known",
    report: Annotated[
        Path | None,
        Writes("directory"),
        option("DIR", "Also keep the episodes as a run there, and write its report.", "--report"),
    ] = None,
) -> None:
    """Score exploration and exploitation errors of a log, without any model. Exit status 1 where lines are refused."""
    from goalscope.cli import score as scoring

    if not scoring.score(path, out=out, as_json=as_json, steps=steps, distances=distances, report=report):
        raise typer.Exit(PROBLEMS)


_command("verify")(verify.verify)
_command("doctor")(doctor.doctor)
