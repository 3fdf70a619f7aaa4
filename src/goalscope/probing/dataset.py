"""What all readings of a run's activations stand on: one set of steps, their truth, and one split by grid."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.activations.load import Capture, load_activations
from goalscope.activations.record import Activations
from goalscope.probing.cells import Cells, Split, label_cells, members, split_by_grid
from goalscope.probing.controls import shuffled_rows
from goalscope.probing.decisions import Decisions, decisions_at
from goalscope.probing.distance import label_distances
from goalscope.probing.plans import Plans, label_plans
from goalscope.probing.probe import FRAME
from goalscope.probing.suite import check_sizes
from goalscope.rng import stream
from goalscope.runs import Episode, Store
from goalscope.runs.probing_config import Inside
from goalscope.stats.estimate import factorize

SiteLayer = tuple[str, int]
"""A site and a layer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeDataset:
    """N steps of one agent that have every site, with what is true at them.

    Attributes:
        own, control: captures of the agent's model and of the same architecture with random weights.
        sites: where in a sequence.
        layers: numbers of decoder blocks, rising.
        rows: site -> ``[N]`` indices of the steps among those captured there.
        cells: true classes of all cells.
        split: which grids probes are trained on, and which they are tested on.
        left_out: number of captured steps that lack one of the sites.
        doors: whether some world has a door: no class of cells stands for one.
    """

    own: Capture
    control: Capture | None
    sites: tuple[str, ...]
    layers: tuple[int, ...]
    rows: dict[str, npt.NDArray[np.int64]]
    cells: Cells
    split: Split
    left_out: int
    doors: bool

    @property
    def middle(self) -> int:
        """The middle layer."""
        return self.layers[len(self.layers) // 2]

    @property
    def places(self) -> list[SiteLayer]:
        """All sites and layers, the middle layer of each site first."""
        others = [layer for layer in self.layers if layer != self.middle]
        return [(site, self.middle) for site in self.sites] + [(site, one) for site in self.sites for one in others]

    def load(self, store: Store, place: SiteLayer, *, untrained: bool = False) -> Activations:
        """Return the activations of one place, row by row with the labels.

        Raises:
            ValueError: no untrained control was captured.
        """
        chosen = self.control if untrained else self.own
        if chosen is None:
            raise ValueError("the untrained control needs a capture with random weights, there is none")
        site, layer = place
        found = load_activations(store, site=site, layer=layer, capture=chosen.id).where(self.rows[site])
        self.cells.check_aligned(found)
        return found

    def episodes(self, store: Store) -> Iterator[Episode]:
        """Return the episodes of the steps."""
        return store.episodes(sorted(set(self.cells.episode_id.tolist())))

    def decisions(self, store: Store) -> Decisions:
        """Return what was done at the steps."""
        return decisions_at(self.cells, self.episodes(store))

    def plans(self, store: Store) -> Plans:
        """Return what was executed from each step on."""
        return label_plans(self.cells, self.episodes(store))

    def distances(self, store: Store) -> npt.NDArray[np.float64]:
        """Return the optimal path length from each step, ``[N]``."""
        return label_distances(self.cells, self.episodes(store))


def probe_dataset(
    store: Store,
    own: Capture,
    control: Capture | None,
    layers: Sequence[int],
    declared: Inside,
    *,
    shuffled: bool = True,
) -> ProbeDataset:
    """Return the steps that have every site, their truth and their split.

    Args:
        store: the run.
        own, control: captures of the same steps.
        layers: the layers that are read.
        declared: what is to be read.
        shuffled: whether grids must be enough for the control of shuffled labels.

    Raises:
        ValueError: no step has every site, too few grids to test and train on, for the control of shuffled labels, or
            for probes of one size.
    """
    keys: dict[str, list[tuple[str, int]]] = {}
    first: dict[str, Activations] = {}
    for site in declared.wanted_sites:
        found = load_activations(store, site=site, layer=layers[0], capture=own.id)
        first[site] = found
        keys[site] = list(zip(found.episode_id.tolist(), found.step.tolist(), strict=True))
    common = set.intersection(*(set(listed) for listed in keys.values()))
    if not common:
        raise ValueError(
            f"the steps that are read must have all sites ({', '.join(declared.wanted_sites)}), none has: read fewer"
        )
    rows = {
        site: np.array([at for at, key in enumerate(listed) if key in common], dtype=np.int64)
        for site, listed in keys.items()
    }
    site = declared.wanted_sites[0]
    steps = first[site].where(rows[site])
    if declared.steps is not None:
        kept = _some_of_each(steps.grid_id, declared.steps, declared.seed)
        steps, rows = steps.where(kept), {name: indices[kept] for name, indices in rows.items()}
    episodes = store.episodes(sorted(set(steps.episode_id.tolist())))
    cells = label_cells(steps, episodes, frame=max(FRAME, int(steps.shape.max())))
    split = split_by_grid(cells, test=declared.test, seed=declared.seed)
    # Refused now rather than after the first fits.
    if shuffled:
        shuffled_rows(cells, split, seed=declared.seed)
    if declared.by_size and "cognitive-map" in declared.reads:
        check_sizes(cells, split)
    worlds = set(steps.world_id.tolist())
    return ProbeDataset(
        own=own,
        control=control,
        sites=tuple(declared.wanted_sites),
        layers=tuple(sorted(layers)),
        rows=rows,
        cells=cells,
        split=split,
        left_out=len(set.union(*map(set, keys.values()))) - len(common),
        doors=any(world.id in worlds and world.grid.door is not None for world in store.worlds()),
    )


def _some_of_each(grid_id: npt.NDArray[np.object_], most: int, seed: int) -> npt.NDArray[np.int64]:
    """Return at most so many indices of each grid, in their order."""
    codes, grids = factorize(grid_id)
    chosen = [
        stream(seed, "steps of a grid", str(grid)).permutation(mine)[:most]
        for grid, mine in zip(grids, members(codes, len(grids)), strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def summary(dataset: ProbeDataset) -> dict[str, Any]:
    """Return numbers of steps and grids as plain values."""
    split = dataset.split
    return {
        "steps": len(dataset.cells),
        "steps left out": dataset.left_out,
        "training steps": int(split.train.sum()),
        "test steps": int(split.test.sum()),
        "training grids": len(set(split.grid_id[split.train].tolist())),
        "test grids": len(set(split.grid_id[split.test].tolist())),
    }
