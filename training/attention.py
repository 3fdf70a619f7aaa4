"""Attention with a sink under any mask, in chunks of rows: masked products are skipped, and passes are few.

Torch is imported when it is first used. The derivative is written out and tested against automatic differentiation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_ROWS = 72  # rows of a chunk: its scores stay in the processor's cache, and half of the masked products are skipped


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of an attention that are computed together.

    Attributes:
        rows: first and last (excluded) row.
        free: columns before this one may be looked at by all of the rows.
        stop: columns from this one on may be looked at by none of them.
        mask: ``[rows, stop - free]`` what is added to the scores of the columns between.
        start: columns before this one belong to another sequence.
    """

    rows: tuple[int, int]
    free: int
    stop: int
    mask: Tensor
    start: int = 0


def chunks(allowed: Tensor, row: int = 0, column: int = 0, most: int = _ROWS) -> tuple[Chunk, ...]:
    """Cut a mask into chunks with the columns that matter.

    Args:
        allowed: ``[R, S]`` bool, True where a row may look at a column.
        row: number of the first row, where several sequences stand one behind the other.
        column: number of the first column.
        most: rows of a chunk.
    """
    import torch

    found = []
    for begin in range(0, len(allowed), most):
        part = allowed[begin : begin + most]
        stop = int(part.any(dim=0).nonzero().max()) + 1
        blocked = (~part.all(dim=0)).nonzero()
        free = min(stop, int(blocked.min()) if len(blocked) else stop)
        between = part[:, free:stop]
        mask = torch.zeros(between.shape, device=between.device).masked_fill(~between, float("-inf"))
        rows = (row + begin, row + begin + len(part))
        found.append(Chunk(rows, column + free, column + stop, mask, column))
    return tuple(found)


@cache
def attend() -> Any:
    """Return softmax attention whose weights also share with a learned sink that has no value.

    It takes query ``[B, K, G, R, D]`` (scaled), key and value ``[B, K, S, D]``, sinks ``[K, G]`` and the chunks of its
    mask, and returns ``[B, K, G, R, D]``.
    """
    import torch

    class SinkAttention(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, query: Tensor, key: Tensor, value: Tensor, sinks: Tensor, plan: tuple[Chunk, ...]
        ) -> Tensor:
            batch, heads, groups, _, width = query.shape
            output = torch.empty_like(query)
            kept = []
            for chunk in plan:
                begin, end = chunk.rows
                size = groups * (end - begin)
                part = query[:, :, :, begin:end].reshape(batch, heads, size, width)
                seen, wide = slice(chunk.start, chunk.stop), chunk.stop - chunk.start
                flat = query.new_empty(batch, heads, size, wide + 1)
                scores = flat.view(batch, heads, groups, end - begin, wide + 1)
                flat[..., :wide] = torch.matmul(part, key[:, :, seen].transpose(2, 3))
                scores[..., wide] = sinks[:, :, None]
                if chunk.free < chunk.stop:
                    scores[..., chunk.free - chunk.start : wide] += chunk.mask.to(scores.dtype)
                weights = torch.softmax(flat, dim=-1)
                mixed = torch.matmul(weights[..., :wide], value[:, :, seen])
                output[:, :, :, begin:end] = mixed.view(batch, heads, groups, end - begin, width)
                kept.append(weights)
            ctx.save_for_backward(query, key, value, *kept)
            ctx.plan = plan
            return output

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
            query, key, value, *kept = ctx.saved_tensors
            batch, heads, groups, _, width = query.shape
            change = gradients[0]
            of_query, of_key, of_value = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
            of_sinks = query.new_zeros(heads, groups)
            for chunk, weights in zip(ctx.plan, kept, strict=True):
                begin, end = chunk.rows
                size = groups * (end - begin)
                part = query[:, :, :, begin:end].reshape(batch, heads, size, width)
                output = change[:, :, :, begin:end].reshape(batch, heads, size, width)
                seen, wide = slice(chunk.start, chunk.stop), chunk.stop - chunk.start
                of_value[:, :, seen] += torch.matmul(weights[..., :wide].transpose(2, 3), output)
                of_weights = torch.empty_like(weights)
                of_weights[..., wide] = 0
                of_weights[..., :wide] = torch.matmul(output, value[:, :, seen].transpose(2, 3))
                of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
                direct = of_scores[..., :wide]
                of_query[:, :, :, begin:end] = torch.matmul(direct, key[:, :, seen]).view(
                    batch, heads, groups, end - begin, width
                )
                of_key[:, :, seen] += torch.matmul(direct.transpose(2, 3), part)
                of_sinks += of_scores[..., wide].view(batch, heads, groups, -1).sum(dim=(0, 3))
            return of_query, of_key, of_value, of_sinks, None

    return SinkAttention.apply
