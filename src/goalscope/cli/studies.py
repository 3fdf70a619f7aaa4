"""The commands `run`, `merge` and `estimate`."""

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goalscope.cli.console import progress, say
from goalscope.cli.help import STUDIES, Gpus, MeasureSpeed, Pilot, flag, option
from goalscope.progress import duration

if TYPE_CHECKING:
    from goalscope.cli.overrides import Overrides
    from goalscope.runs import Study

StudyName = Annotated[str, typer.Argument(metavar="STUDY", help=STUDIES)]
OutFolder = Annotated[Path, option("DIR", "The run directory to write.", "--out", "-o")]
Sizes = Annotated[str | None, option("LIST", "Other grid sizes, e.g. 7,9.")]
Densities = Annotated[str | None, option("LIST", "Other wall densities, e.g. 0,0.6.")]
Count = Annotated[int | None, option("N", "Worlds of each kind, size and density.")]
Trajectories = Annotated[int | None, option("N", "Episodes of each agent on each world.")]
Agents = Annotated[str | None, option("NAMES", "Only these agents of the study, in this order, separated by , or ;.")]
ModelName = Annotated[
    str | None,
    option("NAME", "This model in the place of those of the chat agents: a folder, a GGUF file or a hub name."),
]
Settings = Annotated[
    list[str] | None,
    option("KEY=VALUE", "Another value of any key, e.g. worlds.0.count=3. Repeatable.", "--set"),
]


def run(
    study: StudyName,
    out: OutFolder,
    workers: Annotated[int, option("N", "Calls of an agent at the same time: threads, processes, actors.", min=1)] = 1,
    executor: Annotated[
        str,
        option(
            "NAME",
            "Where agents act: threads, processes, ray (extra ray), dask (extra dask), or auto: what suits them.",
        ),
    ] = "auto",
    gpus: Gpus = 0.0,
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
    model: ModelName = None,
    settings: Settings = None,
) -> None:
    """Run a study. Called again on the same directory it goes on where it stopped and repeats nothing.

    A changed study is another study: it has its own id and needs a directory of its own.
    """
    from goalscope.cli.overrides import read_overrides

    fields: dict[str, Any] = {"count": count, "trajectories": trajectories, "agents": agents}
    changes = read_overrides(sizes, densities, settings, model, network=True, **fields)
    run_study_of(
        load_study(study, changes),
        out,
        workers,
        passed={"study": Path(study).name, "workers": workers, **changes.given()},
        full=full,
        shard=shard,
        executor=executor,
        gpus=gpus,
    )


def merge(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The run directory to write; must be new.")],
    shards: Annotated[
        list[Path], typer.Argument(metavar="SHARD ...", help="The run directories of all shards, in any order.")
    ],
) -> None:
    """Put the shards of a study together: the same content as one run of it. The shards are read, never changed."""
    from goalscope.report.blocks import counted
    from goalscope.runs import Store, content_hash
    from goalscope.runs import merge as merge_shards

    with progress("episodes") as show:
        done = merge_shards(
            shards,
            out,
            progress=lambda finished, total: show(finished, total),
            arguments={"command": "merge", "passed": {"shards": [path.name for path in shards]}},
        )
    with Store(out) as store:
        digest = content_hash(store)
    say(
        f"{counted(done.shards, 'shard')}, {counted(done.episodes, 'episode')}, "
        f"{counted(done.calls, 'journalled call')}: {out}, content hash {digest}"
    )
    if done.measured:
        say(
            "rows of measures are not taken over, since some compare worlds of different shards: measure the merged run"
        )
    if done.read:
        say("activations and probes are not taken over: capture and probe the merged run")
    say(f"next: goalscope measure {quote(str(out))}, goalscope report {quote(str(out))}")


