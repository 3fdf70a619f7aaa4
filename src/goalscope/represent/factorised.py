"""The second half of the factorised perceptron, piece by piece: its hidden units are never all there at once.

This file imports torch and is itself imported where it is used.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_PIECE = {"cpu": 1 << 18, "cuda": 1 << 27}  # hidden units at a time: on a processor as many as its cache holds


def perceptron(act: Tensor, placed: Tensor, out: Tensor, out_bias: Tensor) -> Tensor:
    """Return ``relu(act + placed) out + out_bias`` for all pairs of an activation and a cell.

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
        for probe, rows, hidden in _pieces(act, placed):
            found[probe, rows].view(-1, classes).copy_(torch.mm(turned[probe], hidden.T).T)
        return found.add_(out_bias[:, None, None])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        act, placed, out = ctx.saved_tensors
        grad = grads[0].contiguous()
        turned = out.mT.contiguous()
        d_act, d_placed, d_out = torch.empty_like(act), torch.zeros_like(placed), torch.zeros_like(turned)
        buffer = act.new_empty(_rows(act, placed) * placed.shape[1], act.shape[2])
        for probe, rows, hidden in _pieces(act, placed):
            own = grad[probe, rows].view(len(hidden), -1)
            d_out[probe].addmm_(own.T, hidden)
            back = buffer[: len(hidden)]
            torch.mm(own, turned[probe], out=back)
            # The derivative of relu in one go: 0 where the unit is not active.
            torch.ops.aten.threshold_backward.grad_input(back, hidden, 0, grad_input=back)
            cells = back.view(-1, placed.shape[1], act.shape[2])
            torch.sum(cells, dim=1, out=d_act[probe, rows])
            if len(cells) == 1:
                d_placed[probe].add_(cells[0])
            else:
                d_placed[probe].add_(cells.sum(dim=0))
        return d_act, d_placed, d_out.mT, grad.sum(dim=(1, 2))


def _rows(act: Tensor, placed: Tensor) -> int:
    limit = _PIECE["cpu" if act.device.type == "cpu" else "cuda"]
    return max(1, min(act.shape[1], limit // (placed.shape[1] * act.shape[2])))


def _pieces(act: Tensor, placed: Tensor) -> Iterator[tuple[int, slice, Tensor]]:
    """Return probe, activations and their hidden units ``[b * C, H]``, in a buffer that the next piece overwrites."""
    step, width = _rows(act, placed), act.shape[2]
    buffer = act.new_empty(step, placed.shape[1], width)
    for probe in range(act.shape[0]):
        for begin in range(0, act.shape[1], step):
            rows = slice(begin, min(begin + step, act.shape[1]))
            hidden = buffer[: rows.stop - rows.start]
            torch.add(act[probe, rows, None], placed[probe], out=hidden)
            yield probe, rows, torch.relu_(hidden).view(-1, width)
