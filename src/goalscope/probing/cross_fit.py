"""Decoded maps that no probe has seen the truth of: training steps are decoded by probes of the other training grids.

A baseline that is fitted on decoded maps must meet in training what it will meet in the test. Maps that a probe decodes
at the very steps it was fitted on are better than those of other grids, and a line on them counts on too much.

Source: Stone 1974, Cross-validatory choice and assessment of statistical predictions.
"""

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_whole
from goalscope.probing.fitting import Callbacks
from goalscope.probing.inputs import ProbeInputs, Split, grid_kinds
from goalscope.probing.labels import CLASSES, Cells
from goalscope.probing.maps import DecodedMaps, decode_maps
from goalscope.probing.problem import FitSettings
from goalscope.probing.suite import probe_cells
from goalscope.rng import stream

FOLDS: Final = 5
"""Parts of the training grids, where there are as many grids."""


def grid_folds(
    cells: Cells, train: npt.NDArray[np.bool_], *, folds: int = FOLDS, seed: int = 0
) -> npt.NDArray[np.int64]:
    """Return the fold of each step, ``[N]`` from 0, -1 outside of the training part ``[N]``.

    All steps of a grid are in one fold; the grids of each shape and density are dealt out over all folds. With fewer
    training grids than folds each of them is a fold.

    Raises:
        ValueError: fewer than two folds or training grids.
    """
    check_whole("the number of folds", folds, 2)
    kinds = {grid: kind for grid, kind in grid_kinds(cells).items() if grid in set(cells.grid_id[train].tolist())}
    if len(kinds) < 2:
        raise ValueError(f"folds need two training grids or more, got {len(kinds)}: record more grids")
    dealt: dict[str, int] = {}
    for kind in sorted(set(kinds.values())):
        listed = sorted(grid for grid, own in kinds.items() if own == kind)
        for at in stream(seed, "folds", *kind).permutation(len(listed)).tolist():
            dealt[listed[at]] = len(dealt) % folds
    return np.array([dealt.get(grid, -1) for grid in cells.grid_id.tolist()], dtype=np.int64)


def cross_fitted(
    data: ProbeInputs,
    *,
    head: str = "mlp",
    folds: int = FOLDS,
    settings: FitSettings | None = None,
    callbacks: Callbacks | None = None,
) -> dict[tuple[str, int], DecodedMaps]:
    """Return the decoded maps of all N steps at each place, none of them from a probe that was fitted on its grid.

    Steps of each fold of the training grids are decoded by the probe of the other folds (scope "fold 1 of 5" etc.), all
    others by the probe of all training grids, at natural class frequencies.

    Args:
        data: what is read, the truth and the split.
        head: registered head of cells.
        folds: number of folds, see `grid_folds`; as many probes are fitted beside the one of all training grids.
        settings: how probes are trained; their seed decides the folds.
        callbacks: probes that are known are not fitted again; is told of each that is finished.

    Raises:
        ValueError: fewer than two training grids, or what `probe_cells` refuses.
    """
    used = settings or FitSettings()
    fold = grid_folds(data.cells, data.split.train, folds=folds, seed=used.seed)
    own = replace(data, random={})
    parts = {"general": (data.split, fold < 0)}
    count = int(fold.max()) + 1
    for at in range(count):
        split = Split(train=data.split.train & (fold != at), test=fold == at, grid_id=data.split.grid_id)
        parts[f"fold {at + 1} of {count}"] = (split, fold == at)
    side = data.cells.frame
    posteriors = {
        (str(one.site), one.layer): np.zeros((len(data.cells), side, side, len(CLASSES)), dtype=np.float32)
        for one in data.activations
    }
    for scope, (split, decoded) in parts.items():
        fitted = probe_cells(
            replace(own, split=split),
            suite=((head, "none"),),
            settings=used,
            scope=scope,
            callbacks=callbacks,
            scored=False,
        )
        for one in data.activations:
            said = fitted.probe(head, one, scope=scope).predict(one.where(decoded), device=used.device)
            posteriors[one.site, one.layer][decoded] = said.maps("natural")
    return {place: decode_maps(posterior) for place, posterior in posteriors.items()}
