"""The printed result of the command `patch`."""

import time
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from goalscope._ground import registry
from goalscope._ground.progress import duration
from goalscope.cli.console import say, table
from goalscope.cli.front.inside import patch
from goalscope.cli.generator import prints
from goalscope.cli.measuring import written
from goalscope.inside.interventions.experiment import InterventionSummary
from goalscope.inside.probing.scores import chosen
from goalscope.stats import estimate_rows


@prints(patch)
def show_patched(summaries: Iterator[InterventionSummary], *, run: Path) -> None:
    """Find counterfactual pairs, patch activations between them, and store the results. Finished work is not repeated.

    Examples:
        goalscope patch runs/patching
        goalscope patch runs/baseline --kind patching --pairs 4 --sites grid,changed
    """
    began = time.monotonic()
    for done in summaries:
        show_intervention(done)
    say(f"interventions in {duration(time.monotonic() - began)}")
    say(f"next: goalscope report {quote(str(run))}")


def show_intervention(done: InterventionSummary) -> None:
    """Print the main estimates of an experiment, one per line."""
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
                f"{done.kind}: only {numbers['pairs']} of {numbers['asked for']} pairs with the {thing} moved, since "
                "on too few grids the agent acts optimally on both sides of a pair"
            )
    columns = ("what", *by, "value", "grids")
    table(columns, lines, title=f"{done.agent}: {done.kind}, mean and 95 % interval over grids", numbers=(len(by) + 1,))
