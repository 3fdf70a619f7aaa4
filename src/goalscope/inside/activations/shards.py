"""Activations in memory and on disk: shards of vectors, the captures that they belong to, and how to load them.

Shards are safetensors files with the vectors of some steps and their digests, written atomically. Files are untrusted:
sizes are checked before any data are read, and every failure is a ValueError.

Tensors of a shard with n steps: ``episode``, ``step``, ``shape`` and ``reconstructed``; for each site, the m steps that
have it as ``SITE.rows``, ``SITE.positions`` and ``SITE.tokens``, and their vectors as ``SITE.LAYER``.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, TypeAdapter, ValidationError

from goalscope._ground.checks import check_shape, freeze
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.ids import canonical_json
from goalscope._ground.sealed import StrictRecord
from goalscope._ground.untrusted import UntrustedError, decode_object, faults
from goalscope.agents.models.base import RANDOM_WEIGHTS, RandomWeights
from goalscope.agents.models.folders import brief
from goalscope.inside.activations.sites import Site, check_site, plan_id
from goalscope.runs import Store, tables
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
    """Content of one file of activations (a shard).

    Attributes:
        header: entries that JSON can hold: capture (its id), number, model (its id), and ``episodes``, a list of
            [episode id, world id, grid id].
        arrays: the tensors by name: ``step`` and others with one entry per step, and ``SITE.LAYER`` with the vectors.
    """

    header: Mapping[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]]


def write_shard(path: Path, shard: Shard) -> int:
    """Write a file of activations and return its size in bytes. Equal content makes equal bytes.

    The file is written under a temporary name and renamed when complete, so an interruption leaves no half-written
    file.

    Raises:
        ValueError: if the header is too long.
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
    """Open a file of activations and yield a `ShardFile`, which reads its arrays.

    Args:
        path: the file.
        size: its size in bytes according to the index of the run.
        capture: id of the capture that it must belong to.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, even if this is found only while reading inside the context.
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
    """The header of a file of activations. Each entry of ``episodes`` is [episode id, world id, grid id].

    ``capture`` and ``model`` are ids, ``number`` counts the files of the capture, and ``digests`` maps each tensor's
    name to a hash of its content. Validation refuses other entries.
    """

    format: Literal[1]
    capture: str
    model: str
    number: int = Field(ge=0)
    episodes: tuple[tuple[str, str, str], ...]
    digests: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardFile:
    """A file of activations, open for reading. The digest of every tensor is verified when the tensor is read."""

    file: "TensorFile"
    episodes: Sequence[tuple[str, str, str]]

    def columns(self, site: Site, layer: int, width: int) -> dict[str, npt.NDArray[Any]]:
        """Return which steps have vectors at a site (a set of token positions such as "post"), and at which tokens.

        No array is allocated by a size from the file or the index before the data confirm it.

        Args:
            site, layer: the site, and the number of the decoder block.
            width: width D of the vectors that the index of the run promises.

        Returns:
            The array fields of `Activations` by name, except for ``vectors``, each with one row per step that has the
            site.

        Raises:
            ValueError: if the arrays are missing or contradict each other.
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
        """Return the activations at a site and layer, ``[m, P, D]`` float32: m steps, P positions, width D."""
        return self._tensor(f"{site}.{layer}", np.float32, "M P D", {})

    def check(self) -> None:
        """Read all tensors of the file to verify them.

        Raises:
            ValueError: if one does not match its digest.
        """
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
    """An open safetensors file that goalscope wrote, with its verified header and the names of its tensors.

    The digest of every tensor is verified when the tensor is read.
    """

    header: dict[str, Any]
    names: tuple[str, ...]
    _digests: Mapping[str, str]
    _file: Any

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading its numbers.

        Raises:
            ValueError: if there is no such tensor.
        """
        self._check_name(name)
        return tuple(self._file.get_slice(name).get_shape())

    def read(self, name: str) -> npt.NDArray[Any]:
        """Read a tensor as an array.

        Raises:
            ValueError: if there is no such tensor, numpy has no matching number format, or its digest differs.
        """
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
    """Open a safetensors file that goalscope wrote (its metadata hold a header of ours), and yield a `TensorFile`.

    Args:
        path: the file.
        max_header: maximum bytes of the header; a longer one is not parsed.

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
    """Entry in the index of a run for one file or folder of results, such as activations or a probe.

    Attributes:
        id: hash of what determines the content.
        kind: kind of content ("capture", "activations", "probe").
        path: relative to the run directory, parts separated by "/".
        size: bytes.
        tags: named facts about the content, such as its capture or layer.

    Raises:
        ValueError: if the path leads out of the run directory, or the size is below 0.
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
    """Add entries for files of results (such as activations or probes) to the index of a run. The files must already
    exist.

    An entry with the same id is replaced.
    """
    rows = [
        (artifact.id, artifact.kind, artifact.path, artifact.size, encode_tags(artifact.tags)) for artifact in artifacts
    ]
    with store.transaction() as database:
        database.executemany("INSERT OR REPLACE INTO artifacts VALUES (?, ?, ?, ?, ?)", rows)
        tables.seal(database, "artifact", [artifact.id for artifact in artifacts])


def artifacts(store: Store, kind: str, **tags: Tag) -> Iterator[Artifact]:
    """Yield the entries of the run's index for files of results, such as activations or probes, ordered by path.

    Args:
        store: the run.
        kind: kind of content: "capture", "activations" or "probe".
        tags: only entries with these facts, for example ``capture=ID``.

    Raises:
        ValueError: if an entry of the index is damaged.
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
    """Return the absolute path of a file or folder of results, such as activations, from its entry in the run's index.

    Raises:
        ValueError: if a part of the path is a link, or the system refuses the path.
    """
    try:
        folder = Folder(store.path.resolve())
        return folder.below(artifact.path).checked() if artifact.kind == "capture" else folder.file(artifact.path)
    except OSError as error:
        raise ValueError(
            f"{artifact.path[:200]!r} is not a path below {store.path}, so this artifact cannot be located"
        ) from error


