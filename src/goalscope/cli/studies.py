"""The commands `run`, `merge` and `estimate`: options and help; what they do stands in the other modules."""

from pathlib import Path
from typing import Annotated, Any

import typer

from goalscope.cli.help import STUDIES, Gpus, MeasureSpeed, Pilot, flag, option

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
    from goalscope.cli import commands
    from goalscope.cli.overrides import read_overrides

    given: dict[str, Any] = {"count": count, "trajectories": trajectories, "agents": agents}
    changes = read_overrides(sizes, densities, settings, model, network=True, **given)
    commands.run_study_of(
        commands.load_study(study, changes),
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
    from goalscope.cli import commands

    commands.merge(out, shards)


def estimate(
    study: StudyName,
    output_tokens: Annotated[int | None, option("N", "Also say what N output tokens a call would cost.", min=0)] = None,
    power: Annotated[
        bool, flag("--power", "Also say which effects and which equivalence margins it can show.")
    ] = False,
    pilot: Pilot = None,
    measure: MeasureSpeed = False,
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

    Needs no network, and no weights but for --measure.
    """
    from goalscope.cli.commands import load_study
    from goalscope.cli.estimate import print_cost, print_power
    from goalscope.cli.overrides import read_overrides
    from goalscope.preflight.power import Assumptions

    assumed = {name: value for name, value in (("mean", assume_mean), ("between", assume_between)) if value is not None}
    if assumed and not power:
        raise ValueError("--assume-mean and --assume-between must come with --power, which assumes them: add --power")
    if "mean" in assumed and pilot is not None:
        raise ValueError("--assume-mean takes the place of a pilot, whose means count: leave one of the two out")
    assumptions = Assumptions(**assumed)
    given: dict[str, Any] = {"count": count, "trajectories": trajectories, "agents": agents}
    changes = read_overrides(sizes, densities, settings, model, network=False, **given)
    planned = load_study(study, changes)
    print_cost(planned, output_tokens, pilot=pilot, measure=measure)
    if power:
        print_power(planned, pilot, assumptions)
