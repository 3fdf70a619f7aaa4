"""What everything that is fitted to activations shares: its source, its weights, its id."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, freeze
from goalscope.ids import content_id
from goalscope.probing.probe_file import Arrays, Form, read_file, write_file
from goalscope.rows import Tag

_INPUTS: Final = ("centre", "spread")

Target = Literal["cells", "distance", "plan"]
"""What a probe predicts: the classes of all cells, the optimal path length, the actions that follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeKey:
    """Which probe it is among those of one set of steps.

    Attributes:
        head: its form, see `goalscope.probing.heads`; "decoder-LAYERS" for a plan.
        target: what it predicts.
        control: "none" for the probe itself, see `goalscope.probing.controls`.
        seed: root seed of its fit.
        site, layer: where its inputs come from; None where it reads no activations.
        scope: the grids that it is for, "general" or a shape such as "7x7".
    """

    head: str
    target: Target
    control: str = "none"
    seed: int = 0
    site: str | None = None
    layer: int | None = None
    scope: str = "general"

    @property
    def text(self) -> str:
        """The key in messages, in the ids of kept probes and in the names of random streams; it is never parsed."""
        place = "-/-" if self.site is None else f"{self.site}/{self.layer}"
        return f"{self.head}/{self.control}/{place}" + (f"/{self.scope}" if self.target == "cells" else "")

    @property
    def tags(self) -> dict[str, Tag]:
        """Head, control, site and layer as the tags of rows."""
        return {"head": self.head, "control": self.control, "site": self.site, "layer": self.layer}


def check_keys(keys: Sequence[ProbeKey]) -> None:
    """Raise a ValueError unless all keys are different."""
    if len(set(keys)) != len(keys):
        raise ValueError(f"problems must have different keys, got {', '.join(key.text for key in keys)}")


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

    FORM: ClassVar[Form]

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
        return content_id(self.FORM.kind, {**self.describe(), "arrays": digest.hexdigest()})

    def describe(self) -> dict[str, Any]:
        """Return everything but the arrays as plain values."""
        return {**asdict(self.source), "tags": dict(self.tags)}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays by the names that a file has for them."""
        fixed: dict[str, npt.NDArray[Any]] = {name: getattr(self, name) for name in _INPUTS}
        return {**fixed, **{f"weights.{name}": array for name, array in self.weights.items()}}

    def save(self, path: str | Path) -> int:
        """Write it as one safetensors file and return its size in bytes; equal ones make equal files."""
        return write_file(Path(path), self.FORM, self.id, self.describe(), self.arrays())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: no such file.
            ValueError: a damaged file, or another kind of it.
        """

        def make(header: dict[str, Any], arrays: Arrays) -> tuple[Self, str]:
            source = Source(**{name: header[name] for name in ("site", "layer", "model", "width")})
            made = cls(source=source, tags=header["tags"], **cls._parts(header, arrays))
            return made, made.id

        return read_file(Path(path), cls.FORM, make)

    @classmethod
    def _parts(cls, header: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        """Return the fields beside source and tags from a header, whose types are checked, and arrays, which are not.

        Raises:
            ValueError: an array is missing, or is of another kind.
        """
        raise NotImplementedError
