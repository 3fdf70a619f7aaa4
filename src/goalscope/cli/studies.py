"""The commands `run`, `merge` and `estimate`."""

import time
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goalscope.cli.console import json_text, progress, say
from goalscope.cli.help import STUDIES, Gpus, MeasureSpeed, Pilot, Reads, Writes, flag, option

if TYPE_CHECKING:
    from goalscope.cli.overrides import Overrides
    from goalscope.runs import Study

StudyName = Annotated[str, Reads("study"), typer.Argument(metavar="STUDY", help=STUDIES)]
OutFolder = Annotated[Path, Writes("directory"), option("DIR", "The run directory to write.", "--out", "-o")]
Sizes = Annotated[str | None, option("LIST", "Other grid sizes, e.g. 7,9.")]
Densities = Annotated[str | None, option("LIST", "Other wall densities, e.g. 0,0.6.")]
Count = Annotated[int | None, option("N", "Worlds of each kind, size and density.")]
Trajectories = Annotated[int | None, option("N", "Episodes of each agent on each world.")]
Agents = Annotated[str | None, option("NAMES", "Only these agents of the study, in this order, separated by , or ;.")]
ModelName = Annotated[
    str | None,
    Reads("model"),
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
            "Where agents act: threads, processes, ray (extra ray), or auto: what suits them.",
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
    as_json: Annotated[bool, flag("--json", "Print JSON: directory, study, agents, episodes.")] = False,
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
        as_json=as_json,
    )


def merge(
    out: Annotated[
        Path, Writes("directory"), typer.Argument(metavar="OUT", help="The directory to write; must be new.")
    ],
    shards: Annotated[
        list[Path],
        Reads("shard", "evaluation"),
        typer.Argument(metavar="SHARD ...", help="The run directories of all shards, in any order; or evaluations."),
    ],
) -> None:
    """Put the shards of a study together: the same content as one run of it. The shards are read, never changed.

    Evaluations with the same plan become one with the models of each, which are judged together.
    """
    from goalscope.verdict.opening import is_evaluation

    whole = [path for path in shards if is_evaluation(path)]
    if whole and len(whole) < len(shards):
        raise ValueError("a merge takes evaluations or shards of a study, got both: leave one kind out")
    if whole:
        from goalscope.cli.claims import show_whole
        from goalscope.verdict.merging import merge_evaluations

        began = time.monotonic()
        show_whole(merge_evaluations(shards, out), time.monotonic() - began)
        return
    from goalscope._ground.words import counted
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
    out: Annotated[
        Path | None, Writes("directory"), option("DIR", "With --measure: keep the answers; run goes on with them.")
    ] = None,
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
    as_json: Annotated[bool, flag("--json", "Print costs, what --measure expects and --power shows, as JSON.")] = False,
) -> None:
    """Say what a study costs at most, calls, tokens and USD, before anything is spent.

    Needs no network and no weights. With --measure it asks some first turns, 30 s at most unless one answer takes
    longer, and says what is expected, too: hours, tokens, USD and memory, each with a range.
    """
    from goalscope.cli.estimate import print_cost, print_json, print_power
    from goalscope.cli.overrides import read_overrides
    from goalscope.verdict.preflight.power import Assumptions

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
    if as_json:
        print_json(planned, output_tokens, pilot, assumptions if power else None, measure=measure, out=out)
        return
    print_cost(planned, output_tokens, pilot=pilot, measure=measure, out=out)
    if power:
        print_power(planned, pilot, assumptions)


def load_study(name: str, changes: "Overrides | None" = None) -> "Study":
    """Return a study from a file, or the shipped study of that name, with changes."""
    from goalscope.verdict.preflight.study_files import load

    return load(name, None if changes is None else changes.apply)


def run_study_of(study: "Study", out: Path, workers: int = 1, *, as_json: bool = False, **options: Any) -> None:
    """Run a study, or go on with it, see `goalscope.cli.front.running.stages`, and print each result as it comes."""
    from goalscope.cli.activations import show_inside
    from goalscope.cli.front.running import stages
    from goalscope.cli.interventions import show_intervention
    from goalscope.inside.interventions.experiment import InterventionSummary
    from goalscope.inside.probing.pipeline import InsideSummary
    from goalscope.runs import Store

    began = time.monotonic()
    for done in stages(study, out, workers, stage=progress, **options):
        if isinstance(done, str):
            say(done, error=as_json)
        elif as_json:
            continue
        elif isinstance(done, InsideSummary):
            show_inside(done, time.monotonic() - began)
        elif isinstance(done, InterventionSummary):
            show_intervention(done)
        began = time.monotonic()
    if as_json:
        with Store(out) as store:
            [(episodes,)] = store.query("SELECT COUNT(*) FROM episodes")
            names = list(store.agent_names())
        say(json_text({"run": str(out), "study": study.name, "id": study.id, "agents": names, "episodes": episodes}))
