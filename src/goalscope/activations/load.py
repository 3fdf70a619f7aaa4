"""Read captured activations back: whole for one site and layer, or shard by shard."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from goalscope.activations.capture_schedule import plan_id
from goalscope.activations.record import SITES, Activations, Site, check_site
from goalscope.activations.shards import Artifact, ShardFile, artifacts, place
from goalscope.runs import Store
from goalscope.untrusted import decode_object

CAPTURE = "capture"
SHARD = "activations"
"""Kinds of artifacts: a whole capture, and one file of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What one capture of a run is.

    Attributes:
        id: content id of all that decides its files.
        model: content id of the model whose activations it holds.
        model_name: its short name.
        untrained: seed of the model's random weights, None for trained ones.
        agent: short name of the agent whose steps were replayed.
        agent_id: content id of that agent.
        sites, layers: what was captured; layers are 0-based.
        width: width D of the residual stream.
        device, dtype: kind of device and number format that it was computed with; the vectors are float32 always.
        scope: which steps: "all", or "first" of each episode.
        steps: number of steps of the agent that were looked at.
        captured: number of them with at least one site; None while the capture is not complete.
        reconstructed: number of them whose ids were made again from their text.
        left_out: reason -> number of steps that lack a site ("post: no final answer" -> 12).
        self_check: largest relative difference to the library's own hidden states, by layer.
        complete: whether all files are there.
        path: folder of its files, relative to the run directory.
        plan: id that captures of the same steps share, whatever their model and layers.
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

    @property
    def label(self) -> str:
        """One line for messages."""
        layers = ",".join(map(str, self.layers))
        state = "" if self.complete else " (not complete)"
        return f"{self.id}: {self.model_name}, agent {self.agent}, sites {','.join(self.sites)}, layers {layers}{state}"


def captures(run: str | Path | Store) -> list[Capture]:
    """Return what was captured from a run, ordered by id.

    Args:
        run: a run directory, or its open store.

    Raises:
        FileNotFoundError: no run there.
        ValueError: a damaged index.
    """
    with _opened(run) as store:
        return sorted((_capture(row) for row in artifacts(store, CAPTURE)), key=lambda one: one.id)


def _opened(run: str | Path | Store) -> AbstractContextManager[Store]:
    """Return a context with the store of a run; one that was open already stays open."""
    return nullcontext(run) if isinstance(run, Store) else Store(run)


def load_activations(
    run: str | Path | Store,
    *,
    site: str,
    layer: int,
    untrained: int | None = None,
    model: str | None = None,
    capture: str | None = None,
    agent: str | None = None,
    shape: tuple[int, int] | None = None,
) -> Activations:
    """Return all vectors of one site and layer of a run, ordered by episode id and step.

    The order depends on the run alone: two captures of the same steps come out row by row alike.

    Args:
        run: a run directory, or its open store.
        site: "pre", "post", "grid" or "action".
        layer: number of the decoder block, 0-based.
        untrained: seed of an untrained control; None for trained models.
        model: content id or short name of the model, where the run was replayed by several.
        capture: id of a capture, in place of ``untrained``, ``model`` and ``agent``.
        agent: short name or id of the agent, where the steps of several were captured.
        shape: height and width: grids of this shape alone. Needed for site "grid" where a run has several sizes.

    Raises:
        FileNotFoundError: no run there, or a file is missing.
        ValueError: nothing captured that fits, several captures that fit, grids of several shapes, no step with this
            site, or a damaged file.
    """
    named = check_site(site)
    with _opened(run) as store:
        chosen = choose_capture(store, named, layer, untrained, model, capture, agent)
        return _load(store, chosen, named, layer, shape)


def stream_activations(
    run: str | Path | Store,
    *,
    site: str,
    layer: int,
    untrained: int | None = None,
    model: str | None = None,
    capture: str | None = None,
    agent: str | None = None,
) -> Iterator[Activations]:
    """Return the vectors of one site and layer file by file, so that memory does not grow with the run.

    Within one piece all steps have the same number of positions P; pieces of site "grid" differ in theirs.

    Args:
        run, site, layer, untrained, model, capture, agent: see `load_activations`.

    Raises:
        FileNotFoundError, ValueError: see `load_activations`.
    """
    named = check_site(site)
    with _opened(run) as store:
        chosen = choose_capture(store, named, layer, untrained, model, capture, agent)
        for row in _shards(store, chosen):
            with ShardFile(place(store, row), size=row.size, capture=chosen.id) as shard:
                piece = _piece(shard, chosen, named, layer)
            if len(piece):
                yield piece


