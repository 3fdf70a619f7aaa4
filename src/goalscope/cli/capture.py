"""`goalscope capture`: replay the recorded token ids of a run and keep activations beside it."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from goalscope.cli.errors import guarded


@guarded
def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory (it holds run.db).")],
    layers: Annotated[
        str,
        typer.Option(metavar="LIST", help="Decoder blocks, 0-based: 7,15,23; thirds: the last one of each third; all."),
    ] = "thirds",
    sites: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="pre, post (before and after the reasoning), grid (cells), action; else those of pre,post that the "
            "run has.",
        ),
    ] = "",
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A folder or a hub name; the model of the run's study if left out."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose steps, where several have token ids.")
    ] = None,
    untrained: Annotated[
        int | None, typer.Option(metavar="SEED", help="The control: the same architecture with random weights.")
    ] = None,
    scope: Annotated[str, typer.Option(metavar="WHICH", help="all steps, or the first of each episode.")] = "all",
    other_weights: Annotated[
        bool, typer.Option("--other-weights", help="The model's weights need not be those that generated the run.")
    ] = False,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Most tokens of a forward pass (2048 on a processor, 32768 on a GPU): fewer where memory is short.",
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="With --model: auto (the default), cpu, cuda, cuda:1.")
    ] = "",
    dtype: Annotated[
        str, typer.Option(metavar="NAME", help="With --model: auto (the default), float32, bfloat16, float16.")
    ] = "",
    revision: Annotated[str, typer.Option(metavar="NAME", help="With --model: commit, tag or branch on the hub.")] = "",
    reasoning: Annotated[
        str,
        typer.Option(
            metavar="STYLE", help="With --model: harmony, think, none; the tokenizer is asked where left out."
        ),
    ] = "",
) -> None:
    """Replay a run's token ids and store activations beside it. Run it again to go on after an interruption."""
    from goalscope.activations import CaptureSettings
    from goalscope.activations import capture as replay
    from goalscope.activations.hooks import Blocks
    from goalscope.cli.console import duration, progress, say, table
    from goalscope.cli.overrides import layers_of, split
    from goalscope.models.local import LocalModel
    from goalscope.report.blocks import counted

    named = {"device": device, "dtype": dtype, "revision": revision, "reasoning": reasoning}
    loading: dict[str, Any] = {name: value for name, value in named.items() if value}
    if model is None and loading:
        raise ValueError(
            f"{', '.join(f'--{name}' for name in loading)} says how a model given with --model is read: give --model, "
            "or change the agent in the study"
        )
    given = None
    if model is not None:
        given = LocalModel(model, untrained=untrained, **loading)
    wanted = layers_of(layers)
    chosen = None if isinstance(wanted, str) else wanted
    if wanted == "all":
        if given is None:
            from goalscope.activations.replay_target import find_target, model_of
            from goalscope.runs import Store

            with Store(run) as store:
                given = model_of(store, find_target(store, agent, ()), untrained)
        chosen = Blocks(given.model).layers
    began = time.monotonic()
    with progress("steps") as show:
        done = replay(
            run,
            given,
            sites=split(sites) if sites else None,
            layers=chosen,
            agent=agent,
            untrained=untrained if given is None else None,
            scope=scope,  # type: ignore[arg-type]
            other_weights=other_weights,
            settings=CaptureSettings(batch_tokens=batch_tokens),
            progress=show,
        )
    size = sum(path.stat().st_size for path in (run / done.path).glob("*.safetensors"))
    rows = [
        ("model", done.model_name),
        ("agent", done.agent),
        ("sites", ", ".join(done.sites)),
        ("layers", ", ".join(map(str, done.layers))),
        ("steps captured", f"{done.captured} of {done.steps}"),
        ("largest difference to the library's hidden states", f"{max(done.self_check.values(), default=0.0):.2g}"),
        ("files", f"{run / done.path} ({size / 1e6:.1f} MB)"),
    ]
    table(("what", "value"), rows, title=f"{done.id}, in {duration(time.monotonic() - began)}")
    for reason, count in done.left_out.items():
        say(f"left out: {reason} ({counted(count, 'step')})")
    if done.reconstructed:
        say(f"{counted(done.reconstructed, 'step')} of them with ids that were made again from text (reconstructed)")
