"""Inputs of probes and their controls, and the split into training and test parts, always by grid.

A control is the score of a probe without the knowledge in question, on the same split as the probe itself.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.inside.activations.load import Activations, Columns
from goalscope.inside.probing.labels import CLASSES, WALL, Cells, Steps

SiteLayer = tuple[str | None, int | None]
"""A site and a layer; `NOWHERE` where no activations are read."""
NOWHERE: Final[SiteLayer] = (None, None)
_MAX_COORDINATES: Final = 4  # number of coordinates to read from a text, from its beginning
_MAX_WORDS: Final = 128  # number of words to count, the commonest in the training split
_COORDINATE: Final = re.compile(r"\(\s*(\d{1,4})\s*,\s*(\d{1,4})\s*\)")
_WORD: Final = re.compile(r"[^\W\d_]+")

TruthName = Literal["own", "shuffled", "control task"]
"""The target of a control, see `goalscope.inside.probing.suite`."""


class Reading(NamedTuple):
    """The inputs of one fit: site and layer, features and, for a random network, its seed."""

    place: SiteLayer
    features: "Features"
    draw: int | None = None


Placed = Sequence[Reading]
"""The inputs at each site and layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Origin of the inputs of a probe; a probe takes inputs of its own source only.

    Attributes:
        site: site of the activations; "bag" and "text" for inputs that are no activations.
        layer: number of the decoder block, 0-based; -1 for inputs that are no activations.
        model: content id of the model; "" for inputs that are no activations.
        width: numbers per example, P positions * D for activations.
    """

    site: str
    layer: int
    model: str
    width: int

    def check_same(self, other: "Source") -> None:
        """Raise a ValueError unless another set of activations has the same source."""
        for (name, expected), actual in zip(asdict(self).items(), astuple(other), strict=True):
            if expected != actual:
                raise ValueError(
                    f"this probe was fitted on activations of {name} {expected!r}, got {actual!r}: fit another "
                    "probe for these"
                )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Features(Steps):
    """Inputs of probes: numbers ``[N, F]`` float32 for each of N steps, of ``positions`` vectors one after another.

    Raises:
        ValueError: arrays that do not fit, or a number that is not finite; names episode and step.
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
        """Return activations as the inputs of a probe, the P positions of a step one after another."""
        if isinstance(data, Features):
            return data
        count, positions, width = data.vectors.shape
        source = Source(site=data.site, layer=data.layer, model=data.model, width=positions * width)
        vectors = data.vectors.reshape(count, positions * width)
        steps = {name: getattr(data, name) for name in Steps.SHAPES}
        return cls(source=source, vectors=vectors, positions=positions, **steps)

    @classmethod
    def derived(cls, site: str, vectors: npt.NDArray[Any], cells: Cells) -> Self:
        """Build inputs from numbers ``[N, F]`` that are not activations."""
        source = Source(site=site, layer=-1, model="", width=vectors.shape[1])
        steps = {name: getattr(cells, name) for name in Steps.SHAPES}
        return cls(source=source, vectors=vectors.astype(np.float32), **steps)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split(Columns):
    """Masks of the training and test steps of a probe. No step and no grid is in both."""

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
        """The two parts of the split, each with its name."""
        return (("train", self.train), ("test", self.test))


def split_by_grid(cells: Cells, *, test: float = 0.25, seed: int = 0) -> Split:
    """Return a split by grid, in which the same fraction of grids of every shape and density is tested.

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
    """Return ``[N]`` whether each step belongs to one of the grids."""
    return np.fromiter((grid in grids for grid in cluster.tolist()), dtype=bool, count=len(cluster))


def grid_kinds(cells: Cells) -> dict[str, tuple[str, ...]]:
    """Return the kind of each grid, its sides and density; turned versions that share its id stay with the first."""
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
    """Raise a ValueError unless each shape of grid is in both parts of a split; names the first that is not."""
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
    """Activations of several sites and layers at the same N steps, with the truth there and a split.

    Attributes:
        activations: one entry per site and layer.
        cells: the truth at these steps, see `label_cells`.
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
        places = [site_layer(activations) for activations in self.activations]
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
        """Return the available kinds of random networks, starting with the weakest control."""
        return tuple(kind for kind in RANDOM_WEIGHTS if any(kind == available for available, _ in self.random))

    def by_shape(self) -> Iterator[tuple[str, Self]]:
        """Return the steps of each shape of grid, such as "7x7", in a frame of its size."""
        check_sizes(self.cells, self.split)
        for (height, width), mask in self.cells.shapes():
            yield (
                f"{height}x{width}",
                type(self)(
                    activations=[activations.where(mask) for activations in self.activations],
                    cells=self.cells.where(mask).framed(max(height, width)),
                    split=self.split.where(mask),
                    random={
                        name: [activations.where(mask) for activations in group] for name, group in self.random.items()
                    },
                ),
            )


