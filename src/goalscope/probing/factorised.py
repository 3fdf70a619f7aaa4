"""The second half of the factorised perceptron, piece by piece: its hidden units are never all there at once.

This file imports torch and is itself imported where it is used.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from goalscope.activations.devices import one_thread

_PIECE = {"cpu": 1 << 19, "cuda": 1 << 27}  # hidden units at a time: on a processor as many as its cache holds
_SLICE = 256  # hidden units whose gradients are computed together on a processor

Part = TypeVar("Part")


def perceptron(act: Tensor, placed: Tensor, out: Tensor, out_bias: Tensor) -> Tensor:
    """Return ``relu(act + placed) out + out_bias`` for all pairs of an activation and a cell.

    On a processor whole pieces go to as many threads as PyTorch has: operations this short, each cut into threads,
    would mostly wait for one another. The number of threads changes no byte.

    Args:
        act: ``[Q, B, H]``, the activations' part of the first layer.
        placed: ``[Q, C, H]``, the cells' part.
        out: ``[Q, H, K]``.
        out_bias: ``[Q, K]``.

    Returns:
        ``[Q, B, C, K]``. Backwards the hidden units are computed once more in place of being kept.
    """
    found: Tensor = _Perceptron.apply(act, placed, out, out_bias)  # type: ignore[no-untyped-call]
    return found


class _Perceptron(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, act: Tensor, placed: Tensor, out: Tensor, out_bias: Tensor) -> Tensor:
        ctx.save_for_backward(act, placed, out)
        classes = out.shape[2]
        found = act.new_empty((*act.shape[:2], placed.shape[1], classes))
        # Few classes come first: a matrix product is several times slower with them as columns.
        turned = out.mT.contiguous()

        def score(pieces: Sequence[tuple[int, slice]]) -> None:
            buffer = _buffer(act, placed)
            for probe, rows in pieces:
                hidden = _hidden(act[probe, rows], placed[probe], buffer)
                found[probe, rows].view(-1, classes).copy_(torch.mm(turned[probe], hidden.T).T)

        pieces = [(probe, rows) for probe in range(act.shape[0]) for rows in _pieces(act, placed)]
        share = -(-len(pieces) // torch.get_num_threads())
        _run(score, [pieces[begin : begin + share] for begin in range(0, len(pieces), share)], act)
        return found.add_(out_bias[:, None, None])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        act, placed, out = ctx.saved_tensors
        grad = grads[0].contiguous()
        turned = out.mT.contiguous()
        d_act, d_placed, d_out = torch.empty_like(act), torch.zeros_like(placed), torch.zeros_like(turned)

        def differentiate(part: tuple[int, slice]) -> None:
            """Hidden units do not depend on one another: every slice of them has gradients of its own."""
            probe, units = part
            mine, there, weights = act[probe, :, units], placed[probe, :, units], turned[probe, :, units]
            to_placed, to_out = d_placed[probe, :, units], d_out[probe, :, units]
            buffer, slope = _buffer(mine, there), _buffer(mine, there)
            for rows in _pieces(mine, there):
                hidden = _hidden(mine[rows], there, buffer)
                own = grad[probe, rows].view(len(hidden), -1)
                to_out.addmm_(own.T, hidden)
                back = slope.view(-1, hidden.shape[1])[: len(hidden)]
                torch.mm(own, weights, out=back)
                # The derivative of relu in one go: 0 where the unit is not active.
                torch.ops.aten.threshold_backward.grad_input(back, hidden, 0, grad_input=back)
                cells = back.view(-1, *there.shape)
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
        # The threads of the pool take over the one thread. They know of no mode of their caller: that of inference
        # writes to the tensors of a caller that trains and to those of one that predicts.
        for _ in _pool(os.getpid(), threads).map(torch.inference_mode()(job), parts):
            pass


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a fork has none of its parent's."""
    return ThreadPoolExecutor(threads, "goalscope-pieces")
