"""Scores by grid, the cluster of every interval: which steps a grid has, what is known of it, means over its steps."""

from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.probing.cells import Cells
from goalscope.probing.decisions import Decisions
from goalscope.stats.estimate import factorize


def grids_of(cells: Cells) -> tuple[npt.NDArray[np.int64], list[Any], dict[str, list[Any]]]:
    """Return the number of each step's grid ``[N]``, the G grids in their order of appearance, and their tags."""
    codes, grids = factorize(cells.grid_id)
    return codes, grids, grid_tags(cells, np.unique(codes, return_index=True)[1])


def grid_tags(steps: Cells | Decisions, first: npt.NDArray[np.int64]) -> dict[str, list[Any]]:
    """Return the tags size (longer side, cells) and density of G grids, None where it is not known.

    Args:
        steps: N steps.
        first: ``[G]`` index of some step of each grid.
    """
    return {
        "size": steps.shape[first].max(axis=1).tolist(),
        "density": [None if np.isnan(one) else float(one) for one in steps.density[first]],
    }


def members(codes: npt.NDArray[np.int64], count: int) -> list[npt.NDArray[np.int64]]:
    """Return the indices of the steps of each of so many grids, rising, from the number of each step's grid ``[N]``."""
    ends = np.cumsum(np.bincount(codes, minlength=count))
    return np.split(np.argsort(codes, kind="stable"), ends)[:count]


def ratio(above: npt.NDArray[Any], below: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return ``above / below``, ``[G]`` each, NaN where nothing is below the line."""
    found: npt.NDArray[np.float64] = np.full(len(below), np.nan)
    np.divide(above, below, out=found, where=below > 0)
    return found
