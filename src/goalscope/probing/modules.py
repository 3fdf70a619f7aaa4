"""The built-in heads as modules; this file imports torch and is itself imported where it is used.

All of them see a normalised vector x ``[F]``, those of cells also a cell with coordinates r ``[2]`` (row and column, -1
to 1). A number is one cell without a place.

* `Majority`: nothing; always the frequencies of the classes.
* `Position`: the frequencies of the classes in this cell; no activation.
* `Additive`: ``W_a x + W_r r + b``. It has no term of activation and cell together, so all cells shift alike with the
  activation: it cannot draw scattered walls whatever the activations hold.
* `Linear`: ``W_c x + b_c``, weights for each cell; the fair linear comparator.
* `Perceptron`: ``V relu(W_a x + W_r r + b) + v``. The first layer is computed once for each activation and once for
  each cell and added; the product of activations and cells, 225 times the size of the activations, is never made.
* `Ridge`: `Linear` as the solution of a penalised least-squares problem.
* `PlanDecoderModule`: the one-shot decoder of plans.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from goalscope.probing.factorised import perceptron
from goalscope.probing.heads import HeadSizes, Weights, coordinates
from goalscope.rng import stream

_PER_LAYER = 3  # norms: before self-attention, before cross-attention, before the perceptron


def _zeros(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape))


class Majority(nn.Module):
    """Scores of 0: the frequencies of the classes decide alone."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the scores."""
        return vectors.new_zeros(len(vectors), self.sizes.outputs, self.sizes.classes)

    def solve(self, vectors: npt.NDArray[np.float32], target: Any, penalty: float) -> Weights:
        """Return no weights."""
        return {}


class Position(nn.Module):
    """The same table of scores whatever the activations are."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.table = _zeros(sizes.outputs, sizes.classes)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the scores."""
        return self.table.expand(len(vectors), -1, -1)

    def solve(self, vectors: npt.NDArray[np.float32], target: Any, penalty: float) -> Weights:
        """Return the log frequency of each class in each cell less its log frequency in all, ``[C, K]``.

        Half a step of each class's overall frequency is added to every cell, so that no class is impossible anywhere.
        """
        labels, prior = target.values, target.prior
        counts = np.stack([(labels == one).sum(axis=0) for one in range(len(prior))], axis=1)
        smooth = (counts + 0.5 * prior) / (len(labels) + 0.5)
        ratio = np.divide(smooth, prior, out=np.ones_like(smooth), where=prior > 0)
        return {"table": np.log(ratio).astype(np.float32)}