CAPTURE = "capture"
SHARD = "activations"
"""Kinds of artifacts: a whole capture, and one file of it."""


Place = tuple[str, int]
"""A site and a layer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """Base class for several arrays that have one row for each of N steps (agent decisions) or states of a grid.

    `SHAPES` maps the name of each array to its shape. ``len()`` is N.
    """

    SHAPES: ClassVar[Mapping[str, str]] = {}

    def _accept(self, **sizes: int) -> None:
        for name, shape in self.SHAPES.items():
            sizes = check_shape(name, getattr(self, name), shape, sizes)
            object.__setattr__(self, name, freeze(getattr(self, name)))

    def __len__(self) -> int:
        return len(getattr(self, next(iter(self.SHAPES))))

    def where(self, mask: npt.NDArray[Any]) -> Self:
        """Return a copy with some of the rows.

        Args:
            mask: ``[N]`` bool, which rows to keep; or ``[M]`` int, indices of the rows in the desired order.
        """
        columns = {name: getattr(self, name)[mask] for name in self.SHAPES}
        for array in columns.values():
            array.flags.writeable = False  # a new array without other references, so it can be frozen without a copy
        return replace(self, **columns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Activations(Columns):
    """The residual stream after one decoder block, at the P token positions of one site, for N steps (agent decisions).

    Attributes:
        site: the token positions: "pre" (the end of the prompt), "post" (after the reasoning), "grid" (the cells) or
            "action" (before the word of the action).
        layer: number of the decoder block whose output this is, counted from 0.
        model: content id of the model.
        vectors: ``[N, P, D]`` float32 (steps, positions, width). P is 3 for ``pre`` and ``post``, 1 for ``action``, H *
            W for ``grid`` (by row).
        episode_id: ``[N]`` text (object array), content id of the episode.
        step: ``[N]`` int64, number of the step in its episode.
        world_id: ``[N]`` text, content id of the world.
        cluster: ``[N]`` text, cluster of the world: related worlds, such as versions of one grid, share it. It is the
            unit of splits and intervals.
        shape: ``[N, 2]`` int64, height H and width W of the grid.
        positions: ``[N, P]`` int64, position of each vector in prompt and output together, counted from 0.
        tokens: ``[N, P]`` int64, ids of the tokens there.
        reconstructed: ``[N]`` bool, whether the token ids of the step were reconstructed from its text.

    Raises:
        ValueError: if the site is unknown, a step has no vector, shapes do not fit, or a vector is not finite; the
            message names the step.
    """

    SHAPES: ClassVar = {
        "vectors": "N P D",
        **dict.fromkeys(("episode_id", "step", "world_id", "cluster", "reconstructed"), "N"),
        "shape": "N 2",
        "positions": "N P",
        "tokens": "N P",
    }

    site: Site
    layer: int
    model: str
    vectors: npt.NDArray[np.float32]
    episode_id: npt.NDArray[np.object_]
    step: npt.NDArray[np.int64]
    world_id: npt.NDArray[np.object_]
    cluster: npt.NDArray[np.object_]
    shape: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    reconstructed: npt.NDArray[np.bool_]

    @property
    def place(self) -> Place:
        """The site (a set of token positions, such as "pre") and the number of the decoder block."""
        return self.site, self.layer

    def __post_init__(self) -> None:
        check_site(self.site)
        if self.layer < 0:
            raise ValueError(f"a layer's number must be >= 0, got {self.layer}")
        if self.vectors.dtype != np.float32:
            raise ValueError(f"vectors must be float32, got {self.vectors.dtype}")
        self._accept()
        if len(self) and not self.vectors.size:
            raise ValueError(f"vectors must have at least one number per step, got shape {list(self.vectors.shape)}")
        if (bad := first_infinite(self.vectors)) is not None:
            raise ValueError(
                f"activations must be finite, but {self.episode_id[bad]} step {self.step[bad]}, site "
                f"{self.site}, layer {self.layer} has NaN or infinity: leave this step out"
            )


def first_infinite(vectors: npt.NDArray[np.float32]) -> int | None:
    """Return the index of the first step whose vectors have a number that is not finite; None if all are finite.

    ``vectors`` is ``[N, P, D]``: N steps, P token positions, width D.
    """
    # The sum is not finite if any entry is not. This avoids an array of N * P * D truth values.
    with np.errstate(over="ignore", invalid="ignore"):
        fine = np.isfinite(vectors.sum(axis=(1, 2), dtype=np.float64))
    return None if fine.all() else int(np.argmin(fine))


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One capture of a run: the stored activations of one model at some sites (token positions) and layers.

    Attributes:
        id: content id of everything that determines its files.
        model: content id of the captured model.
        model_name: short name of the model.
        untrained: seed of the model's random weights, None for trained ones.
        random_weights: how the random weights were drawn, see `goalscope.agents.models.local`.
        agent: short name of the agent whose steps were replayed.
        agent_id: content id of that agent.
        sites, layers: captured sites and layers; layers are counted from 0.
        width: width D of the residual stream.
        device, dtype: kind of device and number format of the computation; the vectors are always float32.
        scope: which steps were captured, see `capture`.
        steps: number of steps of the agent in the scope.
        captured: number of steps with at least one site; None while the capture is incomplete.
        reconstructed: number of steps whose token ids were reconstructed from their text.
        left_out: reason -> number of steps that lack a site ("post: no final answer" -> 12).
        self_check: largest relative difference from the library's own hidden states, by layer.
        complete: whether all files exist.
        path: folder of its files, relative to the run directory.
        plan: id shared by captures of the same steps, whatever their model and layers.
    """

    id: str
    model: str
    model_name: str
    untrained: int | None
    agent: str
    agent_id: str
    sites: tuple[Site, ...]
    layers: tuple[int, ...]
    width: int
    device: str
    dtype: str
    scope: str
    steps: int
    captured: int | None
    reconstructed: int
    left_out: dict[str, int]
    self_check: dict[str, float]
    complete: bool
    path: str
    plan: str
    random_weights: RandomWeights = "default-init"

    @property
    def label(self) -> str:
        """One-line description of the capture for messages: its id, model, agent, sites and layers."""
        layers = ",".join(map(str, self.layers))
        state = "" if self.complete else " (not complete)"
        return f"{self.id}: {self.model_name}, agent {self.agent}, sites {','.join(self.sites)}, layers {layers}{state}"


