"""Activations, i.e. the vectors of one site and layer, and functions that load captured ones at once or by shard."""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from goalscope._ground.checks import check_shape, freeze
from goalscope._ground.ids import canonical_json
from goalscope._ground.untrusted import decode_object, faults
from goalscope.agents.models.base import RANDOM_WEIGHTS, RandomWeights
from goalscope.inside.activations.shards import Artifact, ShardFile, artifacts, open_shard, place, put_artifacts
from goalscope.inside.activations.sites import Site, check_site, plan_id
from goalscope.runs import Store

CAPTURE = "capture"
SHARD = "activations"
"""Kinds of artifacts: a whole capture, and one file of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """Base class of records of arrays with one row for each of N steps or states; `SHAPES` names the arrays."""

    SHAPES: ClassVar[Mapping[str, str]] = {}

    def _accept(self, **sizes: int) -> None:
        for name, shape in self.SHAPES.items():
            sizes = check_shape(name, getattr(self, name), shape, sizes)
            object.__setattr__(self, name, freeze(getattr(self, name)))

    def __len__(self) -> int:
        return len(getattr(self, next(iter(self.SHAPES))))

    def where(self, mask: npt.NDArray[Any]) -> Self:
        """Return some of the rows, by a mask ``[N]`` bool, or by indices ``[M]`` int in the desired order."""
        columns = {name: getattr(self, name)[mask] for name in self.SHAPES}
        for array in columns.values():
            array.flags.writeable = False  # a new array without other references, so it can be frozen without a copy
        return replace(self, **columns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Activations(Columns):
    """The residual stream after one decoder block, at the P positions of one site, for N steps.

    Attributes:
        site: site in the sequence.
        layer: number of the decoder block whose output this is, counted from 0.
        model: content id of the model.
        vectors: ``[N, P, D]`` float32. P is 3 for ``pre`` and ``post``, 1 for ``action``, H * W for ``grid`` (by row).
        episode_id: ``[N]`` text (object array), content id of the episode.
        step: ``[N]`` int64, number of the step in its episode.
        world_id: ``[N]`` text, content id of the world.
        cluster: ``[N]`` text, cluster of the world, the unit of splits and intervals.
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
    """Return the index of the first step whose vectors ``[N, P, D]`` contain a number that is not finite; None if all
    are finite.
    """
    # The sum is not finite if any entry is not. This avoids an array of N * P * D truth values.
    with np.errstate(over="ignore", invalid="ignore"):
        fine = np.isfinite(vectors.sum(axis=(1, 2), dtype=np.float64))
    return None if fine.all() else int(np.argmin(fine))


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One capture of a run.

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
        """One-line description for messages."""
        layers = ",".join(map(str, self.layers))
        state = "" if self.complete else " (not complete)"
        return f"{self.id}: {self.model_name}, agent {self.agent}, sites {','.join(self.sites)}, layers {layers}{state}"


def captures(run: str | Path | Store) -> list[Capture]:
    """Return the captures of a run, ordered by id.

    Args:
        run: a run directory, or its open store.

    Raises:
        FileNotFoundError: there is no such run.
        ValueError: the index is damaged.
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
    """Return all vectors of one site and layer of a run, ordered by episode id and step.

    The order depends only on the run: two captures of the same steps have the same rows.

    Args:
        run: a run directory, or its open store.
        site: "pre", "post", "grid" or "action".
        layer: number of the decoder block, counted from 0.
        untrained: seed of an untrained control; None for trained models.
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
    with _opened(run) as store:
        chosen = choose_capture(store, site_name, layer, untrained, model, capture, agent, random_weights)
        return _load(store, chosen, site_name, layer, shape)


def stream_activations(
    run: str | Path | Store,
    *,
    site: str,
    layer: int,
    untrained: int | None = None,
    random_weights: str = RANDOM_WEIGHTS[0],
    model: str | None = None,
    capture: str | None = None,
    agent: str | None = None,
) -> Iterator[Activations]:
    """Return the vectors of one site and layer file by file, so that memory does not grow with the run.

    Within one piece all steps have the same number of positions P; for site "grid", P differs between pieces.

    Args:
        run, site, layer, untrained, random_weights, model, capture, agent: see `load_activations`.

    Raises:
        FileNotFoundError, ValueError: see `load_activations`.
    """
    site_name = check_site(site)
    with _opened(run) as store:
        chosen = choose_capture(store, site_name, layer, untrained, model, capture, agent, random_weights)
        for row in artifacts(store, SHARD, capture=chosen.id):
            with opened_shard(store, row, chosen) as shard:
                columns = shard.columns(site_name, layer, chosen.width)
                vectors = shard.vectors(site_name, layer)
            for array in (vectors, *columns.values()):
                array.flags.writeable = False
            if len(vectors):
                yield Activations(site=site_name, layer=layer, model=chosen.model, vectors=vectors, **columns)


def opened_shard(store: Store, row: Artifact, chosen: Capture) -> AbstractContextManager[ShardFile]:
    """Open one file of a capture, given its row in the index."""
    return open_shard(place(store, row), size=row.size, capture=chosen.id)


def of_shape(columns: Mapping[str, npt.NDArray[Any]], shape: tuple[int, int] | None) -> npt.NDArray[np.int64]:
    """Return the indices of those rows of a shard that belong to grids of a given shape; None stands for all shapes."""
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
    columns = {name: array[order] for name, array in joined.items()}
    for array in (vectors, *columns.values()):
        array.flags.writeable = False
    return Activations(site=site, layer=layer, model=chosen.model, vectors=vectors, **columns)


def choose_capture(
    store: Store,
    site: Site,
    layer: int,
    untrained: int | None,
    model: str | None,
    capture: str | None,
    agent: str | None,
    random_weights: str = RANDOM_WEIGHTS[0],
) -> Capture:
    """Return the only capture that matches; for the arguments see `load_activations`.

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
    """Add a capture to the index of its run."""
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
