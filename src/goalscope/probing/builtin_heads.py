"""The built-in heads by name; importing this registers them, torch is imported where a module is built."""

from typing import TYPE_CHECKING

from goalscope.probing.heads import HeadSizes, head

if TYPE_CHECKING:
    from torch.nn import Module


@head("majority", targets=("cells",))
def _majority(sizes: HeadSizes) -> "Module":
    from goalscope.probing.modules import Majority

    return Majority(sizes)


@head("position", targets=("cells",))
def _position(sizes: HeadSizes) -> "Module":
    from goalscope.probing.modules import Position

    return Position(sizes)


@head("additive", targets=("cells",))
def _additive(sizes: HeadSizes) -> "Module":
    from goalscope.probing.modules import Additive

    return Additive(sizes)


@head("percell", targets=("cells",))
@head("linear", targets=("distance",))
def _linear(sizes: HeadSizes) -> "Module":
    from goalscope.probing.modules import Linear

    return Linear(sizes)


@head("mlp", settings_of=lambda weights: {"d_hidden": weights["bias"].size if "bias" in weights else 0})
def _mlp(sizes: HeadSizes, d_hidden: int = 1024) -> "Module":
    from goalscope.probing.modules import Perceptron

    return Perceptron(sizes, d_hidden)


@head("ridge", targets=("distance",))
def _ridge(sizes: HeadSizes) -> "Module":
    from goalscope.probing.modules import Ridge

    return Ridge(sizes)


@head("decoder", targets=("plan",))
def _decoder(sizes: HeadSizes, layers: int = 2, d_model: int = 1024, d_hidden: int = 2048, heads: int = 8) -> "Module":
    from goalscope.probing.modules import PlanDecoderModule

    if isinstance(layers, bool) or not isinstance(layers, int) or layers < 1:
        raise ValueError(f"layers of a decoder must be a whole number >= 1, got {layers!r}")
    return PlanDecoderModule(sizes, layers, d_model, d_hidden, heads)
