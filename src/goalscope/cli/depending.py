"""The command `depends`: its options."""

import json
from typing import Annotated, Any

from goalscope.cli.console import progress, say
from goalscope.cli.evaluating import MODELS, NAMED_MODELS
from goalscope.cli.help import flag, option
from goalscope.cli.hypotheses import Worlds, study_of
from goalscope.cli.studies import Count, Densities, OutFolder, Sizes


def depends(
    models: Annotated[list[str], NAMED_MODELS, MODELS],
    out: OutFolder,
    worlds: Worlds = "",
    moved: Annotated[
        str,
        option(
            "THINGS",
            "What is changed: some of goal, key, door (opened), 'added key', 'removed key', wall, corner, agent; of "
            "the prompt alone names (symbols of the cells), order (of legend and moves), words (paraphrases). By "
            "default what the worlds have of goal, key, door, wall, corner, agent.",
        ),
    ] = "",
    changes: Annotated[int, option("N", "Most changed versions of a state for each thing.", min=1)] = 2,
    states: Annotated[int, option("N", "Of a run: most states, one of each grid.", min=1)] = 100,
    sizes: Sizes = None,
    densities: Densities = None,
    count: Count = None,
    settings: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE", "A parameter of the language models, e.g. temperature=1 or caps.usd=2. Repeatable.", "--set"
        ),
    ] = None,
    seed: Annotated[int, option("N", "Root seed of worlds and changes.")] = 0,
    workers: Annotated[int, option("N", "Calls of an agent at the same time.", min=1)] = 1,
    dry: Annotated[bool, flag("--dry-run", "Ask and keep first turns alone, say what all of it takes.")] = False,
    as_json: Annotated[bool, flag("--json", "Print JSON.")] = False,
) -> None:
    """Say what the actions of agents depend on: one thing is changed, the rest stays, one turn is asked.

    Called again on the same directory it goes on where it stopped and asks nothing again.
    """
    from goalscope.cli import console
    from goalscope.cli.front import depending
    from goalscope.cli.overrides import split
    from goalscope.report.sections.dependence import dependence_table

    options: dict[str, Any] = {"changes": changes, "states": states, "settings": settings or (), "seed": seed}
    options |= {"moved": split(moved), "workers": workers}
    if worlds or sizes or densities or count:
        text = worlds or json.dumps(dict(depending.WORLDS))
        options["worlds"] = study_of(text, sizes, densities, count, None).dump()["worlds"]
    if dry:
        depending.expect(models, out, **options)
        return
    found = depending.depends(models, out, stage=progress, **options)
    if as_json:
        say(found.to_json())
        return
    console.show(dependence_table(found.found))
    for line in found.sentences:
        say(line)
