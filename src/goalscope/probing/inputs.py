"""What probes and their controls read, and on which grids they are trained and tested: by grid, always.

A control shows what a probe finds without the knowledge in question, on the same split as the probe itself.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from goalscope.activations.load import Activations
from goalscope.models.initialisation import RANDOM_WEIGHTS
from goalscope.probing.labels import CLASSES, WALL, Cells, Columns, Steps
from goalscope.rng import stream

SiteLayer = tuple[str | None, int | None]
"""A site and a layer; `NOWHERE` where no activations are read."""
NOWHERE: Final[SiteLayer] = (None, None)
_PAIRS: Final = 4  # coordinates in a text that are read, the first ones
_WORDS: Final = 128  # words that are counted, the commonest of the training split
_PAIR: Final = re.compile(r"\(\s*(\d{1,4})\s*,\s*(\d{1,4})\s*\)")
_WORD: Final = re.compile(r"[^\W\d_]+")

TruthName = Literal["own", "shuffled", "control task"]
"""What a control must predict, see `goalscope.probing.truths`."""


class Reading(NamedTuple):
    """What a probe reads: the place, the inputs there, and the seed of the random network where they come from one."""

    place: SiteLayer
    features: "Features"
    draw: int | None = None


Placed = Sequence[Reading]
"""What is read at each place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What the inputs of a probe are; a probe takes inputs of its own source only.

    Attributes:
        site: where activations come from; "bag" and "text" for inputs that are none.
        layer: number of the decoder block, 0-based; -1 for inputs that are no activations.
        model: content id of the model; "" for inputs that are no activations.
        width: numbers an example, P positions * D for activations.
    """

    site: str
    layer: int
    model: str
    width: int

    def check_same(self, other: "Source") -> None:
        """Raise a ValueError unless the other source is the same."""
        for (name, own), given in zip(asdict(self).items(), astuple(other), strict=True):
            if own != given:
                raise ValueError(
                    f"a probe must be given activations of the {name} that it was fitted on ({own!r}), got {given!r}: "
                    "fit another probe for them"
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
                f"what a probe reads must be finite, got a number that is not at {self.episode_id[bad]} step "
                f"{self.step[bad]}, site {self.source.site}, layer {self.source.layer}"
            )

    @classmethod
    def of(cls, given: "Activations | Features") -> "Features":
        """Return activations as the inputs of a probe, the P positions of a step one after another."""
        if isinstance(given, Features):
            return given
        count, positions, width = given.vectors.shape
        source = Source(site=given.site, layer=given.layer, model=given.model, width=positions * width)
        vectors = given.vectors.reshape(count, positions * width)
        steps = {name: getattr(given, name) for name in Steps.SHAPES}
        return cls(source=source, vectors=vectors, positions=positions, **steps)

    @classmethod
    def derived(cls, site: str, vectors: npt.NDArray[Any], cells: Cells) -> Self:
        """Return numbers ``[N, F]`` that are no activations as inputs."""
        source = Source(site=site, layer=-1, model="", width=vectors.shape[1])
        steps = {name: getattr(cells, name) for name in Steps.SHAPES}
        return cls(source=source, vectors=vectors.astype(np.float32), **steps)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split(Columns):
    """Which of N steps a probe is trained on and which it is tested on; no step is in both, and no grid."""

    SHAPES: ClassVar = {"train": "N", "test": "N", "grid_id": "N"}

    train: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]
    grid_id: npt.NDArray[np.object_]

    def __post_init__(self) -> None:
        self._accept()
        for name, part in self.parts:
            if not part.any():
                raise ValueError(f"the {name} part of a split must have steps, it has none: give more grids")
        both = set(self.grid_id[self.train].tolist()) & set(self.grid_id[self.test].tolist())
        if both:
            raise ValueError(f"a grid must be in one part of a split only, got {min(both)} in both: split by grid")

    @property
    def parts(self) -> tuple[tuple[str, npt.NDArray[np.bool_]], ...]:
        """Both parts by name."""
        return (("train", self.train), ("test", self.test))


def split_by_grid(cells: Cells, *, test: float = 0.25, seed: int = 0) -> Split:
    """Return a split by grid: of every shape and density the same share of grids is tested.

    A grid's part depends on the grids and the root seed, not on the order of the steps.

    Args:
        cells: the steps.
        test: share of the grids of each kind that is tested, in (0, 1); at least one where there are two or more.
        seed: root seed.
    """
    if not 0 < test < 1:
        raise ValueError(f"the tested share must be inside (0, 1), got {test!r}")
    first = grid_kinds(cells)
    tested: set[str] = set()
    for kind in set(first.values()):
        listed = sorted(grid for grid, own in first.items() if own == kind)
        shuffled = stream(seed, "probe split", *kind).permutation(len(listed))
        count = min(max(1, round(test * len(listed))), len(listed) - 1)
        tested |= {listed[index] for index in shuffled[:count]}
    mask = of_grids(cells.grid_id, tested)
    return Split(train=~mask, test=mask, grid_id=cells.grid_id)


def of_grids(grid_id: npt.NDArray[np.object_], grids: Collection[str]) -> npt.NDArray[np.bool_]:
    """Return which steps are of some grids, ``[N]``."""
    return np.fromiter((grid in grids for grid in grid_id.tolist()), dtype=bool, count=len(grid_id))


def grid_kinds(cells: Cells) -> dict[str, tuple[str, ...]]:
    """Return the kind of each grid, its sides and density; turned versions that share its id stay with the first."""
    first: dict[str, tuple[str, ...]] = {}
    for at, grid in enumerate(cells.grid_id.tolist()):
        kind = (*map(str, sorted(cells.shape[at].tolist())), str(cells.density[at]))
        first[grid] = min(first.get(grid, kind), kind)
    return first


def known_walls(cells: Cells, split: Split) -> float:
    """Return the share of the test grids whose wall map stands in the training split too (empty rooms, 7x7 mazes).

    Such grids share no id but their walls: a probe may know them by heart.
    """
    packed = [row.tobytes() for row in np.packbits(cells.labels == WALL, axis=1)]
    seen = {packed[at] for at in np.flatnonzero(split.train)}
    known = {cells.grid_id[at]: packed[at] in seen for at in np.flatnonzero(split.test)}
    return sum(known.values()) / len(known)


def check_sizes(cells: Cells, split: Split) -> None:
    """Raise a ValueError unless each shape of grid stands in both parts of a split; names the first that does not."""
    for (height, width), mask in cells.shapes():
        for name, part in split.parts:
            if not (part & mask).any():
                raise ValueError(
                    f"probes of one size need grids of each shape in both parts of the split, the {name} part has none "
                    f"of {height} x {width}: record more grids of it, or leave these probes out (by_size: false)"
                )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeInputs:
    """Activations of several sites and layers of the same N steps, with the truth there and a split.

    Attributes:
        activations: one for each site and layer.
        cells: the truth at these steps, see `label_cells`.
        split: which steps are trained on and which tested, see `split_by_grid`.
        random: kind (one of `RANDOM_WEIGHTS`) and seed of a random network -> the same sites, layers and steps from a
            capture of it; empty without that control.

    Raises:
        ValueError: no activations, two of one site and layer, an unknown kind, or other steps; names the first that
            differs.
    """

    activations: Sequence[Activations]
    cells: Cells
    split: Split
    random: Mapping[tuple[str, int], Sequence[Activations]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.activations:
            raise ValueError("probes must have activations, got none")
        there = [site_layer(one) for one in self.activations]
        if len(set(there)) != len(there):
            raise ValueError(f"the sites and layers of activations must be different, got {there}")
        if not np.array_equal(self.split.grid_id, self.cells.grid_id):
            raise ValueError("the split must be one of the same steps as the labels, its grids are others")
        unknown = sorted({kind for kind, _ in self.random} - set(RANDOM_WEIGHTS))
        if unknown:
            raise ValueError(f"a random network must be of a kind {', '.join(RANDOM_WEIGHTS)}, got {unknown[0]!r}")
        for one in (*self.activations, *(each for given in self.random.values() for each in given)):
            self.cells.check_aligned(one)

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of random networks that are there, the weakest first."""
        return tuple(kind for kind in RANDOM_WEIGHTS if any(kind == one for one, _ in self.random))

    def by_shape(self) -> Iterator[tuple[str, Self]]:
        """Return the steps of each shape of grid, such as "7x7", in a frame of its size."""
        check_sizes(self.cells, self.split)
        for (height, width), mask in self.cells.shapes():
            yield (
                f"{height}x{width}",
                type(self)(
                    activations=[one.where(mask) for one in self.activations],
                    cells=self.cells.where(mask).framed(max(height, width)),
                    split=self.split.where(mask),
                    random={name: [one.where(mask) for one in given] for name, given in self.random.items()},
                ),
            )


