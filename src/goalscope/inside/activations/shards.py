"""Shards: safetensors files with the vectors of some steps and their digests, written atomically.

Files are untrusted: sizes are checked before any data are read, and every failure is a ValueError.

Tensors of a shard with n steps: ``episode``, ``step``, ``shape`` and ``reconstructed``; for each site, the m steps that
have it as ``SITE.rows``, ``SITE.positions`` and ``SITE.tokens``, and their vectors as ``SITE.LAYER``.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from goalscope._ground.checks import check_shape
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.ids import canonical_json
from goalscope._ground.sealed import StrictRecord
from goalscope._ground.untrusted import UntrustedError, decode_object
from goalscope.agents.models.folders import brief
from goalscope.inside.activations.sites import Site
from goalscope.runs import Store, checksums
from goalscope.runs.codec import decode_tags, encode_tags
from goalscope.stats.rows import Tag

FORMAT: Final = 1
KEY: Final = "goalscope"
"""The entry of a file's metadata that holds our header, as JSON."""

_PREFIX: Final = 8  # number of bytes before the header, which store its length
_LARGEST_HEADER: Final = 1 << 24  # bytes; a file of 4,096 steps needs a sixteenth of this
# name under which the digest of the other header entries is stored; no tensor has this name
_HEADER_DIGEST: Final = "header"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """Content of one file.

    Attributes:
        header: plain values: format, capture, number, model, and ``episodes``, a list of [episode, world, grid id].
        arrays: the tensors by name, see the docstring of the module.
    """

    header: Mapping[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]]


def write_shard(path: Path, shard: Shard) -> int:
    """Write a shard under a temporary name, sync and rename it; return its size in bytes.

    Equal shards make equal files.
    """
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in sorted(shard.arrays.items())}
    entries = {name: value for name, value in shard.header.items() if name != "digests"} | {"format": FORMAT}
    digests = {name: _digest(array) for name, array in arrays.items()} | {_HEADER_DIGEST: _header_digest(entries)}
    header = canonical_json({**entries, "digests": digests})
    # A single metadata entry, because the library writes several entries in an order that varies between processes.
    if len(header) > _LARGEST_HEADER // 2:  # quotes are escaped a second time
        raise ValueError(
            f"the header of {path} needs {len(header)} bytes, more than {_LARGEST_HEADER // 2}: capture "
            "with a smaller window"
        )
    data = save(arrays, metadata={KEY: header})
    Folder(path.parent).save_bytes(data, path.name, sync=True)
    return len(data)


@contextmanager
def open_shard(path: Path, *, size: int, capture: str) -> Iterator["ShardFile"]:
    """Open a shard of a capture; ``size`` is its size in bytes according to the index.

    Every defect, even one found while reading inside the context, is a ValueError that names the file.
    """
    advice = "delete the file and run the same capture again, which writes it anew"
    file_status = Folder(path.parent).status(path.name)
    if file_status is None:
        raise FileNotFoundError(f"the index of the run names {path}, but there is no such file: {advice}")
    try:
        if (actual := file_status.st_size) != size:
            raise ValueError(f"it must have {size} bytes, got {actual}")
        with open_tensors(path, max_header=_LARGEST_HEADER) as file:
            if file.header.get("capture") != capture:
                raise ValueError(f"it must belong to capture {capture}, got {str(file.header.get('capture'))[:80]!r}")
            try:
                header = ShardHeader.model_validate_json(canonical_json(file.header))
            except ValidationError as error:
                raise ValueError(
                    "its header must list its episodes and contain nothing but the entries that goalscope writes"
                ) from error
            yield ShardFile(file=file, episodes=header.episodes)
    except ValueError as error:
        raise ValueError(f"{path} is not an intact file of activations ({error}): {advice}") from error


