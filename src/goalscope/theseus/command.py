"""The command that trains a bundled model: Theseus on grids, Ariadne on task worlds."""

import argparse
from pathlib import Path

from goalscope.theseus.data import GOALS, Mixture
from goalscope.theseus.network import Shape, export
from goalscope.theseus.task_data import TaskMixture
from goalscope.theseus.task_vocabulary import POSITIONS, VOCABULARY_SIZE
from goalscope.theseus.train import Run, Settings, export_last, train

ALWAYS = 10**9
"""More steps than any training has."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="goalscope train-theseus",
        description=__doc__,
        epilog="Example: goalscope train-theseus runs/theseus --hours 6",
    )
    parser.add_argument("folder", type=Path, help="folder of the run; an existing run is continued")
    parser.add_argument("--steps", type=int, help="stop after so many steps in all")
    parser.add_argument("--hours", type=float, help="stop this sitting after so many hours")
    parser.add_argument("--decay-from", type=int, help="step at which the learning rate begins to fall")
    parser.add_argument("--decay-steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--initial", type=Path, help="exported model whose weights a new run begins with")
    parser.add_argument("--goal", choices=GOALS, default="goal", help="what the agent is to go for")
    parser.add_argument("--key-share", type=float, default=0.0, help="share of the steps on worlds with keys")
    parser.add_argument("--fog-share", type=float, default=0.0, help="share of the steps on grids under fog")
    parser.add_argument("--tasks", action="store_true", help="train on task worlds (Ariadne) and not on grids")
    parser.add_argument("--layers", type=int, help="8 for grids, 6 for task worlds unless stated otherwise")
    parser.add_argument("--width", type=int, default=Shape().width)
    parser.add_argument("--batch-tokens", type=int, help="tokens of a step, about")
    parser.add_argument("--matrix-rate", type=float, default=Settings().matrix_rate, help="learning rate of Muon")
    parser.add_argument("--rate", type=float, default=Settings().rate, help="learning rate of AdamW")
    parser.add_argument("--small-steps", type=int, help="first steps, on the smallest worlds alone")
    parser.add_argument("--evaluate-every", type=float, default=900.0, help="seconds between evaluations")
    parser.add_argument("--grids", type=int, default=6, help="held-out grids a cell of an evaluation, or maps a preset")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare data ahead")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--export", type=Path, help="write the model here at the end, as transformers loads it")
    parser.add_argument("--only-export", action="store_true", help="export the last checkpoint and do nothing else")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and train."""
    import torch

    given = _parser().parse_args(arguments)
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
    return 300 if given.tasks else Settings().small_steps


def _shape(given: argparse.Namespace) -> Shape:
    if not given.tasks:
        return Shape(layers=given.layers or Shape().layers, width=given.width)
    return Shape(
        layers=given.layers or 6, width=given.width, theta=10_000.0, vocabulary=VOCABULARY_SIZE, positions=POSITIONS
    )


def _mixture(given: argparse.Namespace) -> Mixture | TaskMixture:
    if given.tasks:
        return TaskMixture(seed=given.seed, tokens=given.batch_tokens or TaskMixture().tokens)
    return Mixture(
        seed=given.seed,
        goal=given.goal,
        tokens=given.batch_tokens or Mixture().tokens,
        key_share=given.key_share,
        fog_share=given.fog_share,
    )


if __name__ == "__main__":
    main()
