"""Shards: safetensors files that each hold the vectors of some steps, with digests, written whole or not at all.

Files are of unknown origin: sizes are checked before anything is read, every failure is a ValueError.

Tensors of a shard: ``episode`` and ``step``, ``shape``, ``reconstructed`` of its n steps; for each site ``SITE.rows``,
``SITE.positions``, ``SITE.tokens`` of the m steps that have it, and ``SITE.LAYER`` with their vectors.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, ValidationError

from goalscope.activations.capture_schedule import Item
from goalscope.activations.sites import Site
from goalscope.checks import check_shape
from goalscope.ids import canonical_json
from goalscope.models.folders import brief
from goalscope.rows import Tag
from goalscope.runs import Store, checksums
from goalscope.runs.codec import decode_tags, encode_tags
from goalscope.untrusted import UntrustedError, decode_object

FORMAT: Final = 1
KEY: Final = "goalscope"
"""The entry of a file's metadata that holds our header, as JSON."""

_PREFIX: Final = 8  # bytes in front of the header that hold its length
_LARGEST_HEADER: Final = 1 << 24  # bytes; a file of 4,096 steps needs a sixteenth
_ABOUT: Final = "header"  # what the digest of the header's other entries is called; no tensor has this name


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
    about = {name: value for name, value in shard.header.items() if name != "digests"} | {"format": FORMAT}
    digests = {name: _digest(array) for name, array in arrays.items()} | {_ABOUT: _header_digest(about)}
    header = canonical_json({**about, "digests": digests})
    # One entry of metadata: the library writes several in an order that changes from process to process.
    if len(header) > _LARGEST_HEADER // 2:  # quotes are escaped once more
        raise ValueError(
            f"the header of a file may have {_LARGEST_HEADER // 2} bytes, {path} needs {len(header)}: capture with a "
            "smaller window"
        )
    data = save(arrays, metadata={KEY: header})
    temporary = path.with_name(f".{path.name}.part")
    # What lies there is half a file of a killed process, or a link: it is removed, never written through.
    temporary.unlink(missing_ok=True)
    with temporary.open("xb") as file:
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


def layout(items: Sequence[Item], sites: Sequence[Site]) -> tuple[list[list[str]], dict[str, npt.NDArray[Any]]]:
    """Return the episodes of n steps, and all tensors of their shard but the vectors."""
    table = {entry: number for number, entry in enumerate(dict.fromkeys(item.episode for item in items))}
    arrays: dict[str, npt.NDArray[Any]] = {
        "episode": np.array([table[item.episode] for item in items], dtype=np.int64),
        "step": np.array([item.step for item in items], dtype=np.int64),
        "shape": np.array([item.shape for item in items], dtype=np.int64).reshape(-1, 2),
        "reconstructed": np.array([item.reconstructed for item in items], dtype=np.uint8),
    }
    for site in sites:
        rows = [row for row, item in enumerate(items) if site in item.positions]
        positions = [items[row].positions[site] for row in rows]
        tokens = [items[row].ids[at] for row, at in zip(rows, positions, strict=True)]
        size = (len(rows), len(positions[0]) if rows else 0)
        arrays[f"{site}.rows"] = np.array(rows, dtype=np.int64)
        arrays[f"{site}.positions"] = np.array(positions, dtype=np.int64).reshape(size)
        arrays[f"{site}.tokens"] = np.array(tokens, dtype=np.int64).reshape(size)
    return [list(one) for one in table], arrays


