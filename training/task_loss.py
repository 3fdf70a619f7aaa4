"""What training on task worlds minimises: traces and answers, and what each observation means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from training.task_tree import FIRST_CELL, SIDE, TaskBatch
from training.task_vocabulary import STEPS, vocabulary

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_BESIDE, _WAYS = 4 * 3, 2 * 4


def task_loss(logits: Tensor, batch: TaskBatch) -> tuple[Tensor, Tensor]:
    """Return the loss of what follows the questions of a sequence, and the part of the own moves.

    A move is trained on the uniform distribution over the good ones, a target on the sum of the probabilities of all
    nearest ones, everything else on the one right token.

    Args:
        logits: ``[1, R, V]`` at the wanted places.
        batch: the sequence.

    Returns:
        The weighted mean over places (nats), and the mean over moves from the agent's own cell (without a gradient).
    """
    import torch

    device = logits.device
    picked = torch.log_softmax(logits[0].float(), dim=-1)
    losses = -picked.gather(1, torch.from_numpy(batch.labels).to(device)[:, None])[:, 0]
    spread = torch.from_numpy(batch.moves).to(device)
    moving = spread.sum(dim=-1) > 0
    planned = -(spread * picked[:, vocabulary().encode(STEPS)]).sum(dim=-1)
    right = torch.from_numpy(batch.targets).to(device)
    aiming = right.any(dim=-1)
    cells = picked[:, FIRST_CELL : FIRST_CELL + SIDE * SIDE]
    # Rows without a target keep finite values here: their gradient must be zero and not undefined.
    aimed = -torch.logsumexp(cells.masked_fill(~(right | ~aiming[:, None]), float("-inf")), dim=-1)
    losses = torch.where(moving, planned, torch.where(aiming, aimed, losses))
    weights = torch.from_numpy(batch.weights).to(device)
    own = moving & torch.from_numpy(batch.own).to(device)
    return (losses * weights).sum() / weights.sum(), losses[own].mean().detach()


def task_heads(width: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Return random parameters of the heads that `task_auxiliary_loss` uses."""
    import torch

    weight = torch.empty(_BESIDE + _WAYS, width).normal_(0.0, width**-0.5, generator=generator)
    bias = torch.zeros(_BESIDE + _WAYS)
    return {"auxiliary.weight": weight.requires_grad_(), "auxiliary.bias": bias.requires_grad_()}


def task_auxiliary_loss(heads: Mapping[str, Tensor], stream: Tensor, batch: TaskBatch) -> Tensor:
    """Return how badly the meaning of each observation can be read from the stream at its last token.

    Args:
        heads: what `task_heads` returns.
        stream: ``[1, S, D]``.
        batch: the sequence.

    Returns:
        The sum of the mean cross-entropies (nats) of what lies beside the cell and of the moves of both teachers.
    """
    import torch
    from torch.nn import functional

    places = torch.from_numpy(batch.turns).to(stream.device)
    found = functional.linear(stream[0, places], heads["auxiliary.weight"], heads["auxiliary.bias"]).float()
    beside = torch.from_numpy(batch.beside).to(stream.device).flatten()
    ways = torch.from_numpy(batch.ways).to(stream.device)
    told = functional.cross_entropy(found[:, :_BESIDE].reshape(-1, 3), beside)
    taught = torch.log_softmax(found[:, _BESIDE:].view(-1, 2, 4), dim=-1)
    return told - (ways * taught).sum(dim=-1).mean()
