"""Inputs of probes and their controls, from captures or from arrays captured elsewhere, and the split by grid.

A control is the score of a probe without the knowledge in question, on the same split as the probe itself.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from functools import cache
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from goalscope._ground.ids import content_id
from goalscope._ground.rng import stream
from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.inside.activations.shards import Activations, Columns, Place
from goalscope.inside.activations.sites import check_site
from goalscope.inside.probing.labels import CLASSES, WALL, Cells, Steps, label_grid
from goalscope.worlds.dynamics import State, shown
from goalscope.worlds.grid import Grid, Position

NOWHERE: Final = (None, None)
"""In place of a site and a layer where no activations are read."""
_MAX_COORDINATES: Final = 4  # number of coordinates to read from a text, from its beginning
_MAX_WORDS: Final = 128  # number of words to count, the commonest in the training split
_COORDINATE: Final = re.compile(r"\(\s*(\d{1,4})\s*,\s*(\d{1,4})\s*\)")
_WORD: Final = re.compile(r"[^\W\d_]+")

TruthName = Literal["own", "shuffled", "control task"]
"""The target of a control, see `goalscope.inside.probing.suite`."""


class Reading(NamedTuple):
    """The inputs on which one probe is fitted.

    Attributes:
        place: the site (token positions) and layer of the activations; (None, None) if no activations are read.
        features: the inputs, F numbers at each of N steps.
        draw: seed of the random network that was read; None for the agent's own model.
    """

    place: tuple[str | None, int | None]
    features: "Features"
    draw: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the inputs of a probe come from; a probe accepts only inputs from the source that it was fitted on.

    Attributes:
        site: token positions of the activations, such as "pre"; "bag" and "text" for inputs that are no activations.
        layer: number of the decoder block, 0-based; -1 for inputs that are no activations.
        model: content id of the model; "" for inputs that are no activations.
        width: number of inputs per step, P positions * width D for activations.
    """

    site: str
    layer: int
    model: str
    width: int

    def check_same(self, other: "Source") -> None:
        """Check that another set of inputs comes from the same site, layer and model and has the same width.

        Raises:
            ValueError: if it does not; the message names what differs.
        """
        for (name, expected), actual in zip(asdict(self).items(), astuple(other), strict=True):
            if expected != actual:
                raise ValueError(
                    f"this probe was fitted on activations of {name} {expected!r}, got {actual!r}: fit another "
                    "probe for these"
                )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Features(Steps):
    """Inputs of probes: F numbers at each of N steps.

    Attributes:
        vectors: ``[N, F]`` float32 numbers. For activations, the vectors at P token positions one after another.
        positions: the number P of token positions.
        source: where the numbers come from (site, layer and model).
        episode_id, step, cluster: ``[N]`` episode, number of the step and grid of each row.

    Raises:
        ValueError: for arrays that do not fit, or a number that is not finite; the message names episode and step.
    """

    SHAPES: ClassVar = {"vectors": "N F", **Steps.SHAPES}

    source: Source
    vectors: npt.NDArray[np.float32]
    positions: int = 1

    def __post_init__(self) -> None:
        self._accept(F=self.source.width)
        if self.vectors.dtype != np.float32:
            raise ValueError(f"vectors must be float32, got {self.vectors.dtype}")
        finite = np.isfinite(self.vectors).all(axis=1)
        if not finite.all():
            bad = int(np.argmin(finite))
            raise ValueError(
                f"inputs of probes must be finite, but {self.episode_id[bad]} step {self.step[bad]}, site "
                f"{self.source.site}, layer {self.source.layer} has NaN or infinity: leave this step out"
            )

    @classmethod
    def of(cls, data: "Activations | Features") -> "Features":
        """Convert activations ``[N, P, D]`` to the inputs ``[N, P * D]`` of a probe: steps by numbers. Inputs are
        returned as they are.
        """
        if isinstance(data, Features):
            return data
        count, positions, width = data.vectors.shape
        source = Source(site=data.site, layer=data.layer, model=data.model, width=positions * width)
        vectors = data.vectors.reshape(count, positions * width)
        steps = {name: getattr(data, name) for name in Steps.SHAPES}
        return cls(source=source, vectors=vectors, positions=positions, **steps)

    @classmethod
    def derived(cls, site: str, vectors: npt.NDArray[Any], cells: Cells) -> Self:
        """Build inputs of a probe from numbers ``[N, F]`` that are not activations, for controls such as the number of
        walls.

        Args:
            site: name of these inputs, such as "bag".
            vectors: the numbers, steps by inputs.
            cells: the labels of the same steps, which name their episodes and grids.
        """
        source = Source(site=site, layer=-1, model="", width=vectors.shape[1])
        steps = {name: getattr(cells, name) for name in Steps.SHAPES}
        return cls(source=source, vectors=vectors.astype(np.float32), **steps)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split(Columns):
    """Which of N steps train a probe and which test it, as two masks ``[N]``. No step and no grid is in both.

    ``cluster`` ``[N]`` names the grid of each step.

    Raises:
        ValueError: if a part is empty, or a grid is in both.
    """

    SHAPES: ClassVar = {"train": "N", "test": "N", "cluster": "N"}

    train: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]
    cluster: npt.NDArray[np.object_]

    def __post_init__(self) -> None:
        self._accept()
        for name, part in self.parts:
            if not part.any():
                raise ValueError(f"the {name} part of the split has no steps: give more grids")
        shared = set(self.cluster[self.train].tolist()) & set(self.cluster[self.test].tolist())
        if shared:
            raise ValueError(f"grid {min(shared)} is in both parts of the split: put all steps of a grid into one part")

    @property
    def parts(self) -> tuple[tuple[str, npt.NDArray[np.bool_]], ...]:
        """The name and the mask ``[N]`` of both parts: ("train", mask) and ("test", mask)."""
        return (("train", self.train), ("test", self.test))


