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
    env: str = "",
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
    """Judge whether a model is goal-directed, how strongly and towards what.

    The evaluation first times the model on a few moves, and prints the expected time and cost. Run the same command on
    the same directory to resume an evaluation. A larger --budget adds worlds, and further models or arms are added to
    those already there; no call is repeated. The exit status is 1 if any part failed.

    Args:
        out: directory of the evaluation; an existing one is resumed.
        models (MODEL ...): one or more models or agents. Each is a bundled model (theseus or ariadne); a model folder,
            a GGUF file or a hub name; openai:NAME@URL or completions:NAME@URL for a server; a YAML file that describes
            an agent, or the same on one line as chat:model=NAME,KEY=VALUE; an agent kind with parameters, as in
            epsilon-greedy:epsilon=0.3; a run directory; or module:Class from a file in the working directory.
        budget (LIMIT): time, money or tokens to spend: 20m, 2h, 5usd or 200k-tokens. Default: 7m.
        quick: use the smallest evaluation that still answers something.
        arms (NAMES): run only these parts of the evaluation. Choose from grids, keys, transforms, fog, tasks,
            competence, wordings, hypotheses, depends, inside, patching, reasoning, plans, beliefs.
        sizes (LIST): side lengths of the grids, e.g. 7 or 7,9.
        worlds (STUDY): evaluate only in the environments or grids of this study (e.g. toy-text), phase by phase.
        env (ENV): evaluate only in this environment: module:Class of a file in the working directory, an id of
            Gymnasium such as FrozenLake-v1, MiniGrid-DoorKey-6x6-v0 or module:MyLevel-v0, or a file that goalscope
            table wrote. Parameters follow after a colon, as in warehouse:Warehouse:slip=0.1. Agents with planted goals
            play beside the models.
        hypotheses (FILE|NAMES): goals to test instead of the goal and the corners, as in goalscope separate.
        answer (HOW): for language models: generated (read the action from the text) or likelihood (of each action).
        template (FORM): for language models, the form of the prompt: example (shows a filled-in answer), schema or
            completion.
        temperature (T): for language models: sampling temperature; 0 always takes the most likely token.
        dtype (TYPE): for models run on this machine: auto, float32, bfloat16 or float16.
        device (NAME): for models run on this machine: auto, cpu, cuda or cuda:1.
        batch: for models run on this machine: maximum number of requests decoded at once.
        settings (KEY=VALUE): any parameter of the language models, e.g. max_tokens=64, or any key of the studies, e.g.
            horizon.factor=2. Repeatable.
        seed: random seed of the worlds.
        workers: number of simultaneous calls to a model.
        dry: time the model on a few moves (their answers are kept), print the expected time and cost, and stop.
        plan (FILE): run this plan instead of naming models. --dry-run --json prints one, and evaluation.json contains
            one.
        as_json: with --dry-run: print the plan as JSON.

    Examples:
        goalscope evaluate theseus --quick --out runs/theseus
        goalscope evaluate theseus epsilon-greedy:epsilon=0.3 --budget 20m --out runs/two
        goalscope evaluate HuggingFaceTB/SmolLM2-135M-Instruct --arms grids --answer likelihood --out runs/smollm2
        goalscope evaluate openai:gpt-oss-20b@http://127.0.0.1:8000/v1 --budget 200k-tokens --out runs/gpt
        goalscope evaluate random --env FrozenLake-v1 --quick --out runs/lake
        goalscope evaluate --plan runs/gpt/evaluation.json --out runs/again
    """
    from goalscope import verdict as evaluation
    from goalscope.cli import claims

    if (plan is None) == (not models):
        raise ValueError(
            "name at least one model, e.g. goalscope evaluate theseus --out DIR, or give --plan FILE without models"
        )
    if as_json and not dry:
        raise ValueError("--json prints the plan of --dry-run: add --dry-run")
    asks = evaluation.Plan.read(plan, edited=True) if plan is not None else [*models]
    options = {"answer": answer, "template": template, "dtype": dtype, "device": device, "slots": batch}
    chosen = [f"{name}={value}" for name, value in options.items() if value is not None]
    chosen += [] if temperature is None else [f"temperature={temperature!r}"]
    options_of_all: dict[str, Any] = {
        "budget": budget,
        "quick": quick,
        "arms": arms,
        "sizes": sizes or (),
        "worlds": worlds,
        "env": env,
        "hypotheses": hypotheses,
        "settings": [*chosen, *settings],
        "workers": workers,
        **({} if seed is None else {"seed": seed}),
    }
    began = time.monotonic()
    if dry:
        announcement = evaluation.estimate(asks, out, **options_of_all)
        claims.announce(announcement, as_json=as_json)
        complete = not announcement.failed
    else:
        evaluated = evaluation.evaluate(asks, out, announce=claims.announce, stage=progress, **options_of_all)
        claims.show_whole(evaluated, time.monotonic() - began)
        complete = evaluated.complete
    return complete