def site_layer(activations: Activations) -> SiteLayer:
    """Return the site and layer of activations."""
    return activations.site, activations.layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Definition of a control.

    ``reads`` derives its inputs from the data and from the inputs of the probe itself. ``truth`` names its target, see
    `inside.probing.suite`. With ``number``, the control also applies to plans and distances.
    """

    reads: Callable[[ProbeInputs, Placed], Placed] = lambda data, placed: placed
    truth: TruthName = "own"
    number: bool = False


def _random(kind: str) -> Callable[[ProbeInputs, Placed], Placed]:
    """Return a function that reads the same sites and layers in every random network of a kind."""

    def reads(data: ProbeInputs, own_readings: Placed) -> Placed:
        models = {site_layer(activations): activations.model for activations in data.activations}
        readings = []
        for draw in sorted(seed for activations, seed in data.random if activations == kind) or [0]:
            by_place = {site_layer(activations): activations for activations in data.random.get((kind, draw), ())}
            for place, *_ in own_readings:
                if place not in by_place:
                    raise ValueError(
                        f"the control {kind} needs activations of site {place[0]} and layer {place[1]} from a network "
                        f"with random weights: capture them with --untrained {draw} --random-weights {kind}, or leave "
                        "the control out"
                    )
                if by_place[place].model == models[place]:
                    raise ValueError(
                        f"the control {kind} must be another model than the probed one, got {models[place]} for both"
                    )
                readings.append(Reading(place, Features.of(by_place[place]), draw))
        return readings

    return reads


def input_features(cells: Cells) -> Features:
    """Return height, width and the number of cells of each class of the prompt's grid, ``[N, 7]``.

    Under fog these are the cells of the whole grid: the control then knows more than the prompt showed.
    """
    counts = [(cells.labels == label).sum(axis=1) for label in range(len(CLASSES))]
    return Features.derived("bag", np.column_stack([cells.shape, *counts]), cells)


def wall_count(cells: Cells) -> Features:
    """Return the number of walls of each grid as the only feature, ``[N, 1]``."""
    return Features.derived("wall count", (cells.labels == WALL).sum(axis=1, keepdims=True), cells)


def text_features(cells: Cells, train: npt.NDArray[np.bool_]) -> Features:
    """Return features of the written reasoning.

    The first four coordinates by row and column (one of `frame` each, and whether there is one), and how often each of
    the commonest words of the training split ``[N]`` occurs, names of moves among them.
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


CONTROLS: Final[Mapping[str, Control]] = {
    "none": Control(number=True),
    "shuffled": Control(truth="shuffled", number=True),
    "control-task": Control(truth="control task", number=True),
    **{kind: Control(reads=_random(kind), number=True) for kind in RANDOM_WEIGHTS},
    "wall-count": Control(reads=lambda data, placed: [Reading(NOWHERE, wall_count(data.cells))]),
    "input": Control(reads=lambda data, placed: [Reading(NOWHERE, input_features(data.cells))]),
    "text": Control(reads=lambda data, placed: [Reading(NOWHERE, text_features(data.cells, data.split.train))]),
}
"""The controls by name.

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
PLAN_CONTROLS: Final = tuple(name for name, control in CONTROLS.items() if control.number)
"""Those of plans and distances."""


def read(data: ProbeInputs, controls: Sequence[str]) -> list[tuple[str, Reading]]:
    """Return the inputs for every control and every site and layer. Missing data raise a ValueError."""
    readings = [Reading(site_layer(item), Features.of(item)) for item in data.activations]
    # A list and not an iterator, because the suite distinguishes inputs by id(), which Python reuses for freed
    # objects.
    return [
        (name, item) for name, control in CONTROLS.items() if name in controls for item in control.reads(data, readings)
    ]


def shuffled_rows(cells: Cells, split: Split, *, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return ``[N]`` the index of the step whose labels each step gets, from another grid of the same shape and part.

    The steps of a grid get the labels of one other grid in order, cyclically if that grid has fewer steps, so that the
    labels of a grid stay together. Steps in neither part keep their own labels.
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