def estimate(
    study: StudyName,
    output_tokens: Annotated[int | None, option("N", "Also say what N output tokens a call would cost.", min=0)] = None,
    power: Annotated[
        bool, flag("--power", "Also say which effects and which equivalence margins it can show.")
    ] = False,
    pilot: Pilot = None,
    measure: MeasureSpeed = False,
    out: Annotated[Path | None, option("DIR", "With --measure: keep the answers; run goes on with them.")] = None,
    assume_mean: Annotated[float | None, option("SHARE", "Mean that --power assumes without a pilot (0.8).")] = None,
    assume_between: Annotated[
        float | None,
        option("SD", "Deviation over grids of the true difference that --power assumes (0.05)."),
    ] = None,
    sizes: Sizes = None,
    densities: Densities = None,
    count: Count = None,
    trajectories: Trajectories = None,
    agents: Agents = None,
    model: ModelName = None,
    settings: Settings = None,
) -> None:
    """Say what a study costs at most, calls, tokens and USD, before anything is spent.

    Needs no network and no weights. With --measure it asks some first turns, 30 s at most unless one answer takes
    longer, and says what is expected, too: hours, tokens, USD and memory, each with a range.
    """
    from goalscope.cli.estimate import print_cost, print_power
    from goalscope.cli.overrides import read_overrides
    from goalscope.preflight.power import Assumptions

    assumed_values = {
        name: value for name, value in (("mean", assume_mean), ("between", assume_between)) if value is not None
    }
    if assumed_values and not power:
        raise ValueError("--assume-mean and --assume-between must come with --power, which assumes them: add --power")
    if "mean" in assumed_values and pilot is not None:
        raise ValueError("--assume-mean takes the place of a pilot, whose means count: leave one of the two out")
    assumptions = Assumptions(**assumed_values)
    fields: dict[str, Any] = {"count": count, "trajectories": trajectories, "agents": agents}
    changes = read_overrides(sizes, densities, settings, model, network=False, **fields)
    planned = load_study(study, changes)
    if out is not None and not measure:
        raise ValueError("--out must come with --measure, whose answers it keeps: add --measure")
    print_cost(planned, output_tokens, pilot=pilot, measure=measure, out=out)
    if power:
        print_power(planned, pilot, assumptions)


def load_study(name: str, changes: "Overrides | None" = None) -> "Study":
    """Return a study from a file, or the shipped study of that name, with changes."""
    from goalscope import studies
    from goalscope.checks import did_you_mean, note_namesake
    from goalscope.measures.invariance import check_declared
    from goalscope.runs import Study
    from goalscope.yaml_text import read_yaml_text

    path = Path(name)
    if name in studies.names():
        note_namesake(name, "study")
        study = Study.parse(read_yaml_text(studies.text(name), name))
    elif path.exists():
        study = Study.load(path)
    else:
        shipped = ", ".join(studies.names())
        close = "" if path.suffix else did_you_mean(name, studies.names())
        raise FileNotFoundError(
            f"a study must be a file or the name of a shipped study ({shipped}), got {name!r}{close}"
        )
    study = study if changes is None else changes.apply(study)
    if study.analysis is not None and study.analysis.invariance is not None:
        check_declared(study.analysis.invariance.margin)
    return study


