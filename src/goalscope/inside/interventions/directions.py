"""Directions of the residual stream that represent "the goal (or the agent) is at cell c", with their controls.

At the tokens of cells, a direction represents a class of cells. It is added at the cell that becomes the goal and
subtracted at the cell that was the goal. Before and after the reasoning, a direction represents a position, as in
"goal at c" - "goal at b". A probe's direction is the gradient of a class score. A mean difference is the difference
between the mean activations of two classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.inside.interventions.pairs import Pair
from goalscope.inside.interventions.reading import ReadStates, Where
from goalscope.inside.probing.fitting import fit
from goalscope.inside.probing.inputs import Features, Source
from goalscope.inside.probing.labels import AGENT, CLASSES, GOAL, label_grid
from goalscope.inside.probing.probe import Probe, ProbeKey
from goalscope.inside.probing.probe_store import stored_probes
from goalscope.inside.probing.problem import FitSettings, Problem

PROBE: Final = "probe"
MEAN: Final = "mean difference"
SHUFFLED: Final = "shuffled probe"
RANDOM: Final = "random"
OWN: Final = "own difference"
"""Kinds of directions; the last is the pair's own difference, which is a patch: the upper bound for a change there."""
Kind = Literal["probe", "mean difference", "shuffled probe"]

_THINGS: Final[Mapping[str, int]] = {"agent": AGENT, "goal": GOAL}
_MIN_STATES: Final = 2  # minimum number of states on each side of a mean difference
_PENALTIES: Final = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Directions:
    """Directions at one site and layer.

    Attributes:
        site, layer: origin of the activations.
        probe: probe of the class of a cell; `flips` applies it to steered states.
        shuffled: the same probe, fitted to the labels of other states.
        means: class, or (class, cell), -> mean activation ``[P * D]`` float64 and number of states.
    """

    site: Where
    layer: int
    probe: Probe
    shuffled: Probe
    means: Mapping[Any, tuple[npt.NDArray[np.float64], int]] = field(default_factory=dict)

    def vectors(self, kind: Kind, pair: Pair) -> npt.NDArray[np.float64] | None:
        """Return the vectors that turn the first side of a pair into the second, ``[P, D]`` of any length.

        None if a class or a cell has too few states, or if the moved thing has no class (a key).
        """
        changes = self._changes(pair)
        if changes is None:
            return None
        differences = []
        for gained, lost in changes:
            if kind == MEAN:
                (after, n_after), (before, n_before) = (
                    self.means.get(self._mean_key(key), (np.zeros(1), 0)) for key in (gained, lost)
                )
                if min(n_after, n_before) < _MIN_STATES:
                    return None
                differences.append(after - before)
            else:
                probe = self.probe if kind == PROBE else self.shuffled
                differences.append(_gradient(probe, *gained) - _gradient(probe, *lost))
        joined = np.stack(differences) if self.site == "changed" else differences[0]
        return joined.reshape(len(pair.changed) if self.site == "changed" else 3, -1)

    def flips(self, pair: Pair, steered: Array) -> bool:
        """Return whether the probe predicts the second side of a pair from steered activations ``[P, D]``."""
        changes = self._changes(pair)
        if changes is None:
            return False
        cells = self.site == "changed"
        probabilities = self.probe.predict(
            _features(self.probe.source, steered if cells else steered.reshape(1, -1))
        ).balanced
        if cells:
            return all(
                int(cell_probabilities[0].argmax()) == gained[1]
                for cell_probabilities, (gained, _) in zip(probabilities, changes, strict=True)
            )
        ((cell, label), _) = changes[0]
        return int(probabilities[0, :, label].argmax()) == cell

    def _changes(self, pair: Pair) -> list[tuple[tuple[int, int], tuple[int, int]]] | None:
        """Return pairs (gained, lost) of (cell of the frame, class), one per changed cell or one for the moved thing.

        At the tokens of cells, the frame is a single cell.
        """
        if pair.moved not in _THINGS:
            return None
        grids = [side.view.grid for side in pair.sides]
        labels = [label_grid(grid, max(grid.height, grid.width)) for grid in grids]
        if self.site == "changed":
            return [((0, int(labels[1][cell])), (0, int(labels[0][cell]))) for cell in pair.cells]
        label = _THINGS[pair.moved]
        moved_cells = [np.argwhere(cells == label)[0] for cells in labels]
        first, second = (int(row) * self.probe.frame + int(col) for row, col in moved_cells)
        return [((second, label), (first, label))]

    def _mean_key(self, change: tuple[int, int]) -> Any:
        return change[1] if self.site == "changed" else change


def _gradient(probe: Probe, cell: int, label: int) -> npt.NDArray[np.float64]:
    """Compute the gradient ``[P * D]`` of a class score at a cell with respect to the activations."""
    act = probe.weights["act"].astype(np.float64).reshape(len(probe.mean), -1, len(CLASSES))
    factor = np.divide(1.0, probe.std, out=np.zeros(len(probe.std)), where=probe.std > 0)
    gradient: npt.NDArray[np.float64] = act[:, cell, label] * factor
    return gradient


