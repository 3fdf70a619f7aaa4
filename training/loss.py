"""What training minimises: the completion with its plans, and in the first steps what the first block must find out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from training.data import SIZES, Batch
from training.vocabulary import MOVES, SYMBOLS, cell_piece, cell_width, encode

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_HEADS = (("row", SIZES[-1]), ("column", SIZES[-1]), ("above", len(SYMBOLS)), ("left", len(SYMBOLS)))


def completion_loss(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the loss of what follows the prompt, and the part of it that the first moves of all plans make.

    Moves are trained on the uniform distribution over all optimal ones, everything else on the one right token.

    Args:
        logits: ``[B, R, V]`` at the wanted places of the batch's layout.
        batch: the batch.

    Returns:
        The weighted mean over places (nats), and the mean over the first moves (nats, without a gradient).
    """
    import torch

    weights = torch.from_numpy(batch.weights).to(logits.device)
    chosen = weights > 0
    picked = torch.log_softmax(logits[chosen].float(), dim=-1)
    spread = torch.from_numpy(batch.moves).to(logits.device)[chosen]
    moving = spread.sum(dim=-1) > 0
    labels = torch.from_numpy(batch.labels).to(logits.device)[chosen]
    plain = -picked.gather(1, labels[:, None])[:, 0]
    planned = -(spread * picked[:, encode(MOVES)]).sum(dim=-1)
    losses = torch.where(moving, planned, plain)
    kept = weights[chosen]
    firsts = moving & (kept >= 1)
    return (losses * kept).sum() / kept.sum(), losses[firsts].mean().detach()


def auxiliary_heads(width: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Return random parameters of the heads that `auxiliary_loss` uses."""
    import torch

    size = sum(wide for _, wide in _HEADS)
    weight = torch.empty(size, width).normal_(0.0, width**-0.5, generator=generator)
    return {"auxiliary.weight": weight.requires_grad_(), "auxiliary.bias": torch.zeros(size).requires_grad_()}


def auxiliary_loss(heads: Mapping[str, Tensor], stream: Tensor, batch: Batch) -> Tensor:
    """Return how badly the cells' places and their neighbours can be read from the stream after the first block.

    Args:
        heads: what `auxiliary_heads` returns.
        stream: ``[B, S, D]``.
        batch: the batch.

    Returns:
        The sum of the mean cross-entropies (nats) of row, column, and the symbols above and to the left.
    """
    import torch
    from torch.nn import functional

    cells = torch.from_numpy(batch.layout.cells).to(stream.device)
    size = round(len(cells) ** 0.5)
    found = functional.linear(stream[:, cells], heads["auxiliary.weight"], heads["auxiliary.bias"])
    tokens = torch.from_numpy(batch.tokens).to(stream.device)[:, cells].view(-1, size, size)
    # The cell tokens of one width are consecutive, and walls come first.
    kind = tokens - encode([cell_piece(SYMBOLS[0], cell_width(size))])[0]
    along = torch.arange(size, device=stream.device)
    labels = {
        "row": along[:, None].expand(kind.shape),
        "column": along.expand(kind.shape),
        "above": functional.pad(kind, (0, 0, 1, 0))[:, :-1],
        "left": functional.pad(kind, (1, 0))[:, :, :-1],
    }
    loss = stream.new_zeros(())
    begin = 0
    for name, wide in _HEADS:
        part = found[..., begin : begin + wide].flatten(0, 1).float()
        loss = loss + functional.cross_entropy(part, labels[name].flatten())
        begin += wide
    return loss