def captures(run: str | Path | Store) -> list[Capture]:
    """Return the captures of a run (its stored sets of activations, with model, sites and layers), ordered by id.

    Args:
        run: a run directory, or its open store.

    Raises:
        FileNotFoundError: if there is no such run.
        ValueError: if the index is damaged.
    """
    with _opened(run) as store:
        return sorted((_capture(row) for row in artifacts(store, CAPTURE)), key=lambda item: item.id)


def _opened(run: str | Path | Store) -> AbstractContextManager[Store]:
    """Open the store of a run as a context manager. A store that is already open stays open."""
    return nullcontext(run) if isinstance(run, Store) else Store(run)


def load_activations(
    run: str | Path | Store,
    *,
    site: str,
    layer: int,
    untrained: int | None = None,
    random_weights: str = RANDOM_WEIGHTS[0],
    model: str | None = None,
    capture: str | None = None,
    agent: str | None = None,
    shape: tuple[int, int] | None = None,
) -> Activations:
    """Return all activations of a run at one site (token position) and layer, ordered by episode id and step.

    The order depends only on the run: two captures of the same steps have the same rows.

    Args:
        run: a run directory, or its open store.
        site: "pre" (the end of the prompt), "post" (after the reasoning), "grid" (the cells), or "action" (before the
            word of the action).
        layer: number of the decoder block, counted from 0.
        untrained: seed of a control network with random weights; None for the trained model.
        random_weights: with ``untrained``, the kind of its weights.
        model: content id or short name of the model, if the run was replayed by several.
        capture: id of a capture, instead of ``untrained``, ``model`` and ``agent``.
        agent: short name or id of the agent, if the steps of several were captured.
        shape: height and width, to return only grids of this shape; needed for site "grid" if a run has several sizes.

    Raises:
        FileNotFoundError: if there is no such run, or a file is missing.
        ValueError: if no capture or several captures match, grids have several shapes, no step has this site, or a file
            is damaged.
    """
    site_name = check_site(site)
    which = {"untrained": untrained, "random_weights": random_weights, "model": model, "capture": capture}
    with _opened(run) as store:
        chosen = choose_capture(store, site_name, layer, agent=agent, **which)  # type: ignore[arg-type]
        return _load(store, chosen, site_name, layer, shape)