def _features(source: Source, vectors: Array, grids: Sequence[str] | None = None) -> Features:
    count = len(vectors)
    names = np.array([f"row {row}" for row in range(count)], dtype=object)
    return Features(
        source=source,
        vectors=np.ascontiguousarray(vectors, dtype=np.float32),
        episode_id=names,
        step=np.zeros(count, dtype=np.int64),
        cluster=names if grids is None else np.array(list(grids), dtype=object),
    )


def fit_directions(
    site: Where, layer: int, model: str, states: ReadStates, activations: Sequence[Array], *, seed: int
) -> Directions:
    """Fit the directions of one site and layer.

    Args:
        site: site of the activations; "changed" and "grid" both mean the tokens of all cells.
        layer: number of the block.
        model: content id of the model.
        states: N states.
        activations: ``[N]`` arrays ``[P, D]``.
        seed: root seed of shuffles and draws.

    Raises:
        ValueError: there are too few grids for a probe.
    """
    rng = stream(seed, "directions", site, layer)
    side = max(max(view.grid.height, view.grid.width) for view in states.views)
    maps = [label_grid(view.grid, max(view.grid.height, view.grid.width)) for view in states.views]
    if site in ("changed", "grid"):
        vectors, labels, grids = _tokens(maps, activations, states.clusters, rng)
    else:
        vectors = np.stack([activation.reshape(-1) for activation in activations])
        labels = np.stack([label_grid(view.grid, side).ravel() for view in states.views])
        grids = list(states.clusters)
    source = Source(site="grid" if site == "changed" else site, layer=layer, model=model, width=vectors.shape[1])
    features = _features(source, vectors, grids)
    shuffled_labels = labels[rng.permutation(len(labels))]
    keys = [
        ProbeKey(head="percell", target="cells", control=control, site=source.site, layer=layer)
        for control in ("none", "shuffled")
    ]
    settings = FitSettings(penalties=_PENALTIES, seed=seed)
    probe, shuffled = fit(
        [
            Problem(key=key, features=features, target=target)
            for key, target in zip(keys, (labels, shuffled_labels), strict=True)
        ],
        settings,
    )
    return Directions(site=site, layer=layer, probe=probe, shuffled=shuffled, means=_means(site, vectors, labels))


def kept_probes(run: Path, site: Where, layer: int, model: str, side: int) -> tuple[Probe, Probe]:
    """Load a run's per-cell linear probe for a site and layer, and its control fitted to shuffled labels.

    Args:
        run: a run directory with such probes.
        site: site of the probe. Runs have probes at the sites pre and post.
        layer: number of the block.
        model: content id of the model.
        side: side of the largest grid.

    Raises:
        FileNotFoundError: there is no such run.
        ValueError: there is no such probe, or only for another model, site or layer.
    """
    by_control: dict[str, Probe] = {}
    unfit: list[str] = []
    for stored, probe in stored_probes(run, head="percell", target="cells"):
        control = str(stored.tags.get("control"))
        source = probe.source
        if control not in ("none", "shuffled") or probe.frame < side:
            continue
        if (source.site, source.layer, source.model) != (site, layer, model):
            unfit.append(f"site {source.site}, layer {source.layer} of {source.model}")
        else:
            by_control.setdefault(control, probe)
    if set(by_control) != {"none", "shuffled"}:
        available = "; ".join(sorted(set(unfit))[:4]) or "none"
        raise ValueError(
            f"steering at site {site}, layer {layer} of {model} needs its per-cell probe and the probe of "
            f"shuffled labels in {run}, with a frame of at least {side} cells; that run has: {available}. "
            f"Fit them with goalscope probe {run} --reads cognitive-map --layers {layer} --full, or leave "
            "probes out"
        )
    return by_control["none"], by_control["shuffled"]


def _tokens(
    maps: Sequence[npt.NDArray[np.int8]],
    activations: Sequence[Array],
    clusters: Sequence[str],
    rng: np.random.Generator,
) -> tuple[Array, npt.NDArray[np.int64], list[str]]:
    """Draw cell tokens with their classes ``[N, 1]``: agent, goal, and a few open cells and walls per grid."""
    vectors, labels, grids = [], [], []
    for cell_classes, activation, cluster in zip(maps, activations, clusters, strict=True):
        flat = cell_classes.ravel()
        for label in range(len(CLASSES) - 1):
            class_cells = np.flatnonzero(flat == label)
            chosen = rng.permutation(class_cells)[:4]
            vectors.append(activation[chosen])
            labels += [label] * len(chosen)
            grids += [cluster] * len(chosen)
    return np.concatenate(vectors), np.array(labels, dtype=np.int64)[:, None], grids


def _means(site: Where, vectors: Array, labels: npt.NDArray[Any]) -> dict[Any, tuple[npt.NDArray[np.float64], int]]:
    means: dict[Any, tuple[npt.NDArray[np.float64], int]] = {}
    if site in ("changed", "grid"):
        for label in np.unique(labels).tolist():
            members = vectors[labels[:, 0] == label].astype(np.float64)
            means[label] = members.mean(axis=0), len(members)
        return means
    for label in _THINGS.values():
        rows, cells = np.nonzero(labels == label)
        for cell in np.unique(cells).tolist():
            members = vectors[rows[cells == cell]].astype(np.float64)
            means[cell, label] = members.mean(axis=0), len(members)
    return means