def _load(store: Store, chosen: Capture, site: Site, layer: int, shape: tuple[int, int] | None) -> Activations:
    rows = list(_shards(store, chosen))
    listed = []  # of each shard: which of its rows are wanted, and who they are
    for row in rows:
        with ShardFile(place(store, row), size=row.size, capture=chosen.id) as shard:
            listed.append(_Index(shard, chosen, site, layer, shape))
    if not any(len(one.step) for one in listed):
        there = sorted(set[tuple[int, ...]]().union(*(one.there for one in listed)))
        if shape is not None and there:
            raise ValueError(
                f"{store.path} holds no step with site {site} on grids of shape {shape[0]} x {shape[1]}: there are "
                + ", ".join(f"{height} x {width}" for height, width in there)
            )
        reasons = "; ".join(f"{reason}: {count}" for reason, count in sorted(chosen.left_out.items()))
        raise ValueError(f"{store.path} holds no step with site {site} ({reasons or 'no steps'})")
    groups = sorted({one.group for one in listed if len(one.step)})
    if len(groups) > 1:
        shapes = sorted({(int(h), int(w)) for one in listed for h, w in one.shape})
        raise ValueError(
            f"the vectors of one array must have the same positions, got groups of {', '.join(map(str, groups))} at "
            f"site {site}: say which grids with shape=(H, W); there are {', '.join(map(str, shapes))}"
        )
    joined = {name: np.concatenate([getattr(one, name) for one in listed if len(one.step)]) for name in _COLUMNS}
    order = np.lexsort((joined["step"], joined["episode_id"].astype(str)))
    target = np.empty_like(order)
    target[order] = np.arange(len(order))
    vectors = np.empty((len(order), groups[0], chosen.width), dtype=np.float32)
    at = 0
    for row, one in zip(rows, listed, strict=True):
        if not len(one.step):
            continue
        with ShardFile(place(store, row), size=row.size, capture=chosen.id) as shard:
            vectors[target[at : at + len(one.step)]] = shard.vectors(site, layer)[one.kept]
        at += len(one.step)
    for array in (vectors, *joined.values()):
        array.flags.writeable = False
    columns = {name: array[order] for name, array in joined.items()}
    return Activations(site=site, layer=layer, model=chosen.model, vectors=vectors, **columns)


_COLUMNS = ("episode_id", "step", "world_id", "grid_id", "shape", "positions", "tokens", "reconstructed")


class _Index:
    """The rows of one shard that have a site, without their vectors."""

    def __init__(
        self, shard: ShardFile, chosen: Capture, site: Site, layer: int, shape: tuple[int, int] | None = None
    ) -> None:
        step, episode, sizes = shard.index("step"), shard.index("episode"), shard.index("shape")
        again = shard.reconstructed()
        rows = shard.rows(site, len(step))
        positions, tokens = shard.places(site, "positions"), shard.places(site, "tokens")
        # No array is made by a size that stands in the file or in the index before the data themselves have it.
        count, self.group, width = shard.shape_of(site, layer)
        shard.check_sizes(
            ("length of episode", len(episode), len(step)),
            ("length of shape", len(sizes), len(step)),
            ("length of reconstructed", len(again), len(step)),
            (f"length of {site}.positions", len(positions), len(rows)),
            (f"length of {site}.tokens", len(tokens), len(rows)),
            (f"length of {site}.{layer}", count, len(rows)),
            (f"tokens of a step in {site}.tokens", tokens.shape[1], positions.shape[1]),
            (f"positions of a step in {site}.{layer}", self.group, positions.shape[1]),
            (f"width of {site}.{layer}", width, chosen.width),
        )
        shapes = sizes[rows]
        self.there: set[tuple[int, ...]] = set(map(tuple, np.unique(shapes, axis=0).tolist()))
        mask = np.ones(len(rows), dtype=bool) if shape is None else (shapes == np.array(shape)).all(axis=1)
        self.kept = np.flatnonzero(mask)
        rows = rows[self.kept]
        names = np.array([*shard.episodes, ["", "", ""]], dtype=object)[episode[rows]]
        self.episode_id, self.world_id, self.grid_id = names[:, 0], names[:, 1], names[:, 2]
        self.step, self.shape = step[rows], shapes[self.kept]
        self.positions, self.tokens = positions[self.kept], tokens[self.kept]
        self.reconstructed = again[rows]


