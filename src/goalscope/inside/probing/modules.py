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
* decoder: the one-shot decoder of plans.
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

from goalscope._ground.rng import stream
from goalscope.agents.models.threads import one_thread
from goalscope.inside.probing.decoders import Decoder, Stepwise, zeros
from goalscope.inside.probing.heads import HeadSizes, Solution, Weights, coordinates
from goalscope.inside.probing.ridge import solve_classes, solve_numbers

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
    """Layer with an activation and a cell as inputs, ``W_a x + W_r r + b``."""

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
    """Head with one hidden layer and an activation and a cell as inputs."""

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
    """Return ``relu(act + placed) out + out_bias`` for all pairs of an activation and a cell, ``[Q, B, C, K]``.

    The first layer's parts of activations and cells are ``[Q, B, H]`` and ``[Q, C, H]``, the weights ``[Q, H, K]`` and
    ``[Q, K]``. The backward pass recomputes the hidden units instead of storing them. On a CPU, whole pieces are
    distributed over as many threads as PyTorch has, because splitting such short operations into threads would mostly
    cost waiting time. The number of threads does not change a single byte of the result.
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
    """Return the number of activations ``[..., B, H]`` to process together with all cells ``[..., C, H]``."""
    limit = _PIECE["cpu" if act.device.type == "cpu" else "cuda"]
    return max(1, min(act.shape[-2], limit // placed.shape[-2:].numel()))


def _pieces(act: Tensor, placed: Tensor) -> list[slice]:
    step = _rows(act, placed)
    return [slice(begin, min(begin + step, act.shape[-2])) for begin in range(0, act.shape[-2], step)]


def _buffer(act: Tensor, placed: Tensor) -> Tensor:
    return act.new_empty(_rows(act, placed), *placed.shape[-2:])


def _hidden(act: Tensor, placed: Tensor, buffer: Tensor) -> Tensor:
    """Compute the hidden units of some activations, ``[b * C, H]``, in a buffer that the next piece overwrites."""
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
    """Return the thread pool of this process, because a forked process does not inherit its parent's threads."""
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