def stream_activations(run: str | Path | Store, *, site: str, layer: int, **which: Any) -> Iterator[Activations]:
    """Yield the activations at one site (a set of token positions) and layer file by file, so memory does not grow.

    All steps of a piece have the same number of positions P; for the site "grid", P differs between pieces.

    Args:
        run, site, layer: see `load_activations`.
        which: ``untrained``, ``random_weights``, ``model``, ``capture`` and ``agent`` of `load_activations`.

    Raises:
        FileNotFoundError, ValueError: see `load_activations`.
    """
    site_name = check_site(site)
    with _opened(run) as store:
        chosen = choose_capture(store, site_name, layer, **which)
        for row in artifacts(store, SHARD, capture=chosen.id):
            with opened_shard(store, row, chosen) as shard:
                columns = shard.columns(site_name, layer, chosen.width)
                columns["vectors"] = shard.vectors(site_name, layer)
            if len(columns["step"]):
                yield _activations(chosen, site_name, layer, columns)


def _activations(chosen: Capture, site: Site, layer: int, columns: Mapping[str, npt.NDArray[Any]]) -> Activations:
    for array in columns.values():
        array.flags.writeable = False  # new arrays without other references, which need no copy to be frozen
    return Activations(site=site, layer=layer, model=chosen.model, **columns)