@contextmanager
def open_shard(path: Path, *, size: int, capture: str) -> Iterator["ShardFile"]:
    """Open a shard of a capture whose size, bytes, is what the index knows.

    Whatever is wrong with it, also where it is read inside of the context, is a ValueError that names the file.
    """
    advice = "delete the file and run the same capture again, which writes it anew"
    if not path.is_file():
        raise FileNotFoundError(f"the run's index names {path}, there is no such file: {advice}")
    try:
        if (found := path.stat().st_size) != size:
            raise ValueError(f"it must have {size} bytes, got {found}")
        with open_tensors(path, most_header=_LARGEST_HEADER) as file:
            told = {name: str(file.header.get(name))[:80] for name in ("format", "capture")}
            if file.header.get("format") != FORMAT:
                raise ValueError(f"its header must be of format {FORMAT}, got {told['format']!r}")
            if file.header.get("capture") != capture:
                raise ValueError(f"it must belong to {capture}, got {told['capture']!r}")
            try:
                header = _Header.model_validate(file.header)
            except ValidationError as error:
                raise ValueError("its header must list its episodes and digests") from error
            _check_header(file, header.digests)
            yield ShardFile(file=file, episodes=header.episodes, digests=header.digests)
    except ValueError as error:
        raise ValueError(f"{path} must be a sound shard of activations, but {error}: {advice}") from error


def _check_header(file: "TensorFile", digests: Mapping[str, str]) -> None:
    """Raise a ValueError unless the digests are those of this header and of these tensors."""
    if odd := sorted((set(digests) ^ set(file.names)) - {_ABOUT}):
        raise ValueError(f"its digests must be those of its tensors, got a difference at {odd[0][:80]!r}")
    about = {name: value for name, value in file.header.items() if name != "digests"}
    # Files of goalscope before 0.2 have no digest of their header.
    if digests.get(_ABOUT, known := _header_digest(about)) != known:
        raise ValueError("its header, which lists its episodes, does not match its digest")


class _Header(BaseModel, strict=True):
    episodes: list[Annotated[list[str], Field(min_length=3, max_length=3)]]
    digests: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardFile:
    """A shard that is open for reading; every tensor is checked against its digest when it is read."""

    file: "TensorFile"
    episodes: list[list[str]]  # [episode, world, grid id] of each
    digests: dict[str, str]

    def columns(self, site: Site, layer: int, width: int) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of `Activations` for the m steps that have a site, by name and without the vectors.

        No array is made by a size that stands in the file or in the index (``width``) before the data have it.
        """
        sizes: dict[str, int] = {}
        step = self._tensor("step", np.int64, "N", sizes)
        episode = self._tensor("episode", np.int64, "N", sizes)
        shape = self._tensor("shape", np.int64, "N 2", sizes)
        again = self._tensor("reconstructed", np.uint8, "N", sizes).astype(bool)
        if len(episode) and not 0 <= episode.min() <= episode.max() < len(self.episodes):
            raise ValueError("its steps name episodes that it does not list")
        for name, array, least in (("step", step, 0), ("shape", shape, 1)):
            if len(array) and array.min() < least:
                raise ValueError(f"{name} must be >= {least} everywhere, got {array.min()}")
        rows = self._tensor(f"{site}.rows", np.int64, "M", sizes)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(step) or (np.diff(rows) <= 0).any()):
            raise ValueError(f"the rows of site {site} must rise within its {len(step)} steps")
        positions = self._tensor(f"{site}.positions", np.int64, "M P", sizes)
        tokens = self._tensor(f"{site}.tokens", np.int64, "M P", sizes)
        there, must = self.file.shape(f"{site}.{layer}"), (*positions.shape, width)
        if there != must:
            raise ValueError(f"{site}.{layer} must have shape {list(must)}, got {list(there)}")
        names = np.array([*self.episodes, ["", "", ""]], dtype=object)[episode[rows]]
        return {
            **{name: names[:, number] for number, name in enumerate(("episode_id", "world_id", "cluster"))},
            "step": step[rows],
            "shape": shape[rows],
            "positions": positions,
            "tokens": tokens,
            "reconstructed": again[rows],
        }

    def vectors(self, site: Site, layer: int) -> npt.NDArray[np.float32]:
        """Return the vectors of a site and layer, ``[m, P, D]`` float32."""
        return self._tensor(f"{site}.{layer}", np.float32, "M P D", {})

    def check(self) -> None:
        """Read all tensors; a ValueError where one does not match its digest."""
        for name in self.file.names:
            if _digest(self.file.read(name)) != self.digests.get(name):
                raise ValueError(f"{name} does not match its digest")

    def _tensor(self, name: str, dtype: Any, shape: str, sizes: dict[str, int]) -> npt.NDArray[Any]:
        """Return a tensor; sizes that its shape names are those that are known, the others are noted."""
        array = self.file.read(name)
        if array.dtype != dtype:
            raise ValueError(f"{name} must be {np.dtype(dtype)}, got {array.dtype}")
        sizes.update(check_shape(name, array, shape, sizes))
        if _digest(array) != self.digests.get(name):
            raise ValueError(f"{name} does not match its digest")
        return array


def _header_digest(about: Mapping[str, Any]) -> str:
    return hashlib.blake2b(canonical_json(about).encode(), digest_size=16).hexdigest()


def _digest(array: npt.NDArray[Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{array.dtype} {list(array.shape)}\n".encode())
    digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorFile:
    """A file that is open for reading: our header, plain values of any kind, and the names of its tensors."""

    header: dict[str, Any]
    names: tuple[str, ...]
    _file: Any

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it; a ValueError where there is none."""
        self._check_name(name)
        return tuple(self._file.get_slice(name).get_shape())

    def read(self, name: str) -> npt.NDArray[Any]:
        """Return a tensor; a ValueError where there is none, or numpy has no array for it."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file or folder of a run directory.

    Attributes:
        id: content id of what it holds.
        kind: what it is ("capture", "activations", "probe").
        path: where it lies, relative to the run directory, parts separated by "/".
        size: bytes.
        tags: what is known about it.

    Raises:
        ValueError: a path that leads out of the run directory, or a size below 0.
    """

    id: str
    kind: str
    path: str
    size: int
    tags: Mapping[str, Tag] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = PurePosixPath(self.path)
        if not self.path or given.is_absolute() or ".." in given.parts or "\\" in self.path or "\0" in self.path:
            raise ValueError(
                f"an artifact must lie inside of its run directory, got the path {self.path[:200]!r}: the index was "
                "not written by goalscope, do not trust this run"
            )
        if self.size < 0:
            raise ValueError(f"the size of an artifact must be >= 0 bytes, got {self.size}")


