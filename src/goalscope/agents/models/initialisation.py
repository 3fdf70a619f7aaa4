"""Random networks of a model's architecture, which serve as controls for probes.

``default-init`` is the library's own initialisation for the architecture (mostly with standard deviation .02).
Attention is then nearly uniform, so this is a weak control. ``initial`` is the initialisation that the training of the
bundled models started from. ``permuted`` permutes the entries within each trained weight tensor, so that each tensor
keeps its scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from goalscope._ground.checks import check_choice
from goalscope._ground.rng import stream

if TYPE_CHECKING:
    import torch
    from torch import Tensor

RandomWeights = Literal["default-init", "initial", "permuted"]
RANDOM_WEIGHTS: Final = get_args(RandomWeights)


def check_random_weights(kind: str, untrained: int | None) -> None:
    """Raise a ValueError if the kind of random weights is unknown, or if it lacks the seed of the weights."""
    check_choice("random_weights", kind, RANDOM_WEIGHTS)
    if untrained is None and kind != RANDOM_WEIGHTS[0]:
        raise ValueError(f"random_weights: {kind} needs the seed of the weights: set untrained, e.g. untrained: 0")


GAIN = 0.5
"""Standard deviation of embeddings, and of matrices after multiplication by the square root of their input width."""


def initialise(shapes: Mapping[str, tuple[int, ...]], *, layers: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Return random parameters of a GPT-OSS model, as at the start of the training of Theseus and Ariadne.

    Norms are 1; biases and attention sinks are 0. Embeddings have standard deviation 0.5, matrices 0.5 / sqrt(input
    width). Matrices that write to the residual stream are also divided by sqrt(2 L).

    Args:
        shapes: name of each parameter in transformers' ``GptOssForCausalLM`` -> its shape.
        layers: number of blocks L.
        generator: source of the random numbers; parameters are drawn in the order of their names.
    """
    import torch

    parameters = {}
    for name, shape in sorted(shapes.items()):
        if name.endswith("norm.weight"):
            parameters[name] = torch.ones(shape)
        elif len(shape) == 1 or name.endswith("_bias"):
            parameters[name] = torch.zeros(shape)
        else:
            std = GAIN * (shape[-2] if "experts" in name else shape[-1]) ** -0.5
            if name.endswith(("o_proj.weight", "down_proj")):
                std /= (2 * layers) ** 0.5
            if name.endswith("embed_tokens.weight"):
                std = GAIN
            parameters[name] = torch.empty(shape).normal_(0.0, std, generator=generator)
    return parameters


SPREAD: Final = 0.1
"""Standard deviation of the weights of a GPT-2 model, except for the positions of cells."""
CODE: Final = 0.3
FIRST_CELL: Final = 6
CELLS: Final = 7


def initialise_gpt2(
    shapes: Mapping[str, tuple[int, ...]], *, layers: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Return random parameters of a GPT-2 model, as at the start of the training of the organisms' language models.

    Norms are 1 and biases 0. All other parameters have standard deviation .1; those that write to the residual stream
    are divided by sqrt(2 L). The positions of the cells of a 7x7 grid start with a code of their place: the sum of a
    vector for the row and a vector for the column, each with standard deviation .3.

    Args:
        shapes: name of each parameter in transformers' ``GPT2LMHeadModel`` -> its shape.
        layers: number of blocks L.
        generator: source of the random numbers; parameters are drawn in the order of their names.
    """
    import torch

    parameters = {}
    for name, shape in sorted(shapes.items()):
        if name.endswith(".bias"):
            parameters[name] = torch.zeros(shape)
        elif ".ln_" in name:
            parameters[name] = torch.ones(shape)
        else:
            std = SPREAD / ((2 * layers) ** 0.5 if name.endswith("c_proj.weight") else 1.0)
            parameters[name] = torch.empty(shape).normal_(0.0, std, generator=generator)
        if name.endswith("wpe.weight"):
            rows, columns = torch.empty((2, CELLS, shape[1])).normal_(0.0, CODE, generator=generator)
            for row in range(CELLS):  # a label precedes each row
                begin = FIRST_CELL + row * (CELLS + 1)
                parameters[name][begin : begin + CELLS] = rows[row] + columns
    return parameters


def redraw(model: Any, *, seed: int) -> None:
    """Reset a bundled model, or one of its kind, in place to the initial weights of its training with this seed.

    Args:
        model: a transformers model on the CPU, with weights in float32.
        seed: seed of the random numbers.
    """
    import torch

    with torch.no_grad():
        current = dict(model.named_parameters())
        shapes = {name: tuple(parameter.shape) for name, parameter in current.items()}
        generator = torch.Generator().manual_seed(seed)
        recipe = initialise_gpt2 if model.config.model_type == "gpt2" else initialise
        drawn = recipe(shapes, layers=model.config.num_hidden_layers, generator=generator)
        for name, parameter in current.items():
            parameter.copy_(drawn[name])


def permute(model: Any, *, seed: int) -> None:
    """Permute the entries of each weight tensor of a transformers model in place; tied tensors stay tied.

    Args:
        model: a model on the CPU.
        seed: seed of the permutations, which use one stream per tensor.
    """
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            order = torch.from_numpy(stream(seed, "permuted", name).permutation(parameter.numel()))
            parameter.copy_(parameter.flatten()[order].view(parameter.shape))