def run_study_of(
    study: "Study",
    out: Path,
    workers: int = 1,
    *,
    passed: Mapping[str, Any],
    full: bool = False,
    guide: bool = True,
    shard: str | None = None,
    executor: str = "auto",
    gpus: float = 0.0,
    command: str = "run",
) -> None:
    """Run a study, or go on with it; where it declares an analysis of activations, do it and write the report.

    Args:
        study: the study.
        out: the run directory.
        workers, executor, gpus: where agents act.
        passed, command: the user's command and arguments, for the record.
        full: whether to compute the complete table of a study that reads activations.
        guide: whether to print the next command.
        shard: only this part of the study; its activations are read after the merge.
    """
    from goalscope.cli.estimate import say_size
    from goalscope.cli.expected import measure_and_say
    from goalscope.cli.measuring import can_report, report
    from goalscope.extras import how_to_install
    from goalscope.preflight import beyond_reach
    from goalscope.report.blocks import counted
    from goalscope.runs import Store, StudyShard
    from goalscope.runs import run as run_study
    from goalscope.runs.server_checks import noted_of_answers

    part = None if shard is None else StudyShard.parse(shard)
    inside = study.analysis.inside if study.analysis is not None else None
    interventions = study.analysis.interventions if study.analysis is not None else ()
    if full and inside is None:
        raise ValueError(f"--full must come with a study that declares analysis: inside:, {study.name} does not")
    names = [agent.name for agent in study.agents()]
    if inside is not None and inside.agent is not None and inside.agent not in names:
        raise ValueError(
            f"the study reads the activations of {inside.agent}, which must be among the agents that are run "
            f"({', '.join(names)}): add it, or change analysis.inside.agent"
        )
    say_size(study)
    for line in beyond_reach(study):
        say(line, error=True)
    check_kept_apart(out, imported=False)
    arguments = dict(passed)
    if executor != "auto":
        arguments["executor"] = executor
    if part is not None:
        arguments["shard"] = str(part)
    asked = measure_and_say(study, out, workers=workers, arguments=arguments, patient=True) if part is None else 0
    with progress("episodes") as show:
        done = run_study(
            study,
            out,
            workers=workers,
            arguments={"command": command, "passed": arguments},
            shard=part,
            executor=executor,
            gpus=gpus,
            progress=lambda finished, total, steps, left: show(finished, total, left),
        )
    if Path(done.directory) != out:
        say(f"{out} was renamed while it was written to: the run goes on in {done.directory}", error=True)
        out = Path(done.directory)
    reused = f"{counted(done.reused, 'episode')} stored before, " if done.reused else ""
    say(
        f"{reused}{counted(done.episodes, 'episode')} run with {counted(done.steps, 'step')} in "
        f"{duration(done.seconds)}: {out}"
    )
    _report_changed_analysis(study, out)
    with Store(out) as store:
        for line in noted_of_answers(store):
            say(line, error=True)
    if done.replayed > asked or done.lost:
        say(f"{counted(done.replayed, 'answer')} taken from the journal, {counted(done.lost, 'call')} in flight lost")
    if part is not None:
        later = (
            ", and goalscope run on the merged run works on its activations"
            if inside is not None or interventions
            else ""
        )
        say(f"shard {part}; next, once all {part.of} are there: goalscope merge OUT {quote(str(out))} ...{later}")
    elif inside is not None or interventions:
        if inside is not None:
            from goalscope.cli.activations import read_inside

            read_inside(out, inside, full=full, drop_sites=True)
        if interventions:
            from goalscope.cli.interventions import change

            change(out, interventions)
        if can_report():
            report(out, None, None)
        else:
            say(f"next: goalscope report {quote(str(out))} (it needs the extra report: {how_to_install('report')})")
    elif guide:
        say(f"next: goalscope measure {quote(str(out))}, goalscope report {quote(str(out))}")


def check_kept_apart(out: Path, *, imported: bool) -> None:
    """Raise a ValueError where a directory would hold imported trajectories and episodes of a study."""
    from goalscope.runs import Store
    from goalscope.runs.opening import unmade
    from goalscope.runs.tables import DATABASE

    if unmade(out / DATABASE):
        return
    with Store(out) as store:
        study = store.study()
        [(episode_count,)] = store.query("SELECT COUNT(*) FROM episodes")
    if imported and study is not None:
        new, existing = "imported trajectories", f"the run of the study {study.name!r}"
    elif not imported and study is None and episode_count:
        new, existing = "a study", "imported trajectories"
    else:
        return
    raise ValueError(
        f"{new} must have a directory of {'their' if imported else 'its'} own, but {out} holds {existing}: choose "
        f"another one (goalscope compare {quote(str(out))} OTHER compares both)"
    )


def _report_changed_analysis(study: "Study", out: Path) -> None:
    """Print a notice where the declared analysis differs from that of the stored study, which stays."""
    from goalscope.runs import Store

    with Store(out) as store:
        stored = store.study()
    if stored is not None and _tests(stored) != _tests(study):
        say(
            f"the analysis that {out} declared when it was begun stays, the one of the study given now differs; "
            "compare with other margins: goalscope compare RUN --transforms --margin ...",
            error=True,
        )


def _tests(study: "Study") -> object:
    """Return the declared tests of a study; its declared probing may change between sessions."""
    return (None, ()) if study.analysis is None else (study.analysis.invariance, study.analysis.pairs)
