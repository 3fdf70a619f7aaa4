"""The one-shot decoder of plans as a function of its weights, many decoders at once.

The P vectors h of a site pass one shared bottleneck, ``LN(W h + b)``. T learned queries, one a place of the plan, pass
a Transformer decoder (self-attention among the queries, cross-attention to the P vectors, two-layer perceptron, each
after a LayerNorm and added), and one linear map gives the scores of the tokens of every place. All places are scored at
once: none sees what was said at another.

Source: behavioural and representational evaluation, section 5.3; Vaswani et al. 2017, Xiong et al. 2020 (norm first).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from goalscope.probing.plans import TOKENS
from goalscope.rng import stream

if TYPE_CHECKING:
    from torch import Tensor

ATTENTION_HEADS: Final = 8
_PER_LAYER: Final = 3  # norms: before self-attention, before cross-attention, before the perceptron


def plan_shapes(*, width: int, inner: int, feedforward: int, layers: int, horizon: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of a decoder.

    Args:
        width: numbers D of one vector.
        inner: width W of the decoder.
        feedforward: width of the hidden layer of its perceptrons.
        layers: number of its layers.
        horizon: places T of a plan.
    """
    shapes: dict[str, tuple[int, ...]] = {"in": (width, inner), "in.bias": (inner,), "queries": (horizon, inner)}
    norms = ["in.norm", "norm"]
    for layer in range(layers):
        for name, wide in (("self", 3), ("cross.q", 1), ("cross.kv", 2)):
            shapes |= {f"{layer}.{name}": (inner, wide * inner), f"{layer}.{name}.bias": (wide * inner,)}
        for name in ("self.out", "cross.out"):
            shapes |= {f"{layer}.{name}": (inner, inner), f"{layer}.{name}.bias": (inner,)}
        shapes |= {f"{layer}.up": (inner, feedforward), f"{layer}.up.bias": (feedforward,)}
        shapes |= {f"{layer}.down": (feedforward, inner), f"{layer}.down.bias": (inner,)}
        norms += [f"{layer}.norm{number}" for number in range(_PER_LAYER)]
    for name in norms:
        shapes |= {f"{name}.scale": (inner,), f"{name}.bias": (inner,)}
    return shapes | {"out": (inner, len(TOKENS)), "out.bias": (len(TOKENS),)}


def initial_plan_weights(
    shapes: Mapping[str, tuple[int, ...]], seed: int, name: str
) -> dict[str, npt.NDArray[np.float32]]:
    """Return random weights: normal with the spread 1 / sqrt(inputs), queries of spread 1, scales 1, biases 0.

    Args:
        shapes: see `plan_shapes`.
        seed: root seed.
        name: the decoder's name, so that its weights are the same alone and in company.
    """
    found = {}
    for key, shape in shapes.items():
        if len(shape) == 1:
            found[key] = np.full(shape, 1.0 if key.endswith(".scale") else 0.0, dtype=np.float32)
            continue
        spread = 1.0 if key == "queries" else 1 / math.sqrt(shape[0])
        drawn = stream(seed, "plan weights", name, key).standard_normal(shape, dtype=np.float32)
        found[key] = drawn * np.float32(spread)
    return found


def plan_scores(weights: Mapping[str, Tensor], vectors: Tensor, *, layers: int, heads: int) -> Tensor:
    """Return the scores of the tokens of all places for Q decoders of one size at once.

    Args:
        weights: name -> ``[Q, ...]``, see `plan_shapes`.
        vectors: ``[Q or 1, B, P, D]`` normalised.
        layers: number of layers.
        heads: number of attention heads.

    Returns:
        ``[Q, B, T, 5]``.
    """
    queries = weights["queries"]
    memory = _norm(_linear(vectors, weights, "in"), weights, "in.norm")
    found = queries[:, None].expand(-1, memory.shape[1], -1, -1)
    for layer in range(layers):
        given = _norm(found, weights, f"{layer}.norm0")
        query, key, value = _linear(given, weights, f"{layer}.self").chunk(3, dim=-1)
        found = found + _linear(_attend(query, key, value, heads), weights, f"{layer}.self.out")
        query = _linear(_norm(found, weights, f"{layer}.norm1"), weights, f"{layer}.cross.q")
        key, value = _linear(memory, weights, f"{layer}.cross.kv").chunk(2, dim=-1)
        found = found + _linear(_attend(query, key, value, heads), weights, f"{layer}.cross.out")
        given = _linear(_norm(found, weights, f"{layer}.norm2"), weights, f"{layer}.up").relu()
        found = found + _linear(given, weights, f"{layer}.down")
    return _linear(_norm(found, weights, "norm"), weights, "out")


def _linear(given: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    """Return ``[Q, B, S, V]`` from ``[Q or 1, B, S, U]``."""
    import torch

    batch, places = given.shape[1:3]
    found = torch.matmul(given.flatten(1, 2), weights[name]) + weights[f"{name}.bias"][:, None]
    return found.view(len(found), batch, places, -1)


def _norm(given: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    from torch.nn.functional import layer_norm

    plain = layer_norm(given, given.shape[-1:])
    return plain * weights[f"{name}.scale"][:, None, None] + weights[f"{name}.bias"][:, None, None]


def _attend(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    from torch.nn.functional import scaled_dot_product_attention

    count, batch = query.shape[:2]

    def split(one: Tensor) -> Tensor:
        """Return ``[Q * B, heads, S, W / heads]``."""
        return one.reshape(count * batch, one.shape[2], heads, -1).transpose(1, 2)

    found = scaled_dot_product_attention(split(query), split(key), split(value))
    return found.transpose(1, 2).reshape(query.shape)
