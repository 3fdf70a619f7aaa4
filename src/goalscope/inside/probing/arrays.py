"""Conversion of arrays captured elsewhere, with their grids, to inputs of probes."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.ids import content_id
from goalscope.inside.activations.load import Activations
from goalscope.inside.activations.sites import check_site
from goalscope.inside.probing.inputs import ProbeInputs, split_by_grid
from goalscope.inside.probing.labels import Cells, label_grid
from goalscope.worlds.dynamics import State, shown
from goalscope.worlds.grid import Grid, Position

MAX_DENSE_BYTES: Final = 1 << 32
"""Bytes of one dense array that sparse features may become."""

_ENCODER_BATCH: Final = 256  # steps at a time

Place = tuple[str, int]
"""A site and a layer."""
Arrays = Any
"""An array ``[N, D]`` or ``[N, P, D]`` of NumPy or PyTorch, a sparse matrix of SciPy, or such by place."""


def from_arrays(
    activations: Arrays,
    worlds: Sequence[Grid | str],
    states: Sequence[Position | State] | None = None,
    *,
    random: Mapping[tuple[str, int], Arrays] | None = None,
    site: str = "pre",
    layer: int = 0,
    model: str = "arrays",
    grids: Sequence[str] | None = None,
    episodes: Sequence[str] | None = None,
    density: Sequence[float] | None = None,
    reasoning: Sequence[str] | None = None,
    test: float = 0.25,
    seed: int = 0,
    frame: int | None = None,
    encoder: Any = None,
) -> ProbeInputs:
    """Return activations captured elsewhere as inputs for `probe_cells` and similar functions.

    All rows of one grid are on the same side of the split. If states are given, rows of equal worlds belong to the same
    grid. If the worlds themselves show the agent, rows with equal walls and goal belong to the same grid, wherever the
    agent is. In empty rooms this would make each goal cell a grid of its own, so name the grids there.

    Args:
        activations: ``[N, D]``, or ``[N, P, D]`` for P positions per step; any floating type (also 16 bits), integers,
            or features of a sparse autoencoder as a sparse matrix. Or a mapping of such arrays by (site, layer).
        worlds: N grids, or their texts, each complete: with its goal and without fog.
        states: N cells (row, col) of the agent, or full states if there are keys and doors; by default from the grids.
        random: (kind, seed) -> the same arrays for a random network, row by row; for the kinds see
            `goalscope.agents.models.base.RANDOM_WEIGHTS`.
        site, layer: origin of a single array; a probe refuses arrays of other places.
        model: name of the model; a probe refuses arrays of other models.
        grids: N names of the grids, instead of deriving grids from the worlds.
        episodes: N names of the episodes, whose steps are contiguous; by default each row is its own episode.
        density: N wall densities of the grids, which splits balance; unknown by default.
        reasoning: N texts written before the answer, for the text-only control.
        test: share of the grids of each kind used for testing.
        seed: root seed of the split.
        frame: side of the square that grids are padded to; by default that of the largest grid.
        encoder: an object with ``encode(x)``, such as a sparse autoencoder, that maps a tensor ``[n, P, D]`` float32 to
            ``[n, P, F]``. Probes then read the encoded activations, also for random networks.

    Raises:
        ValueError: for wrong shapes or types, numbers that are not finite, an agent in a wall, two equal rows, or a
            random network that is the model itself; the message names the row.
    """
    places = dict(activations) if isinstance(activations, Mapping) else {(site, layer): activations}
    if not places:
        raise ValueError("activations must contain at least one array, got none")
    vectors = {
        place: vectors_of(array, f"activations of {place[0]}, layer {place[1]}", encoder)
        for place, array in places.items()
    }
    count = len(next(iter(vectors.values())))
    shown_grids, clusters = _grids_in_states(worlds, states, count)
    cells = _cells(shown_grids, clusters if grids is None else grids, frame, episodes, density, reasoning)
    if episodes is None:
        _check_different(vectors, cells)

    def wrapped(arrays: Mapping[Place, npt.NDArray[np.float32]], name: str) -> list[Activations]:
        return [_activations(array, place, name, cells) for place, array in arrays.items()]

    networks = {}
    for (kind, draw), random_arrays in (random or {}).items():
        name = f"{model}, {kind} {draw}"
        by_place = dict(random_arrays) if isinstance(random_arrays, Mapping) else {(site, layer): random_arrays}
        if set(by_place) != set(places):
            raise ValueError(
                f"{name} must have arrays at the same places as the model, {sorted(places)}, got {sorted(by_place)}"
            )
        arrays = {
            place: vectors_of(by_place[place], f"{name} at {place[0]}, layer {place[1]}", encoder) for place in places
        }
        for place, array in arrays.items():
            if array.shape == vectors[place].shape and np.array_equal(array, vectors[place]):
                raise ValueError(
                    f"{name} must be another network, but its arrays at {place} equal those of {model}: capture "
                    "the random network again"
                )
        networks[kind, draw] = wrapped(arrays, name)
    return ProbeInputs(
        activations=wrapped(vectors, model),
        cells=cells,
        split=split_by_grid(cells, test=test, seed=seed),
        random=networks,
    )


def vectors_of(source: Any, name: str, encoder: Any = None) -> npt.NDArray[np.float32]:
    """Convert an array to ``[N, P, D]`` float32, or to its encoding if there is an encoder."""
    if hasattr(source, "toarray"):  # a sparse matrix of SciPy
        size = 4 * int(np.prod(source.shape, dtype=np.float64))
        if size > MAX_DENSE_BYTES:
            raise ValueError(
                f"{name} is a sparse matrix {list(source.shape)} that takes {size / 2**30:.1f} GiB as a "
                f"dense array, more than {MAX_DENSE_BYTES >> 30}: keep only the most frequently active "
                "features, or fewer steps"
            )
        source = source.astype(np.float32).toarray()
    elif hasattr(source, "detach"):  # a tensor of PyTorch; NumPy knows no bfloat16
        source = source.detach().cpu().float().numpy()
    array = np.asarray(source)
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise ValueError(f"{name} must be an array of numbers, got {array.dtype} with shape {list(array.shape)}")
    if array.ndim == 2:
        array = array[:, None]
    if array.ndim != 3 or not array.size:
        raise ValueError(f"{name} must have shape [N, D] or [N, P, D] and not be empty, got {list(np.shape(source))}")
    with np.errstate(over="ignore"):  # values that overflow to infinity raise an error that names their row
        vectors = np.ascontiguousarray(array, dtype=np.float32)
    finite = np.isfinite(vectors).all(axis=(1, 2))
    if not finite.all():
        bad = int(np.argmin(finite))
        raise ValueError(f"{name} must be finite in float32, but row {bad} has NaN or infinity: leave it out")
    return vectors if encoder is None else vectors_of(_encoded(vectors, encoder), f"the code of {name}")


def _encoded(vectors: npt.NDArray[np.float32], encoder: Any) -> Any:
    import torch

    with torch.inference_mode():
        pieces = [vectors[begin : begin + _ENCODER_BATCH] for begin in range(0, len(vectors), _ENCODER_BATCH)]
        codes = [encoder.encode(torch.from_numpy(piece)).cpu().float() for piece in pieces]
    for piece, code in zip(pieces, codes, strict=True):
        if code.shape[:-1] != piece.shape[:-1]:
            raise ValueError(
                f"the encoder must map [n, P, D] to [n, P, F], but mapped {list(piece.shape)} to {list(code.shape)}"
            )
    return torch.cat(codes)


def _grids_in_states(
    worlds: Sequence[Grid | str], states: Sequence[Any] | None, count: int
) -> tuple[list[Grid], list[str]]:
    """Return each grid as it is in its state, and the ids that these grids have without the agent."""
    if isinstance(worlds, Grid | str):
        raise ValueError("worlds must be a list with one grid per row, got a single grid: repeat it ([grid] * N)")
    for name, values in (("worlds", worlds), ("states", states)):
        if values is not None and len(values) != count:
            raise ValueError(f"{name} must have one entry per row of activations ({count}), got {len(values)}")
    parsed: dict[str, Grid] = {}
    ids: dict[Grid, str] = {}
    shown_grids, clusters = [], []
    for row, world in enumerate(worlds):
        try:
            if isinstance(world, str):
                world = parsed[world] if world in parsed else parsed.setdefault(world, Grid.parse(world))
            if not isinstance(world, Grid):
                raise ValueError(f"it must be a Grid or the text of a grid, got {type(world).__name__}")
            if world.goal is None or world.fog is not None:
                raise ValueError("it must be complete, with a goal and without fog")
            state = world.start if states is None else states[row]
            if state is None:
                raise ValueError("it shows no agent: give states")
            if not isinstance(state, State):
                state = State(world.at(start=None).check_cell(state, "the agent"))
            shown_grids.append(shown(world, state))
            identity = Grid(walls=world.walls, goal=world.goal) if states is None else world
            clusters.append(
                ids[identity] if identity in ids else ids.setdefault(identity, content_id("grid", identity.render()))
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"the world of row {row}: {error}") from error
    return shown_grids, clusters


def _cells(
    grids: Sequence[Grid],
    clusters: Sequence[str],
    frame: int | None,
    episodes: Sequence[str] | None,
    density: Sequence[float] | None,
    reasoning: Sequence[str] | None,
) -> Cells:
    side, count = frame or max(max(grid.height, grid.width) for grid in grids), len(grids)
    episode_names = (
        [f"row {row}" for row in range(count)] if episodes is None else [str(episode) for episode in episodes]
    )
    densities, texts = (
        [np.nan] * count if density is None else density,
        [""] * count if reasoning is None else reasoning,
    )
    for name, values in (
        ("grids", clusters),
        ("episodes", episode_names),
        ("density", densities),
        ("reasoning", texts),
    ):
        if len(values) != count:
            raise ValueError(f"{name} must have one entry per row of activations ({count}), got {len(values)}")
    numbers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
    return Cells(
        frame=side,
        labels=np.stack([label_grid(grid, side).ravel() for grid in grids]),
        shape=np.array([(grid.height, grid.width) for grid in grids]),
        density=np.asarray(densities, dtype=np.float64),
        reasoning=np.array([*map(str, texts)], dtype=object),
        episode_id=np.array(episode_names, dtype=object),
        step=np.array([next(numbers[episode]) for episode in episode_names], dtype=np.int64),
        cluster=np.array([*map(str, clusters)], dtype=object),
    )


def _check_different(vectors: Mapping[Place, npt.NDArray[np.float32]], cells: Cells) -> None:
    """Raise an error for two rows with equal grid, state and activations, because one step would be counted twice."""
    rows_by_content: dict[tuple[bytes, ...], int] = {}
    for row in range(len(cells)):
        key = (
            cells.cluster[row].encode(),
            cells.labels[row].tobytes(),
            *(array[row].tobytes() for array in vectors.values()),
        )
        if rows_by_content.setdefault(key, row) != row:
            raise ValueError(
                f"rows {rows_by_content[key]} and {row} have the same grid, state and activations: leave one "
                "of them out, or name their episodes (episodes=) if both were recorded"
            )


def _activations(vectors: npt.NDArray[np.float32], place: Place, model: str, cells: Cells) -> Activations:
    count, positions, _ = vectors.shape
    nowhere = np.full((count, positions), -1, dtype=np.int64)
    return Activations(
        site=check_site(place[0]),
        layer=place[1],
        model=model,
        vectors=vectors,
        episode_id=cells.episode_id,
        step=cells.step,
        world_id=cells.cluster,
        cluster=cells.cluster,
        shape=cells.shape,
        positions=nowhere,
        tokens=nowhere,
        reconstructed=np.zeros(count, dtype=bool),
    )