def opened_shard(store: Store, row: Artifact, chosen: Capture) -> AbstractContextManager[ShardFile]:
    """Open one file of activations for reading; see `open_shard`.

    Args:
        store: the run.
        row: the file's entry in the index of the run.
        chosen: the capture that the file must belong to.
    """
    return open_shard(place(store, row), size=row.size, capture=chosen.id)


def of_shape(columns: Mapping[str, npt.NDArray[Any]], shape: tuple[int, int] | None) -> npt.NDArray[np.int64]:
    """Return the indices of the steps whose grids have a given shape (height, width); None stands for all shapes.

    ``columns`` are arrays with one row per step (see `ShardFile.columns`); only ``shape`` ``[m, 2]`` is used.
    """
    same_shape = columns["shape"] == (columns["shape"] if shape is None else shape)
    return np.flatnonzero(same_shape.all(axis=1))


def _load(store: Store, chosen: Capture, site: Site, layer: int, shape: tuple[int, int] | None) -> Activations:
    shapes = set[tuple[int, int]]()
    parts = []  # per shard: its row of the index, the indices of the selected rows, and their columns
    for row in artifacts(store, SHARD, capture=chosen.id):
        with opened_shard(store, row, chosen) as shard:
            columns = shard.columns(site, layer, chosen.width)
        shapes |= {(height, width) for height, width in np.unique(columns["shape"], axis=0).tolist()}
        if len(selected := of_shape(columns, shape)):
            parts.append((row, selected, {name: column[selected] for name, column in columns.items()}))
    if not parts and shape is not None and shapes:
        raise ValueError(
            f"{store.path} has no step with site {site} on grids of shape {shape[0]} x {shape[1]}: choose one of "
            + ", ".join(f"{height} x {width}" for height, width in sorted(shapes))
        )
    if not parts:
        reasons = "; ".join(f"{reason}: {count}" for reason, count in sorted(chosen.left_out.items()))
        raise ValueError(f"{store.path} has no step with site {site} ({reasons or 'no steps'}): choose another site")
    groups = sorted({columns["positions"].shape[1] for *_, columns in parts})
    if len(groups) > 1:
        raise ValueError(
            f"site {site} has different numbers of positions per step ({', '.join(map(str, groups))}), "
            "which do not fit one array: choose grids of one shape with shape=(H, W), one of "
            f"{', '.join(map(str, sorted(shapes)))}"
        )
    joined = {name: np.concatenate([columns[name] for *_, columns in parts]) for name in parts[0][2]}
    order = np.lexsort((joined["step"], joined["episode_id"].astype(str)))
    target = np.argsort(order)
    vectors, offset = np.empty((len(order), groups[0], chosen.width), dtype=np.float32), 0
    for row, selected, _ in parts:
        with opened_shard(store, row, chosen) as shard:
            vectors[target[offset : offset + len(selected)]] = shard.vectors(site, layer)[selected]
        offset += len(selected)
    return _activations(chosen, site, layer, {"vectors": vectors, **{name: joined[name][order] for name in joined}})


