"""The command that trains a bundled model: Theseus on grids, Ariadne on task worlds."""

import argparse
import math
from pathlib import Path

from goalscope.agents.models.local import check_device, check_device_name
from training.data import GOALS, Mixture
from training.network import Shape, export
from training.task_data import TaskMixture
from training.task_vocabulary import POSITIONS, VOCABULARY_SIZE
from training.train import Run, Settings, export_last, train

ALWAYS = 10**9
"""More steps than any training has."""

TASK_LAYERS, TASK_SMALL_STEPS = 6, 300
"""Blocks of a model of task worlds, and its first steps on the smallest maps alone, unless stated otherwise."""


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.theseus",
        description="Train a bundled model from scratch: Theseus on grids, with --tasks Ariadne on task worlds.\n"
        "The same folder again goes on from the last checkpoint; Ctrl-C loses what came after it.",
        epilog="Examples:\n  python -m training.theseus runs/theseus --hours 6 --export runs/theseus/model\n"
        "  python -m training.theseus runs/ariadne --tasks --hours 1",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shape, settings = Shape(), Settings()
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="folder of the training: checkpoints and curve.jsonl")
    add("--steps", type=_whole, metavar="N", help="stop after so many steps in all (no limit by default)")
    add("--hours", type=_above_zero, metavar="H", help="stop this sitting after so many hours (no limit by default)")
    add("--decay-from", type=_whole, metavar="N", help="step at which the learning rate begins to fall (never)")
    add(
        "--decay-steps",
        type=_whole,
        default=2000,
        metavar="N",
        help="steps over which it falls, the last ones (%(default)s)",
    )
    add("--seed", type=int, default=0, metavar="N", help="of the first weights and the training data (%(default)s)")
    add("--initial", type=Path, metavar="FOLDER", help="exported model whose weights a new training begins with")
    add("--goal", choices=GOALS, help=f"what the agent is to go for, on grids ({Mixture().goal})")
    add("--key-share", type=float, metavar="SHARE", help="share of the steps on worlds with keys, on grids (0)")
    add("--fog-share", type=float, metavar="SHARE", help="share of the steps on grids under fog (0)")
    add("--tasks", action="store_true", help="train on task worlds (Ariadne) and not on grids")
    add("--layers", type=_whole, metavar="N", help=f"blocks of the model ({shape.layers}; with --tasks {TASK_LAYERS})")
    add("--width", type=_whole, default=shape.width, metavar="N", help="width of the model (%(default)s)")
    tokens = f"about so many tokens a step ({Mixture().tokens}; with --tasks {TaskMixture().tokens})"
    add("--batch-tokens", type=_whole, metavar="N", help=tokens)
    rate = settings.matrix_rate
    add("--matrix-rate", type=_above_zero, default=rate, metavar="R", help="learning rate of Muon (%(default)s)")
    add("--rate", type=_above_zero, default=settings.rate, metavar="R", help="learning rate of AdamW (%(default)s)")
    small = f"first steps, on the smallest worlds alone ({settings.small_steps}; with --tasks {TASK_SMALL_STEPS})"
    add("--small-steps", type=int, metavar="N", help=small)
    seconds = "seconds between evaluations on held-out worlds (%(default)s)"
    add("--evaluate-every", type=_above_zero, default=900.0, metavar="SECONDS", help=seconds)
    grids = "held-out grids of each size and density in an evaluation, with --tasks maps of each preset (%(default)s)"
    add("--grids", type=_whole, default=6, metavar="N", help=grids)
    add("--threads", type=_whole, default=1, metavar="N", help="threads of torch (%(default)s)")
    add("--workers", type=int, default=0, metavar="N", help="processes that prepare data ahead (%(default)s)")
    add("--device", default="cpu", metavar="NAME", help="where the model trains: cpu, cuda, cuda:1 (%(default)s)")
    add("--export", type=Path, metavar="FOLDER", help="write the model there at the end, as transformers loads it")
    last = "write the last checkpoint as a model (to --export, else FOLDER/model) and do nothing else"
    add("--only-export", action="store_true", help=last)
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and train; what is wrong with it ends with one sentence and status 2."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        _check(given)
        _train(given)
    except (ValueError, OSError) as error:
        parser.error(str(error))


def _check(given: argparse.Namespace) -> None:
    on_grids = {"--goal": given.goal, "--key-share": given.key_share, "--fog-share": given.fog_share}
    stray = [name for name, value in on_grids.items() if value is not None]
    if given.tasks and stray:
        raise ValueError(f"{', '.join(stray)} must come without --tasks, since task worlds have neither: leave it out")
    if given.device == "auto":
        raise ValueError("--device must name the device to train on, e.g. cpu or cuda, got 'auto'")
    check_device_name(given.device)


def _train(given: argparse.Namespace) -> None:
    import torch

    if not given.only_export:
        check_device(torch, given.device)
    torch.set_num_threads(given.threads)
    if given.device != "cpu":
        torch.set_float32_matmul_precision("high")
    settings = Settings(
        shape=_shape(given),
        mixture=_mixture(given),
        matrix_rate=given.matrix_rate,
        rate=given.rate,
        small_steps=_small_steps(given),
        auxiliary_steps=ALWAYS if given.tasks else Settings().auxiliary_steps,
    )
    if given.only_export:
        export_last(given.folder, given.export or given.folder / "model")
        return
    run = Run(settings, given.folder, given.device, given.workers, given.initial)
    train(
        run,
        steps=given.steps,
        seconds=None if given.hours is None else given.hours * 3600,
        decay_from=given.decay_from,
        decay_steps=given.decay_steps,
        evaluate_every=given.evaluate_every,
        grids=given.grids,
    )
    if given.export is not None:
        export(run.parameters, settings.shape, given.export, settings.told(), run.source.vocabulary)


def _small_steps(given: argparse.Namespace) -> int:
    if given.small_steps is not None:
        return int(given.small_steps)
    return TASK_SMALL_STEPS if given.tasks else Settings().small_steps


def _shape(given: argparse.Namespace) -> Shape:
    if not given.tasks:
        return Shape(layers=given.layers or Shape().layers, width=given.width)
    return Shape(
        layers=given.layers or TASK_LAYERS,
        width=given.width,
        theta=10_000.0,
        vocabulary=VOCABULARY_SIZE,
        positions=POSITIONS,
    )


def _mixture(given: argparse.Namespace) -> Mixture | TaskMixture:
    if given.tasks:
        return TaskMixture(seed=given.seed, tokens=given.batch_tokens or TaskMixture().tokens)
    return Mixture(
        seed=given.seed,
        goal=given.goal or Mixture().goal,
        tokens=given.batch_tokens or Mixture().tokens,
        key_share=given.key_share or 0.0,
        fog_share=given.fog_share or 0.0,
    )


if __name__ == "__main__":
    main()
