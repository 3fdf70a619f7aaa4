"""Fitted things as files: safetensors with one header, checked from end to end before anything is believed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope.activations.shards import FORMAT, Shard, write_shard
from goalscope.activations.tensor_file import open_tensors

_SOURCE: Final = {"site": str, "layer": int, "model": str, "width": int}
_LARGEST: Final = 1 << 32  # bytes
_LARGEST_HEADER: Final = 1 << 20
_LONGEST: Final = 400  # characters that a message says of what is wrong

Arrays = dict[str, npt.NDArray[Any]]
Made = TypeVar("Made")


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
