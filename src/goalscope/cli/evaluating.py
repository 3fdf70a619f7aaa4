"""The commands `evaluate` and `ledger`: their options."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from goalscope.cli.console import progress
from goalscope.cli.errors import PROBLEMS
from goalscope.cli.help import Reads, Writes, flag, option

ARMS = (
    "Only these parts: some of grids, keys, transforms, fog, tasks, competence, wordings, hypotheses, depends, inside, "
    "patching, reasoning, plans, beliefs."
)

NAMED_MODELS = Reads("model", "agent", "run")
MODELS = typer.Argument(
    metavar="MODEL ...",
    help="theseus or ariadne; a folder, a GGUF file or a hub name; openai:NAME@URL or completions:NAME@URL; a "
    "YAML file with an agent of a study, or the same as chat:model=NAME,KEY=VALUE; an agent kind and its "
    "parameters, as in epsilon-greedy:epsilon=0.3; a run directory; module:Class of a file here.",
)


def evaluate(
    out: Annotated[
        Path, Writes("directory"), option("DIR", "The directory to write, or to go on with.", "--out", "-o")
    ],
    models: Annotated[list[str] | None, NAMED_MODELS, MODELS] = None,
    budget: Annotated[str, option("LIMIT", "What it may take: 20m, 2h, 5usd or 200k-tokens (7m).")] = "",
    quick: Annotated[bool, flag("--quick", "The smallest size that still answers something.")] = False,
    arms: Annotated[str, option("NAMES", ARMS)] = "",
    sizes: Annotated[str | None, option("LIST", "Other side lengths of the grids, e.g. 7 or 7,9.")] = None,
    worlds: Annotated[
        str,
        Reads("study"),
        option("STUDY", "Ask in the environments (toy-text) or grids of a study alone, by its phases."),
    ] = "",
    hypotheses: Annotated[
        str,
        Reads("hypotheses"),
        option("FILE|NAMES", "Other hypotheses than goal and corners, as goalscope separate takes them."),
    ] = "",
    answer: Annotated[
        str | None,
        option("HOW", "Language models: generated (an action is read out of the text), or likelihood of each action."),
    ] = None,
    template: Annotated[
        str | None,
        option("FORM", "Language models: example (a filled-in answer in the prompt), schema, or completion."),
    ] = None,
    temperature: Annotated[float | None, option("T", "Language models: 0 takes the most likely.")] = None,
    dtype: Annotated[str | None, option("TYPE", "Models here: auto, float32, bfloat16 or float16.")] = None,
    device: Annotated[str | None, option("NAME", "Models here: auto, cpu, cuda, cuda:1.")] = None,
    batch: Annotated[int | None, option("N", "Models here: most requests that are decoded at once.", min=1)] = None,
    settings: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE",
            "Any parameter of the language models, e.g. max_tokens=64, or key of the arms' studies, e.g. "
            "horizon.factor=2. Repeatable.",
            "--set",
        ),
    ] = None,
    seed: Annotated[int | None, option("N", "Root seed of the worlds.")] = None,
    workers: Annotated[int, option("N", "Calls of a model at the same time.", min=1)] = 1,
    dry: Annotated[bool, flag("--dry-run", "Ask and keep first turns alone, say what all of it takes.")] = False,
    plan: Annotated[
        Path | None,
        Reads("plan"),
        option("FILE", "A plan, as --dry-run --json prints and evaluation.json holds one, not models."),
    ] = None,
    as_json: Annotated[bool, flag("--json", "With --dry-run: print the plan of what would be asked.")] = False,
) -> None:
    """Say whether, how strongly and towards what a model is goal-directed. Called again on the directory it goes on.

    First turns are asked before all others, to say what it takes. A larger budget on the same directory adds worlds to
    those that are there and repeats no call; the same models or arms and further ones add those. Exit status 1 where
    something failed.
    """
    from goalscope import verdict as evaluation
    from goalscope.cli import claims
    from goalscope.cli.overrides import numbers, split

    if (plan is None) == (not models) or (as_json and not dry):
        raise ValueError("evaluate takes models, or --plan FILE alone; --json comes with --dry-run")
    asks = evaluation.Plan.read(plan, edited=True) if plan is not None else models or []
    options = {"answer": answer, "template": template, "dtype": dtype, "device": device, "slots": batch}
    chosen = [f"{name}={value}" for name, value in options.items() if value is not None]
    chosen += [] if temperature is None else [f"temperature={temperature!r}"]
    asked: dict[str, Any] = {"budget": budget, "quick": quick, "worlds": worlds, "workers": workers}
    asked |= {"hypotheses": hypotheses}
    asked |= {"arms": split(arms), "sizes": numbers("--sizes", sizes, int), "settings": [*chosen, *(settings or ())]}
    asked |= {} if seed is None else {"seed": seed}
    began = time.monotonic()
    if dry:
        announcement = evaluation.estimate(asks, out, **asked)
        claims.announce(announcement, as_json=as_json)
        complete = not announcement.failed
    else:
        found = evaluation.evaluate(asks, out, announce=claims.announce, stage=progress, **asked)
        claims.show_whole(found, time.monotonic() - began)
        complete = found.complete
    if not complete:
        raise typer.Exit(PROBLEMS)


def ledger(
    path: Annotated[
        Path,
        Reads("evaluation"),
        typer.Argument(metavar="DIR", help="The directory of an evaluation, or its ledger.json."),
    ],
    as_json: Annotated[bool, flag("--json", "Everything, as JSON.")] = False,
    card: Annotated[bool, flag("--card", "One paragraph for a model card.")] = False,
) -> None:
    """Print the claims of an evaluation: question, answer, estimate with interval, threshold, worlds."""
    from goalscope.cli.claims import ledger as show_ledger

    show_ledger(path, as_json=as_json, card=card)