def site_layer(one: Activations) -> SiteLayer:
    """Return where activations come from."""
    return one.site, one.layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One control: what it reads, from the data and from what the probe itself reads.

    ``truth`` is what it must predict, see `goalscope.probing.truths`; with ``number`` plans and distances have it, too.
    """

    reads: Callable[[ProbeInputs, Placed], Placed] = lambda data, own: own
    truth: TruthName = "own"
    number: bool = False


def _random(kind: str) -> Callable[[ProbeInputs, Placed], Placed]:
    """Return what reads the same places in every random network of a kind."""

    def reads(data: ProbeInputs, own: Placed) -> Placed:
        models = {site_layer(one): one.model for one in data.activations}
        found = []
        for draw in sorted(seed for one, seed in data.random if one == kind) or [0]:
            there = {site_layer(one): one for one in data.random.get((kind, draw), ())}
            for place, *_ in own:
                if place not in there:
                    raise ValueError(
                        f"the control {kind} needs activations of site {place[0]} and layer {place[1]} from a network "
                        f"with random weights: capture with --untrained {draw} --random-weights {kind} and give "
                        "them, or leave the control out"
                    )
                if there[place].model == models[place]:
                    raise ValueError(f"the control {kind} must be another model, got {models[place]} twice")
                found.append(Reading(place, Features.of(there[place]), draw))
        return found

    return reads


def input_features(cells: Cells) -> Features:
    """Return what the prompt's grid holds, order aside: height, width and the cells of each class, ``[N, 7]``.

    Under fog these are the cells of the whole grid: the control then knows more than the prompt showed.
    """
    counts = [(cells.labels == label).sum(axis=1) for label in range(len(CLASSES))]
    return Features.derived("bag", np.column_stack([cells.shape, *counts]), cells)


def wall_count(cells: Cells) -> Features:
    """Return the number of walls of each grid alone, ``[N, 1]``."""
    return Features.derived("wall count", (cells.labels == WALL).sum(axis=1, keepdims=True), cells)


def text_features(cells: Cells, train: npt.NDArray[np.bool_]) -> Features:
    """Return what the written reasoning says, as numbers.

    The first four coordinates by row and column (one of `frame` each, and whether there is one), and how often each of
    the commonest words of the training split ``[N]`` occurs, names of moves among them.
    """
    words = [Counter(_WORD.findall(text.lower())) for text in cells.reasoning.tolist()]
    common: Counter[str] = Counter()
    for index in np.flatnonzero(train).tolist():
        common.update(words[index].keys())
    if not common:
        raise ValueError("the text-only control needs written reasoning, the run has none: leave it out")
    # Sorted by count and then by the word: a Counter's own order depends on the order of the steps.
    chosen = sorted(common, key=lambda word: (-common[word], word))[:_WORDS]
    pairs = np.zeros((len(cells), _PAIRS, 2 * cells.frame + 1))
    for at, text in enumerate(cells.reasoning.tolist()):
        for number, pair in enumerate(_PAIR.findall(text)[:_PAIRS]):
            pairs[at, number, 0] = 1
            for axis, said in enumerate(pair):
                if int(said) < cells.frame:
                    pairs[at, number, 1 + axis * cells.frame + int(said)] = 1
    counts = [[counted[word] for word in chosen] for counted in words]
    return Features.derived("text", np.column_stack([pairs.reshape(len(cells), -1), counts]), cells)


CONTROLS: Final[Mapping[str, Control]] = {
    "none": Control(number=True),
    "shuffled": Control(truth="shuffled", number=True),
    "control-task": Control(truth="control task", number=True),
    **{kind: Control(reads=_random(kind), number=True) for kind in RANDOM_WEIGHTS},
    "wall-count": Control(reads=lambda data, own: [Reading(NOWHERE, wall_count(data.cells))]),
    "input": Control(reads=lambda data, own: [Reading(NOWHERE, input_features(data.cells))]),
    "text": Control(reads=lambda data, own: [Reading(NOWHERE, text_features(data.cells, data.split.train))]),
}
"""The controls by name.

