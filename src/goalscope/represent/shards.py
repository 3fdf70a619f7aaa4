"""Shards: safetensors files that each hold the vectors of some steps, with digests, written whole or not at all.

Tensors of a shard: ``episode`` and ``step``, ``shape``, ``reconstructed`` of its n steps; for each site ``SITE.rows``,
``SITE.positions``, ``SITE.tokens`` of the m steps that have it, and ``SITE.LAYER`` with their vectors.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from goalscope.ident import canonical_json
from goalscope.represent.record import Site
from goalscope.shapes import check_shape

FORMAT: Final = 1
_KEY: Final = "goalscope"
_INDEX: Final = {"episode": (np.int64, "N"), "step": (np.int64, "N"), "shape": (np.int64, "N 2")}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """What one file holds.

    Attributes:
        header: plain values: format, capture, number, model, and ``episodes``, a list of [episode, world, grid id].
        arrays: the tensors by name, see the module.
    """

    header: Mapping[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]]


def write_shard(path: Path, shard: Shard) -> int:
    """Write a shard under a temporary name, sync and rename it; return its size in bytes.

    Equal shards make equal files.
    """
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in sorted(shard.arrays.items())}
    digests = {name: _digest(array) for name, array in arrays.items()}
    header = canonical_json({**shard.header, "format": FORMAT, "digests": digests})
    # One entry of metadata: the library writes several in an order that changes from process to process.
    data = save(arrays, metadata={_KEY: header})
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return len(data)


class ShardFile:
    """A shard that is open for reading; every tensor is checked against its digest when it is read.

    Args:
        path: the file.
        size: its size as the index knows it, bytes.
        capture: id of the capture that it must belong to.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another size, no sound safetensors file, or one of another capture or format.
    """

    def __init__(self, path: Path, *, size: int, capture: str) -> None:
        self.path = path
        if not path.is_file():
            raise FileNotFoundError(f"the run's index names {path}, there is no such file: {_ADVICE}")
        found = path.stat().st_size
        if found != size:
            raise self._damaged(f"it must have {size} bytes, got {found}")
        self._file = self._open()
        self.header = self._header(capture)
        self.episodes: list[list[str]] = self.header["episodes"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__(None, None, None)

    def index(self, name: str) -> npt.NDArray[np.int64]:
        """Return ``episode`` ``[n]`` (places in `episodes`), ``step`` ``[n]`` or ``shape`` ``[n, 2]``."""
        dtype, shape = _INDEX[name]
        array = self._tensor(name, dtype, shape)
        if name == "episode" and len(array) and not 0 <= array.min() <= array.max() < len(self.episodes):
            raise self._damaged("its steps name episodes that it does not list")
        return array

    def reconstructed(self) -> npt.NDArray[np.bool_]:
        """Return ``[n]``, whether the ids of each step were made again from its text."""
        return self._tensor("reconstructed", np.uint8, "N").astype(bool)

    def rows(self, site: Site, steps: int) -> npt.NDArray[np.int64]:
        """Return ``[m]``, which of the ``steps`` steps have the site."""
        array = self._tensor(f"{site}.rows", np.int64, "M")
        if len(array) and (array.min() < 0 or array.max() >= steps or (np.diff(array) <= 0).any()):
            raise self._damaged(f"the rows of site {site} must rise within its {steps} steps")
        return array

    def places(self, site: Site, what: str) -> npt.NDArray[np.int64]:
        """Return the ``positions`` or ``tokens`` of a site, ``[m, P]``."""
        return self._tensor(f"{site}.{what}", np.int64, "M P")

    def shape_of(self, site: Site, layer: int) -> tuple[int, int, int]:
        """Return the shape (m, P, D) of the vectors of a site and layer without reading them."""
        name = f"{site}.{layer}"
        if name not in self._file.keys():  # noqa: SIM118 - not a mapping
            raise self._damaged(f"it has no tensor {name!r}")
        shape = tuple(self._file.get_slice(name).get_shape())
        if len(shape) != 3:
            raise self._damaged(f"{name} must have shape [M, P, D], got {list(shape)}")
        return shape

    def vectors(self, site: Site, layer: int) -> npt.NDArray[np.float32]:
        """Return the vectors of a site and layer, ``[m, P, D]`` float32."""
        return self._tensor(f"{site}.{layer}", np.float32, "M P D")

    def _tensor(self, name: str, dtype: Any, shape: str) -> npt.NDArray[Any]:
        if name not in self._file.keys():  # noqa: SIM118 - not a mapping
            raise self._damaged(f"it has no tensor {name!r}")
        array: npt.NDArray[Any] = self._file.get_tensor(name)
        if array.dtype != dtype:
            raise self._damaged(f"{name} must be {np.dtype(dtype)}, got {array.dtype}")
        check_shape(f"{name} in {self.path.name}", array, shape)
        if _digest(array) != self.header["digests"].get(name):
            raise self._damaged(f"{name} does not match its digest")
        return array

    def _open(self) -> Any:
        from safetensors import SafetensorError, safe_open

        try:
            file: Any = safe_open(str(self.path), framework="numpy")
            return file.__enter__()
        except (SafetensorError, OSError) as error:
            raise self._damaged(f"it is no sound safetensors file ({error})") from error

    def _header(self, capture: str) -> dict[str, Any]:
        text = (self._file.metadata() or {}).get(_KEY, "")
        try:
            header = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._damaged("its header is no JSON") from error
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise self._damaged(f"its header must be of format {FORMAT}")
        if header.get("capture") != capture:
            raise self._damaged(f"it must belong to {capture}, got {header.get('capture')!r}")
        listed = header.get("episodes")
        sound = isinstance(listed, list) and all(
            isinstance(entry, list) and len(entry) == 3 and all(isinstance(part, str) for part in entry)
            for entry in listed
        )
        if not sound or not isinstance(header.get("digests"), dict):
            raise self._damaged("its header must list its episodes and digests")
        return header

    def _damaged(self, what: str) -> ValueError:
        return ValueError(f"{self.path} must be a sound shard of activations, but {what}: {_ADVICE}")


_ADVICE = "delete the file and run the same capture again, which writes it anew"


def _digest(array: npt.NDArray[Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{array.dtype} {list(array.shape)}\n".encode())
    digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()


def episode_table(episodes: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], int]:
    """Return the place of each different (episode, world, grid id) in the order of their first appearance."""
    return {entry: number for number, entry in enumerate(dict.fromkeys(episodes))}
