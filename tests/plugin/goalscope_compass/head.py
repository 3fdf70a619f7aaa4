"""A probe that sees activations through a few directions alone."""

from typing import TYPE_CHECKING

from goalscope.inside.probing import HeadSizes, head

if TYPE_CHECKING:
    from torch import nn


@head("narrow")
def narrow(sizes: HeadSizes, directions: int = 4) -> "nn.Module":
    """Return scores that are linear in a few directions of the activation, which all cells share."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(sizes.inputs, directions, bias=False),
        nn.Linear(directions, sizes.outputs * sizes.classes),
        nn.Unflatten(-1, (sizes.outputs, sizes.classes)),
    )
