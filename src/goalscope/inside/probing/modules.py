"""The built-in heads as modules; this file imports torch and is itself imported where it is used.

All of them see a normalised vector x ``[F]``, those of cells also a cell with coordinates r ``[2]`` (row and column, -1
to 1). A number is one cell without a place.

* majority: nothing; always the frequencies of the classes.
* position: the frequencies of the classes in this cell; no activation.
* additive: ``W_a x + W_r r + b``. It has no term of activation and cell together, so all cells shift alike with the
  activation: it cannot draw scattered walls regardless of the activations hold.
* percell, linear: ``W_c x + b_c``, weights for each cell, solved in closed form; the fair linear comparator.
* mlp: ``V relu(W_a x + W_r r + b) + v``. The first layer is computed once for each activation and once for each cell
  and added; the product of activations and cells, 225 times the size of the activations, is never made.
* decoder: the one-shot decoder of plans.
* stepwise: the same decoder, each place with the token before it.
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

from goalscope._ground.rng import stream
from goalscope.agents.models.threads import one_thread
from goalscope.inside.probing.decoders import Decoder, Stepwise, zeros
from goalscope.inside.probing.heads import HeadSizes, Solution, Weights, coordinates
from goalscope.inside.probing.ridge import solve_classes, solve_numbers

_PIECE = {"cpu": 1 << 19, "cuda": 1 << 27}  # hidden units at a time: on a processor as many as its cache holds
_SLICE = 256  # hidden units whose gradients are computed together on a processor

Part = TypeVar("Part")
HeldOut = npt.NDArray[np.bool_]


class _Majority(nn.Module):
    """Scores of 0: the frequencies of the classes decide alone."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors.new_zeros(len(vectors), self.sizes.outputs, self.sizes.classes)

    def solve(self, vectors: Tensor, target: Any, penalties: Sequence[float], held_out: HeldOut) -> Solution:
        return Solution(weights={})


