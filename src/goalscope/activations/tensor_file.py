"""Safetensors files of unknown origin: sizes are checked before anything is read, every failure is a ValueError."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt

from goalscope.models.loading import brief
from goalscope.untrusted import UntrustedError, decode_object

KEY: Final = "goalscope"
"""The entry of a file's metadata that holds our header, as JSON."""

_PREFIX: Final = 8  # bytes in front of the header that hold its length


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorFile:
    """A file that is open for reading.

    Attributes:
        header: our header, a mapping of plain values of any kind.
        names: the tensors that there are.
    """

    header: dict[str, Any]
    names: tuple[str, ...]
    _file: Any

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it.

        Raises:
            ValueError: there is none.
        """
        self._check_name(name)
        return tuple(self._file.get_slice(name).get_shape())

    def read(self, name: str) -> npt.NDArray[Any]:
        """Return a tensor.

        Raises:
            ValueError: there is none, or numpy has no array for it.
        """
        from safetensors import SafetensorError

        self._check_name(name)
        try:
            array: npt.NDArray[Any] = self._file.get_tensor(name)
        except (SafetensorError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ValueError(f"its tensor {name[:80]!r} cannot be an array ({brief(error)})") from error
        return array

    def _check_name(self, name: str) -> None:
        if name not in self.names:
            raise ValueError(f"it has no tensor {name!r}")


@contextmanager
def open_tensors(path: Path, *, most_header: int) -> Iterator[TensorFile]:
    """Open a safetensors file with our header.

    Args:
        path: the file.
        most_header: most bytes of its header: a longer one is not parsed.

    Raises:
        ValueError: no sound safetensors file, or one without our header; says what is wrong, but not of which file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with path.open("rb") as plain:
            length = int.from_bytes(plain.read(_PREFIX), "little")
        if length > most_header:
            raise ValueError(f"it is no sound safetensors file (a header of {length} bytes, {most_header} at most)")
        opened: Any = safe_open(str(path), framework="numpy")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"it is no sound safetensors file ({brief(error)})") from error
    with opened as file:
        try:
            header = decode_object((file.metadata() or {}).get(KEY, ""), strict=False)
        except UntrustedError as error:
            raise ValueError(f"its header is no JSON object ({error})") from error
        yield TensorFile(header=header, names=tuple(file.keys()), _file=file)
