"""Torch modules that decode plans, either all positions at once or one position after the other."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from goalscope._ground.checks import check_whole
from goalscope._ground.rng import stream
from goalscope.inside.probing.heads import HeadSizes, Weights

_PER_LAYER = 3  # layer norms before self-attention, before cross-attention and before the perceptron


def zeros(*shape: int) -> nn.Parameter:
    """Create a zero parameter of the given shape; training initialises it."""
    return nn.Parameter(torch.zeros(shape))


class Decoder(nn.Module):
    """One-shot decoder of plans.

    The P vectors h of a site pass a shared bottleneck, ``LN(W h + b)``. T learned queries, one per position of the
    plan, pass a Transformer decoder (self-attention among the queries, cross-attention to the P vectors, two-layer
    perceptron, each after a LayerNorm and added), and one linear map gives the scores of the tokens of every position.
    All positions are scored at once, independently of the tokens chosen at other positions.

    Source: behavioural and representational evaluation, section 5.3; Vaswani et al. 2017, Xiong et al. 2020 (norm
    first).
    """

    def __init__(self, sizes: HeadSizes, layers: int, width: int, feedforward: int, heads: int) -> None:
        super().__init__()
        for name, value, maximum in (("layers", layers, 64), ("heads", heads, 256)):
            if check_whole(f"{name} of a decoder", value, 1) > maximum:
                raise ValueError(f"{name} of a decoder must be from 1 to {maximum}, got {value}")
        if width < 1 or width % heads:
            raise ValueError(f"the width of a decoder must be a multiple of its {heads} heads, got {width}")
        self.sizes, self.cost, self._heads = sizes, layers, heads
        shapes: dict[str, tuple[int, ...]] = {"in": (sizes.width, width), "in.bias": (width,)}
        shapes["queries"] = (sizes.outputs, width)
        norms = ["in.norm", "norm"]
        for layer in range(layers):
            for name, factor in (("self", 3), ("cross.q", 1), ("cross.kv", 2)):
                shapes |= {f"{layer}.{name}": (width, factor * width), f"{layer}.{name}.bias": (factor * width,)}
            for name in ("self.out", "cross.out"):
                shapes |= {f"{layer}.{name}": (width, width), f"{layer}.{name}.bias": (width,)}
            shapes |= {f"{layer}.up": (width, feedforward), f"{layer}.up.bias": (feedforward,)}
            shapes |= {f"{layer}.down": (feedforward, width), f"{layer}.down.bias": (width,)}
            norms += [f"{layer}.norm{number}" for number in range(_PER_LAYER)]
        for name in norms:
            shapes |= {f"{name}.scale": (width,), f"{name}.bias": (width,)}
        for name, shape in (shapes | {"out": (width, sizes.classes), "out.bias": (sizes.classes,)}).items():
            self.register_parameter(name.replace(".", "/"), zeros(*shape))  # torch allows no dot in a name

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the scores of one decoder, ``[B, T, K]``."""
        weights = {name.replace("/", "."): parameter[None] for name, parameter in self.named_parameters()}
        return self.stacked(weights, vectors[None])[0]

    def stacked(self, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        """Return the scores of several decoders at once; `torch.func.vmap` has no batching rule for attention."""
        return self._scored(weights, vectors, weights["queries"][:, None].expand(-1, vectors.shape[1], -1, -1))

    def _scored(
        self, weights: Mapping[str, Tensor], vectors: Tensor, hidden: Tensor, *, causal: bool = False
    ) -> Tensor:
        """Compute scores from initial vectors of the positions ``[Q, B, T, V]``, with optional causal attention."""
        inputs = vectors.view(*vectors.shape[:2], self.sizes.positions, self.sizes.width)
        memory = _norm(_affine(inputs, weights, "in"), weights, "in.norm")
        for layer in range(self.cost):
            inputs = _norm(hidden, weights, f"{layer}.norm0")
            query, key, value = _affine(inputs, weights, f"{layer}.self").chunk(3, dim=-1)
            attended = _attend(query, key, value, self._heads, causal=causal)
            hidden = hidden + _affine(attended, weights, f"{layer}.self.out")
            query = _affine(_norm(hidden, weights, f"{layer}.norm1"), weights, f"{layer}.cross.q")
            key, value = _affine(memory, weights, f"{layer}.cross.kv").chunk(2, dim=-1)
            hidden = hidden + _affine(_attend(query, key, value, self._heads), weights, f"{layer}.cross.out")
            inputs = _affine(_norm(hidden, weights, f"{layer}.norm2"), weights, f"{layer}.up").relu()
            hidden = hidden + _affine(inputs, weights, f"{layer}.down")
        return _affine(_norm(hidden, weights, "norm"), weights, "out")

    def initial(self, seed: int, name: str) -> Weights:
        """Draw initial weights: normal with standard deviation 1 / sqrt(inputs), 1 for queries; scales are 1."""
        weights = {}
        for parameter_name, parameter in self.named_parameters():
            key, shape = parameter_name.replace("/", "."), tuple(parameter.shape)
            if len(shape) == 1:
                weights[key] = np.full(shape, 1.0 if key.endswith(".scale") else 0.0, dtype=np.float32)
                continue
            std = 1.0 if key in ("queries", "tokens") else 1 / math.sqrt(shape[0])
            normal = stream(seed, "plan weights", name, key).standard_normal(shape, dtype=np.float32)
            weights[key] = normal * np.float32(std)
        return weights


class Stepwise(Decoder):
    """Autoregressive decoder of plans, which receives the tokens decoded so far.

    The vector of the token at position t - 1, or a start vector, is added to the query of position t, and attention is
    causal. Training uses the true earlier tokens; decoding uses the likeliest tokens, position by position. Later
    positions can be predicted from earlier ones whatever the activations contain, so compare it with the one-shot
    decoder and the same controls.

    Source: behavioural and representational evaluation, section 5.3 (why it was not used there), and the post.
    """

    def __init__(self, sizes: HeadSizes, layers: int, width: int, feedforward: int, heads: int) -> None:
        super().__init__(sizes, layers, width, feedforward, heads)
        self.tokens = zeros(sizes.classes + 1, width)  # the last embedding is the start vector

    def taught(self, weights: Mapping[str, Tensor], vectors: Tensor, values: Tensor) -> Tensor:
        """Return the scores given the true earlier tokens, ``[Q, B, T, K]``."""
        begin = torch.full_like(values[:, :, :1], self.sizes.classes)
        earlier = values[:, :, :-1]
        inputs = torch.cat([begin, torch.where(earlier < 0, self.sizes.classes, earlier)], dim=2)
        return self._features(weights, vectors, inputs)

    def stacked(self, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        """Return the scores given the likeliest earlier tokens, ``[Q, B, T, K]``."""
        shape = (len(weights["queries"]), vectors.shape[1], self.sizes.outputs)
        inputs = torch.full(shape, self.sizes.classes, device=vectors.device)
        scored = self._features(weights, vectors, inputs)
        for place in range(1, self.sizes.outputs):
            inputs[:, :, place] = scored[:, :, place - 1].argmax(dim=-1)
            scored = self._features(weights, vectors, inputs)
        return scored

    def _features(self, weights: Mapping[str, Tensor], vectors: Tensor, tokens: Tensor) -> Tensor:
        probes = torch.arange(len(tokens), device=tokens.device)[:, None, None]
        hidden = weights["queries"][:, None] + weights["tokens"][probes, tokens]
        return self._scored(weights, vectors, hidden, causal=True)


def _affine(inputs: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    """Return ``[Q, B, S, V]`` from ``[Q or 1, B, S, U]``."""
    batch, positions = inputs.shape[1:3]
    outputs = torch.matmul(inputs.flatten(1, 2), weights[name]) + weights[f"{name}.bias"][:, None]
    return outputs.view(len(outputs), batch, positions, -1)


def _norm(inputs: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    normalised = layer_norm(inputs, inputs.shape[-1:])
    return normalised * weights[f"{name}.scale"][:, None, None] + weights[f"{name}.bias"][:, None, None]


def _attend(query: Tensor, key: Tensor, value: Tensor, heads: int, *, causal: bool = False) -> Tensor:
    count, batch = query.shape[:2]

    def split(tensor: Tensor) -> Tensor:
        """Return ``[Q * B, heads, S, W / heads]``."""
        return tensor.reshape(count * batch, tensor.shape[2], heads, -1).transpose(1, 2)

    attended = scaled_dot_product_attention(split(query), split(key), split(value), is_causal=causal)
    return attended.transpose(1, 2).reshape(query.shape)
