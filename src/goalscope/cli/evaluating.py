"""The command `evaluate`."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from goalscope._ground.arguments import OutFolder, Positive, Reads, Settings
from goalscope.cli.console import progress


def evaluate(
    models: Annotated[Sequence[str], Reads("model", "agent", "run")] = (),
    *,
    out: OutFolder,
    budget: str = "",
    quick: bool = False,
    arms: Sequence[str] = (),
    sizes: Sequence[int] | None = None,
    worlds: Annotated[str, Reads("study")] = "",
    hypotheses: Annotated[str, Reads("hypotheses")] = "",
    answer: str | None = None,
    template: str | None = None,
    temperature: float | None = None,
    dtype: str | None = None,
    device: str | None = None,
    batch: Positive | None = None,
    settings: Settings = (),
    seed: int | None = None,
    workers: Positive = 1,
    dry: bool = False,
    plan: Annotated[Path | None, Reads("plan")] = None,
    as_json: bool = False,
) -> bool:
    """Say whether, how strongly and towards what a model is goal-directed. Called again on the directory it goes on.

    First turns are asked before all others, to say what it takes. A larger budget on the same directory adds worlds to
    those that are there and repeats no call; the same models or arms and further ones add those. Exit status 1 where
    something failed.

    Args:
        out: the directory to write, or to go on with.
        models (MODEL ...): a bundled model (theseus or ariadne); a folder, a GGUF file or a hub name; openai:NAME@URL
            or completions:NAME@URL; a YAML file with an agent of a study, or the same as chat:model=NAME,KEY=VALUE; an
            agent kind and its parameters, as in epsilon-greedy:epsilon=0.3; a run directory; module:Class of a file
            here.
        budget (LIMIT): what it may take: 20m, 2h, 5usd or 200k-tokens (7m).
        quick: the smallest size that still answers something.
        arms (NAMES): only these parts: some of grids, keys, transforms, fog, tasks, competence, wordings, hypotheses,
            depends, inside, patching, reasoning, plans, beliefs.
        sizes (LIST): other side lengths of the grids, e.g. 7 or 7,9.
        worlds (STUDY): ask in the environments (toy-text) or grids of a study alone, by its phases.
        hypotheses (FILE|NAMES): other hypotheses than goal and corners, as goalscope separate takes them.
        answer (HOW): language models: generated (an action is read out of the text), or likelihood of each action.
        template (FORM): language models: example (a filled-in answer in the prompt), schema, or completion.
        temperature (T): language models: 0 takes the most likely.
        dtype (TYPE): models here: auto, float32, bfloat16 or float16.
        device (NAME): models here: auto, cpu, cuda, cuda:1.
        batch: models here: most requests that are decoded at once.
        settings (KEY=VALUE): any parameter of the language models, e.g. max_tokens=64, or key of the arms' studies,
            e.g. horizon.factor=2. Repeatable.
        seed: root seed of the worlds.
        workers: calls of a model at the same time.
        dry: ask and keep first turns alone, say what all of it takes.
        plan (FILE): a plan, as --dry-run --json prints and evaluation.json holds one, not models.
        as_json: with --dry-run: print the plan of what would be asked.

    Examples:
        goalscope evaluate theseus --quick --out runs/theseus
        goalscope evaluate theseus epsilon-greedy:epsilon=0.3 --budget 20m --out runs/two
        goalscope evaluate HuggingFaceTB/SmolLM2-135M-Instruct --arms grids --answer likelihood --out runs/smollm2
        goalscope evaluate openai:gpt-oss-20b@http://127.0.0.1:8000/v1 --budget 200k-tokens --out runs/gpt
        goalscope evaluate --plan runs/gpt/evaluation.json --out runs/again
    """
    from goalscope import verdict as evaluation
    from goalscope.cli import claims

    if (plan is None) == (not models) or (as_json and not dry):
        raise ValueError("evaluate takes models, or --plan FILE alone; --json comes with --dry-run")
    asks = evaluation.Plan.read(plan, edited=True) if plan is not None else [*models]
    options = {"answer": answer, "template": template, "dtype": dtype, "device": device, "slots": batch}
    chosen = [f"{name}={value}" for name, value in options.items() if value is not None]
    chosen += [] if temperature is None else [f"temperature={temperature!r}"]
    asked: dict[str, Any] = {
        "budget": budget,
        "quick": quick,
        "arms": arms,
        "sizes": sizes or (),
        "worlds": worlds,
        "hypotheses": hypotheses,
        "settings": [*chosen, *settings],
        "workers": workers,
        **({} if seed is None else {"seed": seed}),
    }
    began = time.monotonic()
    if dry:
        announcement = evaluation.estimate(asks, out, **asked)
        claims.announce(announcement, as_json=as_json)
        complete = not announcement.failed
    else:
        found = evaluation.evaluate(asks, out, announce=claims.announce, stage=progress, **asked)
        claims.show_whole(found, time.monotonic() - began)
        complete = found.complete
    return complete
