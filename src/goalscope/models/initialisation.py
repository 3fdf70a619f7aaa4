"""Initialisation recipe of the bundled models: the random weights that training begins with.

Controls of probes need it: an untrained network of the model's own scale, beside the library's default initialisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

GAIN = 0.5
"""Standard deviation of embeddings, and of matrices times the square root of their input width."""


def initialise(shapes: Mapping[str, tuple[int, ...]], *, layers: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Return random parameters of a GPT-OSS model, as Theseus and Ariadne began.

    Norms are 1 and biases and attention sinks 0. Embeddings have standard deviation 0.5, matrices 0.5 / sqrt(input
    width); those that write to the residual stream are divided by sqrt(2 L) besides.

    Args:
        shapes: shape of each parameter by its name in transformers' ``GptOssForCausalLM``.
        layers: number of blocks L.
        generator: source of the random numbers; parameters are drawn in the order of their names.
    """
    import torch

    found = {}
    for name, shape in sorted(shapes.items()):
        if name.endswith("norm.weight"):
            found[name] = torch.ones(shape)
        elif len(shape) == 1 or name.endswith("_bias"):
            found[name] = torch.zeros(shape)
        else:
            std = GAIN * (shape[-2] if "experts" in name else shape[-1]) ** -0.5
            if name.endswith(("o_proj.weight", "down_proj")):
                std /= (2 * layers) ** 0.5
            if name.endswith("embed_tokens.weight"):
                std = GAIN
            found[name] = torch.empty(shape).normal_(0.0, std, generator=generator)
    return found