def split_by_grid(cells: Cells, *, test: float = 0.25, seed: int = 0) -> Split:
    """Divide grids into training and test grids; the same fraction of grids of every shape and wall density is tested.

    A grid's part depends only on the grids and the root seed, not on the order of the steps.

    Args:
        cells: the steps.
        test: fraction of the grids of each kind to test, in (0, 1); at least one if there are two or more.
        seed: root seed.
    """
    if not 0 < test < 1:
        raise ValueError(f"test must lie inside (0, 1), got {test!r}")
    kinds = grid_kinds(cells)
    tested: set[str] = set()
    for kind in set(kinds.values()):
        grids = sorted(grid for grid, grid_kind in kinds.items() if grid_kind == kind)
        shuffled = stream(seed, "probe split", *kind).permutation(len(grids))
        count = min(max(1, round(test * len(grids))), len(grids) - 1)
        tested |= {grids[index] for index in shuffled[:count]}
    mask = of_grids(cells.cluster, tested)
    return Split(train=~mask, test=mask, cluster=cells.cluster)


def of_grids(cluster: npt.NDArray[np.object_], grids: Collection[str]) -> npt.NDArray[np.bool_]:
    """Return ``[N]`` whether each step belongs to one of ``grids``; ``cluster`` ``[N]`` names the grid of each step."""
    return np.fromiter((grid in grids for grid in cluster.tolist()), dtype=bool, count=len(cluster))


def grid_kinds(cells: Cells) -> dict[str, tuple[str, ...]]:
    """Return the kind of each grid, by the grid's id: its two sides (the shorter first) and its wall density, as texts.

    Rotated versions of a grid share id and kind.
    """
    kinds: dict[str, tuple[str, ...]] = {}
    for row, grid in enumerate(cells.cluster.tolist()):
        kind = (*map(str, sorted(cells.shape[row].tolist())), str(cells.density[row]))
        kinds[grid] = min(kinds.get(grid, kind), kind)
    return kinds


def known_walls(cells: Cells, split: Split) -> float:
    """Return the fraction of test grids whose wall map also occurs in the training split (empty rooms, 7x7 mazes).

    Such grids have different ids but the same walls, so a probe may have memorised them.
    """
    packed = [row.tobytes() for row in np.packbits(cells.labels == WALL, axis=1)]
    trained = {packed[row] for row in np.flatnonzero(split.train)}
    is_known = {cells.cluster[row]: packed[row] in trained for row in np.flatnonzero(split.test)}
    return sum(is_known.values()) / len(is_known)