def put_artifacts(store: Store, *artifacts: Artifact) -> None:
    """Store the rows of some artifacts in place of those with the same ids; the files must be there already."""
    rows = [(one.id, one.kind, one.path, one.size, encode_tags(one.tags)) for one in artifacts]
    with store.transaction() as database:
        database.executemany("INSERT OR REPLACE INTO artifacts VALUES (?, ?, ?, ?, ?)", rows)
        checksums.seal(database, "artifact", [one.id for one in artifacts])


def artifacts(store: Store, kind: str, **tags: Tag) -> Iterator[Artifact]:
    """Return the artifacts of a kind that have these tags, ordered by path.

    Raises:
        ValueError: a stored row that cannot be one of ours.
    """
    rows = store.entries("artifact", "ORDER BY artifacts.path, artifacts.id")
    store.sums.check_keys("artifact", len(rows))
    for identity, held, path, size, cell in rows:
        if held != kind:
            continue
        if not isinstance(identity, str) or not isinstance(path, str) or not isinstance(size, int):
            raise ValueError(f"an artifact must be stored as text and a size, got {identity!r}, {path!r}, {size!r}")
        known = decode_tags(cell, f"artifact {identity!r}")
        if all(name in known and known[name] == tag for name, tag in tags.items()):
            yield Artifact(id=identity, kind=kind, path=path, size=size, tags=known)


def place(store: Store, artifact: Artifact) -> Path:
    """Return where an artifact lies.

    Raises:
        ValueError: a link leads out of the run directory or in a circle, or the system has no such names.
    """
    try:
        root = store.path.resolve()
        path = (root / artifact.path).resolve()
        outside = not path.is_relative_to(root)
        if not outside:
            path.is_file()  # asks the system, which refuses names that are too long
    except (OSError, RuntimeError) as error:  # a circle of links is a RuntimeError
        raise ValueError(f"an artifact must have a path in {store.path}, {artifact.path[:200]!r} is none") from error
    if outside:
        raise ValueError(
            f"an artifact must lie inside of {store.path}, but {artifact.path!r} leads to {path}: remove the link, and "
            "copy the files that it leads to if you trust them"
        )
    return path
