"""Muon for the matrices and AdamW for everything else, with a state that fits into a small checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

MOMENTUM, BETAS, EPSILON = 0.95, (0.9, 0.98), 1e-8


def is_matrix(name: str) -> bool:
    """Return whether Muon updates this parameter: projections and experts, not embeddings, router, biases, norms."""
    return name.endswith(("_proj.weight", "experts.gate_up_proj", "experts.down_proj"))


class Optimiser:
    """Updates parameters from their gradients.

    Args:
        parameters: by name.
        matrix_rate: learning rate of Muon, 1 being an orthogonal matrix a step.
        rate: learning rate of AdamW.
        decay: weight decay of both, times the learning rate.
    """

    def __init__(self, parameters: Mapping[str, Tensor], *, matrix_rate: float, rate: float, decay: float) -> None:
        import torch

        self.parameters = dict(parameters)
        self.matrix_rate, self.rate, self.decay = matrix_rate, rate, decay
        self.steps = 0
        self.state: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            self.state[f"{name}:first"] = torch.zeros_like(parameter)
            if not is_matrix(name):
                self.state[f"{name}:second"] = torch.zeros_like(parameter)

    def step(self, scale: float) -> None:
        """Make one update with the learning rates times `scale`, and clear the gradients."""
        import torch

        self.steps += 1
        with torch.no_grad():
            self._update(scale)

    def _update(self, scale: float) -> None:
        for name, parameter in self.parameters.items():
            gradient = parameter.grad
            if gradient is None:
                continue
            first = self.state[f"{name}:first"]
            if is_matrix(name):
                first.lerp_(gradient, 1 - MOMENTUM)
                rate = scale * self.matrix_rate
                change = orthogonal(gradient.lerp(first, MOMENTUM))
                rate *= max(1.0, parameter.shape[-2] / parameter.shape[-1]) ** 0.5
            else:
                second = self.state[f"{name}:second"]
                first.lerp_(gradient, 1 - BETAS[0])
                second.lerp_(gradient.square(), 1 - BETAS[1])
                rate = scale * self.rate
                spread = (second / (1 - BETAS[1] ** self.steps)).sqrt_().add_(EPSILON)
                change = first / (1 - BETAS[0] ** self.steps) / spread
            if parameter.dim() > 1:
                parameter.mul_(1 - rate * self.decay)
            parameter.add_(change, alpha=-rate)
            parameter.grad = None


def orthogonal(matrix: Tensor, rounds: int = 5) -> Tensor:
    """Return a nearly orthogonal matrix with the singular directions of ``[..., rows, columns]``.

    Source: Jordan et al. 2024, Muon: Newton-Schulz iteration of the fifth order.
    """
    wide = matrix.shape[-2] <= matrix.shape[-1]
    found = matrix if wide else matrix.mT
    found = found / (found.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(rounds):
        square = found @ found.mT
        found = 3.4445 * found + (-4.7750 * square + 2.0315 * square @ square) @ found
    result: Tensor = found if wide else found.mT
    return result
