"""The commands `evaluate` and `ledger`: options and help; what they do stands in `goalscope.cli.verdicts`."""

from pathlib import Path
from typing import Annotated

import typer

from goalscope.cli.help import flag, option


def evaluate(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL ...",
            help="theseus or ariadne; a folder or a hub name; openai:NAME@URL or completions:NAME@URL; an agent kind "
            "and its parameters, as in epsilon-greedy:epsilon=0.3.",
        ),
    ],
    out: Annotated[Path, option("DIR", "The directory to write, or to go on with.", "--out", "-o")],
    budget: Annotated[str, option("LIMIT", "What it may take: 20m, 2h, 5usd or 200k-tokens (15m).")] = "",
    quick: Annotated[bool, flag("--quick", "The smallest size that still answers something.")] = False,
    worlds: Annotated[str, option("STUDY", "Ask in the environments of a study alone, as in toy-text.")] = "",
    seed: Annotated[int | None, option("N", "Root seed of the worlds.")] = None,
    workers: Annotated[int, option("N", "Calls of a model at the same time.", min=1)] = 1,
    dry: Annotated[bool, flag("--dry-run", "Say what would be asked and what it costs, ask nothing.")] = False,
) -> None:
    """Say whether, how strongly and towards what a model is goal-directed. Called again on the directory it goes on.

    A larger budget on the same directory adds worlds to those that are there and repeats no call.
    """
    from goalscope.cli import verdicts

    more = {} if seed is None else {"seed": seed}
    verdicts.run(models, out, budget=budget, quick=quick, workers=workers, dry=dry, worlds=worlds, **more)


def ledger(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of an evaluation, or its ledger.json.")],
    as_json: Annotated[bool, flag("--json", "Everything, as JSON.")] = False,
    card: Annotated[bool, flag("--card", "One paragraph for a model card.")] = False,
) -> None:
    """Print the claims of an evaluation: question, answer, estimate with interval, threshold, worlds."""
    from goalscope.cli import verdicts

    verdicts.ledger(path, as_json=as_json, card=card)
