"""Built-in heads as torch modules.

Every head reads a normalised vector x ``[F]``. Heads of cells also read the coordinates r ``[2]`` of a cell (row and
column, -1 to 1). A number is treated as a single cell without coordinates.

* majority: reads nothing and always predicts the frequencies of the classes.
* position: reads no activation and predicts the frequencies of the classes in this cell.
* additive: ``W_a x + W_r r + b``. It has no interaction of activation and cell, so the activation shifts the scores of
  all cells equally. It cannot represent scattered walls, whatever the activations contain.
* percell, linear: ``W_c x + b_c`` with separate weights per cell, solved in closed form; the fair linear comparator.
* mlp: ``V relu(W_a x + W_r r + b) + v``. The first layer is computed once per activation and once per cell, and the
  results are added. The inputs for all pairs of activation and cell, 225 times the size of the activations, are never
  stored.
* decoder: the one-shot decoder of plans, which scores all positions at once.
* stepwise: the same decoder, which also receives the previous token at each position.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from goalscope._ground.checks import check_whole
from goalscope._ground.rng import stream
from goalscope.agents.models.decode import one_thread
from goalscope.inside.probing.heads import HeadSizes, Solution, Weights, coordinates
from goalscope.inside.probing.ridge import solve_classes, solve_numbers

_PER_LAYER = 3  # layer norms before self-attention, before cross-attention and before the perceptron


def zeros(*shape: int) -> nn.Parameter:
    """Create a weight of the given shape, filled with zeros until training initialises it."""
    return nn.Parameter(torch.zeros(shape))


class Decoder(nn.Module):
    """Transformer decoder that predicts an agent's plan (its next T moves) from its activations, all positions at once.

    The P vectors h of a site (its token positions) pass a shared bottleneck, ``LN(W h + b)``. T learned queries, one
    per position of the plan, pass a Transformer decoder (self-attention among the queries, cross-attention to the P
    vectors, two-layer perceptron, each after a LayerNorm and added), and one linear map gives the scores of the tokens
    of every position. All positions are scored at once, independently of the tokens chosen at other positions.

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
        """Return the scores of the decoder for inputs ``[B, F]``, as ``[B, T, K]``: steps, positions of the plan,
        tokens.
        """
        weights = {name.replace("/", "."): parameter[None] for name, parameter in self.named_parameters()}
        return self.stacked(weights, vectors[None])[0]

    def stacked(self, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        """Return the scores of Q decoders at once, ``[Q, B, T, K]``: decoders, steps, positions of the plan, tokens.

        ``weights`` are those of all decoders by name, ``[Q, ...]`` each, and ``vectors`` their inputs ``[Q or 1, B,
        F]``. This replaces `torch.func.vmap`, which has no batching rule for attention.
        """
        return self._scored(weights, vectors, weights["queries"][:, None].expand(-1, vectors.shape[1], -1, -1))

    def _scored(
        self, weights: Mapping[str, Tensor], vectors: Tensor, hidden: Tensor, *, causal: bool = False
    ) -> Tensor:
        """Compute the scores of Q heads for B steps from the initial vectors of T positions, ``[Q, B, T, V]``."""
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
        """Draw initial weights, by name, from normal distributions: standard deviation 1 / sqrt(inputs), and 1 for
        queries.

        Scales of layer norms are 1, biases 0. The draw depends on the seed and on the name of the probe.
        """
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
    """Autoregressive decoder that predicts an agent's plan (its next T moves), move by move, from its activations.

    The vector of the token at position t - 1, or a start vector, is added to the query of position t, and attention is
    causal. Training uses the true earlier tokens; decoding uses the likeliest tokens, position by position. Later
    positions can be predicted from earlier ones whatever the activations contain, so compare it with `Decoder`, which
    scores all positions at once, and with the same controls.

    Source: behavioural and representational evaluation, section 5.3 (why it was not used there), and the post.
    """

    def __init__(self, sizes: HeadSizes, layers: int, width: int, feedforward: int, heads: int) -> None:
        super().__init__(sizes, layers, width, feedforward, heads)
        self.tokens = zeros(sizes.classes + 1, width)  # the last embedding is the start vector

    def taught(self, weights: Mapping[str, Tensor], vectors: Tensor, values: Tensor) -> Tensor:
        """Return the scores of each token given the true earlier tokens, for training.

        Args:
            weights: the weights of Q decoders by name, ``[Q, ...]`` each.
            vectors: ``[Q or 1, B, F]`` inputs: decoders, steps, numbers.
            values: ``[Q, B, T]`` true tokens, -1 where unknown.

        Returns:
            ``[Q, B, T, K]`` scores: decoders, steps, positions of the plan, tokens.
        """
        begin = torch.full_like(values[:, :, :1], self.sizes.classes)
        earlier = values[:, :, :-1]
        inputs = torch.cat([begin, torch.where(earlier < 0, self.sizes.classes, earlier)], dim=2)
        return self._features(weights, vectors, inputs)

    def stacked(self, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        """Return the scores of each token given the likeliest earlier tokens, as ``[Q, B, T, K]``.

        The axes are decoders, steps, positions of the plan, tokens. ``weights`` are those of Q decoders by name, and
        ``vectors`` their inputs ``[Q or 1, B, F]``.
        """
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
    """Apply the affine layer ``name`` of Q heads to inputs ``[Q or 1, B, S, U]``; the result is ``[Q, B, S, V]``.

    B is the number of steps, S that of positions, U and V are the widths before and after the layer.
    """
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


_PIECE = {"cpu": 1 << 19, "cuda": 1 << 27}  # number of hidden units at a time, on a CPU as many as fit into its cache
_SLICE = 256  # number of hidden units whose gradients are computed together on a CPU

Part = TypeVar("Part")
HeldOut = npt.NDArray[np.bool_]


class _Majority(nn.Module):
    """Head with scores of 0, so that only the frequencies of the classes matter."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors.new_zeros(len(vectors), self.sizes.outputs, self.sizes.classes)

    def solve(self, vectors: Tensor, target: Any, penalties: Sequence[float], held_out: HeldOut) -> Solution:
        return Solution(weights={})


class _Position(nn.Module):
    """Head with a fixed table of scores, whatever the activations are."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.table = zeros(sizes.outputs, sizes.classes)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.table.expand(len(vectors), -1, -1)

    def solve(self, vectors: Tensor, target: Any, penalties: Sequence[float], held_out: HeldOut) -> Solution:
        """Compute the log frequency of each class in each cell minus its log frequency over all cells, ``[C, K]``.

        Grids have equal weight. Half a grid of each class's overall frequency is added to every cell, so that no class
        is impossible anywhere.
        """
        labels, prior, steps = target.values, target.prior, target.weights
        counts = np.stack([steps @ (labels == label) for label in range(len(prior))], axis=1)
        smooth = (counts + 0.5 * prior) / (steps.sum() + 0.5)
        ratio = np.divide(smooth, prior, out=np.ones_like(smooth), where=prior > 0)
        return Solution(weights={"table": np.log(ratio).astype(np.float32)})


class _Linear(nn.Module):
    """Linear head with separate weights per output, solved in closed form (`inside.probing.ridge`)."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.act = zeros(sizes.inputs, sizes.outputs * sizes.classes)
        self.bias = zeros(sizes.outputs * sizes.classes)

    def forward(self, vectors: Tensor) -> Tensor:
        return (vectors @ self.act + self.bias).view(-1, self.sizes.outputs, self.sizes.classes)

    def stacked(self, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        scores = torch.matmul(vectors, weights["act"]) + weights["bias"][:, None]
        return scores.view(*scores.shape[:2], self.sizes.outputs, self.sizes.classes)

    def solve(self, vectors: Tensor, target: Any, penalties: Sequence[float], held_out: HeldOut) -> Solution:
        solver = solve_numbers if self.sizes.classes == 1 else solve_classes
        return solver(vectors, target, penalties, held_out)


class _CellLayer(nn.Module):
    """Layer whose inputs are an activation x and the coordinates r of a cell, ``W_a x + W_r r + b``."""

    cells: Tensor

    def __init__(self, sizes: HeadSizes, width: int) -> None:
        super().__init__()
        self.sizes = sizes
        self.act, self.cell, self.bias = zeros(sizes.inputs, width), zeros(2, width), zeros(width)
        self.register_buffer("cells", torch.tensor(coordinates(math.isqrt(sizes.outputs))), persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the output for all pairs of an activation and a cell, ``[B, C, V]``."""
        return (vectors @ self.act)[:, None] + (self.cells @ self.cell + self.bias)

    def parts(self, weights: Mapping[str, Tensor], vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the parts of Q layers that depend on activations, ``[Q, B, V]``, and on cells, ``[Q, C, V]``."""
        of_cells = torch.matmul(self.cells, weights["cell"]) + weights["bias"][:, None]
        return torch.matmul(vectors, weights["act"]), of_cells


class _Additive(_CellLayer):
    """Head that is linear in activation and cell, without interaction, and trained as published to the last epoch."""

    early = False

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__(sizes, sizes.classes)

    def stacked(self, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        act, of_cells = self.parts(weights, vectors)
        return act[:, :, None] + of_cells[:, None]


class _Mlp(_CellLayer):
    """Head with one hidden layer, whose inputs are an activation and a cell."""

    def __init__(self, sizes: HeadSizes, hidden: int = 1024) -> None:
        super().__init__(sizes, hidden)
        self.out, self.out_bias = zeros(hidden, sizes.classes), zeros(sizes.classes)

    def forward(self, vectors: Tensor) -> Tensor:
        return super().forward(vectors).relu() @ self.out + self.out_bias

    def stacked(self, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        return perceptron(*self.parts(weights, vectors), weights["out"], weights["out_bias"])

    def initial(self, seed: int, name: str) -> Weights:
        """Draw initial weights: normal with standard deviation 1 / sqrt(inputs); the last bias is 0."""
        weights = {}
        for key, parameter in self.named_parameters():
            rng, shape = stream(seed, "probe weights", key), tuple(parameter.shape)
            # There are two coordinates and thousands of activations, so both parts start with the same weight.
            scale = {"act": 1 / math.sqrt(shape[0]), "cell": 1.0, "out": 1 / math.sqrt(shape[0])}.get(key, 0.0)
            normal = rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
            # Random biases spread the kinks of the hidden units over the frame.
            weights[key] = rng.uniform(-1, 1, shape).astype(np.float32) if key == "bias" else normal
        return weights

    def numbers(self, batch: int) -> int:
        """Return the number of hidden activations in a training step."""
        return batch * self.sizes.outputs * self.out.shape[0]


def perceptron(act: Tensor, placed: Tensor, out: Tensor, out_bias: Tensor) -> Tensor:
    """Compute the second layer of Q perceptrons for all pairs of an activation and a cell: ``relu(act + placed) out +
    out_bias``.

    The backward pass recomputes the hidden units instead of storing them. On a CPU, whole pieces are distributed over
    as many threads as PyTorch has, because splitting such short operations into threads would mostly cost waiting time.
    The number of threads does not change a single byte of the result.

    Args:
        act: ``[Q, B, H]`` the first layer's part from B activations, H hidden units each.
        placed: ``[Q, C, H]`` the first layer's part from the coordinates of C cells.
        out, out_bias: ``[Q, H, K]`` and ``[Q, K]`` weights of the second layer.

    Returns:
        ``[Q, B, C, K]`` scores: probes, activations, cells, classes.
    """
    summed: Tensor = _Pieces.apply(act, placed, out, out_bias)  # type: ignore[no-untyped-call]
    return summed


class _Pieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, act: Tensor, placed: Tensor, out: Tensor, out_bias: Tensor) -> Tensor:
        ctx.save_for_backward(act, placed, out)
        classes = out.shape[2]
        scores = act.new_empty((*act.shape[:2], placed.shape[1], classes))
        # Classes come first, because a matrix product with few columns is several times slower.
        out_t = out.mT.contiguous()

        def score(pieces: Sequence[tuple[int, slice]]) -> None:
            buffer = _buffer(act, placed)
            for probe, rows in pieces:
                hidden = _hidden(act[probe, rows], placed[probe], buffer)
                scores[probe, rows].view(-1, classes).copy_(torch.mm(out_t[probe], hidden.T).T)

        pieces = [(probe, rows) for probe in range(act.shape[0]) for rows in _pieces(act, placed)]
        pieces_per_thread = -(-len(pieces) // torch.get_num_threads())
        _run(
            score,
            [pieces[begin : begin + pieces_per_thread] for begin in range(0, len(pieces), pieces_per_thread)],
            act,
        )
        return scores.add_(out_bias[:, None, None])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        act, placed, out = ctx.saved_tensors
        grad = grads[0].contiguous()
        out_t = out.mT.contiguous()
        d_act, d_placed, d_out = torch.empty_like(act), torch.zeros_like(placed), torch.zeros_like(out_t)

        def differentiate(part: tuple[int, slice]) -> None:
            """Compute the gradients of a slice of hidden units, which do not depend on other slices."""
            probe, units = part
            act_slice, placed_slice, weights = act[probe, :, units], placed[probe, :, units], out_t[probe, :, units]
            to_placed, to_out = d_placed[probe, :, units], d_out[probe, :, units]
            buffer, slope = _buffer(act_slice, placed_slice), _buffer(act_slice, placed_slice)
            for rows in _pieces(act_slice, placed_slice):
                hidden = _hidden(act_slice[rows], placed_slice, buffer)
                piece_grad = grad[probe, rows].view(len(hidden), -1)
                to_out.addmm_(piece_grad.T, hidden)
                hidden_grad = slope.view(-1, hidden.shape[1])[: len(hidden)]
                torch.mm(piece_grad, weights, out=hidden_grad)
                # The derivative of relu is 0 for inactive units.
                torch.ops.aten.threshold_backward.grad_input(hidden_grad, hidden, 0, grad_input=hidden_grad)
                cells = hidden_grad.view(-1, *placed_slice.shape)
                d_act[probe, rows, units] = cells.sum(dim=1)
                to_placed.add_(cells[0] if len(cells) == 1 else cells.sum(dim=0))

        width = _SLICE if act.device.type == "cpu" else act.shape[2]
        slices = [slice(begin, begin + width) for begin in range(0, act.shape[2], width)]
        _run(differentiate, [(probe, units) for probe in range(act.shape[0]) for units in slices], act)
        return d_act, d_placed, d_out.mT, grad.sum(dim=(1, 2))


def _rows(act: Tensor, placed: Tensor) -> int:
    """Return how many of B activations ``[..., B, H]`` to process at a time with all C cells ``[..., C, H]``."""
    limit = _PIECE["cpu" if act.device.type == "cpu" else "cuda"]
    return max(1, min(act.shape[-2], limit // placed.shape[-2:].numel()))


def _pieces(act: Tensor, placed: Tensor) -> list[slice]:
    step = _rows(act, placed)
    return [slice(begin, min(begin + step, act.shape[-2])) for begin in range(0, act.shape[-2], step)]


def _buffer(act: Tensor, placed: Tensor) -> Tensor:
    return act.new_empty(_rows(act, placed), *placed.shape[-2:])


def _hidden(act: Tensor, placed: Tensor, buffer: Tensor) -> Tensor:
    """Compute H hidden units for b activations and C cells, ``[b * C, H]``, in a buffer for one call."""
    hidden = buffer[: len(act)]
    torch.add(act[:, None], placed, out=hidden)
    return torch.relu_(hidden).view(-1, hidden.shape[2])


def _run(job: Callable[[Part], None], parts: Sequence[Part], act: Tensor) -> None:
    """Run a job for each part, on a CPU in parallel with one thread each."""
    if act.device.type != "cpu" or len(parts) < 2 or torch.get_num_threads() == 1:
        for part in parts:
            job(part)
        return
    with one_thread() as threads:
        # The pool's threads use one thread each. They do not inherit the autograd mode of their caller: in inference
        # mode they can write to the tensors of both training and predicting callers.
        for _ in _pool(os.getpid(), threads).map(torch.inference_mode()(job), parts):
            pass


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the thread pool of one process.

    Each process needs its own pool, since a forked process has no threads of its parent.
    """
    return ThreadPoolExecutor(threads, "goalscope-pieces")


HEADS = {
    "majority": _Majority,
    "position": _Position,
    "additive": _Additive,
    "linear": _Linear,
    "percell": _Linear,
    "mlp": _Mlp,
    "decoder": Decoder,
    "stepwise": Stepwise,
}
"""The built-in heads by name."""
