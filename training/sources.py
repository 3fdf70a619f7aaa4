"""What a model is trained on: grids (Theseus) or task worlds (Ariadne), each with its vocabulary and its loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from training.data import Batch, Mixture, block
from training.evaluate import summary, table
from training.loss import auxiliary_heads, auxiliary_loss, completion_loss
from training.network import Parameters, Places, Shape
from training.task_data import TaskMixture, task_block
from training.task_evaluate import task_table
from training.task_loss import task_auxiliary_loss, task_heads, task_loss
from training.task_tree import TaskBatch
from training.task_vocabulary import vocabulary as task_vocabulary
from training.tokens import Vocabulary
from training.vocabulary import vocabulary

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Source(Protocol):
    """What training asks of its data; `Any` stands for the source's own batches."""

    depth: int
    """Number of blocks after which the auxiliary heads read the stream."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary."""
        ...

    def heads(self, width: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return random parameters of the auxiliary heads."""
        ...

    def places(self, batch: Any, device: str) -> tuple[Tensor, Places]:
        """Return tokens, and masks and places, on a device."""
        ...

    def loss(self, logits: Tensor, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the mean loss, and the mean of what matters most."""
        ...

    def auxiliary(self, heads: Mapping[str, Tensor], stream: Tensor, batch: Any) -> Tensor:
        """Return the auxiliary loss."""
        ...

    def evaluate(self, parameters: Parameters, shape: Shape, mixture: Any, worlds: int) -> Mapping[str, object]:
        """Return what held-out worlds say."""
        ...


class Grids:
    """Grids of all sizes and densities, see `training.data`."""

    depth = 1

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], Places] = {}

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of Theseus."""
        return vocabulary()

    def heads(self, width: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `auxiliary_heads`."""
        return auxiliary_heads(width, generator)

    def places(self, batch: Batch, device: str) -> tuple[Tensor, Places]:
        """Return tokens and places; those of one layout are kept."""
        import torch

        where = batch.layout
        kind = (len(where.cells), where.prompt)
        if kind not in self._places:
            self._places[kind] = Places.of(where.allowed, where.positions, where.wanted, device)
        return torch.from_numpy(batch.tokens).to(device), self._places[kind]

    def loss(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """See `completion_loss`."""
        return completion_loss(logits, batch)

    def auxiliary(self, heads: Mapping[str, Tensor], stream: Tensor, batch: Batch) -> Tensor:
        """See `auxiliary_loss`."""
        return auxiliary_loss(heads, stream, batch)

    def evaluate(self, parameters: Parameters, shape: Shape, mixture: Mixture, worlds: int) -> Mapping[str, object]:
        """Return the summary of the 30 cells, so many grids each."""
        return summary(table(parameters, shape, grids=worlds, goal=mixture.goal))


class Tasks:
    """Symbolic task worlds, see `training.task_data`."""

    depth = 4

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of Ariadne."""
        return task_vocabulary()

    def heads(self, width: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `task_heads`."""
        return task_heads(width, generator)

    def places(self, batch: TaskBatch, device: str) -> tuple[Tensor, Places]:
        """Return tokens and places; no two episodes have the same."""
        import torch

        return torch.from_numpy(batch.tokens).to(device), Places.packed(
            batch.allowed, batch.positions, batch.wanted, device
        )

    def loss(self, logits: Tensor, batch: TaskBatch) -> tuple[Tensor, Tensor]:
        """See `task_loss`."""
        return task_loss(logits, batch)

    def auxiliary(self, heads: Mapping[str, Tensor], stream: Tensor, batch: TaskBatch) -> Tensor:
        """See `task_auxiliary_loss`."""
        return task_auxiliary_loss(heads, stream, batch)

    def evaluate(self, parameters: Parameters, shape: Shape, mixture: TaskMixture, worlds: int) -> Mapping[str, object]:
        """See `task_table`."""
        return task_table(parameters, shape, mixture, worlds)


def source_of(mixture: Mixture | TaskMixture) -> Source:
    """Return the source of a mixture."""
    return Tasks() if isinstance(mixture, TaskMixture) else Grids()


def block_of(mixture: Mixture | TaskMixture, number: int) -> Sequence[Any]:
    """Return the batches of a block of steps; see `block` and `task_block`."""
    return task_block(mixture, number) if isinstance(mixture, TaskMixture) else block(mixture, number)