class Linear(nn.Module):
    """Linear with weights for each output; training begins at 0."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.act = _zeros(sizes.inputs, sizes.outputs * sizes.classes)
        self.bias = _zeros(sizes.outputs * sizes.classes)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the scores."""
        return (vectors @ self.act + self.bias).view(-1, self.sizes.outputs, self.sizes.classes)

    def stacked(self, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        """Return the scores of several at once."""
        found = torch.matmul(vectors, weights["act"]) + weights["bias"][:, None]
        return found.view(*found.shape[:2], self.sizes.outputs, self.sizes.classes)


class Ridge(Linear):
    """Linear, by least squares with a penalty on the squared weights."""

    def solve(self, vectors: npt.NDArray[np.float32], target: Any, penalty: float) -> Weights:
        """Return the minimum of ``mean (y - x W - b)^2 + penalty |W|^2``, ``b`` without penalty.

        With ``X`` centred: ``W = (X'X + penalty N I)^-1 X'y``, for more inputs than steps in its dual form
        ``W = X'(XX' + penalty N I)^-1 y``.

        Source: Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, section 3.4.1 and exercise 12.3.
        """
        given, wanted = vectors.astype(np.float64), target.scaled.reshape(len(vectors), -1)
        centre, level = given.mean(axis=0), wanted.mean(axis=0)
        given, wanted = given - centre, wanted - level
        count, inputs = given.shape
        # A little above 0, so that inputs which do not vary or repeat one another have a solution.
        ridge = max(penalty, 1e-9) * count
        if inputs <= count:
            act = np.linalg.solve(given.T @ given + ridge * np.eye(inputs), given.T @ wanted)
        else:
            act = given.T @ np.linalg.solve(given @ given.T + ridge * np.eye(count), wanted)
        return {"act": act.astype(np.float32), "bias": (level - centre @ act).astype(np.float32)}


class Additive(nn.Module):
    """Linear in the activation and in the place, without a term of both; training begins at 0."""

    cells: Tensor

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.act, self.cell = _zeros(sizes.inputs, sizes.classes), _zeros(2, sizes.classes)
        self.bias = _zeros(sizes.classes)
        self.register_buffer("cells", torch.tensor(coordinates(math.isqrt(sizes.outputs))), persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the scores."""
        return (vectors @ self.act)[:, None] + (self.cells @ self.cell + self.bias)

    def stacked(self, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        """Return the scores of several at once."""
        placed = torch.matmul(self.cells, weights["cell"]) + weights["bias"][:, None]  # [Q, C, K]
        return torch.matmul(vectors, weights["act"])[:, :, None] + placed[:, None]


class Perceptron(nn.Module):
    """One hidden layer that sees an activation and a place."""

    cells: Tensor

    def __init__(self, sizes: HeadSizes, d_hidden: int) -> None:
        super().__init__()
        self.sizes, self.d_hidden = sizes, d_hidden
        self.act, self.cell, self.bias = _zeros(sizes.inputs, d_hidden), _zeros(2, d_hidden), _zeros(d_hidden)
        self.out, self.out_bias = _zeros(d_hidden, sizes.classes), _zeros(sizes.classes)
        self.register_buffer("cells", torch.tensor(coordinates(math.isqrt(sizes.outputs))), persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the scores, all hidden units at once."""
        hidden = ((vectors @ self.act)[:, None] + (self.cells @ self.cell + self.bias)).relu()
        return hidden @ self.out + self.out_bias

    def stacked(self, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        """Return the scores of several at once, the hidden units piece by piece."""
        placed = torch.matmul(self.cells, weights["cell"]) + weights["bias"][:, None]  # [Q, C, H]
        return perceptron(torch.matmul(vectors, weights["act"]), placed, weights["out"], weights["out_bias"])

    def initial(self, seed: int, name: str) -> Weights:
        """Return random weights: normal with the standard deviation 1 / sqrt(inputs), the last bias 0."""
        found = {}
        for key, one in self.named_parameters():
            rng, shape = stream(seed, "probe weights", key), tuple(one.shape)
            # Two coordinates stand beside thousands of activations: both parts begin with the same weight.
            scale = {"act": 1 / math.sqrt(shape[0]), "cell": 1.0, "out": 1 / math.sqrt(shape[0])}.get(key, 0.0)
            drawn = rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
            # Biases spread the kinks of the hidden units over the frame.
            found[key] = rng.uniform(-1, 1, shape).astype(np.float32) if key == "bias" else drawn
        return found

    def numbers(self, batch: int) -> int:
        """Return the number of hidden units of a step."""
        return batch * self.sizes.outputs * self.d_hidden


class PlanDecoderModule(nn.Module):
    """The one-shot decoder of plans.

    The P vectors h of a site pass one shared bottleneck, ``LN(W h + b)``. T learned queries, one a place of the plan,
    pass a Transformer decoder (self-attention among the queries, cross-attention to the P vectors, two-layer
    perceptron, each after a LayerNorm and added), and one linear map gives the scores of the tokens of every place. All
    places are scored at once: none sees what was said at another.

    Source: behavioural and representational evaluation, section 5.3; Vaswani et al. 2017, Xiong et al. 2020 (norm
    first).
    """

    def __init__(self, sizes: HeadSizes, layers: int, d_model: int, d_hidden: int, heads: int) -> None:
        super().__init__()
        self.sizes, self.cost, self._heads = sizes, layers, heads
        shapes: dict[str, tuple[int, ...]] = {"in": (sizes.width, d_model), "in.bias": (d_model,)}
        shapes["queries"] = (sizes.outputs, d_model)
        norms = ["in.norm", "norm"]
        for layer in range(layers):
            for name, wide in (("self", 3), ("cross.q", 1), ("cross.kv", 2)):
                shapes |= {f"{layer}.{name}": (d_model, wide * d_model), f"{layer}.{name}.bias": (wide * d_model,)}
            for name in ("self.out", "cross.out"):
                shapes |= {f"{layer}.{name}": (d_model, d_model), f"{layer}.{name}.bias": (d_model,)}
            shapes |= {f"{layer}.up": (d_model, d_hidden), f"{layer}.up.bias": (d_hidden,)}
            shapes |= {f"{layer}.down": (d_hidden, d_model), f"{layer}.down.bias": (d_model,)}
            norms += [f"{layer}.norm{number}" for number in range(_PER_LAYER)]
        for name in norms:
            shapes |= {f"{name}.scale": (d_model,), f"{name}.bias": (d_model,)}
        for name, shape in (shapes | {"out": (d_model, sizes.classes), "out.bias": (sizes.classes,)}).items():
            self.register_parameter(name.replace(".", "/"), _zeros(*shape))  # torch allows no dot in a name

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the scores of the tokens of all places."""
        own = {name.replace("/", "."): one[None] for name, one in self.named_parameters()}
        return self.stacked(own, vectors[None])[0]

    def stacked(self, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        """Return the scores of several at once; attention has no rule of its own in `torch.func.vmap`."""
        given = vectors.view(*vectors.shape[:2], self.sizes.positions, self.sizes.width)
        memory = _norm(_affine(given, weights, "in"), weights, "in.norm")
        found = weights["queries"][:, None].expand(-1, memory.shape[1], -1, -1)
        for layer in range(self.cost):
            given = _norm(found, weights, f"{layer}.norm0")
            query, key, value = _affine(given, weights, f"{layer}.self").chunk(3, dim=-1)
            found = found + _affine(_attend(query, key, value, self._heads), weights, f"{layer}.self.out")
            query = _affine(_norm(found, weights, f"{layer}.norm1"), weights, f"{layer}.cross.q")
            key, value = _affine(memory, weights, f"{layer}.cross.kv").chunk(2, dim=-1)
            found = found + _affine(_attend(query, key, value, self._heads), weights, f"{layer}.cross.out")
            given = _affine(_norm(found, weights, f"{layer}.norm2"), weights, f"{layer}.up").relu()
            found = found + _affine(given, weights, f"{layer}.down")
        return _affine(_norm(found, weights, "norm"), weights, "out")

    def initial(self, seed: int, name: str) -> Weights:
        """Return random weights: normal with the standard deviation 1 / sqrt(inputs), 1 for queries; scales 1."""
        found = {}
        for own, one in self.named_parameters():
            key, shape = own.replace("/", "."), tuple(one.shape)
            if len(shape) == 1:
                found[key] = np.full(shape, 1.0 if key.endswith(".scale") else 0.0, dtype=np.float32)
                continue
            std = 1.0 if key == "queries" else 1 / math.sqrt(shape[0])
            drawn = stream(seed, "plan weights", name, key).standard_normal(shape, dtype=np.float32)
            found[key] = drawn * np.float32(std)
        return found


def _affine(given: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    """Return ``[Q, B, S, V]`` from ``[Q or 1, B, S, U]``."""
    batch, places = given.shape[1:3]
    found = torch.matmul(given.flatten(1, 2), weights[name]) + weights[f"{name}.bias"][:, None]
    return found.view(len(found), batch, places, -1)


def _norm(given: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    plain = layer_norm(given, given.shape[-1:])
    return plain * weights[f"{name}.scale"][:, None, None] + weights[f"{name}.bias"][:, None, None]


def _attend(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    count, batch = query.shape[:2]

    def split(one: Tensor) -> Tensor:
        """Return ``[Q * B, heads, S, W / heads]``."""
        return one.reshape(count * batch, one.shape[2], heads, -1).transpose(1, 2)

    found = scaled_dot_product_attention(split(query), split(key), split(value))
    return found.transpose(1, 2).reshape(query.shape)