def check_sizes(cells: Cells, split: Split) -> None:
    """Check that each shape of grid occurs in both the training and the test part, as probes of a single size need it.

    Raises:
        ValueError: if one does not; the message names the shape and the part.
    """
    for (height, width), mask in cells.shapes():
        for name, part in split.parts:
            if not (part & mask).any():
                raise ValueError(
                    f"probes of one size need grids of each shape in both parts of the split, but the {name} part "
                    f"has no grid of {height} x {width}: record more such grids, or leave these probes out "
                    "(by_size: false)"
                )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeInputs:
    """Activations of several sites (token positions) and layers at the same N steps, with the truth there and a split.

    Attributes:
        activations: one entry per site and layer.
        cells: the true classes of the grid's cells at these steps, see `label_cells`.
        split: which steps are used for training and testing, see `split_by_grid`.
        random: kind (one of `RANDOM_WEIGHTS`) and seed of a random network -> the same sites, layers and steps from a
            capture of it; empty without that control.

    Raises:
        ValueError: if there are no activations, two for one site and layer, an unknown kind, or other steps; the
            message names the first that differs.
    """

    activations: Sequence[Activations]
    cells: Cells
    split: Split
    random: Mapping[tuple[str, int], Sequence[Activations]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.activations:
            raise ValueError("activations must contain at least one site and layer, got none")
        places = [item.place for item in self.activations]
        if len(set(places)) != len(places):
            raise ValueError(f"each site and layer may occur only once in activations, got {places}")
        if not np.array_equal(self.split.cluster, self.cells.cluster):
            raise ValueError("the split and the labels must refer to the same steps, but their grids differ")
        unknown = sorted({kind for kind, _ in self.random} - set(RANDOM_WEIGHTS))
        if unknown:
            raise ValueError(f"the kind of a random network must be {', '.join(RANDOM_WEIGHTS)}, got {unknown[0]!r}")
        for activations in (*self.activations, *(item for group in self.random.values() for item in group)):
            self.cells.check_aligned(activations)

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of random networks whose activations are available, such as "permuted", the weakest control
        first.
        """
        return tuple(kind for kind in RANDOM_WEIGHTS if any(kind == available for available, _ in self.random))

    def by_shape(self) -> Iterator[tuple[str, Self]]:
        """Yield, for each shape of grid, its name ("7x7") and the inputs of its steps alone, with maps of just this
        size.

        Raises:
            ValueError: if a shape is missing in the training or the test part.
        """
        check_sizes(self.cells, self.split)
        for (height, width), mask in self.cells.shapes():
            of_shape = type(self)(
                activations=[item.where(mask) for item in self.activations],
                cells=self.cells.where(mask).framed(max(height, width)),
                split=self.split.where(mask),
                random={name: [item.where(mask) for item in group] for name, group in self.random.items()},
            )
            yield f"{height}x{width}", of_shape


def input_features(cells: Cells) -> Features:
    """Return inputs for a control that sees only counts: the grid's height and width, and its number of cells of each
    class.

    The result is ``[N, 7]``, steps by numbers. If the agent's view is limited (fog), the cells of the whole grid are
    counted: the control then knows more than the prompt showed.
    """
    counts = [(cells.labels == label).sum(axis=1) for label in range(len(CLASSES))]
    return Features.derived("bag", np.column_stack([cells.shape, *counts]), cells)


def text_features(cells: Cells, train: npt.NDArray[np.bool_]) -> Features:
    """Return inputs for a control that sees only the agent's written reasoning, as a vector per step.

    A vector holds the first four coordinates in the text (one-hot row and column, and whether there is one), and how
    often each of the commonest words of the training part occurs, names of moves among them.

    Args:
        cells: the N steps with their texts.
        train: ``[N]`` which steps are for training.

    Raises:
        ValueError: if there is no written reasoning.
    """
    words = [Counter(_WORD.findall(text.lower())) for text in cells.reasoning.tolist()]
    common: Counter[str] = Counter()
    for index in np.flatnonzero(train).tolist():
        common.update(words[index].keys())
    if not common:
        raise ValueError("the text-only control needs written reasoning, but the run has none: leave the control out")
    # Sorted by count and then by word, because a Counter's own order depends on the order of the steps.
    chosen = sorted(common, key=lambda word: (-common[word], word))[:_MAX_WORDS]
    pairs = np.zeros((len(cells), _MAX_COORDINATES, 2 * cells.frame + 1))
    for row, text in enumerate(cells.reasoning.tolist()):
        for index, pair in enumerate(_COORDINATE.findall(text)[:_MAX_COORDINATES]):
            pairs[row, index, 0] = 1
            for axis, coordinate in enumerate(pair):
                if int(coordinate) < cells.frame:
                    pairs[row, index, 1 + axis * cells.frame + int(coordinate)] = 1
    counts = [[counted[word] for word in chosen] for counted in words]
    return Features.derived("text", np.column_stack([pairs.reshape(len(cells), -1), counts]), cells)


CONTROLS: Final[Mapping[str, TruthName]] = {
    "none": "own",
    "shuffled": "shuffled",
    "control-task": "control task",
    **dict.fromkeys(RANDOM_WEIGHTS, "own"),
    "wall-count": "own",
    "input": "own",
    "text": "own",
}
"""The controls by name, each with its target.

* ``none``: the probe itself.
* ``shuffled``: the labels of another grid of the same shape, so that activations and labels have nothing to do with
  each other: the score of chance.
* ``control-task``: a random label for each type of cell or step, which a probe can only learn by heart; what the score
  exceeds it by is the probe's selectivity.
* ``default-init``, ``initial``, ``permuted``: the same architecture with random weights, several seeds of each, reads
  the same tokens (`goalscope.agents.models.local`).
* ``wall-count``: no model at all: the number of walls.
* ``input``: no model at all: how often each symbol stands in the prompt's grid.
* ``text``: no activations, but what the agent wrote before its answer.
"""
PLAN_CONTROLS: Final = ("none", "shuffled", "control-task", *RANDOM_WEIGHTS)
"""Those of plans and distances."""


def read(data: ProbeInputs, controls: Sequence[str]) -> list[tuple[str, Reading]]:
    """Return the inputs of a probe itself and of its controls, at every site (token positions) and layer.

    Args:
        data: the activations, also of random networks, with labels and split.
        controls: names of controls in `CONTROLS`; "none" is the probe itself.

    Returns:
        Pairs of the name of a control and its inputs.

    Raises:
        ValueError: if the data of a control are missing; the message says how to capture them.
    """
    own = [Reading(item.place, Features.of(item)) for item in data.activations]
    readings: list[tuple[str, Reading]] = []
    # A list and not an iterator, because the suite distinguishes inputs by id(), which Python reuses for freed
    # objects.
    for name in (name for name in CONTROLS if name in controls):
        if name in RANDOM_WEIGHTS:
            inputs = list(_random_networks(data, name))
        elif name == "wall-count":
            walls = (data.cells.labels == WALL).sum(axis=1, keepdims=True)
            inputs = [Reading(NOWHERE, Features.derived("wall count", walls, data.cells))]
        elif name == "input":
            inputs = [Reading(NOWHERE, input_features(data.cells))]
        elif name == "text":
            inputs = [Reading(NOWHERE, text_features(data.cells, data.split.train))]
        else:
            inputs = own
        readings += [(name, reading) for reading in inputs]
    return readings


def _random_networks(data: ProbeInputs, kind: str) -> Iterator[Reading]:
    """Yield what the random networks of a kind hold at the places of the model's own activations."""
    for draw in sorted(seed for name, seed in data.random if name == kind) or [0]:
        by_place = {item.place: item for item in data.random.get((kind, draw), ())}
        for own in data.activations:
            if own.place not in by_place:
                raise ValueError(
                    f"the control {kind} needs activations of site {own.site} and layer {own.layer} from a network "
                    f"with random weights: capture them with --untrained {draw} --random-weights {kind}, or leave "
                    "the control out"
                )
            item = by_place[own.place]
            if item.model == own.model:
                raise ValueError(
                    f"the control {kind} must be another model than the probed one, got {own.model} for both"
                )
            yield Reading(own.place, Features.of(item), draw)


def shuffled_rows(cells: Cells, split: Split, *, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return for each step the index of the step whose labels it gets in the control with shuffled labels, ``[N]``.

    Labels come from another grid of the same shape on the same side of the split. The steps of a grid get the labels of
    one other grid in order, cyclically if that grid has fewer steps, so that the labels of a grid stay together.

    Raises:
        ValueError: if a part of the split has only one grid of a shape.
    """
    rows = np.arange(len(cells))
    for name, mask in split.parts:
        shapes: dict[tuple[int, ...], dict[str, list[int]]] = {}
        for row in np.flatnonzero(mask).tolist():
            shapes.setdefault(tuple(cells.shape[row].tolist()), {}).setdefault(str(cells.cluster[row]), []).append(row)
        for (height, width), grids in shapes.items():
            names: list[Any] = sorted(grids)
            if len(names) < 2:
                raise ValueError(
                    f"shuffling labels needs at least two grids of each shape, but the {name} part has one of "
                    f"{height} x {width}: record more grids, change the share of test grids, or leave the control "
                    "out"
                )
            order = stream(seed, "shuffled labels", name, height, width).permutation(len(names))
            for receiver, donor in zip(order.tolist(), np.roll(order, 1).tolist(), strict=True):
                rows[grids[names[receiver]]] = np.resize(grids[names[donor]], len(grids[names[receiver]]))
    return rows


MAX_DENSE_BYTES: Final = 1 << 32
"""Bytes of one dense array that sparse features may become."""

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
        density: wall density of the grid of each of the N steps. If it is given, training and test grids get equal
            shares of each density.
        reasoning: N texts written before the answer, for the text-only control.
        test: share of the grids of each kind used for testing.
        seed: root seed of the split.
        frame: side of the square that grids are padded to; by default that of the largest grid.

    Raises:
        ValueError: for wrong shapes or types, numbers that are not finite, an agent in a wall, two equal rows, or a
            random network that is the model itself; the message names the row.
    """

    def convert(arrays: Arrays, name: str) -> dict[Place, npt.NDArray[np.float32]]:
        by_place = arrays if isinstance(arrays, Mapping) else {(site, layer): arrays}
        return {
            place: vectors_of(array, f"{name} at {place[0]}, layer {place[1]}") for place, array in by_place.items()
        }

    vectors = convert(activations, "activations")
    if not vectors:
        raise ValueError("activations must contain at least one array, got none")
    count = len(next(iter(vectors.values())))
    shown_grids, clusters = _grids_in_states(worlds, states, count)
    cells = _cells(shown_grids, clusters if grids is None else grids, frame, episodes, density, reasoning)
    if episodes is None:
        _check_different(vectors, cells)
    networks = {}
    for (kind, draw), random_arrays in (random or {}).items():
        name = f"{model}, {kind} {draw}"
        arrays = convert(random_arrays, name)
        if set(arrays) != set(vectors):
            raise ValueError(
                f"{name} must have arrays at the same places as the model, {sorted(vectors)}, got {sorted(arrays)}"
            )
        for place, array in arrays.items():
            if np.array_equal(array, vectors[place]):
                raise ValueError(
                    f"{name} must be another network, but its arrays at {place} equal those of {model}: capture "
                    "the random network again"
                )
        networks[kind, draw] = [_activations(arrays[place], place, name, cells) for place in vectors]
    own = [_activations(array, place, model, cells) for place, array in vectors.items()]
    split = split_by_grid(cells, test=test, seed=seed)
    return ProbeInputs(activations=own, cells=cells, split=split, random=networks)


def vectors_of(source: Any, name: str) -> npt.NDArray[np.float32]:
    """Convert activations to a float32 array ``[N, P, D]``: steps, token positions, width.

    Args:
        source: ``[N, D]`` or ``[N, P, D]``, an array of NumPy, a tensor of PyTorch or a sparse matrix of SciPy.
        name: what it is, for error messages.

    Raises:
        ValueError: for another shape, an empty array, values that are not finite numbers, or a sparse matrix that needs
            too much memory.
    """
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
    return vectors


def _grids_in_states(
    worlds: Sequence[Grid | str], states: Sequence[Any] | None, count: int
) -> tuple[list[Grid], list[str]]:
    """Return each grid as it is in its state, and the ids that these grids have without the agent."""
    if isinstance(worlds, Grid | str):
        raise ValueError("worlds must be a list with one grid per row, got a single grid: repeat it ([grid] * N)")
    for name, values in (("worlds", worlds), ("states", states)):
        if values is not None and len(values) != count:
            raise ValueError(f"{name} must have one entry per row of activations ({count}), got {len(values)}")
    parse, name_grid = cache(Grid.parse), cache(lambda grid: content_id("grid", grid.render()))
    shown_grids, clusters = [], []
    for row, world in enumerate(worlds):
        try:
            if isinstance(world, str):
                world = parse(world)
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
            clusters.append(name_grid(Grid(walls=world.walls, goal=world.goal) if states is None else world))
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
    episode_names = [f"row {row}" for row in range(count)] if episodes is None else [*map(str, episodes)]
    densities = [np.nan] * count if density is None else density
    texts = [""] * count if reasoning is None else [*map(str, reasoning)]
    columns = {"grids": clusters, "episodes": episode_names, "density": densities, "reasoning": texts}
    for name, values in columns.items():
        if len(values) != count:
            raise ValueError(f"{name} must have one entry per row of activations ({count}), got {len(values)}")
    numbers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
    return Cells(
        frame=side,
        labels=np.stack([label_grid(grid, side).ravel() for grid in grids]),
        shape=np.array([(grid.height, grid.width) for grid in grids]),
        density=np.asarray(densities, dtype=np.float64),
        reasoning=np.array(texts, dtype=object),
        episode_id=np.array(episode_names, dtype=object),
        step=np.array([next(numbers[episode]) for episode in episode_names], dtype=np.int64),
        cluster=np.array([*map(str, clusters)], dtype=object),
    )


def _check_different(vectors: Mapping[Place, npt.NDArray[np.float32]], cells: Cells) -> None:
    """Raise an error for two rows with equal grid, state and activations, because one step would be counted twice."""
    rows_by_content: dict[tuple[bytes, ...], int] = {}
    arrays: list[npt.NDArray[Any]] = [cells.labels, *vectors.values()]
    for row in range(len(cells)):
        key = (cells.cluster[row].encode(), *(array[row].tobytes() for array in arrays))
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
