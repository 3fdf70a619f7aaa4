"""What everything that is fitted to activations shares: its key, its source, its weights, its id, its file.

A file is safetensors with one header, checked from end to end before anything is believed.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope.activations.shards import FORMAT, Shard, open_tensors, write_shard
from goalscope.checks import check_finite, freeze
from goalscope.ids import content_id
from goalscope.rows import Tag

_INPUTS: Final = {"mean": "centre", "std": "spread"}  # fields -> their names in files
_SOURCE: Final = {"site": str, "layer": int, "model": str, "width": int}
_LARGEST: Final = 1 << 32  # bytes
_LARGEST_HEADER: Final = 1 << 20
_LONGEST: Final = 400  # characters that a message says of what is wrong

Arrays = dict[str, npt.NDArray[Any]]
Made = TypeVar("Made")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How one kind of fitted things is written.

    Attributes:
        kind: its name in the header.
        noun: its name in messages.
        short: a shorter one, and the entry of the header that holds the id.
        listed: the entry of the header that holds the names of what is predicted.
        names: these names.
        fields: the other entries -> their types; source and tags are always there.
    """

    kind: str
    noun: str
    short: str
    listed: str
    names: tuple[str, ...]
    fields: Mapping[str, type]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """Weights that were fitted to inputs of one source.

    Attributes:
        source: what it reads; it refuses anything else.
        mean, std: ``[F]`` float32, mean and standard deviation of each input in the training split; an input that does
            not vary there has the standard deviation 0 and is not read.
        weights: name -> array, float32.
        tags: how it was made: control, settings, seed, ...
    """

    FORM: ClassVar[Form]

    source: Source
    mean: npt.NDArray[np.float32]
    std: npt.NDArray[np.float32]
    weights: Mapping[str, npt.NDArray[np.float32]]
    tags: Mapping[str, Tag] = field(default_factory=dict)

    def _accept(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Check and freeze the arrays.

        Args:
            shapes: name -> shape of each weight; ``weights`` has these names.

        Raises:
            ValueError: an array of another shape or type, one that is not finite, or a negative standard deviation.
        """
        expected = {name: (self.weights[name], shape) for name, shape in shapes.items()}
        expected |= {name: (getattr(self, name), (self.source.width,)) for name in _INPUTS}
        for name, (array, shape) in expected.items():
            if array.shape != shape or array.dtype != np.float32:
                raise ValueError(f"{name} must be float32 {list(shape)}, got {array.dtype} {list(array.shape)}")
            check_finite(name, array)
        if (self.std < 0).any():
            raise ValueError("std must be >= 0 everywhere, got a negative one")
        tiny = (self.std > 0) & (self.std < np.finfo(np.float32).tiny)
        if tiny.any():  # its inverse is not finite
            raise ValueError(f"std must be 0 or a normal number everywhere, got {self.std[tiny][0]}")
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
        fixed: dict[str, npt.NDArray[Any]] = {stored: getattr(self, name) for name, stored in _INPUTS.items()}
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


def write_file(path: Path, form: Form, identity: str, about: Mapping[str, Any], arrays: Arrays) -> int:
    """Write a fitted thing under a temporary name, sync and rename it; return its size in bytes.

    Args:
        path: the file.
        form: how its kind is written.
        identity: its content id.
        about: everything but the arrays, plain values.
        arrays: name -> array.
    """
    header = {"kind": form.kind, form.short: identity, form.listed: list(form.names), **about}
    return write_shard(path, Shard(header=header, arrays=arrays))


def read_file(path: Path, form: Form, make: Callable[[dict[str, Any], Arrays], tuple[Made, str]]) -> Made:
    """Read what `write_file` wrote.

    Args:
        path: the file.
        form: what it must be.
        make: makes it and its content id from the header, whose types are checked, and the arrays, which are not.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged file, or something else.
    """
    if not path.is_file():
        raise FileNotFoundError(f"a {form.noun} must be a file, got {path}: there is none")
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            raise ValueError(f"it has {size} bytes, a {form.short} has at most {_LARGEST}")
        with open_tensors(path, most_header=_LARGEST_HEADER) as file:
            header = _checked(file.header, form)
            arrays = {name: file.read(name) for name in file.names}
        made, known = make(header, arrays)
        if known != header[form.short]:
            raise ValueError(f"its content must have the id {header[form.short][:80]!r}, it has {known}")
    except (ValueError, OverflowError) as error:
        what = str(error)[:_LONGEST]
        raise ValueError(f"{path} must be a sound {form.noun}, but {what}: fit the {form.short} again") from error
    return made


def weights_of(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Return the weights by their names among these arrays.

    Raises:
        ValueError: some are no weights.
    """
    if not all(name.startswith("weights.") and array.dtype == np.float32 for name, array in arrays.items()):
        raise ValueError(f"it holds other arrays than weights: {', '.join(map(repr, arrays))[:200]}")
    return {name.removeprefix("weights."): array for name, array in arrays.items()}


def _checked(header: dict[str, Any], form: Form) -> dict[str, Any]:
    if header.get("kind") != form.kind or header.get("format") != FORMAT:
        raise ValueError(f"its header does not say that it is a {form.noun} of format {FORMAT}")
    for name, kind in {**_SOURCE, "tags": dict, form.short: str, form.listed: list, **form.fields}.items():
        value = header.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{name} in its header must be {kind.__name__}, got {str(value)[:80]!r}")
    if header[form.listed] != list(form.names):
        given = str(header[form.listed])[:80]
        raise ValueError(f"its {form.listed} must be {', '.join(form.names)}, got {given}")
    plain = (str, int, float, bool, type(None))
    if not all(isinstance(value, plain) for value in header["tags"].values()):
        raise ValueError("its tags must be plain values")
    return header
