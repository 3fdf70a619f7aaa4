"""What everything that is fitted to activations shares: its source, its weights, its id."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from goalscope.ident import content_id
from goalscope.rows import Tag
from goalscope.shapes import check_finite, freeze

_INPUTS: Final = ("centre", "spread")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What the inputs of a probe are; a probe takes inputs of its own source only.

    Attributes:
        site: where activations come from; "bag" and "text" for inputs that are none.
        layer: number of the decoder block, 0-based; -1 for inputs that are no activations.
        model: content id of the model; "" for inputs that are no activations.
        width: numbers an example, P positions * D for activations.
    """

    site: str
    layer: int
    model: str
    width: int

    def check_same(self, other: "Source") -> None:
        """Raise a ValueError unless the other source is the same."""
        for name in ("site", "layer", "model", "width"):
            own, given = getattr(self, name), getattr(other, name)
            if own != given:
                raise ValueError(
                    f"a probe must be given activations of the {name} that it was fitted on ({own!r}), got {given!r}: "
                    "fit another probe for them"
                )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """Weights that were fitted to inputs of one source.

    Attributes:
        source: what it reads; it refuses anything else.
        centre, spread: ``[F]`` float32, mean and standard deviation of each input in the training split; an input
            that does not vary there has the spread 0 and is not read.
        weights: name -> array, float32.
        tags: how it was made: control, settings, seed, ...
    """

    KIND: ClassVar[str]

    source: Source
    centre: npt.NDArray[np.float32]
    spread: npt.NDArray[np.float32]
    weights: Mapping[str, npt.NDArray[np.float32]]
    tags: Mapping[str, Tag] = field(default_factory=dict)

    def _accept(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Check and freeze the arrays.

        Args:
            shapes: name -> shape of each weight; ``weights`` has these names.

        Raises:
            ValueError: an array of another shape or type, one that is not finite, or a negative spread.
        """
        expected = {name: (self.weights[name], shape) for name, shape in shapes.items()}
        expected |= {name: (getattr(self, name), (self.source.width,)) for name in _INPUTS}
        for name, (array, shape) in expected.items():
            if array.shape != shape or array.dtype != np.float32:
                raise ValueError(f"{name} must be float32 {list(shape)}, got {array.dtype} {list(array.shape)}")
            check_finite(name, array)
        if (self.spread < 0).any():
            raise ValueError("spread must be >= 0 everywhere, got a negative one")
        tiny = (self.spread > 0) & (self.spread < np.finfo(np.float32).tiny)
        if tiny.any():  # its inverse is not finite
            raise ValueError(f"spread must be 0 or a normal number everywhere, got {self.spread[tiny][0]}")
        object.__setattr__(self, "weights", {name: freeze(self.weights[name]) for name in shapes})
        for name in _INPUTS:
            object.__setattr__(self, name, freeze(getattr(self, name)))

    @property
    def id(self) -> str:
        """Content id: what it is and all its numbers."""
        digest = hashlib.sha256()
        for name, array in sorted(self.arrays().items()):
            digest.update(f"{name} {array.dtype} {list(array.shape)}\n".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return content_id(self.KIND, {**self.describe(), "arrays": digest.hexdigest()})

    def describe(self) -> dict[str, Any]:
        """Return everything but the arrays as plain values."""
        return {**asdict(self.source), "tags": dict(self.tags)}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays by the names that a file has for them."""
        fixed: dict[str, npt.NDArray[Any]] = {name: getattr(self, name) for name in _INPUTS}
        return {**fixed, **{f"weights.{name}": array for name, array in self.weights.items()}}
