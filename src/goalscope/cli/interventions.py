"""`goalscope patch`: change activations of a run's agent as its study, or the options, declare."""

import time
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from goalscope.cli.help import Reads, RunDirectory, option

if TYPE_CHECKING:
    from goalscope.inside.interventions.experiment import InterventionSummary


def patch(
    run: RunDirectory,
    kind: Annotated[
        str, option("NAME", "A registered intervention, e.g. patching; those of the study if left out.")
    ] = "",
    layers: Annotated[
        str, option("LIST", "Blocks (-1: embedding), e.g. -1,0,3; thirds; all; auto: all of at most 12, else thirds.")
    ] = "",
    sites: Annotated[str, option("LIST", "grid, changed, pre, post, action.")] = "",
    pairs: Annotated[
        int | None, option("N", "Counterfactual pairs of each grid size, an equal share of each thing moved.", min=1)
    ] = None,
    agent: Annotated[str, option("NAME", "Whose activations, where several have token ids.")] = "",
    model: Annotated[
        str, Reads("model"), option("NAME", "A folder or a hub name; the model of the run's study if left out.")
    ] = "",
    device: Annotated[str, option("NAME", "With --model: auto (the default), cpu, cuda, cuda:1.")] = "auto",
    settings: Annotated[
        list[str] | None, option("KEY=VALUE", "Any key of the intervention, e.g. pairs.controls=0.", "--set")
    ] = None,
) -> None:
    """Find counterfactual pairs, patch activations between them, store rows. What is stored is not done again."""
    from goalscope._ground.progress import duration
    from goalscope.cli.console import progress, say
    from goalscope.cli.front.inside import patch as change
    from goalscope.cli.overrides import layers_of, split

    changes: dict[str, Any] = {"sites": split(sites), "agent": agent}
    changes = {name: value for name, value in changes.items() if value}
    if layers:
        changes["layers"] = layers if layers == "auto" else layers_of(layers, first=-1)
    if pairs is not None:
        changes["pairs"] = {"per_size": pairs}
    began = time.monotonic()
    for done in change(run, kind, changes, settings or (), model=model, device=device, stage=progress):
        show_intervention(done)
    say(f"interventions in {duration(time.monotonic() - began)}")
    say(f"next: goalscope report {quote(str(run))}")


def show_intervention(done: "InterventionSummary") -> None:
    """Print the main estimates of an experiment, one line each."""
    from goalscope._ground import registry
    from goalscope.cli.console import say, table
    from goalscope.cli.measuring import written
    from goalscope.inside.probing.scores import chosen
    from goalscope.stats import estimate_rows

    measures, fixed, by = registry.resolve("intervention", done.kind).headline
    selected = chosen(done.rows, **fixed)
    lines = [
        (
            str(estimated.key["measure"]),
            *(str(estimated.key[name]) for name in by),
            written(estimated.estimate),
            str(estimated.estimate.all_clusters),
        )
        for estimated in estimate_rows(selected.where(selected.among("measure", measures)), by=by)
    ]
    for thing, numbers in done.about.get("by thing moved", {}).items():
        if numbers["pairs"] < numbers["asked for"]:
            say(
                f"{done.kind}: {numbers['pairs']} of {numbers['asked for']} pairs with the {thing} moved: too few "
                "grids have one in which the agent acts optimally on both sides"
            )
    columns = ("what", *by, "value", "grids")
    table(columns, lines, title=f"{done.agent}: {done.kind}, mean and 95 % interval over grids", numbers=(len(by) + 1,))