def choose_capture(
    store: Store,
    site: Site,
    layer: int,
    *,
    untrained: int | None = None,
    random_weights: str = RANDOM_WEIGHTS[0],
    model: str | None = None,
    capture: str | None = None,
    agent: str | None = None,
) -> Capture:
    """Return the only capture of a run that matches: the description of a stored set of activations.

    Args:
        store: the run.
        site, layer: the token positions and the decoder block that the capture must have.
        untrained, random_weights, model, capture, agent: as in `load_activations`.

    Raises:
        ValueError: if none or several captures match, the capture is incomplete, or episodes were added since; the
            message says what to do.
    """
    all_captures = captures(store)
    if capture is not None:
        fitting = [entry for entry in all_captures if entry.id == capture]
    else:
        fitting = [
            entry
            for entry in all_captures
            if entry.untrained == untrained
            and (untrained is None or entry.random_weights == random_weights)
            and (model is None or model in (entry.model, entry.model_name))
            and (agent is None or agent in (entry.agent, entry.agent_id))
        ]
    captured = "; ".join(entry.label for entry in all_captures) or "nothing"
    at_place = [entry for entry in fitting if site in entry.sites and layer in entry.layers]
    if not at_place:
        kind = "" if untrained is None else f" --untrained {untrained} --random-weights {random_weights}"
        raise ValueError(
            f"{store.path} must hold the activations of site {site} and layer {layer}"
            f"{f' of {capture}' if capture else ''}{' of that model' if model or agent else ''}, captured: {captured}. "
            f"Capture them: goalscope capture {store.path} --sites {site} --layers {layer}{kind}"
        )
    complete = [entry for entry in at_place if entry.complete]
    if not complete:
        raise ValueError(f"the capture {at_place[0].label} is incomplete: run the same capture again to finish it")
    if capture is None:
        current = [entry for entry in complete if entry.plan == plan_id(store, entry.agent_id, entry.scope)]
        if not current:
            raise ValueError(
                f"episodes were added to {store.path} after {complete[0].label} was captured: run the same "
                "capture again, or choose the old one with capture="
            )
        max_steps = max(entry.steps for entry in current)  # keep captures whose steps include those of another
        complete = [entry for entry in current if entry.steps == max_steps]
    if len({(entry.model, entry.plan, entry.device, entry.dtype) for entry in complete}) > 1:
        raise ValueError(
            f"several captures have site {site} and layer {layer}, choose one with capture=, model= or agent=: "
            + "; ".join(entry.label for entry in complete)
        )
    return complete[0]  # these captures differ only in the shapes of their batches


def put_capture(store: Store, capture: Capture) -> None:
    """Add a capture (a stored set of activations) to the index of its run, replacing an entry with the same id."""
    tags = {field.name: getattr(capture, field.name) for field in fields(capture) if field.name not in ("id", "path")}
    tags |= {name: ",".join(map(str, tags[name])) for name in ("sites", "layers")}
    tags |= {"left_out": canonical_json(capture.left_out), "self_check": json.dumps(capture.self_check)}
    if capture.random_weights == RANDOM_WEIGHTS[0]:  # left out, so that runs of earlier versions keep their bytes
        del tags["random_weights"]
    put_artifacts(store, Artifact(id=capture.id, kind=CAPTURE, path=capture.path, size=0, tags=tags))


def _capture(row: Artifact) -> Capture:
    tags: dict[str, Any] = {**row.tags, "id": row.id, "path": row.path}
    try:
        tags["sites"] = str(tags["sites"]).split(",")
        tags["layers"] = [int(layer) for layer in str(tags["layers"]).split(",")]
        tags |= {name: decode_object(tags[name], strict=False) for name in ("left_out", "self_check")}
        return _CAPTURE.validate_json(json.dumps(tags), strict=True)
    except (KeyError, ValueError) as error:
        problem = " ".join(faults(error, {})[0]) if isinstance(error, ValidationError) else error
        raise ValueError(
            f"the entry of capture {row.id!r} in the index is invalid: {problem}. Delete it and capture again"
        ) from error


_CAPTURE = TypeAdapter(Capture)