class ShardHeader(StrictRecord):
    """Content of the header of a shard. Each entry of ``episodes`` is [episode id, world id, grid id]."""

    format: Literal[1]
    capture: str
    model: str
    number: int = Field(ge=0)
    episodes: tuple[tuple[str, str, str], ...]
    digests: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardFile:
    """A shard that is open for reading. The digest of every tensor is verified when it is read."""

    file: "TensorFile"
    episodes: Sequence[tuple[str, str, str]]

    def columns(self, site: Site, layer: int, width: int) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of `Activations` for the m steps that have a site, by name and without the vectors.

        No array is allocated by a size from the file or the index (``width``) before the data confirm it.
        """
        sizes: dict[str, int] = {}
        step = self._tensor("step", np.int64, "N", sizes)
        episode = self._tensor("episode", np.int64, "N", sizes)
        shape = self._tensor("shape", np.int64, "N 2", sizes)
        reconstructed = self._tensor("reconstructed", np.uint8, "N", sizes).astype(bool)
        if len(episode) and not 0 <= episode.min() <= episode.max() < len(self.episodes):
            raise ValueError("its steps refer to episodes that are not in its list")
        for name, array, minimum in (("step", step, 0), ("shape", shape, 1)):
            if len(array) and array.min() < minimum:
                raise ValueError(f"{name} must be >= {minimum} everywhere, got {array.min()}")
        rows = self._tensor(f"{site}.rows", np.int64, "M", sizes)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(step) or (np.diff(rows) <= 0).any()):
            raise ValueError(f"the rows of site {site} must be ascending and within its {len(step)} steps")
        positions = self._tensor(f"{site}.positions", np.int64, "M P", sizes)
        tokens = self._tensor(f"{site}.tokens", np.int64, "M P", sizes)
        shape_in_file, expected = self.file.shape(f"{site}.{layer}"), (*positions.shape, width)
        if shape_in_file != expected:
            raise ValueError(f"{site}.{layer} must have shape {list(expected)}, got {list(shape_in_file)}")
        names = np.array([*self.episodes, ["", "", ""]], dtype=object)[episode[rows]]
        return {
            **{name: names[:, number] for number, name in enumerate(("episode_id", "world_id", "cluster"))},
            "step": step[rows],
            "shape": shape[rows],
            "positions": positions,
            "tokens": tokens,
            "reconstructed": reconstructed[rows],
        }

    def vectors(self, site: Site, layer: int) -> npt.NDArray[np.float32]:
        """Return the vectors of a site and layer, ``[m, P, D]`` float32."""
        return self._tensor(f"{site}.{layer}", np.float32, "M P D", {})

    def check(self) -> None:
        """Read all tensors, and raise a ValueError if one does not match its digest."""
        for name in self.file.names:
            self.file.read(name)

    def _tensor(self, name: str, dtype: Any, shape: str, sizes: dict[str, int]) -> npt.NDArray[Any]:
        """Return a tensor; named sizes of its shape must equal those in ``sizes``, new ones are added there."""
        array = self.file.read(name)
        if array.dtype != dtype:
            raise ValueError(f"{name} must be {np.dtype(dtype)}, got {array.dtype}")
        sizes.update(check_shape(name, array, shape, sizes))
        return array


def _header_digest(entries: Mapping[str, Any]) -> str:
    return hashlib.blake2b(canonical_json(entries).encode(), digest_size=16).hexdigest()


def _digest(array: npt.NDArray[Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{array.dtype} {list(array.shape)}\n".encode())
    digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorFile:
    """Safetensors file opened for reading, with its verified header and the names of its tensors.

    The digest of every tensor is verified when the tensor is read.
    """

    header: dict[str, Any]
    names: tuple[str, ...]
    _digests: Mapping[str, str]
    _file: Any

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it; raise a ValueError if there is no such tensor."""
        self._check_name(name)
        return tuple(self._file.get_slice(name).get_shape())

    def read(self, name: str) -> npt.NDArray[Any]:
        """Return a tensor; raise a ValueError if there is no such tensor, or if numpy has no matching type."""
        from safetensors import SafetensorError

        self._check_name(name)
        try:
            array: npt.NDArray[Any] = self._file.get_tensor(name)
        except (SafetensorError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ValueError(f"its tensor {name[:80]!r} cannot be read as an array ({brief(error)})") from error
        if _digest(array) != self._digests[name]:
            raise ValueError(f"{name} does not match its digest: it was changed since it was written")
        return array

    def _check_name(self, name: str) -> None:
        if name not in self.names:
            raise ValueError(f"it has no tensor {name!r}")


@contextmanager
def open_tensors(path: Path, *, max_header: int) -> Iterator[TensorFile]:
    """Open a safetensors file with a header of goalscope.

    Args:
        path: the file.
        max_header: maximum bytes of its header; a longer one is not parsed.

    Raises:
        ValueError: if it is not a sound safetensors file, or has no such header; the message does not name the file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with NamedFile(path).open_file(sparse=True) as raw_file:
            length = int.from_bytes(raw_file.read(_PREFIX), "little")
        if length > max_header:
            raise ValueError(
                f"it is not an intact safetensors file (its header has {length} bytes, at most {max_header} "
                "are allowed)"
            )
        opened: Any = safe_open(str(path), framework="numpy")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"it is not an intact safetensors file ({brief(error)})") from error
    with opened as file:
        text, names = (file.metadata() or {}).get(KEY, ""), tuple(file.keys())
        try:
            header = decode_object(text, strict=False)
        except UntrustedError as error:
            raise ValueError(f"its header is not a JSON object ({error})") from error
        yield TensorFile(header=header, names=names, _digests=_checked_digests(header, text, names), _file=file)


def _checked_digests(header: Mapping[str, Any], text: str, names: Sequence[str]) -> dict[str, str]:
    """Verify the header of a file and return the digests of its tensors.

    Raises:
        ValueError: another format, or any character of the header was changed.
    """
    if (version := header.get("format")) != FORMAT or isinstance(version, bool):
        raise ValueError(f"its header must have format {FORMAT}, got {str(version)[:80]!r}")
    digests = header.get("digests")
    if not isinstance(digests, dict) or set(digests) != {*names, _HEADER_DIGEST}:
        different = sorted({*digests} ^ {*names, _HEADER_DIGEST})[:1] if isinstance(digests, dict) else [str(digests)]
        raise ValueError(f"its digests must match its tensors and header, but differ at {different[0]!r:.90}")
    entries = {name: value for name, value in header.items() if name != "digests"}
    if digests[_HEADER_DIGEST] != _header_digest(entries) or text != canonical_json(header):
        raise ValueError("its header does not match its digest: it was changed since it was written")
    return {name: str(digests[name]) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file or folder of a run directory.

    Attributes:
        id: content id.
        kind: kind of content ("capture", "activations", "probe").
        path: relative to the run directory, parts separated by "/".
        size: bytes.
        tags: metadata.

    Raises:
        ValueError: a path that leads out of the run directory, or a size below 0.
    """

    id: str
    kind: str
    path: str
    size: int
    tags: Mapping[str, Tag] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = PurePosixPath(self.path)
        if not self.path or path.is_absolute() or ".." in path.parts or "\\" in self.path or "\0" in self.path:
            raise ValueError(
                f"the path of an artifact must lie inside its run directory, got {self.path[:200]!r}: "
                "goalscope did not write this index, so do not trust the run"
            )
        if self.size < 0:
            raise ValueError(f"the size of an artifact must be >= 0 bytes, got {self.size}")


def put_artifacts(store: Store, *artifacts: Artifact) -> None:
    """Store the index rows of artifacts, replacing rows with the same ids. The files must already exist."""
    rows = [
        (artifact.id, artifact.kind, artifact.path, artifact.size, encode_tags(artifact.tags)) for artifact in artifacts
    ]
    with store.transaction() as database:
        database.executemany("INSERT OR REPLACE INTO artifacts VALUES (?, ?, ?, ?, ?)", rows)
        checksums.seal(database, "artifact", [artifact.id for artifact in artifacts])


def artifacts(store: Store, kind: str, **tags: Tag) -> Iterator[Artifact]:
    """Yield the artifacts of a kind that have the given tags, ordered by path.

    Raises:
        ValueError: if a stored row has other types.
    """
    rows = store.entries("artifact", "ORDER BY artifacts.path, artifacts.id")
    store.sums.check_keys("artifact", len(rows))
    for identity, stored_kind, path, size, cell in rows:
        if stored_kind != kind:
            continue
        if not isinstance(identity, str) or not isinstance(path, str) or not isinstance(size, int):
            raise ValueError(
                f"the index row of an artifact must have text fields and a size, got {identity!r}, {path!r}, {size!r}"
            )
        stored_tags = decode_tags(cell, f"artifact {identity!r}")
        if all(name in stored_tags and stored_tags[name] == tag for name, tag in tags.items()):
            yield Artifact(id=identity, kind=kind, path=path, size=size, tags=stored_tags)


def place(store: Store, artifact: Artifact) -> Path:
    """Return the absolute path of an artifact.

    Raises:
        ValueError: a part of the path is a link, or the system refuses the path.
    """
    try:
        folder = Folder(store.path.resolve())
        return folder.below(artifact.path).checked() if artifact.kind == "capture" else folder.file(artifact.path)
    except OSError as error:
        raise ValueError(
            f"{artifact.path[:200]!r} is not a path below {store.path}, so this artifact cannot be located"
        ) from error