* ``none``: the probe itself.
* ``shuffled``: the labels of another grid of the same shape, so that activations and labels have nothing to do with
  each other: the score of chance.
* ``control-task``: a random label for each type of cell or step, which a probe can only learn by heart; what the score
  exceeds it by is the probe's selectivity.
* ``default-init``, ``initial``, ``permuted``: the same architecture with random weights, several seeds of each, reads
  the same tokens (`goalscope.models.initialisation`).
* ``wall-count``: no model at all: the number of walls.
* ``input``: no model at all: how often each symbol stands in the prompt's grid.
* ``text``: no activations, but what the agent wrote before its answer.
"""
PLAN_CONTROLS: Final = tuple(name for name, control in CONTROLS.items() if control.number)
"""Those of plans and distances."""


def read(data: ProbeInputs, controls: Sequence[str]) -> list[tuple[str, Reading]]:
    """Return control and what a probe reads, for every control and place; missing data is refused."""
    own = [Reading(site_layer(one), Features.of(one)) for one in data.activations]
    # A list, not an iterator: the suite tells inputs apart by their ids, which are given anew once one is gone.
    return [(name, one) for name, control in CONTROLS.items() if name in controls for one in control.reads(data, own)]


def shuffled_rows(cells: Cells, split: Split, *, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return for each step the step whose labels it gets, ``[N]``: one of another grid, of the same shape and part.

    The steps of one grid get those of one other grid in order (from the start again where that has fewer), so that
    everything of a grid stays together. Steps in no part keep their own.
    """
    rows = np.arange(len(cells))
    for name, mask in split.parts:
        shapes: dict[tuple[int, ...], dict[str, list[int]]] = {}
        for at in np.flatnonzero(mask).tolist():
            shapes.setdefault(tuple(cells.shape[at].tolist()), {}).setdefault(str(cells.grid_id[at]), []).append(at)
        for (height, width), grids in shapes.items():
            listed: list[Any] = sorted(grids)
            if len(listed) < 2:
                raise ValueError(
                    f"labels can be shuffled between two grids or more of a shape, the {name} part has one of "
                    f"{height} x {width}: record more grids, test another share of them, or leave the control out"
                )
            mixed = stream(seed, "shuffled labels", name, height, width).permutation(len(listed))
            for here, there in zip(mixed.tolist(), np.roll(mixed, 1).tolist(), strict=True):
                rows[grids[listed[here]]] = np.resize(grids[listed[there]], len(grids[listed[here]]))
    return rows