def _piece(shard: ShardFile, chosen: Capture, site: Site, layer: int) -> Activations:
    index = _Index(shard, chosen, site, layer)
    columns = {name: getattr(index, name) for name in _COLUMNS}
    vectors = shard.vectors(site, layer)
    vectors.flags.writeable = False
    return Activations(site=site, layer=layer, model=chosen.model, vectors=vectors, **columns)


def _shards(store: Store, chosen: Capture) -> Iterator[Artifact]:
    return artifacts(store, SHARD, capture=chosen.id)


def choose_capture(
    store: Store,
    site: Site,
    layer: int,
    untrained: int | None,
    model: str | None,
    capture: str | None,
    agent: str | None,
) -> Capture:
    """Return the one capture that is meant; arguments as of `load_activations`.

    Raises:
        ValueError: none or several fit, it is not complete, or episodes were added since; says what to do.
    """
    known = captures(store)
    if capture is not None:
        fits = [one for one in known if one.id == capture]
    else:
        fits = [
            one
            for one in known
            if one.untrained == untrained
            and (model is None or model in (one.model, one.model_name))
            and (agent is None or agent in (one.agent, one.agent_id))
        ]
    listed = "; ".join(one.label for one in known) or "nothing"
    held = [one for one in fits if site in one.sites and layer in one.layers]
    if not held:
        kind = "" if untrained is None else f" --untrained {untrained}"
        raise ValueError(
            f"{store.path} must hold the activations of site {site} and layer {layer}"
            f"{f' of {capture}' if capture else ''}{' of that model' if model or agent else ''}, captured: {listed}. "
            f"Capture them: goalscope capture {store.path} --sites {site} --layers {layer}{kind}"
        )
    complete = [one for one in held if one.complete]
    if not complete:
        raise ValueError(f"a capture must be complete to be read, {held[0].label}: run the same capture again")
    if capture is None:
        current = [one for one in complete if one.plan == plan_id(store, one.agent_id, one.scope)]
        if not current:
            raise ValueError(
                f"episodes were added to {store.path} since {complete[0].label} was captured: run the same capture "
                "again, or ask for the old one with capture="
            )
        complete = current
    if len({(one.model, one.plan, one.device, one.dtype) for one in complete}) > 1:
        raise ValueError(
            f"several captures hold site {site} and layer {layer}, say which with capture=, model= or agent=: "
            + "; ".join(one.label for one in complete)
        )
    return complete[0]  # equal up to the shapes of their batches


def _capture(row: Artifact) -> Capture:
    tags: dict[str, Any] = dict(row.tags)
    try:
        return Capture(
            id=row.id,
            path=row.path,
            **{name: _typed(tags, name, str) for name in _TEXTS},
            **{name: _typed(tags, name, int) for name in ("width", "steps", "reconstructed")},
            untrained=_typed(tags, "untrained", int, type(None)),
            captured=_typed(tags, "captured", int, type(None)),
            sites=tuple(site for site in SITES if site in _typed(tags, "sites", str).split(",")),
            layers=tuple(int(layer) for layer in _typed(tags, "layers", str).split(",")),
            left_out=_numbers(tags, "left_out", int),
            self_check=_numbers(tags, "self_check", float),
            complete=_typed(tags, "complete", bool),
        )
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"the index must describe capture {row.id!r} as goalscope does: {error}") from error


_TEXTS = ("model", "model_name", "agent", "agent_id", "device", "dtype", "scope", "plan")


def _typed(tags: dict[str, Any], name: str, *kinds: type) -> Any:
    value = tags[name]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(f"{name} is {value!r}")
    return value


def _numbers(tags: dict[str, Any], name: str, kind: type) -> dict[str, Any]:
    found = decode_object(_typed(tags, name, str), strict=False)
    if not all(isinstance(value, kind) for value in found.values()):
        raise TypeError(f"{name} is {found!r}")
    return found


def join_numbers(values: Sequence[int]) -> str:
    """Return numbers as the index holds them."""
    return ",".join(map(str, values))