class _Position(nn.Module):
    """The same table of scores regardless of the activations are."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.table = zeros(sizes.outputs, sizes.classes)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.table.expand(len(vectors), -1, -1)

    def solve(self, vectors: Tensor, target: Any, penalties: Sequence[float], held_out: HeldOut) -> Solution:
        """Return the log frequency of each class in each cell minus its log frequency in all, ``[C, K]``.

        Grids count alike. Half a grid of each class's overall frequency is added to every cell, so that no class is
        impossible anywhere.
        """
        labels, prior, steps = target.values, target.prior, target.weights
        counts = np.stack([steps @ (labels == label) for label in range(len(prior))], axis=1)
        smooth = (counts + 0.5 * prior) / (steps.sum() + 0.5)
        ratio = np.divide(smooth, prior, out=np.ones_like(smooth), where=prior > 0)
        return Solution(weights={"table": np.log(ratio).astype(np.float32)})


class _Linear(nn.Module):
    """Linear with weights for each output, in closed form with the best penalty: see `inside.probing.ridge`."""

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
    """A layer with an activation and a cell as inputs: ``W_a x + W_r r + b``."""

    cells: Tensor

    def __init__(self, sizes: HeadSizes, width: int) -> None:
        super().__init__()
        self.sizes = sizes
        self.act, self.cell, self.bias = zeros(sizes.inputs, width), zeros(2, width), zeros(width)
        self.register_buffer("cells", torch.tensor(coordinates(math.isqrt(sizes.outputs))), persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return it for all pairs of an activation and a cell, ``[B, C, V]``."""
        return (vectors @ self.act)[:, None] + (self.cells @ self.cell + self.bias)

    def parts(self, weights: Mapping[str, Tensor], vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return that of activations ``[Q, B, V]`` and that of cells ``[Q, C, V]`` of several at once."""
        of_cells = torch.matmul(self.cells, weights["cell"]) + weights["bias"][:, None]
        return torch.matmul(vectors, weights["act"]), of_cells


class _Additive(_CellLayer):
    """Linear in the activation and in the cell, without a term of both; trained as published, from 0 to the end."""

    early = False

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__(sizes, sizes.classes)

    def stacked(self, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        act, of_cells = self.parts(weights, vectors)
        return act[:, :, None] + of_cells[:, None]


class _Mlp(_CellLayer):
    """One hidden layer with an activation and a cell as inputs."""

    def __init__(self, sizes: HeadSizes, hidden: int = 1024) -> None:
        super().__init__(sizes, hidden)
        self.out, self.out_bias = zeros(hidden, sizes.classes), zeros(sizes.classes)

    def forward(self, vectors: Tensor) -> Tensor:
        return super().forward(vectors).relu() @ self.out + self.out_bias

    def stacked(self, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        return perceptron(*self.parts(weights, vectors), weights["out"], weights["out_bias"])

    def initial(self, seed: int, name: str) -> Weights:
        """Return random weights: normal with the standard deviation 1 / sqrt(inputs), the last bias 0."""
        weights = {}
        for key, parameter in self.named_parameters():
            rng, shape = stream(seed, "probe weights", key), tuple(parameter.shape)
            # Two coordinates stand beside thousands of activations: both parts begin with the same weight.
            scale = {"act": 1 / math.sqrt(shape[0]), "cell": 1.0, "out": 1 / math.sqrt(shape[0])}.get(key, 0.0)
            normal = rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
            # Biases spread the kinks of the hidden units over the frame.
            weights[key] = rng.uniform(-1, 1, shape).astype(np.float32) if key == "bias" else normal
        return weights

    def numbers(self, batch: int) -> int:
        """Return the number of hidden units of a step."""
        return batch * self.sizes.outputs * self.out.shape[0]


def perceptron(act: Tensor, placed: Tensor, out: Tensor, out_bias: Tensor) -> Tensor:
    """Return ``relu(act + placed) out + out_bias`` for all pairs of an activation and a cell, ``[Q, B, C, K]``.

    The first layer's parts of activations and cells are ``[Q, B, H]`` and ``[Q, C, H]``, the weights ``[Q, H, K]`` and
    ``[Q, K]``. Backwards the hidden units are computed once more instead of being kept. On a processor whole pieces go
    to as many threads as PyTorch has: operations this short, each cut into threads, would mostly wait for one another.
    The number of threads changes no byte.
    """
    summed: Tensor = _Pieces.apply(act, placed, out, out_bias)  # type: ignore[no-untyped-call]
    return summed


class _Pieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, act: Tensor, placed: Tensor, out: Tensor, out_bias: Tensor) -> Tensor:
        ctx.save_for_backward(act, placed, out)
        classes = out.shape[2]
        scores = act.new_empty((*act.shape[:2], placed.shape[1], classes))
        # Few classes come first: a matrix product is several times slower with them as columns.
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
            """Hidden units do not depend on one another: every slice of them has gradients of its own."""
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
                # The derivative of relu in one go: 0 if the unit is not active.
                torch.ops.aten.threshold_backward.grad_input(hidden_grad, hidden, 0, grad_input=hidden_grad)
                cells = hidden_grad.view(-1, *placed_slice.shape)
                d_act[probe, rows, units] = cells.sum(dim=1)
                to_placed.add_(cells[0] if len(cells) == 1 else cells.sum(dim=0))

        width = _SLICE if act.device.type == "cpu" else act.shape[2]
        slices = [slice(begin, begin + width) for begin in range(0, act.shape[2], width)]
        _run(differentiate, [(probe, units) for probe in range(act.shape[0]) for units in slices], act)
        return d_act, d_placed, d_out.mT, grad.sum(dim=(1, 2))


def _rows(act: Tensor, placed: Tensor) -> int:
    """Return how many activations ``[..., B, H]`` are computed together with all cells ``[..., C, H]``."""
    limit = _PIECE["cpu" if act.device.type == "cpu" else "cuda"]
    return max(1, min(act.shape[-2], limit // placed.shape[-2:].numel()))


def _pieces(act: Tensor, placed: Tensor) -> list[slice]:
    step = _rows(act, placed)
    return [slice(begin, min(begin + step, act.shape[-2])) for begin in range(0, act.shape[-2], step)]


def _buffer(act: Tensor, placed: Tensor) -> Tensor:
    return act.new_empty(_rows(act, placed), *placed.shape[-2:])


def _hidden(act: Tensor, placed: Tensor, buffer: Tensor) -> Tensor:
    """Return the hidden units of some activations, ``[b * C, H]``, in a buffer that the next piece overwrites."""
    hidden = buffer[: len(act)]
    torch.add(act[:, None], placed, out=hidden)
    return torch.relu_(hidden).view(-1, hidden.shape[2])


def _run(job: Callable[[Part], None], parts: Sequence[Part], act: Tensor) -> None:
    """Do a job for each part; on a processor side by side, one thread each."""
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
    """Return the threads of this process; a fork has none of its parent's."""
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
